"""Regression tests for the flaws of quasar's plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import AgentFailed, MaxCyclesReached
from gitckpt.durable.phases.review.cycle import AgentReply
from gitckpt.durable.phases.review.state import (
    CUT,
    FIXED,
    KEY,
    PHASES,
    ReviewState,
    cut,
    make_finding_id,
)
from gitckpt.model import toml
from tests.conftest import Checkout
from tests.durable.conftest import Killed
from tests.durable.phases.review.acting import APPROVED, REJECTED, Actor, Bench, Turn
from tests.durable.phases.review.examples import without_more

WORK = [Turn(f"I did {number}.", {"work": f"{number}\n"}) for number in (1, 2, 3, 4)]


def made(checkout: Checkout, *answers: str, **options: object) -> Bench:
    return Bench(checkout, Actor(checkout, *WORK), Actor(checkout, *map(Turn, answers)), **options)


def states(bench: Bench) -> list[ReviewState]:
    return [ReviewState.from_state_table(table[KEY]) for table in bench.journal.recorded]


def in_phase(bench: Bench, phase: str) -> ReviewState:
    return next(each for each in states(bench) if each.phase == phase)


def test_q01_there_is_a_checkpoint_in_the_middle_and_after_an_agent_s_error(
    main_checkout: Checkout,
) -> None:
    bench = made(main_checkout, APPROVED)
    bench.coder.dies_in = 1
    with pytest.raises(Killed):
        bench.go()
    assert (bench.journal.cycle.phase, bench.journal.cycle.cycle) == ("coding", 1)
    bench.coder.turns = (Turn(ok=False, problem="exit code 1"),)
    with pytest.raises(AgentFailed):
        bench.resume()
    assert bench.journal.notes[-1] == (
        "cycle 1: error",
        ("the coder failed in cycle 1: exit code 1",),
    )
    assert bench.journal.cycle.failed_in == "coding"


@pytest.mark.long
def test_q02_a_later_commit_loses_nothing(main_checkout: Checkout) -> None:
    """The coder commits in each cycle, so HEAD may differ from the recorded one."""
    bench = made(main_checkout, REJECTED.format("one"), APPROVED)
    bench.go()
    for state in states(bench):
        assert bench.resume(state).cycles == 2
    assert [each for each in bench.said if "HEAD has moved" in each]


def test_q03_an_error_is_a_phase_to_go_on_from(main_checkout: Checkout) -> None:
    bench = made(main_checkout, REJECTED.format("one"), APPROVED, max_cycles=1)
    with pytest.raises(MaxCyclesReached):
        bench.go()
    assert bench.journal.recorded[-1][KEY]["phase"] == 10
    assert bench.resume(max_cycles=2).approved


def test_q04_what_is_approved_is_not_done_again(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED)
    bench.go()
    calls = len(bench.coder.calls)
    assert bench.resume().cycles == 1
    assert (len(bench.coder.calls), bench.journal.recorded) == (calls, [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("phase", "coder", "reviewer", "commands"),
    [
        ("bead_created", 2, 2, 4),
        ("coding", 2, 2, 4),
        ("code_complete", 1, 2, 4),
        ("linting", 1, 2, 4),
        ("filtering", 1, 2, 3),
        ("reviewing", 1, 2, 2),
        ("review_complete", 1, 1, 2),
        ("resolving_issues", 1, 1, 2),
        ("approved", 0, 0, 0),
    ],
)
def test_q05_every_phase_has_a_place_to_go_on(
    main_checkout: Checkout, phase: str, coder: int, reviewer: int, commands: int
) -> None:
    bench = made(
        main_checkout, REJECTED.format("one"), APPROVED, lint="true", filters={"vet": "true"}
    )
    bench.go()
    state = in_phase(bench, phase)
    for each in (bench.coder.calls, bench.reviewer.calls, bench.commands):
        each.clear()
    assert bench.resume(state).approved
    assert (len(bench.coder.calls), len(bench.reviewer.calls), len(bench.commands)) == (
        coder,
        reviewer,
        commands,
    )


def test_q05_idle_begins_the_first_cycle(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED)
    assert bench.resume(ReviewState(phase="idle")).cycles == 1
    assert bench.log()[1:] == ["t-1/cycle-1: Add a login"]


class TestQ06:
    def test_q06_the_commit_of_a_cycle_that_is_not_over_is_kept(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(main_checkout, APPROVED)
        bench.go()
        head = main_checkout.git("rev-parse", "HEAD")
        state = in_phase(bench, "review_complete")
        assert (state.last_cycle_sha, state.cycle_commits) == (head, ())
        bench.resume(state)
        assert bench.journal.cycle.cycle_commits == (head,)

    @pytest.mark.parametrize("phase", ["reviewing", "review_complete"])
    def test_q06_even_where_quasar_left_it_out(self, main_checkout: Checkout, phase: str) -> None:
        bench = made(main_checkout, APPROVED)
        bench.go()
        bench.resume(ReviewState.from_state_table(without_more(in_phase(bench, phase))))
        assert bench.journal.cycle.cycle_commits == (main_checkout.git("rev-parse", "HEAD"),)

    def test_q06_what_quasar_had_not_committed_yet_is_committed(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(main_checkout, APPROVED)
        bench.go()
        state = in_phase(bench, "code_complete")
        main_checkout.git("reset", "--quiet", state.git_sha)
        bench.resume(ReviewState.from_state_table(without_more(state)))
        assert bench.log()[1:] == ["t-1/cycle-1: Add a login"]
        assert bench.journal.cycle.cycle_commits == (main_checkout.git("rev-parse", "HEAD"),)

    def test_q06_but_it_is_not_counted_twice(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED)
        bench.go()
        state = replace(in_phase(bench, "review_complete"), cycle_commits=("c1",))
        assert ReviewState.from_state_table(without_more(state)).last_cycle_sha == ""


@pytest.mark.parametrize("name", ["../../etc/passwd", "/tmp/x", "a/b", ".", "", "nul\0"])
def test_q07_names_of_phases_and_nebulas_name_no_file(main_checkout: Checkout, name: str) -> None:
    bench = made(main_checkout, APPROVED)
    assert bench.resume(ReviewState(phase="bead_created", phase_id=name, nebula_name=name)).approved
    assert (bench.journal.cycle.phase_id, bench.journal.cycle.nebula_name) == (name, name)
    assert main_checkout.git("ls-files").splitlines() == ["README", "work"]


class TestQ08:
    @pytest.mark.parametrize("length", range(1, 8))
    def test_q08_a_character_is_not_split(self, length: int) -> None:
        text = "日本é😀é日本語"
        short = cut(text, length)
        assert short.removesuffix(CUT) == text[:length]
        assert short.encode().decode() == short

    def test_q08_a_filter_s_output_that_is_cut_comes_back(self, main_checkout: Checkout) -> None:
        bench = made(
            main_checkout,
            APPROVED,
            filters={"vet": "for i in $(seq 1001); do printf 日本語; done; false"},
            max_cycles=1,
        )
        with pytest.raises(MaxCyclesReached):
            bench.go()
        state = bench.journal.cycle
        assert state.findings[0].description == f"[filter:vet] {'日本語' * 1000}{CUT}"
        assert ReviewState.from_state_table(toml.loads(toml.dumps(state.to_state_table()))) == state

    def test_q08_half_a_character_from_an_agent_is_replaced(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED)
        half = "日".encode()[:2].decode("utf-8", "surrogateescape")
        bench.coder.turns = (replace(WORK[0], text=f"ok {half}"),)
        bench.go()
        state = bench.journal.cycle
        assert state.coder_output == "ok \ufffd\ufffd"
        assert ReviewState.from_state_table(toml.loads(toml.dumps(state.to_state_table()))) == state


def test_q09_nothing_is_written_beside_the_journal(main_checkout: Checkout, tmp_path: Path) -> None:
    bench = made(
        main_checkout, REJECTED.format("one"), APPROVED, lint="true", filters={"vet": "true"}
    )
    bench.go()
    assert main_checkout.git("status", "--porcelain", "--ignored") == ""
    assert main_checkout.git("ls-files").splitlines() == ["README", "work"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [main_checkout.path.name]


def test_q10_each_cycle_stays_in_the_history(main_checkout: Checkout) -> None:
    bench = made(main_checkout, REJECTED.format("one"), REJECTED.format("two"), APPROVED)
    bench.go()
    said = {
        each.cycle: each.review_output for each in states(bench) if each.phase == "review_complete"
    }
    assert said == {1: REJECTED.format("one"), 2: REJECTED.format("two"), 3: APPROVED}


def test_q11_after_a_resume_only_what_is_left_is_shared_out(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED, max_cycles=3, max_budget_usd=6.0)
    state = ReviewState(
        phase="coding", cycle=3, max_cycles=3, total_cost_usd=5.0, max_budget_usd=6.0
    )
    bench.resume(state)
    assert [call[2] for call in bench.coder.calls] == [{"CKPT_BUDGET_USD": "0.5000"}]
    assert [call[2] for call in bench.reviewer.calls] == [{"CKPT_BUDGET_USD": "0.3750"}]


class TestMissing:
    """Fields that a faithful resume needs and quasar's checkpoint lacks."""

    def test_what_was_fixed_is_not_asked_for_again(self, main_checkout: Checkout) -> None:
        one = make_finding_id("major", "one")
        second = f"VERIFICATION:\nFINDING_ID: {one}\nSTATUS: fixed\n\n{REJECTED.format('two')}"
        bench = made(main_checkout, REJECTED.format("one"), second, APPROVED)
        bench.go()
        state = [each for each in states(bench) if each.phase == "resolving_issues"][1]
        assert state.all_findings[0].status == FIXED
        bench.coder.calls.clear()
        bench.resume(json.loads(json.dumps(state.to_state_table())))
        assert "two" in bench.coder.calls[0][0]
        assert "one" not in bench.coder.calls[0][0]

    def test_a_change_of_the_task_keeps_its_words(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, REJECTED.format("one"), APPROVED)
        bench.tasks = ["Add a login by mail"]
        bench.go()
        state = [each for each in states(bench) if each.phase == "coding"][1]
        assert state.refactored
        bench.coder.calls.clear()
        bench.resume(state)
        assert "Add a login by mail" in bench.coder.calls[0][0]

    def test_which_filters_failed_is_remembered(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, filters={"vet": "false"}, max_cycles=1)
        with pytest.raises(MaxCyclesReached):
            bench.go()
        state = bench.journal.cycle
        assert (state.filter_history, state.filter_check_name) == (("vet",), "vet")
        assert "[filter:vet]" in state.all_findings[0].description
        assert state.all_findings[0].id.startswith("f-")

    def test_the_number_of_a_phase_is_that_of_quasar_today(self) -> None:
        assert [PHASES.index(each) for each in ("reviewing", "approved", "error")] == [6, 9, 10]
        assert AgentReply(ok=True).text == ""
