"""What git has written when it stops in the middle of replacing files, because a filter fails: the next attempt goes on from there."""

from __future__ import annotations

import os
from collections.abc import Collection

from gitckpt.git.objects import diff
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import BusyError
from gitckpt.model.names import first_of
from gitckpt.store.snapshot import comparison


def take_note(index: PrivateIndex, paths: Collection[bytes], before: str, expected: str) -> None:
    """Has an index list files as they are now.

    Args:
        index: lists them as they were before.
        paths: what was to be replaced.
        before: the tree of the files as they were.
        expected: the tree of the files as they shall be.

    Raises:
        BusyError: a file is neither as it was nor as it shall be: somebody has changed it meanwhile.
    """
    repository = index.repository
    top = os.fsencode(repository.worktree or "")
    there = [path for path in paths if _is_file(top, path)]
    index.update("--force-remove", set(paths).difference(there))
    index.git("update-index", "--add", "--replace", "-z", "--stdin", data=b"".join(path + b"\0" for path in there))
    now = index.write_tree()
    new = [one for one in diff.differences(repository, before, now) if one.status != "D"]
    missed = {one.path: one for one in diff.differences(repository, expected, now)}
    changed = comparison.unexpected(repository, [missed[one.path] for one in new if one.path in missed], None, {})
    if changed:
        raise BusyError(
            f"files changed while they were replaced: {first_of(changed)}", hint="go back to what was there before: git ckpt undo"
        )


def _is_file(top: bytes, path: bytes) -> bool:
    whole = os.path.join(top, path)
    parts = path.split(b"/")
    above = (os.path.join(top, *parts[:count]) for count in range(1, len(parts)))
    return (os.path.isfile(whole) or os.path.islink(whole)) and not any(os.path.islink(parent) for parent in above)
