"""What a listing knows of checkpoints, what it is asked for, and the rows that both are in its index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import NoneType

from gitckpt.model import ids, times
from gitckpt.model.arguments import require, require_number, require_storable, require_text, strings
from gitckpt.model.checkpoint import HOOK_TRIGGERS, IMPORT, LOOP, PHASE, RESCUE, REVIEW, SAFETY, SUBMODULE, Checkpoint
from gitckpt.model.ids import require_oid_or_unborn
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt
    from typing import Any, Self


Value = str | int | bytes
"""What a row holds, but for None."""

_MOST = 2**63 - 1
"""The largest number that SQLite knows: more than that is as much."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a listing knows of a checkpoint: its document without state, errors and progress.

    Attributes:
        oid: the blob of the document.
        time: its timestamp, in microseconds since the epoch.
        examined: whether the files were looked at when it was made; if not, the linked commit
            stands for them.
        tree: the snapshot, where the files differed from the linked commit.
        label: `{phase}-{status}`.
        changed: how many paths of the snapshot differ from the linked commit; None while nobody has
            counted.
        submodules: for each submodule that was captured the id of the checkpoint in its repository,
            a space, its path, and NUL.
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
        """The status at the end of the label, or "" where it has none."""
        return split(self.label)[1]

    @classmethod
    def of(cls, checkpoint: Checkpoint, oid: str) -> Self:
        """Returns what a listing should know of a checkpoint whose document is the blob `oid`."""
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
    """Returns the submodules of a checkpoint as `Entry` has them."""
    files = checkpoint.worktree
    return "".join(f"{one.checkpoint} {one.path}\0" for one in files.submodules) if files else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A ref of ours below `refs/checkpoints/` that is no valid checkpoint."""

    ref: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Query:
    """Which checkpoints are wanted. None leaves a criterion out; a UsageError names one that cannot be meant.

    Attributes:
        run: id of their run.
        git_sha: full oid of the linked commit.
        runs: ids of runs, one of which is theirs.
        ids: their ids.
        phase: the name of the phase, without a status.
        status: the status at the end of the label.
        label: the whole label, `{phase}-{status}`.
        in_run: whether they belong to a run.
        since: the earliest timestamp, in microseconds since the epoch.
        until: the latest one.
        triggers: what recorded them, one of these.
        by_agent: whether an agent had them made.
        limit: at most so many, the newest.
        skip: so many of the newest are passed over.
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


FIELDS = tuple(Entry.__slots__)
COLUMNS = (*FIELDS, "name", "status", "rank")
"""Those of a row: of the entry, and of its phase the name and the status; what decides over its place in a listing."""

ID_BYTES, OID_BYTES = "id_bytes", "oid_bytes"
"""The SQL functions that `id_bytes` and `bytes.fromhex` have to be for the conditions of queries."""

_EACH_RUN = """
WITH RECURSIVE each(run) AS (
    SELECT MIN(run) FROM entry WHERE run IS NOT NULL
    UNION ALL SELECT (SELECT MIN(run) FROM entry WHERE run > each.run) FROM each WHERE run IS NOT NULL
)
"""
"""From one run to the next by the index, however many checkpoints there are."""

RUN_IDS = _EACH_RUN + "SELECT run FROM each WHERE run IS NOT NULL"  # noqa: S608 - fixed parts only
"""Asks for the ids of all runs."""

WITHIN = (*HOOK_TRIGGERS, SAFETY, RESCUE, LOOP, REVIEW, SUBMODULE)
"""Triggers of what happens within a phase: none of these checkpoints says what has become of its run."""

OF_TRACKS = f"{IMPORT}superpowers"
"""The trigger of what was made of files in which agents report steps: as of these, nobody drove the run."""

_NO_NEWS = tuple(word for word in NOT_PHASES if word != "run")

_DRIVEN = f"(trigger = '{PHASE}' OR (trigger GLOB '{IMPORT}*' AND trigger <> '{OF_TRACKS}'))"
_TOLD = f"trigger NOT IN {WITHIN} AND name NOT IN {_NO_NEWS}"

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
"""Asks for a row of each run, the one with the newest checkpoint first."""


def is_driven(entry: Entry) -> bool:
    """Tells whether whoever drove a run recorded a checkpoint, or a tool that did elsewhere; as `RUNS` has it."""
    return entry.trigger == PHASE or (entry.trigger.startswith(IMPORT) and entry.trigger != OF_TRACKS)


def is_told(entry: Entry) -> bool:
    """Tells whether a checkpoint says what has become of a phase, of a step or of the run; as `RUNS` has it."""
    return entry.trigger not in WITHIN and split(entry.label)[0] not in _NO_NEWS


SIZES = """
SELECT COUNT(*), NULL, NULL, NULL, NULL FROM entry
UNION ALL SELECT COUNT(*), run, id, oid, MIN(sequence) FROM entry WHERE run IS NOT NULL GROUP BY run
"""
"""Asks for the number of all checkpoints, and then for those of each run, with the first one: MIN() chooses the row of the others."""

_PLACES = {name: at for at, name in enumerate(FIELDS)}
_ID, _TIME, _TIMESTAMP, _EXAMINED = (_PLACES[name] for name in ("id", "time", "timestamp", "examined"))
_HEX = tuple(_PLACES[name] for name in ("oid", "git_sha", "tree"))
"""What is kept as bytes, which takes half the room."""


def row(checkpoint: Checkpoint, oid: str) -> tuple[Value | None, ...]:
    """Returns the row of a checkpoint whose document is the blob `oid`. A timestamp that follows from the time is None in it."""
    entry = Entry.of(checkpoint, oid)
    values = [getattr(entry, name) for name in FIELDS]
    values[_ID] = ids.to_bytes(entry.id)
    for at in _HEX:
        values[at] = None if values[at] is None else bytes.fromhex(values[at])
    if times.is_usual(entry.timestamp):
        values[_TIMESTAMP] = None
    return (*values, checkpoint.phase_name, checkpoint.status, entry.time)


def of_row(row: Sequence[Any]) -> Entry:
    """Returns the entry of a row, less what only a row has."""
    values = list(row)
    values[_ID] = ids.from_bytes(values[_ID])
    for at in _HEX:
        values[at] = None if values[at] is None else values[at].hex()
    if values[_TIMESTAMP] is None:
        values[_TIMESTAMP] = times.to_text(values[_TIME])
    values[_EXAMINED] = bool(values[_EXAMINED])
    return Entry(*values)


def id_bytes(text: str) -> bytes | None:
    """Returns the bytes of an id, as a row has them; None for what is no id."""
    return ids.to_bytes(text) if ids.is_id(text) else None


def condition(query: Query) -> tuple[str, list[Value]]:
    """Returns the WHERE clause of a query, and its values."""
    parts = []
    values: list[Value] = []
    for words, value in (
        ("run = ?", query.run),
        ("git_sha = ?", None if query.git_sha is None else bytes.fromhex(query.git_sha)),
        ("time >= ?", query.since),
        # Outside of runs the rank is the time, and there is an order of it.
        ("rank <= ?" if query.in_run is False else "time <= ?", query.until),
    ):
        if value is not None:
            parts.append(words)
            values.append(value)
    for column, text in (("status", query.status), ("trigger", query.triggers[0] if query.triggers and len(query.triggers) == 1 else None)):
        if text is not None and text.isascii() and text.isalpha():
            parts.append(f"{column} = '{text}'")  # as it stands: SQLite chooses an index of some rows alone by nothing else
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
        ("trigger IN (SELECT value", query.triggers if query.triggers is None or len(query.triggers) != 1 else None),
    ):
        if wanted is not None:
            parts.append(f"{words} FROM json_each(?))")
            values.append(json.dumps(list(wanted)))
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values
