"""Phase labels: `{phase}-{status}`, split at the last hyphen."""

from __future__ import annotations

from gitckpt.model.errors import UsageError

STATUSES = ("complete", "failed", "started", "progress", "blocked", "skipped", "partial")
"""Every status: the two that end a phase, then those of a phase or step in flight."""


def split(label: str) -> tuple[str, str]:
    """Returns the phase and the status of a label; the status is "" where the label has no hyphen."""
    name, hyphen, status = label.rpartition("-")
    return (name, status) if hyphen else (label, "")


def label(text: str) -> str:
    """Returns what a person typed as a phase label.

    Args:
        text: `phase-status`, or the name of a phase alone, which then counts as complete.

    Raises:
        UsageError: there is no name, or the text has line breaks or other control characters.
    """
    name, status = split(text)
    complete = text
    if status not in STATUSES:
        name, complete = text, f"{text}-complete"
    if not name.strip() or not text.isprintable():
        raise UsageError(
            f"{text!r} is not a phase",
            hint=f"write NAME or NAME-STATUS on one line; a status is one of {', '.join(STATUSES)}",
        )
    return complete
