"""The public API of the step protocol: report a step, show steps, find the next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.steps import journal, machine, report
from gitckpt.durable.steps.graph import Graph
from gitckpt.durable.steps.journal import Reported, StepEvent
from gitckpt.durable.steps.machine import NextStep, StepPosition
from gitckpt.durable.steps.report import StepReport
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import require_text, require_type
from gitckpt.model.checkpoint import Checkpoint, Progress
from gitckpt.model.values import replace
from gitckpt.store.store import Store, checkpoints_of_store

_PROGRESS = ("current_phase", "total_phases", "current_task", "tasks_completed", "tasks_total")


def visible_steps(graph: Graph, state: Mapping[str, Any]) -> list[str]:
    current_step = machine.find_position(graph, state).step
    names = []
    for step in graph.steps:
        is_required = not (step.optional or step.only_if)
        if is_required or step.name == current_step or machine.find_record(graph, state, step.name):
            names.append(step.name)
    step_records = machine.get_loop_table(state).get("checkpoints") or {}
    return names + [name for name in step_records if graph.find(name) is None]


def get_status(current: StepPosition, name: str, record: Mapping[str, Any]) -> str:
    default = current.status if name == current.step else report.NOT_STARTED
    return str(record.get("status") or default)


def to_document(graph: Graph, newest: Checkpoint, events: list[StepEvent] | None) -> dict[str, Any]:
    state = newest.state
    position, loop = machine.find_position(graph, state), machine.get_loop_table(state)
    steps = []
    for name in dict.fromkeys((*(step.name for step in graph.steps), *visible_steps(graph, state))):
        record = dict(machine.find_record(graph, state, name))
        steps.append({"step": name, "status": get_status(position, name, record), "record": record})
    document: dict[str, Any] = {"run": newest.run, "graph": graph.name}
    document |= {"step": position.step, "status": position.status}
    document["fix_cycle_count"] = loop.get("fix_cycle_count", 0)
    document["max_fix_cycles"] = loop.get("max_fix_cycles", graph.max_fix_cycles)
    document |= {"iterations": loop.get("iterations", 0), "max_iterations": graph.max_iterations}
    document |= {"blockers": list(state.get(machine.BLOCKERS) or []), "steps": steps}
    if events is not None:
        document["history"] = history = []
        for event in events:
            event_fields = {name: getattr(event, name) for name in event.__slots__}
            progress = {name: getattr(event.progress or Progress(), name) for name in _PROGRESS}
            history.append({**event_fields, "errors": list(event.errors), "progress": progress})
    return document


class Steps:
    """The steps of a run, for agents and scripts that gitckpt did not start.

    The run is `run` (an id or prefix), or the run of $CKPT_RUN, of the worktree or of `track`. The
    first report of a new track starts a run; until then, other methods raise NotFoundError.
    """

    def __init__(self, store: Store, *, run: str | None = None, track: str | None = None) -> None:
        self._store = checkpoints_of_store(store)
        require_text("run", run, may_be_none=True)
        require_text("track", track, may_be_none=True)
        self._target = journal.find_report_target(self._store, run=run, track=track)

    @staticmethod
    def run_about(store: Store, track: str) -> str | None:
        """Return the track's newest open run, else its newest complete run, else None."""
        checkpoints = checkpoints_of_store(store)
        require_text("track", track)
        return journal.find_run_of_track(checkpoints, track)

    def report(
        self,
        said: StepReport,
        *,
        graph: str | None = None,
        files: bool = False,
        checkpoint_id: str | None = None,
    ) -> Reported:
        """Record a report as a checkpoint; repeating it with the same id records nothing.

        `graph` names the step graph of a new run; `files` captures the worktree. Raises UsageError,
        NotFoundError (unknown step, revision or graph), OutOfOrder, StepsBlocked or LeaseLost.
        """
        require_type("said", said, StepReport, "a StepReport")
        require_text("graph", graph, may_be_none=True)
        require_text("checkpoint_id", checkpoint_id, may_be_none=True)
        repository = self._store.repository
        outputs = tuple(_relative_to_top(repository, output) for output in said.outputs)
        said = replace(said, outputs=outputs, subject="")
        if said.commit is not None:
            oid = repository.resolve_commit(said.commit)
            subject = repository.git.run("log", "-1", "--no-show-signature", "--format=%s", oid).out
            subject_line = subject.decode("utf-8", "replace").removesuffix("\n")
            said = replace(said, commit=oid, subject=subject_line)
        if said.task_status is not None:
            said = replace(said, task_status=said.task_status.strip().upper().replace("-", "_"))
        if said.verdict is not None:
            said = replace(said, verdict=said.verdict.strip().upper())
        options: Any = {"graph": graph, "files": files, "checkpoint_id": checkpoint_id}
        reported = journal.record_report(self._store, self._target, said, **options)
        self._target = replace(self._target, run=reported.checkpoint.run)
        return reported

    @property
    def run(self) -> str | None:
        """Return the id of the run, or None before the first report of a new track."""
        return self._target.run

    def newest(self) -> Checkpoint:
        """Return the run's newest checkpoint; its state has the records of all steps."""
        return journal.read_newest_checkpoint(self._store, self._target)

    def graph(self) -> Graph:
        """Return the step graph of the run."""
        return journal.find_graph(self._store, self.newest().state)

    def show(self, *, with_history: bool = False) -> dict[str, Any]:
        """Return the run's steps as the JSON document of `git ckpt step show --json`."""
        newest = self.newest()
        events = journal.read_history(self._store, str(newest.run)) if with_history else None
        return to_document(journal.find_graph(self._store, newest.state), newest, events)

    def history(self) -> Sequence[StepEvent]:
        """Return all reports of the run, oldest first."""
        return journal.read_history(self._store, str(self.newest().run))

    def next(self, *, plan: str | None = None, resume_from: str | None = None) -> NextStep:
        """Return the step and task with which the run continues.

        `plan` is the path of a plan; `resume_from` is a task to use instead of the next open task.
        Raises StepsBlocked, NotFoundError (no plan or task) or UsageError (a step without tasks).
        """
        require_text("plan", plan, may_be_none=True)
        require_text("resume_from", resume_from, may_be_none=True)
        newest = self.newest()
        graph = journal.find_graph(self._store, newest.state)
        top = journal.find_worktree(self._store, str(newest.run))
        return machine.find_next_step(graph, newest.state, top, path=plan, resume_from=resume_from)


def _relative_to_top(repository: Repository, file: str) -> str:
    top = repository.worktree
    if top is None:
        return file
    directory, name = os.path.split(os.path.abspath(file))
    path = os.path.join(os.path.realpath(directory), name)
    relative_path = os.path.relpath(path, os.path.realpath(top))
    return file if relative_path.startswith("..") else relative_path
