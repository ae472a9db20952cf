"""What starts the commands of a driver, and ends them where it cannot: `supervisor`, seen from the driver.

Nobody can handle SIGKILL, and a command that outlives its driver would change files behind the back of the one that resumes. So a process
that waits for our death is the parent of all commands.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import time

from gitckpt.durable.command import processes, supervisor
from gitckpt.durable.command.mark import DIRECTORY_VARIABLE, WATCHDOG_VARIABLE, Mark
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import NoReturn, Self

PATIENCE = 2.0
"""How long the driver may say nothing until its watchdog looks whether somebody took over its lease, in seconds."""

_CHUNK = 65536
_FIRST_FREE = 5
_DYING = 3.0
_TICK = 1000
_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class Gone(Exception):
    """The watchdog has ended, and whatever it watched over with it."""


class Watchdog:
    """Starts commands, one at a time, and ends whatever is left of one when this process is gone. It starts with the first of them.

    Whoever makes it owns its process, and ends it: by `close`, or by leaving its `with`, as a driver does when it has driven. Those who
    get it from him only run commands.

    Args:
        mark: what the commands carry in their environment, so that whoever resumes the run finds them. Without one, nobody does, and
            nobody looks after a lease.

    Attributes:
        pid: its process; 0 while there is none.
        output: where what the commands print is read.
        reports: what is readable when there is something to `hear`.
        mark: as given.
    """

    def __init__(self, mark: Mark | None = None) -> None:
        self.mark = mark
        self.pid = 0
        self.output = self.reports = self._orders = -1
        self._heard = b""
        self._said_at = time.monotonic()
        self._is_busy = False

    def prepare(self) -> None:
        """Starts it, where it does not run, so that it is ready when a command is to be started. Raises `CkptError`."""
        self.abandon()
        if self._orders < 0 or self._has_ended():
            self.close()
            self._start()

    def abandon(self) -> None:
        """Ends a command of which nobody knows what became of its start, since something was raised meanwhile; the watchdog ends, too."""
        if self._is_busy:
            self.close()

    def launch(self, command: str, directory: str, env: Mapping[str, str]) -> None:
        """Starts a command.

        Args:
            command: what `/bin/sh -c` runs, with nothing on standard input.
            directory: where it runs.
            env: its whole environment, but for PWD and OLDPWD, which are the shell's, and the mark.

        Raises:
            CkptError: it cannot be started.
            Gone: the watchdog has ended meanwhile.
        """
        order = _start_order(command, directory, {**env, **(self.mark.variables if self.mark else {})})
        self.prepare()
        drain(self.output)
        self._is_busy = True  # until it says otherwise: it may have read half of an order, or said something that nobody has read
        self._order(order)
        word, *words = self._next_report().split(" ", 3)
        if word == "error":
            self._is_busy = False
            where, code, text = words
            _cannot_start(int(code), text, directory if where == "directory" else "")

    def send(self, number: int) -> None:
        """Sends a signal to all that descend from the command. Raises `Gone`."""
        self._order(b"signal %d\n" % number)

    def kill(self) -> None:
        """Kills all that descend from the command, again and again until nobody is left. Raises `Gone`."""
        self._order(b"kill\n")

    def reassure(self) -> None:
        """Says that this process is at work, and holds its lease. Raises `Gone`."""
        self._order(b"alive\n")

    @property
    def silence(self) -> float:
        """How long nothing was said to it, in seconds."""
        return time.monotonic() - self._said_at

    def hear(self) -> list[str]:
        """Returns what it reports of the command, without waiting: `ended CODE`, `alone`. Raises `Gone`."""
        if _is_readable(self.reports, 0):
            self._receive()
        *lines, self._heard = self._heard.split(b"\n")
        self._is_busy = self._is_busy and b"alone" not in lines
        return [line.decode() for line in lines]

    def close(self) -> None:
        """Ends the watchdog, which ends what is left of a command, and waits for its end, or some seconds if somebody cannot be ended."""
        for fd in (self._orders, self.output, self.reports):
            if fd >= 0:
                os.close(fd)
        self._orders = self.output = self.reports = -1
        self._heard, self._is_busy = b"", False
        self._wake()
        until, pause = time.monotonic() + supervisor.GRACE + _DYING, 0.001
        while not self._has_ended() and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        self.pid = 0  # where it has not ended, it stays, so that whoever resumes the run can tell what is left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _has_ended(self) -> bool:
        """Returns whether its process has ended, or there was none."""
        try:
            if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = 0
        except ChildProcessError:
            self.pid = 0
        return not self.pid

    def _wake(self) -> None:
        """Has it go on where a command has stopped it: `kill -STOP $PPID` is meant for a driver, and means the parent of a shell."""
        if self.pid:  # with the inner process, which is in its group; a number that is not waited for is nobody else's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGCONT)

    def _order(self, order: bytes) -> None:
        self._said_at = time.monotonic()
        self._wake()
        view = memoryview(order)
        try:
            while view and self._orders >= 0:
                view = view[os.write(self._orders, view) :]
        except BrokenPipeError:
            raise Gone from None
        if view:
            raise Gone

    def _next_report(self) -> str:
        while b"\n" not in self._heard:
            if _is_readable(self.reports, _TICK):
                self._receive()
            else:
                self._wake()
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode(errors="replace")

    def _receive(self) -> None:
        said = os.read(self.reports, _CHUNK) if self.reports >= 0 else b""
        if not said:
            raise Gone
        self._heard += said

    def _start(self) -> None:
        theirs_orders, orders = _make_pipe()
        output, theirs_output = _make_pipe()
        reports, theirs_reports = _make_pipe()
        theirs = (theirs_orders, theirs_output, theirs_output, theirs_reports, output)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(theirs)]
        env, words = {**os.environ, WATCHDOG_VARIABLE: processes.own_name()}, ["0"]
        if self.mark is not None:
            env |= {**self.mark.variables, DIRECTORY_VARIABLE: self.mark.directory}
            words = [str(PATIENCE), *self.mark.variables]
        argv = supervisor.arguments("supervisor", *words)
        try:
            # In a group of its own, since Ctrl-C is ours; in our session, so that the commands have the terminal that ssh asks.
            self.pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setpgroup=0, setsigdef=_DEFAULT, setsigmask=[])
        except OSError as error:
            for fd in (orders, output, reports):
                os.close(fd)
            message = f"cannot start the watchdog of a command, {argv[0] or 'Python'}: {error.strerror}"
            raise CkptError(message, hint="see what runs: ps") from None
        finally:
            for fd in (theirs_orders, theirs_output, theirs_reports):
                os.close(fd)
        self._orders, self.output, self.reports = orders, output, reports


def _is_readable(fd: int, milliseconds: float | None) -> bool:
    """Returns whether there is something to be read, or its end, after so long at the most."""
    poll = select.poll()  # `select` refuses file descriptors above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def drain(fd: int) -> bytes:
    """Returns what is in a pipe to which nobody writes any more."""
    found = b""
    while _is_readable(fd, 0):
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            break
        found += chunk
    return found


def _make_pipe() -> tuple[int, int]:
    """Returns both ends of a pipe, reading end first. No child inherits them, and neither has a number that the supervisor's ends get.

    Where our standard streams are closed, a pipe gets their numbers; given to a child as one of its streams, it would be overwritten.
    """
    fds = os.pipe()
    reading, writing = (fd if fd >= _FIRST_FREE else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in fds)
    for fd in {*fds} - {reading, writing}:
        os.close(fd)
    return reading, writing


def _start_order(command: str, directory: str, env: Mapping[str, str]) -> bytes:
    # A relative one would be looked for from the supervisor's. Ours may be gone by now.
    parts = [command, directory if os.path.isabs(directory) else os.path.join(os.getcwd(), directory)]
    parts += [f"{name}={value}" for name, value in env.items() if name not in ("PWD", "OLDPWD")]
    if any("\0" in part for part in parts):
        _cannot_start(0, "embedded null byte")
    if any("=" in name or not name for name in env):
        _cannot_start(0, "illegal environment variable name")
    try:
        order = b"\0".join(map(os.fsencode, parts))
    except UnicodeEncodeError as error:
        _cannot_start(0, str(error))
    return b"start %d\n%b" % (len(order), order)


def _cannot_start(code: int, text: str, directory: str = "") -> NoReturn:
    if directory:
        raise CkptError(f"cannot run a command in {directory}: {text}", hint="open the worktree again: git ckpt resume")
    if not code:
        raise CkptError(f"cannot start the command: {text}", hint="take that out of the command or its environment")
    hint = "put the command into a script, and call that" if code == errno.E2BIG else "see what runs already: ps"
    raise CkptError(f"cannot start the command: {text}", hint=hint)
