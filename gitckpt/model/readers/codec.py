"""Checkpoint ↔ bytes: the document of `docs/format.md`, version 1, checked key by key on the way in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gitckpt.model import ids, toml
from gitckpt.model.checkpoint import Attempt, Checkpoint, Imported, Omitted, Pipeline, Progress, Submodule, Suspect, Worktree
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint, StateError
from gitckpt.model.format import budget, document
from gitckpt.model.format.document import VERSION
from gitckpt.model.readers import parts, pointers
from gitckpt.model.readers.fence import fenced
from gitckpt.model.readers.table import TableReader, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_STATE = b"\n[state]\n"
_OTHER_TABLE = re.compile(rb"\n[ \t]*\[(?!state[\].])")
_DRIVES = re.compile(rb"\n\[(?:attempt|pipeline)\]\n")
_EARLIER_TABLE = re.compile(rb"\n[ \t]*\[(?!(?:attempt|pipeline|state)[\].])")
_TRIGGER = re.compile(r"[a-z][a-z0-9-]*(:[a-z0-9][a-z0-9._-]*)?")


def encode(checkpoint: Checkpoint) -> bytes:
    """Returns the document of a checkpoint.

    Raises:
        StateError: the state holds a value that cannot be stored without changing it; its JSON pointer is named.
    """
    return document.render(fields(checkpoint), dict(checkpoint.state))


def fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the keys of a checkpoint's document, less `types` and `state`; those that are absent have the value None."""
    found: dict[str, Any] = {"version": VERSION}
    for key in document.KEYS:
        value = getattr(checkpoint, key.attribute)
        if key.kind in _TABLES:
            if value is not None:
                found[key.name] = _worktree_fields(value) if type(value) is Worktree else _set_fields(value)
        elif key.kind == "texts":
            found[key.name] = list(value) or None
        else:
            found[key.name] = list(value) if type(value) is tuple else value
    return found | dict(checkpoint.unknown)


def decode(data: bytes, ref: str) -> Checkpoint:
    """Returns the checkpoint of a document.

    Args:
        data: the blob.
        ref: full name of the ref it was found at; below `refs/checkpoints/` its last part must equal the document's id.

    Raises:
        NewerCheckpoint: its version is higher than `VERSION`.
        InvalidCheckpoint: anything else is wrong; ref and field are named.
    """
    return fenced(ref, lambda: _decode(data, ref))


def decode_header(data: bytes, ref: str) -> Checkpoint:
    """Returns the checkpoint of a document without its state, which is left empty and unread where it stands last.

    Args and errors: as `decode`; a fault inside the state is not noticed.
    """
    return fenced(ref, lambda: _decode_header(data, ref))


def decode_summary(data: bytes, ref: str) -> Checkpoint:
    """Returns the checkpoint of a document without its state, and without what drives its run, where these tables stand last.

    A listing needs no more, and of a long pipeline they are nearly all of the document.

    Args and errors: as `decode`; a fault inside these tables is not noticed.
    """
    return fenced(ref, lambda: _decode_summary(data, ref))


def _decode(data: bytes, ref: str) -> Checkpoint:
    _require_size(data, ref)
    end = _end_of_header(data)
    if end is None:
        return _checkpoint(_parse(data, ref), ref, with_state=True)
    try:
        budget.require_size(end, budget.HEADER)
        budget.require(_text(data[:end], ref), budget.HEADER)
    except budget.Excess as error:
        raise InvalidCheckpoint(ref, "", str(error)) from None
    return _checkpoint(_parse(data, ref, budget.DOCUMENT), ref, with_state=True)


def _decode_header(data: bytes, ref: str) -> Checkpoint:
    _require_size(data, ref)
    end = _end_of_header(data)
    if end is not None:
        try:
            head = _parse(data[:end], ref)
        except NewerCheckpoint:
            raise
        except InvalidCheckpoint:
            pass
        else:
            head.setdefault("state", {})
            return _checkpoint(head, ref, with_state=False)
    return _checkpoint(_parse(data, ref), ref, with_state=False)


def _decode_summary(data: bytes, ref: str) -> Checkpoint:
    _require_size(data, ref)
    found = _DRIVES.search(data)
    if found is not None and not _EARLIER_TABLE.search(data, found.start() + 1):
        try:
            head = _parse(data[: found.start() + 1], ref)
        except NewerCheckpoint:
            raise
        except InvalidCheckpoint:
            pass  # it was in the middle of something else
        else:
            head.setdefault("state", {})
            return _checkpoint(head, ref, with_state=False)
    return _decode_header(data, ref)


def check(found: Mapping[str, Any], ref: str) -> None:
    """Raises what `decode` would, if a document had these keys (those with the value None are absent) and an empty state.

    Args:
        found: as `fields` returns them.
        ref: full name of the ref that it is meant for.
    """
    _checkpoint({key: value for key, value in found.items() if value is not None} | {"state": {}}, ref, with_state=False)


def tables(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables `pipeline` and `attempt`, of those that are there, as a checkpoint has them."""
    return {key.name: _TABLES[key.kind](TableReader(found[key.name], "", f"{key.name}.")) for key in document.KEYS if key.name in found}


def _end_of_header(data: bytes) -> int | None:
    """Returns where the header ends: before the line `[state]`. None where all of the document counts, as other tables follow."""
    at = data.find(_STATE)
    return at + 1 if at >= 0 and not _OTHER_TABLE.search(data, at + 1) else None


def _require_size(data: bytes, ref: str) -> None:
    try:
        budget.require_size(len(data), budget.DOCUMENT)
    except budget.Excess as error:
        raise InvalidCheckpoint(ref, "", str(error)) from None


def _text(data: bytes, ref: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidCheckpoint(ref, "", f"not UTF-8 (byte {error.start})") from None


def _parse(data: bytes, ref: str, limits: budget.Budget = budget.HEADER) -> dict[str, Any]:
    """Returns the keys of a document, or of the beginning of one, that is cheap enough to be parsed."""
    try:
        budget.require_size(len(data), limits)
        table = toml.loads(_text(data, ref), limits)
    except budget.Excess as error:
        raise InvalidCheckpoint(ref, "", str(error)) from None
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not TOML: {error}") from None
    version = table.get("version")
    if type(version) is int and version > VERSION:
        raise NewerCheckpoint(
            ref,
            "version",
            f"written by a newer gitckpt (document version {shown(version)})",
            hint="upgrade gitckpt: pip install -U gitckpt",
        )
    return table


def _checkpoint(table: dict[str, Any], ref: str, *, with_state: bool) -> Checkpoint:
    take = TableReader(table, ref)
    version = take.required("version", int)
    if version != VERSION:
        raise take.invalid("version", f"must be {VERSION}, not {shown(version)}")
    state, types = take.required("state", dict), take.optional("types", dict) or {}
    values: dict[str, Any] = {}
    for key in document.KEYS:
        if key.kind in _TABLES:
            inner = take.optional(key.name, dict)
            values[key.attribute] = None if inner is None else _TABLES[key.kind](TableReader(inner, ref, f"{key.name}."))
        else:
            values[key.attribute] = _VALUES[key.kind](take, key.name)
    checkpoint = Checkpoint(**values, state=pointers.put_back(state, types, ref) if with_state else {}, unknown=take.rest)
    if ref.startswith("refs/checkpoints/") and checkpoint.id != ref.rpartition("/")[2]:
        raise take.invalid("id", f"{checkpoint.id} is not the ref's name")
    if (checkpoint.run is None) != (checkpoint.sequence is None):
        raise take.invalid("sequence", "belongs to a run: both keys or neither")
    if checkpoint.parent is not None and checkpoint.run is None:
        raise take.invalid("parent", "belongs to a run, and there is no run")
    return checkpoint


def _run(take: TableReader, key: str) -> str | None:
    text = take.optional(key, str)
    if text is not None and not ids.is_run_id(text):
        raise take.invalid(key, f"must be a run id such as 20261121-201500-add-login, not {shown(text)}")
    return text


def _timestamp(take: TableReader, key: str) -> str:
    text = take.required(key, str)
    take.instant(key)
    return text


def _trigger(take: TableReader, key: str) -> str:
    text = take.required(key, str)
    if not _TRIGGER.fullmatch(text):
        raise take.invalid(key, f"must be a word such as manual or import:forge, not {shown(text)}")
    return text


def _required_texts(take: TableReader, key: str) -> tuple[str, ...]:
    take.required(key, list)
    return take.texts(key)


_VALUES: dict[str, Callable[[TableReader, str], Any]] = {
    "id": lambda take, key: parts.identity(take, key, take.required(key, str)),
    "optional id": parts.optional_identity,
    "run": _run,
    "sequence": lambda take, key: parts.count(take, key, 1),
    "line": lambda take, key: parts.line(take, key, take.required(key, str)),
    "timestamp": _timestamp,
    "commit": lambda take, key: parts.git_sha(take, take.required(key, str)),
    "text": lambda take, key: take.optional(key, str),
    "texts": lambda take, key: take.texts(key),
    "trigger": _trigger,
    "required texts": _required_texts,
}
"""How each kind of a plain key is read."""

_TABLES: dict[str, Callable[[TableReader], Any]] = {
    "Worktree": parts.worktree,
    "Imported": parts.imported,
    "Progress": parts.progress,
    "Pipeline": parts.pipeline,
    "Attempt": parts.attempt,
}
"""How each table is read."""


def _worktree_fields(worktree: Worktree) -> dict[str, Any]:
    """Returns the keys of the table `[worktree]`."""
    fields = _set_fields(worktree)
    if worktree.omitted:
        fields["omitted"] = [_set_fields(entry) for entry in worktree.omitted]
    if worktree.submodules:
        fields["submodules"] = [_set_fields(entry) for entry in worktree.submodules]
    if worktree.suspects:
        fields["suspects"] = [_set_fields(entry) for entry in worktree.suspects]
    return fields


def _set_fields(record: Worktree | Progress | Omitted | Submodule | Suspect | Pipeline | Attempt | Imported) -> dict[str, Any]:
    """Returns the keys of a table; what is None, an empty tuple or an empty map is absent."""
    found: dict[str, Any] = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if name == "unknown" or value in (None, (), {}):
            continue
        found[name] = list(value) if type(value) is tuple else dict(value) if isinstance(value, Mapping) else value
    return found | dict(record.unknown)


def require_map(state: object) -> None:
    """Raises `StateError` if `state`, the whole of it, is not a map."""
    if not isinstance(state, Mapping):
        raise StateError("", f"a state is a map of names to values, not {shown(state)}")
