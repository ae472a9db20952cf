"""Refs that keep linked commits alive: what they hold, and that none is lost.

They give no name to a commit, and their number stays small.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import CkptError, LockHeld, Policy, RefMoved, Store
from gitckpt.git.refs import RefUpdate
from gitckpt.store.records import commit_refs, ref_names
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.store.conftest import MakeStore, nth
from tests.stores import common_dir, open_store

SPACE = "refs/keep/ckpt/".rstrip("/")
RECORD = """
import sys
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
with Checkpoints(discover_repository(sys.argv[1]), adapter="plumbing") as store:
    for _ in range(int(sys.argv[2])):
        store.record("at-once", {"n": 1})
"""


def kept(checkout: Checkout) -> dict[str, str]:
    """Return the oid of each keep ref, by the commit that it is named after."""
    return {ref.removeprefix("refs/keep/ckpt/"): oid for ref, oid in checkout.refs(SPACE).items()}


def linked(checkout: Checkout) -> set[str]:
    """Return the commits that checkpoints are linked to, as plain git reads them."""
    documents = (
        text.decode() for text in checkout.blobs(*checkout.refs("refs/checkpoints").values())
    )
    return {
        next(line.split('"')[1] for line in document.splitlines() if line.startswith("git_sha = "))
        for document in documents
    }


def lost(checkout: Checkout) -> set[str]:
    """Return the linked commits that no keep ref reaches."""
    commits, tips = linked(checkout), kept(checkout).values()
    if not commits:
        return set()
    data = "".join(f"{commit}\n" for commit in commits) + "".join(f"^{tip}\n" for tip in tips)
    return commits & set(checkout.git("rev-list", "--stdin", data=data).split())


def redundant(checkout: Checkout) -> set[str]:
    """Return the commits whose refs are redundant, as other keep refs reach them."""
    commits = list(kept(checkout))
    if not commits:
        return set()
    return set(commits) - set(checkout.git("merge-base", "--independent", *commits).split())


def age(checkout: Checkout) -> None:
    """Make the refs too old to belong to a checkpoint that is being written."""
    long_ago = time.time() - 2 * 3600
    place = Path(common_dir(checkout)) / SPACE
    for path in place.iterdir() if place.is_dir() else ():
        os.utime(path, (long_ago, long_ago))


# One line


class TestALine:
    def test_takes_its_ref_along(self, store: Store, checkout: Checkout) -> None:
        for _ in range(3):
            commit = checkout.commit()
            store.record("one-complete")
            store.record("two-complete")
            assert kept(checkout) == {commit: commit}

    def test_keeps_every_commit_of_a_merge(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("one-complete")
        main_checkout.git("checkout", "--quiet", "-b", "topic")
        main_checkout.commit()
        plain.record("two-complete")
        main_checkout.git("checkout", "--quiet", "main")
        ours = main_checkout.commit()
        plain.record("three-complete")
        assert len(kept(main_checkout)) == 2
        main_checkout.git("merge", "--quiet", "--no-edit", "topic")
        plain.record("four-complete")
        assert list(kept(main_checkout)) == [main_checkout.git("rev-parse", "HEAD")]
        assert ours not in kept(main_checkout)

    def test_that_ends_keeps_its_ref(self, store: Store, checkout: Checkout) -> None:
        checkout.commit("before")
        old = checkout.commit("amended", a="1")
        store.record("one-complete")
        checkout.git("commit", "--quiet", "--amend", "-m", "again")
        new = checkout.git("rev-parse", "HEAD")
        store.record("two-complete")
        assert kept(checkout) == {old: old, new: new}
        assert checkout.git("fsck", "--strict", "--no-dangling") == ""
        assert checkout.git("rev-list", "--all", "--", "a") != ""
        store.record("three-complete")
        assert kept(checkout) == {old: old, new: new}

    def test_without_a_branch_has_a_ref(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.git("checkout", "--quiet", "--detach")
        for _ in range(2):
            commit = main_checkout.commit()
            plain.record("one-complete")
            assert kept(main_checkout) == {commit: commit}

    def test_goes_over_commits_without_checkpoints(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        plain.record("one-complete")
        main_checkout.commit()
        commit = main_checkout.commit()
        plain.record("two-complete")
        assert len(kept(main_checkout)) == 2
        age(main_checkout)
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert kept(main_checkout) == {commit: commit}

    def test_of_sha256(self, make_checkout: Callable[..., Checkout], make_store: MakeStore) -> None:
        checkout = make_checkout("sha256", "--object-format=sha256")
        old = checkout.commit()
        with make_store(checkout) as store:
            store.record("one-complete")
            checkout.git("commit", "--quiet", "--amend", "-m", "again")
            new = checkout.git("rev-parse", "HEAD")
            store.record("two-complete")
        assert kept(checkout) == {old: old, new: new}
        assert checkout.git("fsck", "--strict", "--no-dangling") == ""

    def test_in_a_reftable(
        self, newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore
    ) -> None:
        checkout = make_checkout("reftable", "--ref-format=reftable")
        old = checkout.commit()
        with make_store(checkout) as store:
            first = store.record("one-complete")
            checkout.git("commit", "--quiet", "--amend", "-m", "again")
            new = checkout.git("rev-parse", "HEAD")
            store.record("two-complete")
            assert kept(checkout) == {old: old, new: new}
            store.remove([first.id])
            assert kept(checkout) == {
                new: new
            }  # a reftable says nothing of a ref's age, and needs not

    def test_is_told_by_the_commit_itself_and_not_by_what_replaces_it(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        first = main_checkout.git("rev-parse", "HEAD")
        plain.record("one-complete")
        main_checkout.git("checkout", "--quiet", "--orphan", "other")
        commit = main_checkout.commit("an end of its own")
        main_checkout.git("replace", "--graft", commit, first)
        plain.record("two-complete")
        main_checkout.git("branch", "-D", "main")
        assert set(kept(main_checkout)) == {first, commit}
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert set(kept(main_checkout)) == {first, commit}

    def test_a_pipe_in_the_place_of_its_ref_is_named(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        path = main_checkout.path / ".git/refs/keep/ckpt" / main_checkout.git("rev-parse", "HEAD")
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        with pytest.raises(CkptError, match=f"{path} is a named pipe instead of a ref"):
            plain.record("one-complete")
        path.unlink()
        assert plain.record("two-complete").git_sha == path.name

    def test_starts_no_processes_of_its_own(
        self, main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
    ) -> None:
        with make_store(main_checkout) as store:
            store.record("one-complete")
        main_checkout.commit()
        log = tmp_path / "trace"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GIT_TRACE2_EVENT", str(log))
            with make_store(main_checkout) as store:
                store.record("two-complete")
        events = map(json.loads, log.read_text().splitlines())
        started = sorted(event["name"] for event in events if event["event"] == "cmd_name")
        assert started == ["cat-file", "update-ref"]


# Records beside others


class TestARecord:
    def test_verifies_a_ref_that_is_there(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain.record("one-complete")
        (commit,) = kept(main_checkout)
        update = checkpoints_of_store(plain).refs.apply_updates
        seen: list[list[RefUpdate]] = []

        def interfere(
            updates: list[RefUpdate], meanwhile: Callable[[], None] | None = None
        ) -> None:
            if not seen:
                main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
            seen.append(updates)
            update(updates, meanwhile)

        monkeypatch.setattr(checkpoints_of_store(plain).refs, "apply_updates", interfere)
        plain.record("two-complete")
        assert len(seen) == 2
        assert kept(main_checkout) == {commit: commit}

    def test_after_another_looks_at_what_has_become_of_it(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commit = main_checkout.commit()
        plain.record("one-complete")
        for change in (
            ("-d", "refs/keep/ckpt/" + commit),
            ("refs/keep/ckpt/" + commit, "HEAD~1"),
            ("refs/keep/ckpt/" + commit, f"{commit}^{{tree}}"),
        ):
            main_checkout.git("update-ref", *change)
            plain.record("next-complete")
            assert kept(main_checkout) == {commit: commit}

    @pytest.mark.parametrize("is_new", [False, True])
    def test_brings_back_a_ref_that_was_dropped_at_that_moment(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, is_new: bool
    ) -> None:
        plain.record("one-complete")
        commit = main_checkout.commit() if is_new else main_checkout.git("rev-parse", "HEAD")
        update = checkpoints_of_store(plain).refs.apply_updates
        seen: list[list[RefUpdate]] = []

        def interfere(
            updates: list[RefUpdate], meanwhile: Callable[[], None] | None = None
        ) -> None:
            update(updates, meanwhile)
            if not seen:
                main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
            seen.append(updates)

        monkeypatch.setattr(checkpoints_of_store(plain).refs, "apply_updates", interfere)
        plain.record("two-complete")
        assert kept(main_checkout) == {commit: commit}

    def test_puts_a_wrong_value_right(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.commit()
        main_checkout.git("update-ref", "refs/keep/ckpt/" + commit, "HEAD~1")
        plain.record("one-complete")
        assert kept(main_checkout) == {commit: commit}

    @pytest.mark.parametrize("error", [RefMoved("moved"), LockHeld("a.lock")])
    def test_succeeds_where_the_parents_cannot_be_dropped(
        self,
        plain: Store,
        main_checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
    ) -> None:
        plain.record("one-complete")
        commit = main_checkout.commit()
        update = checkpoints_of_store(plain).refs.apply_updates

        def refuse(updates: list[RefUpdate], meanwhile: Callable[[], None] | None = None) -> None:
            if any(not each.new for each in updates):
                raise error
            update(updates, meanwhile)

        monkeypatch.setattr(checkpoints_of_store(plain).refs, "apply_updates", refuse)
        made = plain.record("two-complete")
        monkeypatch.undo()
        assert plain.find("latest") == made.id
        assert len(kept(main_checkout)) == 2
        age(main_checkout)
        plain.write_notes()
        assert plain.verify().findings == []
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert kept(main_checkout) == {commit: commit}


# Names


# Removal and expiry


class TestARemoval:
    def test_moves_a_ref_down_once_it_is_old(self, plain: Store, main_checkout: Checkout) -> None:
        made = []
        for _ in range(4):
            commit = main_checkout.commit()
            made.append((commit, plain.record("one-complete").id))
        newest = made[-1][0]
        plain.remove([made[-1][1]])
        assert list(kept(main_checkout)) == [newest]  # it is younger than an hour
        age(main_checkout)
        plain.remove([made[2][1]])
        below = made[1][0]
        assert kept(main_checkout) == {below: below}
        age(main_checkout)
        plain.remove([made[0][1]])
        assert list(kept(main_checkout)) == [below]
        plain.remove([made[1][1]])
        assert kept(main_checkout) == {}
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt", "refs/keep") == {}

    def test_leaves_a_ref_for_each_line(self, plain: Store, main_checkout: Checkout) -> None:
        first = plain.record("base-complete").id
        base = main_checkout.git("rev-parse", "HEAD")
        ends = []
        for name in ("one", "two"):
            main_checkout.git("checkout", "--quiet", "-b", name, base)
            main_checkout.commit(name)
            ends.append(plain.record(f"{name}-complete").id)
        age(main_checkout)
        plain.remove(ends[:1])
        assert list(kept(main_checkout)) == [main_checkout.git("rev-parse", "two")]
        plain.remove(ends)
        assert kept(main_checkout) == {base: base}
        assert plain.read(first).git_sha == base
        assert lost(main_checkout) == set()

    def test_drops_the_others_where_one_is_locked(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commits = [main_checkout.commit() for _ in range(4)]
        for commit in commits[:3]:
            main_checkout.git("update-ref", "refs/keep/ckpt/" + commit, commit)
        age(main_checkout)
        lock = main_checkout.path / ".git" / f"refs/keep/ckpt/{commits[1]}.lock"
        lock.touch()
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert list(kept(main_checkout)) == [commits[1]]
        assert lock.exists()
        lock.unlink()
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert kept(main_checkout) == {}

    def test_restores_what_a_checkpoint_needs_that_came_meanwhile(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        made = plain.record("one-complete")
        commit = made.git_sha
        age(main_checkout)
        looks = 0

        def needed() -> set[str]:
            nonlocal looks
            looks += 1
            if looks == 1:
                return set()
            return {commit}  # whose checkpoint was recorded after the first look

        commit_refs.update_keep_refs(
            checkpoints_of_store(plain).repository,
            checkpoints_of_store(plain).refs.apply_updates,
            needed,
        )
        assert looks == 2
        assert kept(main_checkout) == {commit: commit}

    def test_drops_nothing_while_a_document_cannot_be_read(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        made = plain.record("one-complete")
        age(main_checkout)
        blob = main_checkout.git("hash-object", "-w", "--stdin", data="version = 9\n")
        main_checkout.git(
            "update-ref", f"refs/checkpoints/{'1' * 8}-0000-4000-8000-000000000000", blob
        )
        plain.remove([made.id])
        assert list(kept(main_checkout)) == [made.git_sha]
        plain.remove([f"{'1' * 8}-0000-4000-8000-000000000000"])
        assert kept(main_checkout) == {}

    def test_of_a_history_that_is_damaged(self, plain: Store, main_checkout: Checkout) -> None:
        below = main_checkout.commit()
        main_checkout.commit()
        ids = [plain.record("one-complete").id]
        main_checkout.commit()
        ids.append(plain.record("two-complete").id)
        age(main_checkout)
        (main_checkout.path / ".git/objects" / below[:2] / below[2:]).unlink()
        assert plain.remove(ids[1:]) == 1
        assert list(kept(main_checkout)) == [main_checkout.git("rev-parse", "HEAD")]
        assert plain.remove(ids) == 1
        assert kept(main_checkout) == {}


# Few


@pytest.mark.long
def test_a_thousand_commits_with_twenty_amends_have_one_and_twenty(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    def stretch(number: int) -> list[str]:
        """Add fifty commits to main, and return them."""
        commands = [f"from {main_checkout.git('rev-parse', 'main')}\n"]
        for n in range(number, number + 50):
            commands.append(f"M 644 inline file\ndata {len(str(n))}\n{n}\n\n")
            commands.append(
                f"commit refs/heads/main\ncommitter A <a@b> {1700000000 + n} +0000\ndata 1\nx\n"
            )
        main_checkout.git("fast-import", "--quiet", data=commands.pop() + "".join(commands))
        return main_checkout.git("rev-list", "--reverse", "-50", "main").split()

    with make_store(main_checkout) as store:
        for n in range(20):
            for commit in stretch(50 * n)[0 if n == 19 else 24 :: 1 if n == 19 else 25]:
                main_checkout.git("update-ref", "refs/heads/main", commit)
                store.record("one-complete")
            main_checkout.git("commit", "--quiet", "--amend", "-m", "again")
            store.record("amended-complete")
        assert main_checkout.git("rev-list", "--count", "main") == "1001"
        age(main_checkout)
        checkpoints_of_store(store).make_remover().update_keep_refs()
        assert len(kept(main_checkout)) == 21
        assert len(linked(main_checkout)) > 100
        assert lost(main_checkout) == set()
        assert redundant(main_checkout) == set()
        before = kept(main_checkout)
        checkpoints_of_store(store).make_remover().update_keep_refs()
        assert kept(main_checkout) == before


# Never lost


class Work:
    """Random work in a repository, with checkpoints in between."""

    def __init__(self, checkout: Checkout, seed: int) -> None:
        self.checkout = checkout
        self.random = random.Random(seed)
        self.clock = Clock()
        self.count = 0

    def store(self) -> Store:
        return open_store(str(self.checkout.path), clock=self.clock)

    def step(self) -> str:
        """Do one random operation, and return its name."""
        names = [name for name in dir(self) if name.startswith("do_")]
        weights = [6 if name in ("do_commit", "do_record") else 1 for name in names]
        (name,) = self.random.choices(names, weights)
        getattr(self, name)()
        return name

    def commit(self) -> None:
        self.count += 1
        self.checkout.commit(f"change {self.count}", **{f"file-{self.count}": "x"})

    def branches(self) -> list[str]:
        return [ref.removeprefix("refs/heads/") for ref in self.checkout.refs("refs/heads")]

    def do_commit(self) -> None:
        self.commit()
        self.do_record()

    def do_commit_alone(self) -> None:
        self.commit()

    def do_record(self) -> None:
        with self.store() as store:
            store.record("one-complete")

    def do_save_at_another_commit(self) -> None:
        commits = self.checkout.git("rev-list", "--branches").split()
        with self.store() as store:
            store.record("elsewhere-complete", base=self.random.choice(commits))

    def do_amend(self) -> None:
        self.count += 1
        self.checkout.git("commit", "--quiet", "--amend", "-m", f"amended {self.count}")
        self.do_record()

    def do_reset(self) -> None:
        depth = int(self.checkout.git("rev-list", "--count", "--first-parent", "HEAD"))
        self.checkout.git(
            "reset", "--quiet", "--hard", f"HEAD~{self.random.randrange(min(4, depth))}"
        )

    def do_branch(self) -> None:
        self.count += 1
        self.checkout.git("checkout", "--quiet", "-b", f"branch-{self.count}")

    def do_switch(self) -> None:
        self.checkout.git("checkout", "--quiet", self.random.choice(self.branches()))

    def do_detach(self) -> None:
        self.checkout.git("checkout", "--quiet", "--detach")

    def do_delete_branches(self) -> None:
        self.checkout.git("checkout", "--quiet", "--detach")
        for name in self.random.sample(self.branches(), len(self.branches()) - 1):
            self.checkout.git("branch", "--quiet", "-D", name)

    def do_merge(self) -> None:
        self.checkout.git(
            "merge", "--quiet", "--no-edit", "--no-ff", self.random.choice(self.branches())
        )
        self.do_record()

    def do_rebase(self) -> None:
        if self.checkout.git("rev-list", "--merges", "--max-count=1", "HEAD") == "":
            self.checkout.git("rebase", "--quiet", self.random.choice(self.branches()))
            self.do_record()

    def do_remove(self) -> None:
        ids = [ref.rpartition("/")[2] for ref in self.checkout.refs("refs/checkpoints")]
        with self.store() as store:
            store.remove(self.random.sample(ids, min(len(ids), self.random.choice([1, 3]))))

    def do_expire(self) -> None:
        with self.store() as store:
            store.expire(
                Policy(older_than=0, keep_last=self.random.randrange(3, 8), everything=True)
            )
            checkpoints_of_store(store).make_remover().update_keep_refs()

    def do_verify(self) -> None:
        with self.store() as store:
            store.verify()

    def do_settle(self) -> None:
        with self.store() as store:
            checkpoints_of_store(store).make_remover().update_keep_refs()

    def do_age(self) -> None:
        age(self.checkout)

    def do_pack(self) -> None:
        self.checkout.git("pack-refs", "--all")

    def do_collect(self) -> None:
        self.checkout.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
        self.checkout.git("gc", "--quiet", "--prune=now")

    def do_record_at_once(self) -> None:
        command = [sys.executable, "-c", RECORD, str(self.checkout.path), "3"]
        racers = [subprocess.Popen(command, cwd=Path(__file__).parents[3]) for _ in range(2)]
        self.commit()
        with self.store() as store:
            store.record("at-once", {})
        assert [racer.wait() for racer in racers] == [0, 0]


class TestSettled:
    """Refs move down to the newest commits that checkpoints need."""

    @pytest.fixture(autouse=True)
    def history(self, plain: Store, main_checkout: Checkout) -> None:
        """Make three commits on main and one on a side branch, each with a checkpoint."""
        for _ in range(3):
            main_checkout.commit()
            plain.record("a-complete", {})
        main_checkout.git("checkout", "--quiet", "-b", "side", "HEAD~1")
        main_checkout.commit()
        plain.record("a-complete", {})
        self.settle(plain, main_checkout)

    def settle(self, store: Store, checkout: Checkout) -> None:
        age(checkout)
        checkpoints_of_store(store).make_remover().update_keep_refs()
        assert lost(checkout) == redundant(checkout) == set()

    def test_where_nothing_has_changed(self, plain: Store, main_checkout: Checkout) -> None:
        before = kept(main_checkout)
        assert len(before) == 2
        self.settle(plain, main_checkout)
        assert kept(main_checkout) == before

    def test_where_checkpoints_have_gone(self, plain: Store, main_checkout: Checkout) -> None:
        plain.remove([plain.list()[0].id, plain.list()[1].id])
        self.settle(plain, main_checkout)
        assert len(kept(main_checkout)) == 1

    def test_where_checkpoints_have_come(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.commit()
        plain.record("a-complete", {})
        self.settle(plain, main_checkout)
        assert set(kept(main_checkout)) == {
            main_checkout.head(),
            main_checkout.git("rev-parse", "main"),
        }

    def test_one_that_was_fetched_without_what_keeps_its_commit(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        one = plain.list()[0]
        other = main_checkout.git("commit-tree", "-m", "other", "HEAD^{tree}")
        text = plain.raw(one.id).decode().replace(one.git_sha, other).replace(one.id, nth(90))
        main_checkout.git(
            "update-ref",
            "refs/checkpoints/" + nth(90),
            main_checkout.git("hash-object", "-w", "--stdin", data=text),
        )
        self.settle(plain, main_checkout)
        assert other in kept(main_checkout)

    def test_where_somebody_has_deleted_a_ref(self, plain: Store, main_checkout: Checkout) -> None:
        before = kept(main_checkout)
        for commit in before:
            main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
        self.settle(plain, main_checkout)
        assert kept(main_checkout) == before

    def test_what_comes_meanwhile_is_kept(
        self,
        plain: Store,
        main_checkout: Checkout,
        make_store: MakeStore,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Another process records on a commit whose ref is about to be deleted.

        No other checkpoint needs that commit.
        """
        checkpoints_of_store(plain).remove([plain.list()[0].id], settled=False)
        refs, head = checkpoints_of_store(plain).refs, main_checkout.head()
        update = refs.apply_updates
        made: list[str | None] = []

        def outrun(updates: list[RefUpdate], *steps: Callable[[], None]) -> None:
            if not made and any(
                each.ref == "refs/keep/ckpt/" + head and not each.new for each in updates
            ):
                with make_store(main_checkout) as other:
                    made.append(other.record("meanwhile", {}).git_sha)
            update(updates, *steps)

        with monkeypatch.context() as patch:
            patch.setattr(refs, "apply_updates", outrun)
            patch.setattr(
                ref_names, "write_lock", lambda *_: contextlib.nullcontext(enter_result=False)
            )
            age(main_checkout)
            checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert made == [head]
        assert lost(main_checkout) == set()
        self.settle(plain, main_checkout)

    @pytest.mark.parametrize("name", ["shallow", "info/grafts"])
    def test_where_somebody_has_cut_history_off(
        self, plain: Store, main_checkout: Checkout, name: str
    ) -> None:
        """Where history is cut off, the commit below the cut keeps a ref of its own.

        `git fetch --depth=1` cuts history this way, and a gc would delete the commit.
        """
        tips = main_checkout.git("rev-parse", "main", "side").splitlines()
        below = main_checkout.git("rev-parse", "main~1")
        (main_checkout.path / ".git/info").mkdir(exist_ok=True)
        (main_checkout.path / ".git" / name).write_text("".join(f"{tip}\n" for tip in sorted(tips)))
        self.settle(plain, main_checkout)
        assert set(kept(main_checkout)) == {*tips, below}


@pytest.mark.long(but=["0"])
@pytest.mark.parametrize("seed", range(3))
def test_no_linked_commit_is_ever_lost(
    main_checkout: Checkout, seed: int, pytestconfig: pytest.Config
) -> None:
    is_long = pytestconfig.getoption("--long")
    work = Work(main_checkout, int.from_bytes(os.urandom(4)) if is_long else seed)
    done = []
    for _ in range(1000 if is_long else 30):
        done.append(work.step())
        assert lost(main_checkout) == set(), done
    work.do_collect()
    for commit in linked(main_checkout):
        assert main_checkout.git("cat-file", "-t", commit) == "commit", done
    age(main_checkout)
    with work.store() as store:
        checkpoints_of_store(store).make_remover().update_keep_refs()
        assert redundant(main_checkout) == set(), done
        assert lost(main_checkout) == set(), done
        age(main_checkout)
        assert [(one.code, one.object, one.sentence) for one in store.verify().findings] == [], done
    assert all(commit == oid for commit, oid in kept(main_checkout).items()), done
    assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""
