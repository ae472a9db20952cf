"""Tell by `stat` whether refs, or a file, can have changed since the last look.

Git writes a ref through a lock beside it, which changes the times of the directory, and packed refs as a whole new file. It relies on the
same for its own copy of them (`stat_validity` in its refs/packed-backend.c). With reftables, each change adds a name to the list of
tables.
"""

from __future__ import annotations

import os
import stat
import time

from gitckpt.git.repository import OF_A_WORKTREE
from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.repository import Repository


# Refs as the files that they are: what one says and whether it may be there, without a process; and what lies in the place of one.


_LINE = 256

_SCANNED = 8_000_000
"""Up to so many bytes of `packed-refs` are read sooner than git answers."""


def require_no_pipes(repository: Repository) -> None:
    """Raises `CkptError` if in the place of a ref there is what git waits for, and nobody may ever write to."""
    for directory, _, names in os.walk(os.path.join(repository.common_dir, "refs")):
        for path in (os.path.join(directory, name) for name in names):
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # refs come and go
                continue
            _require_no_pipe_at(path, status)


def require_no_pipe(repository: Repository, ref: str) -> None:
    """Raises `CkptError` if in the place of this ref is what git waits for; a look that takes two microseconds."""
    path = os.path.join(repository.common_dir, ref)
    try:
        status = os.lstat(path)
    except OSError:
        return
    _require_no_pipe_at(path, status)


def _require_no_pipe_at(path: str, status: os.stat_result) -> None:
    if stat.S_ISFIFO(status.st_mode):
        from gitckpt.model.arguments import shell_word

        raise CkptError(f"{path} is a pipe in the place of a ref: git waits for it for ever", hint=f"remove it: rm {shell_word(path)}")


def packed_size(repository: Repository, refs: Iterable[str]) -> int:
    """Return how many bytes the lines of some refs take in `packed-refs`; nothing for those that are not packed."""
    names = {os.fsencode(ref) for ref in refs}
    try:
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            return sum(len(line) for line in file if line.rstrip(b"\n").partition(b" ")[2] in names)
    except FileNotFoundError:
        return 0


def may_be_there(repository: Repository, ref: str) -> bool:
    """Tells whether git has to be asked for a ref: that may take a process, 5 ms, and most questions are whether a name is taken already.

    A ref that is being packed is in `packed-refs` before its file goes, hence the order.
    """
    if repository.has_reftable or not ref.startswith("refs/") or ref.startswith(OF_A_WORKTREE):
        return True
    try:
        if os.path.lexists(os.path.join(repository.common_dir, ref)):
            return True
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            if os.fstat(file.fileno()).st_size > _SCANNED:
                return True
            return b" %s\n" % os.fsencode(ref) in file.read()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def plain(repository: Repository, ref: str) -> str | None:
    """Returns what the file of a ref says, be the object there or not; None where git has to be asked, which takes ten times as long."""
    if not ref.startswith("refs/") or ref.startswith(OF_A_WORKTREE) or ".." in ref:
        return None
    path = f"{repository.common_dir}/{ref}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # `open` takes three times as long, and each record reads seven
    except (OSError, ValueError):
        return None
    try:
        said = os.read(fd, _LINE)
        if not said:
            _require_no_pipe_at(path, os.fstat(fd))
    except BlockingIOError:
        _require_no_pipe_at(path, os.fstat(fd))
        return None
    except OSError:
        return None
    finally:
        os.close(fd)
    oid = said.rstrip()
    return oid.decode("ascii") if len(oid) in (40, 64) and not oid.strip(b"0123456789abcdef") else None


# Tell by `stat` whether refs, or a file, can have changed since the last look.


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
