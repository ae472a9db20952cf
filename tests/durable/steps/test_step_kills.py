"""Reports that are killed and repeated lose nothing and count once."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkout
from tests.durable.nursery import Done, Nursery
from tests.durable.run.killing import Nest
from tests.store.conftest import require_runs, require_whole

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux", reason="finds orphans as their subreaper, and in /proc"
    ),
]

TRACK = "hello"
SCRIPT: tuple[tuple[str, ...], ...] = (
    ("start", "PLAN", "--agent", "planner"),
    ("progress", "PLAN", "--current-phase", "1", "--total-phases", "2"),
    ("pass", "PLAN", "--output", "plan.md", "--notes", "3 tasks"),
    ("fail", "EVALUATE_PLAN", "--agent", "reviewer", "--notes", "no tests"),
    ("start", "PLAN", "--agent", "planner"),
    ("pass", "PLAN", "--notes", "with tests"),
    ("pass", "EVALUATE_PLAN", "--agent", "reviewer"),
    ("start", "EXECUTE", "--agent", "coder", "--tasks-total", "3"),
    ("progress", "EXECUTE", "--task", "1.1", "--worker", "w1", "--commit", "HEAD"),
    (
        "progress",
        "EXECUTE",
        "--task",
        "1.1",
        "--worker",
        "w1",
        "--task-status",
        "PASSED",
        "--files",
    ),
    ("progress", "EXECUTE", "--task", "1.2", "--worker", "w2", "--task-status", "PASSED"),
    ("progress", "EXECUTE", "--task", "2.1", "--task-status", "PASSED", "--output", "a"),
    ("pass", "EXECUTE"),
    ("fail", "EVALUATE_EXECUTION", "--agent", "reviewer", "--notes", "red"),
    ("block", "FIX", "--notes", "no key"),
    ("reset", "FIX", "--notes", "here it is"),
    ("start", "FIX", "--agent", "coder"),
    ("progress", "FIX", "--set", "issues_fixed=1"),
    ("pass", "FIX", "--commit", "HEAD", "--files"),
    ("pass", "EVALUATE_EXECUTION", "--agent", "reviewer"),
)
TIMES = (
    "started_at",
    "completed_at",
    "last_updated",
    "step_started_at",
    "blocked_at",
    "resolved_at",
)


class Track:
    """A project in which a script reports its steps.

    Attributes:
        kills: how many reports were killed.
        unseen: how many of the killed reports were recorded nevertheless.
    """

    def __init__(self, checkout: Checkout, nursery: Nursery) -> None:
        self.checkout = checkout
        self.nursery = nursery
        self.kills = 0
        self.unseen = 0

    def start(self, words: tuple[str, ...]) -> None:
        """Start a report."""
        self.nursery.start(self.checkout, "step", *words, "--track", TRACK)

    def recorded(self) -> int:
        """Return the number of reports in `git ckpt step show --history`."""
        done = self.nursery.call(self.checkout, "step", "show", "--history", "--track", TRACK)
        assert done.code in (0, 12), done
        return len(done.out.splitlines())

    def must_be_made_again(self, done: Done, number: int) -> bool:
        """Return whether a report was killed before it was recorded.

        The caller saw no exit code, so it asks the history.
        """
        if done.code == 0:
            return False
        assert done.code == -9, done
        self.kills += 1
        recorded = self.recorded()
        assert recorded in (number, number + 1)
        self.unseen += recorded > number
        return recorded == number

    def outcome(self) -> dict[str, Any]:
        """Return the state and the reports in order, without times.

        The store must have no problems.
        """
        assert self.nursery.orphans() == []
        verified = self.nursery.call(self.checkout, "verify")
        assert (verified.code, verified.out) == (0, ""), verified
        locks = [
            str(path)
            for path in (self.checkout.path / ".git").rglob("*.lock")
            if path.parent.name != "ckpt"
        ]
        assert locks == []
        found = require_whole(self.checkout)
        (chain,) = require_runs(self.checkout, found).values()
        reports = [
            (found[name].label, found[name].agent, found[name].message, found[name].progress)
            for name in chain
        ]
        files = [found[name].tree for name in chain]
        assert len(found) == len(chain)
        return {"state": timeless(found[chain[-1]].state), "reports": reports, "files": files}


def timeless(value: Any) -> Any:
    """Return a state with TIME in place of each time."""
    if isinstance(value, dict):
        return {
            key: "TIME" if key in TIMES and inner is not None else timeless(inner)
            for key, inner in value.items()
        }
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture
def nest(main_checkout: Checkout, tmp_path: Path) -> Nest:
    main_checkout.commit("second", a="one\n")
    main_checkout.write("a", "two\n")
    return Nest(main_checkout, tmp_path / "nest", linked=False, hooks=False)


@pytest.fixture
def nursery(nest: Nest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    for name in ("CKPT_RUN", "CKPT_LEASE"):
        monkeypatch.delenv(name, raising=False)
    with Nursery(tmp_path, {}) as made:
        yield made


def undisturbed(nest: Nest, nursery: Nursery) -> tuple[dict[str, Any], list[float]]:
    """Return the outcome of the script without kills, and the seconds per report."""
    track, seconds = Track(nest.make(nursery).checkout, nursery), []
    for words in SCRIPT:
        before = time.monotonic()
        track.start(words)
        done = nursery.wait()
        seconds.append(time.monotonic() - before)
        assert done.code == 0, done
    outcome = track.outcome()
    loop = outcome["state"]["loop_state"]
    assert (loop["current_step"], loop["step_status"], len(outcome["reports"])) == (
        "COMPLETE",
        "PASSED",
        len(SCRIPT),
    )
    return outcome, seconds


KILLS = 10
"""How many reports are killed; with `--long` a hundred."""


def test_reports_that_are_killed_at_random_moments(
    nest: Nest, nursery: Nursery, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    expected, seconds = undisturbed(nest, nursery)
    most = 100 if request.config.getoption("--long") else KILLS
    kills = unseen = 0
    while kills < most:
        track = Track(nest.make(nursery).checkout, nursery)
        for number, words in enumerate(SCRIPT):
            track.start(words)
            if track.must_be_made_again(
                nursery.kill_after(chance.random() * seconds[number]), number
            ):
                track.start(words)
                assert nursery.wait().code == 0
        assert track.outcome() == expected
        kills, unseen = kills + track.kills, unseen + track.unseen
    assert (
        most == KILLS or 0 < unseen < kills
    )  # some were recorded, but the kill hid that from their callers


START, PASS, FAIL = ("start", "PLAN"), ("pass", "PLAN"), ("fail", "PLAN", "--notes", "no")
TWICE: tuple[tuple[tuple[tuple[str, ...], ...], int, set[str]], ...] = (
    ((START,), 0, {"iterations"}),
    (
        (
            START,
            (
                "progress",
                "PLAN",
                "--task",
                "1.1",
                "--task-status",
                "PASSED",
                "--commit",
                "HEAD",
                "--output",
                "a",
            ),
        ),
        0,
        set(),
    ),
    ((START, PASS), 2, set()),
    ((("skip", "PLAN"),), 2, set()),
    ((PASS, ("fail", "EVALUATE_PLAN", "--notes", "no")), 2, set()),
    ((START, FAIL), 0, {"iterations"}),
    ((("block", "PLAN", "--notes", "no key"),), 0, {"iterations", "blockers"}),
    ((("block", "PLAN", "--notes", "no key"), ("reset", "PLAN")), 0, set()),
)
"""Reports whose last one is repeated although it was recorded.

Each comes with the exit code of the repetition, and the keys that it changes, without times.
"""


@pytest.mark.long(but=["start PLAN"])
@pytest.mark.parametrize(
    ("reports", "code", "changed"), TWICE, ids=[" ".join(case[0][-1][:2]) for case in TWICE]
)
def test_a_report_that_is_made_again_though_it_was_recorded(
    nest: Nest, nursery: Nursery, reports: tuple[tuple[str, ...], ...], code: int, changed: set[str]
) -> None:
    track = Track(nest.make(nursery).checkout, nursery)
    for words in reports:
        track.start(words)
        assert nursery.wait().code == 0
    once = flat(track.outcome()["state"])
    track.start(reports[-1])
    done = nursery.wait()
    assert done.code == code, done
    assert track.recorded() == len(reports) + (code == 0)
    twice = flat(track.outcome()["state"])
    assert {
        name for name in once.keys() | twice.keys() if once.get(name) != twice.get(name)
    } == changed


def flat(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the keys of `loop_state` beside its own."""
    return {**state, **state["loop_state"], "loop_state": None}
