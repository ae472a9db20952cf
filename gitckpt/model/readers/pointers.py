"""The values of a state that TOML lacks: strings in the document, which `types` names by JSON pointer (RFC 6901)."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.format import budget
from gitckpt.model.readers.table import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_PLACE = 20
"""No place in an array has more digits."""


def put_back(state: dict[str, Any], types: Mapping[str, Any], ref: str) -> dict[str, Any]:
    """Puts the values that TOML lacks back into a state, in place, and returns it.

    Args:
        state: as TOML has it.
        types: JSON pointer → kind, as the document's table `types` says.
        ref: full name of the ref that the document was found at.

    Raises:
        InvalidCheckpoint: a pointer leads to nothing, or to no string of its kind; or integers have more digits than are allowed.
    """
    long = 0
    for where, kind in types.items():
        field = f"types.{where}"
        holder: Any = None
        value: Any = state
        step: Any = None
        try:
            root, *parts = where.split("/")
            if root:
                raise KeyError(root)
            for part in parts:
                holder, step = value, part.replace("~1", "/").replace("~0", "~")
                step = _index(step) if type(holder) is list else step
                value = holder[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise InvalidCheckpoint(ref, field, "points to nothing in the state") from None
        if type(value) is not str or holder is None:
            raise InvalidCheckpoint(ref, field, "must point to a string in the state")
        if kind == "integer" and len(value) > budget.MAX_DECIMAL:
            long += len(value)
            if len(value) > budget.MAX_HEXADECIMAL or "x" not in value or long > budget.MAX_LONG:
                raise InvalidCheckpoint(ref, field, "an integer of more digits than are allowed")
        try:
            holder[step] = _lacking(kind, value)
        except ValueError:  # as binascii.Error is
            raise InvalidCheckpoint(ref, field, f"the string there is no {shown(kind)}") from None
    return state


def _index(text: str) -> int:
    if len(text) > _PLACE or not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0"):
        raise ValueError(text)
    return int(text)


def _lacking(kind: Any, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "bytes":
        import base64

        return base64.b64decode(text, validate=True)
    if kind == "integer":
        if text.strip() != text or "_" in text or not text.isascii():
            raise ValueError(text)
        return int(text, 16) if "x" in text else int(text)
    raise ValueError(kind)
