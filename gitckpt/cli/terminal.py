"""Print to the terminal: results on standard output, all else on standard error.

Text may come from a fetched checkpoint, a file name or git. So each `str` is escaped just before it
is written; only `Shown`, which no other module makes, is written unchanged. Patches, paths and
documents are escaped on a terminal or in a pager, and written unchanged into a pipe or file.
"""

from __future__ import annotations

import contextlib
import os
import sys

from gitckpt.model import ids, times
from gitckpt.model.arguments import join_first, shell_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.errors import CkptError, Finding

_BOLD, _RED, _GREEN = "\033[1m", "\033[31m", "\033[32m"
_YELLOW, _CYAN, _RESET = "\033[33m", "\033[36m", "\033[0m"
# Prefixes of lines in a patch, and their styles, as git has them by default.
_PATCH = dict.fromkeys(("diff ", "index ", "--- ", "+++ "), _BOLD)
_PATCH |= {"@@": _CYAN, "+": _GREEN, "-": _RED}

_GAP = "  "  # between the columns of a table
_NARROWEST = 8  # characters that remain of a cut column
_TICK = 1.0  # seconds between two progress lines
# A longer word is cut to `_BEGINNING` characters. A path, which a person may copy, has 4,096 bytes.
_LONGEST_WORD, _BEGINNING = 5000, 200
_LONGEST_LINE = 10_000
# Invisible characters, line breaks, and changes of the text's direction (Cf, Zl, Zp).
_UNSEEN = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)


class Verbosity:
    progress_time = 0.0  # when the progress line was written (`time.monotonic`); 0 for none
    quiet = False
    is_asking = False  # no progress is shown over a question


class Shown:
    """Escaped text, possibly with a style, that `out` writes unchanged."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __format__(self, _: str) -> str:
        raise TypeError("a text cannot contain styled text: call out(heading(…), text)")


def harmless(text: str) -> str:
    """Escape characters that a terminal obeys, or that change the text's direction."""
    is_plain = text.isprintable()
    return text if is_plain else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, escape)


def _harmless_lines(text: str) -> str:
    lines = text.split("\n")
    return "\n".join("\t".join(map(harmless, line.split("\t"))) for line in lines)


def _shortened(text: str) -> str:
    def cut(part: str) -> str:
        return part if len(part) <= _LONGEST_WORD else f"{part[:_BEGINNING]}…"

    line = " ".join(map(cut, harmless(text).split(" ")))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def out(*parts: str | Shown) -> None:
    texts = (part.text if isinstance(part, Shown) else harmless(part) for part in parts)
    sys.stdout.write("".join(texts) + "\n")


def out_text(text: str) -> None:
    for line in text.rstrip("\n").split("\n"):
        out(f"    {line}".rstrip())


def out_row(cells: Iterable[str | None]) -> None:
    """Print a line for programs: cells separated by tabs, "-" for an empty cell."""
    sys.stdout.write("\t".join(harmless(cell or "-") for cell in cells) + "\n")


def out_patch(data: bytes) -> None:
    if not _is_read_by_a_person():
        out_bytes(data)
        return
    text = data.decode("utf-8", "surrogateescape").removesuffix("\n")
    for line in text.split("\n") if data else ():
        style = next((style for start, style in _PATCH.items() if line.startswith(start)), "")
        sys.stdout.write(_styled(_harmless_lines(line), style) + "\n")


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


def attributes(value: object, names: str) -> dict[str, object]:
    """Return the named attributes of a value; `names` are separated by spaces."""
    return {name: getattr(value, name) for name in names.split()}


def out_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def remark(line: str) -> None:
    if not Verbosity.quiet:
        _clear()
        sys.stdout.flush()  # keep the order if both streams go to the same place
        sys.stderr.write(f"{_shortened(line)}\n")


def explain(text: str) -> None:
    _clear()
    sys.stderr.write(f"{_harmless_lines(text)}\n")


def _label(label: str, style: str, line: str) -> None:
    _clear()
    sys.stderr.write(f"{_styled(f'{label}:', style, sys.stderr)} {_shortened(line)}\n")


def warn(line: str) -> None:
    _label("warning", _YELLOW, line)


def fail(error: CkptError) -> int:
    """Print an error with its candidates and hint; return its exit code."""
    _label("error", _RED, error.message)
    for candidate in getattr(error, "candidates", ()):
        sys.stderr.write(f"  {_shortened(candidate)}\n")
    if error.hint:
        _label("hint", _BOLD, error.hint)
    return error.exit_code


def live(text: str) -> None:
    """Write a command's output, decoded with surrogateescape, to standard error."""
    if not text.isascii():  # only invisible and direction-changing characters are escaped
        import re

        text = re.sub(f"[{_UNSEEN}]", lambda match: _escape(match[0]), text)
    sys.stderr.flush()
    sys.stderr.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stderr.buffer.flush()


def progress(line: str) -> None:
    """Replace the progress line, only on a terminal without `--quiet`; "" clears it."""
    import shutil
    import time

    if sys.stderr.isatty() and not Verbosity.quiet and not Verbosity.is_asking:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\033[K{harmless(line)[:width]}" if line else "\r\033[K")
        sys.stderr.flush()
        Verbosity.progress_time = time.monotonic() if line else 0.0


def _clear() -> None:
    if Verbosity.progress_time:
        progress("")


@contextlib.contextmanager
def waiting(task: str) -> Iterator[None]:
    if not sys.stderr.isatty() or Verbosity.quiet:
        yield
        return
    import threading
    import time

    finished, start = threading.Event(), time.monotonic()

    def show_progress() -> None:
        last_time = 0.0
        while not finished.wait(_TICK):
            shown_at = Verbosity.progress_time
            if shown_at != last_time and time.monotonic() - shown_at < _TICK:
                continue  # the task itself shows progress
            progress(f"… {task}: {time.monotonic() - start:.0f}s")
            last_time = Verbosity.progress_time

    thread = threading.Thread(target=show_progress, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        _clear()


def replace_lines(height: int, lines: Sequence[str]) -> int:
    """Replace the last `height` lines of the screen; return how many were printed."""
    import shutil

    size = shutil.get_terminal_size()
    lines = lines[: max(size.lines - 1, 1)]
    up = f"\033[{height}F" if height else ""
    text = "".join(f"\033[K{_fit(harmless(line), size.columns - 1).rstrip()}\n" for line in lines)
    sys.stdout.write(f"{up}{text}\033[J")
    sys.stdout.flush()
    return len(lines)


def may_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, above: bool = False, intro: Sequence[str] = ()) -> str | None:
    """Ask the user; return the answer, stripped, or None at the end of input."""
    progress("")
    Verbosity.is_asking = True
    sys.stderr.write("\n".join(map(harmless, (*intro, question))) + ("\n" if above else ""))
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    finally:
        Verbosity.is_asking = False
    return line.strip() if line else None


def confirms(question: str, *, intro: Sequence[str] = ()) -> bool:
    return (ask(f"{question} [y/N] ", intro=intro) or "").lower() in ("y", "yes")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _is_read_by_a_person() -> bool:
    # Also through a pager that git started; colors, tables and questions never go there.
    pager = os.environ.get("GIT_PAGER_IN_USE", "").lower()
    return is_terminal() or pager in ("1", "true", "yes", "on")


def size(number: int) -> str:
    if number < 1000:
        return count(number, "byte")
    amount = float(number)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if round(amount, 1) < 1000:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def age(instant: int, current_time: int, timestamp: str | None = None) -> str:
    """Return the age of an instant on a terminal, else its timestamp."""
    if is_terminal():
        return times.age_text(max(current_time - instant, 0))
    return timestamp or times.to_text(instant)


def short(name: str) -> str:
    """Return the first 8 characters of an id on a terminal, else the whole id."""
    return name[: ids.SHORT] if is_terminal() else name


def heading(text: str) -> Shown:
    return Shown(_styled(harmless(text), _BOLD))


def out_finding(finding: Finding) -> None:
    out(heading(finding.code), f": {finding.object}: {finding.sentence}")
    if finding.repaired:
        out("    repaired")
    elif finding.cure:
        out(f"    cure: {finding.cure}")


def out_rows(columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
    """Print a table on a terminal, else tab-separated lines; nothing without rows."""
    if not is_terminal():
        for row in rows:
            out_row(row)
    elif rows:
        out_table(columns, rows)


def out_table(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> None:
    """Print the non-empty columns, aligned; cut them to the width of a terminal."""
    import shutil

    cells = [[harmless(cell or "") for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    lines = [[row[i] for i in used] for row in [list(columns), *cells]]
    widths = [max(_width(line[i]) for line in lines) for i in range(len(used))]
    excess = 0
    if is_terminal():
        available = shutil.get_terminal_size().columns
        widths = [min(width, max(available, _NARROWEST)) for width in widths]
        excess = sum(widths) + len(_GAP) * (len(used) - 1) - available
    while excess > 0 and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    for number, row in enumerate(lines):
        line = _GAP.join(_fit(cell, width) for cell, width in zip(row, widths, strict=True))
        line = _fit(line, sum(widths) + len(_GAP) * (len(used) - 1) - max(excess, 0)).rstrip()
        out(heading(line) if number == 0 else line)


def _fit(text: str, width: int) -> str:
    text_width = _width(text)
    if text_width > width:
        end = text_width = 0
        while text_width + _width(text[end]) < width:
            text_width += _width(text[end])
            end += 1
        text, text_width = text[:end] + "…", text_width + 1
    return text + " " * (width - text_width)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _styled(text: str, style: str, stream: TextIO | None = None) -> str:
    # https://no-color.org
    is_plain = not style or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not (stream or sys.stdout).isatty() else f"{style}{text}{_RESET}"


def shorter_path(path: str | None) -> str:
    """Return a path, relative to the current directory if shorter; "" for None."""
    if path is None:
        return ""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


_FEW = 3  # files that a warning names


def warn_captured(checkpoint: Checkpoint) -> int:
    """Warn of problems in a new checkpoint; return the number of omitted paths."""
    files = checkpoint.worktree
    if files is None:
        return 0
    has_unnamed = False  # whether a warning leaves out paths
    # A clean submodule loses nothing: its commit has the files.
    omitted = [entry for entry in files.omitted if entry.dirty is not False]
    for reason, paths in _group_by_key((entry.reason, entry.path) for entry in omitted).items():
        warn(f"not captured: {join_first(paths, _FEW)}: {reason}")
        has_unnamed |= len(paths) > _FEW
    if files.converted:
        names = join_first(files.converted, _FEW)
        warn(f"a restore will not reproduce these files byte for byte: {names}")
        has_unnamed |= len(files.converted) > _FEW
    if files.suspects:
        places = ((s.path, f"{s.path}:{s.line} ({s.rule})") for s in files.suspects)
        groups = list(_group_by_key(places).values())
        for group in groups[:_FEW]:
            warn(f"captured a possible secret: {join_first(group, 1)}")
        if len(groups) > _FEW:
            has_unnamed = True
            warn(f"captured a possible secret: {count(len(groups) - _FEW, 'more file')}")
        path = shell_word(files.suspects[0].path)
        remark(f"to declare the file no secret: git ckpt allow --secret {path}")
    if has_unnamed:
        remark(f"to list all of these files: git ckpt show {checkpoint.id[: ids.SHORT]}")
    return len(omitted)


def _group_by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
