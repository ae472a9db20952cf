"""What there was: the run to go on with, and cleanup by age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from gitckpt.model import runstate, times
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError
from gitckpt.model.policy import Policy
from gitckpt.model.values import dataclass
from gitckpt.store.retention import runs, whole
from gitckpt.store.runs import summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints


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


def cleanup_by_age(store: Checkpoints, days: int) -> Cleaned:
    """Deletes the checkpoints that are so many days old, of whatever kind, except those of runs that somebody drives.

    A run all of which is that old goes as a whole, with its worktree; it stays where that holds what no checkpoint does. What cannot be
    deleted, as when somebody holds a lock, is counted, and the others go.

    Args:
        days: the age in days, as `times.age_in_days` counts it; 0 or less for all.
    """
    now = store.clock()
    found = [entry for entry in store.list() if times.age_in_days(entry.timestamp, now) >= max(days, 0)]
    driven = {run.id for run in summary.summaries(store) if run.status in runstate.DRIVEN} if found else set()
    meant = [entry for entry in found if entry.run not in driven]
    counts = Counter(entry.run for entry in meant if entry.run is not None)
    _, sizes = store.index.sizes()
    over = {run for run, count in counts.items() if run in sizes and sizes[run][0] == count}
    deleted = _delete(store, [entry.id for entry in meant if entry.run not in over])
    # The youngest first: it may refer to an older one.
    deleted += sum(_removed(store, run) for run in sorted(over, reverse=True))
    return Cleaned(deleted, len(meant) - deleted + len(store.problems()), len(found) - len(meant))


def cleanup_all(store: Checkpoints) -> Cleaned:
    """Deletes all checkpoints, as `cleanup_by_age` does those of any age."""
    return cleanup_by_age(store, 0)


def cleanup_runs(store: Checkpoints, *, pipeline: str | None = None, older_than: int) -> Retired:
    """Removes the runs that are complete and old enough, with their worktrees; see `runs`.

    Args:
        pipeline: the one whose runs are meant; None for all runs.
        older_than: the age of their newest checkpoint, in microseconds.

    Raises:
        BusyError, GitError: checkpoints could not be removed; what was removed until then stays removed, the rest is whole.
    """
    among = None if pipeline is None else _runs_of(store, pipeline)
    decided, chains = runs.decide(store, Policy(runs_older_than=older_than), among)
    fates = runs.remove(store, chains, decided)
    kept = {fate.run: fate.reason for fate in fates if fate.is_due and not fate.expires}
    return Retired(tuple(fate.run for fate in fates if fate.expires), kept)


def _runs_of(store: Checkpoints, pipeline: str) -> set[str]:
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


def _removed(store: Checkpoints, run: str) -> int:
    """Removes a run as a whole; returns how many checkpoints went with it, none where it stays."""
    try:
        return whole.remove(store, run)
    except CkptError:
        return 0


def _delete(store: Checkpoints, ids: Collection[str]) -> int:
    """Deletes checkpoints, at once or, where one of them is in the way, one by one; returns how many are gone."""
    try:
        return store.remove(ids) if ids else 0
    except CkptError:
        return sum(_is_deleted(store, each) for each in ids)


def _is_deleted(store: Checkpoints, checkpoint_id: str) -> bool:
    try:
        store.remove([checkpoint_id])
    except CkptError:
        return False
    return True
