"""`git ckpt review` prints, records, refuses and resumes reviews."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PROJECT
from tests.durable.stage import Stage, Talk, normal, stage

__all__ = ["stage"]

AGENT = PROJECT / "examples/fake-agent"
FOUND = "ISSUE:\nSEVERITY: major\nDESCRIPTION: it says one\n"


class Pair:
    """A stage with a scripted coder and a scripted reviewer.

    Args:
        stage: the project and its programs.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        config = ""
        for role in ("coder", "reviewer"):
            path = stage.programs / f"{role}.json"
            config += (
                f'[agents.{role}]\ncommand = "{AGENT} --format claude --script {path}"\n'
                f'format = "claude"\nresume = "--resume {{session}}"\n'
            )
        stage.checkout.commit("agents", **{"gitckpt.toml": config, "a": "zero\n"})

    def say(self, coder: list[dict[str, Any]], reviewer: list[dict[str, Any]]) -> None:
        for role, lines in (("coder", coder), ("reviewer", reviewer)):
            path = self.stage.programs / f"{role}.json"
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def review(self, *words: str) -> Any:
        return self.stage.ckpt(
            "review", "Say two", "--coder", "coder", "--reviewer", "reviewer", *words
        )


@pytest.fixture
def pair(stage: Stage) -> Pair:
    return Pair(stage)


CODER = [
    {"write": {"a": "one\n"}, "say": "did one", "cost": 0.5, "session": "abc"},
    {"write": {"a": "two\n"}, "say": "did two", "cost": 0.25},
]
REVIEWER = [{"say": FOUND, "cost": 0.125}, {"say": "APPROVED: fine", "cost": 0.125}]


def test_a_task_that_is_approved_in_the_second_cycle(pair: Pair) -> None:
    pair.say(CODER, REVIEWER)
    done = pair.review("--lint", "true", "--filter", "two=grep -q . a", "--max-budget", "5")
    run = pair.stage.run()
    assert (done.code, done.out) == (0, f"{run}\n")
    commit = pair.stage.checkout.git("-C", str(pair.stage.worktree(run)), "rev-parse", "HEAD")
    assert normal(done.err, pair.stage) == (
        "[1/1] review\n[review] cycle 1 of 3\n[review] cycle 1: the coder is at work\n→ Write: a\n"
        "did one\n"
        "[review] cycle 1: the reviewer is at work\nISSUE:\nSEVERITY: major\n"
        "DESCRIPTION: it says one\n"
        "[review] cycle 1: not approved, 1 finding\n[review] cycle 2 of 3\n"
        "[review] cycle 2: the coder is at work\n"
        "→ Write: a\ndid two\n[review] cycle 2: the reviewer is at work\nAPPROVED: fine\n"
        "[review] cycle 2: approved\n"
        "      review: complete after 0.0s\n"
        f"run STAMP-say-two is complete; to bring its work here: git merge {commit[:8]}\n"
        "the run's worktree: TOP/.ckpt/worktrees/STAMP-say-two\n"
    )
    worktree = pair.stage.worktree(run)
    assert (worktree / "a").read_text() == "two\n"
    subjects = pair.stage.checkout.git("-C", str(worktree), "log", "--format=%s", "-2").splitlines()
    assert subjects == ["say-two/cycle-2: Say two", "say-two/cycle-1: Say two"]
    state = pair.stage.newest(run).state["review"]
    assert (state["cycle"], state["total_cost_usd"], state["more"]["phase"]) == (2, 1.0, "approved")
    assert [each["description"] for each in state["all_findings"]] == ["it says one"]
    facts = pair.stage.ok("status", run).splitlines()
    assert [line for line in facts if line.startswith(("review ", "findings", "budget"))] == [
        "review   cycle 2 of 3, approved",
        "findings 1 major found",
        "budget   1.00 of 5.00 USD",
    ]


@pytest.mark.long
def test_a_task_may_be_a_file(pair: Pair) -> None:
    pair.say(CODER, [{"say": "APPROVED:"}])
    pair.stage.checkout.write("TASK.md", "# Say two\n\nIn the file a.\n")
    done = pair.stage.ckpt(
        "review", "TASK.md", "--coder", "coder", "--reviewer", "reviewer", "--name", "qs-1"
    )
    assert done.code == 0, done.err
    run = pair.stage.run()
    assert run.endswith("-qs-1")
    assert (
        pair.stage.newest(run).state["review"]["task_title"]
        == "# Say two\n\nIn the file a.\n".strip()
    )


@pytest.mark.long
def test_too_many_cycles_then_more_of_them(pair: Pair) -> None:
    pair.say(CODER, [*([{"say": FOUND}] * 1), {"say": "APPROVED:"}])
    done = pair.review("--max-cycles", "1")
    run = pair.stage.run()
    assert (done.code, done.err.splitlines()[-2:]) == (
        20,
        [
            "error: not approved after 1 cycles, which is the limit",
            (
                f"hint: look at the findings; to allow more cycles: git ckpt resume {run} "
                "--input max_cycles=N"
            ),
        ],
    )
    done = pair.stage.ckpt("resume", run, "--input", "max_cycles=2")
    assert done.code == 0, done.err
    assert pair.stage.newest(run).state["review"]["cycle"] == 2
    assert pair.stage.newest(run).pipeline.inputs["max_cycles"] == "2"  # type: ignore[union-attr]


@pytest.mark.long
def test_what_a_person_commits_after_a_failure_stays(pair: Pair) -> None:
    pair.say(CODER, [{"say": "", "exit": 3}, {"say": "APPROVED:"}])
    assert pair.review().code == 20
    run = pair.stage.run()
    worktree = pair.stage.worktree(run)
    (worktree / "b").write_text("by hand\n")
    pair.stage.checkout.git("-C", str(worktree), "add", "b")
    pair.stage.checkout.git("-C", str(worktree), "commit", "--quiet", "--message", "by hand")
    head = pair.stage.checkout.git("-C", str(worktree), "rev-parse", "HEAD")
    done = pair.stage.ckpt("resume", run)
    assert done.code == 0, done.err
    assert "HEAD has moved from" in done.err
    assert pair.stage.checkout.git("-C", str(worktree), "rev-parse", "HEAD") == head


@pytest.mark.long
def test_a_head_that_diverged_is_refused_until_it_is_forced(pair: Pair) -> None:
    pair.say(CODER, [{"say": "", "exit": 3}, {"say": "", "exit": 3}, {"say": "APPROVED:"}])
    assert pair.review().code == 20
    run = pair.stage.run()
    recorded = pair.stage.newest(run).state["review"]["git_sha"]
    worktree = str(pair.stage.worktree(run))
    pair.stage.checkout.git("-C", worktree, "reset", "--quiet", "--hard", "HEAD~1")
    (Path(worktree) / "b").write_text("elsewhere\n")
    pair.stage.checkout.git("-C", worktree, "add", "b")
    pair.stage.checkout.git("-C", worktree, "commit", "--quiet", "--message", "elsewhere")
    head = pair.stage.checkout.git("-C", worktree, "rev-parse", "HEAD")
    done = pair.stage.ckpt("resume", run)
    assert done.code == 20
    assert f"HEAD is {head}" in done.err
    assert recorded in done.err
    assert f"git ckpt resume {run} --force" in done.err
    assert pair.stage.checkout.git("-C", worktree, "rev-parse", "HEAD") == head
    forced = pair.stage.ckpt("resume", run, "--force")
    assert forced.code == 20, "the reviewer fails once more"
    assert pair.stage.newest(run).pipeline.inputs["force"] == ""  # type: ignore[union-attr]
    assert pair.stage.ckpt("resume", run).code == 0


@pytest.mark.long
def test_the_task_may_change_in_flight(pair: Pair) -> None:
    script = 'cd "$PROJECT" && git ckpt review "Say three" --refactor "$CKPT_RUN"'
    pair.say([{**CODER[0], "run": ["sh", "-c", script]}, *CODER[1:]], REVIEWER)
    pair.stage.program("git-ckpt", f'exec "{sys.executable}" -m gitckpt "$@"')
    done = pair.stage.ckpt(
        "review",
        "Say two",
        "--coder",
        "coder",
        "--reviewer",
        "reviewer",
        env={"PROJECT": str(pair.stage.checkout.path)},
    )
    assert done.code == 0, done.err
    assert "the task was changed" in done.err
    run = pair.stage.run()
    state = pair.stage.newest(run).state["review"]
    assert (state["task_title"], state["cycle"]) == ("Say three", 2)
    late = pair.stage.ckpt("review", "x", "--refactor", run)
    assert late == (
        2,
        "",
        f"error: run {run} is not an open review\nhint: see: git ckpt runs\n",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["review", " "], "there is no task"),
        (["review", "nothing.md"], "cannot read the task nothing.md: No such file or directory"),
        (["review", "x", "--filter", "y"], "'y' is not a filter"),
        (["review", "x", "--max-budget", "much"], "max_budget must be an amount, not 'much'"),
        (
            ["review", "x", "--max-cycles", "-1"],
            "--max-cycles must be a whole number of 0 or more, not '-1'",
        ),
        (["review", "x", "--agent-timeout", "soon"], "agent_timeout: 'soon' is not an age"),
        (["review", "x", "--agent-timeout", "0s"], "agent_timeout must be more than 0, not '0s'"),
        (["review", "x", "--refactor", "none"], "no run is named 'none'"),
    ],
)
def test_what_is_refused_before_anything_begins(
    stage: Stage, words: list[str], message: str
) -> None:
    before = stage.checkout.fingerprint()
    done = stage.ckpt(*words)
    assert done.code in (2, 12)
    assert done.out == ""
    assert done.err.startswith(f"error: {message}")
    assert stage.checkout.fingerprint() == before


class TestInputs:
    @pytest.mark.long
    def test_an_input_of_a_run_can_be_changed(self, stage: Stage) -> None:
        stage.pipeline('one: [ "$CKPT_INPUT_NAME" = b ]', top='inputs = { name = "a" }')
        assert stage.ckpt("run", "ci").code == 20
        assert stage.ckpt("resume").code == 20
        assert stage.ckpt("resume", "--input", "name=b").code == 0

    @pytest.mark.long
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("word", "message"),
        [
            ("nome=b", "the pipeline ci has no input 'nome'"),
            ("name", "the input 'name' is not NAME=VALUE"),
            ("plan=x", "cannot replace the input plan, which is a file"),
        ],
    )
    def test_what_is_refused(self, stage: Stage, word: str, message: str) -> None:
        stage.checkout.write("plan.md", "x")
        stage.pipeline(
            "one: false", top='inputs = { name = "a", plan = "plan.md" }\nfiles = ["plan"]'
        )
        assert stage.ckpt("run", "ci").code == 20
        done = stage.ckpt("resume", stage.run(), "--input", word)
        assert (done.code, done.err.partition("\n")[0]) == (2, f"error: {message}")
        assert stage.status(stage.run()) == "failed"


class TestWatch:
    @pytest.mark.long
    def test_it_ends_with_the_run(self, stage: Stage) -> None:
        stage.pipeline('one: echo a word; until [ -e "$CALLS.go" ]; do sleep 0.02; done')
        driver = stage.begin("run", "ci")
        assert driver.stdout is not None
        driver.stdout.readline()
        talk = Talk(stage, "status", "--watch")
        talk.reads("status   running")
        talk.reads("> one")
        talk.reads("output   a word")
        Path(f"{stage.env['CALLS']}.go").touch()
        talk.reads("status   complete")
        assert (talk.ends(), driver.wait()) == (0, 0)
        talk.close()

    @pytest.mark.parametrize("words", [["--watch"], ["--watch", "--json"]])
    def test_it_needs_a_terminal(self, stage: Stage, words: list[str]) -> None:
        done = stage.ckpt("status", *words)
        assert done == (
            2,
            "",
            "error: --watch needs a terminal\nhint: leave out --watch: git ckpt status --json\n",
        )

    def test_a_bar_shows_how_far_a_loop_is(self, stage: Stage) -> None:
        with stage.store() as store:
            store.record("a-progress", {"loop": {"iterations": 25, "allowed": 100}}, start="x")
        talk = Talk(stage, "status")
        talk.reads("loop     [#####...............] iteration 25 of 100")
        assert talk.ends() == 0
        talk.close()


@pytest.mark.long
def test_a_coder_that_is_not_there(pair: Pair) -> None:
    pair.say(CODER[:1], REVIEWER[1:])
    for words, role in (
        (["--coder", "gone", "--reviewer", "reviewer"], "coder"),
        (["--coder", "coder", "--reviewer", "gone"], "reviewer"),
    ):
        done = pair.stage.ckpt("review", "Say one", *words)
        assert (done.code, done.out, done.err.splitlines()[0]) == (
            4,
            "",
            f"error: the {role} is not installed: gone",
        )
        assert pair.stage.runs() == []
    assert (
        pair.stage.ckpt("review", "Say one", "--coder", "false", "--reviewer", "reviewer").code
        == 20
    )
    run = pair.stage.run()
    done = pair.stage.ckpt("resume", run, "--input", "coder=gone")
    again = f"git ckpt resume {run}"
    assert (done.code, done.err.splitlines()[-2:]) == (
        4,
        [
            "error: the coder is not installed: gone",
            (
                f"hint: install gone, then: {again}; or use another agent: {again} "
                "--input coder=CLIENT"
            ),
        ],
    )
    # The first run that calls an agent of gitckpt.toml says yes to it.
    assert (
        pair.stage.ckpt(*again.split()[2:], "--input", "coder=coder", "--accept-changes").code == 0
    )
