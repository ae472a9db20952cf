"""What survives a `git gc --prune=now` of somebody else, at the worst moments."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt.git.refs import Update
from gitckpt.model.checkpoint import Worktree
from gitckpt.model.errors import BusyError
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.store import inside
from gitckpt.store.worktrees import resumption
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth, require_runs, require_whole, view


class Gc:
    """A `git gc --prune=now` that takes its time: what nothing leads to when it begins, it deletes at its end.

    Args:
        checkout: of the repository.
    """

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._file = checkout.path / ".git/gc.pid"
        self._marked: set[str] = set()

    def begin(self) -> None:
        """Begins it, once."""
        if self._file.exists():
            return
        self._file.write_text(f"{os.getpid()} {socket.gethostname()}")
        marked = self._checkout.git("rev-list", "--objects", "--all", "--indexed-objects", "--no-object-names")
        self._marked = set(marked.splitlines())

    def end(self) -> None:
        """Lets it delete, and be over."""
        for path in (self._checkout.path / ".git/objects").glob("??/*"):
            if path.parent.name + path.name not in self._marked:
                path.unlink()
        self._file.unlink()


class TestARuthlessGc:
    """`git gc --prune=now` of somebody else, at the worst moments."""

    @staticmethod
    def gc(checkout: Checkout) -> None:
        checkout.git("reflog", "expire", "--expire=now", "--all")
        checkout.git("gc", "--quiet", "--prune=now")

    @pytest.mark.parametrize("moment", ["before the refs", "after the refs"])
    def test_a_record(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        really, settle = inside(store).refs.update, inside(store).objects.settle
        changed: list[Update] = []

        def update(updates: list[Update], meanwhile: Callable[[], None] | None = None) -> None:
            if moment == "before the refs":
                self.gc(main_checkout)
                monkeypatch.undo()
            changed.extend(updates)
            really(updates, meanwhile)

        def settled() -> None:
            for update in changed[1:] if moment == "after the refs" else ():  # not the linked commit
                (main_checkout.path / ".git/objects" / update.new[:2] / update.new[2:]).unlink(missing_ok=True)
            settle()

        monkeypatch.setattr(inside(store).refs, "update", update)
        monkeypatch.setattr(inside(store).refs, "_settle", settled)
        made = store.record("a-complete", {"n": 2}, run=run)
        monkeypatch.undo()
        assert list(require_runs(main_checkout, require_whole(main_checkout)).values()) == [[nth(1), made.id]]
        assert store.read(made.id).state == {"n": 2}

    def test_the_files_before_the_refs(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        files = store.capture()
        self.gc(main_checkout)
        before = main_checkout.fingerprint()
        with pytest.raises(FilesPruned) as caught:
            store.record("a-complete", {}, worktree=files)
        assert caught.value.message == "the captured files vanished before they could be recorded: somebody ran git gc --prune=now"
        assert main_checkout.fingerprint() == before
        store.record("a-complete", {}, worktree=store.capture())
        require_whole(main_checkout)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("begun", ["before the objects", "between objects and refs"])
    def test_a_record_of_which_a_gc_at_work_knows_nothing(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, begun: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What it deletes is what was unreachable when it looked, long after the record: nobody can wait for it."""
        main_checkout.commit("second", README="second\n")
        main_checkout.git("checkout", "--quiet", "--detach")
        store = make_store(main_checkout, adapter)
        at_work = Gc(main_checkout)
        really = inside(store).refs.update

        def update(updates: list[Update], meanwhile: Callable[[], None] | None = None) -> None:
            at_work.begin()
            really(updates, meanwhile)

        if begun == "before the objects":
            at_work.begin()
        else:
            monkeypatch.setattr(inside(store).refs, "update", update)
        made = store.record("a-complete", {"n": 1}, start="r")
        at_work.end()
        assert store.read(made.id).state == {"n": 1}
        assert list(require_whole(main_checkout)) == [made.id]
        self.gc(main_checkout)
        assert list(require_whole(main_checkout)) == [made.id]

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("begun", ["before the files are looked at", "before they are recorded"])
    def test_files_of_which_a_gc_at_work_knows_nothing(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, begun: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("deep/new", "x")
        main_checkout.write("staged", "y")
        main_checkout.git("add", "staged")
        main_checkout.write("staged", "z")
        expected = view(main_checkout.path)
        at_work = Gc(main_checkout)
        capture = inside(store).capture

        def captured(*args: Any) -> Worktree:
            made = capture(*args)
            at_work.begin()
            return made

        if begun == "before the files are looked at":
            at_work.begin()
        else:
            monkeypatch.setattr(inside(store), "capture", captured)
        made = store.save("a-complete", {"n": 1})
        at_work.end()
        self.gc(main_checkout)
        assert list(require_whole(main_checkout)) == [made.id]
        assert view(resumption.resume(inside(store), store.read(made.id)).path) == expected

    def test_a_worktree_that_is_opened_meanwhile_keeps_no_pack(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        """What is captured to compare it with the checkpoint is nobody's afterwards."""
        main_checkout.write("new", "x")
        store = make_store(main_checkout)
        made = store.save("a-complete")
        at_work = Gc(main_checkout)
        at_work.begin()
        resumption.resume(inside(store), made)
        at_work.end()
        assert list((main_checkout.path / ".git/objects/pack").glob("*.keep")) == []

    def test_a_commit_of_which_a_gc_at_work_knows_nothing(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        store = make_store(main_checkout)
        store.record("a-complete", {})
        at_work = Gc(main_checkout)
        at_work.begin()
        commit = main_checkout.commit("second", **{"deep/new": "x"})
        store.record("b-complete", {})
        main_checkout.git("update-ref", "-d", "refs/heads/main")
        main_checkout.git("rm", "--cached", "--quiet", "-r", ".")
        at_work.end()
        assert main_checkout.git("cat-file", "blob", f"{commit}:deep/new") == "x"
        require_whole(main_checkout)

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("times", [1, 2, 10])
    def test_save_captures_again(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, times: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        really, left = inside(store).capture, [times]

        def capture(limits: object, beside: object) -> object:
            assert (limits, beside) == (None, None)
            files = really()
            if left[0]:
                left[0] -= 1
                self.gc(main_checkout)
            return files

        monkeypatch.setattr(inside(store), "capture", capture)
        if times < 10:
            made = store.save("a-complete", {})
            assert list(require_whole(main_checkout)) == [made.id]
            assert main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/new") == "x"
            return
        with pytest.raises(BusyError):
            store.save("a-complete", {})
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}

    def test_an_amended_commit_and_its_files_survive(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        old = main_checkout.commit("second", README="second\n", kept="kept\n")
        main_checkout.write("README", "dirty\n")
        main_checkout.write("new", "new\n")
        expected = view(main_checkout.path)
        dirty = store.save("a-complete", {"n": 1})
        main_checkout.git("stash", "push", "--quiet", "--include-untracked")
        main_checkout.git("stash", "drop", "--quiet")
        clean = store.save("b-complete", {})
        main_checkout.write("README", "third\n")
        main_checkout.git("rm", "--quiet", "kept")
        main_checkout.git("commit", "--quiet", "--all", "--amend", "--message", "rewritten")
        self.gc(main_checkout)
        main_checkout.git("cat-file", "-e", old)
        assert view(resumption.resume(inside(store), store.read(dirty.id)).path) == expected
        path = Path(resumption.resume(inside(store), store.read(clean.id)).path)
        assert ((path / "README").read_text(), (path / "kept").read_text()) == ("second\n", "kept\n")
        assert Checkout(path).git("rev-parse", "HEAD") == old
