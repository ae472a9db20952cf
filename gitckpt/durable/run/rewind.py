"""Return to an earlier checkpoint, in the same worktree or in a fork of the run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

from gitckpt.durable.command import process_tree
from gitckpt.git.contents import unfiltered
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import PHASE, SAFETY, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store import roster
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.restore import restorer, submodules
from gitckpt.store.restore.restorer import kept_failure
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import opener, ownership

# A lock file that is unchanged after this many seconds is stale.
PATIENCE = 0.5


def go_back(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    """Restore commit, files, index and unfinished operation of a checkpoint.

    Returns the ids of the safety checkpoints of the present content. Raises WorktreeError if commit
    or files are missing, or if content that no checkpoint holds is in the way.
    """
    safe: list[str] = []
    commit, branch = store.objects.head()
    checkpoint = manifest.with_commit(store.repository, checkpoint, None)[0]
    if (commit, branch) != (checkpoint.git_sha, checkpoint.branch) and checkpoint.git_sha:
        require_way(store, checkpoint)
        message = f"before going back to {checkpoint.id[: ids.SHORT]}"
        safe.append(store.save(layout.SAFETY_COMPLETE, {}, trigger=SAFETY, message=message).id)
        _move_head(store, checkpoint, commit)
    restored = restorer.restore(store, checkpoint)
    for remark in restored.remarks:  # differences from the checkpoint
        store.announce(remark)
    if restored.unfiltered:  # a phase would take unfiltered files for real content
        raise unfiltered.failure(restored.unfiltered, f"git ckpt resume {checkpoint.run}")
    if restored.kept:
        raise kept_failure(restored.kept)
    return [*safe, *([restored.safety] if restored.safety else [])]


def catch_up(store: Checkpoints, files: RunFiles, newest: Checkpoint) -> tuple[str, ...]:
    """Update a worktree that is behind because the run continued elsewhere.

    Returns a sentence about it, if anything changed. Raises WorktreeError as `go_back`, or once if
    the worktree has newer checkpoints than `newest`, which is already adopted.
    """
    noted = ownership.behind(store.repository)
    if noted is None:
        return ()
    stood_at, adopted = noted
    safe: list[str] = []
    if newest.id not in noted and store.refs.read(layout.CHECKPOINTS + adopted) is not None:  # not removed
        # A commit or a save was recorded in the worktree: its edits must not be replaced.
        ownership.forget_behind(store.repository)
        raise WorktreeError(
            f"the worktree of run {newest.run} lacks what others have made until {adopted[: ids.SHORT]}, "
            f"and {newest.id[: ids.SHORT]} was recorded since",
            hint=f"to go on as it is: git ckpt resume {newest.run}; to have what they made instead: git ckpt resume {adopted} --rewind",
        )
    if stood_at != newest.id:
        remove_locks(store.repository, str(newest.run))
        take_output_back(store, files, newest)
        try:
            safe = go_back(store, newest)
        except WorktreeError as error:
            advice = submodules.advice_of(error)
            if advice is None:
                raise
            ownership.forget_behind(store.repository)  # report it once: the files may be lost for good
            place = shell_word(str(store.repository.worktree))
            first = f"{advice}; then git ckpt restore {newest.id[: ids.SHORT]} in {place}; then, or " if advice else ""
            raise error.but(hint=f"{first}to go on without: git ckpt resume {newest.run}") from None
    ownership.forget_behind(store.repository)
    if not safe:
        return ()
    held = ", ".join(each[: ids.SHORT] for each in safe)
    return (
        f"its worktree was as {stood_at[: ids.SHORT]} left it, and is as {newest.id[: ids.SHORT]} has it now; what was there is in {held}",
    )


def require_way(store: Checkpoints, checkpoint: Checkpoint) -> None:
    """Raise WorktreeError if `go_back` cannot succeed, LockHeld for a locked index.

    A dry run, for use before HEAD moves or the rewind is recorded.
    """
    restorer.restore(store, checkpoint, dry_run=True)
    PrivateIndex(store.repository).require_unlocked()


def take_output_back(store: Checkpoints, files: RunFiles, checkpoint: Checkpoint) -> None:
    """Restore the output files of phases, after a safety checkpoint."""
    now = store.capture(beside=files)
    then = checkpoint.tree
    if now.tree is None or run_files.output_of(store.repository, now.tree) == run_files.output_of(store.repository, then):
        return
    message = f"before going back to {checkpoint.id[: ids.SHORT]}"
    store.record(layout.SAFETY_COMPLETE, {}, worktree=now, trigger=SAFETY, message=message)
    files.take_back(store.repository, store.objects, now.tree, then)


def is_held(store: Checkpoints, safety: Checkpoint, recorded: Checkpoint, wanted: Checkpoint) -> bool:
    """Return whether two checkpoints hold everything that a safety checkpoint holds.

    `recorded` was made before the rewind, `wanted` was restored.
    """
    saved, before = (manifest.contents_of(each, store.repository, store.objects) for each in (safety, recorded))
    indexes = [comparison.merged_tree(store.repository, content, each.git_sha) for content, each in ((saved, safety), (before, recorded))]
    same = (saved.files, saved.raw) == (before.files, before.raw) and indexes[0] == indexes[1]
    same = same and (saved.directories, saved.modes) == (before.directories, before.modes)
    plain = not (saved.operation or saved.flags or set(saved.index) - {0})
    return same and (plain or safety.worktree == recorded.worktree) and safety.git_sha in (recorded.git_sha, wanted.git_sha)


def remove_locks(repository: Repository, run: str) -> None:
    """Remove stale lock files of a git that was killed with its command.

    This process must hold the lease and run no command.
    """
    # A person in the worktree may hold a lock for long, such as during an editor session: keep the
    # locks while a git process works there, or if the system cannot tell. Other processes release
    # theirs at once: a lock that does not change for `PATIENCE` is stale.
    branch = repository.head_ref()
    refs = [layout.RUNS + run, layout.LEASES + run, *([branch] if branch else [])]
    places = [os.path.join(repository.common_dir, f"{ref}.lock") for ref in refs]
    if repository.is_linked:
        places += [os.path.join(repository.git_dir, name) for name in os.listdir(repository.git_dir) if name.endswith(".lock")]
    before = {path: mark for path in places if (mark := _mark(path)) is not None}
    if not before or process_tree.works_in("git", repository.worktree or repository.git_dir) is not False:
        return
    time.sleep(PATIENCE)
    for path, mark in before.items():
        if _mark(path) == mark:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _mark(path: str) -> tuple[int, int, int] | None:
    # Distinguishes a lock file from a later one of the same name.
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def fork(store: Checkpoints, checkpoint: Checkpoint, name: str | None = None, *, trusted: bool = False) -> Checkpoint:
    """Start a run that continues from a checkpoint; return its first checkpoint."""
    is_ours = trust.is_ours(store, checkpoint)
    if not (is_ours or trusted):
        raise trust.refusal(store, checkpoint, trust.account(store, checkpoint))
    checkpoint = manifest.with_commit(store.repository, checkpoint, None)[0]
    about = name or (checkpoint.run or checkpoint.phase_name)[16 if checkpoint.run else 0 :]
    made = store.record(
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
    if roster.is_captured_here(store.repository, checkpoint.id):
        roster.note_fork(store.repository, made.id)
    if checkpoint.run is not None and not is_ours:
        trust.adopt(store, checkpoint.run, by=made.run)
    if checkpoint.run is not None and checkpoint.pipeline is not None:
        # Copy the original inputs: in the stored ones, secrets are masked.
        wanted = checkpoint.pipeline.contents
        inputs = run_files.of_run(store.repository, checkpoint.run).inputs()
        same = {name: data for name, data in inputs.items() if hashlib.sha256(data).hexdigest() == wanted.get(name)}
        run_files.of_run(store.repository, str(made.run)).keep(same)
    return made


def _move_head(store: Checkpoints, checkpoint: Checkpoint, commit: str) -> None:
    wanted = BRANCHES + checkpoint.branch if checkpoint.branch is not None else ""
    message = f"git ckpt: back to {checkpoint.id[: ids.SHORT]}"
    try:
        if wanted and wanted == store.repository.head_ref():
            store.repository.git.run("update-ref", "-m", message, wanted, checkpoint.git_sha, commit)
            return
        # Detach HEAD, and attach it only if the branch is free and still at the commit.
        store.repository.point_head(checkpoint.git_sha, message)
        tip = store.repository.cat_file.info(wanted) if wanted else None
        if tip is not None and tip[0] == checkpoint.git_sha and opener.is_free(store.repository, wanted):
            store.repository.point_head(wanted, message)
    except GitError as error:
        raise WorktreeError(f"cannot move HEAD back to {checkpoint.git_sha}: {error.message}") from None
