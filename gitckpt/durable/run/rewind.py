"""Restore an earlier checkpoint of a run in its worktree or in a new run, a fork."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import Any

from gitckpt.durable.command import process_tree
from gitckpt.git.contents import unfiltered
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import PHASE, SAFETY, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore import restorer, submodules
from gitckpt.store.restore.restorer import files_not_restored_error
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import opener, ownership

# A lock file that is unchanged after this many seconds is stale.
PATIENCE = 0.5


def restore_commit_and_files(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    """Restore a checkpoint; return ids of safety checkpoints with the old content."""
    safety_ids: list[str] = []
    commit, branch = store.objects.read_head()
    checkpoint = manifest.relink_commit(store.repository, checkpoint, None)[0]
    if (commit, branch) != (checkpoint.git_sha, checkpoint.branch) and checkpoint.git_sha:
        require_restorable(store, checkpoint)
        message = f"before going back to {_short_id(checkpoint.id)}"
        safety = store.save(ref_names.SAFETY_COMPLETE, {}, trigger=SAFETY, message=message)
        safety_ids.append(safety.id)
        _move_head(store, checkpoint, commit)
    restore_result = restorer.restore_checkpoint(store, checkpoint)
    for remark in restore_result.remarks:  # differences from the checkpoint
        store.announce(remark)
    if restore_result.unfiltered:  # a phase would take unfiltered files for real content
        command = f"git ckpt resume {checkpoint.run}"
        raise unfiltered.unfiltered_files_error(restore_result.unfiltered, command)
    if restore_result.kept:
        raise files_not_restored_error(restore_result.kept)
    return [*safety_ids, *([restore_result.safety] if restore_result.safety else [])]


def update_worktree(store: Checkpoints, files: RunFiles, newest: Checkpoint) -> tuple[str, ...]:
    """Restore the newest checkpoint in a worktree after its run continued elsewhere."""
    id_pair = ownership.read_behind_id(store.repository.git_dir)
    if id_pair is None:
        return ()
    stale_id, adopted_id = id_pair
    adopted_oid = store.refs.read_ref(ref_names.CHECKPOINTS + adopted_id)
    if adopted_oid is not None and newest.id not in id_pair:
        # A commit or a save was recorded in the worktree: do not replace edits.
        ownership.forget_behind_id(store.repository)
        message = f"run {newest.run} continued elsewhere until {_short_id(adopted_id)}, "
        message += f"but its worktree recorded the newer {_short_id(newest.id)}"
        hint = f"to keep the files of the worktree: git ckpt resume {newest.run}; "
        hint += f"to replace them: git ckpt resume {adopted_id} --rewind"
        raise WorktreeError(message, hint=hint)
    safety_ids: list[str] = []
    if stale_id != newest.id:
        remove_stale_locks(store.repository, str(newest.run))
        restore_run_output(store, files, newest)
        try:
            safety_ids = restore_commit_and_files(store, newest)
        except WorktreeError as error:
            raise _add_advice(store, newest, error) from None
    ownership.forget_behind_id(store.repository)
    if not safety_ids:
        return ()
    short_safety_ids = ", ".join(map(_short_id, safety_ids))
    remark = f"updated the worktree of the run from {_short_id(stale_id)} to {_short_id(newest.id)}"
    return (f"{remark}; the earlier content is in {short_safety_ids}",)


def _add_advice(store: Checkpoints, newest: Checkpoint, error: WorktreeError) -> WorktreeError:
    advice = submodules.advice_on_failed_submodules(error)
    if advice is None:
        return error
    # Report missing submodules once: their files may be lost for good.
    ownership.forget_behind_id(store.repository)
    hint = f"to continue without the submodule: git ckpt resume {newest.run}"
    if advice:
        path = shell_quoted(str(store.repository.worktree))
        hint = f"{advice}; then git ckpt restore {_short_id(newest.id)} in {path}; then, or {hint}"
    return error.but(hint=hint)


def _short_id(checkpoint_id: str) -> str:
    return checkpoint_id[: ids.SHORT]


def require_restorable(store: Checkpoints, checkpoint: Checkpoint) -> None:
    restorer.restore_checkpoint(store, checkpoint, dry_run=True)
    PrivateIndex(store.repository).require_user_index_unlocked()


def restore_run_output(store: Checkpoints, files: RunFiles, checkpoint: Checkpoint) -> None:
    snapshot = store.capture_worktree(beside=files.added)
    tree, repository = snapshot.tree, store.repository
    if tree is None:
        return
    output_oid = run_files.output_tree_oid(repository, tree)
    if output_oid == run_files.output_tree_oid(repository, checkpoint.tree):
        return
    message = f"before going back to {_short_id(checkpoint.id)}"
    store.record(ref_names.SAFETY_COMPLETE, {}, worktree=snapshot, trigger=SAFETY, message=message)
    files.restore_output(repository, store.objects, tree, checkpoint.tree)


def is_safety_redundant(
    store: Checkpoints, safety: Checkpoint, recorded: Checkpoint, target: Checkpoint
) -> bool:
    """Return whether `recorded` and `target` have all content of checkpoint `safety`."""
    repository, objects = store.repository, store.objects
    saved_files, recorded_files = (
        manifest.contents_of(checkpoint, repository, objects) for checkpoint in (safety, recorded)
    )
    index_trees = [
        comparison.staged_tree(repository, contents, checkpoint.git_sha)
        for contents, checkpoint in ((saved_files, safety), (recorded_files, recorded))
    ]
    keys = ("files", "raw", "directories", "modes")
    is_contained = all(getattr(saved_files, key) == getattr(recorded_files, key) for key in keys)
    is_plain = not (saved_files.operation or saved_files.flags or set(saved_files.index) - {0})
    is_contained = is_contained and (is_plain or safety.worktree == recorded.worktree)
    is_contained = is_contained and safety.git_sha in (recorded.git_sha, target.git_sha)
    return is_contained and index_trees[0] == index_trees[1]


def remove_stale_locks(repository: Repository, run: str) -> None:
    # A git command in the worktree may lock for long, such as while its editor is open: remove no
    # locks while a git process runs there, or if the system cannot tell. Other processes release
    # locks at once: a lock file that does not change for `PATIENCE` is stale.
    branch_ref, worktree = repository.head_ref(), repository.worktree or repository.git_dir
    refs = [ref_names.RUNS + run, ref_names.LEASES + run, *([branch_ref] if branch_ref else [])]
    locks = [os.path.join(repository.common_dir, f"{ref}.lock") for ref in refs]
    if repository.is_linked:
        lock_names = [name for name in os.listdir(repository.git_dir) if name.endswith(".lock")]
        locks += [os.path.join(repository.git_dir, name) for name in lock_names]
    lock_ids = {path: identity for path in locks if (identity := _file_identity(path)) is not None}
    if not lock_ids or process_tree.is_program_working_in("git", worktree) is not False:
        return
    time.sleep(PATIENCE)
    for path, identity in lock_ids.items():
        if _file_identity(path) == identity:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _file_identity(path: str) -> tuple[int, int, int] | None:
    # Distinguishes a lock file from a later one of the same name.
    try:
        file_status = os.lstat(path)
    except FileNotFoundError:
        return None
    return file_status.st_ino, file_status.st_mtime_ns, file_status.st_size


def fork_run(
    store: Checkpoints, checkpoint: Checkpoint, name: str | None = None, *, trusted: bool = False
) -> Checkpoint:
    is_recorded_here = trust.is_trusted(store, checkpoint)
    if not (is_recorded_here or trusted):
        raise trust.trust_error(store, checkpoint, trust.describe(store, checkpoint))
    checkpoint = manifest.relink_commit(store.repository, checkpoint, None)[0]
    run_name = name or (checkpoint.run or checkpoint.phase_name)[16 if checkpoint.run else 0 :]
    options: Any = {"worktree": checkpoint.worktree, "pipeline": checkpoint.pipeline}
    options |= {"trigger": PHASE, "base": checkpoint.git_sha, "forked_from": checkpoint.id}
    options["message"] = f"forked from {_short_id(checkpoint.id)}"
    fork = store.record(ref_names.RUN_STARTED, checkpoint.state, start=run_name, **options)
    if local_checkpoints.is_captured_here(store.repository, checkpoint.id):
        local_checkpoints.append_forked_checkpoint(store.repository, fork.id)
    if checkpoint.run is not None and not is_recorded_here:
        trust.adopt(store, checkpoint.run, by=fork.run)
    if checkpoint.run is not None and checkpoint.pipeline is not None:
        # Copy the original input files: in those of checkpoints, secrets are masked.
        digests = checkpoint.pipeline.contents
        files = run_files.files_of_run(store.repository, checkpoint.run).read_inputs().items()
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files}
        unchanged_files = {name: data for name, data in files if hashes[name] == digests.get(name)}
        run_files.files_of_run(store.repository, str(fork.run)).write_inputs(unchanged_files)
    return fork


def _move_head(store: Checkpoints, checkpoint: Checkpoint, head: str) -> None:
    repository, commit = store.repository, checkpoint.git_sha
    branch = BRANCHES + checkpoint.branch if checkpoint.branch is not None else ""
    message = f"git ckpt: back to {_short_id(checkpoint.id)}"
    try:
        if branch and branch == repository.head_ref():
            repository.git.run("update-ref", "-m", message, branch, commit, head)
            return
        # Detach HEAD, and attach it only if the branch is free and still at the commit.
        repository.set_head(commit, message)
        tip = repository.cat_file.info(branch) if branch else None
        if tip is not None and tip[0] == commit and opener.is_branch_unused(repository, branch):
            repository.set_head(branch, message)
    except GitError as error:
        raise WorktreeError(f"cannot move HEAD to {commit}: {error.message}") from None
