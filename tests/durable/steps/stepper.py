"""Runs with and without a repository, for the tests of the step protocol."""

from __future__ import annotations

from typing import Any

from gitckpt import Checkpoint, Graph, StepReport, Store
from gitckpt.durable.steps import graph_file, journal, machine
from gitckpt.durable.steps.machine import StepPosition
from gitckpt.store.store import checkpoints_of_store


class Loop:
    """A state, and the reports that change it; the n-th report is made at `at(n)`."""

    def __init__(self, state: dict[str, Any] | None = None, graph: Graph | None = None) -> None:
        self.state: dict[str, Any] = state or {}
        self.graph = graph or graph_file.read_preset_graph()
        self.made = 0

    def __call__(self, action: str, step: str, **said: Any) -> Loop:
        notes = said.pop("notes", "it was so" if action in ("fail", "block") else None)
        self.state = machine.apply_report(
            self.graph, self.state, StepReport(action, step, notes=notes, **said), at(self.made + 1)
        )
        self.made += 1
        return self

    @property
    def here(self) -> tuple[str, str]:
        found = self.position
        return found.step, found.status

    @property
    def position(self) -> StepPosition:
        return machine.find_position(self.graph, self.state)

    @property
    def loop(self) -> dict[str, Any]:
        found: dict[str, Any] = self.state["loop_state"]
        return found

    def record(self, step: str) -> dict[str, Any]:
        found: dict[str, Any] = self.loop["checkpoints"][step]
        return found

    def to(self, step: str) -> Loop:
        """Pass steps until the run is at a step."""
        while self.position.step != step:
            self("start", self.position.step)("pass", self.position.step)
        return self


def at(number: int) -> str:
    """Return the timestamp of the n-th report."""
    return f"2027-01-15T08:{number // 60:02d}:{number % 60:02d}.000000Z"


def report(
    store: Store, run: str | None, action: str, step: str, *, track: str | None = None, **said: Any
) -> Checkpoint:
    """Record a report for a run, or for the open run of a track."""
    options = {name: said.pop(name) for name in ("graph", "files") if name in said}
    where = journal.find_report_target(
        checkpoints_of_store(store), run=run, track=track, environ={}
    )
    return journal.record_report(
        checkpoints_of_store(store), where, StepReport(action, step, **said), **options
    ).checkpoint
