"""The pipeline rlm-act with a scripted agent: pauses, questions, skips, resumes.

The names RLM-16 to RLM-26 are those of the list of behaviors that this pipeline must have. The
blank project path of RLM-23 has no counterpart, as a run always belongs to a repository. The
tests of the loop cover RLM-24 and RLM-25.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitckpt import UsageError
from gitckpt.durable.driver.driver import OPTIONS, phases_to_skip
from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline.definition import read_preset
from gitckpt.durable.pipeline.launch import RunInputs
from tests.durable.stage import Outcome, Stage, Talk, normal, stage

__all__ = ["stage"]

PHASES = ["research", "decomposition", "tdd_planning", "multi_doc", "beads_sync", "implementation"]
ALIASES = {
    "planning": "tdd_planning",
    "phase_decomposition": "multi_doc",
    "beads_integration": "beads_sync",
}
CRITERIA = {
    "requirements": [{"id": "1", "children": [{"id": "1.1", "acceptance_criteria": ["it works"]}]}]
}
AGENT = """
cat > "$CALLS.$CKPT_PHASE"
echo "$CKPT_PHASE" >> "$CALLS.phases"
echo "# $CKPT_PHASE, attempt $CKPT_ATTEMPT"
if [ -e "$CALLS.fails" ] && [ "$(cat "$CALLS.fails")" = "$CKPT_PHASE" ]; \
then echo half > half-done; exit 7; fi
[ "$CKPT_PHASE" != implementation ] || echo "$CKPT_ATTEMPT" >> code
"""

ONCE = ("-i", "tests=true", "-i", "max_iterations=1")
"""The implementation is one call of the agent, without tests."""


class Act:
    """Run rlm-act, and record the calls of its agent."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.program("claude", AGENT)
        stage.program("bd", 'echo "bd $*"')

    def __call__(self, *options: str, autonomy: str | None = "fully_autonomous") -> Outcome:
        mode = () if autonomy is None else ("--autonomy", autonomy)
        return self.stage.ckpt("run", "rlm-act", "-i", "question=why?", *ONCE, *mode, *options)

    def note(self, name: str) -> Path:
        return Path(f"{self.stage.env['CALLS']}.{name}")

    def prompt(self, phase: str) -> str:
        return self.note(phase).read_text()

    def asked(self) -> list[str]:
        """Return the phases in which the agent was called, in order."""
        return self.note("phases").read_text().splitlines() if self.note("phases").exists() else []

    def fails(self, phase: str) -> None:
        """Let the agent fail in a phase; "" for no phase."""
        self.note("fails").write_text(phase)

    def ended(self, run: str) -> list[str]:
        """Return the labels of a run without those of phase starts."""
        return [label for label in self.stage.labels(run) if not label.endswith("-started")]


@pytest.fixture
def act(stage: Stage) -> Act:
    return Act(stage)


@pytest.fixture
def talk(stage: Stage) -> Iterator[Callable[..., Talk]]:
    talks: list[Talk] = []

    def begin(*args: str) -> Talk:
        talks.append(Talk(stage, *args))
        return talks[-1]

    yield begin
    for each in talks:
        each.close()


class TestBudget:
    @pytest.mark.long
    def test_the_implementation_ends_where_it_is_used_up(self, act: Act) -> None:
        agent = """
cat > "$CALLS.$CKPT_PHASE"
[ "$CKPT_PHASE" = implementation ] || { echo "# $CKPT_PHASE"; exit 0; }
printf '%s\\n' "$*" >> "$CALLS.words"
echo '{"type": "result", "subtype": "success", \
"is_error": false, "result": "did some", "total_cost_usd": 0.75, "session_id": "s"}'
"""
        act.stage.program("claude", agent)
        done = act(
            "-i",
            "max_budget=1",
            "-i",
            "max_iterations=9",
            "-i",
            "pause=0s",
            "-i",
            "tests=false",
            "-i",
            "agent=claude",
        )
        assert (done.code, "the budget is used up: 1.50 of 1.00 USD" in done.err) == (20, True), (
            done.err
        )
        words = act.note("words").read_text().splitlines()
        assert [line.partition("--max-budget-usd ")[2].split()[0] for line in words] == [
            "1.0000",
            "0.2500",
        ]


class TestPhases:
    """RLM-20, 21: each phase ends with one checkpoint, complete or failed.

    A complete phase is not repeated.
    """

    def test_all_six_in_order(self, act: Act) -> None:
        done = act()
        run = act.stage.run()
        assert (done.code, done.out) == (0, f"{run}\n")
        assert run[16:] == "rlm-act"
        assert act.ended(run) == [*(f"{phase}-complete" for phase in PHASES), "run-complete"]
        assert act.asked() == [phase for phase in PHASES if phase != "beads_sync"]
        assert act.stage.calls.count("bd") == 1
        files = act.stage.files(act.stage.newest(run))
        names = ["overview.md", "plan.md", "requirements.md", "research.md"]
        assert files == ["README", "code", *(f"thoughts/feature/{name}" for name in names)]
        assert act.prompt("research").endswith("Question: why?\n")

    @pytest.mark.long(but=["implementation"])
    @pytest.mark.parametrize("phase", ["research", "tdd_planning", "implementation"])
    def test_one_that_fails_stops_the_run_and_is_resumed(self, act: Act, phase: str) -> None:
        act.fails(phase)
        done = act()
        run, at = act.stage.run(), PHASES.index(phase)
        assert (done.code, done.err.splitlines()[-2].partition(":")[0]) == (20, "error")
        assert act.ended(run) == [*(f"{name}-complete" for name in PHASES[:at]), f"{phase}-failed"]
        assert [event.status for event in act.stage.events(run).values()] == ["complete"] * at + [
            "failed"
        ] + ["pending"] * (5 - at)
        newest = act.stage.newest(run)
        said = f"exit code 7: # {phase}, attempt 1"
        looped = (f"iteration 1: claude failed: {said}", "reached max iterations (1)")
        assert newest.errors == (
            looped if phase == "implementation" else (f"phase {phase!r} failed: {said}",)
        )
        assert "half-done" in act.stage.files(newest)
        before = act.asked()
        act.fails("")
        assert act.stage.ckpt("resume").code == 0
        assert act.asked() == [*before, *(name for name in PHASES[at:] if name != "beads_sync")]
        assert act.ended(run)[at + 1 :] == [
            *(f"{name}-complete" for name in PHASES[at:]),
            "run-complete",
        ]

    def test_errors_are_shown_in_their_order(self, act: Act) -> None:
        """RLM-18: `status` shows the errors in order."""
        act.fails("decomposition")
        assert act().code == 20
        shown = normal(act.stage.ok("status"), act.stage).partition("\n\n")[2]
        assert shown == (
            "  research        complete  0.0s\n"
            "> decomposition   failed    0.0s\n"
            "      phase 'decomposition' failed: exit code 7: # decomposition, attempt 1\n"
            "  tdd_planning    pending\n"
            "  multi_doc       pending\n"
            "  beads_sync      pending\n"
            "  implementation  pending\n"
            "\n"
            "next     git ckpt resume STAMP-rlm-act"
        )

    def test_without_a_question_no_run_starts(self, act: Act) -> None:
        done = act.stage.ckpt("run", "rlm-act")
        said = (
            "error: phase 'research' needs the input question\nhint: add a question: "
            '-i question="how does X work?"\n'
        )
        assert done == (2, "", said)
        assert act.stage.runs() == []

    @pytest.mark.long
    def test_without_beads_the_run_is_blocked_until_somebody_says_that_it_goes_on(
        self, act: Act
    ) -> None:
        act.stage.program("bd", "exit 4")
        assert act().code == 4
        run = act.stage.run()
        assert act.stage.status(run) == "blocked"
        assert act.stage.ckpt("resume").code == 4
        assert (
            act.stage.ok("status").splitlines()[-1]
            == f"next     git ckpt resume {run} --from beads_sync"
        )
        act.stage.program("bd", "true")
        assert act.stage.ckpt("resume", run, "--from", "beads_sync").code == 0
        assert act.ended(run)[4:] == [
            "beads_sync-blocked",
            "beads_sync-complete",
            "implementation-complete",
            "run-complete",
        ]

    @pytest.mark.long
    def test_the_implementation_goes_on_until_the_tests_pass(self, act: Act) -> None:
        act.stage.program(
            "claude", f'{AGENT}\n[ "$CKPT_PHASE" != implementation ] || echo x >> turns'
        )
        code, _, err = act(
            "-i", "tests=[ $(wc -l < turns) = 3 ]", "-i", "max_iterations=4", "-i", "pause=0s"
        )
        assert code == 0, err
        assert act.asked()[-3:] == ["implementation"] * 3
        assert act.prompt("implementation").startswith(
            "# Task\n\nImplement the TDD plan at thoughts/feature/plan.md\n"
        )
        assert act.stage.newest(act.stage.run()).state["loop"]["iterations"] == 3

    @pytest.mark.long
    def test_the_implementation_goes_on_until_its_issues_are_closed(self, act: Act) -> None:
        act.stage.program(
            "bd",
            (
                '[ "$1" != show ] || echo "[{\\"id\\": \\"bd-1\\", \\"status\\": '
                '\\"$(cat status)\\"}]"'
            ),
        )
        act.stage.program(
            "claude",
            f'{AGENT}\n[ "$CKPT_ATTEMPT$CKPT_PHASE" != 1implementation ] || echo open > status',
        )
        assert act("-i", "issues=bd-1").code == 20
        run = act.stage.run()
        assert act.stage.newest(run).state["loop"]["open_issues"] == ["bd-1"]
        (act.stage.worktree(run) / "status").write_text("closed\n")
        assert act.stage.ckpt("resume").code == 0
        assert act.prompt("implementation").count("`bd-1`") == 1

    @pytest.mark.parametrize(
        ("name", "phase"),
        [*ALIASES.items(), ("Phase-Decomposition", "multi_doc"), ("RESEARCH", "research")],
    )
    def test_phases_go_by_other_names_too(self, name: str, phase: str) -> None:
        assert read_preset("rlm-act", OPTIONS).phase(name).name == phase

    @pytest.mark.long
    def test_from_a_phase_by_its_other_name(self, act: Act) -> None:
        assert act().code == 0
        run = act.stage.run()
        assert act.stage.ckpt("resume", run, "--from", "beads_integration").code == 0
        assert act.ended(run)[7:] == [
            "beads_sync-complete",
            "implementation-complete",
            "run-complete",
        ]
        assert act.asked().count("implementation") == 2

    @pytest.mark.long
    def test_head_is_recorded_with_each(self, act: Act) -> None:
        """RLM-16: each checkpoint records HEAD."""
        assert act().code == 0
        with act.stage.store() as store:
            assert {entry.git_sha for entry in store.list()} == {
                act.stage.checkout.git("rev-parse", "HEAD")
            }

    def test_a_state_comes_through_as_it_is(self, act: Act) -> None:
        """RLM-17: the store returns a state unchanged."""
        state = {
            "a": [1, 2.5, True, None, {"é": "\u2028"}],
            "b": {"": {}, "c": []},
            "d": -1,
            "e": 1e300,
            "f": "",
        }
        act.note("in").write_text(json.dumps(state))
        act.stage.pipeline(
            'one: cp "$CALLS.in" "$CKPT_STATE"; echo "g=h" >> "$CKPT_SET"',
            'two: cp "$CKPT_STATE" "$CALLS.out"',
        )
        assert act.stage.ckpt("run", "ci").code == 0
        assert json.loads(act.note("out").read_text()) == {**state, "g": "h"}
        assert act.stage.newest(act.stage.run()).state == {**state, "g": "h"}


ENDS = {
    "checkpoint": PHASES,
    "batch": ["tdd_planning", "beads_sync", "implementation"],
    "fully_autonomous": ["implementation"],
}


class TestPausesWithoutATerminal:
    @pytest.mark.long(but=["batch"])
    @pytest.mark.parametrize("autonomy", ENDS)
    def test_where_they_are(self, act: Act, autonomy: str) -> None:
        done = act(autonomy=autonomy)
        run = act.stage.run()
        for after in ENDS[autonomy][:-1]:
            assert (done.code, done.out) == (0, f"{run}\n")
            assert (
                done.err.splitlines()[-1]
                == f"paused after phase {after}; to continue: git ckpt resume {run}"
            )
            assert (act.stage.status(run), act.stage.labels(run)[-1]) == (
                "paused",
                f"{after}-complete",
            )
            done = act.stage.ckpt("resume")
        assert (done.code, act.stage.status(run)) == (0, "complete")
        assert act.ended(run) == [*(f"{phase}-complete" for phase in PHASES), "run-complete"]

    def test_after_each_phase_unless_said_otherwise(self, act: Act) -> None:
        done = act(autonomy=None)
        assert (
            done.err.splitlines()[-1]
            == f"paused after phase research; to continue: git ckpt resume {act.stage.run()}"
        )

    @pytest.mark.long
    def test_another_mode_from_now_on(self, act: Act) -> None:
        assert act(autonomy=None).code == 0
        assert (
            act.stage.ckpt("resume", "--autonomy", "batch")
            .err.splitlines()[-1]
            .startswith("paused after phase tdd_planning;")
        )
        assert (
            act.stage.ckpt("resume")
            .err.splitlines()[-1]
            .startswith("paused after phase beads_sync;")
        )


class TestQuestions:
    """On a terminal the run asks, after it has recorded the reason."""

    QUESTION = "{} is complete. [c]ontinue, [r]evise, re[s]tart the phase, or [e]xit? "

    @pytest.fixture
    def asked(self, act: Act, talk: Callable[..., Talk]) -> Talk:
        begun = talk("run", "rlm-act", "-i", "question=why?", *ONCE)
        begun.reads(self.QUESTION.format("research"))
        return begun

    @pytest.mark.long
    def test_the_checkpoint_is_written_before_the_question(self, act: Act, asked: Talk) -> None:
        asked.killed()
        run = act.stage.run()
        assert (act.stage.labels(run)[-1], act.stage.status(run)) == (
            "research-complete",
            "crashed",
        )
        assert act.stage.ckpt("resume", "--autonomy", "fully_autonomous").code == 0
        assert act.asked().count("research") == 1

    @pytest.mark.long
    def test_continue_and_exit(self, act: Act, asked: Talk) -> None:
        asked.types("")
        asked.reads(self.QUESTION.format("decomposition"))
        asked.types("what?")
        asked.reads(self.QUESTION.format("decomposition"))
        asked.types("Continue")
        asked.reads(self.QUESTION.format("tdd_planning"))
        asked.types("e")
        run = act.stage.run()
        assert asked.ends() == 0
        assert (
            f"paused after phase tdd_planning; to continue: git ckpt resume {run}\n" in asked.said
        )
        assert act.ended(run) == [f"{phase}-complete" for phase in PHASES[:3]]
        assert act.stage.status(run) == "paused"

    @pytest.mark.long
    def test_revise(self, act: Act, asked: Talk) -> None:
        assert "revise it" not in act.prompt("research")
        for line in ("r", "look at the tests", "and at `docs`", ""):
            asked.types(line)
        asked.reads(self.QUESTION.format("research"))
        revision = "look at the tests\nand at `docs`"
        assert act.prompt("research").endswith(
            f"\nQuestion: why?\n\nThere is such a document already; revise it: {revision}\n"
        )
        for line in ("revise", "shorter", ""):
            asked.types(line)
        asked.reads(self.QUESTION.format("research"))
        asked.types("e")
        assert asked.ends() == 0
        run = act.stage.run()
        assert act.ended(run) == ["research-complete"] * 3
        assert act.stage.newest(run).state == {
            "revisions": {"research": f"{revision}\n\nshorter"},
            "research_output": "# research, attempt 3\n",
        }
        assert act.stage.events(run)["research"].attempts == 3
        tree = act.stage.newest(run).worktree
        assert tree is not None
        assert (
            act.stage.checkout.git("show", f"{tree.tree}:files/thoughts/feature/research.md")
            == "# research, attempt 3"
        )

    @pytest.mark.long
    def test_what_is_to_be_revised_is_known_to_that_phase_only(self, act: Act, asked: Talk) -> None:
        for line in ("r", "shorter", ""):
            asked.types(line)
        asked.reads(self.QUESTION.format("research"))
        asked.types("c")
        asked.reads(self.QUESTION.format("decomposition"))
        asked.types("e")
        assert asked.ends() == 0
        assert "shorter" not in act.prompt("decomposition")

    @pytest.mark.long
    def test_restart(self, act: Act, asked: Talk) -> None:
        act.stage.program("claude", f'ls thoughts/feature >> "$CALLS.seen"; {AGENT}')
        by_hand = act.stage.worktree(act.stage.run()) / "by-hand"
        by_hand.write_text("x\n")
        asked.types("s")
        asked.reads(self.QUESTION.format("research"))
        assert act.note("seen").read_text() == ""
        assert not by_hand.exists()
        asked.types("e")
        assert asked.ends() == 0
        run = act.stage.run()
        assert act.ended(run)[0] == act.ended(run)[-1] == "research-complete"
        assert act.asked() == ["research", "research"]
        assert act.stage.events(run)["research"].attempts == 2

    @pytest.mark.long
    def test_ctrl_c(self, act: Act, asked: Talk) -> None:
        asked.types("\x03")
        assert asked.ends() == 130
        run = act.stage.run()
        assert (act.ended(run), act.stage.status(run)) == (["research-complete"], "paused")

    @pytest.mark.long
    def test_no_questions_where_no_pause_is(self, act: Act, talk: Callable[..., Talk]) -> None:
        begun = talk(
            "run", "rlm-act", "-i", "question=why?", *ONCE, "--autonomy", "fully_autonomous"
        )
        assert begun.ends() == 0
        assert "continue" not in begun.said


class TestShortcuts:
    """RLM-22: a phase whose result is given is skipped.

    Its checkpoint gives the reason.
    """

    def skips(self, act: Act, *inputs: str) -> list[tuple[str, str | None]]:
        """Return label and message of each checkpoint of a skipped phase."""
        done = act(*(word for each in inputs for word in ("-i", each)))
        assert done.code == 0, done.err
        run = act.stage.run()
        found = [label for label in act.stage.labels(run) if label.endswith("-skipped")]
        assert act.ended(run)[: len(found)] == found
        assert act.ended(run)[len(found) :] == [
            *(f"{phase}-complete" for phase in PHASES[len(found) :]),
            "run-complete",
        ]
        pipeline = act.stage.newest(run).pipeline
        assert pipeline is not None
        assert list(pipeline.completed) == PHASES
        return [(label, act.stage.checkpoint(run, label).message) for label in found]

    @pytest.mark.long
    def test_research(self, act: Act) -> None:
        act.stage.checkout.write("notes.md", "known\n")
        assert self.skips(act, "research_path=notes.md") == [
            ("research-skipped", "research_path is given: notes.md")
        ]
        copy = act.stage.checkout.path / ".ckpt/runs" / act.stage.run() / "input/research_path"
        assert f"is in {copy}, and" in act.prompt("decomposition")
        assert copy.read_text() == "known\n"

    @pytest.mark.long
    def test_a_plan_in_markdown(self, act: Act) -> None:
        act.stage.checkout.write("docs/plan.md", "# the plan\n")
        message = "the plan is given: docs/plan.md"
        assert self.skips(act, "plan_path=docs/plan.md") == [
            (f"{phase}-skipped", message) for phase in PHASES[:4]
        ]
        assert act.asked() == ["implementation"]
        assert "Implement the TDD plan at docs/plan.md\n" in act.prompt("implementation")
        assert (act.stage.worktree(act.stage.run()) / "docs/plan.md").read_text() == "# the plan\n"

    @pytest.mark.long
    @pytest.mark.turns("name")
    @pytest.mark.parametrize("name", ["plan_path", "hierarchy_path"])
    def test_requirements_with_criteria(self, act: Act, name: str) -> None:
        act.stage.checkout.write("h.json", json.dumps(CRITERIA))
        message = "requirements with acceptance criteria are given"
        assert self.skips(act, f"{name}=h.json") == [
            (f"{phase}-skipped", message) for phase in PHASES[:2]
        ]
        assert (
            f"requirements in {act.stage.checkout.path}/.ckpt/runs/{act.stage.run()}/input/{name}."
            in act.prompt("tdd_planning")
        )

    @pytest.mark.long
    def test_requirements_without_criteria_are_decomposed(self, act: Act) -> None:
        act.stage.checkout.write("h.json", '{"requirements": [{"id": "1"}]}')
        assert self.skips(act, "plan_path=h.json") == [
            ("research-skipped", "plan_path is given: h.json")
        ]
        copy = act.stage.checkout.path / ".ckpt/runs" / act.stage.run() / "input/plan_path"
        assert f"requirements that are there already in {copy}.\n" in act.prompt("decomposition")

    def test_requirements_that_are_not_json(self, act: Act) -> None:
        act.stage.checkout.write("h.json", "{")
        code, out, err = act("-i", "plan_path=h.json")
        assert (code, out) == (2, "")
        assert err.splitlines()[0].startswith("error: the input plan_path is not JSON: h.json: ")
        assert act.stage.runs() == []

    @pytest.mark.long
    def test_a_resume_skips_what_the_run_was_started_with(self, act: Act) -> None:
        """The driver was killed before it had skipped all phases."""
        act.stage.checkout.write("plan.md", "# the plan\n")
        act.fails("implementation")
        assert act("-i", "plan_path=plan.md").code == 20
        run = act.stage.run()
        second = act.stage.checkpoint(run, "decomposition-skipped")
        (act.stage.checkout.path / "plan.md").unlink()
        act.fails("")
        assert act.stage.ckpt("resume", second.id, "--rewind").code == 0
        assert act.asked() == ["implementation", "implementation"]

    @pytest.mark.parametrize(
        ("hierarchy", "count"),
        [
            (CRITERIA, 2),
            ([{"children": [{"acceptanceCriteria": "x"}]}], 2),
            ({"acceptance_criteria": ["of the whole, and of no child"]}, 0),
            ({"requirements": [{"children": [{"acceptance_criteria": []}]}]}, 0),
            ({}, 0),
            ([], 0),
            (None, 0),
        ],
    )
    def test_which_requirements_have_criteria(self, hierarchy: object, count: int) -> None:
        given = RunInputs(
            {"hierarchy_path": "h.json"}, {"hierarchy_path": json.dumps(hierarchy).encode()}
        )
        assert list(phases_to_skip(read_preset("rlm-act", OPTIONS), given)) == PHASES[:count]

    def test_other_pipelines_have_no_such_shortcuts(self) -> None:
        given = RunInputs({"plan": "p.md", "plan_path": "p.md"}, {"plan_path": b"# plan"})
        assert phases_to_skip(read_preset("plan-to-pr", OPTIONS), given) == {}


class TestModes:
    """RLM-26, as far as runs have modes and phases have a status."""

    @pytest.mark.parametrize(
        ("text", "mode"),
        [
            ("checkpoint", "checkpoint"),
            (" Batch ", "batch"),
            ("FULLY_AUTONOMOUS", "fully_autonomous"),
            ("autonomous", "fully_autonomous"),
        ],
    )
    def test_names_of_modes(self, text: str, mode: str) -> None:
        assert pipeline.parse_autonomy(text) == mode

    @pytest.mark.parametrize("text", ["", "full", "1", "check point"])
    def test_what_is_no_mode(self, text: str) -> None:
        with pytest.raises(UsageError):
            pipeline.parse_autonomy(text)

    @pytest.mark.long
    def test_a_phase_is_pending_then_under_way_then_over(self, act: Act) -> None:
        act.stage.program(
            "claude",
            'PYTHONPATH="$PYTHONPATH" git-ckpt-status >> "$CALLS.seen"; cat > /dev/null; exit 1',
        )
        act.stage.program(
            "git-ckpt-status",
            f"exec '{__import__('sys').executable}' -m gitckpt status --json \"$CKPT_RUN\"",
        )
        assert act().code == 20
        seen = json.loads(act.note("seen").read_text())
        assert (seen["status"], [each["status"] for each in seen["phases"]]) == (
            "running",
            ["started", *["pending"] * 5],
        )
        after = json.loads(act.stage.ok("status", "--json"))
        assert (after["status"], [each["status"] for each in after["phases"]]) == (
            "failed",
            ["failed", *["pending"] * 5],
        )


BD = (
    r"""
touch "$CALLS.issues"
case $1 in
    create)
        n=$(($(wc -l < "$CALLS.issues") + 1))
        printf 'bd-%s\t%s\t%s\n' "$n" "$2" "$4" >> "$CALLS.issues"
        printf '{"id": "bd-%s", "title": "%s"}\n' "$n" "$2" ;;
    list)
        awk -F '\t' 'BEGIN { printf "[" } END { print "]" }
            { printf "%s{\n\"id\": \"%s\", \"title\": \"%s\"}", (NR > 1 ? "," : ""), $1, $2 }' \
            "$CALLS.issues" ;;
    show)
        status=$(cat "$CALLS.status" 2> /dev/null || echo open)
        shift
        printf '['
        for id; do [ "$id" = --json ] || printf '%s{"id": "%s", "status": "%s"}' """
    r""""$comma" "$id" "$status"; comma=,; done
        echo ']' ;;
    *) echo "bd $*" ;;
esac
"""
)
PLANNER = """
if [ "$CKPT_PHASE" = multi_doc ]; then \
echo a > thoughts/feature/01-a.md; echo b > thoughts/feature/02-b.md; fi
if [ "$CKPT_PHASE" = implementation ]; then
    printf x >> "$CALLS.calls"
    [ "$(cat "$CALLS.calls")" != xxx ] || echo closed > "$CALLS.status"
fi
"""


class TestIssues:
    """Q4: the loop completed with issues open.

    The empty default of an input hid the issues that an earlier phase had found.
    """

    def documents(self, act: Act) -> None:
        act.stage.program("claude", PLANNER + AGENT)
        act.stage.program("bd", BD)

    @pytest.mark.long
    def test_beads_sync_fills_them_and_the_loop_waits_until_they_are_closed(
        self, stage: Stage
    ) -> None:
        act = Act(stage)
        self.documents(act)
        done = act("-i", "max_iterations=9", "-i", "pause=0s")
        assert done.code == 0, done.err
        state = stage.newest(stage.run()).state
        assert (state["issues"], state["epic"]) == ("bd-1 bd-2", "bd-3")
        made = [line.split("\t") for line in act.note("issues").read_text().splitlines()]
        assert made == [
            ["bd-1", "feature: 01-a", "task"],
            ["bd-2", "feature: 02-b", "task"],
            ["bd-3", "feature", "epic"],
        ]
        assert state["loop"]["iterations"] == 3
        assert "`bd-1`" in act.prompt("implementation")

    @pytest.mark.long
    def test_a_second_attempt_makes_none_again(self, stage: Stage) -> None:
        act = Act(stage)
        self.documents(act)
        act.note("status").write_text("closed")
        assert act().code == 0
        assert stage.ckpt("resume", stage.run(), "--from", "beads_sync").code == 0
        assert len(act.note("issues").read_text().splitlines()) == 3

    @pytest.mark.long
    def test_who_names_issues_gets_no_others(self, stage: Stage) -> None:
        act = Act(stage)
        self.documents(act)
        act.note("status").write_text("closed")
        assert act("-i", "issues=bd-77").code == 0
        assert act.stage.calls.count("bd") == 2  # bd sync, and bd show
        assert not act.note("issues").read_text()
        assert "issues" not in stage.newest(stage.run()).state


@pytest.mark.long
def test_the_documents_are_in_the_state_by_the_names_of_the_requirement(stage: Stage) -> None:
    act = Act(stage)
    TestIssues().documents(act)
    act.note("status").write_text("closed")
    assert act().code == 0
    state = stage.newest(stage.run()).state
    assert state["research_output"] == "# research, attempt 1\n"
    assert state["decomposition_result"] == "# decomposition, attempt 1\n"
    assert state["planning_output"] == "# tdd_planning, attempt 1\n"
    assert state["phase_files"] == "01-a.md 02-b.md"
    assert state["beads_data"] == "bd-3: bd-1 bd-2"
