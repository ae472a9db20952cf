"""Remove checkpoints: notes, heads and checkpoint refs first, then object refs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from gitckpt.git.files import private_dirs
from gitckpt.git.refs import LockHeld, RefMoved, Refs, Update
from gitckpt.git.repository import Repository
from gitckpt.model.errors import CkptError
from gitckpt.model.ids import is_id
from gitckpt.model.skip_invalid import read_safely
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.records import commit_refs, keys, ref_names
from gitckpt.store.records.entry import ById, CheckpointInfo, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Objects

    Names = Collection[str]  # of checkpoints or runs
    Oids = Mapping[str, str]  # by the id of a checkpoint

PATIENCE = 30.0  # seconds to retry against other writers
_LIST_ALL_FROM = 20

# File in the private directory: ids whose removal has begun, until their object refs are deleted.
# Without it these refs stay for an hour: they could belong to a checkpoint being written.
_JOURNAL = "removing"


def interrupted_removals(repository: Repository) -> set[str]:
    path = os.path.join(repository.private_dir, _JOURNAL)
    try:
        with open(path, encoding="ascii", errors="replace", opener=private_dirs.create) as file:
            return set(filter(is_id, file.read().splitlines()))
    except OSError:
        return set()  # the object refs are deleted once they are old


class Remover:
    def __init__(self, repository: Repository, objects: Objects, refs: Refs, index: Index) -> None:
        self._repository = repository
        self._journal = os.path.join(repository.make_private_dir(), _JOURNAL)
        self._objects, self._refs, self._index = objects, refs, index

    def remove(
        self, ids: Names, *, runs: Names | None, listed: ById | None, last: Names, settled: bool
    ) -> int:
        """Remove checkpoints, those in `last` after the rest; return the number."""
        names = {name for name in ids if not ref_names.is_foreign(ref_names.CHECKPOINTS + name)}
        deadline = time.monotonic() + PATIENCE
        count = 0
        while True:
            refs = self._existing(names, listed)
            checkpoints = refs[ref_names.CHECKPOINTS]
            try:
                with ref_names.write_lock(self._repository):
                    if any(refs[space] for space in ref_names.OBJECTS):
                        self._record_removal(names)
                    # Append before deleting: a kill leaves a superfluous line.
                    notes.append(self._repository, {}, checkpoints.keys())
                    self._delete(checkpoints, runs, last)
                count += len(checkpoints)
                # In a second transaction: git deletes packed refs before loose ones, and a kill
                # could leave a checkpoint without its commit.
                self.finish({name for space in ref_names.OBJECTS for name in refs[space]})
                if names and settled:  # else the caller does it once, after many removals
                    with contextlib.suppress(LockHeld):  # a ref is locked: maintenance tries again
                        self.settle()
                return count
            except RefMoved:
                if time.monotonic() > deadline:
                    raise
                listed = None

    def _delete(self, checkpoints: Oids, runs: Names | None, last: Names) -> None:
        heads = self._new_heads(checkpoints, runs)
        first = {name: oid for name, oid in checkpoints.items() if name not in last} if last else {}
        if first and len(first) < len(checkpoints):
            early_heads = self._new_heads(first, runs)  # heads that lag behind
            self._refs.update([*early_heads, *_deletions(first)])
            checkpoints = {name: oid for name, oid in checkpoints.items() if name in last}
            heads = self._new_heads(checkpoints, runs) if early_heads else heads
        ended = {head.ref.removeprefix(ref_names.RUNS) for head in heads if not head.new}
        keys_of_ended = keys.of_runs(self._refs, self._objects, ended)
        updates = [*heads, *_deletions(checkpoints), *keys_of_ended]
        if updates:
            self._refs.update(updates)
        for run in ended:
            local_checkpoints.forget(self._repository, run)

    def finish(self, ids: Names | None = None) -> None:
        """Delete the object refs of removed checkpoints, and of interrupted removals."""
        with ref_names.write_lock(self._repository):
            interrupted = interrupted_removals(self._repository)
            names = interrupted if ids is None else set(ids)
            if not names | interrupted:
                return
            refs = self._existing(names | interrupted)
            self._delete_object_refs(refs, names)
            try:
                self._delete_object_refs(refs, interrupted - names)
            except LockHeld:  # a ref of an interrupted removal is locked; all of `ids` are done
                return
            with contextlib.suppress(OSError):  # a repeated id does no harm
                os.unlink(self._journal)

    def _delete_object_refs(self, refs: Mapping[str, Oids], ids: Names) -> None:
        removed = set(ids) - refs[ref_names.CHECKPOINTS].keys()  # existing ones need refs
        updates = [
            Update(space + name, "", oid)
            for space in reversed(ref_names.OBJECTS)
            for name, oid in refs[space].items()
            if name in removed
        ]
        if updates:
            self._refs.update(updates)

    def settle(self) -> None:
        self.finish()
        with ref_names.write_lock(self._repository):
            commit_refs.settle(self._repository, self._refs.update, self._linked_commits)

    def _record_removal(self, ids: Names) -> None:
        lines = "".join(f"{name}\n" for name in ids)
        # On a full disk this fails, and the removal is needed all the more.
        with (
            contextlib.suppress(OSError),
            open(self._journal, "a", encoding="ascii", opener=private_dirs.create) as file,
        ):
            file.write(lines)

    def _existing(self, names: set[str], listed: ById | None = None) -> Mapping[str, Oids]:
        spaces = [*ref_names.OBJECTS] if listed else [ref_names.CHECKPOINTS, *ref_names.OBJECTS]
        patterns = spaces
        if len(names) < _LIST_ALL_FROM:
            patterns = [space + name for space in spaces for name in names]
        refs: dict[str, dict[str, str]] = {space: {} for space in spaces}
        for ref, oid in self._refs.iterate(*patterns) if names else ():
            space, _, name = ref.rpartition("/")
            # Foreign refs in deeper namespaces may end in the same name.
            if name in names and f"{space}/" in refs:
                refs[f"{space}/"][name] = oid
        if listed:
            refs[ref_names.CHECKPOINTS] = {name: listed[name].oid for name in sorted(names)}
        return refs

    def _linked_commits(self) -> set[str] | None:
        try:
            return read_safely(ref_names.CHECKPOINTS, self._index.commits)
        except CkptError:
            return None

    def _select(self, query: Query) -> Sequence[CheckpointInfo]:
        try:
            return read_safely(ref_names.CHECKPOINTS, partial(self._index.select, query))
        # A checkpoint to be removed may be broken. Run heads are then deleted, not moved: readers
        # use the newest checkpoint left, and `verify --repair` restores the head.
        except CkptError:
            return ()

    def _new_heads(self, removed: Oids, runs: Names | None) -> list[Update]:
        updates = []
        if runs is None:
            entries = self._select(Query(ids=list(removed)))
            runs = {entry.run for entry in entries if entry.run}
            if len(entries) < len(removed):  # only the head names the run of an unreadable document
                oids = set(removed.values())
                heads = self._refs.iterate(ref_names.RUNS)
                runs |= {ref.removeprefix(ref_names.RUNS) for ref, oid in heads if oid in oids}
        newest: dict[str, str] = {}
        for entry in self._select(Query(runs=sorted(runs))) if runs else ():
            if entry.run and entry.id not in removed:
                newest.setdefault(entry.run, entry.oid)
        for run in sorted(runs):
            ref = ref_names.RUNS + run
            if (old := self._refs.read(ref)) is not None and old in removed.values():
                updates.append(Update(ref, newest.get(run, ""), old))
        return updates


def _deletions(checkpoints: Oids) -> list[Update]:
    return [Update(ref_names.CHECKPOINTS + name, "", oid) for name, oid in checkpoints.items()]
