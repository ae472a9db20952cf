"""Finds what git passes over without a word: sockets, fifos and devices that are not ignored, and directories that cannot be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from gitckpt.store.private_index import PrivateIndex

_KINDS = ((stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a fifo"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


class Scan:
    """A look into the directories of a worktree. Paths are relative to its top, which is the empty path.

    Args:
        index: of the worktree, through which git is asked what is ignored.

    Attributes:
        found: paths that cannot be captured, each with the reason.
    """

    def __init__(self, index: PrivateIndex) -> None:
        self._index = index
        self._top = os.fsencode(index.repository.worktree or "")
        self._seen: set[bytes] = set()
        self._unknown: set[bytes] = set()
        self._special: list[tuple[bytes, str]] = []
        self.found: list[tuple[bytes, str]] = []

    def look(self, directories: Iterable[bytes]) -> None:
        """Looks into directories that are known not to be ignored."""
        for directory in directories:
            if directory not in self._seen:
                self._seen.add(directory)
                self._list(directory)

    def look_elsewhere(self) -> None:
        """Looks into the directories that came up and were not named, if they are neither ignored nor repositories of their own."""
        while self._unknown:
            there = [path for path in sorted(self._unknown - self._seen) if not os.path.lexists(self._join(path, b".git"))]
            self._unknown.clear()
            ignored = self._ignored([path + b"/" for path in there])
            self.look(path for path in there if path + b"/" not in ignored)
        ignored = self._ignored([path for path, _ in self._special])
        self.found += [(path, reason) for path, reason in self._special if path not in ignored]
        self._special.clear()

    def _list(self, directory: bytes) -> None:
        prefix = directory + b"/" if directory else b""
        try:
            with os.scandir(self._join(directory)) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != b".git":
                            self._unknown.add(prefix + entry.name)
                    else:
                        self._special.append((prefix + entry.name, _kind(entry)))
        except PermissionError:
            self.found.append((prefix, "cannot be read: permission denied"))
        except (FileNotFoundError, NotADirectoryError):
            pass  # it is tracked, and no longer there

    def _ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        out = self._index.git("check-ignore", "--no-index", "-z", "--stdin", data=b"\0".join(paths), ok=(0, 1))
        return set(out.split(b"\0"))

    def _join(self, *parts: bytes) -> bytes:
        return os.path.join(self._top, *parts)


def _kind(entry: os.DirEntry[bytes]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except FileNotFoundError:
        return "gone"
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
