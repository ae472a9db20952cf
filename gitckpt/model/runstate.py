"""What has become of a run."""

from __future__ import annotations

from gitckpt.model import ids, phase
from gitckpt.model.checkpoint import PHASE, Checkpoint

RUNNING, STALLED, CRASHED, FAILED = "running", "stalled", "crashed", "failed"
BLOCKED, PAUSED, COMPLETE, OPEN = "blocked", "paused", "complete", "open"
STATUSES = (RUNNING, STALLED, CRASHED, FAILED, BLOCKED, PAUSED, COMPLETE, OPEN)
"""Open is a run that nobody has driven yet: people or agents work in its worktree by themselves."""

DRIVEN = (RUNNING, STALLED)
"""The statuses of runs that somebody who is alive holds."""

REWINDING = "rewind-started"
"""The label of what is recorded before a run is taken back: while it is the newest one, files may be those of before, of then, or both."""

_TARGET = "before going back to "

_UNDONE = {"failed": FAILED, "blocked": BLOCKED}
"""What a program or a person can say of a run that nobody holds: it is open otherwise, as there may be more to come."""

_BY_STATUS = {"failed": FAILED, "blocked": BLOCKED, "partial": PAUSED, "complete": PAUSED, "skipped": PAUSED}


def before_rewind(checkpoint_id: str) -> str:
    """Returns the message of what is recorded before a run is taken back to a checkpoint."""
    return f"{_TARGET}{checkpoint_id}"


def rewinding_to(newest: Checkpoint) -> str | None:
    """Returns the checkpoint that a run was to be taken back to when that was cut off; None where it was not.

    Args:
        newest: its newest checkpoint.
    """
    if newest.label != REWINDING or newest.trigger != PHASE:
        return None
    target = (newest.message or "").removeprefix(_TARGET)
    return target if ids.is_id(target) else newest.id


def status(label: str | None, newest: str, *, driven: bool | None, stalled: bool = False, by_driver: bool = True) -> str:
    """Returns the status of a run, one of `STATUSES`.

    Args:
        label: the label of the newest checkpoint that says what has become of the run or of a phase; None without any.
        newest: the label of its newest checkpoint.
        driven: whether somebody who is alive holds its lease; None where the last holder gave it back, or nobody ever had it.
        stalled: whether whoever holds it does nothing.
        by_driver: whether somebody who drove the run recorded that label: then it goes on, or was left, at that phase.
    """
    if driven:
        return STALLED if stalled else RUNNING
    name, how = phase.split(label or newest)
    if name == "run":
        if how == "complete":
            return COMPLETE
        return OPEN if driven is None else CRASHED
    if driven is False:
        return CRASHED
    if not by_driver:
        return _UNDONE.get(how, OPEN)
    return _BY_STATUS.get(how, CRASHED) if label is not None else OPEN
