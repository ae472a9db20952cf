"""The prompts give coder and reviewer the task, the findings and the lint output."""

from __future__ import annotations

from dataclasses import replace

from gitckpt.durable.phases.review import cycle
from gitckpt.durable.phases.review.state import (
    CUT,
    FIXED,
    STILL_PRESENT,
    ReviewFinding,
    ReviewState,
)

FIRST = ReviewState(task_bead_id="t-1", task_title="Add a login", cycle=1)
OLD, NEW = (
    ReviewFinding("minor", "an old one", 1, STILL_PRESENT),
    ReviewFinding("major", "a new one", 2),
)
GONE = ReviewFinding("major", "a fixed one", 1, FIXED)
LATER = replace(
    FIRST, cycle=3, coder_output="I did it.", findings=(NEW,), all_findings=(OLD, GONE, NEW)
)


def test_the_coder_in_the_first_cycle() -> None:
    assert cycle.build_coder_prompt(FIRST) == (
        "Task t-1: Add a login\n\nImplement this task. Read the existing code first, "
        "then make the changes.\n"
    )


def test_the_coder_later_gets_what_is_not_fixed() -> None:
    assert cycle.build_coder_prompt(LATER) == (
        "Task t-1: Add a login\n\nYour last implementation has these issues:\n\n"
        "1. [minor] an old one\n2. [major] a new one\n\n"
        "Fix them. Read the files concerned first: they are the current state.\n"
    )


def test_the_coder_gets_the_reviewer_s_words_where_it_named_no_issue() -> None:
    state = replace(LATER, all_findings=(GONE,), findings=(), review_output="\nHm, no.\n")
    assert cycle.build_coder_prompt(state) == (
        "Task t-1: Add a login\n\nThe reviewer did not approve of your last "
        "implementation, and said:\n\nHm, no.\n\n"
        "Do what is asked there. Read the files concerned first: they are the current state.\n"
    )


def test_the_coder_after_a_change_of_the_task() -> None:
    state = replace(
        LATER,
        refactored=True,
        original_description="Add a login",
        refactor_description="Add a login by mail",
        coder_output="x" * 2001,
    )
    assert cycle.build_coder_prompt(state) == (
        "Task t-1\n\n[REFACTOR: THE TASK WAS CHANGED]\n\n"
        "The task was changed while you were working. It was:\n---\nAdd a login\n---\n\n"
        "It is now:\n---\nAdd a login by mail\n---\n\n"
        "The new task is what counts. Keep what is good of the work done so far.\n\n"
        f"[PREVIOUS WORK]\nYour last answer was:\n{'x' * 2000}{CUT}\n\n"
        "The reviewer found:\n\n1. [minor] an old one\n2. [major] a new one\n"
    )


def test_the_coder_where_the_linter_complains() -> None:
    assert cycle.build_lint_prompt(replace(FIRST, lint_output="é" * 3001)) == (
        "Task t-1: Add a login\n\nThe linter complains about your work; "
        "fix this before the review.\n\n"
        f"LINT OUTPUT:\n{'é' * 3000}{CUT}\n\nFix all of it. Read the files concerned first.\n"
    )


def test_the_reviewer_in_the_first_cycle() -> None:
    prompt = cycle.build_reviewer_prompt(replace(FIRST, coder_output="é" * 3001))
    assert prompt.startswith(
        "Task t-1: Add a login\n\nThe coder has finished, and says:\n\n"
        f"{'é' * 3000}{CUT}\n\nREVIEW INSTRUCTIONS:\n1. "
    )
    assert "\n4. End with either APPROVED: or one or more ISSUE: blocks.\n" in prompt
    assert not {"PRIOR FINDINGS", "VERIFICATION", "linter:"} & {
        word for word in ("PRIOR FINDINGS", "VERIFICATION", "linter:") if word in prompt
    }


def test_the_reviewer_later_gets_all_findings_to_verify() -> None:
    prompt = cycle.build_reviewer_prompt(LATER)
    assert (
        "VERIFICATION:\nFINDING_ID: the id\nSTATUS: fixed, still_present or regressed\n"
        "COMMENT: why\n"
    ) in prompt
    assert (
        f"1. [minor] id={OLD.id} cycle=1 status=still_present\n   an old one\n"
        f"2. [major] id={GONE.id} cycle=1 status=fixed\n   a fixed one\n"
        f"3. [major] id={NEW.id} cycle=2 status=found\n   a new one\n"
    ) in prompt


def test_the_reviewer_hears_of_what_the_linter_still_says() -> None:
    prompt = cycle.build_reviewer_prompt(replace(FIRST, lint_output="y" * 2001))
    assert (
        f"NOTE: the coder did not fix these complaints of the linter:\n{'y' * 2000}{CUT}\n"
        in prompt
    )
