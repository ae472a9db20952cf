"""A loop whose driver is killed at random moments ends as if undisturbed."""

from __future__ import annotations

import json
import random
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Query
from tests.conftest import Checkout
from tests.durable.nursery import Nursery
from tests.durable.phases.loop.bench import FAKE, PHASE
from tests.durable.run import killing
from tests.durable.run.killing import Nest, Outcome, Project
from tests.store.conftest import require_runs, require_whole
from tests.stores import open_store, preset_text

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="finds orphans as their subreaper, and in /proc"
)

ITERATIONS = 6
KILLS = 6
"""How often the driver is killed; with `--long` 100 times."""


def shell(line: str) -> dict[str, list[str]]:
    return {"run": ["sh", "-c", line]}


SCRIPT: list[dict[str, Any]] = [
    {
        "write": {"src/a": "one\n"},
        **shell("echo 1 >> notes"),
        "say": "first",
        "session": "s-1",
        "cost": 0.5,
    },
    {
        **shell(
            "echo 2 >> notes; git add --all; git commit --quiet --message two; echo 2b >> notes"
        ),
        "say": "second",
        "cost": 0.25,
    },
    {
        **shell("echo 3 >> notes; git add notes"),
        "error": "out of ideas",
        "session": "s-3",
        "cost": 0.125,
    },
    {"write": {"all": ""}, "delete": ["gone"], **shell("echo 4 >> notes"), "say": "fourth"},
    {
        **shell(
            "echo 5 >> notes; git mv moved src/moved; git commit --quiet --message five; rm src/a"
        ),
        "say": "fifth",
        "cost": 1.0,
    },
    {"write": {"works": ""}, **shell("echo 6 >> notes; git add all"), "say": "sixth"},
]
"""Steps that must not be repeated on the same files.

From the fourth call on all seems done; with the sixth the tests pass.
"""

NOTES = "1\n2\n2b\n3\n4\n5\n6\n"
MESSAGES = [
    "iteration 1: the agent was asked",
    "iteration 1: [ -e all ]: exit code 1",
    "iteration 2: the agent was asked",
    "iteration 2: [ -e all ]: exit code 1",
    "iteration 3: the agent was asked",
    "iteration 3: [ -e all ]: exit code 1",
    "iteration 4: the agent was asked",
    "iteration 4: the tests fail",
    "iteration 5: the agent was asked",
    "iteration 5: the tests fail",
    "iteration 6: the agent was asked",
    "iteration 6: the tests pass",
]
WORDS = (
    "--agent",
    "fake",
    "--done",
    "[ -e all ]",
    "--tests",
    "wc -l < notes; [ -e works ]",
    "--pause",
    "0s",
    "--conversation",
    "continue",
)


class LoopProject(Project):
    """A project whose only run is a loop."""

    def iterations(self, run: str) -> int:
        """Return the number of iterations in the newest checkpoint."""
        with open_store(self.checkout) as store:
            state = store.read(store.list(Query(run=run))[0].id).state
        return int(state["loop"]["iterations"]) if "loop" in state else 0

    def _require_each_once(self, run: str, interruptions: int) -> None:
        found = require_whole(self.checkout)
        chain = [found[name] for name in require_runs(self.checkout, found)[run]]
        assert [each.message for each in chain if each.trigger == "loop"] == MESSAGES
        labels = [each.label.rpartition("-")[::2] for each in chain if each.trigger != "loop"]
        assert [name for name, status in labels if status == "complete"] == [PHASE, "run"]
        numbers = killing.attempts(chain, PHASE)
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= 1 + interruptions


@pytest.fixture
def nest(main_checkout: Checkout, tmp_path: Path) -> Nest:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(entry) + "\n" for entry in SCRIPT))
    agent = shlex.join(
        [sys.executable, "-I", "-S", str(FAKE), "--format", "claude", "--script", str(script)]
    )
    pipeline = preset_text("loop").replace(
        'on_resume = "reset"', 'on_resume = "reset"\nmax_recoveries = 1000'
    )
    client = (
        f"[agents.fake]\ncommand = {json.dumps(agent)}\nformat = 'claude'\n"
        f"resume = '--resume {{session}}'\n"
    )
    main_checkout.commit(
        "second",
        **{
            "gitckpt.toml": f"{client}\n{pipeline}",
            "plan.md": "# Plan\n",
            "gone": "g\n",
            "moved": "m\n",
        },
    )
    return Nest(main_checkout, tmp_path / "nest", linked=False, hooks=False)


@pytest.fixture
def nursery(nest: Nest, tmp_path: Path) -> Iterator[Nursery]:
    """An agent that counts its calls in the worktree.

    Restoring the worktree takes back the count of an undone call.
    """
    with Nursery(tmp_path, {"FAKE_AGENT_COUNTER": ".calls"}) as made:
        yield made


def make(nest: Nest, nursery: Nursery) -> LoopProject:
    project = nest.make(nursery)
    return LoopProject(project.checkout, project.log, hooks=False)


def undisturbed(nest: Nest, nursery: Nursery) -> tuple[Outcome, float]:
    """Return the outcome of a loop without kills, and its duration in seconds."""
    project = make(nest, nursery)
    before = time.monotonic()
    done = nursery.call(project.checkout, "loop", "plan.md", *WORDS)
    seconds = time.monotonic() - before
    assert done.code == 0, done
    run = str(project.run())
    project.require_settled(nursery, run, interruptions=0)
    outcome = project.outcome(run)
    assert outcome.worktree["files"][b"notes"][2].decode() == NOTES
    loop = outcome.state["loop"]
    assert (loop["iterations"], loop["cost_usd"], loop["session"], loop["tests_output"]) == (
        ITERATIONS,
        1.875,
        "s-3",
        "7\n",
    )
    return outcome, seconds


@pytest.mark.long
def test_a_driver_that_is_killed_at_random_moments(
    nest: Nest, nursery: Nursery, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    expected, seconds = undisturbed(nest, nursery)
    left = 100 if request.config.getoption("--long") else KILLS
    while left > 0:
        project = make(nest, nursery)
        kills = 0
        while True:
            run = project.run()
            words = ("loop", "plan.md", *WORDS) if run is None else ("resume", run)
            nursery.start(project.checkout, *words)
            todo = 1 - (project.iterations(run) if run is not None else 0) / (ITERATIONS + 1)
            done = nursery.kill_after(
                chance.random() * seconds * todo if kills < min(left, 10) else 60
            )
            if done.code == 0 or (
                done.code == 2 and kills and done.err.startswith(f"error: run {run} is complete\n")
            ):
                break
            assert done.code == -9, done
            kills += 1
            if chance.random() < 0.5:
                assert nursery.orphans() == []
        assert done.code in (0, 2), done
        run = str(project.run())
        project.require_settled(nursery, run, interruptions=kills)
        outcome = project.outcome(run)
        for name in Outcome.__slots__:
            assert (name, getattr(outcome, name)) == (name, getattr(expected, name))
        left -= kills
