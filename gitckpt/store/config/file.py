"""A file such as `gitckpt.toml`: read once, table by table, and all that is wrong with it said at once."""

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


# The tables of a file that people write, read key by key: what is wrong with a value is noted with its line, and the reading goes on.


_MAX_NAME = 100
_MAX_DURATION = 36_500 * 86400 * times.MICRO
"""A century: what is longer is a slip, and instants beyond the year 9999 cannot be written."""

MANY = 999_999
"""More of anything that is counted here is a slip, too."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong, and where."""

    line: int
    text: str
    hint: str | None = None


class Mistakes:
    """What is wrong with a text.

    Args:
        text: TOML.

    Attributes:
        found: the mistakes that were noted until now.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._locations: Locations | None = None
        self.found: list[Mistake] = []

    def note(self, text: str, path: tuple[str | int, ...], hint: str | None) -> None:
        """Notes a mistake.

        Args:
            text: what is wrong.
            path: where.
            hint: what to do about it.
        """
        self.found.append(Mistake(self.line(*path), text, hint))

    def line(self, *path: str | int) -> int:
        """Returns the line of something in the text."""
        if self._locations is None:
            # Only now: to find the lines takes longer than to read the text, and most files have no mistake.
            from gitckpt.store.config.lines import Locations

            self._locations = Locations(self._text)
        return self._locations.line(*path)


class Table(table.TableReader):
    """One table of the file. Each reader returns the default where the key is missing or its value is a mistake.

    Args:
        values: the table.
        path: where it stands in the document.
        label: what messages call it, such as `phase 'lint'`.
        mistakes: where each mistake is added.
    """

    kinds: Mapping[type, str] = {**table.TableReader.kinds, bool: "true or false"}

    def __init__(self, values: Mapping[str, object], path: tuple[str | int, ...], label: str, mistakes: Mistakes) -> None:
        super().__init__(values, label)
        self.path = path
        self.label = label
        self._mistakes = mistakes

    def complain(self, text: str, *path: str | int, hint: str | None = None) -> None:
        """Notes a mistake.

        Args:
            text: what is wrong.
            path: where, from this table on.
            hint: what to do about it.
        """
        self._mistakes.note(text, (*self.path, *path), hint)

    def line(self, *path: str | int) -> int:
        """Returns the line of something in this table."""
        return self._mistakes.line(*self.path, *path)

    def only(self, known: Sequence[str]) -> None:
        """Notes each key that is not known."""
        for key in self.values:
            if key not in known:
                close = closest(key, known)
                hint = f"did you mean {close}?" if close else f"known keys: {', '.join(known)}"
                self.complain(f"unknown key {key!r} in {self.label}", key, hint=hint)

    def inner(self, key: str, label: str) -> Table | None:
        """Returns a table in this one; None where there is none, or the value is no table."""
        values = self.optional(key, dict)
        return None if values is None else Table(values, (*self.path, key), label, self._mistakes)

    def tables(self, key: str, label: str) -> list[Table]:
        """Returns the tables of an array, each called after its `name` or its number."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            return self.wrong(key, f"an array of tables, [[{'.'.join(map(str, self.path))}.{key}]]", value, [])
        return [
            Table(item, (*self.path, key, i), f"{label} {shown(item.get('name', i + 1))}", self._mistakes) for i, item in enumerate(value)
        ]

    def text(self, key: str, default: str | None = None, *, one_line: bool = False) -> str | None:
        """Returns a string that is not blank."""
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
        """Returns what a phase or a step is called, by its key `name`; it becomes the first part of the labels of checkpoints.

        Args:
            reserved: names that mean something else there, however they are written.
        """
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
        """Returns one of several words."""
        value = self.values.get(key, default)
        if value in known:
            return str(value)
        close = closest(value, known) if isinstance(value, str) else None
        hint = f"did you mean {close}?" if close else None
        return self.wrong(key, f"one of {', '.join(known)}", value, default, hint=hint)

    def count(self, key: str, default: int, least: int = 0, most: int = MANY) -> int:
        """Returns a whole number of at least `least`."""
        value = self.values.get(key, default)
        if type(value) is int and least <= value <= most:
            return value
        return self.wrong(key, f"a whole number from {least} on", value, default)

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """Returns a number in a range."""
        value = self.values.get(key, default)
        if type(value) in (int, float) and least <= value <= most:
            return float(value)
        return self.wrong(key, f"a number from {least:g} to {most:g}", value, default)

    def age(self, key: str, default: int) -> int:
        """Returns an age in microseconds."""
        length = self._length(key, "an age", "30d")
        return default if length is None else length

    def duration(self, key: str, default: int | None = None, *, positive: bool = False) -> int | None:
        """Returns a length of time in microseconds; more than none where it must be `positive`."""
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
        """Returns exit codes of failures."""
        value = self.values.get(key, [])
        if isinstance(value, list) and all(type(code) is int and 1 <= code <= 255 for code in value):
            return tuple(value)
        return self.wrong(key, "a list of exit codes from 1 to 255", value, ())

    def words(self, key: str) -> tuple[str, ...]:
        """Returns strings, each of them once."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() and sound(item) for item in value):
            return self.wrong(key, 'a list of names, such as ["lint"]', value, ())
        for i, item in enumerate(value):
            if item in value[:i]:
                self.complain(f"{key} names {item!r} twice in {self.label}", key, i)
        return tuple(dict.fromkeys(value))

    def members(self, key: str, known: Collection[str], kind: str) -> tuple[str, ...]:
        """Returns names, each of which must be known.

        Args:
            key: of the list.
            known: the names there are.
            kind: what messages call one of them.
        """
        found = self.words(key)
        self.known(key, found, known, kind)
        return found

    def known(self, key: str, found: Sequence[str], known: Collection[str], kind: str) -> None:
        """Notes each name in a list that is not known; the arguments are those of `members`, and what `words` returned."""
        for i, item in enumerate(found):
            if item not in known:
                close = closest(item, known)
                hint = f"did you mean {close}?" if close else f"there are: {', '.join(known)}" if known else "there is none"
                self.complain(f"{key} of {self.label} names {item!r}, which is no {kind}", key, i, hint=hint)

    def environment(self, key: str) -> dict[str, str]:
        """Returns variables of the environment."""
        found = self.strings(key, f"{key} of {self.label}")
        for name in found:
            if not (name.isascii() and name.isidentifier()):
                self.complain(f"{name!r} in {key} of {self.label} cannot name a variable", key, name, hint="write letters, digits and _")
            elif name.startswith("CKPT_"):
                self.complain(f"{name} in {key} of {self.label}: gitckpt sets what begins with CKPT_", key, name, hint="take another name")
        return found

    def inputs(self, key: str) -> dict[str, str]:
        """Returns the inputs with their defaults."""
        found = self.strings(key, f"{key} of {self.label}")
        for name in found:
            if not (name.isascii() and name.isidentifier() and name[0].isalpha() and name == name.lower()):
                hint = "write small letters, digits and _, a letter first"
                self.complain(f"{name!r} in {key} of {self.label} cannot name an input", key, name, hint=hint)
        return found

    def strings(self, key: str, label: str) -> dict[str, str]:
        """Returns a table of strings."""
        table = self.inner(key, label)
        found = {}
        for name, value in (table.values if table else {}).items():
            if isinstance(value, str) and sound(value):
                found[name] = value
            else:
                self.complain(f"{name} in {label} must be a string, not {shown(value)}", key, name, hint="put it in quotes")
        return found

    def wrong(self, key: str, wanted: str, value: object, default: D, *, hint: str | None = None) -> D:
        """Notes that a value is not what was wanted, and returns the default."""
        self.complain(f"{key} in {self.label} must be {wanted}, not {shown(value)}", key, hint=hint)
        return default


def sound(text: str) -> bool:
    """Tells whether a text can be handed to a process and written as UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def shown(value: object) -> str:
    """Returns a value of TOML as a message shows it, cut where it is long."""
    text = str(value).lower() if isinstance(value, bool) else "a table" if isinstance(value, dict) else table.shown(value, 61)
    return text if len(text) <= 60 else text[:59] + "…"


def name_problem(name: str) -> str | None:
    """Returns why a text cannot name a pipeline or a phase, None where it can."""
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with a space"
    if not name.isprintable():
        return "has a control character"
    if "/" in name:
        return "has a /"
    return f"is longer than {_MAX_NAME} characters" if len(name) > _MAX_NAME else None


# A file such as `gitckpt.toml`: read once, table by table, and all that is wrong with it said at once.


OBEYED = "gitckpt.toml"
"""The file of a worktree, which a branch may have made a link; those that come with gitckpt are found as Python finds them."""


class ConfigError(UsageError):
    """A file has mistakes.

    Args:
        path: of the file, or what it is called.
        mistakes: what is wrong, one at the least.
        cure: what to do about it, where that is more than to correct the file.

    Attributes:
        mistakes: by line.
        candidates: a line for each mistake where there are several.
    """

    def __init__(self, path: str, mistakes: Collection[Mistake], cure: str | None = None) -> None:
        found = sorted(mistakes, key=lambda mistake: mistake.line)
        name = os.path.basename(path)
        self.mistakes = found
        self.candidates: list[str] = []
        if len(found) == 1:
            # With the path: a file of that name is in every worktree.
            more = f" ({found[0].hint})" if found[0].hint else ""
            super().__init__(f"{name}:{found[0].line}: {found[0].text}", hint=(cure or f"correct it: {path}") + more)
            return
        super().__init__(f"{name}: {len(found)} mistakes", hint=cure or f"correct them: {path}")
        self.candidates = [f"{name}:{each.line}: {each.text}" + (f" ({each.hint})" if each.hint else "") for each in found]


class ConfigFile:
    """The tables of a file.

    Args:
        text: of the file.
        path: what messages call it.

    Attributes:
        document: all that is in it, unchecked.

    Raises:
        ConfigError: it is not TOML.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._mistakes = Mistakes(text)
        self.document = _document(text, path)

    @property
    def whole(self) -> Table:
        """The top of the document."""
        return Table(self.document, (), "the file", self._mistakes)

    def table(self, key: str, label: str = "", hint: str | None = None) -> Table:
        """Returns a table at the top; an empty one where there is none, or something else has its name.

        Args:
            key: its name.
            label: what messages call it; by default as its name.
            hint: for whoever wrote something else; by default that it holds tables, `[key.NAME]`.
        """
        value = self.document.get(key, {})
        if not isinstance(value, dict):
            self.whole.complain(f"{key} must be a table", key, hint=hint or f"write [{key}.NAME]")
            value = {}
        return Table(value, (key,), label or key, self._mistakes)

    def each(self, key: str, kind: str, read: Callable[[str, Table], T]) -> dict[str, T]:
        """Returns what the tables `[key.NAME]` say, by name, in order.

        Args:
            key: the table that they are in.
            kind: what messages call one of them.
            read: makes what is returned of a name and its table.

        Raises:
            ConfigError: anything that was read of the file until now is a mistake.
        """
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
        """Raises `ConfigError` if anything that was read until now is a mistake."""
        if self._mistakes.found:
            raise ConfigError(self._path, self._mistakes.found)


def read_file(path: str) -> ConfigFile:
    """Returns a file; one that does not exist is empty.

    Raises:
        UsageError: it cannot be read.
        ConfigError: it is not TOML.
    """
    return ConfigFile(text_of(path), path)


def text_of(path: str) -> str:
    """Returns the text of a file; "" where there is none.

    Raises:
        UsageError: it cannot be read, is no regular file, or is larger than such a file may be.
    """
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
        return {}  # where there is no file, the reader of TOML need not be imported
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
