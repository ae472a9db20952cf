"""Lock files tell live drivers from dead ones, in containers too.

A forged lease blocks no run for good.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import InvalidCheckpoint, Lease, LeaseHeld, LeaseLost, Run, Store
from gitckpt.git.lock import is_locked
from gitckpt.store.leases import leases
from gitckpt.store.leases.leases import MOST_TOKENS, render_lease
from gitckpt.store.retention import sweep
from gitckpt.store.store import checkpoints_of_store
from tests.cli.conftest import Spawn, spawn
from tests.conftest import Checkout
from tests.house_rules import PROJECT
from tests.store.conftest import RUN
from tests.stores import hold_run, timestamp

__all__ = ["spawn"]

Container = Callable[[str], "subprocess.Popen[str]"]

DRIVE = """
import sys, time
from gitckpt import Run, Store
with Store.open() as store, Run.start(store, "a run", key="it") as run:
    print(run.id, flush=True)
    run.phase("one", lambda: time.sleep(60))
"""


@pytest.fixture
def container(main_checkout: Checkout) -> Container:
    """Run a program in its own host name and process id namespaces, as containers do."""
    unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("namespaces are not allowed here")

    def start(code: str) -> subprocess.Popen[str]:
        argv = [
            *unshare,
            "sh",
            "-c",
            'hostname "c$$-$(date +%N)"; exec "$0" -c "$1"',
            sys.executable,
            code,
        ]
        env = os.environ | {"PYTHONPATH": str(PROJECT)}
        return subprocess.Popen(
            argv,
            cwd=main_checkout.path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def lock_files(checkout: Checkout) -> list[Path]:
    return sorted((checkout.path / ".git" / "ckpt").glob("driver.*"))


@pytest.mark.long
def test_a_container_that_is_gone_keeps_nobody_waiting(
    main_checkout: Checkout, container: Container
) -> None:
    with Store.open(main_checkout.path) as store, container(DRIVE) as driver:
        assert driver.stdout is not None
        run = driver.stdout.readline().strip()
        assert store.runs()[0].status == "running"
        with pytest.raises(LeaseHeld, match=r"is driven by a program on c\d+-\d+"):
            Run.resume(store, run)
        driver.kill()
        assert driver.stdout.read() == ""  # the process in there is gone
        with container(
            "import time; time.sleep(60)"
        ) as another:  # it may get the number of the namespace that is gone
            try:
                assert store.runs()[0].status == "crashed"
                with Run.resume(store, run) as again:
                    again.pause()
            finally:
                another.kill()


LEAVE = """
import os, subprocess, sys, time
from gitckpt import Store
from gitckpt.store.store import checkpoints_of_store
with Store.open() as store:
    checkpoints_of_store(store).leases.acquire_lease(sys.argv[1], "one")
    started = subprocess.Popen(["sleep", "60"], close_fds=False).pid
    reader, writer = os.pipe()
    forked = os.fork()
    if not forked:
        os.write(writer, b"x")
        time.sleep(60)
    os.read(reader, 1)
    print(started, forked, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_what_a_driver_started_or_forked_does_not_keep_its_lock(main_checkout: Checkout) -> None:
    env = os.environ | {"PYTHONPATH": str(PROJECT)}
    argv = [sys.executable, "-c", LEAVE, RUN]
    with subprocess.Popen(
        argv, cwd=main_checkout.path, env=env, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        children = [int(word) for word in driver.stdout.readline().split()]
        try:
            assert driver.wait() == -signal.SIGKILL
            (path,) = lock_files(main_checkout)
            assert is_locked(str(path)) is False
            with Store.open(main_checkout.path) as store:
                hold_run(store, RUN, "two").release_lease()
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def test_a_process_has_one_lock_file_however_many_leases_it_has(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        desk = checkpoints_of_store(store).leases
        holds, _ = desk.acquire_leases(
            [f"20270115-08000{number}-many" for number in range(4)], "expire"
        )
        (path,) = lock_files(main_checkout)
        for hold in holds.values():
            assert is_locked(str(path))
            hold.release_lease()
        assert lock_files(main_checkout) == []


def test_a_lock_file_that_was_deleted_is_not_made_again(main_checkout: Checkout) -> None:
    """A deleted lock file stays away.

    Without a lock on it, a new file would claim that the driver is gone.
    """
    with Store.open(main_checkout.path) as store:
        hold = hold_run(store, RUN, "one")
        shutil.rmtree(main_checkout.path / ".git" / "ckpt")
        hold.renew_lease()
        assert lock_files(main_checkout) == []
        with pytest.raises(
            LeaseHeld, match="on another machine; unless renewed, the lease ends at"
        ):
            hold_run(store, RUN, "two")
        hold.release_lease()


def test_maintenance_deletes_the_lock_files_of_the_dead(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        hold = hold_run(store, RUN, "one")
        (mine,) = lock_files(main_checkout)
        dead = mine.parent / f"driver.7.{'ab' * 20}"
        dead.touch()
        assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sweep, "LONGEST", -1)
            assert sweep.delete_leftover_files(checkpoints_of_store(store).repository) == [
                str(dead)
            ]
        hold.release_lease()


def forged(checkout: Checkout, lease: Lease, **changes: object) -> None:
    """Let a ref hold a lease as a fetch brings it."""
    from dataclasses import replace

    data = render_lease(replace(lease, **changes)).decode()  # type: ignore[arg-type]
    oid = checkout.git("hash-object", "-w", "--stdin", data=data).strip()
    checkout.git("update-ref", "refs/ckpt/leases/" + lease.run, oid)


@pytest.mark.long
@pytest.mark.parametrize("token", [MOST_TOKENS, 2**63 - 1, 0, -1])
def test_a_lease_with_a_token_that_nobody_has_is_taken_over(
    main_checkout: Checkout, spawn: Spawn, token: int
) -> None:
    with Store.open(main_checkout.path) as store:
        with Run.start(store, "a run") as run:
            run.pause()
            lease = checkpoints_of_store(store).leases.read(run.id)
        assert lease is not None
        forged(main_checkout, lease[1], token=token, released=None)
        (finding,) = store.verify().findings
        assert (finding.code, finding.object) == ("lease-invalid", "refs/ckpt/leases/" + run.id)
        assert finding.sentence == f"token: {token} is not between 1 and 2^62 - 1"
        assert finding.cure == f"if the run has no driver: git ckpt resume {run.id} --take-over"
        with pytest.raises(InvalidCheckpoint) as refused:
            Run.resume(store, run.id)
        assert refused.value.hint == finding.cure
        done = spawn("resume", run.id, "--take-over", at=main_checkout)
        assert done.code == 0, done.err
        with Run.resume(store, run.id) as again:
            before = again._session.hold.predecessor
            assert before is not None
            assert abs(before.token - time.time()) < 3600  # more than any driver here had


def test_a_driver_whose_lease_was_replaced_by_no_lease_has_lost_it(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        hold = hold_run(store, RUN, "one")
        forged(main_checkout, hold.lease, token=MOST_TOKENS)
        with pytest.raises(LeaseLost, match="was replaced by an invalid one"):
            hold.renew_lease()
        hold.release_process_lock(is_over=True)


def test_what_a_fetched_lease_of_the_same_token_says_of_its_process_is_not_taken_over(
    main_checkout: Checkout,
) -> None:
    with Store.open(main_checkout.path) as store:
        hold = hold_run(store, RUN, "one")
        forged(main_checkout, hold.lease, pid=1, host="evil", cancelled=True)
        hold.require_lease_held()
        assert (hold.lease.pid, hold.lease.host, hold.lease.cancelled) == (
            os.getpid(),
            os.uname().nodename,
            True,
        )
        hold.release_lease()


def test_a_lease_lasts_ten_minutes_at_most_where_it_was_fetched(main_checkout: Checkout) -> None:
    """A fetched lease ends in time, though it names a live local process."""
    with Store.open(main_checkout.path) as store:
        hold = hold_run(store, RUN, "one")
        long_ago = timestamp(time.time_ns() // 1000 - leases.LENGTH)
        forged(main_checkout, hold.lease, token=2, renewed=long_ago, expires=long_ago)
        assert hold_run(store, RUN, "two").lease.token == 3
