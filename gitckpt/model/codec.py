"""Encode and decode checkpoint documents (`docs/format.md`), version 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gitckpt.model import budget, document, ids, toml
from gitckpt.model.checkpoint import Attempt, Checkpoint, Imported, Omitted, Pipeline, Progress, Submodule, Suspect, Worktree
from gitckpt.model.document import VERSION
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint, StateError
from gitckpt.model.fence import fenced
from gitckpt.model.table import TableReader, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# The tables of the document.


def identity(take: TableReader, key: str, text: str) -> str:
    if not ids.is_id(text):
        raise take.invalid(key, f"must be a UUID version 4 in lower case, not {shown(text)}")
    return text


def optional_identity(take: TableReader, key: str) -> str | None:
    text = take.optional(key, str)
    return None if text is None else identity(take, key, text)


def line(take: TableReader, key: str, text: str) -> str:
    if not text.strip():
        raise take.invalid(key, "empty")
    return text


def count(take: TableReader, key: str, least: int) -> int | None:
    value = take.optional(key, int)
    if value is not None and value < least:
        raise take.invalid(key, f"must be {least} or more, not {shown(value)}")
    return value


def git_sha(take: TableReader, text: str) -> str:
    if text and not ids.is_oid(text):
        raise take.invalid("git_sha", f"must be a full object id or empty, not {shown(text)}")
    return text


def _optional_oid(take: TableReader, key: str) -> str | None:
    text = take.optional(key, str)
    if text is not None and not ids.is_oid(text):
        raise take.invalid(key, f"must be a full object id, not {shown(text)}")
    return text


def _tables(take: TableReader, key: str) -> Iterator[TableReader]:
    for i, entry in enumerate(take.optional(key, list) or []):
        if type(entry) is not dict:
            raise take.invalid(f"{key}[{i}]", f"must be a table, not {shown(entry)}")
        yield TableReader(entry, take.source, f"worktree.{key}[{i}].")


def read_worktree(take: TableReader) -> Worktree:
    tree = _optional_oid(take, "tree")
    omitted = [
        Omitted(
            inner.required("path", str),
            inner.required("reason", str),
            count(inner, "size", 0),
            _optional_oid(inner, "oid"),
            inner.optional("dirty", bool),
            unknown=inner.rest,
        )
        for inner in _tables(take, "omitted")
    ]
    submodules = [
        Submodule(
            inner.required("path", str),
            identity(inner, "checkpoint", inner.required("checkpoint", str)),
            git_sha(inner, inner.required("git_sha", str)),
            inner.required("dirty", bool),
            unknown=inner.rest,
        )
        for inner in _tables(take, "submodules")
    ]
    suspects = [
        Suspect(
            inner.required("path", str),
            inner.required("rule", str),
            count(inner, "line", 1) or 1,
            inner.required("digest", str),
            unknown=inner.rest,
        )
        for inner in _tables(take, "suspects")
    ]
    return Worktree(
        dirty=take.required("dirty", bool),
        tree=tree,
        operation=take.optional("operation", str),
        operation_commit=_optional_oid(take, "operation_commit"),
        omitted=tuple(omitted),
        submodules=tuple(submodules),
        converted=take.texts("converted"),
        suspects=tuple(suspects),
        degraded=take.optional("degraded", str),
        unknown=take.rest,
    )


def read_progress(take: TableReader) -> Progress:
    return Progress(
        current_phase=count(take, "current_phase", 0),
        total_phases=count(take, "total_phases", 0),
        current_task=take.optional("current_task", str),
        tasks_completed=count(take, "tasks_completed", 0),
        tasks_total=count(take, "tasks_total", 0),
        unknown=take.rest,
    )


def read_imported(take: TableReader) -> Imported:
    original = take.required("original", str)
    if not ids.is_oid(original):
        raise take.invalid("original", f"must be a full object id, not {shown(original)}")
    imported_at = take.instant("at")
    if imported_at is None:
        raise take.invalid("at", "missing")
    return Imported(take.required("path", str), original, imported_at, take.optional("untrusted", bool), unknown=take.rest)


def read_pipeline(take: TableReader) -> Pipeline:
    completed = take.map("completed")
    for phase, checkpoint in completed.items():
        identity(take, f"completed.{phase}", checkpoint)
    return Pipeline(
        name=take.optional("name", str),
        phases=take.texts("phases"),
        completed=completed,
        autonomy=take.optional("autonomy", str),
        deadline=take.instant("deadline"),
        definition=take.map("definition"),
        inputs=take.map("inputs"),
        contents=take.map("contents"),
        unknown=take.rest,
    )


def read_attempt(take: TableReader) -> Attempt:
    return Attempt(
        phase=line(take, "phase", take.required("phase", str)),
        number=count(take, "number", 1) or 1,
        ended=take.optional("ended", str),
        began=optional_identity(take, "began"),
        failures=count(take, "failures", 0) or 0,
        recoveries=count(take, "recoveries", 0) or 0,
        retry_at=take.instant("retry_at"),
        exit_code=take.optional("exit_code", int),
        seconds=take.optional("seconds", float),
        output=take.optional("output", str),
        result=take.optional("result", str),
        inputs=take.map("inputs"),
        unknown=take.rest,
    )


# Values that TOML lacks: strings in the document, listed in `types` by JSON pointer (RFC 6901).

# Most digits of an array index in a JSON pointer.
_PLACE = 20


def put_back(state: dict[str, Any], types: Mapping[str, Any], ref: str) -> dict[str, Any]:
    """Convert strings back to the types in `[types]`, in place; return the state."""
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


# Checkpoint <-> document, version 1.

_STATE = b"\n[state]\n"
_OTHER_TABLE = re.compile(rb"\n[ \t]*\[(?!state[\].])")
_DRIVES = re.compile(rb"\n\[(?:attempt|pipeline)\]\n")
_EARLIER_TABLE = re.compile(rb"\n[ \t]*\[(?!(?:attempt|pipeline|state)[\].])")
_TRIGGER = re.compile(r"[a-z][a-z0-9-]*(:[a-z0-9][a-z0-9._-]*)?")


def encode(checkpoint: Checkpoint) -> bytes:
    return document.render(fields(checkpoint), dict(checkpoint.state))


def fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the document's keys less `types` and `state`; None for absent ones."""
    values: dict[str, Any] = {"version": VERSION}
    for key in document.KEYS:
        value = getattr(checkpoint, key.attribute)
        if key.kind in _TABLES:
            if value is not None:
                values[key.name] = _worktree_fields(value) if type(value) is Worktree else _set_fields(value)
        elif key.kind == "texts":
            values[key.name] = list(value) or None
        else:
            values[key.name] = list(value) if type(value) is tuple else value
    return values | dict(checkpoint.unknown)


def decode(data: bytes, ref: str) -> Checkpoint:
    """Return a document's checkpoint, or raise `InvalidCheckpoint`."""
    return fenced(ref, lambda: _decode(data, ref))


def decode_header(data: bytes, ref: str) -> Checkpoint:
    """Decode all but the state; it is empty, and not even parsed where it stands last."""
    return fenced(ref, lambda: _decode_header(data, ref))


def decode_summary(data: bytes, ref: str) -> Checkpoint:
    """Decode without the state, `[pipeline]` and `[attempt]`, where these stand last.

    They are most of the document of a long pipeline. Faults in them are not detected.
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
    header = _decode_beginning(data[:end], ref) if end is not None else None
    return header if header is not None else _checkpoint(_parse(data, ref), ref, with_state=False)


def _decode_summary(data: bytes, ref: str) -> Checkpoint:
    _require_size(data, ref)
    match = _DRIVES.search(data)
    is_last = match is not None and not _EARLIER_TABLE.search(data, match.start() + 1)
    summary = _decode_beginning(data[: match.start() + 1], ref) if match and is_last else None
    return summary if summary is not None else _decode_header(data, ref)


def _decode_beginning(data: bytes, ref: str) -> Checkpoint | None:
    try:
        head = _parse(data, ref)
    except NewerCheckpoint:
        raise
    except InvalidCheckpoint:
        return None  # it ends inside of a string
    head.setdefault("state", {})
    return _checkpoint(head, ref, with_state=False)


def check(found: Mapping[str, Any], ref: str) -> None:
    """Raise what `decode` would for a document with these keys and an empty state."""
    _checkpoint({key: value for key, value in found.items() if value is not None} | {"state": {}}, ref, with_state=False)


def tables(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key.name: _TABLES[key.kind](TableReader(found[key.name], "", f"{key.name}.")) for key in document.KEYS if key.name in found}


def _end_of_header(data: bytes) -> int | None:
    """Return the offset of `[state]`; None where other tables follow it."""
    offset = data.find(_STATE)
    return offset + 1 if offset >= 0 and not _OTHER_TABLE.search(data, offset + 1) else None


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
    checkpoint = Checkpoint(**values, state=put_back(state, types, ref) if with_state else {}, unknown=take.rest)
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


# Readers of plain keys.
_VALUES: dict[str, Callable[[TableReader, str], Any]] = {
    "id": lambda take, key: identity(take, key, take.required(key, str)),
    "optional id": optional_identity,
    "run": _run,
    "sequence": lambda take, key: count(take, key, 1),
    "line": lambda take, key: line(take, key, take.required(key, str)),
    "timestamp": _timestamp,
    "commit": lambda take, key: git_sha(take, take.required(key, str)),
    "text": lambda take, key: take.optional(key, str),
    "texts": lambda take, key: take.texts(key),
    "trigger": _trigger,
    "required texts": _required_texts,
}

_TABLES: dict[str, Callable[[TableReader], Any]] = {
    "Worktree": read_worktree,
    "Imported": read_imported,
    "Progress": read_progress,
    "Pipeline": read_pipeline,
    "Attempt": read_attempt,
}


def _worktree_fields(worktree: Worktree) -> dict[str, Any]:
    fields = _set_fields(worktree)
    if worktree.omitted:
        fields["omitted"] = [_set_fields(entry) for entry in worktree.omitted]
    if worktree.submodules:
        fields["submodules"] = [_set_fields(entry) for entry in worktree.submodules]
    if worktree.suspects:
        fields["suspects"] = [_set_fields(entry) for entry in worktree.suspects]
    return fields


def _set_fields(record: Worktree | Progress | Omitted | Submodule | Suspect | Pipeline | Attempt | Imported) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if name == "unknown" or value in (None, (), {}):
            continue
        values[name] = list(value) if type(value) is tuple else dict(value) if isinstance(value, Mapping) else value
    return values | dict(record.unknown)


def require_map(state: object) -> None:
    if not isinstance(state, Mapping):
        raise StateError("", f"a state is a map of names to values, not {shown(state)}")
