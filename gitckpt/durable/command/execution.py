"""Run a shell command, and end the processes that it leaves behind.

Such a process would change files during the next phase of the run.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Mapping

from gitckpt.durable.command import process_tree
from gitckpt.durable.command.watchdog import (
    SupervisorEnded,
    Watchdog,
    end_leftover_processes,
    make_cannot_end_error,
    read_available_bytes,
)
from gitckpt.model.errors import BusyError, CkptError, WorktreeError
from gitckpt.model.values import dataclass

EXIT, TIMEOUT, IDLE_TIMEOUT, DEADLINE = "exit", "timeout", "idle timeout", "deadline"
TAIL_BYTES = 16 * 1024
_SHOWN, _LAST_LINES = 200, 8
_ERRORS = ("error:", "fatal:")
_CHUNK, _TICK, _LONG_IDLE = 65536, 1.0, 2.0
# Seconds. In `… > >(tee log)`, tee ends a moment after the shell: it has to read everything.
_LINGER, _LEFTOVER_GRACE, _DYING = 0.1, 0.5, 3.0


# Output receives bytes; Tick, elapsed seconds; Idles returns whether output counts as silence.
Output = Callable[[bytes], None]
Tick = Callable[[float], None] | None
Idles = Callable[[], bool] | None


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int  # of the shell; a negated signal number if a signal ended it
    ended_by: str  # EXIT, TIMEOUT, IDLE_TIMEOUT or DEADLINE
    tail: str  # the last `TAIL_BYTES` of output, from the start of a line if possible
    seconds: float  # the run time of the shell


def error_line(tail: str) -> str:
    """Return ": " and the last error line of an output, or else its last line."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()][-_LAST_LINES:]
    error_lines = [line for line in lines if line.lower().startswith(_ERRORS)]
    line = next(reversed(error_lines or lines), "")
    return f": {line[:_SHOWN]}" if line else ""


def describe_exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a command, in seconds; None means no limit."""

    timeout: float | None = None  # of this attempt
    idle_timeout: float | None = None  # without output
    left: float | None = None  # until the deadline of the run
    grace: float = 5.0  # from SIGTERM to SIGKILL


def run_command(
    command: str,
    *,
    directory: str,
    env: Mapping[str, str],
    watchdog: Watchdog,
    patience: Timeouts,
    output: Output,
    tick: Tick = None,
    idles: Idles = None,
) -> CommandResult:
    """Run a shell command until it ends, then end the processes that it left behind.

    `output` gets the output, and `tick` the elapsed seconds about once a second. If either raises
    an exception, the command is ended. While `idles` returns
    true, output does not reset the idle timeout.
    """
    if not os.access(directory, os.X_OK):
        problem = "permission denied" if os.path.isdir(directory) else "no such directory"
        hint = "recreate the worktree: git ckpt resume"
        raise WorktreeError(f"cannot run a command in {directory}: {problem}", hint=hint)
    if tick is not None and watchdog.idle_seconds > _LONG_IDLE:
        tick(0.0)  # another driver may have taken over the run while this process was stopped
    running = None
    try:
        start_time = time.monotonic()
        watchdog.launch_command(command, directory, env)
        running = _RunningCommand(watchdog, output, tick, idles, start_time)
        ended_by = running.wait_for_exit(patience)
        exit_code = running.end_leftovers() if ended_by == EXIT else running.end_all(patience.grace)
    except SupervisorEnded:
        raise _clean_up_and_make_error(watchdog) from None
    except BaseException:
        try:
            running.abort_command(patience.grace) if running is not None else watchdog.end_if_busy()
        except SupervisorEnded:
            raise _clean_up_and_make_error(watchdog) from None
        raise
    return CommandResult(exit_code, ended_by, running.tail.text(), running.seconds)


class OutputTail:
    def __init__(self) -> None:
        self._bytes = bytearray()

    def add_chunk(self, chunk: bytes) -> None:
        self._bytes += chunk
        if len(self._bytes) > 4 * TAIL_BYTES:
            del self._bytes[: -TAIL_BYTES - 1]

    def text(self) -> str:
        tail = self._bytes[-TAIL_BYTES - 1 :]  # the extra byte shows whether the tail starts a line
        if len(tail) > TAIL_BYTES:
            tail_start = tail.find(b"\n") + 1
            if tail_start in (0, len(tail)):
                tail_start = 1  # one long line; drop a split character
                while tail_start < 4 and tail[tail_start] & 0xC0 == 0x80:
                    tail_start += 1
            tail = tail[tail_start:]
        return tail.decode("utf-8", "replace")


class _RunningCommand:
    def __init__(
        self, watchdog: Watchdog, output: Output, tick: Tick, idles: Idles, start_time: float
    ) -> None:
        self.tail = OutputTail()
        self.seconds = 0.0
        self._watchdog, self._tick, self._idles = watchdog, tick, idles
        self._output: Output | None = output
        self._code: int | None = None
        self._have_all_ended = self._is_given_up = False
        self._kill_at: float | None = None
        self._started, self._last_output = start_time, time.monotonic()
        self._next_tick = self._started + _TICK
        self._poll = select.poll()
        for fd in (watchdog.output, watchdog.reports):
            self._poll.register(fd, select.POLLIN)

    def wait_for_exit(self, patience: Timeouts) -> str:
        self._read_supervisor_reports()  # a short command may have ended during the launch
        while True:
            if self._code is None:
                self._handle_events(self._find_next_timeout(patience)[0])
            if self._code is not None:
                return EXIT
            limit_time, limit_name = self._find_next_timeout(patience)
            if time.monotonic() >= limit_time:
                return limit_name

    def end_leftovers(self) -> int:
        self._wait_for_all_to_end(time.monotonic() + _LINGER)
        return self.end_all(_LEFTOVER_GRACE)

    def end_all(self, grace: float) -> int:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace
            if not self._have_all_ended:
                self._watchdog.send_signal(signal.SIGTERM)
                self._watchdog.send_signal(signal.SIGCONT)  # continue stopped processes
        self._wait_for_all_to_end(self._kill_at)
        exit_code = self._kill_all_processes()
        self._add_output(read_available_bytes(self._watchdog.output))
        return exit_code

    def abort_command(self, grace: float) -> None:
        self._tick = None
        try:
            if not self._is_given_up:
                self.end_all(grace)
        finally:
            if not self._is_given_up:
                self._kill_all_processes()

    def _find_next_timeout(self, patience: Timeouts) -> tuple[float, str]:
        limits = (
            (self._started, patience.timeout, TIMEOUT),
            (self._last_output, patience.idle_timeout, IDLE_TIMEOUT),
            (self._started, patience.left, DEADLINE),
        )
        limit_times = [(since + limit, name) for since, limit, name in limits if limit is not None]
        return min(limit_times, default=(math.inf, EXIT))

    def _handle_events(self, until: float) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK
            self._watchdog.wake_supervisor()
            if self._tick:
                self._tick(now - self._started)
        pause_seconds = min(until, self._next_tick) - time.monotonic()
        ready_fds = [fd for fd, _ in self._poll.poll(max(math.ceil(pause_seconds * 1000), 0))]
        if self._watchdog.output in ready_fds:
            self._add_output(os.read(self._watchdog.output, _CHUNK))
        if self._watchdog.reports in ready_fds:
            self._read_supervisor_reports()

    def _read_supervisor_reports(self) -> None:
        for report in self._watchdog.read_supervisor_reports():
            event, _, code = report.partition(" ")
            if event == "ended":
                self._code = int(code)
                self.seconds = time.monotonic() - self._started
            elif event == "alone":
                self._have_all_ended = True

    def _add_output(self, chunk: bytes) -> None:
        if not chunk:
            return
        self.tail.add_chunk(chunk)
        if self._output:
            try:
                self._output(chunk)
            except BaseException:
                self._output = None  # a second exception would cut the grace short
                raise
        if self._idles is None or not self._idles():
            self._last_output = time.monotonic()

    def _wait_for_all_to_end(self, until: float) -> None:
        while not self._have_all_ended and time.monotonic() < until:
            self._handle_events(until)

    def _kill_all_processes(self) -> int:
        if not self._have_all_ended:
            self._watchdog.kill_command()
            self._wait_for_all_to_end(time.monotonic() + _DYING)
        if not self._have_all_ended:
            raise self._give_up_and_make_error()
        assert self._code is not None
        return self._code

    def _give_up_and_make_error(self) -> CkptError:
        # The supervisor continues to send SIGKILL.
        self._is_given_up = True
        pid = self._watchdog.pid
        remaining_processes = process_tree.find_descendants({pid}, process_tree.list_processes())
        self._watchdog.end_supervisor()
        if remaining_processes:
            return make_cannot_end_error(remaining_processes)
        problem = f"the parent process of the command does not respond: process {pid}"
        return BusyError(problem, hint=f"end the process: kill -9 {pid}; then: git ckpt resume")


def _clean_up_and_make_error(watchdog: Watchdog) -> CkptError:
    watchdog.end_supervisor()
    end_leftover_processes(watchdog.tag, older=False)
    problem = "the parent process of the command was killed, so the command was ended"
    return CkptError(problem, hint="find the cause: dmesg; then: git ckpt resume")
