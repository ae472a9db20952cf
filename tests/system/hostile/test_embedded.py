"""A bare repository that a branch tracks cannot name commands for gitckpt."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from gitckpt import RepositoryError, Store
from tests import forked
from tests.cli.conftest import COMMANDS
from tests.conftest import Checkout

pytestmark = pytest.mark.long

CONFIG = """
[core]
    repositoryFormatVersion = 1
    bare = {bare}
    fsmonitor = {touch}
    sshCommand = {touch}
    pager = {touch}
    alternateRefsCommand = {touch}
[extensions]
    partialClone = evil
[remote "evil"]
    url = ext::{touch}
    promisor = true
[protocol "ext"]
    allow = always
[gpg]
    program = {touch}
[filter "evil"]
    clean = {touch}
"""

WORDS = {
    "agent": ["status"],
    "guard": ["--", "true"],
    "watch": ["--", "true"],
    "show": ["latest"],
    "diff": ["latest"],
    "report": ["-o", "report.html"],
    "ls": ["latest"],
    "pin": ["latest"],
    "unpin": ["latest"],
    "note": ["latest", "x"],
    "grep": ["x"],
    "why": ["config"],
    "bisect": ["--", "false"],
    "restore": ["latest"],
    "remove": ["latest"],
    "export": ["latest", "--format", "forge"],
    "import": ["."],
    "start": ["x"],
    "run": ["plan-to-pr", "-i", "plan=HEAD"],
    "loop": ["config"],
    "review": ["config"],
    "step": ["show"],
    "cancel": ["x"],
    "finish": ["x"],
    "complete": ["--", "show", ""],
    "hook": ["post-commit"],
}
WITHOUT_REPOSITORY = ("completion", "demo", "complete", "hook", "guard")
"""Commands that need no repository, or must not fail without one."""


@pytest.fixture
def vendored(main_checkout: Checkout, tmp_path: Path) -> Checkout:
    """A clone with a tracked `vendor.git`; its checkpoint lacks the commit and trees."""
    main_checkout.write("README", "changed\n")
    assert forked.git_ckpt("save", directory=main_checkout.path).code == 0
    outer = Checkout(tmp_path / "outer")
    main_checkout.git("init", "--quiet", str(outer.path))
    bare = Checkout(outer.path / "vendor.git")
    main_checkout.git("clone", "--quiet", "--mirror", "--no-hardlinks", ".", str(bare.path))
    for path in [*(bare.path / "objects").glob("??/*")]:
        if bare.git("cat-file", "-t", path.parent.name + path.name) in ("commit", "tree"):
            path.unlink()
    configure(bare, tmp_path)
    (bare.path / "refs/heads/.keep").touch()
    outer.git("add", "--all", "--force")
    outer.git("commit", "--quiet", "--message", "vendor")
    outer.git("clone", "--quiet", ".", str(tmp_path / "clone"))
    return Checkout(tmp_path / "clone")


def configure(bare: Checkout, tmp_path: Path, is_bare: str = "true") -> None:
    touch = f"touch {tmp_path / 'pwned'}"
    (bare.path / "config").write_text(CONFIG.format(touch=touch, bare=is_bare))


def is_pwned(tmp_path: Path) -> bool:
    return (tmp_path / "pwned").exists()


def call(vendored: Checkout, command: str, **env: str) -> forked.Done:
    words = [command, *WORDS.get(command, [])]
    return forked.git_ckpt(
        *words, directory=vendored.path / "vendor.git", env={**os.environ, **env}
    )


@pytest.mark.usefixtures("vendored")
def test_git_itself_runs_its_commands(vendored: Checkout, tmp_path: Path) -> None:
    vendored.git("-C", "vendor.git", "cat-file", "-p", "main", ok=(128,))
    assert is_pwned(tmp_path)


def test_no_command_opens_it(vendored: Checkout, tmp_path: Path) -> None:
    for command in COMMANDS:
        done = call(vendored, command)
        assert not is_pwned(tmp_path), command
        if command not in WITHOUT_REPOSITORY:
            assert done.code == RepositoryError.exit_code, (command, done)
            assert f"{vendored.path}/vendor.git is a bare repository in the worktree" in done.err
            assert f"git --git-dir={vendored.path}/vendor.git ckpt …" in done.err
    assert vendored.git("status", "--porcelain") == ""


ALL = pytest.param(tuple(COMMANDS), marks=pytest.mark.long, id="all")


@pytest.mark.parametrize(
    "commands", [pytest.param(("list", "show", "diff", "verify"), id="some"), ALL]
)
def test_told_to_open_it_no_command_lets_git_fetch(
    vendored: Checkout,
    tmp_path: Path,
    commands: tuple[str, ...],
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(vendored.path, whole)
    for command in commands:
        done = call(vendored, command, GIT_DIR=str(vendored.path / "vendor.git"))
        assert not is_pwned(tmp_path), command
        assert "is a bare repository in the worktree" not in done.err
        shutil.rmtree(vendored.path)
        shutil.copytree(whole, vendored.path)


@pytest.mark.parametrize("below", ["vendor.git", "vendor.git/objects"])
@pytest.mark.parametrize("is_bare", ["true", "false\n    worktree = .."])
def test_neither_does_the_library(
    vendored: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    below: str,
    is_bare: str,
) -> None:
    configure(Checkout(vendored.path / "vendor.git"), tmp_path, is_bare)
    with pytest.raises(RepositoryError, match="is a bare repository in the worktree"):
        Store.open(vendored.path / below)
    monkeypatch.chdir(vendored.path / below)
    with pytest.raises(RepositoryError, match="is a bare repository in the worktree"):
        Store.open()
    assert not is_pwned(tmp_path)


def test_the_advice_opens_it(vendored: Checkout) -> None:
    done = call(vendored, "list")
    words = shlex.split(done.err.partition("git --git-dir=")[2].partition(" ckpt")[0])
    assert call(vendored, "list", GIT_DIR=words[0]).code == 0


def test_one_in_a_linked_worktree_beneath_a_bare_repository(
    vendored: Checkout, tmp_path: Path
) -> None:
    vendored.git("clone", "--quiet", "--bare", ".", str(tmp_path / "main.git"))
    linked = tmp_path / "main.git/linked"
    Checkout(tmp_path / "main.git").git("worktree", "add", "--quiet", str(linked), "HEAD")
    with pytest.raises(RepositoryError, match="is a bare repository in the worktree"):
        Store.open(linked / "vendor.git")


def records_in(place: Path, repository: Path) -> bool:
    """Record a checkpoint at a place; return whether this repository has it."""
    with Store.open(place) as store:
        made = store.record("a-complete", {})
    return f"refs/checkpoints/{made.id}" in Checkout(repository).refs("refs/checkpoints")


class TestBareRepositoriesThatAreTheUsersOwn:
    def test_one_in_no_worktree_is_opened(self, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        assert records_in(tmp_path / "bare.git/refs", tmp_path / "bare.git")

    def test_one_with_its_worktree_around_it_is_opened(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "around/.bare"))
        (tmp_path / "around/.git").write_text("gitdir: ./.bare\n")
        Checkout(tmp_path / "around").git("worktree", "add", "--quiet", "side", "-b", "side")
        for place in (".bare", ".bare/refs", ".bare/worktrees/side"):
            assert records_in(tmp_path / "around" / place, tmp_path / "around/.bare")

    def test_what_lies_in_a_git_directory_is_opened(self, main_checkout: Checkout) -> None:
        main_checkout.git("init", "--quiet", "--bare", ".git/modules/sub")
        for place in (".git", ".git/refs", ".git/modules/sub"):
            with Store.open(main_checkout.path / place) as store:
                assert store.worktree is None
