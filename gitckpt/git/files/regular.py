"""Read regular files, without blocking on pipes, and replace files atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable


def read_tail(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
        return file.read(size)


def read_content(path: str | bytes, max_size: int | None = None, *, follow: bool = True) -> bytes:
    """Return the content of a file; raise OSError if it is not regular or too large."""
    _require_regular(os.stat(path, follow_symlinks=follow), path)
    # It may be a pipe by now.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    return _read_regular_fd(os.open(path, flags), path, max_size)


def read_content_below(top: str, path: str, max_size: int | None = None) -> bytes:
    """Return the content of a file in `top`; raise OSError if a link leads out of it."""
    root = os.path.realpath(top)
    real_path = os.path.realpath(os.path.join(top, path))
    if not real_path.startswith(f"{root}/"):
        raise OSError(errno.EACCES, f"outside of {root}", path)
    *parents, name = os.path.relpath(real_path, root).split(os.sep)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened_fds = [os.open(root, flags | os.O_DIRECTORY)]
    try:  # each part may have become a link meanwhile
        for part in parents:
            opened_fds.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened_fds[-1]))
        status = os.stat(name, dir_fd=opened_fds[-1], follow_symlinks=False)
        _require_regular(status, path)
        opened_fds.append(os.open(name, flags | os.O_NONBLOCK, dir_fd=opened_fds[-1]))
        return _read_regular_fd(opened_fds.pop(), path, max_size)
    finally:
        for fd in opened_fds:
            os.close(fd)


def _read_regular_fd(fd: int, path: str | bytes, max_size: int | None) -> bytes:
    with open(fd, "rb") as file:
        _require_regular(os.fstat(fd), path)
        if max_size is None:
            return file.read()
        data = file.read(max_size + 1)
    if len(data) > max_size:
        raise OSError(errno.EFBIG, f"larger than {max_size:,} bytes", path)
    return data


def _require_regular(status: os.stat_result, path: str | bytes) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


# Replacing files: readers and a power cut see old or new content only

Opener = Callable[[str, int], int]
_DIGITS = 4
_NAME = 200  # bytes of the file's name used in that of its scratch file; names have at most 255
# Seconds after which a scratch file counts as left by a kill; a process only stopped then fails.
_STALE_AFTER = 600.0


def write(path: str, data: bytes, *, scratch: str = "") -> None:
    """Replace and flush a file that other programs read; keep its permissions.

    A symbolic link is replaced, not followed. `scratch` is the path prefix of the temporary file,
    unless it is on another mount. The next `write` removes the temporary file of a killed process.
    """
    directory, name = os.path.split(os.path.abspath(path))
    default_scratch = os.path.join(directory, f".{os.fsdecode(os.fsencode(name)[:_NAME])}")
    opener = _make_opener(path)
    if not scratch or os.stat(os.path.dirname(scratch)).st_dev != os.stat(directory).st_dev:
        scratch = default_scratch
    for prefix in (scratch, default_scratch):
        _delete_stale_scratch(prefix)
        try:
            _replace(path, f"{prefix}.{_make_scratch_token()}", data, opener, flushed=True)
            break
        except OSError as error:
            # Rename fails between two mounts of one file system, as in containers.
            if error.errno != errno.EXDEV or prefix == default_scratch:
                raise
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a directory that may be written but not read cannot be flushed
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def write_private_file(
    path: str, data: bytes, *, flushed: bool, opener: Opener | None = None, scratch: str = ""
) -> None:
    if scratch:
        _delete_stale_scratch(scratch)
    _replace(path, f"{scratch or path}.{_make_scratch_token()}", data, opener, flushed=flushed)


def _make_opener(path: str) -> Opener | None:
    # None without a regular file there: the umask decides.
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None

    def open_scratch(scratch: str, flags: int) -> int:
        fd = os.open(scratch, flags, 0o600)
        os.fchmod(fd, status.st_mode & 0o777)
        return fd

    return open_scratch


def _replace(path: str, scratch: str, data: bytes, opener: Opener | None, *, flushed: bool) -> None:
    try:
        with open(scratch, "xb", opener=opener) as file:
            file.write(data)
            if flushed:
                file.flush()
                os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def _delete_stale_scratch(scratch: str) -> None:
    # Removes scratch files that killed processes left.
    directory, name = os.path.split(scratch)
    with contextlib.suppress(OSError):
        for entry in os.listdir(directory):
            pid, _, digits = entry.removeprefix(f"{name}.").partition(".")
            is_token = len(digits) == 2 * _DIGITS and not digits.strip("0123456789abcdef")
            if entry.startswith(f"{name}.") and pid.isdecimal() and is_token:
                path = os.path.join(directory, entry)
                if abs(time.time() - os.lstat(path).st_mtime) > _STALE_AFTER:
                    os.unlink(path)


def _make_scratch_token() -> str:
    return f"{os.getpid()}.{os.urandom(_DIGITS).hex()}"
