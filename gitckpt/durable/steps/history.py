"""The audit trail: everything that was ever reported of the steps of a run, from its checkpoints; nothing in it is overwritten."""

from __future__ import annotations

from gitckpt.model import phase
from gitckpt.model.checkpoint import STEP
from gitckpt.model.readers import codec
from gitckpt.model.values import dataclass
from gitckpt.store.records import heads, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.model.checkpoint import Progress
    from gitckpt.store.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One report.

    Attributes:
        checkpoint: the id of its checkpoint, whose state holds all that was known then.
        sequence: its place in the run.
        timestamp: when it was made.
        step: the name of the step.
        status: started, progress, complete, failed, blocked or skipped.
        agent: who reported it, where that was said.
        message: the notes, on one line.
        errors: the notes of a failure, as they were.
        git_sha: the commit that was checked out.
        has_files: whether the files were captured.
        progress: how far the step had come.
    """

    checkpoint: str
    sequence: int
    timestamp: str
    step: str
    status: str
    agent: str | None
    message: str | None
    errors: tuple[str, ...]
    git_sha: str
    has_files: bool
    progress: Progress | None


def read(store: Checkpoints, run: str) -> list[StepEvent]:
    """Returns what was reported in a run, oldest first.

    Raises:
        InvalidCheckpoint: one of its checkpoints is damaged.
    """
    entries = [entry for entry in reversed(heads.chain(store.index, store.repository, run)) if entry.trigger == STEP]
    found = []
    for entry, content in zip(entries, store.objects.read([entry.oid for entry in entries]), strict=True):
        if content is None:
            continue
        checkpoint = codec.decode_header(content[1], layout.CHECKPOINTS + entry.id)
        step, status = phase.split(checkpoint.label)
        found.append(
            StepEvent(
                checkpoint=checkpoint.id,
                sequence=checkpoint.sequence or 0,
                timestamp=checkpoint.timestamp,
                step=step,
                status=status,
                agent=checkpoint.agent,
                message=checkpoint.message,
                errors=checkpoint.errors,
                git_sha=checkpoint.git_sha,
                has_files=checkpoint.worktree is not None,
                progress=checkpoint.progress,
            )
        )
    return found
