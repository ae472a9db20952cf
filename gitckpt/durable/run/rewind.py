"""Goes back to an earlier checkpoint: in the same worktree, or in a new run. What is there now is recorded first."""

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

PATIENCE = 0.5
"""How long a lock file in the way of a run is looked at before it counts as left, in seconds."""


def go_back(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    """Brings commit, files, index and operation in progress of a checkpoint back into a run's worktree.

    Returns the ids of the safety checkpoints that hold what was there before.

    Args:
        store: as seen from the worktree.
        checkpoint: what it shall hold.

    Raises:
        WorktreeError: its commit or files are missing, or something is in the way that no checkpoint holds.
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
    for remark in restored.remarks:  # what is not as it was: whoever goes on with it may trip over that
        store.announce(remark)
    if restored.unfiltered:  # nobody is there to notice what a phase makes of them
        raise unfiltered.failure(restored.unfiltered, f"git ckpt resume {checkpoint.run}")
    if restored.kept:
        raise kept_failure(restored.kept)
    return [*safe, *([restored.safety] if restored.safety else [])]


def catch_up(store: Checkpoints, files: RunFiles, newest: Checkpoint) -> tuple[str, ...]:
    """Brings the newest checkpoint of a run into its worktree, where that stands at an older one, as others have gone on with the run.

    Returns a sentence about it, if there was anything to do.

    Args:
        store: as seen from the worktree.
        files: of the run.
        newest: its newest checkpoint, which was adopted.

    Raises:
        WorktreeError: as `go_back`; or something was recorded since it was adopted, as of the worktree as it stands: that is said once.
    """
    noted = ownership.behind(store.repository)
    if noted is None:
        return ()
    stood_at, adopted = noted
    safe: list[str] = []
    if newest.id not in noted and store.refs.read(layout.CHECKPOINTS + adopted) is not None:  # else somebody has removed that
        # A commit or a save in the worktree: what was edited there since is nothing to be replaced.
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
            ownership.forget_behind(store.repository)  # said once, as of one that is made anew: the files may be out of reach for good
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
    """Raises `WorktreeError` where a worktree cannot be taken back to a checkpoint: before HEAD moves, or anything says that it will.

    Args:
        store: as seen from the worktree.
        checkpoint: what it shall hold.

    Raises:
        WorktreeError: as above.
        LockHeld: somebody is about to change the index.
    """
    restorer.restore(store, checkpoint, dry_run=True)
    PrivateIndex(store.repository).require_unlocked()


def take_output_back(store: Checkpoints, files: RunFiles, checkpoint: Checkpoint) -> None:
    """Lets what the phases of a run put out be what it was at a checkpoint.

    Args:
        store: as seen from the worktree.
        files: of the run.
        checkpoint: of the run.

    Raises:
        WorktreeError: it cannot be brought back.
    """
    now = store.capture(beside=files)
    then = checkpoint.tree
    if now.tree is None or run_files.output_of(store.repository, now.tree) == run_files.output_of(store.repository, then):
        return
    message = f"before going back to {checkpoint.id[: ids.SHORT]}"
    store.record(layout.SAFETY_COMPLETE, {}, worktree=now, trigger=SAFETY, message=message)
    files.take_back(store.repository, store.objects, now.tree, then)


def is_held(store: Checkpoints, safety: Checkpoint, recorded: Checkpoint, wanted: Checkpoint) -> bool:
    """Tells whether two other checkpoints hold all that a safety checkpoint does.

    Args:
        store: of the worktree.
        safety: what was there on the way from one to the other.
        recorded: what was there before.
        wanted: what was brought back.
    """
    there, before = (manifest.contents_of(each, store.repository, store.objects) for each in (safety, recorded))
    indexes = [comparison.merged_tree(store.repository, found, each.git_sha) for found, each in ((there, safety), (before, recorded))]
    same = (there.files, there.raw) == (before.files, before.raw) and indexes[0] == indexes[1]
    same = same and (there.directories, there.modes) == (before.directories, before.modes)
    plain = not (there.operation or there.flags or set(there.index) - {0})
    return same and (plain or safety.worktree == recorded.worktree) and safety.git_sha in (recorded.git_sha, wanted.git_sha)


def remove_locks(repository: Repository, run: str) -> None:
    """Removes the lock files that git leaves where it is killed together with the command that called it.

    Somebody who works in the worktree by hand may hold one for long, while an editor is open: as long as a git process is at work there,
    and where the system does not tell, they stay. Others let go of theirs at once: one that is as it was after `PATIENCE` is left.

    Args:
        repository: seen from the run's worktree; its lease is ours, and no command of it runs.
    """
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
    """Returns what tells a lock file from a later one of the same name; None where there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def fork(store: Checkpoints, checkpoint: Checkpoint, name: str | None = None, *, trusted: bool = False) -> Checkpoint:
    """Starts a run that goes on from a checkpoint, and returns its first checkpoint; the old run stays as it is.

    Args:
        checkpoint: the one to go on from.
        name: what the new run is about; by default what the old one was.
        trusted: whether it may be one that was not written here.

    Raises:
        Untrusted: it was not written here, and is not trusted.
    """
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
    if checkpoint.run is not None and checkpoint.pipeline is not None:  # whole, where what is stored has places that are masked
        wanted = checkpoint.pipeline.contents
        there = run_files.of_run(store.repository, checkpoint.run).inputs()
        same = {name: data for name, data in there.items() if hashlib.sha256(data).hexdigest() == wanted.get(name)}
        run_files.of_run(store.repository, str(made.run)).keep(same)
    return made


def _move_head(store: Checkpoints, checkpoint: Checkpoint, commit: str) -> None:
    """Lets HEAD point to the commit of a checkpoint; on its branch, where that was not moved by somebody else."""
    wanted = BRANCHES + checkpoint.branch if checkpoint.branch is not None else ""
    said = f"git ckpt: back to {checkpoint.id[: ids.SHORT]}"
    try:
        if wanted and wanted == store.repository.head_ref():
            store.repository.git.run("update-ref", "-m", said, wanted, checkpoint.git_sha, commit)
            return
        store.repository.point_head(checkpoint.git_sha, said)
        there = store.repository.cat_file.info(wanted) if wanted else None
        if there is not None and there[0] == checkpoint.git_sha and opener.is_free(store.repository, wanted):
            store.repository.point_head(wanted, said)
    except GitError as error:
        raise WorktreeError(f"cannot move HEAD back to {checkpoint.git_sha}: {error.message}") from None
