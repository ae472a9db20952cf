"""Use gitckpt's own directories without following links. Imported by the hook.

A branch may fill their place: with a tracked symbolic link `.ckpt`, worktrees and files would be
written to its target. So each directory on the way is opened without following links and its owner
is checked. Where git needs a path, the directory is held open meanwhile and checked again
afterwards.
"""

from __future__ import annotations

import os
import stat
import sys
from errno import EBUSY, EISDIR, ELOOP, ENOENT, ENOTDIR

from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PRIVATE = ".ckpt"  # at the top of the main worktree; it ignores itself
RUNS = "ckpt-runs"  # the same in a bare repository

MOUNTED = "something is mounted there"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 10

# Mode of directories under core.sharedRepository: group-writable, and inherited by new files.
_GROUP = 0o2020

# Directories with copied inputs: private whatever the umask.
_SECRET = ("runs", RUNS)


class Held:
    """A directory held open while its path is used; a context manager.

    `top` is the user's own directory, whose owner git has checked; `names` are the components below
    it. Raises `WorktreeError` if one is a link, no directory, or has a foreign owner; on exit, also
    if the directory was replaced.
    """

    def __init__(self, top: str, names: Sequence[str], *, make: bool = False) -> None:
        self._top = top
        self._names = names
        self._make = make
        self._fd = -1
        self.path = os.path.join(top, *names)

    def __enter__(self) -> str:
        fd = os.open(self._top, _DIRECTORY & ~os.O_NOFOLLOW)
        try:
            above = os.fstat(fd)
            for depth, name in enumerate(self._names, 1):
                inner = self._step(fd, name, os.path.join(self._top, *self._names[:depth]), above)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return self.path

    def _step(self, fd: int, name: str, path: str, above: os.stat_result) -> int:
        is_new = self._make and _is_made(name, fd)
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            status = os.lstat(name, dir_fd=fd)
            if stat.S_ISDIR(status.st_mode):
                raise
            what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no directory"
            raise _stranger(path, what) from error
        status = os.fstat(inner)
        if not _is_friend(status, above):
            os.close(inner)
            raise _stranger(path, "somebody else's")
        if is_new:
            shared = _shared(os.path.join(self._top, "objects" if self._names[0] == RUNS else ".git/objects"))
            is_secret = any(each in _SECRET for each in path[len(self._top) :].split(os.sep))
            os.fchmod(inner, (0o700 if is_secret else status.st_mode & 0o7777) | shared)
        return inner

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        held = os.fstat(self._fd)
        os.close(self._fd)
        if kind is None and not _is_same(held, self._top, self._names):
            raise WorktreeError(f"{self.path} was replaced while it was in use", hint="see who did that, and what lies there now")


def _is_made(name: str, fd: int) -> bool:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        return False
    return True


def _shared(objects: str) -> int:
    # Mode bits by which git shares the repository with a group, 0 if it does not.
    try:
        mode = os.stat(objects).st_mode
    except OSError:
        return 0
    return mode & 0o2070 if mode & _GROUP == _GROUP else 0


def _is_same(held: os.stat_result, top: str, names: Sequence[str]) -> bool:
    try:
        now = [os.lstat(os.path.join(top, *names[:depth])) for depth in range(1, len(names) + 1)] or [held]
    except OSError:
        return False
    return all(stat.S_ISDIR(each.st_mode) for each in now) and os.path.samestat(held, now[-1])


def way(path: str) -> tuple[str, list[str]] | None:
    """Split a path into the parent of gitckpt's directory and the components below.

    None for a place of the user's own.
    """
    for name in (PRIVATE, RUNS):
        above, found, below = path.rpartition(f"{os.sep}{name}{os.sep}")
        if found:
            return above or os.sep, [name, *filter(None, below.split(os.sep))]
    return None


def holding(path: str) -> Held:
    """Return a context that holds an existing directory; a user's may be a link."""
    return Held(*(way(path) or (path, ())))


def require(path: str) -> None:
    """Raise `WorktreeError` if a directory on the way to a path is not gitckpt's own.

    Missing directories and places of the user's own are not checked.
    """
    found = way(path)
    if found is None:
        return
    top, names = found
    for depth in range(len(names), 0, -1):
        if os.path.lexists(os.path.join(top, *names[:depth])):
            with Held(top, names[:depth]):
                return


def make(path: str) -> None:
    found = way(path)
    if found is None:
        os.makedirs(path, exist_ok=True)
        return
    top, names = found
    with Held(top, names, make=True):
        pass
    if names[0] == PRIVATE:
        ignore(os.path.join(top, PRIVATE))


def ignore(directory: str) -> None:
    """Make gitckpt's directory in a worktree ignore itself by a `.gitignore`."""
    with Held(os.path.dirname(directory), [os.path.basename(directory)]):
        path = os.path.join(directory, ".gitignore")
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            pass
        else:
            if stat.S_ISLNK(found.st_mode):
                raise _stranger(path, "a symbolic link")
            if found.st_size or not stat.S_ISREG(found.st_mode):
                return
        with open(path, "wb", opener=own_file) as file:  # missing, or empty after a full disk
            file.write(b"*\n")


def create(path: str, flags: int) -> int:
    """Open a file of gitckpt's own; an opener for `open`.

    Its mode is that of the directory, whatever the umask. Links are not followed, and a pipe in its
    place does not block.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    fd = os.open(path, flags, mode)
    status = os.fstat(fd)
    if status.st_mode & 0o777 != mode and status.st_uid == os.geteuid():
        os.fchmod(fd, mode)
    return fd


def ensure(path: str) -> None:
    """Create an empty file like `create`, or set its mode without opening it.

    Closing a file drops all POSIX locks of the process on it. With a SQLite connection open, other
    processes would take its log for one of a dead process and remove it
    (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        os.close(create(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        return
    except FileExistsError:
        status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(ELOOP if stat.S_ISLNK(status.st_mode) else EISDIR, "no file", path)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    if status.st_mode & 0o777 != mode and status.st_uid == os.geteuid():
        os.chmod(path, mode)


def own_file(path: str, flags: int) -> int:
    """Open like `create` a file of the user's: the umask decides on the mode."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def remove(path: str) -> None:
    """Delete a directory with its contents, unless something is mounted there.

    Links are not followed; read-only directories are deleted, too. A fetched tree may be deeper
    than Python's recursion limit and the number of descriptors, so subdirectories are moved up one
    level at a time. The OSError EBUSY names a mount point.
    """
    from gitckpt.git.files import mounts  # the hook does not need it

    mounted = mounts.below(path)
    if mounted:
        raise OSError(EBUSY, MOUNTED, mounted[0])
    above = os.open(os.path.dirname(path) or ".", _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        mount = mounts.mount_of(above)
        top = _entered(path, None, mount)
    finally:
        os.close(above)
    try:
        token, count = os.urandom(4).hex(), 0
        while names := _names(top):
            for name in _without_files(top, names):
                inner = _entered(name, top, mount)
                try:
                    for below in _without_files(inner, _names(inner)):
                        count += 1
                        os.close(_entered(below, inner, mount))  # a read-only directory cannot be moved
                        os.rename(below, f".{token}-{count}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def discard(path: str) -> None:
    """Delete a directory as far as possible; a later cleanup removes the rest."""
    try:
        remove(path)
    except OSError:
        return


def _names(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _without_files(fd: int, names: list[tuple[str, bool]]) -> list[str]:
    for name, is_directory in names:
        if not is_directory:
            os.unlink(name, dir_fd=fd)
    return [name for name, is_directory in names if is_directory]


def _entered(name: str, fd: int | None, mount: str) -> int:
    try:
        entered = os.open(name, _DIRECTORY, dir_fd=fd)
    except PermissionError:
        _open_up(name, fd, mount)
        entered = os.open(name, _DIRECTORY, dir_fd=fd)
    try:
        _require_mount(entered, mount, name)
        if os.fstat(entered).st_mode & 0o700 != 0o700:
            os.fchmod(entered, 0o700)
    except BaseException:
        os.close(entered)
        raise
    return entered


def _require_mount(fd: int, mount: str, name: str) -> None:
    from gitckpt.git.files import mounts

    if mounts.mount_of(fd) != mount:
        raise OSError(EBUSY, MOUNTED, name)


def _open_up(name: str, fd: int | None, mount: str) -> None:
    # For directories without read permission; never changes the target of a link.
    opened = os.open(name, getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        _require_mount(opened, mount, name)
        os.chmod(f"/proc/self/fd/{opened}" if sys.platform == "linux" else opened, 0o700)
    finally:
        os.close(opened)


def content(path: str, most: int) -> bytes:
    """Return the content of a worktree file that gitckpt obeys, such as the settings."""
    if os.path.islink(path):
        raise _stranger(path, "a symbolic link")
    from gitckpt.git.files import regular  # the hook does not need it

    return regular.content(path, most, follow=False)


def private(directory: str, common_dir: str, *, make: bool) -> None:
    """Check gitckpt's private directory: owner, and mode as the repository is shared."""
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        if not make:
            return
        found = _made(directory)
    if stat.S_ISLNK(found.st_mode):
        raise _stranger(directory, "a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        if make:
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), directory)
        return
    if make:
        mode = (found.st_mode & 0o700) | _shared(os.path.join(common_dir, "objects"))  # keep a user's read-only mode
        if found.st_mode & 0o7777 != mode and found.st_uid == os.geteuid():
            _share(directory, mode, os.stat(common_dir).st_gid)
    if not _is_ours(found) and not _is_friend(found, os.stat(common_dir)):  # on the path of each record
        raise _stranger(directory, "somebody else's")


def _made(directory: str) -> os.stat_result:
    # Another process may delete the directory at any time.
    for _ in range(_TRIES):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass
        try:
            return os.lstat(directory)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT), directory)


def _share(directory: str, mode: int, group: int) -> None:
    try:
        if mode & 0o2000:
            os.chown(directory, -1, group)
        os.chmod(directory, mode)
    except OSError:
        return  # a read-only disk, or a foreign group


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def _is_friend(found: os.stat_result, above: os.stat_result) -> bool:
    # git has checked the owner of the directory above.
    if _is_ours(found) or found.st_uid == above.st_uid:
        return True
    return above.st_mode & _GROUP == _GROUP and found.st_gid == above.st_gid


def _stranger(path: str, what: str) -> WorktreeError:
    from gitckpt.model.arguments import shell_word

    hint = f"see what it is, then move it out of the way: ls -ld {shell_word(path)}"
    return WorktreeError(f"{path} is {what}, and not used", hint=hint)
