"""Read and move heads: refs to runs' newest checkpoints. Clear stale ref locks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

from gitckpt.git import leftovers, lock
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import ids, times
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import BusyError, NotFoundError
from gitckpt.model.values import dataclass, field
from gitckpt.store import local_checkpoints
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.objects.writer import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.records.index import Index

_STARTS = 1000  # attempts to find an unused run id


def _select(index: Index, **criteria: Any) -> list[CheckpointInfo]:
    from gitckpt.store.records.entry import Query  # `save` does without

    return index.select(Query(**criteria))


def chain(index: Index, repository: Repository, run: str) -> list[CheckpointInfo]:
    """List a run's checkpoints, newest first; fetched ones only if none is local."""
    entries = _select(index, run=run)  # also fetched ones, which must not decide anything
    oids = local_checkpoints.local_oids(repository, run)
    return [entry for entry in entries if entry.oid in oids] or entries


def newest(index: Index, repository: Repository, run: str) -> CheckpointInfo | None:
    """Return the first checkpoint that `chain` would list, or None."""
    entries = _select(index, run=run, limit=1)
    if entries and not local_checkpoints.is_local(repository, run, entries[0].oid):
        entries = chain(index, repository, run)
    return entries[0] if entries else None


def chains_of(index: Index, runs: Collection[str]) -> dict[str, list[CheckpointInfo]]:
    chains: dict[str, list[CheckpointInfo]] = {}
    for entry in _select(index, runs=sorted(runs)) if runs else ():
        chains.setdefault(str(entry.run), []).append(entry)
    return chains


def newest_of(
    index: Index, repository: Repository, runs: Collection[str]
) -> dict[str, CheckpointInfo]:
    newest = {}
    for run, entries in chains_of(index, runs).items():
        oids = local_checkpoints.local_oids(repository, run)
        newest[run] = next((entry for entry in entries if entry.oid in oids), entries[0])
    return newest


def find_head(lines: Iterable[bytes], run: str, objects: Objects, refs: Refs) -> Checkpoint | None:
    """Return the first oid of `lines` that is a checkpoint of the run, or None."""
    # If a hook is killed before it moves the head, the head is stale: the driver's next checkpoint
    # would get the same sequence number.
    for line in lines:
        oid = line.decode("ascii", "replace")
        content = next(objects.read([oid])) if ids.is_oid(oid) else None
        if content is not None and content[0] == "blob":
            newest = ref_names.run_head(content, ref_names.RUNS + run)
            if newest.run == run and refs.read(ref_names.CHECKPOINTS + newest.id) == oid:
                return newest
    return None


@dataclass(slots=True)
class Heads:
    _refs: Refs
    _objects: Objects
    _index: Callable[[], Index]
    _is_local: Callable[[str, str], bool]  # takes a run and the oid of a document
    _moved: set[str] = field(default_factory=set)  # runs that `move_up` has handled

    def read(self, run: str) -> Checkpoint:
        return self.head(run)[1]

    def head(self, run: str) -> tuple[str, Checkpoint]:
        """Return the oid and checkpoint that the head of a run points to."""
        ref = ref_names.RUNS + ids.require_run_id(run)
        if (oid := self._refs.read(ref)) is None:
            raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")
        return oid, ref_names.run_head(next(self._objects.read([oid])), ref)

    def is_ours(self, run: str) -> bool:
        oid = self._refs.read(ref_names.RUNS + run) if ids.is_run_id(run) else None
        return oid is not None and self._is_local(run, oid)

    def catch_up(self, run: str) -> Checkpoint:
        self.move_up(run)
        return self.read(run)

    def move_up(self, run: str) -> None:
        """Move a run's head to its newest checkpoint: after a power cut, it may be older."""
        ref = ref_names.RUNS + ids.require_run_id(run)
        entries = _select(self._index(), run=run, limit=1)
        old = self._refs.read(ref)
        if entries and entries[0].oid != old and not self._is_local(run, entries[0].oid):
            # A head that was written here only moves to checkpoints written here.
            entries_of_run = _select(self._index(), run=run)
            local_entries = [entry for entry in entries_of_run if self._is_local(run, entry.oid)]
            if local_entries and (old is None or self._is_local(run, old)):
                entries = local_entries
        if entries and entries[0].oid != old:
            head = ref_names.run_head(next(self._objects.read([old])), ref) if old else None
            if head is None or (head.sequence or 0) < (entries[0].sequence or 0):
                with contextlib.suppress(RefMoved):  # another process moved it up
                    self._refs.update([Update(ref, entries[0].oid, old or "")])
        self._moved.add(run)

    def move_up_once(self, run: str) -> None:
        if run not in self._moved:
            self.move_up(run)

    def exists(self, run: str) -> bool:
        """Return whether a run exists; create its head if a kill prevented that."""
        if self._refs.read(ref_names.RUNS + run) is None:
            self.move_up(run)
        return self._refs.read(ref_names.RUNS + run) is not None

    def start(
        self, record: Callable[[], object], fields: dict[str, Any], instant: int, name: str
    ) -> None:
        for attempt in range(1, _STARTS):
            fields["run"] = ids.make_run_id(times.to_stamp(instant), name, attempt)
            if self._refs.read(ref_names.RUNS + fields["run"]) is None:
                with contextlib.suppress(RefMoved):
                    record()
                    return
        problem = f"a thousand runs named {name!r} have started in this second"
        raise BusyError(problem, hint="choose another name")


# Stale locks of gitckpt's refs, left by a killed git. Other locks are never removed.
_SUFFIX = ".lock"
_PATIENCE = 2.0  # seconds to wait for other writers


def clear_stale_locks(repository: Repository, tell: Callable[[str], None], blocking: str) -> bool:
    """Remove stale locks of gitckpt's refs; return whether `blocking` is gone."""
    if is_ours(repository, blocking):
        if lock.is_held_here(os.path.join(repository.make_private_dir(), ref_names.WRITE_LOCK)):
            discard_stale_locks(repository, tell)
        else:
            with ref_names.write_lock(repository, _PATIENCE) as is_alone:
                if is_alone:
                    discard_stale_locks(repository, tell)
    return not os.path.lexists(blocking)


def discard_stale_locks(repository: Repository, tell: Callable[[str], object]) -> None:
    """Remove and report stale locks of refs; the caller holds the write lock."""
    stale = leftovers.find_stale_locks(repository, locks(repository))
    if paths := sorted(path for path, mark in stale.items() if leftovers.discard(path, mark)):
        tell(f"removed {join_first(paths, 1)}: left behind by a killed git")


def is_ours(repository: Repository, path: str) -> bool:
    """Return whether a path is the lock file of one of gitckpt's refs."""
    directory, name = os.path.split(path)
    space = os.path.relpath(os.path.realpath(directory), os.path.realpath(repository.common_dir))
    ref = os.path.join(space, name.removesuffix(_SUFFIX))
    is_below = ref.startswith(tuple(f"{own}/" for own in ref_names.OWN))
    is_own = ref == ref_names.NOTES or (is_below and not ref_names.is_foreign(ref))
    return name.endswith(_SUFFIX) and is_own


def locks(repository: Repository) -> list[str]:
    paths = [os.path.join(repository.common_dir, ref_names.NOTES + _SUFFIX)]
    for space in ref_names.OWN:
        for parent, _, names in os.walk(os.path.join(repository.common_dir, space)):
            paths += [os.path.join(parent, name) for name in names]
    return [path for path in paths if is_ours(repository, path) and os.path.lexists(path)]
