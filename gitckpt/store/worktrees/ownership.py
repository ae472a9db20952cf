"""Tell which run or checkpoint a linked worktree was made for.

Users move or delete worktrees by hand, and git prunes the directories that describe them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from gitckpt.git.files import private_dirs, regular
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import ids
from gitckpt.store.records import ref_names
from gitckpt.store.records.ref_names import WorktreeOwner

# git does not prune locked worktrees; the lock's reason ends with the id of the run or checkpoint.
LOCK_REASON = "gitckpt"

# Prefix of the directory in which a worktree is made before it is moved to its path.
BEING_MADE = ".making-"

owner_in = ref_names.read_worktree_owner


def owner_of(repository: Repository) -> WorktreeOwner | None:
    return owner_in(repository.git_dir)


def owners(repository: Repository) -> Iterator[tuple[str, str, WorktreeOwner]]:
    """Yield git directory, path and owner (run, checkpoint) of gitckpt's worktrees."""
    for git_dir, path in administration.list_worktrees(repository):
        owner = owner_in(git_dir)
        if owner is not None:
            yield git_dir, path, owner


def made_for_ids(repository: Repository, checkpoint_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return path and checkpoint id of the worktrees made for the given checkpoints."""
    pairs = ((path, owner.checkpoint) for _, path, owner in owners(repository) if owner.run is None)
    return [(path, checkpoint) for path, checkpoint in pairs if checkpoint in checkpoint_ids]


def worktrees_of_runs(repository: Repository) -> dict[str, str]:
    """Map each run to its worktree's path, unless that was moved or deleted."""
    return {
        owner.run: path
        for git_dir, path, owner in owners(repository)
        # Another process is about to move a worktree that is being made.
        if owner.run is not None
        and not is_worktree_being_made(path)
        and is_same_directory(administration.git_dir_of(path), git_dir)
    }


def is_same_directory(directory: str | None, git_dir: str) -> bool:
    return directory is not None and os.path.realpath(directory) == os.path.realpath(git_dir)


def is_worktree_being_made(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)).startswith(BEING_MADE)


def checkpoints_of_worktrees(repository: Repository) -> set[str]:
    """Return the ids of the checkpoints that registered worktrees were made from."""
    return {owner.checkpoint for _, _, owner in owners(repository)}


def write_owner(repository: Repository, owner: WorktreeOwner) -> None:
    import json

    with open(os.path.join(repository.git_dir, ref_names.RUN_FILE), "w", encoding="utf-8") as file:
        json.dump({"checkpoint": owner.checkpoint, "run": owner.run}, file)


def read_behind_id(git_dir: str) -> tuple[str, str] | None:
    """Return the ids of a worktree's checkpoint and of the run's newer one, or None."""
    line = administration.read_line(os.path.join(git_dir, ref_names.BEHIND_FILE))
    current_id, _, adopted_id = line.partition(" ")
    return (current_id, adopted_id) if current_id and adopted_id else None


def record_behind_id(repository: Repository, run: str, checkpoint_id: str, adopted: str) -> None:
    """Record that a run's worktrees are at `checkpoint_id`, older than `adopted`."""
    for git_dir, _, owner in owners(repository):  # also moved ones: `resume` may find them
        if owner.run == run:
            current_id, _ = read_behind_id(git_dir) or (checkpoint_id, adopted)
            file = os.path.join(git_dir, ref_names.BEHIND_FILE)
            regular.write(file, f"{current_id} {adopted}\n".encode("ascii"))


def forget_behind_id(repository: Repository) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(repository.git_dir, ref_names.BEHIND_FILE))


def owner_at_path(repository: Repository, path: str) -> WorktreeOwner | None:
    worktree = administration.open_linked_worktree(repository, path)
    return owner_of(worktree) if worktree is not None else None


def is_locked_by_gitckpt(git_dir: str) -> bool:
    prefix, _, name = (administration.read_lock_reason(git_dir) or "").partition(" ")
    return prefix == LOCK_REASON and (ids.is_run_id(name) or ids.is_checkpoint_id(name))


def is_locked_by_user(git_dir: str) -> bool:
    is_locked = administration.read_lock_reason(git_dir) is not None
    return is_locked and not is_locked_by_gitckpt(git_dir)


def is_worktree_deleted(repository: Repository, git_dir: str, path: str) -> bool:
    """Return whether a worktree's directory was deleted, not just unmounted."""
    if os.path.lexists(path) or is_locked_by_user(git_dir):
        return False
    # gitckpt moves a new worktree one directory up before git knows the new path.
    grandparent = os.path.dirname(os.path.dirname(path))
    moved_to = administration.find_moved(repository, git_dir, path, grandparent)
    return moved_to is None and not administration.may_have_moved_along(repository, git_dir, path)


# Worktrees are made in a directory beside their final path, and moved there once they are complete.


def list_half_made(root: str) -> list[str]:
    return [os.path.join(root, name) for name in names_in(root) if name.startswith(BEING_MADE)]


def remove_half_made(repository: Repository, root: str) -> None:
    """Remove the worktrees in `root` that killed processes have left half made."""
    for directory in {path.removesuffix(".lock") for path in list_half_made(root)}:
        with FileLock(f"{directory}.lock", 0) as is_unlocked:
            if is_unlocked:
                _discard_directory(repository, directory)


def list_abandoned_dirs(repository: Repository) -> list[str]:
    """Return the directories in which killed processes left registered worktrees.

    HEAD of such a worktree may name no commit; then every `git gc` fails.
    """
    directories = {
        os.path.dirname(path)
        for git_dir, path in administration.list_worktrees(repository)
        if is_locked_by_gitckpt(git_dir) and is_worktree_being_made(path)
    }
    return sorted(path for path in directories if not _is_lock_held(f"{path}.lock"))


def discard_abandoned_dir(repository: Repository, directory: str) -> bool:
    """Remove an abandoned directory; return False if a live process still uses it."""
    with FileLock(f"{directory}.lock", 0) as is_acquired:
        if is_acquired or not os.path.isdir(os.path.dirname(directory)):
            _discard_directory(repository, directory)
            return True
    return False


def _is_lock_held(lock: str) -> bool:
    if not os.path.exists(lock):
        return False
    with FileLock(lock, 0) as is_acquired:
        return not is_acquired


@contextlib.contextmanager
def temporary_path(repository: Repository, path: str) -> Iterator[str]:
    """Yield a path at which to make a new worktree; finally delete what is left there."""
    root, name = os.path.split(path)
    directory = os.path.join(root, f"{BEING_MADE}{os.urandom(4).hex()}")
    with FileLock(f"{directory}.lock", 0):
        try:
            yield os.path.join(directory, name)
        finally:
            _discard_directory(repository, directory)


def _discard_directory(repository: Repository, directory: str) -> None:
    private_dirs.require_own_directory(directory)
    real_prefix = os.path.realpath(directory) + os.sep
    for git_dir, path in administration.list_worktrees(repository):
        if not os.path.realpath(path).startswith(real_prefix):
            continue
        new_path = os.path.join(os.path.dirname(directory), os.path.basename(path))
        if is_same_directory(administration.git_dir_of(new_path), git_dir):  # killed after the move
            administration.repair_worktree(repository, new_path)
        else:
            with administration.lock_worktrees(repository):
                private_dirs.discard_directory(git_dir)
    private_dirs.discard_directory(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}.lock")
