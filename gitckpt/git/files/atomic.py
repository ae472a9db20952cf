"""Files that are written whole or not at all: meanwhile, and after a power cut, there is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from errno import EXDEV

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DIGITS = 4
_NAME = 200
"""So many bytes of the name of a file are in that of its scratch file, as a name has 255 at most."""

_LEFT = 600.0
"""A scratch file that was not written to for so long, in seconds, was left by a kill. Whoever was only stopped gets an error."""


def write(path: str, data: bytes, *, scratch: str = "") -> None:
    """Writes a file that other programs read in the place of whatever is there, for good. Who may read that file may read this one.

    A kill leaves a scratch file beside it, `.<name>.<pid>.<digits>`, which the next one removes who writes that file.

    Args:
        path: of the file; a link there is replaced itself.
        data: what it shall hold.
        scratch: as for `write_own`; beside the file all the same where that is another file system, or mount.

    Raises:
        OSError: it cannot be written; what was there is there.
    """
    directory, name = os.path.split(os.path.abspath(path))
    beside, opener = os.path.join(directory, f".{os.fsdecode(os.fsencode(name)[:_NAME])}"), _opener_like(path)
    if not scratch or os.stat(os.path.dirname(scratch)).st_dev != os.stat(directory).st_dev:
        scratch = beside
    for place in (scratch, beside):
        _sweep(place)
        try:
            _put(path, f"{place}.{_token()}", data, flushed=True, opener=opener)
            break
        except OSError as error:
            # A file system that is mounted twice, as containers get directories, is the same device, and nothing moves between its mounts.
            if error.errno != EXDEV or place == beside:
                raise
    try:
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # who may write in it and not read it can flush no name in it
    try:
        os.fsync(above)
    finally:
        os.close(above)


def write_own(path: str, data: bytes, *, flushed: bool, opener: Callable[[str, int], int] | None = None, scratch: str = "") -> None:
    """Writes a file of ours in the place of whatever is there.

    A kill leaves a scratch file beside it, `<name>.<pid>.<digits>`, by which maintenance knows it.

    Args:
        path: of the file.
        data: what it shall hold.
        flushed: whether that is on the disk before it gets its name; derived files need not be.
        opener: as for `open`.
        scratch: what the path of the scratch file begins with, on the same file system, where it may not lie beside the file; the next
            one who writes with it removes what a kill has left.

    Raises:
        OSError: as `write`.
    """
    if scratch:
        _sweep(scratch)
    _put(path, f"{scratch or path}.{_token()}", data, flushed=flushed, opener=opener)


def _opener_like(path: str) -> Callable[[str, int], int] | None:
    """Returns what opens a file with the rights of the one that is there; None where there is none, and the umask decides."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None

    def opened(scratch: str, flags: int) -> int:
        fd = os.open(scratch, flags, 0o600)
        os.fchmod(fd, found.st_mode & 0o777)
        return fd

    return opened


def _put(path: str, scratch: str, data: bytes, *, flushed: bool, opener: Callable[[str, int], int] | None = None) -> None:
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


def _sweep(scratch: str) -> None:
    """Removes the scratch files that killed processes have left."""
    directory, name = os.path.split(scratch)
    with contextlib.suppress(OSError):
        for each in os.listdir(directory):
            pid, _, digits = each.removeprefix(f"{name}.").partition(".")
            if not (
                each.startswith(f"{name}.") and pid.isdecimal() and len(digits) == 2 * _DIGITS and not digits.strip("0123456789abcdef")
            ):
                continue
            path = os.path.join(directory, each)
            if abs(time.time() - os.lstat(path).st_mtime) > _LEFT:
                os.unlink(path)


def _token() -> str:
    return f"{os.getpid()}.{os.urandom(_DIGITS).hex()}"
