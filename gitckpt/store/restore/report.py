"""What became of a restore, and what else a person should know of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.objects.encoding import stays_within
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules, operation
from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint, Omitted
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import first_of, quoted
from gitckpt.model.values import dataclass, field
from gitckpt.store.restore.plan import DELETE, PathChange, Plan, is_within
from gitckpt.store.restore.position import Position

_FEW = 3
"""So many of the paths that were left out are named."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a restore.

    Attributes:
        checkpoint: id of the one whose files these are.
        changes: what was done, or would be, path by path.
        safety: id of the checkpoint that holds what was there before; None where nothing was to be done.
        remarks: what else the person should know, a sentence each; what the checkpoint left out and is missing here among it.
        head: where HEAD is, and stays.
        source: where the checkpoint was recorded.
        apart: what it means that the two are not the same, a sentence each, as it was told before the act; empty where they are,
            and where nothing was to be done.
        unfiltered: files that are there only as git stores them, because a filter fails; to restore them again completes them.
        kept: files that stay, as no checkpoint can hold their content: the reason by path.
    """

    checkpoint: str
    changes: Sequence[PathChange]
    safety: str | None
    remarks: Sequence[str]
    head: Position
    source: Position
    apart: Sequence[str]
    unfiltered: Sequence[bytes] = ()
    kept: Mapping[bytes, str] = field(default_factory=dict)


def kept_failure(kept: Mapping[bytes, str]) -> WorktreeError:
    """Return the error for files that a restore has left as they were."""
    names = first_of([f"{quoted(path)} ({reason})" for path, reason in sorted(kept.items())])
    count = f"{len(kept)} files stay as they are" if len(kept) > 1 else "1 file stays as it is"
    hint = "make git able to read it (or move it away), then run the command again"
    return WorktreeError(f"{count}, as no checkpoint can hold what is in there: {names}", hint=hint)


def remarks(
    checkpoint: Checkpoint,
    plan: Plan,
    *,
    spoken_for: Collection[bytes],
    rebased: str | None,
    is_foreign: bool,
    in_repositories: Collection[bytes] = (),
) -> list[str]:
    """Returns what a person should know, a sentence each.

    Args:
        checkpoint: what comes back.
        plan: what is to be done, or was.
        spoken_for: submodules of which something else is said.
        rebased: the branch of a rebase that comes back detached from it; None for none.
        is_foreign: whether an operation in progress was captured elsewhere, and is left out.
        in_repositories: what does not come back, as a repository lies there.
    """
    gone = {change.path for change in plan.changes if change.kind == DELETE}
    stay = [one for one in plan.submodules if one.path not in spoken_for and one.path not in gone]
    said = []
    for one in stay:
        then = f"it was at {one.new}" if one.new.strip("0") else "it was none"
        said.append(f"the submodule {one.path.decode('utf-8', 'replace')} stays as it is; {then}")
    if in_repositories:
        names = first_of(sorted(quoted(path) for path in in_repositories))
        said.append(f"left out, as they lie in the directory of a repository: {names}")
    if plan.unknown:
        names = first_of(sorted(path.decode("utf-8", "replace") for path in plan.unknown))
        said.append(f"untracked, and nobody looked for such files when the checkpoint was made, so they stay: {names}")
    files = checkpoint.worktree
    converted = {quoted(change.path) for change in plan.changes}.intersection(files.converted if files is not None else ())
    said += [f"comes back as git writes it, not byte for byte: {first_of(sorted(converted))}"] if converted else []
    said += [operation.farewell(rebased)] if rebased is not None else []
    said += [operation.FOREIGN] if is_foreign else []
    return said


def left_out(repository: Repository, checkpoint: Checkpoint, paths: Sequence[bytes]) -> list[str]:
    """Name what a checkpoint left out and is missing in the worktree, in one sentence.

    Args:
        repository: seen from the worktree.
        checkpoint: what comes back.
        paths: files and directories to which the restore is restricted; none for all.
    """
    files = checkpoint.worktree
    omitted = files.omitted if files is not None else ()
    missing = [entry.path for entry in omitted if _is_missing(repository, checkpoint, entry, paths)]
    if not missing:
        return []
    short = checkpoint.id[: ids.SHORT]
    count = "1 path" if len(missing) == 1 else f"{len(missing)} paths"
    names = first_of(missing, _FEW)
    return [f"{count} left out of the checkpoint and missing here: {names}; see why: git ckpt show {short}"]


def _is_missing(
    repository: Repository,
    checkpoint: Checkpoint,
    entry: Omitted,
    paths: Sequence[bytes],
) -> bool:
    """Tell whether a path that was left out lies in the worktree, and nothing is there."""
    path = modules.unquoted(entry.path).rstrip(b"/")
    is_beside = checkpoint.run is not None and path.startswith(b"run/")  # a file of the run
    if is_beside or path.split(b"/")[0] == b".git" or not stays_within(path):
        return False
    whole = os.path.join(os.fsencode(repository.worktree or ""), path)
    return is_within(path, paths) and not os.path.lexists(whole)
