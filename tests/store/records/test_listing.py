"""Listing: filters, order, and refs that are not checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import CheckpointInfo, Problem, Query, Store
from tests.conftest import Checkout, Clock, Ids
from tests.store.conftest import MakeStore, listed, nth
from tests.stores import SECOND, close_index, private_dir


class TestFilters:
    @pytest.fixture
    def commits(self, store: Store, checkout: Checkout) -> list[str]:
        """Make seven checkpoints on two commits, and return the commits.

        Checkpoints 1 to 3 are in a run, 4 to 6 outside of runs, and 7 is in another run.
        """
        first = checkout.git("rev-parse", "HEAD")
        run = store.record("plan-started", {}, start="one").run
        store.record("plan-complete", {}, run=run)
        store.record("code-review-failed", {}, run=run)
        store.record("plan-complete", {})
        second = checkout.commit("second")
        store.record("odd", {}, trigger="step", agent="a:b", message="hello")
        store.record("plan", {})
        store.record("plan-complete", {}, start="two", worktree=store.capture())
        return [first, second]

    def test_each(self, store: Store, commits: list[str]) -> None:
        since, branch = store.read(nth(5)).time, f"refs/heads/{store.read(nth(5)).branch}"
        expected = {
            Query(): [7, 6, 5, 4, 3, 2, 1],
            Query(run="20270115-080001-one"): [3, 2, 1],
            Query(run="20270115-080001-none"): [],
            Query(git_sha=commits[0]): [4, 3, 2, 1],
            Query(ids=(nth(2), nth(6), nth(99))): [6, 2],
            Query(ids=()): [],
            Query(phase="plan"): [7, 6, 4, 2, 1],
            Query(label="plan-complete"): [7, 6, 4, 2],
            Query(phase="code-review"): [3],
            Query(phase="odd"): [5],
            Query(phase="pla%"): [],
            Query(status="complete"): [7, 6, 5, 4, 2],
            Query(status="failed"): [3],
            Query(status=""): [],
            Query(since=since): [7, 6, 5],
            Query(since=since + 1): [7, 6],
            Query(until=since): [5, 4, 3, 2, 1],
            Query(in_run=False): [6, 5, 4],
            Query(triggers=("step",)): [5],
            Query(agent="a:b"): [5],
            Query(agent="a"): [],
            Query(branch=branch, safety=False): [7, 6, 5, 4, 3, 2, 1],
            Query(branch="refs/heads/other"): [],
            Query(grep="HEL+o$"): [5],
            Query(grep=""): [5],
            Query(grep="hi"): [],
            Query(limit=2): [7, 6],
            Query(limit=0): [],
            Query(
                run="20270115-080001-one",
                status="complete",
                phase="plan",
                git_sha=commits[0],
                since=0,
                limit=5,
            ): [2],
        }
        assert {query: listed(store, query) for query in expected} == expected

    def test_labels_of_others_are_listed_as_they_are(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        for label in ("odd", "add-login"):
            made = plain.record("x-complete", {})
            text = main_checkout.git("cat-file", "blob", f"refs/checkpoints/{made.id}").replace(
                "x-complete", label
            )
            main_checkout.git(
                "update-ref",
                f"refs/checkpoints/{made.id}",
                main_checkout.git("hash-object", "-w", "--stdin", data=text),
            )
        assert [plain.read(entry.id).label for entry in plain.list()] == ["add-login", "odd"]
        assert listed(plain, Query(status="")) == [1]
        assert listed(plain, Query(status="login")) == [2]

    def test_what_an_entry_holds(
        self, store: Store, checkout: Checkout, commits: list[str]
    ) -> None:
        branch = checkout.git("branch", "--show-current")
        refs = checkout.refs("refs/checkpoints")
        checkout.write("new", "x")
        made = store.record("a-failed", {"never": "read"}, worktree=store.capture())
        newest, five, seven = (
            store.list()[0],
            *(store.list(Query(ids=[nth(number)]))[0] for number in (5, 7)),
        )
        time = 1_800_000_000_000_000
        assert five == CheckpointInfo(
            id=nth(5),
            oid=refs[f"refs/checkpoints/{nth(5)}"],
            run=None,
            sequence=None,
            label="odd-complete",
            timestamp="2027-01-15T08:00:05.000000Z",
            time=time + 5 * SECOND,
            git_sha=commits[1],
            branch=branch,
            trigger="step",
            message="hello",
            agent="a:b",
            examined=False,
            tree=None,
            operation=None,
            changed=None,
        )
        assert seven == CheckpointInfo(
            id=nth(7),
            oid=refs[f"refs/checkpoints/{nth(7)}"],
            run="20270115-080007-two",
            sequence=1,
            label="plan-complete",
            timestamp="2027-01-15T08:00:07.000000Z",
            time=time + 7 * SECOND,
            git_sha=commits[1],
            branch=branch,
            trigger="manual",
            message=None,
            agent=None,
            examined=True,
            tree=None,
            operation=None,
            changed=0,
        )
        assert (newest.tree, newest.examined, newest.changed) == (made.tree or "", True, None)


class TestOrder:
    def test_a_clock_that_jumps_does_not_reorder_a_run(self, store: Store, clock: Clock) -> None:
        run = store.record("a-complete", {}, start="r").run  # 1
        store.record("a-complete", {})  # 2
        clock.instant += 3600 * SECOND
        store.record("a-complete", {}, run=run)  # 3, from the future
        clock.instant -= 7200 * SECOND
        store.record("a-complete", {}, run=run)  # 4, before everything else
        store.record("a-complete", {})  # 5, before everything else and in no run
        clock.instant += 3600 * SECOND
        store.record("a-complete", {})  # 6
        assert listed(store, Query(run=run)) == [4, 3, 1]
        assert listed(store) == [4, 3, 6, 2, 1, 5]
        assert (store.find("latest"), store.find(run or "")) == (nth(4), nth(4))

    def test_then_the_timestamp_then_the_id(self, plain: Store, clock: Clock) -> None:
        clock.step = 0
        for _ in range(4):
            plain.record("a-complete", {})
        clock.instant -= 1
        plain.record("a-complete", {})
        assert listed(plain) == [4, 3, 2, 1, 5]

    def test_a_removed_checkpoint_no_longer_holds_others_up(
        self, make_store: MakeStore, main_checkout: Checkout, clock: Clock
    ) -> None:
        store = make_store(main_checkout)
        run = store.record("a-complete", {}, start="r").run  # 1
        clock.instant += 3600 * SECOND
        store.record("a-complete", {}, run=run)  # 2, from the future
        clock.instant -= 3600 * SECOND
        store.record("a-complete", {}, run=run)  # 3
        store.record("a-complete", {})  # 4
        assert listed(store) == [3, 2, 4, 1]
        store.remove([nth(2)])
        assert listed(store) == [4, 3, 1]
        delete_index(store)
        assert listed(make_store(main_checkout)) == [4, 3, 1]


class TestInvalidRefs:
    @pytest.fixture
    def invalid(self, store: Store, checkout: Checkout) -> list[Problem]:
        """Add a valid checkpoint and each kind of invalid ref; return the problems."""
        store.record("a-complete", {})
        document = store.raw(nth(1)).decode()
        tree = checkout.git("rev-parse", "HEAD^{tree}")
        head = checkout.git("rev-parse", "HEAD")
        problems = []

        def add(name: str, oid: str, sentence: str) -> None:
            checkout.git("update-ref", f"refs/checkpoints/{name}", oid)
            problems.append(
                Problem(f"refs/checkpoints/{name}", f"refs/checkpoints/{name}: {sentence}")
            )

        def write(text: str | bytes) -> str:
            return checkout.git("hash-object", "-w", "--stdin", data=text)

        add(nth(2), head, "points to a commit, not to a blob")
        add(nth(3), tree, "points to a tree, not to a blob")
        add(
            nth(4),
            write("garbage"),
            "not TOML: Expected '=' after a key in a key/value pair (at end of document)",
        )
        add(nth(5), write(b"\xff\xfe"), "not UTF-8 (byte 0)")
        add(
            nth(6),
            write("version = 2\n"),
            "version: written by a newer gitckpt (document version 2)",
        )
        add(nth(7), write(document), f"id: {nth(1)} is not the ref's name")
        add(
            nth(8),
            write(document.replace(nth(1), nth(8)).replace('trigger = "manual"\n', "")),
            "trigger: missing",
        )
        add(nth(9), write(""), "version: missing")
        gone = write("soon gone")
        add(nth(10), gone, f"the object {gone} is missing")
        common = Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        (common / "objects" / gone[:2] / gone[2:]).unlink()
        return sorted(problems, key=lambda problem: problem.ref)

    def test_are_problems_and_stop_nothing(
        self, store: Store, ids: Ids, invalid: list[Problem]
    ) -> None:
        for _ in range(2):
            assert (listed(store), store.problems()) == ([1], invalid)
        ids.count = 20
        store.record("b-complete", {})
        assert (listed(store), store.problems()) == ([21, 1], invalid)
        assert [
            store.find("latest"),
            store.find("HEAD"),
            store.find(nth(1)),
            store.find(nth(4)),
        ] == [nth(21), nth(21), nth(1), nth(4)]

    def test_a_name_that_is_not_utf_8(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {})
        oid = main_checkout.git("rev-parse", f"refs/checkpoints/{nth(1)}")
        main_checkout.git(
            "update-ref", "--stdin", data=b"create refs/checkpoints/caf\xe9 %s\n" % oid.encode()
        )
        main_checkout.git(
            "update-ref", "--stdin", data=f"create refs/checkpoints/a\x85b\u2028c {oid}\n"
        )
        assert (listed(plain), plain.problems()) == ([1], [])  # they belong to another tool

    def test_an_object_that_comes_back_is_seen(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {"n": 1})
        oid = main_checkout.git("rev-parse", f"refs/checkpoints/{nth(1)}")
        file = main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]
        aside = file.rename(main_checkout.path / "aside")
        assert (listed(plain), [problem.sentence for problem in plain.problems()]) == (
            [],
            [f"refs/checkpoints/{nth(1)}: the object {oid} is missing"],
        )
        aside.rename(file)
        assert (listed(plain), plain.problems()) == ([1], [])

    def test_a_damaged_state_is_not_looked_at(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {"key": 1})
        document = (
            plain.raw(nth(1))
            .decode()
            .replace(nth(1), nth(9))
            .replace("key = 1", "n = = \0 garbage")
        )
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=document)
        main_checkout.git("update-ref", f"refs/checkpoints/{nth(9)}", oid)
        assert (listed(plain), plain.problems()) == ([9, 1], [])


def delete_index(store: Store) -> None:
    close_index(store)
    for path in Path(private_dir(store)).glob("index.sqlite*"):
        path.unlink()
