"""What a snapshot has of its own, beside the commit that it is linked to, and whether all of it is there and sound."""

from __future__ import annotations

from gitckpt.git import damage
from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import DIRECTORY, Entries, MalformedTree, decode_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.store.records import layout
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gitckpt.model.checkpoint import Checkpoint

    Parts = Callable[[str, str], Collection[str] | None]


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
    own = own_objects(repository, checkpoint.tree, checkpoint.git_sha, parts) if checkpoint.tree is not None else set()
    return own is not None and not damage.unreadable(repository, list(own))


def own_objects(repository: Repository, tree: str, commit: str, parts: Parts = lambda _commit, _files: None) -> set[str] | None:
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
