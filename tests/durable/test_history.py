"""The history of runs: resume points, ages and cleanup.

It includes the numbered assertions of rlm-act about its records, and their flaws.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    Checkpoint,
    CkptError,
    InvalidCheckpoint,
    LockHeld,
    NotFoundError,
    Pipeline,
    Run,
    Store,
)
from gitckpt.model import codec, toml
from gitckpt.store.retention.maintenance import RetireResult, cleanup_runs
from gitckpt.store.store import checkpoints_of_store
from tests import planted
from tests.conftest import Checkout, Clock, Ids
from tests.planted import plant
from tests.stores import DAY, SECOND, head_of, hold_run, instant_of, open_store
from tests.test_facades import loaded

HOUR = 3600 * SECOND


@pytest.fixture
def store(main_checkout: Checkout, clock: Clock, ids: Ids) -> Iterator[Store]:
    with open_store(main_checkout, clock=clock, new_id=ids) as store:
        yield store


def run_of(store: Store, *labels: str, name: str = "r", **details: Any) -> str:
    """Return a run with checkpoints of these labels."""
    run = str(store.record("run-started", {}, start=name, trigger="phase", **details).run)
    for label in labels:
        store.record(label, {}, run=run, trigger="phase")
    return run


def spoil(checkout: Checkout, store: Store, checkpoint_id: str) -> None:
    """Point a checkpoint's ref to a document with an unreadable state."""
    text = store.raw(checkpoint_id).decode()
    oid = checkout.git("hash-object", "-w", "--stdin", data=text + "x = \n")
    checkout.git("update-ref", f"refs/checkpoints/{checkpoint_id}", oid)


def store_document(checkout: Checkout, name: str, text: str) -> str:
    """Store a text as the checkpoint of a name, and return its ref."""
    checkout.git(
        "update-ref",
        f"refs/checkpoints/{name}",
        checkout.git("hash-object", "-w", "--stdin", data=text),
    )
    return f"refs/checkpoints/{name}"


@contextlib.contextmanager
def locked(checkout: Checkout, ref: str) -> Iterator[None]:
    """Hold the lock of a ref from a running git process."""
    words = f"start\nverify {ref} {checkout.git('rev-parse', ref)}\nprepare\n"
    command = ["git", "-C", str(checkout.path), "update-ref", "--stdin"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(words)
        holder.stdin.flush()
        assert [holder.stdout.readline() for _ in range(2)] == ["start: ok\n", "prepare: ok\n"]
        yield


def driven(store: Store, run: str) -> Callable[[], None]:
    """Drive a run from this process; return the function that ends it."""
    return hold_run(store, run, "a test").release_lease


class TestLatestResumable:
    def test_of_the_run_with_the_newest_checkpoint_that_is_not_complete(self, store: Store) -> None:
        old = run_of(store, "a-complete", name="old")
        new = run_of(store, "a-failed", name="new")
        run_of(store, "a-complete", "run-complete", name="done")
        store.record("manual-complete", {})
        assert found(store.latest_resumable()) == (new, "a-failed")
        store.record("b-complete", {}, run=old, trigger="phase")
        assert found(store.latest_resumable()) == (old, "b-complete")

    def test_none_of_runs_that_are_complete_or_driven(self, store: Store) -> None:
        run_of(store, "run-complete")
        run = run_of(store, "a-failed", name="driven")
        end = driven(store, run)
        assert store.latest_resumable() is None
        end()
        assert found(store.latest_resumable()) == (run, "a-failed")

    @pytest.mark.long
    def test_what_a_script_recorded_outside_of_runs(self, store: Store) -> None:
        run = run_of(store, "a-failed")
        store.save("research-complete", {"n": 1})
        store.save("plan-failed", {"n": 2}, errors=["no spec.md"])
        for number in range(130):
            store.record("commit-complete", {"n": number}, trigger="post-commit")
        store.record("manual-complete", {"n": 3})
        checkpoint = store.latest_resumable()
        assert checkpoint is not None
        assert (checkpoint.run, checkpoint.label, checkpoint.state, checkpoint.errors) == (
            None,
            "plan-failed",
            {"n": 2},
            ("no spec.md",),
        )
        store.record("b-failed", {}, run=run, trigger="phase")
        assert found(store.latest_resumable()) == (run, "b-failed")

    def test_a_script_says_that_nothing_is_left_to_do(self, store: Store) -> None:
        store.record("plan-failed", {})
        store.record("run-complete", {})
        store.record("manual-complete", {})
        assert store.latest_resumable() is None
        store.record("plan-started", {})
        assert found(store.latest_resumable()) == (None, "plan-started")

    def test_its_state_comes_with_it(self, store: Store) -> None:
        run = run_of(store)
        store.record("a-failed", {"n": 1}, run=run, trigger="phase")
        checkpoint = store.latest_resumable()
        assert checkpoint is not None
        assert checkpoint.state == {"n": 1}


def cleaned(store: Store, days: int = 0) -> tuple[int, int]:
    """Clean up by age through the façade of rlm-act.

    Returns how many checkpoints were deleted, and how many failed.
    """
    manager: Any = object.__new__(loaded("rlm_act").CheckpointManager)
    manager.store = store
    deleted: tuple[int, int] = manager.cleanup_by_age(days)
    return deleted


def found(checkpoint: Checkpoint | None) -> tuple[str | None, str] | None:
    return None if checkpoint is None else (checkpoint.run, checkpoint.label)


class TestCleanup:
    def test_what_is_driven_is_skipped(self, store: Store) -> None:
        run = run_of(store, "a-complete")
        store.record("manual-complete", {})
        end = driven(store, run)
        assert cleaned(store) == (1, 0)
        end()
        assert cleaned(store) == (2, 0)

    @pytest.mark.parametrize("in_run", [False, True])
    def test_a_checkpoint_that_cannot_be_deleted_is_counted_and_the_others_go(
        self, store: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, in_run: bool
    ) -> None:
        plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
        for name in ("one", "two"):
            run_of(store, "a-complete", "b-failed", name=name)
        ids = [store.record("manual-complete", {}).id for _ in range(3)]
        if in_run:  # cleanup deletes a run as a whole, or not at all
            ids = [
                entry.id
                for entry in store.list()
                if entry.run is not None and entry.run.endswith("-one")
            ]
        with locked(main_checkout, f"refs/checkpoints/{ids[1]}"):
            assert cleaned(store) == ((6, 3) if in_run else (8, 1))
            assert {entry.id for entry in store.list()} == (set(ids) if in_run else {ids[1]})
        assert cleaned(store) == ((3, 0) if in_run else (1, 0))

    @pytest.mark.long
    def test_worktrees_go_with_their_runs_unless_they_hold_what_no_checkpoint_does(
        self, store: Store
    ) -> None:
        with Run.start(store, "work") as run:
            run.pause()
        with Run.start(store, "more") as other:
            other.pause()
        Path(other.path, "mine").write_text("x")
        assert cleaned(store) == (1, 0)
        assert not os.path.isdir(run.path)
        assert Path(other.path, "mine").read_text() == "x"
        assert [each.run for each in store.runs()] == [other.id]


class TestCleanupOfRuns:
    @pytest.mark.long
    def test_complete_ones_of_a_pipeline_go_with_their_worktrees(
        self, store: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        def ended(name: str, pipeline: str, *, complete: bool = True) -> Run:
            first = store.record(
                "run-started", {}, start=name, trigger="phase", pipeline=Pipeline(name=pipeline)
            )
            with Run.resume(store, str(first.run), adapter="plumbing") as run:
                run.phase("build", lambda: Path(run.path, "made").write_text(name))
                if not complete:
                    run.pause()
            return run

        old, other, open_ = (
            ended("old", "forge"),
            ended("other", "ci"),
            ended("open", "forge", complete=False),
        )
        held = ended("held", "forge")
        Path(held.path, "more").write_text("x")
        clock.instant += 168 * HOUR
        young = ended("young", "forge")
        why = {held.id: f"the worktree {held.path} has contents that no checkpoint has: more"}
        assert cleanup_runs(
            checkpoints_of_store(store), pipeline="forge", older_than=168 * HOUR
        ) == RetireResult((old.id,), why)
        assert [os.path.isdir(run.path) for run in (old, other, open_, held, young)] == [
            False,
            True,
            True,
            True,
            True,
        ]
        assert cleanup_runs(checkpoints_of_store(store), older_than=168 * HOUR) == RetireResult(
            (other.id,), why
        )
        first = [entry.id for entry in store.list() if entry.run == young.id][-1]
        with locked(main_checkout, f"refs/checkpoints/{first}"), pytest.raises(LockHeld):
            cleanup_runs(checkpoints_of_store(store), older_than=0)
        assert cleanup_runs(checkpoints_of_store(store), older_than=0).removed_runs == (young.id,)
        left = {
            run.id: sum(entry.run == run.id for entry in store.list())
            for run in (old, other, open_, held, young)
        }
        assert left == {old.id: 1, other.id: 1, open_.id: 3, held.id: 4, young.id: 1}, (
            "no branch holds what they made"
        )


# What rlm-act asserts of records, detection, loading, ages and cleanup


def test_rlm_01_nothing_need_be_there_before(make_checkout: Callable[..., Checkout]) -> None:
    with Store.open(make_checkout("new").path) as store:
        assert store.list()[:] == []
        store.record("research-complete", {})
        assert [entry.label for entry in store.list()] == ["research-complete"]


def test_rlm_02_the_name_is_a_uuid_version_4_and_equals_the_id(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        made = store.record("research-complete", {})
    (ref,) = main_checkout.refs("refs/checkpoints")
    assert (ref, str(uuid.UUID(made.id)), uuid.UUID(made.id).version) == (
        f"refs/checkpoints/{made.id}",
        made.id,
        4,
    )


def test_rlm_03_every_key_is_there(store: Store) -> None:
    document = toml.loads(store.raw(store.record("research-complete", {}).id).decode())
    assert {"id", "phase", "timestamp", "state", "errors", "git_sha"} <= document.keys()


def test_rlm_04_the_timestamp_is_rfc3339_and_of_the_call(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        before = time.time_ns() // 1000
        made = store.record("research-complete", {})
        after = time.time_ns() // 1000
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made.timestamp)
    assert before <= made.time <= after


def test_rlm_05_no_errors_are_an_empty_array(store: Store) -> None:
    assert toml.loads(store.raw(store.record("research-complete", {}).id).decode())["errors"] == []


def test_rlm_06_what_is_returned_is_stored(store: Store) -> None:
    made = store.record("research-complete", {"n": 1})
    assert store.read(made.id) == made


def test_rlm_08_without_checkpoints_there_is_none_to_resume(
    main_checkout: Checkout, store: Store
) -> None:
    assert store.latest_resumable() is None
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}


def test_rlm_09_the_newest_is_found_whatever_the_order_of_timestamps(
    store: Store, clock: Clock
) -> None:
    first = run_of(store, "a-complete", name="first")
    clock.instant += 2 * DAY
    second = run_of(store, "a-complete", name="second")
    clock.instant -= DAY
    run_of(store, "a-complete", name="third")
    assert found(store.latest_resumable()) == (second, "a-complete")
    clock.instant += 5 * DAY
    store.record("b-failed", {}, run=first, trigger="phase")
    assert found(store.latest_resumable()) == (first, "b-failed")


def test_rlm_10_what_cannot_be_read_is_passed_over(store: Store, main_checkout: Checkout) -> None:
    run = run_of(store, "a-complete", "b-failed")
    newest = store.list()[0].id
    spoil(main_checkout, store, newest)
    assert found(store.latest_resumable()) == (run, "a-complete")
    for number, text in enumerate(["", "{", 'id = ""\n', store.raw(store.list()[0].id).decode()]):
        store_document(main_checkout, f"{number:08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa", text)
    assert found(store.latest_resumable()) == (run, "a-complete")
    assert len(store.problems()) == 4


def test_rlm_11_what_is_found_says_where_it_is(store: Store, main_checkout: Checkout) -> None:
    run_of(store, "a-failed")
    checkpoint = store.latest_resumable()
    assert checkpoint is not None
    assert main_checkout.git(
        "cat-file", "blob", f"refs/checkpoints/{checkpoint.id}"
    ).encode() + b"\n" == store.raw(checkpoint.id)


@pytest.mark.parametrize("missing", ["id", "phase", "timestamp", "errors", "git_sha", "trigger"])
def test_rlm_12_a_field_that_is_missing_is_an_error(
    store: Store, main_checkout: Checkout, missing: str
) -> None:
    made = store.record("research-complete", {})
    text = re.sub(rf"(?m)^{missing} = .*\n", "", store.raw(made.id).decode())
    store_document(main_checkout, made.id, text)
    with pytest.raises(InvalidCheckpoint, match=f"{missing}: missing"):
        store.read(made.id)


@pytest.mark.parametrize("text", ["", "{", "null", '{"id": 1}', "id = "])
def test_rlm_12_what_is_no_document_is_an_error(
    store: Store, main_checkout: Checkout, text: str
) -> None:
    name = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
    store_document(main_checkout, name, text)
    with pytest.raises(InvalidCheckpoint):
        store.read(name)


def test_rlm_12_what_does_not_exist_is_an_error(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint 'aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa'"):
        store.read("aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa")


@pytest.mark.parametrize(
    ("hours", "days", "deleted"), [(47, 2, 0), (48, 2, 1), (72, 3, 1), (71, 3, 0)]
)
def test_rlm_13_what_is_just_old_enough_is_deleted(
    store: Store, clock: Clock, hours: int, days: int, deleted: int
) -> None:
    clock.step = 0
    store.record("research-complete", {})
    clock.instant += hours * HOUR
    assert cleaned(store, days) == (deleted, 0)


def test_rlm_14_cleanup_by_age(store: Store, clock: Clock) -> None:
    assert cleaned(store, 7) == (0, 0)
    store.record("manual-complete", {})
    clock.instant += 8 * DAY
    store.record("manual-complete", {"new": True})
    assert cleaned(store, 7) == (1, 0)
    assert [store.read(entry.id).state for entry in store.list()] == [{"new": True}]
    clock.instant += DAY
    assert cleaned(store, 2) == (0, 0)


@pytest.mark.parametrize("days", [0, -1, -400])
def test_rlm_14_no_days_or_less_are_all(store: Store, days: int) -> None:
    store.record("a-complete", {})
    store.record("a-complete", {})
    assert cleaned(store, days) == (2, 0)
    assert store.list()[:] == []


def test_rlm_14_what_has_no_valid_timestamp_is_never_deleted(
    store: Store, main_checkout: Checkout
) -> None:
    made = store.record("a-complete", {})
    text = (
        store.raw(made.id)
        .decode()
        .replace(f'timestamp = "{made.timestamp}"', 'timestamp = "2020-01-01 00:00:00"')
    )
    ref = store_document(main_checkout, made.id, text)
    assert cleaned(store) == (0, 1)
    assert ref in main_checkout.refs()


def require_only_young(checkout: Checkout, before: dict[str, object]) -> None:
    """Assert that cleanup left only derived notes and keep refs of the last hour."""
    for ref in ("refs/notes/checkpoints", f"refs/keep/ckpt/{checkout.git('rev-parse', 'HEAD')}"):
        checkout.git("update-ref", "-d", ref)
    assert checkout.fingerprint() == before


def test_rlm_15_cleanup_of_all_leaves_what_is_not_ours(
    store: Store, main_checkout: Checkout
) -> None:
    before = main_checkout.fingerprint()
    assert cleaned(store) == (0, 0)
    run_of(store, "a-complete")
    store.record("manual-complete", {})
    bad = store_document(main_checkout, "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "{")
    assert cleaned(store) == (3, 1)
    main_checkout.git("update-ref", "-d", bad)
    require_only_young(main_checkout, before)


def test_rlm_16_the_commit_is_an_oid_or_empty(make_checkout: Callable[..., Checkout]) -> None:
    checkout = make_checkout("new")
    with Store.open(checkout.path) as store:
        assert store.record("a-complete", {}).git_sha == ""
        commit = checkout.commit("first")
        assert store.record("a-complete", {}).git_sha == commit
    assert re.fullmatch("[0-9a-f]{40}", commit)


def test_rlm_17_nested_values_survive(store: Store) -> None:
    state = {
        "phase_results": {
            "research": {
                "artifacts": ["a.md", "b.md"],
                "duration_seconds": 1.5,
                "metadata": {},
                "error": None,
            }
        },
        "iterations": 3,
        "done": False,
        "mixed": [1, "two", None, True, [2.0, {}], {"deep": [[]]}],
    }
    assert store.read(store.record("a-complete", state).id).state == state
    assert store.read(store.record("a-complete", {}).id).state == {}


def test_rlm_18_errors_keep_their_order_and_are_seen(store: Store) -> None:
    run = run_of(store)
    errors = ["the second test failed: é", "first", "", "first"]
    store.record("a-failed", {}, run=run, trigger="phase", errors=errors)
    checkpoint = store.latest_resumable()
    assert checkpoint is not None
    assert checkpoint.errors == tuple(errors)


@pytest.mark.parametrize(
    "name",
    ["not-a-uuid", "AAAAAAAA-AAAA-4AAA-8AAA-AAAAAAAAAAAA", "aaaaaaaa-aaaa-1aaa-8aaa-aaaaaaaaaaaa"],
)
def test_rlm_19_an_id_that_is_no_uuid_version_4_is_refused(
    store: Store, main_checkout: Checkout, name: str
) -> None:
    made = store.record("a-complete", {})
    ref = store_document(main_checkout, name, store.raw(made.id).decode().replace(made.id, name))
    with pytest.raises(CkptError):
        codec.decode(main_checkout.git("cat-file", "blob", ref).encode(), ref)
    assert store.problems() == []  # other tools keep their refs there, too
    assert [entry.id for entry in store.list()] == [made.id]


# What rlm-act got wrong


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_b1_timestamps_are_utc_wherever_one_is(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with Store.open(main_checkout.path) as store:
            before = time.time_ns() // 1000
            made = store.record("a-complete", {})
            assert before <= instant_of(made.timestamp) <= time.time_ns() // 1000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_b2_the_sequence_orders_a_run_not_the_text_of_timestamps(
    store: Store, clock: Clock
) -> None:
    clock.step = 0
    run = run_of(store, "a-complete", "b-complete", "c-failed")
    assert found(store.latest_resumable()) == (run, "c-failed")
    clock.instant -= 10 * DAY
    store.record("d-failed", {}, run=run, trigger="phase")
    assert found(store.latest_resumable()) == (run, "d-failed")


def test_b3_checkpoints_of_different_runs_are_told_apart(store: Store) -> None:
    one = run_of(store, name="one")
    two = run_of(store, name="two")
    store.record("a-complete", {"of": "one"}, run=one, trigger="phase")
    store.record("a-complete", {"of": "two"}, run=two, trigger="phase")
    assert [head_of(store, run).state["of"] for run in (one, two)] == ["one", "two"]
    store.record("run-complete", {}, run=two, trigger="phase")
    checkpoint = store.latest_resumable()
    assert checkpoint is not None
    assert (checkpoint.run, checkpoint.state) == (one, {"of": "one"})


def test_b7_what_was_not_written_to_its_end_does_not_count_and_is_no_secret(
    store: Store, main_checkout: Checkout
) -> None:
    run = run_of(store, "a-complete", "b-failed")
    torn = store.raw(store.list()[0].id)[:-20]
    main_checkout.git(
        "hash-object", "-w", "--stdin", data=torn
    )  # a kill before the ref was written
    assert found(store.latest_resumable()) == (run, "b-failed")
    assert store.problems()[:] == []
    newest = store.list()[0].id
    ref = store_document(main_checkout, newest, store.raw(newest)[:40].decode())
    assert [problem.ref for problem in store.problems()] == [ref]
    assert cleaned(store)[1] == 1


@pytest.mark.long
def test_b10_checkpoints_share_what_did_not_change(store: Store, main_checkout: Checkout) -> None:
    main_checkout.write("large", os.urandom(200_000).hex())

    def size() -> int:
        said = dict(
            line.split(": ") for line in main_checkout.git("count-objects", "-v").splitlines()
        )
        return int(said["size"])

    run = str(store.save("a-started", {}, run=run_of(store), trigger="phase").run)
    before = size()
    for number in range(10):
        store.save("a-progress", {"n": number}, run=run, trigger="phase")
    assert size() - before < 300  # kilobytes; each copy would take 200


def test_b11_index_branches_and_worktree_are_left_alone(
    store: Store, main_checkout: Checkout
) -> None:
    main_checkout.write("staged", "x")
    main_checkout.git("add", "staged")
    main_checkout.write("staged", "changed")
    main_checkout.write("untracked", "x")
    before = main_checkout.fingerprint()
    run = run_of(store, "a-complete")
    store.save("b-complete", {"n": 1}, run=run, trigger="phase")
    store.latest_resumable()
    cleaned(store)
    require_only_young(main_checkout, before)
