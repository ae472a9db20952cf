"""The one door to the terminal: results on standard output, everything else on standard error, all text from elsewhere made harmless."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from gitckpt.model.errors import AmbiguousError, CkptError

_BOLD, _DIM, _RED, _YELLOW, _RESET = "\033[1m", "\033[2m", "\033[31m", "\033[33m", "\033[0m"
_GAP = "  "


class Settings:
    """What the options of every command say.

    Attributes:
        quiet: whether remarks are left out.
    """

    quiet = False


def harmless(text: str) -> str:
    """Returns text from a checkpoint, a file name or a ref with every character escaped that a terminal could take for a command."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def harmless_lines(text: str) -> str:
    """Returns text as `harmless` does, but leaves its line breaks and tabs."""
    return "\n".join("\t".join(harmless(part) for part in line.split("\t")) for line in text.split("\n"))


def out(line: str = "") -> None:
    """Prints a line of the result."""
    sys.stdout.write(line + "\n")


def out_bytes(data: bytes) -> None:
    """Prints bytes of the result as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def remark(line: str) -> None:
    """Tells a person something beside the result, unless `--quiet` was given."""
    if not Settings.quiet:
        sys.stderr.write(f"{line}\n")


def warn(line: str) -> None:
    """Warns on standard error, whatever `--quiet` says."""
    sys.stderr.write(f"{_styled('warning:', _YELLOW, sys.stderr.isatty())} {line}\n")


def fail(error: CkptError) -> int:
    """Prints an error with its candidates and hint; returns its exit code."""
    sys.stderr.write(f"{_styled('error:', _RED, sys.stderr.isatty())} {harmless(error.message)}\n")
    if isinstance(error, AmbiguousError):
        for candidate in error.candidates:
            sys.stderr.write(f"  {harmless(candidate)}\n")
    if error.hint:
        sys.stderr.write(f"{_styled('hint:', _BOLD, sys.stderr.isatty())} {harmless(error.hint)}\n")
    return error.exit_code


def is_terminal() -> bool:
    """Tells whether results go to a person's terminal."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """Tells whether results may be coloured (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """Returns text as a heading."""
    return _styled(text, _BOLD, has_colour())


def faint(text: str) -> str:
    """Returns text that matters less."""
    return _styled(text, _DIM, has_colour())


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table: aligned, under headings, the last column cut to the width of the terminal.

    Args:
        columns: the headings; a column in which no row has anything is left out.
        rows: the cells, harmless already.
    """
    cells = [list(row) for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    widths = {i: max(len(columns[i]), *(len(row[i]) for row in cells)) for i in used}
    room = shutil.get_terminal_size().columns - sum(widths[i] + len(_GAP) for i in used[:-1])
    for number, row in enumerate([list(columns), *cells]):
        parts = [row[i].ljust(widths[i]) for i in used[:-1]]
        last = row[used[-1]]
        parts.append(last if len(last) <= room or room < 8 else last[: room - 1] + "…")
        line = _GAP.join(parts).rstrip()
        out(heading(line) if number == 0 else line)


def _styled(text: str, style: str, wanted: bool) -> str:
    return f"{style}{text}{_RESET}" if wanted and not os.environ.get("NO_COLOR") else text
