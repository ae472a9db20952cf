"""Keeps two processes from bringing files into the worktree of a run at once.

The lease alone does not: who is stopped while files come back would go on with that, and git, where its driver is killed, goes on
anyway, over what the next attempt has written by then. So whoever does it holds a lock, with all that is called for it, and looks at the
lease once it is held; and whoever has taken the lease waits for the lock before anything else.
"""

from __future__ import annotations

import os

from gitckpt.durable.command import processes
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository
from gitckpt.model.errors import BusyError
from gitckpt.store.leases.leases import Hold
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 5.0
"""How long somebody else is waited for, in seconds: a git whose driver was killed is soon through."""

_NAMED = 3


class Exclusion:
    """Whoever has it is alone with the files of a run. A context manager.

    Args:
        repository: seen from any of its worktrees.
        hold: the lease of the run.

    Raises:
        BusyError: somebody else is at them; they are named.
        LeaseLost: the run is somebody else's by now.
    """

    def __init__(self, repository: Repository, hold: Hold) -> None:
        self._path = os.path.join(repository.make_private_dir(), layout.FILES_LOCK.format(hold.lease.run))
        self._lock = Lock(self._path, PATIENCE, is_inherited=True)
        self._hold = hold

    def __enter__(self) -> None:
        if not self._lock.acquire() and self._lock.is_taken:  # on a file system without locks we go on, as elsewhere
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
    left = processes.holders(path)
    numbers = " ".join(str(process.pid) for process in left[:_NAMED])
    who = ", ".join(processes.name(process) for process in left[:_NAMED]) or "a process that is not to be seen from here"
    hint = f"let it go on, if it was stopped (kill -CONT {numbers}), or end it (kill -9 {numbers}); then: git ckpt resume {run}"
    message = f"files of run {run} are being brought back, over what the next attempt would write: by {who}"
    return BusyError(message, hint=hint if left else f"when it has ended: git ckpt resume {run}")
