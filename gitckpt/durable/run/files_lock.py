"""A lock, so that only one process brings files into the worktree of a run.

The lease alone is not enough: a driver that is stopped while files come back goes on with that when it wakes up, and a git whose driver
was killed goes on anyway, over what the next attempt has written by then. So a driver holds this lock meanwhile, as do the processes it
starts, and checks the lease once it is held. A driver that has taken the lease waits for the lock first.
"""

from __future__ import annotations

import os

from gitckpt.durable.command import process_tree
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository
from gitckpt.model.errors import BusyError
from gitckpt.store.leases.leases import Hold
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 5.0
"""How long to wait for another holder, in seconds: a git whose driver was killed ends soon."""

_NAMED = 3


class FilesLock:
    """Excludes other processes from the files of a run. A context manager.

    Args:
        repository: seen from any of its worktrees.
        hold: the lease of the run.

    Raises:
        BusyError: other processes hold it; they are named.
        LeaseLost: the run was taken over.
    """

    def __init__(self, repository: Repository, hold: Hold) -> None:
        self._path = os.path.join(repository.make_private_dir(), layout.FILES_LOCK.format(hold.lease.run))
        self._lock = Lock(self._path, PATIENCE, is_inherited=True)
        self._hold = hold

    def __enter__(self) -> None:
        if not self._lock.acquire() and self._lock.is_taken:  # a file system without locks is no reason to stop
            raise _busy(self._hold.lease.run, self._path)
        try:
            self._hold.check()
        except BaseException:
            self._give_back()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._give_back()

    def _give_back(self) -> None:
        self._lock.release(delete=True)


def _busy(run: str, path: str) -> BusyError:
    remaining = process_tree.holders(path)
    numbers = " ".join(str(process.pid) for process in remaining[:_NAMED])
    who = ", ".join(process_tree.describe(process) for process in remaining[:_NAMED]) or "a process that is not to be seen from here"
    hint = f"let it go on, if it was stopped (kill -CONT {numbers}), or end it (kill -9 {numbers}); then: git ckpt resume {run}"
    message = f"files of run {run} are being brought back, over what the next attempt would write: by {who}"
    return BusyError(message, hint=hint if remaining else f"when it has ended: git ckpt resume {run}")
