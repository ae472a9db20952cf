"""Parse and write forge's `.forge/runs/<id>.yaml`: one file per run.

Source of fields and quirks: the code of shahar-caura/forge (MIT), and files that forge wrote.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from gitckpt.formats.systems import content, yaml_text
from gitckpt.formats.systems.content import FORGE, KEY, BadFormat, FileRecord, Remarks, SourceFile
from gitckpt.model import ids, jsonable
from gitckpt.model.arguments import join_first
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.phase import NOT_PHASES

# Steps of the preset plan-to-pr, with forge's names. Later versions of forge have more steps.
STEPS = (
    *("read plan", "generate branch", "create worktree"),
    *("run agent", "commit and push", "create pr"),
)

NUMBERS = ("pr_number", "cr_retry_count")
TIMES = frozenset(("created_at", "updated_at"))

# Keys in the order of forge's struct; only those in `_ALWAYS` are written if they are empty.
_ORDER = """
id plan_path mode status created_at updated_at branch worktree_path pr_url pr_number issue_key
issue_url cr_feedback plan_title cr_fix_summary source_issue cr_retry_count steps
"""
ORDER = tuple(_ORDER.split())
_ALWAYS = frozenset(("id", "plan_path", "status", "created_at", "updated_at", "steps"))
_NANOSECONDS = re.compile(r"\.[^Zz+-]{7}")


def is_run_table(table: Mapping[str, Any]) -> bool:
    steps = table.get("steps")
    return (
        isinstance(steps, list)
        and all(isinstance(step, dict) and "name" in step for step in steps)
        and isinstance(table.get("id"), str)
        and "status" in table
        and "created_at" in table
    )


def read_run(source: SourceFile) -> FileRecord:
    remarks = Remarks()
    values = yaml_text.parse_yaml(content.decode_file(source, remarks), remarks)
    table = content.to_storable(values, remarks)
    if not is_run_table(table):
        raise BadFormat("the file lacks one of id, status, created_at, or steps with names")
    for key in NUMBERS:
        number_text = table.get(key)
        if isinstance(number_text, str) and number_text.isdecimal() and len(number_text) < 19:
            table[key] = int(number_text)
    for key in sorted(table.keys() - set(ORDER)):
        remarks.add(f"has a key {key!r:.60}, which is stored")
    run_id, steps = table["id"], content.to_mappings(table["steps"])
    names = [content.text_at(step, "name") for step in steps]
    statuses = list(zip(names, (step.get("status") for step in steps), strict=True))
    completed_names = set(names) - {name for name, status in statuses if status != "completed"}
    for name in sorted({name for name in names if names.count(name) > 1}):
        remarks.add(f"has the step {name!r:.60} twice: the step is complete if both are")
    unknown = [f"{name:.60}" for name in names if name not in STEPS]
    if unknown:
        names_text = join_first(unknown, 20)
        remarks.add(f"has the steps {names_text}, which plan-to-pr lacks: stored in the state only")
    update_time = content.text_at(table, "updated_at", "created_at")
    if any(_NANOSECONDS.search(content.text_at(table, key)) for key in TIMES):
        remarks.add("has times in nanoseconds: stored in microseconds")
    lacks_offset = content.remark_missing_offset((update_time, table["created_at"]), remarks)
    plan_path = content.text_at(table, "plan_path")
    phase = _label_of_run(table["status"], statuses)
    has_title = bool(content.text_at(table, "plan_title"))
    if plan_path and not has_title and phase != "run-complete" and table.get("mode") != "push":
        # forge reads the plan again when it resumes, to get the title.
        completed_names.discard("read plan")
    plan_content = source.neighbors.get(f"{os.path.basename(run_id)}-plan.md")
    completed = tuple(name for name in STEPS if name in completed_names)
    inputs = {"plan": plan_path} if plan_path else {}
    contents = {"plan": plan_content} if plan_content is not None else {}
    return FileRecord(
        FORGE,
        identity=json.dumps([run_id, content.to_string(table["created_at"])]),
        name=run_id[16:] if ids.is_run_id(run_id) else run_id,
        phase=phase,
        state={**table, KEY: {"format": FORGE}},
        timestamp=update_time,
        time=content.to_instant(update_time),
        started=content.to_instant(table["created_at"]),
        is_local=lacks_offset,
        errors=tuple(filter(None, (content.text_at(step, "error") for step in steps))),
        run=run_id if ids.is_run_id(run_id) else None,
        continuation=content.RunContinuation("plan-to-pr", completed, inputs, inputs, contents),
        worktree=content.text_at(table, "worktree_path") or None,
        branch=content.text_at(table, "branch") or None,
        remarks=remarks.clauses,
    )


def _label_of_run(status: object, statuses: list[tuple[str, Any]]) -> str:
    if status == "completed":
        return "run-complete"
    for step_status, ending in (("failed", "failed"), ("running", "started")):
        step_names = [name for name, status_ in statuses if status_ == step_status]
        if step_names and (status == "failed" or ending == "started"):
            return f"{step_names[-1]}-{ending}"
    done_steps = [name for name, step_status in statuses if step_status == "completed"]
    if status == "failed":
        return f"{done_steps[-1] if done_steps else statuses[0][0] if statuses else 'run'}-failed"
    return f"{done_steps[-1]}-complete" if done_steps else "run-started"


def write_run(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    if checkpoint.run is None:
        raise BadFormat("a checkpoint outside of a run has no steps, which forge needs")
    state = jsonable.state_to_json(checkpoint)
    import_values = content.to_mapping(state.pop(KEY, None))
    is_forge = content.text_at(import_values, "format") == FORGE
    pipeline = checkpoint.pipeline
    completed_phases = set(pipeline.completed) if pipeline is not None else set()
    entries = content.to_mappings(state.get("steps")) if is_forge else []
    statuses = {content.text_at(step, "name"): content.text_at(step, "status") for step in entries}
    # Without a pipeline, only the current step is known.
    current_step = [checkpoint.phase_name] if checkpoint.phase_name not in NOT_PHASES else []
    planned_phases = list(pipeline.phases) if pipeline is not None else []
    phases = list(statuses) or planned_phases or current_step
    is_run_complete = checkpoint.label == "run-complete"
    has_failed = checkpoint.status in ("failed", "blocked")
    steps = []
    for name in phases:
        step: dict[str, Any] = {"name": name, "status": "pending"}
        is_extra_step_done = name not in STEPS and statuses.get(name) == "completed"
        if is_run_complete or name in completed_phases or is_extra_step_done:
            step["status"] = "completed"
        elif name == checkpoint.phase_name:
            is_ended = checkpoint.status in ("complete", "skipped")
            step["status"] = "completed" if is_ended else "failed" if has_failed else "running"
            if has_failed and checkpoint.errors:
                step["error"] = "\n".join(checkpoint.errors)
        steps.append(step)
    if checkpoint.phase_name not in phases and not is_run_complete:
        losses.append(f"the phase {checkpoint.phase_name}, which is not a step of the run")
    if not any("error" in step for step in steps):
        losses += [f"the error {error!r:.80}" for error in checkpoint.errors]
    inputs = dict(pipeline.inputs) if pipeline is not None else {}
    creation_time = content.text_at(state, "created_at") if is_forge else ""
    values: dict[str, Any] = {key: state.get(key) for key in ORDER}
    values |= {
        "id": content.text_at(state, "id") if is_forge else checkpoint.run,
        "plan_path": content.text_at(state, "plan_path") or inputs.get("plan", ""),
        "status": "completed" if is_run_complete else "failed" if has_failed else "active",
        "created_at": creation_time or _start_time_of_run(checkpoint.run),
        "updated_at": checkpoint.timestamp,
        "branch": content.text_at(state, "branch"),
        "steps": steps,
    }
    for key in NUMBERS:
        number = values.get(key)
        values[key] = int(number) if isinstance(number, str) and number.isdecimal() else number
    unknown_values = {key: state[key] for key in state if key not in (*ORDER, "plan_hash")}
    extra_items = unknown_values.items() if is_forge else ()
    extra_values = {key: value for key, value in extra_items if isinstance(value, (str, int, bool))}
    losses += [f"the value {key} of the state" for key in unknown_values if key not in extra_values]
    keys = [key for key in ORDER if key in _ALWAYS or values[key] not in (None, "", 0, [], {})]
    table = {key: values[key] for key in keys if key != "steps"}
    return yaml_text.render_yaml({**table, **extra_values, "steps": steps}, TIMES)


def _start_time_of_run(run: str) -> str:
    # A run id begins with its start time.
    return f"{run[:4]}-{run[4:6]}-{run[6:8]}T{run[9:11]}:{run[11:13]}:{run[13:15]}Z"
