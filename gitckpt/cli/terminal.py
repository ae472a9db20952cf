"""Print to the terminal: results on standard output, all else on standard error.

Text may come from a fetched checkpoint, a file name or git. So each `str` is escaped just before it
is written; only `Shown`, which this module alone makes, is written as it is. Patches, paths and
documents are escaped for a person, and unchanged for a program.
"""

from __future__ import annotations

import os
import sys

from gitckpt.model import ids
from gitckpt.model.arguments import first_of, shell_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from gitckpt.model.checkpoint import Checkpoint, Omitted, Suspect
    from gitckpt.model.errors import CkptError

_BOLD, _RED, _GREEN, _YELLOW, _CYAN, _RESET = "\033[1m", "\033[31m", "\033[32m", "\033[33m", "\033[36m", "\033[0m"
# Prefixes of lines in a patch, and their styles, as git has them by default.
_PATCH = (*((word, _BOLD) for word in ("diff ", "index ", "--- ", "+++ ")), ("@@", _CYAN), ("+", _GREEN), ("-", _RED))

_GAP = "  "
_NARROWEST = 8
_TICK = 1.0


class Verbosity:
    shown = 0.0  # when the progress line was written (`time.monotonic`); 0 for none
    quiet = False
    is_asking = False  # no progress is shown over a question


# A longer word is cut to `_BEGINNING` characters. A path, which a person may copy, has 4,096 bytes.
_LONGEST_WORD, _BEGINNING = 5000, 200

_LONGEST_LINE = 10_000

# Characters without width, line breaks, and those that change the direction (Unicode Cf, Zl, Zp).
_UNSEEN = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)


class Shown:
    """Escaped text that may have a style, written as it is. Only this module makes it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __format__(self, _: str) -> str:
        raise TypeError("within a text, what has a style would be escaped: hand both over, out(heading(…), text)")


def harmless(text: str) -> str:
    """Escape characters that a terminal takes for commands or that reverse text."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def _harmless_lines(text: str) -> str:
    return "\n".join("\t".join(harmless(part) for part in line.split("\t")) for line in text.split("\n"))


def _told(text: str) -> str:
    shown = harmless(text)
    if len(shown) > _LONGEST_WORD:
        shown = " ".join(word if len(word) <= _LONGEST_WORD else f"{word[:_BEGINNING]}…" for word in shown.split(" "))
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]}…"


def _written(parts: Iterable[str | Shown]) -> str:
    return "".join(part.text if isinstance(part, Shown) else harmless(part) for part in parts)


def out(*parts: str | Shown) -> None:
    sys.stdout.write(_written(parts) + "\n")


def out_row(cells: Iterable[str | None]) -> None:
    """Print a line of the result for programs: cells between tabs, "-" for empty ones."""
    sys.stdout.write("\t".join(harmless(cell or "-") for cell in cells) + "\n")


def out_patch(data: bytes) -> None:
    if not _is_read_by_a_person():
        out_bytes(data)
        return
    is_coloured = _has_colour()
    for line in data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n") if data else ():
        style = next((style for start, style in _PATCH if line.startswith(start)), "")
        sys.stdout.write(_styled(_harmless_lines(line), style, is_coloured and style != "") + "\n")


def out_path(path: str) -> None:
    if _is_read_by_a_person():
        out(harmless(path))
    else:
        out_bytes(os.fsencode(path) + b"\n")


def out_document(data: bytes) -> None:
    if _is_read_by_a_person():
        sys.stdout.write(_harmless_lines(data.decode("utf-8", "surrogateescape")))
    else:
        out_bytes(data)


def out_json(document: object) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True) + "\n")


def out_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def remark(line: str) -> None:
    if not Verbosity.quiet:
        _clear()
        sys.stdout.flush()  # keep the order if both streams go to the same place
        sys.stderr.write(f"{_told(line)}\n")


def explain(text: str) -> None:
    _clear()
    sys.stderr.write(f"{_harmless_lines(text)}\n")


def warn(line: str) -> None:
    _clear()
    sys.stderr.write(f"{_styled('warning:', _YELLOW, _has_colour(sys.stderr))} {_told(line)}\n")


def fail(error: CkptError) -> int:
    """Print an error with its candidates and hint; return its exit code."""
    _clear()
    sys.stderr.write(f"{_styled('error:', _RED, _has_colour(sys.stderr))} {_told(error.message)}\n")
    for candidate in getattr(error, "candidates", ()):
        sys.stderr.write(f"  {_told(candidate)}\n")
    if error.hint:
        sys.stderr.write(f"{_styled('hint:', _BOLD, _has_colour(sys.stderr))} {_told(error.hint)}\n")
    return error.exit_code


def live(data: bytes) -> None:
    """Pass on output of a command, in whole UTF-8 characters, to standard error."""
    if not data.isascii():  # only invisible and direction-changing characters are escaped
        import re

        text = data.decode("utf-8", "surrogateescape")
        text = re.sub(f"[{_UNSEEN}]", lambda found: _escape(found[0]), text)
        data = text.encode("utf-8", "surrogateescape")
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def progress(line: str) -> None:
    """Show a line that the next one replaces; only on a terminal without `--quiet`."""
    import shutil
    import time

    if sys.stderr.isatty() and not Verbosity.quiet and not Verbosity.is_asking:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\033[K{harmless(line)[:width]}" if line else "\r\033[K")
        sys.stderr.flush()
        Verbosity.shown = time.monotonic() if line else 0.0


def _clear() -> None:
    if Verbosity.shown:
        progress("")


class Waiting:
    def __init__(self, what: str) -> None:
        self._what = what
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        if not sys.stderr.isatty() or Verbosity.quiet:
            return
        import threading
        import time

        done, began = threading.Event(), time.monotonic()
        own = 0.0

        def tell() -> None:
            nonlocal own
            while not done.wait(_TICK):
                if Verbosity.shown != own and time.monotonic() - Verbosity.shown < _TICK:
                    continue  # the task itself shows progress
                progress(f"… {self._what}: {time.monotonic() - began:.0f}s")
                own = Verbosity.shown

        def stop() -> None:
            done.set()
            teller.join()
            _clear()

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        self._stop = stop

    def __exit__(self, *_: object) -> None:
        self._stop()


def replace_lines(before: int, lines: Sequence[str]) -> int:
    """Replace the last `before` lines by new ones, cut to fit; return their number."""
    import shutil

    size = shutil.get_terminal_size()
    shown = lines[: max(size.lines - 1, 1)]
    up = f"\033[{before}F" if before else ""
    text = "".join(f"\033[K{_fit(harmless(line), size.columns - 1).rstrip()}\n" for line in shown)
    sys.stdout.write(f"{up}{text}\033[J")
    sys.stdout.flush()
    return len(shown)


def may_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, above: bool = False, told: Sequence[str] = ()) -> str | None:
    """Return a person's answer, stripped; None at the end of input."""
    progress("")
    Verbosity.is_asking = True
    sys.stderr.write("".join(f"{harmless(line)}\n" for line in told) + harmless(question) + ("\n" if above else ""))
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    finally:
        Verbosity.is_asking = False
    return line.strip() if line else None


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _is_read_by_a_person() -> bool:
    # Through the pager that git started, too; colors, tables and questions never go there.
    paged = os.environ.get("GIT_PAGER_IN_USE", "").lower()
    return is_terminal() or paged in ("1", "true", "yes", "on")


def _has_colour(stream: TextIO | None = None) -> bool:
    # https://no-color.org
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def size(number: int) -> str:
    if number < 1000:
        return count(number, "byte")
    shown = float(number)
    for unit in ("kB", "MB", "GB"):
        shown /= 1000
        if round(shown, 1) < 1000:
            return f"{shown:.1f} {unit}"
    return f"{shown / 1000:.1f} TB"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def heading(text: str) -> Shown:
    return Shown(_styled(harmless(text), _BOLD, _has_colour()))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the columns that have content, aligned; on a terminal, cut to its width."""
    import shutil

    cells = [[harmless(cell) for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    whole = [[row[i] for i in used] for row in [list(columns), *cells]]
    widths = [max(_width(row[i]) for row in whole) for i in range(len(used))]
    excess = 0
    if is_terminal():
        columns_there = shutil.get_terminal_size().columns
        widths = [min(width, max(columns_there, _NARROWEST)) for width in widths]
        excess = sum(widths) + len(_GAP) * (len(used) - 1) - columns_there
    while excess > 0 and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    for number, row in enumerate(whole):
        line = _GAP.join(_fit(cell, width) for cell, width in zip(row, widths, strict=True))
        line = _fit(line, sum(widths) + len(_GAP) * (len(used) - 1) - max(excess, 0)).rstrip()
        out(heading(line) if number == 0 else line)


def _fit(text: str, width: int) -> str:
    taken = _width(text)
    if taken > width:
        kept = taken = 0
        while taken + _width(text[kept]) < width:
            taken += _width(text[kept])
            kept += 1
        text, taken = text[:kept] + "…", taken + 1
    return text + " " * (width - taken)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _styled(text: str, style: str, wanted: bool) -> str:
    return f"{style}{text}{_RESET}" if wanted else text


def near(path: str | None) -> str:
    """Return a path relative to the current directory if that is shorter; "" for None."""
    if path is None:
        return ""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


# Warnings about captured files.

# Files that a warning names.
_FEW = 3


def warn_captured(checkpoint: Checkpoint) -> int:
    """Warn of problems in a new checkpoint; return the number of omitted paths."""
    files = checkpoint.worktree
    if files is None:
        return 0
    # A clean submodule loses nothing: its commit has the files.
    omitted = [entry for entry in files.omitted if entry.dirty is not False]
    is_cut = _warn_of_omitted(omitted)
    if files.converted:
        warn(f"comes back as git writes it, not byte for byte: {first_of(files.converted, _FEW)}")
        is_cut |= len(files.converted) > _FEW
    if files.suspects:
        is_cut |= _warn_of_suspects(files.suspects)
    if is_cut:
        remark(f"each of them is named by: git ckpt show {checkpoint.id[: ids.SHORT]}")
    return len(omitted)


def _warn_of_omitted(left: Sequence[Omitted]) -> bool:
    """Warn once per reason; return whether a path is not named."""
    by_reason: dict[str, list[str]] = {}
    for entry in left:
        by_reason.setdefault(entry.reason, []).append(entry.path)
    for reason, paths in by_reason.items():
        warn(f"not captured: {first_of(paths, _FEW)}: {reason}")
    return any(len(paths) > _FEW for paths in by_reason.values())


def _warn_of_suspects(suspects: Sequence[Suspect]) -> bool:
    """Warn of the first files; return whether a file is not named."""
    by_path: dict[str, list[str]] = {}
    for suspect in suspects:
        by_path.setdefault(suspect.path, []).append(f"{suspect.path}:{suspect.line} ({suspect.rule})")
    groups = list(by_path.values())
    for places in groups[:_FEW]:
        warn(f"captured, and looks like a secret: {first_of(places, 1)}")
    if more := len(groups) - _FEW if len(groups) > _FEW else 0:
        warn(f"captured, and looks like a secret: {'one more file' if more == 1 else f'{more} more files'}")
    remark(f"what is no secret is settled by: git ckpt allow --secret {shell_word(suspects[0].path)}")
    return more > 0
