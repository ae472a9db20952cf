"""Restore what git does not store: raw bytes, empty directories and narrow modes.

A snapshot may have been fetched: restoring one follows no link, changes nothing in `.git` or in a
nested repository, and only narrows modes.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import has_no_dotdot, object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import WorktreeError

_BATCH = 100  # files whose bytes are in memory at once

MOST = 10_000  # the most directories, and the most modes, that a snapshot keeps

# The owner keeps these bits in any case: a directory without them cannot be used.
_OWNER_OF_DIRECTORY, _OWNER_OF_FILE = 0o700, 0o400

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UMASK = re.compile(rb"^Umask:\s*([0-7]+)$", re.MULTILINE)


def read_umask() -> int:
    # `os.umask` tells it only by changing it, for all threads.
    try:
        with open("/proc/self/status", "rb") as file:
            match = _UMASK.search(file.read())
    except OSError:
        match = None
    if match is not None:
        return int(match[1], 8)
    current_mask = os.umask(0o077)
    os.umask(current_mask)
    return current_mask


def narrow_mode(mode: int, mask: int) -> int | None:
    """Return the permissions in `mode` if narrower than the umask's default, or None."""
    if stat.S_ISDIR(mode):
        default_mode, owner_bits = 0o777 & ~mask, _OWNER_OF_DIRECTORY
    elif stat.S_ISREG(mode):
        default_mode, owner_bits = (0o777 if mode & 0o100 else 0o666) & ~mask, _OWNER_OF_FILE
    else:
        return None
    narrowed_mode = (mode | owner_bits) & default_mode
    return narrowed_mode if narrowed_mode != default_mode else None


def find_narrow_file_modes(top: bytes, paths: Collection[bytes]) -> dict[bytes, int]:
    modes: dict[bytes, int] = {}
    mask = read_umask() if paths else 0
    for path in paths:
        with contextlib.suppress(OSError):
            mode = narrow_mode(os.lstat(os.path.join(top, path)).st_mode, mask)
            if mode is not None:
                modes[path] = mode
    return modes


def find_narrow_directory_modes(modes: Mapping[bytes, int]) -> dict[bytes, int]:
    mask = read_umask() if modes else 0
    default_mode = 0o777 & ~mask
    narrow = {path: narrow_mode(mode, mask) for path, mode in modes.items() if default_mode & ~mode}
    return {path: mode for path, mode in narrow.items() if mode is not None}


def find_empty_directories(
    repository: Repository, top: bytes, candidates: Collection[bytes], files: str
) -> list[bytes]:
    """Return the candidates that are empty directories and not in the tree `files`."""
    directories = {path for path in candidates if path and _is_empty_dir(os.path.join(top, path))}
    if directories:
        tree_entries = list_leaves(repository, files, with_trees=True)
        directories.difference_update(path for path, _, _ in tree_entries)
    return sorted(directories)


def _is_empty_dir(path: bytes) -> bool:
    try:
        return not os.listdir(path)
    except OSError:
        return False


def is_safe_path(path: bytes) -> bool:
    """Return whether a path is in the worktree and outside `.git` in any letter case."""
    parts = path.split(b"/")
    normalized_parts = {re.sub(rb"[^!-~]", b"", part).lower().rstrip(b".") for part in parts}
    return has_no_dotdot(path) and not {b".git", b"git~1"} & normalized_parts and b"\0" not in path


def require_safe_paths(directories: Collection[bytes], modes: Collection[bytes]) -> None:
    flaw = "too many directories or modes" if max(len(directories), len(modes)) > MOST else ""
    for path in [*directories, *modes] if not flaw else ():
        if not is_safe_path(path):
            flaw = f"the path {path!r}"
    if flaw:
        message = f"the snapshot has {flaw}, and cannot be trusted"
        raise WorktreeError(message, hint="check the repository: git fsck")


def find_missing_directories(top: str, directories: Collection[bytes]) -> list[bytes]:
    root = os.fsencode(top)
    return [path for path in directories if not os.path.isdir(os.path.join(root, path))]


def find_wider_modes(top: str, modes: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return the current mode of each file that permits more than its mode in `modes`."""
    wider_by_path = {}
    for path, mode in modes.items():
        with contextlib.suppress(OSError):
            mode_now = os.lstat(os.path.join(os.fsencode(top), path)).st_mode
            if not stat.S_ISLNK(mode_now) and mode_now & 0o777 & ~_add_owner_bits(mode, mode_now):
                wider_by_path[path] = mode_now & 0o777
    return wider_by_path


def find_unrestored_paths(
    top: str, directories: Collection[bytes], modes: Mapping[bytes, int]
) -> list[bytes]:
    """Return missing directories (ending in a slash) and paths with a too wide mode."""
    too_wide_paths = [
        path for path in sorted(find_wider_modes(top, modes)) if _is_reachable(top, path)
    ]
    return [path + b"/" for path in find_missing_directories(top, directories)] + too_wide_paths


def _is_reachable(top: str, path: bytes) -> bool:
    try:
        with open_directory(top, path.split(b"/")[:-1]):
            return True
    except OSError:
        return False


def bring_back(top: str, directories: Collection[bytes], modes: Mapping[bytes, int]) -> None:
    require_safe_paths(directories, modes)
    make_directories(top, directories)
    for path, mode in sorted(modes.items(), reverse=True):
        _change_mode(top, path, mode, widens=False)


def make_directories(top: str, directories: Collection[bytes]) -> None:
    for path in sorted(directories):
        try:
            with open_directory(top, path.split(b"/"), make=True):
                pass
        except OSError as error:
            name = path.decode("utf-8", "replace")
            message = f"cannot make the directory {name}"
            hint = f"look at this path: ls -ld {shell_quoted(os.path.join(top, os.fsdecode(path)))}"
            raise WorktreeError(f"{message}: {error.strerror}", hint=hint) from None


def widen_modes(top: str, modes: Mapping[bytes, int]) -> None:
    mask = read_umask()
    for path, mode in modes.items():
        if is_safe_path(path):
            _change_mode(top, path, mode & ~mask, widens=True)


def remove_empty_directories(top: str, directories: Collection[bytes]) -> None:
    for path in sorted(filter(is_safe_path, directories), reverse=True):
        *parent_parts, name = path.split(b"/")
        with contextlib.suppress(OSError), open_directory(top, parent_parts) as fd:
            os.rmdir(name, dir_fd=fd)


def add_parent_directories(paths: Collection[bytes]) -> set[bytes]:
    directories: set[bytes] = set()
    for path in paths:
        parent = path
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition(b"/")[0]
    return directories


def _add_owner_bits(mode: int, st_mode: int) -> int:
    return mode | (_OWNER_OF_DIRECTORY if stat.S_ISDIR(st_mode) else _OWNER_OF_FILE)


@contextlib.contextmanager
def open_directory(top: str, parts: list[bytes], *, make: bool = False) -> Iterator[int]:
    """Open a directory below `top`, but not through links or nested repositories."""
    fd = os.open(top, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            inner_fd = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner_fd
            with contextlib.suppress(FileNotFoundError):
                os.lstat(b".git", dir_fd=fd)
                raise NotADirectoryError(0, "a nested repository is there")
        yield fd
    finally:
        os.close(fd)


def _change_mode(top: str, path: bytes, mode: int, *, widens: bool) -> None:
    *parent_parts, name = path.split(b"/")
    with contextlib.suppress(OSError), open_directory(top, parent_parts) as parent:
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            old = os.fstat(fd).st_mode
            max_mode = 0o777 if old & 0o100 else 0o666
            new = 0o777 & (old | (mode & max_mode) if widens else old & _add_owner_bits(mode, old))
            if new != old & 0o777 and (stat.S_ISREG(old) or stat.S_ISDIR(old)):
                os.fchmod(fd, new)
        finally:
            os.close(fd)


# Raw bytes: files without the conversions of git.


def restore_raw_bytes(repository: Repository, raw: Mapping[bytes, str]) -> None:
    all_differing_paths = sorted(find_differing_paths(repository, raw))
    for start in range(0, len(all_differing_paths), _BATCH):
        paths = all_differing_paths[start : start + _BATCH]
        blobs = repository.cat_file.read_contents([raw[path] for path in paths])
        for path, blob in zip(paths, blobs, strict=True):
            if blob is None or blob[1] != "blob":
                message = f"{raw[path]}, the content of {os.fsdecode(path)}, is missing"
                raise WorktreeError(message, hint="find the cause: git ckpt verify")
            replace_file(repository, path, blob[2])


def refresh_index_entries(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Update the stat data in the index for `paths`, which gitckpt has just written."""
    if not paths:
        return
    # The oid of entries added with --intent-to-add.
    empty_oid = object_id("blob", b"", index.repository.object_format)
    index.put_entries(
        b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path)
        for path, mode, oid, stage, tag in index.list_entries()
        if path in paths and (tag, stage) == (b"H", 0) and oid != empty_oid
    )
    index.refresh_stat_data()


def find_differing_paths(repository: Repository, raw: Mapping[bytes, str]) -> list[bytes]:
    object_format = repository.object_format
    contents = zip(raw, read_files(repository, raw), strict=True)
    files = ((path, data) for path, data in contents if data is not None)
    return [path for path, data in files if object_id("blob", data, object_format) != raw[path]]


def read_files(repository: Repository, paths: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield each file's content; None if it is unreadable or reached through a link."""
    for path in paths:
        data = None
        with contextlib.suppress(OSError), open_parent_directory(repository, path) as (fd, name):
            if stat.S_ISREG(os.lstat(name, dir_fd=fd).st_mode):
                file_fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                with open(file_fd, "rb") as file:
                    data = file.read()
        yield data


def replace_file(repository: Repository, path: bytes, data: bytes) -> bool:
    """Replace a regular file, keeping its mode; return False if it does not exist."""
    try:
        with open_parent_directory(repository, path) as (fd, name):
            status = os.lstat(name, dir_fd=fd)
            if not stat.S_ISREG(status.st_mode):
                return False
            os.unlink(name, dir_fd=fd)  # as git does: hard links keep the old content
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file_fd = os.open(name, flags, 0o600, dir_fd=fd)
            with open(file_fd, "wb") as file:
                os.fchmod(file_fd, stat.S_IMODE(status.st_mode))
                file.write(data)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise WorktreeError(f"cannot write {os.fsdecode(path)}: {error.strerror}") from None
    return True


@contextlib.contextmanager
def open_parent_directory(repository: Repository, path: bytes) -> Iterator[tuple[int, bytes]]:
    *parent_parts, name = path.split(b"/")
    if not has_no_dotdot(path):
        raise FileNotFoundError(path)
    with open_directory(repository.worktree or ".", parent_parts) as fd:
        yield fd, name
