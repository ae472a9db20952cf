"""Files that are written into a worktree byte for byte, past git's conversions, and compared so."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import WorktreeError

_AT_ONCE = 100
_BELOW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def bring_back(repository: Repository, raw: Mapping[bytes, str]) -> None:
    """Gives files their bytes, where there are files, and theirs are others.

    Args:
        repository: seen from the worktree.
        raw: oids by path.

    Raises:
        WorktreeError: an object is missing, or a file cannot be written.
    """
    wanted = sorted(differing(repository, raw))
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        for path, found in zip(some, repository.cat_file.contents([raw[path] for path in some]), strict=True):
            if found is None or found[1] != "blob":
                hint = "see what is wrong: git ckpt verify"
                raise WorktreeError(f"{raw[path]} is missing, the content of {os.fsdecode(path)}", hint=hint)
            put(repository, path, found[2])


def refresh(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Lets an index take note of files that were written past git, which calls a file changed whose size is not the one it knows.

    Args:
        index: has entries for them; flagged ones stay as they are.
        paths: relative to the top.
    """
    if not paths:
        return
    empty = object_id("blob", b"", index.repository.object_format)  # that is what entries added in intent only have
    lines = []
    for path, mode, oid, stage, tag in index.entries():
        if path in paths and (tag, stage) == (b"H", 0) and oid != empty:
            lines.append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
    index.put(lines)
    index.refresh()


def differing(repository: Repository, raw: Mapping[bytes, str]) -> list[bytes]:
    """Returns the paths at which there is a file whose bytes are others.

    Args:
        repository: seen from the worktree.
        raw: oids by path.
    """
    found = zip(raw, bytes_of(repository, raw), strict=True)
    return [path for path, data in found if data is not None and object_id("blob", data, repository.object_format) != raw[path]]


def bytes_of(repository: Repository, paths: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yields the content of files as it is on the disk; None where there is no file that can be read, and not by way of a link.

    Args:
        repository: seen from the worktree.
        paths: relative to its top.
    """
    for path in paths:
        data = None
        with contextlib.suppress(OSError), directory_of(repository, path) as (fd, name):
            if stat.S_ISREG(os.lstat(name, dir_fd=fd).st_mode):
                with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file:
                    data = file.read()
        yield data


def put(repository: Repository, path: bytes, data: bytes) -> bool:
    """Writes a file in the place of one, as git does: as a new one, so that hard links keep what they have. Its mode stays.

    Args:
        repository: seen from the worktree.
        path: relative to its top.
        data: what it shall hold.

    Returns:
        Whether there was a file to be replaced; links are none, and none is followed.

    Raises:
        WorktreeError: it cannot be written.
    """
    try:
        with directory_of(repository, path) as (fd, name):
            status = os.lstat(name, dir_fd=fd)
            if not stat.S_ISREG(status.st_mode):
                return False
            os.unlink(name, dir_fd=fd)
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
            with open(made, "wb") as file:
                os.fchmod(made, stat.S_IMODE(status.st_mode))
                file.write(data)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise WorktreeError(f"cannot write {os.fsdecode(path)}: {error.strerror}") from None
    return True


@contextlib.contextmanager
def directory_of(repository: Repository, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields a descriptor of the directory that a path is in, and its name there; no link is followed on the way.

    Args:
        repository: seen from the worktree.
        path: relative to its top.

    Raises:
        OSError: there is no such directory, or a link on the way; `FileNotFoundError` as well where the path leads out of the worktree.
    """
    *above, name = path.split(b"/")
    if {b"", b".", b".."} & {*above, name}:
        raise FileNotFoundError(path)
    fd = os.open(repository.worktree or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            inner = os.open(part, _BELOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd, name
    finally:
        os.close(fd)
