"""A key belongs to one run, however many processes start it."""

from __future__ import annotations

import time

import pytest

from gitckpt import Changed, LeaseHeld, Run, RunComplete, Store, UsageError
from tests import forked
from tests.conftest import Checkout
from tests.durable.conftest import RUN, Counted, Killed, die, labels
from tests.stores import open_store

KEY = "nightly-2026-11-22"


def start(store: Store, name: str = "Add login!") -> Run:
    return Run.start(store, name, key=KEY, state={"by": name}, adapter="plumbing")


def test_starting_it_again_goes_on_with_it(plain: Store) -> None:
    work, later = Counted(result=1), Counted(result=2)
    with start(plain) as run:
        run.phase("one", work)
        run.pause()
    with start(plain, "Another name") as run:
        assert (run.id, run.state) == (RUN, {"by": "Add login!"})
        assert (run.phase("one", work), run.phase("two", later)) == (1, 2)
    assert (len(work.calls), len(later.calls)) == (1, 1)
    assert labels(plain, RUN) == [
        "run-started",
        "one-started",
        "one-complete",
        "two-started",
        "two-complete",
        "run-complete",
    ]


def test_after_a_kill_it_goes_on_where_it_was(plain: Store) -> None:
    die(start(plain), "one", Counted(Killed()))
    with start(plain) as run:
        run.phase("one", Counted())
    assert labels(plain, RUN) == [
        "run-started",
        "one-started",
        "one-started",
        "one-complete",
        "run-complete",
    ]


def test_whoever_comes_while_it_is_driven_is_told_by_whom(plain: Store) -> None:
    with start(plain) as run:
        with pytest.raises(LeaseHeld, match=f"^run {RUN} is driven by a program on "):
            start(plain)
        run.pause()


def test_other_inputs_of_a_phase_are_noticed(plain: Store) -> None:
    with start(plain) as run:
        run.phase("one", lambda n: n, inputs={"n": 1})
        run.pause()
    with (
        pytest.raises(
            Changed,
            match=f"^run {RUN} has changed since its start: phase 'one': input 'n' has changed$",
        ),
        start(plain) as run,
    ):
        run.phase("one", lambda n: n, inputs={"n": 2})


def test_one_that_is_complete_is_not_done_again(plain: Store) -> None:
    with start(plain) as run:
        run.phase("one", lambda: {"n": [1]})
        run.phase("two", lambda: None)
        run.skip("three", 3)
    for again in (
        lambda: start(plain),
        lambda: Run.begin(plain, "Add login!", key=KEY),
        lambda: Run.resume(plain, RUN),
    ):
        with pytest.raises(RunComplete) as complete:
            again()
        assert (complete.value.message, complete.value.exit_code) == (f"run {RUN} is complete", 2)
        assert (complete.value.run, complete.value.results) == (
            RUN,
            {"one": {"n": [1]}, "two": None, "three": 3},
        )


def test_once_it_is_gone_the_key_starts_another(plain: Store) -> None:
    with start(plain):
        pass
    plain.remove([entry.id for entry in plain.list()])
    with start(plain, "second") as run:
        assert run.id.endswith("-second")
        assert run.state == {"by": "second"}


def append(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("done\n")


def drive(path: str) -> str:
    """Start the run, or retry until its lease is free.

    Its phase appends a line each time that it executes.
    """
    with open_store(path) as store:
        while True:
            try:
                with Run.start(store, "race", key=KEY, adapter="plumbing") as run:
                    run.phase("one", append, inputs={"path": f"{path}/done"})
                    return run.id
            except LeaseHeld:
                time.sleep(0.05)
            except UsageError:
                return str(store.run_of(KEY))  # it is complete


@pytest.mark.long
@pytest.mark.parametrize("number", [2, 8])
def test_processes_that_start_it_at_the_same_time(
    plain: Store, main_checkout: Checkout, number: int
) -> None:
    runs = forked.together(*[(drive, (str(main_checkout.path),))] * number)
    assert set(runs) == {summary.run for summary in plain.runs()} == {plain.run_of(KEY)}
    assert (main_checkout.path / "done").read_text() == "done\n"
    assert labels(plain, runs[0]) == ["run-started", "one-started", "one-complete", "run-complete"]
