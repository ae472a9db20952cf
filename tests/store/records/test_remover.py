"""Removal: the order of deletions, its journal, and races with other writers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import CheckpointInfo, LockHeld, RefMoved, RepositoryError, Store
from gitckpt.git.refs import RefUpdate
from gitckpt.store import local_checkpoints
from gitckpt.store.records import keys, remover
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.dying import DyingGit
from tests.store.conftest import ONE, RUN, THREE, TWO, notes, nth
from tests.store.records.test_commit_refs import age

pytestmark = pytest.mark.long

HEAD = f"refs/ckpt/runs/{RUN}"
JOURNAL = ".git/ckpt/removing"
Said = tuple[str, str, str]


@pytest.fixture
def done(plain: Store, monkeypatch: pytest.MonkeyPatch) -> list[list[Said]]:
    """The transactions from here on: ref, new and old value of each update."""
    refs = checkpoints_of_store(plain).refs
    update = refs.apply_updates
    found: list[list[Said]] = []

    def noted(updates: list[RefUpdate], *steps: Callable[[], None]) -> None:
        found.append([(each.ref, each.new, each.old) for each in updates])
        update(updates, *steps)

    monkeypatch.setattr(refs, "apply_updates", noted)
    return found


@pytest.fixture
def before(plain: Store, main_checkout: Checkout, done: list[list[Said]]) -> dict[str, str]:
    """The refs of a run of three checkpoints, with a key, changed files and notes."""
    plain.record("run-started", {}, start="Add login!", key="nightly")
    for number in range(2):
        main_checkout.write("README", f"{number}\n")
        plain.save("a-complete", {}, run=RUN)
    plain.write_notes()
    del done[:]
    return main_checkout.refs()


def listed(store: Store) -> dict[str, CheckpointInfo]:
    return {each.id: each for each in store.list()}


def remove(store: Store, *names: str, **how: Any) -> int:
    return checkpoints_of_store(store).remove(names, **how)


class TestInOrder:
    """A removal deletes heads, checkpoints and keys in one transaction.

    The trees follow, and the keep refs of commits are last.
    """

    def test_of_some_of_a_run(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], done: list[list[Said]]
    ) -> None:
        assert remove(plain, THREE) == 1
        document, tree = f"refs/checkpoints/{THREE}", f"refs/ckpt/trees/{THREE}"
        assert done == [
            [
                (HEAD, before[f"refs/checkpoints/{TWO}"], before[document]),
                (document, "", before[document]),
            ],
            [(tree, "", before[tree])],
        ]
        gone = {document, tree}
        after = {ref: oid for ref, oid in before.items() if ref not in gone}
        assert main_checkout.refs() == after | {HEAD: before[f"refs/checkpoints/{TWO}"]}

    def test_of_a_whole_run_its_key_and_what_is_known_of_it_go_too(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], done: list[list[Said]]
    ) -> None:
        made = plain.record("beside", {})
        plain.write_notes()
        before = main_checkout.refs()
        del done[:]
        assert remove(plain, TWO, THREE, ONE) == 3
        names = [f"refs/checkpoints/{name}" for name in (ONE, TWO, THREE)]
        trees = [f"refs/ckpt/trees/{name}" for name in (TWO, THREE)]
        key = keys.name_key_ref("nightly")
        first, second = done
        assert first[0] == (HEAD, "", before[HEAD])
        assert sorted(first[1:-1]) == [(ref, "", before[ref]) for ref in names]
        assert (first[-1], sorted(second)) == (
            (key, "", before[key]),
            [(ref, "", before[ref]) for ref in trees],
        )
        assert not local_checkpoints.read_local_oids(checkpoints_of_store(plain).repository, RUN)
        assert notes(main_checkout) == {made.git_sha: [made.id]}

    def test_of_those_that_go_last(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], done: list[list[Said]]
    ) -> None:
        assert remove(plain, ONE, TWO, THREE, last=[ONE]) == 3
        names = {name: f"refs/checkpoints/{name}" for name in (ONE, TWO, THREE)}
        key = keys.name_key_ref("nightly")
        assert done[0][0] == (HEAD, before[names[ONE]], before[HEAD])
        assert sorted(done[0][1:]) == [
            (names[name], "", before[names[name]]) for name in (TWO, THREE)
        ]
        assert done[1] == [
            (HEAD, "", before[names[ONE]]),
            (names[ONE], "", before[names[ONE]]),
            (key, "", before[key]),
        ]
        assert [
            ref for ref in main_checkout.refs() if ref.startswith(("refs/checkpoints", "refs/ckpt"))
        ] == []

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("last", [[], [TWO, THREE], [nth(9)]], ids=["none", "all", "others"])
    def test_where_all_or_none_go_last_it_is_one(
        self, plain: Store, before: dict[str, str], done: list[list[Said]], last: list[str]
    ) -> None:
        assert remove(plain, TWO, THREE, last=last) == 2
        assert [
            sorted(ref for ref, *_ in each if ref.startswith("refs/checkpoints")) for each in done
        ] == [[f"refs/checkpoints/{TWO}", f"refs/checkpoints/{THREE}"], []]

    @pytest.mark.parametrize(
        "last", [[], [ONE, TWO, THREE], [nth(9)]], ids=["none", "all", "others"]
    )
    def test_of_a_whole_run_of_which_all_or_none_go_last_nothing_is_left(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], last: list[str]
    ) -> None:
        assert remove(plain, ONE, TWO, THREE, last=last) == 3
        assert [
            ref for ref in main_checkout.refs() if ref.startswith(("refs/checkpoints", "refs/ckpt"))
        ] == []
        assert not local_checkpoints.read_local_oids(checkpoints_of_store(plain).repository, RUN)

    def test_what_others_have_below_our_names_stays(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        main_checkout.git("update-ref", "refs/checkpoints/a-name", "HEAD")
        refs = main_checkout.refs()
        assert remove(plain, "a-name", "main", "*", nth(9)) == 0
        assert main_checkout.refs() == refs

    def test_none_is_nothing_to_do(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], done: list[list[Said]]
    ) -> None:
        assert (remove(plain), done, main_checkout.refs()) == (0, [], before)


class TestBesideOthers:
    @pytest.mark.parametrize("ref", [f"refs/checkpoints/{TWO}", "packed-refs"])
    def test_where_somebody_has_a_lock_nothing_is_done(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
        ref: str,
    ) -> None:
        monkeypatch.setattr(checkpoints_of_store(plain).refs, "_heal", lambda _: False)
        lock = main_checkout.path / ".git" / f"{ref}.lock"
        lock.touch()
        with pytest.raises(LockHeld):
            remove(plain, TWO, THREE)
        assert (main_checkout.refs(), list((main_checkout.path / ".git/refs").rglob("*.lock"))) == (
            before,
            [lock] if "/" in ref else [],
        )
        lock.unlink()
        assert remove(plain, TWO, THREE) == 2
        assert notes(main_checkout) == {main_checkout.head(): [ONE]}

    @pytest.mark.parametrize("ref", [f"refs/checkpoints/{TWO}"])
    def test_a_lock_that_was_left_goes_and_of_ours_none_while_they_are_held(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
        ref: str,
    ) -> None:
        refs, seen = checkpoints_of_store(plain).refs, []
        heal = refs._heal
        assert heal is not None

        def look(path: str) -> bool:
            seen.append(
                sorted(path.name for path in (main_checkout.path / ".git/refs").rglob("*.lock"))
            )
            return heal(path)

        monkeypatch.setattr(refs, "_heal", look)
        lock = main_checkout.path / ".git" / f"{ref}.lock"
        lock.touch()
        os.utime(lock, (1_000_000_000, 1_000_000_000))
        assert remove(plain, TWO, THREE) == 2
        assert (seen, lock.exists()) == ([[lock.name]], False)
        assert notes(main_checkout) == {main_checkout.head(): [ONE]}

    @pytest.mark.parametrize("at", [0, 1, 2, 3])
    def test_a_git_that_is_killed_at_it_is_followed_by_another(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        at: int,
    ) -> None:
        git = DyingGit(tmp_path / "dying", monkeypatch)
        with Store.open(main_checkout.path) as store:
            git.die_after(at)
            assert remove(store, TWO, THREE) == 2
        assert git.has_died
        gone = {
            f"{space}{name}"
            for space in ("refs/checkpoints/", "refs/ckpt/trees/")
            for name in (TWO, THREE)
        }
        assert set(before) - set(main_checkout.refs()) == gone
        assert notes(main_checkout) == {main_checkout.head(): [ONE]}


class TestWhatIsKnownAlready:
    def test_what_refs_pointed_to_is_what_is_deleted(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        ref = f"refs/checkpoints/{THREE}"
        assert remove(plain, THREE, listed=listed(plain)) == 1
        assert set(before) - set(main_checkout.refs()) == {ref, f"refs/ckpt/trees/{THREE}"}

    def test_where_it_is_not_so_any_more_it_is_looked_at(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        other = {name: replace(each, oid="1" * 40) for name, each in listed(plain).items()}
        assert remove(plain, THREE, listed=other) == 1
        assert set(before) - set(main_checkout.refs()) == {
            f"refs/checkpoints/{THREE}",
            f"refs/ckpt/trees/{THREE}",
        }

    def test_of_runs_that_are_known_the_heads_are_moved(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        assert remove(plain, THREE, runs=[RUN, "20270101-000000-none"]) == 1
        assert main_checkout.refs(HEAD) == {HEAD: before[f"refs/checkpoints/{TWO}"]}

    def test_without_settling_commits_stay_kept(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        age(main_checkout)
        kept = f"refs/keep/ckpt/{main_checkout.head()}"
        assert remove(plain, ONE, TWO, THREE, settled=False) == 3
        assert list(main_checkout.refs("refs/keep")) == [kept]
        assert remove(plain) == 0
        assert list(main_checkout.refs("refs/keep")) == [kept]
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert main_checkout.refs("refs/keep") == {}


class TestAgainstOthers:
    def test_it_tries_again(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.outrun(plain, monkeypatch, 3)
        assert remove(plain, THREE) == 1
        assert set(before) - set(main_checkout.refs()) == {
            f"refs/checkpoints/{THREE}",
            f"refs/ckpt/trees/{THREE}",
        }

    def test_until_its_patience_ends(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(remover, "PATIENCE", 0.0)
        self.outrun(plain, monkeypatch, 3)
        with pytest.raises(RefMoved):
            remove(plain, THREE)
        assert main_checkout.refs() == before

    def test_each_that_is_gone_counts_once(
        self, plain: Store, before: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A checkpoint counts once, though another process deletes its tree first."""
        self.outrun(plain, monkeypatch, 1, ref=f"refs/ckpt/trees/{THREE}")
        assert remove(plain, THREE) == 1

    def test_a_lock_of_what_keeps_commits_is_left_to_maintenance(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        age(main_checkout)
        kept = f"refs/keep/ckpt/{main_checkout.head()}"
        self.outrun(plain, monkeypatch, 1, ref=kept, error=LockHeld("/somewhere.lock"))
        assert remove(plain, ONE, TWO, THREE) == 3
        assert list(main_checkout.refs("refs/keep")) == [kept]

    def outrun(
        self,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
        times: int,
        ref: str = "",
        error: Exception | None = None,
    ) -> None:
        """Fail the first `times` transactions; with `ref`, only transactions that change it."""
        refs = checkpoints_of_store(store).refs
        update, left = refs.apply_updates, [error or RefMoved("another writer was faster")] * times

        def fail(updates: list[RefUpdate], *steps: Callable[[], None]) -> None:
            if left and (not ref or ref in [each.ref for each in updates]):
                raise left.pop()
            update(updates, *steps)

        monkeypatch.setattr(refs, "apply_updates", fail)


class TestTheJournal:
    """The journal names checkpoints until all their refs are gone.

    The next removal completes one that was killed.
    """

    def test_is_there_while_it_lasts(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        refs, path = checkpoints_of_store(plain).refs, Path(main_checkout.path, JOURNAL)
        update, seen = refs.apply_updates, []

        def look(updates: list[RefUpdate], *steps: Callable[[], None]) -> None:
            seen.append(sorted(path.read_text().split()) if path.exists() else None)
            update(updates, *steps)

        monkeypatch.setattr(refs, "apply_updates", look)
        remove(plain, THREE, TWO)
        assert len(seen) >= 2
        assert (seen, path.exists()) == ([[TWO, THREE]] * len(seen), False)

    def test_is_not_made_where_nothing_was_kept(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = plain.record("a-complete", {})
        begun: list[Any] = []
        monkeypatch.setattr(
            remover.CheckpointRemover, "_record_removal", lambda self, ids: begun.append(ids)
        )
        assert (remove(plain, made.id), begun) == (1, [])

    @pytest.mark.parametrize("kind", ["directory", "link"])
    def test_where_it_cannot_be_written_all_goes_the_same(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        tmp_path: Path,
        kind: str,
    ) -> None:
        path, elsewhere = Path(main_checkout.path, JOURNAL), tmp_path / "elsewhere"
        elsewhere.write_text(f"{TWO}\n")
        if kind == "directory":
            path.mkdir()
        else:
            path.symlink_to(elsewhere)
        assert remove(plain, THREE) == 1
        assert set(before) - set(main_checkout.refs()) == {
            f"refs/checkpoints/{THREE}",
            f"refs/ckpt/trees/{THREE}",
        }
        assert elsewhere.read_text() == f"{TWO}\n"

    def test_what_a_kill_left_is_ended(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        for name in (TWO, THREE):
            main_checkout.git("update-ref", "-d", f"refs/checkpoints/{name}")
        path = Path(main_checkout.path, JOURNAL)
        path.write_text(f"{TWO}\nno id\n{ONE}\n\xff\n", "latin-1")
        checkpoints_of_store(plain).make_remover().finish_removals()
        assert set(main_checkout.refs("refs/ckpt/trees")) == {f"refs/ckpt/trees/{THREE}"}
        assert f"refs/checkpoints/{ONE}" in main_checkout.refs()
        assert not path.exists()

    def test_a_lock_that_a_kill_left_leaves_the_others_to_whoever_comes_next(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A lock from a kill does not stop the others, and the next removal finishes.

        The lock is too young to count as stale: another git may hold it.
        """
        monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)
        # The running git has a longer timeout, after which the lock would count as stale.
        checkpoints_of_store(plain).refs.close()
        left = f"refs/ckpt/trees/{TWO}"
        main_checkout.git("update-ref", "-d", f"refs/checkpoints/{TWO}")
        path, lock = (
            Path(main_checkout.path, JOURNAL),
            Path(main_checkout.path, ".git", f"{left}.lock"),
        )
        path.write_text(f"{TWO}\n")
        lock.touch()
        assert remove(plain, THREE) == 1
        gone = {f"refs/checkpoints/{TWO}", f"refs/checkpoints/{THREE}", f"refs/ckpt/trees/{THREE}"}
        assert set(before) - set(main_checkout.refs()) == gone
        assert TWO in path.read_text()
        with pytest.raises(LockHeld):
            checkpoints_of_store(plain).make_remover().finish_removals()
        lock.unlink()
        assert remove(plain) == 0
        assert (set(before) - set(main_checkout.refs()), path.exists()) == (gone | {left}, False)

    def test_of_one_whose_removal_had_not_begun_all_stays(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str]
    ) -> None:
        Path(main_checkout.path, JOURNAL).write_text(f"{TWO}\n{THREE}\n")
        checkpoints_of_store(plain).make_remover().finish_removals()
        assert (main_checkout.refs(), Path(main_checkout.path, JOURNAL).exists()) == (before, False)

    def test_where_there_is_none_nothing_is_done(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], done: list[list[Said]]
    ) -> None:
        checkpoints_of_store(plain).make_remover().finish_removals()
        assert (done, main_checkout.refs()) == ([], before)


class TestManyAtOnce:
    """A removal gives the same result whether it looks refs up or lists them all."""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("many", [2, 3, 4])
    def test_the_same_goes(
        self,
        plain: Store,
        main_checkout: Checkout,
        before: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
        many: int,
    ) -> None:
        monkeypatch.setattr(remover, "_LIST_ALL_FROM", many)
        main_checkout.git("update-ref", f"refs/checkpoints/x/{THREE}", "HEAD")
        plain.record("beside", {})
        assert remove(plain, ONE, TWO, THREE) == 3
        left = {
            ref for ref in main_checkout.refs() if ref.startswith(("refs/checkpoints", "refs/ckpt"))
        }
        assert left == {f"refs/checkpoints/x/{THREE}", f"refs/checkpoints/{nth(4)}"}


class TestWithoutAnIndex:
    """A removal works although the listing fails: it may remove the cause."""

    def test_the_head_that_was_to_move_goes(
        self, plain: Store, main_checkout: Checkout, before: dict[str, str], monkeypatch: Any
    ) -> None:
        def fail(*_: object) -> None:
            raise RepositoryError("it cannot be read")

        index = checkpoints_of_store(plain).index
        monkeypatch.setattr(index, "select", fail)
        monkeypatch.setattr(index, "list_commits", fail)
        assert remove(plain, THREE) == 1
        monkeypatch.undo()
        expected = set(before) - {
            HEAD,
            f"refs/checkpoints/{THREE}",
            f"refs/ckpt/trees/{THREE}",
            keys.name_key_ref("nightly"),
        }
        assert set(main_checkout.refs()) == expected
