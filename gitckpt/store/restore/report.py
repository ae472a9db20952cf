"""What became of a restore, and what else a person should know of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gitckpt.git.worktree import operation, provenance
from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.names import first_of, quoted
from gitckpt.model.values import dataclass
from gitckpt.store.restore.plan import DELETE, PathChange, Plan
from gitckpt.store.restore.position import Position


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a restore.

    Attributes:
        checkpoint: id of the one whose files these are.
        changes: what was done, or would be, path by path.
        safety: id of the checkpoint that holds what was there before; None where nothing was to be done.
        remarks: what else the person should know, a sentence each.
        head: where HEAD is, and stays.
        source: where the checkpoint was recorded.
        apart: what it means that the two are not the same, a sentence each; empty where they are, and where nothing was to be done.
        unfiltered: files that are there only as git stores them, because a filter fails; to restore them again completes them.
    """

    checkpoint: str
    changes: Sequence[PathChange]
    safety: str | None
    remarks: Sequence[str]
    head: Position
    source: Position
    apart: Sequence[str]
    unfiltered: Sequence[bytes] = ()


def remarks(
    checkpoint: Checkpoint, plan: Plan, allowed: provenance.Permitted | None, *, spoken_for: Collection[bytes], rebased: str | None
) -> list[str]:
    """Returns what a person should know, a sentence each.

    Args:
        checkpoint: what comes back.
        plan: what is to be done, or was.
        allowed: what comes back of an operation in progress; None where none does.
        spoken_for: submodules of which something else is said.
        rebased: the branch of a rebase that was detached from it; None for none.
    """
    gone = {change.path for change in plan.changes if change.kind == DELETE}
    stay = [one for one in plan.submodules if one.path not in spoken_for and one.path not in gone]
    said = []
    for one in stay:
        then = f"it was at {one.new}" if one.new.strip("0") else "it was none"
        said.append(f"the submodule {one.path.decode('utf-8', 'replace')} stays as it is; {then}")
    if plan.unknown:
        names = first_of(sorted(path.decode("utf-8", "replace") for path in plan.unknown))
        said.append(f"untracked, and nobody looked for such files when the checkpoint was made, so they stay: {names}")
    files = checkpoint.worktree
    converted = {quoted(change.path) for change in plan.changes}.intersection(files.converted if files is not None else ())
    said += [f"comes back as git writes it, not byte for byte: {first_of(sorted(converted))}"] if converted else []
    if allowed is not None:
        said += [operation.farewell(rebased)] if rebased is not None else []
        said += provenance.remarks(allowed, checkpoint.id[: ids.SHORT])
    return said
