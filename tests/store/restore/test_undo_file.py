"""Pipes, links and directories in place of the undo file block no command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Query, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.stores import git_dir, private_dir

UNDO = "ckpt-undo"


def put(place: Path, what: str) -> None:
    place.unlink(missing_ok=True)
    if what == "a pipe":
        os.mkfifo(place)
    elif what == "a directory":
        place.mkdir()
    else:
        place.symlink_to(place.name)


@pytest.mark.parametrize("what", ["a pipe", "a link to itself", "a directory"])
def test_what_lies_in_the_place_of_a_file(
    main_checkout: Checkout, make_store: MakeStore, what: str
) -> None:
    main_checkout.write("new", "one\n")
    with make_store(main_checkout) as store:
        saved = store.save("one-complete")
    put(main_checkout.path / ".git" / UNDO, what)
    main_checkout.write("new", "two\n")
    with make_store(main_checkout) as store:
        if what == "a directory":
            with pytest.raises(WorktreeError) as caught:
                store.restore(saved)
            assert caught.value.hint == (
                "move the directory away: "
                f"mv {main_checkout.path}/.git/{UNDO} {main_checkout.path}/.git/{UNDO}.old"
            )
            assert (main_checkout.path / "new").read_text() == "two\n"
        else:
            store.restore(saved)
            assert (main_checkout.path / "new").read_text() == "one\n"


@pytest.mark.parametrize("what", ["a pipe", "a link to itself", "a directory"])
def test_what_lies_in_the_place_of_a_list_of_documents(
    main_checkout: Checkout, make_store: MakeStore, what: str
) -> None:
    with make_store(main_checkout) as store:
        run = str(store.record("run-started", start="Add login!").run)
        store.record("plan-complete")
        private = Path(private_dir(store))
        for place in (private / "chains" / run, private / "written"):
            put(place, what)
    with make_store(main_checkout) as store:
        store.record("plan-complete", run=run)
        store.record("plan-complete")
        assert not any(store.is_ours(entry.id) for entry in store.list(Query(run=run)))
        assert len(store.list()) == 4


def test_what_was_fetched_is_no_step_back(
    main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    main_checkout.write("README", "one\n")
    with make_store(main_checkout) as store:
        saved = store.save("one-complete")
        main_checkout.write("README", "two\n")
        store.restore(saved)
    clone = Checkout(tmp_path / "clone")
    main_checkout.git("clone", "--quiet", str(main_checkout.path), str(clone.path))
    clone.git(
        "fetch",
        "--quiet",
        "origin",
        "refs/checkpoints/*:refs/checkpoints/*",
        "refs/ckpt/*:refs/ckpt/*",
    )
    before = clone.fingerprint()
    with make_store(clone) as other:
        assert other.undo_steps() == []
        with pytest.raises(NotFoundError, match="nothing was restored in this worktree"):
            other.undo()
        assert clone.fingerprint() == before
        clone.write("README", "three\n")
        other.restore(saved)
        other.undo()
        with pytest.raises(NotFoundError, match="no earlier restore is left"):
            other.undo()
    assert (clone.path / "README").read_text() == "three\n"


def test_a_worktree_takes_no_step_of_an_earlier_one_with_its_name(
    main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    linked = Checkout(tmp_path / "linked")
    for is_again in (False, True):
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(linked.path))
        with make_store(linked) as store:
            assert store.undo_steps() == []
            if not is_again:
                saved = store.save("one-complete")
                linked.write("README", "two\n")
                store.restore(saved)
                Path(git_dir(store), UNDO).unlink()
                assert len(store.undo_steps()) == 1  # the file may be lost
        main_checkout.git("worktree", "remove", "--force", str(linked.path))
