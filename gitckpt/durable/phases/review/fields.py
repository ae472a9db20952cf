"""Reads the values of a table that somebody else may have written, each with its type. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gitckpt.model.errors import InvalidCheckpoint

_T = TypeVar("_T")


class Fields:
    """A table.

    What is missing is zero, empty or false, as quasar reads it.

    Args:
        table: the table.
        source: where it stands, for errors.

    Raises:
        InvalidCheckpoint: from each method, where a value has another type; source and key are named.
    """

    def __init__(self, table: Any, source: str) -> None:
        self.source = source
        if not isinstance(table, Mapping):
            raise InvalidCheckpoint(source, "", f"is {_kind(table)}, not a table")
        self._table = table

    def invalid(self, name: str, problem: str) -> InvalidCheckpoint:
        """Returns the error that says what is wrong with a key."""
        return InvalidCheckpoint(self.source, name, problem)

    def names(self) -> list[str]:
        """Returns the keys that are there."""
        return list(self._table)

    def text(self, name: str) -> str:
        """Returns a string."""
        return self._typed(name, "", "a string")

    def flag(self, name: str) -> bool:
        """Returns a boolean."""
        return self._typed(name, False, "a boolean")

    def count(self, name: str, *, required: bool = False) -> int:
        """Returns a whole number, 0 or more; where it is required, it must be there."""
        if required and name not in self._table:
            raise self.invalid(name, "is missing")
        value = self._typed(name, 0, "a whole number")
        if value < 0:
            raise self.invalid(name, f"is {value}, less than 0")
        return value

    def number(self, name: str) -> float:
        """Returns a finite number, 0 or more."""
        value = self._table.get(name, 0.0)
        if type(value) not in (int, float):
            raise self.invalid(name, f"is {_kind(value)}, not a number")
        if not math.isfinite(value) or value < 0:
            raise self.invalid(name, f"is {value}, no amount")
        return float(value)

    def choice(self, name: str, words: Sequence[str], default: str | None = None) -> str:
        """Returns one of some words; where it is missing, the default, if there is one."""
        value = self.text(name)
        if value == "" and default is not None:
            return default
        if value not in words:
            raise self.invalid(name, f"is {value!r:.60}, not one of {', '.join(words)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns an array of strings."""
        values: list[Any] = self._typed(name, [], "an array")
        if not all(type(value) is str for value in values):
            raise self.invalid(name, "holds something else than strings")
        return tuple(values)

    def table(self, name: str) -> Fields:
        """Returns a table."""
        return Fields(self._table.get(name, {}), f"{self.source}.{name}")

    def tables(self, name: str) -> list[Fields]:
        """Returns an array of tables."""
        values: list[Any] = self._typed(name, [], "an array")
        return [Fields(value, f"{self.source}.{name}[{at}]") for at, value in enumerate(values)]

    def _typed(self, name: str, missing: _T, called: str) -> _T:
        """Returns a value of the type of the one that stands for a missing key."""
        value = self._table.get(name, missing)
        if type(value) is not type(missing):
            raise self.invalid(name, f"is {_kind(value)}, not {called}")
        return value


def _kind(value: Any) -> str:
    return f"{value!r:.40} ({type(value).__name__})"
