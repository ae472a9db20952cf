"""Tells the person at the terminal what a run does, and asks where it pauses."""

from __future__ import annotations

import contextlib
import os

from gitckpt.cli import terminal
from gitckpt.durable.driver.driver import CONTINUE, EXIT, RESTART, REVISE, Observer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


_STDOUT, _STDERR = 1, 2
_QUIET_FOR = 3.0
_ANSWERS = {"": CONTINUE, "c": CONTINUE, "continue": CONTINUE, "r": REVISE, "revise": REVISE, "s": RESTART, "restart": RESTART}


@contextlib.contextmanager
def _heard(stream: int = _STDERR) -> Iterator[None]:
    """Lets a run go on where nobody listens any more, as when its output goes to `head`: what was not said is lost, the work is not."""
    try:
        yield
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream)
        os.close(null)


class Terminal(Observer):
    """The person at the terminal, who may have left.

    Attributes:
        run: the run that is driven; None until it is known.
    """

    def __init__(self) -> None:
        self.run: str | None = None
        self._phase = ""
        self._at_line_start = True
        self._printed = False
        self._shows_progress = False
        self._rest = b""
        """The beginning of a character of which the end is still to come."""

    def started(self, run: str) -> None:
        """Prints the id of the run, the result of the command, at once: whoever started it may want to know it while it goes on."""
        self.run = run
        with _heard(_STDOUT):
            terminal.out_bytes(f"{run}\n".encode())

    def warn(self, sentence: str) -> None:
        """Something went wrong that does not end the run."""
        with _heard():
            terminal.warn(sentence)

    def remark(self, line: str) -> None:
        """Something is to be told."""
        with _heard():
            terminal.remark(line)

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        """A phase begins."""
        self._phase = phase
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self.remark(f"[{number}/{total}] {self._phase}{again}")
        self._at_line_start, self._printed = True, False

    def output(self, data: bytes) -> None:
        """A command printed something."""
        self._clear()
        data, self._rest = _whole(self._rest + data)
        with _heard():
            terminal.live(data)
        self._at_line_start, self._printed = data.endswith(b"\n"), True

    def tick(self, seconds: float) -> None:
        """A command has been running for so long."""
        if seconds >= _QUIET_FOR and self._at_line_start:
            self._shows_progress = True
            with _heard():
                terminal.progress(f"… {self._phase}: {length(seconds)}")

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        """A phase ended."""
        took = f" after {length(seconds)}" if seconds is not None else ""
        self._clear()
        if self._rest:
            data, self._rest = self._rest, b""
            with _heard():
                terminal.live(data)
        if self._printed and not self._at_line_start:
            self.remark("")
        self.remark(f"      {phase}: {status}{took}")

    def _clear(self) -> None:
        """Takes the line that shows progress away; what a command has printed of a line stays."""
        if self._shows_progress:
            self._shows_progress = False
            with _heard():
                terminal.progress("")

    def ask(self, phase: str) -> tuple[str, str]:
        """Returns what to do after a phase, and what is to be revised; without anybody to ask, the run is left."""
        if not terminal.may_ask():
            return EXIT, ""
        while True:
            said = terminal.ask(f"{phase} is complete. [c]ontinue, [r]evise, re[s]tart it, or [e]xit? ")
            if said is None or said.lower() in ("e", "exit"):
                return EXIT, ""
            answer = _ANSWERS.get(said.lower())
            if answer == REVISE:
                return answer, _lines("What shall be revised? An empty line ends it.")
            if answer is not None:
                return answer, ""


def _whole(data: bytes) -> tuple[bytes, bytes]:
    """Return what is whole characters of UTF-8, and the beginning of another one behind them."""
    for size in range(1, min(len(data), 3) + 1):
        lead = data[-size]
        if lead >= 0xC0:
            needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return (data[:-size], data[-size:]) if size < needed else (data, b"")
        if lead < 0x80:
            break
    return data, b""


def length(seconds: float) -> str:
    """Returns a length of time as people write it: 0.3s, 42s, 3m12s, 2h05m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _lines(question: str) -> str:
    lines = [terminal.ask(question, above=True)]
    while lines[-1]:
        lines.append(terminal.ask(""))
    return "\n".join(filter(None, lines))
