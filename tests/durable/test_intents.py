"""The start of a phase that ends at once: written down before its work begins, and recorded with its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gitckpt.durable.run import writer
from gitckpt.durable.run.background import Later
from gitckpt.durable.run.errors import PhaseBlocked
from gitckpt.durable.run.run import Run
from gitckpt.store import chains
from gitckpt.store.leases.lease import LeaseLost
from gitckpt.store.records import layout
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.durable.conftest import Killed, checkpoints, die, git, go_on, labels, refuse_refs, require_one_line, take_over

pytestmark = pytest.mark.long


def transactions(log: Path) -> list[list[str]]:
    """Returns the refs of checkpoints that each transaction made, since a hook began to note them."""
    lots = [lot.split() for lot in log.read_text().split("\n\n")]
    return [made for made in ([ref for ref in lot if ref.startswith("refs/checkpoints/")] for lot in lots) if made]


def note_transactions(checkout: Checkout, log: Path) -> None:
    hook = checkout.main / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\n[ "$1" = committed ] || exit 0\nsed "s/.* //" >>"{log}"\necho >>"{log}"\n')
    hook.chmod(0o755)


@pytest.mark.usefixtures("unhurried")
class TestTogether:
    def test_start_and_end_are_one_transaction(self, run: Run, checkout: Checkout, tmp_path: Path) -> None:
        store, log = run.store, tmp_path / "log"
        note_transactions(checkout, log)
        assert run.phase("quick", lambda: 7) == 7
        made = checkpoints(store, run.id)[-2:]
        assert [each.label for each in made] == ["quick-started", "quick-complete"]
        assert transactions(log) == [[layout.CHECKPOINTS + each.id for each in made]]
        assert made[0].timestamp < made[1].timestamp
        require_one_line(store, run.id)

    def test_a_failure_likewise(self, run: Run, checkout: Checkout, tmp_path: Path) -> None:
        store, log = run.store, tmp_path / "log"
        note_transactions(checkout, log)
        with pytest.raises(ZeroDivisionError):
            run.phase("quick", lambda: 1 // 0)
        made = require_one_line(store, run.id)[-2:]
        assert [each.label for each in made] == ["quick-started", "quick-failed"]
        assert transactions(log) == [[layout.CHECKPOINTS + each.id for each in made]]

    def test_each_has_the_files_and_the_state_of_its_moment(self, run: Run) -> None:
        run.state = {"deep": {"list": [1]}}

        def work() -> None:
            Path(run.path, "new.txt").write_text("new\n")
            run.state["deep"]["list"].append(2)

        run.phase("quick", work)
        started, complete = require_one_line(run.store, run.id)[-2:]
        assert (started.state, complete.state) == ({"deep": {"list": [1]}}, {"deep": {"list": [1, 2]}})
        assert (started.tree, complete.tree is not None) == (None, True)

    def test_each_has_the_commit_of_its_moment(self, run: Run) -> None:
        """A commit without a hook of ours; one with it would have had the start recorded first."""
        before = run.newest.git_sha

        def work() -> None:
            subprocess.run(
                ["git", "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=run.path, check=True
            )

        run.phase("quick", work)
        started, complete = require_one_line(run.store, run.id)[-2:]
        assert (started.git_sha, complete.git_sha) == (before, git(run, "rev-parse", "HEAD"))

    def test_whoever_looks_within_the_run_sees_the_start(self, run: Run) -> None:
        seen: list[str] = []
        run.phase("quick", lambda: seen.append(run.newest.label))
        run.phase("again", lambda: seen.append(labels(run.store, run.id)[-1]))
        assert seen == ["quick-started", "again-started"]
        require_one_line(run.store, run.id)

    def test_a_milestone_and_a_phase_within_a_phase_come_after_it(self, run: Run) -> None:
        def work() -> None:
            run.milestone(message="half")
            run.phase("inner", lambda: None)

        run.phase("outer", work)
        names = ["outer-started", "outer-progress", "inner-started", "inner-complete", "outer-complete"]
        assert [each.label for each in require_one_line(run.store, run.id)[-5:]] == names

    def test_what_others_record_meanwhile_stays(self, run: Run, plain: Store) -> None:
        def work() -> None:
            inside(plain).record("someone-complete", {"by": "others"}, run=run.id)

        run.phase("quick", work)
        found = require_one_line(run.store, run.id)
        assert [each.label for each in found[-3:]] == ["someone-complete", "quick-started", "quick-complete"]

    def test_a_driver_that_lost_its_lease_records_neither(self, run: Run, plain: Store) -> None:
        def work() -> None:
            take_over(plain, run.id)

        with pytest.raises(LeaseLost):
            run.phase("quick", work)
        assert labels(plain, run.id)[-1] == "first-complete"

    def test_a_full_disk_keeps_both_waiting(self, run: Run, checkout: Checkout, tmp_path: Path) -> None:
        flag = tmp_path / "full"
        refuse_refs(checkout, flag)
        run.phase("quick", flag.touch)
        assert labels(run._store, run.id)[-1] == "first-complete"
        assert len(run.unwritten) == 1
        flag.unlink()
        run.phase("next", lambda: None)
        names = ["quick-started", "quick-complete", "next-started", "next-complete"]
        assert [each.label for each in require_one_line(run.store, run.id)[-4:]] == names
        assert run.unwritten == []


class TestLater:
    def test_the_start_of_a_phase_that_goes_on_is_recorded_meanwhile(self, run: Run, plain: Store) -> None:
        """Seen by another store, which asks nobody of this run."""
        found: list[str] = []

        def work() -> None:
            deadline = time.monotonic() + 60
            while not (found and found[-1] == "slow-started") and time.monotonic() < deadline:
                found[:] = labels(plain, run.id)[-1:]

        run.phase("slow", work)
        assert found == ["slow-started"]
        assert [each.label for each in require_one_line(run.store, run.id)[-2:]] == ["slow-started", "slow-complete"]

    def test_it_is_done_once_and_after_a_while(self) -> None:
        done: list[float] = []
        event = threading.Event()

        def action() -> None:
            done.append(time.monotonic())
            event.set()

        later = Later(0.02, action)
        began = time.monotonic()
        later.ask()
        assert event.wait(60)
        later.close()
        assert len(done) == 1
        assert done[0] - began >= 0.02

    def test_what_is_taken_back_is_not_done(self) -> None:
        done: list[int] = []
        later = Later(0.01, lambda: done.append(1))
        for _ in range(100):
            later.ask()
            later.take_back()
        time.sleep(0.03)
        later.close()
        assert done == []

    def test_what_is_asked_for_again_and_again_is_done_after_the_last(self) -> None:
        done: list[int] = []
        event = threading.Event()

        def action() -> None:
            done.append(1)
            event.set()

        later = Later(0.005, action)
        for _ in range(20):
            event.clear()
            later.ask()
            assert event.wait(60)
        later.close()
        assert len(done) == 20

    def test_to_close_it_waits_for_what_is_under_way(self) -> None:
        done: list[int] = []
        begun = threading.Event()

        def action() -> None:
            begun.set()
            time.sleep(0.05)
            done.append(1)

        later = Later(0.0, action)
        later.ask()
        assert begun.wait(60)
        later.close()
        assert done == [1]


_POISON = """
import os, signal, sys
from gitckpt import Run, Store
with Store.open(sys.argv[1]) as store:
    run = Run.resume(store, sys.argv[2])
    run.phase("ready " + sys.argv[3], lambda: None)
    run.phase("poison", lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def killed_at_once(checkout: Checkout, run: str, number: int) -> int:
    """Drives a run in a process that its work kills as soon as it begins; returns how that ended."""
    argv = [sys.executable, "-c", _POISON, str(checkout.path), run, str(number)]
    return subprocess.run(argv, check=False, env=os.environ | {"PYTHONPATH": str(Path(writer.__file__).parents[3])}).returncode


class TestKilled:
    def test_a_start_that_was_only_written_down_counts(self, store: Store, checkout: Checkout) -> None:
        """Work that kills its process at once shall not be tried for ever."""
        with Run.start(store, "a run") as run:
            run.pause()
        for number in range(3):
            assert killed_at_once(checkout, run.id, number) == -9
        with go_on(store, run.id) as again:
            made = [each for each in checkpoints(store, run.id) if each.label == "poison-started"]
            assert [each.attempt.number for each in made if each.attempt] == [1, 2, 3]
            again.pause()
        require_one_line(store, run.id)

    def test_it_is_blocked_after_as_many_as_any_other(self, store: Store, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "SOON", 3600.0)
        with Run.start(store, "a run") as run:
            run.phase("first", lambda: None)
            run.pause()

        def dies() -> None:
            raise Killed

        resumed = go_on(store, run.id)
        resumed.phase("second", lambda: None)
        die(resumed, "poison", dies)
        assert labels(store, run.id)[-1] == "second-complete"
        for count in range(3):
            resumed = go_on(store, run.id)
            assert labels(store, run.id)[-1] == "poison-started", count
            die(resumed, "poison", dies)
        with go_on(store, run.id) as resumed, pytest.raises(PhaseBlocked):
            resumed.phase("poison", dies)
        found = require_one_line(store, run.id)
        assert [each.attempt.number for each in found if each.attempt and each.label == "poison-started"] == [1, 2, 3, 4]

    @pytest.mark.usefixtures("unhurried")
    def test_what_was_written_down_is_what_is_recorded(self, run: Run, store: Store) -> None:
        run.state = {"n": [1, 2.5, {"x": None}]}
        oid = self._killed(run)
        with go_on(store, run.id) as again:
            assert inside(store).refs.read(layout.RUNS + run.id) == oid
            assert again.state == {"n": [1, 2.5, {"x": None}]}
            assert again.phase("quick", lambda: 3) == 3
        names = ["quick-started", "quick-started", "quick-complete", "run-complete"]
        found = require_one_line(store, run.id)
        assert [each.label for each in found[-4:]] == names
        attempts = [each.attempt for each in found[-4:-1] if each.attempt]
        assert [(each.number, each.recoveries) for each in attempts] == [(1, 0), (2, 1), (2, 1)]

    @pytest.mark.usefixtures("unhurried")
    @pytest.mark.parametrize("adapter", ["plumbing", "libgit2"])
    @pytest.mark.parametrize("damage", ["gone", "empty", "zeros", "cut"])
    def test_what_a_power_cut_took_of_it_announces_nothing(
        self, run: Run, store: Store, checkout: Checkout, damage: str, adapter: str
    ) -> None:
        oid = self._killed(run)
        path = checkout.main / ".git/objects" / oid[:2] / oid[2:]
        whole = path.read_bytes()
        path.unlink()
        if damage != "gone":
            path.write_bytes({"empty": b"", "zeros": bytes(len(whole)), "cut": whole[: len(whole) // 2]}[damage])
        with Store.open(checkout.path, adapter=adapter) as other, Run.resume(other, run.id, adapter=adapter) as again:
            assert labels(store, run.id)[-1] == "first-complete"
            again.phase("quick", lambda: None)
            again.phase("more", lambda: None)
        assert [each.label for each in checkpoints(store, run.id)[-3:]] == ["more-started", "more-complete", "run-complete"]

    @pytest.mark.usefixtures("unhurried")
    def test_what_was_written_down_by_others_announces_nothing(self, run: Run, store: Store, checkout: Checkout) -> None:
        """A document is no announcement unless its oid is in the chain, which is never fetched."""
        oid = self._killed(run)
        path = Path(inside(store).repository.private_dir, chains.DIRECTORY, run.id)
        path.write_text(path.read_text().replace(f"\n{oid}\n", "\n"))
        with go_on(store, run.id) as again:
            assert labels(store, run.id)[-1] == "first-complete"
            again.pause()

    @pytest.mark.usefixtures("unhurried")
    def test_what_the_head_has_left_behind_announces_nothing(self, run: Run, store: Store, plain: Store) -> None:
        self._killed(run)
        inside(plain).record("someone-complete", {}, run=run.id)
        with go_on(store, run.id) as again:
            again.phase("quick", lambda: None)
            again.pause()
        assert [each.label for each in require_one_line(store, run.id)[-3:]] == ["someone-complete", "quick-started", "quick-complete"]

    def _killed(self, run: Run) -> str:
        """Kills the driver as the work of a phase begins; returns the oid of what it had written down."""
        noted: list[str] = []

        def dies() -> None:
            noted.extend((run._active._writer._intent is not None and inside(run._store)._recorder._noted) or ())
            raise Killed

        die(run, "quick", dies)
        assert labels(run._store, run.id)[-1] == "first-complete"
        (oid,) = noted
        return oid


def test_the_heads_of_runs_that_began_to_be_rewound_are_no_starts(store: Store) -> None:
    """`rewind-started` is a label of the run itself."""
    from gitckpt.store.leases import intent

    made: Any = store.record("rewind-started", {}, start="a run", trigger="phase")
    assert not intent._announces(made)
