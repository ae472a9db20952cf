"""Compute a run's current step, and its state after a step report.

The state has the layout of `metadata.json` of the tool superpowers. gitckpt adds `loop_state.graph`
(unless it is the default graph) and `loop_state.iterations`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitckpt.durable.steps import report as records
from gitckpt.durable.steps.graph import COMPLETE, END, Graph, StepDefinition
from gitckpt.durable.steps.report import PlanTask, StateTable, StepReport
from gitckpt.git.files import regular
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.values import dataclass

LOOP, BLOCKERS = "loop_state", "blockers"


class StepsBlocked(CkptError):
    """The run is blocked until a person resolves its blockers."""

    exit_code = 4


class OutOfOrder(UsageError):
    """A report names a step that is not the run's current step."""


@dataclass(frozen=True, slots=True)
class StepPosition:
    step: str  # COMPLETE if nothing is left to do
    status: str  # one of STATUSES
    is_known: bool = True  # the graph has the step; states by other tools may name any
    reasons: tuple[str, ...] = ()  # descriptions of the active blockers


_FRESH = {"status": records.NOT_STARTED, "started_at": None, "completed_at": None}


def find_position(graph: Graph, state: StateTable) -> StepPosition:
    """Return a run's current step and status; after an ended step, the next step."""
    loop_table = get_loop_table(state)
    current_step = loop_table.get("current_step")
    step = graph.find(current_step) or _find_step_by_status(graph, state, current_step)
    status = records.parse_status(loop_table.get("step_status")) or records.NOT_STARTED
    if step is None:
        return StepPosition(str(current_step), status, is_known=False)
    if step is END:
        return StepPosition(COMPLETE, records.PASSED)
    if records.BLOCKED in (status, records.parse_status(current_step)):
        active = find_active_blockers(state)
        step_blockers = [item for item in active if graph.find(item.get("blocked_step")) is step]
        reasons = tuple(str(blocker.get("description", "")) for blocker in step_blockers or active)
        status = records.BLOCKED if active else records.NOT_STARTED
        return StepPosition(step.name, status, reasons=reasons)
    next_name = None
    if status in (records.PASSED, records.SKIPPED):
        next_name = graph.after(step, _get_table(loop_table, "checkpoints", "loop_state.")).name
    elif status == records.FAILED:
        next_name = step.on_fail
    if next_name is None:
        return StepPosition(step.name, status)
    return StepPosition(next_name, records.PASSED if next_name == COMPLETE else records.NOT_STARTED)


def _find_step_by_status(graph: Graph, state: StateTable, text: object) -> StepDefinition | None:
    # Some tools write a status such as BLOCKED instead of a step name.
    status = records.parse_status(text)
    if status == records.BLOCKED:
        blockers = find_active_blockers(state)
        return (graph.find(blockers[-1].get("blocked_step")) if blockers else None) or graph.first
    return graph.first if text is None or status == records.NOT_STARTED else None


def find_active_blockers(state: StateTable) -> list[StateTable]:
    blockers = [blocker for blocker in _get_blockers(state) if isinstance(blocker, Mapping)]
    return [item for item in blockers if str(item.get("status", "")).upper() == records.ACTIVE]


def get_loop_table(state: StateTable) -> StateTable:
    return _get_table(state, LOOP)


def find_record(graph: Graph, state: StateTable, step: str) -> StateTable:
    step_records = _get_table(get_loop_table(state), "checkpoints", "loop_state.")
    return _get_table(step_records, _find_key(graph, step_records, step), "loop_state.checkpoints.")


def apply_report(
    graph: Graph, state: StateTable, report: StepReport, timestamp: str
) -> dict[str, Any]:
    step = graph.step(report.step)
    if step is END and report.action != records.PASS:
        hint = "show the current step: git ckpt step show"
        raise UsageError(f"{COMPLETE} is the end of the steps, not a step", hint=hint)
    records.require_valid_report(report, step)
    current_position = find_position(graph, state)
    record = find_record(graph, state, step.name)
    moves_run = _check_report_order(current_position, step, record, report)
    update = _StepStateUpdate(graph, state, timestamp)
    if step is END:
        update.enter(END)
    elif report.action == records.RESET:
        update.reset(step, report, current_position)
    elif report.action in (records.START, records.PROGRESS):
        update.begin(step, report, moves_run=moves_run)
    else:
        update.end(step, report, moves_run=moves_run)
    return update.state


def _check_report_order(
    current: StepPosition, step: StepDefinition, record: StateTable, report: StepReport
) -> bool:
    """Return whether a report moves the run on. Raises OutOfOrder if it comes early."""
    if report.action == records.RESET:
        return True
    is_current = step.name == current.step
    if step.optional and step.on_pass == current.step and current.status == records.NOT_STARTED:
        is_current = True
    is_late_report = _is_running(record) and report.action != records.START
    if report.force:
        return is_current or report.action == records.START
    is_late_elsewhere = is_late_report and step.name != current.step
    is_blocked = current.status == records.BLOCKED and report.action != records.BLOCK
    if is_blocked and not is_late_elsewhere:
        raise make_blocked_error(current)
    if is_current or is_late_report:
        return is_current
    reset_command = f"git ckpt step reset {shell_quoted(step.name)}"
    if current.step == COMPLETE:
        hint = f"to repeat the step: {reset_command}; to only record the report: --force"
        raise OutOfOrder(f"the run is complete, so not at {step.name}", hint=hint)
    hint = f"next is: git ckpt step start {shell_quoted(current.step)}"
    hint += f"; to go back or ahead: {reset_command}, or --force"
    place = f"{current.step} ({current.status})"
    raise OutOfOrder(f"the run is at {place}, not at {step.name}", hint=hint)


def _is_running(record: StateTable) -> bool:
    return records.parse_status(record.get("status")) == records.IN_PROGRESS


def make_blocked_error(current: StepPosition) -> StepsBlocked:
    reasons = f": {'; '.join(current.reasons)}" if current.reasons else ""
    hint = f"resolve the blocker, then: git ckpt step reset {shell_quoted(current.step)}"
    return StepsBlocked(f"the run is blocked at {current.step}{reasons}", hint=hint)


class _StepStateUpdate:
    def __init__(self, graph: Graph, state: StateTable, timestamp: str) -> None:
        self._graph, self._at = graph, timestamp
        old_loop = get_loop_table(state)
        first_keys = dict.fromkeys(("current_step", "step_status", "step_started_at"))
        limits = {"fix_cycle_count": 0, "max_fix_cycles": graph.max_fix_cycles, "iterations": 0}
        self._records = dict(_get_table(old_loop, "checkpoints", "loop_state."))
        loop_table = {**first_keys, **limits, **old_loop, "checkpoints": self._records}
        self._loop = _move_keys_last(loop_table, "checkpoints")
        self._blockers = list(_get_blockers(state))
        self.state = _move_keys_last({**state, BLOCKERS: self._blockers, LOOP: self._loop}, LOOP)

    def begin(self, step: StepDefinition, report: StepReport, *, moves_run: bool) -> None:
        record = self._record_of(step)
        if not _is_running(record) or report.action == records.START:
            if self._has_reached_iteration_limit() and not report.force:
                hint = "look for a circle of steps: git ckpt step show --history"
                hint += f"; then: git ckpt step reset {shell_quoted(step.name)}"
                raise StepsBlocked(self._iteration_limit_message(), hint=hint)
            self._start(step, record)
            record["status"] = records.IN_PROGRESS
        self._merge_report(record, step, report)
        if moves_run:
            # Records written by other tools may lack started_at.
            self._set_position(step.name, records.IN_PROGRESS, record.get("started_at"))

    def _start(self, step: StepDefinition, record: dict[str, Any]) -> None:
        self._loop["iterations"] = self._get_loop_count("iterations") + 1
        if not _is_running(record) or not record.get("started_at"):
            record |= {"started_at": self._at, "completed_at": None}
        if step.version_key is not None:
            record.setdefault(step.version_key, 1)

    def end(self, step: StepDefinition, report: StepReport, *, moves_run: bool) -> None:
        record = self._record_of(step)
        if not _is_running(record) or not record.get("started_at"):
            self._start(step, record)
        record |= {"status": records.ENDS[report.action], "completed_at": self._at}
        self._merge_report(record, step, report)
        if report.action == records.BLOCK:
            self._block(step, str(report.notes), moves_run=moves_run)
        elif moves_run and report.action == records.FAIL:
            self._fail(step, str(report.notes))
        elif moves_run:
            self.enter(self._graph.after(step, {**self._records, step.name: self._record_of(step)}))

    def reset(self, step: StepDefinition, report: StepReport, current: StepPosition) -> None:
        freed_steps = {step.name} | ({current.step} if current.status == records.BLOCKED else set())
        resolution = {"resolved_at": self._at, "resolution": report.notes or ""}
        blockers = find_active_blockers(self.state)
        for i, blocker in enumerate(self._blockers):
            if blocker in blockers:
                blocked_step = self._graph.find(blocker.get("blocked_step"))
                if blocked_step is not None and blocked_step.name in freed_steps:
                    self._blockers[i] = {**blocker, "status": records.RESOLVED, **resolution}
        record = self._record_of(step)
        record.pop("verdict", None)
        record |= _FRESH
        self._merge_report(record, step, report)
        self._loop |= {"fix_cycle_count": 0, "iterations": 0}
        self._set_position(step.name, records.NOT_STARTED, None)

    def enter(self, step: StepDefinition, *, by_failure: bool = False) -> None:
        if step is END:
            self._set_position(COMPLETE, records.PASSED, None)
            return
        # Only the history preserves the reports of the last attempt.
        old_record = self._record_of(step)
        record: dict[str, Any] = {**_FRESH, "agent": None}
        if step.version_key is not None and by_failure:
            version = old_record.get(step.version_key, 1 if old_record else 0)
            record[step.version_key] = (version if type(version) is int else 0) + 1
        elif step.version_key is not None and step.version_key in old_record:
            record[step.version_key] = old_record[step.version_key]
        if step.only_if is not None:
            record["required"] = True
        self._put_record(step, record | {"last_updated": self._at})
        self._set_position(step.name, records.NOT_STARTED, None)
        if self._has_reached_iteration_limit():
            self._block(step, self._iteration_limit_message(), moves_run=True)

    def _fail(self, step: StepDefinition, notes: str) -> None:
        if step.on_fail is None:
            self._set_position(step.name, records.FAILED, self._loop.get("step_started_at"))
            return
        if step.counts_cycles:
            count, limit = self._get_loop_count("fix_cycle_count"), self._loop["max_fix_cycles"]
            if count >= (limit if type(limit) is int else self._graph.max_fix_cycles):
                cycles = f"{count} fix {'cycle' if count == 1 else 'cycles'}"
                self._block(step, f"the step failed after {cycles}: {notes}", moves_run=True)
                return
            self._loop["fix_cycle_count"] = count + 1
        self.enter(self._graph.step(step.on_fail), by_failure=True)

    def _block(self, step: StepDefinition, description: str, *, moves_run: bool) -> None:
        blocker = {"id": f"B{len(self._blockers) + 1}", "description": description}
        blocker |= {"blocked_at": self._at, "blocked_step": step.name, "status": records.ACTIVE}
        self._blockers.append(blocker)
        if moves_run:
            self._set_position(step.name, records.BLOCKED, self._loop.get("step_started_at"))

    def _has_reached_iteration_limit(self) -> bool:
        return self._get_loop_count("iterations") >= self._graph.max_iterations

    def _iteration_limit_message(self) -> str:
        return f"the run reached the limit of {self._graph.max_iterations} iterations"

    def _get_loop_count(self, key: str) -> int:
        value = self._loop.get(key)
        return value if type(value) is int and value >= 0 else 0

    def _set_position(self, step: str, status: str, since: object) -> None:
        self._loop |= {"current_step": step, "step_status": status, "step_started_at": since}

    def _merge_report(self, record: StateTable, step: StepDefinition, report: StepReport) -> None:
        new_record = records.merge_report(_order_record_keys(record), step, report, self._at)
        self._put_record(step, _order_record_keys(new_record))

    def _record_of(self, step: StepDefinition) -> dict[str, Any]:
        record_key = _find_key(self._graph, self._records, step.name)
        return dict(_get_table(self._records, record_key, "loop_state.checkpoints."))

    def _put_record(self, step: StepDefinition, record: dict[str, Any]) -> None:
        self._records[_find_key(self._graph, self._records, step.name)] = record


_TIMES = ("started_at", "completed_at")  # keys that each record has, in the order of the protocol
_COMMON = ("status", *_TIMES, "agent", "output_files", "notes", "last_updated")


def _order_record_keys(record: StateTable) -> dict[str, Any]:
    ordered_record = {key: record.get(key) for key in (*_COMMON, "progress")} | dict(record)
    return _move_keys_last(ordered_record, "progress", "tasks")


def _move_keys_last(table: StateTable, *last: str) -> dict[str, Any]:
    # In TOML, simple keys must come before tables, or they would belong to the table.
    ordered_keys = [key for key in table if key not in last] + [key for key in last if key in table]
    return {key: table[key] for key in ordered_keys}


def _find_key(graph: Graph, step_records: StateTable, step: str) -> str:
    # Other tools may store a record under an alias.
    if step in step_records:
        return step
    step_names = {key: entry.name for key in step_records if (entry := graph.find(key)) is not None}
    return next((key for key, name in step_names.items() if name == step), step)


_SHOW_STATE = "show the state: git ckpt show RUN --state"


def _get_table(table: StateTable, key: str, parent: str = "") -> StateTable:
    value = table.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"{parent}{key} in the state of the run is not a table", hint=_SHOW_STATE)
    return value or {}


def _get_blockers(state: StateTable) -> list[Any]:
    value = state.get(BLOCKERS)
    if value is not None and not isinstance(value, list):
        raise UsageError(f"{BLOCKERS!r} in the state of the run is not a list", hint=_SHOW_STATE)
    return value or []


PLAN = "plan.md"
_TRACKS = os.path.join("conductor", "tracks")
_LARGEST = 16_000_000  # bytes of a plan


@dataclass(frozen=True, slots=True)
class NextStep:
    """The step with which a run continues, and the task of a plan within this step."""

    step: str  # COMPLETE if nothing is left to do
    status: str
    task: str | None = None  # None if the step has no tasks or all are done
    title: str | None = None  # the text of the task, if a plan has it
    plan: str | None = None  # path of the plan that was read
    # Sentences for a person, such as on conflicts between plan and records.
    remarks: tuple[str, ...] = ()


def find_next_step(
    graph: Graph,
    state: StateTable,
    top: str | None,
    *,
    path: str | None = None,
    resume_from: str | None = None,
) -> NextStep:
    """Return the step to go on with; `top` is the worktree, `path` the file of a plan."""
    current = find_position(graph, state)
    if current.status == records.BLOCKED:
        raise make_blocked_error(current)
    remarks = list(_describe_position(graph, current, state))
    number = None if resume_from is None else records.parse_task_number(resume_from) or resume_from
    step = graph.find(current.step)
    if step is None or not step.has_tasks:
        if number is not None:
            hint = "show the current step: git ckpt step show"
            raise OutOfOrder(f"the run is at {current.step}, which has no tasks", hint=hint)
        return NextStep(current.step, current.status, remarks=tuple(remarks))
    named_plan = _find_and_parse_plan(graph, state, current.step, top, path)
    if named_plan is None:
        if number is None:
            remarks.append("there is no plan to take the task from; name a plan: --plan FILE")
        return NextStep(current.step, current.status, number or None, remarks=tuple(remarks))
    plan, tasks = named_plan
    task: PlanTask | None
    if number is not None:
        task = _find_task(tasks, number, plan)
        if task.is_done:
            remarks.append(f"task {task.name} is already done, according to {plan}")
    else:
        task = records.find_open_task(tasks)
        record = find_record(graph, state, current.step)
        remarks += _compare_plan_with_record(record, tasks, task, plan)
    if task is None:
        remark = f"all tasks of {plan} are done: git ckpt step pass {shell_quoted(current.step)}"
        remarks.append(remark if tasks else f"{plan} has no tasks")
        return NextStep(current.step, current.status, plan=plan, remarks=tuple(remarks))
    if task.mark == records.STUCK:
        remarks.append(f"task {task.name} is marked as blocked in {plan}, line {task.line}")
    return NextStep(current.step, current.status, task.name, task.title, plan, tuple(remarks))


def _describe_position(graph: Graph, current: StepPosition, state: StateTable) -> Iterator[str]:
    if not current.is_known:
        hint = "to continue: git ckpt step reset STEP"
        yield f"the run is at {current.step}, which is not a step of {graph.name}; {hint}"
    for blocker in find_active_blockers(state):
        blocked_step = blocker.get("blocked_step", "no step")
        yield f"unresolved blocker: {blocker.get('description', '')} (at {blocked_step})"
    if current.status == records.FAILED:
        notes = find_record(graph, state, current.step).get("notes")
        yield f"{current.step} failed: {notes}" if notes else f"{current.step} failed"


def _compare_plan_with_record(
    record: StateTable, tasks: Sequence[PlanTask], first: PlanTask | None, plan_name: str
) -> Iterator[str]:
    # If the plan and the records disagree, the plan is right.
    last_task = record.get("last_task")
    number = records.parse_task_number(last_task) if isinstance(last_task, str) else None
    next_text = (
        f"the run continues with {first.name}" if first is not None else "nothing is left to do"
    )
    planned_tasks = {task.id: task for task in tasks if task.id is not None}
    if number is not None and number not in planned_tasks:
        yield f"last_task is {number}, which {plan_name} lacks; {next_text}"
    elif number is not None and not planned_tasks[number].is_done:
        yield f"last_task is {number}, which is open in {plan_name}; {next_text}"
    elif number is not None and records.next_open(tasks, number) != first and first is not None:
        yield f"last_task is {number}, but {first.name} is still open in {plan_name}; {next_text}"
    tasks_table = record.get("tasks")
    reported_tasks = tasks_table.items() if isinstance(tasks_table, Mapping) else ()
    statuses = {
        records.parse_task_number(task_key): records.parse_status(task_record.get("status"))
        for task_key, task_record in reported_tasks
        if isinstance(task_record, Mapping)
    }
    for task_number, task in planned_tasks.items():
        status = statuses.get(task_number)
        if status == records.PASSED and not task.is_done and task_number != number:
            yield f"task {task_number} is reported as {status}, but is open in {plan_name}"
        elif status is not None and status != records.PASSED and task.is_done:
            yield f"task {task_number} is reported as {status}, but is done in {plan_name}"


def _find_and_parse_plan(
    graph: Graph, state: StateTable, step: str, top: str | None, path: str | None
) -> tuple[str, list[PlanTask]] | None:
    if path is not None:
        return path, records.parse_plan(_read_plan(path))
    if top is None:
        return None
    for relative_path in _list_plan_paths(graph, state, step):
        plan_path = os.path.join(top, relative_path)
        # A state may have been fetched: accept only a plan inside the worktree.
        is_inside = os.path.realpath(plan_path).startswith(os.path.realpath(top) + os.sep)
        if is_inside and os.path.isfile(plan_path):
            return relative_path, records.parse_plan(_read_plan(plan_path))
    return None


def _list_plan_paths(graph: Graph, state: StateTable, step: str) -> Iterator[str]:
    for step_name in dict.fromkeys((step, *(graph_step.name for graph_step in graph.steps))):
        output_files = find_record(graph, state, step_name).get("output_files")
        for file in output_files if isinstance(output_files, list) else ():
            if isinstance(file, str) and "\0" not in file and os.path.basename(file) == PLAN:
                yield file
    yield PLAN
    track = state.get("track_id")
    if isinstance(track, str) and "\0" not in track:
        yield os.path.join(_TRACKS, track, PLAN)


def _find_task(tasks: Sequence[PlanTask], number: str, plan_name: str) -> PlanTask:
    for task in tasks:
        if number in (task.id, task.title):
            return task
    names = ", ".join(task.name for task in tasks[:20]) or "none"
    raise NotFoundError(f"{plan_name} has no task {number!r}", hint=f"the tasks: {names}")


def _read_plan(path: str) -> str:
    try:
        return regular.read_content(path, _LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="name the plan: --plan FILE") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
