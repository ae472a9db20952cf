"""Worktrees of git-annex can be resumed, and no content is stored twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Checkout
from tests.store.conftest import MakeStore

pytestmark = [
    pytest.mark.skipif(shutil.which("git-annex") is None, reason="git-annex is not installed"),
    pytest.mark.long,
]

LOCKED, UNLOCKED, LATER = (bytes([number]) * 50_000 for number in (1, 2, 3))


@pytest.fixture
def annexed(main_checkout: Checkout) -> Checkout:
    """A worktree with a locked, an unlocked, and a plain file."""
    main_checkout.git("annex", "init", "--quiet", "here")
    main_checkout.write("locked.bin", LOCKED)
    main_checkout.git("annex", "add", "--quiet", "locked.bin")
    main_checkout.write("free.bin", UNLOCKED)
    main_checkout.git("annex", "add", "--quiet", "free.bin")
    main_checkout.git("annex", "unlock", "--quiet", "free.bin")
    main_checkout.write("small", "x\n")
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "annexed")
    return main_checkout


def contents(top: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(top).iterdir() if path.is_file()}


def sizes(here: Checkout) -> int:
    """Return the size in bytes of the largest object in git."""
    listed = here.git("cat-file", "--batch-all-objects", "--batch-check=%(objectsize)")
    return max(map(int, listed.split()))


def test_a_worktree_opens_and_has_the_contents(annexed: Checkout, make_store: MakeStore) -> None:
    store = make_store(annexed)
    annexed.write("new", "1\n")
    made = store.save("a-complete", {})
    opened = store.resume(made)
    assert contents(opened.path) == contents(annexed.path)
    assert contents(opened.path)["free.bin"] == UNLOCKED
    there = Checkout(Path(opened.path), annexed.path)
    assert there.git("status", "--porcelain") == "?? new"
    assert os.path.realpath(there.path / ".git").startswith(
        os.path.realpath(annexed.path / ".git/worktrees")
    )
    again = store.resume(made)
    assert (again.made, again.path) == (False, opened.path)
    bare_commit = store.record("b-complete", {})
    assert contents(store.resume(bare_commit).path)["free.bin"] == UNLOCKED


def test_a_clean_worktree_is_not_stored_once_more(annexed: Checkout, make_store: MakeStore) -> None:
    with make_store(annexed) as store:
        made = store.save("a-complete", {})
        assert made.worktree is not None
        assert (made.worktree.dirty, made.worktree.converted) == (False, ())
    assert sizes(annexed) < len(UNLOCKED)


def test_an_unlocked_file_that_changed_comes_back(annexed: Checkout, make_store: MakeStore) -> None:
    store = make_store(annexed)
    annexed.write("free.bin", LATER)
    made = store.save("a-complete", {})
    assert sizes(annexed) < len(UNLOCKED)
    annexed.git("checkout", "--force", "--quiet", "free.bin")
    annexed.write("free.bin", UNLOCKED + b"\n")
    store.restore(made)
    assert contents(annexed.path)["free.bin"] == LATER
    store.undo()
    assert contents(annexed.path)["free.bin"] == UNLOCKED + b"\n"
    store.redo()
    assert contents(annexed.path)["free.bin"] == LATER
    annexed.write("free.bin", UNLOCKED)
    store.restore(made, [b"free.bin"])
    assert contents(annexed.path)["free.bin"] == LATER
    assert contents(store.resume(made).path)["free.bin"] == LATER


def test_a_pointer_without_content_comes_back_as_one(
    annexed: Checkout, make_store: MakeStore
) -> None:
    store = make_store(annexed)
    annexed.git("annex", "drop", "--quiet", "--force", "free.bin")
    pointer = contents(annexed.path)["free.bin"]
    assert pointer.startswith(b"/annex/objects/")
    annexed.write("new", "1\n")
    made = store.save("a-complete", {})
    assert contents(store.resume(made).path)["free.bin"] == pointer


def test_a_run_is_removed_with_its_worktree_and_no_content(
    annexed: Checkout, make_store: MakeStore
) -> None:
    store = make_store(annexed)
    first = store.record("run-started", {}, start="hand")
    opened = store.resume(first)
    there = Checkout(Path(opened.path), annexed.path)
    there.commit("work", work="1\n")
    seen = make_store(there.path)
    seen.save("run-complete", {}, run=first.run)
    seen.close()
    place = annexed.git(
        "annex",
        "contentlocation",
        annexed.git("cat-file", "blob", "HEAD:free.bin").rpartition("/")[2],
    )
    store.remove_run(str(first.run))
    assert not there.path.exists()
    assert (annexed.path / place).read_bytes() == UNLOCKED
    assert (annexed.path / "locked.bin").read_bytes() == LOCKED
