"""The status of a run."""

from __future__ import annotations

from gitckpt.model import ids, phase
from gitckpt.model.checkpoint import PHASE, Checkpoint

RUNNING, STALLED, CRASHED, FAILED = "running", "stalled", "crashed", "failed"
BLOCKED, PAUSED, COMPLETE, OPEN = "blocked", "paused", "complete", "open"
# Open: a run that has had no driver yet; people or agents work in its worktree.
STATUSES = (RUNNING, STALLED, CRASHED, FAILED, BLOCKED, PAUSED, COMPLETE, OPEN)
DRIVEN = (RUNNING, STALLED)  # statuses of runs with a live driver

# Label of the checkpoint before a rewind. While it is the newest, files may be old, new or mixed.
REWINDING = "rewind-started"
_TARGET = "before going back to "

# A status set by a program or a person in a run without a driver; else the run is open.
_UNDONE = {"failed": FAILED, "blocked": BLOCKED}
_BY_STATUS = dict.fromkeys(("partial", "complete", "skipped"), PAUSED) | _UNDONE


def before_rewind(checkpoint_id: str) -> str:
    return f"{_TARGET}{checkpoint_id}"


def rewinding_to(newest: Checkpoint) -> str | None:
    """Return the target of an interrupted rewind; None without one."""
    if newest.label != REWINDING or newest.trigger != PHASE:
        return None
    target = (newest.message or "").removeprefix(_TARGET)
    return target if ids.is_id(target) else newest.id


def status(
    label: str | None,
    newest: str,
    *,
    driven: bool | None,
    stalled: bool = False,
    by_driver: bool = True,
) -> str:
    """Return the status of a run, one of `STATUSES`.

    Args:
        label: of the newest checkpoint with the status of the run or a phase; None without any.
        newest: label of the newest checkpoint.
        driven: whether a live process holds its lease; None if released or never taken.
        by_driver: whether a driver recorded `label`: the run is at that phase, or was left there.
    """
    if driven:
        return STALLED if stalled else RUNNING
    name, ending = phase.split(label or newest)
    if name == "run":
        if ending == "complete":
            return COMPLETE
        return OPEN if driven is None else CRASHED
    if driven is False:
        return CRASHED
    if not by_driver:
        return _UNDONE.get(ending, OPEN)
    return _BY_STATUS.get(ending, CRASHED) if label is not None else OPEN
