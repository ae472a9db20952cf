"""Acquire, renew and check leases; only the holder of a lease may drive its run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from gitckpt.git import filesystem
from gitckpt.git.lock import FileLock, is_locked
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, RefUpdate
from gitckpt.model import budget, times, toml
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint, UsageError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.model.table import TableReader, parse_record
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

# Longest validity after a renewal, in microseconds, whatever the lease says: 20 renewal intervals.
LONGEST = 600 * times.MICRO
# Tokens are less than this. A larger one would leave no room for those of later holders.
MOST_TOKENS = 2**62
_INSTANTS = ("acquired", "renewed", "expires")
_TEXTS = ("run", "holder", "host", "boot", "namespace", "started", *_INSTANTS)


class LeaseHeld(BusyError):
    """Another live process holds the lease of the run."""


class LeaseLost(BusyError):
    """Another process has taken over the lease; this process must no longer write."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a run: its holder and validity. Fields are the document's keys."""

    run: str
    token: int  # increases with every holder, so the lease stays after its release
    holder: str  # what the holding process does, for people
    host: str
    boot: str
    namespace: str
    pid: int
    started: str  # start of the process, from `filesystem.process_start`
    acquired: str
    renewed: str
    expires: str
    released: str | None = None
    cancelled: bool = False  # whether the holder was asked to stop
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The time at which the lease ends without renewal, in µs since the epoch."""
        expires, renewed = map(times.parse_timestamp, (self.expires, self.renewed))
        return min(expires, renewed + LONGEST)

    def is_endless(self, instant: int) -> bool:
        """Return whether the lease is valid for longer than gitckpt ever writes."""
        expiry, renewal = times.parse_timestamp(self.expires), times.parse_timestamp(self.renewed)
        return self.released is None and max(expiry - renewal, renewal - instant) > LONGEST

    @property
    def is_here(self) -> bool:
        """Whether the holder's process id is meaningful here: same machine and namespace."""
        host = filesystem.this_host()
        return (self.host, self.boot, self.namespace) == (host.name, host.boot, host.namespace)

    @property
    def is_ours(self) -> bool:
        return self.is_here and self.pid == os.getpid()

    def sentence(self, renewed: str = "") -> str:
        """Describe the holder; `renewed`, such as "5s ago", replaces the time."""
        time = renewed or f"at {self.renewed}"
        return f"{self.holder} on {self.host}, process {self.pid}, renewed {time}"


def render_lease(lease: Lease) -> bytes:
    fields = {name: getattr(lease, name) for name in Lease.__slots__ if name != "unknown"}
    present_fields = {name: v for name, v in fields.items() if v is not None and v is not False}
    return toml.dumps({"version": 1, **present_fields, **lease.unknown}, budget.RECORD).encode()


def parse_lease(data: bytes, ref: str) -> Lease:
    return read_or_raise_invalid(ref, lambda: _parse_lease_fields(data, ref))


def _parse_lease_fields(data: bytes, ref: str) -> Lease:
    reader = TableReader(parse_record(data, ref, "lease"), ref)
    reader.read_required("version", int)
    text_fields = {key: reader.read_required(key, str) for key in _TEXTS}
    for key in _INSTANTS:
        reader.read_timestamp(key)
    if ref_names.LEASES + text_fields["run"] != ref:
        raise InvalidCheckpoint(ref, "run", f"{text_fields['run']} is not the ref's name")
    token, pid = reader.read_required("token", int), reader.read_required("pid", int)
    if not 0 < token < MOST_TOKENS:
        raise InvalidCheckpoint(ref, "token", f"{token} is not between 1 and 2^62 - 1")
    released, cancelled = reader.read_optional("released", str), reader.read_flag("cancelled")
    text_fields |= {"released": released} if released is not None else {}
    unknown = reader.unread_values
    return Lease(token=token, pid=pid, cancelled=cancelled, unknown=unknown, **text_fields)


def lease_lost_error(run: str, lease: Lease | None, why: str = "removed") -> LeaseLost:
    reason = f"taken over by {lease.sentence()}" if lease else why
    problem = f"the lease of run {run} was {reason}; this process writes nothing more"
    return LeaseLost(problem, hint=f"see the state of the run: git ckpt status {run}")


# Lock files of driver processes. If one can be locked, its process is gone.
_PATIENCE = 5.0  # in seconds: a process that checks for life holds the lock for a moment


class _SharedLock(FileLock):
    """The lock file of this process, shared by all its leases in a repository."""

    leases = 0  # number of leases that need the lock
    stays = False  # whether to leave the file, unlocked: it shows that a holder has ended


_locks: dict[str, _SharedLock] = {}
_mutex = threading.Lock()


def _close_locks_after_fork() -> None:
    global _mutex  # noqa: PLW0603 - another thread may have held it
    _mutex = threading.Lock()
    for shared_lock in _locks.values():
        shared_lock.close_in_child()
    _locks.clear()


os.register_at_fork(after_in_child=_close_locks_after_fork)


@dataclass(frozen=True, slots=True)
class DriverLockFiles:
    _repository: Repository

    def acquire_lock(self, lease: Lease) -> None:
        self._repository.make_private_dir()
        path = self._lock_path(lease)
        with _mutex:
            shared_lock = _locks.get(path) or _SharedLock(path, _PATIENCE)
            if not shared_lock.leases and not shared_lock.acquire() and shared_lock.is_taken:
                raise BusyError(f"another process holds {path}", hint="run the command again")
            shared_lock.leases += 1
            _locks[path] = shared_lock

    def release_lock(self, lease: Lease, *, is_over: bool) -> None:
        path = self._lock_path(lease)
        with _mutex:
            if (shared_lock := _locks.get(path)) is None:
                return  # the lock belongs to the parent of this forked process
            shared_lock.leases -= 1
            shared_lock.stays |= not is_over  # else the document of the lease shows that it is over
            if not shared_lock.leases:
                del _locks[path]
                shared_lock.release(delete=not shared_lock.stays)

    def record_lease_oids(self, lease: Lease, oids: Iterable[str]) -> None:
        try:
            # Never create the file: an unlocked one shows that the process is gone.
            fd = self._open_lock_file(lease, os.O_WRONLY | os.O_APPEND)
        except OSError:
            return  # the lease is valid until it expires
        with open(fd, "wb", buffering=0) as file:
            file.write("\n".join(["", *oids, ""]).encode("ascii"))

    def has_recorded_oid(self, lease: Lease, oid: str) -> bool:
        try:
            fd = self._open_lock_file(lease, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, CkptError):
            return False
        with open(fd, "rb", buffering=0) as file:
            return oid.encode("ascii") in file.read().split(b"\n")

    def _open_lock_file(self, lease: Lease, flags: int) -> int:
        return os.open(self._lock_path(lease), flags | os.O_NOFOLLOW | os.O_CLOEXEC)

    def is_alive(self, lease: Lease, oid: str) -> bool | None:
        """Return whether the process that wrote a lease is alive; None if unknown."""
        if not self.has_recorded_oid(lease, oid):
            return None
        if is_file_locked := is_locked(self._lock_path(lease)):
            return True
        if is_file_locked is None:  # a file system without locks
            is_visible = lease.is_here and lease.boot
            return filesystem.read_process_start(lease.pid) == lease.started if is_visible else None
        # A network file system may not lock across machines.
        return False if lease.boot and lease.boot == filesystem.this_host().boot else None

    def _lock_path(self, lease: Lease) -> str:
        process_identity = f"{lease.boot} {lease.namespace} {lease.pid} {lease.started}"
        process_hash = object_id("blob", process_identity.encode("utf-8", "replace"), "sha1")
        name = f"{ref_names.DRIVER}.{abs(lease.pid)}.{process_hash}"
        return os.path.join(self._repository.private_dir, name)


# Validity without renewal, in microseconds. Only other machines rely on it.
LENGTH = 120 * times.MICRO
RENEWAL = 30.0  # seconds between renewals

# Environment of a driver's children: the lease token, which binds their writes to it, and the run.
FENCE_VARIABLE = "CKPT_LEASE"
RUN_VARIABLE = "CKPT_RUN"


class Leases:
    def __init__(
        self, objects: ObjectDatabase, refs: Refs, repository: Repository, clock: Callable[[], int]
    ) -> None:
        self._objects, self._refs, self._repository = objects, refs, repository
        self._files = DriverLockFiles(repository)
        self.clock = clock

    def read(self, run: str) -> tuple[str, Lease] | None:
        ref = ref_names.LEASES + run
        if (oid := self.current_lease_oid(run)) is None:
            return None
        if (stored_object := next(self._objects.read([oid]))) is None or stored_object[0] != "blob":
            hint = "find the cause: git ckpt verify"
            raise InvalidCheckpoint(ref, "", "does not point to a lease", hint=hint)
        return oid, parse_lease(stored_object[1], ref)

    def current_lease_oid(self, run: str) -> str | None:
        return self._refs.read_ref(ref_names.LEASES + run)

    def require_lease_free(self, run: str) -> None:
        if (oid_and_lease := self.read(run)) is not None and self.is_held(*oid_and_lease):
            raise self.held_error(*oid_and_lease)

    def is_held(self, oid: str, lease: Lease) -> bool:
        """Return whether a process holds the lease; judge processes elsewhere by expiry."""
        if lease.released is not None:
            return False
        is_alive = self._files.is_alive(lease, oid)
        return self.clock() < lease.end if is_alive is None else is_alive

    def is_stalled(self, oid: str, lease: Lease) -> bool:
        """Return whether the holder is alive, but stopped or late with two renewals."""
        if lease.released is not None or lease.is_ours or not self._files.is_alive(lease, oid):
            return False
        # Two renewals are overdue at halfway of the validity.
        halfway_time = sum(map(times.parse_timestamp, (lease.renewed, lease.expires))) // 2
        is_late = self.clock() >= halfway_time
        return is_late or (lease.is_here and filesystem.is_process_stopped(lease.pid))

    def is_holder_running(self, oid: str, lease: Lease) -> bool:
        if not lease.is_here or lease.pid <= 1 or not lease.started:
            return False
        is_recorded = self._files.has_recorded_oid(lease, oid)
        return is_recorded and filesystem.read_process_start(lease.pid) == lease.started

    def held_error(self, oid: str, lease: Lease) -> LeaseHeld:
        run, problem = lease.run, f"run {lease.run} is driven by {lease.sentence()}"
        take_over = f"git ckpt resume {run} --take-over"
        if lease.is_endless(self.clock()):
            sentence = f"{problem}, but the lease is implausibly long, valid until {lease.expires}"
            return LeaseHeld(sentence, hint=f"if that process is gone: {take_over}")
        if self.is_stalled(oid, lease):
            hint = f"let process {lease.pid} continue, or take over the run: {take_over}"
            return LeaseHeld(f"{problem}, which is stalled", hint=hint)
        if self._files.is_alive(lease, oid):
            return LeaseHeld(problem, hint=f"wait for that process, or: git ckpt cancel {run}")
        hint = f"then continue: git ckpt resume {run}; or stop the driver: git ckpt cancel {run}"
        end_text = f"unless renewed, the lease ends at {times.to_text(lease.end)}"
        return LeaseHeld(f"{problem}, on another machine; {end_text}", hint=hint)

    def acquire_lease(
        self, run: str, holder: str, length: int = LENGTH, *, take_over: bool = False
    ) -> HeldLease:
        if length > LONGEST:
            hint = f"request at most {LONGEST} µs"
            raise UsageError(f"a lease of {length} µs is too long", hint=hint)
        lease, old_oid, predecessor = self._plan_next(run, holder, length, take_over=take_over)
        self._files.acquire_lock(lease)
        try:
            oid = self.replace_lease(lease, old_oid, is_ours=True)
        except RefMoved:
            self._files.release_lock(lease, is_over=True)
            if (winning_lease := self.read(run)) is None:
                raise
            raise self.held_error(*winning_lease) from None
        except BaseException:
            self._files.release_lock(lease, is_over=False)  # it may have been written
            raise
        return HeldLease(self, oid, lease, length, predecessor, is_first=not old_oid)

    def acquire_leases(
        self, runs: Iterable[str], holder: str
    ) -> tuple[dict[str, HeldLease], dict[str, CkptError]]:
        holds: dict[str, HeldLease] = {}
        errors: dict[str, CkptError] = {}
        lease_documents, updates = [], []
        for run in runs:
            try:
                lease, old_oid, predecessor = self._plan_next(run, holder, LENGTH)
                self._files.acquire_lock(lease)
            except CkptError as error:
                errors[run] = error
                continue
            lease_documents.append(render_lease(lease))
            oid = object_id("blob", lease_documents[-1], self._repository.object_format)
            updates.append(RefUpdate(ref_names.LEASES + run, oid, old_oid))
            holds[run] = HeldLease(self, oid, lease, LENGTH, predecessor, is_first=not old_oid)
        try:
            if updates:
                any_lease = next(iter(holds.values())).lease
                self._files.record_lease_oids(any_lease, [update.new for update in updates])
                self._objects.write([("blob", data) for data in lease_documents])
                self._refs.apply_updates(updates)
        except CkptError:  # one held lease fails the whole transaction
            failed_holds, holds = holds, {}
            for hold in failed_holds.values():
                hold.release_process_lock(is_over=True)
            for run in failed_holds:
                try:
                    holds[run] = self.acquire_lease(run, holder)
                except CkptError as error:
                    errors[run] = error
        return holds, errors

    def _plan_next(
        self, run: str, holder: str, length: int, *, take_over: bool = False
    ) -> tuple[Lease, str, Lease | None]:
        instant = self.clock()
        predecessor: Lease | None = None
        oid = self.current_lease_oid(run) or ""
        try:
            oid, predecessor = self.read(run) or ("", None)
            token = predecessor.token + 1 if predecessor is not None else 1
        except InvalidCheckpoint as error:
            if not oid or error.field == "version":  # a newer gitckpt may drive it
                raise
            if not take_over:
                hint = f"if the run has no driver: git ckpt resume {run} --take-over"
                raise error.but(hint=hint) from None
            token = MOST_TOKENS
        if token >= MOST_TOKENS:
            # Larger than any earlier token, whose children must stay fenced.
            token = instant // times.MICRO
        if predecessor is not None and self.is_held(oid, predecessor):
            is_replaceable = self.is_stalled(oid, predecessor) or predecessor.is_endless(instant)
            if not (take_over and is_replaceable):
                raise self.held_error(oid, predecessor)
        host, pid = filesystem.this_host(), os.getpid()
        process = host.name, host.boot, host.namespace, pid, filesystem.read_process_start(pid)
        now_text, end_text = times.to_text(instant), times.to_text(instant + length)
        return Lease(run, token, holder, *process, now_text, now_text, end_text), oid, predecessor

    def replace_lease(self, lease: Lease, old_oid: str, *, is_ours: bool = False) -> str:
        data = render_lease(lease)
        oid = object_id("blob", data, self._repository.object_format)
        if is_ours:
            self._files.record_lease_oids(lease, [oid])
        self._objects.write([("blob", data)])
        self._refs.apply_updates([RefUpdate(ref_names.LEASES + lease.run, oid, old_oid)])
        return oid

    def release_lock(self, lease: Lease, *, is_over: bool) -> None:
        self._files.release_lock(lease, is_over=is_over)

    def mark_cancelled(self, run: str) -> tuple[str, Lease] | None:
        for _ in range(20):
            if (oid_and_lease := self.read(run)) is None or not self.is_held(*oid_and_lease):
                return None
            oid, lease = oid_and_lease
            is_ours = self._files.has_recorded_oid(lease, oid)
            try:
                self.replace_lease(replace(lease, cancelled=True), oid, is_ours=is_ours)
            except RefMoved:
                continue
            return oid_and_lease
        problem = f"cannot cancel run {run}: its lease changed at each of 20 attempts"
        raise BusyError(problem, hint="run the command again")

    def bind_writes_to_token(self, run: str) -> ChildWriteGuard | None:
        token = os.environ.get(FENCE_VARIABLE, "")
        if os.environ.get(RUN_VARIABLE) != run or not (token.isascii() and token.isdigit()):
            return None
        return ChildWriteGuard(self, run, int(token))


@dataclass(slots=True)
class HeldLease:
    """A lease that this process holds; several threads may use it."""

    _leases: Leases
    _oid: str
    lease: Lease  # as last written
    _length: int
    predecessor: Lease | None  # the lease that it replaced; None for the first or an invalid one
    is_first: bool  # whether the run had no lease before
    _is_open: bool = True
    _mutex: Any = field(default_factory=threading.RLock)
    drives = True  # the holder is the driver itself

    def make_lease_update(self) -> RefUpdate:
        with self._mutex:
            return RefUpdate(ref_names.LEASES + self.lease.run, self._oid, self._oid)

    def require_lease_held(self) -> None:
        """Raise LeaseLost if another process has the lease; update the cancelled flag."""
        with self._mutex:
            if self._leases.current_lease_oid(self.lease.run) == self._oid:
                return
            try:
                oid_and_lease = self._leases.read(self.lease.run)
            except InvalidCheckpoint as error:
                reason = f"replaced by an invalid one ({error.problem})"
                raise lease_lost_error(self.lease.run, None, reason) from None
            if oid_and_lease is None or oid_and_lease[1].token != self.lease.token:
                raise lease_lost_error(self.lease.run, oid_and_lease and oid_and_lease[1])
            # Only `cancelled` may be changed by another process.
            self._oid = oid_and_lease[0]
            self.lease = replace(self.lease, cancelled=oid_and_lease[1].cancelled)

    def renew_lease(self) -> None:
        instant = self._leases.clock()
        now_text, end_text = times.to_text(instant), times.to_text(instant + self._length)
        self._write_lease(lambda lease: replace(lease, renewed=now_text, expires=end_text))

    def release_lease(self) -> None:
        now_text = times.to_text(self._leases.clock())
        try:
            self._write_lease(lambda lease: replace(lease, released=now_text))
        finally:
            self.release_process_lock(is_over=self.lease.released is not None)

    def release_process_lock(self, *, is_over: bool) -> None:
        with self._mutex:
            if self._is_open:
                self._is_open = False
                self._leases.release_lock(self.lease, is_over=is_over)

    def _write_lease(self, change: Callable[[Lease], Lease]) -> None:
        with self._mutex:
            while True:
                lease = change(self.lease)
                try:
                    self._oid = self._leases.replace_lease(lease, self._oid, is_ours=True)
                    self.lease = lease
                    return
                except RefMoved:
                    self.require_lease_held()


@dataclass(frozen=True, slots=True)
class ChildWriteGuard:
    """The right of a driver's child process to write while the driver has the lease."""

    _leases: Leases
    _run: str
    _token: int
    drives = False  # the writer is a child of the driver

    def make_lease_update(self) -> RefUpdate:
        if (current := self._leases.read(self._run)) is None or current[1].token != self._token:
            raise lease_lost_error(self._run, current and current[1])
        return RefUpdate(ref_names.LEASES + self._run, current[0], current[0])

    def require_lease_held(self) -> None:
        self.make_lease_update()


# Stop a driver, by its lease and, on this machine, by a signal.
_INTERVAL = 0.1  # seconds between checks whether a cancelled driver has ended


def cancel_driver(leases: Leases, run: str, *, wait: float, tell: Callable[[str], object]) -> bool:
    if (cancelled_lease := leases.mark_cancelled(run)) is None:
        return False
    oid, lease = cancelled_lease
    if wait <= 0 or lease.is_ours:  # no signal to this process: the driver stops at its next check
        return True
    if leases.is_holder_running(oid, lease):
        try:
            os.kill(lease.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has just ended
        except PermissionError:
            tell(f"process {lease.pid} belongs to another user: run {run} stops at the next check")
    _await_driver_end(leases, run, lease.token, wait)
    return True


def _await_driver_end(leases: Leases, run: str, token: int, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        state = leases.read(run)
        if state is None or state[1].token != token or not leases.is_held(*state):
            return
        if leases.is_stalled(*state):
            pid = state[1].pid
            takeover = f"git ckpt resume {run} --take-over"
            hint = f"let the process continue: kill -CONT {pid}; or take over the run: {takeover}"
            problem = f"run {run} was asked to stop, but its process {pid} is stalled"
            raise CkptError(problem, hint=hint)
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            hint = f"the driver stops at its next check; see: git ckpt status {run}"
            raise CkptError(f"run {run} was asked to stop and has not stopped yet", hint=hint)
        time.sleep(min(seconds_left, _INTERVAL))
