"""Convert checkpoints and states to JSON values, for `--json`; compare states."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import math
from collections.abc import Mapping

from gitckpt.model import toml
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.codec import document_fields
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def checkpoint_to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    types: dict[str, str] = {}
    fields = {key: value for key, value in document_fields(checkpoint).items() if value is not None}
    json_state = _value_to_json(dict(checkpoint.state), None, types)
    return to_json(fields) | ({"types": types} if types else {}) | {"state": json_state}


def state_to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return to_json(checkpoint.state)


def to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    json_values: dict[str, Any] = _value_to_json(dict(values), None, {})
    return json_values


def _value_to_json(value: Any, path: Any, types: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _value_to_json(item, (path, key), types) for key, item in value.items()}
    if isinstance(value, list):
        return [_value_to_json(item, (path, i), types) for i, item in enumerate(value)]
    if isinstance(value, bytes):
        types[toml.json_pointer(path)] = "bytes"
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        types[toml.json_pointer(path)] = "float"
        return repr(value)
    if isinstance(value, (dt.date, dt.time)):
        types[toml.json_pointer(path)] = type(value).__name__
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


def compare_states(old: Any, new: Any) -> list[StateChange]:
    """Return all differences in the order of the new state; removed values come last."""
    changes: list[StateChange] = []
    _collect_changes(old, new, None, changes)
    return changes


def _collect_changes(old: Any, new: Any, path: Any, changes: list[StateChange]) -> None:
    if type(old) is dict and type(new) is dict:
        for key in [*new, *(key for key in old if key not in new)]:
            _collect_changes(old.get(key, MISSING), new.get(key, MISSING), (path, key), changes)
    elif type(old) is list and type(new) is list:
        item_pairs = itertools.zip_longest(old, new, fillvalue=MISSING)
        for i, (old_item, new_item) in enumerate(item_pairs):
            _collect_changes(old_item, new_item, (path, i), changes)
    else:
        # By text, NaN equals itself, and -0.0 or another offset of the same instant is a change.
        is_compared_by_text = type(old) in (float, dt.datetime)
        is_equal = repr(old) == repr(new) if is_compared_by_text else old == new
        if type(old) is not type(new) or not is_equal:
            changes.append(StateChange(toml.json_pointer(path), old, new))
