"""The public API of the step protocol: report, show, next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.steps import journal, machine, report
from gitckpt.durable.steps import machine as next_step
from gitckpt.durable.steps.graph import Graph
from gitckpt.durable.steps.report import StepReport
from gitckpt.model.arguments import require, require_text
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import replace
from gitckpt.store.store import Store, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.steps.journal import Reported, StepEvent
    from gitckpt.durable.steps.machine import NextStep, StepPosition
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint


# The data of `git ckpt step show`.

_PROGRESS = ("current_phase", "total_phases", "current_task", "tasks_completed", "tasks_total")


def shown(graph: Graph, state: Mapping[str, Any]) -> list[str]:
    """Return the names of required, unknown, and completed optional steps."""
    here = machine.position(graph, state)
    own = [
        step.name
        for step in graph.steps
        if not (step.optional or step.only_if) or step.name == here.step or machine.record_of(graph, state, step.name)
    ]
    others = machine.loop_of(state).get("checkpoints") or {}
    return own + [name for name in others if graph.find(name) is None]


def status_of(here: StepPosition, name: str, record: Mapping[str, Any]) -> str:
    return str(record.get("status") or (here.status if name == here.step else report.NOT_STARTED))


def document(graph: Graph, newest: Checkpoint, events: Sequence[StepEvent] | None) -> dict[str, Any]:
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


# The public API.


class Steps:
    """The steps of a run, for agents and scripts that gitckpt did not start.

    Each report is one checkpoint. The run is `run` (an id or a prefix), that of CKPT_RUN, that of
    the worktree of `store`, or that of the track; the first report starts a run for a track without
    one. Until then, `newest`, `graph`, `show`, `history` and `next` raise NotFoundError.

    Raises:
        UsageError: no run is named, or an argument is invalid.
        NotFoundError, AmbiguousError: no run matches, or several do.
    """

    def __init__(self, store: Store, *, run: str | None = None, track: str | None = None) -> None:
        self._store = inside(store)
        for name, said in (("run", run), ("track", track)):
            require_text(name, said, may_be_none=True)
        self._place = journal.place(self._store, run=run, track=track)

    @staticmethod
    def run_about(store: Store, track: str) -> str | None:
        """Return the newest open run of a track, or else the newest one; or None."""
        here = inside(store)
        require_text("track", track)
        return journal.run_about(here, track)

    def report(self, said: StepReport, *, graph: str | None = None, files: bool = False, checkpoint_id: str | None = None) -> Reported:
        """Record a report of a step.

        Args:
            said: its `commit` may be any rev; its `outputs` are relative to the current directory.
            graph: the steps of a new run, `[steps.NAME]` in `gitckpt.toml`; default: superpowers.
            files: whether to capture the files.
            checkpoint_id: makes the call idempotent: a repeated call records nothing.

        Raises:
            UsageError: an argument is invalid, or the report is incomplete or contradicts itself.
            OutOfOrder: the run is at another step.
            StepsBlocked: the run is blocked.
            NotFoundError: unknown step, rev or graph.
            LeaseLost: another process drives the run now.
        """
        require("said", said, StepReport, "a StepReport")
        for name, text in (("graph", graph), ("checkpoint_id", checkpoint_id)):
            require_text(name, text, may_be_none=True)
        repository = self._store.repository
        oid, subject = _commit(repository, said.commit) if said.commit is not None else (None, "")
        said = replace(
            said,
            task_status=said.task_status.strip().upper().replace("-", "_") if said.task_status is not None else None,
            verdict=said.verdict.strip().upper() if said.verdict is not None else None,
            outputs=tuple(_from_top(repository, file) for file in said.outputs),
            commit=oid,
            subject=subject,
        )
        done = journal.report(self._store, self._place, said, graph=graph, files=files, checkpoint_id=checkpoint_id)
        self._place = replace(self._place, run=done.checkpoint.run)
        return done

    @property
    def run(self) -> str | None:
        """Return the run id; None before the first report."""
        return self._place.run

    def newest(self) -> Checkpoint:
        """Return the newest checkpoint, whose state holds all reports."""
        return journal.read(self._store, self._place)

    def graph(self) -> Graph:
        """Return the steps of the run; raise UsageError if their file has mistakes."""
        return journal.graph_of(self._store, self.newest().state)

    def show(self, *, with_history: bool = False) -> dict[str, Any]:
        """Return what `git ckpt step show --json` prints (docs/steps.md)."""
        newest = self.newest()
        events = journal.read_history(self._store, str(newest.run)) if with_history else None
        return document(journal.graph_of(self._store, newest.state), newest, events)

    def history(self) -> Sequence[StepEvent]:
        """Return all reports, oldest first."""
        return journal.read_history(self._store, str(self.newest().run))

    def next(self, *, plan: str | None = None, resume_from: str | None = None) -> NextStep:
        """Return the step and task that the run continues with.

        Args:
            plan: the path of the plan; default: a reported `plan.md`, the one at the top or the
                track's.
            resume_from: the number of a task that overrides plan and records.

        Raises:
            StepsBlocked: the run is blocked.
            NotFoundError: unknown file or task.
            UsageError: an argument is invalid, the step has no tasks, or the plan is unreadable.
        """
        for name, text in (("plan", plan), ("resume_from", resume_from)):
            require_text(name, text, may_be_none=True)
        newest = self.newest()
        graph = journal.graph_of(self._store, newest.state)
        top = journal.home(self._store, str(newest.run))
        return next_step.next_of(graph, newest.state, top, path=plan, resume_from=resume_from)


def _commit(repository: Repository, rev: str) -> tuple[str, str]:
    oid = repository.commit(rev)
    subject = repository.git.run("log", "-1", "--no-show-signature", "--format=%s", oid).out
    return oid, subject.decode("utf-8", "replace").removesuffix("\n")


def _from_top(repository: Repository, file: str) -> str:
    top = repository.worktree
    if top is None:
        return file
    directory, name = os.path.split(os.path.abspath(file))
    relative = os.path.relpath(os.path.join(os.path.realpath(directory), name), os.path.realpath(top))
    return file if relative.startswith("..") else relative
