"""Names what looks like a secret in the files of a snapshot, unless somebody has settled it.

What is stored is looked at, not the files: those need not be opened once more, and what a filter encrypts is no secret any more.
"""

from __future__ import annotations

import os
import stat

from gitckpt.model.checkpoint import Suspect
from gitckpt.model.names import quoted
from gitckpt.store.secrets import detector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

MOST = 1000
"""So many are named: a dump may have any number of them."""


def look(index: PrivateIndex, files: str, paths: Sequence[bytes], stored: Mapping[bytes, bytes] | None = None) -> tuple[Suspect, ...]:
    """Returns what looks like a secret in files that were captured, in the order of paths and lines.

    What is larger than `detector.LARGEST`, is no regular file, or is binary, holds nothing that would be found.

    Args:
        index: the private index, which lists them as they were captured.
        files: the tree of all files.
        paths: those that are looked at, relative to the top of the worktree.
        stored: what is stored for each of those that is a regular file; None where that is to be read.

    Raises:
        GitError: git cannot list them; DeadlinePassed: it took too long.
    """
    settled = None
    found = []
    for path, content in _read(index, files, paths) if stored is None else ((path, stored.get(path, b"")) for path in paths):
        if len(content) > detector.LARGEST:
            continue
        for hit, line, secret in detector.lines(content):
            if settled is None:
                from gitckpt.store.secrets.settled import Settled

                settled = Settled(index.repository)
            digest = settled.digest(secret)
            if not settled.knows(quoted(path), digest):
                found.append(Suspect(quoted(path), hit.rule, line, digest))
    return tuple(sorted(found, key=lambda suspect: (suspect.path, suspect.line))[:MOST])


def unsettled(repository: Repository, path: bytes, places: Sequence[tuple[str, int, bytes]]) -> list[Suspect]:
    """Return the places in one file that nobody has settled.

    Args:
        repository: in which they may be settled.
        path: of the file, as the document names it.
        places: rule, line and bytes of each.
    """
    from gitckpt.store.secrets.settled import Settled

    settled = Settled(repository)
    name = quoted(path)
    found = [Suspect(name, rule, line, settled.digest(secret)) for rule, line, secret in places[:MOST]]
    return [suspect for suspect in found if not settled.knows(name, suspect.digest)]


def _read(index: PrivateIndex, files: str, paths: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields what is stored for each of some paths that is not too large."""
    top = os.fsencode(index.repository.worktree or "")
    small = [path for path in paths if _is_small(os.path.join(top, path))]
    return zip(small, _contents(index, files, small), strict=True)


def _is_small(path: bytes) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and 0 < status.st_size <= detector.LARGEST


def _contents(index: PrivateIndex, files: str, paths: Sequence[bytes]) -> Iterator[bytes]:
    """Yields what is stored for each of the paths; nothing where that is larger than the file."""
    odd = {path for path in paths if b"\n" in path}  # a question is a line
    oids = {path: oid for path, _, oid, _, _ in index.entries() if path in odd} if odd else {}
    names = [oids.get(path) or f"{files}:{os.fsdecode(path)}" for path in paths]
    for stored in index.repository.cat_file.contents(names, detector.LARGEST) if names else ():
        yield stored[2] if stored is not None else b""
