"""What was seen of a worktree the last time, so that it need not be looked at again: a derived file in its administrative directory.

An entry of a directory is believed as long as the directory's time stamp stays; that the index has no flags, as long as its checksum does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable

from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.values import dataclass, field

FILE = "ckpt-seen"

_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems. A directory that changed within may change again under the same one."""


@dataclass(slots=True)
class Directory:
    """What lies in a directory beside files and links."""

    changed: int
    """Its time stamp, in nanoseconds."""

    directories: list[bytes]
    special: list[tuple[bytes, str]]
    """Sockets and the like: name and kind."""


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
    checksum = _checksum(index)
    try:
        with open(_path(index), encoding="utf-8") as file:
            said = json.load(file)
        directories = {
            os.fsencode(path): Directory(changed, [os.fsencode(one) for one in inside], [(os.fsencode(one), kind) for one, kind in special])
            for path, (changed, inside, special) in said["directories"].items()
        }
        known = bool(checksum) and said["checksum"] == checksum
        return Sightings(checksum, known, [os.fsencode(path) for path in said["tracked"]] if known else [], directories)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Sightings(checksum)


def save(index: PrivateIndex, checksum: str, tracked: Iterable[bytes], directories: dict[bytes, Directory]) -> None:
    """Keeps what was seen for the next time, less what changed so lately that it may do so again unnoticed.

    Args:
        index: whose file it is.
        checksum: of the index, if no entry of it has a flag; otherwise "".
        tracked: directories that lead to tracked files.
        directories: what lies in them.
    """
    latest = time.time_ns() - _GRAIN
    said = {
        "checksum": checksum,
        "tracked": [os.fsdecode(path) for path in tracked],
        "directories": {
            os.fsdecode(path): [
                seen.changed,
                [os.fsdecode(one) for one in seen.directories],
                [[os.fsdecode(one), kind] for one, kind in seen.special],
            ]
            for path, seen in directories.items()
            if seen.changed < latest
        },
    }
    path = _path(index)
    scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(scratch, path)
    except OSError:
        pass  # derived: without it, the next capture looks again


def _checksum(index: PrivateIndex) -> str:
    """Returns the checksum that an index ends with (gitformat-index(5)); "" where it was left out, or there is no index."""
    try:
        with open(index.path, "rb") as file:
            file.seek(-20, os.SEEK_END)
            found = file.read().hex()
    except OSError:
        return ""
    return found if found.strip("0") else ""


def _path(index: PrivateIndex) -> str:
    return os.path.join(index.repository.git_dir, FILE)
