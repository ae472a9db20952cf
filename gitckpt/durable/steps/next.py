"""Where a run goes on: the step by the machine, and of a step with tasks the first one that the plan has open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gitckpt.durable.steps import machine, plan, statuses
from gitckpt.durable.steps.graph import Graph
from gitckpt.durable.steps.machine import OutOfOrder, StepPosition
from gitckpt.durable.steps.plan import PlanTask
from gitckpt.git.files import regular
from gitckpt.model.errors import NotFoundError, UsageError
from gitckpt.model.names import shell_word
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


PLAN = "plan.md"
_TRACKS = os.path.join("conductor", "tracks")
_LARGEST = 16_000_000


@dataclass(frozen=True, slots=True)
class NextStep:
    """Where a run goes on.

    Attributes:
        step: the name of the step; `COMPLETE` where nothing is left to do.
        status: of the step.
        task: the name of the task; None where the step has none, or all of them are done.
        title: the text of that task, where a plan has it.
        plan: the path of the plan that was read; None without one.
        remarks: where plan and records disagree, and what else a person should know, a sentence each.
    """

    step: str
    status: str
    task: str | None = None
    title: str | None = None
    plan: str | None = None
    remarks: tuple[str, ...] = ()


def next_of(
    graph: Graph, state: Mapping[str, Any], top: str | None, *, path: str | None = None, resume_from: str | None = None
) -> NextStep:
    """Returns where a run goes on.

    Args:
        graph: its steps.
        state: its state.
        top: the worktree in which its plan is looked for; None where there is none.
        path: of the plan; by default the one that the steps have reported, `plan.md`, or the one of its track.
        resume_from: the number of the task to go on with, whatever plan and records say.

    Raises:
        StepsBlocked: the run is blocked.
        NotFoundError: there is no such file, or no such task in the plan.
        UsageError: the run is at a step without tasks; or the plan cannot be read.
    """
    here = machine.position(graph, state)
    if here.status == statuses.BLOCKED:
        raise machine.blocked(here)
    step = graph.find(here.step)
    if step is None or not step.has_tasks:
        if resume_from is not None:
            raise OutOfOrder(f"the run is at {here.step}, which has no tasks", hint="see where it is: git ckpt step show")
        return NextStep(here.step, here.status, remarks=tuple(_of_position(graph, here, state)))
    found = _plan(graph, state, here.step, top, path)
    record = machine.record_of(graph, state, here.step)
    remarks = list(_of_position(graph, here, state))
    if found is None:
        if resume_from is None:
            remarks.append("there is no plan to take the task from; name it: --plan FILE")
        return NextStep(here.step, here.status, _number(resume_from) if resume_from else None, remarks=tuple(remarks))
    shown, tasks = found
    if resume_from is not None:
        task: PlanTask | None = _named(tasks, resume_from, shown)
        if task is not None and task.is_done:
            remarks.append(f"task {task.name} is done, by {shown}")
    else:
        task = plan.first_open(tasks)
        remarks += _disagreements(record, tasks, task, shown)
    if task is None:
        remarks.append(f"all tasks of {shown} are done: git ckpt step pass {shell_word(here.step)}" if tasks else f"{shown} has no tasks")
    elif task.mark == plan.STUCK:
        remarks.append(f"task {task.name} is marked as blocked in {shown}, line {task.line}")
    name, title = (task.name, task.title) if task is not None else (None, None)
    return NextStep(here.step, here.status, name, title, shown, tuple(remarks))


def _of_position(graph: Graph, here: StepPosition, state: Mapping[str, Any]) -> Iterator[str]:
    if not here.known:
        yield f"{graph.name} has no step {here.step}, at which the run is; to go on: git ckpt step reset STEP"
    for each in machine.active_blockers(state):
        yield f"not settled yet: {each.get('description', '')} (at {each.get('blocked_step', 'no step')})"
    if here.status == statuses.FAILED:
        notes = machine.record_of(graph, state, here.step).get("notes")
        yield f"{here.step} failed: {notes}" if notes else f"{here.step} failed"


def _disagreements(record: Mapping[str, Any], tasks: Sequence[PlanTask], first: PlanTask | None, shown: str) -> Iterator[str]:
    """Yields where the records of a step say something else than the plan, which is right."""
    last = record.get("last_task")
    number = statuses.task_id(last) if isinstance(last, str) else None
    here = f"it goes on with {first.name}" if first is not None else "nothing is left to do"
    there = {task.id: task for task in tasks if task.id is not None}
    if number is not None and number not in there:
        yield f"last_task is {number}, which {shown} does not have; {here}"
    elif number is not None and not there[number].is_done:
        yield f"last_task is {number}, which {shown} has open; {here}"
    elif number is not None and plan.open_after(tasks, number) != first and first is not None:
        yield f"last_task is {number}, but {shown} has {first.name} open before it; {here}"
    known = record.get("tasks")
    said = {statuses.task_id(name): task for name, task in known.items() if isinstance(task, Mapping)} if isinstance(known, Mapping) else {}
    for name, task in there.items():
        told = statuses.status(said[name].get("status")) if name in said else None
        if told == statuses.PASSED and not task.is_done and name != number:
            yield f"task {name} is reported as {told}, and {shown} has it open"
        elif told is not None and told != statuses.PASSED and task.is_done:
            yield f"task {name} is reported as {told}, and {shown} has it done"


def _plan(graph: Graph, state: Mapping[str, Any], step: str, top: str | None, path: str | None) -> tuple[str, list[PlanTask]] | None:
    """Returns how the plan is called, and its tasks; None where there is none."""
    if path is not None:
        return path, plan.tasks(_text(path))
    for name in _candidates(graph, state, step) if top is not None else ():
        found = os.path.join(top or "", name)
        # What a state names may come from somebody else: only a file of the worktree is a plan.
        if os.path.isfile(found) and os.path.realpath(found).startswith(os.path.realpath(top or "") + os.sep):
            return name, plan.tasks(_text(found))
    return None


def _candidates(graph: Graph, state: Mapping[str, Any], step: str) -> Iterator[str]:
    for name in dict.fromkeys((step, *(each.name for each in graph.steps))):
        files = machine.record_of(graph, state, name).get("output_files")
        for file in files if isinstance(files, list) else ():
            if isinstance(file, str) and "\0" not in file and os.path.basename(file) == PLAN:
                yield file
    yield PLAN
    track = state.get("track_id")
    if isinstance(track, str) and "\0" not in track:
        yield os.path.join(_TRACKS, track, PLAN)


def _named(tasks: Sequence[PlanTask], text: str, shown: str) -> PlanTask:
    number = _number(text)
    for task in tasks:
        if number in (task.id, task.title):
            return task
    known = ", ".join(task.name for task in tasks[:20]) or "none"
    raise NotFoundError(f"{shown} has no task {number!r}", hint=f"its tasks: {known}")


def _number(text: str) -> str:
    return statuses.task_id(text) or text


def _text(path: str) -> str:
    try:
        return regular.content(path, _LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="name the plan: --plan FILE") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
