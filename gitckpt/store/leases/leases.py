"""Leases: the right to drive a run, one holder at a time.

A lease is a blob at `refs/ckpt/leases/<run>` (docs/format.md), written by compare-and-swap. It
stays after its release, so that its token only grows. Each ref transaction of the run verifies the
lease: a suspended driver whose lease was taken over can write nothing more.
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
from gitckpt.model.skip_invalid import fenced
from gitckpt.model.table import TableReader
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

# The lease document and its errors.

# Longest validity after a renewal, in microseconds, whatever the lease says: 20 renewal intervals.
LONGEST = 600 * times.MICRO

# Tokens are less than this. A larger one would leave no room for those of later holders.
MOST_TOKENS = 2**62

_VERSION = 1
_INSTANTS = ("acquired", "renewed", "expires")
_TEXTS = ("run", "holder", "host", "boot", "namespace", "started", *_INSTANTS)


class LeaseHeld(BusyError):
    """A live process drives the run."""


class LeaseLost(BusyError):
    """Another process now drives the run; the write was refused."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The holder of a run. Fields are the keys of the document, times are timestamps."""

    run: str
    # Increases with every holder.
    token: int
    # What the holder does, for people.
    holder: str
    host: str
    boot: str
    namespace: str
    pid: int
    # Start of the process, from `filesystem.start_of`.
    started: str
    acquired: str
    renewed: str
    expires: str
    released: str | None = None
    # Whether the holder was asked to stop.
    cancelled: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Expiry for readers that cannot see the process, in microseconds since the epoch."""
        return min(times.from_text(self.expires), times.from_text(self.renewed) + LONGEST)

    def is_endless(self, now: int) -> bool:
        """Return whether the lease is valid longer than any driver would write."""
        expires, renewed = times.from_text(self.expires), times.from_text(self.renewed)
        return self.released is None and max(expires - renewed, renewed - now) > LONGEST

    @property
    def is_here(self) -> bool:
        """Whether its process, if it lives, is visible to this process."""
        here = filesystem.here()
        return (self.host, self.boot, self.namespace) == (here.name, here.boot, here.namespace)

    @property
    def is_ours(self) -> bool:
        """Whether this process took it."""
        return self.is_here and self.pid == os.getpid()

    def sentence(self) -> str:
        """Name the holder, for people."""
        return f"{self.holder} on {self.host}, process {self.pid}, renewed at {self.renewed}"


def render(lease: Lease) -> bytes:
    document: dict[str, Any] = {"version": _VERSION}
    for name in Lease.__slots__:
        value = getattr(lease, name)
        if name != "unknown" and value is not None and value is not False:
            document[name] = value
    return toml.dumps(document | dict(lease.unknown), budget.RECORD).encode()


def parse(data: bytes, ref: str) -> Lease:
    """Parse the document of a lease; the last part of its ref must be the run."""
    return fenced(ref, lambda: _parse(data, ref))


def _parse(data: bytes, ref: str) -> Lease:
    try:
        budget.require_size(len(data), budget.RECORD)
        document = toml.loads(data.decode("utf-8"), budget.RECORD)
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not a lease: {error}") from None

    reader = _LeaseReader(document, ref)
    if reader.required("version", int) > _VERSION:
        hint = "upgrade gitckpt: pip install -U gitckpt"
        raise InvalidCheckpoint(ref, "version", "written by a newer gitckpt", hint=hint)
    texts = {key: reader.required(key, str) for key in _TEXTS}
    for key in _INSTANTS:
        reader.instant(key)
    if ref_names.LEASES + texts["run"] != ref:
        raise InvalidCheckpoint(ref, "run", f"{texts['run']} is not the ref's name")
    token, pid = reader.required("token", int), reader.required("pid", int)
    if not 0 < token < MOST_TOKENS:
        raise InvalidCheckpoint(ref, "token", f"{token} is not between 1 and 2^62 - 1")
    released, cancelled = reader.optional("released", str), reader.flag("cancelled")
    return Lease(
        token=token, pid=pid, released=released, cancelled=cancelled, unknown=reader.rest, **texts
    )


class _LeaseReader(TableReader):
    """A reader whose errors use Python's names of types."""

    kinds: Mapping[type, str] = {kind: kind.__name__ for kind in TableReader.kinds}


def lost(run: str, lease: Lease | None, why: str = "removed") -> LeaseLost:
    """Return the error that another process has the lease, or why it is gone."""
    reason = f"taken over by {lease.sentence()}" if lease else why
    return LeaseLost(
        f"the lease of run {run} was {reason}; nothing more is written",
        hint=f"see its state: git ckpt status {run}",
    )


# Lock files of driver processes. If one can be locked, its process is gone.

# In seconds. A process that checks for life holds the lock for a moment.
_PATIENCE = 5.0


class _SharedLock:
    """The lock file of this process, shared by all its leases in a repository."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.leases = 0  # how many need it
        # A lease could not be released: the unlocked file stays to show that its holder is gone.
        self.stays = False


_locks: dict[str, _SharedLock] = {}
_mutex = threading.Lock()


def _after_fork() -> None:
    """Close the files in a forked child, which would keep them locked."""
    global _mutex  # noqa: PLW0603 - another thread may have held it
    _mutex = threading.Lock()
    for shared in _locks.values():
        shared.lock.leave_to_parent()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


class LockFiles:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def acquire(self, lease: Lease) -> None:
        """Lock the file of this process for a lease that is about to be written.

        Without file locks or room for the file, the lease itself limits its validity.
        """
        self._repository.make_private_dir()
        path = self._path(lease)
        with _mutex:
            shared = _locks.get(path) or _SharedLock(Lock(path, _PATIENCE))
            if not shared.leases and not shared.lock.acquire() and shared.lock.is_taken:
                hint = "run the command again"
                raise BusyError(f"{path} is locked by another process", hint=hint)
            shared.leases += 1
            _locks[path] = shared

    def release(self, lease: Lease, *, is_over: bool) -> None:
        """Release the lock unless other leases of this process need it."""
        path = self._path(lease)
        with _mutex:
            shared = _locks.get(path)
            if shared is None:
                return  # the lock belongs to the parent of this forked process
            shared.leases -= 1
            shared.stays |= not is_over  # else the document of the lease shows that it is over
            if not shared.leases:
                del _locks[path]
                shared.lock.release(delete=not shared.stays)

    def note(self, lease: Lease, oids: Iterable[str]) -> None:
        """List lease documents as written here, by or for the lease's process."""
        try:
            # Never create the file: an unlocked one shows that the process is gone.
            fd = self._open(lease, os.O_WRONLY | os.O_APPEND)
        except OSError:
            return  # the lease is valid until it expires
        with open(fd, "wb", buffering=0) as file:
            file.write("\n".join(["", *oids, ""]).encode("ascii"))

    def knows(self, lease: Lease, oid: str) -> bool:
        try:
            fd = self._open(lease, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, CkptError):
            return False
        with open(fd, "rb", buffering=0) as file:
            return oid.encode("ascii") in file.read().split(b"\n")

    def _open(self, lease: Lease, flags: int) -> int:
        return os.open(self._path(lease), flags | os.O_NOFOLLOW | os.O_CLOEXEC)

    def is_alive(self, lease: Lease, oid: str) -> bool | None:
        """Return whether the writer of a lease lives; None if unknown."""
        if not self.knows(lease, oid):
            return None
        if locked := is_locked(self._path(lease)):
            return True
        if locked is None:  # a file system without locks
            is_visible = lease.is_here and lease.boot
            return filesystem.start_of(lease.pid) == lease.started if is_visible else None
        # A network file system may not lock across machines.
        return False if lease.boot and lease.boot == filesystem.here().boot else None

    def _path(self, lease: Lease) -> str:
        process = f"{lease.boot} {lease.namespace} {lease.pid} {lease.started}"
        digest = object_id("blob", process.encode("utf-8", "replace"), "sha1")
        name = f"{ref_names.DRIVER}.{abs(lease.pid)}.{digest}"
        return os.path.join(self._repository.private_dir, name)


# Acquire, check, renew and release leases.

# Validity without renewal, in microseconds. Only other machines rely on it.
LENGTH = 120 * times.MICRO

# Seconds between renewals.
RENEWAL = 30.0

# Environment of a driver's children: the lease token, which binds their writes to it, and the run.
FENCE_VARIABLE = "CKPT_LEASE"
RUN_VARIABLE = "CKPT_RUN"


class Leases:
    def __init__(
        self, objects: Objects, refs: Refs, repository: Repository, clock: Callable[[], int]
    ) -> None:
        self._objects = objects
        self._refs = refs
        self._repository = repository
        self._files = LockFiles(repository)
        self.clock = clock

    def read(self, run: str) -> tuple[str, Lease] | None:
        """Return the document's oid and the lease of a run; None if it never had one."""
        ref = ref_names.LEASES + run
        oid = self.current(run)
        if oid is None:
            return None
        stored = next(self._objects.read([oid]))
        if stored is None or stored[0] != "blob":
            hint = "see what is wrong: git ckpt verify"
            raise InvalidCheckpoint(ref, "", "does not point to a lease", hint=hint)
        return oid, parse(stored[1], ref)

    def current(self, run: str) -> str | None:
        return self._refs.read(ref_names.LEASES + run)

    def require_free(self, run: str) -> None:
        lease = self.read(run)
        if lease is not None and self.is_held(*lease):
            raise self.refusal(*lease)

    def is_held(self, oid: str, lease: Lease) -> bool:
        """Return whether a live process holds a lease.

        On this machine the lock of the process decides, elsewhere the expiry of the lease.
        """
        if lease.released is not None:
            return False
        alive = self._files.is_alive(lease, oid)
        return self.clock() < lease.end if alive is None else alive

    def is_stalled(self, oid: str, lease: Lease) -> bool:
        """Return whether a live holder is stopped or has missed two renewals.

        A holder on another machine that is this late no longer holds the lease.
        """
        if lease.released is not None or lease.is_ours or not self._files.is_alive(lease, oid):
            return False
        # Two renewals are overdue at half of the validity.
        half = (times.from_text(lease.renewed) + times.from_text(lease.expires)) // 2
        return self.clock() >= half or (lease.is_here and filesystem.is_stopped(lease.pid))

    def is_process(self, oid: str, lease: Lease) -> bool:
        """Return whether the process that a lease names took it and is visible."""
        if not lease.is_here or lease.pid <= 1 or not lease.started:
            return False
        return self._files.knows(lease, oid) and filesystem.start_of(lease.pid) == lease.started

    def refusal(self, oid: str, lease: Lease) -> LeaseHeld:
        run, driven = lease.run, f"run {lease.run} is driven by {lease.sentence()}"
        take_over = f"git ckpt resume {run} --take-over"
        if lease.is_endless(self.clock()):
            sentence = f"{driven}; its lease is valid too long: until {lease.expires}"
            return LeaseHeld(sentence, hint=f"if that process is gone: {take_over}")
        if self.is_stalled(oid, lease):
            hint = f"let process {lease.pid} continue, or take the run from it: {take_over}"
            return LeaseHeld(f"{driven}, which is stalled", hint=hint)
        if self._files.is_alive(lease, oid):
            return LeaseHeld(driven, hint=f"wait for its end, or stop it: git ckpt cancel {run}")
        return LeaseHeld(
            f"{driven}, on another machine; unless renewed, its lease ends at "
            f"{times.to_text(lease.end)}",
            hint=f"after that: git ckpt resume {run}; to ask it to stop: git ckpt cancel {run}",
        )

    def acquire(
        self, run: str, holder: str, length: int = LENGTH, *, take_over: bool = False
    ) -> Hold:
        """Acquire the lease of a run.

        Args:
            holder: what the lease is for, shown to people.
            length: validity without renewal, in microseconds.
            take_over: whether to take it from a live holder that is stalled, or whose lease is
                invalid (`Lease.is_endless`). That holder can write nothing more.

        Raises:
            LeaseHeld: a live process holds it.
            LockHeld, GitError: the ref could not be written.
        """
        if length > LONGEST:
            raise UsageError(
                f"a lease of {length} µs is too long", hint=f"the longest is {LONGEST} µs"
            )
        lease, old, before = self._next(run, holder, length, take_over=take_over)
        try:
            oid = self._take(lease, old)
        except RefMoved:
            winner = self.read(run)
            if winner is None:
                raise
            raise self.refusal(*winner) from None
        return Hold(self, oid, lease, length, before, is_first=not old)

    def _take(self, lease: Lease, old: str) -> str:
        self._files.acquire(lease)
        try:
            return self.swap(lease, old, is_ours=True)
        except RefMoved:
            self._files.release(lease, is_over=True)
            raise
        except BaseException:
            self._files.release(lease, is_over=False)  # it may have been written
            raise

    def acquire_all(
        self, runs: Iterable[str], holder: str
    ) -> tuple[dict[str, Hold], dict[str, CkptError]]:
        """Acquire the leases of many runs, in one transaction if possible.

        Return the holds, and the errors of the runs whose lease could not be acquired.
        """
        holds: dict[str, Hold] = {}
        refused: dict[str, CkptError] = {}
        documents, updates = [], []
        for run in runs:
            try:
                lease, old, before = self._next(run, holder, LENGTH)
                self._files.acquire(lease)
            except CkptError as error:
                refused[run] = error
                continue
            documents.append(render(lease))
            oid = object_id("blob", documents[-1], self._repository.object_format)
            updates.append(Update(ref_names.LEASES + run, oid, old))
            holds[run] = Hold(self, oid, lease, LENGTH, before, is_first=not old)
        try:
            if updates:
                any_lease = next(iter(holds.values())).lease
                self._files.note(any_lease, [update.new for update in updates])
                self._objects.write([("blob", data) for data in documents])
                self._refs.update(updates)
        except CkptError:  # one held lease fails the whole transaction
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

    def _next(
        self, run: str, holder: str, length: int, *, take_over: bool = False
    ) -> tuple[Lease, str, Lease | None]:
        """Return the next lease of a run; oid ("" for none) and lease that it replaces."""
        now = self.clock()
        before: Lease | None = None
        oid = self.current(run) or ""
        try:
            oid, before = self.read(run) or ("", None)
            token = before.token + 1 if before is not None else 1
        except InvalidCheckpoint as error:
            if not oid or error.field == "version":  # a newer gitckpt may drive it
                raise
            if not take_over:
                hint = f"if the run has no driver: git ckpt resume {run} --take-over"
                raise error.but(hint=hint) from None
            token = MOST_TOKENS
        if token >= MOST_TOKENS:
            # Larger than any earlier token, whose children must stay fenced.
            token = now // times.MICRO
        if before is not None and self.is_held(oid, before):
            may_be_taken = take_over and (self.is_stalled(oid, before) or before.is_endless(now))
            if not may_be_taken:
                raise self.refusal(oid, before)
        here, pid, instant = filesystem.here(), os.getpid(), times.to_text(now)
        lease = Lease(
            run=run,
            token=token,
            holder=holder,
            host=here.name,
            boot=here.boot,
            namespace=here.namespace,
            pid=pid,
            started=filesystem.start_of(pid),
            acquired=instant,
            renewed=instant,
            expires=times.to_text(now + length),
        )
        return lease, oid, before

    def swap(self, lease: Lease, old: str, *, is_ours: bool = False) -> str:
        """Replace a lease, expected at the oid `old` ("" for none); return the new oid.

        `is_ours`: the process that `lease` names took it here; then the oid is listed as such.
        Raises `RefMoved` if another lease is there.
        """
        data = render(lease)
        oid = object_id("blob", data, self._repository.object_format)
        if is_ours:
            self._files.note(lease, [oid])
        self._objects.write([("blob", data)])
        self._refs.update([Update(ref_names.LEASES + lease.run, oid, old)])
        return oid

    def let_go(self, lease: Lease, *, is_over: bool) -> None:
        self._files.release(lease, is_over=is_over)

    def cancel(self, run: str) -> tuple[str, Lease] | None:
        """Ask the driver of a run to stop; return its lease with oid, or None without one."""
        for _ in range(20):
            held = self.read(run)
            if held is None or not self.is_held(*held):
                return None
            oid, lease = held
            is_ours = self._files.knows(lease, oid)
            try:
                self.swap(replace(lease, cancelled=True), oid, is_ours=is_ours)
            except RefMoved:
                continue
            return held
        raise BusyError(
            f"the lease of {run} changed at each of 20 attempts", hint="run the command again"
        )

    def bound(self, run: str) -> BoundToToken | None:
        """Return the guard for the driver that started this process for this run, if any."""
        token = os.environ.get(FENCE_VARIABLE, "")
        if os.environ.get(RUN_VARIABLE) != run or not (token.isascii() and token.isdigit()):
            return None
        return BoundToToken(self, run, int(token))


class Hold:
    """A lease that this process holds or held; safe for threads."""

    drives = True  # this is the driver's own lease

    def __init__(
        self,
        leases: Leases,
        oid: str,
        lease: Lease,
        length: int,
        before: Lease | None,
        *,
        is_first: bool,
    ) -> None:
        self._leases = leases
        self._oid = oid
        self._is_open = True
        self._length = length
        self._mutex = threading.RLock()
        self.lease = lease  # as last written
        self.before = before  # the lease that it replaced; None for the first or an invalid one
        self.is_first = is_first  # its run had none before

    def update(self) -> Update:
        """Return the update that fails a transaction unless the lease is still held."""
        with self._mutex:
            return Update(ref_names.LEASES + self.lease.run, self._oid, self._oid)

    def check(self) -> None:
        """Check that the lease is held, else `LeaseLost`; read whether it was cancelled."""
        with self._mutex:
            if self._leases.current(self.lease.run) == self._oid:
                return
            try:
                current = self._leases.read(self.lease.run)
            except InvalidCheckpoint as error:
                reason = f"replaced by an invalid one ({error.problem})"
                raise lost(self.lease.run, None, reason) from None
            if current is None or current[1].token != self.lease.token:
                raise lost(self.lease.run, current[1] if current else None)
            # Others may change nothing else.
            self._oid = current[0]
            self.lease = replace(self.lease, cancelled=current[1].cancelled)

    def renew(self) -> None:
        now = self._leases.clock()
        renewed, expires = times.to_text(now), times.to_text(now + self._length)
        self._write(lambda lease: replace(lease, renewed=renewed, expires=expires))

    def release(self) -> None:
        now = times.to_text(self._leases.clock())
        try:
            self._write(lambda lease: replace(lease, released=now))
        finally:
            self.close(is_over=self.lease.released is not None)

    def close(self, *, is_over: bool) -> None:
        """Release the lock by which others see that this process lives.

        If the lease is not over (released, deleted or never written), the lock file stays,
        unlocked, and tells others that the lease has no holder.
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
    """Binds a writer to the lease of the driver that started it."""

    drives = False  # this is not the driver's own lease

    def __init__(self, leases: Leases, run: str, token: int) -> None:
        self._leases = leases
        self._run = run
        self._token = token

    def update(self) -> Update:
        """Return the update that fails a transaction if another driver has the run."""
        current = self._leases.read(self._run)
        if current is None or current[1].token != self._token:
            raise lost(self._run, current[1] if current else None)
        return Update(ref_names.LEASES + self._run, current[0], current[0])

    def check(self) -> None:
        self.update()
