"""Derive the status of a run from its checkpoints and its lease."""

from __future__ import annotations

from gitckpt.model import ids, phase
from gitckpt.model.checkpoint import PHASE, Checkpoint

RUNNING, STALLED, CRASHED, FAILED = "running", "stalled", "crashed", "failed"
BLOCKED, PAUSED, COMPLETE, OPEN = "blocked", "paused", "complete", "open"
# OPEN: the run has had no driver yet; people or agents work in its worktree.
STATUSES = (RUNNING, STALLED, CRASHED, FAILED, BLOCKED, PAUSED, COMPLETE, OPEN)
DRIVEN = (RUNNING, STALLED)  # statuses of runs with a live driver

# Label of the checkpoint recorded before a rewind. While it is the newest of its run, the files may
# be those before the rewind, those after it, or a mix.
REWINDING = "rewind-started"
_TARGET_PREFIX = "before going back to "

# Statuses that a program or a person may give a run without a driver; otherwise it is OPEN.
_UNDONE = {"failed": FAILED, "blocked": BLOCKED}
_BY_STATUS = dict.fromkeys(("partial", "complete", "skipped"), PAUSED) | _UNDONE


def rewind_message(checkpoint_id: str) -> str:
    return f"{_TARGET_PREFIX}{checkpoint_id}"


def interrupted_rewind_target(newest: Checkpoint) -> str | None:
    if newest.label != REWINDING or newest.trigger != PHASE:
        return None
    target = (newest.message or "").removeprefix(_TARGET_PREFIX)
    return target if ids.is_checkpoint_id(target) else newest.id


def status_of_run(
    label: str | None,
    newest: str,
    *,
    driven: bool | None,
    stalled: bool = False,
    by_driver: bool = True,
) -> str:
    """Return the status of a run, one of `STATUSES`.

    Args:
        label: label of the newest checkpoint that gives the status of the run or of a phase; None
            if no checkpoint does.
        newest: label of the newest checkpoint.
        driven: whether the process that took the run's lease is alive; None if the lease was
            released or never taken.
        stalled: whether that process is alive, but no longer renews the lease.
        by_driver: whether a driver, and no person or agent, recorded `label`.
    """
    if driven:
        return STALLED if stalled else RUNNING
    phase_name, ending = phase.split_label(label or newest)
    if phase_name == "run":
        if ending == "complete":
            return COMPLETE
        return OPEN if driven is None else CRASHED
    if driven is False:
        return CRASHED
    if not by_driver:
        return _UNDONE.get(ending, OPEN)
    return _BY_STATUS.get(ending, CRASHED) if label is not None else OPEN
