"""Parse and write superpowers' `conductor/tracks/<track>/metadata.json`.

Agents edit these files by hand and deviate from their prompts, so any JSON object of a track is
accepted. The state is the unchanged content of the file; `durable.steps` interprets the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.steps import machine, report
from gitckpt.durable.steps.graph import COMPLETE, Graph
from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import SUPERPOWERS, BadFormat, FileRecord, Remarks, SourceFile
from gitckpt.model import jsonable, times
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import UsageError

_LABELS = {report.NOT_STARTED: "progress", report.IN_PROGRESS: "progress"}
_LABELS |= {report.PASSED: "complete", report.FAILED: "failed"}
_LABELS |= {report.BLOCKED: "blocked", report.SKIPPED: "skipped"}
_REQUIRED = ("status", "started_at", "agent", "last_updated")


def is_track_table(table: Mapping[str, Any]) -> bool:
    is_track = "track_id" in table and ("status" in table or "type" in table)
    return is_track or isinstance(table.get("loop_state"), dict)


def read_track(source: SourceFile, graph: Graph) -> FileRecord:
    remarks = Remarks()
    table = content.parse_json(source, remarks)
    # Version 1 has no loop_state.
    if not is_track_table(table):
        raise BadFormat("the file lacks loop_state or track_id")
    names = source.path.replace("\\", "/").split("/")
    track_id = content.text_at(table, "track_id") or (names[-2] if len(names) > 1 else "track")
    state = dict(table) if table.get("track_id") else {**table, "track_id": track_id}
    loop_state = table.get("loop_state")
    if not isinstance(loop_state, dict):
        step = _infer_step_from_plan(source)
        state["loop_state"] = {"current_step": step}
        remark = "has no loop_state, like files of version 1"
        if loop_state is not None:
            remark = f"has {loop_state!r:.60} for loop_state, which is not stored"
        remarks.add(f"{remark}: the step is {step} according to the plan")
    try:
        position = machine.find_position(graph, state)
    except UsageError as error:
        raise BadFormat(error.message) from None
    _remark_deviations(graph, state, remarks)
    checkpoints = content.table_at(state["loop_state"], "checkpoints")
    update_times = [content.to_mapping(value).get("last_updated") for value in checkpoints.values()]
    update_times += [table.get("updated_at"), table.get("completed_at")]
    instants = [time for time in map(content.to_instant, update_times) if time is not None]
    creation_time = table.get("created_at", table.get("created"))
    lacks_offset = content.remark_missing_offset((*update_times, creation_time), remarks)
    creation_instant = content.to_instant(creation_time)
    newest_instant = max(instants, default=creation_instant)
    notes = content.to_string(content.to_mapping(checkpoints.get(position.step)).get("notes"))
    has_failed = position.status in (report.FAILED, report.BLOCKED)
    label = f"{position.step}-{_LABELS[position.status]}"
    return FileRecord(
        SUPERPOWERS,
        identity=json.dumps([track_id, source.path]),
        by_path=True,
        name=track_id,
        phase="run-complete" if position.step == COMPLETE else label,
        state=state,
        timestamp=times.to_text(newest_instant) if newest_instant is not None else "",
        time=newest_instant,
        started=creation_instant if creation_instant is not None else newest_instant,
        is_local=lacks_offset,
        errors=tuple(value for value in (*position.reasons, notes) if value) if has_failed else (),
        remarks=remarks.clauses,
    )


# Infer the step of a version 1 track, whose metadata does not name the step.
def _infer_step_from_plan(source: SourceFile) -> str:
    plan = source.neighbors.get("plan.md", b"").decode("utf-8", "replace")
    lines = [line.strip() for line in plan.splitlines()]
    if any(line.startswith(("- [ ]", "* [ ]")) for line in lines):
        return "EXECUTE"
    has_done_task = any(line.startswith(("- [x]", "* [x]", "- [X]", "* [X]")) for line in lines)
    return "EVALUATE_EXECUTION" if has_done_task else "PLAN"


def _remark_deviations(graph: Graph, state: Mapping[str, Any], remarks: Remarks) -> None:
    loop_state = content.to_mapping(state["loop_state"])
    current_step = loop_state.get("current_step")
    step = graph.find(current_step)
    if step is None and current_step is not None and report.parse_status(current_step) is None:
        remarks.add(f"is at the step {str(current_step)!r:.60}, which is not in the protocol")
    elif step is not None and isinstance(current_step, str) and step.name != current_step:
        remarks.add(f"has the step {current_step!r:.60}, taken as {step.name}")
    for name, record in content.to_mapping(loop_state.get("checkpoints")).items():
        if graph.find(name) is None:
            remarks.add(f"has a record of the step {name!r:.60}, which is not in the protocol")
        if not isinstance(record, dict):
            remarks.add(f"has a record of {name!r:.60} that is not an object")
            continue
        missing_keys = [key for key in _REQUIRED if not record.get(key)]
        if missing_keys and report.parse_status(record.get("status")) != report.NOT_STARTED:
            remarks.add(f"has a record of {name!r:.60} without {', '.join(missing_keys)}")
        status = record.get("status")
        if status is not None and report.parse_status(status) is None:
            remarks.add(f"has the status {str(status)!r:.60}, which is not in the protocol")


def write_track(checkpoint: Checkpoint, _losses: list[str]) -> bytes:
    # The format takes any key, so nothing is lost.
    state = jsonable.state_to_json(checkpoint)
    if not isinstance(state.get(machine.LOOP), dict):
        raise BadFormat("the state has no steps, which superpowers needs")
    if "track_id" not in state:
        state = {"track_id": checkpoint.run or checkpoint.id, **state}
    if "version" not in state:
        state = {"version": 3, **state}
    return (json.dumps(state, indent=2, ensure_ascii=False) + "\n").encode()
