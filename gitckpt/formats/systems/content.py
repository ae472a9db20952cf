"""Parse files of other tools into values that a state can hold.

Values that a state cannot hold are replaced and reported; the original bytes are kept as well.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping

from gitckpt.model import budget, times, toml
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# The result of a format's reader.

RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS = "rlm-act", "workflow", "forge", "quasar", "nebula", "superpowers"
FORMATS = (RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS)

# State key for values of a file that a checkpoint has no field for.
KEY = "import"


class Unreadable(ValueError):
    """A file cannot be parsed; the message says why, in words for users."""


@dataclass(frozen=True, slots=True)
class Source:
    path: str  # as shown; relative to the top of the worktree if inside it
    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)  # name → content of files next to it


@dataclass(frozen=True, slots=True)
class Drive:
    pipeline: str  # name of the preset that continues the run
    completed: tuple[str, ...] = ()  # completed phases
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # input → path as in the file
    # input → content, for input files that are available
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    format: str  # one of FORMATS
    identity: str  # files with the same identity belong to the same run
    name: str  # the subject of the run; becomes part of its id
    phase: str  # the label of the checkpoint
    state: Mapping[str, Any]
    # the path is part of the identity; the same bytes elsewhere are another run
    by_path: bool = False
    said: str = ""  # the timestamp as in the file; "" without one
    time: int | None = None  # that timestamp in microseconds since the epoch
    started: int | None = None  # when the run began, likewise
    is_local: bool = False  # the timestamp may be local time called UTC
    commit: str = ""  # HEAD according to the file; "" if unknown
    errors: tuple[str, ...] = ()
    id: str | None = None  # the preferred id of the checkpoint
    run: str | None = None  # the preferred id of the run; None: derived from `started` and `name`
    place: int = 0  # orders records of a run that have the same time
    drive: Drive | None = None  # None: no pipeline
    worktree: str | None = None  # absolute path according to the file
    branch: str | None = None  # according to the file
    remarks: tuple[str, ...] = ()  # what was repaired, or kept but not understood, a clause each


# Parsing within limits.

# In bytes. The largest real file has 560 KB; a state holds at most 28 MiB.
LARGEST = 16 * 1024 * 1024

# Of a TOML file: Python takes a second for so much; the largest real file has 10 KB.
TOML = budget.Budget(1024 * 1024, 50_000, 100_000)

# A state holds at most 900,000 values and 150,000 keys.
_MOST_VALUES, _MOST_KEYS = 400_000, 150_000

_MOST_REMARKS = 20
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([,\[{])|(:)', re.DOTALL)

# A state holds 200 levels of nesting, and adds some around these.
_DEEPEST = 190

_DIGITS = 4000
_MARK = "\ufeff"
_NANOSECONDS = re.compile(rb"T\d\d:\d\d:\d\d\.\d{6}0*[1-9]")
_OFFSET = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)$")


class Remarks:
    def __init__(self) -> None:
        self._clauses: dict[str, None] = {}

    def add(self, clause: str) -> None:
        self._clauses[clause] = None

    @property
    def said(self) -> tuple[str, ...]:
        clauses = list(self._clauses)
        more = len(clauses) - _MOST_REMARKS
        return (*clauses[:_MOST_REMARKS], f"and {more:,} more such things") if more > 0 else tuple(clauses)


def text_of(source: Source, remarks: Remarks) -> str:
    """Return the text of a file, with U+FFFD for bytes that are not UTF-8."""
    if len(source.data) > LARGEST:
        raise Unreadable(f"it is larger than {LARGEST // 1024 // 1024} MiB")
    if b"\0" in source.data:
        raise Unreadable("it holds NUL characters: it is no text")
    try:
        text = source.data.decode("utf-8")
    except UnicodeDecodeError:
        remarks.add("holds half a character: in its place stands U+FFFD")
        text = source.data.decode("utf-8", "replace")
    if text.startswith(_MARK):
        remarks.add("begins with a byte order mark, which the tool itself may not read")
    return text.removeprefix(_MARK)


def json_of(source: Source, remarks: Remarks) -> dict[str, Any]:
    return table(json_as_it_is(source, remarks), remarks)


def json_as_it_is(source: Source, remarks: Remarks) -> dict[str, Any]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(found)
        if len(table) < len(found):
            remarks.add("has a key twice in one table: the last one counts")
        return table

    def whole(digits: str) -> int | str:
        if len(digits) <= _DIGITS:
            return int(digits)
        remarks.add(f"has a number of {len(digits)} digits: it stands as text")
        return digits

    text = text_of(source, remarks)
    _require_few(source.data)
    try:
        found = json.loads(text, object_pairs_hook=pairs, parse_int=whole)
    except RecursionError:
        raise Unreadable("its values lie too deep within each other") from None
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Unreadable("it holds no JSON object")
    return found


def toml_of(source: Source, remarks: Remarks) -> dict[str, Any]:
    text = text_of(source, remarks)
    if len(source.data) > TOML.size:
        raise Unreadable(f"it is larger than {TOML.size // 1024} KiB")
    if _NANOSECONDS.search(source.data):
        remarks.add("has times to the nanosecond: they are kept to the microsecond")
    try:
        return table(toml.loads(text, TOML), remarks)
    except budget.Excess as error:
        raise Unreadable(str(error)) from None
    except RecursionError:
        raise Unreadable("its values lie too deep within each other") from None
    except ValueError as error:
        raise Unreadable(f"it is no TOML: {error}") from None


def table(found: dict[str, Any], remarks: Remarks) -> dict[str, Any]:
    """Return a table as a state can hold it; `Unreadable` if it has too many values."""
    count = [0]
    storable: dict[str, Any] = _storable(found, remarks, 0, count)
    return storable


def _require_few(data: bytes) -> None:
    # Checked before parsing, which takes a hundred times the memory of the text.
    if sum(map(data.count, (b",", b"[", b"{"))) <= _MOST_VALUES and data.count(b":") <= _MOST_KEYS:
        return
    # Separators in strings do not count. The second limit bounds the time for other tokens.
    found = [0, 0, 0]
    for token in _TOKENS.finditer(data):
        found[token.lastindex or 0] += 1
        if found[1] > _MOST_VALUES or found[0] > 2 * _MOST_VALUES:
            raise Unreadable(f"it has more than {_MOST_VALUES:,} values")
        if found[2] > _MOST_KEYS:
            raise Unreadable(f"it has more than {_MOST_KEYS:,} keys")


def _storable(value: Any, remarks: Remarks, depth: int, count: list[int]) -> Any:
    count[0] += 1
    if count[0] > _MOST_VALUES:
        raise Unreadable(f"it has more than {_MOST_VALUES:,} values")
    if isinstance(value, str):
        return _text(value, remarks)
    if isinstance(value, (dict, list)) and depth >= _DEEPEST:
        remarks.add(f"has values more than {_DEEPEST} levels deep: the original alone has them")
        return "…"
    if isinstance(value, dict):
        return {_text(key, remarks): _storable(each, remarks, depth + 1, count) for key, each in value.items()}
    if isinstance(value, list):
        return [_storable(each, remarks, depth + 1, count) for each in value]
    return value


def _text(text: str, remarks: Remarks) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        remarks.add("holds a lone surrogate: in its place stands U+FFFD")
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


# A value of another type counts as empty.


def string(found: object) -> str:
    return found if isinstance(found, str) else ""


def strings(found: object) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def mapping(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def mappings(found: object) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def number(found: object, default: float = 0) -> float:
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number and math.isfinite(found) else default  # type: ignore[arg-type, return-value]


def errors_of(found: object, remarks: Remarks) -> tuple[str, ...]:
    if isinstance(found, str) and found:
        remarks.add("has a text for errors, in place of a list: it is taken for the only one")
        return (found,)
    texts = strings(found)
    if found and (not isinstance(found, list) or len(texts) < len(found)):
        remarks.add("has errors that are no texts: they are not among those of the checkpoint")
    return tuple(texts)


def lacks_offset(found: object) -> bool:
    """Return whether a value is a time without UTC offset; a date is not."""
    if isinstance(found, dt.datetime):
        return found.tzinfo is None
    is_time = isinstance(found, str) and ":" in found and _OFFSET.search(found.strip()) is None
    return is_time and instant(found) is not None


def note_times(found: Iterable[object], remarks: Remarks) -> bool:
    """Return whether any value is a time without UTC offset, and add a remark."""
    is_naive = any(map(lacks_offset, found))
    if is_naive:
        remarks.add("has a time without an offset: it is taken for UTC")
    return is_naive


def instant(found: object) -> int | None:
    """Return a value's time in microseconds since the epoch, or None.

    A date means its midnight. A time without offset is taken as UTC.
    """
    if isinstance(found, dt.datetime):
        aware = found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
        return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(found, dt.date):
        return instant(dt.datetime(found.year, found.month, found.day, tzinfo=dt.UTC))
    if not isinstance(found, str) or not found:
        return None
    text = found.strip().replace(" ", "T", 1)
    if len(text) == len("2026-01-01"):
        text += "T00:00:00"
    try:
        return times.from_text(text if _OFFSET.search(text) else f"{text}Z")
    except ValueError:
        return None
