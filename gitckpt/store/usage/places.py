"""Files and directories measured as they lie on the disk; nothing is followed out of them, and nothing is counted twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection


class Measure:
    """Counts files, each once, however many names it has and however many directories are measured.

    Args:
        apart: absolute paths that are counted elsewhere, with all beneath them.
    """

    def __init__(self, apart: Collection[str] = ()) -> None:
        self._apart = frozenset(apart)
        self._seen: set[tuple[int, int]] = set()

    def of(self, path: str) -> tuple[int, int]:
        """Returns how many files are at or below a path, and what they take on the disk, in bytes, with the directories they are in.

        What vanishes meanwhile, or may not be looked into, counts for nothing. A link is counted, and not followed.

        Args:
            path: absolute; it counts though it is set apart.
        """
        files, size = self._one(path)
        waiting = [path] if os.path.isdir(path) and not os.path.islink(path) else []
        while waiting:
            try:
                with os.scandir(waiting.pop()) as listing:
                    entries = list(listing)
            except OSError:
                continue
            for entry in entries:
                if entry.path in self._apart:
                    continue
                more, bytes_ = self._one(entry.path)
                files, size = files + more, size + bytes_
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        return files, size

    def _one(self, path: str) -> tuple[int, int]:
        try:
            status = os.lstat(path)
        except OSError:
            return 0, 0
        is_directory = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_directory:
            key = status.st_dev, status.st_ino
            if key in self._seen:
                return 0, 0
            self._seen.add(key)
        return int(not is_directory), status.st_blocks * 512
