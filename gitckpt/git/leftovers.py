"""Find and delete locks and half-written objects that a killed git leaves behind.

git closes the lock file of a ref long before renaming it, so a lock that no process has open may
be in use. A lock is stale if all running git processes of the repository started after it was
made; a half-written object is stale after a day.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files import private_dirs
from gitckpt.git.filesystem import read_or_empty
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gitckpt.git.repository import Repository

# Seconds: a younger lock is in use. git itself waits this long for a lock.
QUIET = 2.0
# Seconds: `git repack` leaves a finished pack alone for hours, until it has written the last one.
OBJECTS_QUIET = 24 * 3600.0
# Prefixes of temporary files that git and `pack.write` rename when finished.
_TEMPORARY = (
    *("tmp_obj_", "tmp_pack_", "tmp_idx_", "tmp_rev_", "tmp_mtimes_", "tmp_bitmap_"),
    *("tmp_midx_", "tmp_graph_", "tmp_ckpt_"),
)
_TEMPORARY_ABOVE = ("tmp_objdir-", "tmp_obj_", "bulk_fsync_")  # in `objects` itself
_OBJECT_DIRS = ("pack", "info", "info/commit-graphs", "pack/multi-pack-index.d")
_GRAIN = 0.1  # seconds: precision of process starts and file times
# Commands that stay open, as in a pager, and lock no ref.
_READERS = frozenset((b"blame", b"diff", b"fsmonitor--daemon", b"grep", b"log", b"show"))
_REPOSITORY_WORDS = (b"GIT_DIR=", b"GIT_COMMON_DIR=", b"--git-dir=")
# gitckpt's own ref writers: they run under the writer lock, which `locks` holds.
_OWN_WRITER = frozenset((b"core.logAllRefUpdates=false", b"update-ref", b"--stdin"))


@dataclass(slots=True)
class FileFingerprint:
    """The stat data of a file, which shows later whether the file was changed."""

    inode: int
    changed: float
    size: int
    owner: int = field(compare=False)


def read_fingerprint(path: str) -> FileFingerprint | None:
    """Return the stat data of a path; that of a directory has its newest file's time."""
    try:
        status = os.lstat(path)
        latest_change = max(os.lstat(inner).st_mtime for inner in (path, *_list_below(path)))
    except OSError:
        return None
    return FileFingerprint(status.st_ino, latest_change, status.st_size, status.st_uid)


def _list_below(path: str) -> Iterator[str]:
    if os.path.isdir(path) and not os.path.islink(path):
        for parent, names, files in os.walk(path):
            yield from (os.path.join(parent, name) for name in (*names, *files))


def list_lock_files(repository: Repository) -> list[str]:
    # `packed-refs.new` counts: git creates it under the lock, and no other while it exists.
    from gitckpt.git.worktree import administration

    common_dir = repository.common_dir
    tops = [common_dir, *(git_dir for git_dir, _ in administration.list_worktrees(repository))]
    subdirectories = ("objects/info", "objects/info/commit-graphs", "objects/pack", "reftable")
    directories = [*tops, *(os.path.join(common_dir, name) for name in subdirectories)]
    directories += [parent for top in tops for parent, _, _ in os.walk(os.path.join(top, "refs"))]
    paths = [os.path.join(folder, name) for folder in directories for name in _list_names(folder)]
    return [path for path in paths if path.endswith((".lock", "/packed-refs.new"))]


def find_stale_locks(repository: Repository, paths: Iterable[str]) -> dict[str, FileFingerprint]:
    """Return which lock files no running git can hold; an empty dict without /proc."""
    old_marks = find_old_files(QUIET, paths)
    if not old_marks or not os.path.exists("/proc/self/stat"):
        return {}
    writers = list(_find_writing_processes(repository))
    own_uid = os.geteuid()

    def is_in_use(lock: FileFingerprint) -> bool:
        latest = lock.changed + _GRAIN
        return any(owner == lock.owner and start_time <= latest for owner, start_time in writers)

    # Only root sees the directories of other users' processes.
    visible_marks = {path: lock for path, lock in old_marks.items() if own_uid in (0, lock.owner)}
    return {path: lock for path, lock in visible_marks.items() if not is_in_use(lock)}


def find_old_files(seconds: float, paths: Iterable[str]) -> dict[str, FileFingerprint]:
    # A time in the future counts as old: the clock was set back.
    instant = time.time()
    marks = ((path, read_fingerprint(path)) for path in paths)
    return {path: file for path, file in marks if file and abs(instant - file.changed) >= seconds}


def delete_if_unchanged(path: str, old_mark: FileFingerprint) -> bool:
    if read_fingerprint(path) != old_mark:
        return False
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            private_dirs.delete_directory(path)
        else:
            os.unlink(path)
    except OSError:
        return False
    return True


def is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def find_temporary_objects(repository: Repository) -> list[str]:
    objects_dir = os.path.join(repository.common_dir, "objects")
    names = _list_names(objects_dir)
    paths = [f"{objects_dir}/{name}" for name in names if name.startswith(_TEMPORARY_ABOVE)]
    for directory in (*(name for name in names if len(name) == 2), *_OBJECT_DIRS):
        for name in _list_names(f"{objects_dir}/{directory}"):
            # `.tmp-<pid>-pack-…`: `git repack` names packs so until all are written.
            start, _, suffix = name.partition("-")
            pid, _, pack = suffix.partition("-")
            is_of_repack = start == ".tmp" and pid.isdigit() and pack.startswith("pack-")
            if is_of_repack or name.startswith(_TEMPORARY):
                paths.append(f"{objects_dir}/{directory}/{name}")
    return paths


def find_stale_temporary_objects(repository: Repository) -> dict[str, FileFingerprint]:
    return find_old_files(OBJECTS_QUIET, find_temporary_objects(repository))


def size_of(path: str) -> int:
    return sum(os.lstat(inner_path).st_blocks * 512 for inner_path in (path, *_list_below(path)))


def _find_writing_processes(repository: Repository) -> Iterator[tuple[int, float]]:
    # Owner and start, in seconds since the epoch, of each git that may write here.
    from gitckpt.git.worktree import administration

    directories = [
        repository.common_dir,
        repository.worktree,
        administration.main_worktree(repository),
    ]
    directories += [path for _, path in administration.list_worktrees(repository)]
    top_dirs = [os.path.realpath(directory) for directory in directories if directory]
    boot_time = time.time() - float(read_or_empty("/proc/uptime").split()[0])
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    ancestors = _list_ancestor_processes()
    for pid_text in filter(str.isdigit, os.listdir("/proc")):
        name, fields = _read_process_stat(pid_text)
        is_git = name == b"git" or (name.startswith(b"git-") and name != b"git-ckpt")
        if not is_git or not fields or fields[0] in b"ZX" or pid_text in ancestors:
            continue
        words = read_or_empty(f"/proc/{pid_text}/cmdline").split(b"\0")
        is_reader = b"cat-file" in words or _READERS.issuperset(words[1:2])
        if is_reader or _OWN_WRITER.issubset(words) or _is_unrelated(pid_text, words, top_dirs):
            continue
        try:
            owner = os.stat(f"/proc/{pid_text}").st_uid
        except OSError:
            continue  # the process has ended
        yield owner, boot_time + int(fields[19]) / ticks_per_second


def _is_unrelated(pid: str, words: list[bytes], roots: list[str]) -> bool:
    try:
        directory = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False
    settings = (*words, *read_or_empty(f"/proc/{pid}/environ").split(b"\0"))
    values = [
        setting.partition(b"=")[2] for setting in settings if setting.startswith(_REPOSITORY_WORDS)
    ]
    paths = [
        directory,
        *(os.path.realpath(os.path.join(directory, os.fsdecode(path))) for path in values),
    ]
    return not any(path == top or path.startswith(top + os.sep) for path in paths for top in roots)


def _list_ancestor_processes() -> set[str]:
    # A git that waits for this process, such as the caller of the hook, holds no lock in the way.
    pids = set()
    pid = str(os.getppid())
    while pid not in ("0", "") and pid not in pids:
        pids.add(pid)
        pid = (_read_process_stat(pid)[1] or [b"", b""])[1].decode("ascii")
    return pids


def _read_process_stat(pid: str) -> tuple[bytes, list[bytes]]:
    # Name and further fields (proc(5)), state and parent first.
    head, _, fields = read_or_empty(f"/proc/{pid}/stat").rpartition(b")")
    return head.partition(b"(")[2], fields.split()


def _list_names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
