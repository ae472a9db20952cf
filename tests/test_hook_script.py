"""hooks/hook.sh records plain commits without Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.git.repository import discover_repository
from gitckpt.model import ids
from gitckpt.model.document import shorten_message
from gitckpt.store.hooks.installation import install_hooks
from gitckpt.store.retention import maintenance
from tests.conftest import Checkout

SHELLS = [
    shell
    for shell in ("dash", "bash --posix", "busybox sh", "ksh")
    if shutil.which(shell.split()[0])
]
SUBJECTS = [
    "plain",
    'quoted "x" and \\',
    "ünïcödé – 日本",
    "tab\there",
    "\x1b[31mred",
    "a\u2028b",
    "§ mark",
    "x" * 2000,
    "  blanks  ",
]


@pytest.fixture
def hooked(main_checkout: Checkout) -> Checkout:
    """Return a worktree whose next commit only the shell script records."""
    repository = discover_repository(str(main_checkout.path))
    install_hooks(repository, version=(2, 39, 5), mode="files")
    # Else maintenance starts in the background, and captures linked worktrees.
    maintenance.record_never_maintained(repository)
    main_checkout.commit("by Python, which makes the private directory")
    return main_checkout


def without_python(checkout: Checkout) -> None:
    """Hide Python from the hook, so that only the shell can record."""
    hook = checkout.path / ".git/hooks/post-commit"
    hook.write_text(hook.read_text().replace(shlex.quote(sys.executable), "/no/python"))


def listed(checkout: Checkout) -> dict[str, tuple[str | None, str | None, str | None]]:
    with Store.open(checkout.path) as store:
        return {entry.id: (entry.git_sha, entry.branch, entry.message) for entry in store.list()}


def test_the_checkpoint_is_as_python_makes_it(hooked: Checkout) -> None:
    without_python(hooked)
    hooked.commit("second")
    with Store.open(hooked.path) as store:
        entry, first = store.list()
        assert (entry.git_sha, entry.branch, entry.message) == (hooked.head(), "main", "second")
        made, by_python = store.read(entry.id), store.read(first.id)
        assert (made.trigger, made.label, made.run) == (
            by_python.trigger,
            by_python.label,
            by_python.run,
        )
        assert store.verify().findings == []
    documents = [
        hooked.git("cat-file", "blob", ref).splitlines() for ref in hooked.refs("refs/checkpoints")
    ]
    keys = [[line.partition(" = ")[0] for line in document] for document in documents]
    assert keys[0] == keys[1]
    assert f"refs/keep/ckpt/{hooked.head()}" in hooked.refs("refs/keep")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_any_subject_becomes_the_message(hooked: Checkout, subject: str) -> None:
    hooked.commit(subject)
    message = listed(hooked)[ids.id_from_commit(hooked.head())][2]
    expected = hooked.git("log", "-1", "--format=%s")
    assert message == shorten_message(expected)


@pytest.mark.parametrize("branch", ['a"b', "x$(touch${IFS}y)", "f/ü", "it's", "%s"])
def test_any_branch_is_recorded(hooked: Checkout, branch: str) -> None:
    without_python(hooked)
    hooked.git("checkout", "--quiet", "-b", branch)
    hooked.commit("on it")
    assert listed(hooked)[ids.id_from_commit(hooked.head())][1] == branch
    assert not (hooked.path / "y").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_records(hooked: Checkout, shell: str) -> None:
    without_python(hooked)
    hook = hooked.path / ".git/hooks/post-commit"
    script = hook.read_text().replace("#!/bin/sh\n", f"#!/usr/bin/env -S {shell}\n")
    hook.write_text(script)
    hooked.commit('by "another" shell – ü')
    assert listed(hooked)[ids.id_from_commit(hooked.head())] == (
        hooked.head(),
        "main",
        'by "another" shell – ü',
    )


def test_amend_and_linked_worktree_and_detached_head(hooked: Checkout, tmp_path: Path) -> None:
    without_python(hooked)
    hooked.commit("one")
    amended = hooked.head()
    hooked.git("commit", "--quiet", "--amend", "-m", "two")
    hooked.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    linked = Checkout(tmp_path / "linked", hooked.path)
    linked.commit("three", file="x\n")
    made = listed(hooked)
    assert made[ids.id_from_commit(amended)][2] == "one"
    assert made[ids.id_from_commit(hooked.head())][2] == "two"
    assert made[ids.id_from_commit(linked.head())][1:] == (None, "three")
    for worktree in (hooked, linked):
        with Store.open(worktree.path) as store:
            assert store.find("latest") == ids.id_from_commit(worktree.head())
    hooked.git("gc", "--quiet", "--prune=now")
    hooked.git("cat-file", "-e", amended)


def test_linked_worktrees_call_python_once_an_hour(hooked: Checkout, tmp_path: Path) -> None:
    hooked.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    stamp = hooked.path / ".git/ckpt/rescued"
    hooked.commit("with a linked worktree")
    assert stamp.read_text().endswith("Z\n")
    without_python(hooked)
    commit = ("commit", "--quiet", "--allow-empty", "-m", "next")

    def errors() -> str:
        words = ["git", "-C", str(hooked.path), *commit]
        return subprocess.run(words, check=True, capture_output=True, text=True).stderr

    now = stamp.read_text()
    for text, needs_python in ((now, False), (f"2025{now[4:]}", True), ("", True), ("x\n", True)):
        stamp.write_text(text)
        assert ("/no/python is missing" in errors()) == needs_python
    shutil.rmtree(hooked.path / ".git/worktrees")
    assert errors() == ""


@pytest.mark.long
def test_two_who_commit_at_once_get_a_checkpoint_for_each_commit(hooked: Checkout) -> None:
    program = (
        'for n in 1 2 3 4 5 6 7 8 9 10; do until git commit --quiet --allow-empty -m "$0 $n" '
        "2>/dev/null; do :; done; done"
    )
    env = {name: value for name, value in os.environ.items() if name != "GIT_COMMITTER_DATE"}
    writers = [
        subprocess.Popen(["sh", "-c", program, str(n)], cwd=hooked.path, env=env) for n in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    commits = hooked.git("log", "--format=%H").split()[:41]
    with Store.open(hooked.path) as store:
        counted = Counter(entry.git_sha for entry in store.list())
    assert {commit: counted[commit] for commit in commits} == dict.fromkeys(commits, 1)
