"""Show a run's progress at the terminal, and ask what to do where it pauses."""

from __future__ import annotations

import codecs
import os

from gitckpt.cli import terminal
from gitckpt.durable.driver.driver import CONTINUE, EXIT, RESTART, REVISE, Observer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STDOUT, _STDERR = 1, 2
_Decoder = codecs.getincrementaldecoder("utf-8")
_QUIET_FOR = 3.0
_ANSWERS = {"": CONTINUE, "c": CONTINUE, "r": REVISE, "s": RESTART, "e": EXIT}
_ANSWERS |= {"continue": CONTINUE, "revise": REVISE, "restart": RESTART, "exit": EXIT}
_QUESTION = "is complete. [c]ontinue, [r]evise, re[s]tart it, or [e]xit?"


def _print(write: Callable[..., object], *args: object, stream: int = _STDERR) -> None:
    try:
        write(*args)
    except OSError:  # the reader is gone, such as `head`: the output is lost, but the run goes on
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream)
        os.close(null)


class Terminal(Observer):
    """An observer that prints to the terminal, which may be closed meanwhile."""

    def __init__(self) -> None:
        self.run: str | None = None  # None until the run is known
        self._phase = ""
        self._at_line_start = True
        self._printed = False
        self._shows_progress = False
        self._decoder = _Decoder("surrogateescape")  # holds back an incomplete character

    def started(self, run: str) -> None:
        """Print the id of the run at once: the caller may need it while the run goes on."""
        self.run = run
        _print(terminal.out_bytes, f"{run}\n".encode(), stream=_STDOUT)

    def warn(self, sentence: str) -> None:
        _print(terminal.warn, sentence)

    def remark(self, line: str) -> None:
        _print(terminal.remark, line)

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        self._phase = phase
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self.remark(f"[{number}/{total}] {self._phase}{again}")
        self._at_line_start, self._printed = True, False

    def output(self, data: bytes) -> None:
        self._clear()
        _print(terminal.live, self._decoder.decode(data))
        self._at_line_start, self._printed = data.endswith(b"\n"), True

    def tick(self, seconds: float) -> None:
        if seconds >= _QUIET_FOR and self._at_line_start:
            self._shows_progress = True
            _print(terminal.progress, f"… {self._phase}: {length(seconds)}")

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        took = f" after {length(seconds)}" if seconds is not None else ""
        self._clear()
        _print(terminal.live, self._decoder.decode(b"", final=True))
        if self._printed and not self._at_line_start:
            self.remark("")
        self.remark(f"      {phase}: {status}{took}")

    def _clear(self) -> None:
        if self._shows_progress:
            self._shows_progress = False
            _print(terminal.progress, "")

    def ask(self, phase: str) -> tuple[str, str]:
        while terminal.may_ask():
            reply = terminal.ask(f"{phase} {_QUESTION} ")
            answer = _ANSWERS.get(reply.lower()) if reply is not None else EXIT
            if answer == REVISE:
                return answer, _lines("What shall be revised? An empty line ends it.")
            if answer is not None:
                return answer, ""
        return EXIT, ""


def length(seconds: float) -> str:
    """Return a duration for people: 0.3s, 42s, 3m12s, 2h05m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{whole:02d}s" if minutes else f"{whole}s"


def _lines(question: str) -> str:
    lines = [terminal.ask(question, above=True)]
    while lines[-1]:
        lines.append(terminal.ask(""))
    return "\n".join(filter(None, lines))
