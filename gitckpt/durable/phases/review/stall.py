"""Notices that coder and reviewer go round in circles. Pure.

Three signs, each between 0 and 1, are weighed: the same filter fails again and again (.35), the findings are those of earlier cycles
(.40), the budget goes faster than the cycles do (.25). Together they count from .6 on, after two cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitckpt.durable.phases.review.finding import ReviewFinding
from gitckpt.durable.phases.review.state import CycleState
from gitckpt.model.values import dataclass

_FIRST_CYCLE = 2
"""The first cycle that can show it."""

_THRESHOLD = 0.6
_FILTER_WEIGHT, _OVERLAP_WEIGHT, _BURN_WEIGHT = 0.35, 0.40, 0.25
_REPEATS, _OVERLAP = 2, 0.6
"""From where on the first two count in full. The third counts from an even share of the budget on, and in full from twice of it."""

_SAME = 0.8
"""How alike two descriptions are that say the same."""


@dataclass(frozen=True, slots=True)
class Signs:
    """How much it looks like a struggle.

    Attributes:
        repeats: in how many cycles on end the same filter failed.
        overlap: which part of this cycle's findings is like one of an earlier cycle, from 0 to 1.
        burn: what a cycle costs, as a multiple of what each may cost if the budget is to last for all.
    """

    repeats: int = 0
    overlap: float = 0.0
    burn: float = 0.0

    @property
    def score(self) -> float:
        """All signs together, from 0 to 1."""
        return (
            _FILTER_WEIGHT * min(self.repeats / _REPEATS, 1)
            + _OVERLAP_WEIGHT * min(self.overlap / _OVERLAP, 1)
            + _BURN_WEIGHT * min(max(self.burn - 1, 0), 1)
        )

    def sentence(self) -> str:
        """Returns the signs that were seen, for people."""
        said = []
        if self.repeats:
            said.append(f"the same filter failed in {self.repeats} cycles on end" if self.repeats > 1 else "a filter failed")
        if self.overlap:
            said.append(f"{self.overlap:.0%} of the findings are those of earlier cycles")
        if self.burn > 1:
            said.append(f"a cycle costs {self.burn:.2f} times its share of the budget")
        return ", ".join(said)


def signs(state: CycleState) -> Signs:
    """Returns what a state shows at the end of a cycle that was not approved; nothing before `_FIRST_CYCLE`."""
    if state.cycle < _FIRST_CYCLE:
        return Signs()
    earlier = [each for each in state.all_findings if each.cycle < state.cycle]
    return Signs(repeats(state.filter_history), overlap(state.findings, earlier), burn(state))


def reason(state: CycleState) -> str:
    """Returns why a state at the end of a cycle is taken for a struggle; "" where it is not."""
    seen = signs(state)
    return seen.sentence() if seen.score >= _THRESHOLD else ""


def repeats(history: Sequence[str]) -> int:
    """Returns how often the last filter that failed did so on end; 0 where none failed last."""
    count = 0
    for name in reversed(history):
        if not name or name != history[-1]:
            break
        count += 1
    return count


def overlap(current: Sequence[ReviewFinding], earlier: Iterable[ReviewFinding]) -> float:
    """Returns which part of some findings is like an earlier one, from 0 to 1."""
    known = [each.description for each in earlier]
    same = [each for each in current if any(likeness(each.description, other) >= _SAME for other in known)]
    return len(same) / len(current) if current else 0.0


def burn(state: CycleState) -> float:
    """Returns what a cycle costs, as a multiple of its even share of the budget; 0 where there is none."""
    if state.max_budget_usd <= 0 or state.max_cycles <= 0 or state.cycle <= 0:
        return 0.0
    return (state.total_cost_usd / state.cycle) / (state.max_budget_usd / state.max_cycles)


def likeness(one: str, other: str) -> float:
    """Returns how many of the words of two texts are in both (Jaccard), from 0 to 1; upper and lower case are the same."""
    words, others = set(one.lower().split()), set(other.lower().split())
    return len(words & others) / len(words | others) if words | others else 1.0
