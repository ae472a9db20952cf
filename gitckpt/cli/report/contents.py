"""Collect the sections of a report: checkpoints by phase, turn or day."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from gitckpt.model import ids, jsonable, phase, times
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, WATCH
from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.jsonable import StateChange
    from gitckpt.store.history.log import LogItem
    from gitckpt.store.records.entry import CheckpointInfo, Query
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.store import Store

MOST = 1000  # checkpoints in one page
_ROOM = 3_000_000  # characters of all patches together, as HTML
_PATCH_RANGE = 1_000, 60_000  # characters of one patch at least, and at most
_MOST_LINES = 20_000  # of a patch that is read at all
_AT_ONCE = 100  # patches in memory
_TEXT, _OUTPUT, _VALUE = 1000, 4000, 200  # characters of a message, an output, a value of a state
_FILES, _VALUES = 50, 20  # of one checkpoint
# Most checkpoints have nothing that a list lacks: decoding takes as long as all else.
_WITHOUT_DETAILS = (MANUAL, WATCH, *HOOK_TRIGGERS)
_NO_ERRORS = b"\nerrors = []\n"
_OPTIONS = ("-p", "--no-renames", "--submodule=short")


@dataclass(slots=True)
class ReportedChange:
    """One checkpoint, with what it changed against the one before it."""

    entry: CheckpointInfo
    item: LogItem
    facts: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    output: str = ""
    state: list[str] = field(default_factory=list)
    patch: list[tuple[str, str]] = field(default_factory=list)  # kind and text of adjacent lines
    cut: str = ""  # how many lines of the patch are left out; "" for none
    tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The short id, which is also the anchor of the checkpoint."""
        return self.entry.id[: ids.SHORT]

    @property
    def files(self) -> Sequence[tuple[str, str, int | None, int | None]]:
        return [
            (file.status, _decode(file.path), file.added, file.removed)
            for file in self.item.files[:_FILES]
        ]

    @property
    def more_files(self) -> int:
        return max(len(self.item.files) - _FILES, 0)

    @property
    def added(self) -> int:
        return sum(file.added or 0 for file in self.item.files)

    @property
    def removed(self) -> int:
        return sum(file.removed or 0 for file in self.item.files)

    @property
    def message(self) -> str:
        return _text(self.entry.message, _TEXT)

    @property
    def has_details(self) -> bool:
        return bool(self.facts or self.errors or self.output or self.state or self.item.files)


@dataclass(slots=True)
class Group:
    """The checkpoints of a phase, of a turn, or of a day."""

    title: str
    status: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    changes: list[ReportedChange] = field(default_factory=list)  # oldest first


@dataclass(slots=True)
class Section:
    """A run, a session, or all checkpoints outside of these."""

    title: str
    kind: str
    status: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    cost: float = 0.0  # US dollars

    @property
    def changes(self) -> list[ReportedChange]:
        return [change for group in self.groups for change in group.changes]


def collect(store: Store, query: Query) -> list[Section]:
    """Return the sections of the newest checkpoints, the newest section first."""
    items = store.log(replace(query, limit=MOST))
    changes = [_make_change(store, item) for item in items]
    _add_patches(store, changes)
    by_run: dict[str | None, list[ReportedChange]] = {}
    for change in changes:
        by_run.setdefault(change.entry.run, []).insert(0, change)
    runs = {run.run: run for run in store.runs()} if set(by_run) - {None} else {}
    return [_make_section(store, runs.get(str(run)), members) for run, members in by_run.items()]


# Checkpoints


def _make_change(store: Store, item: LogItem) -> ReportedChange:
    entry = item.newest
    change = ReportedChange(entry, item, state=list(_state_lines(item.state)))
    change.facts = [("commit", entry.git_sha[: ids.SHORT]), ("branch", entry.branch or "")]
    if item.omitted:
        change.facts.append(("not captured", f"{item.omitted:,} paths"))
    change.facts.append(("not compared", item.not_compared or ""))
    try:
        if entry.trigger not in _WITHOUT_DETAILS or _NO_ERRORS not in store.raw(entry.id):
            _add_details(change, store.read(entry.id))
    except CkptError as error:  # damaged or removed meanwhile
        change.errors.append(error.message)
    change.facts = [(name, value) for name, value in change.facts if value]
    return change


def _add_details(change: ReportedChange, checkpoint: Checkpoint) -> None:
    entry = change.entry
    change.errors = [_text(error, _TEXT) for error in checkpoint.errors]
    attempt = checkpoint.attempt
    change.output = _text(attempt.output, _OUTPUT) if attempt is not None else ""
    change.tokens = _counts(checkpoint.state.get("tokens")) if _ends_turn(entry) else {}
    facts = {
        "agent": entry.agent,
        "attempt": _attempt_text(checkpoint),
        "prompt": _text(checkpoint.state.get("prompt"), _OUTPUT) if _begins_turn(entry) else "",
        "command": _text(checkpoint.state.get("command"), _TEXT),
        "tools": _counts_text(checkpoint.state.get("tools")) if _ends_turn(entry) else "",
        "tokens": _counts_text(change.tokens),
    }
    change.facts += [(name, value or "") for name, value in facts.items()]


def _begins_turn(entry: CheckpointInfo) -> bool:
    return entry.status == "started" and phase.turn_number(entry.label) is not None


def _ends_turn(entry: CheckpointInfo) -> bool:
    ends = entry.status in ("complete", "partial")
    return ends and phase.turn_number(entry.label) is not None


def _attempt_text(checkpoint: Checkpoint) -> str:
    attempt = checkpoint.attempt
    if attempt is None or attempt.phase != checkpoint.phase_name:
        return ""
    code, seconds = attempt.exit_code, attempt.seconds
    result = "" if code is None else f"exit code {code}" if code >= 0 else f"signal {-code}"
    duration = f"{seconds:.1f} s" if seconds is not None else ""
    return ", ".join(filter(None, (str(attempt.number), result, duration)))


def _counts(value: object) -> dict[str, int]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {str(name): number for name, number in pairs if type(number) is int and number >= 0}


def _counts_text(value: object) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in list(_counts(value).items())[:20])


def _state_lines(changes: Sequence[StateChange]) -> Iterator[str]:
    for change in changes[:_VALUES]:
        values = [_value_text(change.old), _value_text(change.new)]
        shown = [value for value in values if value]
        yield _text(f"{change.pointer} = {' → '.join(shown) if values[1] else 'removed'}", _VALUE)
    if len(changes) > _VALUES:
        yield f"… and {len(changes) - _VALUES:,} more values"


def _value_text(value: Any) -> str:
    if value is jsonable.MISSING:
        return ""
    return json.dumps(jsonable.to_json({"value": value})["value"], ensure_ascii=False)


def _text(value: object, limit: int) -> str:
    """Mask likely secrets in a text before it is cut: half of one is not recognized."""
    text = secrets.mask_text(value) if isinstance(value, str) else ""
    return (
        text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"
    )


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


# Patches


def _add_patches(store: Store, changes: Sequence[ReportedChange]) -> None:
    least, most = _PATCH_RANGE
    room = min(max(_ROOM // max(len(changes), 1), least), most)
    shown = []
    for change in changes:
        lines = change.added + change.removed
        if lines > _MOST_LINES:
            change.cut = f"{lines:,} changed lines are too many to show"
        elif change.item.files:
            shown.append(change)
    for start in range(0, len(shown), _AT_ONCE):
        portion = shown[start : start + _AT_ONCE]
        patches = store.log_changes([change.item for change in portion], options=_OPTIONS)
        for change, patch in zip(portion, patches, strict=True):
            _set_patch(change, patch, room)


def _set_patch(change: ReportedChange, patch: bytes, room: int) -> None:
    # A prefix of a line, such as "-", would hide the lines of a private key from the search.
    hits = secrets.find_hits(re.sub(rb"(?m)^[-+]", b" ", patch))
    text = _decode(secrets.mask_bytes(patch, hits)).rstrip("\n")
    room = int(room * len(text) / max(len(html.escape(text)), 1))  # of the text as HTML
    shown = text if len(text) <= room else text[:room].rpartition("\n")[0] or text[:room]
    if len(shown) < len(text):
        hidden = text.count("\n", len(shown))
        change.cut = f"{hidden:,} more lines of the diff are not shown"
    in_hunk = False
    for line in shown.split("\n"):
        kind = ""
        if line.startswith("diff "):
            kind, in_hunk = "head", False
        elif line.startswith("@@"):
            kind, in_hunk = "hunk", True
        elif in_hunk and line.startswith(("+", "-")):
            kind = "add" if line.startswith("+") else "del"
        elif not in_hunk:
            kind = "meta"
        if change.patch and change.patch[-1][0] == kind:
            change.patch[-1] = kind, f"{change.patch[-1][1]}\n{line}"
        else:
            change.patch.append((kind, line))


# Runs, phases and turns


def _make_section(store: Store, run: RunInfo | None, changes: list[ReportedChange]) -> Section:
    if run is None:
        name = changes[0].entry.run  # a run whose checkpoints are damaged has no summary
        section = Section(name or "Outside of runs", "run" if name else "worktree")
        section.groups = _group(changes, lambda entry: day_of(entry.time))
        return section
    if run.is_session:
        section = Section(run.run, "session", run.status, _run_facts(run))
        section.groups = _group(changes, _turn_title)
        for group in section.groups:
            _describe_turn(group)
        return section
    section = Section(run.run, "run", run.status, _run_facts(run))
    section.groups = _group(changes, lambda entry: entry.phase_name)
    try:
        history = store.history(run.run)
    except CkptError:  # `verify` reports why
        return section
    _describe_run(section, history)
    return section


def _group(changes: Sequence[ReportedChange], title_of: Any) -> list[Group]:
    groups: list[Group] = []
    for change in changes:
        title = str(title_of(change.entry))
        if not groups or groups[-1].title != title:
            groups.append(Group(title))
        groups[-1].changes.append(change)
    return groups


def _run_facts(run: RunInfo) -> list[tuple[str, str]]:
    facts = {
        "started": time_text(run.started),
        "last checkpoint": time_text(run.time),
        "branch": run.branch or "",
        "worktree": run.path or "",
    }
    return [(name, value) for name, value in facts.items() if value]


def _turn_title(entry: CheckpointInfo) -> str:
    number = phase.turn_number(entry.label)
    return f"Turn {number}" if number is not None else entry.phase_name


def _describe_turn(group: Group) -> None:
    first, last = group.changes[0], group.changes[-1]
    group.status = last.entry.status if last.entry.status != "started" else "open"
    group.title = f"{group.title}: {first.message}" if first.message else group.title
    seconds = (last.entry.time - first.entry.time) // times.MICRO
    guards = sum(change.entry.trigger == "guard" for change in group.changes)
    facts = {
        "took": f"{seconds:,} s" if _ends_turn(last.entry) else "",
        "tokens": _counts_text(last.tokens),
        "guards": str(guards or ""),
    }
    group.facts = [(name, value) for name, value in facts.items() if value]


def _describe_run(section: Section, history: History) -> None:
    from gitckpt.durable import progress

    pipeline = history.pipeline
    gauges = progress.gauges(history.newest.state, history.newest.progress)
    section.cost = _cost_in(history.newest.state)
    section.facts += [("pipeline", pipeline.name or ""), ("autonomy", pipeline.autonomy or "")]
    section.facts += [(gauge.name, gauge.text) for gauge in gauges]
    section.facts += [
        (f"input {key}", _text(text, _VALUE)) for key, text in pipeline.inputs.items()
    ]
    section.facts += [("not written", _text(line, _TEXT)) for line in history.unwritten]
    section.facts = [(name, value) for name, value in section.facts if value]
    events = {event.phase: event for event in history.events}
    for group in section.groups:
        event = events.get(group.title)
        group.status = group.changes[-1].entry.status
        if event is not None and event.status != "pending":
            group.status = event.status
            took = f"{event.seconds:.1f} s" if event.seconds is not None else ""
            facts = {"attempts": str(event.attempts or ""), "took": took}
            group.facts = [(name, value) for name, value in facts.items() if value]
    shown = {group.title for group in section.groups}
    pending = [event.phase for event in history.events if event.phase not in shown]
    if pending:
        section.facts.append(("no checkpoint here", ", ".join(pending)))


def _cost_in(state: Mapping[str, Any]) -> float:
    tables = [(state.get("loop"), "cost_usd"), (state.get("review"), "total_cost_usd")]
    amounts = [table.get(key) for table, key in tables if isinstance(table, Mapping)]
    return sum(float(cost) for cost in amounts if isinstance(cost, int | float) and 0 <= cost < 1e9)


# Times in the local zone


def time_text(instant: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    when = times.as_datetime(instant)
    with contextlib.suppress(OverflowError):  # the first or last day of the calendar
        when = when.astimezone()
    return when.strftime(pattern)


def day_of(instant: int) -> str:
    return time_text(instant, "%Y-%m-%d")
