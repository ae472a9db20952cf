"""The start of a phase is recorded before its work, and counts as an attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gitckpt
from gitckpt import LeaseLost, PhaseBlocked, Run, StateError, Store
from tests.conftest import Checkout
from tests.durable.conftest import (
    Killed,
    checkpoints,
    die,
    go_on,
    labels,
    refuse_refs,
    require_one_line,
    take_over,
)

pytestmark = pytest.mark.long

_POISON = """
import os, signal, sys
from gitckpt import Run, Store
with Store.open(sys.argv[1]) as store:
    run = Run.resume(store, sys.argv[2])
    run.phase("ready " + sys.argv[3], lambda: None)
    run.phase("poison", lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def killed_at_once(checkout: Checkout, run: str, number: int) -> int:
    """Drive a run whose work kills its process at once; return the exit code."""
    argv = [sys.executable, "-c", _POISON, str(checkout.path), run, str(number)]
    return subprocess.run(
        argv, check=False, env=os.environ | {"PYTHONPATH": str(Path(gitckpt.__file__).parents[1])}
    ).returncode


def test_a_start_is_recorded_before_its_work_begins(run: Run, plain: Store) -> None:
    seen: list[str] = []
    run.phase("quick", lambda: seen.extend(labels(plain, run.id)[-1:]))
    run.phase("again", lambda: seen.append(run.newest.label))
    assert seen == ["quick-started", "again-started"]
    require_one_line(run.store, run.id)


def test_each_has_the_files_and_the_state_of_its_moment(run: Run) -> None:
    run.state = {"deep": {"list": [1]}}

    def work() -> None:
        Path(run.path, "new.txt").write_text("new\n")
        run.state["deep"]["list"].append(2)

    run.phase("quick", work)
    started, complete = require_one_line(run.store, run.id)[-2:]
    assert (started.state, complete.state) == ({"deep": {"list": [1]}}, {"deep": {"list": [1, 2]}})
    assert (started.tree, complete.tree is not None) == (None, True)


def test_milestones_and_phases_within_a_phase_come_after_its_start(run: Run) -> None:
    def work() -> None:
        run.milestone(message="half")
        run.phase("inner", lambda: None)

    run.phase("outer", work)
    names = ["outer-started", "outer-progress", "inner-started", "inner-complete", "outer-complete"]
    assert [each.label for each in require_one_line(run.store, run.id)[-5:]] == names


def test_work_that_kills_its_process_is_counted_by_its_starts(
    store: Store, checkout: Checkout
) -> None:
    """Without the count, such work would be tried for ever."""
    with Run.start(store, "a run") as run:
        run.pause()
    for number in range(3):
        assert killed_at_once(checkout, run.id, number) == -signal.SIGKILL
    with go_on(store, run.id) as again:
        made = [each for each in checkpoints(store, run.id) if each.label == "poison-started"]
        assert [each.attempt.number for each in made if each.attempt] == [1, 2, 3]
        again.pause()
    require_one_line(store, run.id)


def test_it_is_blocked_after_as_many_as_any_other(run: Run, store: Store) -> None:
    def dies() -> None:
        raise Killed

    die(run, "poison", dies)
    for _ in range(3):
        resumed = go_on(store, run.id)
        assert labels(store, run.id)[-1] == "poison-started"
        die(resumed, "poison", dies)
    with go_on(store, run.id) as resumed, pytest.raises(PhaseBlocked):
        resumed.phase("poison", dies)
    found = require_one_line(store, run.id)
    assert [
        each.attempt.number for each in found if each.attempt and each.label == "poison-started"
    ] == [1, 2, 3, 4]


def test_a_start_that_was_removed_stays_removed(run: Run, store: Store) -> None:
    def dies() -> None:
        raise Killed

    die(run, "quick", dies)
    store.remove([checkpoints(store, run.id)[-1].id])
    with go_on(store, run.id) as again:
        assert labels(store, run.id)[-1] == "first-complete"
        again.phase("quick", lambda: None)
        again.pause()
    assert [each.label for each in require_one_line(store, run.id)[-3:]] == [
        "first-complete",
        "quick-started",
        "quick-complete",
    ]


def test_a_full_disk_keeps_start_and_end_waiting(
    run: Run, checkout: Checkout, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    refuse_refs(checkout, flag)
    flag.touch()
    run.phase("quick", lambda: None)
    assert labels(run.store, run.id)[-1] == "first-complete"
    assert len(run.unwritten) == 1
    flag.unlink()
    run.phase("next", lambda: None)
    names = ["quick-started", "quick-complete", "next-started", "next-complete"]
    assert [each.label for each in require_one_line(run.store, run.id)[-4:]] == names
    assert run.unwritten == []


def test_a_driver_that_lost_its_lease_records_no_end(run: Run, plain: Store) -> None:
    with pytest.raises(LeaseLost):
        run.phase("quick", lambda: take_over(plain, run.id))
    assert labels(plain, run.id)[-1] == "quick-started"


def test_a_state_that_cannot_be_copied_is_refused_before_the_work_begins(run: Run) -> None:
    done: list[int] = []
    run.state["lock"] = threading.Lock()
    with pytest.raises(StateError):
        run.phase("quick", lambda: done.append(1))
    assert done == []
    del run.state["lock"]
    run.phase("quick", lambda: None)
    assert [each.label for each in require_one_line(run.store, run.id)[-2:]] == [
        "quick-started",
        "quick-complete",
    ]


@pytest.mark.parametrize("name", ["first", "quick"])
def test_a_phase_may_have_another_or_itself_done_again(run: Run, name: str) -> None:
    file = Path(run.path, "new.txt")
    file.write_text("old\n")
    run.phase("make", lambda: None)

    def work() -> bool:
        file.write_text("new\n")
        run.restart(name)
        return file.exists()

    assert run.phase("quick", work) == (name == "quick")
    require_one_line(run.store, run.id)
