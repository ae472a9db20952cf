"""The process that starts the commands of a driver, so that all that they start descends from it, whatever group or session it makes.

As their subreaper (Linux) it becomes the parent of whoever lost its own: nobody leaves the family by a double fork, by `setsid`, or by
clearing the environment, and where there is no child, nobody is left. It is two processes: the outer one inherits the family where the
inner one is killed, and ends it. Where both are, a control group knows the family, if one can be had (`cgroup`). The inner one reads
orders, a line each:

    start N     N bytes follow: command, directory and environment. It is answered by `started PID`, or `error WHERE CODE TEXT`.
    signal N    Everybody of the family gets the signal.
    kill        The family is killed, again and again until it is gone.
    alive       The driver is at work, and holds its lease.

`ended CODE` says that the shell has ended, `alone` that nobody of the family is left. At the end of the orders the driver is dead: the
family gets SIGTERM, by which git takes its locks away, and half a second later SIGKILL. The same happens while the driver is silent,
stopped perhaps, and somebody else has taken its lease.
"""

from __future__ import annotations

import os
import select
import sys
import time

from gitckpt.durable.command import cgroup
from gitckpt.durable.command.family import Family, adopt

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    import _signal as signal  # `signal` makes enumerations of its names, which takes a third of the start

ORDERS, OUTPUT, ERRORS, REPORTS, SHOWN = range(5)
"""Its file descriptors. Output and errors are those of the commands as well; the last one is where the driver reads them."""

SHELL = "/bin/sh"
GRACE = 0.5
"""From SIGTERM to SIGKILL where the driver is dead, in seconds."""

_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv[1]); from gitckpt.durable.command.{0} import main; main(sys.argv[2:])"
_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_CHUNK = 65536
_DEAF_TO = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_RESET = (*_DEAF_TO, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def arguments(module: str, *words: str) -> list[str]:
    """Returns how a module of this room is run as a program that starts fast.

    Args:
        module: its name; it has a function `main`.
        words: what that gets.
    """
    top = __file__
    for _ in range(4):
        top = os.path.dirname(top)
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP.format(module), top, *words]


def main(words: list[str]) -> NoReturn:
    """Supervises the commands of the driver that started this process, until that is dead.

    Args:
        words: after how many seconds of silence to look whether its lease was taken over, and the names of the variables that mark what it
            starts, in the order of `Mark.variables`. Without a lease there are none.
    """
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    for fd in (REPORTS, SHOWN):
        os.set_inheritable(fd, False)
    marks = {name: os.environ[name] for name in words[1:]}
    group = cgroup.make(*marks.values()) if marks else None
    adopts = adopt()
    if adopts:
        inner = os.fork()
        if inner:
            _stand_by(inner, group)
        adopts = adopt()
    if group is not None:
        cgroup.join(group)
    Supervisor(Family(adopts=adopts, marks=marks), float(words[0]) if marks else None).attend()
    if group is not None:
        cgroup.leave(group)
    os._exit(0)


def _stand_by(inner: int, group: str | None) -> NoReturn:
    """Waits for the end of the inner process, ends what it left, and removes the control group that it was in."""
    for fd in (ORDERS, OUTPUT, ERRORS, REPORTS, SHOWN):
        os.close(fd)  # the driver has to see that nobody is there any more
    family = Family(adopts=True, marks={})
    while all(pid != inner for pid, _ in family.wait(None)):
        pass
    if not family.is_gone:
        family.send(signal.SIGTERM)
        family.send(signal.SIGCONT)
    kill_at, pause = time.monotonic() + GRACE, _PAUSE
    while not family.is_gone:
        left = kill_at - time.monotonic()
        if left <= 0:
            family.send(signal.SIGKILL)
            left = pause = min(2 * pause, _LONGEST_PAUSE)
        family.wait(left)
    if group is not None:
        cgroup.remove(group)
    os._exit(0)


class Supervisor:
    """Does what it is ordered to, and looks after the family.

    Args:
        family: that of this process.
        patience: how long the driver may be silent until somebody looks after its lease, in seconds; None where it has none.
    """

    def __init__(self, family: Family, patience: float | None) -> None:
        self._family = family
        self._patience = patience
        self._heard = 0.0
        self._orders = b""
        self._shell = 0
        self._is_at_work = False
        self._is_told = False
        self._is_orphan = False
        self._kill_at: float | None = None
        self._pause = _PAUSE
        os.set_blocking(ORDERS, False)
        self._poll = select.poll()
        self._poll.register(ORDERS, select.POLLIN)
        self._poll.register(family.woken, select.POLLIN)

    def attend(self) -> None:
        """Goes on until the driver is dead and the family gone."""
        while self._is_at_work or not self._is_orphan:
            pause = self._next_look()
            ready = [fd for fd, _ in self._poll.poll(None if pause is None else max(pause, 0.001) * 1000)]
            if ORDERS in ready:
                self._listen()
            if SHOWN in ready:
                os.read(SHOWN, _CHUNK)
            for pid, status in self._family.reap():
                self._note_end(pid, os.waitstatus_to_exitcode(status))
            if self._is_at_work:
                self._look_after()

    def _next_look(self) -> float | None:
        """Returns how long there is nothing to do unless somebody says something or ends, in seconds."""
        now = time.monotonic()
        if self._kill_at is not None:
            return self._kill_at - now if self._kill_at > now else self._pause
        if not self._is_at_work:
            return None
        if not self._shell:
            return _PAUSE  # where orphans are not adopted, nobody tells of their end
        return None if self._patience is None else self._heard + self._patience - now

    def _look_after(self) -> None:
        now = time.monotonic()
        if not self._shell and self._family.is_gone:
            self._is_at_work, self._kill_at = False, None
            self._report("alone")
        elif self._kill_at is not None and now >= self._kill_at:
            self._family.send(signal.SIGKILL)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        elif self._patience is not None and now >= self._heard + self._patience:
            self._heard = now
            self._look_at_lease()

    def _look_at_lease(self) -> None:
        """Lets somebody look who takes so long as git does, unless one is at it still, or the family has to end anyway."""
        if not self._family.spared and not self._is_orphan:
            self._family.spared = os.posix_spawn(sys.executable, arguments("tenure"), os.environ)

    def _note_end(self, pid: int, code: int) -> None:
        if pid == self._shell:
            self._shell = 0
            self._report(f"ended {code}")
        elif pid == self._family.spared:
            self._family.spared = 0
            if code == LOST and self._is_at_work:
                self._end()

    def _end(self) -> None:
        """Ends the family, sooner or later."""
        if not self._is_told:
            self._tell(signal.SIGTERM)
            self._tell(signal.SIGCONT)
        self._kill_by(time.monotonic() + GRACE)

    def _tell(self, number: int) -> None:
        self._is_told = True
        self._family.send(number)

    def _kill_by(self, at: float) -> None:
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _listen(self) -> None:
        try:
            while chunk := os.read(ORDERS, _CHUNK):
                self._orders += chunk
        except BlockingIOError:
            self._heard = time.monotonic()
            self._obey()
            return
        self._poll.unregister(ORDERS)  # what the driver ordered last, nobody waits for any more
        self._poll.register(SHOWN, select.POLLIN)  # who says something while it cleans up is not to die of that
        self._is_orphan = True
        if self._is_at_work:
            self._end()

    def _obey(self) -> None:
        while b"\n" in self._orders:
            line, _, rest = self._orders.partition(b"\n")
            word, _, number = line.partition(b" ")
            size = int(number) if word == b"start" else 0
            if len(rest) < size:
                return
            self._orders = rest[size:]
            if word == b"start":
                self._start(*rest[:size].split(b"\0"))
            elif word == b"signal" and self._is_at_work:
                self._tell(int(number))
            elif word == b"kill" and self._is_at_work:
                self._kill_by(0)

    def _start(self, command: bytes, directory: bytes, *variables: bytes) -> None:
        env = dict(variable.split(b"=", 1) for variable in variables)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        where = "directory"
        try:
            os.chdir(directory)
            where = "command"
            argv = [os.fsencode(SHELL), b"-c", command]
            self._shell = os.posix_spawn(SHELL, argv, env, file_actions=actions, setpgroup=0, setsigdef=_RESET, setsigmask=[])
        except (OSError, ValueError) as error:
            code, text = (error.errno, error.strerror) if isinstance(error, OSError) else (0, str(error))
            self._report(f"error {where} {code} {text}")
            return
        finally:
            os.chdir("/")
        self._family.begin(self._shell)
        self._is_at_work, self._is_told, self._kill_at, self._pause = True, False, None, _PAUSE
        self._report(f"started {self._shell}")

    @staticmethod
    def _report(line: str) -> None:
        try:
            os.write(REPORTS, f"{line}\n".encode())
        except BrokenPipeError:
            pass  # the driver is dead


LOST = 3
"""Exit code of `gitckpt.durable.command.tenure`: somebody else holds the lease by now, or nobody."""
