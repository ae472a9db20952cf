"""A checkpoint as JSON, for `--json`. What JSON lacks becomes a string, and `types` says what it was, as in the document itself."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Mapping

from gitckpt.model import toml
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.readers.codec import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
