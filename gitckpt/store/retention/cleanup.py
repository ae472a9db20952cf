"""Remove the runs of a pipeline that are complete and old enough."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model import runstate
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.policy import Policy
from gitckpt.model.values import dataclass
from gitckpt.store.retention import runs
from gitckpt.store.runs import summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of runs that are complete and old enough.

    Attributes:
        gone: the ids of those that are gone, with their worktrees.
        kept: why each of the others stays, by id.
    """

    gone: tuple[str, ...]
    kept: Mapping[str, str]


def cleanup_runs(store: Checkpoints, *, pipeline: str | None = None, older_than: int) -> Retired:
    """Removes the runs that are complete and old enough, with their worktrees; see `runs`.

    Args:
        pipeline: the one whose runs are meant; None for all runs.
        older_than: the age of their newest checkpoint, in microseconds.

    Raises:
        BusyError, GitError: checkpoints of a run could not be removed; the other runs are gone.
    """
    among = None if pipeline is None else _runs_of(store, pipeline)
    decided, chains = runs.decide(store, Policy(runs_older_than=older_than), among)
    fates = runs.remove(store, chains, decided)
    failure = next((fate.failure for fate in fates if fate.failure is not None), None)
    if failure is not None:
        raise failure
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
            found.add(run.run)
    return found
