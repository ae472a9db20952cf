"""rlm-act: `.rlm-act-checkpoints/<uuid>.json`, a file per phase with all results.

Older format: `.workflow-checkpoints/<uuid>.json`, one file per failure. Fields and quirks: the
source of tha-hammer/silmari-Context-Engine (MIT), and 44 files that it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import (
    KEY,
    RLM_ACT,
    WORKFLOW,
    Drive,
    Record,
    Remarks,
    Source,
    Unreadable,
)
from gitckpt.model import ids, jsonable, times
from gitckpt.model.checkpoint import Checkpoint

PHASES = ("research", "decomposition", "tdd_planning", "multi_doc", "beads_sync", "implementation")

# Names in its requirements → names in its code.
_ALSO = {
    "planning": "tdd_planning",
    "phase_decomposition": "multi_doc",
    "beads_integration": "beads_sync",
}

_STATUSES = ("complete", "failed", "skipped")
# Written for a plan in Markdown: the first four phases count as complete.
_MARKDOWN = "markdown-plan-skip"

# Arguments of `bd`, and directories of the worktree: no options, and no `..`.
_ISSUE, _PLAN = re.compile(r"\w[\w.:#-]*"), re.compile(r"\w[\w. -]*")

_DONE = ("complete", "skipped")
_KEYS = ("id", "phase", "timestamp", "state", "errors", "git_commit")


def is_one(found: Mapping[str, Any]) -> bool:
    return all(key in found for key in ("id", "phase", "timestamp")) and isinstance(
        found.get("state"), dict
    )


def is_workflow(found: Mapping[str, Any]) -> bool:
    return all(key in found for key in ("id", "phase", "timestamp")) and isinstance(
        found.get("state_snapshot"), dict
    )


def read(source: Source) -> Record:
    remarks = Remarks()
    found = content.json_of(source, remarks)
    if not is_one(found):
        raise Unreadable(f"it lacks one of {', '.join(_KEYS[:4])}")
    state = content.mapping(found["state"])
    results = {
        _phase(name): content.mapping(each)
        for name, each in content.mapping(state.get("phase_results")).items()
    }
    own, label = content.string(found["id"]), content.string(found["phase"])
    said = content.string(found["timestamp"])
    started = content.string(state.get("started_at"))
    errors = content.errors_of(found.get("errors"), remarks)
    content.note_times((said, started), remarks)
    for name in sorted(found.keys() - set(_KEYS)):
        remarks.add(f"has a key {name!r:.60}, which is kept")
    beside = {name: found[name] for name in found if name not in ("state", "errors")}
    return Record(
        RLM_ACT,
        identity=json.dumps(
            [content.string(state.get("project_path")), started] if started else [own, source.path]
        ),
        name="rlm-act",
        phase=_label(label, remarks),
        state={**state, KEY: {"format": RLM_ACT, **beside}},
        said=said,
        time=content.instant(said),
        started=content.instant(started),
        is_local=True,
        commit=content.string(found.get("git_commit")),
        errors=errors,
        id=own if ids.is_id(own) else None,
        place=len(results),
        drive=_drive(state, results, remarks),
        remarks=tuple(remarks.said),
    )


def read_workflow(source: Source) -> Record:
    remarks = Remarks()
    found = content.json_of(source, remarks)
    if not is_workflow(found):
        raise Unreadable("it lacks one of id, phase, timestamp, state_snapshot")
    state = content.mapping(found["state_snapshot"])
    own, said = content.string(found["id"]), content.string(found["timestamp"])
    beside = {name: found[name] for name in found if name != "state_snapshot"}
    phase = _phase(content.string(state.get("phase")).strip().lower())
    content.note_times((said,), remarks)
    errors = content.errors_of(state.get("errors"), remarks)
    documents = content.strings(state.get("artifacts"))
    is_planning = phase == "tdd_planning" and bool(documents)
    return Record(
        WORKFLOW,
        identity=own or source.path,
        name="rlm-act",
        phase=_label(content.string(found["phase"]), remarks),
        state={**state, KEY: {"format": WORKFLOW, **beside}},
        said=said,
        time=content.instant(said),
        is_local=True,
        commit=content.string(found.get("git_commit")),
        errors=tuple(each for each in errors if each),
        id=own if ids.is_id(own) else None,
        # Planning starts from finished research; no other phase is known to be complete.
        drive=Drive(
            "rlm-act",
            ("research",) if is_planning else (),
            {},
            {"research_path": documents[0]} if is_planning else {},
        ),
        remarks=tuple(remarks.said),
    )


def _drive(
    state: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], remarks: Remarks
) -> Drive:
    done = [name for name in PHASES if content.string(results.get(name, {}).get("status")) in _DONE]

    def said(phase: str, key: str) -> Any:
        return content.mapping(results.get(phase, {}).get("metadata")).get(key)

    researched = content.strings(results.get("research", {}).get("artifacts"))
    places = (
        ("research_path", "research", researched[0] if researched else ""),
        (
            "hierarchy_path",
            "decomposition",
            content.string(said("decomposition", "hierarchy_path")),
        ),
        ("plan_path", "tdd_planning", content.string(said("tdd_planning", "plan_path"))),
    )
    files = {name: path for name, phase, path in places if phase in done and path}
    named = content.mapping(state.get("metadata"))
    plan_name = content.string(named.get("plan_name")) or content.string(state.get("plan_name"))
    epic = content.string(said("beads_sync", "epic_id")) or content.string(
        state.get("beads_epic_id")
    )

    def words(name: str, found: list[str], form: re.Pattern[str]) -> str:
        for each in found:
            if each and not form.fullmatch(each):
                remarks.add(f"has {each!r:.60}, which is not taken as {name}")
        return " ".join(each for each in found if form.fullmatch(each))

    inputs = {
        "issues": words("issues", content.strings(said("beads_sync", "phase_issue_ids")), _ISSUE),
        "epic": words("epic", [epic], _ISSUE),
        "question": content.string(named.get("research_question"))
        or content.string(state.get("research_question")),
        "plan_name": words("plan_name", [plan_name], _PLAN),
    }
    return Drive(
        "rlm-act", tuple(done), {name: value for name, value in inputs.items() if value}, files
    )


def _phase(name: str) -> str:
    return _ALSO.get(name, name)


def _label(said: str, remarks: Remarks) -> str:
    if said == _MARKDOWN:
        return "multi_doc-skipped"
    name, hyphen, status = said.rpartition("-")
    if not hyphen or status not in _STATUSES:
        remarks.add(f"has the phase {said!r:.60}, which says no status")
        return f"{_phase(said) or 'unknown'}-partial"
    if _phase(name) not in PHASES:
        remarks.add(f"has the phase {name!r:.60}, which the tool does not know")
    return f"{_phase(name)}-{status}"


def write(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    """Return a checkpoint as rlm-act writes it: indented by 2, no final line break."""
    state = jsonable.state(checkpoint)
    own = content.mapping(state.pop(KEY, None))
    known = content.string(own.get("format")) == RLM_ACT
    is_untouched = known and checkpoint.imported is not None
    if not is_untouched:
        # A state with rlm-act's own keys is taken as rlm-act's.
        is_its_own = known or (
            isinstance(state.get("phase_results"), dict)
            and bool(content.string(state.get("project_path")))
        )
        state = _pipeline_state(checkpoint, state if is_its_own else {}, state, losses)
    document = {
        "id": checkpoint.id,
        "phase": content.string(own.get("phase")) if is_untouched else _strict(checkpoint, losses),
        "timestamp": checkpoint.timestamp,
        "state": state,
        "errors": list(checkpoint.errors),
        "git_commit": checkpoint.git_sha or content.string(own.get("git_commit")),
        **(
            {key: value for key, value in own.items() if key not in (*_KEYS, "format")}
            if known
            else {}
        ),
    }
    return json.dumps(document, indent=2, ensure_ascii=True).encode("ascii")


def _strict(checkpoint: Checkpoint, losses: list[str]) -> str:
    """Return a label that rlm-act accepts: its phases end complete or failed."""
    name, status = checkpoint.phase_name, checkpoint.status
    if name not in PHASES:
        losses.append(f"the phase {name}, which rlm-act does not have")
    if status not in ("complete", "failed", "skipped"):
        losses.append(f"the status {status or 'none'}: it stands there as failed")
        return f"{name}-failed"
    return checkpoint.label


def _pipeline_state(
    checkpoint: Checkpoint, before: Mapping[str, Any], state: Mapping[str, Any], losses: list[str]
) -> dict[str, Any]:
    """Return a `PipelineState` with the project and autonomy that the loader needs."""
    # `before` is the imported state, or its later version; empty for other runs.
    pipeline = checkpoint.pipeline
    done = dict(pipeline.completed) if pipeline is not None else {}
    name, status = checkpoint.phase_name, checkpoint.status
    at = times.to_text(checkpoint.time).removesuffix("Z")
    results: dict[str, Any] = {
        phase: dict(content.mapping(each))
        for phase, each in content.mapping(before.get("phase_results")).items()
    }

    def note(phase: str, how: str) -> None:
        fresh: dict[str, Any] = {
            "phase_type": phase,
            "status": how,
            "artifacts": [],
            "errors": [],
            "started_at": None,
            "completed_at": None,
        }
        known = results.get(phase, {**fresh, "duration_seconds": None, "metadata": {}})
        is_here = phase == name
        ended = at if is_here and how != "in_progress" else known.get("completed_at")
        results[phase] = {
            **known,
            "status": how,
            "errors": list(checkpoint.errors) if is_here else [],
            "completed_at": ended,
        }

    for phase in PHASES:
        if (
            phase in done
            and content.string(content.mapping(results.get(phase)).get("status")) != "complete"
        ):
            note(phase, "complete")
    if name in PHASES and name not in done:
        note(
            name,
            {"complete": "complete", "skipped": "complete", "failed": "failed"}.get(
                status, "in_progress"
            ),
        )
    losses += [
        f"the phase {phase}, which rlm-act does not have" for phase in done if phase not in PHASES
    ]
    known = dict(before)
    rest = {key: value for key, value in state.items() if key not in before}
    modes = ("checkpoint", "batch", "fully_autonomous")
    told = content.string(known.get("autonomy_mode"))
    mode = told or (
        pipeline.autonomy if pipeline is not None and pipeline.autonomy in modes else "checkpoint"
    )
    return {
        **known,
        "project_path": content.string(known.get("project_path")) or ".",
        "autonomy_mode": mode,
        "current_phase": name if name in PHASES else None,
        "phase_results": {
            phase: results[phase] for phase in (*PHASES, *results) if phase in results
        },
        "context_entry_ids": content.mapping(known.get("context_entry_ids")),
        "started_at": content.string(known.get("started_at")) or None,
        "checkpoint_id": known.get("checkpoint_id"),
        "beads_epic_id": content.string(known.get("beads_epic_id"))
        or content.string(state.get("epic"))
        or None,
        "metadata": {**content.mapping(known.get("metadata")), **rest},
    }


# The keys of a `PipelineState` in order.
STATE = (
    *("project_path", "autonomy_mode", "current_phase", "phase_results", "context_entry_ids"),
    *("started_at", "checkpoint_id", "beads_epic_id", "metadata"),
)
