"""What there was: the run to go on with, and cleanup by age."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitckpt.model import runstate, times
from gitckpt.model.checkpoint import HOOK_TRIGGERS, SAFETY, STEP
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.policy import Policy
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.retention import runs
from gitckpt.store.runs import summary

if TYPE_CHECKING:
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.store import Store

_FIRST = 100
"""So many are looked at before all are: most repositories have hooks that record at each commit."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleanup did, as numbers of checkpoints.

    Attributes:
        deleted: that are gone.
        failed: that could not be deleted, or not be read: what is no valid checkpoint is never deleted.
        skipped: that are old enough and belong to a run that somebody drives.
    """

    deleted: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of runs that are complete and old enough.

    Attributes:
        gone: the ids of those that are gone, with their worktrees.
        kept: why each of the others stays, by id.
    """

    gone: tuple[str, ...]
    kept: Mapping[str, str]


def latest_resumable(store: Store) -> Checkpoint | None:
    """Returns the checkpoint to go on with; None where there is none.

    It is the newest one of the newest run that is neither complete nor driven by anybody; or, where that is newer, the newest of a phase
    that was recorded outside of runs, as a script does with `git ckpt save --phase research-failed`: its `run` is None, and there is its
    state to go on with. A script says with `--phase run-complete` that there is nothing left to do.

    Within a run the sequence decides, otherwise the time. What cannot be read is passed over. The `errors` of the checkpoint say why it
    stopped.

    Args:
        store: of the repository.
    """
    found = [each for each in (_of_runs(store), _outside(store)) if each is not None]
    return max(found, key=lambda each: each.time, default=None)


def _of_runs(store: Store) -> Checkpoint | None:
    for run in summary.summaries(store):
        if run.status in (runstate.COMPLETE, runstate.RUNNING):
            continue
        found = _first_whole(store, store.list(Query(run=run.id)))
        if found is not None:
            return found
    return None


def _outside(store: Store) -> Checkpoint | None:
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        told = [entry for entry in entries if entry.trigger not in (*HOOK_TRIGGERS, SAFETY, STEP)]
        done = next((at for at, entry in enumerate(told) if entry.phase == layout.RUN_COMPLETE), None)
        phases = [entry for entry in told[:done] if split(entry.phase)[0] not in NOT_PHASES]
        found = _first_whole(store, phases)
        if found is not None or done is not None or len(entries) < _FIRST:
            return found
    return None


def _first_whole(store: Store, entries: Iterable[Entry]) -> Checkpoint | None:
    """Returns the first of some checkpoints that can be read."""
    for entry in entries:
        try:
            return store.read(entry.id)
        except (InvalidCheckpoint, NotFoundError):
            continue
    return None


def cleanup_by_age(store: Store, days: int) -> Cleaned:
    """Deletes the checkpoints that are so many days old, of whatever kind, except those of runs that somebody drives. Worktrees stay.

    One that cannot be deleted, as when somebody holds a lock, is counted, and the others go.

    Args:
        store: of the repository.
        days: the age in days, as `times.age_in_days` counts it; 0 or less for all.
    """
    now = store.clock()
    found = [entry for entry in store.list() if times.age_in_days(entry.timestamp, now) >= max(days, 0)]
    driven = {run.id for run in summary.summaries(store) if run.status == runstate.RUNNING} if found else set()
    meant = [entry.id for entry in found if entry.run not in driven]
    deleted = _delete(store, meant)
    return Cleaned(deleted, len(meant) - deleted + len(store.problems()), len(found) - len(meant))


def cleanup_all(store: Store) -> Cleaned:
    """Deletes all checkpoints, as `cleanup_by_age` does those of any age."""
    return cleanup_by_age(store, 0)


def cleanup_runs(store: Store, *, pipeline: str | None = None, older_than: int) -> Retired:
    """Removes the runs that are complete and old enough, with their worktrees; see `run_expiry`.

    Args:
        store: of the repository.
        pipeline: the one whose runs are meant; None for all runs.
        older_than: the age of their newest checkpoint, in microseconds.

    Raises:
        BusyError, GitError: checkpoints could not be removed; what was removed until then stays removed, the rest is whole.
    """
    among = None if pipeline is None else _runs_of(store, pipeline)
    entries = store.list()
    fates = runs.remove(store, entries, runs.decide(store, entries, Policy(runs_older_than=older_than), among))
    kept = {fate.run: fate.reason for fate in fates if fate.is_due and not fate.expires}
    return Retired(tuple(fate.run for fate in fates if fate.expires), kept)


def _runs_of(store: Store, pipeline: str) -> set[str]:
    """Returns the runs of a pipeline that are complete."""
    found = set()
    for run in summary.summaries(store):
        try:
            said = store.read(run.newest).pipeline if run.status == runstate.COMPLETE else None
        except (InvalidCheckpoint, NotFoundError):
            continue
        if said is not None and said.name == pipeline:
            found.add(run.id)
    return found


def _delete(store: Store, ids: Collection[str]) -> int:
    """Deletes checkpoints, at once or, where one of them is in the way, one by one; returns how many are gone."""
    try:
        return store.remove(ids) if ids else 0
    except CkptError:
        return sum(_is_deleted(store, each) for each in ids)


def _is_deleted(store: Store, checkpoint_id: str) -> bool:
    try:
        store.remove([checkpoint_id])
    except CkptError:
        return False
    return True
