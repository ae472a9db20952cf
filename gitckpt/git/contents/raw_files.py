"""Write worktree files byte for byte, without git's conversions, and compare them."""

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
    """Restore the bytes of existing files that differ from their blobs."""
    wanted = sorted(differing(repository, raw))
    for start in range(0, len(wanted), _AT_ONCE):
        paths = wanted[start : start + _AT_ONCE]
        for path, blob in zip(paths, repository.cat_file.contents([raw[path] for path in paths]), strict=True):
            if blob is None or blob[1] != "blob":
                hint = "see what is wrong: git ckpt verify"
                raise WorktreeError(f"{raw[path]} is missing, the content of {os.fsdecode(path)}", hint=hint)
            put(repository, path, blob[2])


def refresh(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Update index entries of files written without git, except flagged ones.

    git calls a file changed if its size is not the recorded one.
    """
    if not paths:
        return
    empty = object_id("blob", b"", index.repository.object_format)  # the oid of entries added with --intent-to-add
    lines = []
    for path, mode, oid, stage, tag in index.entries():
        if path in paths and (tag, stage) == (b"H", 0) and oid != empty:
            lines.append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
    index.put(lines)
    index.refresh()


def differing(repository: Repository, raw: Mapping[bytes, str]) -> list[bytes]:
    """Return the paths of existing files whose bytes differ from their blobs."""
    contents = zip(raw, bytes_of(repository, raw), strict=True)
    return [path for path, data in contents if data is not None and object_id("blob", data, repository.object_format) != raw[path]]


def bytes_of(repository: Repository, paths: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the content of files, without following links; None if one is unreadable."""
    for path in paths:
        data = None
        with contextlib.suppress(OSError), directory_of(repository, path) as (fd, name):
            if stat.S_ISREG(os.lstat(name, dir_fd=fd).st_mode):
                with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file:
                    data = file.read()
        yield data


def put(repository: Repository, path: bytes, data: bytes) -> bool:
    """Replace a file, keeping its mode; return whether there was a regular file.

    As with git, a new file is made: hard links to the old one keep their content.
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
    """Yield a descriptor of the directory of a path, and the name; follow no link."""
    *above, name = path.split(b"/")
    if {b"", b".", b".."} & {*above, name}:
        raise FileNotFoundError(path)
    fd = os.open(repository.worktree or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            child = os.open(part, _BELOW, dir_fd=fd)
            os.close(fd)
            fd = child
        yield fd, name
    finally:
        os.close(fd)
