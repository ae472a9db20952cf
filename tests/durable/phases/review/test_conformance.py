"""Reviews conform to quasar's plan for checkpoints, number by number.

Where this program differs on purpose, the test says so.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitckpt import AgentFailed, Diverged, InvalidCheckpoint, MaxCyclesReached
from gitckpt.durable.phases.review.state import KEY, PHASES, VERSION, ReviewFinding, ReviewState
from gitckpt.model import toml
from tests.conftest import Checkout
from tests.durable.phases.review.acting import APPROVED, REJECTED, Actor, Bench, Memory, Turn
from tests.durable.phases.review.examples import EMPTY, MANY_CYCLES, MID_CYCLE, without_more


@pytest.fixture
def bench(main_checkout: Checkout) -> Bench:
    """A review that is rejected once, then approved."""
    coder = Actor(
        main_checkout,
        Turn("One.", {"work": "1\n"}),
        Turn("Two.", {"work": "2\n"}),
        Turn("Three.", {"work": "3\n"}),
    )
    return Bench(
        main_checkout, coder, Actor(main_checkout, Turn(REJECTED.format("no test")), Turn(APPROVED))
    )


def left_in(bench: Bench, phase: str) -> ReviewState:
    """Return the state of a review when it first enters a phase."""
    bench.go()
    states = [ReviewState.from_state_table(table[KEY]) for table in bench.journal.recorded]
    return next(each for each in states if each.phase == phase)


@pytest.mark.parametrize(
    "state", [EMPTY, MID_CYCLE, MANY_CYCLES], ids=["empty", "mid-cycle", "many cycles"]
)
def test_qsr_01_round_trip(state: ReviewState) -> None:
    assert ReviewState.from_state_table(toml.loads(toml.dumps(state.to_state_table()))) == state


def test_qsr_02_version_and_time(bench: Bench) -> None:
    bench.go()
    assert {table[KEY]["version"] for table in bench.journal.recorded} == {VERSION} == {1}
    assert {table[KEY]["created_at"] for table in bench.journal.recorded} == {
        "2027-01-15T08:00:00.000000Z"
    }


def test_qsr_03_findings_come_back() -> None:
    found = (ReviewFinding("critical", "it's\nbroken", 2), ReviewFinding("", "", 0))
    state = replace(EMPTY, findings=found, all_findings=found)
    assert (
        ReviewState.from_state_table(toml.loads(toml.dumps(without_more(state)))).all_findings
        == found
    )


def test_qsr_04_every_transition_is_recorded(bench: Bench) -> None:
    """The plan records three events only, and no transition between them."""
    bench.go()
    phases = [PHASES[table[KEY]["phase"]] for table in bench.journal.recorded]
    assert phases == [table[KEY]["more"]["phase"] for table in bench.journal.recorded]
    cycle = ["coding", "code_complete", "reviewing", "review_complete"]
    assert phases == ["bead_created", *cycle, "resolving_issues", *cycle, "approved"]


def test_qsr_05_each_record_is_whole(bench: Bench) -> None:
    """A review can continue from each record."""
    bench.go()
    for table in bench.journal.recorded:
        state = ReviewState.from_state_table(table[KEY])
        assert state.to_state_table() == table[KEY]


def test_qsr_06_without_a_record_it_begins(bench: Bench) -> None:
    assert bench.journal.state == {}
    assert bench.go().approved
    assert not any("resumed" in said for said in bench.said)


class TestQsr07Validation:
    def test_qsr_07_valid(self, bench: Bench) -> None:
        assert bench.resume(left_in(bench, "reviewing")).approved

    @pytest.mark.parametrize(
        ("key", "value", "said"),
        [
            ("version", 99, "state.review: version: 99 is not supported"),
            ("cycle", 0, "state.review: cycle: is 0, but cycles count from 1"),
            (
                "phase",
                99,
                "state.review: phase: 99 is not a phase: 0 idle, 1 bead_created, 2 coding, ",
            ),
        ],
    )
    def test_qsr_07_a_version_a_cycle_and_a_phase_that_cannot_be(
        self, bench: Bench, key: str, value: int, said: str
    ) -> None:
        table = {**left_in(bench, "reviewing").to_state_table(), key: value}
        del table["more"]
        with pytest.raises(InvalidCheckpoint) as caught:
            bench.resume(table)
        assert caught.value.message.startswith(said)
        assert (bench.journal.state, bench.journal.recorded) == ({KEY: table}, [])

    def test_qsr_07_another_commit_names_both_and_may_be_forced(self, bench: Bench) -> None:
        state = left_in(bench, "review_complete")
        bench.checkout.git("reset", "--quiet", "--hard", "HEAD~2")
        bench.checkout.commit("elsewhere")
        with pytest.raises(Diverged) as caught:
            bench.resume(state)
        assert state.git_sha in caught.value.message
        assert bench.checkout.git("rev-parse", "HEAD") in caught.value.message
        assert bench.resume(state, force=True).approved


def test_qsr_08_to_finish_twice_is_to_finish(bench: Bench) -> None:
    """The plan removes its file; here the approved state stays."""
    first = bench.go()
    assert bench.resume() == first
    assert bench.resume(bench.journal.state[KEY]) == first


class TestQsr09Resume:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("phase", "cycle", "coder", "reviewer"),
        [
            ("coding", 1, 2, 2),
            ("code_complete", 1, 1, 2),
            ("reviewing", 1, 1, 2),
            ("review_complete", 1, 1, 1),
            ("resolving_issues", 1, 1, 1),
            ("approved", 2, 0, 0),
        ],
    )
    def test_qsr_09_the_cycle_and_who_is_asked(
        self, bench: Bench, phase: str, cycle: int, coder: int, reviewer: int
    ) -> None:
        state = left_in(bench, phase)
        assert state.cycle == cycle
        bench.coder.calls.clear()
        bench.reviewer.calls.clear()
        assert bench.resume(state).cycles == 2
        assert (len(bench.coder.calls), len(bench.reviewer.calls)) == (coder, reviewer)

    def test_qsr_09_that_it_was_resumed_is_said_first(self, bench: Bench) -> None:
        state = left_in(bench, "coding")
        bench.said.clear()
        bench.resume(state)
        assert bench.said[0] == "resumed from checkpoint: cycle 1, coding"


class TestQsr10Worker:
    def test_qsr_10_what_is_invalid_is_refused_and_kept(self, bench: Bench) -> None:
        """The plan removes an invalid file and restarts; here the file is kept."""
        table = {**left_in(bench, "coding").to_state_table(), "cycle": "one"}
        with pytest.raises(InvalidCheckpoint):
            bench.resume(table)
        assert bench.journal.state == {KEY: table}

    def test_qsr_10_what_failed_is_resumed_and_not_begun_anew(self, bench: Bench) -> None:
        with pytest.raises(MaxCyclesReached):
            bench.go(max_cycles=1)
        assert bench.resume(max_cycles=2).cycles == 2
        assert len(bench.coder.calls) == 2


def test_qsr_11_to_resume_needs_no_flag(bench: Bench) -> None:
    """The plan needs two flags to resume; here a record is enough."""
    bench.reviewer.turns = (replace(bench.reviewer.turns[0], ok=False), Turn(APPROVED))
    with pytest.raises(AgentFailed):
        bench.go()
    bench.reviewer.turns = (Turn(APPROVED),)
    bench.journal = Memory(bench.journal.recorded[-1])
    assert bench.go().cycles == 1
