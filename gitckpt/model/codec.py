"""Encode and decode checkpoint documents (`docs/format.md`), version 1."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

from gitckpt.model import budget, document, ids, toml
from gitckpt.model import checkpoint as kinds
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.document import VERSION
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint, StateError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.model.table import TableReader, short_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Reader: TypeAlias = Callable[[TableReader, str], Any]


# The tables of the document.

_ID, _OID = "a UUID version 4 in lower case", "a full object id"
_RUN = "a run id such as 20261121-201500-add-login"


def _make_text_reader(
    is_valid: Callable[[str], object], expected: str, *, is_optional: bool = False
) -> Reader:
    def read_text(reader: TableReader, key: str) -> str | None:
        text = reader.read_optional(key, str) if is_optional else reader.read_required(key, str)
        if text is not None and not is_valid(text):
            raise reader.invalid(key, f"must be {expected}, not {short_repr(text)}")
        return text

    return read_text


def _read_nonempty_text(reader: TableReader, key: str) -> str:
    text = reader.read_required(key, str)
    if text.strip():
        return text
    raise reader.invalid(key, "empty")


def _read_count(reader: TableReader, key: str, least: int = 0) -> int | None:
    value = reader.read_optional(key, int)
    if value is not None and value < least:
        raise reader.invalid(key, f"must be {least} or more, not {short_repr(value)}")
    return value


def _read_completed_phases(reader: TableReader, key: str) -> dict[str, str]:
    completed_phases = reader.read_text_map(key)
    for phase, checkpoint in completed_phases.items():
        if not ids.is_checkpoint_id(checkpoint):
            raise reader.invalid(f"{key}.{phase}", f"must be {_ID}, not {short_repr(checkpoint)}")
    return completed_phases


def _read_array_of_tables(kind: type, reader: TableReader, key: str) -> tuple[Any, ...]:
    records = []
    for i, entry in enumerate(reader.read_optional(key, list) or []):
        if type(entry) is not dict:
            raise reader.invalid(f"{key}[{i}]", f"must be a table, not {short_repr(entry)}")
        entry_reader = TableReader(entry, reader.source, f"worktree.{key}[{i}].")
        records.append(_read_table(kind, entry_reader))
    return tuple(records)


# Values that TOML lacks: strings in the document, listed in `types` by JSON pointer (RFC 6901).


def restore_types(state: dict[str, Any], types: Mapping[str, Any], ref: str) -> dict[str, Any]:
    """Decode, in place, a state's strings that `types` (JSON pointer -> kind) lists."""
    long_characters = 0
    for pointer, kind in types.items():
        field = f"types.{pointer}"
        container: Any = None
        value: Any = state
        key: Any = None
        try:
            root, *escaped_keys = pointer.split("/")
            if root:
                raise KeyError(root)
            for escaped_key in escaped_keys:
                container, key = value, escaped_key.replace("~1", "/").replace("~0", "~")
                key = _parse_list_index(key) if type(container) is list else key
                value = container[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise InvalidCheckpoint(ref, field, "points to nothing in the state") from None
        if type(value) is not str or container is None:
            raise InvalidCheckpoint(ref, field, "must point to a string in the state")
        if kind == "integer" and len(value) > budget.MAX_DECIMAL:
            long_characters += len(value)
            is_too_long = len(value) > budget.MAX_HEXADECIMAL or long_characters > budget.MAX_LONG
            if is_too_long or "x" not in value:
                raise InvalidCheckpoint(ref, field, "an integer of more digits than are allowed")
        try:
            container[key] = _decode_typed_string(kind, value)
        except ValueError:  # as binascii.Error is
            problem = f"must point to a string that encodes {short_repr(kind)}"
            raise InvalidCheckpoint(ref, field, problem) from None
    return state


def _parse_list_index(text: str) -> int:
    is_index = text == "0" or (text.isascii() and text.isdigit() and text[0] != "0")
    if not is_index or len(text) > 20:
        raise ValueError(text)
    return int(text)


def _decode_typed_string(kind: Any, text: str) -> Any:
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

_STATE_HEADER = b"\n[state]\n"
_OTHER_TABLE = re.compile(rb"\n[ \t]*\[(?!state[\].])")
_RUN_TABLE = re.compile(rb"\n\[(?:attempt|pipeline)\]\n")
_EARLIER_TABLE = re.compile(rb"\n[ \t]*\[(?!(?:attempt|pipeline|state)[\].])")
_TRIGGER = re.compile(r"[a-z][a-z0-9-]*(:[a-z0-9][a-z0-9._-]*)?")


def encode(checkpoint: Checkpoint) -> bytes:
    return document.render_document(document_fields(checkpoint), dict(checkpoint.state))


def document_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Map each document key but `types` and `state` to its value, None if absent."""
    values: dict[str, Any] = {"version": VERSION}
    for key in document.KEYS:
        value = getattr(checkpoint, key.field_name)
        if key.kind not in _TABLES:
            values[key.name] = list(value) if type(value) is tuple else value
        elif value is not None:
            values[key.name] = _table_fields(value)
    return values | dict(checkpoint.unknown)


def decode(data: bytes, ref: str) -> Checkpoint:
    """Decode the document at `ref`; raise `InvalidCheckpoint` if it is invalid."""
    return _decode_safely(_decode, data, ref)


def decode_header(data: bytes, ref: str) -> Checkpoint:
    """Decode a document with an empty state; a state at its end is not even parsed."""
    return _decode_safely(_decode_header, data, ref)


def decode_summary(data: bytes, ref: str) -> Checkpoint:
    """Decode a document, less the tables state, pipeline and attempt at its end."""
    return _decode_safely(_decode_summary, data, ref)


def _decode_safely(decode: Callable[[bytes, str], Checkpoint], data: bytes, ref: str) -> Checkpoint:
    def decode_within_limits() -> Checkpoint:
        try:
            budget.require_size(len(data), budget.DOCUMENT)
            return decode(data, ref)
        except budget.LimitExceeded as error:
            raise InvalidCheckpoint(ref, "", str(error)) from None

    return read_or_raise_invalid(ref, decode_within_limits)


def _decode(data: bytes, ref: str) -> Checkpoint:
    limits = budget.HEADER
    if (header_end := _find_header_end(data)) is not None:
        budget.require_size(header_end, limits)
        budget.require_toml_within(_decode_utf8(data[:header_end], ref), limits)
        limits = budget.DOCUMENT
    return _to_checkpoint(_parse_toml(data, ref, limits), ref, with_state=True)


def _decode_header(data: bytes, ref: str) -> Checkpoint:
    header_end = _find_header_end(data)
    header = _decode_beginning(data[:header_end], ref) if header_end is not None else None
    if header is not None:
        return header
    return _to_checkpoint(_parse_toml(data, ref), ref, with_state=False)


def _decode_summary(data: bytes, ref: str) -> Checkpoint:
    match = _RUN_TABLE.search(data)
    is_last = match is not None and not _EARLIER_TABLE.search(data, match.start() + 1)
    summary = _decode_beginning(data[: match.start() + 1], ref) if match and is_last else None
    return summary if summary is not None else _decode_header(data, ref)


def _decode_beginning(data: bytes, ref: str) -> Checkpoint | None:
    try:
        table = _parse_toml(data, ref)
    except NewerCheckpoint:
        raise
    except (InvalidCheckpoint, budget.LimitExceeded):
        return None  # `data` ends inside of a string
    table.setdefault("state", {})
    return _to_checkpoint(table, ref, with_state=False)


def require_valid_document(values: Mapping[str, Any], ref: str) -> None:
    present_values = {key: value for key, value in values.items() if value is not None}
    _to_checkpoint(present_values | {"state": {}}, ref, with_state=False)


def read_document_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key.name: _read_table(_TABLES[key.kind], TableReader(values[key.name], "", f"{key.name}."))
        for key in document.KEYS
        if key.name in values
    }


def _find_header_end(data: bytes) -> int | None:
    offset = data.find(_STATE_HEADER)
    return offset + 1 if offset >= 0 and not _OTHER_TABLE.search(data, offset + 1) else None


def _decode_utf8(data: bytes, ref: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidCheckpoint(ref, "", f"not UTF-8 (byte {error.start})") from None


def _parse_toml(data: bytes, ref: str, limits: budget.SizeLimits = budget.HEADER) -> dict[str, Any]:
    budget.require_size(len(data), limits)
    try:
        table = toml.loads(_decode_utf8(data, ref), limits)
    except budget.LimitExceeded:
        raise
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not TOML: {error}") from None
    version = table.get("version")
    if type(version) is int and version > VERSION:
        problem = f"written by a newer gitckpt (document version {short_repr(version)})"
        hint = "upgrade gitckpt: pip install -U gitckpt"
        raise NewerCheckpoint(ref, "version", problem, hint=hint)
    return table


def _to_checkpoint(table: dict[str, Any], ref: str, *, with_state: bool) -> Checkpoint:
    reader = TableReader(table, ref)
    version = reader.read_required("version", int)
    if version != VERSION:
        raise reader.invalid("version", f"must be {VERSION}, not {short_repr(version)}")
    state, types = reader.read_required("state", dict), reader.read_optional("types", dict) or {}
    values: dict[str, Any] = {}
    for key in document.KEYS:
        if key.kind not in _TABLES:
            values[key.field_name] = _VALUES[key.kind](reader, key.name)
        elif (table_values := reader.read_optional(key.name, dict)) is not None:
            table_reader = TableReader(table_values, ref, f"{key.name}.")
            values[key.field_name] = _read_table(_TABLES[key.kind], table_reader)
    values["state"] = restore_types(state, types, ref) if with_state else {}
    checkpoint = Checkpoint(**values, unknown=reader.unread_values)
    if ref.startswith("refs/checkpoints/") and checkpoint.id != ref.rpartition("/")[2]:
        raise reader.invalid("id", f"{checkpoint.id} is not the ref's name")
    if (checkpoint.run is None) != (checkpoint.sequence is None):
        raise reader.invalid("sequence", "belongs to a run: both keys or neither")
    if checkpoint.parent is not None and checkpoint.run is None:
        raise reader.invalid("parent", "belongs to a run, and there is no run")
    return checkpoint


def _read_table(kind: type, reader: TableReader) -> Any:
    values = {name: read(reader, name) for name, read in _field_readers(kind)}
    # An absent key has the default of the class.
    present_values = {name: value for name, value in values.items() if value is not None}
    return kind(**present_values, unknown=reader.unread_values)


@functools.cache
def _field_readers(kind: type) -> Sequence[tuple[str, Reader]]:
    annotations = {name: text for name, text in kind.__annotations__.items() if name != "unknown"}
    return [(name, _VALUES[_KINDS.get(name) or str(text)]) for name, text in annotations.items()]


def _read_timestamp(reader: TableReader, key: str) -> str:
    text = reader.read_required(key, str)
    reader.read_timestamp(key)
    return text


def _read_required_texts(reader: TableReader, key: str) -> tuple[str, ...]:
    reader.read_required(key, list)
    return reader.read_texts(key)


# Readers by the kind of a document key, by the kind in `_KINDS`, or by a field's annotation.
_VALUES: dict[str, Reader] = {
    "id": _make_text_reader(ids.is_checkpoint_id, _ID),
    "optional id": _make_text_reader(ids.is_checkpoint_id, _ID, is_optional=True),
    "run": _make_text_reader(ids.is_run_id, _RUN, is_optional=True),
    "sequence": lambda reader, key: _read_count(reader, key, 1),
    "ordinal": lambda reader, key: _read_count(reader, key, 1) or 1,
    "line": _read_nonempty_text,
    "timestamp": _read_timestamp,
    "instant": lambda reader, key: reader.read_timestamp(key),
    "commit": _make_text_reader(lambda text: not text or ids.is_oid(text), f"{_OID} or empty"),
    "oid": _make_text_reader(ids.is_oid, _OID),
    "optional oid": _make_text_reader(ids.is_oid, _OID, is_optional=True),
    "text": lambda reader, key: reader.read_optional(key, str),
    "trigger": _make_text_reader(_TRIGGER.fullmatch, "a word such as manual or import:forge"),
    "required texts": _read_required_texts,
    "integer": lambda reader, key: reader.read_optional(key, int),
    "completed": _read_completed_phases,
    "str": lambda reader, key: reader.read_required(key, str),
    "str | None": lambda reader, key: reader.read_optional(key, str),
    "bool": lambda reader, key: reader.read_required(key, bool),
    "bool | None": lambda reader, key: reader.read_optional(key, bool),
    "int": _read_count,
    "int | None": _read_count,
    "float | None": lambda reader, key: reader.read_optional(key, float),
    "tuple[str, ...]": lambda reader, key: reader.read_texts(key),
    "Mapping[str, str]": lambda reader, key: reader.read_text_map(key),
    "tuple[Omitted, ...]": functools.partial(_read_array_of_tables, kinds.Omitted),
    "tuple[Submodule, ...]": functools.partial(_read_array_of_tables, kinds.Submodule),
    "tuple[Suspect, ...]": functools.partial(_read_array_of_tables, kinds.Suspect),
}

# Fields of tables that need a stricter reader than their annotation.
_KINDS = {"tree": "optional oid", "operation_commit": "optional oid", "oid": "optional oid"}
_KINDS |= {"original": "oid", "checkpoint": "id", "git_sha": "commit", "began": "optional id"}
_KINDS |= {"number": "ordinal", "line": "ordinal", "exit_code": "integer", "phase": "line"}
_KINDS |= {"at": "timestamp", "deadline": "instant", "retry_at": "instant"}
_KINDS |= {"completed": "completed"}

_NAMES = ("Worktree", "Imported", "Progress", "Pipeline", "Attempt")
_TABLES: dict[str, type] = {name: getattr(kinds, name) for name in _NAMES}


def _table_fields(record: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if name == "unknown" or value in (None, (), {}):
            continue
        if type(value) is tuple:
            value = [entry if type(entry) is str else _table_fields(entry) for entry in value]
        values[name] = dict(value) if isinstance(value, Mapping) else value
    return values | dict(record.unknown)


def require_state_map(state: object) -> None:
    if not isinstance(state, Mapping):
        raise StateError("", f"a state is a map of names to values, not {short_repr(state)}")
