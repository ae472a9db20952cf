"""Copy a file within the file system, and list a directory."""

from __future__ import annotations

import os


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
    except (FileNotFoundError, NotADirectoryError):  # also where it comes into being this moment
        return []
    except OSError:
        if os.path.isdir(directory):
            raise
        return []
