"""forge: `.forge/runs/<id>.yaml`, one file per run, overwritten at each step.

Fields, values and quirks: the source of shahar-caura/forge (MIT), and files that it wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from gitckpt.formats.systems import content, yaml_text
from gitckpt.formats.systems.content import FORGE, KEY, Drive, Record, Remarks, Source, Unreadable
from gitckpt.model import ids, jsonable
from gitckpt.model.arguments import first_of
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.phase import NOT_PHASES

# Steps of the preset plan-to-pr, by forge's names. Later versions of forge have more.
STEPS = (
    "read plan",
    "generate branch",
    "create worktree",
    "run agent",
    "commit and push",
    "create pr",
)

NUMBERS = ("pr_number", "cr_retry_count")
TIMES = frozenset(("created_at", "updated_at"))

# Keys in the order of forge's struct; only those in `_ALWAYS` are written if they are empty.
ORDER = (
    *(
        "id",
        "plan_path",
        "mode",
        "status",
        "created_at",
        "updated_at",
        "branch",
        "worktree_path",
        "pr_url",
        "pr_number",
    ),
    *(
        "issue_key",
        "issue_url",
        "cr_feedback",
        "plan_title",
        "cr_fix_summary",
        "source_issue",
        "cr_retry_count",
        "steps",
    ),
)

_ALWAYS = frozenset(("id", "plan_path", "status", "created_at", "updated_at", "steps"))
_ENDED = ("complete", "skipped")


def is_one(found: Mapping[str, Any]) -> bool:
    steps = found.get("steps")
    named = isinstance(steps, list) and all(
        isinstance(each, dict) and "name" in each for each in steps
    )
    return (
        named and isinstance(found.get("id"), str) and "status" in found and "created_at" in found
    )


def read(source: Source) -> Record:
    remarks = Remarks()
    found = content.table(yaml_text.read(content.text_of(source, remarks), remarks), remarks)
    if not is_one(found):
        raise Unreadable("it lacks one of id, status, created_at, or steps with names")
    for key in NUMBERS:
        text = found.get(key)
        if isinstance(text, str) and text.isdecimal() and len(text) < 19:
            found[key] = int(text)
    for key in sorted(found.keys() - set(ORDER)):
        remarks.add(f"has a key {key!r:.60}, which is kept")
    own, steps = found["id"], content.mappings(found["steps"])
    names = [content.string(each.get("name")) for each in steps]
    open_ = {
        name for name, each in zip(names, steps, strict=True) if each.get("status") != "completed"
    }
    done = set(names) - open_
    for name in sorted({name for name in names if names.count(name) > 1}):
        remarks.add(
            f"has the step {name!r:.60} more than once: it is complete where all of them are"
        )
    others = [name for name in names if name not in STEPS]
    if others:
        named = first_of([f"{name:.60}" for name in others], 20)
        remarks.add(
            f"has the steps {named}, which plan-to-pr does not have: they stay in the state"
        )
    said = content.string(found.get("updated_at")) or content.string(found["created_at"])
    for key in TIMES:
        if (
            len(
                content.string(found.get(key))
                .partition(".")[2]
                .rstrip("Zz")
                .partition("+")[0]
                .partition("-")[0]
            )
            > 6
        ):
            remarks.add("has times to the nanosecond: they are kept to the microsecond")
    is_naive = content.note_times((said, found["created_at"]), remarks)
    plan = content.string(found.get("plan_path"))
    phase = _label(found, names, steps)
    has_title = bool(content.string(found.get("plan_title")))
    if plan and not has_title and phase != "run-complete" and found.get("mode") != "push":
        done.discard("read plan")  # forge reads it again when it resumes, to get the title
    beside = source.beside.get(f"{os.path.basename(own)}-plan.md")
    return Record(
        FORGE,
        identity=json.dumps([own, content.string(found["created_at"])]),
        name=own[16:] if ids.is_run_id(own) else own,
        phase=phase,
        state={**found, KEY: {"format": FORGE}},
        said=said,
        time=content.instant(said),
        started=content.instant(found["created_at"]),
        is_local=is_naive,
        errors=tuple(
            content.string(each.get("error")) for each in steps if content.string(each.get("error"))
        ),
        run=own if ids.is_run_id(own) else None,
        drive=Drive(
            "plan-to-pr",
            tuple(name for name in STEPS if name in done),
            {"plan": plan} if plan else {},
            {"plan": plan} if plan else {},
            {"plan": beside} if beside is not None else {},
        ),
        worktree=content.string(found.get("worktree_path")) or None,
        branch=content.string(found.get("branch")) or None,
        remarks=tuple(remarks.said),
    )


def _label(found: Mapping[str, Any], names: list[str], steps: list[dict[str, Any]]) -> str:
    status = found["status"]
    if status == "completed":
        return "run-complete"
    for wanted, how in (("failed", "failed"), ("running", "started")):
        at = [name for name, each in zip(names, steps, strict=True) if each.get("status") == wanted]
        if at and (status == "failed" or how == "started"):
            return f"{at[-1]}-{how}"
    done = [
        name for name, each in zip(names, steps, strict=True) if each.get("status") == "completed"
    ]
    if status == "failed":
        return f"{done[-1] if done else names[0] if names else 'run'}-failed"
    return f"{done[-1]}-complete" if done else "run-started"


def write(checkpoint: Checkpoint, losses: list[str]) -> bytes:
    if checkpoint.run is None:
        raise Unreadable("a checkpoint outside of a run is none of forge's: it has no steps")
    state = jsonable.state(checkpoint)
    own = content.mapping(state.pop(KEY, None))
    is_forge = content.string(own.get("format")) == FORGE
    pipeline = checkpoint.pipeline
    completed = set(pipeline.completed) if pipeline is not None else set()
    known = (
        {content.string(each.get("name")): each for each in content.mappings(state.get("steps"))}
        if is_forge
        else {}
    )
    # Without a pipeline, only the current step is known.
    own_step = [checkpoint.phase_name] if checkpoint.phase_name not in NOT_PHASES else []
    phases = list(known) or (
        list(pipeline.phases) if pipeline is not None and pipeline.phases else own_step
    )
    is_over = checkpoint.label == "run-complete"
    has_failed = checkpoint.status in ("failed", "blocked")
    steps = []
    for name in phases:
        step: dict[str, Any] = {"name": name, "status": "pending"}
        if (
            is_over
            or name in completed
            or (name not in STEPS and content.mapping(known.get(name)).get("status") == "completed")
        ):
            step["status"] = "completed"
        elif name == checkpoint.phase_name:
            step["status"] = (
                "completed"
                if checkpoint.status in _ENDED
                else "failed"
                if has_failed
                else "running"
            )
            if has_failed and checkpoint.errors:
                step["error"] = "\n".join(checkpoint.errors)
        steps.append(step)
    if checkpoint.phase_name not in phases and not is_over:
        losses.append(f"the phase {checkpoint.phase_name}, which is none of its steps")
    if not any("error" in step for step in steps):
        losses += [f"the error {error!r:.80}" for error in checkpoint.errors]
    inputs = dict(pipeline.inputs) if pipeline is not None else {}
    created = content.string(state.get("created_at")) if is_forge else ""
    values: dict[str, Any] = {key: state.get(key) for key in ORDER}
    values |= {
        "id": content.string(state.get("id")) if is_forge else checkpoint.run,
        "plan_path": content.string(state.get("plan_path")) or inputs.get("plan", ""),
        "status": "completed" if is_over else "failed" if has_failed else "active",
        "created_at": created or _started(checkpoint.run),
        "updated_at": checkpoint.timestamp,
        "branch": content.string(state.get("branch")),
        "steps": steps,
    }
    for key in NUMBERS:
        number = values.get(key)
        values[key] = int(number) if isinstance(number, str) and number.isdecimal() else number
    unknown = {key: value for key, value in state.items() if key not in ORDER} if is_forge else {}
    left = [
        key for key in state if key not in ORDER and not (is_forge and _is_plain(unknown.get(key)))
    ]
    losses += [f"the value {key} of the state" for key in left if key != "plan_hash"]
    table = {
        key: values[key]
        for key in ORDER
        if key in _ALWAYS or values.get(key) not in (None, "", 0, [], {})
    }
    steps_last = table.pop("steps")
    extra = {
        key: value for key, value in unknown.items() if _is_plain(value) and key != "plan_hash"
    }
    return yaml_text.write({**table, **extra, "steps": steps_last}, TIMES)


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, bool))


def _started(run: str) -> str:
    # A run id begins with its start time.
    return f"{run[:4]}-{run[4:6]}-{run[6:8]}T{run[9:11]}:{run[11:13]}:{run[13:15]}Z"
