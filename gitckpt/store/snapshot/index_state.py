"""Turns a private index that lists the files of a worktree into the index of a snapshot: what was staged, in conflict, and flagged."""

from __future__ import annotations

from collections.abc import Collection

from gitckpt.git.objects import diff
from gitckpt.git.objects.trees import leaves
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import intent
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.store.snapshot.manifest import ASSUMED, INTENDED, INTENT, SKIPPED, Contents, base_tree


def turn_into(index: PrivateIndex, contents: Contents, commit: str, listed: str | None = None) -> None:
    """Turns an index into that of a snapshot; what git knows of files that stay as they are is kept, so that it need not read them again.

    Args:
        index: lists the files of the worktree.
        contents: of the snapshot.
        commit: the one it is linked to; "" for none.
        listed: the tree of the entries that the index has now, if it is known.

    Raises:
        GitError: git refuses a path, or an object is missing.
    """
    merged = contents.index.get(0) if contents.index else base_tree(index.repository, commit)
    if listed is None or merged is None:
        index.edit("read-tree", *(["--reset", merged] if merged else ["--empty"]))
    else:  # takes half the time, as few entries differ
        differing = diff.differences(index.repository, listed, merged)
        index.put(one.line for one in sorted(differing, key=lambda one: one.status != "D"))
    index.put(conflicts(index.repository, contents))
    add_in_intent(index, contents, contents.flags.get(INTENT, ()))
    for flag in (ASSUMED, SKIPPED):
        change_flag(index, flag, contents.flags.get(flag, ()), ())


def conflicts(repository: Repository, contents: Contents) -> list[bytes]:
    """Returns the entries of a snapshot that are in conflict, as lines for `PrivateIndex.put`.

    Args:
        contents: of the snapshot.
    """
    lines: list[bytes] = []
    for stage in (1, 2, 3):
        tree = contents.index.get(stage)
        found = leaves(repository, tree) if tree else ()
        lines += [b"%s %s %d\t%s" % (mode, oid.encode("ascii"), stage, path) for path, mode, oid in found]
    return lines


def add_in_intent(index: PrivateIndex, contents: Contents, paths: Collection[bytes]) -> None:
    """Adds entries of a snapshot in intent only.

    Args:
        contents: of the snapshot.
        paths: of the entries.
    """
    modes = {path: mode for flag, mode in INTENDED.items() for path in contents.flags.get(flag, ())}
    if paths:
        intent.add(index, paths, modes)


def change_flag(index: PrivateIndex, flag: str, gets: Collection[bytes], loses: Collection[bytes]) -> None:
    """Gives a flag to entries and takes it from others; those that the index lacks, or has in conflict, are passed over.

    Args:
        flag: "assume-unchanged" or "skip-worktree"; entries added in intent only are not for this, they are made and removed.
        gets: paths that get it.
        loses: paths that lose it.
    """
    listed = {path for path, _, _, stage, _ in index.entries() if stage == 0} if gets or loses else set()
    for option, paths in ((f"--{flag}", gets), (f"--no-{flag}", loses)):
        index.update(option, sorted(set(paths).intersection(listed)))
