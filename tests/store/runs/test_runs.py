"""Runs: names, sequence, carried state, and processes that start them at once."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from tests import forked
from tests.conftest import Checkout, Clock
from tests.store.conftest import ONE, RUN, THREE, TWO, MakeStore, require_runs, require_whole
from tests.store.working import worked
from tests.stores import head_of, open_store


class TestRuns:
    def test_a_start_and_what_follows(self, store: Store, checkout: Checkout) -> None:
        chain = [store.record("a-started", {"n": 1}, start="Add login!")]
        chain += [store.record("a-complete", {"n": n}, run=RUN) for n in (2, 3)]
        assert [(one.id, one.run, one.sequence, one.parent) for one in chain] == [
            (ONE, RUN, 1, None),
            (TWO, RUN, 2, ONE),
            (THREE, RUN, 3, TWO),
        ]
        assert checkout.refs("refs/ckpt/runs") == {
            f"refs/ckpt/runs/{RUN}": checkout.git("rev-parse", f"refs/checkpoints/{THREE}")
        }
        assert head_of(store, RUN) == chain[-1]
        assert require_runs(checkout, require_whole(checkout)) == {RUN: [ONE, TWO, THREE]}

    def test_a_name_that_is_taken_gets_a_suffix(self, plain: Store, clock: Clock) -> None:
        clock.step = 0
        runs = [plain.record("a-started", {}, start="Add login!").run for _ in range(3)]
        assert runs == [
            "20270115-080000-add-login",
            "20270115-080000-add-login-2",
            "20270115-080000-add-login-3",
        ]

    @pytest.mark.parametrize(
        ("name", "slug"),
        [
            ("", "run"),
            ("—", "run"),
            ("../../etc", "etc"),
            ("Ünï code", "n-code"),
            ("x" * 300, "x" * 50),
            ("a\nb", "a-b"),
            ("A.lock", "a-lock"),
        ],
    )
    def test_any_name_makes_a_ref(self, plain: Store, name: str, slug: str) -> None:
        assert plain.record("a-started", {}, start=name).run == f"20270115-080001-{slug}"

    @pytest.mark.long
    def test_starters_in_several_processes_never_share_one(self, main_checkout: Checkout) -> None:
        runs = in_processes(start_runs, 4, str(main_checkout.path), 8)
        base = "20270115-080000-same"
        assert sorted(runs) == sorted([base, *(f"{base}-{n}" for n in range(2, 33))])
        found = require_whole(main_checkout)
        assert require_runs(main_checkout, found).keys() == set(runs)

    def test_the_state_is_carried_on(self, store: Store) -> None:
        state = {"a": None, "n": 2**80, "t": dt.date(2026, 1, 1)}
        store.record("a-started", state, start="Add login!")
        second = store.record("a-complete", run=RUN)
        assert second.state == {}
        assert (store.read(TWO).state, head_of(store, RUN).state) == (state, state)

    def test_an_empty_state_is_one(self, store: Store) -> None:
        store.record("a-started", {"n": 1}, start="Add login!")
        store.record("a-complete", {}, run=RUN)
        store.record("b-complete", run=RUN)
        assert [store.read(id_).state for id_ in (ONE, TWO, THREE)] == [{"n": 1}, {}, {}]

    def test_outside_a_run_no_state_is_an_empty_one(self, store: Store) -> None:
        store.record("a-complete", {"n": 1})
        store.record("b-complete")
        assert store.read(TWO).state == {}

    def test_another_process_extends_the_run_meanwhile(
        self, make_store: MakeStore, main_checkout: Checkout
    ) -> None:
        one, other = make_store(main_checkout, "libgit2"), make_store(main_checkout, "plumbing")
        one.record("a-started", {}, start="Add login!")
        other.record("b-complete", {"from": "other"}, run=RUN)
        third = one.record("c-complete", run=RUN)
        assert (third.sequence, third.parent, one.read(THREE).state) == (3, TWO, {"from": "other"})


def in_processes(work: Callable[..., list[str]], count: int, *args: Any) -> list[str]:
    """Return what a function returned in `count` concurrent processes."""
    return [text for texts in forked.together(*[(work, args)] * count) for text in texts]


def start_runs(path: str, count: int) -> list[str]:
    """Start runs of one name in one second."""
    with open_store(path, clock=lambda: 1800000000000000) as store:
        return [
            str(store.record("a-started", {"pid": os.getpid()}, start="same").run)
            for _ in range(count)
        ]


class TestPlaces:
    """`runs` shows the path of a run's worktree, even where git does not know it."""

    def place(self, store: Store) -> str | None:
        return store.runs()[0].path

    def test_of_one_that_was_moved_by_hand(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        work = worked(plain, "r", make_store)
        moved = main_checkout.path / "elsewhere"
        work.worktree.path.rename(moved)
        assert self.place(plain) == str(moved)
        assert plain.resume(work.newest).path == str(moved)

    def test_of_one_whose_repository_was_moved(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
    ) -> None:
        work = worked(plain, "r", make_store)
        plain.close()
        main_checkout.path.rename(tmp_path / "renamed")
        place = str(tmp_path / "renamed" / work.worktree.path.relative_to(main_checkout.path))
        moved = make_store(tmp_path / "renamed")
        assert self.place(moved) == place
        assert moved.resume(work.newest).path == place

    def test_of_one_that_git_has_forgotten_and_of_one_made_anew(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        work = worked(plain, "r", make_store)
        shutil.rmtree(main_checkout.path / ".git" / "worktrees")
        assert self.place(plain) == str(work.worktree.path)
        shutil.rmtree(work.worktree.path)
        assert self.place(plain) is None
        anew = plain.resume(work.newest).path
        assert self.place(plain) == anew
