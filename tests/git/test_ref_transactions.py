"""A ref transaction applies all updates or none, and checks the old values.

It runs in a long-lived git process or in one of its own.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitckpt import CkptError, GitError, LockHeld, RefMoved
from gitckpt.git import refs as refs_module
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository
from tests.conftest import Checkout
from tests.git.applying import apply_once

A, B, C = (f"refs/checkpoints/{name}" for name in "abc")

Apply = Callable[[list[RefUpdate]], None]


class World:
    """A repository with two blobs to point to.

    Attributes:
        checkout: its main worktree.
        repository: the repository.
        one: a blob.
        two: another one.
        apply: applies updates, by `Refs.apply_updates` or by `apply_once`.
    """

    def __init__(self, checkout: Checkout, repository: Repository, apply: Apply) -> None:
        self.checkout = checkout
        self.repository = repository
        self.apply = apply
        self.one, self.two = (
            checkout.git("hash-object", "-w", "--stdin", data=text) for text in ("one", "two")
        )

    def refused(self, *updates: RefUpdate) -> CkptError:
        """Return the error; assert that no ref changed and the next update works."""
        before = self.checkout.refs()
        with pytest.raises(CkptError) as caught:
            self.apply(list(updates))
        assert self.checkout.refs() == before
        self.apply([RefUpdate("refs/checkpoints/next", self.one, "")])
        self.apply([RefUpdate("refs/checkpoints/next", "", self.one)])
        assert self.checkout.refs() == before
        return caught.value

    def lock(self, ref: str) -> Path:
        path = self.checkout.path / ".git" / f"{ref}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path


@pytest.fixture(params=["Refs.update", "apply_once"])
def world(
    request: pytest.FixtureRequest, main_checkout: Checkout, repository: Repository
) -> Iterator[World]:
    """A repository whose refs are written in either way."""
    refs = Refs(repository)
    apply: Apply = (
        refs.apply_updates
        if request.param == "Refs.update"
        else lambda updates: apply_once(repository, updates)
    )
    yield World(main_checkout, repository, apply)
    refs.close()


class TestTransaction:
    def test_creates_updates_and_deletes(self, world: World) -> None:
        world.apply(
            [
                RefUpdate(A, world.one, ""),
                RefUpdate(B, world.one, ""),
                RefUpdate("refs/ckpt/runs/größe", world.one, ""),
            ]
        )
        world.apply(
            [
                RefUpdate(A, world.two, world.one),
                RefUpdate(B, "", world.one),
                RefUpdate(C, world.two, ""),
            ]
        )
        assert world.checkout.refs("refs/checkpoints", "refs/ckpt") == {
            A: world.two,
            C: world.two,
            "refs/ckpt/runs/größe": world.one,
        }

    def test_of_nothing_changes_nothing(self, world: World) -> None:
        before = world.checkout.refs()
        world.apply([])
        assert world.checkout.refs() == before

    @pytest.mark.long
    def test_of_thousands(self, world: World) -> None:
        names = [f"refs/checkpoints/{number:05}" for number in range(3000)]
        world.apply([RefUpdate(name, world.one, "") for name in names])
        assert world.checkout.refs("refs/checkpoints") == dict.fromkeys(names, world.one)
        world.apply([RefUpdate(name, "", world.one) for name in names])
        assert world.checkout.refs("refs/checkpoints") == {}

    def test_works_on_packed_refs(self, world: World) -> None:
        world.apply([RefUpdate(A, world.one, ""), RefUpdate(B, world.one, "")])
        world.checkout.git("pack-refs", "--all", "--prune")
        world.apply([RefUpdate(A, world.two, world.one), RefUpdate(B, "", world.one)])
        assert world.checkout.refs("refs/checkpoints") == {A: world.two}

    def test_sees_what_others_wrote_meanwhile(self, world: World) -> None:
        world.apply([RefUpdate(A, world.one, "")])
        world.checkout.git("update-ref", A, world.two)
        world.checkout.git("pack-refs", "--all", "--prune")
        world.apply([RefUpdate(A, world.one, world.two)])
        assert world.checkout.refs(A) == {A: world.one}

    def test_leaves_reflogs_and_worktree_alone(self, world: World) -> None:
        before = world.checkout.fingerprint()
        world.apply([RefUpdate(A, world.one, "")])
        world.apply([RefUpdate(A, "", world.one)])
        assert world.checkout.fingerprint() == before

    def test_locks_and_moves_refs_in_the_given_order(self, world: World) -> None:
        names = [f"refs/checkpoints/{name}" for name in ("m", "z", "a", "q")]
        script = 'test "$1" = committed && cut -d " " -f 3 >"$GIT_DIR/order"; exit 0'
        hook = world.checkout.path / ".git" / "hooks" / "reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{script}\n")
        hook.chmod(0o755)
        world.apply([RefUpdate(name, world.one, "") for name in names])
        assert (world.checkout.path / ".git" / "order").read_text().split() == names


class TestRefMoved:
    def test_where_it_exists_already(self, world: World) -> None:
        world.checkout.git("update-ref", A, world.one)
        error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, world.two, ""))
        assert (type(error), error.message, error.hint) == (
            RefMoved,
            f"cannot lock ref '{A}': reference already exists",
            "another process was faster; run the command again",
        )

    @pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
    def test_where_it_has_another_value(self, world: World, packed: bool) -> None:
        world.checkout.git("update-ref", A, world.one)
        if packed:
            world.checkout.git("pack-refs", "--all", "--prune")
        said = f"cannot lock ref '{A}': is at {world.one} but expected {world.two}"
        for new in (world.one, ""):
            error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, new, world.two))
            assert (type(error), error.message) == (RefMoved, said)

    def test_where_it_has_vanished(self, world: World) -> None:
        for new in (world.two, ""):
            error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, new, world.one))
            assert (type(error), error.message) == (
                RefMoved,
                f"cannot lock ref '{A}': unable to resolve reference '{A}'",
            )

    def test_a_deletion_of_what_must_not_exist_deletes_nothing(self, world: World) -> None:
        world.apply([RefUpdate(A, "", "")])
        world.checkout.git("update-ref", A, world.one)
        assert type(world.refused(RefUpdate(A, "", ""))) is RefMoved


class TestRefusal:
    def kind(self, error: CkptError) -> type[CkptError]:
        assert isinstance(error, GitError), error
        assert error.message.startswith("git update-ref failed: fatal: ")
        return type(error)

    def test_of_an_object_that_is_nowhere(self, world: World) -> None:
        error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, "1" * 40, ""))
        assert self.kind(error) is GitError
        assert f"trying to write ref '{A}' with nonexistent object {'1' * 40}" in error.message

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "name", ["has space", "dot..dot", "new\nline", "end.lock", "tilde~1", "", "\nverify refs/x"]
    )
    def test_of_an_invalid_name(self, world: World, name: str) -> None:
        assert (
            self.kind(
                world.refused(
                    RefUpdate(B, world.one, ""),
                    RefUpdate(f"refs/checkpoints/{name}", world.one, ""),
                )
            )
            is GitError
        )

    def test_of_a_name_inside_another(self, world: World) -> None:
        world.checkout.git("update-ref", A, world.one)
        error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(f"{A}/below", world.one, ""))
        assert self.kind(error) is GitError
        assert f"'{A}' exists; cannot create '{A}/below'" in error.message

    def test_of_a_name_above_another(self, world: World) -> None:
        world.checkout.git("update-ref", f"{A}/below", world.one)
        assert (
            self.kind(world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, world.one, "")))
            is GitError
        )

    def test_of_names_inside_each_other(self, world: World) -> None:
        assert (
            self.kind(
                world.refused(RefUpdate(A, world.one, ""), RefUpdate(f"{A}/below", world.one, ""))
            )
            is GitError
        )

    def test_of_one_ref_twice(self, world: World) -> None:
        assert (
            self.kind(world.refused(RefUpdate(A, world.one, ""), RefUpdate(A, world.two, "")))
            is GitError
        )

    @pytest.mark.parametrize("new", [True, False], ids=["update", "delete"])
    def test_of_a_broken_ref_is_not_taken_for_a_faster_writer(
        self, world: World, new: bool
    ) -> None:
        broken = world.checkout.path / ".git" / A
        broken.parent.mkdir(parents=True)
        broken.touch()
        with pytest.raises(GitError, match="reference broken"):
            world.apply([RefUpdate(A, world.two if new else "", world.one)])
        assert broken.read_bytes() == b""


class TestLockHeld:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(refs_module, "LOCK_TIMEOUT_MS", 20)

    def test_names_the_lock_of_a_ref_and_leaves_it(self, world: World) -> None:
        lock = world.lock(A)
        cure = f"rm {shlex.quote(str(lock))}"
        error = world.refused(RefUpdate(B, world.one, ""), RefUpdate(A, world.one, ""))
        assert (type(error), error.message, error.hint) == (
            LockHeld,
            f"another process holds {lock}",
            (
                "wait and try again; if nothing is running, the lock is left from a crash; "
                f"remove it with {cure}"
            ),
        )
        assert isinstance(error, LockHeld)
        assert (error.path, lock.exists()) == (str(lock), True)

    def test_names_the_lock_of_the_packed_refs(self, world: World) -> None:
        world.checkout.git("update-ref", A, world.one)
        world.checkout.git("pack-refs", "--all", "--prune")
        lock = world.lock("packed-refs")
        before = world.checkout.refs()
        with pytest.raises(LockHeld) as caught:
            world.apply([RefUpdate(A, "", world.one)])
        assert (caught.value.path, lock.exists(), world.checkout.refs()) == (
            str(lock),
            True,
            before,
        )
        lock.unlink()
        world.apply([RefUpdate(A, "", world.one)])

    def test_waits_for_the_lock_before_it_gives_up(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_module, "LOCK_TIMEOUT_MS", 20_000)
        lock = world.lock(A)
        threading.Timer(0.05, lock.unlink).start()
        world.apply([RefUpdate(A, world.one, "")])
        assert (world.checkout.refs(A), lock.exists()) == ({A: world.one}, False)

    def test_in_a_linked_worktree_names_the_shared_lock(
        self, world: World, tmp_path: Path, opened: Callable[..., Repository]
    ) -> None:
        world.checkout.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
        lock = world.lock(A)
        with pytest.raises(LockHeld) as caught:
            apply_once(opened(tmp_path / "linked"), [RefUpdate(A, world.one, "")])
        assert caught.value.path == str(lock)


class TestDurability:
    def test_each_ref_is_flushed(
        self, main_checkout: Checkout, repository: Repository, flushes: Callable[[], int]
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        before = flushes()
        refs = Refs(repository)
        refs.apply_updates([RefUpdate(A, head, ""), RefUpdate(B, head, "")])
        refs.apply_updates([RefUpdate(C, head, "")])
        apply_once(repository, [RefUpdate("refs/checkpoints/d", head, "")])
        once = flushes() - before
        writer = refs._standby.take_process()
        writer.communicate()
        assert (once, flushes() - before) == (1, 4)

    def test_of_packed_refs_too(
        self, main_checkout: Checkout, repository: Repository, flushes: Callable[[], int]
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        main_checkout.git("update-ref", A, head)
        main_checkout.git("pack-refs", "--all", "--prune")
        before = flushes()
        apply_once(repository, [RefUpdate(A, "", head)])
        assert flushes() - before == 1

    def test_the_directories_are_flushed_in_the_order_of_the_updates(
        self, main_checkout: Checkout, repository: Repository, flushed: list[str]
    ) -> None:
        head, common = main_checkout.git("rev-parse", "HEAD"), str(main_checkout.path / ".git")
        refs = Refs(repository)
        refs.apply_updates(
            [
                RefUpdate("refs/keep/ckpt/a", head, ""),
                RefUpdate("refs/checkpoints/a", head, ""),
                RefUpdate("refs/keep/ckpt/b", head, ""),
            ]
        )
        (kept, checkpoints) = (
            flushed.index(f"{common}/{name}") for name in ("refs/keep/ckpt", "refs/checkpoints")
        )
        assert kept < checkpoints
        assert {f"{common}/refs/keep", f"{common}/refs"} == set(flushed) - {
            flushed[kept],
            flushed[checkpoints],
        }  # which are new
        assert (
            max(flushed.index(f"{common}/refs/keep"), flushed.index(f"{common}/refs")) < checkpoints
        )
        flushed.clear()
        refs.apply_updates(
            [RefUpdate("refs/checkpoints/b", head, ""), RefUpdate("refs/keep/ckpt/b", head, head)]
        )
        assert set(flushed) == {f"{common}/refs/checkpoints", f"{common}/refs"}
        refs.close()

    def test_the_name_of_the_packed_refs_is_flushed(
        self, main_checkout: Checkout, repository: Repository, flushed: list[str]
    ) -> None:
        head, common = main_checkout.git("rev-parse", "HEAD"), str(main_checkout.path / ".git")
        main_checkout.git("update-ref", A, head)
        main_checkout.git("pack-refs", "--all", "--prune")
        apply_once(repository, [RefUpdate(A, "", head)])
        assert flushed.index(common) < flushed.index(os.path.dirname(f"{common}/{A}"))


class TestReftable:
    @pytest.fixture
    def tabled(self, newer_git: str, make_checkout: Callable[..., Checkout]) -> Checkout:
        checkout = make_checkout("tabled", "--ref-format=reftable")
        checkout.commit("first")
        return checkout

    def test_the_contract_holds(self, tabled: Checkout, opened: Callable[..., Repository]) -> None:
        one, two = (
            tabled.git("hash-object", "-w", "--stdin", data=text) for text in ("one", "two")
        )
        repository = opened(tabled)
        refs = Refs(repository)
        refs.apply_updates([RefUpdate(A, one, ""), RefUpdate(B, one, "")])
        refs.apply_updates([RefUpdate(A, two, one), RefUpdate(B, "", one)])
        for moved in (
            RefUpdate(A, one, ""),
            RefUpdate(A, one, one),
            RefUpdate(B, two, one),
            RefUpdate(B, "", one),
        ):
            with pytest.raises(RefMoved):
                refs.apply_updates([RefUpdate(C, one, ""), moved])
            with pytest.raises(RefMoved):
                apply_once(repository, [RefUpdate(C, one, ""), moved])
        for refused in (
            RefUpdate(f"{A}/below", one, ""),
            RefUpdate(C, "1" * 40, ""),
            RefUpdate("refs/x..y", one, ""),
        ):
            with pytest.raises(GitError):
                refs.apply_updates([RefUpdate(C, one, ""), refused])
        assert (tabled.refs("refs/checkpoints"), refs.read_ref(A), refs.read_ref(B)) == (
            {A: two},
            two,
            None,
        )
        refs.close()

    def test_a_lock_is_named(
        self, tabled: Checkout, opened: Callable[..., Repository], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_module, "LOCK_TIMEOUT_MS", 20)
        lock = tabled.path / ".git" / "reftable" / "tables.list.lock"
        lock.touch()
        with pytest.raises(LockHeld) as caught:
            apply_once(opened(tabled), [RefUpdate(A, tabled.git("rev-parse", "HEAD"), "")])
        assert (caught.value.path, lock.exists(), tabled.refs("refs/checkpoints")) == (
            str(lock),
            True,
            {},
        )

    def test_a_lock_is_waited_for(
        self, tabled: Checkout, opened: Callable[..., Repository], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_module, "LOCK_TIMEOUT_MS", 20_000)
        lock = tabled.path / ".git" / "reftable" / "tables.list.lock"
        lock.touch()
        threading.Timer(0.3, lock.unlink).start()
        head = tabled.git("rev-parse", "HEAD")
        apply_once(opened(tabled), [RefUpdate(A, head, "")])
        assert tabled.refs("refs/checkpoints") == {A: head}

    def test_tables_are_flushed_that_git_has_not(
        self, tabled: Checkout, opened: Callable[..., Repository], flushed: list[str]
    ) -> None:
        place = tabled.path / ".git" / "reftable"
        theirs = sorted(str(path) for path in place.glob("*.ref"))
        apply_once(
            opened(tabled), [RefUpdate("refs/checkpoints/a", tabled.git("rev-parse", "HEAD"), "")]
        )
        assert set(flushed) >= {str(place), *(path for path in theirs if os.path.exists(path))}

    def test_tables_are_flushed_whatever_changes(
        self, tabled: Checkout, opened: Callable[..., Repository], flushed: list[str]
    ) -> None:
        head = tabled.git("rev-parse", "HEAD")
        tabled.git("update-ref", "refs/keep/ckpt/a", head)
        apply_once(opened(tabled), [RefUpdate("refs/keep/ckpt/a", "", head)])
        assert str(tabled.path / ".git" / "reftable") in flushed

    def test_updates_are_flushed(
        self, tabled: Checkout, opened: Callable[..., Repository], flushes: Callable[[], int]
    ) -> None:
        head = tabled.git("rev-parse", "HEAD")
        before = flushes()
        apply_once(opened(tabled), [RefUpdate(A, head, "")])
        assert flushes() > before


class TestMeanwhile:
    """Objects are flushed while git locks the refs, before any ref changes."""

    def test_nothing_is_done_and_all_is_locked(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        world, refs = World(main_checkout, repository, lambda _: None), Refs(repository)
        seen: list[tuple[dict[str, str], bool]] = []

        def look() -> None:
            lock = main_checkout.path / ".git" / f"{A}.lock"
            for _ in range(2000):
                if lock.exists() and lock.stat().st_size:
                    break
                time.sleep(0.005)
            seen.append((main_checkout.refs("refs/checkpoints"), lock.exists()))

        refs.apply_updates([RefUpdate(A, world.one, ""), RefUpdate(B, world.two, "")], look)
        assert seen == [({}, True)]
        assert main_checkout.refs("refs/checkpoints") == {A: world.one, B: world.two}
        refs.close()

    def test_what_cannot_be_flushed_is_not_pointed_to(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        world, refs = World(main_checkout, repository, lambda _: None), Refs(repository)

        def fail() -> None:
            raise CkptError("the disk is ill")

        with pytest.raises(CkptError, match="the disk is ill"):
            refs.apply_updates([RefUpdate(A, world.one, "")], fail)
        assert main_checkout.refs("refs/checkpoints") == {}
        assert list((main_checkout.path / ".git").rglob("*.lock")) == []
        refs.apply_updates([RefUpdate(A, world.two, "")])
        assert main_checkout.refs("refs/checkpoints") == {A: world.two}
        refs.close()

    def test_what_git_refuses_is_refused(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        world, refs = World(main_checkout, repository, lambda _: None), Refs(repository)
        main_checkout.git("update-ref", A, world.one)
        for update, error in (
            (RefUpdate(A, world.two, ""), RefMoved),
            (RefUpdate("refs/checkpoints/a..b", world.one, ""), GitError),
        ):
            with pytest.raises(error) as caught:
                refs.apply_updates([RefUpdate(B, world.one, ""), update], lambda: None)
            assert "prepare" not in str(caught.value)
        assert main_checkout.refs("refs/checkpoints") == {A: world.one}
        refs.close()
