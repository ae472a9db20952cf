"""A review commits all changes of its worktree, and compares commits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import CommitRefused
from gitckpt.durable.phases.review.cycle import ANCESTOR, DIVERGED, SAME, UNKNOWN, GitCommits
from tests.conftest import Checkout


@pytest.fixture
def commits(checkout: Checkout) -> GitCommits:
    return GitCommits(os.fspath(checkout.path))


def hook(checkout: Checkout, name: str, text: str) -> None:
    path = checkout.main / ".git/hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_all_that_changed_is_committed(checkout: Checkout, commits: GitCommits) -> None:
    checkout.commit(gone="x", changed="x")
    checkout.write(".gitignore", "*.log\n")
    checkout.write("changed", "y")
    checkout.write("new", "z")
    checkout.write("a.log", "ignored")
    (checkout.path / "gone").unlink()
    sha = commits.commit("t-1", 2, "Add a login\nand more", " (lint fix)")
    assert sha == commits.read_head_commit() == checkout.git("rev-parse", "HEAD")
    assert checkout.git("log", "-1", "--format=%B").strip() == "t-1/cycle-2: Add a login (lint fix)"
    assert checkout.git("show", "--name-status", "--format=", "HEAD").splitlines() == [
        "A\t.gitignore",
        "M\tchanged",
        "D\tgone",
        "A\tnew",
    ]
    assert checkout.git("status", "--porcelain") == ""


def test_where_nothing_changed_head_is_returned(checkout: Checkout, commits: GitCommits) -> None:
    before = checkout.git("rev-parse", "HEAD")
    assert commits.commit("t-1", 1, "Add a login") == before
    assert checkout.git("rev-parse", "HEAD") == before


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("é" * 80, "t-1/cycle-1: " + "é" * 72),
        ("\n\n  Add it  \nmore", "t-1/cycle-1: Add it"),
        ("a\0b", "t-1/cycle-1: ab"),
        ("", "t-1/cycle-1:"),
    ],
)
def test_the_subject(checkout: Checkout, commits: GitCommits, title: str, subject: str) -> None:
    checkout.write("new", "z")
    commits.commit("t-1", 1, title)
    assert checkout.git("log", "-1", "--format=%s") == subject


def test_the_first_commit_of_an_unborn_branch(make_checkout: object) -> None:
    checkout: Checkout = make_checkout()  # type: ignore[operator]
    commits = GitCommits(os.fspath(checkout.path))
    assert (
        commits.read_head_commit(),
        commits.commit("t-1", 1, "Add it"),
        commits.compare_to_head(""),
    ) == (
        "",
        "",
        SAME,
    )
    checkout.write("new", "z")
    assert commits.commit("t-1", 1, "Add it") == checkout.git("rev-parse", "HEAD")
    assert commits.compare_to_head("") == ANCESTOR


def test_hooks_of_the_user_run_with_the_variables_that_are_given(checkout: Checkout) -> None:
    hook(checkout, "pre-commit", 'echo "$CKPT_RUN" >ran')
    checkout.write("new", "z")
    GitCommits(os.fspath(checkout.path), {"CKPT_RUN": "20270115-080001-login"}).commit(
        "t-1", 1, "Add it"
    )
    assert (checkout.path / "ran").read_text() == "20270115-080001-login\n"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_hook_that_refuses_is_an_error_for_people(
    checkout: Checkout, commits: GitCommits, stream: str
) -> None:
    hook(checkout, "pre-commit", f"echo 'no tabs, please' >&{stream}; exit 3")
    before = checkout.git("rev-parse", "HEAD")
    checkout.write("new", "z")
    with pytest.raises(CommitRefused) as caught:
        commits.commit("t-1", 2, "Add it")
    assert caught.value.message == "cannot commit the work of cycle 2: no tabs, please"
    assert (caught.value.exit_code, caught.value.code) == (20, 1)
    assert checkout.git("rev-parse", "HEAD") == before
    assert (checkout.path / "new").read_text() == "z"


def test_without_an_identity_the_cure_is_named(
    checkout: Checkout, commits: GitCommits, sealed: Path
) -> None:
    (sealed / ".gitconfig").write_text("[user]\n    useConfigOnly = true\n")
    checkout.write("new", "z")
    with pytest.raises(CommitRefused) as caught:
        commits.commit("t-1", 1, "Add it")
    assert (
        caught.value.message
        == "cannot commit the work of cycle 1: git has no author name and email"
    )
    assert (
        caught.value.hint
        == "git config --global user.name NAME; git config --global user.email ADDRESS"
    )


def test_what_cannot_be_staged(checkout: Checkout, commits: GitCommits) -> None:
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    (git_dir / "index.lock").touch()
    checkout.write("new", "z")
    with pytest.raises(CommitRefused, match=r"cannot stage the work of cycle 1: .*index\.lock"):
        commits.commit("t-1", 1, "Add it")


def test_relation(checkout: Checkout, commits: GitCommits) -> None:
    first = checkout.git("rev-parse", "HEAD")
    second = checkout.commit("second")
    assert [commits.compare_to_head(each) for each in (second, first)] == [SAME, ANCESTOR]
    checkout.git("reset", "--quiet", "--hard", first)
    assert commits.compare_to_head(second) == DIVERGED
    checkout.commit("other")
    assert commits.compare_to_head(second) == DIVERGED
    tree = checkout.git("rev-parse", "HEAD^{tree}")
    assert [
        commits.compare_to_head(each) for each in ("0" * 40, "1" * 39, tree, "--all", "HEAD")
    ] == [UNKNOWN] * 5
