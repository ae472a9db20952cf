"""`git ckpt expire` prints a line for each run and each other checkpoint."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from tests import planted
from tests.cli.conftest import Ckpt, Outcome, normal
from tests.conftest import Checkout
from tests.durable.test_history import locked
from tests.planted import plant
from tests.stores import maintain


@pytest.mark.long
def test_runs_and_checkpoints(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.git("config", "ckpt.runsOlderThan", "0s")
    with Store.open(main_checkout.path) as store:
        done = store.record("run-started", {}, start="done", trigger="phase")
        worktree = store.resume(done).path
        store.record("run-complete", {}, run=done.run, trigger="phase")
        open_ = store.record("run-started", {}, start="open", trigger="phase")
        store.record("build-started", {}, run=open_.run, trigger="phase")
        progress = store.record("build-progress", {}, run=open_.run, trigger="phase").id
        store.record("build-complete", {}, run=open_.run, trigger="phase")
        store.record("manual-complete", {})
    Path(worktree, "more").write_text("x")
    kept = (
        f"stays\t{done.run}\trun-complete\tthe worktree {worktree} has contents that no "
        "checkpoint has: more\n"
    )
    before = main_checkout.fingerprint()
    assert ckpt("expire", "--dry-run", at=main_checkout) == Outcome(
        0,
        (
            f"stays\t{open_.run}\tbuild-complete\tunfinished: paused\n"
            f"{kept}expires\t{progress}\tbuild-progress\tphase build is complete\n"
        ),
        "1 of 7 checkpoints would expire; 0 of 2 runs\n",
    )
    assert main_checkout.fingerprint() == before
    assert ckpt("expire", at=main_checkout) == Outcome(
        0,
        f"{kept}expired\t{progress}\tbuild-progress\tphase build is complete\n",
        "1 of 7 checkpoints expired; 0 of 2 runs\n",
    )
    Path(worktree, "more").unlink()
    done_now = ckpt("expire", at=main_checkout)
    assert (done_now.code, done_now.err) == (0, "2 of 6 checkpoints expired; 1 of 2 runs\n")
    what, name, phase, why = done_now.out.rstrip("\n").split("\t")
    assert (what, name, phase) == ("expired", done.run, "run-complete")
    assert why.startswith("complete, ")
    assert why.endswith(f"s old, limit 0s; 2 checkpoints, worktree {worktree}")
    assert not Path(worktree).exists()


def test_what_cannot_be_deleted_is_named_and_the_others_go(
    ckpt: Ckpt,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
    with Store.open(main_checkout.path) as store:
        ids = [store.record("manual-complete", {}).id for _ in range(3)]
    with locked(main_checkout, f"refs/checkpoints/{ids[1]}"):
        done = ckpt("expire", "--all", "--older-than", "0s", "--keep-last", "0", at=main_checkout)
        why = f"another process holds {main_checkout.path}/.git/refs/checkpoints/{ids[1]}.lock"
        rows = [tuple(line.split("\t")[:2]) for line in done.out.splitlines()]
        assert (done.code, rows) == (
            1,
            [("expired", ids[2]), ("expired", ids[0]), ("failed", ids[1])],
        )
        assert done.out.endswith(f"{ids[1]}\tmanual-complete\t{why}\n")
        assert done.err.startswith(
            f"2 of 3 checkpoints expired, 1 failed\nerror: {why}\nhint: wait and try again"
        )
        assert [
            line.split("\t")[0] for line in ckpt("list", at=main_checkout).out.splitlines()
        ] == [ids[1]]


@pytest.mark.long
def test_worktrees_that_stay_are_named(ckpt: Ckpt, main_checkout: Checkout) -> None:
    """`remove` keeps worktrees of checkpoints, and names the command to remove them."""
    with Store.open(main_checkout.path) as store:
        alone = store.save("plan-complete")
        first = store.record("run-started", {}, start="open", trigger="phase")
        run = str(store.record("build-started", {}, run=first.run, trigger="phase").run)
        places = [store.resume(each).path for each in (alone, first)]
    said = [
        (
            f"the worktree of {made.id[:8]} stays; to remove it: git worktree remove --force "
            f"--force {path}\n"
        )
        for made, path in zip((alone, first), places, strict=True)
    ]
    assert ckpt("remove", run, at=main_checkout) == Outcome(0, f"{run}\n", said[1])
    everything = ("expire", "--all", "--older-than", "0s", "--keep-last", "0")
    assert (
        ckpt(*everything, "--dry-run", at=main_checkout).err == "1 of 1 checkpoint would expire\n"
    )
    assert ckpt(*everything, at=main_checkout).err == f"{said[0]}1 of 1 checkpoint expired\n"
    du = (
        "worktrees of checkpoints and of removed runs stay; to remove one: git worktree remove "
        "--force --force"
    )
    assert f"{du} PATH\n" in ckpt("du", at=main_checkout).err
    main_checkout.git("worktree", "remove", "--force", "--force", places[0])
    assert f"{du} {places[1]}\n" in ckpt("du", at=main_checkout).err
    main_checkout.git("worktree", "remove", "--force", "--force", places[1])
    assert (du in ckpt("du", at=main_checkout).err, ckpt("verify", at=main_checkout).code) == (
        False,
        0,
    )


def test_everything(ckpt: Ckpt, main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        run = store.record("run-started", {}, start="open", trigger="phase").run
        store.record("manual-complete", {})
    done = ckpt("expire", "--all", "--older-than", "0s", "--keep-last", "0", at=main_checkout)
    assert (done.code, done.err) == (0, "2 of 2 checkpoints expired; 1 of 1 run\n")
    assert done.out.startswith(f"expired\t{run}\trun-started\tunfinished: open, ")
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}


def test_an_interrupt_says_that_the_rest_goes_with_the_next(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = ("expire", "--all", "--older-than", "0s", "--keep-last", "0")
    main_checkout.write("new", "work\n")
    with Store.open(main_checkout.path) as store:
        made = [store.save("a-complete", {}).id, store.save("b-complete", {}).id]

    update = planted.original(planted.UPDATE_REFS)

    def interrupt(self: object, updates: list[Any]) -> None:
        if all(each.ref.startswith("refs/ckpt/trees/") for each in updates):
            raise KeyboardInterrupt
        update(self, updates)

    with monkeypatch.context() as patch:
        plant(patch, planted.UPDATE_REFS, interrupt)
        done = ckpt("remove", made[0], at=main_checkout)
        said = "the removal was interrupted; to list the remaining checkpoints: git ckpt list"
        assert done == Outcome(130, "", f"warning: {said}\n\n")
        said = "the removal was interrupted; to finish it: git ckpt expire"
        assert ckpt(*everything, at=main_checkout) == Outcome(130, "", f"warning: {said}\n\n")
    assert len(main_checkout.refs("refs/checkpoints")) == 1
    assert len(main_checkout.refs("refs/ckpt")) == 2
    done = ckpt(*everything, at=main_checkout)
    assert (done.code, done.err) == (0, "1 of 1 checkpoint expired\n")
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}


@pytest.mark.long
def test_a_run_by_name_goes_as_a_whole(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.commit("one", README="1")
    with Store.open(main_checkout.path) as store:
        alone = store.record("alone-complete", {}).id
        runs = [
            str(store.record("run-started", {}, start=name, trigger="phase").run)
            for name in ("one", "two", "three")
        ]
        places = [Path(store.resume(store.find(run)).path) for run in runs]
        for run in runs:
            store.record("run-complete", {}, run=run, trigger="phase")
    assert ckpt("remove", runs[0], at=main_checkout) == Outcome(0, f"{runs[0]}\n", "")
    assert [place.exists() for place in places] == [False, True, True]
    (places[1] / "more").write_text("x")
    done = ckpt("remove", runs[1], alone, runs[2][:-2], at=main_checkout)
    assert (done.code, done.out) == (14, f"{runs[2]}\n{alone}\n")
    said = (
        f"error: run {runs[1]} stays: the worktree {places[1]} has contents that no "
        "checkpoint has: more\n"
    )
    assert done.err.startswith(said)
    assert [place.exists() for place in places] == [False, True, False]
    assert [line.split("\t")[:2] for line in ckpt("runs", at=main_checkout).out.splitlines()] == [
        [runs[1], "complete"]
    ]


def test_of_runs_that_refer_to_each_other_the_younger_goes_first(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    main_checkout.commit("one", README="1")
    with Store.open(main_checkout.path) as store:
        old = store.record("run-started", {}, start="old", trigger="phase")
        young = store.record("run-started", {}, start="young", trigger="phase", forked_from=old.id)
    assert ckpt("remove", str(old.run), at=main_checkout).code == 2
    assert ckpt("remove", str(old.run), str(young.run), at=main_checkout) == Outcome(
        0, f"{young.run}\n{old.run}\n", ""
    )


def test_a_doctor_says_what_was_left_and_when_maintenance_ran(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    maintain(main_checkout)
    left = main_checkout.path / ".git/objects/tmp_obj_x"
    left.write_bytes(b"x" * 2_000_000)
    os.utime(left, (1_000_000_000, 1_000_000_000))
    facts = dict(line.split(":", 1) for line in ckpt("doctor", at=main_checkout).out.splitlines())
    assert (
        facts["leftovers"]
        == "     1 file of killed processes, 2.0 MB; to delete them: git ckpt expire"
    )
    assert re.fullmatch(r"   TIME, done at TIME", normal(facts["maintenance"]))
    assert ckpt("expire", at=main_checkout).code == 0
    assert not left.exists()
    assert "leftovers" not in ckpt("doctor", at=main_checkout).out
