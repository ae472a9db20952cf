"""The presets: their text, their shell syntax, and their commands in a repository.

The commands run once and again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gitckpt import ConfigError, NotFoundError
from gitckpt.durable.driver import driver
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline.definition import PhaseDefinition, parse_pipelines
from tests.conftest import Checkout

STEPS = driver.OPTIONS
COMMANDS = [
    (name, phase)
    for name in pipelines.PRESETS
    for phase in pipelines.read_preset(name, STEPS).phases
    if phase.run
]


def test_there_are_as_many_as_files() -> None:
    files = sorted(os.listdir(Path(pipelines.__file__).parent / "presets"))
    assert files == sorted(f"{name}.toml" for name in pipelines.PRESETS)


def test_none_by_that_name() -> None:
    with pytest.raises(NotFoundError) as caught:
        pipelines.read_preset_text("../presets/rlm-act")
    hint = f"presets: {', '.join(pipelines.PRESETS)}"
    assert (caught.value.message, caught.value.hint) == (
        "there is no preset '../presets/rlm-act'",
        hint,
    )


def test_a_step_that_is_not_known() -> None:
    with pytest.raises(ConfigError) as caught:
        pipelines.read_preset("plan-to-pr", {"read plan": ()})
    assert caught.value.message.startswith("preset plan-to-pr:")


@pytest.mark.parametrize("name", pipelines.PRESETS)
def test_a_copy_in_a_file_means_the_same(name: str) -> None:
    copy = parse_pipelines(
        "[retention]\nkeep_last = 3\n\n" + pipelines.read_preset_text(name), "gitckpt.toml", STEPS
    )[name]
    assert copy.value_digests() == pipelines.read_preset(name, STEPS).value_digests()


@pytest.mark.parametrize(
    ("name", "phase"),
    COMMANDS,
    ids=lambda value: value.name if isinstance(value, PhaseDefinition) else value,
)
def test_a_shell_can_read_the_commands(name: str, phase: PhaseDefinition) -> None:
    for shell in filter(shutil.which, ("sh", "dash", "bash")):
        done = subprocess.run(
            [shell, "-n", "-c", phase.run or ""], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_plan_to_pr() -> None:
    preset = pipelines.read_preset("plan-to-pr", STEPS)
    names = [
        "read plan",
        "generate branch",
        "create worktree",
        "run agent",
        "commit and push",
        "create pr",
    ]
    assert [phase.name for phase in preset.phases] == names
    assert [phase.use for phase in preset.phases] == [
        "read plan",
        "generate branch",
        None,
        "agent",
        None,
        None,
    ]
    assert [phase.name for phase in preset.phases if phase.must_change] == ["run agent"]
    assert preset.inputs == {
        "plan": "",
        "agent": "claude",
        "pr": "gh pr create",
        "remote": "origin",
    }
    assert (preset.files, preset.worktree, preset.autonomy) == (
        ("plan",),
        "remove_when_pushed",
        "fully_autonomous",
    )
    assert preset.retention == 168 * 3600 * 1_000_000


def test_rlm_act() -> None:
    preset = pipelines.read_preset("rlm-act", STEPS)
    names = [
        "research",
        "decomposition",
        "tdd_planning",
        "multi_doc",
        "beads_sync",
        "implementation",
    ]
    assert [phase.name for phase in preset.phases] == names
    assert [phase.name for phase in preset.phases if preset.ends_phase_group(phase.name)] == [
        "tdd_planning",
        "beads_sync",
        "implementation",
    ]
    aliases = {
        "planning": "tdd_planning",
        "phase_decomposition": "multi_doc",
        "beads_integration": "beads_sync",
    }
    assert {alias: preset.phase(alias).name for alias in aliases} == aliases
    assert {phase.name: phase.skip_with for phase in preset.phases if phase.skip_with} == {
        "research": ("research_path", "plan_path")
    }
    assert (preset.autonomy, preset.files) == (
        "checkpoint",
        ("research_path", "plan_path", "hierarchy_path"),
    )
    last = preset.phase("implementation")
    assert (last.use, last.on_resume, last.must_change) == ("loop", "reset", False)
    assert last.options["plan"].split() == ["thoughts/{plan_name}/plan.md", "{plan_path}"]
    assert {option: text for option, text in last.options.items() if option != "plan"} == {
        option: f"{{{option}}}"
        for option in (
            *("issues", "epic", "agent", "tests", "done", "until_tests_pass"),
            *("max_iterations", "max_budget", "pause", "agent_timeout", "test_timeout"),
        )
    }
    assert preset.inputs["until_tests_pass"] == "yes"


def test_loop() -> None:
    preset = pipelines.read_preset("loop", STEPS)
    (phase,) = preset.phases
    assert (phase.name, phase.use, phase.on_resume) == ("implementation", "loop", "reset")
    assert phase.options == {name: f"{{{name}}}" for name in STEPS["loop"]}
    assert set(preset.inputs) == set(STEPS["loop"])
    assert (preset.autonomy, preset.files) == ("fully_autonomous", ("plan", "prompt"))


@dataclass
class Bench:
    """Run the commands of a preset as a run would."""

    preset: str
    checkout: Checkout
    scratch: Path
    env: Mapping[str, str]
    inputs: dict[str, str] = field(default_factory=dict)

    def agent(self, name: str, script: str) -> str:
        """Write a program whose path has a space, and return the command that calls it."""
        path = self.scratch / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return f"'{path}'"

    def run(self, phase: str, **state: str) -> tuple[int, str, str]:
        """Return the exit code, the output, and the state keys that the phase sets."""
        definition = pipelines.read_preset(self.preset, STEPS)
        sets = self.scratch / "set"
        sets.write_text("")
        (self.scratch / "out").mkdir(exist_ok=True)
        env = {
            **self.env,
            "CKPT_RUN": "20270115-080000-x",
            "CKPT_SET": str(sets),
            "CKPT_OUTPUT": str(self.scratch / "out"),
        }
        env |= {
            f"CKPT_INPUT_{name.upper()}": value
            for name, value in {**definition.inputs, **self.inputs}.items()
        }
        env |= {f"CKPT_STATE_{name.upper()}": value for name, value in state.items()}
        done = subprocess.run(
            ["/bin/sh", "-c", definition.phase(phase).run or ""],
            cwd=self.checkout.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, sets.read_text()


@pytest.fixture
def bench(main_checkout: Checkout, tmp_path: Path) -> Bench:
    scratch = tmp_path / "scratch and more"
    scratch.mkdir()
    (scratch / "plan.md").write_text("# The plan\n")
    return Bench(
        "plan-to-pr", main_checkout, scratch, dict(os.environ), {"plan": str(scratch / "plan.md")}
    )


class TestPlanToPr:
    def test_the_branch_is_made_once(self, bench: Bench) -> None:
        state = {"branch": "plans/login"}
        assert bench.run("create worktree", **state)[0] == 0
        assert bench.checkout.git("symbolic-ref", "HEAD") == "refs/heads/plans/login"
        assert bench.run("create worktree", **state)[0] == 0
        bench.checkout.git("checkout", "--quiet", "--detach")
        assert bench.run("create worktree", **state)[0] == 0
        assert bench.checkout.git("symbolic-ref", "HEAD") == "refs/heads/plans/login"

    def test_a_branch_of_somebody_else_is_left_alone(self, bench: Bench) -> None:
        bench.checkout.git("branch", "plans/login")
        head = bench.checkout.git("symbolic-ref", "HEAD")
        message = (
            "the branch plans/login is there already, and no run made it: "
            "rename it (git branch -m plans/login NEW), then resume\n"
        )
        assert bench.run("create worktree", branch="plans/login") == (1, message, "")
        assert bench.checkout.git("symbolic-ref", "HEAD") == head

    def test_what_the_agent_left_is_committed_and_pushed(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        bench.checkout.git("init", "--quiet", "--bare", str(tmp_path / "remote.git"))
        bench.checkout.git("remote", "add", "origin", str(tmp_path / "remote.git"))
        state = {"branch": "plans/login", "plan_title": '-x "$(date)" # title'}
        bench.run("create worktree", **state)
        bench.checkout.write("new", "new\n")
        for _ in range(2):
            assert bench.run("commit and push", **state)[0] == 0
        assert bench.checkout.git("log", "-2", "--format=%s") == '-x "$(date)" # title\nfirst'
        head = bench.checkout.git("rev-parse", "HEAD")
        assert bench.checkout.git("ls-remote", "origin") == f"{head}\trefs/heads/plans/login"
        assert (
            bench.checkout.git("rev-parse", "--abbrev-ref", "@{upstream}") == "origin/plans/login"
        )

    def test_a_push_that_fails(self, bench: Bench) -> None:
        bench.inputs["remote"] = "nowhere"
        assert bench.run("commit and push", branch="b", plan_title="t")[0] != 0

    @pytest.mark.parametrize(
        ("script", "code", "sets"),
        [
            (
                "echo https://a/pull/1; echo ' https://a/b/pull/42 '; echo done",
                0,
                "pr_url=https://a/b/pull/42\npr_number:=42\n",
            ),
            ("echo http://a/pull/42/files", 0, "pr_url=http://a/pull/42/files\n"),
            ("echo see https://a/pull/1", 0, ""),
            (
                "echo 'a pull request already exists:'; echo https://a/pull/7; exit 1",
                0,
                "pr_url=https://a/pull/7\npr_number:=7\n",
            ),
            ("echo 'it already exists'; exit 1", 1, ""),
            ("echo https://a/pull/7; exit 3", 3, ""),
        ],
    )
    def test_the_url_of_the_pull_request(
        self, bench: Bench, script: str, code: int, sets: str
    ) -> None:
        bench.inputs["pr"] = bench.agent("pr", script) + " --draft"
        done = bench.run("create pr", branch="b", plan_title="t")
        assert (done[0], done[2]) == (code, sets)

    def test_what_the_command_for_the_pull_request_gets(self, bench: Bench) -> None:
        bench.inputs["pr"] = bench.agent("pr", "printf '<%s>' \"$@\"") + " --draft"
        code, said, _ = bench.run(
            "create pr", branch="plans/login", plan_title='it\'s "$(date)"; `x`'
        )
        plan = bench.inputs["plan"]
        expected = (
            f'<--draft><--title><it\'s "$(date)"; `x`><--body-file><{plan}><--head><plans/login>\n'
        )
        assert (code, said) == (0, expected)


class TestRlmAct:
    @pytest.fixture
    def act(self, bench: Bench) -> Bench:
        agent = bench.agent("agent", 'cat > "$0.prompt"; echo answer; exit "${FAIL:-0}"')
        inputs = {"question": "Why `date` $(date)?", "plan_name": "login", "agent": agent}
        return Bench("rlm-act", bench.checkout, bench.scratch, bench.env, inputs)

    def prompt(self, act: Bench) -> str:
        return (act.scratch / "agent.prompt").read_text()

    def test_a_document_is_printed_kept_and_there_for_the_next_phase(self, act: Bench) -> None:
        assert act.run("research") == (
            0,
            "answer\n",
            "research_output<thoughts/login/research.md\n",
        )
        assert (act.scratch / "out" / "research.md").read_text() == "answer\n"
        assert (act.checkout.path / "thoughts/login/research.md").read_text() == "answer\n"
        assert self.prompt(act).endswith("\nQuestion: Why `date` $(date)?\n")
        assert act.run("decomposition")[0] == 0
        assert (
            "is in thoughts/login/research.md, and requirements that are there already "
            "in no file.\n"
        ) in self.prompt(act)

    def test_an_agent_that_fails(self, act: Bench) -> None:
        act.env = {**act.env, "FAIL": "7"}
        assert act.run("research") == (7, "answer\n", "")
        assert not (act.checkout.path / "thoughts/login/research.md").exists()

    def test_research_without_a_question(self, act: Bench) -> None:
        act.inputs["question"] = ""
        assert act.run("research") == (
            1,
            "there is no question: start a run with the input question\n",
            "",
        )
        assert not (act.scratch / "agent.prompt").exists()

    def test_documents_that_are_given(self, act: Bench) -> None:
        act.inputs |= {"research_path": "/r", "hierarchy_path": "/h", "plan_path": "/p"}
        act.run("decomposition")
        assert (
            "The research, if there is any, is in /r, and requirements that are there "
            "already in /h.\n"
        ) in self.prompt(act)
        act.run("planning")
        assert self.prompt(act).startswith("Plan the work for the requirements in /p. ")

    def test_beads(self, act: Bench) -> None:
        programs = act.scratch / "bin"
        programs.mkdir()
        act.env = {"PATH": str(programs)}
        message = (
            "bd is not there: install beads, or leave the phase beads_sync out of a copy of "
            "this pipeline, then resume\n"
        )
        assert act.run("beads_sync") == (4, message, "")
        act.agent("bin/bd", 'echo "bd $*"; exit 3')
        assert act.run("beads_integration") == (3, "bd sync\n", "")
