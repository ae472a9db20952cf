"""The index reads many documents in portions, and commits each of them.

A progress line shows each portion, and a run may span several.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gitckpt import Query, Store
from gitckpt.store.records import index as module
from gitckpt.store.records.index import FILE, Index
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import nth
from tests.stores import private_dir, set_clock


@pytest.fixture
def five(plain: Store, main_checkout: Checkout) -> Store:
    """A store with five checkpoints and no index.

    A run begins with the second checkpoint and ends with the last, whose clock is years behind.
    """
    plain.record("beside", {})
    run = str(plain.record("run-started", {}, start="Add login!").run)
    for _ in range(2):
        plain.record("beside", {})
    set_clock(plain, lambda: 1_700_000_000_000_000)
    plain.record("run-complete", {}, run=run)
    plain.close()
    for path in Path(main_checkout.path, ".git/ckpt").glob("index.sqlite*"):
        path.unlink()
    return plain


def opened(store: Store, told: list[str]) -> Index:
    inner = checkpoints_of_store(store)
    return Index(inner.repository, inner.objects, inner.refs, told.append)


@pytest.mark.parametrize(
    ("portion", "lines"),
    [
        (1, [*(f"… reading checkpoints: {done} of 5" for done in range(1, 5)), ""]),
        (2, ["… reading checkpoints: 2 of 5", "… reading checkpoints: 4 of 5", ""]),
        (4, ["… reading checkpoints: 4 of 5", ""]),
        (5, []),
        (6, []),
    ],
)
def test_each_is_told_and_all_are_there(
    five: Store, monkeypatch: pytest.MonkeyPatch, portion: int, lines: list[str]
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", portion)
    told: list[str] = []
    index = opened(five, told)
    assert sorted(entry.id for entry in index.select()) == [nth(number) for number in range(1, 6)]
    assert [
        entry.sequence for entry in index.select(Query(runs=["20270115-080002-add-login"]))
    ] == [2, 1]
    assert [entry.id for entry in index.select()][:4] == [
        nth(4),
        nth(3),
        nth(5),
        nth(2),
    ]  # a run goes by its latest time up to there
    assert told == lines
    index.close()
    again = opened(five, told)
    assert (len(again.select()), told) == (5, lines)
    again.close()


def test_where_no_file_can_be_kept_all_is_read_for_whoever_asks(
    five: Store, main_checkout: Checkout
) -> None:
    Path(main_checkout.path, ".git/ckpt/index.sqlite").mkdir()
    index = opened(five, [])
    assert len(index.select()) == 5
    index.close()
    assert Path(main_checkout.path, ".git/ckpt/index.sqlite").is_dir()


def rows_of(path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT * FROM entry ORDER BY id").fetchall()
    connection.close()
    return found


def file_of(store: Store) -> Path:
    return Path(private_dir(store), FILE)


def counted(store: Store, patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the objects read from now on."""
    read: list[str] = []
    really = checkpoints_of_store(store).objects.read

    def counting(oids: Sequence[str], *most: int) -> Iterator[tuple[str, bytes] | None]:
        read.extend(oids)
        return really(oids, *most)

    patch.setattr(checkpoints_of_store(store).objects, "read", counting)
    return read


class Killed(BaseException):
    """The kill that ends a reading between two portions."""


def test_a_kill_leaves_what_was_done_and_the_next_one_does_the_rest(
    five: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened(five, [])
    whole.select()
    whole.close()
    rows = rows_of(file_of(five))
    for at in range(1, 5):
        monkeypatch.setattr(module, "_AT_ONCE", 1)
        for path in file_of(five).parent.glob("index.sqlite*"):
            path.unlink()

        def kill(line: str, at: int = at) -> None:
            if line.startswith(f"… reading checkpoints: {at} "):
                raise Killed

        inner = checkpoints_of_store(five)
        killed = Index(inner.repository, inner.objects, inner.refs, kill)
        with pytest.raises(Killed):
            killed.select()
        killed.close()
        assert len(rows_of(file_of(five))) == at
        monkeypatch.setattr(module, "_AT_ONCE", 2)
        with monkeypatch.context() as patch:
            read = counted(five, patch)
            again = opened(five, [])
            again.select()
            again.close()
        assert (len(read), rows_of(file_of(five))) == (5 - at, rows)


@pytest.mark.parametrize("portion", [1, 2])
def test_two_share_the_work(five: Store, monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    """Two readers share the work: each document is read once.

    The second reader begins after the first portion of the first; then they take turns.
    """
    monkeypatch.setattr(module, "_AT_ONCE", portion)
    inner = checkpoints_of_store(five)
    read = counted(five, monkeypatch)
    answers: list[list[str]] = []
    turns = [threading.Semaphore(0), threading.Semaphore(0)]

    def ask(number: int) -> None:
        def wait(line: str) -> None:
            if line:
                turns[1 - number].release()
                assert turns[number].acquire(timeout=10)

        turns[number].acquire()
        index = Index(inner.repository, inner.objects, inner.refs, wait)
        try:
            answers.append([entry.id for entry in index.select()])
        finally:
            index.close()
            for _ in range(9):
                turns[1 - number].release()

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    turns[0].release()
    for thread in threads:
        thread.join()
    assert [len(answer) for answer in answers] == [5, 5]
    assert answers[0] == answers[1]
    assert len(read) == 5
