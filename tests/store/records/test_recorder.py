"""A record against other writers: its transactions, attempts and limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    CkptError,
    FilesPruned,
    GitError,
    LockHeld,
    NotFoundError,
    RefMoved,
    Store,
    UsageError,
)
from gitckpt.git import lock
from gitckpt.git.lock import FileLock
from gitckpt.git.refs import RefUpdate
from gitckpt.model import codec
from gitckpt.store import notes
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import draft, keys, recorder, ref_names
from gitckpt.store.records.recorder import Proposal
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import (
    ONE,
    RUN,
    THREE,
    TWO,
    MakeStore,
    nth,
    require_runs,
    require_whole,
    written_notes,
)
from tests.store.records.test_commit_refs import kept
from tests.stores import make_private_dir

HEAD = f"refs/ckpt/runs/{RUN}"
FENCE = "refs/ckpt/leases/x"


class Fence:
    """A condition of a transaction: a ref that must not exist.

    Attributes:
        checked: how often the recorder asked whether another attempt may succeed.
    """

    drives = False

    def __init__(self, error: Exception | None = None) -> None:
        self.checked = 0
        self._error = error

    def make_lease_update(self) -> RefUpdate:
        return RefUpdate(FENCE, "", "")

    def require_lease_held(self) -> None:
        self.checked += 1
        if self._error is not None:
            raise self._error


Attempt = Callable[[list[RefUpdate]], None]


@pytest.fixture
def tries(plain: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[Attempt], list[list[str]]]:
    """`tries(function)` runs the function before each transaction.

    It returns the list that collects the refs of each transaction, in order.
    """

    def prepare(interfere: Attempt) -> list[list[str]]:
        refs = checkpoints_of_store(plain).refs
        update = refs.apply_updates
        seen: list[list[str]] = []

        def tried(updates: list[RefUpdate], meanwhile: Callable[[], None] | None = None) -> None:
            seen.append([each.ref for each in updates])
            interfere(updates)
            update(updates, meanwhile)

        monkeypatch.setattr(refs, "apply_updates", tried)
        return seen

    return prepare


def outrun(times: int, error: Exception | None = None) -> Attempt:
    """Fail the first `times` transactions."""
    left = [error or RefMoved("another writer was faster")] * times

    def interfere(updates: list[RefUpdate]) -> None:
        if left:
            raise left.pop()

    return interfere


class TestWhatItBeginsWith:
    """A transaction begins with the guard, the key, and what the checkpoint needs."""

    def test_in_order(self, plain: Store, main_checkout: Checkout) -> None:
        store = checkpoints_of_store(plain)
        claim = keys.KeyClaim("nightly", store.refs, store.objects, "sha1", lambda run: False)
        fields = {"run": RUN, "pipeline": None, "attempt": None}
        fences = Proposal(fields, {}, guard=Fence(), claim=claim).list_guard_updates()
        assert [(each.ref, each.old) for each in fences] == [
            (FENCE, ""),
            (keys.name_key_ref("nightly"), ""),
        ]
        assert main_checkout.blobs(fences[1].new) == [keys.render_key_document("nightly", RUN)]
        assert [each.ref for each in Proposal(fields, {}, guard=Fence()).list_guard_updates()] == [
            FENCE
        ]
        assert [each.ref for each in Proposal(fields, {}, claim=claim).list_guard_updates()] == [
            keys.name_key_ref("nightly")
        ]
        assert Proposal(fields, {}).list_guard_updates() == []

    def test_in_one_transaction_with_the_checkpoint(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        seen = tries(outrun(0))
        checkpoints_of_store(plain).record(
            "run-started", {}, start="Add login!", key="nightly", guard=Fence()
        )
        kept = f"refs/keep/ckpt/{main_checkout.head()}"
        expected = [FENCE, keys.name_key_ref("nightly"), kept, f"refs/checkpoints/{ONE}", HEAD]
        assert seen[0] == expected

    def test_where_the_fence_is_down_nothing_is_recorded(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git("update-ref", FENCE, "HEAD")
        before = main_checkout.refs()
        fence = Fence(UsageError("another process drives it"))
        with pytest.raises(UsageError, match=r"^another process drives it$"):
            checkpoints_of_store(plain).record("a-complete", {}, guard=fence)
        assert (fence.checked, main_checkout.refs()) == (1, before)


class TestWhoDrives:
    """A driver does not continue a fetched chain; other writers may."""

    @pytest.mark.parametrize("drives", [False, True])
    def test_from_a_head_that_was_not_written_here(
        self, plain: Store, main_checkout: Checkout, drives: bool
    ) -> None:
        plain.record("run-started", {}, start="Add login!")
        other = main_checkout.git(
            "hash-object",
            "-w",
            "--stdin",
            data=f"{main_checkout.git('cat-file', 'blob', HEAD)}\nn = 1\n",
        )
        main_checkout.git("update-ref", HEAD, other)
        before = main_checkout.refs()
        fence = Fence()
        fence.drives = drives
        if drives:
            message = (
                f"the newest checkpoint of run {RUN} was not written in this clone: "
                "perhaps a fetch replaced the ref"
            )
            with pytest.raises(CkptError) as caught:
                checkpoints_of_store(plain).record("a-complete", {}, run=RUN, guard=fence)
            assert (caught.value.message, caught.value.hint) == (
                message,
                f"see the fetched checkpoint: git ckpt resume {RUN}",
            )
            assert main_checkout.refs() == before
        else:
            assert (
                checkpoints_of_store(plain).record("a-complete", {}, run=RUN, guard=fence).sequence
                == 2
            )
        assert not checkpoints_of_store(plain).heads.is_head_local(RUN)

    def test_from_one_that_was(self, plain: Store) -> None:
        plain.record("run-started", {}, start="Add login!")
        fence = Fence()
        fence.drives = True
        assert (
            checkpoints_of_store(plain).record("a-complete", {}, run=RUN, guard=fence).sequence == 2
        )
        assert checkpoints_of_store(plain).heads.is_head_local(RUN)


class TestWhatKeepsTheCommit:
    """The keep ref names the commit itself; without a commit there is no ref."""

    def test_on_a_branch_and_on_none(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.head()
        plain.record("a-complete", {})
        assert kept(main_checkout) == {commit: commit}
        main_checkout.git("checkout", "--quiet", "--detach")
        new = main_checkout.commit()
        plain.record("b-complete", {})
        assert kept(main_checkout) == {new: new}

    def test_on_an_unborn_branch(
        self, make_checkout: Callable[..., Checkout], make_store: MakeStore
    ) -> None:
        checkout = make_checkout("unborn")
        store = make_store(checkout)
        for label in ("a-complete", "b-complete"):
            store.record(label, {})
        assert list(checkout.refs()) == [f"refs/checkpoints/{ONE}", f"refs/checkpoints/{TWO}"]
        assert not notes.list_pending_links(checkpoints_of_store(store).repository)[0]
        assert store.record("a-started", {}, start="Add login!").id == THREE
        assert set(LocalCheckpoints.read(checkpoints_of_store(store).repository)) == {
            ONE,
            TWO,
            THREE,
        }


class TestTries:
    """A writer that lost a race tries again until its patience ends."""

    def test_as_often_as_it_takes(self, plain: Store, main_checkout: Checkout, tries: Any) -> None:
        seen = tries(outrun(3))
        fence = Fence()
        checkpoints_of_store(plain).record("a-complete", {"n": 1}, guard=fence)
        assert (fence.checked, [f"refs/checkpoints/{ONE}" in each for each in seen[:4]]) == (
            3,
            [True] * 4,
        )
        assert {name: made.state for name, made in require_whole(main_checkout).items()} == {
            ONE: {"n": 1}
        }

    def test_a_packed_ref_whose_object_is_missing_takes_two(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        commit = main_checkout.head()
        main_checkout.write(
            ".git/packed-refs",
            f"# pack-refs with: peeled fully-peeled sorted \n{'12' * 20} refs/keep/ckpt/{commit}\n",
        )
        seen = tries(outrun(0))
        plain.record("a-complete", {})
        assert [f"refs/checkpoints/{ONE}" in each for each in seen] == [True, True, False]
        assert kept(main_checkout) == {commit: commit}

    def test_until_its_patience_ends(
        self, plain: Store, main_checkout: Checkout, tries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder, "PATIENCE", 0.0)
        before = main_checkout.refs()
        seen = tries(outrun(9))
        with pytest.raises(RefMoved, match=r"^another writer was faster$"):
            plain.record("a-complete", {})
        assert (len(seen), main_checkout.refs()) == (1, before)

    def test_another_lock_is_said(self, plain: Store, main_checkout: Checkout, tries: Any) -> None:
        before = main_checkout.refs()
        seen = tries(outrun(1, LockHeld("/somewhere/packed-refs.lock")))
        with pytest.raises(LockHeld) as caught:
            plain.record("a-complete", {})
        assert (caught.value.path, len(seen), main_checkout.refs()) == (
            "/somewhere/packed-refs.lock",
            1,
            before,
        )

    def test_where_git_refuses_it_says_so_at_once(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        before = main_checkout.refs()
        seen = tries(outrun(1, GitError(["update-ref"], 128, "fatal: no")))
        with pytest.raises(GitError) as caught:
            plain.record("a-complete", {})
        assert (caught.value.stderr, len(seen), main_checkout.refs()) == ("fatal: no", 1, before)

    @pytest.mark.long
    def test_each_begins_with_what_is_there_by_then(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, tries: Any
    ) -> None:
        run = str(plain.record("a-started", {"n": 1}, start="Add login!").run)
        other = make_store(main_checkout)

        def overtake(updates: list[RefUpdate]) -> None:
            if len(seen) == 1:
                other.record("b-complete", {"n": 5}, run=run)

        seen: list[list[str]] = tries(overtake)
        made = checkpoints_of_store(plain).record(
            "c-complete", run=run, change=lambda state: {"n": state["n"] + 1}
        )
        assert (made.sequence, made.parent, made.state) == (3, nth(3), {"n": 6})
        assert require_runs(main_checkout, require_whole(main_checkout)) == {
            run: [ONE, nth(3), TWO]
        }

    def test_a_run_that_exists_by_then_gets_another_name(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        def overtake(updates: list[RefUpdate]) -> None:
            if len(seen) == 1:
                main_checkout.git("update-ref", HEAD, "HEAD")

        seen: list[list[str]] = tries(overtake)
        assert plain.record("run-started", {}, start="Add login!").run == f"{RUN}-2"
        assert [
            [ref for ref in each if ref.startswith("refs/ckpt/runs/")] for each in seen[:2]
        ] == [[HEAD], [f"{HEAD}-2"]]

    def test_an_id_that_is_taken_by_then_is_said(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        def overtake(updates: list[RefUpdate]) -> None:
            if len(seen) == 2:
                main_checkout.git("update-ref", f"refs/checkpoints/{ONE}", "HEAD")
            if len(seen) == 1:
                raise RefMoved("another writer was faster")

        seen: list[list[str]] = tries(overtake)
        with pytest.raises(UsageError, match=f"^a checkpoint {ONE} exists already$"):
            plain.record("a-complete", {})
        assert len(seen) == 2


class TestTwoInARow:
    """Two records in one transaction: both exist, or neither.

    The second continues the first, with the same commit and its own state.
    """

    def second(self, **details: Any) -> draft.SuccessorCheckpoint:
        given: Any = {"id": nth(9), "run": RUN} | details
        return draft.SuccessorCheckpoint("b-started", {"n": 2}, given)

    def test_in_one_transaction(self, plain: Store, main_checkout: Checkout, tries: Any) -> None:
        first = plain.record("a-started", {"n": 0}, start="Add login!")
        seen = tries(outrun(1))
        then = self.second()
        made = checkpoints_of_store(plain).record("a-complete", {"n": 1}, run=RUN, then=then)
        assert [made.id, made.sequence, made.parent, made.state] == [TWO, 2, ONE, {"n": 1}]
        assert then.checkpoint is not None
        assert [
            then.checkpoint.id,
            then.checkpoint.sequence,
            then.checkpoint.parent,
            then.checkpoint.state,
        ] == [nth(9), 3, TWO, {"n": 2}]
        found = require_whole(main_checkout)
        assert require_runs(main_checkout, found) == {RUN: [ONE, TWO, nth(9)]}
        assert {found[name].git_sha for name in found} == {first.git_sha}
        expected = [
            f"refs/keep/ckpt/{first.git_sha}",
            f"refs/checkpoints/{TWO}",
            f"refs/checkpoints/{nth(9)}",
            HEAD,
        ]
        assert [[ref for ref in each if ref != "refs/notes/checkpoints"] for each in seen[:2]] == [
            expected
        ] * 2
        plain.write_notes()
        assert sorted(written_notes(main_checkout)[first.git_sha]) == [ONE, TWO, nth(9)]
        assert plain.record("c-complete", {}, run=RUN).sequence == 4

    def test_what_others_say_of_keys_that_both_write_is_in_both(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        plain.record("a-started", {"n": 0, "theirs": 0}, start="Add login!")
        make_store(main_checkout).record("b-complete", {"n": 5, "theirs": 5}, run=RUN)
        then = draft.SuccessorCheckpoint(
            "b-started", {"n": 2, "theirs": 2}, {"id": nth(9), "run": RUN}
        )
        checkpoints_of_store(plain).record(
            "a-complete", {"n": 1, "theirs": 1}, run=RUN, then=then, keeps=("theirs",)
        )
        found = require_whole(main_checkout)
        assert [found[name].state for name in (THREE, nth(9))] == [
            {"n": 1, "theirs": 5},
            {"n": 2, "theirs": 5},
        ]

    def test_none_where_the_id_of_the_second_is_taken(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        plain.record("a-started", {"n": 0}, start="Add login!")
        before = main_checkout.refs()
        with pytest.raises(UsageError, match=f"^a checkpoint {ONE} exists already$"):
            checkpoints_of_store(plain).record(
                "a-complete", {"n": 1}, run=RUN, then=self.second(id=ONE)
            )
        assert main_checkout.refs() == before


class TestWhatItRemembers:
    """The store remembers the place, and on request the state, of a run's newest.

    It forgets them where another process records in between.
    """

    def head(self, checkout: Checkout) -> str:
        return checkout.refs(HEAD)[HEAD]

    def state(self, checkout: Checkout, name: str) -> dict[str, Any]:
        """Return the state of the newest checkpoint, which has this id."""
        return dict(
            codec.decode(checkout.blobs(self.head(checkout))[0], f"refs/checkpoints/{name}").state
        )

    def test_where_nobody_came_between(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-started", {"n": 1}, start="Add login!")
        found = [plain.record("a-complete", {}, run=RUN) for _ in range(2)]
        assert [(made.sequence, made.parent) for made in found] == [(2, ONE), (3, TWO)]
        assert self.state(main_checkout, THREE) == {}

    def test_where_the_state_is_carried_on(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-started", {"n": 1}, start="Add login!")
        for name in (TWO, THREE):
            plain.record("a-complete", run=RUN)
            assert self.state(main_checkout, name) == {"n": 1}

    def test_keys_that_others_write_too_are_ones_own_where_nobody_came_between(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        plain.record("a-started", {"n": 1}, start="Add login!")
        for name, count in ((TWO, 2), (THREE, 3)):
            checkpoints_of_store(plain).record("a-complete", {"n": count}, run=RUN, keeps=("n",))
            assert self.state(main_checkout, name) == {"n": count}

    def test_where_somebody_came_between(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        plain.record("a-started", {"n": 1, "theirs": 1}, start="Add login!")
        make_store(main_checkout).record("b-complete", {"n": 2, "theirs": 2}, run=RUN)
        made = checkpoints_of_store(plain).record(
            "c-complete", {"n": 3, "theirs": 3}, run=RUN, keeps=("theirs",)
        )
        assert (made.sequence, made.parent, self.state(main_checkout, THREE)) == (
            3,
            TWO,
            {"n": 3, "theirs": 2},
        )

    def test_a_run_that_is_not_there_is_none(self, plain: Store, main_checkout: Checkout) -> None:
        store = checkpoints_of_store(plain)
        fields: dict[str, Any] = {"id": ONE, "run": RUN, "git_sha": ""}
        with pytest.raises(NotFoundError) as caught:
            store._recorder.record_proposals(Proposal(fields, {}))
        assert (caught.value.message, caught.value.hint) == (
            f"no run {RUN}",
            "list the runs: git ckpt runs",
        )

    def test_a_state_that_is_somebody_elses_is_not_noted_as_ours(self, plain: Store) -> None:
        store = checkpoints_of_store(plain)
        fields = codec.document_fields(store.record("a-complete", {})) | {"id": TWO, "run": RUN}
        store._recorder.record_proposals(Proposal(dict(fields), {}, starts_run=True, is_ours=False))
        assert not store.heads.is_head_local(RUN)
        store._recorder.record_proposals(
            Proposal(fields | {"id": THREE, "run": f"{RUN}-2"}, {}, starts_run=True)
        )
        assert store.heads.is_head_local(f"{RUN}-2")

    def test_files_that_vanished_are_said(self) -> None:
        error = FilesPruned()
        message = (
            "the captured files vanished before they could be recorded: git gc --prune=now ran"
        )
        assert (error.message, error.hint) == (
            message,
            "wait until git gc ends, then run the command again",
        )


class TestNotes:
    """Due notes are written after a record, in their own transaction."""

    @pytest.fixture
    def waiting(self, plain: Store) -> Store:
        """A store with notes written just now, and one pending link."""
        for label in ("a-complete", "b-complete"):
            plain.record(label, {})
        return plain

    def notes(self, checkout: Checkout) -> list[str]:
        return sorted(written_notes(checkout).get(checkout.head(), ()))

    def test_what_waits(self, waiting: Store, main_checkout: Checkout) -> None:
        assert self.notes(main_checkout) == [ONE]
        assert waiting.write_notes()
        assert self.notes(main_checkout) == [ONE, TWO]
        assert not waiting.write_notes()

    def test_again_where_another_writer_was_faster(
        self, waiting: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        seen = tries(outrun(2))
        assert waiting.write_notes()
        assert (seen, self.notes(main_checkout)) == ([["refs/notes/checkpoints"]] * 3, [ONE, TWO])

    def test_until_its_patience_ends(
        self, waiting: Store, main_checkout: Checkout, tries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notes, "PATIENCE", 0.0)
        seen = tries(outrun(2))
        with pytest.raises(RefMoved):
            waiting.write_notes()
        assert (seen, self.notes(main_checkout)) == ([["refs/notes/checkpoints"]], [ONE])
        assert notes.list_pending_links(checkpoints_of_store(waiting).repository)[0]

    def test_a_failure_does_not_fail_the_record(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)
        (main_checkout.path / ".git/refs/notes").mkdir()
        (main_checkout.path / ".git/refs/notes/checkpoints.lock").touch()
        assert plain.record("a-complete", {}).id == ONE
        assert "notes were not written" in (main_checkout.path / ".git/ckpt/log").read_text()


def test_who_records_waits_for_whoever_does(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer waits for another writer, but not for long.

    The expected value in each update protects the data, and a hanging process may hold the lock.
    """
    monkeypatch.setattr(ref_names, "PATIENCE", 0.05)
    path = os.path.join(make_private_dir(plain), "write.lock")
    assert path == os.fspath(Path(main_checkout.path, ".git/ckpt/write.lock"))
    with FileLock(path, 0) as is_held:
        plain.record("a-complete", {})
    assert (is_held, list(require_whole(main_checkout))) == (True, [ONE])


def test_who_records_holds_the_lock_of_writers(plain: Store) -> None:
    path = os.path.join(make_private_dir(plain), "write.lock")
    held_then: list[bool] = []

    class Looking(Fence):
        def make_lease_update(self) -> RefUpdate:
            held_then.append(lock.is_held_by_this_process(path))
            return super().make_lease_update()

    checkpoints_of_store(plain).record("a-complete", {}, guard=Looking())
    assert (held_then, lock.is_held_by_this_process(path)) == ([True], False)


class TestObstacles:
    """A record bypasses a locked keep ref, and rewrites objects that a gc deleted."""

    def test_a_lock_that_a_kill_left_on_what_keeps_the_commit(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        commit = main_checkout.head()
        seen = tries(outrun(1, LockHeld(f"{main_checkout.path}/.git/refs/keep/ckpt/{commit}.lock")))
        plain.record("a-complete", {})
        ref = f"refs/keep/ckpt/{commit}"
        document = f"refs/checkpoints/{ONE}"
        assert seen[:2] == [[ref, document], [document]]
        assert kept(main_checkout) == {commit: commit}
        assert list(require_whole(main_checkout)) == [ONE]

    def test_where_the_ref_is_there_a_lock_of_it_does_no_harm(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        commit = main_checkout.head()
        plain.record("a-complete", {})
        seen = tries(outrun(1, LockHeld(f"{main_checkout.path}/.git/refs/keep/ckpt/{commit}.lock")))
        plain.record("b-complete", {})
        ref, document = f"refs/keep/ckpt/{commit}", f"refs/checkpoints/{TWO}"
        assert seen[:2] == [[ref, document], [document]]
        assert list(require_whole(main_checkout)) == [ONE, TWO]

    def test_a_document_that_a_gc_took_is_written_once_more(
        self, plain: Store, main_checkout: Checkout, tries: Any
    ) -> None:
        def take(updates: list[RefUpdate]) -> None:
            for each in updates if len(seen) == 1 else ():
                if each.ref == f"refs/checkpoints/{ONE}":
                    (main_checkout.path / ".git/objects" / each.new[:2] / each.new[2:]).unlink()

        seen: list[list[str]] = tries(take)
        plain.record("a-complete", {"n": 1})
        assert require_whole(main_checkout)[ONE].state == {"n": 1}


class TestFlushed:
    """All that a checkpoint adds to its commit is flushed before its refs move."""

    def objects(self, checkout: Checkout, *revs: str) -> set[str]:
        """Return the files of the loose objects that are reachable from the revisions."""
        names = [
            line.split(" ")[0] for line in checkout.git("rev-list", "--objects", *revs).splitlines()
        ]
        files = [checkout.path / ".git/objects" / name[:2] / name[2:] for name in names]
        return {os.fspath(file) for file in files if file.exists()}

    def test_the_document_and_that_it_was_written_here(
        self, plain: Store, main_checkout: Checkout, flushed: list[str]
    ) -> None:
        git_dir = os.fspath(main_checkout.path / ".git")
        chains = f"{git_dir}/ckpt/chains"
        plain.record("a-started", {}, start="Add login!")
        assert {chains, f"{chains}/{RUN}", f"{git_dir}/ckpt"} - set(flushed) == set()
        for _ in range(2):
            del flushed[:]
            plain.record("a-progress", {}, run=RUN)
            oid = main_checkout.refs()[HEAD]
            objects = f"{git_dir}/objects/{oid[:2]}"
            before = flushed[: flushed.index(f"{git_dir}/refs/checkpoints")]
            assert {objects, f"{objects}/{oid[2:]}"} - set(before) == set()
            assert [path for path in before if path.startswith(chains)] == [f"{chains}/{RUN}"]

    def test_files_and_what_is_staged(
        self, plain: Store, main_checkout: Checkout, flushed: list[str]
    ) -> None:
        plain.record("a-complete", {})
        main_checkout.write("README", "other\n")
        main_checkout.write("deep/er/new", "new\n")
        main_checkout.write("staged", "staged\n")
        main_checkout.git("add", "staged")
        del flushed[:]
        made = plain.save("b-complete", {})
        assert made.tree is not None
        needed = self.objects(main_checkout, made.tree) - self.objects(main_checkout, made.git_sha)
        assert (len(needed) > 4, needed - set(flushed)) == (True, set())


def test_what_a_file_says_is_complete_is_what_counts() -> None:
    """An imported file's `completed` table counts; label and run add nothing to it."""
    own = {"name": "ci", "phases": ["a", "b"], "completed": {"b": TWO}}
    fields: dict[str, Any] = {
        "version": 1,
        "id": THREE,
        "phase": "a-complete",
        "timestamp": "2027-01-15T08:00:02.000000Z",
        "git_sha": "",
        "trigger": "import:x",
        "run": RUN,
        "errors": [],
        "pipeline": own,
        "imported": {"format": "x"},
    }
    before = {
        "id": ONE,
        "sequence": 1,
        "pipeline": {"name": "ci", "phases": ["a", "b"], "completed": {"a": ONE}},
    }
    Proposal(fields, {}).render_document(before, {})
    assert fields["pipeline"] == own


def test_a_change_may_use_the_store_itself(
    make_store: MakeStore, main_checkout: Checkout, adapter: str
) -> None:
    store = make_store(main_checkout, adapter)
    first = store.record("a-complete", {"n": 1}, start="nested")

    def change(before: dict[str, object]) -> dict[str, object]:
        return {
            **before,
            "seen": store.read(first.id).state["n"],
            "links": len(store.links(first.git_sha)),
        }

    assert checkpoints_of_store(store).record("b-complete", run=first.run, change=change).state == {
        "n": 1,
        "seen": 1,
        "links": 1,
    }
