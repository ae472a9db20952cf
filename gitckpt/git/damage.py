"""Find objects that git cannot read, and move their files aside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from gitckpt.git import graph
from gitckpt.git.command import STREAMED
from gitckpt.git.filesystem import names_in
from gitckpt.git.fsync import object_path
from gitckpt.git.objects.encoding import OVERSIZED, object_hash, object_id
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository

_LARGE = 32 << 20  # bytes; larger contents are streamed
_CHUNK = 1 << 20
_EVERY = 1000
_NAME_LENGTHS = (38, 62)  # of the files of loose objects: SHA-1, SHA-256

Counted = Callable[[int, int], None]  # receives the number of objects read, and the total


def unreadable(
    repository: Repository, oids: Sequence[str], progress: Counted | None = None
) -> set[str]:
    """Return the damaged or missing objects; in a partial clone, not the missing ones."""
    lost = set()
    contents = repository.cat_file.contents(oids, _LARGE)
    for count, (oid, entry) in enumerate(zip(oids, contents, strict=True), 1):
        if entry is not None and entry[1] == OVERSIZED:
            actual = _hash_streamed(repository, oid)
        else:
            actual = object_id(*entry[1:], repository.object_format) if entry is not None else ""
        if actual != oid:
            lost.add(oid)
        if progress is not None and (count % _EVERY == 0 or count == len(oids)):
            progress(count, len(oids))
    if lost and graph.promisor(repository) is not None:
        lost.intersection_update(graph.present(repository))
    return lost


def all_unreadable(repository: Repository, progress: Counted | None = None) -> set[str]:
    lost = unreadable(repository, graph.present(repository), progress)
    # An object that a gc deleted meanwhile is not damaged.
    return unreadable(repository, sorted(lost.intersection(graph.present(repository))))


def empty_files(repository: Repository) -> dict[str, str]:
    """Return the paths, by oid, of empty loose objects, as a power cut leaves them."""
    top = os.path.join(repository.common_dir, "objects")
    paths = {}
    for place in (name for name in names_in(top) if len(name) == 2):
        for name in names_in(f"{top}/{place}"):
            path = f"{top}/{place}/{name}"
            with contextlib.suppress(OSError):  # deleted by a gc
                if len(name) in _NAME_LENGTHS and os.lstat(path).st_size == 0:
                    paths[place + name] = path
    return paths


def move_aside(repository: Repository, oid: str) -> bool:
    """Move a loose object's file to `ckpt/damaged/`, so that git writes it again."""
    path = object_path(repository.common_dir, oid)
    target = os.path.join(repository.make_private_dir(), "damaged", oid)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(path, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise GitError(["prune"], 1, f"{path}: {error.strerror}") from None
    return True


def _hash_streamed(repository: Repository, oid: str) -> str:
    header = repository.cat_file.info(oid)
    if header is None:
        return ""
    _, kind, size = header
    digest = object_hash(repository.object_format, f"{kind} {size}\0".encode("ascii"))
    child = repository.git.start(*STREAMED, "cat-file", kind, oid)
    try:
        while chunk := child.receive(_CHUNK):
            digest.update(chunk)
    finally:
        child.terminate()
        child.close()
    return digest.hexdigest()
