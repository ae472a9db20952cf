"""Advisory locks between processes of this machine (flock), released by the kernel when their holder dies.

They only keep writers from getting into each other's way: what protects the data is the expected value in each ref update.
"""

from __future__ import annotations

import fcntl
import os
import time
from _thread import get_ident

from gitckpt.git.files import premises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_PAUSE = 0.002

_held: dict[str, int] = {}
"""Path → the thread of this process that holds the lock. Of a second descriptor, the kernel would say that somebody else does."""


class Lock:
    """A lock on a file, which is created where it was missing.

    Args:
        path: the file.
        timeout: how long to wait for it, in seconds.
        is_inherited: whether processes that are started while it is held hold it, too: where ours is killed, until they have ended.

    Attributes:
        is_taken: whether it was not got because somebody else had it.
    """

    def __init__(self, path: str, timeout: float, *, is_inherited: bool = False) -> None:
        self._path = path
        self._timeout = timeout
        self._is_inherited = is_inherited
        self._fd = -1
        self.is_taken = False

    def acquire(self) -> bool:
        """Returns whether the lock was got in time. A file system without locks counts as not got."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                fd = premises.create(self._path, os.O_RDWR | os.O_CREAT)
            except OSError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:
                    _held[self._path], self._fd = get_ident(), fd
                    if self._is_inherited:
                        os.set_inheritable(fd, True)
                    return True
            except BlockingIOError:
                os.close(fd)
                if time.monotonic() >= deadline:
                    self.is_taken = True
                    return False
                time.sleep(_PAUSE)
                continue
            except OSError:
                os.close(fd)
                return False
            except BaseException:  # an interrupt: who comes after us in this process would wait for a lock that nobody gives back
                if self._fd == fd:
                    _held.pop(self._path, None)
                    self._fd = -1
                os.close(fd)
                raise
            os.close(fd)  # somebody deleted the file meanwhile; a lock on it excludes nobody

    def release(self, *, delete: bool = False) -> None:
        """Gives the lock back; does nothing where it is not held.

        Args:
            delete: whether the file goes, unless somebody else has deleted it: another one may be held in its place by now.
        """
        if self._fd >= 0:
            if delete and os.fstat(self._fd).st_nlink:
                try:
                    os.unlink(self._path)  # first: nobody else can have a lock on it yet
                except OSError:
                    pass  # maintenance does it
            _held.pop(self._path, None)  # somebody may have deleted the file, and another lock of ours be on a new one
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing alone would leave it to a process forked meanwhile
            os.close(self._fd)
            self._fd = -1

    def leave_to_parent(self) -> None:
        """Close the file in a forked child: the lock stays with the process that took it, and ends with that."""
        if self._fd >= 0:
            _held.pop(self._path, None)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def is_locked(path: str) -> bool | None:
    """Tell whether somebody holds the lock on a file; None where the file system has no locks, or the file cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who look at once are not in each other's way
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def is_ours(path: str) -> bool:
    """Tells whether this very thread holds the lock on a file."""
    return _held.get(path) == get_ident()
