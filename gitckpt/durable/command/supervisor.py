"""A process that starts commands for its driver, and ends them if the driver dies.

On Linux it is a subreaper: it adopts orphans, so no child means no descendant. Orders on stdin:

    start N     N bytes follow: command, directory, environment. Answer: `started PID` or
                `error WHERE CODE TEXT`.
    signal N    Send a signal to all descendants.
    kill        Kill all descendants, repeatedly, until none is left.

Reports on descriptor 3: `ended CODE` for the shell, `alone` when no descendant is left. End of file
on stdin means that the driver is dead: send SIGTERM, for git to remove its locks, then SIGKILL.
"""

from __future__ import annotations

import os
import select
import sys
import time

from gitckpt.durable.command.process_tree import ProcessTree, adopt_orphans

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
    from typing import Any, NoReturn
else:
    import _signal as signal  # as in `process_tree`

# File descriptors. Commands share OUTPUT and ERRORS; DRIVER_END is the driver's end of OUTPUT.
ORDERS, OUTPUT, ERRORS, REPORTS, DRIVER_END = range(5)
SHELL = "/bin/sh"
GRACE = 0.5  # seconds from SIGTERM to SIGKILL after the driver's death

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from gitckpt.durable.command.supervisor import main; main(sys.argv[2:])"
)
_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_CHUNK = 65536
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_RESET = (*_IGNORED, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def arguments(variables: Iterable[str]) -> list[str]:
    """Return the command line of a Python process that calls `main` with `variables`."""
    top = __file__
    for _ in range(4):
        top = os.path.dirname(top)
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, top, *variables]


def main(words: list[str]) -> NoReturn:
    """Run the supervisor; the environment variables in `words` mark its processes."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for fd in (REPORTS, DRIVER_END):
        os.set_inheritable(fd, False)
    tree = ProcessTree(adopts=adopt_orphans(), tag={name: os.environ[name] for name in words})
    Supervisor(tree).serve()
    os._exit(0)


class Supervisor:
    def __init__(self, tree: ProcessTree) -> None:
        self._tree, self._orders, self._shell = tree, b"", 0
        self._is_running = self._has_signaled = self._is_driver_dead = False
        self._kill_at: float | None = None
        self._pause = _PAUSE
        os.set_blocking(ORDERS, False)
        self._poll = select.poll()
        self._poll.register(ORDERS, select.POLLIN)
        self._poll.register(tree.wakeup, select.POLLIN)

    def serve(self) -> None:
        while self._is_running or not self._is_driver_dead:
            pause = self._poll_timeout()
            events = self._poll.poll(None if pause is None else max(pause, 0.001) * 1000)
            ready = [fd for fd, _ in events]
            if ORDERS in ready:
                self._read_orders()
            if DRIVER_END in ready:
                os.read(DRIVER_END, _CHUNK)
            for pid, status in self._tree.reap():
                if pid == self._shell:
                    self._shell = 0
                    self._report(f"ended {os.waitstatus_to_exitcode(status)}")
            if self._is_running:
                self._check_descendants()

    def _poll_timeout(self) -> float | None:
        # Returns the seconds to wait for events; None: without limit.
        now = time.monotonic()
        if self._kill_at is not None:
            return self._kill_at - now if self._kill_at > now else self._pause
        # Orphans that are not adopted end without a signal: poll.
        return _PAUSE if self._is_running and not self._shell else None

    def _check_descendants(self) -> None:
        if not self._shell and self._tree.is_empty:
            self._is_running, self._kill_at = False, None
            self._report("alone")
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._tree.send_signal(signal.SIGKILL)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _read_orders(self) -> None:
        try:
            while chunk := os.read(ORDERS, _CHUNK):
                self._orders += chunk
        except BlockingIOError:
            self._run_orders()
            return
        self._poll.unregister(ORDERS)  # pending orders are obsolete
        # Read the output, else SIGPIPE would kill commands that print during cleanup.
        self._poll.register(DRIVER_END, select.POLLIN)
        self._is_driver_dead = True
        if self._is_running:
            if not self._has_signaled:
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)
            self._kill_by(time.monotonic() + GRACE)

    def _signal(self, number: int) -> None:
        self._has_signaled = True
        self._tree.send_signal(number)

    def _kill_by(self, moment: float) -> None:
        self._kill_at = moment if self._kill_at is None else min(moment, self._kill_at)

    def _run_orders(self) -> None:
        while b"\n" in self._orders:
            line, _, payload = self._orders.partition(b"\n")
            verb, _, number = line.partition(b" ")
            size = int(number) if verb == b"start" else 0
            if len(payload) < size:
                return
            self._orders = payload[size:]
            if verb == b"start":
                self._start(*payload[:size].split(b"\0"))
            elif verb == b"signal" and self._is_running:
                self._signal(int(number))
            elif verb == b"kill" and self._is_running:
                self._kill_by(0)

    def _start(self, command: bytes, directory: bytes, *variables: bytes) -> None:
        env = dict(variable.split(b"=", 1) for variable in variables)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        argv = [os.fsencode(SHELL), b"-c", command]
        options: dict[str, Any] = {"setpgroup": 0, "setsigdef": _RESET, "setsigmask": []}
        failing = "directory"
        try:
            os.chdir(directory)
            failing = "command"
            self._shell = os.posix_spawn(SHELL, argv, env, file_actions=actions, **options)
        except OSError as error:
            self._report(f"error {failing} {error.errno} {error.strerror}")
            return
        finally:
            os.chdir("/")
        self._tree.begin(self._shell)
        self._is_running, self._has_signaled, self._kill_at, self._pause = True, False, None, _PAUSE
        self._report(f"started {self._shell}")

    @staticmethod
    def _report(line: str) -> None:
        try:
            os.write(REPORTS, f"{line}\n".encode())
        except BrokenPipeError:
            pass  # the driver is dead
