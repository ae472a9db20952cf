"""Tell by `stat` whether refs, or a file, can have changed since the last look.

Git writes a ref through a lock beside it, which changes the times of the directory, and packed refs as a whole new file. It relies on the
same for its own copy of them (`stat_validity` in its refs/packed-backend.c). With reftables, each change adds a name to the list of
tables.
"""

from __future__ import annotations

import os
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
    """How the refs of a directory look from outside; no ref has changed while both parts stay the same.

    Attributes:
        packed: of the packed refs, or of reftables; None where it is too young to be relied on.
        loose: of the directory with the files of refs; None likewise.
    """

    packed: str | None
    loose: str | None


def look(repository: Repository, directory: str) -> State:
    """Return how the refs below a directory such as `refs/checkpoints` look now.

    Args:
        directory: it holds no directories whose refs count.
    """
    if repository.has_reftable:
        try:
            with open(os.path.join(repository.common_dir, "reftable", "tables.list"), encoding="utf-8") as file:
                return State(file.read(), _NONE)
        except (OSError, ValueError):
            return State(None, None)
    return State(*(_stamp(os.path.join(repository.common_dir, name)) for name in ("packed-refs", directory)))


def _stamp(path: str) -> str | None:
    now = time.time_ns()
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _NONE
    except OSError:
        return None
    return stamp(status, now)


def stamp(status: os.stat_result, now: int | None) -> str | None:
    """Return what stands for a file as it is; None where a change that is still to come would not show.

    Args:
        status: of the file.
        now: in nanoseconds since the epoch; None for what is only to be compared.
    """
    is_fine = status.st_ctime_ns % _FINE and status.st_mtime_ns % _FINE
    settled = _FINELY_SETTLED if is_fine else _SETTLED
    # A file that changed a moment ago may change again within one tick of the file system's clock.
    if now is not None and now - max(status.st_ctime_ns, status.st_mtime_ns) < settled:
        return None
    return f"{status.st_dev}.{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def content_mark(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return what changes once a file is written or replaced; its `ctime` changes more often."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
