"""Removal by name and by policy: what goes, what stays, and the reasons."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from gitckpt import LockHeld, NotFoundError, Policy, Store
from gitckpt.store.retention.expiry import expire_outside_runs
from gitckpt.store.store import checkpoints_of_store
from tests import planted
from tests.conftest import Checkout, Clock, Ids
from tests.planted import plant
from tests.store.conftest import MakeStore, notes, nth, require_runs, require_whole
from tests.stores import DAY, head_of, timestamp

FIRST = 1_800_000_001_000_000


def left(checkout: Checkout) -> list[int]:
    """Return the numbers of the remaining checkpoints.

    Asserts that no other checkpoint has left refs or notes behind.
    """
    found = require_whole(checkout)
    refs = checkout.refs("refs/ckpt/trees", "refs/keep/ckpt-operations")
    assert {ref.rpartition("/")[2] for ref in refs} <= found.keys()
    assert {name for lines in notes(checkout).values() for name in lines} <= found.keys()
    return sorted(int(name[:8], 16) for name in found)


class TestRemove:
    def test_everything_that_it_had(self, store: Store, checkout: Checkout) -> None:
        before = checkout.refs()
        checkout.write("new", "x")
        store.record("a-complete", {}, worktree=store.capture(), start="r")
        assert store.remove([nth(1)]) == 1
        after = checkout.refs()
        assert notes(checkout) == {}
        after.pop("refs/notes/checkpoints")
        after.pop(
            f"refs/keep/ckpt/{checkout.git('rev-parse', 'HEAD')}"
        )  # it is younger than an hour
        assert after == before
        assert checkout.git("fsck", "--connectivity-only", "--no-dangling") == ""
        assert store.list() == []

    def test_some_of_many(self, store: Store, checkout: Checkout) -> None:
        for _ in range(4):
            store.record("a-complete", {})
        checkout.commit("second")
        store.record("a-complete", {})
        assert store.remove([nth(2), nth(5), nth(2), nth(77)]) == 2
        assert left(checkout) == [1, 3, 4]
        assert notes(checkout) == {checkout.git("rev-parse", "HEAD~1"): [nth(1), nth(3), nth(4)]}
        assert store.remove([nth(2)]) == 0
        assert store.remove([]) == 0

    def test_links_that_were_put_off_go_too(self, plain: Store, main_checkout: Checkout) -> None:
        for _ in range(3):
            plain.record("a-complete", {})
        plain.remove([nth(3)])
        plain.close()
        assert notes(main_checkout) == {main_checkout.git("rev-parse", "HEAD"): [nth(1), nth(2)]}

    def test_the_head_of_the_run_moves_to_the_newest_that_remains(
        self, store: Store, checkout: Checkout, clock: Clock
    ) -> None:
        run = store.record("a-complete", {"n": 1}, start="r").run or ""
        clock.instant -= DAY  # what counts is the sequence
        for number in (2, 3, 4):
            store.record("a-complete", {"n": number}, run=run)

        def head() -> str:
            return checkout.git("rev-parse", f"refs/ckpt/runs/{run}")

        store.remove([nth(2)])
        assert head() == checkout.git("rev-parse", f"refs/checkpoints/{nth(4)}")
        store.remove([nth(4)])
        assert head() == checkout.git("rev-parse", f"refs/checkpoints/{nth(3)}")
        made = store.record("b-complete", run=run)
        assert (made.sequence, made.parent, store.read(made.id).state) == (4, nth(3), {"n": 3})
        store.remove([nth(1), nth(3), nth(5)])
        assert checkout.refs("refs/ckpt", "refs/checkpoints") == {}

    def test_two_runs_at_once(self, plain: Store, main_checkout: Checkout) -> None:
        one = plain.record("a-complete", {}, start="one").run or ""
        two = plain.record("a-complete", {}, start="two").run or ""
        plain.record("b-complete", {}, run=one)
        plain.record("b-complete", {}, run=two)
        plain.remove([nth(3), nth(4)])
        assert require_runs(main_checkout, require_whole(main_checkout)) == {
            one: [nth(1)],
            two: [nth(2)],
        }
        assert [head_of(plain, run).id for run in (one, two)] == [nth(1), nth(2)]

    def test_lines_of_others_in_the_notes_stay(self, store: Store, checkout: Checkout) -> None:
        head = checkout.git("rev-parse", "HEAD")
        store.record("a-complete", {})
        store.record("a-complete", {})
        store.write_notes()
        checkout.git(
            "notes", "--ref=checkpoints", "append", "-m", "written by hand, about 00000001"
        )
        other = checkout.commit("second")
        checkout.git("notes", "--ref=checkpoints", "add", "-m", "by hand as well")
        store.remove([nth(1)])
        store.write_notes()
        shown = checkout.git("log", "--notes=checkpoints", "--format=%H%n%N").split()
        assert " ".join(shown) == (
            f"{other} by hand as well {head} {nth(2)} a-complete 2027-01-15T08:00:02.000000Z "
            "written by hand, about 00000001"
        )
        store.remove([nth(2)])
        store.write_notes()
        assert (
            checkout.git("notes", "--ref=checkpoints", "show", head).strip()
            == "written by hand, about 00000001"
        )

    def test_the_note_of_a_commit_that_was_rewritten(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        old = checkout.commit("second")
        store.record("a-complete", {})
        store.record("a-complete", {})
        store.write_notes()
        checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        new = checkout.git("rev-parse", "HEAD")
        store.remove([nth(1)])
        assert notes(checkout) == {old: [nth(2)], new: [nth(2)]}

    def test_a_ref_that_is_no_checkpoint(self, store: Store, checkout: Checkout) -> None:
        store.record("a-complete", {})
        oid = checkout.git("hash-object", "-w", "--stdin", data="garbage")
        checkout.git("update-ref", f"refs/checkpoints/{nth(7)}", oid)
        checkout.git("update-ref", f"refs/ckpt/trees/{nth(7)}", "HEAD^{tree}")
        assert len(store.problems()) == 1
        assert store.remove([nth(7)]) == 1
        assert (store.problems(), left(checkout)) == ([], [1])

    @pytest.mark.parametrize(
        "name", ["*", "../heads/main", "", "/", "a\nb", "--all", "refs/heads/main", nth(1)[:8]]
    )
    def test_what_is_no_id(self, plain: Store, main_checkout: Checkout, name: str) -> None:
        plain.record("a-complete", {})
        before = main_checkout.fingerprint()
        with pytest.raises(NotFoundError, match="is not the full id of a checkpoint"):
            plain.remove([nth(1), name])
        assert main_checkout.fingerprint() == before

    def test_what_a_killed_process_left_behind(self, plain: Store, main_checkout: Checkout) -> None:
        """Removal deletes operations and trees that a killed process left."""
        main_checkout.git("update-ref", f"refs/keep/ckpt-operations/{nth(5)}", "HEAD")
        main_checkout.git("update-ref", f"refs/ckpt/trees/{nth(5)}", "HEAD^{tree}")
        assert plain.remove([nth(5)]) == 0
        assert main_checkout.refs("refs/ckpt", "refs/keep") == {}

    def test_packed_and_loose_ones(self, plain: Store, main_checkout: Checkout) -> None:
        run = plain.record("a-complete", {}, start="r").run
        for _ in range(3):
            plain.record("a-complete", {}, run=run)
        main_checkout.git("pack-refs", "--all")
        plain.record("a-complete", {}, run=run)
        main_checkout.write("new", "x")
        plain.record("a-complete", {}, run=run, worktree=plain.capture())
        assert plain.remove([nth(number) for number in (2, 4, 6)]) == 3
        assert left(main_checkout) == [1, 3, 5]
        main_checkout.git("pack-refs", "--all")
        assert plain.remove([nth(number) for number in (1, 3, 5)]) == 3
        assert left(main_checkout) == []

    def test_the_objects_are_gits_to_collect(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("new", "x")
        plain.record("a-complete", {}, worktree=plain.capture())
        oids = set(main_checkout.refs("refs/checkpoints", "refs/ckpt/trees").values())
        plain.remove([nth(1)])
        main_checkout.git("gc", "--quiet", "--prune=now")
        there = main_checkout.git(
            "cat-file", "--batch-check", data="".join(f"{oid}\n" for oid in sorted(oids))
        )
        assert there.splitlines() == [f"{oid} missing" for oid in sorted(oids)]

    def test_a_lock_in_the_way(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
        plain.record("a-complete", {})
        before = main_checkout.fingerprint()
        for name in (f"refs/checkpoints/{nth(1)}", "packed-refs"):
            lock = main_checkout.path / ".git" / f"{name}.lock"
            lock.touch()
            with pytest.raises(LockHeld) as caught:
                plain.remove([nth(1)])
            assert (caught.value.path, lock.exists()) == (str(lock), True)
            lock.unlink()
            assert main_checkout.fingerprint() == before
        assert plain.remove([nth(1)]) == 1


@pytest.mark.long
def test_1500_packed_and_loose_in_one_go(
    make_store: MakeStore, main_checkout: Checkout, ids: Ids
) -> None:
    store = make_store(main_checkout)
    run = store.record("a-complete", {}, start="r").run
    template = store.raw(nth(1)).decode()
    documents = []
    for number in range(2, 1501):
        place = f'parent = "{nth(number - 1)}"\nsequence = {number}\n'
        documents.append(template.replace(nth(1), nth(number)).replace("sequence = 1\n", place))
    oids = main_checkout.git(
        "hash-object",
        "-w",
        "--stdin-paths",
        data="".join(f"{write(main_checkout, n, d)}\n" for n, d in enumerate(documents)),
    ).splitlines()
    commands = [
        f"create refs/checkpoints/{nth(number)} {oid}\n" for number, oid in enumerate(oids, 2)
    ]
    main_checkout.git("update-ref", "--stdin", data="".join(commands[:1000]))
    main_checkout.git("pack-refs", "--all")
    main_checkout.git(
        "update-ref",
        "--stdin",
        data="".join(commands[1000:]) + f"update refs/ckpt/runs/{run} {oids[-1]}\n",
    )
    assert len(store.list()) == 1500
    ids.count = 1500
    store.record("b-complete", {}, run=run)
    assert store.remove([nth(number) for number in (1, *range(3, 1502))]) == 1500
    assert left(main_checkout) == [2]
    assert head_of(store, run or "").id == nth(2)


def write(checkout: Checkout, number: int, document: str) -> str:
    return str(checkout.write(f".git/documents/{number}", document))


class TestExpire:
    def expire(self, store: Store, policy: Policy, *, dry_run: bool = False) -> dict[int, str]:
        """Return the reason for each expired checkpoint, by number."""
        decided, _ = expire_outside_runs(checkpoints_of_store(store), policy, dry_run=dry_run)
        assert [entry.id for entry, _ in decided] == [decision.id for _, decision in decided]
        assert all(decision.expires for _, decision in decided)
        return {int(entry.id[:8], 16): decision.reason for entry, decision in decided}

    def test_the_default_policy_end_to_end(
        self, store: Store, checkout: Checkout, clock: Clock
    ) -> None:
        checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        run = store.record("a-complete", {}, start="r", trigger="post-commit").run
        store.record("run-complete", {}, run=run, trigger="post-commit")  # 2
        store.record("manual-complete", {})  # 3
        store.record("merge-complete", {}, trigger="post-merge")  # 4
        clock.instant += 25 * DAY
        checkout.commit("second")
        store.record("commit-complete", {}, trigger="post-commit")  # 5, soon amended away
        store.write_notes()
        checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        clock.instant += 8 * DAY
        store.record("commit-complete", {}, trigger="post-commit")  # 6
        policy = Policy(keep_last=1)
        before = checkout.fingerprint()
        reasons = {5: "its commit was rewritten, 8d old, limit 7d", 4: "33d old, limit 30d"}
        assert self.expire(store, policy, dry_run=True) == reasons
        assert drop_notes(checkout.fingerprint()) == drop_notes(before)
        assert left(checkout) == [1, 2, 3, 4, 5, 6]
        assert self.expire(store, policy) == reasons
        assert left(checkout) == [1, 2, 3, 6]
        assert self.expire(store, policy) == {}
        assert [entry.id for entry in store.links(checkout.git("rev-parse", "HEAD"))] == [nth(6)]

    @pytest.mark.long
    def test_the_newest_hundred_stay(self, plain: Store, clock: Clock) -> None:
        for _ in range(103):
            plain.record("commit-complete", {}, trigger="post-commit")
        clock.instant += 400 * DAY
        assert list(self.expire(plain, Policy())) == [3, 2, 1]
        assert len(plain.list()) == 100

    def test_everything(self, plain: Store, main_checkout: Checkout, clock: Clock) -> None:
        plain.record("a-complete", {}, start="r")
        plain.record("manual-complete", {})
        clock.instant += DAY
        plain.record("manual-complete", {})
        reasons = self.expire(plain, Policy(everything=True, keep_last=0, older_than=DAY // 2))
        assert reasons == {2: "1d old, limit 12h"}
        assert left(main_checkout) == [1, 3]

    def test_a_clock_that_jumped_back(self, plain: Store, clock: Clock) -> None:
        plain.record("commit-complete", {}, trigger="post-commit")
        clock.instant -= 5 * DAY
        assert self.expire(plain, Policy(keep_last=0)) == {}

    def test_refs_that_are_no_checkpoints_are_left_alone(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git("update-ref", f"refs/checkpoints/{nth(9)}", "HEAD")
        before = main_checkout.fingerprint()
        assert plain.expire(Policy(everything=True, keep_last=0, older_than=0)).checkpoints == []
        assert main_checkout.fingerprint() == before

    @pytest.mark.parametrize(
        ("trigger", "everything"),
        [("post-commit", False), ("safety", False), ("post-commit", True), ("safety", True)],
    )
    def test_what_was_fetched_takes_no_place_among_the_newest(
        self, plain: Store, main_checkout: Checkout, clock: Clock, trigger: str, everything: bool
    ) -> None:
        made = [plain.record("commit-complete", trigger=trigger) for _ in range(4)]
        text = plain.raw(made[0].id).decode()
        for number in range(90, 96):
            forged = text.replace(made[0].id, nth(number)).replace(
                f'"{made[0].timestamp[:4]}-', '"2099-'
            )
            assert "2099-" in forged
            oid = main_checkout.git("hash-object", "-w", "--stdin", data=forged)
            main_checkout.git("update-ref", "refs/checkpoints/" + nth(number), oid)
        clock.instant += 40 * DAY
        gone = self.expire(plain, Policy(keep_last=3, safety_keep_last=3, everything=everything))
        assert list(gone) == [1]
        assert len(main_checkout.refs("refs/checkpoints")) == 9

    @pytest.mark.parametrize("everything", [False, True])
    def test_where_few_were_written_here_the_newest_of_all_stay_beside_them(
        self, plain: Store, main_checkout: Checkout, clock: Clock, everything: bool
    ) -> None:
        first = plain.record("commit-complete", trigger="post-commit")
        text = plain.raw(first.id).decode()
        for number in range(90, 96):
            clock.instant += DAY
            stamp = timestamp(clock.instant)
            oid = main_checkout.git(
                "hash-object",
                "-w",
                "--stdin",
                data=text.replace(first.id, nth(number)).replace(first.timestamp, stamp),
            )
            main_checkout.git("update-ref", "refs/checkpoints/" + nth(number), oid)
        second = plain.record("commit-complete", trigger="post-commit")
        clock.instant += 40 * DAY
        everyone = {first.id, second.id, *map(nth, range(90, 96))}
        policy = partial(Policy, keep_last=3, everything=everything)
        assert {entry.id for entry, _ in plain.expire(policy()).checkpoints} == set()
        plain.remove([first.id])
        assert {entry.id for entry, _ in plain.expire(policy()).checkpoints} == everyone - {
            first.id,
            second.id,
            nth(95),
            nth(94),
        }

    def test_one_that_goes_while_it_is_decided(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        ids = [plain.record("commit-complete", trigger="post-commit").id for _ in range(3)]
        clock.instant += 40 * DAY

        def progress(_: str) -> None:
            main_checkout.git("update-ref", "-d", "refs/checkpoints/" + ids[1])

        plain.expire(Policy(keep_last=0), progress=progress)
        assert main_checkout.refs("refs/checkpoints") == {}
        assert notes(main_checkout) == {}

    def test_what_git_carries_over_while_it_is_decided(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        old = main_checkout.head()
        plain.record("commit-complete", trigger="post-commit")
        clock.instant += (
            10 * DAY
        )  # old enough that expire reads notes to see whether its commit was rewritten
        plain.record("commit-complete", trigger="post-commit")
        clock.instant += 25 * DAY
        plain.record("commit-complete", trigger="post-commit")
        plain.write_notes()
        new = main_checkout.git("commit-tree", "-m", "amended", "HEAD^{tree}")

        def progress(said: str) -> None:
            if said == "removing 1 checkpoints":
                main_checkout.git("notes", "--ref=checkpoints", "copy", old, new)

        gone = plain.expire(Policy(keep_last=0), progress=progress).checkpoints
        assert [entry.id for entry, _ in gone] == [nth(1)]
        assert notes(main_checkout) == {commit: [nth(2), nth(3)] for commit in (old, new)}

    def test_git_is_asked_once_for_what_takes_long(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        clock: Clock,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with make_store(main_checkout) as store:
            for _ in range(3):
                store.record("commit-complete", trigger="post-commit")
            clock.instant += 40 * DAY
            store.list()
            monkeypatch.setenv("GIT_TRACE2_EVENT", str(tmp_path / "trace"))
            assert store.expire(Policy(keep_last=1)).checkpoints
            monkeypatch.delenv("GIT_TRACE2_EVENT")
        events = map(json.loads, (tmp_path / "trace").read_text().splitlines())
        calls = [event["argv"] for event in events if event["event"] == "start"]
        assert sum("rev-list" in argv for argv in calls) == 1

    def test_nothing_to_do(self, plain: Store, main_checkout: Checkout) -> None:
        before = main_checkout.fingerprint()
        assert plain.expire(Policy()).checkpoints == []
        assert main_checkout.fingerprint() == before


def drop_notes(fingerprint: dict[str, object]) -> str:
    """Return a fingerprint without the notes, which pending links change as well."""
    refs = fingerprint["refs"]
    assert isinstance(refs, dict)
    return json.dumps(
        fingerprint | {"refs": {ref: oid for ref, oid in refs.items() if "notes" not in ref}},
        default=repr,
    )
