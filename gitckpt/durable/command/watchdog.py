"""Control the supervisor: the process that starts and ends a driver's commands.

A driver that is killed by SIGKILL cannot end its commands, which would change files during the
next attempt. So a separate process is their parent, and ends them when the driver dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from gitckpt.durable.command import process_tree, supervisor
from gitckpt.durable.command.process_tree import Process
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import BusyError, CkptError
from gitckpt.model.values import dataclass
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE

# Identifies the repository: run ids are not unique across copies of a repository.
REPOSITORY_VARIABLE = "CKPT_REPOSITORY"

# Set for supervisors only: the driver process, as `process_tree.current_process_name` returns it.
WATCHDOG_VARIABLE = "CKPT_WATCHDOG"
_VARIABLES = (RUN_VARIABLE, FENCE_VARIABLE, REPOSITORY_VARIABLE, WATCHDOG_VARIABLE)
_PAUSE = 0.01  # seconds
_WATCHDOG_WAIT = supervisor.GRACE + 0.5
_GRACE, _KILL_WAIT, _SHOWN = 2.0, 3.0, 5  # seconds, seconds, processes


@dataclass(frozen=True, slots=True)
class DriverEnvTag:
    """Environment variables by which the processes of one driver of a run are found."""

    run: str
    token: int  # fencing token of the lease
    directory: str  # the common directory of the repository

    @property
    def env_variables(self) -> dict[str, str]:
        lease_variables = {RUN_VARIABLE: self.run, FENCE_VARIABLE: str(self.token)}
        return {**lease_variables, REPOSITORY_VARIABLE: self.repository_id}

    @property
    def repository_id(self) -> str:
        """Return device and inode of the repository, which stay the same after a move."""
        directory_status = os.stat(self.directory)
        return f"{directory_status.st_dev}:{directory_status.st_ino}"


class _Leftovers(NamedTuple):
    tools: list[Process]  # processes of commands
    supervisors: list[Process]  # only those whose driver is dead


def end_leftover_processes(tag: DriverEnvTag, *, older: bool = True) -> list[str]:
    """End the processes that earlier drivers of a run left; return their descriptions.

    If `older` is false, ends the processes of the driver with this tag instead. Raises BusyError if
    a process does not end.
    """
    scanner = _LeftoverScanner(tag, older=older)
    leftovers = scanner.find_leftovers()
    ended_processes = [process_tree.describe_process(process) for process in leftovers.tools]
    if leftovers.supervisors:
        # Let supervisors end their tools: many programs stop cleaning up at a second SIGTERM.
        leftovers = scanner.wait_for_leftovers_to_end(_WATCHDOG_WAIT)
    if any(leftovers):
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGTERM)
        for process in (*leftovers.tools, *leftovers.supervisors):
            process_tree.send_signal(process, signal.SIGCONT)
        leftovers = scanner.wait_for_leftovers_to_end(_GRACE)
    deadline = time.monotonic() + _KILL_WAIT
    while any(leftovers):
        if time.monotonic() > deadline:
            raise make_cannot_end_error(leftovers.tools or leftovers.supervisors)
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGKILL)
        time.sleep(_PAUSE)
        leftovers = scanner.find_leftovers()
    return ended_processes


def make_cannot_end_error(processes: Sequence[Process]) -> BusyError:
    names = join_first([process_tree.describe_process(process) for process in processes], _SHOWN)
    pids = " ".join(str(process.pid) for process in processes[:_SHOWN])
    message = f"cannot end processes of an earlier attempt, which may still change files: {names}"
    hint = f"end these processes: sudo kill -9 {pids}; then: git ckpt resume"
    return BusyError(message, hint=hint)


class _LeftoverScanner:
    def __init__(self, tag: DriverEnvTag, *, older: bool) -> None:
        self._tag, self._older = tag, older
        # Start times by pid: an untagged process may lose the parent through which it was found.
        self._tool_starts: dict[int, str] = {}

    def wait_for_leftovers_to_end(self, seconds: float) -> _Leftovers:
        deadline = time.monotonic() + seconds
        while any(leftovers := self.find_leftovers()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return leftovers

    def find_leftovers(self) -> _Leftovers:
        tagged_pids = process_tree.find_pids_with_variable(REPOSITORY_VARIABLE)
        if not tagged_pids and not self._tool_starts:
            return _Leftovers([], [])
        processes = process_tree.list_processes()
        repository = self._tag.repository_id
        starts = self._tool_starts.items()
        tools = {pid for pid, start in starts if pid in processes and processes[pid].start == start}
        driver_names: dict[int, str] = {}
        for pid in tagged_pids & processes.keys():
            variables = process_tree.read_env_variables(processes[pid], _VARIABLES)
            if variables.get(REPOSITORY_VARIABLE) == repository and self._matches_tag(variables):
                if WATCHDOG_VARIABLE in variables:
                    driver_names[pid] = variables[WATCHDOG_VARIABLE]
                else:
                    tools.add(pid)
        descendants = process_tree.find_descendants(tools | driver_names.keys(), processes)
        tools |= {process.pid for process in descendants}
        tools -= driver_names.keys() | process_tree.find_ancestors(os.getpid(), processes)
        self._tool_starts.update((pid, processes[pid].start) for pid in tools)
        is_running = process_tree.is_process_running
        orphans = {pid for pid, name in driver_names.items() if not is_running(name, processes)}
        return _Leftovers(*([processes[pid] for pid in sorted(pids)] for pids in (tools, orphans)))

    def _matches_tag(self, variables: Mapping[str, str]) -> bool:
        token = variables.get(FENCE_VARIABLE, "")
        is_number = token.isascii() and token.isdigit()
        if variables.get(RUN_VARIABLE) != self._tag.run or not is_number:
            return False
        return int(token) < self._tag.token if self._older else int(token) == self._tag.token


_CHUNK, _FIRST_FREE, _DYING = 65536, 5, 3.0
_TICK = 1000  # milliseconds
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class SupervisorEnded(Exception):
    """The supervisor process ended before it was told to end."""


class Watchdog:
    """Starts commands, one at a time; a supervisor ends them when this process dies."""

    def __init__(self, tag: DriverEnvTag) -> None:
        self.tag = tag  # marks commands, so that a later attempt finds them
        self.pid = 0  # of the supervisor; 0 without one
        self.output = self.reports = self._orders = -1
        self._unread = b""
        self._used_at = time.monotonic()
        self._is_busy = False

    def prepare_supervisor(self) -> None:
        self.end_if_busy()
        if self._orders < 0 or self._has_supervisor_ended():
            self.end_supervisor()
            self._start_supervisor()

    def end_if_busy(self) -> None:
        """End the supervisor if its last command may still be running."""
        if self._is_busy:
            self.end_supervisor()

    def launch_command(self, command: str, directory: str, env: Mapping[str, str]) -> None:
        order = _encode_order(command, directory, {**env, **self.tag.env_variables})
        self.prepare_supervisor()
        read_available_bytes(self.output)
        self._is_busy = True  # an interrupt may leave half an order or an unread report
        self._send_order(order)
        while b"\n" not in self._unread:
            if _is_readable(self.reports, _TICK):
                self._receive_reports()
            else:
                self.wake_supervisor()
        report, _, self._unread = self._unread.partition(b"\n")
        report_verb, *report_words = report.decode(errors="replace").split(" ", 3)
        if report_verb == "error":
            self._is_busy = False
            failed_at, code, text = report_words
            raise _make_start_error(text, int(code), directory if failed_at == "directory" else "")

    def send_signal(self, number: int) -> None:
        self._send_order(b"signal %d\n" % number)

    def kill_command(self) -> None:
        self._send_order(b"kill\n")

    def wake_supervisor(self) -> None:
        """Continue the supervisor with SIGCONT, because its command may have stopped it."""
        self._used_at = time.monotonic()
        if self.pid:  # not reaped yet, so the pid is not reused
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._used_at

    def read_supervisor_reports(self) -> list[str]:
        if _is_readable(self.reports):
            self._receive_reports()
        *lines, self._unread = self._unread.split(b"\n")
        self._is_busy = self._is_busy and b"alone" not in lines
        return [line.decode() for line in lines]

    def end_supervisor(self) -> None:
        """End the supervisor and all processes of its command; wait a few seconds for it."""
        self.wake_supervisor()
        for fd in (self._orders, self.output, self.reports):
            if fd >= 0:
                os.close(fd)
        self._orders = self.output = self.reports = -1
        self._unread, self._is_busy = b"", False
        deadline, pause_seconds = time.monotonic() + supervisor.GRACE + _DYING, 0.001
        while not self._has_supervisor_ended() and time.monotonic() < deadline:
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 0.02)
        self.pid = 0  # if still running: the next attempt ends its descendants

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end_supervisor()

    def _has_supervisor_ended(self) -> bool:
        try:
            if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = 0
        except ChildProcessError:
            self.pid = 0
        return not self.pid

    def _send_order(self, order: bytes) -> None:
        self.wake_supervisor()
        unsent_bytes = memoryview(order)
        try:
            while unsent_bytes and self._orders >= 0:
                unsent_bytes = unsent_bytes[os.write(self._orders, unsent_bytes) :]
        except BrokenPipeError:
            raise SupervisorEnded from None
        if unsent_bytes:
            raise SupervisorEnded

    def _receive_reports(self) -> None:
        self._used_at = time.monotonic()
        chunk = os.read(self.reports, _CHUNK) if self.reports >= 0 else b""
        if not chunk:
            raise SupervisorEnded
        self._unread += chunk

    def _start_supervisor(self) -> None:
        child_orders, orders = _make_pipe()
        output, child_output = _make_pipe()
        reports, child_reports = _make_pipe()
        child_fds = (child_orders, child_output, child_output, child_reports, output)
        dup_actions = [(os.POSIX_SPAWN_DUP2, fd, child_fd) for child_fd, fd in enumerate(child_fds)]
        variables = self.tag.env_variables
        env = {**os.environ, **variables, WATCHDOG_VARIABLE: process_tree.current_process_name()}
        argv = supervisor.build_supervisor_command(variables)
        # A new process group: Ctrl-C is for the driver. The same session: ssh asks on its terminal.
        options: dict[str, Any] = {"setpgroup": 0, "setsigdef": _DEFAULT_SIGNALS, "setsigmask": []}
        try:
            self.pid = os.posix_spawn(argv[0], argv, env, file_actions=dup_actions, **options)
        except OSError as error:
            for fd in (orders, output, reports):
                os.close(fd)
            program = argv[0] or "Python"
            problem = f"cannot start {program} as the parent of commands: {error.strerror}"
            raise CkptError(problem, hint="check for too many processes: ps") from None
        finally:
            for fd in (child_orders, child_output, child_reports):
                os.close(fd)
        self._orders, self.output, self.reports = orders, output, reports


def _is_readable(fd: int, milliseconds: int = 0) -> bool:
    poller = select.poll()  # `select` refuses file descriptors above 1023
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(milliseconds))


def read_available_bytes(fd: int) -> bytes:
    available_bytes = b""
    while _is_readable(fd) and (chunk := os.read(fd, _CHUNK)):
        available_bytes += chunk
    return available_bytes


def _make_pipe() -> tuple[int, int]:
    # If standard streams are closed, a pipe may get one of their descriptors, which is overwritten
    # in the supervisor: use descriptors above those of the supervisor.
    low_fds = os.pipe()
    read_end, write_end = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in low_fds)
    for fd in low_fds:
        os.close(fd)
    return read_end, write_end


def _encode_order(command: str, directory: str, env: Mapping[str, str]) -> bytes:
    # The supervisor has a different current directory, so the path must be absolute.
    parts = [command, os.path.join(os.getcwd(), directory)]
    parts += [f"{name}={value}" for name, value in env.items() if name not in ("PWD", "OLDPWD")]
    if any("\0" in order_part for order_part in parts):
        raise _make_start_error("embedded null byte")
    if any("=" in name or not name for name in env):
        raise _make_start_error("illegal environment variable name")
    try:
        payload = b"\0".join(map(os.fsencode, parts))
    except UnicodeEncodeError as error:
        raise _make_start_error(str(error)) from None
    return b"start %d\n%b" % (len(payload), payload)


def _make_start_error(text: str, code: int = 0, directory: str = "") -> CkptError:
    problem = f"cannot start the command: {text}"
    if directory:
        problem = f"cannot run a command in {directory}: {text}"
        hint = "recreate the worktree: git ckpt resume"
    elif not code:
        hint = "correct the command or its environment variables"
    elif code == errno.E2BIG:
        hint = "put the command into a script, and call the script"
    else:
        hint = "check for too many processes: ps"
    return CkptError(problem, hint=hint)
