"""Which checkpoint somebody could go on with."""

from __future__ import annotations

from collections.abc import Iterable

from gitckpt.git.worktree import administration
from gitckpt.model import ids, runstate
from gitckpt.model.checkpoint import HOOK_TRIGGERS, RESCUE, SAFETY, STEP
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.store import roster
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.roster import Roster
from gitckpt.store.runs import summary, trust
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.runs.summary import RunInfo


_FIRST = 100
"""So many are looked at before all are: most repositories have hooks that record at each commit."""


def latest_resumable(store: Checkpoints) -> Checkpoint | None:
    """Returns the checkpoint to go on with; None where there is none.

    It is the newest one of the newest run that `unfinished` returns; or, where that is newer, the newest of a phase that was recorded in
    this worktree outside of runs, as a script does with `git ckpt save --phase research-failed`: its `run` is None, and there is its state
    to go on with. A script says with `--phase run-complete` that there is nothing left to do.

    Within a run the sequence decides, otherwise the time. What cannot be read is passed over, and so is what others wrote, and was
    fetched.
    The `errors` of the checkpoint say why it stopped.
    """
    found = [each for each in (_of_runs(store), _outside(store)) if each is not None]
    return max(found, key=lambda each: each.time, default=None)


def unfinished(store: Checkpoints) -> list[RunInfo]:
    """Return the unfinished runs of this worktree, the newest checkpoint first.

    Each was started in this worktree, or has it, and is neither complete nor driven by anybody.
    """
    over = (runstate.COMPLETE, *runstate.DRIVEN)
    left = (run for run in summary.summaries(store) if run.status not in over)
    return [run for run in left if is_from_here(store, run.run)]


def is_from_here(store: Checkpoints, run: str) -> bool:
    """Tell whether a run was started, imported or adopted in this worktree, or has it."""
    owner = ownership.owner(store.repository)
    if owner is not None and owner.run is not None:
        return owner.run == run
    names = [entry.id for entry in store.list(Query(run=run))]
    known, here = Roster.read(store.repository, names), roster.place_of(store.repository)
    return any(known.place(name) == here for name in names)


def made_elsewhere(store: Checkpoints, names: Iterable[str]) -> dict[str, str]:
    """Return which checkpoints and runs other worktrees made: the worktree by id.

    Args:
        names: ids of checkpoints and of runs.
    """
    repository, here = store.repository, roster.place_of(store.repository)
    linked = administration.registered(repository)
    tops = {roster.place_in(git_dir): path for git_dir, path in linked}
    tops[roster.MAIN] = administration.main_worktree(repository) or repository.common_dir
    found = {}
    for name in names:
        is_run = ids.is_run_id(name)
        entries = store.list(Query(run=name) if is_run else Query(ids=[name]))
        known = Roster.read(repository, [entry.id for entry in entries])
        as_written = [entry for entry in entries if known.has(entry.id, entry.oid)]
        places = [str(known.place(entry.id)) for entry in as_written]
        runs = {entry.run for entry in entries if entry.run is not None}
        if not places or here in places or any(is_from_here(store, run) for run in runs):
            continue
        place = places[-1]  # of a run where it began
        if is_run and place not in tops and place.partition(":")[0] == name:
            continue  # the run's own worktree: an interrupted removal has deleted it
        gone = f"a worktree {place.partition(':')[0]} that is gone"
        found[name] = f"the worktree {tops[place]}" if place in tops else gone
    return found


def _of_runs(store: Checkpoints) -> Checkpoint | None:
    for run in unfinished(store):
        found = _first_whole(store, trust.written_here(store, Query(run=run.run)))
        if found is not None:
            return found
    return None


def _outside(store: Checkpoints) -> Checkpoint | None:
    here = roster.place_of(store.repository)
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        known = Roster.read(store.repository, [entry.id for entry in entries])
        ours = (entry for entry in entries if known.is_ours(entry))
        own = (entry for entry in ours if known.was_captured_in(entry.id, here))
        silent = (*HOOK_TRIGGERS, SAFETY, RESCUE, STEP)
        told = [entry for entry in own if entry.trigger not in silent]
        done = next((at for at, entry in enumerate(told) if entry.label == layout.RUN_COMPLETE), None)
        phases = [entry for entry in told[:done] if split(entry.label)[0] not in NOT_PHASES]
        found = _first_whole(store, phases)
        if found is not None or done is not None or len(entries) < _FIRST:
            return found
    return None


def _first_whole(store: Checkpoints, entries: Iterable[Entry]) -> Checkpoint | None:
    """Returns the first of some checkpoints that can be read."""
    for entry in entries:
        try:
            return store.read(entry.id)
        except (InvalidCheckpoint, NotFoundError):
            continue
    return None
