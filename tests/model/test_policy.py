"""The expiry policy decides which checkpoints stay, and gives the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import Policy, UsageError
from gitckpt.model import policy, runstate, times
from gitckpt.model.checkpoint import (
    GUARD,
    HOOK_TRIGGERS,
    MANUAL,
    POST_COMMIT,
    POST_MERGE,
    RESCUE,
    SAFETY,
    SUBMODULE,
    TURN,
)
from gitckpt.model.policy import (
    DAY,
    HOUR,
    Decision,
    ExpiryCandidate,
    NewestKept,
    RunCandidate,
)
from tests.conftest import examples

quick = settings(max_examples=examples(150), deadline=None, database=None)
NOW = times.parse_timestamp("2026-11-21T12:00:00Z")
NO_RANK = Policy(keep_last=0, safety_keep_last=0)
"""The default policy without `keep_last` and `safety_keep`."""


def newest(found: list[ExpiryCandidate], rules: Policy) -> NewestKept:
    """Return the checkpoints that stay as the newest, given all of them in order."""

    def oldest(some: list[ExpiryCandidate], count: int) -> tuple[int, str] | None:
        if not count:
            return None
        return (some[count - 1].time, some[count - 1].id) if len(some) >= count else policy.ALL

    alone = [each for each in found if each.run is None]
    hooks = [
        each
        for each in alone
        if each.trigger in HOOK_TRIGGERS
        or (rules.everything and each.trigger not in (SAFETY, SUBMODULE))
    ]
    safeties = [each for each in alone if each.trigger == SAFETY]
    automatic = [each for each in alone if each.is_automatic]
    return NewestKept(
        oldest(hooks, rules.keep_last),
        oldest(automatic, rules.keep_last),
        oldest(safeties, rules.safeties),
    )


def apply(found: list[ExpiryCandidate], rules: Policy, now: int) -> list[Decision]:
    return policy.decide_expiry(found, rules, newest(found, rules), now=now)


def candidate(
    days: float = 0,
    trigger: str = POST_COMMIT,
    *,
    run: str | None = None,
    rewritten: bool = False,
    name: str = "a",
) -> ExpiryCandidate:
    return ExpiryCandidate(name, NOW - int(days * DAY), trigger, run, rewritten)


def test_default_policy_keeps_30_days_or_100_and_shorter_limits_for_runs_and_safety() -> None:
    week = 7 * 86400 * 10**6
    assert Policy() == Policy(
        older_than=30 * 86400 * 10**6,
        rewritten_older_than=week,
        keep_last=100,
        runs_older_than=week,
        hourly_after=week // 7,
        daily_after=week,
        agent_hourly_after=week // 7,
        agent_last_after=week,
        agent_older_than=30 * 86400 * 10**6,
        safety_older_than=week,
        safety_keep_last=20,
        everything=False,
    )


@pytest.mark.parametrize(
    ("found", "rules", "expires", "reason"),
    [
        pytest.param(
            candidate(40), Policy(), False, "among the newest 100", id="old, yet among the newest"
        ),
        pytest.param(
            candidate(29.9), NO_RANK, False, "29d old, limit 30d", id="a little too young"
        ),
        pytest.param(
            candidate(30), NO_RANK, True, "30d old, limit 30d", id="at the limit to the microsecond"
        ),
        pytest.param(
            candidate(35, POST_MERGE), NO_RANK, True, "35d old, limit 30d", id="of a merge"
        ),
        pytest.param(candidate(-2), NO_RANK, False, "0s old, limit 30d", id="from the future"),
        pytest.param(
            candidate(6.9, rewritten=True),
            NO_RANK,
            False,
            "its commit was rewritten, 6d old, limit 7d",
            id="rewritten, a little too young",
        ),
        pytest.param(
            candidate(7, rewritten=True),
            Policy(),
            True,
            "its commit was rewritten, 7d old, limit 7d",
            id="rewritten, among the newest",
        ),
        pytest.param(
            candidate(3, rewritten=True),
            Policy(older_than=2 * DAY),
            True,
            "its commit was rewritten, 3d old, limit 2d",
            id="rewritten never outlasts the others",
        ),
        pytest.param(candidate(400, MANUAL), NO_RANK, False, "not made by a hook", id="manual"),
        pytest.param(
            candidate(400, MANUAL, rewritten=True),
            NO_RANK,
            False,
            "not made by a hook",
            id="manual, rewritten",
        ),
        pytest.param(
            candidate(400, SAFETY),
            Policy(),
            False,
            "made for safety, among the newest 20",
            id="safety: among the newest",
        ),
        pytest.param(
            candidate(7, SAFETY),
            NO_RANK,
            True,
            "made for safety, 7d old, limit 7d",
            id="safety: at the limit",
        ),
        pytest.param(
            candidate(6.9, SAFETY),
            NO_RANK,
            False,
            "made for safety, 6d old, limit 7d",
            id="safety: too young",
        ),
        pytest.param(
            candidate(400, SAFETY, run="r"),
            NO_RANK,
            False,
            "belongs to the run r",
            id="safety: of a run",
        ),
        pytest.param(
            candidate(400, RESCUE),
            NO_RANK,
            False,
            "not made by a hook",
            id="safety: of a worktree that is gone",
        ),
        pytest.param(
            candidate(8, SAFETY, rewritten=True),
            NO_RANK,
            True,
            "made for safety, 8d old, limit 7d",
            id="safety: rewritten",
        ),
        pytest.param(
            candidate(3, SAFETY),
            Policy(older_than=2 * DAY, keep_last=0, everything=True),
            True,
            "made for safety, 3d old, limit 2d",
            id="everything: safety goes with the others",
        ),
        pytest.param(
            candidate(3, SAFETY),
            Policy(older_than=2 * DAY, keep_last=0),
            False,
            "made for safety, among the newest 20",
            id="the limits of the others are not those of safety",
        ),
        pytest.param(
            candidate(400, "import:forge"), NO_RANK, False, "not made by a hook", id="imported"
        ),
        pytest.param(
            candidate(400, "phase", run="r"), NO_RANK, False, "belongs to the run r", id="of a run"
        ),
        pytest.param(
            candidate(400, run="r", rewritten=True),
            NO_RANK,
            False,
            "belongs to the run r",
            id="hook in a run",
        ),
        pytest.param(
            candidate(400, MANUAL),
            replace(NO_RANK, everything=True),
            True,
            "400d old, limit 30d",
            id="everything: manual",
        ),
        pytest.param(
            candidate(400, run="r"),
            replace(NO_RANK, everything=True),
            False,
            "belongs to the run r",
            id="everything: of a run",
        ),
        pytest.param(
            candidate(29, MANUAL),
            replace(NO_RANK, everything=True),
            False,
            "29d old, limit 30d",
            id="everything: young",
        ),
        pytest.param(
            candidate(400, MANUAL),
            Policy(everything=True),
            False,
            "among the newest 100",
            id="everything: among the newest",
        ),
        pytest.param(
            candidate(10, MANUAL, rewritten=True),
            replace(NO_RANK, everything=True),
            False,
            "10d old, limit 30d",
            id="everything: rewriting counts for hooks only",
        ),
        pytest.param(
            candidate(0.5),
            Policy(older_than=0, keep_last=0),
            True,
            "12h old, limit 0s",
            id="expire all at once",
        ),
        *(
            pytest.param(
                replace(candidate(400, SUBMODULE), tagged=tagged),
                replace(NO_RANK, everything=everything),
                False,
                "belongs to a checkpoint of the superproject",
                id=f"of a submodule {tagged} {everything}",
            )
            for tagged in (False, True)
            for everything in (False, True)
        ),
        pytest.param(replace(candidate(400), tagged=True), NO_RANK, False, "tagged", id="tagged"),
        pytest.param(
            replace(candidate(400, POST_MERGE, rewritten=True), tagged=True),
            NO_RANK,
            False,
            "tagged",
            id="tagged, rewritten",
        ),
        pytest.param(
            replace(candidate(400, MANUAL), tagged=True),
            NO_RANK,
            False,
            "not made by a hook",
            id="tagged, manual",
        ),
        pytest.param(
            replace(candidate(8, SAFETY), tagged=True),
            NO_RANK,
            True,
            "made for safety, 8d old, limit 7d",
            id="tagged, safety",
        ),
        pytest.param(
            replace(candidate(400), tagged=True),
            replace(NO_RANK, everything=True),
            True,
            "400d old, limit 30d",
            id="everything: tagged",
        ),
    ],
)
def test_one_checkpoint(found: ExpiryCandidate, rules: Policy, expires: bool, reason: str) -> None:
    decisions = apply([found], rules, now=NOW)
    assert decisions == [Decision("a", expires=expires, reason=reason)]


def test_the_newest_hundred_stay_and_the_rest_goes_by_age() -> None:
    found = [candidate(31 + i, name=str(i)) for i in range(103)]
    decisions = apply(found, Policy(), now=NOW)
    kept = [Decision(str(i), expires=False, reason="among the newest 100") for i in range(100)]
    gone = [
        Decision(str(i), expires=True, reason=f"{31 + i}d old, limit 30d") for i in range(100, 103)
    ]
    assert decisions == kept + gone


def test_only_checkpoints_by_hooks_take_a_place_among_the_newest() -> None:
    found = [
        candidate(39, MANUAL, name="manual"),
        candidate(39, run="r", name="of a run"),
        candidate(39, SAFETY, name="safety"),
        candidate(40, name="first"),
        candidate(41, name="second"),
    ]
    decisions = apply(found, Policy(keep_last=1), now=NOW)
    assert decisions == [
        Decision("manual", expires=False, reason="not made by a hook"),
        Decision("of a run", expires=False, reason="belongs to the run r"),
        Decision("safety", expires=False, reason="made for safety, among the newest 20"),
        Decision("first", expires=False, reason="among the newest 1"),
        Decision("second", expires=True, reason="41d old, limit 30d"),
    ]


def test_the_newest_twenty_for_safety_are_counted_apart() -> None:
    found = [
        candidate(8 + i / 100, trigger, name=f"{trigger} {i}")
        for i in range(22)
        for trigger in (SAFETY, POST_COMMIT)
    ]
    decisions = apply(found, Policy(keep_last=22, older_than=0), now=NOW)
    assert [each.id for each in decisions if each.expires] == ["safety 20", "safety 21"]


def candidates() -> st.SearchStrategy[list[ExpiryCandidate]]:
    one = st.builds(
        ExpiryCandidate,
        id=st.uuids(version=4).map(str),
        time=st.integers(NOW - 100 * DAY, NOW + DAY),
        trigger=st.sampled_from((*HOOK_TRIGGERS, MANUAL, "safety", "phase", "import:forge")),
        run=st.sampled_from((None, "r")),
        rewritten=st.booleans(),
        line=st.sampled_from((None, "main")),
        agent=st.booleans(),
        tagged=st.booleans(),
    )
    return st.lists(one, max_size=12).map(
        lambda found: sorted(found, key=lambda each: (each.time, each.id), reverse=True)
    )


def policies() -> st.SearchStrategy[Policy]:
    lengths = st.integers(0, 60 * DAY)
    numbers = st.integers(0, 6)
    return st.builds(
        Policy,
        older_than=lengths,
        rewritten_older_than=lengths,
        keep_last=numbers,
        hourly_after=lengths,
        daily_after=lengths,
        agent_hourly_after=lengths,
        agent_last_after=lengths,
        agent_older_than=lengths,
        safety_older_than=lengths,
        safety_keep_last=numbers,
        everything=st.booleans(),
    )


@quick
@given(candidates(), policies(), st.integers(0, 100 * DAY))
def test_what_expires_today_expires_on_every_later_day(
    found: list[ExpiryCandidate], rules: Policy, later: int
) -> None:
    today = apply(found, rules, now=NOW)
    then = apply(found, rules, now=NOW + later)
    assert {each.id for each in today if each.expires} <= {each.id for each in then if each.expires}


@quick
@given(candidates(), policies())
def test_there_is_one_decision_with_a_reason_for_each_in_the_order_given(
    found: list[ExpiryCandidate], rules: Policy
) -> None:
    decisions = apply(found, rules, now=NOW)
    assert [each.id for each in decisions] == [each.id for each in found]
    assert all(each.reason for each in decisions)


@pytest.mark.long
@quick
@given(candidates(), policies())
def test_only_hook_and_safety_checkpoints_outside_runs_expire_by_default(
    found: list[ExpiryCandidate], rules: Policy
) -> None:
    decisions = apply(found, replace(rules, everything=False), now=NOW + 10_000 * DAY)
    gone = {each.id for each in decisions if each.expires}
    assert [
        each
        for each in found
        if each.id in gone and (each.trigger not in (*HOOK_TRIGGERS, SAFETY) or each.run)
    ] == []


@quick
@given(candidates(), policies())
def test_the_newest_that_stay_are_never_rewritten_hook_checkpoints_nor_more_than_asked_for(
    found: list[ExpiryCandidate], rules: Policy
) -> None:
    decisions = apply(found, rules, now=NOW + 10_000 * DAY)
    kept = [
        each
        for each, decision in zip(found, decisions, strict=True)
        if decision.reason.startswith("among the newest")
    ]
    assert len(kept) <= rules.keep_last
    assert not any(each.rewritten and each.trigger in HOOK_TRIGGERS for each in kept)


def run(
    days: float,
    status: str = runstate.COMPLETE,
    *,
    name: str = "r",
    needed_by: tuple[str, ...] = (),
) -> RunCandidate:
    return RunCandidate(name, NOW - int(days * DAY), status, needed_by)


ALL = Policy(keep_last=0, everything=True)
UNFINISHED = [
    status for status in runstate.STATUSES if status not in (runstate.COMPLETE, *runstate.DRIVEN)
]


@pytest.mark.parametrize(
    ("found", "rules", "expires", "reason"),
    [
        pytest.param(
            run(6.9), Policy(), False, "complete, 6d old, limit 7d", id="a little too young"
        ),
        pytest.param(
            run(7),
            Policy(),
            True,
            "complete, 7d old, limit 7d",
            id="at the limit to the microsecond",
        ),
        pytest.param(
            run(3),
            Policy(runs_older_than=2 * DAY),
            True,
            "complete, 3d old, limit 2d",
            id="another limit",
        ),
        pytest.param(
            run(7),
            Policy(older_than=0),
            True,
            "complete, 7d old, limit 7d",
            id="the limit of hooks is another one",
        ),
        pytest.param(
            run(1),
            replace(ALL, older_than=DAY),
            True,
            "complete, 1d old, limit 1d",
            id="everything: the shorter limit",
        ),
        pytest.param(
            run(-1),
            Policy(runs_older_than=0),
            False,
            "complete, 0s old, limit 0s",
            id="from the future",
        ),
        *(
            pytest.param(run(400, status), Policy(), False, f"unfinished: {status}", id=status)
            for status in UNFINISHED
        ),
        *(
            pytest.param(
                run(31, status),
                ALL,
                True,
                f"unfinished: {status}, 31d old, limit 30d",
                id=f"everything: {status}",
            )
            for status in UNFINISHED
        ),
        pytest.param(
            run(29, "failed"),
            ALL,
            False,
            "unfinished: failed, 29d old, limit 30d",
            id="everything: young",
        ),
        pytest.param(
            run(400, "failed"),
            replace(ALL, keep_last=1),
            False,
            "unfinished: failed, among the newest 1",
            id="everything: newest",
        ),
        pytest.param(
            run(400, "running"),
            replace(ALL, older_than=0),
            False,
            "a process drives the run",
            id="everything: driven",
        ),
        pytest.param(run(400, "running"), Policy(), False, "a process drives the run", id="driven"),
        pytest.param(
            run(400, "stalled"),
            replace(ALL, older_than=0),
            False,
            "a process drives the run",
            id="everything: stalled",
        ),
        pytest.param(
            run(400, needed_by=("gone",)),
            Policy(),
            True,
            "complete, 400d old, limit 7d",
            id="needed by what is not there",
        ),
    ],
)
def test_one_run(found: RunCandidate, rules: Policy, expires: bool, reason: str) -> None:
    assert policy.decide_run_expiry([found], rules, now=NOW) == [
        Decision("r", expires=expires, reason=reason)
    ]


def test_the_newest_unfinished_runs_stay_and_the_rest_goes_by_age() -> None:
    found = [
        run(400, "failed", name="a"),
        run(401, name="b"),
        run(402, "open", name="c"),
        run(403, "blocked", name="d"),
    ]
    told = policy.decide_run_expiry(found, replace(ALL, keep_last=2), now=NOW)
    assert [(each.id, each.expires, each.reason) for each in told] == [
        ("a", False, "unfinished: failed, among the newest 2"),
        ("b", True, "complete, 401d old, limit 7d"),
        ("c", False, "unfinished: open, among the newest 2"),
        ("d", True, "unfinished: blocked, 403d old, limit 30d"),
    ]


def test_an_age_of_a_second_is_told_as_such() -> None:
    rules = Policy(runs_older_than=times.MICRO)
    second, less = (
        RunCandidate("r", NOW - age, runstate.COMPLETE) for age in (times.MICRO, times.MICRO - 1)
    )
    assert (
        policy.decide_run_expiry([second], rules, now=NOW)[0].reason == "complete, 1s old, limit 1s"
    )
    assert (
        policy.decide_run_expiry([less], rules, now=NOW)[0].reason == "complete, 0s old, limit 1s"
    )


def test_a_run_stays_as_long_as_an_unfinished_one_refers_to_it() -> None:
    found = [
        run(1, "failed", name="fork"),
        run(20, "failed", name="middle", needed_by=("fork",)),
        run(40, name="old", needed_by=("middle",)),
    ]
    told = policy.decide_run_expiry(found, Policy(), now=NOW)
    assert told[2] == Decision(
        "old", expires=False, reason="the unfinished run middle refers to this run"
    )
    told = policy.decide_run_expiry(found, replace(ALL, older_than=10 * DAY), now=NOW)
    assert [(each.expires, each.reason) for each in told] == [
        (False, "unfinished: failed, 1d old, limit 10d"),
        (False, "the unfinished run fork refers to this run"),
        (False, "the unfinished run middle refers to this run"),
    ]
    told = policy.decide_run_expiry(found, replace(ALL, older_than=0), now=NOW)
    assert [each.expires for each in told] == [True, True, True]


@pytest.mark.parametrize(
    ("labels", "gone"),
    [
        ("run-started p-started p-progress p-progress p-complete", {2: "p", 3: "p"}),
        ("p-started p-progress p-skipped", {1: "p"}),
        ("p-started p-progress", {}),
        ("p-started p-progress p-failed", {}),
        ("p-started p-progress p-failed p-started p-progress p-complete", {1: "p", 4: "p"}),
        ("p-started p-progress p-complete p-started p-progress", {1: "p"}),
        ("p-progress p-started p-complete p-progress q-started", {}),
        ("p-started q-started p-progress q-progress q-complete q-progress", {3: "q"}),
        ("p-started p-progress:manual p-progress:post-commit p-complete", {}),
        ("p-started p-progress p-complete:manual", {1: "p"}),
        ("p-started p-progress p-complete q-started q-progress q-complete", {1: "p", 4: "q"}),
        ("p-complete q-started q-progress q-skipped", {2: "q"}),
    ],
)
def test_progress_within_phases_that_are_complete_is_squashed(
    labels: str, gone: dict[int, str]
) -> None:
    words = [label.partition(":") for label in labels.split()]
    chain = [(str(at), label, trigger or "phase") for at, (label, _, trigger) in enumerate(words)]
    assert policy.find_squashed_progress(chain) == {str(at): name for at, name in gone.items()}


def crowds() -> st.SearchStrategy[list[ExpiryCandidate]]:
    """Checkpoints close to each other, newest first."""
    one = st.builds(
        ExpiryCandidate,
        id=st.uuids(version=4).map(str),
        time=st.integers(0, 24 * 60).map(lambda minutes: NOW - minutes * HOUR // 6),
        trigger=st.sampled_from((*HOOK_TRIGGERS, MANUAL, SAFETY)),
        run=st.sampled_from((None, None, None, "r")),
        rewritten=st.just(value=False),
        line=st.sampled_from((None, "main")),
        agent=st.booleans(),
        tagged=st.sampled_from((False, False, True)),
    )
    return st.lists(one, max_size=30).map(
        lambda found: sorted(found, key=lambda each: (each.time, each.id), reverse=True)
    )


def gone(found: list[ExpiryCandidate], rules: Policy, now: int) -> set[str]:
    return {
        each.id
        for span in policy.find_groups_to_thin(found, rules, newest(found, rules), now=now)
        for each in span.due
    }


@quick
@given(crowds(), policies(), st.integers(0, 20 * DAY))
def test_what_is_thinned_today_is_thinned_on_every_later_day(
    found: list[ExpiryCandidate], rules: Policy, later: int
) -> None:
    assert gone(found, rules, NOW) <= gone(found, rules, NOW + later)


@pytest.mark.long
@quick
@given(crowds(), policies())
def test_of_an_hour_and_later_of_a_day_one_stays_and_it_is_the_newest(
    found: list[ExpiryCandidate], rules: Policy
) -> None:
    rules = replace(rules, keep_last=0)
    automatic = [
        each
        for each in found
        if each.run is None
        and (each.trigger in HOOK_TRIGGERS or (each.trigger == MANUAL and each.agent))
    ]
    for now, length in ((NOW + 60 * DAY, DAY), (NOW, HOUR)):
        limits = (
            rules if length == DAY else replace(rules, hourly_after=0, daily_after=10_000 * DAY)
        )
        out = gone(found, limits, now)
        assert out <= {each.id for each in automatic if not each.tagged}
        newest: dict[tuple[str | None, int], str] = {}
        for each in automatic:
            first = newest.setdefault((each.line, each.time // length), each.id)
            assert (each.id in out) == (each.id != first and not each.tagged)
        assert gone([each for each in found if each.id not in out], limits, now) == set()


@quick
@given(crowds(), policies())
def test_the_newest_are_not_thinned(found: list[ExpiryCandidate], rules: Policy) -> None:
    automatic = [each.id for each in found if each.is_automatic]
    assert gone(found, rules, NOW + 1000 * DAY).isdisjoint(automatic[: rules.keep_last])


def spans_of(ages: list[int], rules: Policy) -> list[tuple[str, str, list[str]]]:
    """Return length, newest and due checkpoints of each span.

    The ages of the checkpoints are also their ids.
    """
    found = [replace(candidate(name=str(age)), time=NOW - age) for age in ages]
    spans = policy.find_groups_to_thin(found, rules, newest(found, rules), now=NOW)
    return [(span.length, span.newest.id, [each.id for each in span.due]) for span in spans]


def test_thinning_begins_at_an_age_to_the_microsecond() -> None:
    hourly = replace(NO_RANK, hourly_after=DAY, daily_after=10 * DAY)
    assert spans_of([DAY - 2, DAY - 1], hourly) == []
    assert spans_of([DAY - 2, DAY - 1, DAY], hourly) == [("hour", str(DAY - 2), [str(DAY)])]
    daily = replace(NO_RANK, hourly_after=DAY, daily_after=DAY)
    assert spans_of([DAY - 1, DAY + HOUR], daily) == []
    assert spans_of([DAY, DAY + HOUR], daily) == [("day", str(DAY), [str(DAY + HOUR)])]
    assert spans_of([DAY, DAY + HOUR], replace(daily, hourly_after=9 * DAY)) == [
        ("day", str(DAY), [str(DAY + HOUR)])
    ]


def session_turns(count: int, every: int) -> list[ExpiryCandidate]:
    """Return the checkpoints of turns, newest first: end2, guard2, begin2, end1 …."""
    found = []
    for number in range(count):
        for offset, (name, trigger) in enumerate(
            (("begin", TURN), ("guard", GUARD), ("end", TURN))
        ):
            time = NOW // HOUR * HOUR - DAY + number * every + offset
            made = candidate(name=f"{name}{number + 1}", trigger=trigger, run="r")
            found.append(replace(made, time=time, ends_turn=name == "end"))
    return found[::-1]


def test_a_session_keeps_what_commands_may_destroy_and_one_end_an_hour() -> None:
    found = session_turns(5, HOUR // 2)
    expired, groups = policy.thin_session(found, Policy(), now=NOW + 2 * DAY)
    assert expired == []
    assert [(group.newest.id, [each.id for each in group.due]) for group in groups] == [
        ("end4", ["end3"]),
        ("end2", ["end1"]),
    ]
    young = replace(Policy(), agent_hourly_after=4 * DAY)
    assert policy.thin_session(found, young, now=NOW + 2 * DAY) == ([], [])


def test_of_an_old_session_the_last_checkpoint_stays() -> None:
    found = session_turns(2, HOUR)
    expired, groups = policy.thin_session(found, Policy(), now=NOW + 8 * DAY)
    assert [decision.id for decision in expired] == [each.id for each in found[1:]]
    assert expired[-1].reason == "9d old, only the last of a session stays"
    assert groups == []


@pytest.mark.parametrize(
    ("age", "rules", "expires"),
    [
        (29, Policy(), False),
        (30, Policy(), True),
        (30, Policy(agent_older_than=31 * DAY), False),
        (30, Policy(agent_older_than=31 * DAY, older_than=DAY), False),
        (30, Policy(agent_older_than=31 * DAY, older_than=DAY, everything=True), True),
    ],
)
def test_a_session_expires_by_an_age_of_its_own(age: int, rules: Policy, expires: bool) -> None:
    found = RunCandidate("r", NOW - age * DAY, "open", is_session=True)
    (decision,) = policy.decide_run_expiry([found], rules, now=NOW)
    assert decision.expires == expires
    assert decision.reason.startswith(f"a session, {age}d old, limit ")


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_everything_is_true_or_false(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Policy(everything=value)
    assert caught.value.message == f"everything: must be True or False, not {value!r}"


def test_what_thinning_says() -> None:
    found = [candidate(days, name=str(days)) for days in (2.02, 2.021, 9.02, 9.021)]
    spans = policy.find_groups_to_thin(found, NO_RANK, newest(found, NO_RANK), now=NOW)
    said = [
        (
            span.length,
            span.newest.id,
            [policy.thinning_decision(each, span, now=NOW) for each in span.due],
        )
        for span in spans
    ]
    assert said == [
        (
            "hour",
            "2.02",
            [Decision("2.021", expires=True, reason="2d old, one an hour stays")],
        ),
        ("day", "9.02", [Decision("9.021", expires=True, reason="9d old, one a day stays")]),
    ]


@pytest.mark.long
def test_a_heavy_year_ends_below_twenty_thousand() -> None:
    """Five agents save 300 times a day each, and a user saves twice a day.

    Every tenth turn of an agent makes a commit.
    """
    found: list[ExpiryCandidate] = []
    for day in range(365):
        start = NOW + day * DAY
        for turn in range(300):
            time = start + turn * DAY // 300
            found += [
                ExpiryCandidate(
                    f"{day} {turn} {line}",
                    time,
                    MANUAL,
                    None,
                    rewritten=False,
                    line=f"{line}",
                    agent=True,
                )
                for line in range(5)
            ]
            if turn % 10 == 9:
                found += [
                    ExpiryCandidate(
                        f"{day} {turn} c{line}",
                        time,
                        POST_COMMIT,
                        None,
                        rewritten=False,
                        line=f"{line}",
                    )
                    for line in range(5)
                ]
        found += [
            ExpiryCandidate(
                f"{day} {number} hand", start + number, MANUAL, None, rewritten=False, line="0"
            )
            for number in range(2)
        ]
        now = start + DAY
        found.sort(key=lambda each: (each.time, each.id), reverse=True)
        decided = apply(found, Policy(), now)
        found = [
            each for each, decision in zip(found, decided, strict=True) if not decision.expires
        ]
        out = gone(found, Policy(), now)
        found = [each for each in found if each.id not in out]
    by_hand = sum(not each.is_automatic for each in found)
    assert (by_hand, len(found) < 20_000) == (730, True)
    assert [each.time >= now - 2 * DAY for each in found].count(True) > 1500
