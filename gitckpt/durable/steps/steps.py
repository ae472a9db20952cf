"""The steps of a run as programs have them: reported, looked at, and asked for the next."""

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


# A run of steps at a glance, for `git ckpt step show`. Pure: from a state to what is shown of it.


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
    return str(record.get("status") or (here.status if name == here.step else report.NOT_STARTED))


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


# The steps of a run as programs have them: reported, looked at, and asked for the next.


class Steps:
    """The steps of a run, for agents and scripts that gitckpt did not start: each report is one checkpoint of the run.

    The run is the one that is named, or that of the environment variable CKPT_RUN, or the one whose worktree the store is seen from, or
    that of the track.

    Args:
        store: as seen from where the work is done.
        run: the run's id, or a prefix of it.
        track: what the run is about; the first report starts it where there is none.

    Raises:
        UsageError: it is not said which run, or an argument is none.
        NotFoundError, AmbiguousError: there is no such run, or several.
    """

    def __init__(self, store: Store, *, run: str | None = None, track: str | None = None) -> None:
        self._store = inside(store)
        for name, said in (("run", run), ("track", track)):
            require_text(name, said, may_be_none=True)
        self._place = journal.place(self._store, run=run, track=track)

    @staticmethod
    def run_about(store: Store, track: str) -> str | None:
        """Returns the id of the run of ours that is about a track, the newest one that is not over before others; None where none is.

        Args:
            store: of the repository.
            track: what it is about.

        Raises:
            UsageError: the track is none.
        """
        here = inside(store)
        require_text("track", track)
        return journal.run_about(here, track)

    def report(self, said: StepReport, *, graph: str | None = None, files: bool = False, checkpoint_id: str | None = None) -> Reported:
        """Records what is said of a step.

        Args:
            said: the report; its `commit` is a rev, and its `outputs` are paths as seen from the current directory.
            graph: of a run that is started: its steps, `[steps.NAME]` in `gitckpt.toml`; by default those of superpowers.
            files: whether the files are captured, too.
            checkpoint_id: the id of the checkpoint: a call that is made again with it records nothing twice.

        Raises:
            UsageError: an argument is of a wrong type; or the report lacks what it must say, or contradicts itself.
            OutOfOrder: the run is at another step.
            StepsBlocked: the run waits for somebody's help.
            NotFoundError: there is no such step, rev or graph.
            LeaseLost: somebody else drives the run by now.
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
        """The id of the run; None where its first report is still to come."""
        return self._place.run

    def newest(self) -> Checkpoint:
        """Returns the newest checkpoint of the run, with the state that holds all that was reported.

        Raises:
            NotFoundError: no run is about the track yet.
        """
        return journal.read(self._store, self._place)

    def graph(self) -> Graph:
        """Returns the steps of the run, and what follows each.

        Raises:
            NotFoundError: no run is about the track yet; or its steps are in no file here.
            UsageError: that file has mistakes.
        """
        return journal.graph_of(self._store, self.newest().state)

    def show(self, *, with_history: bool = False) -> dict[str, Any]:
        """Returns where the run is and what is known of each step, as `git ckpt step show --json` prints it (docs/steps.md).

        Args:
            with_history: whether everything that was ever reported is wanted, too.

        Raises:
            NotFoundError: no run is about the track yet.
        """
        newest = self.newest()
        events = journal.read_history(self._store, str(newest.run)) if with_history else None
        return document(journal.graph_of(self._store, newest.state), newest, events)

    def history(self) -> Sequence[StepEvent]:
        """Returns everything that was ever reported, oldest first.

        Raises:
            NotFoundError: no run is about the track yet.
        """
        return journal.read_history(self._store, str(self.newest().run))

    def next(self, *, plan: str | None = None, resume_from: str | None = None) -> NextStep:
        """Returns where the run goes on: the step, and of a step with tasks the first one that the plan has open.

        Args:
            plan: the path of the plan; by default the one that the steps have reported, `plan.md`, or the one of the track.
            resume_from: the number of the task to go on with, whatever plan and records say.

        Raises:
            StepsBlocked: the run is blocked.
            NotFoundError: no run is about the track yet; or there is no such file, or no such task in the plan.
            UsageError: an argument is no string; or the run is at a step without tasks; or the plan cannot be read.
        """
        for name, text in (("plan", plan), ("resume_from", resume_from)):
            require_text(name, text, may_be_none=True)
        newest = self.newest()
        graph = journal.graph_of(self._store, newest.state)
        top = journal.home(self._store, str(newest.run))
        return next_step.next_of(graph, newest.state, top, path=plan, resume_from=resume_from)


def _commit(repository: Repository, rev: str) -> tuple[str, str]:
    """Returns oid and subject of the commit that a rev names."""
    oid = repository.commit(rev)
    subject = repository.git.run("log", "-1", "--no-show-signature", "--format=%s", oid).out
    return oid, subject.decode("utf-8", "replace").removesuffix("\n")


def _from_top(repository: Repository, file: str) -> str:
    """Returns a path as seen from the top of the worktree, where it lies in it."""
    top = repository.worktree
    if top is None:
        return file
    directory, name = os.path.split(os.path.abspath(file))
    relative = os.path.relpath(os.path.join(os.path.realpath(directory), name), os.path.realpath(top))
    return file if relative.startswith("..") else relative
