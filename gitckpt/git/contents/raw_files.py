"""Write worktree files byte for byte, without git's conversions, and compare them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from gitckpt.git.contents.dir_modes import open_directory
from gitckpt.git.objects.encoding import object_id, stays_within
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import WorktreeError

_BATCH = 100


def restore_raw(repository: Repository, raw: Mapping[bytes, str]) -> None:
    """Restore the bytes of existing files that differ from their blobs."""
    differing = sorted(differing_paths(repository, raw))
    for start in range(0, len(differing), _BATCH):
        paths = differing[start : start + _BATCH]
        blobs = repository.cat_file.contents([raw[path] for path in paths])
        for path, blob in zip(paths, blobs, strict=True):
            if blob is None or blob[1] != "blob":
                message = f"{raw[path]} is missing, the content of {os.fsdecode(path)}"
                raise WorktreeError(message, hint="see what is wrong: git ckpt verify")
            replace(repository, path, blob[2])


def refresh(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Update index entries of files written without git, except flagged ones."""
    if not paths:
        return
    # The oid of entries added with --intent-to-add.
    empty = object_id("blob", b"", index.repository.object_format)
    index.put(
        b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path)
        for path, mode, oid, stage, tag in index.entries()
        if path in paths and (tag, stage) == (b"H", 0) and oid != empty
    )
    index.refresh()


def differing_paths(repository: Repository, raw: Mapping[bytes, str]) -> list[bytes]:
    """Return the paths of existing files whose bytes differ from their blobs."""
    object_format = repository.object_format
    contents = zip(raw, read_files(repository, raw), strict=True)
    existing = ((path, data) for path, data in contents if data is not None)
    return [path for path, data in existing if object_id("blob", data, object_format) != raw[path]]


def read_files(repository: Repository, paths: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the content of files, without following links; None if one is unreadable."""
    for path in paths:
        data = None
        with contextlib.suppress(OSError), open_parent(repository, path) as (fd, name):
            if stat.S_ISREG(os.lstat(name, dir_fd=fd).st_mode):
                file_fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                with open(file_fd, "rb") as file:
                    data = file.read()
        yield data


def replace(repository: Repository, path: bytes, data: bytes) -> bool:
    """Replace a regular file, keeping its mode; return False if it does not exist."""
    try:
        with open_parent(repository, path) as (fd, name):
            status = os.lstat(name, dir_fd=fd)
            if not stat.S_ISREG(status.st_mode):
                return False
            os.unlink(name, dir_fd=fd)  # as git does: hard links keep the old content
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file_fd = os.open(name, flags, 0o600, dir_fd=fd)
            with open(file_fd, "wb") as file:
                os.fchmod(file_fd, stat.S_IMODE(status.st_mode))
                file.write(data)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise WorktreeError(f"cannot write {os.fsdecode(path)}: {error.strerror}") from None
    return True


@contextlib.contextmanager
def open_parent(repository: Repository, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a descriptor of the directory of a path, and the name; follow no link."""
    *above, name = path.split(b"/")
    if not stays_within(path):
        raise FileNotFoundError(path)
    with open_directory(repository.worktree or ".", above) as fd:
        yield fd, name
