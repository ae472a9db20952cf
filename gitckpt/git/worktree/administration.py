"""Read and change the administrative directories of linked worktrees.

Each change holds the lock `lock_worktrees`. git takes no lock: a command that reads all worktrees
fails while another process adds or removes one, one time in ten when eight runs start at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable

from gitckpt.git import config, fsync
from gitckpt.git.command import config_options
from gitckpt.git.files import mounts, private_dirs, regular
from gitckpt.git.filesystem import names_in, read_or_empty
from gitckpt.git.lock import FileLock
from gitckpt.git.process import GitError, ProcResult
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import BusyError, WorktreeError

# Errors of git on an index, and the detection of a deleted index, on which git reports none.

TRIES = 5  # how often git is called to read files that change meanwhile

_CHANGED = ("unstable object source data", "short read while indexing", "failed to read ")
# `signal` takes as long to import as all else that a capture imports.
_SIGBUS = 10 if sys.platform == "darwin" else 7

_CORRUPT = (
    *("index file", "bad index", "bad signature", "sharedindex", "shared index"),
    *("index entry", "index version", "index uses"),
)
_FAILING, _FAILED = "clean filter '", "' failed"
_PROCESS = r"^filter\..*\.process$"
_HUNG_UP = "the remote end hung up unexpectedly"


def has_file_changed(error: GitError) -> bool:
    # SIGBUS: the file was truncated while git had it mapped.
    return error.code == -_SIGBUS or any(words in error.stderr for words in _CHANGED)


def is_index_corrupt(error: GitError) -> bool:
    return any(words in error.stderr for words in _CORRUPT)


def has_hung_up(error: GitError) -> bool:
    """Return whether git died because a filter process did not start."""
    return _HUNG_UP in error.stderr


def find_failing_filters(repository: Repository, error: GitError) -> set[str]:
    lines = error.stderr.splitlines()
    names = {line.partition(_FAILING)[2].rpartition(_FAILED)[0] for line in lines} - {""}
    return names or (list_process_filters(repository) if has_hung_up(error) else set())


def list_process_filters(repository: Repository) -> set[str]:
    keys = config.read_settings(repository, _PROCESS)
    return {key.removeprefix("filter.").removesuffix(".process") for key in keys}


def disable_filters(names: Iterable[str]) -> list[str]:
    keys = ("clean=", "smudge=", "process=", "required=false")
    settings = (f"filter.{name}.{key}" for name in sorted(names) for key in keys)
    return list(config_options(*settings))


class IndexGone(BusyError):
    """A private index was deleted while git worked on it."""


class IndexDeletionWatch:
    """Detect that another process deletes a private index while git works on it."""

    # git takes a missing index for an empty one: a tree of it would lack all files.

    def __init__(self, path: str) -> None:
        self._path, self._directory = path, os.path.dirname(path)
        self._fd = -1
        self._exists = False

    def __enter__(self) -> None:
        self._require_index_kept()

    def __exit__(self, _: object, error: object, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            self._require_index_kept()

    def begin_watching(self) -> None:
        self.end_watching()
        try:
            self._fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self.index_deletion_error() from None

    def end_watching(self) -> None:
        self._exists = False
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _require_index_kept(self) -> None:
        exists = os.path.exists(self._path)
        try:
            is_same = self._fd < 0 or os.path.samestat(os.fstat(self._fd), os.stat(self._directory))
        except FileNotFoundError:
            is_same = False
        if (self._exists and not exists) or not is_same:
            raise self.index_deletion_error()
        self._exists = exists

    def index_deletion_error(self) -> IndexGone:
        message = f"{self._directory} was deleted while git read the files"
        return IndexGone(message, hint="run the command again")


# Administrative directories of linked worktrees, and the main worktree.

COMMONDIR = "commondir"  # in the administrative directory: names the repository

_LOCK = "worktrees.lock"
_PATIENCE = 10.0  # the lock only makes git succeed more often: after that, go on without
_TRIES = 20
_RECENTLY = 1.0  # seconds: worktrees changed since then may still be changing
_PAUSE = 0.02  # seconds

# Prefix of temporary files, in the administrative directory, that become `gitdir`.
SCRATCH = "ckpt-gitdir"

# The same for files of the worktree: in the worktree, the next capture would take the leftover of a
# kill for a file of the user.
WORKTREE_SCRATCH = "ckpt-file"


def run_git(repository: Repository, *arguments: str, options: tuple[str, ...] = ()) -> ProcResult:
    """Run `git worktree` under the lock; retry while other processes change worktrees."""
    with lock_worktrees(repository):
        for _ in range(_TRIES - 1):
            try:
                return repository.git.run(*options, "worktree", *arguments)
            except GitError as error:
                if error.code < 0 or not _are_worktrees_changing(repository):
                    raise
            time.sleep(_PAUSE)
        return repository.git.run(*options, "worktree", *arguments)


def remove_git_dir(repository: Repository, git_dir: str) -> None:
    # `git worktree remove --force --force` would also delete mounts in it.
    with lock_worktrees(repository):
        try:
            private_dirs.delete_directory(git_dir)
        except FileNotFoundError:
            return
        except OSError as error:
            hint = (
                mounts.describe_mounts(git_dir)
                or f"look at the directory: ls -la {shell_quoted(git_dir)}"
            )
            message = f"cannot delete {git_dir}: {error.filename}: {error.strerror}"
            raise WorktreeError(message, hint=hint) from None
        with contextlib.suppress(OSError):
            os.rmdir(worktrees_dir(repository))  # as git does: only where it is empty


def repair_worktree(repository: Repository, path: str) -> None:
    # In a copy of a repository, `git worktree repair` would take all worktrees of the original.
    with lock_worktrees(repository):
        old_git_dir = git_dir_of(path)
        git_dir = os.path.join(worktrees_dir(repository), os.path.basename(old_git_dir or ""))
        lacks_commondir_file = lacks_commondir(repository, git_dir)
        if _is_linked_worktree(repository, path) and not lacks_commondir_file:
            return
        words = ["worktree", "repair", path]
        if old_git_dir is None or not os.path.isdir(git_dir):
            raise GitError(words, 1, f"{path}: git has no worktree of that name")
        dot_git = os.path.join(os.path.realpath(path), ".git")
        try:
            if lacks_commondir_file:
                regular.write(os.path.join(git_dir, COMMONDIR), b"../..\n")
            if not owns_git_dir(repository, old_git_dir):
                _point_dot_git_to(dot_git, os.path.realpath(git_dir))
            # In a place that maintenance cleans after a kill: this file is rarely written again.
            target, scratch = os.path.join(git_dir, "gitdir"), os.path.join(git_dir, SCRATCH)
            regular.write_private_file(
                target, os.fsencode(f"{dot_git}\n"), flushed=True, scratch=scratch
            )
            fsync.flush([git_dir])
        except OSError as error:
            reason = f"{error.filename or path}: {error.strerror}"
            raise GitError(words, 1, reason) from None


def _point_dot_git_to(dot_git: str, git_dir: str) -> None:
    # git-annex makes `.git` a link.
    scratch = os.path.join(git_dir, WORKTREE_SCRATCH)
    if os.path.islink(dot_git) and os.lstat(dot_git).st_dev == os.lstat(git_dir).st_dev:
        link = f"{scratch}.{os.getpid()}.{os.urandom(4).hex()}"
        os.symlink(os.path.relpath(git_dir, os.path.dirname(dot_git)), link)
        os.replace(link, dot_git)
    else:
        regular.write(dot_git, b"gitdir: %s\n" % os.fsencode(git_dir), scratch=scratch)


def _is_linked_worktree(repository: Repository, path: str) -> bool:
    git_dir = git_dir_of(path)
    if git_dir is None or not owns_git_dir(repository, git_dir):
        return False
    dot_git = read_line(os.path.join(git_dir, "gitdir"))
    return bool(dot_git) and _is_same(os.path.join(git_dir, dot_git), os.path.join(path, ".git"))


def _is_same(first: str, second: str) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def lock_worktrees(repository: Repository) -> FileLock:
    return FileLock(os.path.join(repository.make_private_dir(), _LOCK), _PATIENCE)


def _are_worktrees_changing(repository: Repository) -> bool:
    directories = (worktrees_dir(repository), *list_git_dirs(repository))
    try:
        return any(os.stat(path).st_mtime > time.time() - _RECENTLY for path in directories)
    except FileNotFoundError:
        return True  # removed since it was listed


def main_worktree(repository: Repository) -> str | None:
    # Determined once: it does not change while a repository is open.
    if repository.main is None:
        repository.main = (_find_main_worktree(repository),)
    return repository.main[0]


def _find_main_worktree(repository: Repository) -> str | None:
    settings = config.read_settings(repository, r"^core\.(bare|worktree)$")
    if "core.worktree" in settings:
        return os.path.normpath(os.path.join(repository.common_dir, settings["core.worktree"][-1]))
    if config.is_true(settings.get("core.bare", ["false"])[-1]):
        return None
    if not repository.is_linked and repository.worktree is not None:
        return repository.worktree
    parent, name = os.path.split(repository.common_dir)
    return parent if name == ".git" else None


def write_worktree_file(repository: Repository, path: str, data: bytes) -> None:
    regular.write(path, data, scratch=os.path.join(repository.git_dir, WORKTREE_SCRATCH))


def open_linked_worktree(repository: Repository, path: str) -> Repository | None:
    git_dir = git_dir_of(path)
    if git_dir is None or not owns_git_dir(repository, git_dir) or not os.path.isdir(git_dir):
        return None
    worktree = Repository(git_dir, path, repository.object_format)
    worktree.progress = repository.progress
    return worktree


def git_dir_of(path: str) -> str | None:
    """Return the git directory that a worktree's `.git` names, even if it is missing."""
    dot_git = os.path.join(path, ".git")
    if os.path.islink(dot_git):  # made by git-annex
        return os.path.normpath(os.path.join(path, os.readlink(dot_git)))
    git_dir = read_line(dot_git).removeprefix("gitdir: ")
    return os.path.normpath(os.path.join(path, git_dir)) if git_dir else None


def flush_worktree(repository: Repository, path: str) -> None:
    git_dir = git_dir_of(path)
    if git_dir is None:
        return
    paths = []
    # Operations in progress and reftables have subdirectories.
    for directory, names, file_names in os.walk(git_dir):
        # Submodules are not flushed, as files are not.
        names[:] = [name for name in names if name != "modules"]
        # Git's fsmonitor daemon has a socket there.
        files = [os.path.join(directory, name) for name in file_names]
        paths += [file for file in files if os.path.isfile(file) and not os.path.islink(file)]
        paths.append(directory)
    parents = [worktrees_dir(repository), repository.common_dir, path, os.path.dirname(path)]
    fsync.flush([*paths, os.path.join(path, ".git"), *parents])


def owns_git_dir(repository: Repository, git_dir: str) -> bool:
    return _is_same(os.path.dirname(git_dir), worktrees_dir(repository))


def find_foreign_repository(repository: Repository, path: str) -> str | None:
    git_dir = git_dir_of(path)
    if git_dir is None or owns_git_dir(repository, git_dir):
        return None
    exists = os.path.isfile(os.path.join(git_dir, COMMONDIR))
    return os.path.dirname(os.path.dirname(git_dir)) if exists else None


def worktrees_dir(repository: Repository) -> str:
    return os.path.join(repository.common_dir, "worktrees")


def read_lock_reason(git_dir: str) -> str | None:
    """Return why a worktree is locked ("" without a reason); None if it is not locked."""
    path = os.path.join(git_dir, "locked")
    return read_line(path) if os.path.exists(path) else None


def lacks_commondir(repository: Repository, git_dir: str) -> bool:
    # git writes it before HEAD, and refuses to do anything without it.
    common_dir = read_line(os.path.join(git_dir, COMMONDIR))
    is_correct = common_dir and _is_same(os.path.join(git_dir, common_dir), repository.common_dir)
    return not is_correct and os.path.lexists(os.path.join(git_dir, "HEAD"))


def lacks_valid_head(git_dir: str) -> bool:
    if has_no_head(git_dir):
        return True
    path = os.path.join(git_dir, "HEAD")
    head = read_line(path)
    is_valid = head.startswith("ref: refs/") or ids.is_oid(head)
    return not is_valid and os.path.isfile(path) and not os.path.islink(path)


def has_no_head(git_dir: str) -> bool:
    # git writes HEAD before the index.
    return os.path.exists(f"{git_dir}/index") and not os.path.lexists(f"{git_dir}/HEAD")


def write_head(repository: Repository, git_dir: str, value: str) -> None:
    """Write the missing HEAD of a worktree; `value` is an oid, or "ref: " and a ref."""
    path = os.path.join(git_dir, "HEAD")
    if repository.has_reftable:  # this file is a stub
        value = "ref: refs/heads/.invalid"
    try:
        with open(f"{path}.lock", "xb", opener=private_dirs.open_private_file) as file:
            file.write(os.fsencode(f"{value}\n"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.lock", path)
    except OSError as error:
        hint = "find the obstacle: git ckpt doctor"
        raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
    fsync.flush([git_dir])


def list_worktrees(repository: Repository) -> list[tuple[str, str]]:
    return [
        (git_dir, os.path.dirname(os.path.normpath(os.path.join(git_dir, dot_git))))
        for git_dir in list_git_dirs(repository)
        if (dot_git := read_line(os.path.join(git_dir, "gitdir")))
    ]


def list_unfinished_dirs(repository: Repository) -> list[str]:
    return [git_dir for git_dir in list_git_dirs(repository) if not read_line(f"{git_dir}/gitdir")]


def list_git_dirs(repository: Repository) -> list[str]:
    directory = worktrees_dir(repository)
    return [os.path.join(directory, name) for name in names_in(directory)]


def find_moved(repository: Repository, git_dir: str, path: str, *parents: str) -> str | None:
    """Search for the worktree of `git_dir`, moved away from `path`; None if not found."""
    top = main_worktree(repository)
    directories_near_main = [top, os.path.dirname(top)] if top is not None else []
    for parent in (os.path.dirname(path), *parents, *directories_near_main):
        for candidate in (os.path.join(parent, name) for name in names_in(parent)):
            if _is_same(git_dir_of(candidate) or "/", git_dir):
                return candidate
    return None


def may_have_moved_along(repository: Repository, git_dir: str, path: str) -> bool:
    return any(
        _has_lost_git_dir(place, git_dir) for place, _ in _list_moves(repository, git_dir, path)
    )


def find_worktree_left_behind(repository: Repository, git_dir: str, path: str) -> str | None:
    """Find the worktree of a moved repository; both may have been moved together."""
    if _has_lost_git_dir(path, git_dir):
        return path
    for candidate, old_git_dir in _list_moves(repository, git_dir, path):
        if git_dir_of(candidate) == old_git_dir and not os.path.isdir(old_git_dir):
            return candidate
    return None


def _has_lost_git_dir(path: str, git_dir: str) -> bool:
    old_git_dir = git_dir_of(path) or "/"
    is_same_name = os.path.basename(old_git_dir) == os.path.basename(git_dir)
    return is_same_name and not os.path.isdir(old_git_dir)


def _list_moves(repository: Repository, git_dir: str, path: str) -> list[tuple[str, str]]:
    # Possible paths after the move, each with the git directory before it.
    top = main_worktree(repository) or repository.common_dir
    parts = path.split(os.sep)
    return [
        (
            os.path.join(new_base, *parts[depth:]),
            os.path.normpath(f"{os.sep.join(parts[:depth])}/{os.path.relpath(git_dir, new_base)}"),
        )
        for new_base in (top, os.path.dirname(top))
        for depth in range(1, len(parts))
    ]


def read_line(path: str) -> str:
    """Return the only line of a file; "" if the file is missing or has NUL bytes."""
    data = read_or_empty(path).removesuffix(b"\n")
    return "" if b"\0" in data else os.fsdecode(data)
