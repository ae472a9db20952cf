"""What a file system does at once that would take us thousands of calls, or our memory: it flushes all, it copies a file, it lists one."""

from __future__ import annotations

import os
import stat
import sys

from gitckpt.git.process import run
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def flush_all(paths: Iterable[str], least: int) -> list[str]:
    """Flushes each file system that many paths are on as a whole: Python cannot, and the program `sync` can on Linux.

    Args:
        paths: of files and directories.
        least: how many are many.

    Returns:
        Those that are still to be flushed one by one.
    """
    waiting = list(paths)
    if sys.platform != "linux":
        return waiting
    lots: dict[int, list[tuple[str, bool]]] = {}
    for path in waiting:
        try:
            found = os.stat(path)
        except OSError:  # it is gone, or cannot be looked at: who flushes it says which
            continue
        lots.setdefault(found.st_dev, []).append((path, stat.S_ISDIR(found.st_mode)))
    done: set[str] = set()
    for lot in lots.values():
        if len(lot) >= least:
            path, is_directory = lot[0]
            try:
                code = run(["sync", "-f", path if is_directory else os.path.dirname(path)]).code  # where a gc takes the file itself
            except CkptError:
                break
            done.update(each for each, _ in lot if code == 0)
    return [path for path in waiting if path not in done]


def copied_within(source: int, target: int, size: int) -> bool:
    """Lets the system copy a file, which may share its blocks: in a new process it takes 4 ms less than 4 MB do by way of our memory.

    Returns:
        False: it cannot; nothing was copied.
    """
    if not hasattr(os, "copy_file_range"):
        return False
    done = 0
    while done < size:
        try:
            copied = os.copy_file_range(source, target, size - done, done, done)
        except OSError:  # not on this file system; what is wrong with the disk is met again
            copied = 0
        if copied == 0:
            os.truncate(target, 0)
            return False
        done += copied
    return True


def names_in(directory: str) -> list[str]:
    """Returns the names in a directory, sorted; none where there is no directory, also if it goes this moment.

    Raises:
        OSError: it may not be read.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):  # also where another process makes it after this call
        return []
    except OSError:
        if os.path.isdir(directory):
            raise
        return []
