"""Sweeps what a kill or a power cut can leave: refs that hold a commit or a snapshot for a checkpoint that was never finished."""

from __future__ import annotations

import os
import time

from gitckpt.git.lock import Lock
from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository
from gitckpt.store import layout
from gitckpt.store.recorder import LOCK_FILE

GRACE = 3600
"""A ref younger than this, in seconds, may belong to a checkpoint that is being written."""


def sweep(repository: Repository, refs: Refs) -> list[str]:
    """Deletes the refs that hold something for a checkpoint which does not exist.

    Args:
        repository: where.
        refs: its refs.

    Returns:
        The refs that are gone; none while a checkpoint is being written.

    Raises:
        RefMoved, LockHeld, GitError: none was deleted.
    """
    if repository.has_reftable:
        return []  # transactions there are all or nothing
    with Lock(os.path.join(repository.make_private_dir(), LOCK_FILE), 0) as alone:
        return _sweep(repository, refs) if alone else []


def _sweep(repository: Repository, refs: Refs) -> list[str]:
    lines = refs.list(*layout.OWN).decode("utf-8", "surrogateescape").splitlines()
    oids = {ref: oid for oid, _, ref in (line.partition(" ") for line in lines)}
    leftover = [
        ref
        for ref in oids
        if ref.startswith(layout.HOLDERS) and layout.CHECKPOINTS + ref.rpartition("/")[2] not in oids and not _is_young(repository, ref)
    ]
    if leftover:
        refs.update([Update(ref, "", oids[ref]) for ref in leftover])
    return leftover


def _is_young(repository: Repository, ref: str) -> bool:
    try:
        return time.time() - os.stat(os.path.join(repository.common_dir, ref)).st_mtime < GRACE
    except FileNotFoundError:
        return False  # packed: nobody who holds the lock is writing it
