"""Checkpoints interrupted between two refs by a kill or power cut are repaired."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gitckpt import Policy, Store
from gitckpt.git import leftovers
from gitckpt.git.refs import RefUpdate
from gitckpt.git.repository import discover_repository
from gitckpt.model import ids, times
from gitckpt.store import secrets
from gitckpt.store.records import ref_names
from gitckpt.store.retention import sweep
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.house_rules import SOURCES
from tests.store.conftest import require_whole
from tests.stores import OWN_REFS, common_dir, git_dir, open_store, private_dir


def _store(checkout: Checkout) -> Store:
    return open_store(str(checkout.path), clock=Clock())


def test_a_run_head_that_lags_is_moved_up_before_the_run_goes_on(main_checkout: Checkout) -> None:
    with _store(main_checkout) as store:
        first = store.record("one-complete", {"n": 1}, start="work")
        run = str(first.run)
        second = store.record("two-complete", {"n": 2}, run=run)
    ref = "refs/ckpt/runs/" + run
    main_checkout.git(
        "update-ref", ref, main_checkout.git("rev-parse", "refs/checkpoints/" + first.id)
    )
    with _store(main_checkout) as store:
        third = store.record("three-complete", run=run)
        assert (third.sequence, third.parent, store.read(third.id).state) == (
            3,
            second.id,
            {"n": 2},
        )
        assert [entry.sequence for entry in store.list()] == [3, 2, 1]


def test_a_run_head_that_is_missing_is_made_anew(main_checkout: Checkout) -> None:
    with _store(main_checkout) as store:
        first = store.record("one-complete", start="work")
    main_checkout.git("update-ref", "-d", f"refs/ckpt/runs/{first.run}")
    with _store(main_checkout) as store:
        assert store.record("two-complete", run=first.run).parent == first.id


def _leave_behind(checkout: Checkout, store: Store) -> tuple[str, str]:
    """Save a checkpoint, and delete the ref that lists it; return the remaining refs."""
    checkout.write("new", "work\n")
    saved = store.save("half-complete")
    checkout.git("update-ref", "-d", "refs/checkpoints/" + saved.id)
    checkout.git("update-ref", "refs/keep/ckpt/of-nobody", "HEAD")
    return "refs/ckpt/trees/" + saved.id, "refs/keep/ckpt/of-nobody"


def _age(checkout: Checkout, refs: tuple[str, ...]) -> None:
    long_ago = time.time() - 2 * 3600
    for ref in refs:
        os.utime(Path(common_dir(checkout)) / ref, (long_ago, long_ago))


def test_leftovers_are_swept_once_they_are_old(checkout: Checkout) -> None:
    with _store(checkout) as store:
        whole = store.record("whole-complete")
        left = _leave_behind(checkout, store)
        assert (
            sweep.delete_orphans(
                checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
            )
            == []
        )
        _age(checkout, (*left, "refs/keep/ckpt/" + whole.git_sha))
        assert sweep.delete_orphans(
            checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
        ) == sorted(left)
    assert sorted(checkout.refs(*OWN_REFS)) == [
        "refs/checkpoints/" + whole.id,
        "refs/keep/ckpt/" + whole.git_sha,
    ]


def test_nothing_is_swept_while_a_checkpoint_is_being_written(main_checkout: Checkout) -> None:
    with _store(main_checkout) as store:
        left = _leave_behind(main_checkout, store)
        _age(main_checkout, left)
        with ref_names.write_lock(checkpoints_of_store(store).repository, 0) as held:
            assert held
            assert (
                sweep.delete_orphans(
                    checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
                )
                == []
            )
        assert sweep.delete_orphans(
            checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
        ) == sorted(left)


def test_scratch_files_are_swept_once_they_are_old(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _store(main_checkout) as store:
        store.record("whole-complete")
        store.list()
        place = Path(private_dir(store))
        kept = sorted(path.name for path in place.iterdir())
        replaced = [f"{name}.123.ab" for name in (secrets.KEY, "written", "exports")]
        for name in ("index.123.ab", "index.123.ab.lock", "index.124.cd", *replaced):
            (place / name).write_bytes(b"x")
        (place / "rules.123.cd" / "d").mkdir(parents=True)
        (place / "pack.123.cd").mkdir()
        (place / "pack.123.cd/objects").symlink_to(main_checkout.path / ".git/objects")
        os.link(place / "index.124.cd", main_checkout.path / ".git/index.lock")
        assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == []
        monkeypatch.setattr(times, "GRACE", -1)
        gone = [
            os.path.basename(path)
            for path in sweep.delete_leftover_files(checkpoints_of_store(store).repository)
        ]
        assert gone == sorted(
            ["index.123.ab", "index.123.ab.lock", "pack.123.cd", "rules.123.cd", *replaced]
        )
        assert sorted(path.name for path in place.iterdir()) == sorted([*kept, "index.124.cd"])
    assert require_whole(main_checkout)


def test_what_a_killed_process_had_half_written_is_swept(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _store(checkout) as store:
        beside = [
            Path(git_dir(store), f"{kind}.123.ab")
            for kind in ("ckpt-file", "ckpt-gitdir", "ckpt-undo")
        ]
        half = [
            Path(common_dir(store), "objects", name)
            for name in ("tmp_objdir-bulk-fsync-x", "tmp_obj_y")
        ]
        for path in (*beside, half[1]):
            path.write_bytes(b"x")
        half[0].mkdir()
        assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == []
        monkeypatch.setattr(leftovers, "OBJECTS_QUIET", 0)
        assert sorted(sweep.find_leftover_files(checkpoints_of_store(store).repository)) == sorted(
            map(str, half)
        )
        monkeypatch.setattr(times, "GRACE", -1)
        assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == sorted(
            map(str, (*beside, *half))
        )


class TestInterruptedRemovals:
    @pytest.fixture
    def interrupted(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """One complete checkpoint, and two whose removal stopped halfway.

        Return the remaining refs.
        """
        main_checkout.write("new", "work\n")
        with _store(main_checkout) as store:
            gone = [store.save("a-complete").id, store.save("b-complete").id]
            stays = store.save("c-complete").id
            update, calls = checkpoints_of_store(store).refs.apply_updates, []

            def interrupt(updates: list[RefUpdate]) -> None:
                calls.extend(
                    [updates] if any(not each.new for each in updates) else []
                )  # not the links that were put off
                if len(calls) > 1:
                    raise KeyboardInterrupt
                update(updates)

            with monkeypatch.context() as patch:
                patch.setattr(checkpoints_of_store(store).refs, "apply_updates", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    store.remove(gone)
        assert list(main_checkout.refs("refs/checkpoints")) == ["refs/checkpoints/" + stays]
        assert sorted(main_checkout.refs("refs/ckpt/trees")) == sorted(
            "refs/ckpt/trees/" + each for each in [*gone, stays]
        )
        return ["refs/ckpt/trees/" + stays]

    def test_the_next_expiry_finishes_them(
        self, main_checkout: Checkout, interrupted: list[str]
    ) -> None:
        with _store(main_checkout) as store:
            assert store.expire(dry_run=True).total == 1
            assert len(main_checkout.refs("refs/ckpt/trees")) == 3
            said: list[str] = []
            store.expire(Policy(), progress=said.append)
        assert said == [
            "clearing leftovers of interrupted commands",
            "releasing commits that no checkpoint needs",
        ]
        assert list(main_checkout.refs("refs/ckpt/trees")) == interrupted
        assert require_whole(main_checkout)

    def test_the_next_removal_finishes_them(
        self, main_checkout: Checkout, interrupted: list[str]
    ) -> None:
        with _store(main_checkout) as store:
            more = store.record("d-complete").id
            store.remove([more])
        assert list(main_checkout.refs("refs/ckpt/trees")) == interrupted

    def test_one_that_had_not_begun_is_not_finished(
        self, main_checkout: Checkout, interrupted: list[str]
    ) -> None:
        with _store(main_checkout) as store:
            with open(os.path.join(private_dir(store), "removing"), "a") as file:
                file.write(f"{interrupted[0].rpartition('/')[2]}\n../../heads/main\n")
            checkpoints_of_store(store).make_remover().update_keep_refs()
        assert list(main_checkout.refs("refs/ckpt/trees")) == interrupted
        assert require_whole(main_checkout)
        assert main_checkout.refs("refs/heads")


def test_a_pack_is_not_kept_for_ever_for_a_process_that_was_killed(main_checkout: Checkout) -> None:
    """A sweep deletes gitckpt's `.keep` files of killed processes.

    While a gc runs, each writer marks its packs with `.keep`. git never repacks or deletes such
    packs.
    """
    packs = main_checkout.path / ".git/objects/pack"
    packs.mkdir(exist_ok=True)
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    said = {
        "left": f"gitckpt {ended}",
        "young": f"gitckpt {ended}",
        "held": f"gitckpt {os.getpid()}\n",
        "fetched": "fetch-pack 1 on x\n",
        "odd": "",
    }
    for name, text in said.items():
        path = packs / f"pack-{name}.keep"
        path.write_text(text)
        if name != "young":
            os.utime(path, (1_000_000_000, 1_000_000_000))
    repository = discover_repository(str(main_checkout.path))
    assert sweep.delete_leftover_files(repository) == [str(packs / "pack-left.keep")]
    assert sweep.delete_leftover_files(repository) == []


def test_a_lock_of_a_ref_that_nobody_needs_is_swept(main_checkout: Checkout) -> None:
    """No command ever writes the ref of a removed checkpoint, so none finds its lock."""
    with _store(main_checkout) as store:
        store.record("a-complete")
        ours, young, theirs = (
            main_checkout.path / ".git/refs" / name
            for name in (
                "checkpoints/11111111-1111-4111-8111-111111111111.lock",
                "ckpt/runs/x.lock",
                "heads/x.lock",
            )
        )
        for path in (ours, young, theirs):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for path in (ours, theirs):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        sweep.delete_orphans(
            checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
        )
        assert [path.exists() for path in (ours, young, theirs)] == [False, True, True]


def test_a_worktree_that_git_was_killed_at_making_is_forgotten(main_checkout: Checkout) -> None:
    """Git locks a new worktree before it records its path.

    git does not list such a directory as a worktree, and does not prune it.
    """
    place = main_checkout.path / ".git/worktrees"
    ours = f"gitckpt {ids.make_checkpoint_id()}"
    for name, reason in (
        ("ours", ours),
        ("young", ours),
        ("theirs", "initializing"),
        ("a person's", "gitckpt must not touch it"),
    ):
        (place / name).mkdir(parents=True)
        (place / name / "locked").write_text(reason)
        if name != "young":
            for path in (place / name / "locked", place / name):
                os.utime(path, (1_000_000_000, 1_000_000_000))
    with _store(main_checkout) as store:
        store.record("a-complete")
        assert list(store.verify().findings) == []
        assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == [
            str(place / "ours")
        ]
    assert sorted(os.listdir(place)) == ["a person's", "theirs", "young"]


def test_each_kind_of_scratch_is_swept() -> None:
    """Any other kind of scratch file would stay forever."""
    kinds = {
        kind
        for source in SOURCES.values()
        for kind in re.findall(r"\.scratch_path\(\"(.+?)\"\)", source)
    }
    assert {"index", "objects"} <= kinds
    assert kinds <= set(sweep._PRIVATE)
