"""Phase labels: `{phase}-{status}`, split at the last hyphen."""

from __future__ import annotations

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

STATUSES = ("complete", "failed", "started", "progress", "blocked", "skipped", "partial")
"""Every status: the two that end a phase, then those of a phase or step in flight."""

_SLIPS = ("fail", "fails", "failure", "failing")
"""Meant for "failed": a name that ends so would count as complete."""

_STEP = "step"
"""The trigger of the checkpoints of steps, which have phases of their own."""

_BREAKS = " _.:/"
"""What may stand where a hyphen was meant."""


def split(label: str) -> tuple[str, str]:
    """Returns the phase and the status of a label; the status is "" where the label has no hyphen."""
    name, hyphen, status = label.rpartition("-")
    return (name, status) if hyphen else (label, "")


def label(text: str) -> str:
    """Returns what a person typed, or a program handed in, as a phase label: the one rule for both.

    Args:
        text: `phase-status`, or the name of a phase alone, which then counts as complete: what follows its last hyphen is a status only
            where it is one of `STATUSES`, so that `add-login` is the phase `add-login`, complete.

    Raises:
        UsageError: there is no name, or a status in its place; what should be a status is empty, in capitals or "fail", or "failed" after
            something else than a hyphen (a phase that failed must not count as complete for a slip); or the text has line breaks or
            other control characters, or spaces around it.
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
    """Tells whether a text without a status was meant to have one."""
    last = text.lower().rpartition("-")[2]
    if last in (*STATUSES, *_SLIPS):
        return True
    tail = last
    for each in _BREAKS:
        tail = tail.rpartition(each)[2]
    return tail in ("failed", *_SLIPS)


REWOUND = "rewind-complete"
"""The label of a checkpoint that takes phases of a run out of those that are complete: it says itself which stay."""

NOT_PHASES = ("run", "commit", "manual", "safety", "rewind")
"""Names of labels that are no phases of a run, whatever their status."""


def completed_after(completed: dict[str, str], label: str, checkpoint_id: str, kept: Collection[str] | None = None) -> dict[str, str]:
    """Returns which phases of a run are complete after a checkpoint.

    A phase that is completed or skipped joins them; one that starts again leaves them, with all that were completed after it. Where the
    run was taken back, those leave them that are not kept.

    Args:
        completed: phase → the checkpoint that completed it, in order, before.
        label: the phase label of the checkpoint.
        checkpoint_id: its id.
        kept: the phases that it says are complete, where its label is `REWOUND`; None where it says nothing of them.
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
    """Carries on what drives a run and at which attempt it is; says which of its phases are complete after this checkpoint.

    Args:
        fields: keys of the new checkpoint, changed in place; what they say already stays, less the phases that are complete.
        before: keys of the newest checkpoint of the run until now; none where it starts.
    """
    own, carried = fields.get("pipeline"), before.get("pipeline")
    pipeline = own or carried
    if pipeline is not None:
        is_imported = fields.get("imported") is not None  # then the file says what is complete
        label = fields["phase"] if fields["trigger"] != _STEP and not is_imported else ""  # steps are no phases of what drives the run
        known = pipeline if carried is None or fields.get("rewound_to") is not None or is_imported else carried
        kept = own.get("completed", {}) if own is not None else None
        after = completed_after(dict(known.get("completed", {})), label, fields["id"], kept)
        fields["pipeline"] = {key: value for key, value in pipeline.items() if key != "completed"} | ({"completed": after} if after else {})
    if fields.get("attempt") is None and before.get("attempt") is not None:
        ended = ("exit_code", "seconds", "output", "result")
        fields["attempt"] = {key: value for key, value in before["attempt"].items() if key not in ended}
