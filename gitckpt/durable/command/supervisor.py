"""A process that starts commands for its driver, and ends them if the driver dies.

The driver is the process that executes a run. On Linux, the supervisor is a subreaper: it adopts
orphans, so if it has no child, it has no descendant. It reads orders from stdin:

    start N     N bytes follow: command, directory, environment. Answer: `started PID` or
                `error WHERE CODE TEXT`.
    signal N    Send a signal to all descendants.
    kill        Kill all descendants, repeatedly, until none is left.

It reports on descriptor 3: `ended CODE` for the shell, `alone` when no descendant is left. At the
end of stdin, the driver is dead: it sends SIGTERM, so that git removes its locks, then SIGKILL.
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
    " from gitckpt.durable.command.supervisor import run_supervisor; run_supervisor(sys.argv[2:])"
)
_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_CHUNK = 65536
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_RESET = (*_IGNORED, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def build_supervisor_command(variables: Iterable[str]) -> list[str]:
    import_directory = __file__
    for _ in range(4):
        import_directory = os.path.dirname(import_directory)
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, import_directory, *variables]


def run_supervisor(tag_names: list[str]) -> NoReturn:
    """Run the supervisor; environment variables called `tag_names` mark its commands."""
    for signal_number in _IGNORED:
        signal.signal(signal_number, signal.SIG_IGN)
    for fd in (REPORTS, DRIVER_END):
        os.set_inheritable(fd, False)
    tree = ProcessTree(adopts=adopt_orphans(), tag={name: os.environ[name] for name in tag_names})
    CommandSupervisor(tree).serve_until_driver_dies()
    os._exit(0)


class CommandSupervisor:
    def __init__(self, tree: ProcessTree) -> None:
        self._tree, self._orders, self._shell = tree, b"", 0
        self._is_running = self._has_signaled = self._is_driver_dead = False
        self._kill_at: float | None = None
        self._pause = _PAUSE
        os.set_blocking(ORDERS, False)
        self._poll = select.poll()
        self._poll.register(ORDERS, select.POLLIN)
        self._poll.register(tree.wakeup, select.POLLIN)

    def serve_until_driver_dies(self) -> None:
        while self._is_running or not self._is_driver_dead:
            pause = self._find_poll_timeout()
            poll_events = self._poll.poll(None if pause is None else max(pause, 0.001) * 1000)
            ready_fds = [fd for fd, _ in poll_events]
            if ORDERS in ready_fds:
                self._read_orders()
            if DRIVER_END in ready_fds:
                os.read(DRIVER_END, _CHUNK)
            for pid, status in self._tree.reap_children():
                if pid == self._shell:
                    self._shell = 0
                    self._send_report(f"ended {os.waitstatus_to_exitcode(status)}")
            if self._is_running:
                self._check_descendants()

    def _find_poll_timeout(self) -> float | None:
        # Returns the seconds to wait for events; None: without limit.
        now = time.monotonic()
        if self._kill_at is not None:
            return self._kill_at - now if self._kill_at > now else self._pause
        # Orphans that are not adopted end without a signal: poll.
        return _PAUSE if self._is_running and not self._shell else None

    def _check_descendants(self) -> None:
        if not self._shell and self._tree.is_empty:
            self._is_running, self._kill_at = False, None
            self._send_report("alone")
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._tree.send_signal_to_all(signal.SIGKILL)
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
                self._signal_descendants(signal.SIGTERM)
                self._signal_descendants(signal.SIGCONT)
            self._set_kill_time(time.monotonic() + GRACE)

    def _signal_descendants(self, number: int) -> None:
        self._has_signaled = True
        self._tree.send_signal_to_all(number)

    def _set_kill_time(self, moment: float) -> None:
        self._kill_at = moment if self._kill_at is None else min(moment, self._kill_at)

    def _run_orders(self) -> None:
        while b"\n" in self._orders:
            order_line, _, payload = self._orders.partition(b"\n")
            order_verb, _, argument = order_line.partition(b" ")
            payload_size = int(argument) if order_verb == b"start" else 0
            if len(payload) < payload_size:
                return
            self._orders = payload[payload_size:]
            if order_verb == b"start":
                self._start_command(*payload[:payload_size].split(b"\0"))
            elif order_verb == b"signal" and self._is_running:
                self._signal_descendants(int(argument))
            elif order_verb == b"kill" and self._is_running:
                self._set_kill_time(0)

    def _start_command(self, command: bytes, directory: bytes, *variables: bytes) -> None:
        env = dict(variable.split(b"=", 1) for variable in variables)
        file_actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        argv = [os.fsencode(SHELL), b"-c", command]
        options: dict[str, Any] = {"setpgroup": 0, "setsigdef": _RESET, "setsigmask": []}
        failed_part = "directory"
        try:
            os.chdir(directory)
            failed_part = "command"
            self._shell = os.posix_spawn(SHELL, argv, env, file_actions=file_actions, **options)
        except OSError as error:
            self._send_report(f"error {failed_part} {error.errno} {error.strerror}")
            return
        finally:
            os.chdir("/")
        self._tree.track_process_group(self._shell)
        self._is_running, self._has_signaled, self._kill_at, self._pause = True, False, None, _PAUSE
        self._send_report(f"started {self._shell}")

    @staticmethod
    def _send_report(line: str) -> None:
        try:
            os.write(REPORTS, f"{line}\n".encode())
        except BrokenPipeError:
            pass  # the driver is dead
