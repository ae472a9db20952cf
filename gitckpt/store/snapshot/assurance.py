"""Sees to it that a snapshot that is recorded is whole, and is captured again where it is not."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.git.damage import committed
from gitckpt.git.worktree.complaints import IndexGone
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import capture, wholeness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.snapshot.wholeness import Parts

_ATTEMPTS = 10
_TORN = 3
"""So many snapshots may lack something once they are recorded, though what could be done about it was."""


def recorded(
    repository: Repository,
    objects: Objects,
    attempt: Callable[[], Checkpoint],
    remove: Callable[[list[str]], object],
    say: Callable[[str], None],
    *,
    parts: Parts = lambda _commit, _files: None,
    may_be_known: bool = False,
) -> Checkpoint:
    """Returns a checkpoint whose snapshot is whole; it may take several attempts.

    Args:
        repository: seen from the worktree.
        attempt: captures the worktree, and records a checkpoint with that.
        remove: removes checkpoints by id.
        say: as for `secure`.
        parts: likewise.
        may_be_known: whether `attempt` may return a checkpoint that was there already. Otherwise what the commit has is looked at, too.

    Raises:
        BusyError: HEAD moved, objects of the snapshot vanished, or the private directory was deleted, each time.
        WorktreeError: an object is damaged, and no file has its content.
    """
    checkpoint: Checkpoint | None = None
    torn = 0
    unreadable: set[str] = set()
    for left in reversed(range(_ATTEMPTS)):
        try:
            checkpoint = attempt()
        except (FilesPruned, capture.Moved):
            continue
        except IndexGone:  # anybody may delete what is derived, and may do so again
            if not left:
                raise
            continue
        except capture.DamagedObject as error:  # git itself reads some objects before it writes them: those of links
            from gitckpt.store.snapshot import repair  # damage is seldom

            sentence = repair.make_way(repository, objects, error.oid) if error.oid not in unreadable else None
            if sentence is None:
                raise
            unreadable.add(error.oid)
            say(sentence)
            continue
        if secure(repository, objects, checkpoint, say, parts):
            if torn:
                _forget(repository)
            if not may_be_known:
                _require_committed(repository, objects, checkpoint, remove, say)
            return checkpoint
        remove([checkpoint.id])
        torn += 1
        if torn == _TORN:
            break
    raise failure(repository, objects, checkpoint)


def _require_committed(
    repository: Repository,
    objects: Objects,
    checkpoint: Checkpoint,
    remove: Callable[[list[str]], object],
    say: Callable[[str], None],
) -> None:
    """Sees to what a snapshot shares with its commit. Args and errors: as `recorded`."""
    if checkpoint.worktree is None or checkpoint.worktree.degraded is not None:
        return
    said: set[str] = set()
    for _ in range(_ATTEMPTS):  # what a lost commit leads to is seen once it is back
        lost, before = committed.lacking(repository, objects, checkpoint.git_sha)
        if not lost and not before:
            return
        from gitckpt.store.snapshot import repair

        try:
            new = [each for each in repair.mend_committed(repository, objects, checkpoint, lost, before) if each not in said]
        except WorktreeError:
            remove([checkpoint.id])
            raise
        for sentence in new:
            say(sentence)
        said.update(new)
        if not new:
            break
    if not lost:
        committed.pass_over(repository, checkpoint.git_sha)


def secure(
    repository: Repository,
    objects: Objects,
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    parts: Parts = lambda _commit, _files: None,
) -> bool:
    """Sees to it that what the snapshot of a checkpoint needs is there and can be read; what is damaged is written anew from the files.

    Where that does not do, what is damaged is out of the way afterwards, and another capture writes it.

    Args:
        repository: seen from the worktree that was captured.
        checkpoint: was recorded just now.
        say: is told, in a sentence each, what was damaged.
        parts: as for `wholeness.own_objects`.

    Returns:
        Whether everything is there.

    Raises:
        GitError: an object cannot be written.
    """
    if wholeness.is_whole(repository, checkpoint, parts):
        return True
    from gitckpt.store.snapshot import repair

    for sentence in repair.mend(repository, objects, checkpoint):
        say(sentence)
    is_whole = wholeness.is_whole(repository, checkpoint)
    if is_whole:
        _forget(repository)  # where a gc was about to move objects, nothing was damaged
    return is_whole


def _forget(repository: Repository) -> None:
    from gitckpt.git.damage import unusable  # damage is seldom

    unusable.forget(repository)


def failure(repository: Repository, objects: Objects, checkpoint: Checkpoint | None) -> CkptError:
    """Returns why a worktree could not be captured for good; the arguments are those of `repair.failure`."""
    from gitckpt.store.snapshot import repair

    return repair.failure(repository, objects, checkpoint)
