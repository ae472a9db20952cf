"""Parse and write rlm-act's `.rlm-act-checkpoints/<uuid>.json`: a file per phase.

Older format: `.workflow-checkpoints/<uuid>.json`, one file per failure. Source of fields and
quirks: the code of tha-hammer/silmari-Context-Engine (MIT), and 44 files that it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import KEY, RLM_ACT, BadFormat, FileRecord, Remarks, SourceFile
from gitckpt.model import ids, jsonable, times
from gitckpt.model.checkpoint import Checkpoint

PHASES = ("research", "decomposition", "tdd_planning", "multi_doc", "beads_sync", "implementation")

# Phase names in rlm-act's requirements → names in its code.
_OTHER_NAMES = {"planning": "tdd_planning", "phase_decomposition": "multi_doc"}
_OTHER_NAMES |= {"beads_integration": "beads_sync"}

_STATUSES = ("complete", "failed", "skipped")

# Arguments of `bd`, and names of directories in the worktree: neither options nor `..`.
_ISSUE, _PLAN = re.compile(r"\w[\w.:#-]*"), re.compile(r"\w[\w. -]*")
_KEYS = ("id", "phase", "timestamp", "state", "errors", "git_commit")


def is_checkpoint_table(table: Mapping[str, Any], state: str = "state") -> bool:
    return all(key in table for key in _KEYS[:3]) and isinstance(table.get(state), dict)


def is_workflow_table(table: Mapping[str, Any]) -> bool:
    return is_checkpoint_table(table, "state_snapshot")


def read_checkpoint(source: SourceFile) -> FileRecord:
    remarks = Remarks()
    document = content.parse_json(source, remarks)
    if not is_checkpoint_table(document):
        raise BadFormat(f"the file lacks one of {', '.join(_KEYS[:4])}")
    state = content.table_at(document, "state")
    phase_results = content.table_at(state, "phase_results").items()
    results = {_rename_phase(name): content.to_mapping(result) for name, result in phase_results}
    own_id, timestamp = content.text_at(document, "id"), content.text_at(document, "timestamp")
    start_time = content.text_at(state, "started_at")
    errors = content.parse_errors(document.get("errors"), remarks)
    content.remark_missing_offset((timestamp, start_time), remarks)
    for name in sorted(document.keys() - set(_KEYS)):
        remarks.add(f"has a key {name!r:.60}, which is stored")
    header_values = {name: document[name] for name in document if name not in ("state", "errors")}
    run_identity = [content.text_at(state, "project_path"), start_time]
    return FileRecord(
        RLM_ACT,
        identity=json.dumps(run_identity if start_time else [own_id, source.path]),
        name="rlm-act",
        phase=_correct_label(content.text_at(document, "phase"), remarks),
        state={**state, KEY: {"format": RLM_ACT, **header_values}},
        timestamp=timestamp,
        time=content.to_instant(timestamp),
        started=content.to_instant(start_time),
        is_local=True,
        commit=content.text_at(document, "git_commit"),
        errors=errors,
        id=own_id if ids.is_checkpoint_id(own_id) else None,
        sort_key=len(results),
        continuation=_read_continuation(state, results, remarks),
        remarks=remarks.clauses,
    )


def read_workflow(source: SourceFile) -> FileRecord:
    remarks = Remarks()
    document = content.parse_json(source, remarks)
    if not is_workflow_table(document):
        raise BadFormat("the file lacks one of id, phase, timestamp, state_snapshot")
    state = content.table_at(document, "state_snapshot")
    own_id, timestamp = content.text_at(document, "id"), content.text_at(document, "timestamp")
    header_values = {name: document[name] for name in document if name != "state_snapshot"}
    phase = _rename_phase(content.text_at(state, "phase").strip().lower())
    content.remark_missing_offset((timestamp,), remarks)
    errors = content.parse_errors(state.get("errors"), remarks)
    documents = content.to_strings(state.get("artifacts"))
    continuation = content.RunContinuation("rlm-act")
    if phase == "tdd_planning" and documents:
        # Planning starts from finished research; no other phase is known to be complete.
        input_files = {"research_path": documents[0]}
        continuation = content.RunContinuation("rlm-act", ("research",), {}, input_files)
    return FileRecord(
        content.WORKFLOW,
        identity=own_id or source.path,
        name="rlm-act",
        phase=_correct_label(content.text_at(document, "phase"), remarks),
        state={**state, KEY: {"format": content.WORKFLOW, **header_values}},
        timestamp=timestamp,
        time=content.to_instant(timestamp),
        is_local=True,
        commit=content.text_at(document, "git_commit"),
        errors=tuple(error for error in errors if error),
        id=own_id if ids.is_checkpoint_id(own_id) else None,
        continuation=continuation,
        remarks=remarks.clauses,
    )


def _read_continuation(
    state: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], remarks: Remarks
) -> content.RunContinuation:
    statuses = {name: content.text_at(results.get(name, {}), "status") for name in PHASES}
    completed = [name for name in PHASES if statuses[name] in ("complete", "skipped")]
    metadata = {phase: content.table_at(results.get(phase, {}), "metadata") for phase in PHASES}
    research_files = content.to_strings(results.get("research", {}).get("artifacts")) or [""]
    paths = {"research": ("research_path", research_files[0])}
    for key, phase in (("hierarchy_path", "decomposition"), ("plan_path", "tdd_planning")):
        paths[phase] = (key, content.text_at(metadata[phase], key))
    input_files = dict(entry for phase, entry in paths.items() if phase in completed and entry[1])
    state_metadata = content.table_at(state, "metadata")
    plan_name = content.text_at(state_metadata, "plan_name") or content.text_at(state, "plan_name")
    sync = metadata["beads_sync"]
    epic = content.text_at(sync, "epic_id") or content.text_at(state, "beads_epic_id")

    def join_valid(name: str, values: list[str], form: re.Pattern[str]) -> str:
        for value in values:
            if value and not form.fullmatch(value):
                remarks.add(f"has {value!r:.60}, which is not valid as {name}")
        return " ".join(value for value in values if form.fullmatch(value))

    inputs = {
        "issues": join_valid("issues", content.to_strings(sync.get("phase_issue_ids")), _ISSUE),
        "epic": join_valid("epic", [epic], _ISSUE),
        "question": content.text_at(state_metadata, "research_question")
        or content.text_at(state, "research_question"),
        "plan_name": join_valid("plan_name", [plan_name], _PLAN),
    }
    inputs = {name: value for name, value in inputs.items() if value}
    return content.RunContinuation("rlm-act", tuple(completed), inputs, input_files)


def _rename_phase(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


def _correct_label(text: str, remarks: Remarks) -> str:
    if text == "markdown-plan-skip":  # for a plan in Markdown: four phases count as complete
        return "multi_doc-skipped"
    name, hyphen, status = text.rpartition("-")
    if not hyphen or status not in _STATUSES:
        remarks.add(f"has the phase {text!r:.60}, which has no status")
        return f"{_rename_phase(text) or 'unknown'}-partial"
    if _rename_phase(name) not in PHASES:
        remarks.add(f"has the phase {name!r:.60}, which rlm-act does not have")
    return f"{_rename_phase(name)}-{status}"


def write_checkpoint(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    state = jsonable.state_to_json(checkpoint)
    imported = content.to_mapping(state.pop(KEY, None))
    is_rlm_act = content.text_at(imported, "format") == RLM_ACT
    is_intact = is_rlm_act and checkpoint.imported is not None
    if not is_intact:
        # A state with the keys of rlm-act is taken as a state of rlm-act.
        has_results = isinstance(state.get("phase_results"), dict)
        is_tool_state = is_rlm_act or (has_results and bool(content.text_at(state, "project_path")))
        state = _make_pipeline_state(checkpoint, state if is_tool_state else {}, state, losses)
    label = content.text_at(imported, "phase") if is_intact else _tool_label(checkpoint, losses)
    document = {
        "id": checkpoint.id,
        "phase": label,
        "timestamp": checkpoint.timestamp,
        "state": state,
        "errors": list(checkpoint.errors),
        "git_commit": checkpoint.git_sha or content.text_at(imported, "git_commit"),
        **{key: imported[key] for key in imported if is_rlm_act and key not in (*_KEYS, "format")},
    }
    return json.dumps(document, indent=2, ensure_ascii=True).encode("ascii")


def _tool_label(checkpoint: Checkpoint, losses: list[str]) -> str:
    name, status = checkpoint.phase_name, checkpoint.status
    if name not in PHASES:
        losses.append(f"the phase {name}, which rlm-act does not have")
    if status not in ("complete", "failed", "skipped"):
        losses.append(f"the status {status or 'none'}: replaced by failed")
        return f"{name}-failed"
    return checkpoint.label


def _make_pipeline_state(
    checkpoint: Checkpoint, imported: Mapping[str, Any], state: Mapping[str, Any], losses: list[str]
) -> dict[str, Any]:
    # `imported` is the imported state or a later version; empty if the run was not imported.
    pipeline = checkpoint.pipeline
    completed = dict(pipeline.completed) if pipeline is not None else {}
    name, status = checkpoint.phase_name, checkpoint.status
    end_time = times.to_text(checkpoint.time).removesuffix("Z")
    entries = content.table_at(imported, "phase_results").items()
    results: dict[str, Any] = {phase: dict(content.to_mapping(result)) for phase, result in entries}

    def set_phase_result(phase: str, new: str) -> None:
        empty: dict[str, Any] = {"phase_type": phase, "status": new, "artifacts": [], "errors": []}
        empty |= dict.fromkeys(("started_at", "completed_at", "duration_seconds"))
        result = results.get(phase, {**empty, "metadata": {}})
        ended = end_time if phase == name and new != "in_progress" else result.get("completed_at")
        errors = list(checkpoint.errors) if phase == name else []
        results[phase] = {**result, "status": new, "errors": errors, "completed_at": ended}

    for phase in PHASES:
        if phase in completed and results.get(phase, {}).get("status") != "complete":
            set_phase_result(phase, "complete")
    if name in PHASES and name not in completed:
        result_statuses = {"complete": "complete", "skipped": "complete", "failed": "failed"}
        set_phase_result(name, result_statuses.get(status, "in_progress"))
    unknown_phases = [phase for phase in completed if phase not in PHASES]
    losses += [f"the phase {phase}, which rlm-act does not have" for phase in unknown_phases]
    new_values = {key: value for key, value in state.items() if key not in imported}
    autonomy = pipeline.autonomy if pipeline is not None else None
    mode = autonomy if autonomy in ("batch", "fully_autonomous") else "checkpoint"
    epic = content.text_at(imported, "beads_epic_id") or content.text_at(state, "epic") or None
    return {
        **imported,
        "project_path": content.text_at(imported, "project_path") or ".",
        "autonomy_mode": content.text_at(imported, "autonomy_mode") or mode,
        "current_phase": name if name in PHASES else None,
        "phase_results": {name: results[name] for name in (*PHASES, *results) if name in results},
        "context_entry_ids": content.table_at(imported, "context_entry_ids"),
        "started_at": content.text_at(imported, "started_at") or None,
        "checkpoint_id": imported.get("checkpoint_id"),
        "beads_epic_id": epic,
        "metadata": {**content.table_at(imported, "metadata"), **new_values},
    }


# The keys of a `PipelineState` in order.
STATE = (
    *("project_path", "autonomy_mode", "current_phase", "phase_results", "context_entry_ids"),
    *("started_at", "checkpoint_id", "beads_epic_id", "metadata"),
)
