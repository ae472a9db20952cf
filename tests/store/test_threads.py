"""Threads share one store without crashes, losses or duplicates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Query
from tests import forked
from tests.conftest import Checkout
from tests.store.conftest import notes, require_runs, require_whole
from tests.stores import open_store

ROUNDS = 6


def all_at_once(path: str, adapter: str) -> tuple[list[str], list[str]]:
    """Call all operations of one store from ten threads.

    Return the recorded checkpoints, and those removed.
    """
    with open_store(path, adapter=adapter) as store:
        run = store.record("run-started", start="threads").run
        recorded: set[str] = set()
        removed: set[str] = set()
        begin = threading.Barrier(10)

        def extend() -> None:
            recorded.update(
                store.record("a-complete", {"n": number}, run=run).id for number in range(ROUNDS)
            )

        def save() -> None:
            for number in range(ROUNDS):
                Path(path, "own").write_text(f"{number}")
                recorded.add(store.save("b-complete", {"n": number}).id)

        def take_away() -> None:
            for number in range(ROUNDS):
                gone = store.record("c-complete", {"n": number}).id
                recorded.add(gone)
                assert store.remove([gone]) == 1
                removed.add(gone)

        def look() -> None:
            for _ in range(2 * ROUNDS):
                for entry in store.list(Query(limit=3)):
                    try:
                        assert store.read(entry.id).id == entry.id
                    except NotFoundError:
                        continue  # it was removed meanwhile
                assert store.find(str(run)) in {entry.id for entry in store.list(Query(run=run))}
                store.links("HEAD")
                store.problems()

        def work(action: Callable[[], None]) -> None:
            begin.wait()
            action()

        actions = [extend, extend, save, save, take_away, take_away, look, look, look, look]
        with ThreadPoolExecutor(len(actions)) as pool:
            for done in [pool.submit(work, action) for action in actions]:
                done.result()
        return [*{store.list(Query(run=run))[-1].id} | recorded], [*removed]


@pytest.mark.long(but=["linked-libgit2"])
def test_threads_share_a_store(checkout: Checkout, adapter: str) -> None:
    # apart: a crash of Python is to be a failure, not the end of the tests
    [found] = forked.together((all_at_once, (str(checkout.path), adapter)))
    recorded, removed = map(set, found)
    there = require_whole(checkout)
    assert set(there) == recorded - removed
    assert len(recorded) == 1 + 6 * ROUNDS
    [(run, chain)] = require_runs(checkout, there).items()
    assert len(chain) == 1 + 2 * ROUNDS, run
    assert sorted(name for lines in notes(checkout).values() for name in lines) == sorted(there)
