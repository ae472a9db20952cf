"""A wrong call of a run fails at once and changes nothing."""

# mypy: disable-error-code="arg-type,call-arg,call-overload,dict-item,assignment,comparison-overlap"

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    Cancelled,
    LeaseHeld,
    NotFoundError,
    PhaseOptions,
    Query,
    Retries,
    Run,
    Steps,
    Store,
    UsageError,
)
from tests.conftest import Checkout


def test_a_run_has_a_name(plain: Store, main_checkout: Checkout) -> None:
    before = main_checkout.fingerprint()
    with pytest.raises(UsageError, match=r"^name: must be a string, not None$"):
        Run.start(plain, None)
    assert main_checkout.fingerprint() == before


def test_an_unknown_argument_is_refused(plain: Store) -> None:
    with Run.start(plain, "add-login") as run:
        run.pause()
    with pytest.raises(UsageError) as refused:
        Run.resume(plain, run.id, accept_change=True)
    assert refused.value.message == "there is no argument 'accept_change'"
    assert refused.value.hint == (
        "valid arguments: accept_changes, adapter, again, directory, holder, lease, "
        "take_over, trust"
    )
    assert plain.runs()[0].lease is None


CONDUCT: dict[str, tuple[Callable[[], Any], str]] = {
    "delay": (
        lambda: Retries(delay=timedelta(seconds=5)),
        "delay: must be a whole number, not datetime.timedelta(seconds=5)",
    ),
    "backoff": (
        lambda: Retries(backoff=float("nan")),
        "backoff: must be a number from 0 on, not nan",
    ),
    "jitter": (lambda: Retries(jitter=1.5), "jitter: must be a number from 0 to 1, not 1.5"),
    "retries": (lambda: PhaseOptions(retries=2), "retries: must be a Retries, not 2"),
    "autosave": (lambda: PhaseOptions(autosave=None), "autosave: must be a whole number, not None"),
    "on_resume": (
        lambda: PhaseOptions(on_resume="rest"),
        "on_resume: must be 'keep' or 'reset', not 'rest'",
    ),
}


@pytest.mark.parametrize(("make", "said"), CONDUCT.values(), ids=CONDUCT)
def test_a_conduct_is_looked_at_when_it_is_made(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.message == said


def test_a_state_is_a_dict(plain: Store) -> None:
    with Run.start(plain, "add-login") as run:
        run.state["step"] = 2
        with pytest.raises(
            UsageError, match=r"^state: must be a dict of names to values, not None$"
        ):
            run.state = None
    assert plain.newest(run.id).state == {"step": 2}


@pytest.mark.long
def test_a_run_goes_back_to_a_checkpoint_of_its_own_alone(plain: Store) -> None:
    foreign = plain.record("research", {"step": 9})
    with Run.start(plain, "other") as other:
        other.pause()
    with Run.start(plain, "add-login") as run:
        run.phase("one", lambda: Path(run.path, "one").touch())
        (entry,) = plain.list(Query(run=run.id, label="one-complete"))
        run.phase("two", lambda: Path(run.path, "two").touch())
        before = run.newest
        for wrong, whose in ((foreign, "no run"), (other.newest.id, f"run {other.id}")):
            with pytest.raises(UsageError, match=f" belongs to {whose}, not to run {run.id}$"):
                run.rewind(wrong)
        with pytest.raises(UsageError, match=r"^id: must be a string, not CheckpointInfo"):
            run.rewind(entry)
        assert (run.newest, plain.list(Query(run=run.id))[0].id) == (before, before.id)
        run.rewind(entry.id)
        assert list(run.completed) == ["one"]
        assert [file.name for file in sorted(Path(run.path).iterdir())] == [".git", "README", "one"]
        run.pause()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("look", ["check", "milestone", "wait"])
def test_another_store_asks_a_run_to_stop(plain: Store, main_checkout: Checkout, look: str) -> None:
    def work() -> None:
        with Store.open(main_checkout.path) as other:
            assert other.cancel(run.id)
        getattr(run, look)(*([3600] if look == "wait" else []))

    with pytest.raises(Cancelled), Run.start(plain, "add-login") as run:
        run.phase("work", work)
    assert [(info.status, info.label) for info in plain.runs()] == [("failed", "work-failed")]
    assert not plain.cancel(run.id)  # no process drives the run any more
    with pytest.raises(UsageError, match=r"^'add-login' is not a run id$"):
        plain.cancel("add-login")


SLEEPER = """
import sys, time
from gitckpt import Run, Store
with Store.open(sys.argv[1], adapter="plumbing") as store, \
Run.start(store, "nap", adapter="plumbing") as run:
    run.phase("sleep", lambda: (print(run.id, flush=True), time.sleep(60)))
"""


@pytest.mark.long
def test_a_program_that_never_looks_is_stopped_by_the_same_call(main_checkout: Checkout) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER, main_checkout.path], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        run = driver.stdout.readline().rstrip("\n")
        with Store.open(main_checkout.path, adapter="plumbing") as store:
            assert store.cancel(run)
            assert driver.wait(10) == -signal.SIGTERM
            assert [(info.status, info.label) for info in store.runs()] == [
                ("crashed", "sleep-started")
            ]
            with Run.resume(store, run, adapter="plumbing") as again:
                assert again.phase("sleep", lambda: "slept") == "slept"


def test_a_run_is_begun_for_others_to_drive(plain: Store) -> None:
    first, is_new = Run.begin(plain, "nightly", key="monday", state={"n": 1})
    assert (is_new, first.label, first.state) == (True, "run-started", {"n": 1})
    assert [(info.status, info.lease, info.path) for info in plain.runs()] == [("open", None, None)]
    assert Run.begin(plain, "another name", key="monday", state={"n": 2}) == (first, False)
    assert Path(plain.resume(first).path, "README").read_text() == "hello\n"
    with Run.start(plain, "nightly", key="monday") as run:
        assert run.id == first.run
        with pytest.raises(LeaseHeld):
            Run.begin(plain, "nightly", key="monday")
    with pytest.raises(UsageError, match=r"is complete$"):
        Run.begin(plain, "nightly", key="monday")
    with pytest.raises(UsageError, match=r"^state: must be a map of names to values, not 3$"):
        Run.begin(plain, "x", state=3)
    with pytest.raises(NotFoundError, match="no commit is named 'nowhere'"):
        Run.begin(plain, "x", base="nowhere")


def test_a_fork_is_begun_for_others_to_drive(plain: Store) -> None:
    with Run.start(plain, "one") as run:
        run.state["n"] = 1
        run.phase("write", lambda: None)
    fork = Run.begin_fork(plain, run.newest.id, "two")
    assert (str(fork.run)[16:], fork.forked_from, fork.state) == ("two", run.newest.id, {"n": 1})
    assert {info.run: info.status for info in plain.runs()} == {
        run.id: "complete",
        fork.run: "open",
    }
    with Run.resume(plain, str(fork.run)) as other:
        assert other.state == {"n": 1}


def test_what_a_run_begins_with_may_be_a_rev(plain: Store, main_checkout: Checkout) -> None:
    head = main_checkout.head()
    main_checkout.git("tag", "-a", "v1", "-m", "one")
    main_checkout.git("commit", "-q", "--allow-empty", "-m", "two")
    made = [
        plain.record("run-started", start="b", base=base).git_sha
        for base in ("HEAD", "HEAD~1", "v1", head, "")
    ]
    assert made == [main_checkout.head(), head, head, head, ""]
    with pytest.raises(NotFoundError, match="no commit is named 'nowhere'"):
        plain.record("run-started", start="b", base="nowhere")


def test_head_of_an_unborn_branch_is_no_commit(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.git("checkout", "-q", "--orphan", "empty")
    assert plain.record("run-started", {}, start="b", base="HEAD").git_sha == ""


def test_a_run_that_is_driven_is_taken_over_where_that_is_stalled(plain: Store) -> None:
    first, _ = Run.begin(plain, "one")
    plain.take_over(str(first.run))  # no process drives the run
    assert plain.runs()[0].lease is None
    with Run.resume(plain, str(first.run)) as run:
        with pytest.raises(LeaseHeld):
            plain.take_over(run.id)
        run.pause()
    with pytest.raises(NotFoundError):
        plain.take_over("20260101-000000-none")
    for wrong, said in (
        ({"run": "one"}, "'one' is not a run id"),
        ({"run": run.id, "holder": 3}, "holder: must be a string, not 3"),
    ):
        with pytest.raises(UsageError) as refused:
            plain.take_over(**wrong)
        assert refused.value.message == said


def test_the_run_of_a_track_is_found(plain: Store) -> None:
    assert Steps.run_about(plain, "search") is None
    made = plain.save("plan", {"track_id": "search"}, start="search")
    assert Steps.run_about(plain, "search") == made.run
    for wrong, said in (
        ("a\nb", "'a\\nb' is not a track name"),
        (3, "track: must be a string, not 3"),
    ):
        with pytest.raises(UsageError) as refused:
            Steps.run_about(plain, wrong)
        assert refused.value.message == said
