"""Read files that a branch may contain, and never block or read without end."""

from __future__ import annotations

import errno
import os
import stat


def tail(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
        return file.read(size)


def content(path: str | bytes, max_size: int | None = None, *, follow: bool = True) -> bytes:
    """Return the content of a regular file; OSError if it is larger, or not regular."""
    _require_regular(os.stat(path, follow_symlinks=follow), path)
    # It may be a pipe by now.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    return _read(os.open(path, flags), path, max_size)


def content_below(top: str, path: str, max_size: int | None = None) -> bytes:
    """Return the content of a file below `top`; links must stay below it."""
    root = os.path.realpath(top)
    real = os.path.realpath(os.path.join(top, path))
    if not real.startswith(f"{root}/"):
        raise OSError(errno.EACCES, f"it lies outside of {root}", path)
    *above, name = os.path.relpath(real, root).split(os.sep)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = [os.open(root, flags | os.O_DIRECTORY)]
    try:  # each part may have become a link meanwhile
        for part in above:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        status = os.stat(name, dir_fd=opened[-1], follow_symlinks=False)
        _require_regular(status, path)
        opened.append(os.open(name, flags | os.O_NONBLOCK, dir_fd=opened[-1]))
        return _read(opened.pop(), path, max_size)
    finally:
        for fd in opened:
            os.close(fd)


def _read(fd: int, path: str | bytes, max_size: int | None) -> bytes:
    with open(fd, "rb") as file:
        _require_regular(os.fstat(fd), path)
        if max_size is None:
            return file.read()
        data = file.read(max_size + 1)
    if len(data) > max_size:
        raise OSError(errno.EFBIG, f"it is larger than {max_size:,} bytes", path)
    return data


def _require_regular(status: os.stat_result, path: str | bytes) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
