"""Histories in which merges nest: refs that keep commits start as many levels away as it takes, so that no branch loses a name to them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git.graph import names
from gitckpt.git.objects import holder
from gitckpt.git.process import DeadlinePassed
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.git.repository import discover
from gitckpt.store.audit import verification
from gitckpt.store.records import keep, layout
from gitckpt.store.records.removal import ends
from gitckpt.store.retention import maintenance
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.store.test_keep import age, held, kept, linked, lost, require_kept_without_its_branch, require_same_names

pytestmark = pytest.mark.long


def committed(checkout: Checkout, *parents: str, at: int) -> str:
    """Makes a commit that no ref leads to, so many minutes after the first; returns its oid."""
    above = [word for parent in parents for word in ("-p", parent)]
    date = f"{1_700_000_000 + 60 * at} +0000"
    return checkout.git(*("commit-tree", *above, "-m", str(at), "HEAD^{tree}"), env={"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date})


def nested(checkout: Checkout, depth: int) -> tuple[str, str]:
    """Has `main` reach a commit by way of so many merges, each into a branch that was merged itself; returns it, and that below."""
    base = checkout.head()
    below = committed(checkout, base, at=1)
    tip = found = committed(checkout, below, at=2)
    for level in range(depth):
        side = committed(checkout, base, at=10 * level + 3)
        tip = committed(checkout, side, tip, at=10 * level + 8)
    checkout.git("update-ref", "refs/heads/main", tip)
    checkout.git("reset", "--quiet", "--hard")
    return found, below


def depth_of(checkout: Checkout, commit: str) -> int:
    """Returns how many levels the holder of a commit has, as plain git finds it."""
    value, levels = kept(checkout)[commit], 0
    while value != commit:
        value, levels = checkout.git("rev-parse", f"{value}^2"), levels + 1
    return levels


def deepen(store: Store) -> None:
    ends.deepen(inside(store).repository, inside(store).objects, inside(store).refs.update)


class TestMaintenance:
    """Gives holders the levels that names take, and notes how many."""

    @pytest.mark.parametrize("depth", [6, 9])
    def test_names_are_those_without_us(self, make_store: MakeStore, main_checkout: Checkout, depth: int) -> None:
        commit, below = nested(main_checkout, depth)
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store:
            store.record("beside-complete", base=beside)
            assert main_checkout.git("name-rev", "--name-only", below).startswith("keep/ckpt/")
            maintenance.maintain(discover(str(main_checkout.path)))
            assert main_checkout.git("name-rev", "--name-only", below) == f"main{'^2' * depth}~1"
            assert main_checkout.git("describe", "--all", "--contains", commit) == f"main{'^2' * depth}"
            assert depth_of(main_checkout, beside) == depth + 2
            assert (verification.verify(inside(store)).findings, lost(main_checkout)) == ([], set())
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""

    @pytest.mark.parametrize("option", ["--object-format=sha256", "--ref-format=reftable"])
    def test_in_any_format(
        self, make_checkout: Callable[..., Checkout], make_store: MakeStore, request: pytest.FixtureRequest, option: str
    ) -> None:
        if "reftable" in option:
            request.getfixturevalue("newer_git")
        checkout = make_checkout("other", option, "--initial-branch=main")
        checkout.commit()
        commit, below = nested(checkout, 6)
        beside = committed(checkout, commit, at=200)
        with make_store(checkout) as store:
            store.record("beside-complete", base=beside)
            deepen(store)
            assert depth_of(checkout, beside) == 8
            assert checkout.git("name-rev", "--name-only", below) == f"main{'^2' * 6}~1"

    def test_in_a_shallow_clone(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, below = nested(main_checkout, 6)
        (main_checkout.path / ".git/shallow").write_text(f"{below}\n")
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store:
            store.record("beside-complete", base=beside)
            deepen(store)
            assert depth_of(main_checkout, beside) == 8

    def test_once_it_has_run_a_record_makes_them_as_deep(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, below = nested(main_checkout, 6)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=committed(main_checkout, commit, at=200))
            deepen(store)
            beside = committed(main_checkout, commit, at=201)
            store.record("two-complete", base=beside)
            assert depth_of(main_checkout, beside) == 8
            assert main_checkout.git("name-rev", "--name-only", below) == f"main{'^2' * 6}~1"

    def test_where_four_levels_do_nothing_changes(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, _ = nested(main_checkout, 2)
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)
            before = kept(main_checkout)
            deepen(store)
            assert (kept(main_checkout), keep.depth(inside(store).repository)) == (before, holder.DEPTH)

    def test_far_names_that_nobody_takes_are_no_reason(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        """What lies below both is as far from the one as from the other."""
        nested(main_checkout, 9)
        beside = committed(main_checkout, main_checkout.head(), at=200)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)
            deepen(store)
            assert depth_of(main_checkout, beside) == holder.DEPTH

    @pytest.mark.parametrize("is_right", [True, False])
    def test_names_that_another_ref_takes_are_no_reason(self, make_store: MakeStore, main_checkout: Checkout, is_right: bool) -> None:
        """One that was fetched, say, or could not be settled, as a lock is in the way: levels of holders make no difference to it."""
        deep, below = nested(main_checkout, 9)
        beside = committed(main_checkout, main_checkout.head(), at=200)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)
            for ref in (layout.KEEP + (deep if is_right else below), f"{layout.OPERATIONS}{'0' * 8}-0000-4000-8000-{'0' * 12}"):
                main_checkout.git("update-ref", ref, deep)
            deepen(store)
            assert (depth_of(main_checkout, beside), keep.depth(inside(store).repository)) == (4, 4)

    def test_where_no_line_has_ended_no_name_is_looked_at(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nested(main_checkout, 6)
        plain.record("one-complete")
        monkeypatch.setattr(names, "farthest_taken", lambda *_: pytest.fail("names are looked at"))
        deepen(plain)
        assert list(kept(main_checkout).values()) == [main_checkout.head()]

    def test_no_holder_is_deeper_than_is_looked_for(
        self, make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(holder, "DEEPEST", 6)
        commit, _ = nested(main_checkout, 9)
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)
            deepen(store)
            assert depth_of(main_checkout, beside) == 6
            deepen(store)
            assert verification.verify(inside(store)).findings == []

    def test_one_that_is_locked_stays_as_it_is(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, _ = nested(main_checkout, 6)
        one, two = (committed(main_checkout, commit, at=at) for at in (200, 201))
        with make_store(main_checkout) as store:
            for beside in (one, two):
                store.record("one-complete", base=beside)
            lock = main_checkout.path / ".git" / f"{layout.KEEP}{one}.lock"
            lock.touch()
            deepen(store)
            assert (depth_of(main_checkout, one), depth_of(main_checkout, two)) == (4, 8)
            lock.unlink()
            deepen(store)
            assert (depth_of(main_checkout, one), depth_of(main_checkout, two)) == (8, 8)

    def test_a_history_that_is_too_large_is_for_the_log(
        self, make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit, _ = nested(main_checkout, 6)
        beside = committed(main_checkout, commit, at=200)
        repository = discover(str(main_checkout.path))
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)

        def give_up(*_: object) -> int:
            raise DeadlinePassed(["name-rev"], -9, "it took too long")

        monkeypatch.setattr(names, "farthest_taken", give_up)
        maintenance.maintain(repository)
        assert maintenance.last(repository).outcome == "done"
        assert depth_of(main_checkout, beside) == holder.DEPTH
        assert "names of commits were not looked at: git name-rev failed: it took too long; killed by signal 9" in log_of(main_checkout)

    def test_what_cannot_be_written_is_for_the_log(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, _ = nested(main_checkout, 6)
        repository = discover(str(main_checkout.path))
        with make_store(main_checkout) as store:
            store.record("one-complete", base=committed(main_checkout, commit, at=200))
        (main_checkout.path / ".git/ckpt" / layout.LEVELS).mkdir()
        maintenance.maintain(repository)
        assert maintenance.last(repository).outcome == "done"
        assert "names of commits were not looked at" in log_of(main_checkout)

    @pytest.mark.parametrize("levels", [0, 7])
    def test_what_keeps_an_operation_is_made_as_deep(self, make_store: MakeStore, main_checkout: Checkout, levels: int) -> None:
        main_checkout.commit("base", a="base")
        main_checkout.git("checkout", "--quiet", "-b", "topic")
        theirs = main_checkout.commit("theirs", a="theirs")
        main_checkout.git("checkout", "--quiet", "main")
        main_checkout.commit("ours", a="ours")
        main_checkout.git("merge", "topic", ok=(1,))
        with make_store(main_checkout) as store:
            if levels:
                Path(inside(store).repository.make_private_dir(), layout.LEVELS).write_text(f"{levels}\n")
            made = store.save("conflict-blocked")
        value = made.worktree.operation_commit if made.worktree else None
        assert main_checkout.git("rev-parse", f"{value}{'^2' * (levels or 4)}") == theirs


def log_of(checkout: Checkout) -> str:
    return (checkout.main / ".git/ckpt/log").read_text()


class TestManyLevels:
    """A holder of any number of levels, up to a limit, keeps what it is named after."""

    @pytest.fixture
    def deep(self, plain: Store, main_checkout: Checkout) -> tuple[str, str]:
        """A commit that no branch leads to, and its holder of nine levels, to which its ref points."""
        commit = committed(main_checkout, main_checkout.head(), at=1)
        plain.record("one-complete", base=commit)
        keep.give(
            *(inside(plain).repository, inside(plain).objects, inside(plain).refs.update, kept(main_checkout), ()), symbolic=(), least=9
        )
        assert depth_of(main_checkout, commit) == 9
        return commit, kept(main_checkout)[commit]

    def test_is_taken_as_it_is(self, make_store: MakeStore, main_checkout: Checkout, deep: tuple[str, str]) -> None:
        with make_store(main_checkout) as store:
            store.record("two-complete", base=deep[0])
            age(main_checkout)
            inside(store).remover().settle()
            assert kept(main_checkout) == dict([deep])
            inside(store)._recorder.write_links(inside(store).clock())
            assert verification.verify(inside(store)).findings == []

    @pytest.mark.parametrize("levels", [1, 3, 4, 64, 65])
    def test_from_four_to_sixty_four_are_right(self, plain: Store, main_checkout: Checkout, levels: int) -> None:
        commit, repository = main_checkout.head(), inside(plain).repository
        value, date = commit, int(main_checkout.git("log", "-1", "--format=%ct"))
        for _ in range(levels):
            value = written_by_hand(main_checkout, value, date)
        assert keep.is_right(repository, commit, value) is (4 <= levels <= 64)
        assert not keep.is_right(repository, main_checkout.git("rev-parse", f"{value}^1"), value)

    def test_one_that_is_missing_is_written_anew(self, make_store: MakeStore, main_checkout: Checkout, deep: tuple[str, str]) -> None:
        commit, value = deep
        between = main_checkout.git("rev-parse", f"{value}^2^2^2")
        (main_checkout.path / ".git/objects" / between[:2] / between[2:]).unlink()
        with make_store(main_checkout) as store:
            inside(store)._recorder.write_links(inside(store).clock())
            assert [one.code for one in verification.verify(inside(store)).findings] == ["commit-ref-wrong"]
            store.verify(repair=True)
        assert (kept(main_checkout), depth_of(main_checkout, commit)) == ({commit: value}, 9)
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""

    def test_goes_with_the_checkpoint(self, make_store: MakeStore, main_checkout: Checkout, deep: tuple[str, str]) -> None:
        with make_store(main_checkout) as store:
            age(main_checkout)
            store.remove([one.id for one in store.list()])
        assert kept(main_checkout) == {}

    @pytest.mark.parametrize("said", ["", "x", "-7", "3", "7\n", "64", "65", "9" * 30, "\0"])
    def test_what_is_noted_is_read_with_care(self, plain: Store, main_checkout: Checkout, said: str) -> None:
        (main_checkout.path / ".git/ckpt").mkdir(exist_ok=True)
        (main_checkout.path / ".git/ckpt" / layout.LEVELS).write_text(said)
        expected = {"7\n": 7, "64": 64, "65": 64, "9" * 30: 64}.get(said, 4)
        assert keep.depth(inside(plain).repository) == expected


def written_by_hand(checkout: Checkout, kept: str, date: int) -> str:
    """Returns one more level above a commit, written by plain git as docs/format.md tells."""
    tree = checkout.git("hash-object", "-w", "-t", "tree", "--stdin")
    message = "keeps alive what checkpoints need\n"

    def commit(date: int, *parents: str) -> str:
        who = f"gitckpt <gitckpt> {date} +0000"
        above = "".join(f"parent {parent}\n" for parent in parents)
        text = f"tree {tree}\n{above}author {who}\ncommitter {who}\n\n{message}"
        return checkout.git("hash-object", "-w", "-t", "commit", "--stdin", data=text)

    return commit(date, commit(0), kept)


class TestBesideOthers:
    """Whoever moves a ref meanwhile is not overruled, and whoever is killed leaves the one or the other value."""

    def test_a_ref_that_has_moved_stays_so(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        commit, _ = nested(main_checkout, 6)
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store:
            store.record("one-complete", base=beside)

            def apply(updates: list[Update]) -> None:
                main_checkout.git("update-ref", layout.KEEP + beside, beside)
                inside(store).refs.update(updates)

            with pytest.raises(RefMoved):
                ends.deepen(inside(store).repository, inside(store).objects, apply)
        assert kept(main_checkout) == {beside: beside}

    def test_a_record_at_that_moment_keeps_its_commit(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        """It has seen the ref with few levels, and would verify these."""
        commit, _ = nested(main_checkout, 6)
        beside = committed(main_checkout, commit, at=200)
        with make_store(main_checkout) as store, make_store(main_checkout) as other:
            store.record("one-complete", base=beside)
            update = inside(store).refs.update
            done: list[list[Update]] = []

            def meanwhile(updates: list[Update], then: object = None) -> None:
                if not done:
                    done.append(updates)
                    ends.deepen(inside(other).repository, inside(other).objects, inside(other).refs.update)
                update(updates)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(inside(store).refs, "update", meanwhile)
                patch.setattr(layout, "PATIENCE", 0.0)  # the record has the lock of writers, and is not waited for without end
                made = store.record("two-complete", base=beside)
            assert store.find("latest") == made.id
        assert (depth_of(main_checkout, beside), lost(main_checkout)) == (8, set())

    def test_a_lock_is_no_reason_for_maintenance_to_fail(
        self, make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise LockHeld("/somewhere.lock")

        monkeypatch.setattr(ends, "deepen", refuse)
        maintenance.maintain(discover(str(main_checkout.path)))
        assert "names of commits were not looked at" in log_of(main_checkout)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("main", 0),
            ("tags/v1^0", 0),
            ("undefined", 0),
            ("main~1", 1),
            ("main^2", 1),
            ("tags/v1~3", 1),
            ("main~5^2~3", 2),
            ("main~1^3~2^2", 2),
            ("main~65534", 1),
            ("main~65535", 2),
            ("main~60000^2~5535", 3),
        ],
    )
    def test_how_far_they_are(self, name: str, expected: int) -> None:
        assert names.levels(f"{'1' * 40} {name}".encode()) == expected


def grow(checkout: Checkout, draw: random.Random) -> list[str]:
    """Makes a history in which merges nest up to a dozen deep, below a branch `last`; returns its commits."""
    commits = [checkout.head()]
    tip = commits[0]
    for at in range(1, 50):
        if draw.random() < 0.3:
            tip = committed(checkout, tip, at=at)
        elif draw.random() < 0.6:  # what was merged last is merged itself, into a branch that began long before
            side = committed(checkout, draw.choice(commits[: 1 + len(commits) // 4]), at=at)
            commits.append(side)
            tip = committed(checkout, side, tip, at=at)
        else:
            first, second = draw.choice(commits), draw.choice(commits[-4:])
            tip = committed(checkout, *dict.fromkeys((first, second, tip) if draw.random() < 0.2 else (first, tip)), at=at)
        commits.append(tip)
    checkout.git("update-ref", "refs/heads/last", tip)
    return commits


@pytest.mark.long(but=["0", "1"])
@pytest.mark.parametrize("seed", range(12))
def test_of_any_history_after_maintenance(
    make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, pytestconfig: pytest.Config, seed: int
) -> None:
    """With records anywhere in it, commits that were amended, and branches, some of which are gone."""
    draw = random.Random(int.from_bytes(os.urandom(4)) if pytestconfig.getoption("--long") else seed)
    commits = grow(main_checkout, draw)
    with make_store(main_checkout) as store:
        for number in range(10):
            for space in ("refs/heads", "refs/remotes/origin", "refs/tags"):
                if draw.random() < 0.15:
                    main_checkout.git("update-ref", f"{space}/on-{number}", draw.choice(commits))
            store.record("any-complete", base=draw.choice(commits))
            if draw.random() < 0.7:
                store.record("beside-complete", base=committed(main_checkout, draw.choice(commits), at=draw.choice([0, 100])))
        for ref in main_checkout.refs("refs/heads", "refs/tags"):
            if draw.random() < 0.6 and ref not in ("refs/heads/main", "refs/heads/last"):
                main_checkout.git("update-ref", "-d", ref)
    age(main_checkout)
    maintenance.maintain(discover(str(main_checkout.path)))
    assert linked(main_checkout) <= set(main_checkout.git("rev-list", *kept(main_checkout).values()).split())
    require_same_names(main_checkout, tmp_path)


class TestInAReftable:
    """Where no file tells that a branch is gone, git is asked."""

    @pytest.fixture
    def checkout(self, newer_git: str, make_checkout: Callable[..., Checkout]) -> Checkout:
        checkout = make_checkout("reftable", "--ref-format=reftable", "--initial-branch=main")
        for _ in range(4):
            checkout.commit()
        return checkout

    def test_after_branch_d_from_the_next_record_on(self, make_store: MakeStore, checkout: Checkout, tmp_path: Path) -> None:
        with make_store(checkout) as store:
            ended = []
            for number in range(2):
                checkout.git("checkout", "--quiet", "-b", "topic", "main~1")
                ended.append(checkout.commit())
                store.record("on-topic")
                checkout.git("checkout", "--quiet", "-b", f"beside-{number}", "topic~1")
                checkout.commit()
                checkout.git("checkout", "--quiet", "main")
                checkout.commit()
                store.record("on-main")
                checkout.git("branch", "-D", "topic")
                checkout.commit()
                store.record("on-main")
                assert kept(checkout) == {**{one: held(checkout, one) for one in ended}, checkout.head(): checkout.head()}
                require_same_names(checkout, tmp_path)

    def test_after_a_branch_has_moved_from_the_next_record_on(self, make_store: MakeStore, checkout: Checkout, tmp_path: Path) -> None:
        with make_store(checkout) as store:
            checkout.git("checkout", "--quiet", "-b", "topic", "main~2")
            end = checkout.commit()
            store.record("on-topic")
            checkout.git("checkout", "--quiet", "-b", "beside", "topic~1")
            checkout.commit()
            checkout.git("checkout", "--quiet", "main")
            store.record("on-main")
            checkout.git("branch", "--force", "topic", "beside")
            checkout.commit()
            store.record("on-main")
            assert kept(checkout)[end] == held(checkout, end)
            require_same_names(checkout, tmp_path)

    def test_of_the_commit_itself_once_its_branch_is_gone(self, make_store: MakeStore, checkout: Checkout, tmp_path: Path) -> None:
        require_kept_without_its_branch(make_store, checkout, tmp_path)

    def test_of_lines_that_have_their_branches_nothing_is_sorted(
        self, make_store: MakeStore, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with make_store(checkout) as store:
            for name in ("one", "two/deep"):
                checkout.git("checkout", "--quiet", "-b", name)
                checkout.commit()
                store.record("on-a-branch")
                checkout.git("checkout", "--quiet", "main")
            checkout.commit()
            store.record("on-main")
            checkout.commit()
            monkeypatch.setattr(keep, "sort", lambda *_: pytest.fail("it is looked for lines that have ended"))
            store.record("on-main")
        assert len(kept(checkout)) == 3
