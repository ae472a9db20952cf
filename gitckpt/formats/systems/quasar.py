"""Parse and write quasar's `checkpoint.<phase>.toml`; parse states of nebulas.

A nebula is a set of tasks. Source of the formats: the code of papapumpkin/quasar (MIT), its plan
for checkpoints, and files that its libraries wrote.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gitckpt.durable.phases.review import state as cycle
from gitckpt.durable.phases.review.state import ReviewState
from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import KEY, QUASAR, BadFormat, FileRecord, Remarks, SourceFile
from gitckpt.model import jsonable, times, toml
from gitckpt.model.arguments import join_first
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.values import replace

# Phase numbers before quasar had the phase linting (18 February 2026) or filtering (23 February).
TABLES = {"": cycle.PHASES, "linting": cycle.WITHOUT_LINTING, "filtering": cycle.WITHOUT_FILTERING}
_SIGNS = ("cycle", "max_cycles", "task_title", "phase")
_NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)  # Go's zero time
_ENDED = {"done": "complete", "failed": "failed", "skipped": "skipped", "in_progress": "started"}


def is_review_table(table: Mapping[str, Any]) -> bool:
    return all(key in table for key in _SIGNS) and "version" in table


def has_review_keys(table: Mapping[str, Any]) -> bool:
    keys = ReviewState().to_quasar_table().keys() - {"version", "created_at"}
    return not table.keys().isdisjoint(keys)


def is_nebula_table(table: Mapping[str, Any]) -> bool:
    has_phases = any(isinstance(table.get(key), dict) for key in ("phases", "tasks"))
    return has_phases and "nebula_name" in table and "version" in table


def read_review(source: SourceFile, phases: str = "") -> FileRecord:
    """Parse a quasar checkpoint; `phases` is the key of its phase numbers in `TABLES`."""
    remarks = Remarks()
    table = content.parse_toml(source, remarks)
    if not is_review_table(table):
        raise BadFormat(f"the file lacks one of version, {', '.join(_SIGNS)}")
    try:
        state = parse_cycle(content.decode_file(source, remarks), source.path, TABLES[phases])
    except InvalidCheckpoint as error:
        where = f"{error.field}: " if error.field else ""
        raise BadFormat(f"{where}{error.problem}") from None
    known_keys = {*ReviewState().to_quasar_table(), "findings", "all_findings", cycle.MORE}
    unknown_values = {key: value for key, value in table.items() if key not in known_keys}
    for key in unknown_values:
        remarks.add(f"has a key {key!r:.60}, which is stored")
    findings = content.to_mappings(table.get("findings"))
    findings += content.to_mappings(table.get("all_findings"))
    finding_keys = {key for finding in findings for key in finding}
    for key in sorted(finding_keys - {"severity", "description", "cycle"}):
        remarks.add(f"has findings with a key {key!r:.60}: only the original has the key")
    missing_keys = known_keys - table.keys() - {cycle.MORE}
    if missing_keys:
        names = join_first(sorted(missing_keys), 20)
        remarks.add(f"lacks {names}, which quasar always writes: the file may be incomplete")
    lacks_offset = content.remark_missing_offset((table.get("created_at"),), remarks)
    if cycle.MORE not in table:
        numbering = f"by the numbers {f'before {phases}' if phases else 'since filtering'}"
        remarks.add(f"has the phase {table['phase']}, which is {state.phase} {numbering}")
    if state.all_findings and cycle.MORE not in table:
        remarks.add("has no status of the findings: all count as open")
    is_named = bool(state.phase_id or state.task_bead_id)
    completed = ("review",) if state.phase == cycle.APPROVED else ()
    inputs = {"task": state.task_bead_id, "title": state.task_title}
    inputs |= {"max_cycles": str(state.max_cycles), "max_budget": f"{state.max_budget_usd:g}"}
    labels = {cycle.APPROVED: "run-complete", cycle.ERROR: "review-failed"}
    imported = {"format": QUASAR, **({"phases": phases} if phases else {}), **unknown_values}
    return FileRecord(
        QUASAR,
        identity=json.dumps([state.phase_id, state.task_bead_id] if is_named else [source.path]),
        by_path=not is_named,
        name=state.phase_id or state.task_bead_id or "review",
        phase=labels.get(state.phase, "review-started"),
        state={cycle.KEY: state.to_state_table(), KEY: imported},
        timestamp=state.created_at,
        time=content.to_instant(state.created_at),
        started=content.to_instant(state.created_at),
        is_local=lacks_offset,
        commit=state.git_sha,
        errors=(state.problem,) if state.problem else (),
        sort_key=state.cycle,
        continuation=content.RunContinuation("review", completed, inputs),
        remarks=remarks.clauses,
    )


def parse_cycle(
    data: bytes | str, file: str, phases: tuple[str, ...] = cycle.PHASES
) -> ReviewState:
    """Parse the state of a review; raise `InvalidCheckpoint`, naming `file`.

    `phases` are the phases by number, for files that do not name them.
    """
    table = _parse_toml_table(data, file)
    created_at = table.pop("created_at", _NEVER)
    if type(created_at) is not dt.datetime:
        raise InvalidCheckpoint(file, "created_at", f"is {created_at!r:.40}, not a date-time")
    state = ReviewState.from_state_table(table, file, phases)
    return replace(state, created_at=_to_timestamp(created_at))


def _parse_toml_table(data: bytes | str, source: str) -> dict[str, Any]:
    try:
        return toml.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 in line {line}: a character was cut in the middle"
        hint = "remove the cut text from the file; quasar cuts characters when it shortens texts"
        raise InvalidCheckpoint(source, "", problem, hint=hint) from None
    except ValueError as error:
        raise InvalidCheckpoint(source, "", f"is not TOML: {error}") from None


def _to_timestamp(instant: dt.datetime) -> str:
    aware_instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=dt.UTC)
    return "" if aware_instant == _NEVER else times.to_text(times.as_instant(aware_instant))


def read_nebula(source: SourceFile) -> FileRecord:
    remarks = Remarks()
    table = content.parse_toml(source, remarks)
    if not is_nebula_table(table):
        raise BadFormat("the file lacks one of version, nebula_name, or phases")
    if "tasks" in table:
        remarks.add("has tasks instead of phases, as in older versions of quasar")
    tables = content.table_at(table, "phases") | content.table_at(table, "tasks")
    phases = {name: content.to_mapping(phase) for name, phase in tables.items()}
    creation_times = [phase.get("created_at") for phase in phases.values()]
    phase_times = [*creation_times, *(phase.get("updated_at") for phase in phases.values())]
    lacks_offset = content.remark_missing_offset(phase_times, remarks)
    instants = [time for time in map(content.to_instant, phase_times) if time is not None]
    start_times = [time for time in map(content.to_instant, creation_times) if time is not None]
    name = content.text_at(table, "nebula_name")
    return FileRecord(
        content.NEBULA,
        identity=name or source.path,
        by_path=not name,
        name=name or "nebula",
        phase=_label_of_nebula({key: content.text_at(phases[key], "status") for key in phases}),
        state={**table, KEY: {"format": content.NEBULA}},
        timestamp=times.to_text(max(instants)) if instants else "",
        time=max(instants, default=None),
        started=min(start_times, default=None),
        is_local=lacks_offset,
        remarks=remarks.clauses,
    )


def _label_of_nebula(statuses: Mapping[str, str]) -> str:
    if statuses and all(status in ("done", "skipped") for status in statuses.values()):
        return "run-complete"
    for phase_status in ("failed", "in_progress"):
        phase_names = [name for name, status in statuses.items() if status == phase_status]
        if phase_names:
            return f"{phase_names[-1]}-{_ENDED[phase_status]}"
    return "run-started"


def write_review(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    table = checkpoint.state.get(cycle.KEY)
    if not isinstance(table, Mapping):
        raise BadFormat("the state has no review, which quasar needs")
    try:
        state = ReviewState.from_state_table(dict(table))
    except (InvalidCheckpoint, NewerCheckpoint) as error:
        raise BadFormat(error.message) from None
    if state.phase == cycle.ERROR:
        losses.append("the phase error, which quasar refuses: the phase that failed is written")
        state = replace(state, phase=cycle.find_resume_phase(state), failed_in="", problem="")
    for key, value in state.to_extra_table().items():
        if key == "beads" and not any(state.beads.values()):
            continue  # quasar created these issues
        if value and key not in ("phase", "findings", "all_findings"):
            losses.append(f"{key} of the review")
    statuses = {finding_.status for finding_ in state.all_findings} - {"found"}
    if statuses:
        losses.append(f"the status of findings: {', '.join(sorted(statuses))}")
    lost_keys = [key for key in checkpoint.state if key not in (cycle.KEY, KEY)]
    losses += [f"the value {key} of the state" for key in lost_keys]
    import_values = content.table_at(jsonable.state_to_json(checkpoint), KEY)
    unknown_keys = [key for key in import_values if key not in ("format", "phases", "git_commit")]
    losses += [f"the key {key}, which quasar does not have" for key in unknown_keys]
    header_values = state.to_quasar_table()
    creation_time = state.created_at or "0001-01-01T00:00:00Z"  # Go's zero time means "none"
    if "." in creation_time:  # Go writes no trailing zeros in a fraction
        creation_time = f"{creation_time.removesuffix('Z').rstrip('0').rstrip('.')}Z"
    header_values["created_at"] = _UnquotedText(creation_time)
    lists = {"findings": state.findings, "all_findings": state.all_findings}
    lines = [f"{key} = {_render_value(value)}" for key, value in header_values.items()]
    lines += [f"{key} = []" for key, findings in lists.items() if not findings]
    for key, findings in lists.items():
        for finding in findings:
            lines += ["", f"[[{key}]]"]
            names = ("severity", "description", "cycle")
            lines += [f"{name} = {_render_value(getattr(finding, name))}" for name in names]
    return ("\n".join(lines) + "\n").encode()


class _UnquotedText(str):
    __slots__ = ()


def _render_value(value: object) -> str:
    """Render a value as go-toml v2 does: on one line, strings in single quotes."""
    if isinstance(value, _UnquotedText):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")  # go-toml writes no exponent
        return text if "." in text else f"{text}.0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_render_value(item) for item in value)}]"
    text = str(value)
    if "'" not in text and all(character >= " " and character != "\x7f" for character in text):
        return f"'{text}'"
    return '"' + "".join(map(_escape_character, text)) + '"'


_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _escape_character(character: str) -> str:
    return _SHORT.get(character) or (
        f"\\u{ord(character):04X}" if character < " " or character == "\x7f" else character
    )
