"""What becomes of a start that is only written down: whatever its phase does, whatever others do, whoever goes on with the run."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.durable.run.background import Later
from gitckpt.durable.run.retry import Conduct
from gitckpt.durable.run.run import Run
from gitckpt.git.refs import Update
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import StateError, UsageError
from gitckpt.store import chains, log
from gitckpt.store.leases.lease import LeaseLost
from gitckpt.store.records import layout
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.durable.conftest import Killed, attempt_of, checkpoints, die, git, go_on, labels, refuse_refs, require_one_line, take_over

pytestmark = [pytest.mark.usefixtures("unhurried"), pytest.mark.long]


def noted(run: Run) -> Checkpoint:
    """Returns the start that is only written down, within its phase."""
    intent = run._active._writer._intent
    assert intent is not None
    return intent._drafted


def killed(run: Run) -> Checkpoint:
    """Kills the driver as the work of a phase begins; returns the start that it had written down."""
    found: list[Checkpoint] = []

    def dies() -> None:
        found.append(noted(run))
        raise Killed

    die(run, "quick", dies)
    return found[0]


def put_off_long_enough(run: Run) -> None:
    """Has the thread's work done, as 5 ms after the start."""
    run._active._writer._catch_up()


class TestLeft:
    def test_refs_that_a_cut_transaction_left_under_its_id_are_not_in_the_way(self, run: Run, store: Store) -> None:
        Path(run.path, "new.txt").write_text("new\n")
        run.phase("make", lambda: None)
        start, tree = killed(run), checkpoints(store, run.id)[-1].tree
        assert tree is not None
        inside(store).refs.update([Update(layout.TREES + start.id, tree, "")])
        with go_on(store, run.id) as again:
            assert labels(store, run.id)[-2:] == ["make-complete", "quick-started"]
            again.phase("quick", lambda: None)
            again.pause()
        assert attempt_of(store, run.id, "quick-complete").number == 2

    def test_what_cannot_be_recorded_is_logged_and_in_nobodys_way(self, run: Run, store: Store, checkout: Checkout) -> None:
        """A commit that git had not flushed is gone after a power cut."""
        before = git(run, "rev-parse", "HEAD")
        git(run, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--allow-empty", "-m", "x")
        commit = killed(run).git_sha
        assert commit != before
        git(run, "reset", "--quiet", "--hard", before)
        lost = checkout.main / ".git/objects" / commit[:2] / commit[2:]
        lost.rename(lost.with_suffix(".lost"))
        with go_on(store, run.id) as again:
            assert labels(store, run.id)[-1] == "first-complete"
            said = Path(inside(store).repository.private_dir, log.FILE).read_text()
            assert "quick-started was written down, and cannot be recorded" in said
            again.phase("quick", lambda: None)
            again.pause()
        assert labels(store, run.id)[-3:] == ["first-complete", "quick-started", "quick-complete"]
        lost.with_suffix(".lost").rename(lost)

    @pytest.mark.parametrize("others", [0, 1])
    def test_what_was_removed_since_stays_removed(self, run: Run, store: Store, others: int, flushed: list[str]) -> None:
        start = killed(run)
        for _ in range(others):
            with go_on(store, run.id) as again:
                again.skip("other")
                again.pause()
        with go_on(store, run.id) as again:
            assert start.id in [each.id for each in checkpoints(store, run.id)]
            again.pause()
        doomed = [each.id for each in checkpoints(store, run.id)[3:]]
        flushed.clear()
        store.remove(doomed)
        assert any(path.endswith(f"/{chains.DIRECTORY}/{run.id}") for path in flushed)  # after a power cut as well
        with go_on(store, run.id) as again:
            assert labels(store, run.id)[-1] == "first-complete"
            again.pause()
        resumed = go_on(store, run.id)
        resumed.phase("next", lambda: None)
        killed(resumed)
        with go_on(store, run.id) as again:
            assert labels(store, run.id)[-2:] == ["next-complete", "quick-started"]  # what is written down since, counts
            again.pause()
        require_one_line(store, run.id)


class TestWithin:
    @pytest.mark.parametrize("late", [False, True])
    def test_a_phase_that_is_to_be_redone_is_done_again(self, run: Run, *, late: bool) -> None:
        done: list[int] = []

        def work() -> None:
            run.redo("first")
            if late:
                put_off_long_enough(run)
            run.phase("first", lambda: done.append(1))

        run.phase("quick", work)
        assert done == [1]
        require_one_line(run.store, run.id)

    @pytest.mark.parametrize("late", [False, True])
    def test_files_that_a_restart_brought_back_are_those_of_what_follows(self, run: Run, *, late: bool) -> None:
        Path(run.path, "new.txt").write_text("new\n")
        run.phase("make", lambda: None)

        def work() -> None:
            run.restart("first")
            if late:
                put_off_long_enough(run)
            run.phase("first", lambda: None)

        run.phase("quick", work)
        found = require_one_line(run.store, run.id)
        trees = [(each.label, each.tree is not None) for each in found[-4:]]
        assert trees == [("quick-started", True), ("first-started", False), ("first-complete", False), ("quick-complete", False)]

    def test_the_phase_itself_can_be_restarted(self, run: Run) -> None:
        file = Path(run.path, "new.txt")
        file.write_text("old\n")
        run.phase("make", lambda: None)

        def work() -> str:
            file.write_text("new\n")
            run.restart("quick")
            return file.read_text()

        assert run.phase("quick", work) == "old\n"

    def test_that_it_is_to_be_redone_can_be_recorded(self, run: Run) -> None:
        run.phase("quick", lambda: run.redo("quick", record=True))
        names = ["quick-started", "rewind-complete", "quick-complete"]
        assert [each.label for each in require_one_line(run.store, run.id)[-3:]] == names

    @pytest.mark.parametrize("words", [("switch", "--quiet", "-c", "two"), ("checkout", "--quiet", "--detach")])
    def test_each_has_the_branch_of_its_moment(self, run: Run, checkout: Checkout, tmp_path: Path, words: tuple[str, ...]) -> None:
        """And is recorded with what has to be flushed for that."""
        git(run, "switch", "--quiet", "-c", "one")
        run.phase("on", lambda: None)
        made = self._heads_moved(run, checkout, tmp_path / "log", lambda: git(run, *words))
        assert made == 2
        branches = [each.branch for each in require_one_line(run.store, run.id)[-2:]]
        assert branches == ["one", "two" if "two" in words else None]

    def _heads_moved(self, run: Run, checkout: Checkout, log: Path, work: Callable[[], object]) -> int:
        """Returns in how many transactions the head of a run moved while a phase was done."""
        hook = checkout.main / ".git/hooks/reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f'#!/bin/sh\n[ "$1" = committed ] || exit 0\ngrep -c {layout.RUNS} >>"{log}"\n')
        hook.chmod(0o755)
        run.phase("quick", lambda: str(work()))
        return log.read_text().split().count("1")

    def test_a_state_that_cannot_be_copied_is_refused_as_any_other(self, run: Run) -> None:
        done: list[int] = []
        run.state["lock"] = threading.Lock()
        with pytest.raises(StateError):
            run.phase("quick", lambda: done.append(1))
        assert done == []
        del run.state["lock"]
        run.phase("quick", lambda: None)
        assert [each.label for each in require_one_line(run.store, run.id)[-2:]] == ["quick-started", "quick-complete"]

    def test_without_another_thread_it_is_recorded_at_once(self, run: Run, plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuses)
        seen: list[str] = []
        run.phase("quick", lambda: seen.extend(labels(plain, run.id)[-1:]), conduct=Conduct(autosave=0))
        assert seen == ["quick-started"]


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 20])
    def test_a_start_that_cannot_be_noted_does_not_cut_its_run_off(self, run: Run, plain: Store, room: int) -> None:
        """The run goes on from nothing that is not in its chain. There may be room for a part of the line, and for all else."""
        path = Path(inside(plain).repository.private_dir, chains.DIRECTORY, run.id)
        path.write_text("\n" * 100_000 + path.read_text())
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def work() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            put_off_long_enough(run)

        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, before[1]))
        try:
            run.phase("quick", work)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        run.phase("next", lambda: None)
        names = ["quick-started", "quick-complete", "next-started", "next-complete"]
        assert [each.label for each in require_one_line(run.store, run.id)[-4:]] == names
        assert run.unwritten == []


class TestForked:
    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_a_process_that_work_forks_while_the_start_is_recorded_waits_for_nobody(
        self, run: Run, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No lock may be held in it by a thread that it does not have."""
        flag = tmp_path / "flag"
        hook = checkout.main / ".git/hooks/reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f'#!/bin/sh\n[ "$1" != prepared ] || {{ : >"{flag}"; sleep 0.3; }}\n')
        hook.chmod(0o755)
        monkeypatch.setattr(run._active._writer, "_later", Later(0.0, run._active._writer._catch_up))

        def work() -> int:
            while not flag.exists():
                time.sleep(0.001)
            child = os.fork()
            if not child:
                signal.alarm(20)
                os._exit(0 if run.newest.label == "quick-started" else 1)
            return os.waitpid(child, 0)[1]

        assert run.phase("quick", work) == 0
        assert [each.label for each in require_one_line(run.store, run.id)[-2:]] == ["quick-started", "quick-complete"]


class TestOthers:
    def test_one_who_was_killed_before_the_head_moved_comes_before_it(self, run: Run, plain: Store) -> None:
        def work() -> None:
            refs, head = inside(plain).refs, layout.RUNS + run.id
            before = refs.read(head)
            inside(plain).record("someone-complete", {}, run=run.id)
            after = refs.read(head)
            assert before
            assert after
            refs.update([Update(head, before, after)])

        run.phase("quick", work)
        names = ["someone-complete", "quick-started", "quick-complete"]
        assert [each.label for each in require_one_line(run.store, run.id)[-3:]] == names

    def test_whoever_lost_the_run_still_sees_what_is_known_of_it(self, run: Run, plain: Store) -> None:
        def work() -> None:
            take_over(plain, run.id)
            assert run.newest.label == "first-complete"
            assert labels(run.store, run.id)[-1] == "first-complete"

        with pytest.raises(LeaseLost):
            run.phase("quick", work)
        assert run.newest.label == "first-complete"
        run.close()
        assert run.newest.label == "first-complete"

    def test_a_run_that_is_closed_records_nothing_more(self, run: Run, checkout: Checkout, plain: Store, tmp_path: Path) -> None:
        flag = tmp_path / "full"
        refuse_refs(checkout, flag)
        run.phase("quick", flag.touch)
        run.close()
        flag.unlink()
        assert run.newest.label == "first-complete"
        assert labels(plain, run.id)[-1] == "first-complete"
        run.unwritten.clear()

    def test_a_start_whose_id_is_taken_takes_nothing_with_it(self, run: Run, plain: Store) -> None:
        Path(run.path, "new.txt").write_text("new\n")
        run.phase("make", lambda: None)
        tree = git(run, "rev-parse", "HEAD^{tree}")
        with pytest.raises(UsageError, match="is taken"):
            run.phase("quick", lambda: inside(plain).refs.update([Update(layout.TREES + noted(run).id, tree, "")]))
        run.phase("next", lambda: None)
        names = ["make-complete", "quick-complete", "next-started", "next-complete"]
        assert labels(run.store, run.id)[-4:] == names


def test_a_handler_of_signals_may_close_a_run_while_its_driver_writes(run: Run) -> None:
    """The thread that writes what was put off would wait for the driver, which waits for the thread."""
    writer = run._active._writer
    writer._later._delay = 0.005

    def work() -> None:
        with writer._turn:
            time.sleep(0.05)
            writer._later.close()

    driver = threading.Thread(target=run.phase, args=("quick", work), daemon=True)
    driver.start()
    driver.join(60)
    assert not driver.is_alive()
    assert [each.label for each in require_one_line(run._store, run.id)[-2:]] == ["quick-started", "quick-complete"]
