"""The expiry policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt.model import policy, times
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, POST_COMMIT, POST_MERGE
from gitckpt.model.policy import DAY, Candidate, Decision, Policy

quick = settings(max_examples=150, deadline=None, database=None)
NOW = times.from_text("2026-11-21T12:00:00Z")
NO_RANK = Policy(keep_last=0)
"""The default policy without the newest that stay."""


def candidate(
    days: float = 0, trigger: str = POST_COMMIT, *, run: str | None = None, rewritten: bool = False, name: str = "a"
) -> Candidate:
    return Candidate(name, NOW - int(days * DAY), trigger, run, rewritten)


def test_the_default_policy_is_30_days_7_when_rewritten_and_the_newest_100() -> None:
    assert Policy() == Policy(older_than=30 * 86400 * 10**6, rewritten_older_than=7 * 86400 * 10**6, keep_last=100, everything=False)


@pytest.mark.parametrize(
    ("found", "rules", "expires", "reason"),
    [
        pytest.param(candidate(40), Policy(), False, "among the newest 100", id="old, yet among the newest"),
        pytest.param(candidate(29.9), NO_RANK, False, "29d old, limit 30d", id="a little too young"),
        pytest.param(candidate(30), NO_RANK, True, "30d old, limit 30d", id="at the limit to the microsecond"),
        pytest.param(candidate(35, POST_MERGE), NO_RANK, True, "35d old, limit 30d", id="of a merge"),
        pytest.param(candidate(-2), NO_RANK, False, "0s old, limit 30d", id="from the future"),
        pytest.param(
            candidate(6.9, rewritten=True), NO_RANK, False, "its commit was rewritten, 6d old, limit 7d", id="rewritten, a little too young"
        ),
        pytest.param(
            candidate(7, rewritten=True), Policy(), True, "its commit was rewritten, 7d old, limit 7d", id="rewritten, among the newest"
        ),
        pytest.param(
            candidate(3, rewritten=True),
            Policy(older_than=2 * DAY),
            True,
            "its commit was rewritten, 3d old, limit 2d",
            id="rewritten never outlasts the others",
        ),
        pytest.param(candidate(400, MANUAL), NO_RANK, False, "not made by a hook", id="manual"),
        pytest.param(candidate(400, MANUAL, rewritten=True), NO_RANK, False, "not made by a hook", id="manual, rewritten"),
        pytest.param(candidate(400, "safety"), NO_RANK, False, "not made by a hook", id="safety"),
        pytest.param(candidate(400, "import:forge"), NO_RANK, False, "not made by a hook", id="imported"),
        pytest.param(candidate(400, "phase", run="r-done"), NO_RANK, False, "not made by a hook", id="phase of a finished run"),
        pytest.param(candidate(400, "phase", run="r-open"), NO_RANK, False, "belongs to the unfinished run r-open", id="unfinished run"),
        pytest.param(
            candidate(400, run="r-open", rewritten=True),
            NO_RANK,
            False,
            "belongs to the unfinished run r-open",
            id="hook in an unfinished run",
        ),
        pytest.param(candidate(400, run="r-done"), NO_RANK, True, "400d old, limit 30d", id="hook in a finished run"),
        pytest.param(candidate(400, MANUAL), replace(NO_RANK, everything=True), True, "400d old, limit 30d", id="everything: manual"),
        pytest.param(
            candidate(400, "phase", run="r-open"),
            replace(NO_RANK, everything=True),
            True,
            "400d old, limit 30d",
            id="everything: unfinished",
        ),
        pytest.param(candidate(29, MANUAL), replace(NO_RANK, everything=True), False, "29d old, limit 30d", id="everything: young"),
        pytest.param(candidate(400, MANUAL), Policy(everything=True), False, "among the newest 100", id="everything: among the newest"),
        pytest.param(
            candidate(10, MANUAL, rewritten=True),
            replace(NO_RANK, everything=True),
            False,
            "10d old, limit 30d",
            id="everything: rewriting counts for hooks only",
        ),
        pytest.param(candidate(0.5), Policy(older_than=0, keep_last=0), True, "12h old, limit 0s", id="expire all at once"),
    ],
)
def test_one_checkpoint(found: Candidate, rules: Policy, expires: bool, reason: str) -> None:
    decisions = policy.apply([found], rules, now=NOW, unfinished={"r-open"})
    assert decisions == [Decision("a", expires=expires, reason=reason)]


def test_the_newest_hundred_stay_and_the_rest_goes_by_age() -> None:
    found = [candidate(31 + i, name=str(i)) for i in range(103)]
    decisions = policy.apply(found, Policy(), now=NOW, unfinished=())
    kept = [Decision(str(i), expires=False, reason="among the newest 100") for i in range(100)]
    gone = [Decision(str(i), expires=True, reason=f"{31 + i}d old, limit 30d") for i in range(100, 103)]
    assert decisions == kept + gone


def test_only_checkpoints_that_could_expire_by_age_take_a_place_among_the_newest() -> None:
    found = [
        candidate(40, MANUAL, name="manual"),
        candidate(40, run="r-open", name="unfinished"),
        candidate(40, rewritten=True, name="rewritten"),
        candidate(40, name="first"),
        candidate(41, name="second"),
    ]
    decisions = policy.apply(found, Policy(keep_last=1), now=NOW, unfinished=["r-open"])
    assert decisions == [
        Decision("manual", expires=False, reason="not made by a hook"),
        Decision("unfinished", expires=False, reason="belongs to the unfinished run r-open"),
        Decision("rewritten", expires=True, reason="its commit was rewritten, 40d old, limit 7d"),
        Decision("first", expires=False, reason="among the newest 1"),
        Decision("second", expires=True, reason="41d old, limit 30d"),
    ]


def candidates() -> st.SearchStrategy[list[Candidate]]:
    one = st.builds(
        Candidate,
        id=st.uuids(version=4).map(str),
        time=st.integers(NOW - 100 * DAY, NOW + DAY),
        trigger=st.sampled_from((*HOOK_TRIGGERS, MANUAL, "safety", "phase", "import:forge")),
        run=st.sampled_from((None, "r-open", "r-done")),
        rewritten=st.booleans(),
    )
    return st.lists(one, max_size=12).map(lambda found: sorted(found, key=lambda each: -each.time))


def policies() -> st.SearchStrategy[Policy]:
    lengths = st.integers(0, 60 * DAY)
    return st.builds(Policy, older_than=lengths, rewritten_older_than=lengths, keep_last=st.integers(0, 6), everything=st.booleans())


@quick
@given(candidates(), policies(), st.integers(0, 100 * DAY))
def test_what_expires_today_expires_on_every_later_day(found: list[Candidate], rules: Policy, later: int) -> None:
    today = policy.apply(found, rules, now=NOW, unfinished={"r-open"})
    then = policy.apply(found, rules, now=NOW + later, unfinished={"r-open"})
    assert {each.id for each in today if each.expires} <= {each.id for each in then if each.expires}


@quick
@given(candidates(), policies())
def test_there_is_one_decision_with_a_reason_for_each_in_the_order_given(found: list[Candidate], rules: Policy) -> None:
    decisions = policy.apply(found, rules, now=NOW, unfinished={"r-open"})
    assert [each.id for each in decisions] == [each.id for each in found]
    assert all(each.reason for each in decisions)


@quick
@given(candidates(), policies())
def test_people_s_checkpoints_and_unfinished_runs_never_expire_unless_everything_is_asked_for(
    found: list[Candidate], rules: Policy
) -> None:
    decisions = policy.apply(found, replace(rules, everything=False), now=NOW + 10_000 * DAY, unfinished={"r-open"})
    gone = {each.id for each in decisions if each.expires}
    assert [each for each in found if each.id in gone and (each.trigger not in HOOK_TRIGGERS or each.run == "r-open")] == []


@quick
@given(candidates(), policies())
def test_the_newest_that_stay_are_never_rewritten_hook_checkpoints_nor_more_than_asked_for(found: list[Candidate], rules: Policy) -> None:
    decisions = policy.apply(found, rules, now=NOW + 10_000 * DAY, unfinished=())
    kept = [each for each, decision in zip(found, decisions, strict=True) if decision.reason.startswith("among the newest")]
    assert len(kept) <= rules.keep_last
    assert not any(each.rewritten and each.trigger in HOOK_TRIGGERS for each in kept)
