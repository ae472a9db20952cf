"""Read a file such as `gitckpt.toml` table by table; report all mistakes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from gitckpt.git.files import premises, regular
from gitckpt.model import budget, phase, table, times, toml
from gitckpt.model.arguments import closest, folded
from gitckpt.model.errors import UsageError, WorktreeError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from gitckpt.store.config.lines import Locations

    D = TypeVar("D")
    T = TypeVar("T")


# Tables: a mistake is recorded with its line, and reading goes on.


_MAX_NAME = 100
# A century: more is a slip, and times beyond the year 9999 cannot be written.
_MAX_DURATION = 36_500 * 86400 * times.MICRO

# Any count above this is a slip, too.
MANY = 999_999


@dataclass(frozen=True, slots=True)
class Mistake:
    line: int
    text: str
    hint: str | None = None


class Mistakes:
    def __init__(self, text: str) -> None:
        self._text = text
        self._locations: Locations | None = None
        self.found: list[Mistake] = []

    def note(self, text: str, path: tuple[str | int, ...], hint: str | None) -> None:
        self.found.append(Mistake(self.line(*path), text, hint))

    def line(self, *path: str | int) -> int:
        if self._locations is None:
            # Lazy: finding lines takes longer than parsing, and most files have no mistake.
            from gitckpt.store.config.lines import Locations

            self._locations = Locations(self._text)
        return self._locations.line(*path)


class Table(table.TableReader):
    """A table of the file; readers return the default if a key is missing or wrong."""

    kinds: Mapping[type, str] = {**table.TableReader.kinds, bool: "true or false"}

    def __init__(self, values: Mapping[str, object], path: tuple[str | int, ...], label: str, mistakes: Mistakes) -> None:
        super().__init__(values, label)
        self.path = path  # of keys in the document
        self.label = label  # in messages, such as `phase 'lint'`
        self._mistakes = mistakes

    def complain(self, text: str, *path: str | int, hint: str | None = None) -> None:
        """Record a mistake at a key path relative to this table."""
        self._mistakes.note(text, (*self.path, *path), hint)

    def line(self, *path: str | int) -> int:
        return self._mistakes.line(*self.path, *path)

    def only(self, known: Sequence[str]) -> None:
        for key in self.values:
            if key not in known:
                close = closest(key, known)
                hint = f"did you mean {close}?" if close else f"known keys: {', '.join(known)}"
                self.complain(f"unknown key {key!r} in {self.label}", key, hint=hint)

    def inner(self, key: str, label: str) -> Table | None:
        values = self.optional(key, dict)
        return None if values is None else Table(values, (*self.path, key), label, self._mistakes)

    def tables(self, key: str, label: str) -> list[Table]:
        """Return the tables of an array, each labeled by its `name` or its number."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            return self.wrong(key, f"an array of tables, [[{'.'.join(map(str, self.path))}.{key}]]", value, [])
        return [
            Table(item, (*self.path, key, i), f"{label} {shown(item.get('name', i + 1))}", self._mistakes) for i, item in enumerate(value)
        ]

    def text(self, key: str, default: str | None = None, *, one_line: bool = False) -> str | None:
        """Return a string that is not blank."""
        value = self.optional(key, str)
        if value is None:
            return default
        if not value.strip():
            self.complain(f"{key} is empty in {self.label}", key)
        elif not sound(value):
            self.complain(f"{key} in {self.label} has a NUL or is not UTF-8: {shown(value)}", key)
        elif one_line and not value.isprintable():
            self.complain(f"{key} in {self.label} must be one line without control characters, not {shown(value)}", key)
        else:
            return value
        return default

    def name(self, reserved: Collection[str]) -> str:
        """Return the key `name` of a phase or step: the first part of checkpoint labels."""
        name = self.values.get("name")
        if name is None:
            self.complain(f"{self.label} has no name")
            return ""
        if not isinstance(name, str):
            self.complain(f"the name of {self.label} must be a string", "name")
            return ""
        if problem := name_problem(name):
            self.complain(f"the name of {self.label} {problem}", "name")
        elif folded(name) in {folded(word) for word in reserved}:
            self.complain(f"the name of {self.label} is reserved", "name", hint=f"reserved are {', '.join(reserved)}")
        elif name.rpartition("-")[2] in phase.STATUSES:
            self.complain(f"the name of {self.label} ends in a status", "name", hint=f"a status is one of {', '.join(phase.STATUSES)}")
        return name

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        value = self.values.get(key, default)
        if value in known:
            return str(value)
        close = closest(value, known) if isinstance(value, str) else None
        hint = f"did you mean {close}?" if close else None
        return self.wrong(key, f"one of {', '.join(known)}", value, default, hint=hint)

    def count(self, key: str, default: int, least: int = 0, most: int = MANY) -> int:
        value = self.values.get(key, default)
        if type(value) is int and least <= value <= most:
            return value
        return self.wrong(key, f"a whole number from {least} on", value, default)

    def number(self, key: str, default: float, least: float, most: float) -> float:
        value = self.values.get(key, default)
        if type(value) in (int, float) and least <= value <= most:
            return float(value)
        return self.wrong(key, f"a number from {least:g} to {most:g}", value, default)

    def age(self, key: str, default: int) -> int:
        """Return an age in microseconds."""
        length = self._length(key, "an age", "30d")
        return default if length is None else length

    def duration(self, key: str, default: int | None = None, *, positive: bool = False) -> int | None:
        """Return a duration in microseconds; zero is a mistake if `positive`."""
        length = self._length(key, "a duration", "30m")
        if length is None:
            return default
        if length > _MAX_DURATION or (positive and not length):
            problem = "more than a century" if length else "no time at all"
            self.complain(f"{key} in {self.label}: {self.values[key]!r} is {problem}", key)
            return default
        return length

    def _length(self, key: str, wanted: str, example: str) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.wrong(key, f'{wanted} such as "{example}"', value, None)
        try:
            return times.parse_age(value.strip())
        except UsageError as error:
            self.complain(f"{key} in {self.label}: {value!r} is not {wanted}", key, hint=error.hint)
            return None

    def codes(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key, [])
        if isinstance(value, list) and all(type(code) is int and 1 <= code <= 255 for code in value):
            return tuple(value)
        return self.wrong(key, "a list of exit codes from 1 to 255", value, ())

    def words(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() and sound(item) for item in value):
            return self.wrong(key, 'a list of names, such as ["lint"]', value, ())
        for i, item in enumerate(value):
            if item in value[:i]:
                self.complain(f"{key} names {item!r} twice in {self.label}", key, i)
        return tuple(dict.fromkeys(value))

    def members(self, key: str, known: Collection[str], kind: str) -> tuple[str, ...]:
        found = self.words(key)
        self.known(key, found, known, kind)
        return found

    def known(self, key: str, found: Sequence[str], known: Collection[str], kind: str) -> None:
        """Record a mistake for each name that is not known."""
        for i, item in enumerate(found):
            if item not in known:
                close = closest(item, known)
                hint = f"did you mean {close}?" if close else f"there are: {', '.join(known)}" if known else "there is none"
                self.complain(f"{key} of {self.label} names {item!r}, which is no {kind}", key, i, hint=hint)

    def environment(self, key: str) -> dict[str, str]:
        found = self.strings(key, f"{key} of {self.label}")
        for name in found:
            if not (name.isascii() and name.isidentifier()):
                self.complain(f"{name!r} in {key} of {self.label} cannot name a variable", key, name, hint="write letters, digits and _")
            elif name.startswith("CKPT_"):
                self.complain(f"{name} in {key} of {self.label}: gitckpt sets what begins with CKPT_", key, name, hint="take another name")
        return found

    def inputs(self, key: str) -> dict[str, str]:
        found = self.strings(key, f"{key} of {self.label}")
        for name in found:
            if not (name.isascii() and name.isidentifier() and name[0].isalpha() and name == name.lower()):
                hint = "write small letters, digits and _, a letter first"
                self.complain(f"{name!r} in {key} of {self.label} cannot name an input", key, name, hint=hint)
        return found

    def strings(self, key: str, label: str) -> dict[str, str]:
        table = self.inner(key, label)
        found = {}
        for name, value in (table.values if table else {}).items():
            if isinstance(value, str) and sound(value):
                found[name] = value
            else:
                self.complain(f"{name} in {label} must be a string, not {shown(value)}", key, name, hint="put it in quotes")
        return found

    def wrong(self, key: str, wanted: str, value: object, default: D, *, hint: str | None = None) -> D:
        """Record that a value has the wrong type or range, and return the default."""
        self.complain(f"{key} in {self.label} must be {wanted}, not {shown(value)}", key, hint=hint)
        return default


def sound(text: str) -> bool:
    """Return whether a text can be passed to a process and written as UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def shown(value: object) -> str:
    """Return a TOML value as a message shows it, cut if it is long."""
    text = str(value).lower() if isinstance(value, bool) else "a table" if isinstance(value, dict) else table.shown(value, 61)
    return text if len(text) <= 60 else text[:59] + "…"


def name_problem(name: str) -> str | None:
    """Return why a text cannot name a pipeline or a phase, or None."""
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with a space"
    if not name.isprintable():
        return "has a control character"
    if "/" in name:
        return "has a /"
    return f"is longer than {_MAX_NAME} characters" if len(name) > _MAX_NAME else None


# The file.


# The file in a worktree. A branch may make it a symbolic link, so it is opened with care; files
# shipped with gitckpt are not.
OBEYED = "gitckpt.toml"


class ConfigError(UsageError):
    """A file has mistakes.

    Args:
        cure: the hint, if more is needed than correcting the file.

    Attributes:
        mistakes: by line.
        candidates: a line for each mistake if there are several.
    """

    def __init__(self, path: str, mistakes: Collection[Mistake], cure: str | None = None) -> None:
        by_line = sorted(mistakes, key=lambda mistake: mistake.line)
        name = os.path.basename(path)
        self.mistakes = by_line
        self.candidates: list[str] = []
        if len(by_line) == 1:
            # With the full path: every worktree has a file of that name.
            more = f" ({by_line[0].hint})" if by_line[0].hint else ""
            super().__init__(f"{name}:{by_line[0].line}: {by_line[0].text}", hint=(cure or f"correct it: {path}") + more)
            return
        super().__init__(f"{name}: {len(by_line)} mistakes", hint=cure or f"correct them: {path}")
        self.candidates = [f"{name}:{each.line}: {each.text}" + (f" ({each.hint})" if each.hint else "") for each in by_line]


class ConfigFile:
    """The tables of a TOML file."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._mistakes = Mistakes(text)
        # Unchecked; raises `ConfigError` if the text is not TOML.
        self.document = _document(text, path)

    @property
    def whole(self) -> Table:
        return Table(self.document, (), "the file", self._mistakes)

    def table(self, key: str, label: str = "", hint: str | None = None) -> Table:
        """Return a table at the top, empty if it is missing."""
        value = self.document.get(key, {})
        if not isinstance(value, dict):
            self.whole.complain(f"{key} must be a table", key, hint=hint or f"write [{key}.NAME]")
            value = {}
        return Table(value, (key,), label or key, self._mistakes)

    def each(self, key: str, kind: str, read: Callable[[str, Table], T]) -> dict[str, T]:
        """Read each table `[key.NAME]`; raise `ConfigError` for mistakes so far."""
        around = self.table(key)
        found = {}
        for name in around.values:
            problem = name_problem(name)
            if problem:
                around.complain(f"the name of {kind} {name!r} {problem}", name)
            table = around.inner(name, f"{kind} {name!r}")
            if table is not None:
                found[name] = read(name, table)
        self.require_correct()
        return found

    def require_correct(self) -> None:
        if self._mistakes.found:
            raise ConfigError(self._path, self._mistakes.found)


def read_file(path: str) -> ConfigFile:
    """Return a file; a missing one is empty."""
    return ConfigFile(text_of(path), path)


def text_of(path: str) -> str:
    """Return the text of a file, "" if missing; raise `UsageError` if unreadable."""
    try:
        read = premises.content if os.path.basename(path) == OBEYED else regular.content
        return read(path, budget.FILE.size).decode("utf-8", "surrogateescape")
    except WorktreeError as error:
        raise UsageError(error.message, hint=error.hint) from None
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _document(text: str, path: str) -> dict[str, object]:
    if not text:
        return {}  # saves the import of the TOML parser
    try:
        return toml.loads(text, budget.FILE)
    except budget.Excess as error:
        raise ConfigError(path, [Mistake(1, str(error))]) from None
    except ValueError as error:
        import re

        where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(where[1]) if where and where[1] else text.count("\n") + (not text.endswith("\n")) if where else 1
        said = str(error)[: where.start()] if where else str(error)
        raise ConfigError(path, [Mistake(max(line, 1), f"not TOML: {said}")]) from None
