"""A checkpoint as JSON, for `--json`. What JSON lacks becomes a string, and `types` says what it was, as in the document itself."""

from __future__ import annotations

import base64
import datetime
import datetime as dt
import math
from collections.abc import Mapping

from gitckpt.model import toml
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.codec import fields
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# A checkpoint as JSON, for `--json`. What JSON lacks becomes a string, and `types` says what it was, as in the document itself.


def document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the whole document; `types` maps JSON pointers into `state` to "bytes", "float", "datetime", "date" or "time"."""
    types: dict[str, str] = {}
    whole = {key: _plain(value, None, {}) for key, value in fields(checkpoint).items() if value is not None}
    converted = _plain(dict(checkpoint.state), None, types)
    return whole | ({"types": types} if types else {}) | {"state": converted}


def state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the state alone."""
    return plain(checkpoint.state)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a map of the values that a state may hold, as JSON has them."""
    converted: dict[str, Any] = _plain(dict(values), None, {})
    return converted


def _plain(value: Any, path: Any, types: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, (path, key), types) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, (path, i), types) for i, item in enumerate(value)]
    if isinstance(value, bytes):
        types[toml.pointer(path)] = "bytes"
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        types[toml.pointer(path)] = "float"
        return repr(value)
    if isinstance(value, (dt.date, dt.time)):
        types[toml.pointer(path)] = type(value).__name__
        return value.isoformat()
    return value


# What changed between two states, value by value.


MISSING = object()
"""Stands for the value of a key that a state does not have."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One value that differs.

    Attributes:
        pointer: where it is (a JSON pointer).
        old: its value before; an object that equals no value, where it `is_added`.
        new: its value after; an object that equals no value, where it `is_removed`.
    """

    pointer: str
    old: Any
    new: Any

    @property
    def is_added(self) -> bool:
        """Whether it is there since then."""
        return self.old is MISSING

    @property
    def is_removed(self) -> bool:
        """Whether it was there until then."""
        return self.new is MISSING


def compare(old: Any, new: Any) -> list[StateChange]:
    """Returns the values that differ, in the order of the newer state; what is gone comes after what is there."""
    changes: list[StateChange] = []
    _compare(old, new, None, changes)
    return changes


def _compare(old: Any, new: Any, path: Any, changes: list[StateChange]) -> None:
    if type(old) is dict and type(new) is dict:
        for key in [*new, *(key for key in old if key not in new)]:
            _compare(old.get(key, MISSING), new.get(key, MISSING), (path, key), changes)
    elif type(old) is list and type(new) is list:
        for i in range(max(len(old), len(new))):
            _compare(old[i] if i < len(old) else MISSING, new[i] if i < len(new) else MISSING, (path, i), changes)
    elif not _same(old, new):
        changes.append(StateChange(toml.pointer(path), old, new))


def _same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if type(old) in (float, datetime.datetime):  # NaN is no change, -0.0 is one, and so is another offset of the same instant
        return repr(old) == repr(new)
    return bool(old == new)
