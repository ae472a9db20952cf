"""Lock files of the processes that drive runs: whoever can lock one knows that its process is gone.

Host names and process ids mean nothing in another container; a lock on a file of the git directory does (flock(2)). Each process that
holds leases keeps one such file locked, `driver.<pid>.<digest>` in the private directory. Its lines are the oids of the leases that the
process wrote. The private directory cannot be fetched: a lease whose oid stands in no such file was not written here.
"""

from __future__ import annotations

import os
import threading

from gitckpt.git import host
from gitckpt.git.lock import Lock, is_locked
from gitckpt.git.objects.encoding import object_id
from gitckpt.model.errors import BusyError, CkptError
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.repository import Repository
    from gitckpt.store.leases.lease import Lease

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
            return host.start_of(lease.pid) == lease.started if lease.is_here and lease.boot else None
        return False if lease.boot and lease.boot == host.here().boot else None  # across machines, a network file system may have none

    def _path(self, lease: Lease) -> str:
        process = f"{lease.boot} {lease.namespace} {lease.pid} {lease.started}"
        name = f"{layout.DRIVER}.{abs(lease.pid)}.{object_id('blob', process.encode('utf-8', 'replace'), 'sha1')}"
        return os.path.join(self._repository.private_dir, name)
