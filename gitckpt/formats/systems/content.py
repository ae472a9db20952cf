"""Parse files of other tools into values that the state of a checkpoint can have.

Other values are replaced and reported; the original bytes are stored as well.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gitckpt.model import budget, times, toml
from gitckpt.model.values import dataclass, field

# The result of parsing a file.

RLM_ACT, WORKFLOW, FORGE = "rlm-act", "workflow", "forge"
QUASAR, NEBULA, SUPERPOWERS = "quasar", "nebula", "superpowers"
FORMATS = (RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS)
KEY = "import"  # key of the state: values of the file for which a checkpoint has no field


class BadFormat(ValueError):
    """A file cannot be parsed, or a checkpoint cannot be written in a tool's format."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str  # as shown; relative to the top of the worktree if inside it
    data: bytes
    neighbors: Mapping[str, bytes] = field(default_factory=dict)  # files beside it: name → content


@dataclass(frozen=True, slots=True)
class RunContinuation:
    pipeline: str  # name of the preset that continues the run
    completed: tuple[str, ...] = ()  # completed phases
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # input file → path as in the file
    # name of an input file → content, if available
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileRecord:
    format: str  # one of FORMATS
    identity: str  # files with the same identity belong to the same run
    name: str  # name of the run; becomes part of the run id
    phase: str  # the label of the checkpoint
    state: Mapping[str, Any]
    # whether the path is part of the identity: the same bytes elsewhere are another run
    by_path: bool = False
    timestamp: str = ""  # as written in the file; "" if the file has none
    time: int | None = None  # `timestamp` in microseconds since the epoch
    started: int | None = None  # when the run began, in microseconds since the epoch
    is_local: bool = False  # whether the timestamp may be local time marked as UTC
    commit: str = ""  # HEAD according to the file; "" if unknown
    errors: tuple[str, ...] = ()
    id: str | None = None  # the preferred id of the checkpoint
    run: str | None = None  # the preferred id of the run; None: derived from `started` and `name`
    sort_key: int = 0  # for records of a run that have the same time
    continuation: RunContinuation | None = None  # None: no pipeline
    worktree: str | None = None  # absolute path according to the file
    branch: str | None = None  # according to the file
    remarks: tuple[str, ...] = ()  # a clause for each thing that was repaired or not understood


# Parsing within limits.

LARGEST = 16 * 1024 * 1024  # in bytes; the largest real file has 560 KB, a state 28 MiB
# Limits of a TOML file: Python takes a second at the limit; the largest real file has 10 KB.
TOML = budget.SizeLimits(1024 * 1024, 50_000, 100_000)
_MOST_VALUES, _MOST_KEYS = 400_000, 150_000  # a state holds at most 900,000 values, 150,000 keys
_MOST_REMARKS = 20
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([,\[{])|(:)', re.DOTALL)
_DEEPEST = 190  # a state may have 200 levels of nesting; some are added around these
_MARK = "\ufeff"
_NANOSECONDS = re.compile(rb"T\d\d:\d\d:\d\d\.\d{6}0*[1-9]")
_OFFSET = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)$")


class Remarks:
    def __init__(self) -> None:
        self._clauses: dict[str, None] = {}

    def add(self, clause: str) -> None:
        self._clauses[clause] = None

    @property
    def clauses(self) -> tuple[str, ...]:
        clauses = list(self._clauses)
        excess = len(clauses) - _MOST_REMARKS
        clauses[_MOST_REMARKS:] = [f"and {excess:,} more remarks"] if excess > 0 else []
        return tuple(clauses)


def decode_file(source: SourceFile, remarks: Remarks) -> str:
    if len(source.data) > LARGEST:
        raise BadFormat(f"the file is larger than {LARGEST // 1024 // 1024} MiB")
    if b"\0" in source.data:
        raise BadFormat("the file contains NUL characters, so it is not text")
    try:
        text = source.data.decode("utf-8")
    except UnicodeDecodeError:
        remarks.add("contains bytes that are not UTF-8: replaced by U+FFFD")
        text = source.data.decode("utf-8", "replace")
    if text.startswith(_MARK):
        remarks.add("begins with a byte order mark, which the tool itself may reject")
    return text.removeprefix(_MARK)


def parse_json(source: SourceFile, remarks: Remarks) -> dict[str, Any]:
    return to_storable(parse_json_unchanged(source, remarks), remarks)


def parse_json_unchanged(source: SourceFile, remarks: Remarks) -> dict[str, Any]:
    def to_table(document: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(document)
        if len(table) < len(document):
            remarks.add("has a key twice in one table: the last value counts")
        return table

    def parse_integer(digits: str) -> int | str:
        if len(digits) <= 4000:
            return int(digits)
        remarks.add(f"has a number of {len(digits)} digits: stored as text")
        return digits

    text = decode_file(source, remarks)
    _require_few_values(source.data)
    try:
        document = json.loads(text, object_pairs_hook=to_table, parse_int=parse_integer)
    except RecursionError:
        raise BadFormat("the values are nested too deeply") from None
    except ValueError as error:
        raise BadFormat(f"the file is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadFormat("the file contains no JSON object")
    return document


def parse_toml(source: SourceFile, remarks: Remarks) -> dict[str, Any]:
    text = decode_file(source, remarks)
    if len(source.data) > TOML.size:
        raise BadFormat(f"the file is larger than {TOML.size // 1024} KiB")
    if _NANOSECONDS.search(source.data):
        remarks.add("has times in nanoseconds: stored in microseconds")
    try:
        return to_storable(toml.loads(text, TOML), remarks)
    except budget.LimitExceeded as error:
        raise BadFormat(str(error)) from None
    except RecursionError:
        raise BadFormat("the values are nested too deeply") from None
    except ValueError as error:
        raise BadFormat(f"the file is not TOML: {error}") from None


def to_storable(values: dict[str, Any], remarks: Remarks) -> dict[str, Any]:
    storable: dict[str, Any] = _convert_value(values, remarks, 0, [0])
    return storable


def _require_few_values(data: bytes) -> None:
    # Checked before parsing, which takes a hundred times the memory of the text.
    if sum(map(data.count, (b",", b"[", b"{"))) <= _MOST_VALUES and data.count(b":") <= _MOST_KEYS:
        return
    # Separators in strings do not count. The second limit bounds the time for other tokens.
    token_counts = [0, 0, 0]
    for token in _TOKENS.finditer(data):
        token_counts[token.lastindex or 0] += 1
        if token_counts[1] > _MOST_VALUES or token_counts[0] > 2 * _MOST_VALUES:
            raise BadFormat(f"the file has more than {_MOST_VALUES:,} values")
        if token_counts[2] > _MOST_KEYS:
            raise BadFormat(f"the file has more than {_MOST_KEYS:,} keys")


def _convert_value(value: Any, remarks: Remarks, depth: int, count: list[int]) -> Any:
    count[0] += 1
    if count[0] > _MOST_VALUES:
        raise BadFormat(f"the file has more than {_MOST_VALUES:,} values")
    if isinstance(value, str):
        return _replace_surrogates(value, remarks)
    if isinstance(value, (dict, list)) and depth >= _DEEPEST:
        remarks.add(f"has values more than {_DEEPEST} levels deep: only the original has these")
        return "…"
    convert = functools.partial(_convert_value, remarks=remarks, depth=depth + 1, count=count)
    if isinstance(value, dict):
        return {_replace_surrogates(key, remarks): convert(item) for key, item in value.items()}
    return [convert(item) for item in value] if isinstance(value, list) else value


def _replace_surrogates(text: str, remarks: Remarks) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        remarks.add("contains a lone surrogate: replaced by U+FFFD")
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


# Convert values to a type; a value of another type counts as empty.


def to_string(value: object) -> str:
    return value if isinstance(value, str) else ""


def to_strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def text_at(table: Mapping[str, Any], *keys: str) -> str:
    return next((value for key in keys if (value := to_string(table.get(key)))), "")


def table_at(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    return to_mapping(table.get(key))


def to_mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def to_mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def to_number(value: object, default: float = 0) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else default  # type: ignore[arg-type, return-value]


def parse_errors(value: object, remarks: Remarks) -> tuple[str, ...]:
    if isinstance(value, str) and value:
        remarks.add("has a string for errors instead of a list: taken as the only error")
        return (value,)
    messages = to_strings(value)
    if value and (not isinstance(value, list) or len(messages) < len(value)):
        remarks.add("has errors that are not strings: the checkpoint lacks these errors")
    return tuple(messages)


def remark_missing_offset(values: Iterable[object], remarks: Remarks) -> bool:
    """Return whether any value is a time without UTC offset; then add a remark."""

    def lacks_offset(value: object) -> bool:
        if isinstance(value, dt.datetime):
            return value.tzinfo is None
        is_time = isinstance(value, str) and ":" in value and _OFFSET.search(value.strip()) is None
        return is_time and to_instant(value) is not None

    lacks_any_offset = any(map(lacks_offset, values))
    if lacks_any_offset:
        remarks.add("has a time without UTC offset: taken as UTC")
    return lacks_any_offset


def to_instant(value: object) -> int | None:
    # A time without offset is taken as UTC.
    if isinstance(value, dt.datetime):
        return times.as_instant(value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC))
    if isinstance(value, dt.date):
        return to_instant(dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC))
    if not isinstance(value, str) or not value:
        return None
    text = value.strip().replace(" ", "T", 1)
    if len(text) == len("2026-01-01"):
        text += "T00:00:00"
    try:
        return times.parse_timestamp(text if _OFFSET.search(text) else f"{text}Z")
    except ValueError:
        return None
