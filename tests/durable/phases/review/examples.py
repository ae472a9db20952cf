"""Example states of coder and reviewer, and a strategy for arbitrary ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gitckpt.durable.phases.review.state import (
    ERROR,
    FIXED,
    MORE,
    PHASES,
    STATUSES,
    STILL_PRESENT,
    ReviewFinding,
    ReviewReport,
    ReviewState,
    Verification,
)
from gitckpt.model import times

EMPTY = ReviewState()


def without_more(state: ReviewState) -> dict[str, Any]:
    """Return a state as a table with the keys of quasar's own checkpoint."""
    return {key: value for key, value in state.to_state_table().items() if key != MORE}


MID_CYCLE = ReviewState(
    phase_id="login",
    nebula_name="Users",
    created_at="2026-03-01T04:16:02.408934Z",
    git_sha="a1" * 20,
    task_bead_id="login-1",
    task_title="Title with \"quotes\" and 'apostrophes'",
    cycle=2,
    max_cycles=5,
    phase="review_complete",
    total_cost_usd=9.421737999999998,
    max_budget_usd=30.0,
    coder_output='line\n```go\nfmt.Println("hi\\n")\n```\n',
    review_output="ISSUE:\nSEVERITY: major\nDESCRIPTION: it's broken\r\n",
    lint_output="\x1b[31mred\x1b[0m\ttab\0nul\x7fdel",
    base_commit_sha="00" * 20,
    cycle_commits=("c1",),
    findings=(ReviewFinding("major", "it's broken", 2),),
    all_findings=(
        ReviewFinding("minor", "multi\nline — ✓ 日本", 1, FIXED),
        ReviewFinding("major", "old", 1, STILL_PRESENT),
    ),
    verifications=(Verification("f-0123456789ab", FIXED, "gone"),),
    filter_history=("vet",),
    last_cycle_sha="b2" * 20,
    sessions={"coder": "s-1"},
    report=ReviewReport("low", "high", True, "not yet"),
)

MANY_CYCLES = ReviewState(
    created_at="2026-02-28T23:16:02.000000Z",
    git_sha="c3" * 20,
    task_bead_id="login-1",
    task_title="Add a login",
    cycle=4,
    max_cycles=5,
    phase=ERROR,
    failed_in="resolving_issues",
    problem="the budget is used up",
    base_commit_sha="00" * 20,
    cycle_commits=("c1", "c2", "c2", "c3"),
    child_bead_ids=("login-1.1", "login-1.2"),
    refactored=True,
    original_description="Add a login",
    refactor_description="Add a login by mail",
    filter_output="vet: bad",
    filter_check_name="vet",
    filter_history=("", "vet", "", "vet"),
    uncommitted="lint fix",
    lint_fixes=2,
    struggle="going round in circles",
)

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_AMOUNTS = st.floats(0, 1e9) | st.just(0.1 + 0.2)
_FINDINGS = st.lists(
    st.builds(ReviewFinding, _TEXTS, _TEXTS, st.integers(0, 9), st.sampled_from(STATUSES)),
    max_size=3,
).map(tuple)
_WORDS = st.lists(_TEXTS, max_size=3).map(tuple)


def _reports() -> st.SearchStrategy[ReviewReport | None]:
    return st.none() | st.builds(ReviewReport, _TEXTS, _TEXTS, st.booleans(), _TEXTS)


STATES = st.builds(
    ReviewState,
    phase_id=_TEXTS,
    nebula_name=_TEXTS,
    created_at=st.just("") | st.integers(0, 4 * 10**15).map(times.to_text),
    git_sha=_TEXTS,
    task_bead_id=_TEXTS,
    task_title=_TEXTS,
    cycle=st.integers(1, 9),
    max_cycles=st.integers(0, 9),
    phase=st.sampled_from(PHASES[:-1]),
    total_cost_usd=_AMOUNTS,
    max_budget_usd=_AMOUNTS,
    coder_output=_TEXTS,
    review_output=_TEXTS,
    lint_output=_TEXTS,
    base_commit_sha=_TEXTS,
    cycle_commits=_WORDS,
    child_bead_ids=_WORDS,
    refactored=st.booleans(),
    findings=_FINDINGS,
    all_findings=_FINDINGS,
    problem=_TEXTS,
    verifications=st.lists(
        st.builds(Verification, _TEXTS, st.sampled_from(STATUSES), _TEXTS), max_size=3
    ).map(tuple),
    filter_output=_TEXTS,
    filter_check_name=_TEXTS,
    filter_history=_WORDS,
    original_description=_TEXTS,
    refactor_description=_TEXTS,
    last_cycle_sha=_TEXTS,
    uncommitted=st.sampled_from(["", "cycle", "lint fix"]),
    lint_fixes=st.integers(0, 9),
    sessions=st.dictionaries(st.sampled_from(["coder", "reviewer"]), _TEXTS),
    struggle=_TEXTS,
    beads=st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    report=_reports(),
)
"""Any state that a review can have, without errors."""
