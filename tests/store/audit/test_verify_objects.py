"""`verify` checks that every object of a checkpoint exists, down to blobs.

Partial and shallow clones lack only what git allows them to lack.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint
from tests.conftest import Checkout, MakeOnce, git_program
from tests.damaging import place_of
from tests.store.audit.verifying import look, put, require_left, told
from tests.store.conftest import ONE, TWO, MakeStore


def lacking(name: str, *oids: str) -> tuple[str, str, str]:
    """Return the finding for a checkpoint that lacks objects."""
    names = ", ".join(sorted(oids))
    verb = "is" if len(oids) == 1 else "are"
    return (
        "objects-missing",
        f"refs/checkpoints/{name}",
        f"{names} {verb} missing or damaged; files or history of the checkpoint need this",
    )


@pytest.fixture
def filled(main_checkout: Checkout, make_store: MakeStore, make_once: MakeOnce) -> Checkout:
    """A checkpoint of a clean worktree, then a commit and one with a new file."""

    def fill() -> None:
        main_checkout.commit("second", **{"deep/a": "a\n"})
        with make_store(main_checkout) as store:
            store.save("one-complete")
            main_checkout.commit("third", README="third\n")
            main_checkout.write("new/file", "work\n")
            store.save("two-complete")
        assert told(look(main_checkout)) == []

    make_once(main_checkout, fill)
    return main_checkout


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rev", "whose"),
    [
        (f"refs/ckpt/trees/{TWO}:files/new/file", [TWO]),
        (f"refs/ckpt/trees/{TWO}:files/new", [TWO]),
        (f"refs/ckpt/trees/{TWO}:files", [TWO]),
        ("HEAD~1:deep/a", [ONE, TWO]),
        ("HEAD~1:deep", [ONE, TWO]),
        ("HEAD~2:", [ONE, TWO]),
        ("HEAD~1:README", [ONE, TWO]),
        ("HEAD:README", [TWO]),
    ],
)
def test_an_object_is_missing(filled: Checkout, tmp_path: Path, rev: str, whose: list[str]) -> None:
    """The suggested fetch brings the object, even below commits that exist here."""
    shutil.copytree(filled.main / ".git", tmp_path / "REMOTE")
    oid = filled.git("rev-parse", rev)
    place_of(filled, oid).unlink()
    found = [lacking(name, oid) for name in whose]
    seen = require_left(filled, found)
    name, fetch = whose[0][:8], f"git fetch --refetch --no-tags REMOTE {oid}"
    assert seen.findings[0].cure == (
        f"fetch from a clone that has it: {fetch}; "
        f"or give the checkpoint up: git ckpt remove {name}"
    )
    filled.git(*fetch.replace("REMOTE", str(tmp_path / "REMOTE")).split()[1:])
    assert told(look(filled)) == []


@pytest.mark.parametrize("with_graph", [False, True])
def test_a_commit_of_the_history_is_missing(filled: Checkout, with_graph: bool) -> None:
    """A missing commit is found even where a commit-graph hides it from git."""
    if with_graph:
        filled.git("commit-graph", "write", "--reachable")
    oid = filled.git("rev-parse", "HEAD~2")
    place_of(filled, oid).unlink()
    require_left(filled, [lacking(ONE, oid), lacking(TWO, oid)])


@pytest.mark.parametrize("left", [None, b"x", b""])
def test_the_linked_commit_is_missing_or_damaged(filled: Checkout, left: bytes | None) -> None:
    oid = filled.git("rev-parse", "HEAD")
    place_of(filled, oid).unlink()
    if left is not None:
        place_of(filled, oid).write_bytes(left)
    sentence = (
        f"this object file is empty, perhaps after a power cut: git will not rewrite object {oid}"
    )
    empty = [("object-empty", str(place_of(filled, oid)), sentence)] if left == b"" else []
    branch = (
        "ref-target-missing",
        "refs/heads/main",
        f"points to {oid}, which is missing or damaged: every git gc fails",
    )
    assert told(look(filled)) == [branch, lacking(TWO, oid), *empty]


@pytest.mark.parametrize("rev", ["HEAD~2", "HEAD~1:deep", f"refs/ckpt/trees/{TWO}:files"])
def test_an_object_is_damaged(filled: Checkout, rev: str) -> None:
    oid = filled.git("rev-parse", rev)
    place_of(filled, oid).chmod(0o644)
    place_of(filled, oid).write_bytes(b"x")
    assert told(look(filled)) == [
        lacking(name, oid) for name in ([ONE, TWO] if "HEAD" in rev else [TWO])
    ]


def test_a_tree_that_was_never_one(main_checkout: Checkout) -> None:
    oid = main_checkout.git(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=b"nonsense"
    )
    commit = main_checkout.git(
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--literally",
        "--stdin",
        data=f"tree {oid}\nparent of none\n\nx",
    )
    put(
        main_checkout,
        Checkpoint(ONE, "a-complete", "2027-01-15T08:00:00.000000Z", commit, "manual"),
    )
    main_checkout.git("update-ref", f"refs/keep/ckpt/{commit}", commit)
    main_checkout.git(
        "notes",
        "--ref=checkpoints",
        "add",
        "-m",
        f"{ONE} a-complete 2027-01-15T08:00:00.000000Z",
        commit,
    )
    assert told(look(main_checkout)) == [lacking(ONE, oid, "of none")]


def test_many_missing_objects_are_named_in_part(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    for i in range(6):
        main_checkout.write(f"d/{i}", f"{i}\n")
    with make_store(main_checkout) as store:
        store.save("one-complete")
    oids = main_checkout.git(
        "ls-tree", "-r", "--format=%(objectname)", f"refs/ckpt/trees/{ONE}:files/d"
    ).splitlines()
    for oid in oids[:5]:
        place_of(main_checkout, oid).unlink()
    ((code, _, sentence),) = told(look(main_checkout))
    names, _, rest = sentence.partition(" and others")
    assert (code, rest) == (
        "objects-missing",
        " are missing or damaged; files or history of the checkpoint need this",
    )
    assert len(set(names.split(", ")) & set(oids[:5])) == 3


def test_submodules_are_other_repositories(main_checkout: Checkout, make_store: MakeStore) -> None:
    main_checkout.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    main_checkout.git("commit", "--quiet", "-m", "with a submodule")
    with make_store(main_checkout) as store:
        store.record("one-complete")
    assert told(look(main_checkout)) == []
    oid = main_checkout.git("rev-parse", "HEAD:README")
    place_of(main_checkout, oid).unlink()
    assert told(look(main_checkout)) == [lacking(ONE, oid)]


def clone(origin: Checkout, path: Path, *options: str) -> Checkout:
    subprocess.run(
        [git_program(), "clone", "--quiet", *options, f"file://{origin.path}", str(path)],
        check=True,
    )
    return Checkout(path)


def test_a_shallow_clone(
    make_checkout: Callable[..., Checkout], make_store: MakeStore, tmp_path: Path
) -> None:
    origin = make_checkout("origin")
    for i in range(4):
        origin.commit(f"{i}", README=f"{i}\n", other="same\n")
    shallow = clone(origin, tmp_path / "shallow", "--depth=2")
    shallow.write("new", "work\n")
    with make_store(shallow) as store:
        store.save("one-complete")
    assert told(look(shallow)) == []
    blob = shallow.git("rev-parse", f"refs/ckpt/trees/{ONE}:files/new")
    place_of(shallow, blob).unlink()
    assert told(look(shallow)) == [lacking(ONE, blob)]


@pytest.fixture
def partial(
    make_checkout: Callable[..., Checkout], make_store: MakeStore, tmp_path: Path
) -> Checkout:
    """An offline, sparse clone without blobs, with one checkpoint.

    The checkpoint has a local commit and a new file.
    """
    origin = make_checkout("origin")
    origin.git("config", "uploadpack.allowFilter", "true")
    for i in range(3):
        origin.commit(f"{i}", **{"README": f"{i}\n", f"deep/{i}": f"{i}\n"})
    made = clone(origin, tmp_path / "partial", "--filter=blob:none", "--sparse")
    made.commit("mine", mine="mine\n")
    made.write("new", "work\n")
    with make_store(made) as store:
        store.save("one-complete")
    origin.path.rename(tmp_path / "away")
    return made


def test_a_partial_clone_lacks_what_was_promised(partial: Checkout) -> None:
    packs = sorted(os.listdir(partial.path / ".git/objects/pack"))
    assert "?" in partial.git("rev-list", "--objects", "--missing=print", "HEAD")
    assert told(look(partial)) == []
    assert sorted(os.listdir(partial.path / ".git/objects/pack")) == packs


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rev", ["HEAD:mine", f"refs/ckpt/trees/{ONE}:files/new", "HEAD:"])
def test_a_partial_clone_lacks_what_nobody_promised(partial: Checkout, rev: str) -> None:
    oid = partial.git("rev-parse", rev)
    place_of(partial, oid).unlink()
    assert told(look(partial)) == [lacking(ONE, oid)]
