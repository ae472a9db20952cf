"""Sees to it that a snapshot that is recorded is whole, and is captured again where it is not."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.git.worktree.complaints import IndexGone
from gitckpt.model.errors import BusyError
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import capture, wholeness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.errors import CkptError
    from gitckpt.store.snapshot.wholeness import Parts

_ATTEMPTS = 10
_CAPTURES = 2
"""How often files are captured while a `git gc --prune=now` takes their objects: git's own commits fail there, too."""


def recorded(
    repository: Repository,
    objects: Objects,
    attempt: Callable[[], Checkpoint],
    remove: Callable[[list[str]], object],
    say: Callable[[str], None],
    *,
    parts: Parts = lambda _commit, _files: None,
) -> Checkpoint:
    """Returns a checkpoint whose snapshot is whole; it may take several attempts.

    Args:
        repository: seen from the worktree.
        attempt: captures the worktree, and records a checkpoint with that.
        remove: removes checkpoints by id.
        say: as for `failure`.
        parts: likewise.

    Raises:
        BusyError: HEAD moved or the private directory was deleted each time, or objects of the snapshot vanished twice.
        WorktreeError: an object is damaged, and no file has its content.
    """
    torn = 0
    unreadable: set[str] = set()
    reason: CkptError = _busy()
    for remaining in reversed(range(_ATTEMPTS)):
        try:
            checkpoint = attempt()
        except capture.Moved:
            continue
        except FilesPruned:
            torn += 1
            if torn == _CAPTURES:
                raise
            continue
        except IndexGone:  # anybody may delete what is derived, and may do so again
            if not remaining:
                raise
            continue
        except capture.DamagedObject as error:  # git itself reads some objects before it writes them: those of links
            from gitckpt.store.snapshot import repair  # damage is seldom

            if error.oid in unreadable or not repair.make_way(repository, objects, error.oid):
                raise
            unreadable.add(error.oid)
            say(f"the object {error.oid} was damaged, and is written again; its file is in {repository.private_dir}/damaged")
            continue
        found = failure(repository, objects, checkpoint, say, parts)
        if found is None:
            return checkpoint
        remove([checkpoint.id])
        reason = found
        torn += 1
        if torn == _CAPTURES:
            break
    raise reason


def own_objects(repository: Repository, tree: str, commit: str, parts: Parts) -> list[str]:
    """Return the objects that a snapshot adds to its commit; none where a tree is gone, which is noticed later.

    Args:
        repository: seen from the worktree that was captured.
        tree: the snapshot.
        commit: the linked commit; "" for none.
        parts: as for `wholeness.own_objects`.
    """
    return sorted(wholeness.own_objects(repository, tree, commit, parts) or ())


def failure(
    repository: Repository,
    objects: Objects,
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    parts: Parts = lambda _commit, _files: None,
) -> CkptError | None:
    """Return None once all that a checkpoint's snapshot needs can be read, else the error to raise.

    What is damaged is written again from the files where that is possible, or moved aside for another capture to write.

    Args:
        repository: seen from the worktree that was captured.
        checkpoint: was recorded just now.
        say: receives a sentence about each object that was damaged.
        parts: as for `wholeness.is_whole`.

    Raises:
        GitError: an object cannot be written.
    """
    if wholeness.is_whole(repository, checkpoint, parts):
        return None
    from gitckpt.store.snapshot import repair

    messages, reason = repair.write_again(repository, objects, checkpoint)
    for message in messages:
        say(message)
    return None if wholeness.is_whole(repository, checkpoint) else reason or _busy()


def _busy() -> BusyError:
    return BusyError("HEAD moves, or objects are pruned, as fast as they are written", hint="wait for its end, then run it again")
