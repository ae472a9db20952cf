"""Finds what git passes over without a word: sockets, fifos and devices that are not ignored, and directories that cannot be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable

from gitckpt.git.worktree.index import PrivateIndex

_KINDS = ((stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a fifo"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


class Scan:
    """A look into the directories of a worktree. Paths are relative to its top, which is the empty path.

    Args:
        index: of the worktree, through which git is asked what is ignored.

    Attributes:
        found: paths that cannot be captured, each with the reason.
        seen: the directories that were looked into.
        modes: of directories, the top left out, as lstat(2) says them.
        repositories: directories that are the top of another one; not all that lie in ignored directories.
        apart: directories that are not looked into; to be set before `look_elsewhere`.
    """

    def __init__(self, index: PrivateIndex) -> None:
        self._index = index
        self._top = os.fsencode(index.repository.worktree or "")
        self._unknown: set[bytes] = set()
        self._special: list[tuple[bytes, str]] = []
        self.found: list[tuple[bytes, str]] = []
        self.seen: set[bytes] = set()
        self.modes: dict[bytes, int] = {}
        self.repositories: list[bytes] = []
        self.apart: Collection[bytes] = ()

    def look(self, directories: Iterable[bytes]) -> None:
        """Looks into directories that are known not to be ignored; those above them are among them, or were."""
        for directory in sorted(directories):
            is_inside = not directory or os.path.dirname(directory) in self.seen  # not behind a link
            if is_inside and directory not in self.seen:
                self._look(directory)

    def look_elsewhere(self) -> None:
        """Looks into the directories that came up and were not named, if they are neither ignored nor repositories of their own."""
        while self._unknown:
            new = sorted((self._unknown - self.seen).difference(self.apart))
            others = [path for path in new if os.path.lexists(self._join(path, b".git"))]
            there = sorted(set(new).difference(others))
            self.repositories += others
            self._unknown.clear()
            ignored = self._ignored(there)  # a slash at its end would have the rules in it decide of itself
            self.look(path for path in there if path not in ignored)
        ignored = self._ignored([path for path, _ in self._special])
        self.found += [(path, reason) for path, reason in self._special if path not in ignored]
        self._special.clear()

    def _look(self, directory: bytes) -> None:
        prefix = directory + b"/" if directory else b""
        whole = self._join(directory)
        try:
            status = os.lstat(whole)
            if not stat.S_ISDIR(status.st_mode):
                return
            directories, special = _list(whole)
        except PermissionError:
            self.found.append((prefix, "cannot be read: permission denied"))
            return
        except (FileNotFoundError, NotADirectoryError):
            return  # it is tracked, and no longer there
        self.seen.add(directory)
        if directory:
            self.modes[directory] = status.st_mode
        self._unknown.update(prefix + name for name in directories)
        self._special += [(prefix + name, kind) for name, kind in special]

    def _ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        out = self._index.git("check-ignore", "--no-index", "-z", "--stdin", data=b"\0".join(paths), ok=(0, 1))
        return set(out.split(b"\0"))

    def _join(self, *parts: bytes) -> bytes:
        return os.path.join(self._top, *parts)


def _list(directory: bytes) -> tuple[list[bytes], list[tuple[bytes, str]]]:
    """Returns the directories within a directory, and what is neither file nor link nor directory, with its kind."""
    directories, special = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                continue
            if not entry.is_dir(follow_symlinks=False):
                special.append((entry.name, _kind(entry)))
            elif entry.name != b".git":
                directories.append(entry.name)
    return directories, special


def _kind(entry: os.DirEntry[bytes]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
