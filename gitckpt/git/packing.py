"""Packs the loose refs of our own namespaces into one file, and never those of the user; and loose objects, whosever they are.

Thousands of loose refs make every `git log` and `git fetch` slow. `git pack-refs --include` picks namespaces since git 2.42; before
that it packs all or nothing, so it is given a scratch repository whose refs are links to the real directories of ours alone.
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

PACK_FROM = 1000
"""So many loose checkpoint refs, or objects, are packed together."""

_INCLUDE_SINCE = (2, 42)

_PACK = (*DURABLE, "-c", "core.packedRefsTimeout=100", *NO_HOOKS, "pack-refs")


def count_loose(repository: Repository) -> int:
    """Returns how many checkpoints have a ref in a file of its own; 0 where refs are kept in reftables."""
    try:
        with os.scandir(os.path.join(repository.common_dir, "refs", "checkpoints")) as entries:
            return sum(not entry.name.endswith(".lock") and entry.is_file(follow_symlinks=False) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def pack_if_many(repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]) -> bool:
    """Packs as `pack` does, where `PACK_FROM` checkpoints or more have loose refs."""
    return count_loose(repository) >= PACK_FROM and pack(repository, namespaces, version)


def count_loose_objects(repository: Repository) -> int:
    """Returns about how many objects have a file of their own, from every eighth directory, as oids are spread evenly."""
    found = 0
    for number in range(0, 256, 8):
        try:
            found += len(os.listdir(os.path.join(repository.common_dir, "objects", f"{number:02x}")))
        except FileNotFoundError:
            continue
    return 8 * found


def pack_objects(repository: Repository) -> None:
    """Packs the loose objects: what refs lead to by its paths, which makes small packs, and then the rest, which `git gc --auto` leaves.

    Raises:
        GitError: git refused.
    """
    repository.git.run("repack", "-d", "-l", "--quiet")
    repository.git.run("maintenance", "run", "--quiet", "--task=loose-objects")
    fsync.flush([os.path.join(repository.common_dir, "objects", "pack")])  # before the files go: git flushes the pack, and not its name
    repository.git.run("prune-packed", "--quiet")


def pack(repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]) -> bool:
    """Packs the loose refs below some namespaces, flushed to the disk.

    Args:
        namespaces: complete directories such as `refs/checkpoints`.
        version: of git.

    Returns:
        Whether it was done. It is not with reftables, which git compacts by itself, without loose refs, and while somebody holds a lock.

    Raises:
        RepositoryError: the repository cannot be written to.
        GitError: git refused for another reason than a lock.
    """
    present = [name for name in namespaces if os.path.isdir(os.path.join(repository.common_dir, name))]
    if repository.has_reftable or not present:
        return False
    try:
        # Twice, as git flushes the packed refs and not their name, and deletes the loose ones at once: they go when that is on the disk.
        for prune in ("--no-prune", "--prune"):
            if version >= _INCLUDE_SINCE:
                # Not with `--all`, which includes everything. A star matches slashes as well.
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
            # Git resolves the links before it locks and renames: `packed-refs.lock` and `<ref>.lock` are those of the real files.
            os.symlink(os.path.join(repository.common_dir, name), link)
        with open(os.path.join(scratch, "HEAD"), "w", encoding="ascii") as head:
            head.write("ref: refs/heads/none\n")
        # With the worktree named, a relative `core.worktree` (of a submodule) in the shared configuration does no harm.
        Git(scratch, scratch).run(*_PACK, prune, "--all")
    finally:
        _remove(scratch)


def _remove(directory: str) -> None:
    """Removes a directory with all that is in it, but nothing that its links lead to."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(directory)
