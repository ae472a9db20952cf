"""Goes back to an earlier checkpoint: in the same worktree, or in a new run. What is there now is recorded first."""

from __future__ import annotations

from gitckpt.git import head
from gitckpt.git.process import GitError
from gitckpt.model import ids
from gitckpt.model.checkpoint import PHASE, SAFETY, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store import layout, restorer, run_files, worktrees
from gitckpt.store.run_files import RunFiles
from gitckpt.store.store import Store

_BRANCH = "refs/heads/"


def go_back(store: Store, checkpoint: Checkpoint) -> None:
    """Brings commit, files, index and operation in progress of a checkpoint back into a run's worktree.

    Args:
        store: as seen from the worktree.
        checkpoint: what it shall hold.

    Raises:
        WorktreeError: its commit or files are missing, or something is in the way that no checkpoint holds.
    """
    commit, branch = store.objects.head()
    if (commit, branch) != (checkpoint.git_sha, checkpoint.branch) and checkpoint.git_sha:
        if store.repository.cat_file.info(f"{checkpoint.git_sha}^{{commit}}") is None:
            raise WorktreeError(f"commit {checkpoint.git_sha} of checkpoint {checkpoint.id} is missing", hint="see what is wrong: git fsck")
        store.save(layout.SAFETY_COMPLETE, {}, trigger=SAFETY, message=f"before going back to {checkpoint.id[: ids.SHORT]}")
        _move_head(store, checkpoint, commit)
    restorer.restore(store, checkpoint)


def take_output_back(store: Store, files: RunFiles, checkpoint: Checkpoint) -> None:
    """Lets what the phases of a run put out be what it was at a checkpoint.

    Args:
        store: as seen from the worktree.
        files: of the run.
        checkpoint: of the run.

    Raises:
        WorktreeError: it cannot be brought back.
    """
    now = store.capture(beside=files)
    then = checkpoint.worktree.tree if checkpoint.worktree else None
    if now.tree is None or run_files.output_of(store.repository, now.tree) == run_files.output_of(store.repository, then):
        return
    message = f"before going back to {checkpoint.id[: ids.SHORT]}"
    store.record(layout.SAFETY_COMPLETE, {}, worktree=now, trigger=SAFETY, message=message)
    files.take_back(store.repository, store.objects, now.tree, then)


def fork(store: Store, checkpoint: Checkpoint, name: str | None = None) -> Checkpoint:
    """Starts a run that goes on from a checkpoint, and returns its first checkpoint; the old run stays as it is.

    Args:
        store: of the repository.
        checkpoint: the one to go on from.
        name: what the new run is about; by default what the old one was.
    """
    about = name or (checkpoint.run or checkpoint.phase_name)[16 if checkpoint.run else 0 :]
    return store.record(
        layout.RUN_STARTED,
        checkpoint.state,
        start=about,
        base=checkpoint.git_sha,
        worktree=checkpoint.worktree,
        trigger=PHASE,
        pipeline=checkpoint.pipeline,
        forked_from=checkpoint.id,
        message=f"forked from {checkpoint.id[: ids.SHORT]}",
    )


def _move_head(store: Store, checkpoint: Checkpoint, commit: str) -> None:
    """Lets HEAD point to the commit of a checkpoint; on its branch, where that was not moved by somebody else."""
    git = store.repository.git
    wanted = f"{_BRANCH}{checkpoint.branch}" if checkpoint.branch is not None else ""
    reason = ("-m", f"git ckpt: back to {checkpoint.id[: ids.SHORT]}")
    try:
        if wanted and wanted == head.target(store.repository):
            git.run("update-ref", *reason, wanted, checkpoint.git_sha, commit)
            return
        git.run("update-ref", *reason, "--no-deref", "HEAD", checkpoint.git_sha)
        there = store.repository.cat_file.info(wanted) if wanted else None
        if there is not None and there[0] == checkpoint.git_sha and worktrees.is_free(store.repository, wanted):
            git.run("symbolic-ref", *reason, "HEAD", wanted)
    except GitError as error:
        raise WorktreeError(f"cannot move HEAD back to {checkpoint.git_sha}: {error.message}") from None
