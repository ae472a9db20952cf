"""Which checkpoint somebody could go on with."""

from __future__ import annotations

from collections.abc import Iterable

from gitckpt.model import runstate
from gitckpt.model.checkpoint import HOOK_TRIGGERS, RESCUE, SAFETY, STEP
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.store import chains, links
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.runs import summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry


_FIRST = 100
"""So many are looked at before all are: most repositories have hooks that record at each commit."""


def latest_resumable(store: Checkpoints) -> Checkpoint | None:
    """Returns the checkpoint to go on with; None where there is none.

    It is the newest one of the newest run that is neither complete nor driven by anybody; or, where that is newer, the newest of a phase
    that was recorded outside of runs, as a script does with `git ckpt save --phase research-failed`: its `run` is None, and there is its
    state to go on with. A script says with `--phase run-complete` that there is nothing left to do.

    Within a run the sequence decides, otherwise the time. What cannot be read is passed over, and so is what others wrote, and was
    fetched.
    The `errors` of the checkpoint say why it stopped.
    """
    found = [each for each in (_of_runs(store), _outside(store)) if each is not None]
    return max(found, key=lambda each: each.time, default=None)


def _of_runs(store: Checkpoints) -> Checkpoint | None:
    for run in summary.summaries(store):
        if run.status in (runstate.COMPLETE, *runstate.DRIVEN):
            continue
        ours = (entry for entry in store.list(Query(run=run.id)) if chains.knows(store.repository, run.id, entry.oid))
        found = _first_whole(store, ours)
        if found is not None:
            return found
    return None


def _outside(store: Checkpoints) -> Checkpoint | None:
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        ours = links.written_here(store.repository)
        told = [
            entry for entry in entries if entry.trigger not in (*HOOK_TRIGGERS, SAFETY, RESCUE, STEP) and (entry.id in ours or not ours)
        ]
        done = next((at for at, entry in enumerate(told) if entry.phase == layout.RUN_COMPLETE), None)
        phases = [entry for entry in told[:done] if split(entry.phase)[0] not in NOT_PHASES]
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
