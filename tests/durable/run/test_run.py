"""A run that a program drives executes each phase once despite interruptions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    Cancelled,
    Changed,
    CkptError,
    DeadlineReached,
    LeaseHeld,
    LeaseLost,
    PhaseBlocked,
    PhaseDeferred,
    PhaseOptions,
    Query,
    Retries,
    Run,
    Store,
)
from tests import planted
from tests.conftest import Checkout, Clock
from tests.durable.command.commanding import comes
from tests.durable.conftest import (
    RUN,
    Counted,
    Killed,
    Sleeper,
    attempt_of,
    crash,
    die,
    go_on,
    labels,
    refuse_refs,
)
from tests.planted import plant
from tests.stores import SECOND, change_lease, head_of, instant_of, private_dir, timestamp

TWICE = PhaseOptions(retries=Retries(attempts=2, delay=10_000_000, backoff=3.0, jitter=0.0))


def test_phases_are_done_in_a_worktree_of_their_own_and_recorded(
    store: Store, checkout: Checkout
) -> None:
    before = checkout.fingerprint()
    research, plan = Counted(result={"notes": [1, None, 2.5, "é"]}), Counted(result=None)
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        assert run.id == RUN
        assert run.path == str(checkout.main / ".ckpt/worktrees" / RUN)
        assert run.phase("research", research, inputs={"question": "why?"}) == {
            "notes": [1, None, 2.5, "é"]
        }
        Path(run.path, "plan.md").write_text("do it\n")
        run.state["step"] = 2
        assert run.phase("plan", plan) is None
    assert research.calls == [{"question": "why?"}]
    assert labels(store, RUN) == [
        *(
            "run-started",
            "research-started",
            "research-complete",
            "plan-started",
            "plan-complete",
            "run-complete",
        ),
    ]
    newest = head_of(store, RUN)
    assert newest.state == {"step": 2}
    assert newest.pipeline is not None
    assert list(newest.pipeline.completed) == ["research", "plan"]
    assert checkout.git("show", f"refs/ckpt/trees/{newest.id}:files/plan.md") == "do it"
    assert {entry.trigger for entry in store.list(Query(run=RUN))} == {"phase"}
    assert [checkout.fingerprint()[key] for key in ("head", "index", "config")] == [
        before[key] for key in ("head", "index", "config")
    ]
    assert checkout.git("status", "--porcelain") == ""


def test_a_phase_that_is_complete_is_not_done_again(store: Store) -> None:
    first, second = Counted(result=[1, 2]), Counted(result="other")
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("research", first)
        assert run.phase("research", second) == [1, 2]
        run.pause()
    with go_on(store, RUN) as run:
        assert run.phase("research", second) == [1, 2]
    assert (len(first.calls), len(second.calls)) == (1, 0)
    assert labels(store, RUN)[-1] == "run-complete"


def test_a_phase_with_other_inputs_is_refused_by_name_unless_that_is_accepted(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.phase("research", Counted(result=1), inputs={"question": "why?", "depth": 1})
        with pytest.raises(Changed) as caught:
            run.phase("research", Counted(), inputs={"question": "how?", "deep": 1})
        run.pause()
    changes = (
        "phase 'research': input 'question' has changed; phase 'research': "
        "input 'depth' is gone; phase 'research': input 'deep' is new"
    )
    assert caught.value.message == f"run {RUN} has changed since its start: {changes}"
    assert caught.value.exit_code == 2
    with go_on(plain, RUN, accept_changes=True) as run:
        assert run.phase("research", Counted(), inputs={"question": "how?"}) == 1


def test_what_fails_is_recorded_with_its_files_and_errors_and_raised(
    store: Store, checkout: Checkout
) -> None:
    def work() -> None:
        Path(run.path, "half.txt").write_text("half\n")
        run.state["half"] = True
        raise ValueError("no\nway")

    run = Run.start(store, "Add login!", adapter="plumbing")
    run.state["whole"] = {"of": "it"}
    with pytest.raises(ValueError, match="no"), run:
        run.phase("research", work)
    newest = head_of(store, RUN)
    assert (newest.label, newest.errors, newest.state) == (
        "research-failed",
        ("ValueError: no\nway",),
        {"whole": {"of": "it"}},
    )
    assert checkout.git("show", f"refs/ckpt/trees/{newest.id}:files/half.txt") == "half"
    assert newest.attempt is not None
    assert (newest.attempt.number, newest.attempt.ended, newest.attempt.retry_at) == (
        1,
        "failed",
        None,
    )
    assert store.history(RUN).summary.status == "failed"
    with go_on(store, RUN) as run:
        assert Path(run.path, "half.txt").read_text() == "half\n"
        run.phase("research", Counted())
    assert attempt_of(store, RUN, "research-complete").number == 2


def test_ctrl_c_is_recorded_as_interrupted(plain: Store) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Run.start(plain, "Add login!", adapter="plumbing") as run,
    ):
        run.phase("research", Counted(KeyboardInterrupt()))
    assert (head_of(plain, RUN).label, head_of(plain, RUN).errors) == (
        "research-failed",
        ("interrupted",),
    )
    assert plain.history(RUN).summary.lease is None


def test_retries_wait_longer_each_time_and_number_their_attempts(
    plain: Store, sleeper: Sleeper
) -> None:
    Run.start(plain, "Add login!", adapter="plumbing").close()
    work = Counted(ValueError("one"), ValueError("two"), result=3)
    with go_on(plain, RUN, sleeper) as run:
        assert run.phase("research", work, conduct=TWICE) == 3
    assert labels(plain, RUN)[1:-1] == [
        f"research-{status}" for status in (*("started", "failed") * 2, "started", "complete")
    ]
    failed = [
        plain.read(entry.id)
        for entry in reversed(plain.list(Query(run=RUN, label="research-failed")))
    ]
    waits = [instant_of(str(each.attempt.retry_at)) - each.time for each in failed if each.attempt]
    assert waits == [9 * SECOND, 29 * SECOND], (
        "10 s, then 30 s, less the look at the clock for the timestamp"
    )
    assert sleeper.slept > 10
    done = attempt_of(plain, RUN, "research-complete")
    assert (done.number, done.failures) == (3, 2)


class TestClockSetBack:
    """A clock that was eight days ahead is set right."""

    BACK = 8 * 86_400 * SECOND

    def test_no_wait_becomes_longer_by_it(
        self, plain: Store, sleeper: Sleeper, clock: Clock
    ) -> None:
        Run.start(plain, "Add login!", adapter="plumbing").close()

        def sleep(seconds: float) -> None:
            clock.instant -= self.BACK if not sleeper.slept else 0
            sleeper(seconds)

        with go_on(plain, RUN, sleep) as run:
            run.wait(10)
        assert sleeper.slept == 10

    def test_a_retry_that_was_noted_before_is_not_waited_for_until_then(
        self, plain: Store, sleeper: Sleeper, clock: Clock
    ) -> None:
        Run.start(plain, "Add login!", adapter="plumbing").close()
        work = Counted(ValueError("one"), result=3)
        conduct = replace(TWICE, retries=replace(TWICE.retries, max_delay=10 * SECOND, jitter=0.5))

        def killed(_: float) -> None:
            raise Killed

        run = go_on(plain, RUN, killed)
        with pytest.raises(Killed):
            run.phase("research", work, conduct=conduct)
        crash(run)
        clock.instant -= self.BACK
        with go_on(plain, RUN, sleeper) as run:
            assert run.phase("research", work, conduct=conduct) == 3
        assert sleeper.slept <= 15


@pytest.mark.long
def test_when_retries_are_used_up_the_error_is_raised(plain: Store, sleeper: Sleeper) -> None:
    Run.start(plain, "Add login!", adapter="plumbing").close()
    work = Counted(ValueError("one"), ValueError("two"), ValueError("three"))
    with pytest.raises(ValueError, match="three"), go_on(plain, RUN, sleeper) as run:
        run.phase("research", work, conduct=TWICE)
    assert len(work.calls) == 3
    assert head_of(plain, RUN).errors == ("ValueError: three",)
    again = Counted(ValueError("four"), result=5)
    with go_on(plain, RUN, sleeper) as run:
        assert run.phase("research", again, conduct=TWICE) == 5, "who resumes has all retries again"
    assert attempt_of(plain, RUN, "research-complete").number == 5


def test_other_exceptions_than_those_named_are_not_tried_again(
    plain: Store, sleeper: Sleeper
) -> None:
    Run.start(plain, "Add login!", adapter="plumbing").close()
    work = Counted(ValueError("one"), TypeError("two"))
    conduct = PhaseOptions(retries=Retries(attempts=5, delay=0), retry_on=(ValueError,))
    with pytest.raises(TypeError), go_on(plain, RUN, sleeper) as run:
        run.phase("research", work, conduct=conduct)
    assert len(work.calls) == 2


def test_a_crash_continues_the_numbers_and_uses_no_retry(plain: Store, sleeper: Sleeper) -> None:
    run = Run.start(plain, "Add login!", adapter="plumbing")
    with pytest.raises(ValueError, match="one"):
        run.phase("research", Counted(ValueError("one")), conduct=PhaseOptions(retries=Retries()))
    run.close()
    die(go_on(plain, RUN, sleeper), "research", Counted(Killed()), TWICE)
    assert plain.history(RUN).summary.status == "crashed"
    work = Counted(ValueError("three"), ValueError("four"), result=5)
    with go_on(plain, RUN, sleeper) as run:
        assert run.phase("research", work, conduct=TWICE) == 5
    done = attempt_of(plain, RUN, "research-complete")
    assert (done.number, done.failures, done.recoveries) == (5, 2, 1)


@pytest.mark.long
def test_after_too_many_crashes_the_run_is_blocked(plain: Store, sleeper: Sleeper) -> None:
    Run.start(plain, "Add login!", adapter="plumbing").close()
    conduct = PhaseOptions(max_recoveries=2)
    for _ in range(3):
        die(go_on(plain, RUN, sleeper), "research", Counted(Killed()), conduct)
    work = Counted()
    with pytest.raises(PhaseBlocked) as caught, go_on(plain, RUN, sleeper) as run:
        run.phase("research", work, conduct=conduct)
    assert caught.value.exit_code == 4
    assert (
        caught.value.message
        == "phase 'research' crashed 3 times for unknown reasons; the limit is 2"
    )
    assert work.calls == []
    assert (head_of(plain, RUN).label, plain.history(RUN).summary.status) == (
        "research-blocked",
        "blocked",
    )


@pytest.mark.long
def test_further_attempts_find_the_files_as_they_are_or_as_they_were_at_first(
    store: Store, checkout: Checkout, sleeper: Sleeper
) -> None:
    def work() -> str:
        here = Path(run.path)
        found = (here / "log").read_text()
        (here / "log").write_text(found + "x")
        Checkout(here, checkout.main).commit("by the agent", **{f"new-{len(found)}": "x"})
        if len(work_calls) < 2:
            work_calls.append(1)
            raise ValueError("again")
        return found

    for name, expected in (("keep", "startxx"), ("reset", "start")):
        work_calls: list[int] = []
        first = Run.start(store, name, adapter="plumbing")
        Path(first.path, "log").write_text("start")
        first.close()
        with go_on(store, first.id, sleeper) as run:
            conduct = PhaseOptions(retries=Retries(attempts=2, delay=0), on_resume=name)
            assert run.phase("work", work, conduct=conduct) == expected
            commits = Checkout(Path(run.path), checkout.main).git("rev-list", "--count", "HEAD")
        assert commits == {"keep": "4", "reset": "2"}[name]
    assert [entry.id for entry in store.list() if entry.trigger == "safety"] == [], (
        "the failed attempts hold what was there"
    )


def test_what_an_attempt_nobody_recorded_left_is_held_before_it_goes(
    store: Store, checkout: Checkout, sleeper: Sleeper
) -> None:
    def work() -> None:
        Path(run.path, "half").write_text("precious")
        raise Killed

    Run.start(store, "Add login!", adapter="plumbing").close()
    run = go_on(store, RUN, sleeper)
    conduct = PhaseOptions(on_resume="reset", autosave=0)
    die(run, "work", work, conduct)
    with go_on(store, RUN, sleeper) as run:
        assert run.phase("work", lambda: Path(run.path, "half").exists(), conduct=conduct) is False
    held = [entry.id for entry in store.list() if entry.trigger == "safety"]
    assert [checkout.git("show", f"refs/ckpt/trees/{each}:files/half") for each in held] == [
        "precious"
    ]


def test_files_are_saved_while_a_phase_runs_and_at_each_commit(
    store: Store, checkout: Checkout
) -> None:
    def until(label_count: int) -> None:
        for _ in range(2000):
            if labels(store, RUN).count("work-progress") >= label_count:
                return
            os.sched_yield()
            wait.wait(0.01)
        raise AssertionError(labels(store, RUN))

    wait = threading.Event()

    def work() -> None:
        Path(run.path, "a.txt").write_text("one\n")
        until(1)
        Checkout(Path(run.path), checkout.main).commit("by the agent", b="two")
        until(2)

    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("work", work, conduct=PhaseOptions(autosave=50_000))
        run.pause()
    saved = [
        entry for entry in reversed(store.list(Query(run=RUN))) if entry.label == "work-progress"
    ]
    assert checkout.git("show", f"refs/ckpt/trees/{saved[0].id}:files/a.txt") == "one"
    assert saved[-1].git_sha != saved[0].git_sha
    assert [entry.trigger for entry in saved] == ["phase"] * len(saved)


def test_where_the_time_does_not_suffice_for_files_in_between_it_is_said_once(
    store: Store, checkout: Checkout
) -> None:
    checkout.git("config", "ckpt.snapshotTimeout", "0s")
    wait = threading.Event()

    def work() -> None:
        Path(run.path, "a.txt").write_text("one\n")
        for _ in range(2000):
            if labels(store, RUN).count("work-progress") >= 2:
                return
            wait.wait(0.01)
        raise AssertionError(labels(store, RUN))

    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("work", work, conduct=PhaseOptions(autosave=50_000))
        run.pause()
    log = (Path(private_dir(store)) / "log").read_text()
    assert log.count(f"no autosaves of run {RUN}: capturing the files took more than 0 s") == 1
    assert log.count("to allow more time: git config ckpt.") == 1


def test_a_phase_without_autosave_saves_nothing_in_between(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.phase(
            "work",
            lambda: Path(run.path, "a.txt").write_text("one\n"),
            conduct=PhaseOptions(autosave=0),
        )
    assert labels(plain, RUN) == ["run-started", "work-started", "work-complete", "run-complete"]


def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_work(
    store: Store, checkout: Checkout, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    refuse_refs(checkout, flag)
    work = Counted(result=1)
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("one", Counted(result=1))
        flag.touch()
        assert run.phase("two", work) == 1
        assert run.phase("two", work) == 1
        assert len(run.unwritten) == 1
        assert run.unwritten[0].startswith("cannot record two-started: ")
        assert store.history(RUN).unwritten == run.unwritten
        flag.unlink()
        run.state["later"] = True
        run.phase("three", Counted())
        assert run.unwritten == []
    assert len(work.calls) == 1
    assert labels(store, RUN) == [
        *(
            "run-started",
            "one-started",
            "one-complete",
            "two-started",
            "two-complete",
            "three-started",
            "three-complete",
            "run-complete",
        ),
    ]
    two = store.read(store.list(Query(run=RUN, label="two-complete"))[0].id)
    assert two.state == {}, "the state is that of its time"
    assert "cannot record two-started" in (Path(private_dir(store)) / "log").read_text()
    assert store.history(RUN).unwritten == []


def test_a_checkpoint_that_was_written_when_an_error_came_is_not_written_again(
    store: Store, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = planted.original(planted.UPDATE_REFS)
    due: list[int] = []

    def fail_afterwards(
        self: object, updates: list[Any], meanwhile: Callable[[], None] | None = None
    ) -> None:
        update(self, updates, meanwhile)
        if due and any(each.ref.startswith("refs/checkpoints/") for each in updates):
            due.clear()
            raise CkptError("git ended unexpectedly")

    plant(monkeypatch, planted.UPDATE_REFS, fail_afterwards)
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("one", lambda: due.append(1))
        assert not due
        assert len(run.unwritten) == 1
        assert run.unwritten[0] == "cannot record one-complete: git ended unexpectedly"
        run.phase("two", Counted())
        assert run.unwritten == []
    assert labels(store, RUN) == [
        "run-started",
        "one-started",
        "one-complete",
        "two-started",
        "two-complete",
        "run-complete",
    ]
    chain = store.list(Query(run=RUN))
    assert [entry.sequence for entry in chain] == [6, 5, 4, 3, 2, 1]
    completed = head_of(store, RUN).pipeline
    assert completed is not None
    assert completed.completed["one"] == chain[3].id


def test_a_run_whose_end_could_not_be_written_says_so(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    refuse_refs(main_checkout, flag)
    run = Run.start(plain, "Add login!", adapter="plumbing")
    flag.touch()
    with (
        pytest.raises(
            CkptError,
            match=f"cannot write all checkpoints of run {RUN}: cannot record work-started",
        ),
        run,
    ):
        run.phase("work", Counted())
    flag.unlink()
    work = Counted(result=2)
    lease = plain.history(RUN).summary.lease
    assert lease is not None
    assert lease.released is None, (
        "the lease could not be given back either: it ends with its process"
    )
    assert work.calls == []


def test_checkpoints_say_how_far_the_pipeline_has_come(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        run._writer.pipeline = replace(run._writer.pipeline, phases=("one", "two"))
        run.phase("two", Counted())
    progress = plain.read(plain.list(Query(run=RUN, label="two-complete"))[0].id).progress
    assert progress is not None
    assert (progress.current_phase, progress.total_phases) == (2, 2)


def test_a_run_that_is_driven_cannot_be_driven_by_another(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        with pytest.raises(LeaseHeld):
            Run.resume(plain, RUN, adapter="plumbing")
        assert plain.history(RUN).summary.status == "running"
        run.pause()
    assert plain.history(RUN).summary.status == "open"


def test_a_driver_whose_lease_was_taken_over_stops_and_writes_nothing(plain: Store) -> None:
    run = Run.start(plain, "Add login!", adapter="plumbing")

    def work() -> None:
        change_lease(plain, RUN, token=2, holder="the next")

    with pytest.raises(LeaseLost, match="taken over by the next"), run:
        run.phase("work", work)
    assert labels(plain, RUN) == ["run-started", "work-started"]


def test_work_that_takes_long_can_look_whether_it_shall_stop(plain: Store, clock: Clock) -> None:
    def work() -> None:
        run.check()
        assert plain.cancel(RUN, wait=0)
        run.check()

    with (
        pytest.raises(Cancelled) as caught,
        Run.start(plain, "Add login!", adapter="plumbing") as run,
    ):
        run.phase("work", work)
    assert (caught.value.exit_code, caught.value.message) == (130, f"run {RUN} was cancelled")
    assert head_of(plain, RUN).errors == (f"run {RUN} was cancelled",)


def test_a_deadline_belongs_to_the_run(plain: Store, clock: Clock) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        deadline = timestamp(clock.instant + 600 * SECOND)
        run._writer.pipeline = replace(run._writer.pipeline, deadline=deadline)
        run.phase("one", Counted())
        run.pause()
    clock.instant += 700 * SECOND
    run = go_on(plain, RUN)
    assert run.phase("one", Counted()) is None, "what is complete can still be asked for"
    with pytest.raises(DeadlineReached), run:
        run.phase("two", Counted())


def test_what_asks_to_be_tried_later_leaves_the_run_paused(plain: Store) -> None:
    with pytest.raises(PhaseDeferred), Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.phase("work", Counted(PhaseDeferred("the service is down")))
    assert (head_of(plain, RUN).label, plain.history(RUN).summary.status) == (
        "work-partial",
        "paused",
    )


def test_an_autosave_leaves_the_largest_files_out(
    plain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.AUTOMATIC_LIMIT, 1000)

    def work() -> None:
        Path(run.path, "large").write_text("x" * 1001)
        Path(run.path, "small").write_text("x" * 999)
        assert comes(lambda: "work-progress" in labels(plain, run.id))

    with Run.start(plain, "build") as run:
        run.phase("work", work, conduct=PhaseOptions(autosave=100_000))
    done, progress = (
        plain.read(entry.id).worktree
        for entry in plain.list()
        if entry.label in ("work-complete", "work-progress")
    )
    assert progress is not None
    assert [entry.path for entry in progress.omitted] == ["large"]
    assert done is not None
    assert done.omitted == ()
