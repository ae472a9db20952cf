"""Phase labels: `{phase}-{status}`, split at the last hyphen."""

from __future__ import annotations

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

# The two that end a phase, then those of a phase or step in progress.
STATUSES = ("complete", "failed", "started", "progress", "blocked", "skipped", "partial")

# Typos of "failed": such a name would otherwise count as complete.
_SLIPS = ("fail", "fails", "failure", "failing")

# Trigger of step checkpoints, which have phases of their own.
_STEP = "step"

# Typos of the hyphen.
_BREAKS = " _.:/"


def split(label: str) -> tuple[str, str]:
    """Return the phase and the status of a label; the status is "" without a hyphen."""
    name, hyphen, status = label.rpartition("-")
    return (name, status) if hyphen else (label, "")


def label(text: str) -> str:
    """Return the label for `phase-status`, or for a phase alone: complete.

    The part after the last hyphen is a status only if `STATUSES` has it. A slip ("-fail",
    ".failed", capitals) is refused: a failed phase must not count as complete by mistake.
    """
    name, status = split(text)
    complete = text
    if status not in STATUSES:
        name, complete = text, f"{text}-complete"
    is_slip = name.endswith("-") or (complete != text and _is_slip(name))
    if not name.strip() or not text.isprintable() or text != text.strip() or is_slip:
        raise UsageError(
            f"{text!r} is not a phase",
            hint=f"write NAME or NAME-STATUS on one line; a status is one of {', '.join(STATUSES)}",
        )
    return complete


def _is_slip(text: str) -> bool:
    last = text.lower().rpartition("-")[2]
    if last in (*STATUSES, *_SLIPS):
        return True
    tail = last
    for each in _BREAKS:
        tail = tail.rpartition(each)[2]
    return tail in ("failed", *_SLIPS)


# Label of a checkpoint that rewinds a run; it lists the phases that stay complete.
REWOUND = "rewind-complete"

# Names in labels that are no phases of a run.
NOT_PHASES = ("run", "commit", "manual", "safety", "rewind")


def completed_after(completed: dict[str, str], label: str, checkpoint_id: str, kept: Collection[str] | None = None) -> dict[str, str]:
    """Return the completed phases (phase -> checkpoint) of a run after a checkpoint.

    A phase that starts again is removed, with all that were completed after it.
    """
    if label == REWOUND and kept is not None:
        return {name: id_ for name, id_ in completed.items() if name in kept}
    name, status = split(label)
    if name in NOT_PHASES or status not in ("complete", "skipped", "started"):
        return completed
    kept = list(completed)[: list(completed).index(name)] if name in completed else list(completed)
    after = {phase: completed[phase] for phase in kept}
    if status != "started":
        after = {phase: id_ for phase, id_ in completed.items() if phase != name} | {name: checkpoint_id}
    return after


def carry(fields: dict[str, Any], before: dict[str, Any]) -> None:
    """Copy pipeline and attempt from the last checkpoint; update completed phases."""
    own, carried = fields.get("pipeline"), before.get("pipeline")
    pipeline = own or carried
    if pipeline is not None:
        is_imported = fields.get("imported") is not None  # then the file lists what is complete
        # Steps are no phases of the pipeline.
        label = fields["phase"] if fields["trigger"] != _STEP and not is_imported else ""
        known = pipeline if carried is None or fields.get("rewound_to") is not None or is_imported else carried
        kept = own.get("completed", {}) if own is not None else None
        after = completed_after(dict(known.get("completed", {})), label, fields["id"], kept)
        fields["pipeline"] = {key: value for key, value in pipeline.items() if key != "completed"} | ({"completed": after} if after else {})
    if fields.get("attempt") is None and before.get("attempt") is not None:
        ended = ("exit_code", "seconds", "output", "result")
        fields["attempt"] = {key: value for key, value in before["attempt"].items() if key not in ended}
