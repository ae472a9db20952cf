"""Locks of other processes: an error names them, and other records go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitckpt import LockHeld
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore, notes, nth, require_whole


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)


@pytest.mark.usefixtures("impatient")
class TestHeldLocks:
    def test_of_the_run(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        lock = main_checkout.path / ".git" / f"refs/ckpt/runs/{run}.lock"
        lock.touch()
        before = main_checkout.fingerprint()
        with pytest.raises(LockHeld) as caught:
            store.record("a-complete", {}, run=run)
        assert (caught.value.path, caught.value.message, caught.value.exit_code) == (
            str(lock),
            f"another process holds {lock}",
            11,
        )
        assert (lock.exists(), main_checkout.fingerprint()) == (True, before)
        store.record("b-complete", {})
        lock.unlink()
        assert store.record("a-complete", {}, run=run).sequence == 2

    def test_of_the_notes(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str
    ) -> None:
        lock = main_checkout.path / ".git" / "refs/notes/checkpoints.lock"
        lock.parent.mkdir()
        lock.touch()
        store = make_store(main_checkout, adapter)
        made = store.record("a-complete", {})
        head = main_checkout.git("rev-parse", "HEAD")
        assert [entry.id for entry in store.links(head)] == [made.id]
        assert store.find("HEAD") == made.id
        store.close()
        log = (main_checkout.path / ".git" / "ckpt" / "log").read_text()
        assert log.endswith(f"notes were not written: another process holds {lock}\n")
        assert (lock.exists(), notes(main_checkout)) == (True, {})
        lock.unlink()
        store.close()
        assert notes(main_checkout) == {head: [made.id]}

    def test_of_packed_refs_and_of_other_checkpoints(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str
    ) -> None:
        store = make_store(main_checkout, adapter)
        store.record("a-complete", {})
        places = [
            "packed-refs",
            f"refs/checkpoints/{nth(1)}",
            f"refs/keep/ckpt/{nth(1)}",
            f"refs/ckpt/trees/{nth(99)}",
            "HEAD",
            "index",
        ]
        locks = [main_checkout.path / ".git" / f"{place}.lock" for place in places]
        for lock in locks:
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        main_checkout.write("new", "x")
        store.save("b-complete", {})
        assert require_whole(main_checkout).keys() == {nth(1), nth(2)}
        assert all(lock.exists() for lock in locks)

    def test_of_reftables(
        self, newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore
    ) -> None:
        checkout = make_checkout("tables", "--ref-format=reftable")
        checkout.commit("first", README="hello\n")
        store = make_store(checkout)
        store.record("a-complete", {})
        lock = checkout.path / ".git" / "reftable" / "tables.list.lock"
        lock.touch()
        before = checkout.refs()
        with pytest.raises(LockHeld) as caught:
            store.record("b-complete", {})
        assert (caught.value.path, lock.exists(), checkout.refs()) == (str(lock), True, before)
        lock.unlink()
        store.record("b-complete", {})
