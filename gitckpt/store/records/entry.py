"""Entries and queries of listings, and their rows and conditions in SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import NoneType

from gitckpt.model import ids, times
from gitckpt.model.arguments import require, require_number, require_storable, require_text, strings
from gitckpt.model.checkpoint import (
    HOOK_TRIGGERS,
    IMPORT,
    LOOP,
    PHASE,
    RESCUE,
    REVIEW,
    SAFETY,
    SUBMODULE,
    Checkpoint,
)
from gitckpt.model.ids import require_oid_or_unborn
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt
    from typing import Any, Self


# A value of a row, apart from None.
Value = str | int | bytes

# The largest integer of SQLite; larger limits mean the same.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a listing has of a checkpoint: no state, errors or progress.

    Attributes:
        oid: the blob of the document.
        time: its timestamp, in microseconds since the epoch.
        examined: whether files were captured; if not, those of the linked commit count.
        tree: the snapshot, if the files differ from the linked commit.
        label: `{phase}-{status}`.
        changed: number of paths that differ from the linked commit; None if not counted yet.
        submodules: for each captured submodule: id of its checkpoint, space, path, NUL.
    """

    id: str
    oid: str
    run: str | None
    sequence: int | None
    label: str
    timestamp: str
    time: int
    git_sha: str
    branch: str | None
    trigger: str
    message: str | None
    agent: str | None
    examined: bool
    tree: str | None
    operation: str | None
    changed: int | None
    submodules: str = ""

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as an aware `datetime` in UTC."""
        return times.as_datetime(self.time)

    @property
    def phase_name(self) -> str:
        """The phase without its status."""
        return split(self.label)[0]

    @property
    def status(self) -> str:
        """The status at the end of the label, or ""."""
        return split(self.label)[1]

    @classmethod
    def of(cls, checkpoint: Checkpoint, oid: str) -> Self:
        files = checkpoint.worktree
        return cls(
            id=checkpoint.id,
            oid=oid,
            run=checkpoint.run,
            sequence=checkpoint.sequence,
            label=checkpoint.label,
            timestamp=checkpoint.timestamp,
            time=checkpoint.time,
            git_sha=checkpoint.git_sha,
            branch=checkpoint.branch,
            trigger=checkpoint.trigger,
            message=checkpoint.message,
            agent=checkpoint.agent,
            examined=files is not None,
            tree=checkpoint.tree,
            operation=files.operation if files else None,
            changed=0 if files is not None and not files.dirty else None,
            submodules=submodules(checkpoint),
        )


def submodules(checkpoint: Checkpoint) -> str:
    """Return the submodules of a checkpoint in the format of `CheckpointInfo.submodules`."""
    files = checkpoint.worktree
    return "".join(f"{one.checkpoint} {one.path}\0" for one in files.submodules) if files else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A ref `refs/checkpoints/<UUID>` that is not a valid checkpoint."""

    ref: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Query:
    """The criteria of a listing; None leaves a criterion out.

    Attributes:
        git_sha: full oid of the linked commit.
        runs, ids, triggers: any of these.
        phase: name of the phase, without status.
        label: the whole label, `{phase}-{status}`.
        since, until: earliest and latest timestamp, in microseconds since the epoch.
        by_agent: whether an agent is named.
        limit: largest number of results, newest first.
        skip: number of newest results to skip.

    Raises:
        UsageError: a criterion has an invalid value.
    """

    run: str | None = None
    git_sha: str | None = None
    runs: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    phase: str | None = None
    status: str | None = None
    in_run: bool | None = None
    since: int | None = None
    until: int | None = None
    triggers: Sequence[str] | None = None
    by_agent: bool | None = None
    limit: int | None = None
    skip: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        for name in ("run", "git_sha", "phase", "status", "label"):
            require_text(name, getattr(self, name), may_be_none=True)
            require_storable(name, getattr(self, name))
        if self.git_sha:
            require_oid_or_unborn(self.git_sha)
        for name in ("since", "until", "limit", "skip"):
            value = getattr(self, name)
            require_number(name, value, may_be_none=True)
            if value is not None:
                object.__setattr__(self, name, min(value, _MOST))
        for name in ("in_run", "by_agent"):
            require(name, getattr(self, name), (bool, NoneType), "True or False")
        for name in ("runs", "ids", "triggers"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, strings(name, getattr(self, name)))
                for each in getattr(self, name):
                    require_storable(name, each)


FIELDS = tuple(CheckpointInfo.__slots__)
# Columns of a row: the entry, its phase's name and status, and the sort rank.
COLUMNS = (*FIELDS, "name", "status", "rank")

# SQL functions that conditions use: `id_bytes` and `bytes.fromhex`.
ID_BYTES, OID_BYTES = "id_bytes", "oid_bytes"

# Steps from run to run by the index, however many checkpoints each has.
_EACH_RUN = """
WITH RECURSIVE each(run) AS (
    SELECT MIN(run) FROM entry WHERE run IS NOT NULL
    UNION ALL SELECT (SELECT MIN(run) FROM entry WHERE run > each.run) FROM each WHERE run IS NOT NULL
)
"""

RUN_IDS = _EACH_RUN + "SELECT run FROM each WHERE run IS NOT NULL"  # noqa: S608 - fixed parts only

# Triggers within a phase. These checkpoints do not give the status of their run.
WITHIN = (*HOOK_TRIGGERS, SAFETY, RESCUE, LOOP, REVIEW, SUBMODULE)

# Trigger of imports from files in which agents report steps; such a run had no driver.
OF_TRACKS = f"{IMPORT}superpowers"

_NO_NEWS = tuple(word for word in NOT_PHASES if word != "run")

_DRIVEN = f"(trigger = '{PHASE}' OR (trigger GLOB '{IMPORT}*' AND trigger <> '{OF_TRACKS}'))"
_TOLD = f"trigger NOT IN {WITHIN} AND name NOT IN {_NO_NEWS}"

# One row for each run, the one with the newest checkpoint first.
RUNS = f"""{_EACH_RUN}
SELECT each.run, newest.rank, newest.id, lower(hex(newest.oid)), newest.branch, newest.label, driven.label, lower(hex(driven.oid)),
       (SELECT time FROM entry WHERE run = each.run ORDER BY sequence LIMIT 1), told.label, lower(hex(told.oid)), told.trigger
FROM each JOIN entry AS newest
    ON newest.rowid = (SELECT rowid FROM entry WHERE run = each.run ORDER BY sequence DESC, id DESC LIMIT 1)
LEFT JOIN entry AS driven
    ON driven.rowid = (SELECT rowid FROM entry WHERE run = each.run AND {_DRIVEN} ORDER BY sequence DESC, id DESC LIMIT 1)
LEFT JOIN entry AS told
    ON (driven.label IS NULL OR driven.name = 'run') AND told.rowid =
       (SELECT rowid FROM entry WHERE run = each.run AND {_TOLD} ORDER BY sequence DESC, id DESC LIMIT 1)
ORDER BY newest.rank DESC, each.run DESC
"""  # noqa: S608 - fixed parts only


def is_driven(entry: CheckpointInfo) -> bool:
    """Return whether a driver recorded a checkpoint, here or elsewhere; see `RUNS`."""
    return entry.trigger == PHASE or (
        entry.trigger.startswith(IMPORT) and entry.trigger != OF_TRACKS
    )


def is_told(entry: CheckpointInfo) -> bool:
    """Return whether a checkpoint gives the status of a phase, step or run (`RUNS`)."""
    return entry.trigger not in WITHIN and split(entry.label)[0] not in _NO_NEWS


# Number of all checkpoints, then that of each run with its first one (MIN() selects that row).
SIZES = """
SELECT COUNT(*), NULL, NULL, NULL, NULL FROM entry
UNION ALL SELECT COUNT(*), run, id, oid, MIN(sequence) FROM entry WHERE run IS NOT NULL GROUP BY run
"""

_PLACES = {name: at for at, name in enumerate(FIELDS)}
_ID, _TIME, _TIMESTAMP, _EXAMINED = (
    _PLACES[name] for name in ("id", "time", "timestamp", "examined")
)
# Stored as bytes, which takes half the space.
_HEX = tuple(_PLACES[name] for name in ("oid", "git_sha", "tree"))


def row(checkpoint: Checkpoint, oid: str) -> tuple[Value | None, ...]:
    """Return the row of a checkpoint; a timestamp that `time` implies is None in it."""
    entry = CheckpointInfo.of(checkpoint, oid)
    values = [getattr(entry, name) for name in FIELDS]
    values[_ID] = ids.to_bytes(entry.id)
    for at in _HEX:
        values[at] = None if values[at] is None else bytes.fromhex(values[at])
    if times.is_usual(entry.timestamp):
        values[_TIMESTAMP] = None
    return (*values, checkpoint.phase_name, checkpoint.status, entry.time)


def of_row(row: Sequence[Any]) -> CheckpointInfo:
    values = list(row)
    values[_ID] = ids.from_bytes(values[_ID])
    for at in _HEX:
        values[at] = None if values[at] is None else values[at].hex()
    if values[_TIMESTAMP] is None:
        values[_TIMESTAMP] = times.to_text(values[_TIME])
    values[_EXAMINED] = bool(values[_EXAMINED])
    return CheckpointInfo(*values)


def id_bytes(text: str) -> bytes | None:
    """Return the bytes of an id as in a row; None for other text."""
    return ids.to_bytes(text) if ids.is_id(text) else None


def condition(query: Query) -> tuple[str, list[Value]]:
    parts = []
    values: list[Value] = []
    for words, value in (
        ("run = ?", query.run),
        ("git_sha = ?", None if query.git_sha is None else bytes.fromhex(query.git_sha)),
        ("time >= ?", query.since),
        # Outside of runs the rank is the time, and the rank is indexed.
        ("rank <= ?" if query.in_run is False else "time <= ?", query.until),
    ):
        if value is not None:
            parts.append(words)
            values.append(value)
    for column, text in (
        ("status", query.status),
        ("trigger", query.triggers[0] if query.triggers and len(query.triggers) == 1 else None),
    ):
        if text is not None and text.isascii() and text.isalpha():
            parts.append(
                f"{column} = '{text}'"
            )  # a literal: SQLite uses partial indexes for nothing else
        elif text is not None:
            parts.append(f"{column} = ?")
            values.append(text)
    if query.in_run is not None:
        parts.append("run IS NOT NULL" if query.in_run else "run IS NULL")
    if query.by_agent is not None:
        parts.append("agent IS NOT NULL" if query.by_agent else "agent IS NULL")
    if query.phase is not None:
        parts.append("name = ?")
        values.append(query.phase)
    if query.label is not None:
        parts.append("label = ?")
        values.append(query.label)
    for words, wanted in (
        (f"id IN (SELECT {ID_BYTES}(value)", query.ids),
        ("run IN (SELECT value", query.runs),
        (
            "trigger IN (SELECT value",
            query.triggers if query.triggers is None or len(query.triggers) != 1 else None,
        ),
    ):
        if wanted is not None:
            parts.append(f"{words} FROM json_each(?))")
            values.append(json.dumps(list(wanted)))
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values
