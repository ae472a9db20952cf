"""Check that a recorded snapshot is whole; capture it again if not."""

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


def is_whole(repository: Repository, checkpoint: Checkpoint, parts: Parts = lambda _commit, _files: None) -> bool:
    """Return whether the objects of a checkpoint's snapshot exist and are intact.

    Until its ref is written, `gc --prune=now` can take them. Checks only what the linked commit
    does not hold, and that the submodules have their checkpoints.
    """
    for one in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        if not modules.is_held(repository, modules.unquoted(one.path), layout.CHECKPOINTS + one.checkpoint):
            return False  # another process removed the checkpoint meanwhile
    own = own_objects_wholeness(repository, checkpoint.tree, checkpoint.git_sha, parts) if checkpoint.tree is not None else set()
    return own is not None and not damage.unreadable(repository, list(own))


def own_objects_wholeness(repository: Repository, tree: str, commit: str, parts: Parts = lambda _commit, _files: None) -> set[str] | None:
    """Return the objects that the commit does not hold; None if some are unreadable.

    Args:
        parts: returns the objects that the tree of all files adds to the commit, perhaps more;
            None if unknown.
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


_ATTEMPTS = 10
_CAPTURES = 2  # while `git gc --prune=now` takes new objects: git's own commits fail then too


def recorded(
    repository: Repository,
    objects: Objects,
    attempt: Callable[[], Checkpoint],
    remove: Callable[[list[str]], object],
    say: Callable[[str], None],
    *,
    parts: Parts = lambda _commit, _files: None,
) -> Checkpoint:
    """Return a checkpoint whose snapshot is whole, after several attempts if needed.

    Args:
        attempt: captures the worktree and records a checkpoint.
        remove: removes checkpoints by id.

    Raises:
        BusyError: HEAD moved each time, or objects of the snapshot vanished twice.
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
        except IndexGone:  # anything may delete the private index, even repeatedly
            if not remaining:
                raise
            continue
        except capture.DamagedObject as error:  # git reads link objects before it writes them
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
    """Return the objects that a snapshot adds to its commit; none if unreadable."""
    return sorted(own_objects_wholeness(repository, tree, commit, parts) or ())


def failure(
    repository: Repository,
    objects: Objects,
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    parts: Parts = lambda _commit, _files: None,
) -> CkptError | None:
    """Return None once a checkpoint's snapshot can be read, else the error to raise.

    Damaged objects are written again from the files, or moved aside for the next capture; `say`
    gets a sentence about each.
    """
    if is_whole(repository, checkpoint, parts):
        return None
    messages, reason = capture.write_again(repository, objects, checkpoint)
    for message in messages:
        say(message)
    return None if is_whole(repository, checkpoint) else reason or _busy()


def _busy() -> BusyError:
    return BusyError("HEAD moves, or objects are pruned, as fast as they are written", hint="wait for its end, then run it again")
