"""Files that are written whole or not at all: meanwhile, and after a power cut, there is the old one or the new one."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def write(path: str, data: bytes) -> None:
    """Writes a file that other programs read in the place of whatever is there, for good.

    Args:
        path: of the file; a link there is replaced itself.
        data: what it shall hold.

    Raises:
        OSError: it cannot be written; what was there is there.
    """
    directory, name = os.path.split(os.path.abspath(path))
    _put(path, os.path.join(directory, f".{name[:200]}.{_token()}"), data, flushed=True)
    above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def write_own(path: str, data: bytes, *, flushed: bool, opener: Callable[[str, int], int] | None = None) -> None:
    """Writes a file of ours in the place of whatever is there.

    A kill leaves a scratch file beside it, `<name>.<pid>.<digits>`, by which maintenance knows it.

    Args:
        path: of the file.
        data: what it shall hold.
        flushed: whether that is on the disk before it gets its name; derived files need not be.
        opener: as for `open`.

    Raises:
        OSError: as `write`.
    """
    _put(path, f"{path}.{_token()}", data, flushed=flushed, opener=opener)


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


def _token() -> str:
    return f"{os.getpid()}.{os.urandom(4).hex()}"
