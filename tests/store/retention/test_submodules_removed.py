"""A run's worktree goes only where its submodules' contents exist elsewhere.

Their checkpoints stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.store.retention.worktree import reason_not_to_remove, remove_worktree
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.audit.verifying import look, told
from tests.store.conftest import MakeStore
from tests.store.submodules import named, names, settled
from tests.store.working import Work

pytestmark = pytest.mark.long


@pytest.fixture
def work(plain: Store, make_store: MakeStore, lib: Checkout) -> Work:
    """A run with an unpushed commit in `lib`, and changed files in both submodules."""
    first = plain.save("run-started", {}, start="r")
    path = plain.resume(first).path
    theirs, inner = Checkout(Path(path) / "lib"), Checkout(Path(path) / "lib" / "inner")
    theirs.git("checkout", "--quiet", "--detach")
    theirs.commit("not pushed", more="x\n")
    theirs.write("l", "changed there\n")
    inner.write("new", "x\n")
    with make_store(path) as store:
        newest = store.save("run-complete", {}, run=first.run)
    return Work(str(first.run), Checkout(Path(path)), newest)


def test_its_checkpoints_stay(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout, work: Work
) -> None:
    theirs = [Checkout(work.worktree.path / name) for name in ("", "lib", "lib/inner")]
    before = [(commit, status, contents) for _, commit, status, contents in settled(*theirs)]
    assert reason_not_to_remove(checkpoints_of_store(plain), work.run) is None
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None
    assert not work.worktree.path.exists()
    assert named(work.newest)[0] in names(lib)
    plain.close()
    assert [told(look(one)) for one in (main_checkout, lib, inner)] == [[], [], []]
    lib.git("gc", "--quiet", "--prune=now")
    opened = plain.resume(work.newest)
    assert opened.remarks == ()
    assert [
        (commit, status, contents) for _, commit, status, contents in settled(*theirs)
    ] == before


def change(lib: Checkout, _: Checkout) -> None:
    lib.write("l", "changed since\n")


def commit(lib: Checkout, _: Checkout) -> None:
    lib.commit("since", more="y\n")


def branch(lib: Checkout, _: Checkout) -> None:
    lib.git("branch", "lone", lib.git("commit-tree", "HEAD^{tree}", "-m", "nobody has it"))


def stash(lib: Checkout, _: Checkout) -> None:
    lib.write("l", "stashed\n")
    lib.git("stash", "--quiet")
    lib.write("l", "changed there\n")


def change_within(_: Checkout, inner: Checkout) -> None:
    inner.write("new", "changed since\n")


def branch_within(_: Checkout, inner: Checkout) -> None:
    inner.git("branch", "lone", inner.git("commit-tree", "HEAD^{tree}", "-m", "nobody has it"))


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        (change, "the submodule lib"),
        (commit, "the submodule lib"),
        (branch, "lone ("),
        (stash, "refs/stash ("),
        (change_within, "the submodule lib"),
        (branch_within, "lone ("),
    ],
)
def test_what_nobody_else_has_keeps_it(
    plain: Store, work: Work, do: Callable[[Checkout, Checkout], None], reason: str
) -> None:
    do(Checkout(work.worktree.path / "lib"), Checkout(work.worktree.path / "lib" / "inner"))
    said = remove_worktree(checkpoints_of_store(plain), work.run)
    assert said is not None
    assert reason in said.partition("has contents that no checkpoint has: ")[2]
    assert work.worktree.path.is_dir()


def test_a_checkpoint_of_its_own_keeps_it(plain: Store, work: Work, make_store: MakeStore) -> None:
    with make_store(work.worktree.path / "lib") as store:
        own = store.record("own-complete", {"n": 1})
    said = remove_worktree(checkpoints_of_store(plain), work.run)
    assert said is not None
    assert said.endswith(f"checkpoint {own.id} in submodule lib")
