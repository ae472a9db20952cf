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
from gitckpt.store.leases.lease import LONGEST, Lease, held, lost, parse, render
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs

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
        object_format: "sha1" or "sha256".
        clock: returns the current instant, in microseconds since the epoch.
    """

    def __init__(self, objects: Objects, refs: Refs, object_format: str, clock: Callable[[], int]) -> None:
        self._objects = objects
        self._refs = refs
        self._format = object_format
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
        now = self.clock()
        if found is not None and found[1].is_held(now):
            raise held(run, found[1], now)

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
        now = self.clock()
        lease, found = self._next(run, holder, length, now, take_over=take_over)
        try:
            oid = self.swap(lease, found[0] if found else "")
        except RefMoved:
            winner = self.read(run)
            if winner is None:
                raise
            raise held(run, winner[1], now) from None
        return Hold(self, oid, lease, length, found[1] if found else None)

    def acquire_all(self, runs: Iterable[str], holder: str) -> tuple[dict[str, Hold], dict[str, CkptError]]:
        """Takes the leases of many runs, in one transaction where nobody is at any of them.

        Args:
            runs: their ids.
            holder: as for `acquire`.

        Returns:
            The leases by run, and for each other run why it could not be taken.
        """
        now = self.clock()
        holds: dict[str, Hold] = {}
        refused: dict[str, CkptError] = {}
        documents, updates = [], []
        for run in runs:
            try:
                lease, found = self._next(run, holder, LENGTH, now)
            except CkptError as error:
                refused[run] = error
                continue
            documents.append(render(lease))
            oid, old = object_id("blob", documents[-1], self._format), found[0] if found else ""
            updates.append(Update(layout.LEASES + run, oid, old))
            holds[run] = Hold(self, oid, lease, LENGTH, found[1] if found else None)
        try:
            if updates:
                self._objects.write([("blob", data) for data in documents])
                self._refs.update(updates)
        except CkptError:  # for that it is enough that somebody is at one of them
            wanted, holds = list(holds), {}
            for run in wanted:
                try:
                    holds[run] = self.acquire(run, holder)
                except CkptError as error:
                    refused[run] = error
        return holds, refused

    def _next(self, run: str, holder: str, length: int, now: int, *, take_over: bool = False) -> tuple[Lease, tuple[str, Lease] | None]:
        """Returns the lease that may take the place of what is there, and that. Args and errors: as `acquire`."""
        found = self.read(run)
        if found is not None and found[1].is_held(now) and not (take_over and (found[1].is_stalled(now) or found[1].is_endless(now))):
            raise held(run, found[1], now)
        here, pid = host.here(), os.getpid()
        lease = Lease(
            run=run,
            token=found[1].token + 1 if found else 1,
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
        return lease, found

    def swap(self, lease: Lease, old: str) -> str:
        """Puts a lease in the place of another one, and returns the oid of its document.

        Args:
            lease: the new one.
            old: the oid of the one that must be there; "" for none.

        Raises:
            RefMoved: another one was there.
        """
        data = render(lease)
        oid = object_id("blob", data, self._format)
        self._objects.write([("blob", data)])
        self._refs.update([Update(layout.LEASES + lease.run, oid, old)])
        return oid

    def cancel(self, run: str) -> Lease | None:
        """Asks whoever drives a run to stop; returns their lease, or None where nobody does.

        Raises:
            BusyError: the lease changed each time it was about to be written.
        """
        for _ in range(20):
            found = self.read(run)
            if found is None or not found[1].is_held(self.clock()):
                return None
            try:
                self.swap(replace(found[1], cancelled=True), found[0])
            except RefMoved:
                continue
            return found[1]
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
        before: the lease that it replaced; None for the first one of its run.
        drives: that it is the driver's own.
    """

    drives = True

    def __init__(self, leases: Leases, oid: str, lease: Lease, length: int, before: Lease | None) -> None:
        self._leases = leases
        self._oid = oid
        self._length = length
        self._mutex = threading.RLock()
        self.lease = lease
        self.before = before

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
            found = self._leases.read(self.lease.run)
            if found is None or found[1].token != self.lease.token:
                raise lost(self.lease.run, found[1] if found else None)
            self._oid, self.lease = found

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
        self._write(lambda lease: replace(lease, released=now))

    def _write(self, change: Callable[[Lease], Lease]) -> None:
        with self._mutex:
            while True:
                lease = change(self.lease)
                try:
                    self._oid, self.lease = self._leases.swap(lease, self._oid), lease
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
