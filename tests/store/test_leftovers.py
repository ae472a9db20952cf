"""What a kill or a power cut leaves between two refs of one checkpoint, and how it is mended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gitckpt.git.repository import discover
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import keep, layout
from gitckpt.store.retention import sweep
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout, Clock


def _store(checkout: Checkout) -> Store:
    return Store(Checkpoints(discover(str(checkout.path)), adapter="plumbing", clock=Clock()))


def test_a_run_head_that_lags_is_moved_up_before_the_run_goes_on(main_checkout: Checkout) -> None:
    with _store(main_checkout) as store:
        first = store.record("one-complete", {"n": 1}, start="work")
        run = str(first.run)
        second = store.record("two-complete", {"n": 2}, run=run)
    ref = layout.RUNS + run
    main_checkout.git("update-ref", ref, main_checkout.git("rev-parse", layout.CHECKPOINTS + first.id))
    with _store(main_checkout) as store:
        third = store.record("three-complete", run=run)
        assert (third.sequence, third.parent, store.read(third.id).state) == (3, second.id, {"n": 2})
        assert [entry.sequence for entry in store.list()] == [3, 2, 1]


def test_a_run_head_that_is_missing_is_made_anew(main_checkout: Checkout) -> None:
    with _store(main_checkout) as store:
        first = store.record("one-complete", start="work")
    main_checkout.git("update-ref", "-d", f"{layout.RUNS}{first.run}")
    with _store(main_checkout) as store:
        assert store.record("two-complete", run=first.run).parent == first.id


def _leave_behind(checkout: Checkout, store: Store) -> tuple[str, str]:
    """Makes a checkpoint with all its refs, and deletes the one that makes it count; returns the two that are left."""
    checkout.write("new", "work\n")
    saved = store.save("half-complete")
    checkout.git("update-ref", "-d", layout.CHECKPOINTS + saved.id)
    checkout.git("update-ref", f"{layout.KEEP}of-nobody", "HEAD")
    return layout.TREES + saved.id, f"{layout.KEEP}of-nobody"


def _age(checkout: Checkout, refs: tuple[str, ...]) -> None:
    long_ago = time.time() - 2 * keep.GRACE
    for ref in refs:
        os.utime(Path(discover(str(checkout.path)).common_dir) / ref, (long_ago, long_ago))


def test_leftovers_are_swept_once_they_are_old(checkout: Checkout) -> None:
    with _store(checkout) as store:
        whole = store.record("whole-complete")
        left = _leave_behind(checkout, store)
        assert sweep.sweep(inside(store).repository, inside(store).refs) == []
        _age(checkout, (*left, layout.KEEP + whole.git_sha))
        assert sweep.sweep(inside(store).repository, inside(store).refs) == sorted(left)
    assert sorted(checkout.refs(*layout.OWN)) == [layout.CHECKPOINTS + whole.id, layout.KEEP + whole.git_sha]


def test_nothing_is_swept_while_a_checkpoint_is_being_written(main_checkout: Checkout) -> None:
    from gitckpt.git.lock import Lock
    from gitckpt.store.records.recorder import LOCK_FILE

    with _store(main_checkout) as store:
        left = _leave_behind(main_checkout, store)
        _age(main_checkout, left)
        with Lock(os.path.join(inside(store).repository.private_dir, LOCK_FILE), 0) as held:
            assert held
            assert sweep.sweep(inside(store).repository, inside(store).refs) == []
        assert sweep.sweep(inside(store).repository, inside(store).refs) == sorted(left)


def test_scratch_files_are_swept_once_they_are_old(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    with _store(main_checkout) as store:
        store.record("whole-complete")
        store.list()
        place = Path(inside(store).repository.private_dir)
        kept = sorted(path.name for path in place.iterdir())
        for name in ("index.123.ab", "index.123.ab.lock"):
            (place / name).write_bytes(b"x")
        (place / "rules.123.cd" / "d").mkdir(parents=True)
        assert sweep.sweep_scratch(inside(store).repository) == []
        monkeypatch.setattr(keep, "GRACE", -1)
        assert sweep.sweep_scratch(inside(store).repository) == ["index.123.ab", "index.123.ab.lock", "rules.123.cd"]
        assert sorted(path.name for path in place.iterdir()) == kept
