"""Pack loose objects, and gitckpt's loose refs without those of the user.

`git pack-refs --include` selects namespaces since git 2.42. Older versions pack all refs, so they
get a scratch repository that links to the directories of gitckpt's refs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitckpt.git import fsync
from gitckpt.git.command import DURABLE, NO_HOOKS, GitRunner
from gitckpt.git.files import private_dirs
from gitckpt.git.filesystem import names_in
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository

PACK_FROM = 1000  # loose checkpoint refs, or objects
_INCLUDE_SINCE = (2, 42)
_PACK = (*DURABLE, "-c", "core.packedRefsTimeout=100", *NO_HOOKS, "pack-refs")


def count_loose_refs(repository: Repository) -> int:
    try:
        with os.scandir(os.path.join(repository.common_dir, "refs", "checkpoints")) as entries:
            return sum(
                not entry.name.endswith(".lock") and entry.is_file(follow_symlinks=False)
                for entry in entries
            )
    except (FileNotFoundError, NotADirectoryError):
        return 0


def pack_refs_if_many(
    repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]
) -> bool:
    return count_loose_refs(repository) >= PACK_FROM and pack_refs(repository, namespaces, version)


def count_loose_objects(repository: Repository) -> int:
    # An estimate from every eighth directory.
    top = os.path.join(repository.common_dir, "objects")
    return 8 * sum(len(names_in(f"{top}/{prefix:02x}")) for prefix in range(0, 256, 8))


def pack_all_objects(repository: Repository) -> None:
    # `repack` packs reachable objects in path order, which makes small packs; the task
    # `loose-objects` packs the others, which `git gc --auto` leaves.
    repository.git.run("repack", "-d", "-l", "--quiet")
    repository.git.run("maintenance", "run", "--quiet", "--task=loose-objects")
    # Before the loose files go: git flushes the pack, but not its name.
    fsync.flush([os.path.join(repository.common_dir, "objects", "pack")])
    repository.git.run("prune-packed", "--quiet")


def pack_refs(repository: Repository, namespaces: Sequence[str], version: tuple[int, ...]) -> bool:
    """Pack loose refs in `namespaces`; return False if a lock or reftables prevent it."""
    common_dir = repository.common_dir
    ref_dirs = [name for name in namespaces if os.path.isdir(os.path.join(common_dir, name))]
    if repository.has_reftable or not ref_dirs:
        return False
    try:
        # Twice: git flushes `packed-refs` but not its name, and deletes the loose refs at once.
        # Here they go only after the name is flushed.
        for prune_option in ("--no-prune", "--prune"):
            if version >= _INCLUDE_SINCE:
                # Not `--all`, which includes everything. `*` matches slashes, too.
                options = [option for name in ref_dirs for option in ("--include", f"{name}/*")]
                repository.git.run(*_PACK, prune_option, *options)
            else:
                _pack_refs_by_links(repository, ref_dirs, prune_option)
            fsync.flush([common_dir])
    except GitError as error:
        if ".lock': File exists" in error.stderr:
            return False
        raise
    return True


def _pack_refs_by_links(repository: Repository, namespaces: Sequence[str], prune: str) -> None:
    scratch_dir = repository.scratch_path("pack")
    os.mkdir(scratch_dir, 0o700)
    try:
        for name in ("objects", "packed-refs", "config", *namespaces):
            link = os.path.join(scratch_dir, name)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            # git resolves the links before it locks and renames, so it locks the real files.
            os.symlink(os.path.join(repository.common_dir, name), link)
        with open(os.path.join(scratch_dir, "HEAD"), "w", encoding="ascii") as head:
            head.write("ref: refs/heads/none\n")
        # Naming the worktree overrides a relative `core.worktree` (of a submodule).
        GitRunner(scratch_dir, scratch_dir).run(*_PACK, prune, "--all")
    finally:
        private_dirs.discard_directory(scratch_dir)
