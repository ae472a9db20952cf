"""Concurrent processes lose, duplicate and revive no checkpoint."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from gitckpt import Store
from tests import forked
from tests.conftest import Checkout, Clock, git_program
from tests.store.conftest import MakeStore, notes, nth, require_runs, require_whole
from tests.stores import open_store


def record(path: str, adapter: str, run: str, count: int) -> list[str]:
    """Extend a run, and return the ids that were reported as recorded."""
    with open_store(path, adapter=adapter) as store:
        return [store.record("a-complete", {"n": number}, run=run).id for number in range(count)]


def record_outside(path: str, adapter: str, run: str, count: int) -> list[str]:
    """Record checkpoints of a dirty worktree, in a separate run."""
    with open_store(path, adapter=adapter) as store:
        ids = []
        mine: str | None = None
        for number in range(count):
            Path(path, "own").write_text(f"{path} {number}")
            start = run if mine is None else None
            made = store.record(
                "a-complete", {"n": number}, worktree=store.capture(), run=mine, start=start
            )
            mine = made.run
            ids.append(made.id)
        return ids


def remove(path: str, ids: list[str]) -> list[str]:
    """Remove checkpoints a few at a time; return the ids reported as removed."""
    with open_store(path) as store:
        return [str(sum(store.remove(ids[start : start + 3]) for start in range(0, len(ids), 3)))]


class Packer:
    """A thread that packs refs in a loop during the `with` block."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.times = 0

    def _work(self) -> None:
        while not self._over.is_set():
            subprocess.run(
                [git_program(), "pack-refs", "--all"],
                cwd=self._checkout.path,
                check=False,
                stderr=subprocess.DEVNULL,
            )
            self.times += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def adapters(count: int) -> list[str]:
    return [("plumbing", "libgit2")[number % 2] for number in range(count)]


def require_complete(checkout: Checkout, run: str, reported: list[str]) -> None:
    """Require one chain of exactly the reported checkpoints, all listed in the notes."""
    found = require_whole(checkout)
    assert len(reported) == len(set(reported))
    chain = require_runs(checkout, found)[run]
    assert sorted(chain) == sorted(reported)
    assert (
        checkout.refs("refs/ckpt/runs")[f"refs/ckpt/runs/{run}"]
        == checkout.refs("refs/checkpoints")[f"refs/checkpoints/{chain[-1]}"]
    )
    listed = [name for lines in notes(checkout).values() for name in lines]
    assert sorted(listed) == sorted(found)


@pytest.fixture
def run(plain: Store) -> str:
    """A run with one checkpoint, number 1."""
    return plain.record("a-started", {}, start="r").run or ""


@pytest.mark.long
def test_8_processes_extend_one_run(main_checkout: Checkout, plain: Store, run: str) -> None:
    jobs = [(record, (str(main_checkout.path), adapter, run, 50)) for adapter in adapters(8)]
    reported = [id_ for ids in forked.together(*jobs) for id_ in ids]
    plain.close()
    require_complete(main_checkout, run, [nth(1), *reported])
    assert len(plain.list()) == 401


@pytest.mark.long
def test_while_refs_are_packed(main_checkout: Checkout, plain: Store, run: str) -> None:
    with Packer(main_checkout) as packer:
        reported = [
            id_
            for ids in forked.together(
                *[(record, (str(main_checkout.path), name, run, 25)) for name in adapters(4)]
            )
            for id_ in ids
        ]
    plain.close()
    require_complete(main_checkout, run, [nth(1), *reported])
    assert packer.times > 1


@pytest.mark.long
def test_while_others_are_removed_and_refs_are_packed(
    main_checkout: Checkout, plain: Store, run: str
) -> None:
    others = [plain.record("b-complete", {}).id for _ in range(30)]
    own = plain.record("c-complete", {}, start="goes").run or ""
    others += [plain.record("c-complete", {}, run=own).id for _ in range(15)]
    plain.close()
    path = str(main_checkout.path)
    jobs: list[tuple[Callable[..., list[str]], tuple[Any, ...]]] = [
        (record, (path, name, run, 25)) for name in adapters(3)
    ]
    with Packer(main_checkout):
        *recorded, removed = forked.together(*jobs, (remove, (path, others)))
    assert removed == ["45"]
    found = require_whole(main_checkout)
    assert not set(others) & found.keys()
    chain = require_runs(main_checkout, {id_: one for id_, one in found.items() if one.run == run})[
        run
    ]
    assert sorted(chain) == sorted([nth(1), *(id_ for ids in recorded for id_ in ids)])
    head = main_checkout.git("rev-parse", "HEAD")
    assert main_checkout.refs("refs/ckpt/trees", "refs/keep") == {f"refs/keep/ckpt/{head}": head}
    assert sorted(name for lines in notes(main_checkout).values() for name in lines) == sorted(
        found
    )


@pytest.mark.long
def test_two_remove_the_same(main_checkout: Checkout, plain: Store, run: str) -> None:
    ids = [plain.record("a-complete", {}, run=run).id for _ in range(30)]
    plain.close()
    counts = [
        int(text) for (text,) in forked.together(*[(remove, (str(main_checkout.path), ids))] * 3)
    ]
    assert sum(counts) == 30
    assert list(require_whole(main_checkout)) == [nth(1)]
    assert sorted(main_checkout.refs("refs/ckpt")) == [f"refs/ckpt/runs/{run}"]
    assert (
        main_checkout.refs()[f"refs/ckpt/runs/{run}"]
        == main_checkout.refs()[f"refs/checkpoints/{nth(1)}"]
    )


@pytest.mark.long
def test_4_processes_on_worktrees_of_their_own(main_checkout: Checkout, tmp_path: Path) -> None:
    jobs = []
    for number, adapter in enumerate(adapters(4)):
        place = tmp_path / f"side {number}"
        main_checkout.git("worktree", "add", "--quiet", "-b", f"side-{number}", str(place))
        Checkout(place).commit(f"of {number}")
        jobs.append((record_outside, (str(place), adapter, f"run {number}", 8)))
    reported = forked.together(*jobs)
    found = require_whole(main_checkout)
    runs = require_runs(main_checkout, found)
    assert sorted(runs.values()) == sorted(reported)
    for number, ids in enumerate(reported):
        texts = [
            main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{id_}:files/own") for id_ in ids
        ]
        assert texts == [f"{tmp_path / f'side {number}'} {n}" for n in range(8)]
        assert {found[id_].branch for id_ in ids} == {f"side-{number}"}
    assert sorted(name for lines in notes(main_checkout).values() for name in lines) == sorted(
        found
    )


@pytest.mark.long
def test_threads_with_a_store_each(
    make_store: MakeStore, main_checkout: Checkout, run: str, clock: Clock
) -> None:
    stores = [make_store(main_checkout) for _ in range(4)]
    made: list[str] = []

    def work(store: Store) -> None:
        made.extend([store.record("a-complete", {}, run=run).id for _ in range(10)])

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(require_runs(main_checkout, require_whole(main_checkout))[run]) == sorted(
        [nth(1), *made]
    )
