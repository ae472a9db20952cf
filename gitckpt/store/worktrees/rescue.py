"""Save the changed files of linked worktrees, and list vanished worktrees."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from gitckpt.git.repository import open_repository
from gitckpt.git.worktree import administration
from gitckpt.model.checkpoint import GUARD
from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EVERY = 3600  # seconds between two captures of a worktree


@dataclass(frozen=True, slots=True)
class LostWorktree:
    """A linked worktree that no longer exists, and the newest checkpoint of its files."""

    name: str  # that git gave it; usually that of its directory
    newest: CheckpointInfo
    count: int  # of its checkpoints with files


def capture_linked(store: Checkpoints) -> list[str]:
    """Capture the changed files of each linked worktree, each at most once an hour.

    Returns a sentence for each worktree that could not be captured.
    """
    problems = []
    for git_dir, top in administration.list_worktrees(store.repository):
        if not _is_due(git_dir) or not os.path.isdir(top):
            continue
        try:
            repository = open_repository(top, by_variables=False)
            if repository.git_dir != git_dir:
                continue  # another repository is at the path now
            with store.open_store_for(repository, "plumbing") as worktree_store:
                problem = _capture(worktree_store, top)
        except CkptError as error:
            problem = error.message
        if problem is not None:
            problems.append(f"the worktree {top} was not captured: {problem}")
    return problems


def _is_due(git_dir: str) -> bool:
    try:
        last = os.stat(os.path.join(git_dir, ref_names.LAST_CAPTURE)).st_mtime
    except OSError:
        return True
    return not 0 <= time.time() - last < _EVERY


def _capture(store: Checkpoints, top: str) -> str | None:
    """Capture a worktree unless it is clean; return why files are missing, or None."""
    if store.is_clean():
        return None
    limits = store.settings_reader.read_limits_within_budget()
    message = f"files of {os.path.basename(top)}"
    details: Any = {"message": message, "trigger": GUARD, "if_changed": True}
    saved = store.save("rescue-complete", {"worktree": top}, limits=limits, **details)
    return saved.worktree.degraded if saved.worktree is not None else None


def list_lost(store: Checkpoints) -> list[LostWorktree]:
    """List the worktrees that are gone but had files in a checkpoint, newest first."""
    keys = [local_checkpoints.MAIN]
    for git_dir, top in administration.list_worktrees(store.repository):
        if os.path.isdir(top):
            keys.append(local_checkpoints.worktree_key_in(git_dir))
    local = LocalCheckpoints.read(store.repository)
    lost: dict[str, list[CheckpointInfo]] = {}
    for entry in store.list():
        key = local.find_worktree_key(entry.id)
        has_files = entry.tree is not None and local.is_written_here(entry)
        if key and key not in keys and has_files:
            lost.setdefault(key, []).append(entry)
    return [_lost(key, entries) for key, entries in lost.items()]


def _lost(key: str, entries: Sequence[CheckpointInfo]) -> LostWorktree:
    return LostWorktree(key.rpartition(":")[0], entries[0], len(entries))
