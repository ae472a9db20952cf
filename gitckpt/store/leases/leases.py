"""Leases: the right to drive a run, one holder at a time.

A lease is a blob at `refs/ckpt/leases/<run>` (docs/format.md), taken and renewed by swap. It stays when it is released, so that its
token only grows. Whoever holds it lets every ref transaction of the run verify it: a driver that was suspended, and whose lease somebody
took over meanwhile, can write nothing more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from gitckpt.git import filesystem
from gitckpt.git.lock import Lock, is_locked
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Update
from gitckpt.model import budget, times, toml
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint, UsageError
from gitckpt.model.fence import fenced
from gitckpt.model.table import TableReader
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository


# A lease: the document that says who drives a run, and the errors of whoever finds that somebody else does.


LONGEST = 600 * times.MICRO
"""How long a lease counts at most after it was renewed, in microseconds, whatever it says: 20 times what lies between two renewals."""

MOST_TOKENS = 2**62
"""So many holders no run has; a larger token leaves no room for those that follow."""

_VERSION = 1
_INSTANTS = ("acquired", "renewed", "expires")
_TEXTS = ("run", "holder", "host", "boot", "namespace", "started", *_INSTANTS)


class LeaseHeld(BusyError):
    """Somebody who is alive drives the run."""


class LeaseLost(BusyError):
    """Somebody else drives the run by now; what was about to be written was not."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who drives a run. Field names are the keys of the document; instants are timestamps."""

    run: str
    token: int
    """Grows with every holder."""

    holder: str
    """What they are doing, for people."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    """When the process started, as `host.start_of` says it."""

    acquired: str
    renewed: str
    expires: str
    released: str | None = None
    cancelled: bool = False
    """Whether somebody asked the holder to stop."""

    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """When it ends for those who cannot see its process, in microseconds since the epoch."""
        return min(times.from_text(self.expires), times.from_text(self.renewed) + LONGEST)

    def is_endless(self, now: int) -> bool:
        """Tells whether it says of itself what no driver says: that it is good for longer than `LONGEST`, or was renewed so far ahead.

        Args:
            now: the current instant, in microseconds since the epoch.
        """
        renewed = times.from_text(self.renewed)
        return self.released is None and (times.from_text(self.expires) - renewed > LONGEST or renewed - now > LONGEST)

    @property
    def is_here(self) -> bool:
        """Whether its process, if there still is one, is among those that this process can see."""
        here = filesystem.here()
        return (self.host, self.boot, self.namespace) == (here.name, here.boot, here.namespace)

    @property
    def is_ours(self) -> bool:
        """Whether this very process took it."""
        return self.is_here and self.pid == os.getpid()

    def sentence(self) -> str:
        """Names the holder, for people."""
        return f"{self.holder} on {self.host}, process {self.pid}, which last said so at {self.renewed}"


def render(lease: Lease) -> bytes:
    """Returns the document of a lease."""
    found: dict[str, Any] = {"version": _VERSION}
    for name in Lease.__slots__:
        value = getattr(lease, name)
        if name != "unknown" and value is not None and value is not False:
            found[name] = value
    return toml.dumps(found | dict(lease.unknown), budget.RECORD).encode()


def parse(data: bytes, ref: str) -> Lease:
    """Returns the lease of a document.

    Args:
        data: the blob.
        ref: full name of the ref it was found at; its last part must be the run.

    Raises:
        InvalidCheckpoint: it is none; ref and key are named.
    """
    return fenced(ref, lambda: _parsed(data, ref))


def _parsed(data: bytes, ref: str) -> Lease:
    try:
        budget.require_size(len(data), budget.RECORD)
        found = toml.loads(data.decode("utf-8"), budget.RECORD)
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not a lease: {error}") from None

    take = _Reader(found, ref)
    if take.required("version", int) > _VERSION:
        raise InvalidCheckpoint(ref, "version", "written by a newer gitckpt", hint="upgrade gitckpt: pip install -U gitckpt")
    texts = {key: take.required(key, str) for key in _TEXTS}
    for key in _INSTANTS:
        take.instant(key)
    if layout.LEASES + texts["run"] != ref:
        raise InvalidCheckpoint(ref, "run", f"{texts['run']} is not the ref's name")
    token, pid = take.required("token", int), take.required("pid", int)
    if not 0 < token < MOST_TOKENS:
        raise InvalidCheckpoint(ref, "token", f"{token} is no token: 1 to 2^62 - 1")
    released, cancelled = take.optional("released", str), take.flag("cancelled")
    return Lease(token=token, pid=pid, released=released, cancelled=cancelled, unknown=take.rest, **texts)


class _Reader(TableReader):
    """Its errors call types by the names that Python has for them."""

    kinds: Mapping[type, str] = {kind: kind.__name__ for kind in TableReader.kinds}


def lost(run: str, lease: Lease | None, why: str = "removed") -> LeaseLost:
    """Returns the error that a lease is not ours any more: whose it is, or why there is none."""
    who = f"taken over by {lease.sentence()}" if lease else why
    return LeaseLost(f"the lease of run {run} was {who}; nothing more is written", hint=f"see what became of it: git ckpt status {run}")


# Lock files of the processes that drive runs: whoever can lock one knows that its process is gone.


_PATIENCE = 5.0
"""In seconds: whoever looks whether a process lives has its lock for a moment."""


class _Open:
    """The lock file of this process in one repository.

    Attributes:
        leases: how many leases need it.
        stays: whether a lease could not be given back: the file, without its lock, says that nobody has it.
    """

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.leases = 0
        self.stays = False


_open: dict[str, _Open] = {}
_mutex = threading.Lock()


def _after_fork() -> None:
    """Close the files in a forked child, which would keep them locked after the death of its parent."""
    global _mutex  # noqa: PLW0603 - another thread may have had it
    _mutex = threading.Lock()
    for each in _open.values():
        each.lock.leave_to_parent()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


class LockFiles:
    """The lock files of a repository.

    Args:
        repository: seen from any of its worktrees.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def acquire(self, lease: Lease) -> None:
        """Lock the file of this process, for a lease of its own that is about to be written.

        Where the file system has no locks, or takes no file, the lease itself says how long it lasts.

        Raises:
            BusyError: somebody else keeps it locked.
        """
        self._repository.make_private_dir()
        path = self._path(lease)
        with _mutex:
            mine = _open.get(path) or _Open(Lock(path, _PATIENCE))
            if not mine.leases and not mine.lock.acquire() and mine.lock.is_taken:
                raise BusyError(f"{path} is locked by another process", hint="run the command again")
            mine.leases += 1
            _open[path] = mine

    def release(self, lease: Lease, *, is_over: bool) -> None:
        """Give up the lock where no other lease of this process needs it.

        Args:
            lease: of this process.
            is_over: whether its document says that nobody has it.
        """
        path = self._path(lease)
        with _mutex:
            mine = _open.get(path)
            if mine is None:
                return  # it is that of the process that forked this one
            mine.leases -= 1
            mine.stays |= not is_over
            if not mine.leases:
                del _open[path]
                mine.lock.release(delete=not mine.stays)

    def note(self, lease: Lease, oids: Iterable[str]) -> None:
        """Note documents of leases as written here, by the process that a lease names or for it."""
        try:
            # Never made anew: without its lock, the file would say that the process is gone.
            fd = os.open(self._path(lease), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return  # the lease lasts as long as it says
        with open(fd, "wb", buffering=0) as file:
            file.write("\n".join(["", *oids, ""]).encode("ascii"))

    def knows(self, lease: Lease, oid: str) -> bool:
        """Tell whether a lease was written here.

        Args:
            lease: what the document says.
            oid: of the document.
        """
        try:
            fd = os.open(self._path(lease), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, CkptError):
            return False
        with open(fd, "rb", buffering=0) as file:
            return oid.encode("ascii") in file.read().split(b"\n")

    def is_alive(self, lease: Lease, oid: str) -> bool | None:
        """Tell whether the process lives that wrote a lease; None where that cannot be told. Args: as for `knows`."""
        if not self.knows(lease, oid):
            return None
        locked = is_locked(self._path(lease))
        if locked:
            return True
        if locked is None:  # a file system without locks
            return filesystem.start_of(lease.pid) == lease.started if lease.is_here and lease.boot else None
        return (
            False if lease.boot and lease.boot == filesystem.here().boot else None
        )  # across machines, a network file system may have none

    def _path(self, lease: Lease) -> str:
        process = f"{lease.boot} {lease.namespace} {lease.pid} {lease.started}"
        name = f"{layout.DRIVER}.{abs(lease.pid)}.{object_id('blob', process.encode('utf-8', 'replace'), 'sha1')}"
        return os.path.join(self._repository.private_dir, name)


# Leases: the right to drive a run, one holder at a time.


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
        return self.clock() >= half or (lease.is_here and filesystem.is_stopped(lease.pid))

    def is_process(self, oid: str, lease: Lease) -> bool:
        """Tell whether the process that a lease names took it, and is one that this process can see. Args: as `is_held`."""
        if not lease.is_here or lease.pid <= 1 or not lease.started:
            return False
        return self._files.knows(lease, oid) and filesystem.start_of(lease.pid) == lease.started

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
        here, pid = filesystem.here(), os.getpid()
        lease = Lease(
            run=run,
            token=token,
            holder=holder,
            host=here.name,
            boot=here.boot,
            namespace=here.namespace,
            pid=pid,
            started=filesystem.start_of(pid),
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
