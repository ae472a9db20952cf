"""What tells that nothing about a worktree has changed: the stat data of all that git goes by when it looks for changes.

A process that looks at the same worktree again and again learns it without a `git status`, which reads the index, the rules and each
directory anew. A file that git takes for unchanged is so by the same stat data (Documentation/technical/racy-git.txt).
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from typing import Self, TypeAlias

    from gitckpt.git.repository import Repository

    Stat: TypeAlias = tuple[int, int]

MOST = 4000
"""So many tracked files at most: git, which looks at several at a time, is faster with more."""

_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems."""

_TO_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

_WORTH_IT = 20
"""So many files of a directory at least: to open and close it takes as long as what that saves them."""

_RULES = (b".gitignore", b".gitattributes")


class Fingerprint:
    """How a worktree looked at one instant.

    Args:
        top: of the worktree.
        directories: those that were looked at, relative to the top.
        inside: paths, relative to the top or absolute, with their stat data, of links themselves.
        outside: paths with their stat data, of what links lead to; None where there was nothing.

    Attributes:
        directories: as above.
    """

    def __init__(
        self,
        top: str,
        directories: AbstractSet[bytes],
        inside: Iterable[tuple[bytes, int, int]],
        outside: list[tuple[str, Stat | None]],
    ) -> None:
        self._top = top
        self.directories = directories
        self._inside = _by_directory(inside)
        self._outside = outside

    @classmethod
    def take(cls, repository: Repository, directories: AbstractSet[bytes], also: Iterable[str] = ()) -> Self | None:
        """Returns how a worktree looks now; None where stat data would not tell of each change that is still to come.

        Args:
            repository: seen from the worktree.
            directories: those that git looks into, relative to the top, which is empty. Where it looks into others by now, nothing can
                be concluded from what is returned.
            also: absolute paths of files that count as well, whether they are there or not.

        Raises:
            GitError: git cannot read its configuration or the index.
        """
        tracked = repository.git.run("ls-files", "-z").out.split(b"\0")[:-1]
        if len(tracked) > MOST:
            return None
        clock = _Clock(repository.make_private_dir())
        top = repository.worktree or "."
        try:
            with _opened(top) as fd:
                inside = [(path, *clock.stamped(os.lstat(path, dir_fd=fd))) for path in _inside(repository, fd, directories, tracked)]
            outside = [(path, clock.stamped(os.stat(path)) if os.path.exists(path) else None) for path in _outside(repository, also)]
        except (OSError, _TooYoung):
            return None
        return cls(top, directories, inside, outside)

    def holds(self) -> bool:
        """Tells whether all is as it was."""
        if any(_outer(path) != then for path, then in self._outside):
            return False
        try:
            with _opened(self._top) as top:
                for directory, inside in self._inside.items():
                    with _opened(directory, top) as fd:
                        if not _are_as_they_were(fd, inside):
                            return False
        except OSError:
            return False
        return True


class _TooYoung(Exception):
    """What changed this lately may change again and keep its time stamp."""


class _Clock:
    """Tells which time stamps no later change can have.

    Args:
        directory: one of ours, by which the file system is asked what time it is.
    """

    def __init__(self, directory: str) -> None:
        os.utime(directory)
        status = os.stat(directory)
        self._now = status.st_ctime_ns
        self._device = status.st_dev

    def stamped(self, status: os.stat_result) -> Stat:
        """Returns what is to be compared later. Another file system may have a clock of its own, and coarser stamps."""
        if status.st_ctime_ns >= (self._now if status.st_dev == self._device else self._now - _GRAIN):
            raise _TooYoung
        return _stat(status)


@contextlib.contextmanager
def _opened(directory: str | bytes, above: int | None = None) -> Iterator[int]:
    """Yields a descriptor of a directory: what is looked up from the top is found in six sevenths of the time, from its own in five."""
    fd = os.open(directory, _TO_LOOK, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


def _by_directory(inside: Iterable[tuple[bytes, int, int]]) -> dict[bytes, list[tuple[bytes, int, int]]]:
    """Returns paths with their stat data by the directory that they are looked up from, relative to it, where that is worth opening."""
    groups: dict[bytes, list[tuple[bytes, int, int]]] = {}
    for path, changed, inode in inside:
        groups.setdefault(os.path.dirname(path), []).append((path, changed, inode))
    found: dict[bytes, list[tuple[bytes, int, int]]] = {b".": []}
    for directory, group in groups.items():
        if len(group) < _WORTH_IT or not directory:
            found[b"."] += group
        else:
            found[directory] = [(os.path.basename(path), changed, inode) for path, changed, inode in group]
    return found


def _are_as_they_were(directory: int, inside: Iterable[tuple[bytes, int, int]]) -> bool:
    """Tells whether what lies in a directory has the stat data that it had."""
    look = os.lstat
    for path, changed, inode in inside:  # a thousand times, so nothing is made for the comparison
        status = look(path, dir_fd=directory)
        if status.st_ctime_ns != changed or status.st_ino != inode:
            return False
    return True


def _inside(repository: Repository, top: int, directories: Iterable[bytes], tracked: Iterable[bytes]) -> Iterator[bytes]:
    """Yields what lies in the worktree, and what git keeps of it. Files of rules count though they may be ignored themselves."""
    yield from (os.fsencode(os.path.join(repository.git_dir, name)) for name in ("HEAD", "index"))
    yield os.fsencode(repository.worktree or "")  # it may be another one by now
    for directory in directories:
        yield directory or b"."
        yield from (path for path in (os.path.join(directory, rules) for rules in _RULES) if _is_there(path, top))
    yield from tracked


def _is_there(path: bytes, top: int) -> bool:
    try:
        os.lstat(path, dir_fd=top)
    except OSError:
        return False
    return True


def _outside(repository: Repository, also: Iterable[str]) -> Iterator[str]:
    """Yields what git reads besides: its configuration, rules, and what stands in for objects."""
    yield from config.files(repository)
    for name in ("exclude", "attributes", "grafts"):
        yield os.path.join(repository.common_dir, "info", name)
    yield os.path.join(repository.git_dir, "info", "sparse-checkout")
    yield os.path.join(repository.common_dir, "refs", "replace")
    yield from also


def _outer(path: str) -> Stat | None:
    try:
        return _stat(os.stat(path))
    except OSError:
        return None


def _stat(status: os.stat_result) -> Stat:
    """Returns what differs whenever anything does: nobody can set the time of the last change, in nanoseconds; and the inode."""
    return status.st_ctime_ns, status.st_ino
