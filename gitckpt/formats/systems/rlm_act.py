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
from gitckpt.formats.systems.content import KEY, RLM_ACT, Drive, Record, Remarks, Source, Unreadable
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


def is_one(table: Mapping[str, Any], state: str = "state") -> bool:
    return all(key in table for key in _KEYS[:3]) and isinstance(table.get(state), dict)


def is_workflow(table: Mapping[str, Any]) -> bool:
    return is_one(table, "state_snapshot")


def read(source: Source) -> Record:
    remarks = Remarks()
    document = content.json_of(source, remarks)
    if not is_one(document):
        raise Unreadable(f"the file lacks one of {', '.join(_KEYS[:4])}")
    state = content.child(document, "state")
    phase_results = content.child(state, "phase_results").items()
    results = {_phase(name): content.mapping(result) for name, result in phase_results}
    own_id, timestamp = content.text(document, "id"), content.text(document, "timestamp")
    started = content.text(state, "started_at")
    errors = content.errors_of(document.get("errors"), remarks)
    content.note_times((timestamp, started), remarks)
    for name in sorted(document.keys() - set(_KEYS)):
        remarks.add(f"has a key {name!r:.60}, which is stored")
    head = {name: document[name] for name in document if name not in ("state", "errors")}
    identity = [content.text(state, "project_path"), started]
    return Record(
        RLM_ACT,
        identity=json.dumps(identity if started else [own_id, source.path]),
        name="rlm-act",
        phase=_label(content.text(document, "phase"), remarks),
        state={**state, KEY: {"format": RLM_ACT, **head}},
        timestamp=timestamp,
        time=content.instant(timestamp),
        started=content.instant(started),
        is_local=True,
        commit=content.text(document, "git_commit"),
        errors=errors,
        id=own_id if ids.is_id(own_id) else None,
        place=len(results),
        drive=_drive(state, results, remarks),
        remarks=remarks.clauses,
    )


def read_workflow(source: Source) -> Record:
    remarks = Remarks()
    document = content.json_of(source, remarks)
    if not is_workflow(document):
        raise Unreadable("the file lacks one of id, phase, timestamp, state_snapshot")
    state = content.child(document, "state_snapshot")
    own_id, timestamp = content.text(document, "id"), content.text(document, "timestamp")
    head = {name: document[name] for name in document if name != "state_snapshot"}
    phase = _phase(content.text(state, "phase").strip().lower())
    content.note_times((timestamp,), remarks)
    errors = content.errors_of(state.get("errors"), remarks)
    documents = content.strings(state.get("artifacts"))
    drive = Drive("rlm-act")
    if phase == "tdd_planning" and documents:
        # Planning starts from finished research; no other phase is known to be complete.
        drive = Drive("rlm-act", ("research",), {}, {"research_path": documents[0]})
    return Record(
        content.WORKFLOW,
        identity=own_id or source.path,
        name="rlm-act",
        phase=_label(content.text(document, "phase"), remarks),
        state={**state, KEY: {"format": content.WORKFLOW, **head}},
        timestamp=timestamp,
        time=content.instant(timestamp),
        is_local=True,
        commit=content.text(document, "git_commit"),
        errors=tuple(error for error in errors if error),
        id=own_id if ids.is_id(own_id) else None,
        drive=drive,
        remarks=remarks.clauses,
    )


def _drive(
    state: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], remarks: Remarks
) -> Drive:
    statuses = {name: content.text(results.get(name, {}), "status") for name in PHASES}
    completed = [name for name in PHASES if statuses[name] in ("complete", "skipped")]
    metadata = {phase: content.child(results.get(phase, {}), "metadata") for phase in PHASES}
    researched = content.strings(results.get("research", {}).get("artifacts")) or [""]
    places = {"research": ("research_path", researched[0])}
    for key, phase in (("hierarchy_path", "decomposition"), ("plan_path", "tdd_planning")):
        places[phase] = (key, content.text(metadata[phase], key))
    files = dict(place for phase, place in places.items() if phase in completed and place[1])
    details = content.child(state, "metadata")
    plan_name = content.text(details, "plan_name") or content.text(state, "plan_name")
    synced = metadata["beads_sync"]
    epic = content.text(synced, "epic_id") or content.text(state, "beads_epic_id")

    def words(name: str, values: list[str], form: re.Pattern[str]) -> str:
        for value in values:
            if value and not form.fullmatch(value):
                remarks.add(f"has {value!r:.60}, which is not valid as {name}")
        return " ".join(value for value in values if form.fullmatch(value))

    inputs = {
        "issues": words("issues", content.strings(synced.get("phase_issue_ids")), _ISSUE),
        "epic": words("epic", [epic], _ISSUE),
        "question": content.text(details, "research_question")
        or content.text(state, "research_question"),
        "plan_name": words("plan_name", [plan_name], _PLAN),
    }
    inputs = {name: value for name, value in inputs.items() if value}
    return Drive("rlm-act", tuple(completed), inputs, files)


def _phase(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


def _label(text: str, remarks: Remarks) -> str:
    if text == "markdown-plan-skip":  # for a plan in Markdown: four phases count as complete
        return "multi_doc-skipped"
    name, hyphen, status = text.rpartition("-")
    if not hyphen or status not in _STATUSES:
        remarks.add(f"has the phase {text!r:.60}, which has no status")
        return f"{_phase(text) or 'unknown'}-partial"
    if _phase(name) not in PHASES:
        remarks.add(f"has the phase {name!r:.60}, which rlm-act does not have")
    return f"{_phase(name)}-{status}"


def write(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    """Render a checkpoint as rlm-act does: indented by 2, without a final newline."""
    state = jsonable.state(checkpoint)
    imported = content.mapping(state.pop(KEY, None))
    is_rlm_act = content.text(imported, "format") == RLM_ACT
    is_untouched = is_rlm_act and checkpoint.imported is not None
    if not is_untouched:
        # A state with the keys of rlm-act is taken as a state of rlm-act.
        has_results = isinstance(state.get("phase_results"), dict)
        is_of_rlm_act = is_rlm_act or (has_results and bool(content.text(state, "project_path")))
        state = _pipeline_state(checkpoint, state if is_of_rlm_act else {}, state, losses)
    document = {
        "id": checkpoint.id,
        "phase": content.text(imported, "phase") if is_untouched else _accepted(checkpoint, losses),
        "timestamp": checkpoint.timestamp,
        "state": state,
        "errors": list(checkpoint.errors),
        "git_commit": checkpoint.git_sha or content.text(imported, "git_commit"),
        **{key: imported[key] for key in imported if is_rlm_act and key not in (*_KEYS, "format")},
    }
    return json.dumps(document, indent=2, ensure_ascii=True).encode("ascii")


def _accepted(checkpoint: Checkpoint, losses: list[str]) -> str:
    """Return a label that rlm-act accepts; its statuses: complete, failed, skipped."""
    name, status = checkpoint.phase_name, checkpoint.status
    if name not in PHASES:
        losses.append(f"the phase {name}, which rlm-act does not have")
    if status not in ("complete", "failed", "skipped"):
        losses.append(f"the status {status or 'none'}: replaced by failed")
        return f"{name}-failed"
    return checkpoint.label


def _pipeline_state(
    checkpoint: Checkpoint, imported: Mapping[str, Any], state: Mapping[str, Any], losses: list[str]
) -> dict[str, Any]:
    """Return rlm-act's `PipelineState`, with all keys that its loader requires."""
    # `imported` is the imported state or a later version; empty if the run was not imported.
    pipeline = checkpoint.pipeline
    completed = dict(pipeline.completed) if pipeline is not None else {}
    name, status = checkpoint.phase_name, checkpoint.status
    end = times.to_text(checkpoint.time).removesuffix("Z")
    earlier = content.child(imported, "phase_results").items()
    results: dict[str, Any] = {phase: dict(content.mapping(result)) for phase, result in earlier}

    def record(phase: str, new: str) -> None:
        fresh: dict[str, Any] = {"phase_type": phase, "status": new, "artifacts": [], "errors": []}
        fresh |= dict.fromkeys(("started_at", "completed_at", "duration_seconds"))
        result = results.get(phase, {**fresh, "metadata": {}})
        ended = end if phase == name and new != "in_progress" else result.get("completed_at")
        errors = list(checkpoint.errors) if phase == name else []
        results[phase] = {**result, "status": new, "errors": errors, "completed_at": ended}

    for phase in PHASES:
        if phase in completed and results.get(phase, {}).get("status") != "complete":
            record(phase, "complete")
    if name in PHASES and name not in completed:
        ends = {"complete": "complete", "skipped": "complete", "failed": "failed"}
        record(name, ends.get(status, "in_progress"))
    unknown = [phase for phase in completed if phase not in PHASES]
    losses += [f"the phase {phase}, which rlm-act does not have" for phase in unknown]
    new_values = {key: value for key, value in state.items() if key not in imported}
    autonomy = pipeline.autonomy if pipeline is not None else None
    mode = autonomy if autonomy in ("batch", "fully_autonomous") else "checkpoint"
    epic = content.text(imported, "beads_epic_id") or content.text(state, "epic") or None
    return {
        **imported,
        "project_path": content.text(imported, "project_path") or ".",
        "autonomy_mode": content.text(imported, "autonomy_mode") or mode,
        "current_phase": name if name in PHASES else None,
        "phase_results": {name: results[name] for name in (*PHASES, *results) if name in results},
        "context_entry_ids": content.child(imported, "context_entry_ids"),
        "started_at": content.text(imported, "started_at") or None,
        "checkpoint_id": imported.get("checkpoint_id"),
        "beads_epic_id": epic,
        "metadata": {**content.child(imported, "metadata"), **new_values},
    }


# The keys of a `PipelineState` in order.
STATE = (
    *("project_path", "autonomy_mode", "current_phase", "phase_results", "context_entry_ids"),
    *("started_at", "checkpoint_id", "beads_epic_id", "metadata"),
)
