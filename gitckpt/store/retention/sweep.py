"""Sweeps what a kill or a power cut can leave: refs that hold something for a checkpoint that was never finished, and scratch files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping

from gitckpt.git.lock import Lock
from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository
from gitckpt.store.records import keep, layout
from gitckpt.store.records.recorder import LOCK_FILE


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


def sweep_scratch(repository: Repository) -> list[str]:
    """Deletes private indexes and the like of processes that were killed: what is named `<kind>.<pid>.<digits>`, and old.

    Args:
        repository: where.

    Returns:
        The names of what is gone.
    """
    gone = []
    for name in sorted(os.listdir(repository.make_private_dir())):
        path = os.path.join(repository.private_dir, name)
        # Not the time of the content, which a private index has from the index that it is a copy of.
        kind, _, rest = name.partition(".")
        if kind not in ("index", "rules") or not rest.partition(".")[0].isdigit() or time.time() - os.stat(path).st_ctime < keep.GRACE:
            continue
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        gone.append(name)
    return gone


def _sweep(repository: Repository, refs: Refs) -> list[str]:
    lines = refs.list(*layout.OWN).decode("utf-8", "surrogateescape").splitlines()
    oids = {ref: oid for oid, _, ref in (line.partition(" ") for line in lines)}
    leftover = [ref for ref in oids if _is_of_nobody(repository, ref, oids) and not keep.is_young(repository, ref)]
    if leftover:
        refs.update([Update(ref, "", oids[ref]) for ref in leftover])
    return leftover


def _is_of_nobody(repository: Repository, ref: str, oids: Mapping[str, str]) -> bool:
    """Tells whether a ref names a checkpoint that does not exist, or should name a commit and does not."""
    if ref.startswith(layout.KEEP):
        return not keep.may_name(repository, ref.removeprefix(layout.KEEP))
    return ref.startswith(layout.HOLDERS) and layout.CHECKPOINTS + ref.rpartition("/")[2] not in oids
