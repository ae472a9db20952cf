"""`git ckpt loop` starts and resumes loops; a refused call changes nothing."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Ckpt
from tests.durable.stage import Stage, normal, stage

__all__ = ["stage"]

FAKE = PROJECT / "examples" / "fake-agent"
PLAN = "# Plan\n\n- [ ] all of it\n"


@pytest.fixture
def plan(stage: Stage) -> Path:
    """Write an uncommitted plan and return its path."""
    return stage.checkout.write("docs/The plan.md", PLAN)


def script(stage: Stage, *entries: dict[str, object]) -> str:
    """Return the command of an agent that follows a script."""
    path = stage.programs.parent / "script.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return shlex.join([sys.executable, "-I", "-S", str(FAKE), "--script", str(path)])


REFUSED = [
    (
        (),
        "the loop has no end condition",
        (
            "git ckpt loop: --issue ID, --done COMMAND or --until-tests-pass; git ckpt run "
            "and resume: --input issues=ID, done=COMMAND or until_tests_pass=yes"
        ),
    ),
    (("--issue", "bd-1;rm"), "'bd-1;rm' is not an issue id", "list the issues: bd list"),
    (
        ("--done", "true", "--max-iterations", "-1"),
        "--max-iterations must be a whole number of 0 or more, not '-1'",
        "write a whole number, such as 20",
    ),
    (
        ("--done", "true", "--pause", "soon"),
        "pause: 'soon' is not an age",
        "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
    ),
    (
        ("--done", "true", "--conversation", "old"),
        "unknown conversation: 'old'",
        "choose new or continue",
    ),
    (
        ("--done", "true", "--timeout", "0s"),
        "timeout: must be more than 0",
        "write a duration such as 30m",
    ),
    (
        ("--done", "true", "--timeout", "x"),
        "'x' is not an age",
        "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
    ),
    (
        ("--done", "true", "--prompt", "no.txt"),
        "cannot read TOP/no.txt, the input prompt: No such file or directory",
        "name a readable file",
    ),
    (
        ("--done", "true", "--prompt", "bad.txt"),
        "cannot use the template of the prompt: $nothing is unknown",
        "use $plan, $epic, $issues, $tests, $tracking, $failure; write $$ for $",
    ),
]


@pytest.mark.parametrize(
    ("words", "message", "hint"), REFUSED, ids=[" ".join(each[0]) or "nothing" for each in REFUSED]
)
def test_refused_before_anything_is_changed(
    stage: Stage, ckpt: Ckpt, plan: Path, words: tuple[str, ...], message: str, hint: str
) -> None:
    stage.checkout.write("bad.txt", "Do $nothing")
    before = stage.checkout.fingerprint()
    code, out, err = ckpt("loop", "docs/The plan.md", *words, at=stage.checkout)
    lines = err.replace(str(stage.checkout.path), "TOP").splitlines()
    assert (code, out, lines) == (2, "", [f"error: {message}", f"hint: {hint}"])
    assert stage.checkout.fingerprint() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the plan's name is empty"),
        ("no.md", "cannot read TOP/no.md, the input plan: No such file or directory"),
    ],
)
def test_a_plan_that_is_not_there(stage: Stage, ckpt: Ckpt, name: str, message: str) -> None:
    before = stage.checkout.fingerprint()
    code, out, err = ckpt("loop", name, "--until-tests-pass", at=stage.checkout)
    assert (code, out, err.splitlines()[0].replace(str(stage.checkout.path), "TOP")) == (
        2,
        "",
        f"error: {message}",
    )
    assert stage.checkout.fingerprint() == before


@pytest.mark.long
def test_what_is_shown(stage: Stage, plan: Path) -> None:
    agent = script(
        stage, {"say": "I looked around."}, {"write": {"works": ""}, "say": "I made it work."}
    )
    words = (
        "--agent",
        agent,
        "--until-tests-pass",
        "--tests",
        "echo tested; [ -e works ]",
        "--pause",
        "0s",
    )
    done = stage.ckpt("loop", "docs/The plan.md", *words)
    assert (done.code, normal(done.out, stage)) == (0, "STAMP-the-plan\n")
    assert [line for line in normal(done.err, stage).splitlines() if "worktree" not in line] == [
        "[1/1] implementation",
        "[loop] iteration 1 of 100",
        "I looked around.",
        "[loop] tests: echo tested; [ -e works ]",
        "tested",
        "[loop] iteration 2 of 100",
        "Write: works",
        "I made it work.",
        "[loop] tests: echo tested; [ -e works ]",
        "tested",
        "      implementation: complete after 0.0s",
        (
            "run STAMP-the-plan is complete; to bring its work here: git ckpt diff --binary SHORT "
            "STAMP-the-plan | git apply"
        ),
    ]
    run = stage.run()
    assert (stage.worktree(run) / "docs/The plan.md").read_text() == PLAN
    assert stage.ckpt("verify").code == 0


@pytest.mark.long
def test_options_become_inputs(stage: Stage, plan: Path) -> None:
    stage.program(
        "bd",
        (
            'echo "[{\\"id\\": \\"bd-1\\", \\"status\\": \\"closed\\"}, {\\"id\\": \\"bd-2\\", '
            '\\"status\\": \\"closed\\"}]"'
        ),
    )
    stage.checkout.write("prompt.txt", "Do $plan")
    words = (
        "--issue",
        "bd-1",
        "--issue",
        "bd-2",
        "--epic",
        "bd-0",
        "--agent",
        "cat > prompt",
        "--done",
        "true",
        "--tests",
        "true",
    )
    limits = (
        "--max-iterations",
        "7",
        "--pause",
        "1s",
        "--agent-timeout",
        "2m",
        "--idle-timeout",
        "4m",
        "--test-timeout",
        "3m",
    )
    stage.ok(
        "loop",
        "docs/The plan.md",
        *words,
        *limits,
        "--conversation",
        "continue",
        "--prompt",
        "prompt.txt",
        "--timeout",
        "1h",
    )
    run = stage.run()
    pipeline = stage.newest(run).pipeline
    assert pipeline is not None
    assert pipeline.inputs == {
        "plan": "docs/The plan.md",
        "issues": "bd-1 bd-2",
        "epic": "bd-0",
        "agent": "cat > prompt",
        "prompt": "prompt.txt",
        "conversation": "continue",
        "tests": "true",
        "done": "true",
        "until_tests_pass": "",
        "max_iterations": "7",
        "max_budget": "0",
        "pause": "1s",
        "agent_timeout": "2m",
        "idle_timeout": "4m",
        "test_timeout": "3m",
    }
    assert pipeline.deadline is not None
    assert sorted(pipeline.contents) == ["plan", "prompt"]
    assert (stage.worktree(run) / "prompt").read_text() == "Do docs/The plan.md\n"


@pytest.mark.long
def test_one_that_is_exhausted_has_failed_and_goes_on(stage: Stage, plan: Path) -> None:
    agent = script(stage, {}, {}, {"write": {"works": ""}})
    words = (
        "--agent",
        agent,
        "--until-tests-pass",
        "--tests",
        "[ -e works ]",
        "--pause",
        "0s",
        "--max-iterations",
        "2",
    )
    code, out, err = stage.ckpt("loop", "docs/The plan.md", *words)
    run = stage.run()
    assert (code, out) == (20, f"{run}\n")
    assert err.splitlines()[-2:] == [
        "error: reached max iterations (2)",
        f"hint: see the progress: git ckpt status {run}; to continue: git ckpt resume {run}",
    ]
    assert stage.status(run) == "failed"
    done = stage.ckpt("resume")
    assert (done.code, stage.status(run)) == (0, "complete"), done.err
    assert stage.newest(run).state["loop"]["iterations"] == 3


@pytest.mark.long
def test_from_begins_with_the_first_iteration(stage: Stage, plan: Path) -> None:
    agent = script(stage, {})
    stage.ok("loop", "docs/The plan.md", "--agent", agent, "--until-tests-pass", "--tests", "true")
    run = stage.run()
    done = stage.ckpt("resume", run, "--from", "implementation")
    assert "[loop] iteration 1 of 100" in done.err.splitlines()
    assert stage.newest(run).state["loop"]["iterations"] == 1
