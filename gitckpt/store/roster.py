"""Which checkpoints outside of runs were written here. Refs can be fetched, with whatever dates and names; the private directory cannot.

What stands for another checkpoint when that one is thinned away must be ours, and so must be what goes, and what "latest" or a commit
means. Lines come from those of links that waited, a minute's worth at once, so a record pays nothing for them; one without a commit has no
link, and is noted at once. Where a line is lost, its checkpoint is thinned no more, and has to be named.
"""

from __future__ import annotations

import os

from gitckpt.git.files import premises
from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gitckpt.git.repository import Repository

FILE = "written"
"""In the private directory: the ids of checkpoints that were written here, one a line."""

_TAIL = 65_536
"""In bytes: what is asked for is nearly always among the newest, and there may be a million."""

_LINE = len("0f8fad5b-d9cb-469f-a165-70867728950e\n")


def note(repository: Repository, written: Iterable[str]) -> None:
    """Notes ids of checkpoints, where that can be done; one that is not noted is thinned no more, and has to be named."""
    text = "".join(f"{name}\n" for name in written)
    try:
        with open(_path(repository), "ab", buffering=0, opener=premises.create) as file:
            file.write(f"\n{text}".encode("ascii"))  # a line that a full disk has cut off is none of these
    except OSError:
        return


def known(repository: Repository) -> set[str]:
    """Returns the ids that were noted; nothing where they cannot be read."""
    try:
        with open(_path(repository), encoding="ascii", errors="replace", opener=premises.create) as file:
            return {line for line in file.read().split("\n") if ids.is_id(line)}
    except OSError:
        return set()


def has_lately(repository: Repository, name: str) -> bool:
    """Tells whether an id is among the newest that were noted."""
    try:
        with open(_path(repository), "rb", buffering=0, opener=premises.create) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            return b"\n%s\n" % name.encode("ascii", "replace") in file.read()
    except OSError:
        return False


def forget_others(repository: Repository, there: Callable[[Collection[str]], Collection[str]]) -> None:
    """Forgets checkpoints that are gone, once they are half of what was noted. What is noted meanwhile may be lost.

    Args:
        there: returns those of some ids that are there.
    """
    found = known(repository)
    left = found.intersection(there(found)) if found else found
    try:
        if os.path.getsize(_path(repository)) > 2 * _LINE * (len(left) + _LINE):
            from gitckpt.git.files import atomic  # seldom

            data = "".join(f"{name}\n" for name in sorted(left)).encode("ascii")
            atomic.write_own(_path(repository), data, flushed=True, opener=premises.create)
    except OSError:
        return  # the next maintenance tries again


def _path(repository: Repository) -> str:
    return os.path.join(repository.private_dir, FILE)
