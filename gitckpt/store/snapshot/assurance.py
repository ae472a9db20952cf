"""Sees to it that a snapshot that is recorded is whole, and is captured again where it is not."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.git import damage
from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import DIRECTORY, Entries, MalformedTree, decode_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import IndexGone
from gitckpt.model.errors import BusyError
from gitckpt.store.records import layout
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import capture, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gitckpt.git.objects.port import Objects
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.errors import CkptError

    Parts = Callable[[str, str], Collection[str] | None]


# What a snapshot has of its own, beside the commit that it is linked to, and whether all of it is there and sound.


def is_whole(repository: Repository, checkpoint: Checkpoint, parts: Parts = lambda _commit, _files: None) -> bool:
    """Tells whether the objects of a checkpoint's snapshot are there, and are what they should be.

    Until its ref is written, a `gc --prune=now` can take them; those that were there before may be damaged. Only what the
    linked commit does not hold is looked at, and that its submodules have checkpoints.

    Args:
        checkpoint: was recorded just now.
        parts: as for `own_objects`.
    """
    for one in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        if not modules.is_held(repository, modules.unquoted(one.path), layout.CHECKPOINTS + one.checkpoint):
            return False  # whoever removed the last one that named it was faster
    own = own_objects_wholeness(repository, checkpoint.tree, checkpoint.git_sha, parts) if checkpoint.tree is not None else set()
    return own is not None and not damage.unreadable(repository, list(own))


def own_objects_wholeness(repository: Repository, tree: str, commit: str, parts: Parts = lambda _commit, _files: None) -> set[str] | None:
    """Returns the objects of a snapshot that its linked commit does not hold; None where some cannot be read.

    Args:
        tree: the snapshot.
        commit: the linked commit; "" for none.
        parts: returns the objects that the tree of all files has beside the commit, where whoever wrote it knows; the commit may have some.
    """
    base = manifest.base_tree(repository, commit)
    try:
        return {tree, *_parts(repository, tree, base, lambda files: parts(commit, files))} - {base}
    except (GitError, MalformedTree):
        return None


def _parts(repository: Repository, tree: str, base: str, known: Callable[[str], Collection[str] | None]) -> Iterator[str]:
    for name, (mode, oid) in _entries(repository, tree).items():
        yield oid
        if name == b"files" and (found := known(oid)) is not None:
            yield from found
        elif mode == DIRECTORY:
            for part in [each for _, each in _entries(repository, oid).values()] if name == b"index" else [oid]:
                yield part
                yield from diff.own(repository, base, part)


def _entries(repository: Repository, tree: str) -> Entries:
    found = next(repository.cat_file.contents([tree]))
    if found is None:
        raise MalformedTree("it is missing")
    return decode_tree(found[2], repository.object_format)


# Sees to it that a snapshot that is recorded is whole, and is captured again where it is not.


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
            if error.oid in unreadable or not capture.make_way(repository, objects, error.oid):
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
    return sorted(own_objects_wholeness(repository, tree, commit, parts) or ())


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
    if is_whole(repository, checkpoint, parts):
        return None

    messages, reason = capture.write_again(repository, objects, checkpoint)
    for message in messages:
        say(message)
    return None if is_whole(repository, checkpoint) else reason or _busy()


def _busy() -> BusyError:
    return BusyError("HEAD moves, or objects are pruned, as fast as they are written", hint="wait for its end, then run it again")
