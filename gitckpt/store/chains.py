"""Which documents of runs were written here: a run goes on by itself only from one of those. Imported by the hook.

Refs can be fetched, with whatever they lead to; the private directory cannot. In it, `chains/<run>` has a line for each document of a run
that was written here, or that somebody here has adopted: its oid. A document extends the chain where the one before it is in it. So what
stands on somebody else's is somebody else's, whoever wrote it.

A line is there before the refs move, and flushed with the objects: a kill leaves a line too many, never one too few. Where a file is lost,
its run has to be adopted; nothing else is lost with it.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files import premises
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gitckpt.git.repository import Repository

DIRECTORY = "chains"

_TAIL = 4096
"""In bytes: what is asked for is nearly always the newest line, and a chain may have 100,000."""


def extend(repository: Repository, run: str, head: str, oids: Sequence[str], *, drives: bool = False) -> list[str]:
    """Notes documents that are about to follow the head of a run, where that was written here.

    What cannot be noted is recorded all the same: that somebody has to adopt a run is better than no checkpoint. The log says so.

    Args:
        head: the oid of the document that its head points to; "" where it starts.
        oids: of the documents, oldest first.
        drives: whether it is the driver of the run that writes, who goes on from nothing that others wrote.

    Returns:
        Paths to flush before the refs move; none if nothing was noted.

    Raises:
        CkptError: the head was not written here, and the driver is about to extend it.
    """
    if head and not knows(repository, run, head):
        if drives:
            raise CkptError(
                f"the head of run {run} is not what was written here: somebody has moved it, by a fetch perhaps",
                hint=f"see what came: git ckpt resume {run}",
            )
        return []
    return note(repository, run, oids)


def note(repository: Repository, run: str, oids: Sequence[str]) -> list[str]:
    """Notes documents as written or adopted here; arguments and result are those of `extend`."""
    path = _path(repository, run)
    place = os.path.dirname(path)
    try:
        if not os.path.isdir(place):
            repository.make_private_dir()
        premises.private(place, repository.common_dir, make=True)
        with open(path, "ab", buffering=0, opener=premises.create) as file:
            is_new = not os.fstat(file.fileno()).st_size
            lines = b"\n%s\n" % "\n".join(oids).encode("ascii") if oids else b""  # a line that a full disk has cut off is none of these
            if lines and file.write(lines) < len(lines):
                raise OSError(0, "there is no room for a whole line")
    except WorktreeError as error:
        _log(repository, error.message)
        return []
    except OSError as error:
        _log(repository, f"{path} cannot be written: {error.strerror}; to go on with the run: git ckpt resume {run} --trust")
        return []
    return [path, *([place, repository.private_dir, repository.common_dir] if is_new else [])]


def knows(repository: Repository, run: str, oid: str) -> bool:
    """Tells whether a document of a run was written or adopted here.

    Args:
        oid: of the document.
    """
    if not ids.is_run_id(run):
        return False
    try:
        with open(_path(repository, run), "rb", opener=premises.create) as file:
            size, line = file.seek(0, os.SEEK_END), oid.encode("ascii", "replace")
            for start in dict.fromkeys((max(size - _TAIL, 0), 0)):
                file.seek(start)
                if line in file.read().split():
                    return True
    except OSError:
        return False
    return False


def noted_after(repository: Repository, run: str, oid: str) -> list[bytes]:
    """Returns the lines that were noted lately after a document, newest first: what was about to follow it, and may have no refs.

    Args:
        oid: of the document.
    """
    try:
        with open(_path(repository, run), "rb", buffering=0, opener=premises.create) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = file.read().split()
    except OSError:
        return []
    line = oid.encode("ascii", "replace")
    if line not in lines:
        return []
    return lines[: lines.index(line) : -1]


def known(repository: Repository, run: str) -> frozenset[str]:
    """Returns the oids of all documents of a run that were written or adopted here."""
    if not ids.is_run_id(run):
        return frozenset()
    try:
        with open(_path(repository, run), "rb", opener=premises.create) as file:
            return frozenset(file.read().decode("ascii", "replace").split())
    except OSError:
        return frozenset()


def forget(repository: Repository, run: str) -> None:
    """Forgets a run that is gone."""
    try:
        os.unlink(_path(repository, run))
    except OSError:
        return  # maintenance tries again


def forget_others(repository: Repository, there: Callable[[], Collection[str]]) -> None:
    """Forgets runs that are gone, as a kill after their removal leaves them; a run that is about to begin has a young file.

    Args:
        there: returns the runs there are.
    """
    place = os.path.join(repository.private_dir, DIRECTORY)
    try:
        old = [entry.name for entry in os.scandir(place) if time.time() - entry.stat(follow_symlinks=False).st_mtime > times.GRACE]
    except OSError:
        return
    for run in set(old).difference(there() if old else ()):
        forget(repository, run)


def _path(repository: Repository, run: str) -> str:
    return f"{repository.private_dir}/{DIRECTORY}/{run}"


def _log(repository: Repository, sentence: str) -> None:
    try:
        log.append(repository, sentence)
    except CkptError:
        return  # the disk is full, perhaps: the record itself will say so
