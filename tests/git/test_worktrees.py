"""Processes make and remove linked worktrees at once, though git has no lock."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from gitckpt import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from tests.conftest import Checkout, repository_of
from tests.dying import die_at_rename

ROOT = Path(__file__).parents[2]

MAKE_AND_REMOVE = """
import sys
from gitckpt.git.repository import discover_repository
from gitckpt.git.worktree import administration
top, name = sys.argv[1:]
repository = discover_repository(top)
for number in range(6):
    path = f"{top}-{name}-{number}"
    administration.run_git(repository, "add", "--no-checkout", "--detach", path)
    administration.run_git(repository, "list")
    administration.run_git(repository, "remove", "--force", path)
repository.close()
"""


def paths_of(repository: Repository) -> list[str]:
    listing = administration.run_git(repository, "list", "--porcelain").out.decode()
    return [
        line.removeprefix("worktree ")
        for line in listing.splitlines()
        if line.startswith("worktree ")
    ]


def half_make(checkout: Checkout) -> Path:
    """Leave a half-made worktree at which `git worktree list` dies.

    Return the file that git has yet to write.
    """
    checkout.git("worktree", "add", "--detach", str(checkout.path.parent / "theirs"))
    unwritten = checkout.path / ".git" / "worktrees" / "theirs" / "commondir"
    unwritten.write_text("")
    return unwritten


@pytest.mark.long
def test_eight_processes_make_and_remove_them(
    main_checkout: Checkout, repository: Repository
) -> None:
    argv = [sys.executable, "-c", MAKE_AND_REMOVE, str(main_checkout.path)]
    makers = [
        subprocess.Popen([*argv, name], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for name in "abcdefgh"
    ]
    said = [maker.communicate()[1] for maker in makers]
    assert [maker.returncode for maker in makers] == [0] * 8, said
    assert paths_of(repository) == [str(main_checkout.path)]


def test_somebody_else_is_about_to_make_one(
    main_checkout: Checkout, repository: Repository
) -> None:
    unwritten = half_make(main_checkout)
    writer = threading.Timer(0.1, unwritten.write_text, ["../..\n"])
    writer.start()
    try:
        assert paths_of(repository) == [
            str(main_checkout.path),
            str(main_checkout.path.parent / "theirs"),
        ]
    finally:
        writer.join()


def test_what_somebody_left_half_made_long_ago_is_an_error_at_once(
    main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritten = half_make(main_checkout)
    an_hour_ago = time.time() - 3600
    for place in (unwritten.parent, unwritten.parents[1]):
        os.utime(place, (an_hour_ago, an_hour_ago))
    tries = main_checkout.path.parent / "trace"
    monkeypatch.setenv("GIT_TRACE", str(tries))
    with pytest.raises(GitError, match=r"failed to read .*commondir"):
        paths_of(repository)
    assert tries.read_text().count("worktree list") == 1


def test_a_killed_git_is_not_tried_again(
    main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_make(main_checkout)
    calls: list[tuple[str, ...]] = []

    def killed(*words: str) -> None:
        calls.append(words)
        raise GitError(words, -9, "")

    monkeypatch.setattr(repository.git, "run", killed)
    with pytest.raises(GitError, match="killed by signal 9"):
        paths_of(repository)
    assert calls == [("worktree", "list", "--porcelain")]


def test_only_one_of_us_at_a_time(main_checkout: Checkout, repository: Repository) -> None:
    order: list[str] = []

    def look() -> None:
        paths_of(repository)
        order.append("the other")

    other = threading.Thread(target=look)
    with administration.lock_worktrees(repository) as alone:
        assert alone
        other.start()
        other.join(0.2)
        order.append("who had it")
    other.join()
    assert order == ["who had it", "the other"]


class TestFilesOfAWorktree:
    """A kill during a write leaves no partial file for the next capture."""

    def test_one_of_ours(self, checkout: Checkout) -> None:
        checkout.commit("one", notes="old\n")
        there = repository_of(checkout)
        die_at_rename(
            "notes",
            lambda: administration.write_worktree_file(
                there, str(checkout.path / "notes"), b"new\n"
            ),
        )
        assert checkout.git("status", "--porcelain", "--ignored", "--untracked-files=all") == ""
        left = [
            name
            for name in os.listdir(there.git_dir)
            if name.startswith(administration.WORKTREE_SCRATCH)
        ]
        assert len(left) == 1
        administration.write_worktree_file(there, str(checkout.path / "notes"), b"new\n")
        assert (checkout.path / "notes").read_text() == "new\n"

    def test_its_git_file(self, main_checkout: Checkout, tmp_path: Path) -> None:
        path = tmp_path / "linked"
        main_checkout.git("worktree", "add", "--detach", str(path))
        moved = main_checkout.path.rename(tmp_path / "moved")
        there = repository_of(Checkout(moved))
        die_at_rename(".git", lambda: administration.repair_worktree(there, str(path)))
        assert [name for name in os.listdir(path) if name.startswith("..git")] == []
        administration.repair_worktree(there, str(path))
        assert administration.git_dir_of(str(path)) == str(moved / ".git/worktrees/linked")

    def test_on_another_file_system_it_lies_beside_it(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        others = [place for place in ("/dev/shm", "/tmp", "/var/tmp") if os.path.isdir(place)]
        other = next(
            (place for place in others if os.stat(place).st_dev != os.stat(tmp_path).st_dev), None
        )
        if other is None:
            pytest.skip("there is one file system only")
        with tempfile.TemporaryDirectory(dir=other) as place:
            administration.write_worktree_file(repository, f"{place}/notes", b"new\n")
            assert os.listdir(place) == ["notes"]
