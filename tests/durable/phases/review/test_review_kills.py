"""A review whose driver is killed at random moments ends as if undisturbed."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from tests.cli.conftest import PROJECT
from tests.conftest import Checkout
from tests.durable.nursery import Done, Nursery
from tests.durable.run.killing import PLACE, Nest, Project
from tests.store.conftest import require_runs, require_whole, view
from tests.stores import head_of, open_store, preset_text

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux", reason="finds orphans as their subreaper, and in /proc"
    ),
]

EXAMPLE = PROJECT / "examples/review"
REVIEW = ("review", "Greet who is named", "--coder", "coder", "--reviewer", "reviewer")
CHECKS = ("--lint", "sh -n greet.sh", "--filter", "test=sh greet.test", "--max-budget", "1")
CYCLES = 3
LOOSE = ("total_cost_usd", "created_at")
"""Keys of the state whose values depend on the kills."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a review, apart from names and times."""

    worktree: dict[str, Any]
    commits: str
    snapshot: str
    state: dict[str, Any]
    transitions: list[str | None]
    calls: list[str]


class Reviewed:
    """A project in which coder and reviewer work at a task until it is approved.

    Attributes:
        kills: how often its driver was killed.
    """

    def __init__(self, project: Project, nursery: Nursery) -> None:
        self.project = project
        self.checkout = project.checkout
        self.nursery = nursery
        self.kills = 0

    def start(self) -> None:
        """Start the review, or resume an existing one, sometimes without its id."""
        run = self.project.run()
        words = (
            (*REVIEW, *CHECKS)
            if run is None
            else ("resume", run)
            if self.kills % 3
            else ("resume",)
        )
        self.nursery.start(self.checkout, *words)

    def is_killed(self, done: Done) -> bool:
        """Return whether the driver was killed.

        If not, the review must be complete, now or just before the last kill.
        """
        run = self.project.run()
        if done.code == 0 or (
            done.code == 2 and self.kills and done.err.startswith(f"error: run {run} is complete\n")
        ):
            return False
        assert done.code == -9, done
        self.kills += 1
        return True

    def left(self) -> float:
        """Return roughly the share of the work that is left, from 1 to 0."""
        run = self.project.run()
        if run is None:
            return 1.0
        with self._store() as store:
            cycle = head_of(store, run).state.get("review", {}).get("cycle", 0)
        return float(1 - cycle / (CYCLES + 1))

    def outcome(self) -> Outcome:
        """Return the outcome of the review, after a check of its files and records."""
        run = str(self.project.run())
        self._require_settled(run)
        found = require_whole(self.checkout)
        chain = [found[name] for name in require_runs(self.checkout, found)[run]]
        there = Checkout(self.checkout.main / ".ckpt/worktrees" / run)
        return Outcome(
            worktree=view(there.path),
            commits=there.git("log", "--format=%H %T %s"),
            snapshot=there.git("ls-tree", "-r", "-t", f"refs/ckpt/trees/{chain[-1].id}"),
            state={
                key: value for key, value in chain[-1].state["review"].items() if key not in LOOSE
            },
            transitions=[each.message for each in chain if each.trigger == "review"],
            calls=self.project.log.read_text().splitlines(),
        )

    def _require_settled(self, run: str) -> None:
        assert self.nursery.orphans() == []
        locks = [
            str(path)
            for path in (self.checkout.main / ".git").rglob("*.lock")
            if path.parent.name != "ckpt"
        ]
        assert locks == []
        assert [path.name for path in (self.checkout.main / ".ckpt/worktrees").iterdir()] == [run]
        verified = self.nursery.call(self.checkout, "verify")
        assert (verified.code, verified.out) == (0, ""), verified
        assert self.nursery.call(self.checkout, "runs").out.split("\t")[:3] == [
            run,
            "complete",
            "run-complete",
        ]
        assert self.project.is_released(run)

    def _store(self) -> Store:
        return open_store(self.checkout)


@pytest.fixture
def nest(main_checkout: Checkout, tmp_path: Path, request: pytest.FixtureRequest) -> Nest:
    """Projects with the agents of the example; `request.param` may say `hooks`.

    Each agent logs its calls.
    """
    agents = (EXAMPLE / "gitckpt.toml").read_text()
    for role in ("coder", "reviewer"):
        agents = agents.replace(
            f"FAKE_AGENT_COUNTER=agents/{role}",
            f"echo {role} >>${PLACE}; FAKE_AGENT_COUNTER=agents/{role}",
        )
    often = preset_text("review").replace(
        'on_resume = "reset"', 'on_resume = "reset"\nmax_recoveries = 1000'
    )
    assert (agents.count(PLACE), often.count("max_recoveries = 1000")) == (2, 1)
    (main_checkout.path / "agents").mkdir()
    for file in (
        PROJECT / "examples/fake-agent",
        EXAMPLE / "coder.jsonl",
        EXAMPLE / "reviewer.jsonl",
    ):
        shutil.copy(file, main_checkout.path / "agents")
    test = (EXAMPLE / "greet.test").read_text()
    main_checkout.commit("second", **{"gitckpt.toml": f"{agents}\n{often}", "greet.test": test})
    return Nest(main_checkout, tmp_path / "nest", linked=False, hooks=request.param == "hooks")


@pytest.fixture
def nursery(nest: Nest, tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(tmp_path, {PLACE: str(nest.log)}) as made:
        yield made


def undisturbed(nest: Nest, nursery: Nursery) -> tuple[Outcome, float]:
    """Return the outcome of a review without kills, and its duration in seconds."""
    project = nest.make(nursery)
    before = time.monotonic()
    done = nursery.call(project.checkout, *REVIEW, *CHECKS)
    seconds = time.monotonic() - before
    assert done.code == 0, done
    outcome = Reviewed(project, nursery).outcome()
    state, more = outcome.state, outcome.state["more"]
    assert (state["cycle"], more["phase"], more["filter_history"]) == (
        CYCLES,
        "approved",
        ["", "test"],
    )
    assert outcome.calls == ["coder", "coder", "reviewer", "coder", "coder", "reviewer"]
    assert [each["status"] for each in more["all_findings"]] == ["fixed", "fixed"]
    assert "(lint fix)" in outcome.commits
    return outcome, seconds


KILLS = 3
"""How often a driver is killed in each test; with `--long` a hundred times."""


@pytest.mark.parametrize("nest", ["plain", "hooks"], indirect=True)
def test_a_review_whose_driver_is_killed_at_random_moments(
    nest: Nest, nursery: Nursery, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    expected, seconds = undisturbed(nest, nursery)
    left = 100 if request.config.getoption("--long") else KILLS
    while left > 0:
        reviewed = Reviewed(nest.make(nursery), nursery)
        while True:
            reviewed.start()
            moment = chance.random() * seconds * reviewed.left() if reviewed.kills < 8 else 60
            if not reviewed.is_killed(nursery.kill_after(moment)):
                break
            if chance.random() < 0.5:
                assert nursery.orphans() == []
        outcome = reviewed.outcome()
        for name in ("worktree", "commits", "snapshot", "state", "transitions"):
            assert (name, getattr(outcome, name)) == (name, getattr(expected, name))
        assert len(outcome.calls) <= len(expected.calls) + reviewed.kills
        left -= reviewed.kills
