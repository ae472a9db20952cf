"""Maintenance does not expire by a clock that was set."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import Policy, Store
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.model import times
from gitckpt.store.retention import expiry, maintenance, sweep
from tests.conftest import Checkout
from tests.stores import DAY, HOUR, SECOND, set_clock

START = 1_800_000_000 * SECOND


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("looks", "last"),
    [
        ([], True),
        ([HOUR, DAY, 29 * DAY], True),
        ([3650 * DAY], False),
        ([3650 * DAY, 3650 * DAY + 23 * HOUR], False),
        ([3650 * DAY, 3650 * DAY + 25 * HOUR], True),
        ([3650 * DAY, HOUR], False),
        ([3650 * DAY, HOUR, 20 * HOUR], False),
        ([3650 * DAY, HOUR, 26 * HOUR], True),
        ([31 * DAY, 32 * DAY], True),
        ([-HOUR // 2], True),
        ([-2 * HOUR], False),
    ],
)
def test_after_a_gap_it_has_to_go_on_for_a_day(
    repository: Repository, looks: list[int], *, last: bool
) -> None:
    assert expiry.check_clock(repository, START) is None
    said = [expiry.check_clock(repository, START + after) for after in looks]
    assert not said or (said[-1] is None) == last


@pytest.mark.parametrize("content", [b"", b"1", b"one two\n", b"\xff\xfe", None])
def test_what_cannot_be_read_says_nothing(repository: Repository, content: bytes | None) -> None:
    path = Path(repository.make_private_dir(), "clock")
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert expiry.check_clock(repository, START) is None
    assert os.listdir(path.parent) == ["clock"]


def test_maintenance_lets_nothing_go_after_a_gap(
    main_checkout: Checkout, repository: Repository
) -> None:
    now = time.time_ns() // 1000
    with Store.open(main_checkout.path) as store:
        set_clock(store, lambda: now - 40 * DAY)
        run = store.record("run-complete", {}, start="old", trigger="phase").run
        path = Path(repository.make_private_dir(), "clock")
        path.write_text(f"{now - 60 * DAY} {now - 39 * DAY}\n")
        maintenance.run_maintenance(repository)
        assert [each.run for each in store.runs()] == [run]
        assert maintenance.read_last_maintenance(repository).outcome == "done"
        assert (
            "the clock was set, or the repository was unused for a month: nothing expires for a day"
            in Path(repository.private_dir, "log").read_text()
        )
        path.write_text(f"{now - 2 * DAY} {now - HOUR}\n")
        maintenance.run_maintenance(repository)
        assert list(store.runs()) == []


@pytest.mark.skipif(
    not Path("/proc/sys/kernel/random/boot_id").exists(),
    reason="no clock counts since the start of the machine",
)
@pytest.mark.parametrize(
    ("ahead", "gap", "is_kept"),
    [
        (8 * DAY, HOUR, True),
        (25 * HOUR, HOUR, True),
        (23 * HOUR, HOUR, False),  # a virtual machine that was halted overnight
        (-2 * HOUR, HOUR, True),
        (0, HOUR, False),
        (0, 60 * DAY, False),
        (HOUR // 2, HOUR, False),
    ],
)
def test_a_clock_that_was_set_while_the_machine_runs(
    main_checkout: Checkout, repository: Repository, ahead: int, gap: int, *, is_kept: bool
) -> None:
    """A clock set eight days ahead keeps a run; an unused repository expires.

    The uptime tells both cases apart.
    """
    now = time.time_ns() // 1000
    with Store.open(main_checkout.path) as store:
        set_clock(store, lambda: now - max(ahead, 8 * DAY) - gap)
        run = store.record("run-complete", {}, start="just now", trigger="phase").run
        start, running = expiry._read_uptime()
        path = Path(repository.make_private_dir(), "clock")
        path.write_text(f"{now - 300 * DAY} {now - ahead - gap} {start} {running - gap}\n")
        maintenance.run_maintenance(repository)
        assert [each.run for each in store.runs()] == ([run] if is_kept else [])


def test_after_another_start_of_the_machine_a_gap_counts(repository: Repository) -> None:
    now = time.time_ns() // 1000
    path = Path(repository.make_private_dir(), "clock")
    for gap, is_sure in ((8 * DAY, True), (31 * DAY, False)):
        path.write_text(f"{now - 300 * DAY} {now - gap} 1 {10 * HOUR}\n")
        assert (expiry.check_clock(repository, now) is None) == is_sure


def test_ages_from_before_the_epoch_are_no_reason_to_fail(main_checkout: Checkout) -> None:
    age = 36_500 * DAY
    rules = Policy(
        older_than=age,
        rewritten_older_than=age,
        hourly_after=age,
        daily_after=age,
        safety_older_than=age,
    )
    with Store.open(main_checkout.path) as store:
        store.save("one", {})
        assert store.expire(rules).total == 1


def test_scratch_file_of_a_killed_check_is_swept(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiry.check_clock(repository, START)
    if (pid := os.fork()) == 0:
        os.replace = lambda *_: os._exit(0)
        expiry.check_clock(repository, START + HOUR)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    private_dir = Path(repository.private_dir)
    (scratch,) = private_dir.glob("clock.*")
    assert sweep.delete_leftover_files(repository) == []  # it may be in use
    monkeypatch.setattr(times, "GRACE", -1.0)
    assert sweep.delete_leftover_files(repository) == [str(scratch)]
    assert os.listdir(private_dir) == ["clock"]
