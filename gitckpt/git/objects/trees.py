"""What is at which path of a tree (git-ls-tree(1)). Git prints the modes that it knows, whatever an old tree has in their place."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypeAlias

    from gitckpt.git.repository import Repository

    Leaf: TypeAlias = tuple[bytes, bytes, str]
    """Path, mode as in a tree (`encoding`), and oid."""

_LINE = re.compile(rb"0?([0-7]{5,6}) [a-z]+ ([0-9a-f]+)\t([^\0]+)\0")

_FEW = 100
"""Git compares each of the paths that it is asked for with each of the tree, and a command takes some ten thousand words at the most."""


def leaves(repository: Repository, tree: str, paths: Collection[bytes] = (), *, with_trees: bool = False) -> list[Leaf]:
    """Returns files, links and submodules of a tree, in git's order.

    Args:
        tree: anything that git takes for one.
        paths: which of them: what has one of these paths, or is in a directory that has; literally. None of them for all.
        with_trees: whether directories are returned as well.

    Raises:
        GitError: it cannot be read.
    """
    options = ["-r", *(["-t"] if with_trees else [])]
    if len(paths) <= _FEW:
        return _listed(repository, options, tree, paths)
    wanted = set(paths)
    return [one for one in _listed(repository, options, tree, ()) if _is_within(one[0], wanted)]


def leaf(repository: Repository, tree: str, path: bytes) -> Leaf | None:
    """Returns what is at a path, which may be a directory; None where nothing is. Args and errors: as `leaves`."""
    return next((one for one in _listed(repository, [], tree, [path]) if one[0] == path), None)


def present(repository: Repository, tree: str, paths: Collection[bytes]) -> set[bytes]:
    """Returns the paths of what `leaves` returns for some paths; nothing for none. Args and errors: as there."""
    return {path for path, _, _ in leaves(repository, tree, paths)} if paths else set()


def _listed(repository: Repository, options: list[str], tree: str, paths: Collection[bytes]) -> list[Leaf]:
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", *options, tree, "--", *map(os.fsdecode, paths))
    return [(path, mode, oid.decode("ascii")) for mode, oid, path in _LINE.findall(repository.git.run(*words).out)]


def _is_within(path: bytes, wanted: set[bytes]) -> bool:
    while path and path not in wanted:
        path = path.rpartition(b"/")[0]
    return path != b""
