"""After a kill at any git call, the store is whole and the next call continues.

Kills come before, after and within each call of git, and before each object.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import OpenResult
from gitckpt.git.repository import discover_repository
from gitckpt.store.hooks import installation
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import notes, require_runs, require_whole, view
from tests.stores import open_store
from tests.system.kills.killer import Killer, opened

pytestmark = pytest.mark.long

RECORD = """
    first = store.record("a-started", {"n": 1}, worktree=store.capture_worktree(), start="r")
    print(first.id, flush=True)
    open(path + "/more", "w").write("more")
    files = store.capture_worktree()
    print(store.record("a-complete", worktree=files, run=first.run).id, flush=True)
"""
LINES = """
    import subprocess
    print(store.record("a-complete").id, flush=True)
    subprocess.run(["git", "-C", path, "commit", "--quiet", "--allow-empty", "-m", "two"], \
check=True)
    print(store.record("b-complete").id, flush=True)
    subprocess.run(["git", "-C", path, "commit", "--quiet", "--allow-empty", "--amend", \
"-m", "three"], check=True)
    print(store.record("c-complete").id, flush=True)
"""
REMOVE = """
    print(store.remove(args), flush=True)
"""
RESUME = """
    print(resumption.resume_checkpoint(store, store.read(store.find_id("latest"))).path, flush=True)
"""


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "killer")


INSTALL = """
    from gitckpt.store.hooks import installation
    installation.install_hooks(store.repository, version=(2, 39))
"""


class Copies:
    """Copies of a repository, one for each kill.

    Args:
        original: top of its main worktree.
        directory: where the copies are made; each replaces the previous one.
    """

    def __init__(self, original: Checkout, directory: Path) -> None:
        self._original = original
        self._directory = directory

    def make(self) -> Checkout:
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._original.path, self._directory, symlinks=True)
        return Checkout(self._directory)


@pytest.fixture
def copies(main_checkout: Checkout, tmp_path: Path) -> Copies:
    return Copies(main_checkout, tmp_path / "copy")


def positions(share: int, stride: int = 1) -> Iterator[int]:
    """Yield every n-th position, without end."""
    at = share
    while True:
        at += SHARES * stride
        yield at


SHARES = 4
"""The number of tests that share the positions, and may run in parallel."""

each_share = pytest.mark.parametrize("share", range(SHARES))


class TestAKillAtEveryGitCall:
    @pytest.mark.long(but=["0"])
    @each_share
    def test_of_a_record(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int
    ) -> None:
        main_checkout.write("README", "changed")
        main_checkout.write("new", "x")
        for at in positions(share):
            checkout = copies.make()
            survived, reported = killer.run(at, RECORD, str(checkout.path))
            found = require_whole(checkout)
            assert set(reported) <= found.keys()
            runs = require_runs(checkout, found)
            with opened(checkout) as store:
                (run,) = runs or [store.record("a-started", {}, start="another").run]
                made = store.record("b-complete", {}, run=run)
                assert made.sequence == len(runs.get(str(run), "x")) + 1
                assert store.find("HEAD") == made.id
            assert set(require_runs(checkout, require_whole(checkout))[str(run)]) >= {
                *reported,
                made.id,
            }
            if survived:
                assert (len(reported), at > 20) == (2, True)
                return

    @pytest.mark.long
    @each_share
    def test_of_records_on_lines_that_go_on_and_end(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int
    ) -> None:
        main_checkout.commit("one")
        for at in positions(share):
            checkout = copies.make()
            survived, reported = killer.run(at, LINES, str(checkout.path))
            assert set(reported) <= require_whole(checkout).keys()
            with opened(checkout) as store:
                checkpoints_of_store(store).make_remover().update_keep_refs()
            found = require_whole(checkout)
            kept = [ref.rpartition("/")[2] for ref in checkout.refs("refs/keep/ckpt")]
            assert (
                {one.git_sha for one in found.values()}
                <= set(checkout.git("rev-list", *kept).split())
                if kept
                else not found
            )
            assert (
                len(kept) == len(checkout.git("merge-base", "--independent", *kept).split())
                if kept
                else True
            )
            if survived:
                assert (len(reported), len(kept), at > 8) == (3, 2, True)
                return

    @each_share
    @pytest.mark.parametrize("packed", [True, False])
    def test_of_a_removal(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int, packed: bool
    ) -> None:
        with opened(main_checkout) as store:
            run = str(store.record("a-started", {}, start="r").run)
            main_checkout.write("new", "x")
            ids = [
                store.record("a-complete", {"n": n}, worktree=store.capture(), run=run).id
                for n in range(3)
            ]
            main_checkout.commit("second")
            other = store.record("b-complete", {}).id
        for path in (main_checkout.path / ".git/refs/keep/ckpt").iterdir():
            os.utime(path, (1_000_000_000, 1_000_000_000))  # `remove` moves only old keep refs
        if packed:
            main_checkout.git("pack-refs", "--all")
        for at in positions(share, 1 if packed else 3):  # most calls are alike
            checkout = copies.make()
            survived, reported = killer.run(at, REMOVE, str(checkout.path), *ids[1:], other)
            found = require_whole(checkout)
            assert len(found) >= 2
            assert reported == (["3"] if survived else reported)
            with opened(checkout) as store:
                assert {entry.id for entry in store.list()} == found.keys()
                gone = store.remove([*ids[1:], other])
                assert gone == len(found) - 2
                made = store.record("c-complete", run=run)
                assert (made.sequence, made.parent, store.read(made.id).state) == (
                    3,
                    ids[0],
                    {"n": 0},
                )
            assert require_runs(checkout, require_whole(checkout))[run][1:] == [ids[0], made.id]
            assert {name for lines in notes(checkout).values() for name in lines} == require_whole(
                checkout
            ).keys()
            with_files = {
                name
                for name, one in require_whole(checkout).items()
                if one.worktree and one.worktree.tree
            }
            assert {
                ref.rpartition("/")[2] for ref in checkout.refs("refs/ckpt/trees")
            } == with_files
            if survived:
                assert at > 10
                return

    @each_share
    @pytest.mark.parametrize("dirty", [True, False])
    def test_of_a_resume(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int, dirty: bool
    ) -> None:
        main_checkout.commit("second", **{f"file-{n}": "x" * n for n in range(20)})
        if dirty:
            main_checkout.write("file-3", "changed")
            main_checkout.git("add", "file-3")
            main_checkout.write("file-3", "changed again")
            main_checkout.write("new", "x")
        expected = view(main_checkout.path)
        with opened(main_checkout) as store:
            made = store.record("a-complete", {}, worktree=store.capture(), start="r")
        for at in positions(share, 1 if dirty else 3):  # most calls are alike
            checkout = copies.make()
            before = (checkout.refs(), view(checkout.path))
            survived, _ = killer.run(at, RESUME, str(checkout.path))
            with opened(checkout) as store:
                path = store.resume(made).path
                assert view(path) == expected
                assert store.resume(made) == OpenResult(path, made=False)
                Path(path, "work").write_text("goes on")
                again = open_store(path)
                second = again.record("b-complete", {}, worktree=again.capture(), run=made.run)
                again.close()
            assert (second.sequence, second.parent) == (2, made.id)
            worktrees = [
                line
                for line in checkout.git("worktree", "list", "--porcelain").splitlines()
                if line.startswith("worktree ")
            ]
            assert worktrees == [f"worktree {checkout.path}", f"worktree {path}"]
            assert sorted(os.listdir(checkout.path / ".ckpt" / "worktrees")) == [made.run]
            after = checkout.refs()
            assert {
                ref: oid
                for ref, oid in after.items()
                if second.id not in ref and "/runs/" not in ref and "notes" not in ref
            } == {
                ref: oid
                for ref, oid in before[0].items()
                if "/runs/" not in ref and "notes" not in ref
            }
            assert view(checkout.path) == before[1]
            require_whole(checkout)
            if survived:
                assert at > 15
                return

    @each_share
    def test_of_an_init(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int
    ) -> None:
        """The next `init` completes a killed one, and `uninstall` removes everything."""
        for at in positions(share):
            checkout = copies.make()
            before = sorted(checkout.git("config", "--local", "--list").splitlines())
            survived, _ = killer.run(at, INSTALL, str(checkout.path))
            repository = discover_repository(str(checkout.path))
            installation.install_hooks(repository, version=(2, 39))
            assert installation.inspect_hooks(repository, version=(2, 39)) == []
            installed = sorted(checkout.git("config", "--local", "--list").splitlines())
            assert len(installed) == len(before) + 8
            installation.uninstall_hooks(repository)
            assert sorted(checkout.git("config", "--local", "--list").splitlines()) == before
            assert not (checkout.path / ".git/hooks").exists()
            if survived:
                assert at > 10
                return
