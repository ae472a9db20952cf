"""Write objects of a snapshot that are damaged again, while the worktree has the files.

git takes an object to be there as soon as a file has its name: no `git add` writes again what a power cut has emptied.
"""

from __future__ import annotations

import os
import re

from gitckpt.git import damage, fsync
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, MalformedTree, decode_tree, object_id
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.model.names import quoted
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint

_SNAPSHOT = re.compile(rb"^(files|raw|index/[0-3])/")
"""What the paths of a worktree stand behind in the tree of a snapshot."""


def write_again(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> tuple[list[str], CkptError | None]:
    """Write damaged objects again from files, and move damaged trees aside for the next capture to write.

    Args:
        repository: seen from the worktree that was captured.
        checkpoint: was recorded just now.

    Returns:
        A sentence for each object that is or will be written, and an error that names one whose content is nowhere.

    Raises:
        GitError: an object cannot be written.
    """
    messages = []
    error: CkptError | None = None
    for oid, (paths, is_committed) in sorted(_damaged(repository, objects, checkpoint).items()):
        source = next((path for path in paths if _write_file(repository, objects, oid, path)), None)
        if source is not None:
            messages.append(f"the object {oid} was missing or damaged, and was written again from {quoted(source)}")
        elif not paths and not is_committed and damage.move_aside(repository, oid):
            messages.append(f"the object {oid} was damaged, and is written again; its file is in {repository.private_dir}/damaged")
        else:
            error = _nowhere(oid, paths)
    return messages, error


def make_way(repository: Repository, objects: Objects, oid: str) -> bool:
    """Move a damaged object aside that git met, so that a capture writes it; not one of HEAD, which no capture writes."""
    return oid not in _listed(objects, manifest.base_tree(repository, "HEAD"), repository.object_format, set()) and damage.move_aside(
        repository, oid
    )


def _damaged(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> dict[str, tuple[list[bytes], bool]]:
    """Return the objects that cannot be read of those that a snapshot adds to its commit, and of the trees of both.

    Each has its paths in the worktree, none for a tree, and whether the commit has it.
    """
    if checkpoint.tree is None:
        return {}
    broken: set[str] = set()
    own = _listed(objects, checkpoint.tree, repository.object_format, broken)
    committed = _listed(objects, manifest.base_tree(repository, checkpoint.git_sha), repository.object_format, broken)
    suspects = sorted(broken.union(own.keys() - committed.keys()))
    return {oid: (own.get(oid, []), oid in committed) for oid in damage.unreadable(repository, suspects)}


def _listed(objects: Objects, root: str, object_format: str, broken: set[str]) -> dict[str, list[bytes]]:
    """Return the objects of a tree, each blob with its paths; add the trees that cannot be read to `broken`."""
    listed: dict[str, list[bytes]] = {}
    level: dict[str, bytes] = {root: b""}
    while level:
        below: dict[str, bytes] = {}
        for (oid, path), entry in zip(level.items(), objects.read(list(level), None), strict=True):
            listed[oid] = []
            try:
                entries = decode_tree(entry[1], object_format) if entry is not None and entry[0] == "tree" else None
            except MalformedTree:
                entries = None
            if entries is None:
                broken.add(oid)
            for name, (mode, child) in (entries or {}).items():
                inner = b"/".join([path, name]) if path else name
                if mode == DIRECTORY:
                    below.setdefault(child, inner)
                elif mode != GITLINK:
                    listed.setdefault(child, []).append(_SNAPSHOT.sub(b"", inner))
        level = {oid: path for oid, path in below.items() if oid not in listed}
    return listed


def _write_file(repository: Repository, objects: Objects, oid: str, path: bytes) -> bool:
    """Write the blob of a file, as it is or as git converts it, if that is the object which is wanted."""
    whole = os.path.join(os.fsencode(repository.worktree or ""), path)
    try:
        data = os.readlink(whole) if os.path.islink(whole) else _read(whole)
    except OSError:
        return False
    if object_id("blob", data, repository.object_format) == oid:
        damage.move_aside(repository, oid)
        objects.write([("blob", data)])  # also beside a damaged pack, where git would write nothing
        return True
    words = ("-c", "core.safecrlf=false", "hash-object", "--stdin", f"--path={os.fsdecode(path)}")
    if repository.git.run(*words, data=data, ok=(0, 1, 128)).out.decode("ascii").strip() != oid:
        return False
    damage.move_aside(repository, oid)
    repository.git.run(*words, "-w", data=data)
    fsync.flush(fsync.object_paths(repository.common_dir, [oid]))
    return True


def _read(path: bytes) -> bytes:
    if not os.path.isfile(path):
        raise OSError
    with open(path, "rb") as file:
        return file.read()


def _nowhere(oid: str, paths: list[bytes]) -> WorktreeError:
    where = ", ".join(quoted(path) for path in sorted(set(paths))[:3])
    return WorktreeError(
        f"the object {oid}{f' of {where}' if where else ''} is missing or damaged, and no file has its content",
        hint="if it was staged, stage it again: git add; else fetch it from a clone, see how: git ckpt verify --contents",
    )
