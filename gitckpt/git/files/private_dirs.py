"""Use gitckpt's private directories without following links. Imported by the hook."""

from __future__ import annotations

import os
import stat
import sys
from errno import EBUSY, EISDIR, ELOOP, ENOENT, ENOTDIR

from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PRIVATE = ".ckpt"  # at the top of the main worktree; its .gitignore hides it
RUNS = "ckpt-runs"  # the same in a bare repository
MOUNTED = "something is mounted there"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 10
# Mode of directories under core.sharedRepository: group-writable, and inherited by new files.
_GROUP = 0o2020
_PRIVATE_NAMES = ("runs", RUNS)  # directories with copied inputs: private whatever the umask


class OpenPrivateDir:
    """Hold a directory open while its path is used, and check that it is not replaced.

    Raises `WorktreeError` if a component of `names`, below the user's directory `top`, is a
    symbolic link, not a directory, or owned by another user.
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
            parent_status = os.fstat(fd)
            for depth, name in enumerate(self._names, 1):
                inner_fd = self._enter_component(
                    fd, name, os.path.join(self._top, *self._names[:depth]), parent_status
                )
                os.close(fd)
                fd = inner_fd
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return self.path

    def _enter_component(self, fd: int, name: str, path: str, parent_status: os.stat_result) -> int:
        is_new = self._make and _make_subdirectory(name, fd)
        try:
            inner_fd = os.open(name, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            status = os.lstat(name, dir_fd=fd)
            if stat.S_ISDIR(status.st_mode):
                raise
            problem = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a directory"
            raise _ownership_error(path, problem) from error
        status = os.fstat(inner_fd)
        if not _is_trusted_owner(status, parent_status):
            os.close(inner_fd)
            raise _ownership_error(path, "another user's")
        if is_new:
            git_dir = "" if self._names[0] == RUNS else ".git"
            shared_bits = _find_group_mode(os.path.join(self._top, git_dir, "objects"))
            is_secret = any(part in _PRIVATE_NAMES for part in path[len(self._top) :].split(os.sep))
            os.fchmod(inner_fd, (0o700 if is_secret else status.st_mode & 0o7777) | shared_bits)
        return inner_fd

    def __exit__(self, kind: object, *_: object) -> None:
        status = os.fstat(self._fd)
        os.close(self._fd)
        if kind is None and not _is_same_directory(status, self._top, self._names):
            message = f"{self.path} was replaced while it was in use"
            raise WorktreeError(message, hint="see which program did so, and what lies there now")


def _make_subdirectory(name: str, fd: int) -> bool:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        return False
    return True


def _find_group_mode(objects: str) -> int:
    # Mode bits by which git shares the repository with a group, 0 if it does not.
    try:
        mode = os.stat(objects).st_mode
    except OSError:
        return 0
    return mode & 0o2070 if mode & _GROUP == _GROUP else 0


def _is_same_directory(old_stat: os.stat_result, top: str, names: Sequence[str]) -> bool:
    depths = range(1, len(names) + 1)
    try:
        statuses = [os.lstat(os.path.join(top, *names[:depth])) for depth in depths] or [old_stat]
    except OSError:
        return False
    are_directories = all(stat.S_ISDIR(status.st_mode) for status in statuses)
    return are_directories and os.path.samestat(old_stat, statuses[-1])


def split_private_path(path: str) -> tuple[str, list[str]] | None:
    for name in (PRIVATE, RUNS):
        parent, separator, subpath = path.rpartition(f"{os.sep}{name}{os.sep}")
        if separator:
            return parent or os.sep, [name, *filter(None, subpath.split(os.sep))]
    return None


def hold_directory_open(path: str) -> OpenPrivateDir:
    return OpenPrivateDir(*(split_private_path(path) or (path, ())))


def require_own_directory(path: str) -> None:
    """Raise `WorktreeError` if a private directory is a link or another user's."""
    top, names = split_private_path(path) or ("", [])
    for depth in range(len(names), 0, -1):
        if os.path.lexists(os.path.join(top, *names[:depth])):
            with OpenPrivateDir(top, names[:depth]):
                return


def make_private_directory(path: str) -> None:
    top, names = split_private_path(path) or (path, [])
    if not names:
        os.makedirs(path, exist_ok=True)
        return
    with OpenPrivateDir(top, names, make=True):
        pass
    if names[0] == PRIVATE:
        write_gitignore(os.path.join(top, PRIVATE))


def write_gitignore(directory: str) -> None:
    with OpenPrivateDir(os.path.dirname(directory), [os.path.basename(directory)]):
        path = os.path.join(directory, ".gitignore")
        if os.path.lexists(path):
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                raise _ownership_error(path, "a symbolic link")
            if status.st_size or not stat.S_ISREG(status.st_mode):
                return
        with open(path, "wb", opener=open_without_links) as file:  # missing or empty
            file.write(b"*\n")


def open_private_file(path: str, flags: int) -> int:
    """Open a private file; a new one gets the read and write bits of its directory."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    fd = os.open(path, flags, mode)
    status = os.fstat(fd)
    if status.st_mode & 0o777 != mode and status.st_uid == os.geteuid():
        os.fchmod(fd, mode)
    return fd


def read_private_file(path: str, last: int | None = None) -> bytes:
    """Return the content of a private file, or its `last` bytes; b"" if unreadable."""
    try:
        with open(path, "rb", buffering=0, opener=open_private_file) as file:
            if last is not None:
                file.seek(max(file.seek(0, os.SEEK_END) - last, 0))
            return file.read() or b""
    except OSError:
        return b""


def append_to_private_file(path: str, data: bytes, *, flushed: bool = False) -> None:
    """Append to a private file in one write; empty `data` only creates the file."""
    with open(path, "ab", buffering=0, opener=open_private_file) as file:
        file.write(data)
        if flushed:
            os.fsync(file.fileno())


def ensure_file(path: str) -> None:
    """Create an empty file, or set the mode of an existing one without opening it.

    To open and close the file would drop the locks that SQLite holds on it.
    """
    try:
        os.close(open_private_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        return
    except FileExistsError:
        status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(ELOOP if stat.S_ISLNK(status.st_mode) else EISDIR, "not a regular file", path)
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    if status.st_mode & 0o777 != mode and status.st_uid == os.geteuid():
        os.chmod(path, mode)


def open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def delete_directory(path: str) -> None:
    """Delete a directory with its contents; raise OSError if it contains a mount."""
    from gitckpt.git.files import mounts  # the hook does not need it

    if mount_points := mounts.list_mounts(path):
        raise OSError(EBUSY, MOUNTED, mount_points[0])
    parent_fd = os.open(os.path.dirname(path) or ".", _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        mount_id = mounts.read_mount_id(parent_fd)
        top = _enter_directory(path, None, mount_id)
    finally:
        os.close(parent_fd)
    try:
        token, count = os.urandom(4).hex(), 0
        while os.listdir(top):
            for name in _remove_files(top):
                inner_fd = _enter_directory(name, top, mount_id)
                try:
                    for subdir in _remove_files(inner_fd):
                        count += 1
                        # A read-only directory cannot be moved.
                        os.close(_enter_directory(subdir, inner_fd, mount_id))
                        os.rename(subdir, f".{token}-{count}", src_dir_fd=inner_fd, dst_dir_fd=top)
                finally:
                    os.close(inner_fd)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def discard_directory(path: str) -> None:
    """Delete as much of a directory as possible; a later cleanup deletes the rest."""
    try:
        delete_directory(path)
    except OSError:
        return


def _remove_files(fd: int) -> list[str]:
    # Returns the directories beside them.
    with os.scandir(fd) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if not is_directory:
            os.unlink(name, dir_fd=fd)
    return [name for name, is_directory in names if is_directory]


def _enter_directory(name: str, fd: int | None, mount_id: str) -> int:
    try:
        entered_fd = os.open(name, _DIRECTORY, dir_fd=fd)
    except PermissionError:
        _make_readable(name, fd, mount_id)
        entered_fd = os.open(name, _DIRECTORY, dir_fd=fd)
    try:
        _require_same_mount(entered_fd, mount_id, name)
        if os.fstat(entered_fd).st_mode & 0o700 != 0o700:
            os.fchmod(entered_fd, 0o700)
    except BaseException:
        os.close(entered_fd)
        raise
    return entered_fd


def _require_same_mount(fd: int, mount_id: str, name: str) -> None:
    from gitckpt.git.files import mounts

    if mounts.read_mount_id(fd) != mount_id:
        raise OSError(EBUSY, MOUNTED, name)


def _make_readable(name: str, fd: int | None, mount_id: str) -> None:
    # For directories without read permission; never changes the target of a link.
    flags = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened_fd = os.open(name, flags, dir_fd=fd)
    try:
        _require_same_mount(opened_fd, mount_id, name)
        os.chmod(f"/proc/self/fd/{opened_fd}" if sys.platform == "linux" else opened_fd, 0o700)
    finally:
        os.close(opened_fd)


def read_file_unless_link(path: str, max_size: int) -> bytes:
    if os.path.islink(path):
        raise _ownership_error(path, "a symbolic link")
    from gitckpt.git.files import regular  # the hook does not need it

    return regular.read_content(path, max_size, follow=False)


def check_private(directory: str, common_dir: str, *, make: bool) -> str:
    """Return `directory` after checking its owner; create it if `make` is set."""
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        if not make:
            return directory
        status = _make_owner_only_directory(directory)
    if stat.S_ISLNK(status.st_mode):
        raise _ownership_error(directory, "a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        if make:
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), directory)
        return directory
    if make:
        # Keep a user's read-only mode.
        mode = (status.st_mode & 0o700) | _find_group_mode(os.path.join(common_dir, "objects"))
        if status.st_mode & 0o7777 != mode and status.st_uid == os.geteuid():
            _set_directory_mode(directory, mode, os.stat(common_dir).st_gid)
    # On the path of each record.
    if not _is_owned_by_self_or_root(status) and not _is_trusted_owner(status, os.stat(common_dir)):
        raise _ownership_error(directory, "another user's")
    return directory


def _make_owner_only_directory(directory: str) -> os.stat_result:
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


def _set_directory_mode(directory: str, mode: int, group: int) -> None:
    try:
        if mode & 0o2000:
            os.chown(directory, -1, group)
        os.chmod(directory, mode)
    except OSError:
        return  # a read-only disk, or a foreign group


def _is_owned_by_self_or_root(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0)


def _is_trusted_owner(status: os.stat_result, parent_status: os.stat_result) -> bool:
    # git has checked the owner of the directory above.
    if _is_owned_by_self_or_root(status) or status.st_uid == parent_status.st_uid:
        return True
    return parent_status.st_mode & _GROUP == _GROUP and status.st_gid == parent_status.st_gid


def _ownership_error(path: str, problem: str) -> WorktreeError:
    from gitckpt.model.arguments import shell_quoted

    hint = f"look at this path, then move it out of the way: ls -ld {shell_quoted(path)}"
    return WorktreeError(f"{path} is {problem}, so gitckpt does not use it", hint=hint)
