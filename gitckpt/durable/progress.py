"""Extract progress values, such as closed issues or costs, from a run's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

from gitckpt.model.arguments import require_type
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import dataclass

_LONGEST = 120  # maximum length of one value, in characters
_MOST = 10  # maximum number of blockers shown


@dataclass(frozen=True, slots=True)
class Gauge:
    """A progress value of a run to show to people, such as closed issues or costs."""

    name: str
    text: str
    done: float | None = None  # None if the value is not an amount
    total: float | None = None  # the upper bound of `done`

    @property
    def share(self) -> float | None:
        """Return `done / total`, from 0 to 1; None if `done` or `total` is unknown."""
        if self.done is None or not self.total:
            return None
        return min(max(self.done / self.total, 0.0), 1.0)


def gauges(state: Mapping[str, Any], progress: Progress | None = None) -> list[Gauge]:
    """Return the progress values in a run's `state` and a checkpoint's `progress`."""
    require_type("state", state, Mapping, "a map of names to values")
    require_type("progress", progress, (Progress, NoneType), "a Progress")
    all_gauges = _loop_gauges(_get_table(state, "loop"))
    all_gauges += _review_gauges(_get_table(state, "review"))
    all_gauges += _step_gauges(_get_table(state, "loop_state"))
    blockers = [item for item in _get_list(state, "blockers") if isinstance(item, Mapping)]
    active_blockers = [item for item in blockers if str(item.get("status", "")).upper() == "ACTIVE"]
    for blocker in active_blockers[:_MOST]:
        description = _short_text(blocker.get("description", ""))
        all_gauges.append(Gauge("blocker", f"{_short_text(blocker.get('id', '?'))}: {description}"))
    total = progress.tasks_total if progress is not None else None
    if progress is not None and total and not any(gauge.name == "issues" for gauge in all_gauges):
        completed = progress.tasks_completed or 0
        task_suffix = f", at {_short_text(progress.current_task)}" if progress.current_task else ""
        all_gauges.append(Gauge("tasks", f"{completed} of {total}{task_suffix}", completed, total))
    return all_gauges


def usage(state: Mapping[str, Any], results: Iterable[object]) -> tuple[float, int]:
    """Return the US dollars and tokens that a run used, as far as recorded."""
    loop, review = _get_table(state, "loop"), _get_table(state, "review")
    tables = [result for result in results if isinstance(result, Mapping)]
    agents = [table for table in tables if "iterations" not in table and "cycles" not in table]
    cost = _get_amount(loop, "cost_usd") + _get_amount(review, "total_cost_usd")
    cost += sum(_get_amount(table, "cost_usd") for table in agents)
    counts = (_get_table(table, "tokens").values() for table in (loop, *agents))
    tokens = [count for table in counts for count in table if type(count) is int and count > 0]
    return cost, min(sum(tokens), 10**15)


# A state may have been fetched: the readers below check every type and bound every number and text.


def _loop_gauges(loop: Mapping[str, Any]) -> list[Gauge]:
    if not loop:
        return []
    iteration, limit = _get_count(loop, "iterations"), _get_count(loop, "allowed")
    tests = f", tests: {_short_text(loop['tests'])}" if isinstance(loop.get("tests"), str) else ""
    loop_gauges = [Gauge("loop", f"iteration {iteration} of {limit}{tests}", iteration, limit)]
    closed_issues, open_issues = _get_list(loop, "closed_issues"), _get_list(loop, "open_issues")
    if closed_issues or open_issues:
        suffix = f", open: {_short_text(', '.join(map(str, open_issues)))}" if open_issues else ""
        count, total = len(closed_issues), len(closed_issues) + len(open_issues)
        loop_gauges.append(Gauge("issues", f"{count} of {total} closed{suffix}", count, total))
    costs = _cost_gauges(_get_amount(loop, "cost_usd"), _get_amount(loop, "max_budget_usd"))
    return [*loop_gauges, *costs]


def _review_gauges(review: Mapping[str, Any]) -> list[Gauge]:
    if not review:
        return []
    extra_fields = _get_table(review, "more")
    cycle, limit = _get_count(review, "cycle"), _get_count(review, "max_cycles")
    phase_text = _short_text(extra_fields.get("phase", review.get("phase")))
    gauges = [Gauge("review", f"cycle {cycle} of {limit}, {phase_text}", cycle, limit)]
    findings: Counter[tuple[str, str]] = Counter()
    extra_findings = _get_list(extra_fields, "all_findings")
    for position, finding in enumerate(_get_list(review, "all_findings")):
        extra = extra_findings[position] if position < len(extra_findings) else {}
        if isinstance(finding, Mapping):
            status = extra.get("status", "found") if isinstance(extra, Mapping) else "found"
            findings[_short_text(finding.get("severity")), _short_text(status)] += 1
    if findings:
        texts = [f"{count} {severity} {status}" for (severity, status), count in findings.items()]
        fixed = sum(count for (_, status), count in findings.items() if status == "fixed")
        gauges.append(Gauge("findings", ", ".join(texts)[:_LONGEST], fixed, sum(findings.values())))
    cost, budget = _get_amount(review, "total_cost_usd"), _get_amount(review, "max_budget_usd")
    return [*gauges, *_cost_gauges(cost, budget)]


def _cost_gauges(cost: float, budget: float) -> list[Gauge]:
    if budget:
        return [Gauge("budget", f"{cost:.2f} of {budget:.2f} USD", cost, budget)]
    return [Gauge("cost", f"{cost:.2f} USD")] if cost else []


def _step_gauges(loop: Mapping[str, Any]) -> list[Gauge]:
    if not loop:
        return []
    status = _short_text(loop.get("step_status") or "NOT_STARTED")
    step_gauges = [Gauge("step", f"{_short_text(loop.get('current_step'))}, {status}")]
    fixes, limit = _get_count(loop, "fix_cycle_count"), _get_count(loop, "max_fix_cycles")
    if fixes:
        step_gauges.append(Gauge("fixes", f"{fixes} of {limit} cycles", fixes, limit))
    return step_gauges


def _get_table(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    return value if isinstance(value, Mapping) else {}


def _get_list(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key)
    return value if isinstance(value, list) else []


def _get_count(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0


def _get_amount(table: Mapping[str, Any], key: str) -> float:
    value = table.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < 10**9 else 0.0


def _short_text(value: object) -> str:
    return str(value)[:_LONGEST] if isinstance(value, str | int) else "?"
