"""A run has one driver at a time, and a driver without its lease cannot write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    BusyError,
    InvalidCheckpoint,
    Lease,
    LeaseHeld,
    LeaseLost,
    RefMoved,
    Store,
    UsageError,
)
from gitckpt.git import filesystem
from gitckpt.store.leases import leases
from gitckpt.store.leases.leases import LONGEST, HeldLease, Leases, parse_lease, render_lease
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.store.conftest import ROOT, RUN, MakeStore
from tests.stores import SECOND, head_of, instant_of, ref_oid, timestamp, update_refs

ANOTHER_RUN = "20270115-080001-another"
ROUNDS, ALL_ROUNDS = 150, 1000
"""Without and with `--long`."""
STARTERS = 8


@pytest.fixture
def desk(plain: Store) -> Leases:
    """The leases of a repository."""
    return checkpoints_of_store(plain).leases


def elsewhere(desk: Leases, hold: HeldLease, **changes: str | int) -> Lease:
    """Make a lease look as if another machine had taken it."""
    found = desk.read(hold.lease.run)
    assert found is not None
    moved = replace(found[1], host="another machine", boot="its boot", **changes)  # type: ignore[arg-type]
    desk.replace_lease(moved, found[0])
    return moved


def test_a_lease_says_who_drives_a_run(desk: Leases, plain: Store) -> None:
    hold = desk.acquire_lease(RUN, "git ckpt run ci")
    here = filesystem.this_host()
    text = checkpoints_of_store(plain).repository.git.run_for_text(
        "cat-file", "blob", f"refs/ckpt/leases/{RUN}"
    )
    assert text.splitlines() == [
        "version = 1",
        f'run = "{RUN}"',
        "token = 1",
        'holder = "git ckpt run ci"',
        f'host = "{here.name}"',
        f'boot = "{here.boot}"',
        f'namespace = "{here.namespace}"',
        f"pid = {os.getpid()}",
        f'started = "{filesystem.read_process_start(os.getpid())}"',
        'acquired = "2027-01-15T08:00:01.000000Z"',
        'renewed = "2027-01-15T08:00:01.000000Z"',
        'expires = "2027-01-15T08:02:01.000000Z"',
    ]
    assert desk.read(RUN) == (ref_oid(plain, "refs/ckpt/leases/" + RUN), hold.lease)


def test_a_second_driver_is_told_who_the_first_one_is(desk: Leases) -> None:
    desk.acquire_lease(RUN, "git ckpt run ci")
    with pytest.raises(LeaseHeld) as caught:
        desk.acquire_lease(RUN, "git ckpt resume")
    assert caught.value.exit_code == 11
    who = (
        f"git ckpt run ci on {filesystem.this_host().name}, process {os.getpid()}, renewed at "
        "2027-01-15T08:00:01.000000Z"
    )
    assert caught.value.message == f"run {RUN} is driven by {who}"
    assert caught.value.hint == f"wait for that process, or: git ckpt cancel {RUN}"
    assert desk.acquire_lease(ANOTHER_RUN, "git ckpt resume").lease.token == 1, (
        "each run has its own"
    )


def test_a_lease_that_was_given_back_is_taken_with_the_next_token(desk: Leases) -> None:
    first = desk.acquire_lease(RUN, "one")
    first.release_lease()
    second = desk.acquire_lease(RUN, "two")
    assert (second.lease.token, second.lease.holder) == (2, "two")
    assert second.predecessor is not None
    assert second.predecessor.released == "2027-01-15T08:00:02.000000Z"


def test_the_lease_of_a_dead_process_is_taken_over(desk: Leases, plain: Store) -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from gitckpt.git.repository import discover_repository\n"
        "from gitckpt.store.checkpoints import Checkpoints\n"
        "store = Checkpoints(discover_repository(sys.argv[2]), adapter='plumbing')\n"
        "store.leases.acquire_lease(sys.argv[3], 'the dead one')\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT), str(plain.worktree), RUN], check=False
    )
    assert done.returncode == -9
    hold = desk.acquire_lease(RUN, "the next")
    assert hold.lease.token == 2
    assert hold.predecessor is not None
    assert (hold.predecessor.holder, hold.predecessor.released) == ("the dead one", None)


def test_a_process_that_got_the_number_of_a_dead_one_does_not_hold_its_lease(desk: Leases) -> None:
    hold = desk.acquire_lease(RUN, "one")
    found = desk.read(RUN)
    assert found is not None
    taken = replace(found[1], started="1")
    path = left_by_a_dead_process(desk, taken)
    desk.replace_lease(taken, found[0], is_ours=True)
    assert desk.acquire_lease(RUN, "two").lease.token == 2
    assert (hold.lease.token, path.exists()) == (1, True)


def left_by_a_dead_process(desk: Leases, lease: Lease) -> Path:
    """Make the unlocked lock file of the process that a lease names."""
    path = Path(desk._files._lock_path(lease))
    path.touch()
    return path


def test_on_another_machine_only_an_expired_lease_is_taken_over(desk: Leases, clock: Clock) -> None:
    hold = desk.acquire_lease(RUN, "far away")
    elsewhere(desk, hold)
    with pytest.raises(LeaseHeld, match="far away on another machine"):
        desk.acquire_lease(RUN, "here")
    clock.instant += leases.LENGTH
    assert desk.acquire_lease(RUN, "here").lease.token == 2


@pytest.mark.parametrize(
    ("changes", "is_noted"), [({"boot": "an earlier one"}, True), ({"namespace": "pid:[1]"}, False)]
)
def test_a_lease_of_another_boot_or_that_was_fetched_lasts_as_long_as_it_says(
    desk: Leases, clock: Clock, changes: dict[str, str], is_noted: bool
) -> None:
    hold = desk.acquire_lease(RUN, "one")
    found = desk.read(RUN)
    assert found is not None
    lease = replace(found[1], pid=1, **changes)  # type: ignore[arg-type]
    left_by_a_dead_process(desk, lease)
    desk.replace_lease(lease, found[0], is_ours=is_noted)
    with pytest.raises(LeaseHeld) as caught:
        desk.acquire_lease(RUN, "two")
    assert caught.value.message.endswith(
        ", on another machine; unless renewed, the lease ends at 2027-01-15T08:02:01.000000Z"
    )
    assert (
        caught.value.hint
        == f"then continue: git ckpt resume {RUN}; or stop the driver: git ckpt cancel {RUN}"
    )
    clock.instant += leases.LENGTH
    assert desk.acquire_lease(RUN, "two").lease.token == hold.lease.token + 1


def test_a_lease_ends_at_the_very_instant_that_it_names(desk: Leases, clock: Clock) -> None:
    lease = elsewhere(desk, desk.acquire_lease(RUN, "one"))
    clock.step, clock.instant = 0, instant_of(lease.expires) - 1
    assert desk.is_held(desk.current_lease_oid(RUN) or "", lease)
    clock.instant += 1
    assert not desk.is_held(desk.current_lease_oid(RUN) or "", lease)


def test_a_run_is_free_while_nobody_who_is_alive_drives_it(desk: Leases, clock: Clock) -> None:
    desk.require_lease_free(RUN)
    hold = desk.acquire_lease(RUN, "one")
    desk.require_lease_free(ANOTHER_RUN)
    with pytest.raises(LeaseHeld) as caught:
        desk.require_lease_free(RUN)
    assert (caught.value.message, caught.value.hint) == (
        desk.held_error(desk.current_lease_oid(RUN) or "", hold.lease).message,
        desk.held_error(desk.current_lease_oid(RUN) or "", hold.lease).hint,
    )
    far = elsewhere(desk, hold)
    with pytest.raises(LeaseHeld) as caught:
        desk.require_lease_free(RUN)
    assert caught.value.message == desk.held_error(desk.current_lease_oid(RUN) or "", far).message
    clock.instant += leases.LENGTH
    desk.require_lease_free(RUN)


class TestEndless:
    """A fetched lease with an absurd expiry counts only for twenty renewals."""

    def test_it_counts_for_twenty_renewals(self, desk: Leases, clock: Clock) -> None:
        lease = replace(
            elsewhere(desk, desk.acquire_lease(RUN, "far away")),
            expires="9999-12-31T23:59:59.000000Z",
        )
        desk.replace_lease(lease, desk.current_lease_oid(RUN) or "")
        assert round(20 * leases.RENEWAL * SECOND) == LONGEST
        end = instant_of(lease.renewed) + LONGEST
        assert lease.end == end
        with pytest.raises(LeaseHeld) as caught:
            desk.acquire_lease(RUN, "here")
        assert caught.value.hint == f"if that process is gone: git ckpt resume {RUN} --take-over"
        clock.instant = end
        assert desk.acquire_lease(RUN, "here").lease.token == 2

    @pytest.mark.parametrize("ahead", [60 * SECOND, 0])
    def test_one_that_was_renewed_in_the_future_is_taken_over(
        self, desk: Leases, clock: Clock, ahead: int
    ) -> None:
        renewed = clock.instant + LONGEST + ahead
        lease = replace(
            elsewhere(desk, desk.acquire_lease(RUN, "far away")),
            renewed=timestamp(renewed),
            expires=timestamp(renewed + 9),
        )
        desk.replace_lease(lease, desk.current_lease_oid(RUN) or "")
        assert lease.is_endless(clock.instant) == bool(ahead)
        if ahead:
            assert desk.acquire_lease(RUN, "here", take_over=True).lease.token == 2
        else:
            with pytest.raises(LeaseHeld, match="is driven by far away"):
                desk.acquire_lease(RUN, "here", take_over=True)

    def test_what_was_given_back_binds_nobody(self, desk: Leases, clock: Clock) -> None:
        lease = replace(desk.acquire_lease(RUN, "one").lease, expires="9999-12-31T23:59:59.000000Z")
        assert [
            replace(lease, released=said).is_endless(clock.instant)
            for said in (None, lease.renewed)
        ] == [True, False]

    def test_none_of_ours_is(self, desk: Leases, clock: Clock) -> None:
        with pytest.raises(UsageError, match="is too long"):
            desk.acquire_lease(RUN, "one", LONGEST + 1)
        assert not desk.acquire_lease(RUN, "one", LONGEST).lease.is_endless(clock.instant)


LOCKER = (
    "import fcntl,sys,time; f=open(sys.stdin.readline().strip(),'a'); fcntl.flock(f,2); "
    "print(flush=True); time.sleep(60)"
)


@pytest.fixture
def other(desk: Leases) -> Iterator[tuple[subprocess.Popen[str], HeldLease]]:
    """A live process that holds the lease of the run."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER], stdin=pipe, stdout=pipe, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hold = desk.acquire_lease(RUN, "the other one")
        lease = replace(
            hold.lease, pid=process.pid, started=filesystem.read_process_start(process.pid)
        )
        process.stdin.write(f"{desk._files._lock_path(lease)}\n")
        assert process.stdout.readline()
        oid = desk.replace_lease(lease, hold.make_lease_update().old, is_ours=True)
        yield process, HeldLease(desk, oid, lease, leases.LENGTH, None, is_first=False)
        process.kill()


Other = tuple["subprocess.Popen[str]", HeldLease]


class TestStalled:
    def test_whose_renewal_is_overdue(self, desk: Leases, clock: Clock, other: Other) -> None:
        late = instant_of(other[1].lease.renewed) + leases.LENGTH // 2
        clock.step = 0
        for instant in (late - 1, late, late + 100 * leases.LENGTH):
            clock.instant = instant
            assert self.is_stalled(desk) == (instant >= late)
        other[1].renew_lease()
        assert not self.is_stalled(desk)

    def is_stalled(self, desk: Leases, run: str = RUN) -> bool:
        found = desk.read(run)
        assert found is not None
        return desk.is_stalled(*found)

    def test_that_was_stopped(self, desk: Leases, other: Other) -> None:
        process, _ = other
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert self.is_stalled(desk)
        process.send_signal(signal.SIGCONT)
        os.waitpid(process.pid, os.WCONTINUED)
        assert not self.is_stalled(desk)

    def test_never_whoever_asks_nor_the_dead_nor_who_is_elsewhere(
        self, desk: Leases, clock: Clock, other: Other
    ) -> None:
        process, hold = other
        desk.acquire_lease(ANOTHER_RUN, "this one")
        far = replace(hold.lease, boot="that of another machine")
        clock.instant += 100 * leases.LENGTH
        assert not desk.is_stalled("0" * 40, far)
        assert not self.is_stalled(desk, ANOTHER_RUN)
        process.kill()
        process.wait()
        assert not self.is_stalled(desk)
        assert not desk.is_held(hold.make_lease_update().old, hold.lease)

    def test_can_be_taken_over_and_writes_nothing_more(
        self, desk: Leases, plain: Store, clock: Clock, other: Other
    ) -> None:
        with pytest.raises(LeaseHeld) as caught:
            desk.acquire_lease(RUN, "who is in a hurry", take_over=True)
        assert caught.value.hint == f"wait for that process, or: git ckpt cancel {RUN}"
        clock.instant += leases.LENGTH
        with pytest.raises(LeaseHeld) as caught:
            desk.acquire_lease(RUN, "who knows of nothing")
        process, hold = other
        assert (
            caught.value.message
            == f"run {RUN} is driven by {hold.lease.sentence()}, which is stalled"
        )
        assert caught.value.hint == (
            f"let process {process.pid} continue, or take over the run: "
            f"git ckpt resume {RUN} --take-over"
        )
        new = desk.acquire_lease(RUN, "the next one", take_over=True)
        assert new.lease.token == hold.lease.token + 1
        for write in (hold.renew_lease, hold.require_lease_held, hold.release_lease):
            with pytest.raises(LeaseLost, match="taken over by the next one"):
                write()
        new.renew_lease()

    def test_one_that_goes_on_at_that_moment_keeps_it(
        self, desk: Leases, clock: Clock, other: Other
    ) -> None:
        clock.instant += leases.LENGTH
        with pytest.raises(LeaseHeld, match="the other one"):
            Racing(desk, other[1].renew_lease).acquire_lease(RUN, "the slower one", take_over=True)
        other[1].require_lease_held()


class Racing(Leases):
    """Leases that another process changes between the read and the write.

    Args:
        desk: the leases of the other process.
        meanwhile: the change, made once.
    """

    def __init__(self, desk: Leases, meanwhile: Callable[[], object]) -> None:
        super().__init__(desk._objects, desk._refs, desk._repository, desk.clock)
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def replace_lease(self, lease: Lease, old: str, *, is_ours: bool = False) -> str:
        while self._meanwhile:
            self._meanwhile.pop()()
        return super().replace_lease(lease, old, is_ours=is_ours)


def test_whoever_was_slower_is_told_who_the_faster_one_is(desk: Leases) -> None:
    with pytest.raises(LeaseHeld) as caught:
        Racing(desk, lambda: desk.acquire_lease(RUN, "the faster one")).acquire_lease(
            RUN, "the slower one"
        )
    found = desk.read(RUN)
    assert found is not None
    assert (caught.value.message, caught.value.hint) == (
        desk.held_error(*found).message,
        desk.held_error(*found).hint,
    )
    assert found[1].holder == "the faster one"


def test_where_the_faster_one_is_gone_again_the_ref_has_moved(desk: Leases, plain: Store) -> None:
    desk.acquire_lease(RUN, "one").release_lease()
    with pytest.raises(RefMoved):
        Racing(desk, lambda: remove(plain)).acquire_lease(RUN, "the next")
    assert desk.read(RUN) is None


class TestManyAtOnce:
    RUNS = tuple(f"20270115-08000{number}-many" for number in range(4))

    def test_those_that_nobody_has(self, desk: Leases, clock: Clock) -> None:
        hold = desk.acquire_lease(self.RUNS[0], "before")
        elsewhere(desk, hold)
        desk.acquire_lease(self.RUNS[1], "before").release_lease()
        holds, refused = desk.acquire_leases(self.RUNS, "now")
        assert list(holds) == list(self.RUNS[1:])
        assert {run: type(error) for run, error in refused.items()} == {self.RUNS[0]: LeaseHeld}
        assert [(hold.lease.token, hold.lease.holder) for hold in holds.values()] == [
            (2, "now"),
            (1, "now"),
            (1, "now"),
        ]
        for run, hold in holds.items():
            hold.require_lease_held()
            hold.release_lease()
            found = desk.read(run)
            assert found is not None
            assert not desk.is_held(*found)

    def test_somebody_is_faster_at_one_of_them(self, desk: Leases) -> None:
        class Slow(Leases):
            def _plan_next(self, run: str, *args: Any, **options: Any) -> Any:
                found = super()._plan_next(run, *args, **options)
                if run == TestManyAtOnce.RUNS[-1] and desk.read(TestManyAtOnce.RUNS[1]) is None:
                    desk.acquire_lease(TestManyAtOnce.RUNS[1], "the faster one")
                return found

        holds, refused = Slow(
            desk._objects, desk._refs, desk._repository, desk.clock
        ).acquire_leases(self.RUNS, "the slower one")
        assert set(holds) == {self.RUNS[0], *self.RUNS[2:]}
        assert {run: type(error) for run, error in refused.items()} == {self.RUNS[1]: LeaseHeld}
        found = desk.read(self.RUNS[1])
        assert found is not None
        assert found[1].holder == "the faster one"
        for hold in holds.values():
            hold.require_lease_held()

    def test_none(self, desk: Leases) -> None:
        assert desk.acquire_leases([], "nobody") == ({}, {})


def remove(store: Store) -> None:
    """Remove the lease of the run."""
    ref = "refs/ckpt/leases/" + RUN
    update_refs(store, (ref, "", str(ref_oid(store, ref))))


@pytest.mark.parametrize("write", ["renew_lease", "release_lease"])
def test_what_a_holder_says_is_written_though_somebody_asked_it_to_stop_meanwhile(
    desk: Leases, write: str
) -> None:
    hold = desk.acquire_lease(RUN, "one")
    first = hold.lease
    desk.mark_cancelled(RUN)
    getattr(hold, write)()
    changes: dict[str, dict[str, str]] = {
        "renew_lease": {
            "renewed": "2027-01-15T08:00:02.000000Z",
            "expires": "2027-01-15T08:02:02.000000Z",
        },
        "release_lease": {"released": "2027-01-15T08:00:02.000000Z"},
    }
    expected = replace(first, cancelled=True, **changes[write])  # type: ignore[arg-type]
    found = desk.read(RUN)
    assert found is not None
    assert (found[1], hold.lease) == (expected, expected)


@pytest.mark.parametrize("action", ["renew_lease", "release_lease", "require_lease_held", "bound"])
def test_whoever_s_lease_was_removed_is_told_so(
    desk: Leases, plain: Store, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    hold = desk.acquire_lease(RUN, "one")
    monkeypatch.setenv("CKPT_RUN", RUN)
    monkeypatch.setenv("CKPT_LEASE", "1")
    bound = desk.bind_writes_to_token(RUN)
    assert bound is not None
    bound.require_lease_held()
    remove(plain)
    with pytest.raises(LeaseLost) as caught:
        bound.make_lease_update() if action == "bound" else getattr(hold, action)()
    assert (
        caught.value.message
        == f"the lease of run {RUN} was removed; this process writes nothing more"
    )
    assert caught.value.hint == f"see the state of the run: git ckpt status {RUN}"
    assert desk.read(RUN) is None


def test_a_heartbeat_makes_a_lease_last(desk: Leases, clock: Clock) -> None:
    hold = desk.acquire_lease(RUN, "one")
    clock.instant += 100 * SECOND
    hold.renew_lease()
    assert (hold.lease.renewed, hold.lease.expires) == (
        "2027-01-15T08:01:42.000000Z",
        "2027-01-15T08:03:42.000000Z",
    )
    found = desk.read(RUN)
    assert found is not None
    assert found[1] == hold.lease


def test_whoever_lost_the_lease_can_neither_renew_it_nor_give_it_back(
    desk: Leases, clock: Clock
) -> None:
    suspended = desk.acquire_lease(RUN, "the suspended one")
    elsewhere(desk, suspended)
    clock.instant += leases.LENGTH
    taken = desk.acquire_lease(RUN, "the next")
    for action in (suspended.renew_lease, suspended.release_lease, suspended.require_lease_held):
        with pytest.raises(LeaseLost) as caught:
            action()
        assert caught.value.message.startswith(
            f"the lease of run {RUN} was taken over by the next on "
        )
        assert caught.value.exit_code == 11
    taken.require_lease_held()


def test_a_driver_that_wakes_up_after_a_takeover_writes_nothing_into_the_run(
    plain: Store, make_store: MakeStore, main_checkout: Checkout, clock: Clock
) -> None:
    first = plain.record("run-started", {}, start="Add login!")
    run = str(first.run)
    desk = checkpoints_of_store(plain).leases
    suspended = desk.acquire_lease(run, "the suspended one")
    checkpoints_of_store(plain).record("research-started", run=run, guard=suspended)
    elsewhere(desk, suspended)
    clock.instant += leases.LENGTH
    taken = desk.acquire_lease(run, "the next")
    other = make_store(main_checkout)
    checkpoints_of_store(other).record("research-started", run=run, guard=taken)
    before = main_checkout.refs()
    with pytest.raises(LeaseLost, match="taken over by the next"):
        checkpoints_of_store(plain).record("research-complete", run=run, guard=suspended)
    assert main_checkout.refs() == before
    assert (
        checkpoints_of_store(other).record("research-complete", run=run, guard=taken).sequence == 4
    )


def test_a_renewal_between_two_looks_does_not_stop_a_record(plain: Store, desk: Leases) -> None:
    first = plain.record("run-started", {}, start="Add login!")
    hold = desk.acquire_lease(str(first.run), "one")
    stale = hold.make_lease_update()
    hold.renew_lease()

    class Once:
        """Return the old value first, as if a renewal had come in between."""

        drives = True

        def __init__(self) -> None:
            self.left = [stale]

        def make_lease_update(self) -> object:
            return self.left.pop() if self.left else hold.make_lease_update()

        def require_lease_held(self) -> None:
            hold.require_lease_held()

    guard: Any = Once()
    recorded = checkpoints_of_store(plain).record("research-started", run=first.run, guard=guard)
    assert recorded.sequence == 2


def test_somebody_may_ask_the_holder_to_stop(desk: Leases) -> None:
    assert desk.mark_cancelled(RUN) is None
    hold = desk.acquire_lease(RUN, "one")
    asked = desk.mark_cancelled(RUN)
    assert asked is not None
    assert asked[1].pid == os.getpid()
    assert not hold.lease.cancelled
    hold.require_lease_held()
    assert hold.lease.cancelled
    hold.renew_lease()
    assert hold.lease.cancelled
    hold.release_lease()
    assert desk.mark_cancelled(RUN) is None


def test_a_holder_on_another_machine_is_asked_to_stop_while_its_lease_lasts(
    desk: Leases, clock: Clock
) -> None:
    far = elsewhere(desk, desk.acquire_lease(RUN, "far away"))
    desk_oid = desk.current_lease_oid(RUN)
    assert desk.mark_cancelled(RUN) == (desk_oid, far)
    found = desk.read(RUN)
    assert found is not None
    assert found[1] == replace(far, cancelled=True)
    clock.instant += leases.LENGTH
    assert desk.mark_cancelled(RUN) is None


def test_a_holder_that_says_something_meanwhile_is_asked_to_stop_all_the_same(desk: Leases) -> None:
    hold = desk.acquire_lease(RUN, "one")
    racing = Racing(desk, hold.renew_lease)
    asked = racing.mark_cancelled(RUN)
    assert asked is not None
    assert asked[1] == hold.lease
    hold.require_lease_held()
    assert hold.lease.cancelled


def test_a_lease_that_always_changes_cannot_be_cancelled(
    desk: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.acquire_lease(RUN, "one")

    def moved(lease: Lease, old: str, **_: object) -> str:
        raise RefMoved(f"{lease.run} is not {old}")

    monkeypatch.setattr(desk, "replace_lease", moved)
    with pytest.raises(BusyError) as caught:
        desk.mark_cancelled(RUN)
    assert (type(caught.value), caught.value.message, caught.value.hint) == (
        BusyError,
        f"cannot cancel run {RUN}: its lease changed at each of 20 attempts",
        "run the command again",
    )


@pytest.mark.parametrize("token", [None, "", "x", "-1", "1 ", "²", "٣"])
def test_a_token_that_is_none_binds_nobody(
    desk: Leases, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setenv("CKPT_RUN", RUN)
    monkeypatch.delenv("CKPT_LEASE", raising=False)
    if token is not None:
        monkeypatch.setenv("CKPT_LEASE", token)
    assert desk.bind_writes_to_token(RUN) is None


@pytest.mark.parametrize("kind", ["a commit", "nothing"])
def test_a_ref_that_leads_to_no_lease_is_refused(
    desk: Leases, main_checkout: Checkout, kind: str
) -> None:
    ref = "refs/ckpt/leases/" + RUN
    main_checkout.write(
        f".git/{ref}",
        f"{main_checkout.git('rev-parse', 'HEAD') if kind == 'a commit' else 'ab' * 20}\n",
    )
    with pytest.raises(InvalidCheckpoint) as caught:
        desk.read(RUN)
    assert (caught.value.ref, caught.value.field, caught.value.problem) == (
        ref,
        "",
        "does not point to a lease",
    )
    assert caught.value.hint == "find the cause: git ckpt verify"


def test_writers_that_a_driver_started_are_bound_to_its_lease(
    plain: Store, desk: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plain.record("run-started", {}, start="Add login!")
    run = str(first.run)
    hold = desk.acquire_lease(run, "one")
    assert checkpoints_of_store(plain).leases.bind_writes_to_token(run) is None
    monkeypatch.setenv("CKPT_RUN", run)
    monkeypatch.setenv("CKPT_LEASE", str(hold.lease.token))
    assert checkpoints_of_store(plain).leases.bind_writes_to_token(ANOTHER_RUN) is None
    assert plain.record("manual-complete", run=run).sequence == 2
    hold.release_lease()
    desk.acquire_lease(run, "two")
    for write in (plain.record, plain.save):
        with pytest.raises(LeaseLost, match="taken over by two"):
            write("manual-complete", run=run)
    assert plain.record("manual-complete").run is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("version = 1", "version = 2"), "version: written by a newer gitckpt"),
        (("pid = ", "pid = 0."), "pid: must be an integer, not 0."),
        (("token = 1", 'token = "1"'), "token: must be an integer, not '1'"),
        (("token = 1\n", ""), "token: missing"),
        ((f'run = "{RUN}"', f'run = "{ANOTHER_RUN}"'), f"run: {ANOTHER_RUN} is not the ref's name"),
        (('acquired = "', 'acquired = "x'), "acquired: not an RFC 3339 timestamp"),
        (("version", "\0"), "not a lease: "),
    ],
)
def test_what_is_no_lease_is_refused_with_its_ref_and_key(
    desk: Leases, change: tuple[str, str], problem: str
) -> None:
    text = render_lease(desk.acquire_lease(RUN, "one").lease).decode().replace(*change)
    with pytest.raises(InvalidCheckpoint) as caught:
        parse_lease(text.encode(), "refs/ckpt/leases/" + RUN)
    assert caught.value.message.startswith(f"refs/ckpt/leases/{RUN}: {problem}")
    field = "" if problem.startswith("not a lease") else problem.partition(":")[0]
    assert (caught.value.ref, caught.value.field) == ("refs/ckpt/leases/" + RUN, field)
    assert caught.value.hint == (
        "upgrade gitckpt: pip install -U gitckpt" if field == "version" else None
    )


def test_keys_of_a_later_version_survive(desk: Leases) -> None:
    data = render_lease(desk.acquire_lease(RUN, "one").lease) + b'mood = "good"\n'
    lease = parse_lease(data, "refs/ckpt/leases/" + RUN)
    assert lease.unknown == {"mood": "good"}
    assert render_lease(lease) == data


@pytest.mark.long
def test_of_eight_that_take_a_lease_at_the_same_moment_one_gets_it_each_time(
    main_checkout: Checkout, request: pytest.FixtureRequest
) -> None:
    command = [sys.executable, "-m", "tests.store.leases.lease_racer", str(main_checkout.path)]
    racers = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(STARTERS)
    ]
    try:
        for number in range(ALL_ROUNDS if request.config.getoption("--long") else ROUNDS):
            line = f"20270115-080000-race-{number}\n"
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(line)
            said = sorted(
                racer.stdout.readline().strip() for racer in racers if racer.stdout is not None
            )
            assert said == ["1", *["held"] * (STARTERS - 1)], line
    finally:
        for racer in racers:
            racer.communicate()


@pytest.mark.parametrize("record", ["record", "save"])
def test_a_run_that_a_driver_starts_is_bound_to_its_lease(
    desk: Leases, plain: Store, main_checkout: Checkout, record: str
) -> None:
    plain.record("run-started", {}, start="Add login!")
    hold = desk.acquire_lease(RUN, "a driver")
    made = getattr(checkpoints_of_store(plain), record)(
        "run-started", {}, start="child", guard=hold
    )
    assert head_of(plain, made.run).id == made.id
    elsewhere(desk, hold, token=2)
    before = main_checkout.refs()
    with pytest.raises(LeaseLost, match=f"^the lease of run {RUN} was taken over"):
        getattr(checkpoints_of_store(plain), record)("run-started", {}, start="child", guard=hold)
    assert main_checkout.refs() == before
