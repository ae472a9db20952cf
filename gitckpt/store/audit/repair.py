"""Mends what `verify` found and what is derived: refs that follow from documents, links, the index.

Of the refs of checkpoints only those that a fetch has replaced go back to what was written here. Of a worktree only what git keeps of it
goes, where its directory is gone and nothing is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from gitckpt.git import damage
from gitckpt.git.notes.editor import Notes
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError
from gitckpt.model.format import note
from gitckpt.store.audit import worktrees
from gitckpt.store.audit.repairable import Flaw, Link
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.links import Links
from gitckpt.store.records import index, layout
from gitckpt.store.records.removal import ends
from gitckpt.store.worktrees import scaffold

_TRIES = 20


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
    there = {ref.removeprefix(layout.CHECKPOINTS) for ref, _ in store.refs.each(layout.CHECKPOINTS)}
    by_commit: dict[str, list[Link]] = {}
    for link in links:
        if link.new is None or note.link_id(link.new) in there:  # else it was removed meanwhile
            by_commit.setdefault(link.commit, []).append(link)

    def change(commit: str, lines: list[str]) -> list[str]:
        instead = {link.old: link.new for link in by_commit[commit] if link.old is not None}
        kept = [instead.get(line, line) for line in lines]
        new = [link.new for link in by_commit[commit] if link.old is None and link.new is not None]
        there = [line for line in dict.fromkeys(kept) if line is not None]
        return note.merged(commit, there, new, Links(store.repository, store.objects).origins)

    notes = Notes(store.repository, store.objects, layout.NOTES)
    for _ in range(_TRIES):
        tip = store.refs.read(layout.NOTES) or ""
        new_tip, derived = notes.edited(tip, list(by_commit), change, store.clock())
        made = [object_id(kind, data, store.repository.object_format) for kind, data in derived]
        for oid in damage.unreadable(store.repository, made):  # or one that is the same as before would stay as it is
            damage.move_aside(store.repository, oid)
        store.objects.write(derived)
        if new_tip == tip:
            return
        with contextlib.suppress(RefMoved):
            store.refs.update([Update(layout.NOTES, new_tip, tip)])
            return


def _discard_index(store: Checkpoints) -> None:
    """Deletes the derived index; the next question makes it anew."""
    store.index.close()
    path = os.path.join(store.repository.private_dir, index.FILE)
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
