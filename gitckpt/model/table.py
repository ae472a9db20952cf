"""Read keys of a TOML table that may come from an untrusted repository."""

from __future__ import annotations

from gitckpt.model import budget, times, toml
from gitckpt.model.errors import InvalidCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")
    D = TypeVar("D")


class TableReader:
    """Reads typed values of a TOML table; raises at the first invalid value.

    Errors name the document by `source` (a ref), and the key with `prefix` (such as `worktree.`).
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
        self.values, self.source, self.prefix = values, source, prefix
        self._read_keys: set[str] = set()

    @property
    def unread_values(self) -> dict[str, Any]:
        unread = {key: value for key, value in self.values.items() if key not in self._read_keys}
        for key, value in unread.items():
            self._require_64_bit(key, value)
        return unread

    def read_value(self, key: str, kind: type[T], default: D) -> T | D:
        self._read_keys.add(key)
        if key not in self.values:
            return default
        value = self.values[key]
        if kind is int:
            self._require_64_bit(key, value)
        is_right = type(value) is kind
        return value if is_right else self.wrong_type(key, self.kinds[kind], value, default)

    def read_optional(self, key: str, kind: type[T]) -> T | None:
        return self.read_value(key, kind, None)

    def read_required(self, key: str, kind: type[T]) -> T:
        value = self.read_value(key, kind, None)
        if value is None:
            raise self.invalid(key, "missing")
        return value

    def read_flag(self, key: str, *, default: bool = False) -> bool:
        return self.read_value(key, bool, default)

    def read_timestamp(self, key: str) -> str | None:
        text = self.read_value(key, str, None)
        if text is not None:
            try:
                times.parse_timestamp(text)
            except ValueError as error:
                raise self.invalid(key, str(error)) from None
        return text

    def read_texts(self, key: str) -> tuple[str, ...]:
        values: list[Any] = self.read_value(key, list, [])
        for i, value in enumerate(values):
            if type(value) is not str:
                return self.wrong_type(f"{key}[{i}]", self.kinds[str], value, ())
        return tuple(values)

    def read_text_map(self, key: str) -> dict[str, str]:
        values: dict[str, Any] = self.read_value(key, dict, {})
        for name, value in values.items():
            if type(value) is not str:
                return self.wrong_type(f"{key}.{name}", self.kinds[str], value, {})
        return values

    def _require_64_bit(self, key: str, value: object) -> None:
        # Neither TOML nor the index holds integers beyond 64 bits.
        values = [value]
        while values:
            value = values.pop()
            if type(value) is int and not budget.MIN_INTEGER <= value <= budget.MAX_INTEGER:
                raise self.invalid(key, f"must be an integer of 64 bits, not {short_repr(value)}")
            if isinstance(value, dict | list):
                values += value.values() if isinstance(value, dict) else value

    def wrong_type(self, key: str, expected: str, value: object, default: D) -> D:  # noqa: ARG002 - for subclasses
        """Raise `InvalidCheckpoint` for a wrong type; a subclass may return `default`."""
        raise self.invalid(key, f"must be {expected}, not {short_repr(value)}")

    def invalid(self, key: str, problem: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(self.source, self.prefix + key, problem)


def parse_record(data: bytes, ref: str, kind: str, hint: str | None = None) -> dict[str, Any]:
    """Parse a TOML record of version 1; errors name its `kind`, such as "lease"."""
    try:
        budget.require_size(len(data), budget.RECORD)
        record = toml.loads(data.decode("utf-8"), budget.RECORD)
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not a {kind}: {error}", hint=hint) from None
    version = record.get("version")
    if type(version) is int and version > 1:
        hint = "upgrade gitckpt: pip install -U gitckpt"
        raise InvalidCheckpoint(ref, "version", "written by a newer gitckpt", hint=hint)
    return record


def short_repr(value: object, length: int = 60) -> str:
    try:
        return f"{value!r:.{length}}"
    except ValueError:  # Python prints no integer beyond 4,300 digits; `0x…` can write one
        return "an integer of thousands of digits"
