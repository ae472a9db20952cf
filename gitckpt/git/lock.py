"""Advisory locks between processes of this machine (flock), released by the kernel when their holder dies.

They only keep writers from getting into each other's way: what protects the data is the expected value in each ref update.
"""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_PAUSE = 0.002


class Lock:
    """A lock on a file, which is created where it was missing.

    Args:
        path: the file.
        timeout: how long to wait for it, in seconds.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._fd = -1

    def acquire(self) -> bool:
        """Returns whether the lock was got in time. A file system without locks counts as not got."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_PAUSE)
                continue
            except OSError:
                os.close(fd)
                return False
            if os.fstat(fd).st_nlink:
                self._fd = fd
                return True
            os.close(fd)  # somebody deleted the file meanwhile; a lock on it excludes nobody

    def release(self) -> None:
        """Gives the lock back; does nothing where it is not held."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing alone would leave it to a process forked meanwhile
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
