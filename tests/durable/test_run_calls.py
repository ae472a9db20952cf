"""What a program gets wrong with a run is told at once, and nothing is done."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Cancelled, Conduct, Query, Retries, Run, Store, UsageError
from tests.conftest import Checkout


def test_a_run_has_a_name(plain: Store, main_checkout: Checkout) -> None:
    before = main_checkout.fingerprint()
    with pytest.raises(UsageError, match=r"^name: must be a string, not None$"):
        Run.start(plain, None)  # type: ignore[arg-type]
    assert main_checkout.fingerprint() == before


def test_an_unknown_argument_is_refused(plain: Store) -> None:
    with Run.start(plain, "add-login") as run:
        run.pause()
    with pytest.raises(UsageError) as refused:
        Run.resume(plain, run.id, accept_change=True)  # type: ignore[call-arg]
    assert refused.value.message == "there is no argument 'accept_change'"
    assert refused.value.hint == "how a run may be gone on with: accept_changes, adapter, again, directory, holder, lease, take_over, trust"
    assert plain.runs()[0].lease is None


CONDUCT: dict[str, tuple[Callable[[], Any], str]] = {
    "delay": (lambda: Retries(delay=timedelta(seconds=5)), "delay: must be a whole number, not datetime.timedelta(seconds=5)"),  # type: ignore[arg-type]
    "retries": (lambda: Conduct(retries=2), "retries: must be a Retries, not 2"),  # type: ignore[arg-type]
    "autosave": (lambda: Conduct(autosave=None), "autosave: must be a whole number, not None"),  # type: ignore[arg-type]
    "on_resume": (lambda: Conduct(on_resume="rest"), "on_resume: must be 'keep' or 'reset', not 'rest'"),
}


@pytest.mark.parametrize(("make", "said"), CONDUCT.values(), ids=CONDUCT)
def test_a_conduct_is_looked_at_when_it_is_made(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.message == said


def test_a_run_goes_back_to_a_checkpoint_of_its_own_alone(plain: Store) -> None:
    foreign = plain.record("research", {"step": 9})
    with Run.start(plain, "other") as other:
        other.pause()
    with Run.start(plain, "add-login") as run:
        run.phase("one", lambda: Path(run.path, "one").touch())
        (entry,) = plain.list(Query(run=run.id, phase="one-complete"))
        run.phase("two", lambda: Path(run.path, "two").touch())
        before = run.newest
        for wrong, whose in ((foreign, "of no run"), (other.newest.id, f"of run {other.id}")):
            with pytest.raises(UsageError, match=f" is {whose}, not of {run.id}$"):
                run.rewind(wrong)
        with pytest.raises(UsageError, match=r"^id: must be a string, not Entry"):
            run.rewind(entry)  # type: ignore[arg-type]
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
    assert not plain.cancel(run.id)  # nobody drives it any more
    with pytest.raises(UsageError, match=r"^'add-login' is not a run id$"):
        plain.cancel("add-login")


SLEEPER = """
import sys, time
from gitckpt import Run, Store
with Store.open(sys.argv[1], adapter="plumbing") as store, Run.start(store, "nap", adapter="plumbing") as run:
    run.phase("sleep", lambda: (print(run.id, flush=True), time.sleep(60)))
"""


@pytest.mark.long
def test_a_program_that_never_looks_is_stopped_by_the_same_call(main_checkout: Checkout) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER, main_checkout.path], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        run = driver.stdout.readline().rstrip("\n")
        with Store.open(main_checkout.path, adapter="plumbing") as store:
            assert store.cancel(run)
            assert driver.wait(10) == -signal.SIGTERM
            assert [(info.status, info.label) for info in store.runs()] == [("crashed", "sleep-started")]
            with Run.resume(store, run, adapter="plumbing") as again:
                assert again.phase("sleep", lambda: "slept") == "slept"
