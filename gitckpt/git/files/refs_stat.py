"""Read refs from files, and detect changes of refs and files by `stat`.

git writes a ref through a lock beside it, which changes the times of the directory, and replaces
packed refs as a whole. It relies on the same for its own cache (`stat_validity` in
refs/packed-backend.c). With reftables, each change adds a name to the table list.
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

# Reading refs without a process

_LINE = 256

# Up to this many bytes, reading `packed-refs` is faster than asking git.
_SCANNED = 8_000_000


def require_no_pipes(repository: Repository) -> None:
    """Raise `CkptError` if a ref is a named pipe, for which git waits forever."""
    for directory, _, names in os.walk(os.path.join(repository.common_dir, "refs")):
        for path in (os.path.join(directory, name) for name in names):
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # deleted meanwhile
                continue
            _require_no_pipe_at(path, status)


def require_no_pipe(repository: Repository, ref: str) -> None:
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
    """Return the bytes that some refs take in `packed-refs`; 0 for loose ones."""
    names = {os.fsencode(ref) for ref in refs}
    try:
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            return sum(len(line) for line in file if line.rstrip(b"\n").partition(b" ")[2] in names)
    except FileNotFoundError:
        return 0


def may_be_there(repository: Repository, ref: str) -> bool:
    """Return whether git has to be asked for a ref, which may cost a process, 5 ms."""
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
    """Return the oid in a ref's file; None if git must be asked, at a tenfold cost."""
    if not ref.startswith("refs/") or ref.startswith(OF_A_WORKTREE) or ".." in ref:
        return None
    path = f"{repository.common_dir}/{ref}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a third of the time of `open`; each record reads 7
    except (OSError, ValueError):
        return None
    try:
        content = os.read(fd, _LINE)
        if not content:
            _require_no_pipe_at(path, os.fstat(fd))
    except BlockingIOError:
        _require_no_pipe_at(path, os.fstat(fd))
        return None
    except OSError:
        return None
    finally:
        os.close(fd)
    oid = content.rstrip()
    return oid.decode("ascii") if len(oid) in (40, 64) and not oid.strip(b"0123456789abcdef") else None


# Detecting changes by `stat`

# Nanoseconds: FAT, the coarsest file system, counts in two seconds.
_SETTLED = 2 * 10**9
# Nanoseconds: where a time is finer than milliseconds, its clock ticks at least every 10 ms.
_FINE, _FINELY_SETTLED = 10**6, 5 * 10**7

_NONE = "none"


@dataclass(frozen=True, slots=True)
class State:
    """A fingerprint of a ref directory; None for a part too recent to be relied on."""

    packed: str | None  # `packed-refs`, or reftables
    loose: str | None


def look(repository: Repository, directory: str) -> State:
    """Return the state of a directory of refs, without its subdirectories."""
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
    """Return a fingerprint of a file; None if a further change could go unnoticed.

    `now` is in nanoseconds since the epoch; None if the result is only compared.
    """
    is_fine = status.st_ctime_ns % _FINE and status.st_mtime_ns % _FINE
    settled = _FINELY_SETTLED if is_fine else _SETTLED
    # A file that has just changed may change again within one tick of the file system's clock.
    if now is not None and now - max(status.st_ctime_ns, status.st_mtime_ns) < settled:
        return None
    return f"{status.st_dev}.{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def content_mark(status: os.stat_result) -> tuple[int, int, int, int]:
    # What a write or replacement changes; `ctime` changes more often.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
