"""Trees that are damaged in a pack, where no file can be moved out of the way: git takes them to be there, and writes them nowhere again.

A file in the private directory names them. Whoever next makes a tree of an index puts those that the index stands for beside the pack, each
as a file of its own: git reads that as soon as it has found the one in the pack to be damaged. The file may be deleted at any time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

_UNUSABLE = os.path.join("damaged", "packed")
"""The file in the private directory."""


def tree_of(index: PrivateIndex) -> str:
    """Returns the oid of the tree that an index stands for, which is written, with those of the noted trees that it has.

    Raises:
        GitError: entries are in conflict, or git cannot write.
    """
    tree = index.write_tree()
    if os.path.exists(os.path.join(index.repository.private_dir, _UNUSABLE)):
        _write_anew(index.repository, index.path)
    return tree


def note(repository: Repository, oid: str) -> None:
    """Notes a tree that is to be written anew."""
    path = os.path.join(repository.make_private_dir(), _UNUSABLE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{oid}\n")


def _write_anew(repository: Repository, index: str) -> None:
    """Writes those of the noted trees that an index stands for.

    Args:
        index: path of the index, which stays as it is.

    Raises:
        GitError: one cannot be written.
    """
    try:
        with open(os.path.join(repository.private_dir, _UNUSABLE), encoding="ascii", errors="replace") as file:
            noted = set(file.read().split())
    except FileNotFoundError:
        return
    from gitckpt.git.damage.salvage import Salvage  # seldom: it imports threads, and more

    with Salvage(repository) as made:
        found = made.find_in_index(repository, noted, index)
        for oid in sorted(found):
            made.put(oid)
    if found >= noted:
        forget(repository)


def forget(repository: Repository) -> None:
    """Lets go what was noted."""
    try:
        os.unlink(os.path.join(repository.private_dir, _UNUSABLE))
    except FileNotFoundError:
        pass
