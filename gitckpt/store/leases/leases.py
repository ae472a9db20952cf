"""Leases: the right to drive a run, one holder at a time.

A lease is a blob at `refs/ckpt/leases/<run>` (docs/format.md), taken and renewed by swap. It stays when it is released, so that its
token only grows. Whoever holds it lets every ref transaction of the run verify it: a driver that was suspended, and whose lease somebody
took over meanwhile, can write nothing more.
"""

from __future__ import annotations

import os
import threading

from gitckpt.git import host
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Update
from gitckpt.model import times
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint, UsageError
from gitckpt.model.values import replace
from gitckpt.store.leases.lease import LONGEST, MOST_TOKENS, Lease, LeaseHeld, lost, parse, render
from gitckpt.store.leases.lock_files import LockFiles
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

LENGTH = 120 * times.MICRO
"""How long a lease is good without being renewed, in microseconds. It only matters to other machines."""

RENEWAL = 30.0
"""How often a lease is renewed, in seconds."""

FENCE_VARIABLE = "CKPT_LEASE"
"""Environment of what a driver starts: the token of its lease. Writers in the run's worktree that have it are bound to the lease."""

RUN_VARIABLE = "CKPT_RUN"
"""Environment of what a driver starts: the run."""


class Leases:
    """The leases of a repository.

    Args:
        repository: seen from any of its worktrees.
        clock: returns the current instant, in microseconds since the epoch.
    """

    def __init__(self, objects: Objects, refs: Refs, repository: Repository, clock: Callable[[], int]) -> None:
        self._objects = objects
        self._refs = refs
        self._repository = repository
        self._files = LockFiles(repository)
        self.clock = clock

    def read(self, run: str) -> tuple[str, Lease] | None:
        """Returns the lease of a run with the oid of its document; None where it never had one.

        Raises:
            InvalidCheckpoint: its ref does not hold a lease.
        """
        ref = layout.LEASES + run
        oid = self.current(run)
        if oid is None:
            return None
        found = next(self._objects.read([oid]))
        if found is None or found[0] != "blob":
            raise InvalidCheckpoint(ref, "", "does not point to a lease", hint="see what is wrong: git ckpt verify")
        return oid, parse(found[1], ref)

    def current(self, run: str) -> str | None:
        """Returns the oid of the document of a run's lease; None where it never had one."""
        return self._refs.read(layout.LEASES + run)

    def require_free(self, run: str) -> None:
        """Raises `LeaseHeld` where somebody who is alive drives a run."""
        found = self.read(run)
        if found is not None and self.is_held(*found):
            raise self.refusal(*found)

    def is_held(self, oid: str, lease: Lease) -> bool:
        """Tell whether somebody who is alive holds a lease: on this machine the lock of its process says so, else the lease itself.

        Args:
            oid: of its document.
            lease: what the document says.
        """
        if lease.released is not None:
            return False
        alive = self._files.is_alive(lease, oid)
        return self.clock() < lease.end if alive is None else alive

    def is_stalled(self, oid: str, lease: Lease) -> bool:
        """Tell whether the holder of a lease is alive and does nothing: was stopped, or is late with renewing it. Args: as `is_held`.

        A holder elsewhere who is that late does not hold it any more.
        """
        if lease.released is not None or lease.is_ours or not self._files.is_alive(lease, oid):
            return False
        half = (times.from_text(lease.renewed) + times.from_text(lease.expires)) // 2  # two renewals are overdue by then
        return self.clock() >= half or (lease.is_here and host.is_stopped(lease.pid))

    def is_process(self, oid: str, lease: Lease) -> bool:
        """Tell whether the process that a lease names took it, and is one that this process can see. Args: as `is_held`."""
        if not lease.is_here or lease.pid <= 1 or not lease.started:
            return False
        return self._files.knows(lease, oid) and host.start_of(lease.pid) == lease.started

    def refusal(self, oid: str, lease: Lease) -> LeaseHeld:
        """Return the error that a lease is somebody else's already. Args: as `is_held`."""
        who, run = lease.sentence(), lease.run
        if lease.is_endless(self.clock()):
            return LeaseHeld(
                f"run {run} is driven until {lease.expires}, which no driver says: by {who}",
                hint=f"if nobody does: git ckpt resume {run} --take-over",
            )
        if self.is_stalled(oid, lease):
            return LeaseHeld(
                f"run {run} is stalled: it is driven by {who}",
                hint=f"let process {lease.pid} go on, or go on without it: git ckpt resume {run} --take-over",
            )
        if self._files.is_alive(lease, oid):
            return LeaseHeld(f"run {run} is driven by {who}", hint=f"wait for its end, or stop it: git ckpt cancel {run}")
        until = times.to_text(lease.end)
        return LeaseHeld(
            f"run {run} is driven by {who}, elsewhere; its lease lasts until {until}, unless it is renewed",
            hint=f"then, or once it has ended: git ckpt resume {run}; to ask for its end: git ckpt cancel {run}",
        )

    def acquire(self, run: str, holder: str, length: int = LENGTH, *, take_over: bool = False) -> Hold:
        """Takes the lease of a run.

        Args:
            holder: what it is taken for, for people.
            length: how long it is good without being renewed, in microseconds.
            take_over: whether it is taken from somebody who is alive, too, if they are stalled, or if the lease says what no driver says
                (`Lease.is_endless`); they can write nothing more then.

        Raises:
            UsageError: it would be good for longer than a lease can be.
            LeaseHeld: somebody who is alive has it, or was faster.
            LockHeld, GitError: the ref could not be written.
        """
        if length > LONGEST:
            raise UsageError(f"a lease of {length} µs is longer than one can be", hint=f"the longest is {LONGEST}; it is renewed by itself")
        lease, found = self._next(run, holder, length, take_over=take_over)
        old, before = found or ("", None)
        try:
            oid = self._take(lease, old)
        except RefMoved:
            winner = self.read(run)
            if winner is None:
                raise
            raise self.refusal(*winner) from None
        return Hold(self, oid, lease, length, before, is_first=not old)

    def _take(self, lease: Lease, old: str) -> str:
        """Write a lease of this process, which others see to live from then on. Errors: as `swap`."""
        self._files.acquire(lease)
        try:
            return self.swap(lease, old, is_ours=True)
        except RefMoved:
            self._files.release(lease, is_over=True)
            raise
        except BaseException:
            self._files.release(lease, is_over=False)  # it may have been written
            raise

    def acquire_all(self, runs: Iterable[str], holder: str) -> tuple[dict[str, Hold], dict[str, CkptError]]:
        """Takes the leases of many runs, in one transaction where nobody is at any of them.

        Args:
            runs: their ids.
            holder: as for `acquire`.

        Returns:
            The leases by run, and for each other run why it could not be taken.
        """
        holds: dict[str, Hold] = {}
        refused: dict[str, CkptError] = {}
        documents, updates = [], []
        for run in runs:
            try:
                lease, found = self._next(run, holder, LENGTH)
                self._files.acquire(lease)
            except CkptError as error:
                refused[run] = error
                continue
            old, before = found or ("", None)
            documents.append(render(lease))
            updates.append(Update(layout.LEASES + run, object_id("blob", documents[-1], self._repository.object_format), old))
            holds[run] = Hold(self, updates[-1].new, lease, LENGTH, before, is_first=not old)
        try:
            if updates:
                self._files.note(next(iter(holds.values())).lease, [update.new for update in updates])
                self._objects.write([("blob", data) for data in documents])
                self._refs.update(updates)
        except CkptError:  # for that it is enough that somebody is at one of them
            wanted = list(holds)
            for hold in holds.values():
                hold.close(is_over=True)
            holds = {}
            for run in wanted:
                try:
                    holds[run] = self.acquire(run, holder)
                except CkptError as error:
                    refused[run] = error
        return holds, refused

    def _next(self, run: str, holder: str, length: int, *, take_over: bool = False) -> tuple[Lease, tuple[str, Lease | None] | None]:
        """Return the lease that may take the place of what is there, and that, which may be no lease. Args and errors: as `acquire`."""
        now = self.clock()
        before: Lease | None = None
        oid = self.current(run)
        try:
            found = self.read(run)
        except InvalidCheckpoint as error:
            if oid is None or error.field == "version":  # somebody drives it with a newer gitckpt, perhaps
                raise
            if not take_over:
                raise error.but(hint=f"if nobody drives the run: git ckpt resume {run} --take-over") from None
            token = MOST_TOKENS
        else:
            oid, before = found or (None, None)
            token = before.token + 1 if before is not None else 1
        if token >= MOST_TOKENS:
            token = now // times.MICRO  # more than any driver had: what an earlier one started must not pass for the new one's
        if oid is not None and before is not None and self.is_held(oid, before):
            may_be_taken = take_over and (self.is_stalled(oid, before) or before.is_endless(now))
            if not may_be_taken:
                raise self.refusal(oid, before)
        here, pid = host.here(), os.getpid()
        lease = Lease(
            run=run,
            token=token,
            holder=holder,
            host=here.name,
            boot=here.boot,
            namespace=here.namespace,
            pid=pid,
            started=host.start_of(pid),
            acquired=times.to_text(now),
            renewed=times.to_text(now),
            expires=times.to_text(now + length),
        )
        return lease, None if oid is None else (oid, before)

    def swap(self, lease: Lease, old: str, *, is_ours: bool = False) -> str:
        """Puts a lease in the place of another one, and returns the oid of its document.

        Args:
            lease: the new one.
            old: the oid of the one that must be there; "" for none.
            is_ours: whether the process that it names took it here, which is noted.

        Raises:
            RefMoved: another one was there.
        """
        data = render(lease)
        oid = object_id("blob", data, self._repository.object_format)
        if is_ours:
            self._files.note(lease, [oid])
        self._objects.write([("blob", data)])
        self._refs.update([Update(layout.LEASES + lease.run, oid, old)])
        return oid

    def let_go(self, lease: Lease, *, is_over: bool) -> None:
        """As `LockFiles.release`."""
        self._files.release(lease, is_over=is_over)

    def cancel(self, run: str) -> tuple[str, Lease] | None:
        """Asks whoever drives a run to stop; returns their lease as it was, with its oid, or None where nobody does.

        Raises:
            BusyError: the lease changed each time it was about to be written.
        """
        for _ in range(20):
            found = self.read(run)
            if found is None or not self.is_held(*found):
                return None
            try:
                self.swap(replace(found[1], cancelled=True), found[0], is_ours=self._files.knows(found[1], found[0]))
            except RefMoved:
                continue
            return found
        raise BusyError(f"the lease of {run} changes as fast as it is read", hint="run the command again")

    def bound(self, run: str) -> BoundToToken | None:
        """Returns what binds this process to the lease of the driver that started it; None where none started it, or for another run.

        Args:
            run: the run that is to be extended.
        """
        token = os.environ.get(FENCE_VARIABLE, "")
        if os.environ.get(RUN_VARIABLE) != run or not (token.isascii() and token.isdigit()):
            return None
        return BoundToToken(self, run, int(token))


class Hold:
    """A lease that this process holds, or held: threads may use it side by side.

    Attributes:
        lease: as it was last written.
        before: the lease that it replaced; None where that was no lease, and for the first one of its run.
        is_first: whether its run had none before.
        drives: that it is the driver's own.
    """

    drives = True

    def __init__(self, leases: Leases, oid: str, lease: Lease, length: int, before: Lease | None, *, is_first: bool) -> None:
        self._leases = leases
        self._oid = oid
        self._is_open = True
        self._length = length
        self._mutex = threading.RLock()
        self.lease = lease
        self.before = before
        self.is_first = is_first

    def update(self) -> Update:
        """Returns what a transaction of the run begins with: it fails unless the lease is still ours."""
        with self._mutex:
            return Update(layout.LEASES + self.lease.run, self._oid, self._oid)

    def check(self) -> None:
        """Looks whether the lease is still ours; takes in that somebody asked us to stop.

        Raises:
            LeaseLost: it is not.
        """
        with self._mutex:
            if self._leases.current(self.lease.run) == self._oid:
                return
            try:
                found = self._leases.read(self.lease.run)
            except InvalidCheckpoint as error:
                raise lost(self.lease.run, None, f"replaced by what is no lease ({error.problem})") from None
            if found is None or found[1].token != self.lease.token:
                raise lost(self.lease.run, found[1] if found else None)
            self._oid = found[0]
            self.lease = replace(self.lease, cancelled=found[1].cancelled)  # nothing else is for others to say

    def renew(self) -> None:
        """Says that we are still here.

        Raises:
            LeaseLost: the lease is somebody else's.
            LockHeld, GitError: the ref could not be written.
        """
        now = self._leases.clock()
        self._write(lambda lease: replace(lease, renewed=times.to_text(now), expires=times.to_text(now + self._length)))

    def release(self) -> None:
        """Gives the lease back. Errors: as `renew`."""
        now = times.to_text(self._leases.clock())
        try:
            self._write(lambda lease: replace(lease, released=now))
        finally:
            self.close(is_over=self.lease.released is not None)

    def close(self, *, is_over: bool) -> None:
        """Let go of the lock by which others see that this process lives.

        Args:
            is_over: whether the lease was given back, deleted or never written; else the lock file stays, and says that nobody has it.
        """
        with self._mutex:
            if self._is_open:
                self._is_open = False
                self._leases.let_go(self.lease, is_over=is_over)

    def _write(self, change: Callable[[Lease], Lease]) -> None:
        with self._mutex:
            while True:
                lease = change(self.lease)
                try:
                    self._oid, self.lease = self._leases.swap(lease, self._oid, is_ours=True), lease
                except RefMoved:
                    self.check()
                    continue
                return


class BoundToToken:
    """What binds a writer to the lease of the driver that started it, as its environment says.

    Args:
        leases: of the repository.
        token: the token of that driver.

    Attributes:
        drives: that it is not the driver's own.
    """

    drives = False

    def __init__(self, leases: Leases, run: str, token: int) -> None:
        self._leases = leases
        self._run = run
        self._token = token

    def update(self) -> Update:
        """As `Hold.update`."""
        found = self._leases.read(self._run)
        if found is None or found[1].token != self._token:
            raise lost(self._run, found[1] if found else None)
        return Update(layout.LEASES + self._run, found[0], found[0])

    def check(self) -> None:
        """As `Hold.check`."""
        self.update()
