"""Read the progress of loops from the state of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import NoneType

from gitckpt.model.arguments import require
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_LONGEST = 120  # characters of one value
_MOST = 10  # blockers shown


@dataclass(frozen=True, slots=True)
class Gauge:
    """One progress value to show to people, such as "issues" or "budget"."""

    name: str
    text: str
    done: float | None = None  # None if the value is not an amount
    total: float | None = None  # the upper bound of `done`

    @property
    def share(self) -> float | None:
        """Return done / total, from 0 to 1; None without amounts."""
        return (
            min(max(self.done / self.total, 0.0), 1.0)
            if self.done is not None and self.total
            else None
        )


def gauges(state: Mapping[str, Any], progress: Progress | None = None) -> list[Gauge]:
    """Return the progress values in the state and the progress of a checkpoint."""
    require("state", state, Mapping, "a map of names to values")
    require("progress", progress, (Progress, NoneType), "a Progress")
    found = [
        *_loop(_table(state, "loop")),
        *_review(_table(state, "review")),
        *_steps(_table(state, "loop_state")),
        *_blockers(state),
    ]
    total = progress.tasks_total if progress is not None else None
    if progress is not None and total and not any(gauge.name == "issues" for gauge in found):
        done = progress.tasks_completed or 0
        task = f", at {_word(progress.current_task)}" if progress.current_task else ""
        found.append(Gauge("tasks", f"{done} of {total}{task}", done, total))
    return found


# A state may have been fetched: the readers below check every type and bound every number and text.


def _loop(loop: Mapping[str, Any]) -> list[Gauge]:
    if not loop:
        return []
    at, most = _count(loop, "iterations"), _count(loop, "allowed")
    tests = f", tests: {_word(loop['tests'])}" if isinstance(loop.get("tests"), str) else ""
    found = [Gauge("loop", f"iteration {at} of {most}{tests}", at, most)]
    closed, still = _listed(loop, "closed_issues"), _listed(loop, "open_issues")
    if closed or still:
        names = f", open: {_word(', '.join(map(str, still)))}" if still else ""
        found.append(
            Gauge(
                "issues",
                f"{len(closed)} of {len(closed) + len(still)} closed{names}",
                len(closed),
                len(closed) + len(still),
            )
        )
    return [*found, *_spent(_amount(loop, "cost_usd"), _amount(loop, "max_budget_usd"))]


def _review(review: Mapping[str, Any]) -> list[Gauge]:
    if not review:
        return []
    more = _table(review, "more")
    at, most = _count(review, "cycle"), _count(review, "max_cycles")
    found = [
        Gauge(
            "review",
            f"cycle {at} of {most}, {_word(more.get('phase', review.get('phase')))}",
            at,
            most,
        )
    ]
    numbers: Counter[tuple[str, str]] = Counter()
    statuses = _listed(more, "all_findings")
    for number, finding in enumerate(_listed(review, "all_findings")):
        if isinstance(finding, Mapping):
            kept = (
                statuses[number]
                if number < len(statuses) and isinstance(statuses[number], Mapping)
                else {}
            )
            numbers[_word(finding.get("severity")), _word(kept.get("status", "found"))] += 1
    if numbers:
        text = ", ".join(
            f"{count} {severity} {status}" for (severity, status), count in numbers.items()
        )
        fixed = sum(count for (_, status), count in numbers.items() if status == "fixed")
        found.append(Gauge("findings", text[:_LONGEST], fixed, sum(numbers.values())))
    return [*found, *_spent(_amount(review, "total_cost_usd"), _amount(review, "max_budget_usd"))]


def _spent(cost: float, budget: float) -> list[Gauge]:
    if budget:
        return [Gauge("budget", f"{cost:.2f} of {budget:.2f} USD", cost, budget)]
    return [Gauge("cost", f"{cost:.2f} USD")] if cost else []


def _steps(loop: Mapping[str, Any]) -> list[Gauge]:
    if not loop:
        return []
    found = [
        Gauge(
            "step",
            f"{_word(loop.get('current_step'))}, {_word(loop.get('step_status') or 'NOT_STARTED')}",
        )
    ]
    fixes, most = _count(loop, "fix_cycle_count"), _count(loop, "max_fix_cycles")
    return [*found, *([Gauge("fixes", f"{fixes} of {most} cycles", fixes, most)] if fixes else [])]


def _blockers(state: Mapping[str, Any]) -> list[Gauge]:
    known = (each for each in _listed(state, "blockers") if isinstance(each, Mapping))
    active = [each for each in known if str(each.get("status", "")).upper() == "ACTIVE"]
    return [
        Gauge("blocker", f"{_word(each.get('id', '?'))}: {_word(each.get('description', ''))}")
        for each in active[:_MOST]
    ]


def _table(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = state.get(key)
    return found if isinstance(found, Mapping) else {}


def _listed(table: Mapping[str, Any], key: str) -> list[Any]:
    found = table.get(key)
    return found if isinstance(found, list) else []


def _count(table: Mapping[str, Any], key: str) -> int:
    found = table.get(key)
    return found if isinstance(found, int) and 0 <= found < 10**9 else 0


def _amount(table: Mapping[str, Any], key: str) -> float:
    found = table.get(key)
    return float(found) if isinstance(found, int | float) and 0 <= found < 10**9 else 0.0


def _word(value: object) -> str:
    return str(value)[:_LONGEST] if isinstance(value, str | int) else "?"
