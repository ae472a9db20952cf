"""Keep what git does not track: empty directories and narrow modes.

A mode is narrow if it lacks permissions that the umask allows. A snapshot may have been fetched:
restoring one follows no link, changes nothing in `.git` or in a
nested repository, and only narrows modes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping

from gitckpt.git.objects.diff import leaves
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

# The most directories, and the most modes, that a snapshot keeps.
MOST = 10_000

# The owner keeps these bits in any case: a directory without them cannot be used.
_OWNER_OF_DIRECTORY, _OWNER_OF_FILE = 0o700, 0o400

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UMASK = re.compile(rb"^Umask:\s*([0-7]+)$", re.MULTILINE)


def umask() -> int:
    # `os.umask` tells it only by changing it, for all threads.
    try:
        with open("/proc/self/status", "rb") as file:
            match = _UMASK.search(file.read())
    except OSError:
        match = None
    if match is not None:
        return int(match[1], 8)
    current = os.umask(0o077)
    os.umask(current)
    return current


def narrowed(mode: int, mask: int) -> int | None:
    """Return the permissions in `st_mode` within the umask; None if it allows no more."""
    if stat.S_ISDIR(mode):
        usual, owner = 0o777 & ~mask, _OWNER_OF_DIRECTORY
    elif stat.S_ISREG(mode):
        usual, owner = (0o777 if mode & 0o100 else 0o666) & ~mask, _OWNER_OF_FILE
    else:
        return None
    kept = (mode | owner) & usual
    return kept if kept != usual else None


def narrowed_files(top: bytes, paths: Collection[bytes]) -> dict[bytes, int]:
    modes: dict[bytes, int] = {}
    mask = umask() if paths else 0
    for path in paths:
        with contextlib.suppress(OSError):
            mode = narrowed(os.lstat(os.path.join(top, path)).st_mode, mask)
            if mode is not None:
                modes[path] = mode
    return modes


def narrowed_directories(modes: Mapping[bytes, int]) -> dict[bytes, int]:
    mask = umask() if modes else 0
    usual = 0o777 & ~mask
    narrow = {path: narrowed(mode, mask) for path, mode in modes.items() if usual & ~mode}
    return {path: mode for path, mode in narrow.items() if mode is not None}


def empty(repository: Repository, top: bytes, candidates: Collection[bytes], files: str) -> list[bytes]:
    """Return the candidates that are empty directories and no submodules.

    A directory with only ignored files, such as a cache, is not empty.

    Args:
        files: oid of the tree of all files.
    """
    known = {path for path in candidates if path and _is_empty(os.path.join(top, path))}
    if known:
        known.difference_update(path for path, _, _ in leaves(repository, files, with_trees=True))
    return sorted(known)


def _is_empty(path: bytes) -> bool:
    try:
        return not os.listdir(path)
    except OSError:
        return False


def is_plain(path: bytes) -> bool:
    """Return whether a path stays in the worktree and out of `.git`, however spelled."""
    parts = path.split(b"/")
    plain = [re.sub(rb"[^!-~]", b"", part).lower().rstrip(b".") for part in parts]
    return not {b"", b".", b".."} & set(parts) and not {b".git", b"git~1"} & set(plain) and b"\0" not in path


def require_plain(directories: Collection[bytes], modes: Collection[bytes]) -> None:
    if len(directories) > MOST or len(modes) > MOST:
        raise WorktreeError("the snapshot is not to be trusted: it has too many directories or modes", hint="look at it: git fsck")
    for path in [*directories, *modes]:
        if not is_plain(path):
            raise WorktreeError(f"the snapshot is not to be trusted, as it has the path {path!r}", hint="look at it: git fsck")


def missing(top: str, directories: Collection[bytes]) -> list[bytes]:
    whole = os.fsencode(top)
    return [path for path in directories if not os.path.isdir(os.path.join(whole, path))]


def wider(top: str, modes: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return files and directories with more permissions than recorded; modes by path."""
    by_path = {}
    for path, mode in modes.items():
        with contextlib.suppress(OSError):
            status = os.lstat(os.path.join(os.fsencode(top), path))
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o777 & ~_kept(status.st_mode, mode):
                by_path[path] = status.st_mode & 0o777
    return by_path


def unmet(top: str, directories: Collection[bytes], modes: Mapping[bytes, int]) -> list[bytes]:
    """Return missing directories (ending in a slash) and paths with a too wide mode."""
    return [path + b"/" for path in missing(top, directories)] + [path for path in sorted(wider(top, modes)) if _is_ours(top, path)]


def _is_ours(top: str, path: bytes) -> bool:
    try:
        with _opened(top, path.split(b"/")[:-1]):
            return True
    except OSError:
        return False


def bring_back(top: str, directories: Collection[bytes], modes: Mapping[bytes, int]) -> None:
    require_plain(directories, modes)
    make(top, directories)
    for path, mode in sorted(modes.items(), reverse=True):
        _change(top, path, functools.partial(_narrow, mode))


def make(top: str, directories: Collection[bytes]) -> None:
    """Make missing directories with their parents, without following links."""
    for path in sorted(directories):
        try:
            with _opened(top, path.split(b"/"), make=True):
                pass
        except OSError as error:
            shown = path.decode("utf-8", "replace")
            raise WorktreeError(f"cannot make the directory {shown}: {error.strerror}", hint="see what is in its place") from None


def widen(top: str, modes: Mapping[bytes, int]) -> None:
    """Restore modes that were narrowed, as far as the umask allows."""
    mask = umask()
    for path, mode in modes.items():
        if is_plain(path):
            _change(top, path, functools.partial(_widen, mode & ~mask))


def remove_empty(top: str, directories: Collection[bytes]) -> None:
    for path in sorted(filter(is_plain, directories), reverse=True):
        *above, name = path.split(b"/")
        with contextlib.suppress(OSError), _opened(top, above) as fd:
            os.rmdir(name, dir_fd=fd)


def with_above(paths: Collection[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        above = path
        while above and above not in found:
            found.add(above)
            above = above.rpartition(b"/")[0]
    return found


def _kept(now: int, mode: int) -> int:
    return mode | (_OWNER_OF_DIRECTORY if stat.S_ISDIR(now) else _OWNER_OF_FILE)


def _narrow(mode: int, now: int) -> int:
    return now & _kept(now, mode)


def _widen(mode: int, now: int) -> int:
    return now | (mode & (0o777 if now & 0o100 else 0o666))


@contextlib.contextmanager
def _opened(top: str, parts: list[bytes], *, make: bool = False) -> Iterator[int]:
    # Never through a link or into another repository.
    fd = os.open(top, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
            with contextlib.suppress(FileNotFoundError):
                os.lstat(b".git", dir_fd=fd)
                raise NotADirectoryError(0, "a repository of its own is there")
        yield fd
    finally:
        os.close(fd)


def _change(top: str, path: bytes, change: Callable[[int], int]) -> None:
    *above, name = path.split(b"/")
    with contextlib.suppress(OSError), _opened(top, above) as parent:
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            now = os.fstat(fd).st_mode
            wanted = change(now) & 0o777
            if wanted != now & 0o777 and (stat.S_ISREG(now) or stat.S_ISDIR(now)):
                os.fchmod(fd, wanted)
        finally:
            os.close(fd)
