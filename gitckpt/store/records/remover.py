"""Removes checkpoints: links, run heads and the checkpoints' own refs first, then what those kept alive.

Two transactions, because git deletes packed refs before loose ones: in a single one, a kill could
leave a checkpoint without its commit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from gitckpt.git.files import premises
from gitckpt.git.refs import LockHeld, RefMoved, Refs, Update
from gitckpt.git.repository import Repository
from gitckpt.model.errors import CkptError
from gitckpt.model.fence import fenced
from gitckpt.model.ids import is_id
from gitckpt.store import notes, roster
from gitckpt.store.records import keep, keys, layout
from gitckpt.store.records.entry import Entry, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects


PATIENCE = 30.0
"""How long a removal is tried against other writers, in seconds."""

_LIST_ALL_FROM = 20

_BEGUN = "removing"
"""A file in the private directory: the checkpoints whose removal has begun, one id a line, until what they kept is let go, too.

Without it, that would stay for the hour in which it may belong to a checkpoint that is being written."""


def begun(repository: Repository) -> set[str]:
    """Returns the checkpoints whose removal has begun, and has not come to its end: whether or not they are there, nobody has lost them.

    Where that cannot be read, what they kept stays until it is old enough for anybody to remove.
    """
    try:
        with open(os.path.join(repository.private_dir, _BEGUN), encoding="ascii", errors="replace", opener=premises.create) as file:
            return {line for line in file.read().splitlines() if is_id(line)}
    except OSError:
        return set()


class Remover:
    """Removes checkpoints of a repository.

    Args:
        index: says which run a checkpoint belongs to.
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, index: Index) -> None:
        self._repository = repository
        self._journal = os.path.join(repository.make_private_dir(), _BEGUN)
        self._objects = objects
        self._refs = refs
        self._index = index

    def remove(
        self,
        ids: Collection[str],
        *,
        runs: Collection[str] | None,
        listed: Mapping[str, Entry] | None,
        last: Collection[str],
        settled: bool,
    ) -> int:
        """Removes checkpoints.

        Args:
            ids: the last parts of their refs.
            runs: the runs that the checkpoints belong to, where the caller knows them.
            listed: each of the checkpoints by its id, where the caller has listed them already.
            last: those of them that go in a transaction of their own, after the others.
            settled: whether the refs that keep commits are looked at as well; if not, whoever calls
                does so once for all that it removes.

        Returns:
            How many checkpoint refs are gone.

        Raises:
            RefMoved: other writers were faster for `PATIENCE` seconds.
            LockHeld: a lock file stayed in the way.
            GitError: git refused. Whatever is raised, each checkpoint is whole or gone.
        """
        wanted = {name for name in ids if not layout.is_foreign(layout.CHECKPOINTS + name)}
        deadline = time.monotonic() + PATIENCE
        gone = 0
        while True:
            there = self._existing(wanted, listed)
            checkpoints = there[layout.CHECKPOINTS]
            try:
                with layout.turn(self._repository):
                    if any(there[space] for space in layout.HOLDERS):
                        self._begin(wanted)
                    notes.append(self._repository, {}, checkpoints.keys())  # first: a kill leaves a line too many
                    self._delete(checkpoints, runs, last)
                gone += len(checkpoints)
                self.finish({name for space in layout.HOLDERS for name in there[space]})
                if wanted and settled:
                    with contextlib.suppress(LockHeld):  # of a ref that a kill left locked: maintenance tries again
                        self.settle()
            except RefMoved:
                if time.monotonic() > deadline:
                    raise
                listed = None
                continue
            return gone

    def _delete(self, checkpoints: Mapping[str, str], runs: Collection[str] | None, last: Collection[str]) -> None:
        """Deletes the refs of checkpoints and moves the heads of runs off them; in two transactions where some go last."""
        heads = self._new_heads(checkpoints, runs)
        early = {name: oid for name, oid in checkpoints.items() if name not in last} if last else {}
        if early and len(early) < len(checkpoints):
            before = self._new_heads(early, runs)  # of those that lag behind
            self._refs.update([*before, *_deletions(early)])
            checkpoints = {name: oid for name, oid in checkpoints.items() if name in last}
            heads = self._new_heads(checkpoints, runs) if before else heads
        over = {head.ref.removeprefix(layout.RUNS) for head in heads if not head.new}
        updates = [*heads, *_deletions(checkpoints), *keys.of_runs(self._refs, self._objects, over)]
        if updates:
            self._refs.update(updates)
        for run in over:
            roster.forget(self._repository, run)

    def finish(self, ids: Collection[str] | None = None) -> None:
        """Lets go what checkpoints kept whose removal has begun, be it that somebody else was killed at it.

        Args:
            ids: those that were removed just now. A lock that is in the way of others then leaves
                those to whoever comes next; None makes it an error.

        Raises:
            RefMoved: somebody else was faster.
            LockHeld, GitError: git refused.
        """
        with layout.turn(self._repository):
            left = begun(self._repository)
            own = left if ids is None else set(ids)
            if not own | left:
                return
            there = self._existing(own | left)
            self._let_go(there, own)
            try:
                self._let_go(there, left - own)
            except LockHeld:  # which cannot be told yet from one that somebody holds; of what was asked for, nothing is left
                return
            with contextlib.suppress(OSError):  # what is named twice does no harm
                os.unlink(self._journal)

    def _let_go(self, there: Mapping[str, Mapping[str, str]], ids: Collection[str]) -> None:
        """Deletes what those of some checkpoints have kept that are gone."""
        held = [
            Update(space + name, "", oid)
            for space in reversed(layout.HOLDERS)
            for name, oid in there[space].items()
            if name in ids and name not in there[layout.CHECKPOINTS]  # of these, it had not begun
        ]
        if held:
            self._refs.update(held)

    def settle(self) -> None:
        """Finishes removals, moves the refs that keep commits down to those that checkpoints still need, and drops those that others reach.

        Raises:
            RefMoved: another writer was faster.
            LockHeld, GitError: git refused; each commit that is needed is kept.
        """
        self.finish()
        with layout.turn(self._repository):
            keep.settle(self._repository, self._refs.update, self._commits)

    def _begin(self, ids: Collection[str]) -> None:
        """Notes what is about to be removed. On a full disk that is not possible, and removing all the more needed."""
        with contextlib.suppress(OSError), open(self._journal, "a", encoding="ascii", opener=premises.create) as file:
            file.write("".join(f"{name}\n" for name in ids))

    def _existing(self, wanted: set[str], listed: Mapping[str, Entry] | None = None) -> dict[str, dict[str, str]]:
        """Returns oid by name for each of the refs that wanted checkpoints have; their own are not asked for where `listed` has them."""
        spaces = layout.HOLDERS if listed is not None else (layout.CHECKPOINTS, *layout.HOLDERS)
        patterns = [space + name for space in spaces for name in wanted] if len(wanted) < _LIST_ALL_FROM else spaces
        found: dict[str, dict[str, str]] = {space: {} for space in spaces}
        for ref, oid in self._refs.each(*patterns) if wanted else ():
            space, _, name = ref.rpartition("/")
            if name in wanted and f"{space}/" in found:  # others have names below ours that end like those of ours
                found[f"{space}/"][name] = oid
        if listed is not None:
            found[layout.CHECKPOINTS] = {name: listed[name].oid for name in sorted(wanted)}
        return found

    def _headed_by(self, oids: Collection[str]) -> set[str]:
        """Returns the runs whose head is one of some documents."""
        return {ref.removeprefix(layout.RUNS) for ref, oid in self._refs.each(layout.RUNS) if oid in oids}

    def _commits(self) -> set[str] | None:
        """Returns the commits that checkpoints need; None where that cannot be told."""
        try:
            return fenced(layout.CHECKPOINTS, self._index.commits)
        except CkptError:
            return None

    def _entries(self, query: Query) -> Sequence[Entry]:
        """Returns what the index has; nothing where it cannot be made, as what is to be removed may be the reason for that.

        The head of a run that was to move then goes: whoever reads the run takes the newest
        checkpoint that is left, and `verify --repair` puts it back.
        """
        try:
            return fenced(layout.CHECKPOINTS, partial(self._index.select, query))
        except CkptError:
            return ()

    def _new_heads(self, gone: Mapping[str, str], runs: Collection[str] | None) -> list[Update]:
        """Returns the updates that move heads of runs off checkpoints that go."""
        updates = []
        if runs is None:
            entries = self._entries(Query(ids=list(gone)))
            runs = {entry.run for entry in entries if entry.run}
            if len(entries) < len(gone):  # where a document cannot be read, only the head tells whose it was
                runs |= self._headed_by(set(gone.values()))
        newest: dict[str, str] = {}
        for entry in self._entries(Query(runs=sorted(runs))) if runs else ():
            if entry.run and entry.id not in gone:
                newest.setdefault(entry.run, entry.oid)
        for run in sorted(runs):
            ref = layout.RUNS + run
            old = self._refs.read(ref)
            if old is not None and old in gone.values():
                updates.append(Update(ref, newest.get(run, ""), old))
        return updates


def _deletions(checkpoints: Mapping[str, str]) -> list[Update]:
    return [Update(layout.CHECKPOINTS + name, "", oid) for name, oid in checkpoints.items()]
