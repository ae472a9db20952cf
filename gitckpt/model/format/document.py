"""Checkpoint document → bytes. Shared by the library and the hook, so it imports nothing heavy."""

from __future__ import annotations

from gitckpt.model import toml
from gitckpt.model.checkpoint import KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
"""The document version that this program writes, and the highest it reads."""

MESSAGE = 1000
"""How many characters a message has at most."""

ORDER = ("version", *(key.name for key in KEYS if key.kind[0].islower()))
"""The plain keys of a document, in the order they are written; tables follow, `[state]` last."""


def message_of(text: str) -> str:
    """Return a text as a message: on one line, and cut where it is too long."""
    line = text if text.splitlines() == [text] else " ".join(text.split())
    return line if len(line) <= MESSAGE else f"{line[: MESSAGE - 1]}…"


def render(fields: dict[str, Any], state: dict[str, Any]) -> bytes:
    """Returns a checkpoint document.

    Args:
        fields: every key but `types` and `state`; a value of None leaves its key out.
        state: the caller's data; any JSON value per key, bytes, dates and times.

    Returns:
        UTF-8 TOML, with the table `[state]` at the end, so that a reader can stop before it.

    Raises:
        StateError: the state, or an unknown key kept from a reader, holds what cannot be stored losslessly; its path is named.
    """
    types: dict[str, str] = {}
    body = toml.dump_state(state, types)
    known = {key: fields[key] for key in ORDER if key in fields}
    document = {key: value for key, value in (known | fields).items() if value is not None}
    plain = {key: value for key, value in document.items() if type(value) is not dict}
    tables = {key: value for key, value in document.items() if type(value) is dict}
    if types:
        tables = {"types": types} | tables
    return f"{toml.dumps(plain | tables)}\n{body}".encode()
