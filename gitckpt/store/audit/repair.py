"""Mends what `verify` found and what is derived: refs that follow from documents, links, the index.

Of the refs of checkpoints only those that a fetch has replaced go back to what was written here. Of a worktree only what git keeps of it
goes, where its directory is gone and nothing is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from gitckpt.git import damage
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError
from gitckpt.model.format.note import link_id
from gitckpt.store import notes
from gitckpt.store.audit import worktrees
from gitckpt.store.audit.repairable import Flaw, Link
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import index, layout
from gitckpt.store.records.removal import ends
from gitckpt.store.worktrees import scaffold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Item


def mend(store: Checkpoints, flaws: Sequence[Flaw]) -> list[str]:
    """Mends what can be mended. What somebody else changed meanwhile is left as they made it.

    Args:
        flaws: what was found.

    Returns:
        What git refused, a sentence each.

    Raises:
        LockHeld: a lock file stayed in the way; what was mended until then stays so.
    """
    refused: list[str] = []
    with layout.turn(store.repository) as alone:
        keeps_more = False
        left = [flaw for flaw in flaws if flaw.updates and (alone or not flaw.is_leftover)]
        for _ in range(2):  # what is left over goes last, and may stand in the way of a ref that is needed
            due, left, refused = left, [], []
            for flaw in due:
                try:
                    store.refs.update(flaw.updates)
                except RefMoved:
                    continue
                except GitError as error:
                    left.append(flaw)
                    refused.append(f"{flaw.finding.object}: {error.message}")
                else:
                    keeps_more |= any(update.ref.startswith(layout.KEEP) for update in flaw.updates)
        if keeps_more:
            with contextlib.suppress(RefMoved, LockHeld):
                ends.settle(store.repository, store.refs.update, store.index.commits)
        links = [flaw.link for flaw in flaws if flaw.link is not None]
        if links:
            _write_links(store, links)
    for flaw in flaws:
        if flaw.scaffold:
            scaffold.discard(store.repository, flaw.scaffold)
        if flaw.worktree:
            refused += _forget(store, *flaw.worktree)
    if any(flaw.in_index for flaw in flaws):
        _discard_index(store)
    return refused


def _forget(store: Checkpoints, git_dir: str, path: str) -> list[str]:
    """Has git forget a worktree whose directory is gone, if still nothing is lost by it; returns what it refused, one sentence."""
    if not worktrees.can_be_forgotten(store.repository, git_dir, path, store.index.commits() or ()):
        return []
    try:
        administration.forget(store.repository, git_dir)
    except WorktreeError as error:
        return [f"{path}: {error.message}"]
    return []


def _write_links(store: Checkpoints, links: Sequence[Link]) -> None:
    by_commit: dict[str, list[str]] = {}
    for link in links:
        if link.new is not None:
            by_commit.setdefault(link.commit, []).append(link.new)
    gone = {link_id(link.old) for link in links if link.new is None and link.old is not None}

    def make_room(items: Sequence[Item]) -> None:
        made = [object_id(kind, data, store.repository.object_format) for kind, data in items]
        for oid in damage.unreadable(store.repository, made):  # or one that is the same as before would stay as it is
            damage.move_aside(store.repository, oid)

    notes.write(store.repository, store.objects, store.refs, store.clock(), links=by_commit, gone=gone, prepared=make_room)


def _discard_index(store: Checkpoints) -> None:
    """Deletes the derived index; the next question makes it anew."""
    store.index.close()
    path = os.path.join(store.repository.private_dir, index.FILE)
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
