"""Read and change the administrative directories of linked worktrees.

These directories (gitrepository-layout(5), `worktrees`) outlive worktrees that are moved or deleted
by hand. Only `call` and code that holds `turn` change them.

git takes no lock: a command that looks at all worktrees fails if another process has half made or
half removed one ("failed to read …/commondir: Success", "Invalid path …"). This happens one time in
ten when eight runs start at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import zlib

from gitckpt.git import config, fsync
from gitckpt.git.files import atomic, mounts, premises
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import Lock
from gitckpt.git.process import Completed, GitError
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import BusyError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


# Errors of git on an index, and the detection of a deleted index, on which git reports none.

# How often git is called to read files that change meanwhile.
TRIES = 5

_CHANGED = ("unstable object source data", "short read while indexing", "failed to read ")
_SIGBUS = 10 if sys.platform == "darwin" else 7  # `signal` takes as long to import as all else that a capture imports

_CORRUPT = ("index file", "bad index", "bad signature", "sharedindex", "shared index", "index entry", "index version", "index uses")
_FAILING, _FAILED = "clean filter '", "' failed"
_PROCESS = re.compile(r"^filter\.(.*)\.process$")
_HUNG_UP = "the remote end hung up unexpectedly"


def met_change(error: GitError) -> bool:
    # SIGBUS: the file was truncated while git had it mapped.
    return error.code == -_SIGBUS or any(words in error.stderr for words in _CHANGED)


def is_corrupt(error: GitError) -> bool:
    return any(words in error.stderr for words in _CORRUPT)


def has_hung_up(error: GitError) -> bool:
    """Return whether git died, naming no file, as a filter process did not start."""
    return _HUNG_UP in error.stderr


def failing_filters(repository: Repository, error: GitError) -> set[str]:
    lines = error.stderr.splitlines()
    named = {line.partition(_FAILING)[2].rpartition(_FAILED)[0] for line in lines} - {""}
    return named or (process_filters(repository) if has_hung_up(error) else set())


def process_filters(repository: Repository) -> set[str]:
    return {name[1] for key in config.read(repository, _PROCESS.pattern) if (name := _PROCESS.match(key))}


def filters_off(names: Iterable[str]) -> list[str]:
    keys = ("clean=", "smudge=", "process=", "required=false")
    return [word for name in sorted(names) for key in keys for word in ("-c", f"filter.{name}.{key}")]


class IndexGone(BusyError):
    """A private index was deleted while git worked on it."""


class IndexWatch:
    """A context for git calls that detects the deletion of a private index.

    git takes a missing index for an empty one: a tree of it would lack all files that were not read
    since. Any process may delete the directory of the index.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = -1
        self._is_there = False

    def __enter__(self) -> None:
        self._look()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, Exception):
            self._look()

    def begin(self) -> None:
        """Watch the index that is written now, in the directory that exists now."""
        self.end()
        try:
            self._place = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self.failure() from None

    def end(self) -> None:
        self._is_there = False
        place, self._place = self._place, -1
        if place >= 0:
            os.close(place)

    def _look(self) -> None:
        is_there = os.path.exists(self._path)
        if (self._is_there and not is_there) or not self._is_same_place():
            raise self.failure()
        self._is_there = is_there

    def _is_same_place(self) -> bool:
        if self._place < 0:
            return True
        try:
            return os.path.samestat(os.fstat(self._place), os.stat(os.path.dirname(self._path)))
        except FileNotFoundError:
            return False

    def failure(self) -> IndexGone:
        place = os.path.dirname(self._path)
        return IndexGone(f"{place} was deleted while the files were looked at", hint="run the command again")


# Administrative directories of linked worktrees, and the main worktree.

# In the administrative directory: names the repository.
COMMONDIR = "commondir"

_LOCK = "worktrees.lock"
_PATIENCE = 10.0  # the lock only makes git succeed more often: after that, go on without
_TRIES = 20
_MOTION = 1.0
_PAUSE = 0.02

# Prefix of temporary files, in the administrative directory, that become `gitdir`.
SCRATCH = "ckpt-gitdir"

# The same for files of the worktree: in the worktree, the next capture would take the leftover of a
# kill for a file of the user.
AWAY = "ckpt-file"


def call(repository: Repository, *arguments: str, options: tuple[str, ...] = ()) -> Completed:
    """Run `git worktree` under the lock; retry while other processes change worktrees."""
    with turn(repository):
        tries = _TRIES
        while True:
            try:
                return repository.git.run(*options, "worktree", *arguments)
            except GitError as error:
                tries -= 1
                if not tries or error.code < 0 or not _is_in_motion(repository):
                    raise
            time.sleep(_PAUSE)


def forget(repository: Repository, git_dir: str) -> None:
    """Delete the administrative directory of a worktree whose directory is gone.

    `git worktree remove --force --force` would also delete mounts in it, and a worktree that came
    back meanwhile.
    """
    with turn(repository):
        try:
            premises.remove(git_dir)
        except FileNotFoundError:
            return
        except OSError as error:
            hint = mounts.reason(git_dir) or f"see what it is: ls -la {shell_word(git_dir)}"
            raise WorktreeError(f"cannot delete {git_dir}: {error.filename}: {error.strerror}", hint=hint) from None
        with contextlib.suppress(OSError):
            os.rmdir(administration(repository))  # as git does: only where it is empty


def repair(repository: Repository, path: str) -> None:
    """Reconnect a linked worktree and its administrative directory.

    `git worktree repair`, even of one path, makes all other worktrees point here as well: in a copy
    of a repository, it would take those of the original.
    """
    with turn(repository):
        named = named_by(path)
        git_dir = os.path.join(administration(repository), os.path.basename(named or ""))
        is_lost = lacks_commondir(repository, git_dir)
        if _is_linked(repository, path) and not is_lost:
            return
        if named is None or not os.path.isdir(git_dir):
            raise GitError(["worktree", "repair", path], 1, f"{path}: git keeps no worktree of that name")
        dot_git = os.path.join(os.path.realpath(path), ".git")
        try:
            if is_lost:
                atomic.write(os.path.join(git_dir, COMMONDIR), b"../..\n")
            if not is_ours(repository, named):
                _name_in(dot_git, os.path.realpath(git_dir))
            # In a place that maintenance cleans after a kill: this file is rarely written again.
            scratch = os.path.join(git_dir, SCRATCH)
            atomic.write_own(os.path.join(git_dir, "gitdir"), os.fsencode(f"{dot_git}\n"), flushed=True, scratch=scratch)
            fsync.flush([git_dir])
        except OSError as error:
            raise GitError(["worktree", "repair", path], 1, f"{error.filename or path}: {error.strerror}") from None


def _name_in(dot_git: str, git_dir: str) -> None:
    # git-annex makes `.git` a link.
    scratch = os.path.join(git_dir, AWAY)
    if os.path.islink(dot_git) and os.lstat(dot_git).st_dev == os.lstat(git_dir).st_dev:
        link = f"{scratch}.{os.getpid()}.{os.urandom(4).hex()}"
        os.symlink(os.path.relpath(git_dir, os.path.dirname(dot_git)), link)
        os.replace(link, dot_git)
    else:
        atomic.write(dot_git, b"gitdir: %s\n" % os.fsencode(git_dir), scratch=scratch)


def _is_linked(repository: Repository, path: str) -> bool:
    git_dir = named_by(path)
    if git_dir is None or not is_ours(repository, git_dir):
        return False
    named = content(os.path.join(git_dir, "gitdir"))
    return bool(named) and os.path.realpath(os.path.join(git_dir, named)) == os.path.realpath(os.path.join(path, ".git"))


def turn(repository: Repository) -> Lock:
    return Lock(os.path.join(repository.make_private_dir(), _LOCK), _PATIENCE)


def _is_in_motion(repository: Repository) -> bool:
    for place in (administration(repository), *_directories(repository)):
        try:
            if os.stat(place).st_mtime > time.time() - _MOTION:
                return True
        except FileNotFoundError:
            return True  # removed since it was listed
    return False


def main_worktree(repository: Repository) -> str | None:
    """Return the top of the main worktree, or None if it is missing or unknown."""
    # Determined once: it does not change while a repository is open.
    if repository.main is None:
        repository.main = (_main_worktree(repository),)
    return repository.main[0]


def _main_worktree(repository: Repository) -> str | None:
    settings = config.read(repository, r"^core\.(bare|worktree)$")
    if "core.worktree" in settings:
        return os.path.normpath(os.path.join(repository.common_dir, settings["core.worktree"][-1]))
    if config.is_on(settings.get("core.bare", ["false"])[-1]):
        return None
    if not repository.is_linked and repository.worktree is not None:
        return repository.worktree
    parent, name = os.path.split(repository.common_dir)
    return parent if name == ".git" else None


def write_file(repository: Repository, path: str, data: bytes) -> None:
    atomic.write(path, data, scratch=os.path.join(repository.git_dir, AWAY))


def seen_from(repository: Repository, path: str) -> Repository | None:
    """Return the repository as seen from a linked worktree, whatever `GIT_DIR` says."""
    git_dir = named_by(path)
    if git_dir is None or not is_ours(repository, git_dir) or not os.path.isdir(git_dir):
        return None
    return Repository(git_dir, path, repository.object_format)


def named_by(path: str) -> str | None:
    """Return the directory, maybe missing, that `.git` of a worktree names, if any."""
    dot_git = os.path.join(path, ".git")
    if os.path.islink(dot_git):  # made by git-annex
        return os.path.normpath(os.path.join(path, os.readlink(dot_git)))
    named = content(dot_git).removeprefix("gitdir: ")
    return os.path.normpath(os.path.join(path, named)) if named else None


def flush(repository: Repository, path: str) -> None:
    """Flush git's files of a worktree to disk, which git does not do."""
    git_dir = named_by(path)
    if git_dir is not None:
        kept = []
        for place, names, files in os.walk(git_dir):  # operations in progress and reftables have subdirectories
            names[:] = [name for name in names if name != "modules"]  # submodules are not flushed, as files are not
            paths = [os.path.join(place, name) for name in files]  # git's fsmonitor daemon has a socket there
            kept += [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
            kept.append(place)
        places = [administration(repository), repository.common_dir, path, os.path.dirname(path)]
        fsync.flush([*kept, os.path.join(path, ".git"), *places])


def is_ours(repository: Repository, git_dir: str) -> bool:
    return os.path.realpath(os.path.dirname(git_dir)) == os.path.realpath(administration(repository))


def elsewhere(repository: Repository, path: str) -> str | None:
    """Return the git directory of another existing repository that owns a worktree.

    In a copy of a repository, the administrative directories name the worktrees of the original.
    """
    git_dir = named_by(path)
    if git_dir is None or is_ours(repository, git_dir) or not os.path.isfile(os.path.join(git_dir, COMMONDIR)):
        return None
    return os.path.dirname(os.path.dirname(git_dir))


def administration(repository: Repository) -> str:
    return os.path.join(repository.common_dir, "worktrees")


def lock_reason(git_dir: str) -> str | None:
    """Return why a worktree is locked ("" without a reason); None if it is not locked."""
    path = os.path.join(git_dir, "locked")
    return content(path) if os.path.exists(path) else None


def lacks_commondir(repository: Repository, git_dir: str) -> bool:
    # git writes it before HEAD, and refuses to do anything without it.
    named = content(os.path.join(git_dir, COMMONDIR))
    is_known = bool(named) and os.path.realpath(os.path.join(git_dir, named)) == os.path.realpath(repository.common_dir)
    return not is_known and os.path.lexists(os.path.join(git_dir, "HEAD"))


def lacks_head(repository: Repository, git_dir: str) -> bool:
    """Return whether HEAD is missing or broken, so that git sees no worktree."""
    path = os.path.join(git_dir, "HEAD")
    if repository.has_reftable and lacks_tables(git_dir):
        return True
    if has_no_head(git_dir):
        return True
    head = content(path)
    is_whole = head.startswith("ref: refs/") or (len(head) in (40, 64) and not head.strip("0123456789abcdef"))
    return not is_whole and os.path.isfile(path) and not os.path.islink(path)


def has_no_head(git_dir: str) -> bool:
    # git writes HEAD before the index.
    return os.path.exists(os.path.join(git_dir, "index")) and not os.path.lexists(os.path.join(git_dir, "HEAD"))


def lacks_tables(git_dir: str) -> bool:
    place = os.path.join(git_dir, "reftable")
    while True:
        names = content(os.path.join(place, "tables.list"))
        if names and all(_is_table(os.path.join(place, name)) for name in names.split("\n")):
            return False
        if names == content(os.path.join(place, "tables.list")):  # else git has compacted them meanwhile
            return True


def _is_table(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            header = file.read(5)
            # The footer ends with a CRC-32 of itself (reftable(5)).
            size = {b"REFT\1": 68, b"REFT\2": 72}[header]
            file.seek(-size, os.SEEK_END)
            footer = file.read()
    except (OSError, KeyError):
        return False
    return footer.startswith(header) and zlib.crc32(footer[:-4]) == int.from_bytes(footer[-4:], "big")


def write_head(repository: Repository, git_dir: str, said: str) -> None:
    """Write a missing HEAD of a worktree: an oid, or "ref: " and the name of a branch."""
    path = os.path.join(git_dir, "HEAD")
    try:
        with open(f"{path}.lock", "xb", opener=premises.create) as file:
            # With a reftable, this file is a stub.
            file.write(os.fsencode(f"{'ref: refs/heads/.invalid' if repository.has_reftable else said}\n"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.lock", path)
    except OSError as error:
        raise WorktreeError(f"cannot write {path}: {error.strerror}", hint="see what is in the way: git ckpt doctor") from None
    fsync.flush([git_dir])
    if repository.has_reftable and lacks_tables(git_dir):
        _write_table(repository, git_dir, said)


def _write_table(repository: Repository, git_dir: str, said: str) -> None:
    # git writes no table beside a broken one: move the old ones away.
    place = os.path.join(git_dir, "reftable")
    aside = os.path.join(repository.make_private_dir(), "damaged", f"{os.path.basename(git_dir)}.reftable.{os.urandom(4).hex()}")
    try:
        os.makedirs(os.path.dirname(aside), exist_ok=True)
        if os.path.lexists(place):
            os.replace(place, aside)
        os.mkdir(place)
    except OSError as error:
        raise WorktreeError(f"cannot replace {place}: {error.strerror}", hint="see what is in the way: git ckpt doctor") from None
    ref = said.removeprefix("ref: ")
    words = ("update-ref", "--no-deref", "HEAD", said) if ref == said else ("symbolic-ref", "HEAD", ref)
    Repository(git_dir, None, repository.object_format).git.run(*words)
    fsync.flush([*(os.path.join(place, name) for name in os.listdir(place)), place, git_dir])


def registered(repository: Repository) -> list[tuple[str, str]]:
    named = ((git_dir, content(os.path.join(git_dir, "gitdir"))) for git_dir in _directories(repository))
    return [(git_dir, os.path.dirname(os.path.normpath(os.path.join(git_dir, dot_git)))) for git_dir, dot_git in named if dot_git]


def unfinished(repository: Repository) -> list[str]:
    """Return git directories of worktrees that `git worktree add` has not finished."""
    return [git_dir for git_dir in _directories(repository) if not content(os.path.join(git_dir, "gitdir"))]


def _directories(repository: Repository) -> list[str]:
    place = administration(repository)
    return [os.path.join(place, name) for name in names_in(place)]


def moved_to(repository: Repository, git_dir: str, path: str, *more: str) -> str | None:
    """Find a moved worktree beside its old path, or in or beside the main worktree."""
    top = main_worktree(repository)
    for place in (os.path.dirname(path), *more, *([top, os.path.dirname(top)] if top is not None else [])):
        for name in names_in(place):
            path = os.path.join(place, name)
            named = named_by(path)
            if named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
                return path
    return None


def went_along(repository: Repository, git_dir: str, path: str) -> bool:
    """Return whether a worktree may have moved with its repository, in or beside it."""
    return any(_is_left(place, git_dir) for place, _ in _along(repository, git_dir, path))


def left_by(repository: Repository, git_dir: str, path: str) -> str | None:
    """Find a worktree whose repository was moved, with or without it."""
    if _is_left(path, git_dir):
        return path
    places = _along(repository, git_dir, path)
    return next((place for place, old in places if named_by(place) == old and not os.path.isdir(old)), None)


def _is_left(place: str, git_dir: str) -> bool:
    named = named_by(place)
    return named is not None and not os.path.isdir(named) and os.path.basename(named) == os.path.basename(git_dir)


def _along(repository: Repository, git_dir: str, path: str) -> list[tuple[str, str]]:
    """Return possible places of a worktree that moved along, with its old `git_dir`."""
    top = main_worktree(repository) or repository.common_dir
    parts = path.split(os.sep)
    return [
        (os.path.join(base, *parts[at:]), os.path.normpath(f"{os.sep.join(parts[:at])}/{os.path.relpath(git_dir, base)}"))
        for base in (top, os.path.dirname(top))
        for at in range(1, len(parts))
    ]


def content(path: str) -> str:
    """Return the line in a small file of git; "" if missing or damaged by the disk."""
    try:
        with open(path, "rb") as file:
            data = file.read().removesuffix(b"\n")
    except OSError:
        return ""
    return "" if b"\0" in data else os.fsdecode(data)
