"""Replace files as a whole: readers and a power cut see old or new content only."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from errno import EXDEV

Opener = Callable[[str, int], int]

_DIGITS = 4
_NAME = 200  # bytes of the file's name used in that of its scratch file; names have at most 255
# Seconds after which a scratch file counts as left by a kill; a process only stopped then fails.
_STALE_AFTER = 600.0


def write(path: str, data: bytes, *, scratch: str = "") -> None:
    """Replace and flush a file that other programs read; keep its permissions.

    A link is replaced itself. `scratch` is the prefix of the scratch file, unless on another
    mount; the next `write` removes one that a kill leaves.
    """
    directory, name = os.path.split(os.path.abspath(path))
    default_scratch = os.path.join(directory, f".{os.fsdecode(os.fsencode(name)[:_NAME])}")
    opener = _opener_like(path)
    if not scratch or os.stat(os.path.dirname(scratch)).st_dev != os.stat(directory).st_dev:
        scratch = default_scratch
    for prefix in (scratch, default_scratch):
        _delete_stale(prefix)
        try:
            _replace(path, f"{prefix}.{_token()}", data, opener, flushed=True)
            break
        except OSError as error:
            # Rename fails between two mounts of one file system, as in containers.
            if error.errno != EXDEV or prefix == default_scratch:
                raise
    try:
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a directory that may be written but not read cannot be flushed
    try:
        os.fsync(above)
    finally:
        os.close(above)


def write_own(
    path: str, data: bytes, *, flushed: bool, opener: Opener | None = None, scratch: str = ""
) -> None:
    """Replace a file of gitckpt's own; derived files need not be flushed."""
    if scratch:
        _delete_stale(scratch)
    _replace(path, f"{scratch or path}.{_token()}", data, opener, flushed=flushed)


def _opener_like(path: str) -> Opener | None:
    # None without a regular file there: the umask decides.
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None

    def opened(scratch: str, flags: int) -> int:
        fd = os.open(scratch, flags, 0o600)
        os.fchmod(fd, status.st_mode & 0o777)
        return fd

    return opened


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


def _delete_stale(scratch: str) -> None:
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


def _token() -> str:
    return f"{os.getpid()}.{os.urandom(_DIGITS).hex()}"
