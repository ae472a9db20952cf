"""The line of history that a checkpoint goes on with: what keeps its commit in every case, what is written for that, and what it drops."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.git.repository import Repository, discover
from gitckpt.model import times
from gitckpt.model.errors import CkptError
from gitckpt.store.records import keep
from gitckpt.store.records.keep import Line
from gitckpt.store.records.layout import KEEP
from gitckpt.store.records.removal import ends, known
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.store.test_keep import age, held, kept

Said = tuple[str, str, str, bool, bool]


@pytest.fixture
def repository(plain: Store) -> Repository:
    return inside(plain).repository


def said(update: Update) -> Said:
    return update.ref, update.new, update.old, update.lasting, update.is_symbolic


def hold(checkout: Checkout, store: Store, commit: str) -> str:
    """Gives a commit a ref that points to its holder; returns that."""
    line = Line(inside(store).repository, commit, has_branch=False)
    inside(store).objects.write(line.objects)
    inside(store).refs.update([line.update])
    assert kept(checkout)[commit] == held(checkout, commit)
    return held(checkout, commit)


class TestWhatKeepsACommit:
    """Itself while a branch points to it, and its holder otherwise."""

    def test_of_a_branch_itself(self, repository: Repository, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        line = Line(repository, commit, has_branch=True)
        assert (line.commit, said(line.update), line.objects) == (commit, (KEEP + commit, commit, "", True, False), [])

    def test_of_no_branch_its_holder(self, repository: Repository, main_checkout: Checkout, plain: Store) -> None:
        commit = main_checkout.head()
        line = Line(repository, commit, has_branch=False)
        assert said(line.update) == (KEEP + commit, held(main_checkout, commit), "", True, False)
        assert inside(plain).objects.write(line.objects)[-1] == held(main_checkout, commit)

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_where_the_ref_is_there_it_is_looked_at(self, repository: Repository, main_checkout: Checkout, has_branch: bool) -> None:
        commit = main_checkout.head()
        main_checkout.git("update-ref", KEEP + commit, commit)
        line = Line(repository, commit, has_branch=has_branch)
        assert (said(line.update), line.objects, line.detour()) == ((KEEP + commit, commit, commit, True, False), [], [])

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_where_the_ref_is_at_the_holder_it_is_looked_at(
        self, plain: Store, repository: Repository, main_checkout: Checkout, has_branch: bool
    ) -> None:
        commit = main_checkout.head()
        holder = hold(main_checkout, plain, commit)
        line = Line(repository, commit, has_branch=has_branch)
        assert (said(line.update), line.objects, line.detour()) == ((KEEP + commit, holder, holder, True, False), [], [])

    def test_where_the_holder_is_gone_it_is_written_anew(self, plain: Store, main_checkout: Checkout, make_store: MakeStore) -> None:
        commit = main_checkout.head()
        holder = hold(main_checkout, plain, commit)
        (main_checkout.path / ".git/objects" / holder[:2] / holder[2:]).unlink()
        other = inside(make_store(main_checkout))
        line = Line(other.repository, commit, has_branch=False)
        assert (said(line.update), other.objects.write(line.objects)[-1]) == ((KEEP + commit, holder, holder, True, False), holder)

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_where_the_ref_is_at_something_else_it_is_put_right(
        self, repository: Repository, main_checkout: Checkout, has_branch: bool
    ) -> None:
        other, commit = main_checkout.head(), main_checkout.commit()
        main_checkout.git("update-ref", KEEP + commit, other)
        line = Line(repository, commit, has_branch=has_branch)
        value = commit if has_branch else held(main_checkout, commit)
        assert said(line.update) == (KEEP + commit, value, other, True, False)
        assert bool(line.objects) is not has_branch

    def test_where_the_ref_stands_for_a_branch_it_gets_a_value_of_its_own(self, repository: Repository, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        main_checkout.git("symbolic-ref", KEEP + commit, "refs/heads/main")
        line = Line(repository, commit, has_branch=True)
        assert said(line.update) == (KEEP + commit, commit, commit, True, True)
        assert line.recorded() is None

    def test_of_a_commit_that_is_missing_there_is_none(self, repository: Repository) -> None:
        with pytest.raises(CkptError):
            Line(repository, "1" * 40, has_branch=True)


class TestWhatItDrops:
    """The refs of the commit's parents, after the checkpoint is there."""

    def passed(self, line: Line) -> list[Said]:
        return [said(update) for update in line._passed]

    def test_of_each_parent_that_has_one(self, repository: Repository, main_checkout: Checkout) -> None:
        base = main_checkout.head()
        main_checkout.git("checkout", "--quiet", "-b", "topic")
        topic = main_checkout.commit()
        main_checkout.git("checkout", "--quiet", "main")
        ours = main_checkout.commit()
        main_checkout.git("merge", "--quiet", "--no-edit", "topic")
        for commit in (base, ours):
            main_checkout.git("update-ref", KEEP + commit, commit)
        merge = Line(repository, main_checkout.head(), has_branch=True)
        assert self.passed(merge) == [(KEEP + ours, "", ours, False, False)]
        main_checkout.git("update-ref", KEEP + topic, base)
        merge = Line(repository, main_checkout.head(), has_branch=True)
        assert self.passed(merge) == [(KEEP + ours, "", ours, False, False), (KEEP + topic, "", base, False, False)]

    @pytest.mark.parametrize("name", ["shallow", "info/grafts"])
    def test_of_none_where_git_may_see_other_parents(self, repository: Repository, main_checkout: Checkout, name: str) -> None:
        base = main_checkout.head()
        commit = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + base, base)
        (main_checkout.path / ".git/info").mkdir(exist_ok=True)
        (main_checkout.path / ".git" / name).write_text(f"{base}\n")
        assert len(self.passed(Line(repository, commit, has_branch=True))) == 1
        (main_checkout.path / ".git" / name).write_text(f"{base}\n{commit}\n")
        assert self.passed(Line(repository, commit, has_branch=True)) == []

    def test_by_the_commit_itself_and_not_by_what_replaces_it(self, repository: Repository, main_checkout: Checkout) -> None:
        base = main_checkout.head()
        commit = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + base, base)
        main_checkout.git("replace", "--graft", commit)
        assert self.passed(Line(repository, commit, has_branch=True)) == [(KEEP + base, "", base, False, False)]

    def test_one_that_is_packed_while_its_object_is_missing_only_where_git_is_asked(
        self, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        base = main_checkout.head()
        main_checkout.git("checkout", "--quiet", "--orphan", "other")
        commit = main_checkout.git("commit-tree", "-p", base, "-m", "x", f"{base}^{{tree}}")
        main_checkout.git("update-ref", KEEP + base, base)
        main_checkout.git("pack-refs", "--all")
        (main_checkout.path / ".git/objects" / base[:2] / base[2:]).unlink()
        repository = inside(make_store(main_checkout)).repository
        assert self.passed(Line(repository, commit, has_branch=True)) == []
        assert self.passed(Line(repository, commit, has_branch=True, again=True)) == [(KEEP + base, "", base, False, False)]

    def test_in_one_transaction_that_looks_at_what_keeps_the_commit(self, plain: Store, main_checkout: Checkout) -> None:
        base = main_checkout.head()
        commit = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + base, base)
        line = Line(inside(plain).repository, commit, has_branch=True)
        inside(plain).refs.update([line.update])
        done: list[list[Said]] = []

        def apply(updates: list[Update]) -> None:
            done.append([said(each) for each in updates])
            inside(plain).refs.update(updates)

        line.follow_up(inside(plain).objects, apply)
        assert done == [[(KEEP + commit, commit, commit, True, False), (KEEP + base, "", base, False, False)]]

    def test_and_brings_back_what_was_dropped_meanwhile(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        main_checkout.git("update-ref", KEEP + commit, commit)
        line = Line(inside(plain).repository, commit, has_branch=True)
        main_checkout.git("update-ref", "-d", KEEP + commit)
        line.follow_up(inside(plain).objects, inside(plain).refs.update)
        assert kept(main_checkout) == {commit: commit}

    def test_while_a_gc_is_at_work_what_is_new_in_the_commit_is_held(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.commit("second", **{"a/b": "1\n"})
        line = Line(inside(plain).repository, commit, has_branch=True)
        inside(plain).refs.update([line.update])
        packs = main_checkout.path / ".git/objects/pack"
        line.follow_up(inside(plain).objects, inside(plain).refs.update)
        assert list(packs.glob("*")) == []
        (main_checkout.path / ".git/gc.pid").write_text(f"{os.getpid()} {os.uname().nodename}")
        line.follow_up(inside(plain).objects, inside(plain).refs.update)
        (index,) = packs.glob("*.idx")
        packed = {words[0] for words in map(str.split, main_checkout.git("verify-pack", "-v", str(index)).splitlines()) if len(words) > 3}
        new = main_checkout.git("rev-list", "--objects", commit, f"^{commit}~1").splitlines()
        assert {name for name in packed if len(name) == 40} == {each.split(" ")[0] for each in new}

    def test_what_fails_is_left_to_maintenance(self, plain: Store, main_checkout: Checkout) -> None:
        base = main_checkout.head()
        commit = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + base, base)
        line = Line(inside(plain).repository, commit, has_branch=True)
        inside(plain).refs.update([line.update])

        def fail(updates: list[Update]) -> None:
            raise LockHeld("/somewhere.lock")

        line.follow_up(inside(plain).objects, fail)
        assert kept(main_checkout) == {base: base, commit: commit}


class TestTheNextCheckpoint:
    """On the same commit takes what is there, as long as it is as it was."""

    def recorded(self, store: Store, commit: str, *, has_branch: bool) -> Line:
        line = Line(inside(store).repository, commit, has_branch=has_branch)
        inside(store).objects.write(line.objects)
        inside(store).refs.update([line.update])
        after = line.recorded()
        assert after is not None
        return after

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_looks_at_it(self, plain: Store, main_checkout: Checkout, has_branch: bool) -> None:
        commit = main_checkout.head()
        line = self.recorded(plain, commit, has_branch=has_branch)
        value = commit if has_branch else held(main_checkout, commit)
        assert said(line.update) == (KEEP + commit, value, value, True, False)
        assert (line.objects, line._passed, line.detour(), line.is_as_it_was()) == ([], [], [], True)

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_not_where_the_ref_is_not_as_it_was(self, plain: Store, main_checkout: Checkout, has_branch: bool) -> None:
        commit = main_checkout.commit()
        line = self.recorded(plain, commit, has_branch=has_branch)
        main_checkout.git("update-ref", KEEP + commit, "HEAD~1")
        assert not line.is_as_it_was()
        main_checkout.git("symbolic-ref", KEEP + commit, "refs/heads/main")
        assert not line.is_as_it_was()
        main_checkout.git("symbolic-ref", "--delete", KEEP + commit)
        with pytest.raises(RefMoved):
            inside(plain).refs.update([line.update])

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_where_the_ref_is_packed(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, has_branch: bool
    ) -> None:
        """The transaction confirms it, or where it is gone by then, it is made again."""
        if not has_branch:
            main_checkout.git("checkout", "--quiet", "--detach")
        commit = main_checkout.commit()
        plain.record("a-complete", {})
        before = kept(main_checkout)
        main_checkout.git("pack-refs", "--all", "--prune")
        made: list[object] = []
        begin = Line.__init__

        def noted(line: Line, *args: Any, **how: Any) -> None:
            made.append(line)
            begin(line, *args, **how)

        monkeypatch.setattr(Line, "__init__", noted)
        plain.record("b-complete", {})
        assert (made, kept(main_checkout)) == ([], before)
        main_checkout.git("update-ref", "-d", KEEP + commit)
        plain.record("c-complete", {})
        assert (len(made), kept(main_checkout)) == (1, before)

    def test_not_where_the_holder_is_gone(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        line = self.recorded(plain, commit, has_branch=False)
        holder = held(main_checkout, commit)
        (main_checkout.path / ".git/objects" / holder[:2] / holder[2:]).unlink()
        inside(plain).repository.cat_file.close()  # which remembers what was there
        assert not line.is_as_it_was()


class TestDetours:
    """Where the name is barred, the commit is kept under the name of its holder."""

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_of_a_new_one(self, plain: Store, main_checkout: Checkout, has_branch: bool) -> None:
        commit = main_checkout.head()
        holder = held(main_checkout, commit)
        line = Line(inside(plain).repository, commit, has_branch=has_branch)
        updates = line.detour()
        assert ([said(each) for each in updates], updates[0] is line.update) == ([(KEEP + holder, holder, "", True, False)], True)
        assert inside(plain).objects.write(line.objects)[-1] == holder
        assert line.recorded() is None

    def test_where_the_holder_has_a_ref(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        line = Line(inside(plain).repository, commit, has_branch=False)
        inside(plain).objects.write(line.objects)
        holder = held(main_checkout, commit)
        for value, expected in ((holder, holder), (hold(main_checkout, plain, holder), held(main_checkout, holder)), (commit, holder)):
            main_checkout.git("update-ref", KEEP + holder, value)
            assert [said(each) for each in line.detour()] == [(KEEP + holder, expected, value, True, False)]


class TestNamesAndAges:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("a" * 40, True),
            ("a" * 64, False),
            ("A" * 40, False),
            ("a" * 39, False),
            ("g" * 40, False),
            ("", False),
            (f"{'a' * 40}/x", False),
        ],
    )
    def test_what_may_name_a_commit(self, repository: Repository, name: str, expected: bool) -> None:
        assert keep.may_name(repository, name) is expected

    def test_what_may_name_one_of_sha256(self, make_checkout: Callable[..., Checkout]) -> None:
        repository = discover(str(make_checkout("other", "--object-format=sha256").path))
        assert [keep.may_name(repository, "a" * length) for length in (40, 64)] == [False, True]

    def test_what_is_young(self, repository: Repository, main_checkout: Checkout) -> None:
        ref = KEEP + main_checkout.head()
        assert not keep.is_young(repository, ref)
        main_checkout.git("update-ref", ref, "HEAD")
        assert keep.is_young(repository, ref)
        for ago, expected in ((times.GRACE - 100, True), (times.GRACE + 100, False)):
            os.utime(main_checkout.path / ".git" / ref, (0, time.time() - ago))
            assert keep.is_young(repository, ref) is expected
        os.utime(main_checkout.path / ".git" / ref)
        main_checkout.git("pack-refs", "--all")
        assert not keep.is_young(repository, ref)

    def test_what_stands_for_another(self, repository: Repository, main_checkout: Checkout) -> None:
        ref = KEEP + main_checkout.head()
        assert not keep.is_symbolic(repository, ref)
        main_checkout.git("update-ref", ref, "HEAD")
        assert not keep.is_symbolic(repository, ref)
        main_checkout.git("symbolic-ref", ref, "refs/heads/nowhere")
        assert keep.is_symbolic(repository, ref)

    def test_what_is_right_and_whole(self, plain: Store, main_checkout: Checkout, make_store: MakeStore) -> None:
        other, commit = main_checkout.head(), main_checkout.commit()
        repository = inside(plain).repository
        holder = held(main_checkout, commit)
        values = (commit, holder, other, "1" * 40)
        assert [keep.is_right(repository, commit, value) for value in values] == [True, True, False, False]
        assert [keep.is_right(repository, "1" * 40, value) for value in ("1" * 40, commit)] == [True, False]
        assert [keep.is_whole(repository, commit, value) for value in (commit, holder)] == [True, False]
        hold(main_checkout, plain, commit)
        assert keep.is_whole(inside(make_store(main_checkout)).repository, commit, holder)


class TestSorting:
    """Lines that end where no branch points go on in another one, or lend no name."""

    def sort(self, store: Store, newest: str, *abandoned: str) -> list[list[Said]]:
        done: list[list[Said]] = []

        def apply(updates: list[Update]) -> None:
            done.append([said(each) for each in updates])
            inside(store).refs.update(updates)

        keep.sort(inside(store).repository, inside(store).objects, apply, newest, abandoned)
        return done

    def test_where_all_is_right_nothing_is_done(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        main_checkout.git("update-ref", KEEP + commit, commit)
        assert self.sort(plain, commit) == []
        main_checkout.git("branch", "other")
        newest = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + newest, newest)
        assert self.sort(plain, newest) == []  # a branch points to the other one as well

    def test_names_of_branches_may_be_of_any_bytes(self, plain: Store, main_checkout: Checkout) -> None:
        below = main_checkout.head()
        main_checkout.git("branch", os.fsdecode(b"caf\xe9"))
        newest = main_checkout.commit()
        for commit in (below, newest):
            main_checkout.git("update-ref", KEEP + commit, commit)
        assert self.sort(plain, newest) == []  # that branch points to it

    def test_one_that_goes_on_is_dropped_and_one_that_ends_is_held(self, plain: Store, main_checkout: Checkout) -> None:
        base = main_checkout.head()
        below = main_checkout.commit()
        newest = main_checkout.commit()
        main_checkout.git("checkout", "--quiet", "--detach", base)
        end = main_checkout.commit("an end")
        main_checkout.git("checkout", "--quiet", "main")
        for commit in (below, newest, end):
            main_checkout.git("update-ref", KEEP + commit, commit)
        assert self.sort(plain, newest) == [
            [(KEEP + newest, newest, newest, True, False), (KEEP + below, "", below, False, False)],
            [(KEEP + end, held(main_checkout, end), end, True, False)],
        ]
        assert kept(main_checkout) == {newest: newest, end: held(main_checkout, end)}
        assert self.sort(plain, newest) == []

    def test_one_whose_branch_is_about_to_leave_counts_as_left(self, plain: Store, main_checkout: Checkout) -> None:
        below = main_checkout.head()
        main_checkout.git("branch", "other")
        newest = main_checkout.commit()
        for commit in (below, newest):
            main_checkout.git("update-ref", KEEP + commit, commit)
        assert self.sort(plain, newest, below) == [[(KEEP + newest, newest, newest, True, False), (KEEP + below, "", below, False, False)]]

    def test_one_that_is_locked_stays(self, plain: Store, main_checkout: Checkout) -> None:
        below = main_checkout.head()
        newest = main_checkout.commit()
        for commit in (below, newest):
            main_checkout.git("update-ref", KEEP + commit, commit)
        Path(main_checkout.path, ".git", f"{KEEP}{below}.lock").touch()
        assert self.sort(plain, newest) == []

    def test_where_the_newest_has_no_ref_all_are_held(self, plain: Store, main_checkout: Checkout) -> None:
        below = main_checkout.head()
        newest = main_checkout.commit()
        main_checkout.git("update-ref", KEEP + below, below)
        assert self.sort(plain, newest) == [[(KEEP + below, held(main_checkout, below), below, True, False)]]

    def test_no_more_than_some_are_held_at_once(self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keep, "_AT_ONCE", 2)
        newest = main_checkout.head()
        main_checkout.git("update-ref", KEEP + newest, newest)
        ends = sorted(main_checkout.git("commit-tree", "-m", name, "HEAD^{tree}") for name in "abc")
        for commit in ends:
            main_checkout.git("update-ref", KEEP + commit, commit)
        assert self.sort(plain, newest) == [[(KEEP + end, held(main_checkout, end), end, True, False) for end in ends[:2]]]

    def test_where_one_is_barred_the_others_get_theirs(self, plain: Store, main_checkout: Checkout) -> None:
        newest = main_checkout.head()
        main_checkout.git("update-ref", KEEP + newest, newest)
        ends = sorted(main_checkout.git("commit-tree", "-m", name, "HEAD^{tree}") for name in "ab")
        for commit in ends:
            main_checkout.git("update-ref", KEEP + commit, commit)
        tried: list[list[str]] = []

        def apply(updates: list[Update]) -> None:
            tried.append([each.ref for each in updates])
            if KEEP + ends[0] in tried[-1]:
                ref = KEEP + ends[0]
                raise GitError(["update-ref"], 128, f"fatal: cannot lock ref '{ref}': '{ref}/x' exists; cannot create '{ref}'")
            inside(plain).refs.update(updates)

        keep.sort(inside(plain).repository, inside(plain).objects, apply, newest)
        stand_in = held(main_checkout, ends[0])
        assert tried == [[KEEP + end for end in ends], [KEEP + ends[1], KEEP + stand_in]]
        values = {newest: newest, ends[0]: ends[0], ends[1]: held(main_checkout, ends[1]), stand_in: stand_in}
        assert kept(main_checkout) == values

    def test_what_bars_none_of_them_is_said(self, plain: Store, main_checkout: Checkout) -> None:
        newest = main_checkout.head()
        main_checkout.git("update-ref", KEEP + newest, newest)
        end = main_checkout.git("commit-tree", "-m", "end", "HEAD^{tree}")
        main_checkout.git("update-ref", KEEP + end, end)

        def fail(updates: list[Update]) -> None:
            raise GitError(["update-ref"], 128, "fatal: no")

        with pytest.raises(GitError, match="fatal: no"):
            keep.sort(inside(plain).repository, inside(plain).objects, fail, newest)
        assert kept(main_checkout) == {newest: newest, end: end}


class TestSettling:
    """Refs move down to the newest commits that are needed; what is young, locked, or of a history that is damaged stays."""

    @pytest.fixture(autouse=True, params=[known.MANY, 0], ids=["few", "many"])
    def walked(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """All is walked, or only what may have changed."""
        monkeypatch.setattr(known, "MANY", request.param)

    def settle(self, store: Store, *needed: set[str] | None) -> list[list[Said]]:
        """Lets each look at what is needed find another thing; returns what was done."""
        done: list[list[Said]] = []
        found = list(needed)

        def apply(updates: list[Update]) -> None:
            done.append([said(each) for each in updates])
            inside(store).refs.update(updates)

        ends.settle(inside(store).repository, inside(store).objects, apply, lambda: found.pop(0) if len(found) > 1 else found[0])
        return done

    def line(self, checkout: Checkout) -> list[str]:
        """Returns three commits in a row, oldest first, each with a ref that is old."""
        commits = [checkout.head(), checkout.commit(), checkout.commit()]
        for commit in commits:
            checkout.git("update-ref", KEEP + commit, commit)
        age(checkout)
        return commits

    def test_down_to_what_is_needed(self, plain: Store, main_checkout: Checkout) -> None:
        one, two, three = self.line(main_checkout)
        holder = held(main_checkout, two)
        gone = sorted([(KEEP + one, "", one, True, False), (KEEP + three, "", three, True, False)])
        assert self.settle(plain, {one, two}) == [
            [(KEEP + two, holder, two, True, False)],
            [(KEEP + two, holder, holder, True, False), *gone],
        ]
        assert kept(main_checkout) == {two: holder}
        assert self.settle(plain, {one, two}) == []

    def test_of_what_is_not_known_all_that_is_not_reached_stays(self, plain: Store, main_checkout: Checkout) -> None:
        one, two, three = self.line(main_checkout)
        (done,) = self.settle(plain, None)
        assert sorted(done[1:]) == sorted((KEEP + each, "", each, True, False) for each in (one, two))
        assert kept(main_checkout) == {three: three}

    def test_one_that_is_young_stays(self, plain: Store, main_checkout: Checkout) -> None:
        one, _, three = self.line(main_checkout)
        os.utime(main_checkout.path / ".git" / f"{KEEP}{three}")
        self.settle(plain, {one})
        assert kept(main_checkout) == {three: three}

    def test_one_that_is_locked_stays(self, plain: Store, main_checkout: Checkout) -> None:
        one, two, three = self.line(main_checkout)
        Path(main_checkout.path, ".git", f"{KEEP}{two}.lock").touch()
        self.settle(plain, {one, three})
        assert kept(main_checkout) == {two: two, three: three}

    def test_what_came_meanwhile_is_kept(self, plain: Store, main_checkout: Checkout) -> None:
        one, _, three = self.line(main_checkout)
        self.settle(plain, {one}, {one, three, "x"})
        assert kept(main_checkout) == {one: held(main_checkout, one), three: three}

    def test_what_came_meanwhile_below_what_is_kept_has_no_ref(self, plain: Store, main_checkout: Checkout) -> None:
        one, _, three = self.line(main_checkout)
        self.settle(plain, {three}, {one, three})
        assert kept(main_checkout) == {three: three}

    def test_names_that_are_none_are_passed_over(self, plain: Store, main_checkout: Checkout) -> None:
        *_, three = self.line(main_checkout)
        self.settle(plain, {three, "", "x", "a" * 64})
        assert kept(main_checkout) == {three: three}

    def test_where_one_is_barred_what_stands_in_for_it_is_looked_at_before_others_go(self, plain: Store, main_checkout: Checkout) -> None:
        *_, three = self.line(main_checkout)
        end = main_checkout.git("commit-tree", "-m", "end", "HEAD^{tree}")
        main_checkout.git("update-ref", KEEP + end, end)
        age(main_checkout)
        ref, stand_in, done = KEEP + end, held(main_checkout, end), []

        def apply(updates: list[Update]) -> None:
            if ref in [each.ref for each in updates if each.new != each.old]:
                raise GitError(["update-ref"], 128, f"fatal: cannot lock ref '{ref}': '{ref}/x' exists; cannot create '{ref}'")
            done.append([said(each) for each in updates])
            inside(plain).refs.update(updates)

        ends.settle(inside(plain).repository, inside(plain).objects, apply, lambda: {end, three})
        assert done[0] == [(KEEP + stand_in, stand_in, "", True, False)]
        assert set(done[1][:2]) == {(KEEP + stand_in, stand_in, stand_in, True, False), (KEEP + three, three, three, True, False)}
        assert len(done) == 2
        assert kept(main_checkout) == {end: end, three: three, stand_in: stand_in}

    def test_one_whose_commit_is_missing_goes_where_none_needs_it(self, plain: Store, main_checkout: Checkout) -> None:
        """As long as it is there, no gc succeeds."""
        one, _, three = self.line(main_checkout)
        gone = main_checkout.git("commit-tree", "-m", "gone", "HEAD^{tree}")
        main_checkout.git("update-ref", KEEP + gone, gone)
        (main_checkout.path / ".git/objects" / gone[:2] / gone[2:]).unlink()
        self.settle(plain, {one, three})
        assert kept(main_checkout) == {three: three}

    def test_one_whose_commit_is_missing_stays_where_a_checkpoint_needs_it(self, plain: Store, main_checkout: Checkout) -> None:
        *_, three = self.line(main_checkout)
        gone = main_checkout.git("commit-tree", "-m", "gone", "HEAD^{tree}")
        main_checkout.git("update-ref", KEEP + gone, gone)
        (main_checkout.path / ".git/objects" / gone[:2] / gone[2:]).unlink()
        self.settle(plain, {gone, three})
        assert kept(main_checkout) == {gone: gone, three: three}

    def test_in_a_history_that_is_damaged_nothing_is_done(self, plain: Store, main_checkout: Checkout) -> None:
        one, two, three = self.line(main_checkout)
        (main_checkout.path / ".git/objects" / two[:2] / two[2:]).unlink()
        before = kept(main_checkout)
        assert (self.settle(plain, {one, three}), kept(main_checkout)) == ([], before)
