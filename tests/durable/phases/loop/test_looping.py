"""The autonomous loop: iterations, limits, memory, and resumes.

REQ_019 is the requirement that describes it. RLM-24 is the list of behaviors of rlm-act's loop,
its model; B6 and B9 are flaws of that loop.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import Cancelled, DeadlineReached, PhaseFailed, Progress
from gitckpt.durable.agent.clients import AgentClient
from gitckpt.durable.driver import driver
from gitckpt.durable.phases.loop import loop
from gitckpt.durable.phases.loop.loop import ASK, DONE, LOOK
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.durable.conftest import attempt_of, go_on, labels
from tests.durable.phases.loop.bench import PHASE, PLAN, Bench
from tests.dying import die_at_rename

TESTS = '[ -e works ] || { echo "works is missing"; exit 1; }'
"""Tests that pass once the agent has written the file `works`."""

WORKS = {"write": {"works": "yes\n"}}


def fails(bench: Bench) -> PhaseFailed:
    """Drive a loop that must fail, and return the failure."""
    with pytest.raises(PhaseFailed) as caught:
        bench.drive()
    return caught.value


class TestRequirement:
    """REQ_019.1, behavior by behavior."""

    @pytest.mark.long
    def test_req_019_1_1_the_prompt_has_plan_and_issues(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="closed", bd_2="closed")
        bench.loop(issues=ids, epic="bd-9")
        (prompt,) = bench.prompts
        assert "Implement the TDD plan at plan.md\n" in prompt
        assert "\n**Epic**: `bd-9`\n" in prompt
        assert "\n**Phase Issues**:\n- Phase 1: `bd-1`\n- Phase 2: `bd-2`\n" in prompt

    @pytest.mark.long
    def test_req_019_1_2_there_are_at_most_100_iterations(self, bench: Bench) -> None:
        assert bench.definition.inputs["max_iterations"] == "100"
        assert loop.MAX_ITERATIONS == 100
        bench.start(tests="false", pause="0s", max_iterations="3")
        assert fails(bench).message == "reached max iterations (3)"
        assert len(bench.prompts) == 3

    def test_req_019_1_3_output_is_shown_as_it_comes_and_kept(self, bench: Bench) -> None:
        bench.script({"write": {"a": ""}, "say": "I wrote a."})
        assert bench.loop()["output"] == "I wrote a."
        assert "→ Write: a\nI wrote a.\n" in bench.listener.shown.decode()
        log = bench.checkout.path / ".ckpt/runs" / bench.run / "agent/agent.log"
        assert '"result": "I wrote a."' in log.read_text()

    @pytest.mark.long
    def test_req_019_1_4_between_two_calls_it_sleeps_ten_seconds(self, bench: Bench) -> None:
        bench.script({}, {}, WORKS)
        bench.loop(tests=TESTS)
        assert bench.sleeper.slept == pytest.approx(20, abs=0.01)

    @pytest.mark.long
    def test_req_019_1_5_after_each_call_it_asks_for_the_issues(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open", bd_2="open")
        bench.script({"run": ["bd", "close", "bd-1"]}, {"run": ["bd", "close", "bd-2"]})
        result = bench.loop(issues=ids, pause="0s")
        assert (result["iterations"], result["issues_closed"]) == (2, ["bd-1", "bd-2"])
        assert bench.shown() == [
            "iteration 1 of 9",
            "still open: bd-2",
            "iteration 2 of 9",
            "tests: true",
        ]

    @pytest.mark.long
    def test_req_019_1_6_tests_run_once_all_issues_are_closed(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open")
        bench.script({}, {"run": ["bd", "close", "bd-1"]})
        bench.loop(issues=ids, pause="0s", tests="echo tested >> tests-were-run")
        assert bench.path("tests-were-run").read_text() == "tested\n"

    @pytest.mark.long
    def test_req_019_1_7_when_they_pass_the_phase_is_complete(self, bench: Bench) -> None:
        result = bench.loop()
        assert result == {
            "iterations": 1,
            "tests_passed": True,
            "issues_closed": [],
            "output": "done",
            "cost_usd": 0.0,
        }
        progress = f"{PHASE}-progress"
        assert labels(bench.store, bench.run) == [
            "run-started",
            f"{PHASE}-started",
            progress,
            progress,
            f"{PHASE}-complete",
            "run-complete",
        ]

    @pytest.mark.long
    def test_req_019_1_8_when_they_fail_it_goes_on(self, bench: Bench) -> None:
        bench.script({}, WORKS)
        assert bench.loop(tests=TESTS, pause="0s")["iterations"] == 2
        assert bench.messages() == [
            "iteration 1: the agent was asked",
            "iteration 1: the tests fail",
            "iteration 2: the agent was asked",
            "iteration 2: the tests pass",
        ]

    @pytest.mark.long
    def test_req_019_1_9_errors_and_timeouts_use_up_iterations(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "AGENT_TIMEOUT", 1.0)
        monkeypatch.setattr(loop, "TEST_TIMEOUT", 1.0)
        bench.pipeline(OWN.format(more='tests = "[ -e works ] || sleep 60"'))
        bench.script({"error": "out of ideas"}, {"hang": True}, {}, WORKS)
        assert bench.loop()["iterations"] == 4
        problems = [each.errors for each in bench.milestones() if each.errors]
        assert problems == [
            ("fake failed: out of ideas",),
            ("fake was ended: the call took more than 1s",),
            ("Final tests failed: Tests timed out after 1 seconds",),
        ]

    @pytest.mark.long
    def test_req_019_1_10_the_result_has_the_number_of_iterations(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open")
        bench.script(
            {"say": "begun", "cost": 0.25},
            {"run": ["bd", "close", "bd-1"], "say": "all done", "cost": 0.5},
        )
        assert bench.loop(issues=ids, pause="0s") == {
            "iterations": 2,
            "tests_passed": True,
            "issues_closed": ["bd-1"],
            "output": "all done",
            "cost_usd": 0.75,
        }


OWN = """\
[pipelines.own]
inputs = {{ plan = "", agent = "" }}
files = ["plan"]

[[pipelines.own.phases]]
name = "implementation"
use = "loop"
on_resume = "reset"

[pipelines.own.phases.with]
plan = "{{plan}}"
agent = "{{agent}}"
pause = "0s"
until_tests_pass = "yes"
{more}
"""


class TestConformance:
    """RLM-24, item by item, as far as REQ_019 does not cover it."""

    @pytest.mark.long
    def test_rlm_24_max_iterations_are_counted(self, bench: Bench) -> None:
        bench.start(tests="false", pause="0s", max_iterations="2")
        failed = fails(bench)
        final = "Final tests failed: "
        assert (failed.message, failed.errors) == (
            "reached max iterations (2)",
            (final, final, "reached max iterations (2)"),
        )
        assert bench.memory["iterations"] == 2
        assert bench.newest.label == f"{PHASE}-failed"

    @pytest.mark.long
    def test_rlm_24_failures_of_the_agent_do_not_end_it(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open")
        bench.script(
            {"exit": 3},
            {"garbage": True},
            {"cut": True},
            {"run": ["bd", "close", "bd-1"], "exit": 1},
        )
        assert bench.loop(issues=ids, pause="0s")["iterations"] == 4
        assert [each.errors for each in bench.milestones() if each.errors] == [
            ("fake failed: exit code 3: done",),
            ("fake failed: the output ends before the final message",),
            ("fake failed: exit code 1: done",),
        ]

    @pytest.mark.long
    def test_rlm_24_tests_run_only_when_all_are_closed(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="closed", bd_2="open")
        bench.start(issues=ids, pause="0s", max_iterations="2", tests="touch tests-were-run")
        assert fails(bench).message == "reached max iterations (2)"
        assert not bench.path("tests-were-run").exists()
        assert (
            bench.memory["closed_issues"],
            bench.memory["open_issues"],
            bench.memory["tests"],
        ) == (["bd-1"], ["bd-2"], "not run")

    @pytest.mark.long
    def test_rlm_24_a_test_failure_is_told_in_the_next_prompt(self, bench: Bench) -> None:
        bench.script({}, WORKS)
        bench.loop(tests=TESTS, pause="0s")
        first, second = bench.prompts
        said = (
            "\n## The tests failed\n\nMake them pass. This is their last output:\n\n```\n"
            "works is missing\n```\n"
        )
        assert first + said == second

    @pytest.mark.long
    def test_rlm_24_pytest_goes_first(self, bench: Bench) -> None:
        bench.program("pytest", 'echo "pytest $*"; [ -e works ]')
        bench.checkout.commit("a target", Makefile="test:\n\ttouch made\n")
        bench.script({}, WORKS)
        assert bench.loop(tests="", pause="0s")["iterations"] == 2
        assert bench.memory["tests_output"] == "pytest -v --tb=short\n"
        assert not bench.path("made").exists()  # failed tests do not start another test command

    @pytest.mark.long
    def test_rlm_24_make_only_where_pytest_is_missing(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_pytest(tmp_path, monkeypatch)
        bench.checkout.commit("a target", Makefile="test:\n\t@echo made\n")
        assert bench.loop(tests="")["tests_passed"]
        assert bench.memory["tests_output"] == "made\n"
        assert "tests: make test" in bench.shown()

    def test_rlm_24_without_a_plan_there_is_nothing_to_be_done(self, bench: Bench) -> None:
        bench.pipeline(OWN.format(more=""))
        assert bench.loop(plan="") == {
            "iterations": 0,
            "tests_passed": False,
            "issues_closed": [],
            "output": "there is no plan, so there is nothing to do",
            "cost_usd": 0.0,
        }
        assert bench.prompts == []

    def test_rlm_24_a_plan_that_is_missing_is_a_failure(self, bench: Bench) -> None:
        bench.pipeline(OWN.format(more="").replace('"{plan}"', '"""\ndocs/{agent}.md\nb.md"""'))
        bench.start()
        failed = fails(bench)
        assert (failed.message, failed.exit_code) == ("Plan not found: docs/fake.md, b.md", 20)
        assert bench.prompts == []

    def test_rlm_24_the_prompt(self, bench: Bench) -> None:
        ids = bench.issues(bd_3="closed", bd_1="closed", bd_2="closed")
        bench.program("pytest", "true")
        bench.loop(issues=ids, epic="bd-9", tests="")
        prompt = bench.prompts[0]
        for line in (
            "bd ready ",
            "bd show <id> ",
            "bd update <id> --status=in_progress ",
            "bd close <id> ",
            "bd sync ",
        ):
            assert f"\n{line}" in prompt
        places = [
            prompt.index(each)
            for each in (
                "at plan.md",
                "`bd-9`",
                "1: `bd-3`",
                "2: `bd-1`",
                "3: `bd-2`",
                "`pytest` or `make test`",
                "CRITICAL",
            )
        ]
        assert places == sorted(places)


def without_pytest(directory: Path, patch: pytest.MonkeyPatch) -> None:
    """Set a PATH with the fake programs and a few others, but without pytest."""
    tools = directory / "tools"
    tools.mkdir()
    for name in ("git", "sh", "cat", "ls", "wc", "make", "echo"):
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(os.path.realpath(found) if name != "sh" else found)
    patch.setenv("PATH", f"{directory / 'programs'}{os.pathsep}{tools}")


def test_b9_a_missing_test_command_is_a_failure(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: rlm-act's loop counted a missing test command as success."""
    without_pytest(tmp_path, monkeypatch)
    bench.checkout.commit("no target", Makefile="tests:\n\ttrue\n")
    bench.start(tests="", max_iterations="1")
    failed = fails(bench)
    none = (
        "no test command found: pytest is not installed, and no Makefile has a target test; "
        "add --tests COMMAND to git ckpt loop, or --input tests=COMMAND to git ckpt run or resume"
    )
    assert failed.errors == (f"Final tests failed: {none}", "reached max iterations (1)")
    assert (bench.memory["tests"], bench.memory["tests_output"]) == ("failed", none)


def test_b9_a_test_command_that_is_not_there_is_a_failure(bench: Bench) -> None:
    bench.start(tests="no-such-pytest -q", max_iterations="1")
    assert "no-such-pytest" in fails(bench).errors[0]


class TestMemory:
    """B6: rlm-act's loop forgot everything when it was killed."""

    @pytest.mark.long
    def test_b6_iterations_errors_and_test_output_survive_a_kill(self, bench: Bench) -> None:
        bench.script(
            {"cost": 1.0, "session": "s-1"},
            {"error": "out of ideas"},
            {"say": "third", "cost": 2.0},
            WORKS,
        )
        bench.start(tests=TESTS, pause="0s", max_iterations="5")
        bench.die("[loop] iteration 4 of 5")
        expected = {
            "phase": PHASE,
            "iterations": 3,
            "allowed": 5,
            "next": ASK,
            "open_issues": [],
            "closed_issues": [],
            "tests": "failed",
            "tests_output": "works is missing\n",
            "failures": [
                "Final tests failed: works is missing\n",
                "iteration 2: fake failed: out of ideas",
                "Final tests failed: works is missing\n",
            ],
            "cost_usd": 3.0,
            "session": "fake-1",
            "said": "third",
            "problem": "",
            "plan": bench.newest.pipeline.contents["plan"] if bench.newest.pipeline else None,
        }
        assert bench.memory == expected
        assert bench.drive()["iterations"] == 4
        assert len(bench.prompts) == 4
        assert "```\nworks is missing\n" in bench.prompts[3]
        assert bench.memory == expected | {
            "iterations": 4,
            "next": DONE,
            "tests": "passed",
            "tests_output": "",
            "failures": [],
            "said": "done",
        }

    @pytest.mark.long(but=["second"])
    @pytest.mark.parametrize("at", ["[loop] iteration 2 of", "second", "[loop] tests: test -e b"])
    def test_b6_the_iteration_that_was_under_way_begins_again(self, bench: Bench, at: str) -> None:
        """The loop repeats the call of a killed agent, with the files as they were.

        It does not repeat a call that had ended.
        """
        bench.checkout.write("counter", "")
        first = {"run": ["sh", "-c", "echo x >> a"], "say": "first"}
        second = {"run": ["sh", "-c", "echo y >> a"], "write": {"b": "b\n"}, "say": "second"}
        bench.script(first, second, second)
        bench.start(done="[ -e b ]", tests="test -e b", pause="0s")
        bench.die(at)
        assert bench.drive()["iterations"] == 2
        assert bench.path("a").read_text() == "x\ny\n"
        assert len(bench.prompts) == (3 if at == "second" else 2)

    @pytest.mark.long
    def test_whole_table_and_files_of_each_iteration(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open", bd_2="closed")
        bench.script(
            {"write": {"a": "1\n"}}, {"run": ["bd", "close", "bd-1"], "write": {"a": "2\n"}}
        )
        bench.loop(issues=ids, pause="0s", tests="cat a")
        found = bench.milestones()
        usual = {
            "phase": PHASE,
            "allowed": 9,
            "cost_usd": 0.0,
            "session": "fake-1",
            "said": "done",
            "problem": "",
            "failures": [],
        }
        usual |= {"tests": "not run", "tests_output": "", "plan": bench.memory["plan"]}
        start, first = (
            {"open_issues": ["bd-1", "bd-2"], "closed_issues": []},
            {"open_issues": ["bd-1"], "closed_issues": ["bd-2"]},
        )
        both = {"open_issues": [], "closed_issues": ["bd-1", "bd-2"]}
        assert [each.state["loop"] for each in found] == [
            usual | start | {"iterations": 1, "next": LOOK},
            usual | first | {"iterations": 1, "next": ASK},
            usual | first | {"iterations": 2, "next": LOOK},
            usual
            | both
            | {"iterations": 2, "next": DONE, "tests": "passed", "tests_output": "2\n"},
        ]
        assert [each.message for each in found] == [
            "iteration 1: the agent was asked",
            "iteration 1: still open: bd-1",
            "iteration 2: the agent was asked",
            "iteration 2: the tests pass",
        ]
        assert [each.progress for each in found] == [
            Progress(
                current_phase=1,
                total_phases=1,
                current_task=f"iteration {number}",
                tasks_completed=closed,
                tasks_total=2,
            )
            for number, closed in ((1, 0), (1, 1), (2, 1), (2, 2))
        ]
        contents = [
            bench.checkout.git("show", f"refs/ckpt/trees/{each.id}:files/a") for each in found
        ]
        assert contents == ["1", "1", "2", "2"]

    @pytest.mark.long
    def test_the_last_test_output_stays_while_issues_are_open_again(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="closed")
        bench.script(
            {}, {"write": {".issues/bd-1": "open"}}, WORKS | {"run": ["bd", "close", "bd-1"]}
        )
        bench.loop(issues=ids, tests=TESTS, pause="0s")
        assert ["```\nworks is missing" in prompt for prompt in bench.prompts] == [
            False,
            True,
            True,
        ]

    def test_of_long_output_the_end_is_kept(self, bench: Bench) -> None:
        bench.script({"say": "x" * 9000 + "end"}, WORKS)
        bench.start(
            tests='i=0; while [ $i -lt 900 ]; do echo "line $i......"; i=$((i+1)); done; exit 1',
            max_iterations="1",
        )
        failed = fails(bench)
        assert len(failed.errors[0]) == len("Final tests failed: ") + 500
        assert (len(bench.memory["said"]), len(bench.memory["tests_output"])) == (8000, 8000)
        assert bench.memory["said"].endswith("xend")
        assert bench.memory["tests_output"].endswith("line 899......\n")


class TestExhaustion:
    @pytest.mark.long
    def test_a_resume_allows_as_many_again(self, bench: Bench) -> None:
        bench.script({}, {}, {}, WORKS)
        bench.start(tests=TESTS, pause="0s", max_iterations="2")
        assert fails(bench).message == "reached max iterations (2)"
        assert bench.drive()["iterations"] == 4
        assert bench.shown()[4:6] == ["iteration 3 of 4", f"tests: {TESTS}"]
        assert "up to 4 iterations from now on" in bench.messages()

    @pytest.mark.long
    def test_a_crash_allows_nothing(self, bench: Bench) -> None:
        bench.start(tests=f"{TESTS} && echo over", pause="0s", max_iterations="1")
        bench.die("[loop] tests: ")
        assert fails(bench).message == "reached max iterations (1)"
        assert len(bench.prompts) == 1

    @pytest.mark.long
    def test_a_crash_after_a_resume_takes_nothing_back(self, bench: Bench) -> None:
        bench.script({}, {}, WORKS)
        bench.start(tests=TESTS, pause="0s", max_iterations="1")
        fails(bench)
        bench.die("[loop] iteration 2 of 2")
        assert fails(bench).message == "reached max iterations (2)"
        assert bench.drive()["iterations"] == 3

    @pytest.mark.long
    def test_the_status_of_a_loop_that_failed(self, bench: Bench) -> None:
        bench.start(tests="echo no; false", max_iterations="1")
        failed = fails(bench)
        assert failed.hint == (
            f"see the progress: git ckpt status {bench.run}; to continue: "
            f"git ckpt resume {bench.run}"
        )
        history = bench.store.history(bench.run)
        (event,) = history.events
        assert (history.summary.status, event.status, event.attempts) == ("failed", "failed", 1)
        assert event.errors == ("Final tests failed: no\n", "reached max iterations (1)")

    @pytest.mark.long
    def test_from_begins_with_the_first_iteration(self, bench: Bench) -> None:
        bench.script({"write": {"a": "1\n"}}, {}, WORKS)
        bench.start(tests=TESTS, pause="0s", max_iterations="2")
        fails(bench)
        memory = driver.progress_keys(bench.definition.phase(PHASE))
        assert memory == ("loop",)
        assert bench.drive(again=PHASE, forget=memory)["iterations"] == 1
        assert bench.shown()[-2] == "iteration 1 of 2"
        assert bench.path("a").exists()

    @pytest.mark.long
    def test_a_loop_that_is_complete_can_be_done_again(self, bench: Bench) -> None:
        """The user names only an earlier phase, and the memory still exists."""
        bench.pipeline(
            OWN.format(more='tests = "true"').replace(
                "[[pipe", '[[pipelines.own.phases]]\nname = "before"\nrun = "true"\n\n[[pipe', 1
            )
        )
        bench.loop()
        bench.drive(again="before")
        assert len(bench.prompts) == 2


class TestDone:
    @pytest.mark.long
    def test_a_command_knows(self, bench: Bench) -> None:
        bench.script({}, {"write": {"all": ""}})
        bench.loop(done="ls all", until_tests_pass="", pause="0s")
        said = bench.shown()[1]
        assert said.startswith("ls all: exit code 2: ls: ")
        assert bench.messages()[1] == f"iteration 1: {said}"
        assert bench.memory["iterations"] == 2

    @pytest.mark.long
    def test_issues_go_first(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="open")
        bench.script({}, {"run": ["bd", "close", "bd-1"]}, {"write": {"all": ""}})
        bench.loop(issues=ids, done="echo asked >> asked; [ -e all ]", pause="0s")
        assert bench.memory["iterations"] == 3
        assert bench.path("asked").read_text() == "asked\nasked\n"

    def test_nothing_says_when_the_work_is_done(self, bench: Bench) -> None:
        bench.start(until_tests_pass="")
        assert fails(bench).message == "the loop has no end condition"
        assert bench.newest.errors == ("the loop has no end condition",)

    @pytest.mark.long
    def test_tests_that_pass_prove_nothing_where_the_agent_failed(self, bench: Bench) -> None:
        bench.script({"exit": 127}, {})
        assert bench.loop(pause="0s")["iterations"] == 2
        assert bench.messages()[1] == "iteration 1: fake failed: exit code 127: done"

    def test_the_agent_is_missing(self, bench: Bench) -> None:
        bench.start(agent="nosuchagent --print", max_iterations="100")
        failed = fails(bench)
        assert (failed.message, failed.hint) == (
            "the agent is not installed: nosuchagent",
            (
                f"install nosuchagent, then: git ckpt resume {bench.run}; "
                f"or use another agent: git ckpt resume {bench.run} --input agent=CLIENT"
            ),
        )
        assert bench.prompts == []

    @pytest.mark.parametrize(
        "command",
        [
            "NAME=x ./agent",
            "cd . && cat >&2",
            "[ -e plan.md ] && cat >&2",
            "./there",
            "'my agent' x",
        ],
    )
    def test_of_others_only_the_shell_can_tell(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "there").touch()
        assert (
            AgentClient("a", command).find_missing_program(dict(os.environ), str(tmp_path)) is None
        )
        assert (
            AgentClient("a", "./gone").find_missing_program(dict(os.environ), str(tmp_path))
            == "./gone"
        )

    def test_beads_is_missing(self, bench: Bench) -> None:
        bench.start(issues="bd-1")
        failed = fails(bench)
        assert (failed.message, failed.hint) == (
            "bd is not installed",
            "install beads, or use --done COMMAND",
        )
        assert bench.prompts == []

    @pytest.mark.long
    def test_beads_that_hangs(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        assert loop.TRACKER_TIMEOUT == 30
        monkeypatch.setattr(loop, "TRACKER_TIMEOUT", 0.2)
        bench.program("bd", "sleep 60")
        bench.start(issues="bd-1", max_iterations="1")
        assert fails(bench).message == "reached max iterations (1)"
        assert bench.shown()[1] == "bd timed out"

    @pytest.mark.long
    def test_an_issue_that_beads_does_not_know(self, bench: Bench) -> None:
        ids = bench.issues(bd_1="closed")
        bench.start(issues=f"{ids}, bd-7", max_iterations="1")
        fails(bench)
        assert bench.shown()[1] == "bd does not report bd-7"
        assert (bench.memory["closed_issues"], bench.memory["open_issues"]) == (["bd-1"], ["bd-7"])


class TestConversation:
    @pytest.mark.long
    def test_each_call_begins_a_new_one(self, bench: Bench) -> None:
        bench.script({"session": "s-1"}, WORKS)
        bench.loop(tests=TESTS, pause="0s")
        assert bench.words == ["", ""]

    @pytest.mark.long
    def test_it_goes_on_with_the_last_one_even_after_a_crash(self, bench: Bench) -> None:
        bench.script({"session": "s-1"}, {"session": "s-2"}, WORKS)
        bench.start(tests=TESTS, pause="0s", conversation="continue")
        bench.die("[loop] iteration 3 of")
        bench.drive()
        assert bench.words == ["", "--resume s-1", "--resume s-2"]

    @pytest.mark.long
    def test_costs_add_up(self, bench: Bench) -> None:
        bench.script(
            {"cost": 0.1}, {"cost": 0.2, "error": "out of ideas"}, WORKS | {"cost": 0.0625}
        )
        assert bench.loop(tests=TESTS, pause="0s")["cost_usd"] == 0.3625

    @pytest.mark.long
    def test_a_budget_ends_it(self, bench: Bench) -> None:
        bench.script({"cost": 0.3}, {"cost": 0.2}, {"cost": 0.3}, WORKS)
        bench.start(tests=TESTS, pause="0s", max_budget="0.7")
        failed = fails(bench)
        assert failed.message == "the budget is used up: 0.80 of 0.70 USD"
        assert str(failed.hint).endswith(f"git ckpt resume {bench.run} --input max_budget=USD")
        assert bench.words == [
            f"--max-budget-usd {left}" for left in ("0.7000", "0.4000", "0.2000")
        ]
        assert (bench.memory["cost_usd"], bench.memory["max_budget_usd"]) == (0.8, 0.7)

    def test_a_budget_for_whom_nobody_knows_the_price_of(self, bench: Bench) -> None:
        bench.client = AgentClient("fake", "fake", format="codex")
        bench.start(max_budget="0.7")
        failed = fails(bench)
        assert failed.message == "a budget needs the price of fake, which is unknown"
        assert "[agents.fake.price]" in str(failed.hint)
        assert bench.prompts == []

    @pytest.mark.long
    def test_calls_that_use_no_iteration_cost_as_well(self, bench: Bench) -> None:
        bench.script(
            {"cost": 0.3, "error": "429 rate limit, retry after 1 seconds"}, WORKS | {"cost": 0.5}
        )
        done = bench.loop(tests=TESTS, pause="0s")
        assert (done["iterations"], done["cost_usd"]) == (1, 0.8)


class TestPlan:
    """The plan at the start of a run applies; the agent may tick off items."""

    @pytest.mark.long
    def test_one_that_is_not_committed_is_put_into_the_worktree(self, bench: Bench) -> None:
        bench.checkout.write("docs/new.md", "# New\n")
        bench.loop(plan=str(bench.checkout.path / "docs/new.md"))
        assert "at docs/new.md\n" in bench.prompts[0]
        assert bench.path("docs/new.md").read_text() == "# New\n"

    def test_one_that_was_changed_since_its_commit(self, bench: Bench) -> None:
        bench.checkout.write(PLAN, "# Changed\n")
        bench.loop()
        assert bench.path(PLAN).read_text() == "# Changed\n"

    def test_a_kill_leaves_no_part_of_it_in_the_worktree(self, bench: Bench) -> None:
        bench.checkout.write(PLAN, "# Changed\n")
        bench.start(tests=TESTS, pause="0s")
        die_at_rename(PLAN, bench.drive)
        assert Checkout(bench.path(".")).git("status", "--porcelain", "--ignored") == ""

    @pytest.mark.long
    def test_what_the_agent_ticks_off_stays(self, bench: Bench) -> None:
        bench.script({"write": {PLAN: "# Plan\n\n- [x] half of it\n"}}, {}, WORKS)
        bench.start(tests=TESTS, pause="0s")
        bench.die("[loop] iteration 2 of")
        bench.drive()
        assert bench.path(PLAN).read_text() == "# Plan\n\n- [x] half of it\n"

    @pytest.mark.long
    def test_one_outside_of_the_repository(self, bench: Bench, tmp_path: Path) -> None:
        path = tmp_path / "outside.md"
        path.write_text("# Outside\n")
        bench.loop(plan=str(path))
        assert f"at {path}\n" in bench.prompts[0]

    @pytest.mark.long
    def test_one_outside_that_is_gone_is_read_from_the_copy(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        path = tmp_path / "outside.md"
        path.write_text("# Outside\n")
        bench.start(plan=str(path))
        path.unlink()
        bench.drive()
        assert f"at {bench.checkout.path}/.ckpt/runs/{bench.run}/input/plan\n" in bench.prompts[0]


class TestTemplate:
    @pytest.mark.long
    def test_a_template(self, bench: Bench) -> None:
        bench.checkout.write("prompt.txt", "Do $plan for $$5 with $tests.\n$failure")
        bench.script({}, WORKS)
        bench.loop(prompt=str(bench.checkout.path / "prompt.txt"), tests=TESTS, pause="0s")
        assert bench.prompts[0] == f"Do plan.md for $5 with `{TESTS}`.\n"
        assert bench.prompts[1].startswith(
            f"Do plan.md for $5 with `{TESTS}`.\n\n## The tests failed\n"
        )

    @pytest.mark.long
    def test_one_of_the_worktree(self, bench: Bench) -> None:
        bench.pipeline(OWN.format(more='prompt = "docs/prompt.txt"\ntests = "true"'))
        bench.checkout.commit("a template", **{"docs/prompt.txt": "Do it: $plan"})
        bench.loop()
        assert bench.prompts == ["Do it: plan.md\n"]

    def test_one_that_is_not_there(self, bench: Bench) -> None:
        bench.pipeline(OWN.format(more='prompt = "docs/prompt.txt"'))
        bench.start()
        assert fails(bench).message == "the template of the prompt does not exist: docs/prompt.txt"

    @pytest.mark.long
    def test_what_shall_be_revised_is_told(self, bench: Bench) -> None:
        bench.start()
        opened = go_on(bench.store, bench.run)
        opened.state["revisions"] = {PHASE: "Use tabs."}
        opened.skip("nothing")  # records the state
        opened.pause()
        opened.close()
        bench.drive()
        assert bench.prompts[0].endswith("\n## To be revised\n\nUse tabs.\n")


class TestOwnPipeline:
    @pytest.mark.long
    def test_two_loops_have_nothing_to_do_with_each_other(self, bench: Bench) -> None:
        one = OWN.format(more='tests = "true"')
        two = one[one.index("[[") :].replace('"implementation"', '"polish"')
        bench.pipeline(one + two)
        bench.loop()
        assert attempt_of(bench.store, bench.run, "polish-complete").result is not None
        assert len(bench.prompts) == 2
        assert bench.memory["phase"] == "polish"

    def test_an_option_that_cannot_be_understood_is_a_failure(self, bench: Bench) -> None:
        bench.pipeline(OWN.format(more='max_iterations = "many"'))
        bench.start()
        failed = fails(bench)
        assert (failed.message, failed.hint) == (
            "max_iterations must be a whole number, not 'many'",
            "write a whole number, such as 100",
        )

    @pytest.mark.long
    def test_a_state_of_somebody_elses_making(self, bench: Bench) -> None:
        bench.pipeline(
            '[[pipelines.own.phases]]\nname = "first"\nrun = \'echo "loop=3" >> "$CKPT_SET"\'\n'
            + OWN.format(more='tests = "true"')
        )
        assert bench.loop()["iterations"] == 1


class TestStopping:
    @pytest.mark.long
    def test_a_deadline_ends_the_agent(self, bench: Bench, clock: Clock) -> None:
        bench.definition = bench.pipeline(
            OWN.format(more="").replace("[pipelines.own]", '[pipelines.own]\ntimeout = "1s"')
        )
        bench.script({"hang": True})
        bench.start()
        clock.instant += 700_000
        with pytest.raises(DeadlineReached):
            bench.drive()
        assert bench.newest.state == {}

    def test_a_cancelled_run_stops_in_its_pause(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cancel(seconds: float) -> None:
            store = bench.store
            checkpoints_of_store(store).leases.mark_cancelled(bench.run)

        monkeypatch.setattr(bench, "sleeper", cancel)
        bench.start(tests="false")
        with pytest.raises(Cancelled):
            bench.drive()
        assert bench.newest.errors == (f"run {bench.run} was cancelled",)
        assert (bench.memory["iterations"], len(bench.prompts)) == (1, 1)


CALLS = """
n=$(($(cat "$ASKED/n" 2> /dev/null || echo 0) + 1)); echo $n > "$ASKED/n"
cat > "$ASKED/$n.prompt"; printf '%s\\n' "$*" > "$ASKED/$n.words"; \
env | grep '^CKPT_' > "$ASKED/$n.env"
case $n in {cases} *) echo done ;; esac
"""


class TestClasses:
    """A client failure that says nothing about the work uses no iteration.

    A permanent failure ends the loop at once.
    """

    def agent(self, bench: Bench, *cases: str) -> None:
        bench.program(
            "own",
            CALLS.format(cases=" ".join(f"{n}) {case} ;;" for n, case in enumerate(cases, 1))),
        )

    @pytest.mark.long
    def test_a_limit_is_waited_for_as_long_as_is_said(self, bench: Bench) -> None:
        self.agent(
            bench,
            "echo '429 rate limit: retry after 90 seconds'; exit 1",
            "echo 'API Error: 529 overloaded'; exit 1",
        )
        assert bench.loop(agent="own", pause="0s")["iterations"] == 1
        assert 190 <= bench.sleeper.slept <= 210  # 90, and 120 for the second one in a row
        limited = [
            each
            for each in bench.milestones()
            if str(each.message).startswith("iteration 1: limited until 20")
        ]
        assert [each.errors for each in limited] == [
            ("own failed: exit code 1: 429 rate limit: retry after 90 seconds",),
            ("own failed: exit code 1: API Error: 529 overloaded",),
        ]
        assert limited[0].state["loop"]["retry_at"] > limited[0].timestamp
        assert "retry_at" not in bench.memory

    @pytest.mark.long
    def test_one_without_a_time_that_stays_uses_iterations(self, bench: Bench) -> None:
        """The output may be the agent's own words: "rate limit" can be a feature."""
        self.agent(bench, *["echo 'I did not finish the rate limit'; exit 1"] * 99)
        bench.start(agent="own", pause="0s", max_iterations="1", tests="false")
        assert fails(bench).message == "reached max iterations (1)"
        assert len(bench.prompts) == 9

    @pytest.mark.long
    def test_a_limit_outlives_the_driver(self, bench: Bench) -> None:
        self.agent(bench, "echo '429: try again in 2 hours'; exit 1")
        bench.start(agent="own", pause="0s")
        bench.die("rate limited: the next call is at")
        assert bench.memory["retry_at"] > bench.newest.timestamp
        bench.drive()
        assert 7100 < bench.sleeper.slept <= 7200
        assert len(bench.prompts) == 2

    @pytest.mark.long
    def test_a_connection_that_was_lost_is_tried_again(self, bench: Bench) -> None:
        self.agent(bench, *["echo 'connect ECONNRESET'; exit 1"] * 3)
        assert bench.loop(agent="own", pause="0s")["iterations"] == 1
        assert len(bench.prompts) == 4
        assert round(bench.sleeper.slept, 2) == 2 + 4 + 8

    @pytest.mark.long
    def test_one_that_stays_lost_uses_iterations(self, bench: Bench) -> None:
        self.agent(bench, *["echo 'connect ECONNRESET'; exit 1"] * 99)
        bench.start(agent="own", pause="0s", max_iterations="1", tests="false")
        assert fails(bench).message == "reached max iterations (1)"
        assert len(bench.prompts) == 6

    @pytest.mark.long
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "said",
        [
            "Invalid API key · Please run /login",
            "error: unexpected argument '--full-auto' found",
            "HTTP 401 Unauthorized",
        ],
    )
    def test_what_will_not_pass_ends_it_at_once_with_the_clients_words(
        self, bench: Bench, said: str
    ) -> None:
        self.agent(bench, f'echo "{said}" >&2; exit 1')
        bench.start(agent="own", max_iterations="100")
        failed = fails(bench)
        assert (failed.exit_code, failed.message) == (
            4,
            f"cannot use own: own failed: exit code 1: {said}",
        )
        assert len(bench.prompts) == 1
        bench.drive()  # once it is settled
        assert bench.memory["iterations"] == 1

    def test_a_program_that_the_shell_does_not_find(self, bench: Bench) -> None:
        bench.start(agent="cd . && nosuchagent", max_iterations="100")
        assert fails(bench).exit_code == 4

    def test_what_is_not_allowed_three_times_in_a_row(self, bench: Bench) -> None:
        result = (
            '{"type": "result", "is_error": false, "result": "no", "num_turns": 1, '
            '"permission_denials": [{"tool_name": "Write"}]}'
        )
        bench.client = replace(bench.client, command=f"cat > /dev/null; echo '{result}'")
        bench.start(pause="0s", tests="false")
        failed = fails(bench)
        assert (failed.exit_code, failed.message) == (
            4,
            "fake was denied a permission 3 times in a row: Write",
        )
        assert str(failed.hint).startswith(
            f"grant the permission: git ckpt resume {bench.run} --input 'agent=claude -p "
        )
        assert "--allowedTools" in str(failed.hint)
        assert bench.memory["iterations"] == 3

    @pytest.mark.long
    def test_a_resumed_agent_is_told_so(self, bench: Bench) -> None:
        self.agent(bench, "echo half > half", "echo again")
        bench.start(agent="own", pause="0s")
        bench.die("iteration 1 of 9")
        bench.drive()
        assert (
            "## Resumed\n\nThis is attempt 2: an earlier one was interrupted. " in bench.prompts[-1]
        )
        env = sorted(path.read_text() for path in bench._calls("env"))
        assert sorted(
            line
            for line in env[-1].splitlines()
            if line.startswith(("CKPT_RESUMED", "CKPT_ATTEMPT"))
        ) == ["CKPT_ATTEMPT=2", "CKPT_RESUMED=1"]
