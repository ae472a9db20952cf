"""What is due now and then: expiry by the policy, and packing of the store's own refs."""

from __future__ import annotations

from gitckpt.git import packing
from gitckpt.git.repository import Repository, require_git
from gitckpt.store import layout, settings, sweeper
from gitckpt.store.store import Store

PACK_FROM = 1000
"""So many loose checkpoint refs are packed together."""


def maintain(repository: Repository) -> None:
    """Expires checkpoints and packs refs. Uses no package but Python's own, as the hook starts it without any.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        CkptError: what went wrong; each checkpoint is whole or gone.
    """
    version = require_git()
    with Store(repository, adapter="plumbing") as store:
        store.expire(settings.read(repository).policy)
        sweeper.sweep(repository, store.refs)
    pack_if_many(repository, version)


def pack_if_many(repository: Repository, version: tuple[int, ...]) -> bool:
    """Packs the store's refs where many are loose; the user's own refs stay as they are.

    Args:
        repository: where.
        version: of git.

    Returns:
        Whether they were packed.
    """
    if packing.count_loose(repository) < PACK_FROM:
        return False
    return packing.pack(repository, layout.OWN, version)


def pack_if_due(repository: Repository, checkpoint_id: str) -> bool:
    """Packs as `pack_if_many` does, but looks only after one checkpoint in 256, chosen by its id: counting takes time, too."""
    return checkpoint_id.startswith("00") and pack_if_many(repository, require_git())
