"""Minimal cases of failures that the machine of `test_worktree_machine.py` found."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.git.worktree import administration
from gitckpt.store.records.ref_names import WorktreeOwner
from gitckpt.store.store import checkpoints_of_store
from gitckpt.store.worktrees import ownership
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, view
from tests.store.snapshot.worktree_model import Place


@pytest.fixture
def store(make_store: MakeStore, checkout: Checkout) -> Store:
    """The store of `checkout`, through the default adapter."""
    return make_store(checkout)


def conflicting_picks(here: Checkout) -> None:
    """Stop a cherry-pick of two commits at a conflict in the first."""
    base = here.git("rev-parse", "HEAD")
    picked = [here.commit(f"pick {number}", README=f"picked {number}\n") for number in range(2)]
    here.git("reset", "--quiet", "--hard", base)
    here.commit("ours", README="ours\n")
    here.git("cherry-pick", *picked, ok=(1,))


def test_intent_to_add_over_a_file_of_the_commit(store: Store, checkout: Checkout) -> None:
    checkout.git("rm", "--quiet", "--cached", "README")
    checkout.git("add", "--intent-to-add", "README")
    expected = view(checkout.path)
    assert view(store.resume(store.save("a-complete", {})).path) == expected


@pytest.mark.long
def test_a_cherry_pick_of_several_commits_after_a_reset_is_still_in_progress(
    store: Store, checkout: Checkout
) -> None:
    conflicting_picks(checkout)
    before = store.save("a-complete", {})
    checkout.git("reset", "--quiet")
    expected = Place(str(checkout.path)).look()
    assert store.capture().operation == "cherry-pick"
    store.restore(before)
    store.undo()
    assert Place(str(checkout.path)).look().lasting() == expected.lasting()


def test_the_tree_of_an_automatic_merge_outlives_a_gc(store: Store, checkout: Checkout) -> None:
    conflicting_picks(checkout)
    expected = checkout.git("rev-parse", "AUTO_MERGE")
    made = store.save("a-complete", {})
    checkout.git("gc", "--quiet", "--prune=now")
    there = Checkout(Path(store.resume(made).path))
    assert there.git("rev-parse", "AUTO_MERGE") == expected
    assert there.git("cat-file", "-t", "AUTO_MERGE") == "tree"


def test_a_directory_that_becomes_a_link_to_itself(store: Store, checkout: Checkout) -> None:
    checkout.commit("a directory", **{"d/x": "x"})
    made = store.save("a-complete", {})
    (checkout.path / "d" / "x").unlink()
    (checkout.path / "d").rmdir()
    (checkout.path / "d").symlink_to("d")
    assert store.capture().omitted == ()
    store.restore(made)
    assert (checkout.path / "d" / "x").read_text() == "x"
    store.undo()
    assert os.readlink(checkout.path / "d") == "d"


class TestIgnoredFiles:
    """A restore keeps files that the rules before or after it ignore."""

    def test_stay_where_the_snapshot_does_not_ignore_them(
        self, store: Store, checkout: Checkout
    ) -> None:
        made = store.save("a-complete", {})
        checkout.write(".gitignore", "*.o\n")
        checkout.write("a.o", "x")
        store.restore(made)
        assert [name for name in sorted(os.listdir(checkout.path)) if name != ".git"] == [
            "README",
            "a.o",
        ]
        store.undo()
        assert [name for name in sorted(os.listdir(checkout.path)) if name != ".git"] == [
            ".gitignore",
            "README",
            "a.o",
        ]

    def test_outside_of_the_paths_are_not_missed(self, store: Store, checkout: Checkout) -> None:
        checkout.write("d/new", "x")
        made = store.save("a-complete", {})
        checkout.write(".gitignore", "*\n")
        checkout.write("README", "changed\n")
        store.restore(made, [b"README"], index=True)
        assert (checkout.path / "README").read_text() == "hello\n"

    def test_inside_of_the_paths_come_back(self, store: Store, checkout: Checkout) -> None:
        checkout.write("d/new", "x")
        checkout.write("d/gone", "y")
        made = store.save("a-complete", {})
        (checkout.path / "d" / "gone").unlink()
        checkout.write(".gitignore", "*\n")
        store.restore(made, [b"d"])
        assert sorted(os.listdir(checkout.path / "d")) == ["gone", "new"]

    def test_are_in_the_way_of_a_tracked_file_that_was_deleted(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.write("a.o", "tracked")
        checkout.git("add", "a.o")
        (checkout.path / "a.o").unlink()
        made = store.save("a-complete", {})
        checkout.git("rm", "--quiet", "--cached", "a.o")
        checkout.write(".gitignore", "*.o\n")
        checkout.write("a.o", "ignored")
        expected = Place(str(checkout.path)).look()
        store.restore(made)
        assert checkout.git("status", "--porcelain") == "AD a.o"
        store.undo()
        assert Place(str(checkout.path)).look().lasting() == expected.lasting()


def test_a_file_that_was_touched_is_replaced(store: Store, checkout: Checkout) -> None:
    checkout.write("README", "saved\n")
    made = store.save("a-complete", {})
    checkout.git("checkout", "--quiet", "README")
    os.utime(checkout.path / "README", (1, 1))
    store.restore(made)
    assert (checkout.path / "README").read_text() == "saved\n"


@pytest.mark.long
def test_an_entry_assumed_unchanged_becomes_one_in_conflict(
    store: Store, checkout: Checkout
) -> None:
    conflicting_picks(checkout)
    made = store.save("a-complete", {})
    conflict = checkout.git("ls-files", "--stage")
    checkout.git("reset", "--quiet", "--hard")
    checkout.git("update-index", "--assume-unchanged", "README")
    store.restore(made, [b"README"], index=True)
    assert checkout.git("ls-files", "--stage") == conflict


def test_attributes_that_came_after_the_file(store: Store, checkout: Checkout) -> None:
    """Git takes the file for unchanged by its time stamp, but would store other bytes."""
    checkout.write("a.txt", "one\r\ntwo\r\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "with CRLF")
    checkout.write(".gitattributes", "*.txt text eol=crlf\n")
    made = store.save("a-complete", {})
    checkout.write("a.txt", "other\n")
    store.restore(made)
    assert (checkout.path / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    opened = store.resume(made)
    assert (Path(opened.path) / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_worktree_that_another_process_makes_is_not_the_run_s_yet(
    store: Store, checkout: Checkout, tmp_path: Path
) -> None:
    made = store.save("a-complete", {})
    half = tmp_path / f"{ownership.BEING_MADE}0a1b2c3d" / "20261127-login"
    checkout.git("worktree", "add", "--quiet", "--detach", str(half))
    there = administration.open_linked_worktree(checkpoints_of_store(store).repository, str(half))
    assert there is not None
    with closing(there):
        ownership.write_owner(there, WorktreeOwner(made.id, "20261127-login"))
    assert ownership.worktrees_of_runs(checkpoints_of_store(store).repository) == {}
    half.rename(tmp_path / half.name)
    administration.repair_worktree(
        checkpoints_of_store(store).repository, str(tmp_path / half.name)
    )
    assert ownership.worktrees_of_runs(checkpoints_of_store(store).repository) == {
        "20261127-login": str(tmp_path / half.name)
    }
