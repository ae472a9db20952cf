"""Print to the terminal: results on standard output, all else on standard error.

Text may come from a fetched checkpoint, a file name or git. So each `str` is escaped just before it
is written. Only `EscapedText`, which this module creates, is written unchanged. Patches, paths and
documents are escaped on a terminal or in a pager, and written unchanged into a pipe or file.
"""

from __future__ import annotations

import contextlib
import os
import sys

from gitckpt.model import ids, times
from gitckpt.model.arguments import join_first, shell_quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO, TypeAlias

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.errors import CkptError, Finding

    Cell: TypeAlias = "str | EscapedText | None"

# ECMA-48, "select graphic rendition"
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 95}
_STYLES |= {"cyan": 36}
_RESET = "\033[0m"
# Prefixes of lines in a patch, and their styles, as git has them by default.
_PATCH_STYLES = dict.fromkeys(("diff ", "index ", "--- ", "+++ "), "bold")
_PATCH_STYLES |= {"@@": "cyan", "+": "green", "-": "red"}

_STATUS_STYLES = {
    **dict.fromkeys(("complete",), "green"),
    **dict.fromkeys(("failed", "crashed", "stalled", "blocked"), "red"),
    **dict.fromkeys(("started", "running", "progress", "paused", "partial"), "yellow"),
    **dict.fromkeys(("pending", "skipped"), "dim"),
}

_GAP = "  "  # between the columns of a table
_NARROWEST = 8  # characters that remain of a cut column
_ROOMY, _ROOMY_LAST = 24, 30  # characters of a column, and of the last one, that count as enough
_TICK = 1.0  # seconds between two progress lines
# A longer word is cut to `_BEGINNING` characters. A path, which a person may copy, has 4,096 bytes.
_LONGEST_WORD, _BEGINNING = 5000, 200
_LONGEST_LINE = 10_000
# Invisible characters, line breaks, and changes of the text's direction (Cf, Zl, Zp).
_UNSEEN = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)


class _Counter:
    """The progress of a task, and the time since it began to count."""

    def __init__(self, task: str, count: int, total: int) -> None:
        import time

        self.task, self.count, self.total = task, count, total
        self._first_count, self._start_time = count, time.monotonic()

    def text(self, current_time: float) -> str:
        text = f"{self.task}: {self.count:,} of {self.total:,}"
        rate = (self.count - self._first_count) / max(current_time - self._start_time, 0.001)
        if rate <= 0:
            return text
        left = times.age_text(int((self.total - self.count) / rate + 1) * times.MICRO)
        return f"{text} ({rate:,.{0 if rate >= 10 else 1}f}/s, {left} left)"


class TerminalState:
    progress_time = 0.0  # when the progress line was written (`time.monotonic`); 0 for none
    counter: _Counter | None = None  # of the task that counts its files
    quiet = False
    prints_json = False  # a program reads the output: no notes on what it means
    is_asking = False  # no progress is shown over a question
    settings: dict[str, str] | None = None  # git's, of colors and the pager; None if not read yet
    paged_columns = 0  # the terminal's width while a pager shows the output; 0 without a pager


class EscapedText:
    """Text that is escaped already, possibly with a style: `out` writes it unchanged."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __format__(self, _: str) -> str:
        raise TypeError("a text cannot contain styled text: call out(heading(…), text)")


def escape_text(text: str) -> str:
    is_plain = text.isprintable()
    return text if is_plain else "".join(c if c.isprintable() else _escape_char(c) for c in text)


def _escape_char(character: str) -> str:
    code_point = ord(character)
    escape = f"\\x{code_point:02x}" if code_point < 0x100 else f"\\u{{{code_point:x}}}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, escape)


def _escape_lines(text: str) -> str:
    lines = text.split("\n")
    return "\n".join("\t".join(map(escape_text, line.split("\t"))) for line in lines)


def _escape_and_shorten(text: str) -> str:
    def shorten_word(word: str) -> str:
        return word if len(word) <= _LONGEST_WORD else f"{word[:_BEGINNING]}…"

    line = " ".join(map(shorten_word, escape_text(text).split(" ")))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def out(*parts: str | EscapedText) -> None:
    sys.stdout.write(joined(*parts).text + "\n")


def out_indented(text: str) -> None:
    for line in text.rstrip("\n").split("\n"):
        out(f"    {line}".rstrip())


def out_row(cells: Iterable[Cell]) -> None:
    """Print a tab-separated line for programs, with "-" for each empty cell."""
    sys.stdout.write("\t".join(joined(cell or "-").text for cell in cells) + "\n")


def out_patch(data: bytes) -> None:
    if not _is_read_by_a_person():
        out_bytes(data)
        return
    text = data.decode("utf-8", "surrogateescape").removesuffix("\n")
    for line in text.split("\n") if data else ():
        styles = [name for mark, name in _PATCH_STYLES.items() if line.startswith(mark)][:1]
        sys.stdout.write(_add_style(_escape_lines(line), *styles) + "\n")


def out_path(path: str) -> None:
    if _is_read_by_a_person():
        out(escape_text(path))
    else:
        out_bytes(os.fsencode(path) + b"\n")


def out_document(data: bytes) -> None:
    if _is_read_by_a_person():
        sys.stdout.write(_escape_lines(data.decode("utf-8", "surrogateescape")))
    else:
        out_bytes(data)


def out_json(document: object) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True) + "\n")


def pick_fields(value: object, names: str) -> dict[str, object]:
    """Map each name in the space-separated `names` to that attribute of `value`."""
    return {name: getattr(value, name) for name in names.split()}


def out_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def remark(line: str) -> None:
    if not TerminalState.quiet:
        _clear_progress()
        sys.stdout.flush()  # keep the order if both streams go to the same place
        sys.stderr.write(f"{_escape_and_shorten(line)}\n")


def print_explanation(text: str) -> None:
    _clear_progress()
    sys.stderr.write(f"{_escape_lines(text)}\n")


def _write_labeled(label: str, color: str, line: str) -> None:
    _clear_progress()
    label = _add_style(f"{label}:", color, stream=sys.stderr)
    sys.stderr.write(f"{label} {_escape_and_shorten(line)}\n")


def warn(line: str) -> None:
    _write_labeled("warning", "yellow", line)


def print_error(error: CkptError) -> int:
    """Print an error with its hint and any ambiguous matches; return its exit code."""
    _write_labeled("error", "red", error.message)
    for candidate in getattr(error, "candidates", ()):
        sys.stderr.write(f"  {_escape_and_shorten(candidate)}\n")
    if error.hint:
        _write_labeled("hint", "bold", error.hint)
    return error.exit_code


def write_live_output(text: str) -> None:
    """Write output of a running command, decoded with surrogateescape, to stderr."""
    if not text.isascii():  # only invisible and direction-changing characters are escaped
        import re

        text = re.sub(f"[{_UNSEEN}]", lambda match: _escape_char(match[0]), text)
    sys.stderr.flush()
    sys.stderr.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stderr.buffer.flush()


def show_progress(line: str) -> None:
    """Replace the terminal's progress line by `line`; "" removes the progress line."""
    import shutil
    import time

    if sys.stderr.isatty() and not TerminalState.quiet and not TerminalState.is_asking:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\033[K{escape_text(line)[:width]}" if line else "\r\033[K")
        sys.stderr.flush()
        TerminalState.progress_time = time.monotonic() if line else 0.0


def _clear_progress() -> None:
    if TerminalState.progress_time:
        show_progress("")


def count_progress(task: str, count: int, total: int) -> None:
    """Note the progress of a task, which `show_waiting` shows each second."""
    counter = TerminalState.counter
    if count >= total:
        TerminalState.counter = None
    elif counter is None or (counter.task, counter.total) != (task, total) or count < counter.count:
        TerminalState.counter = _Counter(task, count, total)
    else:
        counter.count = count


@contextlib.contextmanager
def show_waiting(task: str) -> Iterator[None]:
    """Show the task and its time or progress each second, if it takes so long."""
    if not sys.stderr.isatty() or TerminalState.quiet:
        yield
        return
    import threading
    import time

    is_finished, start_time = threading.Event(), time.monotonic()

    def show_elapsed_time() -> None:
        last_shown_time = 0.0
        while not is_finished.wait(_TICK):
            shown_time = TerminalState.progress_time
            if shown_time != last_shown_time and time.monotonic() - shown_time < _TICK:
                continue  # the task itself shows progress
            counter, current_time = TerminalState.counter, time.monotonic()
            elapsed_text = f"{task}: {current_time - start_time:.0f}s"
            show_progress(f"… {counter.text(current_time) if counter else elapsed_text}")
            last_shown_time = TerminalState.progress_time

    thread = threading.Thread(target=show_elapsed_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_finished.set()
        thread.join()
        TerminalState.counter = None
        _clear_progress()


@contextlib.contextmanager
def live_screen() -> Iterator[Callable[[Sequence[str | EscapedText]], None]]:
    """Yield a function that shows lines on the terminal's alternate screen."""
    import shutil
    import signal

    def show_lines(lines: Sequence[str | EscapedText]) -> None:
        width, height = shutil.get_terminal_size()
        shown = "".join(f"{fit(line, width - 1).text}\033[K\r\n" for line in lines[: height - 1])
        sys.stdout.write(f"\033[H{shown}\033[J")
        sys.stdout.flush()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        sys.stdout.write("\033[?1049h\033[?25l")  # the other screen, without a cursor
        yield show_lines
    finally:
        with contextlib.suppress(OSError):  # the terminal may be closed
            sys.stdout.write("\033[?25h\033[?1049l")
            sys.stdout.flush()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def can_ask_user() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, own_line: bool = False, intro: Sequence[str] = ()) -> str | None:
    """Ask the user; return the stripped answer, or None at the end of input."""
    show_progress("")
    TerminalState.is_asking = True
    sys.stderr.write("\n".join(map(escape_text, (*intro, question))) + ("\n" if own_line else ""))
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    finally:
        TerminalState.is_asking = False
    return line.strip() if line else None


def user_confirms(question: str, *, intro: Sequence[str] = ()) -> bool:
    return (ask(f"{question} [y/N] ", intro=intro) or "").lower() in ("y", "yes")


def is_terminal() -> bool:
    """Return whether a person reads the output, on a terminal or in a pager."""
    return sys.stdout.isatty() or TerminalState.paged_columns > 0 or _is_paged_by_git()


def _is_paged_by_git() -> bool:
    # git's pager gets both streams. In a script below it, only the variable is left.
    if not _has_pager_variable():
        return False
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):  # a stream of a test is no file
        return False


def _has_pager_variable() -> bool:
    return os.environ.get("GIT_PAGER_IN_USE", "").lower() in ("1", "true", "yes", "on")


def _is_read_by_a_person() -> bool:
    return is_terminal() or _has_pager_variable()


def columns() -> int:
    """Return the width of the terminal, also while a pager shows the output."""
    import shutil

    return TerminalState.paged_columns or shutil.get_terminal_size().columns


@contextlib.contextmanager
def page() -> Iterator[None]:
    """Show the output in git's pager, if it goes to a terminal.

    Collect the results first: no progress is shown meanwhile. If the user quits the pager, the
    body of the `with` ends at its next line of output.
    """
    command, screen = None, (sys.stdout, sys.stderr)
    if sys.stdout.isatty():
        from gitckpt.cli import pager
        from gitckpt.model.errors import CkptError

        try:
            command = pager.find_pager(_settings())
            pid, pipe = pager.start_pager(command) if command else (0, -1)
        except CkptError as error:
            warn(f"no pager: {error.message}")
            command = None
    if command is None:
        yield
        return
    sys.stdout.flush()
    TerminalState.paged_columns = columns()
    sys.stdout = open(pipe, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    if sys.stderr.isatty():
        sys.stderr = sys.stdout
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the user has quit the pager
        pass
    finally:
        _close_pager(pid, sys.stdout, screen)


def _close_pager(pid: int, stream: TextIO, screen: tuple[TextIO, TextIO]) -> None:
    import signal

    from gitckpt.git import process

    TerminalState.paged_columns = 0
    sys.stdout, sys.stderr = screen
    interrupt_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager handles Ctrl-C
    try:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        process.wait_for_exit(pid)
    finally:
        signal.signal(signal.SIGINT, interrupt_handler)


def _settings() -> dict[str, str]:
    if TerminalState.settings is None:
        from gitckpt.cli import pager

        TerminalState.settings = pager.read_settings()
    return TerminalState.settings


def size_text(number: int) -> str:
    if number < 1000:
        return plural(number, "byte")
    shown_amount = float(number)
    for unit in ("kB", "MB", "GB"):
        shown_amount /= 1000
        if round(shown_amount, 1) < 1000:
            return f"{shown_amount:.1f} {unit}"
    return f"{shown_amount / 1000:.1f} TB"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def age_or_timestamp(
    instant: int,
    current_time: int,
    timestamp: str | None = None,
    *,
    date_format: str | None = None,
) -> str | EscapedText:
    """Return the age of `instant` if stdout is a terminal, otherwise its timestamp.

    `date_format` is for `times.format_date`, in both.
    """
    if date_format is not None:
        return style(times.format_date(instant, date_format), "cyan")
    if is_terminal():
        return style(times.age_text(max(current_time - instant, 0)), "cyan")
    return timestamp or times.to_text(instant)


def short_id(name: str) -> str:
    return name[: ids.SHORT] if is_terminal() else name


def id_cell(name: str, prefixes: Mapping[str, str]) -> str | EscapedText:
    """Return an id for a table; at a terminal short, its unique prefix bright."""
    shown = short_id(name)
    return _with_bright_prefix(shown, prefixes.get(name, shown)[: len(shown)])


def whole_id(name: str, prefixes: Mapping[str, str]) -> EscapedText:
    return _with_bright_prefix(name, prefixes.get(name, ""))


def _with_bright_prefix(text: str, prefix: str) -> EscapedText:
    return joined(style(prefix, "bold", "magenta"), style(text[len(prefix) :], "dim"))


def stat_text(line: str) -> EscapedText:
    """Color the signs at the end of a line of `git diff --stat`."""
    signs = line[len(line.rstrip("+-")) :] if "|" in line else ""
    plus, minus = "+" * signs.count("+"), "-" * signs.count("-")
    return joined(line.removesuffix(signs), style(plus, "green"), style(minus, "red"))


def status_text(text: str, status: str | None = None) -> EscapedText:
    """Color a text by its status, or by `status`."""
    color = _STATUS_STYLES.get(text if status is None else status)
    return style(text, *([color] if color else []))


def label_text(label: str) -> str | EscapedText:
    """Return a label for a table, in color and without "-complete" at a terminal."""
    if not is_terminal():
        return label
    name, separator, status = label.rpartition("-")
    return status_text(name if separator and status == "complete" else label, status)


def changes_text(files: int, added: int, removed: int) -> str | EscapedText:
    """Return "3 +10 -2" for changed files and lines; "" without a file."""
    if not files:
        return ""
    return joined(f"{files} ", style(f"+{added}", "green"), " ", style(f"-{removed}", "red"))


def heading(text: str) -> EscapedText:
    return style(text, "bold")


def out_finding(finding: Finding) -> None:
    code = style(finding.code, "bold", "yellow" if finding.repaired else "red")
    out(code, f": {finding.object}: {finding.sentence}")
    if finding.repaired:
        out("    ", style("repaired", "green"))
    elif finding.cure:
        out("    cure: ", style(finding.cure, "bold"))


def out_rows(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, spare: Sequence[str] = ()
) -> None:
    """Print the rows as a table on a terminal, otherwise as tab-separated lines.

    Columns named in `spare` are left out of a table if they say the same in each row, or, the
    first ones first, if the others need their room.
    """
    if not is_terminal():
        for row in rows:
            out_row(row)
    elif rows:
        out_table(headings, rows, spare=spare)


def out_table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell]], *, spare: Sequence[str] = ()
) -> None:
    """Print the columns that are not empty.

    On a terminal, cuts the widest ones until all fit; for `spare`, see `out_rows`.
    """
    cells = [[joined(cell or "") for cell in row] for row in rows]
    texts = [{row[i].text for row in cells} for i in range(len(headings))]
    indexes = [
        i
        for i, name in enumerate(headings)
        if texts[i] != {""} and not (len(cells) > 1 and len(texts[i]) == 1 and name in spare)
    ]
    table = [[*map(joined, headings)], *cells]
    all_widths = [max(_styled_width(row[i]) for row in table) for i in range(len(headings))]
    if is_terminal():
        for name in spare:
            wanted = [min(all_widths[i], _ROOMY) for i in indexes[:-1]]
            wanted += [min(all_widths[i], _ROOMY_LAST) for i in indexes[-1:]]
            if sum(wanted) + len(_GAP) * (len(indexes) - 1) <= columns():
                break
            indexes = [i for i in indexes if headings[i] != name]
    lines = [[row[i] for i in indexes] for row in table]
    widths = [all_widths[i] for i in indexes]
    excess = 0
    if is_terminal():
        available_width = columns()
        widths = [min(width, max(available_width, _NARROWEST)) for width in widths]
        excess = sum(widths) + len(_GAP) * (len(indexes) - 1) - available_width
    while excess > 0 and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    line_width = sum(widths) + len(_GAP) * (len(indexes) - 1) - max(excess, 0)
    for index, row in enumerate(lines):
        fitted = [_pad(fit(cell, width), width) for cell, width in zip(row, widths, strict=True)]
        line = EscapedText(_GAP.join(cell.text for cell in fitted).rstrip())
        line = fit(line, line_width)
        out(style(line.text, "bold") if index == 0 else line)


def fit(text: str | EscapedText, width: int) -> EscapedText:
    """Escape a text, and cut it with "…" to at most `width` columns of a terminal."""
    parts = _split_at_styles(joined(text).text)
    if sum(map(_display_width, parts[::2])) <= width:
        return joined(text)
    kept, left = [], width - 1  # the last column is for the ellipsis
    for index, part in enumerate(parts):
        if index % 2:
            kept.append(part)  # each code, so that the last one ends the style
            continue
        for character in part if left >= 0 else ():
            left -= _display_width(character)
            kept.append(character if left >= 0 else "…")
            if left < 0:
                break
    return EscapedText("".join(kept))


def _pad(text: EscapedText, width: int) -> EscapedText:
    return EscapedText(text.text + " " * (width - _styled_width(text)))


def _styled_width(text: EscapedText) -> int:
    return sum(map(_display_width, _split_at_styles(text.text)[::2]))


def _split_at_styles(text: str) -> list[str]:
    # Texts in turn with the codes between them. The texts are escaped, and have no codes.
    if "\033" not in text:
        return [text]
    import re

    return re.split(r"(\033\[[0-9;]*m)", text)


def _display_width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def style(text: str, *styles: str) -> EscapedText:
    """Escape a text; add styles such as "bold" and "red" if colors are wanted."""
    return EscapedText(_add_style(escape_text(text), *styles))


def joined(*parts: str | EscapedText) -> EscapedText:
    texts = (part.text if isinstance(part, EscapedText) else escape_text(part) for part in parts)
    return EscapedText("".join(texts))


def _add_style(text: str, *styles: str, stream: TextIO | None = None) -> str:
    if not text or not styles or not _has_colors(stream):
        return text
    return f"\033[{';'.join(str(_STYLES[name]) for name in styles)}m{text}{_RESET}"


def _has_colors(stream: TextIO | None) -> bool:
    # https://no-color.org
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if not (is_terminal() if stream is None else stream.isatty()):
        return False
    from gitckpt.cli import pager

    in_pager = stream is None and not sys.stdout.isatty()
    return pager.wants_color(_settings(), in_pager=in_pager)


def shorter_path(path: str | None) -> str:
    if path is None:
        return ""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


_FEW = 3  # files that a warning names


def warn_of_captured_files(checkpoint: Checkpoint) -> int:
    """Warn of problems with captured files; return the number of omitted files."""
    worktree = checkpoint.worktree
    if worktree is None:
        return 0
    omits_files = False  # whether a warning leaves out paths
    # A clean submodule loses nothing: its commit has the files.
    omitted = [entry for entry in worktree.omitted if entry.dirty is not False]
    for reason, paths in _group_by_key((entry.reason, entry.path) for entry in omitted).items():
        warn(f"not captured: {join_first(paths, _FEW)}: {reason}")
        omits_files |= len(paths) > _FEW
    if worktree.converted:
        file_names = join_first(worktree.converted, _FEW)
        warn(f"a restore will not reproduce these files byte for byte: {file_names}")
        omits_files |= len(worktree.converted) > _FEW
    if worktree.suspects:
        places = ((s.path, f"{s.path}:{s.line} ({s.rule})") for s in worktree.suspects)
        groups = list(_group_by_key(places).values())
        for places_in_file in groups[:_FEW]:
            warn(f"captured a possible secret: {join_first(places_in_file, 1)}")
        if len(groups) > _FEW:
            omits_files = True
            warn(f"captured possible secrets in {plural(len(groups) - _FEW, 'more file')}")
        path = shell_quoted(worktree.suspects[0].path)
        remark(f"if this file contains no secret: git ckpt allow --secret {path}")
    if omits_files:
        remark(f"to list all of these files: git ckpt show {checkpoint.id[: ids.SHORT]}")
    return len(omitted)


def _group_by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
