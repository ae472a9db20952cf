"""Directories of our own, and files in them: reached by way of no link, and only where nobody else has put one. Imported by the hook.

They lie at places that a branch may have filled: a tracked symbolic link `.ckpt` would have worktrees made, and files written, wherever
it leads. So the way to them is walked directory by directory, none of which may be a link or belong to a stranger; what is done by path
all the same, as git has to, is done while the way is held, and is looked at again afterwards.
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

PRIVATE = ".ckpt"
"""The directory at the top of the main worktree that is ours; it ignores itself."""

RUNS = "ckpt-runs"
"""The one in a bare repository."""

MOUNTED = "something is mounted there"
"""What `remove` says of a mount point."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 10

_GROUP = 0o2020
"""What git gives directories under core.sharedRepository: the group may write, and what is made there belongs to it."""

_SECRET = ("runs", RUNS)
"""What inputs are copied into: nobody else reads it, whatever the umask. A worktree beside it is made as git makes one."""


class Held:
    """A directory of ours that is held while something is done in it by path; a context manager that yields the path.

    Args:
        top: the directory above, which is the user's own, and whose owner git has looked at.
        names: the way from there, a name each.
        make: whether what is missing is made, for nobody else but those with whom the repository is shared.

    Raises:
        WorktreeError: something on the way is a link, no directory, or somebody else's; on leaving, also where it is another one by now.
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
            found = os.lstat(name, dir_fd=fd)
            if stat.S_ISDIR(found.st_mode):
                raise
            what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no directory"
            raise _stranger(path, what) from error
        found = os.fstat(inner)
        if not _is_friend(found, above):
            os.close(inner)
            raise _stranger(path, "somebody else's")
        if is_new:
            shared = _shared(os.path.join(self._top, "objects" if self._names[0] == RUNS else ".git/objects"))
            is_secret = any(each in _SECRET for each in path[len(self._top) :].split(os.sep))
            os.fchmod(inner, (0o700 if is_secret else found.st_mode & 0o7777) | shared)
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
    """Returns the bits by which git shares a repository with a group, and 0 where it does not: those of its directory of objects."""
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
    """Returns the directory above that of ours in which a path lies, and the way from there; None for a place of the user's own."""
    for name in (PRIVATE, RUNS):
        above, found, below = path.rpartition(f"{os.sep}{name}{os.sep}")
        if found:
            return above or os.sep, [name, *filter(None, below.split(os.sep))]
    return None


def holding(path: str) -> Held:
    """Returns a context in which a directory is held that is there; a place of the user's own may be a link."""
    return Held(*(way(path) or (path, ())))


def require(path: str) -> None:
    """Raises `WorktreeError` where the way to a path, as far as it is there, is not ours. The user's own places are not looked at."""
    found = way(path)
    if found is None:
        return
    top, names = found
    for depth in range(len(names), 0, -1):
        if os.path.lexists(os.path.join(top, *names[:depth])):
            with Held(top, names[:depth]):
                return


def make(path: str) -> None:
    """Makes a directory with those above it.

    Raises:
        WorktreeError: as `Held`, below `.ckpt`.
        OSError: it cannot be made.
    """
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
    """Lets the directory of ours at the top of a worktree ignore itself.

    Raises:
        WorktreeError: something else is in the place of its `.gitignore`.
        OSError: that cannot be written.
    """
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
        with open(path, "wb", opener=own_file) as file:  # new, or a disk was full
            file.write(b"*\n")


def create(path: str, flags: int) -> int:
    """Returns a descriptor of a file of ours: an opener for `open`. Who may use the directory may use the file, whatever the umask.

    Args:
        path: in a directory of ours.
        flags: as for `os.open`; links are not followed, and nobody waits for a pipe that lies in its place.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    fd = os.open(path, flags, mode)
    found = os.fstat(fd)
    if found.st_mode & 0o777 != mode and found.st_uid == os.geteuid():
        os.fchmod(fd, mode)
    return fd


def ensure(path: str) -> None:
    """Makes an empty file of ours as `create` does, where there is none. One that is there gets the mode, and is not opened.

    Whoever closes a file takes from the whole process every POSIX lock on it: where a connection of SQLite to it is open, others take the
    log of that one's writes for a dead one's, and remove it (https://sqlite.org/howtocorrupt.html, section 2.2).

    Args:
        path: in a directory of ours.

    Raises:
        OSError: it is a link, or something else than a file, or cannot be made.
    """
    try:
        os.close(create(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        return
    except FileExistsError:
        found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(ELOOP if stat.S_ISLNK(found.st_mode) else EISDIR, "no file", path)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    if found.st_mode & 0o777 != mode and found.st_uid == os.geteuid():
        os.chmod(path, mode)


def own_file(path: str, flags: int) -> int:
    """As `create`, for a file of the user's: with the mode that the umask leaves."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def remove(path: str) -> None:
    """Delete a directory with all that is in it, but nothing that is mounted there.

    Links are not followed; read-only directories are deleted, too. A tree that was fetched may be deeper than Python recurses, and than
    there are descriptors: what lies in a directory is moved up to the first one, a level at a time.

    Raises:
        OSError: something cannot be deleted, or there is no such directory. EBUSY with the mount point where something is mounted: then
            nothing was deleted, unless it was mounted meanwhile.
    """
    from gitckpt.git.files import mounts  # the hook comes here without

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
                        os.close(_entered(below, inner, mount))  # what is read-only cannot be moved
                        os.rename(below, f".{token}-{count}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def discard(path: str) -> None:
    """Does as `remove`, as far as that is possible: what stays is for somebody else to sweep."""
    try:
        remove(path)
    except OSError:
        return


def _names(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _without_files(fd: int, names: list[tuple[str, bool]]) -> list[str]:
    """Deletes what is no directory; returns what is one."""
    for name, is_directory in names:
        if not is_directory:
            os.unlink(name, dir_fd=fd)
    return [name for name, is_directory in names if is_directory]


def _entered(name: str, fd: int | None, mount: str) -> int:
    """Return a descriptor of a directory that is to be deleted, with all rights to it; raise EBUSY where it is on another mount."""
    try:
        found = os.open(name, _DIRECTORY, dir_fd=fd)
    except PermissionError:
        _open_up(name, fd, mount)
        found = os.open(name, _DIRECTORY, dir_fd=fd)
    try:
        _require_mount(found, mount, name)
        if os.fstat(found).st_mode & 0o700 != 0o700:
            os.fchmod(found, 0o700)
    except BaseException:
        os.close(found)
        raise
    return found


def _require_mount(fd: int, mount: str, name: str) -> None:
    from gitckpt.git.files import mounts

    if mounts.mount_of(fd) != mount:
        raise OSError(EBUSY, MOUNTED, name)


def _open_up(name: str, fd: int | None, mount: str) -> None:
    """Gives us all rights to a directory that we may not even read; a link stays as it is, with what it leads to."""
    found = os.open(name, getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        _require_mount(found, mount, name)
        os.chmod(f"/proc/self/fd/{found}" if sys.platform == "linux" else found, 0o700)
    finally:
        os.close(found)


def content(path: str, most: int) -> bytes:
    """Returns what a file of the worktree holds that we obey, such as the settings.

    Args:
        path: of the file.
        most: of how many bytes it may be.

    Raises:
        WorktreeError: it is a link.
        OSError: it cannot be read, is larger, or is something else than a file.
    """
    if os.path.islink(path):
        raise _stranger(path, "a symbolic link")
    from gitckpt.git.files import regular  # the hook comes here without

    return regular.content(path, most, follow=False)


def private(directory: str, common_dir: str, *, make: bool) -> None:
    """Looks at the directory of ours in git's own, for which others have no rights unless the repository is shared.

    Args:
        directory: its path.
        common_dir: the directory above.
        make: whether it is made where it is missing.

    Raises:
        WorktreeError: it is a link, or somebody else's.
        OSError: it cannot be made.
    """
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
        mode = (found.st_mode & 0o700) | _shared(os.path.join(common_dir, "objects"))  # who made it read-only has meant it
        if found.st_mode & 0o7777 != mode and found.st_uid == os.geteuid():
            _share(directory, mode, os.stat(common_dir).st_gid)
    if not _is_ours(found) and not _is_friend(found, os.stat(common_dir)):  # each record comes by here again and again
        raise _stranger(directory, "somebody else's")


def _made(directory: str) -> os.stat_result:
    """Makes a directory, also while somebody deletes it, as anybody may at any time; returns what it is."""
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
        return  # on a disk that is read-only, or to a group that is not ours


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def _is_friend(found: os.stat_result, above: os.stat_result) -> bool:
    """Tells whether a directory is ours, root's, of the owner of the one above, which git has looked at, or of those it is shared with."""
    if _is_ours(found) or found.st_uid == above.st_uid:
        return True
    return above.st_mode & _GROUP == _GROUP and found.st_gid == above.st_gid


def _stranger(path: str, what: str) -> WorktreeError:
    from gitckpt.model.arguments import shell_word

    hint = f"see what it is, then move it out of the way: ls -ld {shell_word(path)}"
    return WorktreeError(f"{path} is {what}, and not used", hint=hint)
