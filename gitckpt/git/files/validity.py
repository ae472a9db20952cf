"""Tells whether refs, or a file, can have changed since somebody looked, without reading them again.

Git writes a ref by way of a lock beside it, which changes the times of the directory, and packed refs as a whole new file; it relies on the
same for its own copy of them (`stat_validity` in its refs/packed-backend.c). With reftables, each change is a name that is new in the
list of tables. What has changed a moment ago may change again within one tick of the file system's clock, and so is not relied on.
"""

from __future__ import annotations

import os
import stat
import time

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_SETTLED = 2 * 10**9
"""In nanoseconds: FAT, the coarsest of file systems, counts two seconds."""

_FINE, _FINELY_SETTLED = 10**6, 5 * 10**7
"""Where a time says more than milliseconds, in nanoseconds, the clock behind it ticks every 10 ms at least."""

_NONE = "none"


@dataclass(frozen=True, slots=True)
class State:
    """What the refs of a directory look like from outside: where both are the same as before, no ref has changed.

    Attributes:
        packed: of the packed refs, or of reftables; None where it is too young to be relied on.
        loose: of the directory with the files of refs; None likewise.
    """

    packed: str | None
    loose: str | None


def look(repository: Repository, directory: str) -> State:
    """Returns what refs look like now.

    Args:
        directory: below which they lie, such as `refs/checkpoints`; it holds no directories whose refs count.
    """
    if repository.has_reftable:
        try:
            with open(os.path.join(repository.common_dir, "reftable", "tables.list"), encoding="utf-8") as file:
                return State(file.read(), _NONE)
        except (OSError, ValueError):
            return State(None, None)
    return State(*(_stamp(os.path.join(repository.common_dir, name)) for name in ("packed-refs", directory)))


def files(repository: Repository, directory: str) -> dict[str, str | None]:
    """Returns what each ref that is a file of its own looks like, by the last part of its name, as `State` does.

    Args:
        repository: has no reftables.
        directory: as for `look`.
    """
    place = os.path.join(repository.common_dir, directory)
    now = time.time_ns()
    try:
        with os.scandir(place) as entries:
            return {
                entry.name: _seen(entry.stat(follow_symlinks=False), now) for entry in entries if not entry.is_dir(follow_symlinks=False)
            }
    except OSError:  # where it cannot be read, git finds no refs either
        return {}


def _stamp(path: str) -> str | None:
    now = time.time_ns()
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _NONE
    except OSError:
        return None
    return _seen(status, now)


def _seen(status: os.stat_result, now: int) -> str | None:
    """Returns what stands for a file as it is; None where it is a link, or has changed just now, or in the future."""
    return None if stat.S_ISLNK(status.st_mode) else stamp(status, now)


def stamp(status: os.stat_result, now: int | None) -> str | None:
    """Returns what stands for a file as it is; None where a change that is still to come would not show.

    Args:
        status: of the file.
        now: in nanoseconds since the epoch; None for what is only to be compared.
    """
    is_fine = status.st_ctime_ns % _FINE and status.st_mtime_ns % _FINE
    settled = _FINELY_SETTLED if is_fine else _SETTLED
    if now is not None and now - max(status.st_ctime_ns, status.st_mtime_ns) < settled:
        return None
    return f"{status.st_dev}.{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def content_mark(status: os.stat_result) -> tuple[int, int, int, int]:
    """Returns what stays as it is until somebody writes into a file, or puts another one in its place; its `ctime` changes more often."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
