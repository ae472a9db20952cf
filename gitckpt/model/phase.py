"""Phase labels: `{phase}-{status}`, split at the last hyphen."""

from __future__ import annotations

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

# First the two statuses that end a phase, then those of a phase or step in progress.
STATUSES = ("complete", "failed", "started", "progress", "blocked", "skipped", "partial")

# Typos of "failed": a phase with such an ending would otherwise count as complete.
_TYPOS = ("fail", "fails", "failure", "failing")


def split_label(label: str) -> tuple[str, str]:
    """Split a label into phase and status; the status is "" without a hyphen."""
    name, hyphen, status = label.rpartition("-")
    return (name, status) if hyphen else (label, "")


def to_phase_label(text: str) -> str:
    """Return `text` as a label NAME-STATUS; the default status is "complete"."""
    # A typo ("-fail", ".failed", capitals) is refused: a failed phase must not count as complete.
    name, status = split_label(text)
    full_label = text
    if status not in STATUSES:
        name, full_label = text, f"{text}-complete"
    is_typo = name.endswith("-") or (full_label != text and _is_status_typo(name))
    if not name.strip() or not text.isprintable() or text != text.strip() or is_typo:
        hint = f"write NAME or NAME-STATUS on one line; a status is one of {', '.join(STATUSES)}"
        raise UsageError(f"{text!r} is not a phase", hint=hint)
    return full_label


def _is_status_typo(text: str) -> bool:
    last_word = text.lower().rpartition("-")[2]
    if last_word in (*STATUSES, *_TYPOS):
        return True
    for separator in " _.:/":  # typos of the hyphen
        last_word = last_word.rpartition(separator)[2]
    return last_word in ("failed", *_TYPOS)


# A turn in the session of an agent has labels such as `turn-3-started`, `turn-3-complete`.
_TURN = "turn-"
REWOUND = "rewind-complete"  # label of a checkpoint that rewinds a run
NOT_PHASES = ("run", "commit", "manual", "safety", "rewind")  # names in labels without a phase


def turn_number(label: str) -> int | None:
    """Return the number of the turn that a label belongs to; None for another label."""
    name = split_label(label)[0]
    digits = name.removeprefix(_TURN)
    is_turn = name.startswith(_TURN) and digits.isascii() and digits.isdigit()
    return int(digits) if is_turn and len(digits) < 10 else None


def completed_phases_after(
    completed: dict[str, str], label: str, checkpoint_id: str, names: Collection[str] | None = None
) -> dict[str, str]:
    """Return a run's completed phases (name -> checkpoint id) after a new checkpoint.

    A phase that starts again is removed, with all later ones. A rewind removes all but `names`.
    """
    if label == REWOUND and names is not None:
        return {name: id_ for name, id_ in completed.items() if name in names}
    name, status = split_label(label)
    if name in NOT_PHASES or status not in ("complete", "skipped", "started"):
        return completed
    if status != "started":
        other_phases = {phase: id_ for phase, id_ in completed.items() if phase != name}
        return other_phases | {name: checkpoint_id}
    position = list(completed).index(name) if name in completed else None
    return dict(list(completed.items())[:position])


def copy_run_tables(fields: dict[str, Any], previous: dict[str, Any]) -> None:
    new_pipeline, old_pipeline = fields.get("pipeline"), previous.get("pipeline")
    pipeline = new_pipeline or old_pipeline
    if pipeline is not None:
        is_imported = fields.get("imported") is not None  # the file lists the complete phases
        # Steps are no phases of the pipeline.
        label = fields["phase"] if fields["trigger"] != "step" and not is_imported else ""
        is_reset = old_pipeline is None or fields.get("rewound_to") is not None or is_imported
        completed = dict((pipeline if is_reset else previous["pipeline"]).get("completed", {}))
        names = new_pipeline.get("completed", {}) if new_pipeline is not None else None
        completed = completed_phases_after(completed, label, fields["id"], names)
        pipeline = {key: value for key, value in pipeline.items() if key != "completed"}
        fields["pipeline"] = pipeline | ({"completed": completed} if completed else {})
    attempt = previous.get("attempt")
    if fields.get("attempt") is None and attempt is not None:
        outcome = ("exit_code", "seconds", "output", "result")
        fields["attempt"] = {key: value for key, value in attempt.items() if key not in outcome}
