"""The struggle check tells a review that goes in circles from one that progresses."""

from __future__ import annotations

import pytest

from gitckpt.durable.phases.review import cycle as stall
from gitckpt.durable.phases.review.state import ReviewFinding, ReviewState

BUG = "the same bug keeps coming back over and over"


def findings(*descriptions: str, cycle: int = 2) -> tuple[ReviewFinding, ...]:
    return tuple(ReviewFinding("major", each, cycle) for each in descriptions)


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ((), 0),
        (("", "", ""), 0),
        (("lint",), 1),
        (("lint", "lint", "lint"), 3),
        (("lint", "format", "format"), 2),
        (("lint", "", "lint"), 1),
        (("lint", "lint", ""), 0),
    ],
)
def test_repeats(history: tuple[str, ...], count: int) -> None:
    assert stall.count_repeated_failures(history) == count


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("", "", 1.0),
        ("", "a", 0.0),
        ("a b", "A  B", 1.0),
        ("a b c", "d e f", 0.0),
        ("a b c d x", "a b c d y", 4 / 6),
    ],
)
def test_likeness(one: str, other: str, alike: float) -> None:
    assert stall.likeness(one, other) == alike


def test_overlap_is_with_earlier_cycles_only() -> None:
    current = findings(BUG, "something else")
    state = ReviewState(cycle=2, findings=current, all_findings=(*findings(BUG, cycle=1), *current))
    assert stall.measure_struggle(state).overlap == 0.5
    assert (
        stall.measure_struggle(ReviewState(cycle=2, findings=current, all_findings=current)).overlap
        == 0.0
    )
    assert stall.measure_overlap((), current) == 0.0


@pytest.mark.parametrize(
    ("cycle", "cycles", "cost", "budget", "burn"),
    [
        (5, 10, 5.0, 10.0, 1.0),
        (2, 10, 4.0, 10.0, 2.0),
        (2, 10, 1.0, 0.0, 0.0),
        (0, 10, 1.0, 10.0, 0.0),
        (1, 0, 1.0, 10.0, 0.0),
    ],
)
def test_burn(cycle: int, cycles: int, cost: float, budget: float, burn: float) -> None:
    assert (
        stall.compare_cost_to_share(
            ReviewState(cycle=cycle, max_cycles=cycles, total_cost_usd=cost, max_budget_usd=budget)
        )
        == burn
    )


STUCK = {
    "cycle": 2,
    "findings": findings(BUG),
    "all_findings": (*findings(BUG, cycle=1), *findings(BUG)),
}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({**STUCK, "cycle": 1, "filter_history": ("vet", "vet")}, ""),
        (STUCK, ""),
        ({"cycle": 2, "filter_history": ("vet", "vet")}, ""),
        (
            {**STUCK, "filter_history": ("vet", "vet")},
            (
                "the same filter failed in 2 cycles in a row, 100% of the findings are those "
                "of earlier cycles"
            ),
        ),
        ({**STUCK, "max_cycles": 4, "total_cost_usd": 5.0, "max_budget_usd": 10.0}, ""),
        (
            {**STUCK, "max_cycles": 4, "total_cost_usd": 9.5, "max_budget_usd": 10.0},
            (
                "100% of the findings are those of earlier cycles, a cycle costs 1.90 times "
                "its share of the budget"
            ),
        ),
    ],
)
def test_reason(said: dict[str, object], reason: str) -> None:
    assert stall.explain_struggle(ReviewState(**said)) == reason  # type: ignore[arg-type]


def test_all_signs_together_are_one() -> None:
    assert stall.StruggleSigns(9, 1.0, 9.0).struggle_score == pytest.approx(1.0)
    assert stall.StruggleSigns().struggle_score == 0
