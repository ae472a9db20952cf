"""Read refs from files, and detect changes of refs and files by `stat`.

git writes a ref through a lock file in the same directory, which changes the directory's times. git
relies on that for its own cache (`stat_validity` in refs/packed-backend.c).
"""

from __future__ import annotations

import os
import stat
import time

from gitckpt.git.repository import OF_A_WORKTREE
from gitckpt.model import ids
from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.repository import Repository

# Reading refs without a process

_MAX_LINE = 256
_MAX_SCANNED = 8_000_000  # up to this many bytes, reading `packed-refs` is faster than asking git


def require_no_pipes_in_refs(repository: Repository) -> None:
    for directory, _, names in os.walk(os.path.join(repository.common_dir, "refs")):
        for name in names:
            require_no_pipe_at_ref(repository, os.path.join(directory, name))


def require_no_pipe_at_ref(repository: Repository, ref: str) -> None:
    path = os.path.join(repository.common_dir, ref)
    try:
        status = os.lstat(path)
    except OSError:
        return
    _require_no_pipe_at(path, status)


def _require_no_pipe_at(path: str, status: os.stat_result) -> None:
    if stat.S_ISFIFO(status.st_mode):
        from gitckpt.model.arguments import shell_quoted

        message = f"{path} is a named pipe instead of a ref: git would wait for it forever"
        raise CkptError(message, hint=f"remove the pipe: rm {shell_quoted(path)}")


def measure_packed_refs(repository: Repository, refs: Iterable[str]) -> int:
    names = {os.fsencode(ref) for ref in refs}
    try:
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            return sum(len(line) for line in file if line.rstrip(b"\n").partition(b" ")[2] in names)
    except FileNotFoundError:
        return 0


def may_ref_exist(repository: Repository, ref: str) -> bool:
    """Return False if the files show that a ref is missing; True if only git can tell."""
    if repository.has_reftable or not ref.startswith("refs/") or ref.startswith(OF_A_WORKTREE):
        return True
    try:
        if os.path.lexists(os.path.join(repository.common_dir, ref)):
            return True
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_SCANNED:
                return True
            return b" %s\n" % os.fsencode(ref) in file.read()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def may_have_refs_below(repository: Repository, *namespaces: str) -> bool:
    """Return False if the files show that the namespaces have no refs."""
    common_dir = repository.common_dir
    if repository.has_reftable or any(
        os.path.lexists(os.path.join(common_dir, namespace)) for namespace in namespaces
    ):
        return True
    try:
        with open(os.path.join(common_dir, "packed-refs"), "rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_SCANNED:
                return True
            content = file.read()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return any(b" %s" % os.fsencode(namespace) in content for namespace in namespaces)


def read_loose_ref(repository: Repository, ref: str) -> str | None:
    """Return the oid in the file of a loose ref; None if only git can read the ref."""
    if not ref.startswith("refs/") or ref.startswith(OF_A_WORKTREE) or ".." in ref:
        return None
    path = f"{repository.common_dir}/{ref}"
    try:
        # A third of the time of `open`; each record reads 7.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        content = os.read(fd, _MAX_LINE)
        if not content:
            _require_no_pipe_at(path, os.fstat(fd))
    except BlockingIOError:
        _require_no_pipe_at(path, os.fstat(fd))
        return None
    except OSError:
        return None
    finally:
        os.close(fd)
    oid = content.rstrip().decode("ascii", "replace")
    return oid if ids.is_oid(oid) else None


# Detecting changes by `stat`

_SETTLED = 2 * 10**9  # nanoseconds: FAT, the coarsest file system, counts in two seconds
# Nanoseconds: where a time is finer than milliseconds, its clock ticks at least every 10 ms.
_FINE, _FINELY_SETTLED = 10**6, 5 * 10**7
_NONE = "none"


@dataclass(frozen=True, slots=True)
class RefsState:
    """A fingerprint of the refs in a directory; a part is None if it has just changed."""

    packed: str | None  # `packed-refs`, or reftables
    loose: str | None


def read_refs_state(repository: Repository, directory: str) -> RefsState:
    common_dir = repository.common_dir
    if repository.has_reftable:
        try:
            with open(f"{common_dir}/reftable/tables.list", encoding="utf-8") as file:
                return RefsState(file.read(), _NONE)
        except (OSError, ValueError):
            return RefsState(None, None)
    return RefsState(
        *(_path_stamp(os.path.join(common_dir, name)) for name in ("packed-refs", directory))
    )


def _path_stamp(path: str) -> str | None:
    instant = time.time_ns()
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _NONE
    except OSError:
        return None
    return make_stat_stamp(status, instant)


def make_stat_stamp(status: os.stat_result, instant: int | None) -> str | None:
    """Return a fingerprint of a file; None if a later change might not alter it."""
    has_fine_times = status.st_ctime_ns % _FINE and status.st_mtime_ns % _FINE
    min_age = _FINELY_SETTLED if has_fine_times else _SETTLED
    # A file that has just changed may change again within one tick of the file system's clock.
    if instant is not None and instant - max(status.st_ctime_ns, status.st_mtime_ns) < min_age:
        return None
    times = f"{status.st_mtime_ns}.{status.st_ctime_ns}"
    return f"{status.st_dev}.{status.st_ino}.{status.st_size}.{times}"


def content_stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    # What a write or replacement changes; `ctime` changes more often.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
