"""Check that a recorded snapshot is whole; capture it again if not."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.git import graph
from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import DIRECTORY, Entries, MalformedTree, decode_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import IndexGone
from gitckpt.model.errors import BusyError
from gitckpt.store.records import ref_names
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import capture, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gitckpt.git.objects.writer import Objects
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.errors import CkptError

    Parts = Callable[[str, str], Collection[str] | None]


def _know_none(_commit: str, _files: str) -> None:
    """Know of no parts of a tree."""


def is_whole(repository: Repository, checkpoint: Checkpoint, parts: Parts = _know_none) -> bool:
    """Return whether the objects of a checkpoint's snapshot exist and are intact.

    Until its ref is written, `gc --prune=now` can take them. The linked commit is not checked.
    """
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        if not modules.is_held(repository, modules.unquoted(submodule.path), ref):
            return False  # another process removed the checkpoint meanwhile
    if checkpoint.tree is None:
        return True
    own = _own_objects(repository, checkpoint.tree, checkpoint.git_sha, parts)
    return own is not None and not graph.unreadable(repository, list(own))


def _own_objects(repository: Repository, tree: str, commit: str, parts: Parts) -> set[str] | None:
    """Return the objects that the commit does not hold; None if unreadable.

    `parts` returns the objects that the tree of all files adds, perhaps more; None if unknown.
    """
    base = manifest.base_tree(repository, commit)
    own = {tree}
    try:
        for name, (mode, oid) in _entries(repository, tree).items():
            own.add(oid)
            known = parts(commit, oid) if name == b"files" else None
            if known is not None:
                own.update(known)
            elif mode == DIRECTORY:
                stages = _entries(repository, oid).values() if name == b"index" else [(mode, oid)]
                for _, part in stages:
                    own.update([part, *diff.list_own_objects(repository, base, part)])
    except (GitError, MalformedTree):
        return None
    return own - {base}


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
    parts: Parts = _know_none,
) -> Checkpoint:
    """Return a checkpoint whose snapshot is whole, after several attempts if needed.

    Raises:
        BusyError: HEAD moved each time, or objects of the snapshot vanished twice.
        WorktreeError: an object is damaged, and no file has its content.
    """
    torn = 0
    unreadable: set[str] = set()
    reason: CkptError | None = None
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
            say(capture.moved_aside(repository, error.oid))
            continue
        reason = failure(repository, objects, checkpoint, say, parts)
        if reason is None:
            return checkpoint
        remove([checkpoint.id])
        torn += 1
        if torn == _CAPTURES:
            break
    raise reason or _busy()


def own_objects(repository: Repository, tree: str, commit: str, parts: Parts) -> list[str]:
    """Return the objects that a snapshot adds to its commit; none if unreadable."""
    return sorted(_own_objects(repository, tree, commit, parts) or ())


def failure(
    repository: Repository,
    objects: Objects,
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    parts: Parts = _know_none,
) -> CkptError | None:
    """Return None once a checkpoint's snapshot can be read, else the error to raise.

    Damaged objects are written again from files, or moved aside for the next capture.
    """
    if is_whole(repository, checkpoint, parts):
        return None
    messages, reason = capture.write_again(repository, objects, checkpoint)
    for message in messages:
        say(message)
    return None if is_whole(repository, checkpoint) else reason or _busy()


def _busy() -> BusyError:
    message = "HEAD moves, or objects are pruned, as fast as they are written"
    return BusyError(message, hint="wait for its end, then run it again")
