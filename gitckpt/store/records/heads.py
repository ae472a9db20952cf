"""Read and move heads (refs to newest checkpoints of runs); delete stale locks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

from gitckpt.git import leftovers, lock
from gitckpt.git.refs import RefMoved, Refs, RefUpdate
from gitckpt.model import ids, times
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import BusyError, NotFoundError
from gitckpt.model.values import dataclass, field
from gitckpt.store import local_checkpoints
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.records.index import Index

_STARTS = 1000  # attempts to find an unused run id


def _select_entries(index: Index, **criteria: Any) -> list[CheckpointInfo]:
    from gitckpt.store.records.entry import Query  # `save` does without

    return index.select(Query(**criteria))


def list_run_checkpoints(index: Index, repository: Repository, run: str) -> list[CheckpointInfo]:
    """List a run's checkpoints, newest first; fetched ones only if none was made here."""
    entries = _select_entries(index, run=run)  # also fetched ones, which must not decide anything
    local_oids = local_checkpoints.read_local_oids(repository, run)
    return [entry for entry in entries if entry.oid in local_oids] or entries


def find_newest_of_run(index: Index, repository: Repository, run: str) -> CheckpointInfo | None:
    newest_entries = _select_entries(index, run=run, limit=1)
    is_local = local_checkpoints.is_document_local
    if newest_entries and not is_local(repository, run, newest_entries[0].oid):
        newest_entries = list_run_checkpoints(index, repository, run)
    return newest_entries[0] if newest_entries else None


def group_by_run(index: Index, runs: Collection[str]) -> dict[str, list[CheckpointInfo]]:
    entries_by_run: dict[str, list[CheckpointInfo]] = {}
    for entry in _select_entries(index, runs=sorted(runs)) if runs else ():
        entries_by_run.setdefault(str(entry.run), []).append(entry)
    return entries_by_run


def find_newest_by_run(
    index: Index, repository: Repository, runs: Collection[str]
) -> dict[str, CheckpointInfo]:
    newest_by_run = {}
    for run, entries in group_by_run(index, runs).items():
        oids = local_checkpoints.read_local_oids(repository, run)
        newest_by_run[run] = next((entry for entry in entries if entry.oid in oids), entries[0])
    return newest_by_run


def find_run_head(
    lines: Iterable[bytes], run: str, objects: ObjectDatabase, refs: Refs
) -> Checkpoint | None:
    # If a hook is killed before it moves the head, the head is stale: the driver's next checkpoint
    # would get the same sequence number.
    for oid_line in lines:
        oid = oid_line.decode("ascii", "replace")
        content = next(objects.read([oid])) if ids.is_oid(oid) else None
        if content is not None and content[0] == "blob":
            checkpoint = ref_names.parse_run_head(content, ref_names.RUNS + run)
            ref = ref_names.CHECKPOINTS + checkpoint.id
            if checkpoint.run == run and refs.read_ref(ref) == oid:
                return checkpoint
    return None


@dataclass(slots=True)
class RunHeads:
    _refs: Refs
    _objects: ObjectDatabase
    _index: Callable[[], Index]
    _is_local: Callable[[str, str], bool]  # takes a run and the oid of a document
    _moved: set[str] = field(default_factory=set)  # runs that `move_head_up` has handled

    def read(self, run: str) -> Checkpoint:
        return self.read_head(run)[1]

    def read_head(self, run: str) -> tuple[str, Checkpoint]:
        ref = ref_names.RUNS + ids.require_run_id(run)
        if (oid := self._refs.read_ref(ref)) is None:
            raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")
        return oid, ref_names.parse_run_head(next(self._objects.read([oid])), ref)

    def is_head_local(self, run: str) -> bool:
        oid = self._refs.read_ref(ref_names.RUNS + run) if ids.is_run_id(run) else None
        return oid is not None and self._is_local(run, oid)

    def move_head_up_and_read(self, run: str) -> Checkpoint:
        self.move_head_up(run)
        return self.read(run)

    def move_head_up(self, run: str) -> None:
        """Move a run's head to the newest checkpoint if a power cut left it behind."""
        ref = ref_names.RUNS + ids.require_run_id(run)
        candidates = _select_entries(self._index(), run=run, limit=1)
        old = self._refs.read_ref(ref)
        if candidates and candidates[0].oid != old and not self._is_local(run, candidates[0].oid):
            # A head that was written here only moves to checkpoints written here.
            entries_of_run = _select_entries(self._index(), run=run)
            local_entries = [entry for entry in entries_of_run if self._is_local(run, entry.oid)]
            if local_entries and (old is None or self._is_local(run, old)):
                candidates = local_entries
        if candidates and candidates[0].oid != old:
            head = ref_names.parse_run_head(next(self._objects.read([old])), ref) if old else None
            if head is None or (head.sequence or 0) < (candidates[0].sequence or 0):
                with contextlib.suppress(RefMoved):  # another process moved it up
                    self._refs.apply_updates([RefUpdate(ref, candidates[0].oid, old or "")])
        self._moved.add(run)

    def move_head_up_once(self, run: str) -> None:
        if run not in self._moved:
            self.move_head_up(run)

    def trust_head(self, run: str) -> None:
        """Record after the head as it is: the index takes 40 ms among 10,000 checkpoints.

        After a power cut, two checkpoints of the run may get the same sequence number.
        """
        self._moved.add(run)

    def run_exists(self, run: str) -> bool:
        """Return whether a run exists; recreate its head if only the head is missing."""
        if self._refs.read_ref(ref_names.RUNS + run) is None:
            self.move_head_up(run)
        return self._refs.read_ref(ref_names.RUNS + run) is not None

    def start_run(
        self, record: Callable[[], object], fields: dict[str, Any], instant: int, name: str
    ) -> None:
        for attempt in range(1, _STARTS):
            fields["run"] = ids.make_run_id(times.to_run_id_stamp(instant), name, attempt)
            if self._refs.read_ref(ref_names.RUNS + fields["run"]) is None:
                with contextlib.suppress(RefMoved):
                    record()
                    return
        problem = f"a thousand runs named {name!r} have started in this second"
        raise BusyError(problem, hint="choose another name")


# Stale locks of gitckpt's refs, left by a killed git. Other locks are never removed.
_SUFFIX = ".lock"
_PATIENCE = 2.0  # seconds to wait for other writers


def clear_stale_locks(repository: Repository, tell: Callable[[str], None], blocking: str) -> bool:
    """Delete stale locks of gitckpt's refs; return whether file `blocking` is gone."""
    if is_ref_lock(repository, blocking):
        write_lock = os.path.join(repository.make_private_dir(), ref_names.WRITE_LOCK)
        if lock.is_held_by_this_process(write_lock):
            discard_stale_locks(repository, tell)
        else:
            with ref_names.write_lock(repository, _PATIENCE) as is_locked:
                if is_locked:
                    discard_stale_locks(repository, tell)
    return not os.path.lexists(blocking)


def discard_stale_locks(repository: Repository, tell: Callable[[str], object]) -> None:
    """Delete and report stale locks of refs; the caller must hold `write_lock`."""
    locks = leftovers.find_stale_locks(repository, list_ref_locks(repository))
    deleted = [path for path, stat in locks.items() if leftovers.delete_if_unchanged(path, stat)]
    if deleted:
        tell(f"removed {join_first(sorted(deleted), 1)}: left behind by a killed git")


def is_ref_lock(repository: Repository, path: str) -> bool:
    directory, file_name = os.path.split(path)
    parent = os.path.relpath(os.path.realpath(directory), os.path.realpath(repository.common_dir))
    ref = os.path.join(parent, file_name.removesuffix(_SUFFIX))
    is_in_namespace = ref.startswith(tuple(f"{namespace}/" for namespace in ref_names.OWN))
    is_own_ref = ref == ref_names.NOTES or (is_in_namespace and not ref_names.is_foreign(ref))
    return file_name.endswith(_SUFFIX) and is_own_ref


def list_ref_locks(repository: Repository) -> list[str]:
    lock_paths = [os.path.join(repository.common_dir, ref_names.NOTES + _SUFFIX)]
    for namespace in ref_names.OWN:
        for parent, _, file_names in os.walk(os.path.join(repository.common_dir, namespace)):
            lock_paths += [os.path.join(parent, file_name) for file_name in file_names]
    return [path for path in lock_paths if is_ref_lock(repository, path) and os.path.lexists(path)]
