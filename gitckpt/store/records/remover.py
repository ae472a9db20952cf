"""Remove checkpoints, and the notes and refs that belong to them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from gitckpt.git.files import private_dirs
from gitckpt.git.refs import LockHeld, RefMoved, Refs, RefUpdate
from gitckpt.git.repository import Repository
from gitckpt.model.errors import CkptError
from gitckpt.model.ids import is_checkpoint_id
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.records import commit_refs, keys, ref_names
from gitckpt.store.records.entry import ById, CheckpointInfo, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.store.records.labels import LabelRefs

    Names = Collection[str]  # of checkpoints or runs
    Oids = Mapping[str, str]  # by the id of a checkpoint

PATIENCE = 30.0  # seconds to retry against other writers
_LIST_ALL_FROM = 20

# File in the private directory: ids whose removal has begun, until their object refs are deleted.
# Without it these refs stay for an hour: they could belong to a checkpoint being written.
_JOURNAL = "removing"


def read_interrupted_removals(repository: Repository) -> set[str]:
    path = os.path.join(repository.private_dir, _JOURNAL)
    try:
        opener = private_dirs.open_private_file
        with open(path, encoding="ascii", errors="replace", opener=opener) as file:
            return set(filter(is_checkpoint_id, file.read().splitlines()))
    except OSError:
        return set()  # the object refs are deleted once they are old


class CheckpointRemover:
    def __init__(
        self,
        repository: Repository,
        objects: ObjectDatabase,
        refs: Refs,
        index: Index,
        labels: LabelRefs,
    ) -> None:
        self._repository = repository
        self._journal = os.path.join(repository.make_private_dir(), _JOURNAL)
        self._objects, self._refs, self._index, self._labels = objects, refs, index, labels

    def remove_checkpoints(
        self, ids: Names, *, runs: Names | None, listed: ById | None, last: Names, settled: bool
    ) -> int:
        own_ids = {name for name in ids if not ref_names.is_foreign(ref_names.CHECKPOINTS + name)}
        deadline = time.monotonic() + PATIENCE
        removed_count = 0
        while True:
            refs = self._find_refs(own_ids, listed)
            checkpoints = refs[ref_names.CHECKPOINTS]
            try:
                with ref_names.write_lock(self._repository):
                    if any(refs[space] for space in ref_names.OBJECTS):
                        self._record_removal(own_ids)
                    # Append before deleting: a kill leaves a superfluous line.
                    notes.queue_links(self._repository, {}, checkpoints.keys())
                    self._delete_checkpoints(checkpoints, runs, last)
                removed_count += len(checkpoints)
                # In a second transaction: git deletes packed refs before loose ones, and a kill
                # could leave a checkpoint without its commit.
                self.finish_removals({name for space in ref_names.OBJECTS for name in refs[space]})
                if own_ids and settled:  # else the caller does it once, after many removals
                    with contextlib.suppress(LockHeld):  # a ref is locked: maintenance tries again
                        self.update_keep_refs()
                return removed_count
            except RefMoved:
                if time.monotonic() > deadline:
                    raise
                listed = None

    def _delete_checkpoints(self, checkpoints: Oids, runs: Names | None, last: Names) -> None:
        label_deletions = self._labels.list_deletions(checkpoints)
        new_heads = self._plan_run_heads(checkpoints, runs)
        first = {name: oid for name, oid in checkpoints.items() if name not in last} if last else {}
        if first and len(first) < len(checkpoints):
            early_heads = self._plan_run_heads(first, runs)  # heads that lag behind
            self._refs.apply_updates([*early_heads, *_list_ref_deletions(first)])
            checkpoints = {name: oid for name, oid in checkpoints.items() if name in last}
            new_heads = self._plan_run_heads(checkpoints, runs) if early_heads else new_heads
        ended_runs = {head.ref.removeprefix(ref_names.RUNS) for head in new_heads if not head.new}
        keys_of_ended = keys.list_key_deletions(self._refs, self._objects, ended_runs)
        updates = [*new_heads, *_list_ref_deletions(checkpoints), *keys_of_ended, *label_deletions]
        if updates:
            self._refs.apply_updates(updates)
        for run in ended_runs:
            local_checkpoints.delete_run_file(self._repository, run)

    def finish_removals(self, ids: Names | None = None) -> None:
        """Delete the refs that still protect trees of already removed checkpoints."""
        with ref_names.write_lock(self._repository):
            interrupted_ids = read_interrupted_removals(self._repository)
            removed_ids = interrupted_ids if ids is None else set(ids)
            if not removed_ids | interrupted_ids:
                return
            refs = self._find_refs(removed_ids | interrupted_ids)
            self._delete_object_refs(refs, removed_ids)
            try:
                self._delete_object_refs(refs, interrupted_ids - removed_ids)
            except LockHeld:  # a ref of an interrupted removal is locked; all of `ids` are done
                return
            with contextlib.suppress(OSError):  # a repeated id does no harm
                os.unlink(self._journal)

    def _delete_object_refs(self, refs: Mapping[str, Oids], ids: Names) -> None:
        removed_ids = set(ids) - refs[ref_names.CHECKPOINTS].keys()  # existing ones need refs
        updates = [
            RefUpdate(namespace + name, "", oid)
            for namespace in reversed(ref_names.OBJECTS)
            for name, oid in refs[namespace].items()
            if name in removed_ids
        ]
        if updates:
            self._refs.apply_updates(updates)

    def update_keep_refs(self) -> None:
        self.finish_removals()
        with ref_names.write_lock(self._repository):
            apply = self._refs.apply_updates
            commit_refs.update_keep_refs(self._repository, apply, self._list_commits)

    def _record_removal(self, ids: Names) -> None:
        journal_lines = "".join(f"{name}\n" for name in ids)
        # On a full disk this fails, and the removal is needed all the more.
        path, opener = self._journal, private_dirs.open_private_file
        with contextlib.suppress(OSError), open(path, "a", encoding="ascii", opener=opener) as file:
            file.write(journal_lines)

    def _find_refs(self, names: set[str], listed: ById | None = None) -> Mapping[str, Oids]:
        namespaces = [*ref_names.OBJECTS] if listed else [ref_names.CHECKPOINTS, *ref_names.OBJECTS]
        patterns = namespaces
        if len(names) < _LIST_ALL_FROM:
            patterns = [namespace + name for namespace in namespaces for name in names]
        refs: dict[str, dict[str, str]] = {namespace: {} for namespace in namespaces}
        for ref, oid in self._refs.iterate_refs(*patterns) if names else ():
            namespace, _, name = ref.rpartition("/")
            # Foreign refs in deeper namespaces may end in the same name.
            if name in names and f"{namespace}/" in refs:
                refs[f"{namespace}/"][name] = oid
        if listed:
            refs[ref_names.CHECKPOINTS] = {name: listed[name].oid for name in sorted(names)}
        return refs

    def _list_commits(self) -> set[str] | None:
        try:
            return read_or_raise_invalid(ref_names.CHECKPOINTS, self._index.list_commits)
        except CkptError:
            return None

    def _select_entries(self, query: Query) -> Sequence[CheckpointInfo]:
        try:
            return read_or_raise_invalid(ref_names.CHECKPOINTS, partial(self._index.select, query))
        # A checkpoint to be removed may be broken. Run heads are then deleted, not moved: readers
        # use the newest checkpoint left, and `verify --repair` restores the head.
        except CkptError:
            return ()

    def _plan_run_heads(self, removed: Oids, runs: Names | None) -> list[RefUpdate]:
        updates = []
        if runs is None:
            entries = self._select_entries(Query(ids=list(removed)))
            runs = {entry.run for entry in entries if entry.run}
            if len(entries) < len(removed):  # only the head names the run of an unreadable document
                oids = set(removed.values())
                run_heads = self._refs.iterate_refs(ref_names.RUNS)
                runs |= {ref.removeprefix(ref_names.RUNS) for ref, oid in run_heads if oid in oids}
        newest_oids: dict[str, str] = {}
        for entry in self._select_entries(Query(runs=sorted(runs))) if runs else ():
            if entry.run and entry.id not in removed:
                newest_oids.setdefault(entry.run, entry.oid)
        for run in sorted(runs):
            ref = ref_names.RUNS + run
            if (old_oid := self._refs.read_ref(ref)) is not None and old_oid in removed.values():
                updates.append(RefUpdate(ref, newest_oids.get(run, ""), old_oid))
        return updates


def _list_ref_deletions(checkpoints: Oids) -> list[RefUpdate]:
    return [RefUpdate(ref_names.CHECKPOINTS + name, "", oid) for name, oid in checkpoints.items()]
