"""superpowers: `conductor/tracks/<track>/metadata.json`, the steps of a track.

Agents edit these files by hand and deviate from their prompts, so any JSON object of a track is
accepted. The state is the file itself; `durable.steps` interprets its words, and nothing rewrites
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.steps import machine, report
from gitckpt.durable.steps.graph import COMPLETE, Graph
from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import SUPERPOWERS, Record, Remarks, Source, Unreadable
from gitckpt.model import jsonable, times
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import UsageError

_LABELS = {
    report.NOT_STARTED: "progress",
    report.IN_PROGRESS: "progress",
    report.PASSED: "complete",
    report.FAILED: "failed",
    report.BLOCKED: "blocked",
    report.SKIPPED: "skipped",
}
_REQUIRED = ("status", "started_at", "agent", "last_updated")
_OPEN = ("- [ ]", "* [ ]")
_TICKED = ("- [x]", "* [x]", "- [X]", "* [X]")


def is_one(found: Mapping[str, Any]) -> bool:
    return isinstance(found.get("loop_state"), dict) or (
        "track_id" in found and ("status" in found or "type" in found)
    )


def read(source: Source, graph: Graph) -> Record:
    remarks = Remarks()
    found = content.json_of(source, remarks)
    # Version 1 has no loop_state.
    if not is_one(found):
        raise Unreadable("it lacks loop_state or track_id")
    parts = source.path.replace("\\", "/").split("/")
    track = content.string(found.get("track_id")) or (parts[-2] if len(parts) > 1 else "track")
    state = dict(found) if found.get("track_id") else {**found, "track_id": track}
    if not isinstance(found.get("loop_state"), dict):
        state["loop_state"] = {"current_step": _inferred(source)}
        lacks = f"has {found.get('loop_state')!r:.60} for loop_state, which the original alone has"
        lacks = (
            lacks
            if found.get("loop_state") is not None
            else "has no loop_state, as files of version 1"
        )
        remarks.add(f"{lacks}: by its plan it is at {state['loop_state']['current_step']}")
    try:
        here = machine.position(graph, state)
    except UsageError as error:
        raise Unreadable(error.message) from None
    _lint(graph, state, remarks)
    checkpoints = content.mapping(content.mapping(state["loop_state"]).get("checkpoints"))
    told = [content.mapping(each).get("last_updated") for each in checkpoints.values()]
    told += [found.get("updated_at"), found.get("completed_at")]
    instants = [at for each in told if (at := content.instant(each)) is not None]
    begun = found.get("created_at", found.get("created"))
    is_naive = content.note_times((*told, begun), remarks)
    created = content.instant(begun)
    newest = max(instants, default=created)
    notes = content.string(content.mapping(checkpoints.get(here.step)).get("notes"))
    has_failed = here.status in (report.FAILED, report.BLOCKED)
    return Record(
        SUPERPOWERS,
        identity=json.dumps([track, source.path]),
        by_path=True,
        name=track,
        phase="run-complete" if here.step == COMPLETE else f"{here.step}-{_LABELS[here.status]}",
        state=state,
        said=times.to_text(newest) if newest is not None else "",
        time=newest,
        started=created if created is not None else newest,
        is_local=is_naive,
        errors=tuple(each for each in (*here.reasons, notes) if each) if has_failed else (),
        remarks=tuple(remarks.said),
    )


# Of a version 1 track, which does not say it.
def _inferred(source: Source) -> str:
    plan = source.beside.get("plan.md", b"").decode("utf-8", "replace")
    lines = [line.strip() for line in plan.splitlines()]
    if any(line.startswith(_OPEN) for line in lines):
        return "EXECUTE"
    return "EVALUATE_EXECUTION" if any(line.startswith(_TICKED) for line in lines) else "PLAN"


def _lint(graph: Graph, state: Mapping[str, Any], remarks: Remarks) -> None:
    loop = content.mapping(state["loop_state"])
    said = loop.get("current_step")
    if graph.find(said) is None and not (said is None or report.status_of(said) is not None):
        remarks.add(f"is at the step {str(said)!r:.60}, which is none of the protocol's")
    elif isinstance(said, str) and (found := graph.find(said)) is not None and found.name != said:
        remarks.add(f"calls the step {found.name} {said!r:.60}")
    for name, record in content.mapping(loop.get("checkpoints")).items():
        if graph.find(name) is None:
            remarks.add(f"has a record of the step {name!r:.60}, which is none of the protocol's")
        if not isinstance(record, dict):
            remarks.add(f"has a record of {name!r:.60} that is no object")
            continue
        lacking = [key for key in _REQUIRED if not record.get(key)]
        if lacking and report.status_of(record.get("status")) != report.NOT_STARTED:
            remarks.add(f"has a record of {name!r:.60} without {', '.join(lacking)}")
        word = record.get("status")
        if word is not None and report.status_of(word) is None:
            remarks.add(f"has the status {str(word)!r:.60}, which is none of the protocol's")


def write(checkpoint: Checkpoint, _losses: list[str]) -> bytes:
    # The format takes any key, so nothing is lost.
    state = jsonable.state(checkpoint)
    if not isinstance(state.get(machine.LOOP), dict):
        raise Unreadable("its state has no steps: nothing in it is superpowers'")
    if "track_id" not in state:
        state = {"track_id": checkpoint.run or checkpoint.id, **state}
    if "version" not in state:
        state = {"version": 3, **state}
    return (json.dumps(state, indent=2, ensure_ascii=False) + "\n").encode()
