"""A run of steps at a glance, for `git ckpt step show`. Pure: from a state to what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.steps import machine, statuses
from gitckpt.durable.steps.graph import Graph
from gitckpt.model.checkpoint import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.steps.history import StepEvent
    from gitckpt.durable.steps.machine import StepPosition
    from gitckpt.model.checkpoint import Checkpoint

_PROGRESS = ("current_phase", "total_phases", "current_task", "tasks_completed", "tasks_total")


def shown(graph: Graph, state: Mapping[str, Any]) -> list[str]:
    """Returns the names of the steps that a person wants to see: those that are always done, those that were, and those of others."""
    here = machine.position(graph, state)
    own = [
        step.name
        for step in graph.steps
        if not (step.optional or step.only_if) or step.name == here.step or machine.record_of(graph, state, step.name)
    ]
    others = machine.loop_of(state).get("checkpoints") or {}
    return own + [name for name in others if graph.find(name) is None]


def status_of(here: StepPosition, name: str, record: Mapping[str, Any]) -> str:
    """Returns the status of a step.

    Args:
        here: where the run is.
        name: of the step.
        record: what is known of it.
    """
    return str(record.get("status") or (here.status if name == here.step else statuses.NOT_STARTED))


def document(graph: Graph, newest: Checkpoint, events: Sequence[StepEvent] | None) -> dict[str, Any]:
    """Returns what `--json` prints.

    Args:
        graph: the steps of the run.
        newest: its newest checkpoint, with the state.
        events: its history; None where that is not wanted.
    """
    state = newest.state
    here, loop = machine.position(graph, state), machine.loop_of(state)
    found: dict[str, Any] = {
        "run": newest.run,
        "graph": graph.name,
        "step": here.step,
        "status": here.status,
        "fix_cycle_count": loop.get("fix_cycle_count", 0),
        "max_fix_cycles": loop.get("max_fix_cycles", graph.max_fix_cycles),
        "iterations": loop.get("iterations", 0),
        "max_iterations": graph.max_iterations,
        "blockers": list(state.get(machine.BLOCKERS) or []),
        "steps": [],
    }
    for name in dict.fromkeys((*(step.name for step in graph.steps), *shown(graph, state))):
        record = dict(machine.record_of(graph, state, name))
        found["steps"].append({"step": name, "status": status_of(here, name, record), "record": record})
    return found | ({"history": [_event(event) for event in events]} if events is not None else {})


def _event(event: StepEvent) -> dict[str, Any]:
    progress = event.progress or Progress()
    plain = {name: getattr(event, name) for name in event.__slots__ if name not in ("errors", "progress")}
    return plain | {"errors": list(event.errors), "progress": {name: getattr(progress, name) for name in _PROGRESS}}
