"""The `gitckpt.toml` of a fetched branch deletes, captures and executes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import Limits, Policy, Store
from gitckpt.durable.pipeline.definition import PRESETS
from gitckpt.git.repository import discover_repository
from gitckpt.hook import main as hook
from gitckpt.store.config import settings
from tests import planted
from tests.cli.conftest import COMMANDS, Ckpt, ckpt, save
from tests.conftest import Checkout, allow
from tests.planted import plant
from tests.stores import HOOKS, default_settings
from tests.system.hostile import branches

__all__ = ["ckpt", "save"]

LINE = "until you allow that, built-in values apply: git ckpt allow\n"


def ids(checkout: Checkout) -> set[str]:
    return set(checkout.refs("refs/checkpoints"))


@pytest.fixture
def lived_in(checkout: Checkout, ckpt: Ckpt) -> Checkout:
    """A worktree with checkpoints of commits, of a restore, and of a complete run."""
    assert ckpt("init", at=checkout).code == 0
    checkout.commit("settings", **{"gitckpt.toml": default_settings()})
    for number in range(3):
        checkout.commit(str(number))
        hook(["post-commit"])
    checkout.write("README", "changed\n")
    assert ckpt("restore", "latest").code == 0
    assert (
        ckpt("start", "work").code,
        ckpt("finish", ckpt("runs").out.partition("\t")[0]).code,
    ) == (0, 0)
    return checkout


def maintained(checkout: Checkout) -> str:
    """Let the hooks do daily maintenance; return its result."""
    hook(["maintain"])
    until = time.monotonic() + 60
    while (
        time.monotonic() < until
    ):  # maintenance may still run in the background, started by a commit
        ended = (checkout.main / ".git/ckpt/maintained").read_text().partition(" ")[2]
        if ended:
            return ended
        time.sleep(0.05)
    raise AssertionError("maintenance does not end")


@pytest.mark.long
def test_what_is_deleted_by_its_rules(
    lived_in: Checkout, ckpt: Ckpt, capfd: pytest.CaptureFixture[str]
) -> None:
    branches.deleting(lived_in)
    before, worktrees = ids(lived_in), lived_in.git("worktree", "list")
    capfd.readouterr()
    hook(["post-commit"])
    assert maintained(lived_in) == "done\n"
    for words in (["expire"], ["expire", "--dry-run"]):
        done = ckpt(*words)
        assert (done.code, done.err.count(LINE), "expires" in done.out) == (0, 1, False)
    with Store.open(lived_in.path) as store:
        assert not any(decision.expires for _, decision in store.expire().checkpoints)
    assert ids(lived_in) >= before
    assert lived_in.git("worktree", "list") == worktrees
    assert LINE.strip() in (lived_in.main / ".git/ckpt/log").read_text()


@pytest.mark.long
def test_once_it_is_allowed_it_is_deleted(lived_in: Checkout, ckpt: Ckpt) -> None:
    branches.deleting(lived_in)
    allow(lived_in)
    assert maintained(lived_in) == "done\n"
    assert len(ids(lived_in)) <= 1  # the run was not merged
    assert LINE not in ckpt("expire").err


def test_what_is_captured_by_its_limits(checkout: Checkout, ckpt: Ckpt) -> None:
    branches.capturing(checkout)
    checkout.write(".git-credentials", "hunter2")
    checkout.write("server.key", "hunter2")
    checkout.git(
        "config", "core.excludesFile", os.fspath(checkout.write("../ignored", "*.log\n").resolve())
    )
    checkout.write("a.log", "hunter2")
    checkout.write("README", "changed\n")
    done = ckpt("save", at=checkout)
    assert (done.code, done.err.count(LINE)) == (0, 1)
    held = checkout.git(
        "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{done.out.strip()}:files"
    ).splitlines()
    assert held == ["README", "gitckpt.toml"]
    listed = [
        line.split()
        for line in checkout.git("cat-file", "--batch-all-objects", "--batch-check").splitlines()
    ]
    blobs = checkout.blobs(*(oid for oid, kind, _ in listed if kind == "blob"))
    assert b"changed\n" in blobs
    assert b"hunter2" not in blobs
    allow(checkout)
    done = ckpt("save")
    held = checkout.git(
        "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{done.out.strip()}:files"
    ).splitlines()
    assert held == [".git-credentials", "README", "a.log", "gitckpt.toml", "server.key"]


def test_a_hook_in_the_worktree_of_a_run_captures_no_more_and_says_so(
    main_checkout: Checkout,
    ckpt: Ckpt,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = ckpt("start", "work", at=main_checkout).out.splitlines()[-1]
    run = Checkout(Path(path), main_checkout.path)
    branches.capturing(run)
    run.write("a.key", "secret")
    run.write("new", "x")
    monkeypatch.chdir(path)
    capfd.readouterr()
    hook(["post-commit"])
    assert LINE.strip() in capfd.readouterr().err
    newest = ckpt("list", "-n", "1").out.split("\t")[0]
    held = run.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{newest}:files").splitlines()
    assert held == ["README", "gitckpt.toml", "new"]


@pytest.mark.long
def test_the_runs_that_a_pipeline_would_forget(main_checkout: Checkout, ckpt: Ckpt) -> None:
    main_checkout.write("gitckpt.toml", '[[pipelines.ci.phases]]\nname = "a"\nrun = "true"\n')
    assert ckpt("run", "ci", at=main_checkout).code == 0
    branches.forgetting_runs(main_checkout, "ci")
    assert ckpt("run", "ci").code == 0
    assert len(ckpt("runs").out.splitlines()) == 2
    allow(main_checkout)
    ckpt("run", "ci")
    assert ckpt("runs").out == ""


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "plan.md"],
        ["run", "plan-to-pr"],
        ["run", "rlm-act"],
        ["loop", "plan.md"],
        ["review", "x"],
    ],
)
def test_a_preset_that_is_another_one_is_announced_each_time(
    checkout: Checkout, ckpt: Ckpt, tmp_path: Path, words: list[str]
) -> None:
    branches.redefining(checkout, tmp_path / "marker")
    checkout.commit("a plan", **{"plan.md": "x"})
    name = {"plan.md": "plan-to-pr"}.get(words[1], words[1]) if words[0] == "run" else words[0]
    said = f"warning: gitckpt.toml redefines the preset {name}: check the commands in this file\n"
    for _ in range(2):
        done = ckpt(*words, at=checkout)
        assert (done.code, done.err.count(said)) == (0, 1)
        assert done.err.index(said) < done.err.index("[1/1]")
    if words[0] == "run":
        assert ckpt(*words, "--dry-run").err == said


def test_presets_as_they_are_are_not_announced(main_checkout: Checkout, ckpt: Ckpt) -> None:
    main_checkout.commit("a plan", **{"plan.md": "x"})
    for name in PRESETS:
        assert (
            "redefines"
            not in ckpt(
                "run",
                name,
                "--dry-run",
                *(["-i", "title=x"] if name == "review" else []),
                at=main_checkout,
            ).err
        )


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "git"])
def test_an_agent_that_is_another_one_is_announced_each_time(
    checkout: Checkout, ckpt: Ckpt, tmp_path: Path, agent: str
) -> None:
    marker = tmp_path / "marker"
    checkout.commit(
        "agents",
        **{"gitckpt.toml": f"[agents.{agent}]\ncommand = \"touch '{marker}'\"\n", "plan.md": "x"},
    )
    words = [
        "loop",
        "plan.md",
        "--agent",
        agent,
        "--done",
        "true",
        "--until-tests-pass",
        "--tests",
        "true",
        "--max-iterations",
        "1",
    ]
    for _ in range(2):
        done = ckpt(*words, at=checkout)
        assert (
            done.err.count(f"warning: gitckpt.toml redefines the agent {agent}: touch '{marker}'\n")
            == 1
        ), done.err
        assert marker.exists()
        marker.unlink()


@pytest.mark.long
def test_agents_with_names_of_their_own_are_not_announced(checkout: Checkout, ckpt: Ckpt) -> None:
    checkout.commit(
        "agents",
        **{
            "gitckpt.toml": '[agents.mine]\ncommand = "true"\n[agents.claude]\ncommand = "false"\n',
            "plan.md": "x",
        },
    )
    done = ckpt(
        "loop",
        "plan.md",
        "--agent",
        "mine",
        "--until-tests-pass",
        "--tests",
        "true",
        "--max-iterations",
        "1",
        at=checkout,
    )
    assert "redefines" not in done.err


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("agent", ["claude", "mine"])
def test_a_run_that_goes_on_calls_no_other_agent_than_it_was_started_with(
    checkout: Checkout, ckpt: Ckpt, tmp_path: Path, agent: str
) -> None:
    marker = tmp_path / "marker"
    said = f'[agents.{agent}]\ncommand = "exit 1"\n'
    checkout.commit("agents", **{"gitckpt.toml": said, "plan.md": "x"})
    words = [
        "loop",
        "plan.md",
        "--agent",
        agent,
        "--tests",
        "false",
        "--until-tests-pass",
        "--max-iterations",
        "1",
    ]
    assert ckpt(*words, at=checkout).code == 20
    assert ckpt("resume").code == 20  # resume uses the agent of the start
    checkout.write("gitckpt.toml", f"[agents.{agent}]\ncommand = \"touch '{marker}'\"\n")
    done = ckpt("resume")
    assert (
        done.code,
        f"has changed since its start: the agent {agent} is touch '{marker}'" in done.err,
    ) == (2, True), done.err
    assert not marker.exists()
    ckpt("resume", "--accept-changes")
    assert marker.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "key", ['skip_with = ["plan"]', 'aliases = ["build"]'], ids=["skip_with", "aliases"]
)
def test_a_branch_makes_no_run_skip_a_phase_or_take_one_for_another(
    checkout: Checkout, ckpt: Ckpt, key: str
) -> None:
    head = '[pipelines.ci]\ninputs = { plan = "x" }\n'
    compile_ = '[[pipelines.ci.phases]]\nname = "compile"\nrun = "exit 1"\n'
    test = '[[pipelines.ci.phases]]\nname = "test"\nrun = "exit 1"\n'
    checkout.commit("a pipeline", **{"gitckpt.toml": head + compile_ + test})
    assert ckpt("run", "ci", at=checkout).code == 20
    checkout.write("gitckpt.toml", f"{head}{compile_}{test}{key}\n")
    for words in (["resume"], ["resume", "--from", "test"]):
        done = ckpt(*words)
        assert done.code == 2
        assert f"has changed since its start: phase 'test': {key.partition(' ')[0]}\n" in done.err
    assert ckpt("resume", "--accept-changes").code == 20


@pytest.mark.long
def test_a_run_whose_driver_is_killed_at_its_start_goes_on_with_its_agents(
    checkout: Checkout, ckpt: Ckpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.commit(
        "agents", **{"gitckpt.toml": '[agents.mine]\ncommand = "exit 1"\n', "plan.md": "x"}
    )

    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    words = [
        "loop",
        "plan.md",
        "--agent",
        "mine",
        "--tests",
        "false",
        "--until-tests-pass",
        "--max-iterations",
        "1",
    ]
    with monkeypatch.context() as patched:
        plant(patched, planted.REOPEN_RUN, kill)
        with pytest.raises(Killed):
            ckpt(*words, at=checkout)
    assert ckpt("resume").code == 20


NAMING = ("run", "loop", "review")
"""Commands that name a pipeline or an agent."""

CALLS: dict[str, list[list[str]]] = {
    "init": [["--hooks", "none"], []],
    "save": [[], ["--no-worktree"]],
    "list": [[], ["--json"]],
    "show": [["latest"]],
    "diff": [["latest"]],
    "log": [["-p"], ["--stat", "--all"], ["--json", "--", "README"]],
    "ls": [["latest"]],
    "grep": [["x"]],
    "why": [["README"], ["missing"]],
    "bisect": [["--", "false"]],
    "resume": [[], ["--no-run", "latest"]],
    "restore": [["HEAD~1", "--dry-run"], ["HEAD~1"]],
    "undo": [["--list"], []],
    "redo": [[]],
    "runs": [[], ["--json"]],
    "status": [[], ["--json"]],
    "start": [["by hand"]],
    "finish": [[]],
    "step": [
        ["start", "WRITE", "--track", "t"],
        ["next"],
        ["show"],
        ["start", "WRITE", "--track", "u", "--graph", "docs"],
    ],
    "agent": [["install", "claude"], ["status"], ["uninstall", "claude"]],
    "turns": [[], ["--json"]],
    "guard": [["--shell", "bash"]],
    "watch": [["--", "true"]],
    "rescue": [[], ["--json"]],
    "report": [["-o", "report.html"], ["latest", "-o", "report.html", "--force"]],
    "tag": [["latest", "kept"], [], ["-d", "kept"]],
    "pin": [["latest"]],
    "unpin": [["latest"]],
    "note": [["latest", "mine"], ["latest"]],
    "cancel": [["work"]],
    "remove": [["latest"]],
    "expire": [["--dry-run"], []],
    "allow": [["--dry-run"], ["--json"], [], ["--forget"]],
    "import": [["."], ["--dry-run", "--history", "."]],
    "export": [["latest", "--format", "rlm-act"]],
    "notes": [[]],
    "verify": [[], ["--repair"]],
    "doctor": [[], ["--json"]],
    "du": [[], ["--json"]],
    "hook": [[event] for event in (*HOOKS, "maintain", "pack")],
    "completion": [["bash"]],
    "demo": [["--help"]],
    "uninit": [[]],
}
"""The arguments of each other command; a new command must be added here."""


@pytest.mark.long
def test_no_command_executes_anything_that_it_does_not_name(
    lived_in: Checkout, ckpt: Ckpt, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    lived_in.commit(
        "a pipeline",
        **{
            "gitckpt.toml": '[[pipelines.ci.phases]]\nname = "one"\nrun = "exit 1"\n',
            "plan.md": "x",
        },
    )
    assert ckpt("run", "ci", at=lived_in).code == 20
    branches.commanding(lived_in, marker)
    hostile = (lived_in.path / "gitckpt.toml").read_text()
    lived_in.write("README", "changed\n")
    assert set(CALLS) | set(NAMING) == set(COMMANDS)
    done = {}
    for command in COMMANDS:
        for words in CALLS.get(command, ()):
            lived_in.write("gitckpt.toml", hostile)  # a restore may have replaced it
            done[command, *words] = ckpt(command, *words, at=lived_in)
            assert not marker.exists(), (command, words)
    bugs = {words: each.err for words, each in done.items() if each.code == 3}
    assert bugs == {}
    refused = {words: each.err for words, each in done.items() if each.code == 2}
    assert set(refused) == {("resume",), ("finish",), ("step", "next"), ("step", "show")}
    assert "has changed since its start" in refused["resume",]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words", [["run", "ci"], ["run", "plan.md"], ["loop", "plan.md"], ["review", "x"]]
)
def test_who_names_it_has_it_executed(
    main_checkout: Checkout, ckpt: Ckpt, tmp_path: Path, words: list[str]
) -> None:
    """The commands of the previous test do touch the marker when the user names them."""
    branches.commanding(main_checkout, tmp_path / "marker")
    main_checkout.commit("a plan", **{"plan.md": "x"})
    ckpt(*words, at=main_checkout)
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("attack", [branches.deleting, branches.capturing])
def test_no_attack_loosens_anything(checkout: Checkout, attack: Callable[[Checkout], None]) -> None:
    attack(checkout)
    found = settings.read_settings(discover_repository(str(checkout.path)))
    assert (found.policy, replace(found.limits, configured=None), found.loosening_notice != "") == (
        Policy(),
        Limits(),
        True,
    )
