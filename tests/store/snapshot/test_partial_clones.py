"""Partial clones fetch only the objects needed, at once, and name missing ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gitckpt import Checkpoint, CkptError, Store, Worktree, WorktreeError
from tests.conftest import Checkout, git_program
from tests.store.conftest import MakeStore

pytestmark = pytest.mark.turns("clone")

VERSIONS = 3
FILES = ("README", "in/a", "in/b", "out/x", "out/y")
HINT = "this is a partial clone: run the command again when its remote can be reached"


def content(name: str, version: int) -> str:
    """Return the content of a file in a version; `b` and `y` never change."""
    return f"{name} {0 if name[-1] in 'by' else version}\n"


class Clone(Checkout):
    """A partial clone, or a linked worktree of one."""

    def missing(self) -> set[str]:
        """Return the missing objects of the history, without fetching them."""
        lines = self.git(
            "rev-list", "--objects", "--missing=print", "refs/remotes/origin/main"
        ).splitlines()
        return {line[1:] for line in lines if line.startswith("?")}

    def packs(self) -> int:
        return sum(
            name.endswith(".promisor") for name in os.listdir(self.main / ".git/objects/pack")
        )

    def oids(self, version: int, *names: str) -> set[str]:
        """Return the oids of files in a version, without fetching them."""
        return {
            self.git("rev-parse", f"refs/remotes/origin/main~{VERSIONS - 1 - version}:{name}")
            for name in names
        }

    def record(self, store: Store, version: int) -> Checkpoint:
        """Record a checkpoint of a clean worktree at a version, without fetching files."""
        head = self.git("rev-parse", "HEAD")
        self.git("reset", "--quiet", "--soft", f"refs/remotes/origin/main~{VERSIONS - 1 - version}")
        made = store.record("old-complete", {}, worktree=Worktree(dirty=False))
        self.git("reset", "--quiet", "--soft", head)
        return made


@pytest.fixture(params=["main", "linked"])
def clone(request: pytest.FixtureRequest, tmp_path: Path) -> Clone:
    """A sparse clone with blobs only for the files at its top and in `in`."""
    origin = Checkout(tmp_path / "origin")
    subprocess.run([git_program(), "init", "--quiet", str(origin.path)], check=True)
    origin.git("config", "uploadpack.allowFilter", "true")
    origin.git("config", "uploadpack.allowAnySHA1InWant", "true")
    for version in range(VERSIONS):
        origin.commit(f"version {version}", **{name: content(name, version) for name in FILES})
    origin.git(
        "clone",
        "--quiet",
        "--filter=blob:none",
        "--no-checkout",
        f"file://{origin.path}",
        str(tmp_path / "project"),
    )
    here = Clone(tmp_path / "project")
    if request.param == "linked":
        here.git(
            "worktree", "add", "--quiet", "--no-checkout", "-b", "side", str(tmp_path / "linked")
        )
        here = Clone(tmp_path / "linked", here.path)
    here.git("sparse-checkout", "set", "--cone", "in")
    here.git("checkout", "--quiet")
    assert len(here.missing()) == 8  # README and in/a of two versions, out/x of three, out/y
    return here


@pytest.fixture
def offline(clone: Clone, tmp_path: Path) -> None:
    """Make the remote of the clone unreachable."""
    (tmp_path / "origin").rename(tmp_path / "elsewhere")


def change(clone: Clone) -> None:
    clone.write("README", "changed\n")
    clone.write("in/new", "new\n")
    clone.write("in/a", "staged\n")
    clone.git("add", "in/a")


@pytest.mark.long
@pytest.mark.usefixtures("offline")
def test_what_is_there_needs_no_remote(clone: Clone, make_store: MakeStore) -> None:
    change(clone)
    before = clone.fingerprint()
    seen = (clone.git("status", "--porcelain=v2"), clone.git("ls-files", "--stage", "-v"))
    missing, packs = clone.missing(), clone.packs()
    store = make_store(clone, "auto")
    made = store.save("a-complete", {})
    clone.git("reset", "--quiet", "--hard")
    (clone.path / "in/b").unlink()
    store.restore(made)
    assert (clone.git("status", "--porcelain=v2"), clone.git("ls-files", "--stage", "-v")) == seen
    assert clone.fingerprint()["files"] == before["files"]
    opened = Clone(Path(store.resume(made).path), clone.main)
    assert (opened.git("status", "--porcelain=v2"), opened.git("ls-files", "--stage", "-v")) == seen
    assert opened.fingerprint()["files"] == before["files"]
    assert (clone.missing(), clone.packs()) == (missing, packs)


def test_what_is_measured_is_not_fetched(clone: Clone, make_store: MakeStore) -> None:
    change(clone)
    store = make_store(clone, "auto")
    store.save("a-complete", {})
    clone.record(store, 1)
    missing, packs = clone.missing(), clone.packs()
    found = store.usage()
    assert (found.checkpoints.number, found.is_complete) == (2, True)
    assert found.files.number > 0
    assert (clone.missing(), clone.packs()) == (missing, packs)


def test_restore_fetches_what_it_needs_in_one_go(clone: Clone, make_store: MakeStore) -> None:
    store = make_store(clone, "auto")
    made = clone.record(store, 1)
    missing, packs = clone.missing(), clone.packs()
    store.restore(made)
    assert clone.fingerprint()["files"] == {
        name: (0o100644, content(name, 1).encode()) for name in FILES if not name.startswith("out/")
    }
    assert (missing - clone.missing(), clone.packs() - packs) == (
        clone.oids(1, "README", "in/a"),
        1,
    )


def test_resume_fetches_what_it_needs_in_one_go(clone: Clone, make_store: MakeStore) -> None:
    """The checkpoint of a clean worktree has all files of its commit."""
    store = make_store(clone, "auto")
    made = clone.record(store, 1)
    missing, packs = clone.missing(), clone.packs()
    opened = Clone(Path(store.resume(made).path), clone.main)
    assert opened.fingerprint()["files"] == {
        name: (0o100644, content(name, 1).encode()) for name in FILES
    }
    assert (missing - clone.missing(), clone.packs() - packs) == (
        clone.oids(1, "README", "in/a", "out/x", "out/y"),
        1,
    )


def refused(error: CkptError, wanted: set[str]) -> None:
    head, _, names = error.message.partition(": ")
    assert (head, set(names.split(", ")), error.hint) == (
        f"{len(wanted)} objects that the files need are missing",
        wanted,
        HINT,
    )


@pytest.mark.usefixtures("offline")
def test_offline_restore_names_what_is_missing_and_changes_nothing(
    clone: Clone, make_store: MakeStore
) -> None:
    store = make_store(clone, "auto")
    made = clone.record(store, 1)
    change(clone)
    before = clone.fingerprint()
    with pytest.raises(WorktreeError) as caught:
        store.restore(made)
    refused(caught.value, clone.oids(1, "README", "in/a"))
    assert clone.fingerprint() == before


@pytest.mark.usefixtures("offline")
def test_offline_resume_names_what_is_missing_and_leaves_nothing(
    clone: Clone, make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(clone, "auto")
    made = clone.record(store, 1)
    before = clone.fingerprint()
    with pytest.raises(WorktreeError) as caught:
        store.resume(made, str(tmp_path / "there" / "new"))
    refused(caught.value, clone.oids(1, "README", "in/a", "out/x", "out/y"))
    assert clone.fingerprint() == before
    assert os.listdir(tmp_path / "there") == []


@pytest.fixture
def treeless(clone: Clone, tmp_path: Path) -> Clone:
    """A clone that lacks trees as well as blobs."""
    place = tmp_path / "treeless"
    clone.git("clone", "--quiet", "--filter=tree:0", f"file://{tmp_path / 'origin'}", str(place))
    return Clone(place)


@pytest.mark.long
def test_restore_and_resume_fetch_missing_directories(
    make_store: MakeStore, treeless: Clone
) -> None:
    store = make_store(treeless, "auto")
    made = treeless.record(store, 1)
    opened = Clone(Path(store.resume(made).path), treeless.main)
    store.restore(treeless.record(store, 0))
    for there, version in ((opened, 1), (treeless, 0)):
        expected = {name: (0o100644, content(name, version).encode()) for name in FILES}
        files = there.fingerprint()["files"]
        assert isinstance(files, dict)
        assert {name: files[name] for name in FILES} == expected


def test_offline_without_trees(make_store: MakeStore, treeless: Clone, tmp_path: Path) -> None:
    """A missing tree is reported, not treated as empty."""
    here = treeless
    store = make_store(here, "auto")
    made = here.record(store, 1)
    (tmp_path / "origin").rename(tmp_path / "elsewhere")
    change(here)
    before = here.fingerprint()
    tree = here.git("cat-file", "commit", made.git_sha).split()[1]
    bring_back = (
        lambda: store.restore(made),
        lambda: store.resume(made, str(tmp_path / "there")),
    )
    for attempt in bring_back:
        with pytest.raises(WorktreeError) as caught:
            attempt()
        refused(caught.value, {tree})
        assert here.fingerprint() == before


def test_diff_fetches_nothing_and_names_the_command_that_does(
    clone: Clone, make_store: MakeStore
) -> None:
    store = make_store(clone, "auto")
    old, new = (clone.record(store, version) for version in (0, 1))
    packs = clone.packs()
    with pytest.raises(WorktreeError, match="lacks contents of files") as caught:
        store.diff(old, new)
    assert clone.packs() == packs
    command = str(caught.value.hint).removeprefix("fetch the contents: ").partition(";")[0]
    clone.git(*command.split()[1:])
    assert b"+README 1" in store.diff(old, new)
