"""Read tables of a TOML file such as `gitckpt.toml`; collect all mistakes in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from gitckpt.git.files import private_dirs, regular
from gitckpt.model import budget, phase, table, times, toml
from gitckpt.model.arguments import closest_word, normalize_name
from gitckpt.model.errors import UsageError, WorktreeError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from gitckpt.store.config.lines import KeyLocations, KeyPath

    D = TypeVar("D")
    T = TypeVar("T")

_MAX_NAME = 100
# A century: more is surely a mistake, and could exceed the year 9999.
_MAX_DURATION = 36_500 * 86400 * times.MICRO
MAX_COUNT = 999_999  # a higher count is surely a mistake


@dataclass(frozen=True, slots=True)
class Mistake:
    line: int
    text: str
    hint: str | None = None


class Mistakes:
    def __init__(self, text: str) -> None:
        self._text = text
        self._locations: KeyLocations | None = None
        self.entries: list[Mistake] = []

    def add_mistake(self, text: str, path: KeyPath, hint: str | None) -> None:
        self.entries.append(Mistake(self.line_of_key(*path), text, hint))

    def line_of_key(self, *path: str | int) -> int:
        if self._locations is None:
            # Lazy: finding lines takes longer than parsing, and most files have no mistake.
            from gitckpt.store.config.lines import KeyLocations

            self._locations = KeyLocations(self._text)
        return self._locations.line_of_key(*path)


class Table(table.TableReader):
    """A table of a TOML file. For a missing or wrong key, methods return the default."""

    kinds: Mapping[type, str] = {**table.TableReader.kinds, bool: "true or false"}

    def __init__(
        self, values: Mapping[str, object], path: KeyPath, label: str, mistakes: Mistakes
    ) -> None:
        super().__init__(values, label)
        self.path = path  # the keys that lead to the table in the document
        self.label = label  # in messages, such as `phase 'lint'`
        self._mistakes = mistakes

    def report(self, text: str, *path: str | int, hint: str | None = None) -> None:
        self._mistakes.add_mistake(text, (*self.path, *path), hint)

    def line_of_key(self, *path: str | int) -> int:
        return self._mistakes.line_of_key(*self.path, *path)

    def check_keys(self, keys: Sequence[str]) -> None:
        for key in self.values:
            if key not in keys:
                hint = _suggest_name(key, keys) or f"known keys: {', '.join(keys)}"
                self.report(f"unknown key {key!r} in {self.label}", key, hint=hint)

    def subtable(self, key: str, label: str) -> Table | None:
        values = self.read_optional(key, dict)
        return None if values is None else Table(values, (*self.path, key), label, self._mistakes)

    def tables(self, key: str, label: str) -> list[Table]:
        header = ".".join(map(str, (*self.path, key)))
        expected = f"an array of tables, [[{header}]]"
        tables = []
        for i, item in enumerate(self._list(key, expected, lambda item: isinstance(item, dict))):
            element_label = f"{label} {display(item.get('name', i + 1))}"
            tables.append(Table(item, (*self.path, key, i), element_label, self._mistakes))
        return tables

    def text(self, key: str, default: str | None = None, *, one_line: bool = False) -> str | None:
        value = self.read_optional(key, str)
        if value is None:
            return default
        if not value.strip():
            self.report(f"{key} is empty in {self.label}", key)
        elif not is_storable(value):
            self.report(f"{key} in {self.label} has a NUL or is not UTF-8: {display(value)}", key)
        elif one_line and not value.isprintable():
            self.wrong_type(key, "one line without control characters", value, default)
        else:
            return value
        return default

    def read_name(self, reserved: Collection[str]) -> str:
        name = self.values.get("name")
        if name is None:
            self.report(f"{self.label} has no name")
            return ""
        problem: str | None = "must be a string"
        hint = None
        if not isinstance(name, str):
            name = ""
        elif not (problem := describe_name_problem(name)):
            if normalize_name(name) in map(normalize_name, reserved):
                problem, hint = "is reserved", f"reserved names: {', '.join(reserved)}"
            elif name.rpartition("-")[2] in phase.STATUSES:
                hint = f"a status is one of {', '.join(phase.STATUSES)}"
                problem = "ends with a status"
        if problem:
            self.report(f"the name of {self.label} {problem}", "name", hint=hint)
        return name

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.values.get(key, default)
        if value in choices:
            return str(value)
        hint = _suggest_name(value, choices) if isinstance(value, str) else None
        return self.wrong_type(key, f"one of {', '.join(choices)}", value, default, hint=hint)

    def count(self, key: str, default: int, minimum: int = 0, maximum: int = MAX_COUNT) -> int:
        value = self.values.get(key, default)
        if type(value) is int and minimum <= value <= maximum:
            return value
        return self.wrong_type(key, f"a whole number from {minimum} on", value, default)

    def number(self, key: str, default: float, minimum: float, maximum: float) -> float:
        value = self.values.get(key, default)
        if type(value) in (int, float) and minimum <= value <= maximum:
            return float(value)
        return self.wrong_type(key, f"a number from {minimum:g} to {maximum:g}", value, default)

    def age(self, key: str, default: int) -> int:
        microseconds = self._microseconds(key, "an age", "30d")
        return default if microseconds is None else microseconds

    def duration(
        self, key: str, default: int | None = None, *, positive: bool = False
    ) -> int | None:
        """Return a duration in µs, or the default; `positive` makes zero a mistake."""
        microseconds = self._microseconds(key, "a duration", "30m")
        if microseconds is None:
            return default
        if microseconds > _MAX_DURATION or (positive and not microseconds):
            problem = "more than a century" if microseconds else "zero"
            self.report(f"{key} in {self.label}: {self.values[key]!r} is {problem}", key)
            return default
        return microseconds

    def _microseconds(self, key: str, noun: str, example: str) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.wrong_type(key, f'{noun} such as "{example}"', value, None)
        try:
            return times.parse_age(value.strip())
        except UsageError as error:
            self.report(f"{key} in {self.label}: {value!r} is not {noun}", key, hint=error.hint)
            return None

    def exit_codes(self, key: str) -> tuple[int, ...]:
        expected = "a list of exit codes from 1 to 255"
        return self._list(key, expected, lambda code: type(code) is int and 1 <= code <= 255)

    def names(self, key: str) -> tuple[str, ...]:
        def is_name(value: object) -> bool:
            return isinstance(value, str) and bool(value.strip()) and is_storable(value)

        names = self._list(key, 'a list of names, such as ["lint"]', is_name)
        for i, name in enumerate(names):
            if name in names[:i]:
                self.report(f"{key} names {name!r} twice in {self.label}", key, i)
        return tuple(dict.fromkeys(names))

    def _list(self, key: str, expected: str, is_valid: Callable[[Any], object]) -> tuple[Any, ...]:
        values = self.values.get(key, [])
        if isinstance(values, list) and all(map(is_valid, values)):
            return tuple(values)
        return self.wrong_type(key, expected, values, ())

    def members(self, key: str, choices: Collection[str], kind: str) -> tuple[str, ...]:
        names = self.names(key)
        self.require_members(key, names, choices, kind)
        return names

    def require_members(
        self, key: str, names: Sequence[str], choices: Collection[str], kind: str
    ) -> None:
        hint = f"there are: {', '.join(choices)}" if choices else f"no {kind} is defined"
        for i, name in enumerate(names):
            if name not in choices:
                text = f"{key} of {self.label} names {name!r}, which is no {kind}"
                self.report(text, key, i, hint=_suggest_name(name, choices) or hint)

    def environment(self, key: str) -> dict[str, str]:
        variables = self.strings(key, f"{key} of {self.label}")
        for name in variables:
            if not (name.isascii() and name.isidentifier()):
                text = f"{name!r} in {key} of {self.label} is not a valid variable name"
                self.report(text, key, name, hint="use letters, digits and _")
            elif name.startswith("CKPT_"):
                text = f"{name} in {key} of {self.label}: gitckpt sets all variables CKPT_*"
                self.report(text, key, name, hint="choose another name")
        return variables

    def inputs(self, key: str) -> dict[str, str]:
        inputs = self.strings(key, f"{key} of {self.label}")
        for name in inputs:
            is_lower = name.isascii() and name.isidentifier() and name == name.lower()
            if not (is_lower and name[0].isalpha()):
                hint = "use lower-case letters, digits and _, a letter first"
                text = f"{name!r} in {key} of {self.label} is not a valid input name"
                self.report(text, key, name, hint=hint)
        return inputs

    def strings(self, key: str, label: str) -> dict[str, str]:
        table = self.subtable(key, label)
        strings = {}
        for name, value in table.values.items() if table else ():
            if isinstance(value, str) and is_storable(value):
                strings[name] = value
            else:
                text = f"{name} in {label} must be a string, not {display(value)}"
                self.report(text, key, name, hint="put it in quotes")
        return strings

    def wrong_type(
        self, key: str, expected: str, value: object, default: D, *, hint: str | None = None
    ) -> D:
        text = f"{key} in {self.label} must be {expected}, not {display(value)}"
        self.report(text, key, hint=hint)
        return default


def _suggest_name(name: str, choices: Collection[str]) -> str | None:
    closest_name = closest_word(name, choices)
    return f"did you mean {closest_name}?" if closest_name else None


def is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def display(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "a table" if isinstance(value, dict) else table.short_repr(value, 61)
    return text if len(text) <= 60 else text[:59] + "…"


def describe_name_problem(name: str) -> str | None:
    is_problem = {
        "is empty": not name.strip(),
        "begins or ends with a space": name != name.strip(),
        "has a control character": not name.isprintable(),
        "has a /": "/" in name,
        f"is longer than {_MAX_NAME} characters": len(name) > _MAX_NAME,
    }
    return next((problem for problem, is_present in is_problem.items() if is_present), None)


# In the top directory of a worktree. A branch may contain a symlink, so `read_text` follows none.
OBEYED = "gitckpt.toml"


class ConfigError(UsageError):
    """Mistakes in a TOML file; `cure` replaces the usual hint to correct the file."""

    def __init__(self, path: str, mistakes: Collection[Mistake], cure: str | None = None) -> None:
        self.mistakes = sorted(mistakes, key=lambda mistake: mistake.line)
        # Only the hint has the full path: every worktree has a file of this name.
        name = os.path.basename(path)
        lines = [f"{name}:{mistake.line}: {mistake.text}" for mistake in self.mistakes]
        hints = [f" ({mistake.hint})" if mistake.hint else "" for mistake in self.mistakes]
        self.candidates: list[str] = []
        if len(lines) == 1:
            super().__init__(lines[0], hint=(cure or f"correct it: {path}") + hints[0])
        else:
            super().__init__(f"{name}: {len(lines)} mistakes", hint=cure or f"correct them: {path}")
            self.candidates = [line + hint for line, hint in zip(lines, hints, strict=True)]


class ConfigFile:
    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._mistakes = Mistakes(text)
        # Not checked yet; `_parse_toml` raises `ConfigError` if the text is not TOML.
        self.document = _parse_toml(text, path)
        self.top = Table(self.document, (), "the file", self._mistakes)

    def table(self, key: str, label: str = "", hint: str | None = None) -> Table:
        value = self.document.get(key, {})
        if not isinstance(value, dict):
            self.top.report(f"{key} must be a table", key, hint=hint or f"write [{key}.NAME]")
            value = {}
        return Table(value, (key,), label or key, self._mistakes)

    def read_tables(self, key: str, kind: str, read: Callable[[str, Table], T]) -> dict[str, T]:
        """Read each table `[key.NAME]`; raise ConfigError if the file has any mistake."""
        parent_table = self.table(key)
        tables = {}
        for name in parent_table.values:
            if problem := describe_name_problem(name):
                parent_table.report(f"the name of {kind} {name!r} {problem}", name)
            table = parent_table.subtable(name, f"{kind} {name!r}")
            if table is not None:
                tables[name] = read(name, table)
        self.require_no_mistakes()
        return tables

    def require_no_mistakes(self) -> None:
        if self._mistakes.entries:
            raise ConfigError(self._path, self._mistakes.entries)


def read_config_file(path: str) -> ConfigFile:
    return ConfigFile(read_text(path), path)


def read_text(path: str) -> str:
    """Return a file's text, or "" without a file; raise UsageError if unreadable."""
    try:
        is_obeyed = os.path.basename(path) == OBEYED
        read = private_dirs.read_file_unless_link if is_obeyed else regular.read_content
        return read(path, budget.FILE.size).decode("utf-8", "surrogateescape")
    except WorktreeError as error:
        raise UsageError(error.message, hint=error.hint) from None
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _parse_toml(text: str, path: str) -> dict[str, object]:
    if not text:
        return {}  # saves the import of the TOML parser
    try:
        return toml.loads(text, budget.FILE)
    except budget.LimitExceeded as error:
        raise ConfigError(path, [Mistake(1, str(error))]) from None
    except ValueError as error:
        import re

        line_count = text.count("\n") + (not text.endswith("\n"))
        error_place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(error_place[1] or line_count) if error_place else 1
        problem = str(error)[: error_place.start()] if error_place else str(error)
        raise ConfigError(path, [Mistake(max(line, 1), f"not TOML: {problem}")]) from None
