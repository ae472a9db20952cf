"""Locks that a killed git left on gitckpt's refs are removed and reported.

Locks on other refs are named, and stay.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitckpt import LockHeld
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore, notes, nth, require_whole
from tests.stores import OWN_REFS, hold_run, messages_of, run_hook, write_lock

pytestmark = [
    pytest.mark.skipif(
        not os.path.exists("/proc/self/stat"), reason="the system does not tell what processes do"
    ),
    pytest.mark.usefixtures("impatient"),
]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)


def left(checkout: Checkout, *refs: str) -> list[Path]:
    """Leave locks on refs, as a git that was killed a minute ago does."""
    paths = [checkout.main / ".git" / f"{ref}.lock" for ref in refs]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - 60, time.time() - 60))
    return paths


def said(checkout: Checkout) -> list[str]:
    """Return the entries of the log, without their times."""
    log = checkout.main / ".git/ckpt/log"
    return (
        [line.partition(" ")[2] for line in log.read_text().splitlines() if line[:4].isdigit()]
        if log.exists()
        else []
    )


def test_a_record_removes_all_of_them_and_says_so(
    checkout: Checkout, make_store: MakeStore, adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(checkout, adapter)
    told = messages_of(store)
    run = store.record("a-started", {}, start="r").run
    head = checkout.git("rev-parse", "HEAD")
    there = left(
        checkout,
        f"refs/ckpt/runs/{run}",
        "refs/notes/checkpoints",
        f"refs/keep/ckpt/{head}",
        f"refs/ckpt/trees/{nth(99)}",
    )
    store.record("a-complete", {}, run=run)
    assert not any(lock.exists() for lock in there)
    assert told == [f"removed {min(map(str, there))} and 3 more: left behind by a killed git"]
    assert said(checkout) == [
        *["checkpoint " + nth(1) + " has an empty state"],
        *told,
        *["checkpoint " + nth(2) + " has an empty state"],
    ]
    assert require_whole(checkout).keys() == {nth(1), nth(2)}
    store.close()
    assert sorted(notes(checkout)[head]) == [nth(1), nth(2)]


def test_a_lock_of_another_tool_stays(main_checkout: Checkout, make_store: MakeStore) -> None:
    store = make_store(main_checkout)
    run = store.record("a-started", {"x": 1}, start="r").run
    others = left(
        main_checkout,
        "packed-refs",
        "refs/heads/main",
        "refs/checkpoints/a-name",
        "refs/keep/mine/x",
        "HEAD",
        "refs/notes/commits",
    )
    (own,) = left(main_checkout, f"refs/ckpt/runs/{run}")
    store.record("a-complete", {"x": 2}, run=run)
    assert not own.exists()
    assert all(lock.exists() for lock in others)
    with pytest.raises(LockHeld) as caught:
        store.remove([nth(1)])
    assert caught.value.path == str(others[0])
    assert others[0].exists()


def test_while_somebody_writes_they_stay(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.HEADS_PATIENCE, 0.05)
    store = make_store(main_checkout)
    store.record("a-started", {"x": 1}, start="r")
    hold = hold_run(store, "r", "a test")
    (lock,) = left(main_checkout, "refs/ckpt/leases/r")
    writer = write_lock(store)
    with ThreadPoolExecutor(1) as another:
        assert another.submit(writer.acquire).result()
        with pytest.raises(LockHeld):
            hold.renew_lease()
        assert lock.exists()
        another.submit(writer.release).result()
    hold.renew_lease()
    assert not lock.exists()


class TestWhoMeetsOne:
    def test_a_removal(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        store = make_store(main_checkout)
        main_checkout.write("new", "x")
        made = store.save("a-complete", {"x": 1})
        there = left(
            main_checkout,
            f"refs/checkpoints/{made.id}",
            f"refs/ckpt/trees/{made.id}",
            f"refs/keep/ckpt/{made.git_sha}",
        )
        store.remove([made.id])
        assert not any(lock.exists() for lock in there)
        assert main_checkout.refs(*OWN_REFS).keys() <= {
            f"refs/keep/ckpt/{made.git_sha}"
        }  # within the hour

    def test_an_expiry_which_none_is_in_the_way_of_says_so_too(
        self, main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout)
        told = messages_of(store)
        (lock,) = left(main_checkout, "refs/ckpt/leases/somebodys")
        store.expire()
        assert not lock.exists()
        assert told == said(main_checkout) == [f"removed {lock}: left behind by a killed git"]

    def test_a_lease(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        store = make_store(main_checkout)
        store.record("a-started", {"x": 1}, start="r")
        (lock,) = left(main_checkout, "refs/ckpt/leases/r")
        hold_run(store, "r", "a test").release_lease()
        assert not lock.exists()

    def test_a_repair(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        store = make_store(main_checkout)
        main_checkout.write("new", "x")
        made = store.save("a-complete", {"x": 1})
        store.close()
        main_checkout.git("update-ref", "-d", f"refs/ckpt/trees/{made.id}")
        (lock,) = left(main_checkout, f"refs/ckpt/trees/{made.id}")
        assert make_store(main_checkout).verify(repair=True).is_clean
        assert not lock.exists()
        require_whole(main_checkout)


def test_the_hook_says_so(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    head = main_checkout.commit("by hand")
    there = left(main_checkout, "refs/notes/checkpoints", f"refs/keep/ckpt/{head}")
    (main_checkout.path / ".git/ckpt").mkdir()
    (main_checkout.path / ".git/ckpt" / "maintained").touch()
    monkeypatch.chdir(main_checkout.path)
    assert run_hook("post-commit") == 0
    sentence = f"post-commit: removed {there[1]} and 1 more: left behind by a killed git"
    assert capfd.readouterr().err == f"gitckpt: {sentence}\n"
    assert said(main_checkout) == [sentence]
    assert list(notes(main_checkout)) == [head]
    assert require_whole(main_checkout)
