"""The state machine of the steps. Pure functions from states to states.

The state has the layout of superpowers' `metadata.json`: `loop_state` with `current_step`,
`step_status`, `step_started_at`, `fix_cycle_count`, `max_fix_cycles` and `checkpoints` (step →
record), and beside it `blockers`. gitckpt adds `loop_state.graph` (if it is not the default
graph) and `loop_state.iterations`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gitckpt.durable.steps import report
from gitckpt.durable.steps import report as records
from gitckpt.durable.steps import report as statuses
from gitckpt.durable.steps.graph import COMPLETE, END, Graph, StepDefinition
from gitckpt.durable.steps.report import (
    BLOCK,
    ENDS,
    FAIL,
    PASS,
    PROGRESS,
    RESET,
    START,
    PlanTask,
    StepReport,
)
from gitckpt.git.files import regular
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOP, BLOCKERS = "loop_state", "blockers"


class StepsBlocked(CkptError):
    """The run is blocked and needs a person."""

    exit_code = 4


class OutOfOrder(UsageError):
    """The report is about a step that the run is not at."""


@dataclass(frozen=True, slots=True)
class StepPosition:
    step: str  # COMPLETE if nothing is left to do
    status: str  # one of STATUSES
    known: bool = True  # the graph has the step; foreign state files may name any
    reasons: tuple[str, ...] = ()  # descriptions of the active blockers


def position(graph: Graph, state: Mapping[str, Any]) -> StepPosition:
    """Return the step that a run is at.

    A foreign state may name a step that passed, or failed with `on_fail`: the run is then at the
    step that follows.
    """
    loop = _table(state, LOOP)
    known = _table(loop, "checkpoints", "loop_state.")
    said = loop.get("current_step")
    found = graph.find(said) or _standing_for(graph, state, said)
    status = statuses.status_of(loop.get("step_status")) or statuses.NOT_STARTED
    if found is None:
        return StepPosition(str(said), status, known=False)
    if found is END:
        return StepPosition(COMPLETE, statuses.PASSED)
    if statuses.BLOCKED in (status, statuses.status_of(said)):
        active = active_blockers(state)
        own = [each for each in active if graph.find(each.get("blocked_step")) is found] or active
        reasons = tuple(str(each.get("description", "")) for each in own)
        return StepPosition(
            found.name, statuses.BLOCKED if active else statuses.NOT_STARTED, reasons=reasons
        )
    if status in (statuses.PASSED, statuses.SKIPPED):
        following = graph.after(found, known)
        return StepPosition(
            following.name, statuses.PASSED if following is END else statuses.NOT_STARTED
        )
    if status == statuses.FAILED and found.on_fail is not None:
        return StepPosition(
            found.on_fail, statuses.PASSED if found.on_fail == COMPLETE else statuses.NOT_STARTED
        )
    return StepPosition(found.name, status)


def _standing_for(graph: Graph, state: Mapping[str, Any], said: object) -> StepDefinition | None:
    # Some tools write a status such as BLOCKED instead of a step name.
    if statuses.status_of(said) == statuses.BLOCKED:
        active = active_blockers(state)
        return (graph.find(active[-1].get("blocked_step")) if active else None) or graph.first
    return graph.first if said is None or statuses.status_of(said) == statuses.NOT_STARTED else None


def active_blockers(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        each
        for each in _list(state)
        if isinstance(each, Mapping) and str(each.get("status", "")).upper() == statuses.ACTIVE
    ]


def loop_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(state, LOOP)


def record_of(graph: Graph, state: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    """Return the record of a step, stored under its name or an alias; {} without one."""
    known = _table(_table(state, LOOP), "checkpoints", "loop_state.")
    name = _key(graph, known, step)
    return _table(known, name, "loop_state.checkpoints.")


def applied(graph: Graph, state: Mapping[str, Any], report: StepReport, at: str) -> dict[str, Any]:
    """Return the state after a report at a time; the input state is not changed."""
    step = graph.step(report.step)
    if step is END and report.action != PASS:
        raise UsageError(
            f"{COMPLETE} is where the steps end, not a step",
            hint="see where the run is: git ckpt step show",
        )
    records.require_sound(report, step)
    here = position(graph, state)
    moves = _admit(here, step, record_of(graph, state, step.name), report)
    work = _Work(graph, state, at)
    if step is END:
        work.enter(END)
    elif report.action == RESET:
        work.reset(step, report, here)
    elif report.action in (START, PROGRESS):
        work.begin(step, report, moves=moves)
    else:
        work.end(step, report, moves=moves)
    return work.state


def _admit(
    here: StepPosition, step: StepDefinition, record: Mapping[str, Any], report: StepReport
) -> bool:
    """Return whether a report moves the machine or only adds to a record."""
    if report.action == RESET:
        return True
    is_next = (
        step.optional
        and step.name != here.step
        and step.on_pass == here.step
        and here.status == statuses.NOT_STARTED
    )
    is_late = (
        statuses.status_of(record.get("status")) == statuses.IN_PROGRESS and report.action != START
    )
    if report.force:
        return step.name == here.step or is_next or report.action == START
    if (
        here.status == statuses.BLOCKED
        and report.action != BLOCK
        and not (is_late and step.name != here.step)
    ):
        raise blocked(here)
    if step.name == here.step or is_next:
        return True
    if is_late:
        return False
    if here.step == COMPLETE:
        raise OutOfOrder(
            f"the run is complete, and not at {step.name}",
            hint=f"to do it again: git ckpt step reset {shell_word(step.name)}; to record it: --force",
        )
    hint = f"next is: git ckpt step start {shell_word(here.step)}"
    hint += f"; to go back or ahead: git ckpt step reset {shell_word(step.name)}, or --force"
    raise OutOfOrder(f"the run is at {here.step} ({here.status}), not at {step.name}", hint=hint)


def blocked(here: StepPosition) -> StepsBlocked:
    why = f": {'; '.join(here.reasons)}" if here.reasons else ""
    return StepsBlocked(
        f"the run is blocked at {here.step}{why}",
        hint=f"settle it, then: git ckpt step reset {shell_word(here.step)}",
    )


class _Work:
    def __init__(self, graph: Graph, state: Mapping[str, Any], at: str) -> None:
        self._graph = graph
        self._at = at
        before = _table(state, LOOP)
        first = {
            "current_step": None,
            "step_status": None,
            "step_started_at": None,
            "fix_cycle_count": 0,
        }
        limits = {"max_fix_cycles": graph.max_fix_cycles, "iterations": 0}
        self._records = dict(_table(before, "checkpoints", "loop_state."))
        self._loop = _tables_last(
            {**first, **limits, **before, "checkpoints": self._records}, "checkpoints"
        )
        self._blockers = list(_list(state))
        self.state = _tables_last({**state, BLOCKERS: self._blockers, LOOP: self._loop}, LOOP)

    def begin(self, step: StepDefinition, report: StepReport, *, moves: bool) -> None:
        record = self._record(step)
        if (
            statuses.status_of(record.get("status")) != statuses.IN_PROGRESS
            or report.action == START
        ):
            self._count_iteration(step, report)
            if statuses.status_of(record.get("status")) != statuses.IN_PROGRESS or not record.get(
                "started_at"
            ):
                record |= {"started_at": self._at, "completed_at": None}
            if step.version_key is not None:
                record.setdefault(step.version_key, 1)
            record["status"] = statuses.IN_PROGRESS
        self._put(step, self._merged(record, step, report))
        if moves:
            # Records written by other tools may lack started_at.
            self._stand(step.name, statuses.IN_PROGRESS, record.get("started_at"))

    def end(self, step: StepDefinition, report: StepReport, *, moves: bool) -> None:
        record = self._record(step)
        if statuses.status_of(record.get("status")) != statuses.IN_PROGRESS or not record.get(
            "started_at"
        ):
            record["started_at"] = self._at
            self._loop["iterations"] = self._number("iterations") + 1
            if step.version_key is not None:
                record.setdefault(step.version_key, 1)
        record |= {"status": ENDS[report.action], "completed_at": self._at}
        self._put(step, self._merged(record, step, report))
        if report.action == BLOCK:
            self._block(step, str(report.notes), moves=moves)
        elif moves and report.action == FAIL:
            self._fail(step, str(report.notes))
        elif moves:
            self.enter(self._graph.after(step, {**self._records, step.name: self._record(step)}))

    def reset(self, step: StepDefinition, report: StepReport, here: StepPosition) -> None:
        settled = {step.name} | ({here.step} if here.status == statuses.BLOCKED else set())
        for i, each in enumerate(self._blockers):
            if (
                each in active_blockers(self.state)
                and self._name(each.get("blocked_step")) in settled
            ):
                self._blockers[i] = {
                    **each,
                    "status": statuses.RESOLVED,
                    "resolved_at": self._at,
                    "resolution": report.notes or "",
                }
        record = self._record(step)
        record.pop("verdict", None)
        record |= {"status": statuses.NOT_STARTED, "started_at": None, "completed_at": None}
        self._put(step, self._merged(record, step, report))
        self._loop |= {"fix_cycle_count": 0, "iterations": 0}
        self._stand(step.name, statuses.NOT_STARTED, None)

    def enter(self, step: StepDefinition, *, by_failure: bool = False) -> None:
        if step is END:
            self._stand(COMPLETE, statuses.PASSED, None)
            return
        # What the last attempt reported stays in the history only.
        before = self._record(step)
        record: dict[str, Any] = {
            "status": statuses.NOT_STARTED,
            "started_at": None,
            "completed_at": None,
            "agent": None,
        }
        if step.version_key is not None and by_failure:
            number = before.get(step.version_key, 1 if before else 0)
            record[step.version_key] = (number if type(number) is int else 0) + 1
        elif step.version_key is not None and step.version_key in before:
            record[step.version_key] = before[step.version_key]
        if step.only_if is not None:
            record["required"] = True
        self._put(step, record | {"last_updated": self._at})
        self._stand(step.name, statuses.NOT_STARTED, None)
        if self._number("iterations") >= self._graph.max_iterations:
            self._block(step, self._too_many(), moves=True)

    def _fail(self, step: StepDefinition, notes: str) -> None:
        if step.on_fail is None:
            self._stand(step.name, statuses.FAILED, self._loop.get("step_started_at"))
            return
        if step.counts_cycles:
            count, most = self._number("fix_cycle_count"), self._loop["max_fix_cycles"]
            limit = most if type(most) is int else self._graph.max_fix_cycles
            if count >= limit:
                self._block(
                    step,
                    f"it failed after {count} fix {'cycle' if count == 1 else 'cycles'}: {notes}",
                    moves=True,
                )
                return
            self._loop["fix_cycle_count"] = count + 1
        self.enter(self._graph.step(step.on_fail), by_failure=True)

    def _block(self, step: StepDefinition, why: str, *, moves: bool) -> None:
        self._blockers.append(
            {
                "id": f"B{len(self._blockers) + 1}",
                "description": why,
                "blocked_at": self._at,
                "blocked_step": step.name,
                "status": statuses.ACTIVE,
            }
        )
        if moves:
            self._stand(step.name, statuses.BLOCKED, self._loop.get("step_started_at"))

    def _count_iteration(self, step: StepDefinition, report: StepReport) -> None:
        if self._number("iterations") >= self._graph.max_iterations and not report.force:
            raise StepsBlocked(
                self._too_many(),
                hint=f"look at what goes in circles: git ckpt step show --history; then: git ckpt step reset {shell_word(step.name)}",
            )
        self._loop["iterations"] = self._number("iterations") + 1

    def _too_many(self) -> str:
        return f"{self._number('iterations')} iterations were made, and no more are allowed"

    def _number(self, key: str) -> int:
        value = self._loop.get(key)
        return value if type(value) is int and value >= 0 else 0

    def _stand(self, step: str, status: str, since: object) -> None:
        self._loop |= {"current_step": step, "step_status": status, "step_started_at": since}

    def _merged(
        self, record: Mapping[str, Any], step: StepDefinition, report: StepReport
    ) -> dict[str, Any]:
        return _ordered(records.merged(_ordered(record), step, report, self._at))

    def _record(self, step: StepDefinition) -> dict[str, Any]:
        return dict(
            _table(
                self._records,
                _key(self._graph, self._records, step.name),
                "loop_state.checkpoints.",
            )
        )

    def _put(self, step: StepDefinition, record: dict[str, Any]) -> None:
        self._records[_key(self._graph, self._records, step.name)] = record

    def _name(self, text: object) -> str | None:
        found = self._graph.find(text)
        return found.name if found is not None else None


def _ordered(record: Mapping[str, Any]) -> dict[str, Any]:
    # Common keys first, in the order of the protocol.
    first = (
        "status",
        "started_at",
        "completed_at",
        "agent",
        "output_files",
        "notes",
        "last_updated",
    )
    return _tables_last(
        {key: record.get(key) for key in first} | {"progress": None} | dict(record),
        "progress",
        "tasks",
    )


def _tables_last(table: Mapping[str, Any], *last: str) -> dict[str, Any]:
    # In TOML, simple keys must come before tables, or they would belong to the table.
    return {key: table[key] for key in table if key not in last} | {
        key: table[key] for key in last if key in table
    }


def _key(graph: Graph, known: Mapping[str, Any], step: str) -> str:
    # Other tools may store a record under an alias.
    if step in known:
        return step
    return next(
        (key for key in known if (found := graph.find(key)) is not None and found.name == step),
        step,
    )


def _table(table: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{where}{key} in the state of the run is no table",
            hint="see what it holds: git ckpt show RUN --state",
        )
    return value


def _list(state: Mapping[str, Any]) -> list[Any]:
    value = state.get(BLOCKERS)
    if value is not None and not isinstance(value, list):
        raise UsageError(
            "blockers in the state of the run is no list",
            hint="see what it holds: git ckpt show RUN --state",
        )
    return value or []


# The next step and, if it has tasks, the first open task of the plan.

PLAN = "plan.md"
_TRACKS = os.path.join("conductor", "tracks")
_LARGEST = 16_000_000


@dataclass(frozen=True, slots=True)
class NextStep:
    """The step and task to continue with."""

    step: str  # COMPLETE if nothing is left to do
    status: str
    task: str | None = None  # None if the step has no tasks or all are done
    title: str | None = None  # the text of the task, if a plan has it
    plan: str | None = None  # path of the plan that was read
    # Notes for a person, such as conflicts of plan and records; one sentence each.
    remarks: tuple[str, ...] = ()


def next_of(
    graph: Graph,
    state: Mapping[str, Any],
    top: str | None,
    *,
    path: str | None = None,
    resume_from: str | None = None,
) -> NextStep:
    """Return the step and task that a run continues with.

    Args:
        top: the worktree that may contain the plan.
        path: of the plan; default: a reported `plan.md`, the one at the top or the track's.
        resume_from: the number of a task that overrides plan and records.
    """
    here = position(graph, state)
    if here.status == report.BLOCKED:
        raise blocked(here)
    step = graph.find(here.step)
    if step is None or not step.has_tasks:
        if resume_from is not None:
            raise OutOfOrder(
                f"the run is at {here.step}, which has no tasks",
                hint="see where it is: git ckpt step show",
            )
        return NextStep(here.step, here.status, remarks=tuple(_of_position(graph, here, state)))
    found = _plan(graph, state, here.step, top, path)
    record = record_of(graph, state, here.step)
    remarks = list(_of_position(graph, here, state))
    if found is None:
        if resume_from is None:
            remarks.append("there is no plan to take the task from; name it: --plan FILE")
        return NextStep(
            here.step,
            here.status,
            _number(resume_from) if resume_from else None,
            remarks=tuple(remarks),
        )
    shown, tasks = found
    if resume_from is not None:
        task: PlanTask | None = _named(tasks, resume_from, shown)
        if task is not None and task.is_done:
            remarks.append(f"task {task.name} is done, by {shown}")
    else:
        task = report.first_open(tasks)
        remarks += _disagreements(record, tasks, task, shown)
    if task is None:
        remarks.append(
            f"all tasks of {shown} are done: git ckpt step pass {shell_word(here.step)}"
            if tasks
            else f"{shown} has no tasks"
        )
    elif task.mark == report.STUCK:
        remarks.append(f"task {task.name} is marked as blocked in {shown}, line {task.line}")
    name, title = (task.name, task.title) if task is not None else (None, None)
    return NextStep(here.step, here.status, name, title, shown, tuple(remarks))


def _of_position(graph: Graph, here: StepPosition, state: Mapping[str, Any]) -> Iterator[str]:
    if not here.known:
        yield f"{graph.name} has no step {here.step}, at which the run is; to go on: git ckpt step reset STEP"
    for each in active_blockers(state):
        yield f"not settled yet: {each.get('description', '')} (at {each.get('blocked_step', 'no step')})"
    if here.status == report.FAILED:
        notes = record_of(graph, state, here.step).get("notes")
        yield f"{here.step} failed: {notes}" if notes else f"{here.step} failed"


def _disagreements(
    record: Mapping[str, Any], tasks: Sequence[PlanTask], first: PlanTask | None, shown: str
) -> Iterator[str]:
    last = record.get("last_task")
    number = report.task_id(last) if isinstance(last, str) else None
    here = f"it goes on with {first.name}" if first is not None else "nothing is left to do"
    there = {task.id: task for task in tasks if task.id is not None}
    if number is not None and number not in there:
        yield f"last_task is {number}, which {shown} does not have; {here}"
    elif number is not None and not there[number].is_done:
        yield f"last_task is {number}, which {shown} has open; {here}"
    elif number is not None and report.open_after(tasks, number) != first and first is not None:
        yield f"last_task is {number}, but {shown} has {first.name} open before it; {here}"
    # The plan is right where it and the records differ.
    known = record.get("tasks")
    said = (
        {report.task_id(name): task for name, task in known.items() if isinstance(task, Mapping)}
        if isinstance(known, Mapping)
        else {}
    )
    for name, task in there.items():
        told = report.status_of(said[name].get("status")) if name in said else None
        if told == report.PASSED and not task.is_done and name != number:
            yield f"task {name} is reported as {told}, and {shown} has it open"
        elif told is not None and told != report.PASSED and task.is_done:
            yield f"task {name} is reported as {told}, and {shown} has it done"


def _plan(
    graph: Graph, state: Mapping[str, Any], step: str, top: str | None, path: str | None
) -> tuple[str, list[PlanTask]] | None:
    if path is not None:
        return path, report.tasks(_text(path))
    for name in _candidates(graph, state, step) if top is not None else ():
        found = os.path.join(top or "", name)
        # A state may have been fetched: accept only a plan inside the worktree.
        if os.path.isfile(found) and os.path.realpath(found).startswith(
            os.path.realpath(top or "") + os.sep
        ):
            return name, report.tasks(_text(found))
    return None


def _candidates(graph: Graph, state: Mapping[str, Any], step: str) -> Iterator[str]:
    for name in dict.fromkeys((step, *(each.name for each in graph.steps))):
        files = record_of(graph, state, name).get("output_files")
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
    return report.task_id(text) or text


def _text(path: str) -> str:
    try:
        return regular.content(path, _LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="name the plan: --plan FILE") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
