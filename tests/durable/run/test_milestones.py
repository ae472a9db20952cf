"""A milestone records a phase's progress, where a crash or failure resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Cancelled, CkptError, PhaseOptions, Progress, Retries, Run, Store, UsageError
from tests import planted
from tests.conftest import Checkout
from tests.durable.conftest import RUN, Killed, attempt_of, die, go_on, labels, refuse_refs
from tests.planted import plant
from tests.stores import head_of, open_store

RESET = PhaseOptions(on_resume="reset", autosave=0)


def counting(run: Run, checkout: Checkout, stop: Callable[[int], None]) -> Callable[[], list[int]]:
    """Return work that counts to five; each number makes file, commit and milestone.

    `stop` gets each number before its milestone.
    """

    def work() -> list[int]:
        here = Path(run.path)
        seen = run.state.setdefault("seen", [])
        while len(seen) < 5:
            number = len(seen) + 1
            with open(here / "log", "a", encoding="utf-8") as log:
                log.write(f"{number}\n")
            if number == 3:
                Checkout(here, checkout.main).commit("three")
            stop(number)
            seen.append(number)
            run.milestone(
                trigger="loop",
                message=f"number {number}",
                progress=Progress(tasks_completed=number, tasks_total=5),
            )
        return list(seen)

    return work


def never(number: int) -> None:
    del number


class Once:
    """Raise an exception the first time that a number comes."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number = number
        self.error: BaseException | None = error

    def __call__(self, number: int) -> None:
        if number == self.number and self.error is not None:
            error, self.error = self.error, None
            raise error


@pytest.mark.long(but=["linked-5"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_after_a_crash_a_phase_goes_on_from_its_newest_milestone(
    store: Store, checkout: Checkout, number: int
) -> None:
    run = Run.start(store, "Add login!", adapter="plumbing")
    die(run, "count", counting(run, checkout, Once(number, Killed())), RESET)
    with go_on(store, RUN) as run:
        assert run.phase("count", counting(run, checkout, never), conduct=RESET) == [1, 2, 3, 4, 5]
        here = Checkout(Path(run.path), checkout.main)
        assert (here.path / "log").read_text() == "1\n2\n3\n4\n5\n"
        assert here.git("rev-list", "--count", "HEAD") == "2"
    assert labels(store, RUN).count("count-progress") == 5
    assert attempt_of(store, RUN, "count-complete").number == 2


@pytest.mark.long
def test_one_for_which_the_disk_has_no_room_waits(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run, monkeypatch.context() as patch:

        def refuse(_: object) -> None:
            raise CkptError("cannot flush a file to the disk: No space left on device")

        def stop(number: int) -> None:
            if number == 2:
                plant(patch, planted.FLUSH_FILE, refuse)
            elif number == 4:
                assert run.unwritten
                patch.undo()

        assert run.phase("count", counting(run, main_checkout, stop), conduct=RESET) == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert not run.unwritten
    assert labels(plain, RUN).count("count-progress") == 5


@pytest.mark.long
def test_after_a_failure_too(store: Store, checkout: Checkout) -> None:
    conduct = PhaseOptions(on_resume="reset", retries=Retries(attempts=1, delay=0), autosave=0)
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        assert run.phase(
            "count", counting(run, checkout, Once(4, ValueError("no"))), conduct=conduct
        ) == [1, 2, 3, 4, 5]
        assert Path(run.path, "log").read_text() == "1\n2\n3\n4\n5\n"
    failed = attempt_of(store, RUN, "count-failed")
    assert store.read(str(failed.began)).state == {"seen": [1, 2, 3]}
    assert store.read(store.list()[1].id).state == {"seen": [1, 2, 3, 4, 5]}


@pytest.mark.long
def test_what_a_milestone_holds(plain: Store, main_checkout: Checkout) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.phase("count", counting(run, main_checkout, never), conduct=RESET)
    found = [
        plain.read(entry.id) for entry in reversed(plain.list()) if entry.label == "count-progress"
    ]
    assert [(each.trigger, each.message, each.state) for each in found] == [
        ("loop", f"number {number}", {"seen": list(range(1, number + 1))}) for number in range(1, 6)
    ]
    assert [each.progress for each in found] == [
        Progress(tasks_completed=number, tasks_total=5) for number in range(1, 6)
    ]
    assert all(each.attempt is not None and each.attempt.began == each.id for each in found)
    logs = [
        main_checkout.git("show", f"refs/ckpt/trees/{each.id}:files/log")
        for each in found
        if each.worktree and each.worktree.tree
    ]
    assert logs == ["1", "1\n2", "1\n2\n3\n4", "1\n2\n3\n4\n5"]  # the third is committed
    (event,) = plain.history(RUN).events
    assert (event.status, event.saves) == ("complete", 0)


@pytest.mark.long
def test_crashes_with_a_milestone_between_them_do_not_add_up(
    plain: Store, main_checkout: Checkout
) -> None:
    conduct = PhaseOptions(on_resume="reset", max_recoveries=1, autosave=0)
    run = Run.start(plain, "Add login!", adapter="plumbing")
    for number in (2, 3, 4, 5):
        die(run, "count", counting(run, main_checkout, Once(number, Killed())), conduct)
        run = go_on(plain, RUN)
    with run:
        assert run.phase("count", counting(run, main_checkout, never), conduct=conduct) == [
            1,
            2,
            3,
            4,
            5,
        ]


@pytest.mark.long
def test_what_is_saved_after_a_milestone_does_not_move_it(
    plain: Store, main_checkout: Checkout
) -> None:
    """A reset takes back such a commit with the rest of the attempt.

    The commit's own checkpoint still records it.
    """

    def work() -> None:
        Path(run.path, "a").write_text("1\n")
        run.milestone()
        Path(run.path, "a").write_text("2\n")
        with open_store(Path(run.path)) as there:
            there.save("manual-complete", run=RUN)
        raise Killed

    run = Run.start(plain, "Add login!", adapter="plumbing")
    die(run, "work", work, RESET)
    with go_on(plain, RUN) as run:
        assert run.phase("work", lambda: Path(run.path, "a").read_text(), conduct=RESET) == "1\n"


@pytest.mark.long
def test_one_that_cannot_be_written_moves_nothing(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """Files and state return together to the newest stored milestone."""
    flag = tmp_path / "full"
    refuse_refs(main_checkout, flag)
    seen: list[int] = []

    def stop(number: int) -> None:
        seen.append(number)
        if seen == [1, 2, 3]:
            flag.touch()
        elif seen == [1, 2, 3, 4]:
            flag.unlink()
            raise ValueError("no")

    conduct = PhaseOptions(on_resume="reset", retries=Retries(attempts=1, delay=0), autosave=0)
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        assert run.phase("count", counting(run, main_checkout, stop), conduct=conduct) == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert seen == [1, 2, 3, 4, 3, 4, 5]
        assert Path(run.path, "log").read_text() == "1\n2\n3\n4\n5\n"
    assert labels(plain, RUN).count("count-progress") == 6


def test_outside_a_phase_there_is_none(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        with pytest.raises(UsageError, match="no phase is in progress"):
            run.milestone()
        run.phase("work", lambda: 1)
        with pytest.raises(UsageError, match="no phase is in progress"):
            run.milestone()


def test_a_run_that_was_cancelled_stops_at_one(plain: Store, main_checkout: Checkout) -> None:
    def stop(number: int) -> None:
        if number == 2:
            assert plain.cancel(RUN, wait=0)
            run._session.hold.renew_lease()

    run = Run.start(plain, "Add login!", adapter="plumbing")
    with pytest.raises(Cancelled):
        run.phase("count", counting(run, main_checkout, stop), conduct=RESET)
    run.close()
    assert head_of(plain, RUN).state == {"seen": [1, 2]}
