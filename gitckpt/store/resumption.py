"""Resume: from a checkpoint to the worktree that goes on with it."""

from __future__ import annotations

import os

from gitckpt.model.checkpoint import Checkpoint
from gitckpt.store import settings, worktrees
from gitckpt.store.index import Query
from gitckpt.store.store import Store
from gitckpt.store.worktrees import Opened


def resume(store: Store, checkpoint: Checkpoint, directory: str | None = None) -> Opened:
    """Returns the worktree of a checkpoint, made if it is not there.

    The newest checkpoint of a run opens the run's worktree, in which every commit and `save` extends the run; any other one of its own.

    Args:
        store: of its repository.
        checkpoint: what the worktree shall hold.
        directory: the worktree's path; by default a directory named after run or checkpoint, where the settings say.

    Raises:
        WorktreeError: the directory is in the way, something is missing, or what came back is not what was captured.
    """
    name = checkpoint.id
    if checkpoint.run and checkpoint.id in [entry.id for entry in store.list(Query(run=checkpoint.run, limit=1))]:
        name = checkpoint.run
    if directory is not None:
        path = directory
    else:
        path = os.path.join(worktrees.default_root(store.repository, settings.read(store.repository).worktree_dir), name)
    return worktrees.open_worktree(store.repository, store.objects, checkpoint, path, in_run=name == checkpoint.run)
