"""Files that other programs read, written whole or not at all."""

from __future__ import annotations

import os


def write(path: str, data: bytes) -> None:
    """Writes a file in the place of whatever is there: meanwhile, and after a power cut, there is the old or the new one.

    Args:
        path: of the file; a link there is replaced itself.
        data: what it shall hold.

    Raises:
        OSError: it cannot be written; what was there is there.
    """
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(directory, f".{name[:200]}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)
