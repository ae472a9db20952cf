"""What came into a repository since an instant, by time stamps: objects, refs, and where worktrees are. Imported by the hook."""

from __future__ import annotations

import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.repository import Repository

STEP = 50_000_000
"""In nanoseconds: a clock that is ahead or behind by so much was set."""

_LOOKS = 5

_TEMPORARY = "tmp_"
"""How git's names begin of what it is still writing."""

_DEPTH = 5
"""So many refs may stand for each other: git follows no more."""

_REGISTERED = ("HEAD", "commondir", "gitdir")
"""Without one of these, git sees no linked worktree."""


def objects(top: str, since: int) -> Iterator[str]:
    """Yields the files in a directory of objects that came at an instant or after it, with their directories."""
    for place in _changed_places(top, since):
        try:
            names = _arrived(place, since)
        except FileNotFoundError:  # a gc has come, which deletes directories that are empty
            continue
        if names:
            yield from names
            yield place
    if os.stat(top).st_ctime_ns >= since:
        yield top


def _changed_places(top: str, since: int) -> list[str]:
    """Returns those of the 256 directories of objects, and of packs, that have changed: all of them are looked at, from the one above."""
    changed = []
    above = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(above) as places:
            for place in places:
                name = place.name
                if len(name) == 2 or name == "pack":
                    try:
                        if place.stat().st_ctime_ns >= since:
                            changed.append(os.path.join(top, name))
                    except FileNotFoundError:  # as in `objects`
                        continue
    finally:
        os.close(above)
    return changed


def standing(repository: Repository, branch: str | None) -> list[str]:
    """Returns the files that say where the worktree is that a repository is seen from, and the main one: HEAD, and its branch.

    Args:
        branch: the one that is recorded on.
    """
    heads = [os.path.join(git_dir, "HEAD") for git_dir in dict.fromkeys((repository.git_dir, repository.common_dir))]
    if not repository.has_reftable:
        refs = [*([f"refs/heads/{branch}"] if branch else []), *map(_branch_at, heads)]  # the main worktree is on another one
        return [*heads, *dict.fromkeys(path for ref in refs for path in _branches(repository.common_dir, ref))]
    # Those of all are written with each record of ours, and flushed then; a linked worktree has some of its own.
    return [*heads, *([os.path.join(repository.git_dir, "reftable", "tables.list")] if repository.is_linked else [])]


def elsewhere(repository: Repository) -> Iterator[str]:
    """Yields the files that say where the linked worktrees are, and what git keeps of each: who records in one vouches for all."""
    top = os.path.join(repository.common_dir, "worktrees")
    for name in _names(top):
        yield from (f"{top}/{name}/{each}" for each in _REGISTERED)
        yield from _branches(repository.common_dir, _branch_at(f"{top}/{name}/HEAD"))


def refs(repository: Repository, names: Sequence[str], since: int) -> Iterator[str]:
    """Yields the files of refs that were written at an instant or after it, with their directories.

    Args:
        names: of refs, or paths of files below the directory of the repository.
    """
    return filter(_is_open_to_us, _refs(repository, names, since))


def _refs(repository: Repository, names: Sequence[str], since: int) -> Iterator[str]:
    common = repository.common_dir
    if names and repository.has_reftable:
        yield from _tables(common, since)
        names = [name for name in names if os.path.isabs(name)]
    tops = tuple(os.path.join(common, name, "") for name in ("refs", "worktrees"))
    for name in names:
        path = os.path.join(common, name)
        try:
            found = os.stat(path)
            if found.st_ctime_ns < since or not stat.S_ISREG(found.st_mode):
                continue
            yield path
            place = os.path.dirname(path)
            yield place
            while (place := os.path.dirname(place)).startswith(tops):  # which git has made with it, perhaps
                if os.stat(place).st_ctime_ns >= since:
                    yield place
            above = os.path.dirname(tops[1])
            if path.startswith(tops[1]) and os.stat(above).st_ctime_ns >= since:  # the first worktree, or a new one
                yield from (above, common)
        except (OSError, ValueError):
            continue


def came_at(path: str) -> int:
    """Returns when a file was last written, renamed or linked, in nanoseconds; 0 where it is not there."""
    try:
        return os.stat(path).st_ctime_ns
    except (OSError, ValueError):
        return 0


def _branch_at(head: str) -> str:
    """Returns the branch that a file HEAD says; "" where it is detached, or the worktree is being made, or removed."""
    said = _beginning(head)
    return os.fsdecode(said[5:].strip()) if said.startswith(b"ref: refs/heads/") else ""


def _branches(common: str, ref: str) -> Iterator[str]:
    """Yields the file of a branch; where that stands for another one, which a commit then writes, that of this as well."""
    for _ in range(_DEPTH):
        if not ref.startswith("refs/"):
            return
        path = os.path.join(common, ref)
        yield path
        said = _beginning(path)  # of none, it is packed
        ref = os.fsdecode(said[5:].strip()) if said.startswith(b"ref: ") else ""


def _beginning(path: str) -> bytes:
    """Returns what a file says, b"" where it cannot be read: two of each worktree at each commit, for which `open` takes twice as long."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _is_open_to_us(path: str) -> bool:
    """Tells whether we may read a file, and so flush it: a worktree may be somebody else's, whose umask lets nobody do that."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:  # of another one, the flush tells
        return True
    return True


def _tables(common: str, since: int) -> Iterator[str]:
    """Yields reftables that came at an instant or after it. A linked worktree has its own: HEAD, and the log that a commit writes."""
    yield from _arrived(os.path.join(common, "reftable"), since)
    yield os.path.join(common, "reftable")
    top = os.path.join(common, "worktrees")
    for name in _names(top):
        place = os.path.join(top, name, "reftable")
        try:
            new = _arrived(place, since)
        except OSError:  # it is being made or removed, or is somebody else's alone
            continue
        if new:
            yield from (*new, place)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:  # there is none, or what lies there is nothing that git would use
        return []


def _arrived(directory: str, since: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries if not entry.name.startswith(_TEMPORARY) and _ctime(entry) >= since]


def _ctime(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_ctime_ns
    except FileNotFoundError:
        return 0


def started() -> int:
    """Returns when the machine was started by the clock as it is set now, in nanoseconds; 0 where the system does not tell."""
    for _ in range(_LOOKS if sys.platform == "linux" else 0):
        runs = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        started = time.time_ns() - runs
        if time.clock_gettime_ns(time.CLOCK_BOOTTIME) - runs < STEP // _LOOKS:  # else it was held up between the looks
            return started
    return 0
