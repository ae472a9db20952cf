"""What was seen of a worktree the last time, so that it need not be looked at again: a derived file in its administrative directory.

An entry of a directory is believed as long as the directory's time stamp stays; that the index has no flags, as long as its checksum does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from gitckpt.git.files import atomic, premises
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.values import dataclass, field

FILE = "ckpt-seen"

_VERSION = b"2"
_END = b"\0\0"
"""Between records. Of their fields, one of these bytes apart, none is empty. It takes a third of the time of JSON, as paths are bytes.

The first has version, checksum, how many directories lead to tracked files, and in how many was looked. Those follow, each after a slash;
then for each of these its path, after a slash, its time stamp, the names of directories in it, and of what is special name, slash, kind.
"""

_NO_CHECKSUM = b"-"

_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems. A directory that changed within may change again under the same one."""


class Directory:
    """What lies in a directory beside files and links; thousands are made at once.

    Attributes:
        changed: its time stamp, in nanoseconds.
        directories: their names.
        special: sockets and the like: name and kind.
    """

    __slots__ = ("changed", "directories", "special")

    def __init__(self, changed: int, directories: list[bytes], special: list[tuple[bytes, str]]) -> None:
        self.changed = changed
        self.directories = directories
        self.special = special


@dataclass(slots=True)
class Sightings:
    """What was seen of a worktree. Paths are relative to its top, which is the empty path."""

    checksum: str
    """Of the index; "" where it has none."""

    is_known: bool = False
    """Whether the index is the one that was seen, and no entry of it has a flag."""

    tracked: list[bytes] = field(default_factory=list)
    """Directories that lead to tracked files; only where `is_known`."""

    directories: dict[bytes, Directory] = field(default_factory=dict)


def load(index: PrivateIndex) -> Sightings:
    """Returns what was seen of the worktree whose index this is a copy of; nothing where the file is missing or damaged."""
    checksum = index.checksum()
    try:
        with open(_path(index), "rb", opener=premises.create) as file:
            (version, before, *counts), *records, end = (record.split(b"\0") for record in file.read().split(_END))
        of_tracked, of_directories = map(int, counts)
        if version != _VERSION or len(records) != of_tracked + of_directories or end != [b""]:
            return Sightings(checksum)  # a power cut may leave a part
        tracked, directories = records[:of_tracked], records[of_tracked:]
        is_known = bool(checksum) and before.decode("ascii") == checksum
        return Sightings(
            checksum,
            is_known,
            [path[1:] for (path,) in tracked] if is_known else [],
            {path[1:]: _directory(int(changed), entries) for path, changed, *entries in directories},
        )
    except (OSError, ValueError):
        return Sightings(checksum)


def _directory(changed: int, entries: list[bytes]) -> Directory:
    if not entries:
        return Directory(changed, entries, [])
    special = [one.split(b"/") for one in entries if b"/" in one]
    return Directory(changed, [one for one in entries if b"/" not in one], [(name, kind.decode("ascii")) for name, kind in special])


def save(index: PrivateIndex, checksum: str, tracked: Iterable[bytes], directories: dict[bytes, Directory]) -> None:
    """Keeps what was seen for the next time, less what changed so lately that it may do so again unnoticed.

    Args:
        index: whose file it is.
        checksum: of the index, if no entry of it has a flag; otherwise "".
        tracked: directories that lead to tracked files.
        directories: what lies in them.
    """
    latest = time.time_ns() - _GRAIN
    leading = [b"/" + path for path in tracked]
    records = [
        b"\0".join(
            [b"/" + path, b"%d" % seen.changed, *seen.directories, *(b"%s/%s" % (name, kind.encode()) for name, kind in seen.special)]
        )
        for path, seen in directories.items()
        if seen.changed < latest
    ]
    head = b"%s\0%s\0%d\0%d" % (_VERSION, checksum.encode("ascii") or _NO_CHECKSUM, len(leading), len(records))
    with contextlib.suppress(OSError):  # derived: without it, the next capture looks again
        atomic.write_own(_path(index), _END.join([head, *leading, *records, b""]), flushed=False)


def _path(index: PrivateIndex) -> str:
    return os.path.join(index.repository.git_dir, FILE)
