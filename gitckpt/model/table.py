"""Reads the keys of a table that somebody else may have written, each with its type. Pure; whatever reads a document imports it."""

from __future__ import annotations

from gitckpt.model import budget, times
from gitckpt.model.errors import InvalidCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")
    D = TypeVar("D")


class TableReader:
    """Reads one table of a document; the first mistake is raised.

    Args:
        values: the table.
        source: where the document stands, for errors: a ref.
        prefix: what errors put before a key of a table within the document, such as `worktree.`.

    Attributes:
        kinds: what errors call each type.
    """

    kinds: Mapping[type, str] = {
        str: "a string",
        int: "an integer",
        bool: "a boolean",
        float: "a float",
        dict: "a table",
        list: "an array",
    }

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.values = values
        self.source = source
        self.prefix = prefix
        self._known: set[str] = set()

    @property
    def rest(self) -> dict[str, Any]:
        """The keys that nobody asked for: a later version wrote them."""
        found = {key: value for key, value in self.values.items() if key not in self._known}
        for key, value in found.items():
            self._require_storable(key, value)
        return found

    def value(self, key: str, kind: type[T], default: D) -> T | D:
        """Returns a value; the default where it is missing."""
        self._known.add(key)
        if key not in self.values:
            return default
        value = self.values[key]
        if kind is int:
            self._require_storable(key, value)
        return value if type(value) is kind else self.wrong(key, self.kinds[kind], value, default)

    def optional(self, key: str, kind: type[T]) -> T | None:
        """Returns a value; None where it is missing."""
        return self.value(key, kind, None)

    def required(self, key: str, kind: type[T]) -> T:
        """Returns a value that must be there."""
        value = self.value(key, kind, None)
        if value is None:
            raise self.invalid(key, "missing")
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Returns true or false."""
        return self.value(key, bool, default)

    def instant(self, key: str) -> str | None:
        """Returns a timestamp; None where it is missing."""
        text = self.value(key, str, None)
        if text is not None:
            try:
                times.from_text(text)
            except ValueError as error:
                raise self.invalid(key, str(error)) from None
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns an array of strings."""
        values: list[Any] = self.value(key, list, [])
        for i, value in enumerate(values):
            if type(value) is not str:
                return self.wrong(f"{key}[{i}]", self.kinds[str], value, ())
        return tuple(values)

    def map(self, key: str) -> dict[str, str]:
        """Returns a table of strings."""
        values: dict[str, Any] = self.value(key, dict, {})
        for name, value in values.items():
            if type(value) is not str:
                return self.wrong(f"{key}.{name}", self.kinds[str], value, {})
        return values

    def _require_storable(self, key: str, value: object) -> None:
        """Raises `InvalidCheckpoint` where a value is, or holds, an integer beyond 64 bits: neither TOML nor the index has any."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if type(value) is int and not budget.MIN_INTEGER <= value <= budget.MAX_INTEGER:
                raise self.invalid(key, f"must be an integer of 64 bits, not {shown(value)}")
            if isinstance(value, dict):
                waiting += value.values()
            elif isinstance(value, list):
                waiting += value

    def wrong(self, key: str, wanted: str, value: object, default: D) -> D:  # noqa: ARG002 - for those who go on with it
        """Says that a value is not what was wanted, and returns the default where it does not raise that.

        Raises:
            InvalidCheckpoint: always, here.
        """
        raise self.invalid(key, f"must be {wanted}, not {shown(value)}")

    def invalid(self, key: str, problem: str) -> InvalidCheckpoint:
        """Returns the error that says what is wrong with a key."""
        return InvalidCheckpoint(self.source, self.prefix + key, problem)


def shown(value: object, most: int = 60) -> str:
    """Returns a value for a message, cut to `most` characters."""
    try:
        return f"{value!r:.{most}}"
    except ValueError:  # Python prints no integer beyond 4,300 digits, and `0x…` can write one
        return "an integer of thousands of digits"
