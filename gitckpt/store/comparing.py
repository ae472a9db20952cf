"""The trees that stand for a checkpoint's files, to compare them."""

from __future__ import annotations

from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store.store import Store


def files_of(store: Store, checkpoint: Checkpoint) -> str:
    """Returns the tree of a checkpoint's files: its snapshot, or that of the linked commit.

    Raises:
        WorktreeError: it is missing.
    """
    tree = checkpoint.worktree.tree if checkpoint.worktree else None
    return _oid(store.repository, f"{tree}:files") if tree else commit_tree(store.repository, checkpoint.git_sha)


def files_here(store: Store) -> str:
    """Returns the tree of the files as they are in this worktree now.

    Raises:
        WorktreeError: there is no worktree here, or git cannot read it.
    """
    if store.repository.worktree is None:
        raise WorktreeError("there is no worktree here to compare with", hint="compare two checkpoints: git ckpt diff ID ID")
    found = store.capture()
    return _oid(store.repository, f"{found.tree}:files") if found.tree else commit_tree(store.repository, store.objects.head()[0])


def commit_tree(repository: Repository, commit: str) -> str:
    """Returns the tree of a commit; that of no files at all for "".

    Raises:
        WorktreeError: the commit is missing.
    """
    if not commit:
        return repository.git.run("mktree").out.decode("ascii").strip()
    return _oid(repository, f"{commit}^{{tree}}")


def _oid(repository: Repository, name: str) -> str:
    found = repository.cat_file.info(name)
    if found is None:
        raise WorktreeError(f"{name} is missing", hint="see what is wrong: git fsck")
    return found[0]
