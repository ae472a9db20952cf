"""From the bytes of a file to values that a state can hold, within limits; what a state cannot hold is replaced, and told of.

The bytes themselves are kept beside the checkpoint, so nothing is lost by that.
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


# What one file of another tool becomes: a checkpoint that has no place yet. Pure values, which readers of formats return.


RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS = "rlm-act", "workflow", "forge", "quasar", "nebula", "superpowers"
FORMATS = (RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS)
"""The names of the formats."""

KEY = "import"
"""The key of a state below which stands what the file says and a checkpoint has no place for."""


class Unreadable(ValueError):
    """A file cannot be read as what it is; the message says why, in words for a person."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file.

    Attributes:
        path: where it is, as it is shown; relative to the top of the worktree where it lies in it.
        data: its bytes.
        beside: names → bytes of the files beside it that a reader may ask for.
    """

    path: str
    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drive:
    """What drives the run that a file tells of, if it goes on here.

    Attributes:
        pipeline: the name of the preset.
        completed: its phases that are complete.
        inputs: name → value, of those that the file has.
        files: of inputs that are files: name → their path as the file has it.
        contents: of inputs that are files, and came along: name → bytes.
    """

    pipeline: str
    completed: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What a file becomes.

    Attributes:
        format: one of `FORMATS`.
        identity: what the run is known by: files with the same one are of the same run.
        name: what the run is about; becomes part of its id.
        by_path: whether the path is part of the identity: elsewhere, the same bytes are another run.
        phase: the label of the checkpoint.
        state: of the checkpoint.
        said: the timestamp as the file has it; "" without one.
        time: the instant that this means if it is taken at its word, in microseconds since the epoch; None without one.
        started: when the run began, likewise.
        is_local: whether the file's clock may have been a local one that was called UTC.
        commit: what the file says that HEAD was; "" where it does not.
        errors: what went wrong.
        id: the id that the checkpoint should have; None for any.
        run: the id that the run should have; None for one that is made of `started` and `name`.
        place: orders records of a run that have the same time.
        drive: what drives the run; None where nothing does.
        worktree: absolute path of the worktree that the work was done in, as the file has it; None where it has none.
        branch: the branch that the work was done on; None where that is not told.
        remarks: what was repaired, or was kept and not understood, a clause each.
    """

    format: str
    identity: str
    name: str
    phase: str
    state: Mapping[str, Any]
    by_path: bool = False
    said: str = ""
    time: int | None = None
    started: int | None = None
    is_local: bool = False
    commit: str = ""
    errors: tuple[str, ...] = ()
    id: str | None = None
    run: str | None = None
    place: int = 0
    drive: Drive | None = None
    worktree: str | None = None
    branch: str | None = None
    remarks: tuple[str, ...] = ()


# From the bytes of a file to values that a state can hold, within limits; what a state cannot hold is replaced, and told of.


LARGEST = 16 * 1024 * 1024
"""In bytes. The largest real file has 560 KB; a state holds 28 MiB at most."""

TOML = budget.Budget(1024 * 1024, 50_000, 100_000)
"""Of a TOML file. Python's reader takes a second for so much; the largest real file has 10 KB."""

_MOST_VALUES, _MOST_KEYS = 400_000, 150_000
"""So many values and keys are taken over: a state has 900,000 values and 150,000 keys at most."""

_MOST_REMARKS = 20
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([,\[{])|(:)', re.DOTALL)

_DEEPEST = 190
"""So many levels of tables and lists are taken over: a state has 200, and puts some around them."""

_DIGITS = 4000
_MARK = "\ufeff"
_NANOSECONDS = re.compile(rb"T\d\d:\d\d:\d\d\.\d{6}0*[1-9]")
_OFFSET = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)$")


class Remarks:
    """Collects what a person is to know of a file, each thing once."""

    def __init__(self) -> None:
        self._clauses: dict[str, None] = {}

    def add(self, clause: str) -> None:
        """Takes a clause in."""
        self._clauses[clause] = None

    @property
    def said(self) -> tuple[str, ...]:
        """The clauses, in order: the first few, and how many more there are."""
        clauses = list(self._clauses)
        more = len(clauses) - _MOST_REMARKS
        return (*clauses[:_MOST_REMARKS], f"and {more:,} more such things") if more > 0 else tuple(clauses)


def text_of(source: Source, remarks: Remarks) -> str:
    """Returns the text of a file.

    Args:
        source: the file.
        remarks: is told of what is no UTF-8: the original alone has it.

    Raises:
        Unreadable: it is too large, or holds NUL characters.
    """
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
    """Returns the object that a JSON file holds, as a state can hold it.

    Args:
        source: the file.
        remarks: is told of what a state cannot hold.

    Raises:
        Unreadable: it is no JSON, no object, or more than is allowed.
    """
    return table(json_as_it_is(source, remarks), remarks)


def json_as_it_is(source: Source, remarks: Remarks) -> dict[str, Any]:
    """Returns the object that a JSON file holds, which need not be fit for a state. Arguments and errors: as `json_of`."""

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
    """Returns the table that a TOML file holds. Errors and arguments: as `json_of`."""
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
    """Returns a table as a state can hold it.

    Args:
        found: the table.
        remarks: is told of what was replaced.

    Raises:
        Unreadable: it has more values than a state may have.
    """
    count = [0]
    storable: dict[str, Any] = _storable(found, remarks, 0, count)
    return storable


def _require_few(data: bytes) -> None:
    """Raises `Unreadable` where a JSON text has more values or keys than are taken over: parsed, each takes a hundred times its bytes."""
    if sum(map(data.count, (b",", b"[", b"{"))) <= _MOST_VALUES and data.count(b":") <= _MOST_KEYS:
        return
    # What stands within strings separates nothing. Whatever it is, it is looked at no longer than a text with as much as is allowed.
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


def string(found: object) -> str:
    """Returns a value that should be a string; "" where it is none."""
    return found if isinstance(found, str) else ""


def strings(found: object) -> list[str]:
    """Returns the strings of a value that should be a list of them."""
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def mapping(found: object) -> dict[str, Any]:
    """Returns a value that should be a table; an empty one where it is none."""
    return found if isinstance(found, dict) else {}


def mappings(found: object) -> list[dict[str, Any]]:
    """Returns the tables of a value that should be a list of them."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def number(found: object, default: float = 0) -> float:
    """Returns a value that should be a finite number; the default where it is none."""
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number and math.isfinite(found) else default  # type: ignore[arg-type, return-value]


def errors_of(found: object, remarks: Remarks) -> tuple[str, ...]:
    """Return the texts of a value that should be a list of errors; a text alone is the only one, and what is no text is told of."""
    if isinstance(found, str) and found:
        remarks.add("has a text for errors, in place of a list: it is taken for the only one")
        return (found,)
    texts = strings(found)
    if found and (not isinstance(found, list) or len(texts) < len(found)):
        remarks.add("has errors that are no texts: they are not among those of the checkpoint")
    return tuple(texts)


def lacks_offset(found: object) -> bool:
    """Return whether a value is a time that does not say how far it is from UTC; of a date, nobody asks that."""
    if isinstance(found, dt.datetime):
        return found.tzinfo is None
    is_time = isinstance(found, str) and ":" in found and _OFFSET.search(found.strip()) is None
    return is_time and instant(found) is not None


def note_times(found: Iterable[object], remarks: Remarks) -> bool:
    """Return whether one of some values is a time without an offset, and tell of it."""
    is_naive = any(map(lacks_offset, found))
    if is_naive:
        remarks.add("has a time without an offset: it is taken for UTC")
    return is_naive


def instant(found: object) -> int | None:
    """Returns the instant that a file means, in microseconds since the epoch; None where it names none.

    A date stands for its midnight; what has no offset is taken for UTC.
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
