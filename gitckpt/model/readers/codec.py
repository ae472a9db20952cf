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


ATTRIBUTES = {"phase": "label"}
"""Key of the document → attribute of `Checkpoint`, where they differ: in the library, a phase is a name without a status."""


def encode(checkpoint: Checkpoint) -> bytes:
    """Returns the document of a checkpoint.

    Raises:
        StateError: the state holds a value that cannot be stored without changing it; its JSON pointer is named.
    """
    return document.render(fields(checkpoint), dict(checkpoint.state))


def fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the keys of a checkpoint's document, less `types` and `state`; those that are absent have the value None."""
    found: dict[str, Any] = {"version": VERSION}
    for name in document.ORDER[1:-1]:
        found[name] = getattr(checkpoint, ATTRIBUTES.get(name, name))
    found["errors"] = list(checkpoint.errors)
    if checkpoint.worktree is not None:
        found["worktree"] = _worktree_fields(checkpoint.worktree)
    if checkpoint.imported is not None:
        found["imported"] = _set_fields(checkpoint.imported)
    if checkpoint.progress is not None:
        found["progress"] = _set_fields(checkpoint.progress)
    if checkpoint.pipeline is not None:
        found["pipeline"] = _set_fields(checkpoint.pipeline)
    if checkpoint.attempt is not None:
        found["attempt"] = _set_fields(checkpoint.attempt)
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
    readers: dict[str, Callable[[TableReader], Pipeline | Attempt]] = {"pipeline": parts.pipeline, "attempt": parts.attempt}
    return {key: readers[key](TableReader(table, "", f"{key}.")) for key, table in found.items()}


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
    worktree, progress = take.optional("worktree", dict), take.optional("progress", dict)
    pipeline, attempt = take.optional("pipeline", dict), take.optional("attempt", dict)
    imported = take.optional("imported", dict)
    checkpoint = Checkpoint(
        id=parts.identity(take, "id", take.required("id", str)),
        run=_run(take),
        parent=parts.optional_identity(take, "parent"),
        sequence=parts.count(take, "sequence", 1),
        label=parts.line(take, "phase", take.required("phase", str)),
        timestamp=_timestamp(take),
        git_sha=parts.git_sha(take, take.required("git_sha", str)),
        branch=take.optional("branch", str),
        trigger=_trigger(take),
        message=take.optional("message", str),
        agent=take.optional("agent", str),
        errors=_errors(take),
        worktree=None if worktree is None else parts.worktree(TableReader(worktree, ref, "worktree.")),
        progress=None if progress is None else parts.progress(TableReader(progress, ref, "progress.")),
        pipeline=None if pipeline is None else parts.pipeline(TableReader(pipeline, ref, "pipeline.")),
        attempt=None if attempt is None else parts.attempt(TableReader(attempt, ref, "attempt.")),
        imported=None if imported is None else parts.imported(TableReader(imported, ref, "imported.")),
        forked_from=parts.optional_identity(take, "forked_from"),
        rewound_to=parts.optional_identity(take, "rewound_to"),
        state=pointers.put_back(state, types, ref) if with_state else {},
        unknown=take.rest,
    )
    if ref.startswith("refs/checkpoints/") and checkpoint.id != ref.rpartition("/")[2]:
        raise take.invalid("id", f"{checkpoint.id} is not the ref's name")
    if (checkpoint.run is None) != (checkpoint.sequence is None):
        raise take.invalid("sequence", "belongs to a run: both keys or neither")
    if checkpoint.parent is not None and checkpoint.run is None:
        raise take.invalid("parent", "belongs to a run, and there is no run")
    return checkpoint


def _run(take: TableReader) -> str | None:
    text = take.optional("run", str)
    if text is not None and not ids.is_run_id(text):
        raise take.invalid("run", f"must be a run id such as 20261121-201500-add-login, not {shown(text)}")
    return text


def _timestamp(take: TableReader) -> str:
    text = take.required("timestamp", str)
    take.instant("timestamp")
    return text


def _trigger(take: TableReader) -> str:
    text = take.required("trigger", str)
    if not _TRIGGER.fullmatch(text):
        raise take.invalid("trigger", f"must be a word such as manual or import:forge, not {shown(text)}")
    return text


def _errors(take: TableReader) -> tuple[str, ...]:
    take.required("errors", list)
    return take.texts("errors")


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
