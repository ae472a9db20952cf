"""Run pipelines for `git ckpt run`, `resume`, `loop` and `review`; print progress."""

from __future__ import annotations

import codecs
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from gitckpt.cli import terminal
from gitckpt.durable.driver.driver import CONTINUE, EXIT, RESTART, REVISE, Observer
from gitckpt.durable.driver.pipelines import COMPLETE, DEFERRED, Outcome
from gitckpt.durable.run.attempts import PhaseFailed
from gitckpt.model.errors import UsageError
from gitckpt.model.times import duration_text

_STDOUT, _STDERR = 1, 2
_QUIET_SECONDS = 3.0  # time without output after which the progress is shown
_ANSWERS = {"": CONTINUE, "c": CONTINUE, "r": REVISE, "s": RESTART, "e": EXIT}
_ANSWERS |= {"continue": CONTINUE, "revise": REVISE, "restart": RESTART, "exit": EXIT}
_QUESTION = "is complete. [c]ontinue, [r]evise, re[s]tart the phase, or [e]xit?"


def _write_or_drop(write: Callable[..., object], *args: object, stream: int = _STDERR) -> None:
    try:
        write(*args)
    except OSError:  # a reader such as `head` has ended: drop the output, but continue the run
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream)
        os.close(null_device)


class TerminalObserver(Observer):
    """Print the progress of a run; the run continues if the terminal is closed."""

    def __init__(self) -> None:
        self.run: str | None = None  # None until the run is known
        self._phase = ""
        self._at_line_start = True
        self._has_output = False
        self._shows_progress = False
        # Holds back an incomplete character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def started(self, run: str) -> None:
        """Print the run's id before the first phase, so that a script can read the id."""
        self.run = run
        _write_or_drop(terminal.out_bytes, f"{run}\n".encode(), stream=_STDOUT)

    def warn(self, sentence: str) -> None:
        _write_or_drop(terminal.warn, sentence)

    def remark(self, line: str) -> None:
        _write_or_drop(terminal.remark, line)

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        self._phase = phase
        attempt_text = f" (attempt {attempt})" if attempt > 1 else ""
        self.remark(f"[{number}/{total}] {phase}{attempt_text}")
        self._at_line_start, self._has_output = True, False

    def output(self, data: bytes) -> None:
        self._clear_progress()
        _write_or_drop(terminal.write_live_output, self._decoder.decode(data))
        self._at_line_start, self._has_output = data.endswith(b"\n"), True

    def tick(self, seconds: float) -> None:
        if seconds >= _QUIET_SECONDS and self._at_line_start:
            self._shows_progress = True
            _write_or_drop(terminal.show_progress, f"… {self._phase}: {duration_text(seconds)}")

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        self._clear_progress()
        _write_or_drop(terminal.write_live_output, self._decoder.decode(b"", final=True))
        if self._has_output and not self._at_line_start:
            self.remark("")
        duration = f" after {duration_text(seconds)}" if seconds is not None else ""
        self.remark(f"      {phase}: {status}{duration}")

    def _clear_progress(self) -> None:
        if self._shows_progress:
            self._shows_progress = False
            _write_or_drop(terminal.show_progress, "")

    def ask(self, phase: str) -> tuple[str, str]:
        while terminal.can_ask_user():
            reply = terminal.ask(f"{phase} {_QUESTION} ")
            answer = _ANSWERS.get(reply.lower()) if reply is not None else EXIT
            if answer == REVISE:
                return answer, _ask_for_lines("What shall be revised? End with an empty line.")
            if answer is not None:
                return answer, ""
        return EXIT, ""


def _ask_for_lines(question: str) -> str:
    lines = [terminal.ask(question, own_line=True)]
    while lines[-1]:
        lines.append(terminal.ask(""))
    return "\n".join(filter(None, lines))


def parse_inputs(words: Sequence[str]) -> dict[str, str]:
    inputs = {}
    for argument in words:
        name, separator, value = argument.partition("=")
        if not separator or not name:
            hint = 'write an input as: -i question="what is it?"'
            raise UsageError(f"the input {argument!r} is not NAME=VALUE", hint=hint)
        inputs[name] = value
    return inputs


def drive_pipeline(run_pipeline: Callable[[TerminalObserver], Outcome]) -> int:
    def raise_interrupt(signal_number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {signal_number}")

    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, raise_interrupt)
    observer = TerminalObserver()
    try:
        outcome = run_pipeline(observer)
    except KeyboardInterrupt:
        if observer.run is not None:
            observer.remark(f"the run was interrupted; to continue: git ckpt resume {observer.run}")
        raise
    if outcome.was_complete:
        terminal.out(outcome.run)
    if outcome.status != COMPLETE:
        is_deferred = outcome.status == DEFERRED
        pause_text = f"after phase {outcome.after}"
        if is_deferred:
            pause_text = f"at phase {outcome.after}, which asks to be tried again later"
        observer.remark(f"paused {pause_text}; to continue: git ckpt resume {outcome.run}")
        return PhaseFailed.exit_code if is_deferred else 0
    already = " already" if outcome.was_complete else ""
    merge = f"; to bring its work here: {outcome.merge_command}" if outcome.merge_command else ""
    observer.remark(f"run {outcome.run} is complete{already}{merge}")
    if outcome.removed:
        observer.remark("the run's worktree is removed: all its commits were pushed")
    elif outcome.stays:
        observer.remark(f"the run's worktree stays: {outcome.stays}")
    elif outcome.path is not None:
        observer.remark(f"the run's worktree: {outcome.path}")
    return 0
