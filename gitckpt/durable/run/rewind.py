"""Return to an earlier checkpoint, in the same worktree or in a fork of the run."""

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
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import PHASE, SAFETY, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore import restorer, submodules
from gitckpt.store.restore.restorer import kept_failure
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import opener, ownership

# A lock file that is unchanged after this many seconds is stale.
PATIENCE = 0.5


def go_back(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    """Restore a checkpoint's commit, files and index; return safety checkpoint ids."""
    safety_ids: list[str] = []
    commit, branch = store.objects.head()
    checkpoint = manifest.with_commit(store.repository, checkpoint, None)[0]
    if (commit, branch) != (checkpoint.git_sha, checkpoint.branch) and checkpoint.git_sha:
        require_restorable(store, checkpoint)
        message = f"before going back to {_short(checkpoint.id)}"
        safety_ids.append(
            store.save(ref_names.SAFETY_COMPLETE, {}, trigger=SAFETY, message=message).id
        )
        _move_head(store, checkpoint, commit)
    restored = restorer.restore(store, checkpoint)
    for remark in restored.remarks:  # differences from the checkpoint
        store.announce(remark)
    if restored.unfiltered:  # a phase would take unfiltered files for real content
        raise unfiltered.failure(restored.unfiltered, f"git ckpt resume {checkpoint.run}")
    if restored.kept:
        raise kept_failure(restored.kept)
    return [*safety_ids, *([restored.safety] if restored.safety else [])]


def catch_up(store: Checkpoints, files: RunFiles, newest: Checkpoint) -> tuple[str, ...]:
    """Update a worktree that is behind because the run continued elsewhere.

    Returns remarks, () without changes. Raises the errors of `go_back`; the first call also raises
    WorktreeError if the worktree has recorded checkpoints since the run continued elsewhere.
    """
    behind = ownership.read_behind(store.repository.git_dir)
    if behind is None:
        return ()
    old_id, adopted = behind
    if store.refs.read(ref_names.CHECKPOINTS + adopted) is not None and newest.id not in behind:
        # A commit or a save was recorded in the worktree: do not replace edits.
        ownership.forget_behind(store.repository)
        message = f"run {newest.run} continued elsewhere until {_short(adopted)}, "
        message += f"but its worktree recorded the newer {_short(newest.id)}"
        hint = f"to keep the files of the worktree: git ckpt resume {newest.run}; "
        hint += f"to replace them: git ckpt resume {adopted} --rewind"
        raise WorktreeError(message, hint=hint)
    safety_ids: list[str] = []
    if old_id != newest.id:
        remove_locks(store.repository, str(newest.run))
        restore_output(store, files, newest)
        try:
            safety_ids = go_back(store, newest)
        except WorktreeError as error:
            raise _with_advice(store, newest, error) from None
    ownership.forget_behind(store.repository)
    if not safety_ids:
        return ()
    saved = ", ".join(map(_short, safety_ids))
    change = f"updated the worktree of the run from {_short(old_id)} to {_short(newest.id)}"
    return (f"{change}; the earlier content is in {saved}",)


def _with_advice(store: Checkpoints, newest: Checkpoint, error: WorktreeError) -> WorktreeError:
    advice = submodules.advice_of(error)
    if advice is None:
        return error
    # Report missing submodules once: their files may be lost for good.
    ownership.forget_behind(store.repository)
    hint = f"to continue without the submodule: git ckpt resume {newest.run}"
    if advice:
        worktree = shell_word(str(store.repository.worktree))
        hint = f"{advice}; then git ckpt restore {_short(newest.id)} in {worktree}; then, or {hint}"
    return error.but(hint=hint)


def _short(checkpoint_id: str) -> str:
    return checkpoint_id[: ids.SHORT]


def require_restorable(store: Checkpoints, checkpoint: Checkpoint) -> None:
    """Raise WorktreeError or LockHeld if `go_back` would fail; change nothing."""
    restorer.restore(store, checkpoint, dry_run=True)
    PrivateIndex(store.repository).require_unlocked()


def restore_output(store: Checkpoints, files: RunFiles, checkpoint: Checkpoint) -> None:
    """Restore differing output files of phases, after recording a safety checkpoint."""
    present = store.capture(beside=files.added)
    tree, repository = present.tree, store.repository
    if tree is None:
        return
    if run_files.output_oid(repository, tree) == run_files.output_oid(repository, checkpoint.tree):
        return
    message = f"before going back to {_short(checkpoint.id)}"
    store.record(ref_names.SAFETY_COMPLETE, {}, worktree=present, trigger=SAFETY, message=message)
    files.restore_output(repository, store.objects, tree, checkpoint.tree)


def is_redundant(
    store: Checkpoints, safety: Checkpoint, recorded: Checkpoint, target: Checkpoint
) -> bool:
    """Return whether checkpoints `recorded` and `target` have all content of `safety`."""
    repository, objects = store.repository, store.objects
    saved, recorded_files = (
        manifest.contents_of(each, repository, objects) for each in (safety, recorded)
    )
    indexes = [
        comparison.staged_tree(repository, content, checkpoint.git_sha)
        for content, checkpoint in ((saved, safety), (recorded_files, recorded))
    ]
    names = ("files", "raw", "directories", "modes")
    is_same = all(getattr(saved, name) == getattr(recorded_files, name) for name in names)
    is_plain = not (saved.operation or saved.flags or set(saved.index) - {0})
    is_same = is_same and (is_plain or safety.worktree == recorded.worktree)
    is_same = is_same and safety.git_sha in (recorded.git_sha, target.git_sha)
    return is_same and indexes[0] == indexes[1]


def remove_locks(repository: Repository, run: str) -> None:
    """Remove stale lock files of git processes that were killed with their command."""
    # A git command in the worktree may lock for long, such as while its editor is open: remove no
    # locks while a git process runs there, or if the system cannot tell. Other processes release
    # locks at once: a lock file that does not change for `PATIENCE` is stale.
    branch, worktree = repository.head_ref(), repository.worktree or repository.git_dir
    refs = [ref_names.RUNS + run, ref_names.LEASES + run, *([branch] if branch else [])]
    paths = [os.path.join(repository.common_dir, f"{ref}.lock") for ref in refs]
    if repository.is_linked:
        names = [name for name in os.listdir(repository.git_dir) if name.endswith(".lock")]
        paths += [os.path.join(repository.git_dir, name) for name in names]
    locks = {path: identity for path in paths if (identity := _file_identity(path)) is not None}
    if not locks or process_tree.is_working_in("git", worktree) is not False:
        return
    time.sleep(PATIENCE)
    for path, identity in locks.items():
        if _file_identity(path) == identity:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _file_identity(path: str) -> tuple[int, int, int] | None:
    # Distinguishes a lock file from a later one of the same name.
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def fork(
    store: Checkpoints, checkpoint: Checkpoint, name: str | None = None, *, trusted: bool = False
) -> Checkpoint:
    """Start a run that continues from a checkpoint; return the run's first checkpoint."""
    is_local = trust.is_trusted(store, checkpoint)
    if not (is_local or trusted):
        raise trust.refusal_error(store, checkpoint, trust.account(store, checkpoint))
    checkpoint = manifest.with_commit(store.repository, checkpoint, None)[0]
    start_name = name or (checkpoint.run or checkpoint.phase_name)[16 if checkpoint.run else 0 :]
    details: Any = {"worktree": checkpoint.worktree, "pipeline": checkpoint.pipeline}
    details |= {"trigger": PHASE, "base": checkpoint.git_sha, "forked_from": checkpoint.id}
    details["message"] = f"forked from {_short(checkpoint.id)}"
    first = store.record(ref_names.RUN_STARTED, checkpoint.state, start=start_name, **details)
    if local_checkpoints.is_captured_here(store.repository, checkpoint.id):
        local_checkpoints.append_fork(store.repository, first.id)
    if checkpoint.run is not None and not is_local:
        trust.adopt(store, checkpoint.run, by=first.run)
    if checkpoint.run is not None and checkpoint.pipeline is not None:
        # Copy the original input files: in those of checkpoints, secrets are masked.
        digests = checkpoint.pipeline.contents
        inputs = run_files.files_of_run(store.repository, checkpoint.run).read_inputs().items()
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in inputs}
        unchanged = {name: data for name, data in inputs if hashes[name] == digests.get(name)}
        run_files.files_of_run(store.repository, str(first.run)).write_inputs(unchanged)
    return first


def _move_head(store: Checkpoints, checkpoint: Checkpoint, head: str) -> None:
    repository, commit = store.repository, checkpoint.git_sha
    branch = BRANCHES + checkpoint.branch if checkpoint.branch is not None else ""
    message = f"git ckpt: back to {_short(checkpoint.id)}"
    try:
        if branch and branch == repository.head_ref():
            repository.git.run("update-ref", "-m", message, branch, commit, head)
            return
        # Detach HEAD, and attach it only if the branch is free and still at the commit.
        repository.point_head(commit, message)
        tip = repository.cat_file.info(branch) if branch else None
        if tip is not None and tip[0] == commit and opener.is_branch_free(repository, branch):
            repository.point_head(branch, message)
    except GitError as error:
        raise WorktreeError(f"cannot move HEAD to {commit}: {error.message}") from None
