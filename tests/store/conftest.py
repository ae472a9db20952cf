"""Fixtures for the tests of the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitckpt import BusyError, Checkpoint, Query, Store
from gitckpt.git.process import git_executable
from gitckpt.model import codec
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock, Ids, MakeOnce, repository_of
from tests.store.hooks.hook_standin import StandIn
from tests.stores import open_store

MakeStore = Callable[..., Store]
ROOT = Path(__file__).parents[2]


def nth(number: int) -> str:
    """Return the id that the fixture `ids` returns at its nth call."""
    return f"{number:08x}-0000-4000-8000-000000000000"


ONE, TWO, THREE = nth(1), nth(2), nth(3)
RUN = "20270115-080001-add-login"
"""The run of a first checkpoint that starts `Add login!` by the fixture `clock`."""


@pytest.fixture(params=["libgit2", "plumbing"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The name of an object adapter; each test runs with both."""
    name: str = request.param
    return name


@pytest.fixture
def make_store(clock: Clock, ids: Ids) -> Iterator[MakeStore]:
    """Open stores with the test's clock and ids: `make_store(checkout, "plumbing")`.

    They are closed after the test.
    """
    stores: list[Store] = []

    def make(place: Checkout | Path | str, adapter: str = "plumbing") -> Store:
        stores.append(open_store(place, adapter, clock=clock, new_id=ids))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make_store: MakeStore, checkout: Checkout, adapter: str) -> Store:
    """The store of `checkout`, for both kinds of worktree and both adapters."""
    return make_store(checkout, adapter)


@pytest.fixture
def plain(make_store: MakeStore, main_checkout: Checkout) -> Store:
    """The store of `main_checkout`, through plumbing only."""
    return make_store(main_checkout)


@pytest.fixture
def new_git(newer_git: str) -> None:
    """Require a git that reads hooks from its configuration."""


@pytest.fixture(params=["files", "config"])
def way(request: pytest.FixtureRequest) -> str:
    """Both ways in which git runs gitckpt's hooks.

    The configuration needs a git that reads hooks from it.
    """
    if request.param == "config":
        request.getfixturevalue("newer_git")
    return str(request.param)


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    """A package `gitckpt` whose hook records its arguments."""
    return StandIn(tmp_path / "lib")


Denied = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def denied() -> Denied:
    """Run Python without write permission: `denied(directory, script, *args)`.

    The test is skipped if root's rights cannot be given up.
    """

    def run(directory: Path, script: str, *args: str) -> subprocess.CompletedProcess[str]:
        prefix: list[str] = []
        if os.getuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("modes do not stop root, and there is no setpriv to give up its rights")
            prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        modes = {
            path: path.stat().st_mode
            for path in [directory, *directory.rglob("*")]
            if not path.is_symlink()
        }
        try:
            for path, mode in modes.items():
                path.chmod(mode & ~0o222)
            return subprocess.run(
                [*prefix, sys.executable, "-c", script, *args],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            for path, mode in modes.items():
                path.chmod(mode)

    return run


def listed(store: Store, query: Query = Query()) -> list[int]:  # noqa: B008 - immutable
    """Return the numbers of the listed checkpoints."""
    return [int(entry.id[:8], 16) for entry in store.list(query)]


def notes(checkout: Checkout) -> dict[str, list[str]]:
    """Return each commit's checkpoint ids after all pending notes are written.

    The ids are those in the note, or those of all links if the note is full. While another process
    holds the lock of the notes, the pending ones are missing.
    """
    with Checkpoints(repository_of(checkout), adapter="plumbing") as store:
        with contextlib.suppress(BusyError):
            store.write_links()
        found = written_notes(checkout)
        for commit, names in found.items():
            if "and" in names:
                every = [
                    entry.id
                    for entry in sorted(store.find_linked(commit), key=lambda entry: entry.time)
                ]
                assert set(names) <= {*every, "and"}
                found[commit] = every
    return found


def written_notes(checkout: Checkout) -> dict[str, list[str]]:
    """Return the first word of each line of each note, as git reads it.

    The first word of a link is the id.
    """
    return {
        commit: [line.split(" ")[0] for line in lines]
        for commit, lines in _note_lines(checkout).items()
    }


def _note_lines(checkout: Checkout) -> dict[str, list[str]]:
    listed = [
        line.split(" ") for line in checkout.git("notes", "--ref=checkpoints", "list").splitlines()
    ]
    texts = checkout.blobs(*(note for note, _ in listed))
    return {
        commit: text.decode().splitlines() for (_, commit), text in zip(listed, texts, strict=True)
    }


def require_whole(checkout: Checkout) -> dict[str, Checkpoint]:
    """Return all checkpoints by id; assert with git alone that each is complete.

    A complete checkpoint has its document, commit, files and objects.
    """
    refs = checkout.refs()
    documents = {ref: oid for ref, oid in refs.items() if ref.startswith("refs/checkpoints/")}
    texts = zip(documents, checkout.blobs(*documents.values()), strict=True)
    found = {ref.rpartition("/")[2]: codec.decode(text, ref) for ref, text in texts}
    for name, checkpoint in found.items():
        tree = checkpoint.tree
        assert refs.get(f"refs/ckpt/trees/{name}") == tree, f"{name} is not whole"
    commits = {checkpoint.git_sha for checkpoint in found.values()} - {""}
    tips = [f"^{oid}" for ref, oid in refs.items() if ref.startswith("refs/keep/ckpt/")]
    lost = commits & set(
        checkout.git(
            "rev-list", "--stdin", data="".join(f"{rev}\n" for rev in [*commits, *tips])
        ).split()
    )
    assert not (commits and lost), f"{lost} are not kept"
    said = checkout.git("fsck", "--connectivity-only", "--no-dangling", "--no-reflogs")
    assert said == "", said
    return found


def require_runs(checkout: Checkout, found: dict[str, Checkpoint]) -> dict[str, list[str]]:
    """Return each run's ids in order; assert that they have no gap and name parents."""
    runs: dict[str, list[Checkpoint]] = {}
    for checkpoint in found.values():
        if checkpoint.run:
            runs.setdefault(checkpoint.run, []).append(checkpoint)
    for chain in runs.values():
        chain.sort(key=lambda checkpoint: checkpoint.sequence or 0)
        assert [checkpoint.sequence for checkpoint in chain] == list(range(1, len(chain) + 1))
        assert [checkpoint.parent for checkpoint in chain] == [
            None,
            *(checkpoint.id for checkpoint in chain[:-1]),
        ]
    return {run: [checkpoint.id for checkpoint in chain] for run, chain in runs.items()}


def blob(checkout: Checkout, oid: str) -> bytes:
    """Return the content of a blob."""
    return subprocess.run(
        [git_executable(), "cat-file", "blob", oid],
        cwd=checkout.path,
        capture_output=True,
        check=True,
    ).stdout


def after_recording(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]
) -> None:
    """Call `change` after the store has recorded a checkpoint, as in a restore."""
    really = checkpoints_of_store(store).record

    def record(*args: Any, **options: Any) -> Checkpoint:
        made = really(*args, **options)
        change()
        return made

    monkeypatch.setattr(checkpoints_of_store(store), "record", record)


def view(path: Path | str) -> dict[str, Any]:
    """Return status, index, flags and files, with their modes, of a worktree."""
    top = Path(path)
    here = Checkout(top)
    files = {}
    for file in sorted(top.rglob("*"), key=os.fsencode):
        parts = file.relative_to(top).parts
        if parts[0] in (".git", ".ckpt") or (file.is_dir() and not file.is_symlink()):
            continue
        content = os.fsencode(os.readlink(file)) if file.is_symlink() else file.read_bytes()
        files[os.fsencode("/".join(parts))] = (
            file.is_symlink(),
            bool(file.lstat().st_mode & 0o100),
            content,
        )
    # git counts unchanged entries as such by their time stamps, which differ between worktrees
    here.git("update-index", "-q", "--refresh", ok=(0, 1))
    return {
        "status": here.git("status", "--porcelain=v2", "--untracked-files=all", "-z"),
        "index": here.git("ls-files", "--stage", "-v", "-z"),
        "staged": here.git("diff", "--cached", "--raw", "--no-abbrev", "-z"),
        "files": files,
    }


@pytest.fixture
def lib(
    main_checkout: Checkout, make_checkout: Callable[..., Checkout], make_once: MakeOnce
) -> Checkout:
    """A submodule of `main_checkout` with a nested submodule; the remotes are gone."""

    def add() -> None:
        remotes = [make_checkout("inner0"), make_checkout("lib0")]
        remotes[0].commit("first", i="i\n")
        remotes[1].commit("first", l="l\n")
        remotes[1].git("submodule", "--quiet", "add", str(remotes[0].path), "inner")
        remotes[1].git("commit", "--quiet", "--message", "with a submodule")
        main_checkout.git("submodule", "--quiet", "add", str(remotes[1].path), "lib")
        main_checkout.git("submodule", "--quiet", "update", "--init", "--recursive")
        main_checkout.git("commit", "--quiet", "--message", "with a submodule")
        for remote in remotes:
            shutil.rmtree(remote.path)

    make_once(main_checkout, add)
    for place in (
        main_checkout,
        Checkout(main_checkout.path / "lib"),
        Checkout(main_checkout.path / "lib/inner"),
    ):
        place.git("update-index", "-q", "--refresh")  # which knows the files of the first one
    return Checkout(main_checkout.path / "lib")


@pytest.fixture
def inner(lib: Checkout) -> Checkout:
    """The nested submodule of `lib`."""
    return Checkout(lib.path / "inner")
