"""A save leaves any kind of worktree alone; restore and resume return its state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout
from tests.store import kinds
from tests.store.conftest import MakeStore, blob
from tests.store.kinds import CELLS, KINDS, MANY_FILES, PLAIN, SUBMODULES, Cell

pytestmark = pytest.mark.long


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Cell:
    """A cell of the matrix, with a newer git if the cell needs reftables."""
    wanted: Cell = request.param
    if wanted.refs == "reftable":
        request.getfixturevalue("newer_git")
    return wanted


@pytest.fixture
def here(cell: Cell, tmp_path: Path) -> Iterator[Checkout]:
    """The worktree of a cell."""
    made = kinds.build(cell, tmp_path)
    yield made
    if (
        cell.kind.name == "fsmonitor"
    ):  # git status has started a daemon in each worktree, where there is one for this system
        for line in made.git("worktree", "list", "--porcelain").splitlines():
            if line.startswith("worktree "):
                Checkout(Path(line.removeprefix("worktree "))).git(
                    "fsmonitor--daemon", "stop", ok=(0, 1, 128)
                )


WAITING = {
    "sparse no-cone",
    "sparse index",
    "untracked cache",
    "fsmonitor",
    "shallow",
    "autocrlf",
    "case ignored",
    "lfs",
    "submodules",
}
"""Kinds only in the lane `long`: they are slow, or resemble another kind."""


def is_of_the_half(cell: Cell) -> bool:
    """Return whether a cell is one of its kind's four that cover all pairs of options."""
    return (cell.place == "linked") ^ (cell.hashing == "sha256") == (cell.refs == "reftable")


def is_first(cell: Cell) -> bool:
    """Return whether a cell is the first of its kind; the plain kind has two."""
    has_its_turn = (cell.place == "linked") == (KINDS.index(cell.kind) % 2 == 0)
    return has_its_turn and is_of_the_half(cell) and (cell.refs == "files" or cell.kind is PLAIN)


FIRST = [str(cell) for cell in CELLS if is_first(cell) and cell.kind.name not in WAITING]


@pytest.mark.long(but=FIRST, spare=[str(cell) for cell in CELLS if not is_of_the_half(cell)])
@pytest.mark.parametrize("cell", CELLS, ids=str, indirect=True)
def test_there_and_back(cell: Cell, here: Checkout, make_store: MakeStore) -> None:
    submodules = SUBMODULES if cell.kind.name == "submodules" else ()
    kinds.enrich(here, cell.kind)
    expected = kinds.seen(here)
    assert (expected["merging"] != "", "\0u UU " in expected["status"]) == (True, True)
    store = make_store(here, "auto")
    before, refs = kinds.kept(here), kinds.own_refs(here)
    made = store.save("a-complete", {})
    assert (kinds.kept(here), kinds.own_refs(here)) == (before, refs)
    found = made.worktree
    assert found is not None
    assert (found.dirty, found.degraded, found.converted, found.operation) == (
        True,
        None,
        (),
        "merge",
    )
    assert [entry.path for entry in found.submodules] == list(submodules)
    assert kinds.seen(here) == expected

    (kinds.reset if cell.hashing == "sha1" else kinds.lose_index)(here)
    kinds.wreck(here)
    assert kinds.seen(here) != expected
    assert store.restore(made).remarks == []
    assert kinds.seen(here) == expected

    kinds.require_resumed(here, store, made, submodules)
    assert kinds.own_refs(here) == refs


def is_same(one: object, other: object) -> bool:
    """Return whether two views are equal; pytest takes minutes to compare many files."""
    return one == other


@pytest.mark.long
def test_many_files(make_store: MakeStore, tmp_path: Path) -> None:
    here = kinds.build(Cell(MANY_FILES, "linked", "sha1", "files"), tmp_path)
    for number in range(0, 100, 2):
        here.write(f"{number:03}/{number:03}200", "changed\n")
        (here.path / f"{number:03}/{number:03}201").unlink()
        here.write(f"{number:03}/new", "untracked\n")
    here.git("add", "000", "002")
    here.write("000/new", "changed again\n")
    expected = kinds.seen(here)
    assert len(expected["files"]) == kinds.MANY
    store = make_store(here, "auto")
    before = kinds.kept(here)
    made = store.save("a-complete", {})
    assert kinds.kept(here) == before
    for number in range(0, 100, 4):
        shutil.rmtree(here.path / f"{number:03}")
        for name in range(50):
            here.write(f"{number + 1:03}/{number + 1:03}{name:03}", "scrambled")
    kinds.lose_index(here)
    done = store.restore(made).changes
    assert sum(change.kind != "stage" for change in done) == 25 * (kinds.MANY // 100 + 50)
    assert is_same(kinds.seen(here), expected)
    assert is_same(kinds.seen(Checkout(Path(store.resume(made).path))), expected)


def test_a_monitor_is_neither_believed_nor_run(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """The monitor always reports that nothing has changed, and git believes it."""
    ran = tmp_path / "ran"
    hook = main_checkout.write(".git/monitor", f"#!/bin/sh\ntouch '{ran}'\nprintf 'token\\0'\n")
    hook.chmod(0o755)
    main_checkout.git("config", "core.fsmonitor", str(hook))
    main_checkout.git("update-index", "--fsmonitor")
    assert main_checkout.git("status", "--porcelain") == ""
    ran.unlink()
    main_checkout.write("README", "changed\n")
    main_checkout.write("new", "x")
    made = plain.save("a-complete", {})
    listing = main_checkout.git(
        "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}"
    ).splitlines()
    assert (listing, blob(main_checkout, f"refs/ckpt/trees/{made.id}:files/README")) == (
        ["files/README", "files/new"],
        b"changed\n",
    )
    main_checkout.write("README", "changed once more\n")
    assert [change.path for change in plain.restore(made).changes] == [b"README"]
    opened = Path(plain.resume(made).path)
    assert not ran.exists()
    for top in (main_checkout.path, opened):
        assert ((top / "README").read_text(), (top / "new").read_text()) == ("changed\n", "x")


@pytest.mark.long
def test_a_submodule_that_is_left_alone_stays_where_it_is(
    make_store: MakeStore, tmp_path: Path
) -> None:
    kind = next(kind for kind in kinds.KINDS if kind.name == "submodules")
    here = kinds.build(Cell(kind, "main", "sha1", "files"), tmp_path)
    here.git("config", "ckpt.submodules", "none")
    here.write("README", "changed\n")
    store = make_store(here)
    was = here.git("rev-parse", "HEAD:sub/moved")
    made = store.save("a-complete", {})
    moved = Checkout(here.path / "sub/moved")
    head = moved.commit("moved on", inner="ii\n")
    moved.write("inner", "not committed\n")
    here.git("add", "sub/moved")
    here.write("README", "changed once more\n")
    before = here.git("status", "--porcelain=v2")
    done = store.restore(made)
    assert [(change.kind, change.path) for change in done.changes] == [
        ("change", b"README"),
        ("stage", b"sub/moved"),
    ]
    assert done.remarks == [f"the submodule sub/moved is not changed; it was at {was} then"]
    assert (moved.git("rev-parse", "HEAD"), (moved.path / "inner").read_text()) == (
        head,
        "not committed\n",
    )
    assert here.git("status", "--porcelain=v2").splitlines() == [
        here.git("status", "--porcelain=v2", "README"),
        f"1 .M SCM. 160000 160000 160000 {was} {was} sub/moved",
    ]
    store.undo()
    assert here.git("status", "--porcelain=v2") == before


@pytest.mark.parametrize("order", ["narrowed", "widened"])
def test_sparse_patterns_that_have_changed(
    order: str, make_store: MakeStore, tmp_path: Path
) -> None:
    """Unmodified files may be missing; modified ones come back whatever the patterns."""
    here = kinds.build(Cell(PLAIN, "main", "sha1", "files"), tmp_path)
    here.git(
        "sparse-checkout", "set", "--cone", *(["in", "out"] if order == "narrowed" else ["in"])
    )
    here.write("in/text", "changed\n")
    if order == "narrowed":
        here.write("out/there", "changed, too\n")
        (here.path / "out/kept").unlink()
    store = make_store(here)
    made = store.save("a-complete", {})
    here.git("reset", "--quiet", "--hard")
    here.git(
        "sparse-checkout", "set", "--cone", *(["in"] if order == "narrowed" else ["in", "out"])
    )
    store.restore(made)
    out = {
        name: content
        for name, (_, content) in kinds.files(here.path).items()
        if name.startswith(b"out/")
    }
    flags = here.git("ls-files", "-v", "out").splitlines()
    status = here.git("status", "--short").splitlines()
    if order == "narrowed":
        assert out == {b"out/there": b"changed, too\n"}
        assert flags == ["S out/deep/er", "H out/kept", "H out/there"]
        assert status == [" M in/text", " D out/kept", " M out/there"]
    else:
        assert out == {b"out/deep/er": b"e\n", b"out/kept": b"o\n", b"out/there": b"o\n"}
        assert flags == ["H out/deep/er", "H out/kept", "H out/there"]
        assert status == [" M in/text"]
