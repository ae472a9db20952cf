"""Define the entries of checkpoint lists, the query for them, and its SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import NoneType

from gitckpt.model import arguments, ids, times
from gitckpt.model.arguments import as_strings, require_no_surrogates, require_text, require_type
from gitckpt.model.checkpoint import IMPORT, PHASE, SAFETY, WITHIN, Checkpoint
from gitckpt.model.errors import UsageError
from gitckpt.model.phase import NOT_PHASES, split_label
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt
    from typing import Any, Self

Value = str | int | bytes  # of a row, apart from None

# Fields with the same name and value in `CheckpointInfo` and `Checkpoint`.
_COPIED_FIELDS = (
    *("id", "run", "sequence", "label", "timestamp", "time", "git_sha", "branch", "trigger"),
    *("message", "agent", "tree"),
)
_MOST = 2**63 - 1  # the largest integer of SQLite; larger limits mean the same


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint in a list: all but the state, the errors and the progress."""

    id: str
    oid: str  # of the document
    run: str | None
    sequence: int | None
    label: str  # `{phase}-{status}`
    timestamp: str
    time: int  # its timestamp, in microseconds since the epoch
    git_sha: str
    branch: str | None
    trigger: str
    message: str | None
    agent: str | None
    examined: bool  # whether files were captured; if not, those of the linked commit count
    tree: str | None  # the snapshot, if the files differ from the linked commit
    operation: str | None
    changed: int | None  # number of paths that differ from the commit; None if not counted yet
    submodules: str = ""  # for each captured submodule: id of its checkpoint, space, path, NUL

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a timezone-aware `datetime` in UTC."""
        return times.as_datetime(self.time)

    @property
    def is_degraded(self) -> bool:
        """Whether the files were not captured although they differ from the commit."""
        return self.examined and self.tree is None and self.changed is None

    @property
    def phase_name(self) -> str:
        """The phase, which is the label without the status at the end."""
        return split_label(self.label)[0]

    @property
    def status(self) -> str:
        """The status at the end of the label; "" if the label has no status."""
        return split_label(self.label)[1]

    @classmethod
    def of(cls, checkpoint: Checkpoint, oid: str) -> Self:
        worktree = checkpoint.worktree
        return cls(
            **{name: getattr(checkpoint, name) for name in _COPIED_FIELDS},
            oid=oid,
            examined=worktree is not None,
            operation=worktree.operation if worktree else None,
            changed=0 if worktree is not None and not worktree.dirty else None,
            submodules=join_submodules(checkpoint),
        )


Infos = Sequence[CheckpointInfo]
ById = Mapping[str, CheckpointInfo]  # by id


def join_submodules(checkpoint: Checkpoint) -> str:
    submodules_ = checkpoint.worktree.submodules if checkpoint.worktree is not None else ()
    return "".join(f"{submodule.checkpoint} {submodule.path}\0" for submodule in submodules_)


def list_references(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    ids_by_key = {"forked_from": checkpoint.forked_from, "rewound_to": checkpoint.rewound_to}
    if checkpoint.attempt is not None:
        ids_by_key["attempt.began"] = checkpoint.attempt.began
    completed_phases = checkpoint.pipeline.completed if checkpoint.pipeline is not None else {}
    ids_by_key |= {f"pipeline.completed.{name}": id_ for name, id_ in completed_phases.items()}
    return [(key, id_) for key, id_ in ids_by_key.items() if id_ is not None]


@dataclass(frozen=True, slots=True)
class Problem:
    """A ref `refs/checkpoints/<UUID>` without a valid checkpoint, and the reason."""

    ref: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Query:
    """The criteria that select checkpoints for a list; None matches all checkpoints."""

    run: str | None = None
    git_sha: str | None = None  # full oid of the linked commit
    runs: Sequence[str] | None = None  # any of these runs; `ids` and `triggers` likewise
    ids: Sequence[str] | None = None
    phase: str | None = None  # without status
    status: str | None = None
    in_run: bool | None = None
    since: int | None = None  # earliest timestamp, in microseconds since the epoch
    until: int | None = None
    triggers: Sequence[str] | None = None
    by_agent: bool | None = None  # whether an agent is named
    limit: int | None = None  # of results, newest first
    skip: int | None = None  # number of newest results to leave out
    label: str | None = None  # `{phase}-{status}`
    agent: str | None = None  # the name of the agent that made them
    branch: str | None = None  # with or without `refs/heads/`
    grep: str | None = None  # regular expression that matches in the message, in any case
    safety: bool = True  # whether to include the safety checkpoints of restores

    def __post_init__(self) -> None:
        for name in ("run", "git_sha", "phase", "status", "label", "agent", "branch", "grep"):
            require_text(name, getattr(self, name), may_be_none=True)
            require_no_surrogates(name, getattr(self, name))
        if self.git_sha:
            ids.require_oid_or_unborn(self.git_sha)
        for name in ("since", "until", "limit", "skip"):
            number = getattr(self, name)
            arguments.require_number(name, number, may_be_none=True)
            if number is not None:
                object.__setattr__(self, name, min(number, _MOST))
        for name in ("in_run", "by_agent"):
            require_type(name, getattr(self, name), (bool, NoneType), "True or False")
        require_type("safety", self.safety, bool, "True or False")
        if self.grep is not None:
            compile_message_pattern(self.grep)
        for name in ("runs", "ids", "triggers"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_strings(name, getattr(self, name)))
                for member in getattr(self, name):
                    require_no_surrogates(name, member)


def compile_message_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "put a backslash before characters such as ( [ * + ? to find them as they are"
        raise UsageError(f"{text!r:.60} is no regular expression: {error}", hint=hint) from None


def has_match(pattern: str, text: str | None) -> bool:
    return text is not None and compile_message_pattern(pattern).search(text) is not None


FIELDS = tuple(CheckpointInfo.__slots__)
# Columns of a row: the entry, its phase's name and status, and the sort rank.
COLUMNS = (*FIELDS, "name", "status", "rank")
ID_BYTES, HAS_MATCH = "id_bytes", "has_match"  # SQL functions

# Jumps from run to run in the index, without reading all checkpoints of each run.
_EACH_RUN = """
WITH RECURSIVE each(run) AS (
    SELECT MIN(run) FROM entry WHERE run IS NOT NULL UNION ALL
    SELECT (SELECT MIN(run) FROM entry WHERE run > each.run) FROM each WHERE run IS NOT NULL
)
"""

RUN_IDS = _EACH_RUN + "SELECT run FROM each WHERE run IS NOT NULL"  # noqa: S608 - fixed parts only

# Trigger of imports from files in which agents report steps; such a run had no driver.
OF_TRACKS = f"{IMPORT}superpowers"
_SILENT_PHASES = tuple(name for name in NOT_PHASES if name != "run")
_DRIVEN = f"(trigger = '{PHASE}' OR (trigger GLOB '{IMPORT}*' AND trigger <> '{OF_TRACKS}'))"
_TOLD = f"trigger NOT IN {WITHIN} AND name NOT IN {_SILENT_PHASES}"
_OF_RUN = "(SELECT rowid FROM entry WHERE run = each.run"
_LAST = "ORDER BY sequence DESC, id DESC LIMIT 1)"

# One row for each run, the one with the newest checkpoint first.
RUNS = f"""{_EACH_RUN}
SELECT each.run, newest.rank, newest.id, lower(hex(newest.oid)), newest.branch, newest.label,
    driven.label, lower(hex(driven.oid)),
    (SELECT time FROM entry WHERE run = each.run ORDER BY sequence LIMIT 1),
    told.label, lower(hex(told.oid)), told.trigger
FROM each JOIN entry AS newest ON newest.rowid = {_OF_RUN} {_LAST}
LEFT JOIN entry AS driven ON driven.rowid = {_OF_RUN} AND {_DRIVEN} {_LAST}
LEFT JOIN entry AS told ON (driven.label IS NULL OR driven.name = 'run')
    AND told.rowid = {_OF_RUN} AND {_TOLD} {_LAST}
ORDER BY newest.rank DESC, each.run DESC
"""  # noqa: S608 - fixed parts only


def is_made_by_driver(entry: CheckpointInfo) -> bool:
    trigger = entry.trigger
    return trigger == PHASE or (trigger.startswith(IMPORT) and trigger != OF_TRACKS)


def reports_status(entry: CheckpointInfo) -> bool:
    return entry.trigger not in WITHIN and split_label(entry.label)[0] not in _SILENT_PHASES


# Number of all checkpoints, then that of each run with its first one (MIN() selects that row).
SIZES = """
SELECT COUNT(*), NULL, NULL, NULL, NULL FROM entry
UNION ALL SELECT COUNT(*), run, id, oid, MIN(sequence) FROM entry WHERE run IS NOT NULL GROUP BY run
"""

_ID, _TIME, _TIMESTAMP, _EXAMINED = map(FIELDS.index, ("id", "time", "timestamp", "examined"))
# Stored as bytes, which takes half the space.
_HEX = tuple(map(FIELDS.index, ("oid", "git_sha", "tree")))


def to_row(checkpoint: Checkpoint, oid: str) -> tuple[Value | None, ...]:
    entry = CheckpointInfo.of(checkpoint, oid)
    column_values = [getattr(entry, name) for name in FIELDS]
    column_values[_ID] = ids.id_to_bytes(entry.id)
    for column in _HEX:
        if column_values[column] is not None:
            column_values[column] = bytes.fromhex(column_values[column])
    if times.is_canonical_timestamp(entry.timestamp):
        column_values[_TIMESTAMP] = None
    return (*column_values, checkpoint.phase_name, checkpoint.status, entry.time)


def from_row(row: Sequence[Any]) -> CheckpointInfo:
    field_values = list(row)
    field_values[_ID] = ids.id_from_bytes(field_values[_ID])
    for column in _HEX:
        if field_values[column] is not None:
            field_values[column] = field_values[column].hex()
    if field_values[_TIMESTAMP] is None:
        field_values[_TIMESTAMP] = times.to_text(field_values[_TIME])
    field_values[_EXAMINED] = bool(field_values[_EXAMINED])
    return CheckpointInfo(*field_values)


def to_id_bytes(text: str) -> bytes | None:
    return ids.id_to_bytes(text) if ids.is_checkpoint_id(text) else None


# Conditions that partial indexes of the index file have.
_LITERAL = ("status = ?", "trigger = ?")


def build_sql_condition(query: Query) -> tuple[str, list[Value]]:
    conditions, sql_values, triggers = [], list[Value](), query.triggers
    trigger = triggers[0] if triggers is not None and len(triggers) == 1 else None
    for condition, value in (
        ("run = ?", query.run),
        ("git_sha = ?", None if query.git_sha is None else bytes.fromhex(query.git_sha)),
        ("time >= ?", query.since),
        # Outside of runs the rank is the time, and the rank is indexed.
        ("rank <= ?" if query.in_run is False else "time <= ?", query.until),
        ("name = ?", query.phase),
        ("label = ?", query.label),
        ("status = ?", query.status),
        ("trigger = ?", trigger),
        ("agent = ?", query.agent),
        ("branch = ?", query.branch and query.branch.removeprefix("refs/heads/")),
        (f"{HAS_MATCH}(?, message)", query.grep),
    ):
        if condition in _LITERAL and isinstance(value, str) and value.isascii() and value.isalpha():
            # A literal: SQLite uses partial indexes for nothing else.
            conditions.append(condition.replace("?", f"'{value}'"))
        elif value is not None:
            conditions.append(condition)
            sql_values.append(value)
    if not query.safety:
        conditions.append(f"trigger <> '{SAFETY}'")
    for null_column, must_be_set in (("run", query.in_run), ("agent", query.by_agent)):
        if must_be_set is not None:
            conditions.append(f"{null_column} IS {'NOT ' if must_be_set else ''}NULL")
    for condition, members in (
        (f"id IN (SELECT {ID_BYTES}(value)", query.ids),
        ("run IN (SELECT value", query.runs),
        ("trigger IN (SELECT value", triggers if trigger is None else None),
    ):
        if members is not None:
            conditions.append(f"{condition} FROM json_each(?))")
            sql_values.append(json.dumps(list(members)))
    return (f" WHERE {' AND '.join(conditions)}" if conditions else ""), sql_values
