"""Cancel signals a local driver and waits for it to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gitckpt import CkptError, Lease, Store, UsageError
from gitckpt.git import filesystem
from gitckpt.model import times
from gitckpt.model.values import replace
from gitckpt.store.leases import leases
from gitckpt.store.leases.leases import Leases
from gitckpt.store.store import checkpoints_of_store
from tests.store.conftest import RUN

READY = (
    "import fcntl, time, signal; {}; f = open(input(), 'a'); fcntl.flock(f, 2); "
    "print(flush=True); time.sleep(60)"
)
"""A program that locks a file, as each driver does."""


@pytest.fixture
def desk(plain: Store) -> Leases:
    """The leases of a repository, by the wall clock."""
    found = checkpoints_of_store(plain).leases
    found.clock = times.now
    return found


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start programs that run a statement and sleep, and kill them after the test."""
    started = []

    def start(statement: str = "pass") -> subprocess.Popen[bytes]:
        argv, pipe = [sys.executable, "-c", READY.format(statement)], subprocess.PIPE
        started.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, bufsize=0))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def driven_by(desk: Leases, process: subprocess.Popen[bytes], **changes: Any) -> Lease:
    """Make a lease name the given process as the driver of the run."""
    desk.acquire_lease(RUN, "one")
    found = desk.read(RUN)
    assert found is not None
    lease = replace(
        found[1],
        **{"pid": process.pid, "started": filesystem.read_process_start(process.pid), **changes},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{desk._files._lock_path(lease)}\n".encode())
    process.stdout.readline()
    desk.replace_lease(lease, found[0], is_ours=True)
    return lease


def test_a_driver_that_never_looks_is_stopped_all_the_same(
    plain: Store, desk: Leases, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    driver = start()
    driven_by(desk, driver)
    assert plain.cancel(RUN)
    assert driver.wait(10) == -signal.SIGTERM
    assert not plain.cancel(RUN)


def test_who_does_not_wait_only_asks(
    plain: Store, desk: Leases, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    driver = start()
    driven_by(desk, driver)
    assert plain.cancel(RUN, wait=0)
    found = desk.read(RUN)
    assert found is not None
    assert found[1].cancelled
    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(0.2)


def test_one_that_takes_its_time_is_told_of(
    plain: Store, desk: Leases, start: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    driver = start("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    driven_by(desk, driver)
    began = time.monotonic()
    with pytest.raises(CkptError) as late:
        plain.cancel(RUN, wait=0.2)
    assert 0.2 <= time.monotonic() - began < 10
    assert (late.value.message, late.value.hint) == (
        f"run {RUN} was asked to stop and has not stopped yet",
        f"the driver stops at its next check; see: git ckpt status {RUN}",
    )
    driver.send_signal(signal.SIGSTOP)
    while not filesystem.is_process_stopped(driver.pid):
        time.sleep(0.01)
    with pytest.raises(
        CkptError, match=f"^run {RUN} was asked to stop, but its process {driver.pid} is stalled$"
    ):
        plain.cancel(RUN)


def test_a_program_neither_ends_itself_nor_waits_for_itself(
    plain: Store, desk: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = desk.acquire_lease(RUN, "one")
    monkeypatch.setattr(
        leases, "os", SimpleNamespace(**{**vars(os), "kill": lambda *_: pytest.fail("signalled")})
    )
    assert plain.cancel(RUN)
    hold.require_lease_held()
    assert hold.lease.cancelled


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": 0},
        {"pid": 1},
        {"pid": -1},
        {"started": "1"},
        {"host": "another machine"},
        {"started": ""},
    ],
)
def test_nobody_is_signalled_but_the_process_that_took_the_lease(
    desk: Leases,
    start: Callable[[], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
) -> None:
    lease = driven_by(desk, start(), **changes)
    # The lease is held, whatever its document says.
    monkeypatch.setattr(Leases, "mark_cancelled", lambda *_: (desk.current_lease_oid(RUN), lease))
    monkeypatch.setattr(
        leases, "os", SimpleNamespace(**{**vars(os), "kill": lambda *_: pytest.fail("signalled")})
    )
    monkeypatch.setattr(leases, "_await_driver_end", lambda *_: None)
    assert leases.cancel_driver(desk, RUN, wait=1, tell=lambda _: None)


@pytest.mark.long
def test_a_process_that_only_a_fetched_lease_names_is_not_signalled(
    plain: Store, desk: Leases, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    innocent = start()
    hold = desk.acquire_lease(RUN, "one")
    fetched = replace(
        hold.lease, token=2, pid=innocent.pid, started=filesystem.read_process_start(innocent.pid)
    )
    desk.replace_lease(fetched, hold.make_lease_update().old)
    # Like the lease before it, the one that `cancel` writes is another process's.
    for _ in range(2):
        with pytest.raises(
            CkptError, match=f"^run {RUN} was asked to stop and has not stopped yet$"
        ):
            plain.cancel(RUN, wait=0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        innocent.wait(0.2)


@pytest.mark.parametrize(("refusal", "told"), [(ProcessLookupError, 0), (PermissionError, 1)])
def test_a_process_that_cannot_be_signalled(
    plain: Store,
    desk: Leases,
    start: Callable[[], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    refusal: type[Exception],
    told: int,
) -> None:
    driver = start()
    lease = driven_by(desk, driver)
    heard: list[str] = []

    def refuse(*_: object) -> None:
        threading.Timer(0.1, driver.kill).start()
        raise refusal

    monkeypatch.setattr(leases, "os", SimpleNamespace(**{**vars(os), "kill": refuse}))
    assert leases.cancel_driver(desk, RUN, wait=10, tell=heard.append)
    assert (
        heard
        == [f"process {lease.pid} belongs to another user: run {RUN} stops at the next check"][
            :told
        ]
    )


@pytest.mark.parametrize("wait", [-1, "a", None, True, float("nan")])
def test_a_wait_is_a_number_of_seconds(plain: Store, wait: Any) -> None:
    with pytest.raises(UsageError) as refused:
        plain.cancel(RUN, wait=wait)
    assert refused.value.message == f"wait: must be a number of seconds from 0 on, not {wait!r}"
