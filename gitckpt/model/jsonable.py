"""Render a checkpoint as JSON, for `--json`."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import math
from collections.abc import Mapping

from gitckpt.model import toml
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.codec import fields
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the document as JSON values; its `types` lists those made strings."""
    types: dict[str, str] = {}
    present = {key: value for key, value in fields(checkpoint).items() if value is not None}
    converted = _plain(dict(checkpoint.state), None, types)
    return plain(present) | ({"types": types} if types else {}) | {"state": converted}


def state(checkpoint: Checkpoint) -> dict[str, Any]:
    return plain(checkpoint.state)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
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


# Differences between two states.

MISSING = object()  # the value of a key that a state does not have


@dataclass(frozen=True, slots=True)
class StateChange:
    """One value that differs between two states; `old` or `new` may be `MISSING`."""

    pointer: str
    old: Any
    new: Any

    @property
    def is_added(self) -> bool:
        return self.old is MISSING

    @property
    def is_removed(self) -> bool:
        return self.new is MISSING


def compare(old: Any, new: Any) -> list[StateChange]:
    """Return the changes in the order of the new state; removed values come last."""
    changes: list[StateChange] = []
    _compare(old, new, None, changes)
    return changes


def _compare(old: Any, new: Any, path: Any, changes: list[StateChange]) -> None:
    if type(old) is dict and type(new) is dict:
        for key in [*new, *(key for key in old if key not in new)]:
            _compare(old.get(key, MISSING), new.get(key, MISSING), (path, key), changes)
    elif type(old) is list and type(new) is list:
        pairs = itertools.zip_longest(old, new, fillvalue=MISSING)
        for i, (old_item, new_item) in enumerate(pairs):
            _compare(old_item, new_item, (path, i), changes)
    else:
        # By text, NaN equals itself, and -0.0 or another offset of the same instant is a change.
        by_text = type(old) in (float, dt.datetime)
        is_equal = repr(old) == repr(new) if by_text else old == new
        if type(old) is not type(new) or not is_equal:
            changes.append(StateChange(toml.pointer(path), old, new))
