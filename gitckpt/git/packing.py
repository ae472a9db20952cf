"""Pack gitckpt's own loose refs, never the user's, and loose objects of any owner.

Thousands of loose refs slow down every `git log` and `git fetch`. `git pack-refs --include` selects
namespaces since git 2.42. Older versions pack all or nothing, so they get a scratch repository
whose refs are links to gitckpt's real directories.
"""

from __future__ import annotations

import os

from gitckpt.git import fsync
from gitckpt.git.command import DURABLE, NO_HOOKS, Git
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.repository import Repository

PACK_FROM = 1000  # loose checkpoint refs, or objects
_INCLUDE_SINCE = (2, 42)

_PACK = (*DURABLE, "-c", "core.packedRefsTimeout=100", *NO_HOOKS, "pack-refs")


def count_loose(repository: Repository) -> int:
    """Return the number of checkpoints with a loose ref; 0 with reftables."""
    try:
        with os.scandir(os.path.join(repository.common_dir, "refs", "checkpoints")) as entries:
            return sum(not entry.name.endswith(".lock") and entry.is_file(follow_symlinks=False) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def pack_if_many(repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]) -> bool:
    return count_loose(repository) >= PACK_FROM and pack(repository, namespaces, version)


def count_loose_objects(repository: Repository) -> int:
    # An estimate from every eighth directory.
    found = 0
    for number in range(0, 256, 8):
        try:
            found += len(os.listdir(os.path.join(repository.common_dir, "objects", f"{number:02x}")))
        except FileNotFoundError:
            continue
    return 8 * found


def pack_objects(repository: Repository) -> None:
    # `repack` packs reachable objects in path order, which makes small packs; the task
    # `loose-objects` packs the others, which `git gc --auto` leaves.
    repository.git.run("repack", "-d", "-l", "--quiet")
    repository.git.run("maintenance", "run", "--quiet", "--task=loose-objects")
    # Before the loose files go: git flushes the pack, but not its name.
    fsync.flush([os.path.join(repository.common_dir, "objects", "pack")])
    repository.git.run("prune-packed", "--quiet")


def pack(repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]) -> bool:
    """Pack and flush the loose refs below directories such as `refs/checkpoints`.

    Return False with reftables, without loose refs, or while a lock is held.
    """
    present = [name for name in namespaces if os.path.isdir(os.path.join(repository.common_dir, name))]
    if repository.has_reftable or not present:
        return False
    try:
        # Twice: git flushes `packed-refs` but not its name, and deletes the loose refs at once.
        # Here they go only after the name is flushed.
        for prune in ("--no-prune", "--prune"):
            if version >= _INCLUDE_SINCE:
                # Not `--all`, which includes everything. `*` matches slashes, too.
                repository.git.run(*_PACK, prune, *(option for name in present for option in ("--include", f"{name}/*")))
            else:
                _pack_by_links(repository, present, prune)
            fsync.flush([repository.common_dir])
    except GitError as error:
        if ".lock': File exists" in error.stderr:
            return False
        raise
    return True


def _pack_by_links(repository: Repository, namespaces: Sequence[str], prune: str) -> None:
    scratch = repository.scratch("pack")
    os.mkdir(scratch, 0o700)
    try:
        for name in ("objects", "packed-refs", "config", *namespaces):
            link = os.path.join(scratch, name)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            # git resolves the links before it locks and renames, so it locks the real files.
            os.symlink(os.path.join(repository.common_dir, name), link)
        with open(os.path.join(scratch, "HEAD"), "w", encoding="ascii") as head:
            head.write("ref: refs/heads/none\n")
        # Naming the worktree overrides a relative `core.worktree` (of a submodule).
        Git(scratch, scratch).run(*_PACK, prune, "--all")
    finally:
        _remove(scratch)


def _remove(directory: str) -> None:
    # Does not follow links.
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(directory)
