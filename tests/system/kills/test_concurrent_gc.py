"""Checkpoints survive a concurrent `git gc --prune=now` at the worst moments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import BusyError, FilesPruned
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore, nth, require_runs, require_whole, view


class TestARuthlessGc:
    """A user runs `git gc --prune=now` between two steps of the store."""

    @staticmethod
    def gc(checkout: Checkout) -> None:
        checkout.git("reflog", "expire", "--expire=now", "--all")
        checkout.git("gc", "--quiet", "--prune=now")

    @pytest.mark.parametrize("moment", ["before the refs", "after the refs"])
    def test_a_record(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        adapter: str,
        moment: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        really = planted.original(planted.UPDATE_REFS)

        def update(
            refs: object, updates: list[Any], meanwhile: Callable[[], None] | None = None
        ) -> None:
            monkeypatch.undo()
            if moment == "before the refs":
                self.gc(main_checkout)
            really(refs, updates, meanwhile)
            for change in (
                updates[1:] if moment == "after the refs" else ()
            ):  # the first update is for the linked commit, which stays
                (main_checkout.path / ".git/objects" / change.new[:2] / change.new[2:]).unlink(
                    missing_ok=True
                )

        plant(monkeypatch, planted.UPDATE_REFS, update)
        made = store.record("a-complete", {"n": 2}, run=run)
        assert list(require_runs(main_checkout, require_whole(main_checkout)).values()) == [
            [nth(1), made.id]
        ]
        assert store.read(made.id).state == {"n": 2}

    def test_files_that_vanish_after_the_refs_are_written_again(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        adapter: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("deep/new", "x")
        blob = main_checkout.git("hash-object", "deep/new")
        really = planted.original(planted.UPDATE_REFS)

        def update(
            refs: object, updates: list[Any], meanwhile: Callable[[], None] | None = None
        ) -> None:
            monkeypatch.undo()
            really(refs, updates, meanwhile)
            (main_checkout.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

        plant(monkeypatch, planted.UPDATE_REFS, update)
        made = store.save("a-complete")
        assert list(require_whole(main_checkout)) == [made.id]
        assert (
            main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/deep/new")
            == "x"
        )

    def test_the_files_before_the_refs(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        files = store.capture()
        self.gc(main_checkout)
        before = main_checkout.fingerprint()
        with pytest.raises(FilesPruned) as caught:
            store.record("a-complete", {}, worktree=files)
        assert (
            caught.value.message
            == "the captured files vanished before they could be recorded: git gc --prune=now ran"
        )
        assert main_checkout.fingerprint() == before
        store.record("a-complete", {}, worktree=store.capture())
        require_whole(main_checkout)

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("times", [1, 10])
    def test_save_captures_again(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        adapter: str,
        times: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        really, left = planted.original(planted.CAPTURE_FILES), [times]

        def capture(checkpoints: object, limits: object, beside: object) -> object:
            assert (limits, beside) == (None, None)
            files = really(checkpoints)
            if left[0]:
                left[0] -= 1
                self.gc(main_checkout)
            return files

        plant(monkeypatch, planted.CAPTURE_FILES, capture)
        if times < 10:
            made = store.save("a-complete", {})
            assert list(require_whole(main_checkout)) == [made.id]
            assert (
                main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/new") == "x"
            )
            return
        with pytest.raises(BusyError):
            store.save("a-complete", {})
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}

    @pytest.mark.long
    def test_an_amended_commit_and_its_files_survive(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str
    ) -> None:
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
        assert view(store.resume(store.read(dirty.id)).path) == expected
        path = Path(store.resume(store.read(clean.id)).path)
        assert ((path / "README").read_text(), (path / "kept").read_text()) == (
            "second\n",
            "kept\n",
        )
        assert Checkout(path).git("rev-parse", "HEAD") == old
