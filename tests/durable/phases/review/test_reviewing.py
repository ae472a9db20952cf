"""Coder and reviewer take turns until approval, a failure, or a limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import (
    AgentFailed,
    BudgetExceeded,
    Cancelled,
    CommitRefused,
    Diverged,
    MaxCyclesReached,
    PhaseFailed,
    Progress,
    Struggling,
)
from gitckpt.durable.phases.review.cycle import ReviewVerdict
from gitckpt.durable.phases.review.state import (
    FIXED,
    FOUND,
    KEY,
    STILL_PRESENT,
    ReviewFinding,
    ReviewReport,
    ReviewState,
    make_finding_id,
)
from tests.conftest import Checkout
from tests.durable.phases.review.acting import APPROVED, REJECTED, Actor, Bench, Memory, Turn

DONE = ReviewReport("high", "low", False, "done")
WORK = [Turn(f"I did {number}.", {"work": f"{number}\n"}) for number in (1, 2, 3, 4)]


def made(
    checkout: Checkout,
    *answers: str,
    coder: tuple[Turn, ...] = tuple(WORK),
    cost: float = 0.25,
    **options: object,
) -> Bench:
    return Bench(
        checkout,
        Actor(checkout, *coder),
        Actor(checkout, *(Turn(each, cost=cost) for each in answers)),
        **options,
    )


def rejected(*words: str) -> list[str]:
    return [REJECTED.format(each) for each in words]


def test_approved_in_the_first_cycle(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED)
    base = main_checkout.git("rev-parse", "HEAD")
    assert bench.go() == ReviewVerdict(True, 1, 0.5, (), DONE)
    head = main_checkout.git("rev-parse", "HEAD")
    assert bench.journal.messages == [
        "cycle 0: bead_created",
        "cycle 1: coding",
        "cycle 1: code_complete",
        "cycle 1: reviewing",
        "cycle 1: review_complete",
        "cycle 1: approved",
    ]
    assert bench.log() == ["first", "t-1/cycle-1: Add a login"]
    state = bench.journal.cycle
    assert (state.base_commit_sha, state.git_sha, state.cycle_commits) == (base, head, (head,))
    assert (state.coder_output, state.review_output) == ("I did 1.", APPROVED)
    assert bench.journal.progress[-1] == Progress(
        current_phase=1, total_phases=3, current_task="approved"
    )
    assert bench.said == [
        "cycle 1 of 3",
        "cycle 1: the coder is at work",
        "cycle 1: the reviewer is at work",
        "cycle 1: approved",
    ]


def test_rejected_then_approved(main_checkout: Checkout) -> None:
    bench = made(
        main_checkout,
        *rejected("no test"),
        f"VERIFICATION:\nFINDING_ID: {make_finding_id('major', 'no test')}\n"
        f"STATUS: fixed\n\n{APPROVED}",
    )
    assert bench.go() == ReviewVerdict(
        True, 2, 1.0, (ReviewFinding("major", "no test", 1, FIXED),), DONE
    )
    assert bench.log() == ["first", "t-1/cycle-1: Add a login", "t-1/cycle-2: Add a login"]
    assert bench.journal.cycle.cycle_commits == tuple(
        main_checkout.git("rev-list", "--reverse", "HEAD").splitlines()[1:]
    )
    assert bench.coder.prompts[1].splitlines()[4:5] == ["1. [major] no test"]
    assert bench.journal.messages[5:7] == ["cycle 1: resolving_issues", "cycle 2: coding"]
    assert bench.said[3] == "cycle 1: not approved, 1 finding"


def test_max_cycles(main_checkout: Checkout) -> None:
    bench = made(main_checkout, *rejected("one", "two"), max_cycles=2)
    with pytest.raises(MaxCyclesReached) as caught:
        bench.go()
    assert caught.value.message == "not approved after 2 cycles, which is the limit"
    assert (caught.value.exit_code, caught.value.status) == (20, "failed")
    findings = (ReviewFinding("major", "one", 1), ReviewFinding("major", "two", 2))
    assert caught.value.result == ReviewVerdict(
        False,
        2,
        1.0,
        findings,
        ReviewReport(satisfaction="low", summary="not yet"),
        caught.value.message,
    )
    assert bench.journal.notes[-1] == ("cycle 2: error", (caught.value.message,))
    assert (bench.journal.cycle.phase, bench.journal.cycle.failed_in) == (
        "error",
        "resolving_issues",
    )


def test_after_max_cycles_one_goes_on_with_more(main_checkout: Checkout) -> None:
    bench = made(main_checkout, *rejected("one"), APPROVED, max_cycles=1)
    with pytest.raises(MaxCyclesReached):
        bench.go()
    assert bench.resume(max_cycles=2).approved
    assert bench.said[4] == (
        "resumed from checkpoint: cycle 1, resolving_issues, after: not approved after 1 "
        "cycles, which is the limit"
    )
    assert bench.log()[1:] == ["t-1/cycle-1: Add a login", "t-1/cycle-2: Add a login"]


def test_no_cycle_is_allowed(main_checkout: Checkout) -> None:
    with pytest.raises(MaxCyclesReached):
        made(main_checkout, APPROVED, max_cycles=0).go()


class TestBudget:
    def test_exceeded_after_the_coder(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, max_budget_usd=0.25)
        with pytest.raises(
            BudgetExceeded, match=r"the budget is used up: 0\.25 of 0\.25 USD in cycle 1"
        ):
            bench.go()
        assert bench.reviewer.calls == []
        assert bench.log()[1:] == ["t-1/cycle-1: Add a login"]
        assert (bench.journal.cycle.failed_in, bench.journal.cycle.last_cycle_sha) == (
            "code_complete",
            main_checkout.git("rev-parse", "HEAD"),
        )

    def test_with_more_the_reviewer_is_next(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, max_budget_usd=0.25)
        with pytest.raises(BudgetExceeded):
            bench.go()
        assert bench.resume(max_budget_usd=1.0) == ReviewVerdict(True, 1, 0.5, (), DONE)
        assert len(bench.coder.calls) == 1

    def test_exceeded_after_the_reviewer(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, *rejected("one"), max_budget_usd=0.5)
        with pytest.raises(BudgetExceeded) as caught:
            bench.go()
        assert caught.value.result is not None
        assert caught.value.result.findings == (ReviewFinding("major", "one", 1),)

    def test_what_is_approved_is_approved_whatever_it_cost(self, main_checkout: Checkout) -> None:
        assert made(main_checkout, APPROVED, max_budget_usd=0.5).go().approved

    def test_exceeded_by_a_lint_fix(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, max_budget_usd=0.5, lint="exit 1")
        with pytest.raises(BudgetExceeded):
            bench.go()
        assert (len(bench.coder.calls), len(bench.reviewer.calls)) == (2, 0)

    def test_agents_are_told_their_share_of_what_is_left(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, *rejected("one"), APPROVED, max_budget_usd=6.0)
        bench.go()
        shares = [
            call[2]["CKPT_BUDGET_USD"] for call in (*bench.coder.calls, *bench.reviewer.calls)
        ]
        assert shares == ["1.0000", "1.3750", "0.9583", "1.3125"]  # 6/6, 5.5/4; 5.75/6, 5.25/4

    def test_without_a_budget_they_are_told_nothing(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED)
        bench.go()
        assert [call[2] for call in (*bench.coder.calls, *bench.reviewer.calls)] == [{}, {}]

    @pytest.mark.parametrize("cost", [None, -1.0, float("nan"), float("inf")])
    def test_what_is_no_cost_costs_nothing(
        self, main_checkout: Checkout, cost: float | None
    ) -> None:
        bench = made(
            main_checkout, APPROVED, coder=(replace(WORK[0], cost=cost),), max_budget_usd=1.0
        )
        assert bench.go().total_cost_usd == 0.25


class TestAgents:
    @pytest.mark.parametrize(("role", "phase"), [("coder", "coding"), ("reviewer", "reviewing")])
    def test_one_that_fails(self, main_checkout: Checkout, role: str, phase: str) -> None:
        bench = made(main_checkout, APPROVED)
        actor = getattr(bench, role)
        actor.turns = (
            replace(actor.turns[0], ok=False, problem="claude failed: exit code 1", session="s-1"),
        )
        with pytest.raises(AgentFailed) as caught:
            bench.go()
        assert caught.value.message == f"the {role} failed in cycle 1: claude failed: exit code 1"
        state = bench.journal.cycle
        assert (state.phase, state.failed_in, state.problem) == (
            "error",
            phase,
            caught.value.message,
        )
        assert state.total_cost_usd == 0.25 * len([*bench.coder.calls, *bench.reviewer.calls])
        assert state.sessions == {role: "s-1"}
        actor.turns = (replace(actor.turns[0], ok=True),)
        assert bench.resume().approved
        assert (len(bench.coder.calls), len(bench.reviewer.calls)) == (
            (2, 1) if role == "coder" else (1, 2)
        )
        assert (bench.journal.cycle.problem, bench.journal.cycle.failed_in) == ("", "")

    def test_the_coder_stays_in_its_conversation_the_reviewer_begins_anew(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(main_checkout, *rejected("one"), APPROVED)
        bench.coder.turns = (replace(WORK[0], session="c-1"), replace(WORK[1], session="c-2"))
        bench.reviewer.turns = tuple(replace(each, session="r-1") for each in bench.reviewer.turns)
        bench.go()
        assert [call[1] for call in bench.coder.calls] == [None, "c-1"]
        assert [call[1] for call in bench.reviewer.calls] == [None, None]
        assert bench.journal.cycle.sessions == {"coder": "c-2", "reviewer": "r-1"}

    def test_what_utf8_cannot_encode_is_replaced(self, main_checkout: Checkout) -> None:
        bench = made(
            main_checkout, f"{APPROVED}\udcff", coder=(Turn("caf\udce9 \U0001f600", {"work": "1"}),)
        )
        bench.go()
        assert bench.journal.cycle.coder_output == "caf\ufffd \U0001f600"
        assert bench.journal.cycle.review_output == f"{APPROVED}\ufffd"

    def test_a_nul_is_kept_and_never_asked(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, coder=(Turn("a\0b", {"work": "1"}),))
        bench.go()
        assert bench.journal.cycle.coder_output == "a\0b"
        assert "says:\n\na\ufffdb\n" in bench.reviewer.prompts[0]

    def test_of_a_review_of_endless_length_the_end_is_kept(self, main_checkout: Checkout) -> None:
        bench = made(
            main_checkout,
            "word\n" * 100_000 + APPROVED,
            coder=(Turn("x" * 200_000, {"work": "1"}),),
        )
        assert bench.go().approved
        state = bench.journal.cycle
        assert [len(state.coder_output), len(state.review_output)] == [100_015, 100_016]

    def test_a_reviewer_who_neither_approves_nor_finds_is_quoted(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(main_checkout, "Hm.", APPROVED)
        assert bench.go().cycles == 2
        assert "and said:\n\nHm.\n" in bench.coder.prompts[1]

    def test_an_issue_beside_an_approval_is_kept(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, f"{REJECTED.format('a nit')}\n\n{APPROVED}")
        assert bench.go().findings == (ReviewFinding("major", "a nit", 1),)

    def test_who_must_stop_leaves_no_error(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED)

        def stop() -> None:
            if len(bench.journal.recorded) == 2:
                raise Cancelled("the run was cancelled")

        bench.journal.check = stop  # type: ignore[method-assign]
        with pytest.raises(Cancelled):
            bench.go()
        assert bench.journal.messages == ["cycle 0: bead_created", "cycle 1: coding"]


class TestCommits:
    def test_one_for_each_cycle_and_a_clean_tree_repeats_the_last(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(
            main_checkout,
            *rejected("one", "two"),
            APPROVED,
            coder=(WORK[0], Turn("Nothing to do."), WORK[2]),
        )
        bench.go()
        first, second = main_checkout.git("rev-list", "--reverse", "HEAD").splitlines()[1:]
        assert bench.journal.cycle.cycle_commits == (first, first, second)
        assert bench.log()[1:] == ["t-1/cycle-1: Add a login", "t-1/cycle-3: Add a login"]

    def test_one_that_a_hook_refuses_is_made_on_resume_without_the_coder(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        flag = tmp_path / "refuse"
        flag.touch()
        hook = main_checkout.path / ".git/hooks/pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n[ ! -e '{flag}' ] || {{ echo no; exit 1; }}\n")
        hook.chmod(0o755)
        bench = made(main_checkout, APPROVED)
        with pytest.raises(CommitRefused, match="cannot commit the work of cycle 1: no"):
            bench.go()
        assert (bench.journal.cycle.failed_in, bench.journal.cycle.uncommitted) == (
            "code_complete",
            "cycle",
        )
        flag.unlink()
        assert bench.resume().approved
        assert len(bench.coder.calls) == 1
        assert bench.log()[1:] == ["t-1/cycle-1: Add a login"]


class TestLint:
    LINT = "cat work; ! grep -q bad work"

    def test_a_fix_replaces_the_commit_of_the_cycle(self, main_checkout: Checkout) -> None:
        turns = (Turn("Done.", {"work": "bad\n"}), Turn("Fixed.", {"work": "good\n"}))
        bench = made(main_checkout, APPROVED, coder=turns, lint=self.LINT)
        assert bench.go() == ReviewVerdict(True, 1, 0.75, (), DONE)
        assert bench.log()[1:] == [
            "t-1/cycle-1: Add a login",
            "t-1/cycle-1: Add a login (lint fix)",
        ]
        state = bench.journal.cycle
        assert state.cycle_commits == (main_checkout.git("rev-parse", "HEAD"),)
        assert (state.lint_output, state.lint_fixes, state.coder_output) == ("", 1, "Done.")
        assert f"LINT OUTPUT:\n$ {self.LINT}\nbad\n" in bench.coder.prompts[1]
        assert bench.journal.messages[2:7] == [
            "cycle 1: code_complete",
            *["cycle 1: linting"] * 3,
            "cycle 1: reviewing",
        ]

    def test_after_so_many_the_reviewer_is_told(self, main_checkout: Checkout) -> None:
        turns = tuple(Turn("Done.", {"work": f"bad {number}\n"}) for number in range(4))
        bench = made(main_checkout, APPROVED, coder=turns, lint=self.LINT, lint_retries=2)
        bench.go()
        assert len(bench.coder.calls) == 3
        assert f"complaints of the linter:\n$ {self.LINT}\nbad 2\n" in bench.reviewer.prompts[0]
        assert bench.journal.cycle.lint_output == f"$ {self.LINT}\nbad 2"
        assert bench.said[-3] == "cycle 1: the linter still complains; the reviewer will be told"

    def test_each_cycle_has_as_many_fixes(self, main_checkout: Checkout) -> None:
        works = ("bad 1", "good 1", "bad 2", "good 2")
        bench = made(
            main_checkout,
            *rejected("one"),
            APPROVED,
            coder=tuple(Turn("Done.", {"work": each}) for each in works),
        )
        assert bench.go(lint=self.LINT, lint_retries=1).cycles == 2
        assert bench.log()[2::2] == [
            "t-1/cycle-1: Add a login (lint fix)",
            "t-1/cycle-2: Add a login (lint fix)",
        ]
        assert (bench.journal.cycle.lint_output, len(bench.coder.calls)) == ("", 4)

    def test_what_the_linter_changes_itself_is_committed(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, lint="echo formatted >>work")
        bench.go()
        assert bench.log()[1:] == [
            "t-1/cycle-1: Add a login",
            "t-1/cycle-1: Add a login (lint fix)",
        ]
        assert main_checkout.git("show", "HEAD:work") == "1\nformatted"

    def test_one_that_fails_without_a_word(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, lint="exit 7", lint_retries=0)
        bench.go()
        assert bench.journal.cycle.lint_output == "$ exit 7\nexit code 7, no output"

    def test_what_it_said_in_one_cycle_is_forgotten_in_the_next(
        self, main_checkout: Checkout
    ) -> None:
        turns = (Turn("Done.", {"work": "bad\n"}), Turn("Done.", {"work": "good\n"}))
        bench = made(
            main_checkout, *rejected("one"), APPROVED, coder=turns, lint=self.LINT, lint_retries=0
        )
        bench.go()
        assert bench.journal.cycle.lint_output == ""
        assert "linter:\n" not in bench.reviewer.prompts[1]


class TestFilters:
    def test_one_that_fails_spares_the_reviewer_and_then_passes(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(
            main_checkout, APPROVED, filters={"style": "true", "vet": "cat work; grep -q 2 work"}
        )
        found = ReviewFinding("critical", "[filter:vet] 1", 1, FIXED)
        assert bench.go() == ReviewVerdict(True, 2, 0.75, (found,), DONE)
        assert len(bench.reviewer.calls) == 1
        assert bench.journal.messages[3:6] == [
            "cycle 1: filtering",
            "cycle 1: resolving_issues",
            "cycle 2: coding",
        ]
        state = bench.journal.cycle
        assert (state.filter_history, state.filter_output, state.filter_check_name) == (
            ("vet",),
            "",
            "",
        )
        assert len(state.cycle_commits) == 2
        assert "1. [critical] [filter:vet] 1\n" in bench.coder.prompts[1]

    def test_they_run_in_order_and_the_first_that_fails_counts(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(
            main_checkout,
            APPROVED,
            filters={"one": "true", "two": "exit 3", "three": "false"},
            max_cycles=1,
        )
        with pytest.raises(MaxCyclesReached) as caught:
            bench.go()
        assert bench.commands == ["true", "exit 3"]
        assert caught.value.result is not None
        (found,) = caught.value.result.findings
        assert found == ReviewFinding("critical", "[filter:two] exit code 3, no output", 1)
        state = bench.journal.cycle
        assert (state.filter_check_name, state.filter_output) == (
            "two",
            "exit code 3, no output",
        )

    def test_its_output_is_cut(self, main_checkout: Checkout) -> None:
        bench = made(
            main_checkout, APPROVED, filters={"vet": "printf %04000d 0; false"}, max_cycles=1
        )
        with pytest.raises(MaxCyclesReached):
            bench.go()
        assert (
            bench.journal.cycle.findings[0].description
            == f"[filter:vet] {'0' * 3000}... [truncated]"
        )

    def test_after_a_review_the_history_says_that_none_failed(
        self, main_checkout: Checkout
    ) -> None:
        bench = made(main_checkout, *rejected("one"), APPROVED, filters={"vet": "true"})
        bench.go()
        assert bench.journal.cycle.filter_history == ("",)


def test_what_belongs_to_one_cycle_is_gone_in_the_next(main_checkout: Checkout) -> None:
    said = f"VERIFICATION:\nFINDING_ID: f-1\nSTATUS: fixed\n\n{REJECTED.format('one')}"
    bench = made(main_checkout, said, APPROVED, filters={"vet": "grep -q [23] work"}, max_cycles=4)
    bench.go()
    states = [ReviewState.from_state_table(table[KEY]) for table in bench.journal.recorded]
    ends = [
        (each.filter_check_name, each.filter_output, len(each.verifications))
        for each in states
        if each.phase == "resolving_issues"
    ]
    assert ends == [("vet", "exit code 1, no output", 0), ("", "", 1)]
    begins = [
        (each.filter_check_name, each.filter_output, each.verifications)
        for each in states
        if each.phase == "coding"
    ]
    assert begins == [("", "", ())] * 3


class TestRefactoring:
    def test_it_reaches_the_coder_in_the_next_cycle(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, *rejected("one", "two"), APPROVED)
        bench.tasks = ["Add a login by mail", "Add a login by mail"]
        bench.go()
        first, second, third = bench.coder.prompts
        assert "REFACTOR" not in first + third
        assert (
            "It was:\n---\nAdd a login\n---\n\nIt is now:\n---\nAdd a login by mail\n---\n"
            in second
        )
        assert "Your last answer was:\nI did 1.\n" in second
        assert third.startswith("Task t-1: Add a login by mail\n")
        assert bench.log()[1:] == [
            "t-1/cycle-1: Add a login",
            "t-1/cycle-2: Add a login by mail",
            "t-1/cycle-3: Add a login by mail",
        ]
        state = bench.journal.cycle
        assert (state.refactored, state.original_description, state.refactor_description) == (
            False,
            "",
            "",
        )

    @pytest.mark.parametrize("task", [None, "", " \n", "Add a login"])
    def test_what_changes_nothing(self, main_checkout: Checkout, task: str | None) -> None:
        bench = made(main_checkout, *rejected("one"), APPROVED)
        bench.tasks = [task]
        bench.go()
        assert "REFACTOR" not in bench.coder.prompts[1]

    def test_it_is_not_lost_with_a_filter_that_fails(self, main_checkout: Checkout) -> None:
        bench = made(main_checkout, APPROVED, filters={"vet": "grep -q 2 work"})
        bench.tasks = ["Add a login by mail"]
        bench.go()
        assert "It is now:\n---\nAdd a login by mail\n" in bench.coder.prompts[1]


class TestStruggle:
    def stuck(self, checkout: Checkout) -> Bench:
        return made(
            checkout,
            APPROVED,
            filters={"vet": "echo the very same complaint; grep -q 3 work"},
            max_cycles=4,
        )

    def test_it_ends_the_review(self, main_checkout: Checkout) -> None:
        bench = self.stuck(main_checkout)
        with pytest.raises(Struggling) as caught:
            bench.go()
        assert caught.value.message == (
            "struggling: the same filter failed in 2 cycles in a row, 100% of the "
            "findings are those of earlier cycles"
        )
        assert (
            caught.value.hint
            == "split the task or describe it better; resuming the run tries another cycle"
        )
        assert bench.journal.cycle.cycle == 2

    def test_it_does_so_too_where_a_kill_came_before_anybody_was_told(
        self, main_checkout: Checkout
    ) -> None:
        bench = self.stuck(main_checkout)
        with pytest.raises(Struggling):
            bench.go()
        with pytest.raises(Struggling):
            bench.resume(bench.journal.recorded[-2][KEY])
        assert (len(bench.coder.calls), bench.journal.messages) == (2, ["cycle 2: error"])

    def test_whoever_goes_on_gets_another_cycle(self, main_checkout: Checkout) -> None:
        bench = self.stuck(main_checkout)
        with pytest.raises(Struggling):
            bench.go()
        bench.coder.turns = (WORK[0], WORK[2])  # asked the same again, it answers something else
        assert bench.resume() == ReviewVerdict(
            True,
            3,
            1.0,
            (
                replace(bench.journal.cycle.all_findings[0], cycle=1),
                replace(bench.journal.cycle.all_findings[0], cycle=2),
            ),
            DONE,
        )


class TestHead:
    def left(self, checkout: Checkout) -> Bench:
        """Return a review that stopped in resolving_issues."""
        bench = made(checkout, *rejected("one"), APPROVED, max_cycles=1)
        with pytest.raises(MaxCyclesReached):
            bench.go()
        return bench

    def test_where_it_has_moved_on_one_goes_on(self, main_checkout: Checkout) -> None:
        bench = self.left(main_checkout)
        before = main_checkout.git("rev-parse", "HEAD")
        after = main_checkout.commit("by hand")
        assert bench.resume(max_cycles=2).approved
        assert bench.said[5] == f"HEAD has moved from {before} to {after}; continuing from there"

    def test_where_it_has_diverged_nothing_happens_unless_forced(
        self, main_checkout: Checkout
    ) -> None:
        bench = self.left(main_checkout)
        before = main_checkout.git("rev-parse", "HEAD")
        main_checkout.git("reset", "--quiet", "--hard", "HEAD~1")
        here = main_checkout.git("rev-parse", "HEAD")
        recorded = bench.journal.recorded[-1]
        with pytest.raises(Diverged) as caught:
            bench.resume(max_cycles=2)
        assert (
            caught.value.message
            == f"HEAD is {here}, which is no descendant of {before}, where cycle 1 was recorded"
        )
        assert (
            caught.value.hint
            == f"go back: git checkout {before}; or continue from HEAD: git ckpt resume RUN --force"
        )
        assert (bench.journal.state, bench.journal.recorded) == (recorded, [])
        assert bench.resume(recorded[KEY], max_cycles=2, force=True).approved
        assert bench.said[-5] == f"{caught.value.message}; continuing nevertheless"

    def test_where_the_commit_is_not_there(self, main_checkout: Checkout) -> None:
        bench = self.left(main_checkout)
        state = replace(bench.journal.cycle, git_sha="b" * 40)
        with pytest.raises(
            Diverged, match=f"and there is no commit {'b' * 40}, where cycle 1 was recorded"
        ):
            bench.resume(state)


def test_after_an_error_of_which_only_quasar_knows_the_cycle_is_done_again(
    main_checkout: Checkout,
) -> None:
    bench = made(main_checkout, APPROVED)
    table = ReviewState(phase="error", cycle=2).to_state_table()
    del table["more"]
    assert bench.resume(table).cycles == 2
    assert bench.log()[1:] == ["t-1/cycle-2: Add a login"]


def test_approved_already(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED)
    result = bench.go()
    before = main_checkout.fingerprint()
    assert bench.resume() == result
    assert bench.journal.recorded == []
    assert bench.said[-1] == "approved already, in cycle 1"
    assert main_checkout.fingerprint() == before


def test_a_command_that_fails_otherwise_ends_the_phase_where_it_was(
    main_checkout: Checkout,
) -> None:
    bench = made(main_checkout, APPROVED, lint="true")

    def shell(command: str) -> tuple[int, str]:
        raise PhaseFailed(f"{command} took more than 5m")

    real, bench.shell = bench.shell, shell  # type: ignore[method-assign]
    with pytest.raises(PhaseFailed):
        bench.go()
    assert bench.journal.cycle.failed_in == "linting"
    bench.shell = real  # type: ignore[method-assign]
    assert bench.resume().approved


def test_the_rest_of_the_state_is_left_alone(main_checkout: Checkout) -> None:
    bench = made(main_checkout, APPROVED)
    bench.journal = Memory({"mine": [1]})
    bench.go()
    assert all(each["mine"] == [1] for each in bench.journal.recorded)


def test_statuses_over_the_cycles(main_checkout: Checkout) -> None:
    said = (
        f"VERIFICATION:\nFINDING_ID: {make_finding_id('major', 'one')}\nSTATUS: {{}}\n"
        "COMMENT: see line 3\n\n"
    )
    bench = made(
        main_checkout,
        *rejected("one"),
        said.format("still_present") + REJECTED.format("two"),
        said.format("fixed") + APPROVED,
    )
    bench.go()
    seen = [
        [(each["id"], each["status"]) for each in table[KEY]["more"]["all_findings"]]
        for table in bench.journal.recorded
    ]
    one, two = make_finding_id("major", "one"), make_finding_id("major", "two")
    assert [] in seen
    assert seen[-1] == [(one, FIXED), (two, FOUND)]
    assert [(one, STILL_PRESENT), (two, FOUND)] in seen
