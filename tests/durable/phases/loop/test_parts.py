"""The parts of the autonomous loop: options, prompt, beads, and test commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gitckpt import ConfigError, PhaseFailed, UsageError
from gitckpt.durable.command.execution import EXIT, TIMEOUT, CommandResult
from gitckpt.durable.driver import driver
from gitckpt.durable.phases.loop import loop
from gitckpt.durable.phases.loop import loop as tracker
from gitckpt.durable.phases.loop.loop import IssueStatus, LoopOptions
from gitckpt.durable.pipeline.definition import parse_pipelines, read_preset

# Options


def read(**said: str) -> LoopOptions:
    return loop.parse_loop_options(lambda name: said.get(name, ""))


def test_usual_options() -> None:
    expected = LoopOptions((), "", "", "", 100, 10.0, 3600.0, 300.0, "new")
    assert read(until_tests_pass="yes") == expected
    usual = read_preset("loop", driver.OPTIONS).inputs
    assert read(**{**usual, "until_tests_pass": "yes"}) == expected


def test_all_options() -> None:
    said = read(
        issues="bd-1, bd-2 bd-3.1",
        epic="bd-0",
        done="check",
        tests="make check",
        max_iterations="7",
        pause="0s",
        agent_timeout="2h",
        test_timeout="1m",
        conversation="continue",
    )
    assert said == LoopOptions(
        ("bd-1", "bd-2", "bd-3.1"), "bd-0", "check", "make check", 7, 0.0, 7200.0, 60.0, "continue"
    )


@pytest.mark.parametrize(
    "said",
    [
        {"issues": "bd-1"},
        {"done": "true"},
        {"until_tests_pass": " Yes ".strip()},
        {"until_tests_pass": "1"},
    ],
)
def test_what_says_when_the_work_is_done(said: dict[str, str]) -> None:
    read(**said)


def test_no_iterations_stand_for_the_usual_number() -> None:
    assert read(until_tests_pass="yes", max_iterations="0").max_iterations == 100


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            {},
            "the loop has no end condition",
            (
                "git ckpt loop: --issue ID, --done COMMAND or --until-tests-pass; git ckpt run "
                "and resume: --input issues=ID, done=COMMAND or until_tests_pass=yes"
            ),
        ),
        ({"until_tests_pass": "no", "epic": "bd-1"}, "the loop has no end condition", None),
        (
            {"until_tests_pass": "perhaps"},
            "until_tests_pass is 'perhaps', not yes or no",
            "write yes or no",
        ),
        ({"issues": "bd-1 $(rm)"}, "'$(rm)' is not an issue id", "list the issues: bd list"),
        ({"issues": "--all"}, "'--all' is not an issue id", None),
        ({"done": "true", "epic": "a b"}, "'a b' is not an issue id", None),
        (
            {"done": "true", "conversation": "old"},
            "unknown conversation: 'old'",
            "choose new or continue",
        ),
        (
            {"done": "true", "max_iterations": "-1"},
            "max_iterations must be 0 or more, not '-1'",
            "write a whole number, such as 100",
        ),
        (
            {"done": "true", "max_iterations": "10000000"},
            "max_iterations must be a whole number, not '10000000'",
            None,
        ),
        (
            {"done": "true", "pause": "10"},
            "pause: '10' is not an age",
            "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
        ),
        (
            {"done": "true", "test_timeout": "0s"},
            "test_timeout must be more than 0, not '0s'",
            "write a duration such as 30m",
        ),
        (
            {"done": "true", "agent_timeout": "0h"},
            "agent_timeout must be more than 0, not '0h'",
            None,
        ),
    ],
)
def test_options_that_cannot_be_understood(
    said: dict[str, str], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        read(**said)
    assert (caught.value.message, caught.value.hint) == (message, hint or caught.value.hint)


OWN = """\
[[pipelines.own.phases]]
name = "build"
use = "loop"

[pipelines.own.phases.with]
plan = "plan.md"
{}
"""


def test_with_in_a_pipeline_of_ones_own() -> None:
    (phase,) = parse_pipelines(OWN.format('done = "true"'), "gitckpt.toml", driver.OPTIONS)[
        "own"
    ].phases
    assert (phase.use, phase.options, driver.progress_keys(phase)) == (
        "loop",
        {"plan": "plan.md", "done": "true"},
        ("loop",),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('issue = "bd-1"', (7, "unknown key 'issue' in with of phase 'build'")),
        ("pause = 10", (7, "pause in with of phase 'build' must be a string, not 10")),
    ],
)
def test_mistakes_in_with_have_a_line(line: str, problem: tuple[int, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipelines(OWN.format(line), "gitckpt.toml", driver.OPTIONS)
    assert [(each.line, each.text) for each in caught.value.mistakes] == [problem]


# The prompt

TASK = loop.LoopAssignment("docs/plan.md", "bd-9", ("bd-2", "bd-1"), "make test")

WHOLE = """\
# Task

Implement the TDD plan at docs/plan.md

Read the overview first, then the documents of its phases, which are in the same directory.

## Beads tracking

```
bd ready                              # issues that nothing blocks
bd show <id>                          # one issue
bd update <id> --status=in_progress   # begin with it
bd close <id>                         # it is done
bd sync                               # bring the issues into git
```

**Epic**: `bd-9`

**Phase Issues**:
- Phase 1: `bd-2`
- Phase 2: `bd-1`

## Instructions

1. Read the plan's overview, to know what is done and what is not.
2. Find the documents of its phases in the same directory.
3. Implement the task with the highest priority, with subagents where that helps: \
write its tests, see them fail, make them pass.
4. Run all tests (`make test`).
5. Update the plan: tick off what is done.
6. When all of a phase is done, close its issue: `bd close <id>`.
7. After closing an issue, emit /clear.

CRITICAL: after all tests pass, and after each issue that was closed, emit /clear.

## To be revised

Use tabs.

## The tests failed

Make them pass. This is their last output:

```
1 failed
```
"""


def test_whole_prompt() -> None:
    assert (
        loop.build_loop_prompt(
            loop.read_default_prompt_template(), TASK, "\n1 failed\n", " Use tabs.\n"
        )
        == WHOLE
    )


def test_prompt_without_issues() -> None:
    said = loop.build_loop_prompt(
        loop.read_default_prompt_template(), loop.LoopAssignment("p.md", "", (), ""), ""
    )
    assert not {"Beads", "**", "failed"} & set(said.split())
    assert "4. Run all tests (`pytest` or `make test`)." in said
    assert said.endswith("emit /clear.\n")


def test_template_that_names_nothing_gets_the_failure_at_its_end() -> None:
    assert loop.build_loop_prompt("Go on.", TASK, "no").startswith("Go on.\n## The tests failed\n")
    assert loop.build_loop_prompt("Go on.", TASK, "") == "Go on.\n"


def test_values_are_no_templates() -> None:
    assert "cost $5 and $plan" in loop.build_loop_prompt("$failure", TASK, "cost $5 and $plan")


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("Do $plans now", "$plans is unknown"),
        ("cost: 5$", "it has a $ without a name"),
        ("${Plan}", "$Plan is unknown"),
    ],
)
def test_template_with_an_unknown_name(template: str, problem: str) -> None:
    with pytest.raises(PhaseFailed) as caught:
        loop.build_loop_prompt(template, TASK, "")
    assert caught.value.message == f"cannot use the template of the prompt: {problem}"
    assert (
        caught.value.hint
        == "use $plan, $epic, $issues, $tests, $tracking, $failure; write $$ for $"
    )


# Beads: RLM-25


def beads(
    said: object, *issues: str, code: int = 0, ended_by: str = EXIT, tail: str = ""
) -> IssueStatus:
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    return tracker.query_issue_status(
        issues or ("bd-1",), lambda _: (CommandResult(code, ended_by, tail, 0.1), data)
    )


def issue(status: object, name: object = "bd-1") -> dict[str, object]:
    return {"id": name, "title": "status: closed", "status": status}


@pytest.mark.parametrize("status", ["closed", "done", "complete", "tombstone", " Closed "])
@pytest.mark.parametrize("in_array", [True, False])
def test_rlm_25_closed(status: str, in_array: bool) -> None:
    said = [issue(status)] if in_array else issue(status)
    found = beads(said)
    assert (found, found.is_done) == (IssueStatus(("bd-1",), ()), True)


@pytest.mark.parametrize(
    "status",
    [
        "open",
        "in_progress",
        "blocked",
        "deferred",
        "pinned",
        "hooked",
        "",
        "not closed",
        "disclosed",
    ],
)
def test_rlm_25_open(status: str) -> None:
    found = beads([issue(status)])
    assert (found, found.is_done) == (IssueStatus((), ("bd-1",)), False)


GARBAGE = [
    b"",
    b"\n",
    b"Status: closed",
    b"\xff\xfe",
    b"[" * 100_000,
    b"null",
    b"[]",
    b"{}",
    b'"closed"',
    b'[["bd-1", "closed"]]',
    b"7",
]


@pytest.mark.parametrize(
    "said",
    [*GARBAGE, [issue(None)], [issue("closed", 1)], [issue(["closed"])], {"error": "x"}],
    ids=range(15),
)
def test_rlm_25_garbage(said: object) -> None:
    found = beads(said)
    assert (found, found.is_done) == (IssueStatus((), ("bd-1",), "bd does not report bd-1"), False)


def test_rlm_25_exit_code_1() -> None:
    found = beads({"error": "no issue"}, code=1, tail="\nError: no issue found matching bd-1\n\n")
    assert found == IssueStatus(
        (), ("bd-1",), "bd does not report bd-1: Error: no issue found matching bd-1"
    )
    found = beads([issue("closed")], code=1)
    assert (found, found.is_done) == (IssueStatus(("bd-1",), (), "bd failed: exit code 1"), False)


def test_rlm_25_mixed() -> None:
    found = beads(
        [issue("closed", "bd-2"), issue("open"), issue("closed", "bd-7")], "bd-1", "bd-2", "bd-3"
    )
    assert (found, found.is_done) == (
        IssueStatus(("bd-2",), ("bd-1", "bd-3"), "bd does not report bd-3"),
        False,
    )


def test_rlm_25_it_takes_too_long() -> None:
    found = beads([issue("closed")], ended_by=TIMEOUT)
    assert (found, found.is_done) == (
        IssueStatus((), ("bd-1",), "bd timed out"),
        False,
    )


def test_rlm_25_no_issues_are_no_answer() -> None:
    """A loop over an empty list of issues would end at once, so it is refused."""
    with pytest.raises(UsageError):
        read(issues=" , ")


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (CommandResult(0, EXIT, "2 left\n", 0.1), ""),
        (CommandResult(1, EXIT, "3 left\n2 left\n\n", 0.1), "check: exit code 1: 2 left"),
        (
            CommandResult(128, EXIT, "fatal: no remote\nand please\ntry again\n", 0.1),
            "check: exit code 128: fatal: no remote",
        ),
        (CommandResult(-9, EXIT, "", 0.1), "check: exit code -9"),
        (CommandResult(0, TIMEOUT, "2 left", 0.1), "check: timed out: 2 left"),
    ],
)
def test_a_command_that_knows(outcome: CommandResult, problem: str) -> None:
    assert tracker.run_done_command("check", lambda _: outcome) == IssueStatus((), (), problem)


# Tests


@pytest.mark.parametrize(
    ("makefile", "is_found"),
    [
        ("test:\n\ttrue\n", True),
        ("all: test\ntest: all ; true\n", True),
        ("test::\n\ttrue\n", True),
        ("lint test check: all\n", True),
        ("test lint:\n", True),
        ("CC = gcc\n\ntest : x\n", True),
        ("tests:\n", False),
        ("testing: x\n", False),
        ("unit-test:\n", False),
        ("test-all:\n", False),
        ("test := 3\n", False),
        ("test ::= 3\n", False),
        ("test = a:b\n", False),
        ("# test: no\n", False),
        ("\ttest: no\n", False),
        ("all: test\n", False),
        ("", False),
    ],
)
def test_makefiles_with_a_target(tmp_path: Path, makefile: str, is_found: bool) -> None:
    (tmp_path / "Makefile").write_text(makefile)
    assert loop.find_test_command(str(tmp_path), {"PATH": str(tmp_path)}) == (
        "make test" if is_found else ""
    )


def test_the_first_makefile_counts(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n")
    assert loop.find_test_command(str(tmp_path), {"PATH": ""}) == "make test"
    (tmp_path / "GNUmakefile").write_text("all:\n")
    assert loop.find_test_command(str(tmp_path), {"PATH": ""}) == ""


def test_pytest_goes_before_make(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n")
    (tmp_path / "pytest").write_text("#!/bin/sh\n")
    assert loop.find_test_command(str(tmp_path), {"PATH": str(tmp_path)}) == "make test"
    os.chmod(tmp_path / "pytest", 0o755)
    assert loop.find_test_command(str(tmp_path), {"PATH": str(tmp_path)}) == "pytest -v --tb=short"


@pytest.mark.parametrize(
    ("outcome", "tested"),
    [
        (CommandResult(0, EXIT, "2 passed\n", 1.0), loop.TestResult(True, "2 passed\n")),
        (CommandResult(5, EXIT, "no tests ran\n", 1.0), loop.TestResult(False, "no tests ran\n")),
        (
            CommandResult(0, TIMEOUT, "a..\n", 300.0),
            loop.TestResult(False, "a..\nTests timed out after 300 seconds"),
        ),
        (
            CommandResult(-15, TIMEOUT, "", 300.0),
            loop.TestResult(False, "Tests timed out after 300 seconds"),
        ),
    ],
)
def test_what_tests_say(outcome: CommandResult, tested: loop.TestResult) -> None:
    assert loop.run_tests("pytest", lambda _: outcome, 300) == tested
