"""The progress of a loop is read from sound and broken states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt import Gauge, Progress, gauges

LOOP = {
    "iterations": 37,
    "allowed": 100,
    "tests": "failed",
    "open_issues": ["bd-2", "bd-3"],
    "closed_issues": ["bd-1"],
    "cost_usd": 1.5,
}
REVIEW = {
    "cycle": 2,
    "max_cycles": 3,
    "phase": 6,
    "total_cost_usd": 0.5,
    "max_budget_usd": 2.0,
    "all_findings": [
        {"severity": "major", "description": "a", "cycle": 1},
        {"severity": "major", "description": "b", "cycle": 2},
    ],
    "more": {
        "phase": "reviewing",
        "all_findings": [{"id": "f-1", "status": "fixed"}, {"id": "f-2", "status": "found"}],
    },
}
STEPS = {
    "current_step": "FIX",
    "step_status": "IN_PROGRESS",
    "fix_cycle_count": 1,
    "max_fix_cycles": 3,
}


@pytest.mark.parametrize(
    ("state", "progress", "expected"),
    [
        ({}, None, []),
        (
            {"loop": LOOP},
            Progress(tasks_completed=1, tasks_total=3),
            [
                Gauge("loop", "iteration 37 of 100, tests: failed", 37, 100),
                Gauge("issues", "1 of 3 closed, open: bd-2, bd-3", 1, 3),
                Gauge("cost", "1.50 USD"),
            ],
        ),
        (
            {"review": REVIEW},
            None,
            [
                Gauge("review", "cycle 2 of 3, reviewing", 2, 3),
                Gauge("findings", "1 major fixed, 1 major found", 1, 2),
                Gauge("budget", "0.50 of 2.00 USD", 0.5, 2.0),
            ],
        ),
        (
            {"review": {"cycle": 1, "max_cycles": 3, "phase": 6, "total_cost_usd": 0.5}},
            None,
            [Gauge("review", "cycle 1 of 3, 6", 1, 3), Gauge("cost", "0.50 USD")],
        ),
        (
            {"loop_state": STEPS},
            Progress(tasks_completed=5, tasks_total=35, current_task="Task 1.2"),
            [
                Gauge("step", "FIX, IN_PROGRESS"),
                Gauge("fixes", "1 of 3 cycles", 1, 3),
                Gauge("tasks", "5 of 35, at Task 1.2", 5, 35),
            ],
        ),
    ],
)
def test_what_they_say(
    state: dict[str, Any], progress: Progress | None, expected: list[Gauge]
) -> None:
    assert gauges(state, progress) == expected


@pytest.mark.parametrize(
    ("done", "total", "share"),
    [(1, 4, 0.25), (0, 4, 0.0), (9, 4, 1.0), (1, 0, None), (None, 4, None), (1, None, None)],
)
def test_how_full_one_is(done: float | None, total: float | None, share: float | None) -> None:
    assert Gauge("x", "", done, total).share == share


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from([*LOOP, *REVIEW, *STEPS, "id", "status"]), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@pytest.mark.long
@given(
    state=st.dictionaries(
        st.sampled_from(["loop", "review", "loop_state"]),
        st.one_of(anything, st.dictionaries(st.sampled_from([*LOOP, *REVIEW, *STEPS]), anything)),
    )
)
def test_a_state_that_was_fetched_may_hold_anything(state: dict[str, Any]) -> None:
    for gauge in gauges(state, None):
        assert len(gauge.text) < 400
        assert gauge.share is None or 0 <= gauge.share <= 1
