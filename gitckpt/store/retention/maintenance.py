"""What is due now and then: expiry of checkpoints and runs by the policy, leftovers, and packing of the store's own refs.

Uses no package but Python's own, as the hook starts it without any.
"""

from __future__ import annotations

from gitckpt.git import packing
from gitckpt.git.command import require_git
from gitckpt.git.repository import Repository
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import layout
from gitckpt.store.retention import expiry, sweep, worktree


def maintain(repository: Repository) -> None:
    """Expires checkpoints and runs, sweeps leftovers, and packs refs where many are loose.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        CkptError: what went wrong; each checkpoint is whole or gone.
    """
    require_git()
    with Checkpoints(repository, adapter="plumbing") as store:
        worktree.finish(repository)
        sweep.sweep(repository, store.refs)  # first: what is left over may stand in the way of a ref that is needed
        expiry.expire(store, settings.read(repository).policy)
    sweep.sweep_scratch(repository)
    pack(repository)


def pack(repository: Repository) -> None:
    """Packs the store's refs where many are loose; the user's own stay as they are.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        GitError: git refused for another reason than a lock.
    """
    packing.pack_if_many(repository, layout.OWN, require_git())
