"""Hold exclusive locks on files (flock(2)), at most until the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from _thread import get_ident

from gitckpt.git.files import private_dirs

_PAUSE = 0.002  # seconds
# Path → thread that holds the lock: flock on a second descriptor would report another owner.
_threads: dict[str, int] = {}


class FileLock:
    """An exclusive lock (flock(2)) on the file `path`.

    If `is_inherited` is set, child processes keep the lock. `is_taken` becomes true if `acquire`
    fails because another process or thread held the lock for `timeout` seconds.
    """

    def __init__(self, path: str, timeout: float, *, is_inherited: bool = False) -> None:
        self._path = path
        self._timeout = timeout
        self._is_inherited = is_inherited
        self._fd = -1
        self.is_taken = False

    def acquire(self) -> bool:
        """Wait for the lock, at most `timeout` seconds; return whether it was acquired."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                fd = private_dirs.open_private_file(self._path, os.O_RDWR | os.O_CREAT)
            except OSError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:  # else it was deleted: a lock on it is useless
                    _threads[self._path], self._fd = get_ident(), fd
                    if self._is_inherited:
                        os.set_inheritable(fd, True)
                    return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self.is_taken = True
                    return False
                time.sleep(_PAUSE)
            except OSError:
                return False
            except BaseException:  # after an interrupt, the lock would never be released
                if self._fd == fd:
                    _threads.pop(self._path, None)
                    self._fd = -1
                raise
            finally:
                if self._fd != fd:
                    os.close(fd)

    def release(self, *, delete: bool = False) -> None:
        """Release the lock if it is held; `delete` also deletes the lock file."""
        if self._fd >= 0:
            if delete and os.fstat(self._fd).st_nlink:
                try:
                    os.unlink(self._path)  # while locked: no other process can hold it yet
                except OSError:
                    pass  # maintenance deletes it
            # Before unlocking: another thread may lock a new file of this name.
            _threads.pop(self._path, None)
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # close alone would leave it to a forked process
            os.close(self._fd)
            self._fd = -1

    def close_in_child(self) -> None:
        """Close the lock file in a forked child, so that only the parent holds the lock."""
        if self._fd >= 0:
            _threads.pop(self._path, None)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: str) -> bool | None:
    """Return whether a process holds the lock on a file; None if that is unknown."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: concurrent checks do not collide
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def is_held_by_this_process(path: str) -> bool:
    return _threads.get(path) == get_ident()
