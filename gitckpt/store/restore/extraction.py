"""One file out of a snapshot, whatever it is called; and what a snapshot has besides files."""

from __future__ import annotations

import os

from gitckpt.git.contents import bounds
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, stays_within
from gitckpt.git.objects.trees import leaf
from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gitckpt.git.objects.port import Objects

_BESIDE = "run"
"""The entry of a snapshot that holds what a run keeps beside its worktree."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What a snapshot has that a tree of git's cannot hold. Paths are those of git, from the top of the worktree.

    Attributes:
        raw: files that are kept byte for byte, as git would write them otherwise.
        directories: those that hold no file of the snapshot; none that is above another one.
        modes: permission bits of files and directories that may less than the umask lets them, by path.
    """

    raw: Sequence[bytes]
    directories: Sequence[bytes]
    modes: Mapping[bytes, int]


def extras(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> Extras:
    """Returns what the snapshot of a checkpoint has besides files. Errors: `WorktreeError`, where it cannot be read."""
    if checkpoint.tree is None:
        return Extras((), (), {})
    found = manifest.contents_of(checkpoint, repository, objects)
    return Extras(sorted(manifest.raw_of(repository, found)), found.directories, found.modes)


def content(repository: Repository, checkpoint: Checkpoint, path: bytes, *, beside: bool) -> bytes:
    """Returns the content of a file.

    Args:
        checkpoint: whose file it is.
        path: of the file, from the top of the worktree.
        beside: whether it is one that the run keeps beside the worktree.

    Raises:
        NotFoundError: there is no such file.
        WorktreeError: the files are missing, or its content is.
    """
    if beside:
        bounds.require(repository, checkpoint.tree, "")
        trees = [f"{checkpoint.tree}:{_BESIDE}"] if checkpoint.tree is not None else []
    else:
        files = manifest.files_of(repository, checkpoint)
        raw = manifest.raw_tree(repository, checkpoint.tree)  # what is there counts: it is what the file was
        trees = [files] if raw is None else [raw, files]
    for tree in trees:
        oid = _blob(repository, tree, path)
        if oid is not None:
            found = next(repository.cat_file.contents([oid]))
            if found is None:
                raise WorktreeError(f"{oid}, the content of {os.fsdecode(path)}, is missing", hint="see what is wrong: git ckpt verify")
            return found[2]
    where = "beside its worktree" if beside else "among its files"
    raise NotFoundError(f"checkpoint {checkpoint.id} has no file {os.fsdecode(path)!r} {where}", hint=f"see: git ckpt show {checkpoint.id}")


def _blob(repository: Repository, tree: str, path: bytes) -> str | None:
    """Returns the oid of the blob at a path; None where there is none."""
    if not stays_within(path) or repository.cat_file.info(tree) is None:
        return None
    found = leaf(repository, tree, path)  # `cat-file` takes a name a line, and a path may have several
    return found[2] if found is not None and found[1] not in (DIRECTORY, GITLINK) else None
