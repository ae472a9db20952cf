"""Whether a snapshot is one, and no more than anybody lists: asked before any of it is. It may have been fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitckpt.git.objects.diff import Expansion
from gitckpt.git.objects.encoding import DIRECTORY, Entries, empty_tree
from gitckpt.git.repository import Repository
from gitckpt.model.errors import WorktreeError
from gitckpt.model.format import budget

HINT = "it was not made by gitckpt: git ckpt list, and git ckpt remove with its id"

_DIRECTORIES = (b"files", b"index", b"operation", b"raw", b"run", b"auto-merge")
_LISTS = (b"flags", b"directories", b"modes", b"sparse", b"conversion")


_MOST = budget.OPERATION
OPERATION = f"more than {_MOST.count:,} files, {_MOST.depth} directories within each other, or {budget.OPERATION_SIZE:,} bytes"
"""Beyond this, an operation in progress is neither kept nor brought back."""


class UnsoundSnapshot(WorktreeError):
    """A snapshot is not one that gitckpt makes."""


def require(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Looks at a snapshot before its paths are listed; what is checked out has been listed already.

    Args:
        snapshot: oid of its tree; None where the commit stands for the files.
        commit: full oid; "" for no files at all.

    Raises:
        UnsoundSnapshot: it has more paths, or deeper ones, than `budget.SNAPSHOT` allows, or a tree is none that git would list.
    """
    head = repository.cat_file.info("HEAD^{tree}")
    whole, base = Expansion(repository, budget.SNAPSHOT), head[0] if head is not None else ""
    parts = whole.entries(snapshot) if snapshot is not None else {b"": (DIRECTORY, base_tree(repository, commit))}
    if snapshot is not None and repository.cat_file.info(snapshot) is not None:
        require_shape(parts, snapshot)
    stages = whole.entries(parts.pop(b"index")[1]) if b"index" in parts else {}
    trees = [oid for mode, oid in (*parts.values(), *stages.values()) if mode == DIRECTORY]
    is_beyond = any(whole.is_beyond(base, tree) for tree in trees)
    if whole.flaw:
        raise UnsoundSnapshot(f"{whole.flaw}: {'the snapshot' if snapshot else 'the commit'} {snapshot or commit} leads to it", hint=HINT)
    if is_beyond:
        raise UnsoundSnapshot(_too_much(snapshot or commit), hint=HINT)


def _too_much(tree: str) -> str:
    """Returns what is said of a tree that nobody lists."""
    return f"the tree {tree} holds more than {budget.SNAPSHOT.count:,} paths, or directories within each other without end"


def require_shape(parts: Entries, snapshot: str) -> None:
    """Raises `UnsoundSnapshot` where a snapshot has something else than a directory, or a list, at a place of one.

    Args:
        parts: its entries.
        snapshot: its oid.
    """
    if b"files" not in parts:
        raise UnsoundSnapshot(f"{snapshot} is not the tree of a snapshot: it has no files/", hint=HINT)
    for name, (mode, _) in parts.items():
        if (name in _DIRECTORIES and mode != DIRECTORY) or (name in _LISTS and mode == DIRECTORY):
            is_list = "a list" if name in _LISTS else "a directory"
            raise UnsoundSnapshot(f"{snapshot} is not the tree of a snapshot: {name.decode('ascii')} is not {is_list}", hint=HINT)


def is_too_much(operation: Mapping[str, bytes]) -> bool:
    """Tells whether the files of an operation, content by name, are more than a reader takes."""
    directories = {os.path.dirname(name) for name in operation}
    count = len(operation) + sum(name.count("/") + 1 for name in directories)  # at least as many as there are
    deep = any(name.count("/") > budget.OPERATION.depth for name in operation)
    return count > budget.OPERATION.count or deep or sum(map(len, operation.values())) > budget.OPERATION_SIZE


def base_tree(repository: Repository, commit: str) -> str:
    """Returns the tree of a commit; the empty tree for ""."""
    found = repository.cat_file.info(f"{commit}^{{tree}}") if commit else None
    return found[0] if found else empty_tree(repository.object_format)
