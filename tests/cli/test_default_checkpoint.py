"""`latest`, defaults and bare `resume` choose checkpoints of this worktree.

Checkpoints of other worktrees are not removed without a question.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Query, Store
from tests.cli.conftest import PROJECT, Ckpt
from tests.conftest import Checkout
from tests.durable.stage import Stage, Talk, stage

__all__ = ["stage"]

Save = Callable[..., str]

NONE_HERE = (
    "error: no checkpoint was made in this worktree\n"
    "hint: use latest:any for the newest of all worktrees, or save one here: git ckpt save\n"
)
AGENT = 'use = "agent"\nwith = { agent = "claude", prompt = "README" }'


def at_terminal(checkout: Checkout, typed: str, *args: str) -> tuple[int, str]:
    """Run `git ckpt` at a terminal with typed input; return exit code and output."""
    leader, follower = pty.openpty()
    os.write(leader, typed.encode())
    done = subprocess.run(
        [sys.executable, "-m", "gitckpt", *args],
        cwd=checkout.path,
        stdin=follower,
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "NO_COLOR": "1", "GIT_PAGER": "cat"},
        check=False,
    )
    os.close(follower)
    said = b""
    try:
        while chunk := os.read(leader, 65536):
            said += chunk
    except OSError:  # all of it was read
        pass
    os.close(leader)
    return done.returncode, said.decode().replace("\r\n", "\n")


@pytest.fixture
def other(main_checkout: Checkout, tmp_path: Path) -> Checkout:
    """Return a linked worktree for an agent."""
    main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "other"))
    return Checkout(tmp_path / "other", main_checkout.path)


class TestLatest:
    """`latest` names the newest checkpoint of the current worktree."""

    def test_restore_latest_leaves_the_files_of_another_worktree_alone(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt, save: Save
    ) -> None:
        main_checkout.write("README", "mine\n")
        mine = save(main_checkout)
        other.write("README", "the agent's\n")
        theirs = save(other)
        main_checkout.write("README", "broken\n")
        assert ckpt("restore", "latest", at=main_checkout).code == 0
        assert (main_checkout.path / "README").read_text() == "mine\n"
        for args in (["show"], ["show", "latest"], ["show", "HEAD"]):
            assert ckpt(*args, at=main_checkout).out.split()[1] == mine
            assert ckpt(*args, at=other).out.split()[1] == theirs
        assert ckpt("show", "latest:any", at=main_checkout).out.split()[1] == theirs

    def test_a_worktree_without_any_says_so_and_names_that_of_all(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt, save: Save
    ) -> None:
        save(main_checkout)
        for args in (
            ["show"],
            ["restore", "latest"],
            ["diff", "latest"],
            ["remove", "latest"],
            ["resume", "latest"],
        ):
            assert ckpt(*args, at=other)[::2] == (12, NONE_HERE)

    def test_it_stays_when_the_worktree_moves_and_goes_when_it_is_made_anew(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt, save: Save
    ) -> None:
        saved = save(other)
        moved = other.path.with_name("moved")
        main_checkout.git("worktree", "move", str(other.path), str(moved))
        assert ckpt("show", at=moved).out.split()[1] == saved
        main_checkout.git("worktree", "remove", "--force", str(moved))
        main_checkout.git("worktree", "add", "--quiet", str(other.path), "other")
        assert ckpt("show", at=other).err == NONE_HERE

    def test_a_commit_counts_for_the_worktree_that_it_was_made_in(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt, git_ckpt: Path
    ) -> None:
        assert ckpt("init", at=main_checkout).code == 0
        main_checkout.commit("in main", a="a\n")
        other.commit("by the agent", b="b\n")
        assert "message:     in main\n" in ckpt("show", at=main_checkout).out
        assert "message:     by the agent\n" in ckpt("show", at=other).out

    def test_in_the_worktree_of_a_run_it_is_of_that_run(
        self, main_checkout: Checkout, ckpt: Ckpt, save: Save
    ) -> None:
        saved = save(main_checkout)
        begun = Path(ckpt("start", "one", at=main_checkout).out.strip())
        assert ckpt("show", at=main_checkout).out.split()[1] == saved
        assert "run-started" in ckpt("show", at=begun).out
        Path(ckpt("start", "two", at=main_checkout).out.strip())
        assert f"{begun.name} #1" in ckpt("show", at=begun).out


class TestRemove:
    """Removing another worktree's checkpoints needs an answer or `--force`."""

    def test_at_a_pipe_it_names_the_worktree_and_the_command(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt, save: Save
    ) -> None:
        mine, theirs = save(main_checkout), save(other)
        done = ckpt("remove", mine, theirs, at=main_checkout)
        assert done == (
            2,
            "",
            (
                f"error: checkpoint {theirs[:8]} was made in the worktree {other.path}; "
                "nothing was removed\n"
                f"hint: to remove all of them anyway: git ckpt remove --force {mine[:8]} "
                f"{theirs[:8]}\n"
            ),
        )
        assert ckpt("remove", "--force", mine, theirs, at=main_checkout).out.split() == [
            mine,
            theirs,
        ]

    @pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 2), ("\x04", 2)])
    def test_at_a_terminal_it_asks(
        self, main_checkout: Checkout, other: Checkout, save: Save, typed: str, code: int
    ) -> None:
        theirs = save(other)
        done, said = at_terminal(main_checkout, typed, "remove", theirs)
        question = (
            f"checkpoint {theirs[:8]} was made in the worktree {other.path}\nRemove all? [y/N] "
        )
        assert (done, question in said) == (code, True)

    @pytest.mark.long
    def test_an_interrupted_removal_of_a_run_goes_on_without_force(self, stage: Stage) -> None:
        """The run has already lost its worktree and its first checkpoint."""
        stage.pipeline("one: true")
        stage.ok("run", "ci")
        run = stage.run()
        stage.checkout.git("worktree", "remove", "-f", "-f", str(stage.worktree(run)))
        with Store.open(stage.checkout.path) as store:
            first = store.list(Query(run=run))[-1].id
        stage.checkout.git("update-ref", "-d", f"refs/checkpoints/{first}")
        assert stage.ckpt("remove", run).code == 0
        assert stage.checkout.refs("refs/checkpoints") == {}

    @pytest.mark.long
    def test_a_run_is_of_the_worktree_that_started_it(
        self, main_checkout: Checkout, other: Checkout, ckpt: Ckpt
    ) -> None:
        theirs, mine = (
            Path(ckpt("start", "work", at=at).out.strip()).name for at in (other, main_checkout)
        )
        refused = ckpt("remove", mine, theirs, at=main_checkout)
        assert (
            refused.code,
            f"run {theirs} was made in the worktree {other.path};" in refused.err,
        ) == (2, True)
        assert ckpt("remove", mine, at=main_checkout).out == f"{mine}\n"
        assert ckpt("remove", theirs, at=other).out == f"{theirs}\n"


class TestResume:
    """`resume` without an id continues the run that this worktree started."""

    @pytest.mark.long
    def test_it_says_what_it_starts(self, stage: Stage) -> None:
        stage.pipeline("one: false")
        stage.ckpt("run", "ci")
        done = stage.ckpt("resume")
        assert (done.code, done.err.splitlines()[0]) == (
            20,
            f"resuming {stage.run()} at one: false",
        )

    @pytest.mark.parametrize("words", [[], ["--no-run"]])
    def test_without_an_unfinished_run_there_is_nothing_to_resume(
        self, checkout: Checkout, ckpt: Ckpt, save: Save, words: list[str]
    ) -> None:
        save(checkout)
        assert ckpt("resume", *words, at=checkout) == (
            12,
            "",
            (
                "error: nothing to resume: no run is unfinished\n"
                "hint: to put the newest files back here: git ckpt restore latest; to open them in "
                "a worktree of their own: git ckpt resume latest\n"
            ),
        )

    @pytest.mark.long
    def test_several_are_listed_at_a_pipe_and_none_is_started(self, stage: Stage) -> None:
        stage.pipeline("one: false")
        for _ in range(2):
            stage.ckpt("run", "ci")
        before = stage.checkout.refs()
        listed = "".join(f"  {run} at one: false\n" for run in stage.runs())
        assert stage.ckpt("resume") == (
            12,
            "",
            f"error: 2 runs could be meant\n{listed}hint: name the run: git ckpt resume RUN\n",
        )
        assert stage.checkout.refs() == before

    @pytest.mark.long
    def test_a_person_chooses_one_of_several(self, stage: Stage) -> None:
        stage.pipeline("one: false")
        for _ in range(2):
            stage.ckpt("run", "ci")
        runs = stage.runs()
        talk = Talk(stage, "resume")
        talk.reads("Which one? [1-2, or nothing for none] ")
        talk.types("2")
        assert talk.ends() == 20
        talk.close()
        assert [stage.labels(run).count("one-started") for run in runs] == [1, 2]

    @pytest.mark.long
    @pytest.mark.parametrize(("answer", "code", "calls"), [("y", 0, ["claude"]), ("", 1, [])])
    def test_a_person_is_asked_before_an_agent_is_called(
        self, stage: Stage, answer: str, code: int, calls: list[str]
    ) -> None:
        stage.pipeline(
            "one: test -e go", name="ci", more=f'[[pipelines.ci.phases]]\nname = "two"\n{AGENT}\n'
        )
        stage.ckpt("run", "ci")
        (stage.worktree(stage.run()) / "go").touch()
        talk = Talk(stage, "resume")
        talk.reads(f"resuming {stage.run()} at one: test -e go (calls claude)\n")
        talk.reads("Resume it? [y/N] ")
        talk.types(answer)
        assert talk.ends() == code
        talk.close()
        assert [each.split()[0] for each in stage.calls] == calls

    @pytest.mark.long
    def test_runs_of_other_worktrees_are_named_and_not_started(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        stage.pipeline("one: false")
        stage.checkout.git("add", ".")
        stage.checkout.git("commit", "--quiet", "--message", "pipeline")
        stage.checkout.git("worktree", "add", "--quiet", str(tmp_path / "other"))
        stage.ckpt("run", "ci")
        done = stage.ckpt("resume", at=tmp_path / "other")
        assert (done.code, f"  {stage.run()} at one: false\n" in done.err) == (12, True)
        assert stage.labels(stage.run()).count("one-started") == 1
        assert stage.ckpt("resume", at=stage.worktree(stage.run())).code == 20
        assert stage.labels(stage.run()).count("one-started") == 2
