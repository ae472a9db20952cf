"""Runs the command of a phase: a shell with all that it starts, which may talk, hang, ignore signals and leave things behind.

The shell leads a process group, and the group ends with it: what a phase left running would change files behind the back of the next one.
Only what leaves the group by itself (`setsid`, `set -m`) goes on. The group is signalled while its leader is alive or not waited for, or
while it is known to have outlived it: at any other time, its number may be somebody else's.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gitckpt.durable.command.processes import somebody_lives
from gitckpt.durable.command.shell import Shell
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.model.errors import CkptError, WorktreeError

EXIT = "exit"
TIMEOUT = "timeout"
IDLE_TIMEOUT = "idle timeout"
DEADLINE = "deadline"

TAIL_BYTES = 16 * 1024

_SHOWN = 200
_LAST_LINES = 8
_ERRORS = ("error:", "fatal:")

_CHUNK = 65536
_TICK = 1.0
_LINGER = 0.1  # `… > >(tee log)`: tee ends by itself, a moment after the shell, and should have read everything
_LEFTOVER_GRACE = 0.5
_DYING = 0.5
_LONGEST_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: exit code of the shell; the negated signal number where a signal ended it.
        ended_by: who decided: EXIT (itself), TIMEOUT, IDLE_TIMEOUT or DEADLINE.
        tail: the last `TAIL_BYTES` of its output; where more was cut off, from the start of a line, if one starts there.
        seconds: how long the shell ran.
    """

    code: int
    ended_by: str
    tail: str
    seconds: float


def last_line(tail: str) -> str:
    """Returns what a command said last, to stand behind its exit code; where advice follows its error, as with git, the error.

    Args:
        tail: the end of its output.

    Returns:
        `: ` and the line, cut to 200 characters; "" where it said nothing.
    """
    lines = [line.strip() for line in tail.splitlines() if line.strip()][-_LAST_LINES:]
    line = next((line for line in reversed(lines) if line.lower().startswith(_ERRORS)), lines[-1] if lines else "")
    return f": {line[:_SHOWN]}" if line else ""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, all in seconds; None is without limit.

    Attributes:
        timeout: for this attempt.
        idle_timeout: without output.
        left: from now to the deadline of the run.
        grace: from SIGTERM to SIGKILL.
    """

    timeout: float | None = None
    idle_timeout: float | None = None
    left: float | None = None
    grace: float = 5.0


def run_command(
    command: str,
    *,
    directory: str,
    env: Mapping[str, str],
    watchdog: Watchdog,
    patience: Patience,
    output: Callable[[bytes], None],
    tick: Callable[[float], None] | None = None,
) -> Outcome:
    """Runs a shell command to its end, and ends what it left running.

    Whatever is raised meanwhile, by a signal, `output` or `tick`, ends the command as a timeout does, and is then raised on; if another
    exception cuts the grace short, the command is killed at once. If this process is killed, the watchdog kills the command.

    Args:
        command: what `/bin/sh -c` runs, with nothing on standard input.
        directory: where it runs.
        env: its whole environment; the shell adds PWD, and OLDPWD is lost.
        watchdog: that of this process; it watches one command at a time.
        patience: when to end it.
        output: gets standard output and error, in the order of writing, as they come. While it works, the command waits.
        tick: gets the seconds since the start, about once a second until the end.

    Raises:
        WorktreeError: the directory is not there or cannot be entered.
        CkptError: the command cannot be started, or its end was missed.
    """
    if not os.path.isdir(directory) or not os.access(directory, os.X_OK):
        state = "cannot be entered" if os.path.isdir(directory) else "is not there"
        raise WorktreeError(f"cannot run a command in {directory}: it {state}", hint="open the worktree again: git ckpt resume")
    shell = Shell(command, directory, env)
    running = _Running(shell, watchdog, output, tick)
    try:
        running.release()
        ended_by = running.wait(patience)
        code = running.settle() if ended_by == EXIT else running.end(patience.grace)
    except BaseException:
        running.abort(patience.grace)
        raise
    finally:
        shell.close()
    return Outcome(code, ended_by, running.tail.text(), running.seconds)


class Tail:
    """Keeps the last `TAIL_BYTES` of what passes."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._cut = False

    def add(self, chunk: bytes) -> None:
        """Takes in what follows."""
        self._kept += chunk
        if len(self._kept) > 4 * TAIL_BYTES:
            self._cut_to(TAIL_BYTES + 1)  # with one byte before the tail, to know whether it starts a line

    def text(self) -> str:
        """Returns the tail, with U+FFFD for what is not UTF-8."""
        if len(self._kept) > TAIL_BYTES:
            self._cut_to(TAIL_BYTES + 1)
        if not self._cut:
            return self._kept.decode("utf-8", "replace")
        start = self._kept.find(b"\n") + 1
        if start in (0, len(self._kept)):
            start = 1  # one long line; a character that was cut through goes
            while start < 4 and self._kept[start] & 0xC0 == 0x80:
                start += 1
        return self._kept[start:].decode("utf-8", "replace")

    def _cut_to(self, size: int) -> None:
        del self._kept[:-size]
        self._cut = True


class _Running:
    """A command between start and end.

    Attributes:
        tail: the end of its output.
        seconds: how long the shell ran, once it has ended.
    """

    def __init__(self, shell: Shell, watchdog: Watchdog, output: Callable[[bytes], None], tick: Callable[[float], None] | None) -> None:
        self.tail = Tail()
        self.seconds = 0.0
        self._shell = shell
        self._group = shell.pid
        self._watchdog = watchdog
        self._output: Callable[[bytes], None] | None = output
        self._tick = tick
        self._ended = False
        self._code: int | None = None
        self._kill_at: float | None = None
        self._started = self._heard = time.monotonic()
        self._next_tick = self._started + _TICK
        self._poll = select.poll()
        self._poll.register(shell.pipe, select.POLLIN)
        if shell.end >= 0:
            self._poll.register(shell.end, select.POLLIN)

    def release(self) -> None:
        """Lets the shell go on to the command, now that the watchdog knows of it."""
        self._watchdog.watch(self._group)
        self._shell.go()

    def wait(self, patience: Patience) -> str:
        """Waits for the end of the shell or of our patience, and returns which of them came: a value of `Outcome.ended_by`."""
        while True:
            self._step(self._limit(patience)[0])
            if self._ended:
                return EXIT
            at, limit = self._limit(patience)
            if time.monotonic() >= at:
                return limit

    def settle(self) -> int:
        """Ends what the shell, which has ended, left running. Returns the exit code of the shell."""
        self._reap()
        self._outlast(time.monotonic() + _LINGER)
        return self.end(_LEFTOVER_GRACE)

    def end(self, grace: float) -> int:
        """Ends the group: SIGTERM and, after `grace` seconds, SIGKILL. Returns the exit code of the shell."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace
            if self._signal(signal.SIGTERM):
                self._signal(signal.SIGCONT)  # what is stopped takes no other signal
        while not self._ended and time.monotonic() < self._kill_at:
            self._step(self._kill_at)
        if self._ended:
            self._reap()
            self._outlast(self._kill_at)
        code = self._kill()
        self._drain()
        return code

    def abort(self, grace: float) -> None:
        """Ends the group as `end` does, after something was raised; if something else is raised meanwhile, at once."""
        self._tick = None
        try:
            self.end(grace)
        finally:
            self._kill()

    def _limit(self, patience: Patience) -> tuple[float, str]:
        """Returns when our patience ends, on the clock of `time.monotonic`, and which part of it."""
        limits = (
            (self._started, patience.timeout, TIMEOUT),
            (self._heard, patience.idle_timeout, IDLE_TIMEOUT),
            (self._started, patience.left, DEADLINE),
        )
        return min(((since + seconds, name) for since, seconds, name in limits if seconds is not None), default=(math.inf, EXIT))

    def _step(self, until: float) -> None:
        """Waits for output or for the end of the shell, until `until` at the latest, and takes in what came."""
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK
            if self._tick:
                self._tick(now - self._started)
        pause = min(until, self._next_tick) - time.monotonic()
        if self._shell.end < 0:
            pause = min(pause, _LONGEST_PAUSE)
        for fd, _ in self._poll.poll(max(math.ceil(pause * 1000), 0)):
            if fd == self._shell.pipe:
                self._receive()
            else:
                self._note_end()
        if self._shell.end < 0 and not self._ended and self._shell.has_ended():
            self._note_end()

    def _note_end(self) -> None:
        self._ended = True
        self.seconds = time.monotonic() - self._started
        if self._shell.end >= 0:
            self._poll.unregister(self._shell.end)

    def _receive(self) -> None:
        chunk = os.read(self._shell.pipe, _CHUNK)
        if chunk:
            self._take(chunk)
        else:
            self._poll.unregister(self._shell.pipe)

    def _take(self, chunk: bytes) -> None:
        self.tail.add(chunk)
        if self._output:
            try:
                self._output(chunk)
            except BaseException:
                self._output = None  # it would raise again, and cut the grace short
                raise
        self._heard = time.monotonic()

    def _outlast(self, until: float) -> None:
        """Waits until nothing is left of the group, whose leader was reaped."""
        pause = 0.001
        while self._has_members() and (now := time.monotonic()) < until:
            self._step(min(now + pause, until))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _kill(self) -> int:
        """Ends by SIGKILL what is left of the group, and returns the exit code of the shell."""
        if self._code is None:
            self._signal(signal.SIGKILL)
            while not self._ended:
                self._step(math.inf)
            self._reap()
        if self._signal(signal.SIGKILL):
            self._outlast(time.monotonic() + _DYING)
        self._watchdog.forget()
        assert self._code is not None
        return self._code

    def _signal(self, number: int) -> bool:
        """Returns whether anybody in the group got the signal."""
        return (self._code is None or self._has_members()) and _reaches(os.killpg, self._group, number)

    def _reap(self) -> None:
        if self._code is not None:
            return
        self._watchdog.release_leader(self._group)
        self._code = 125
        try:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._group, 0)[1])
        except ChildProcessError:
            hint = "let SIGCHLD be handled by default, and wait for no process you did not start"
            raise CkptError(f"the exit code of process {self._group} is lost: somebody else waited for it", hint=hint) from None

    def _has_members(self) -> bool:
        """Returns whether the group goes on without its leader, who was reaped."""
        if not _reaches(os.killpg, self._group, 0):
            return False
        try:
            while os.waitpid(-self._group, os.WNOHANG)[0]:
                pass  # as the first process of a container we inherit its orphans
        except ChildProcessError:
            pass
        try:
            os.getpgid(self._group)
        except ProcessLookupError:
            return _reaches(os.killpg, self._group, 0) and somebody_lives(self._group)
        return False  # the number was given anew, which it is not while the group exists

    def _drain(self) -> None:
        """Takes in what is still in the pipe: no more than a pipe can hold, since who left the group may write on and on."""
        os.set_blocking(self._shell.pipe, False)
        for _ in range(16):
            try:
                chunk = os.read(self._shell.pipe, _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._take(chunk)


def _reaches(send: Callable[[int, int], None], number: int, sign: int) -> bool:
    """Returns whether a process or group got the signal: it is there, and ours to end."""
    try:
        send(number, sign)
    except (ProcessLookupError, PermissionError):
        return False
    return True
