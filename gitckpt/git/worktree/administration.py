"""What git keeps of linked worktrees (gitrepository-layout(5), `worktrees`), and where the main one is.

Directories of worktrees get moved or deleted by hand, and what git keeps of them gets pruned. Only `call`, and whoever holds
`turn`, changes any of it.

git takes no lock for it: a command that looks at all worktrees dies of one that another process has half made or half removed ("failed to
read …/commondir: Success", "Invalid path …"), which is every tenth time that eight runs are started at once.
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


# What git complains of where it cannot read an index, or a file into one; and that an index is gone, of which it does not complain.


TRIES = 5
"""How often git is asked to read files that change meanwhile."""

_CHANGED = ("unstable object source data", "short read while indexing", "failed to read ")
_SIGBUS = 10 if sys.platform == "darwin" else 7  # importing `signal` takes as long as all else that a capture imports

_CORRUPT = ("index file", "bad index", "bad signature", "sharedindex", "shared index", "index entry", "index version", "index uses")
_FAILING, _FAILED = "clean filter '", "' failed"
_PROCESS = re.compile(r"^filter\.(.*)\.process$")
_HUNG_UP = "the remote end hung up unexpectedly"


def met_change(error: GitError) -> bool:
    """Tells whether git failed because a file changed while it read that, or was ended, as what it has mapped into memory is not there."""
    return error.code == -_SIGBUS or any(words in error.stderr for words in _CHANGED)


def is_corrupt(error: GitError) -> bool:
    """Tells whether git failed because it could not read the index."""
    return any(words in error.stderr for words in _CORRUPT)


def has_hung_up(error: GitError) -> bool:
    """Tell whether git died as a filter process did not start; it names no file."""
    return _HUNG_UP in error.stderr


def failing_filters(repository: Repository, error: GitError) -> set[str]:
    """Return the required filters by which git may have failed to read a file."""
    lines = error.stderr.splitlines()
    named = {line.partition(_FAILING)[2].rpartition(_FAILED)[0] for line in lines} - {""}
    return named or (process_filters(repository) if has_hung_up(error) else set())


def process_filters(repository: Repository) -> set[str]:
    """Return the filters for which the configuration names a process."""
    return {name[1] for key in config.read(repository, _PROCESS.pattern) if (name := _PROCESS.match(key))}


def filters_off(names: Iterable[str]) -> list[str]:
    """Return options by which some filters do nothing."""
    keys = ("clean=", "smudge=", "process=", "required=false")
    return [word for name in sorted(names) for key in keys for word in ("-c", f"filter.{name}.{key}")]


class IndexGone(BusyError):
    """A private index was deleted while git worked on it."""


class IndexWatch:
    """A context in which git works on a private index, and that notices if it is deleted: anybody may, with the directory that it is in.

    Git takes an index that is not there for an empty one, and a tree of it lacks all files but those that were read since.

    Args:
        path: of the index.
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
        """Begins with the index that is written now. Another directory by the name of its own may get another index by its name."""
        self.end()
        try:
            self._place = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self.failure() from None

    def end(self) -> None:
        """Forgets the index, which is deleted now."""
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
        """Returns the error that says so."""
        place = os.path.dirname(self._path)
        return IndexGone(f"{place} was deleted while the files were looked at", hint="run the command again")


# What git keeps of linked worktrees (gitrepository-layout(5), `worktrees`), and where the main one is.


COMMONDIR = "commondir"
"""In the administrative directory: where the repository is."""

_LOCK = "worktrees.lock"
_PATIENCE = 10.0  # it protects nothing but the success of git's commands: after that, they are tried without
_TRIES = 20
_MOTION = 1.0
_PAUSE = 0.02

SCRATCH = "ckpt-gitdir"
"""How the name begins, in what git keeps of a worktree, of what is to become its file `gitdir`."""

AWAY = "ckpt-file"
"""The same, of what is to become a file of the worktree: where a kill leaves it in that, the next capture takes it for somebody's work."""


def call(repository: Repository, *arguments: str, options: tuple[str, ...] = ()) -> Completed:
    """Calls `git worktree`; nobody else of us does meanwhile. Where somebody else is at it, it is tried again.

    Args:
        repository: seen from any of its worktrees.
        arguments: subcommand and arguments.
        options: those of git itself, such as `-c`.

    Raises:
        GitError: it fails, also when nobody has made or removed a worktree for a while.
    """
    with turn(repository):
        left = _TRIES
        while True:
            try:
                return repository.git.run(*options, "worktree", *arguments)
            except GitError as error:
                left -= 1
                if not left or error.code < 0 or not _is_in_motion(repository):
                    raise
            time.sleep(_PAUSE)


def forget(repository: Repository, git_dir: str) -> None:
    """Delete what git keeps of a worktree whose directory is gone.

    As `git worktree remove --force --force` does, which would delete what is mounted in there, and the worktree if it came back meanwhile.

    Args:
        repository: seen from any of its worktrees.
        git_dir: what git keeps of the worktree.

    Raises:
        WorktreeError: it cannot be deleted.
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
    """Lets git know where a linked worktree is, and the worktree where the repository is.

    `git worktree repair`, also that of one path, has all other worktrees point here as well: in a copy of a repository, those of
    the original.

    Args:
        repository: seen from any of its worktrees.
        path: the top of the worktree.

    Raises:
        GitError: git keeps nothing of such a worktree, or it cannot be written.
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
            # Where a kill leaves what maintenance knows: nobody writes this file again for long.
            scratch = os.path.join(git_dir, SCRATCH)
            atomic.write_own(os.path.join(git_dir, "gitdir"), os.fsencode(f"{dot_git}\n"), flushed=True, scratch=scratch)
            fsync.flush([git_dir])
        except OSError as error:
            raise GitError(["worktree", "repair", path], 1, f"{error.filename or path}: {error.strerror}") from None


def _name_in(dot_git: str, git_dir: str) -> None:
    """Let `.git` of a worktree name its directory; git-annex makes it a link."""
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
    """Returns the lock that is held by those of us who change what git keeps of linked worktrees."""
    return Lock(os.path.join(repository.make_private_dir(), _LOCK), _PATIENCE)


def _is_in_motion(repository: Repository) -> bool:
    """Tells whether what is kept of some worktree was made, changed or removed within the last second."""
    for place in (administration(repository), *_directories(repository)):
        try:
            if os.stat(place).st_mtime > time.time() - _MOTION:
                return True
        except FileNotFoundError:
            return True  # it was there a moment ago, or the last one just went
    return False


def main_worktree(repository: Repository) -> str | None:
    """Returns the top of the repository's main worktree; None where it has none, or git does not know where it is.

    Where it is does not change while a repository is open: git is asked once.
    """
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
    """Writes a file of a worktree, whole, in the place of whatever is there.

    Args:
        repository: seen from that worktree.
        path: of the file; its directory is there.
        data: what it shall hold.

    Raises:
        OSError: it cannot be written; what was there is there.
    """
    atomic.write(path, data, scratch=os.path.join(repository.git_dir, AWAY))


def seen_from(repository: Repository, path: str) -> Repository | None:
    """Returns the repository as seen from one of its linked worktrees, whatever `GIT_DIR` says; None where there is none at the path."""
    git_dir = named_by(path)
    if git_dir is None or not is_ours(repository, git_dir) or not os.path.isdir(git_dir):
        return None
    return Repository(git_dir, path, repository.object_format)


def named_by(path: str) -> str | None:
    """Return the directory that `.git` of a worktree names; None for none.

    The directory may be missing.
    """
    dot_git = os.path.join(path, ".git")
    if os.path.islink(dot_git):  # git-annex makes one of the file
        return os.path.normpath(os.path.join(path, os.readlink(dot_git)))
    named = content(dot_git).removeprefix("gitdir: ")
    return os.path.normpath(os.path.join(path, named)) if named else None


def flush(repository: Repository, path: str) -> None:
    """Gets what git keeps of a linked worktree to the disk, which git does not. The files in the worktree are not flushed.

    Args:
        repository: seen from any of its worktrees.
        path: the top of the worktree.

    Raises:
        CkptError: the disk reports an error.
    """
    git_dir = named_by(path)
    if git_dir is not None:
        kept = []
        for place, names, files in os.walk(git_dir):  # an operation in progress has directories of its own, and so have reftables
            names[:] = [name for name in names if name != "modules"]  # of submodules nothing is flushed, as of files
            paths = [os.path.join(place, name) for name in files]  # a daemon of git's has a socket there
            kept += [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
            kept.append(place)
        places = [administration(repository), repository.common_dir, path, os.path.dirname(path)]
        fsync.flush([*kept, os.path.join(path, ".git"), *places])


def is_ours(repository: Repository, git_dir: str) -> bool:
    """Tells whether an administrative directory is, or would be, one of this repository."""
    return os.path.realpath(os.path.dirname(git_dir)) == os.path.realpath(administration(repository))


def elsewhere(repository: Repository, path: str) -> str | None:
    """Returns the git directory of the other repository that a worktree is of; None where it is of this one, of none, or that is not there.

    In a copy of a repository, what it keeps of worktrees names those of the original.

    Args:
        repository: seen from any of its worktrees.
        path: the top of the worktree.
    """
    git_dir = named_by(path)
    if git_dir is None or is_ours(repository, git_dir) or not os.path.isfile(os.path.join(git_dir, COMMONDIR)):
        return None
    return os.path.dirname(os.path.dirname(git_dir))


def administration(repository: Repository) -> str:
    """Returns the directory that holds the administrative directories of the linked worktrees."""
    return os.path.join(repository.common_dir, "worktrees")


def lock_reason(git_dir: str) -> str | None:
    """Returns why a worktree is locked (git-worktree(1), `lock`), "" where nobody said why; None where it is not.

    Args:
        git_dir: what git keeps of the worktree.
    """
    path = os.path.join(git_dir, "locked")
    return content(path) if os.path.exists(path) else None


def lacks_commondir(repository: Repository, git_dir: str) -> bool:
    """Tells whether the file is gone, empty or broken that says whose the worktree is, which git writes before HEAD.

    Git refuses to do anything in such a worktree.
    """
    said = content(os.path.join(git_dir, COMMONDIR))
    is_known = bool(said) and os.path.realpath(os.path.join(git_dir, said)) == os.path.realpath(repository.common_dir)
    return not is_known and os.path.lexists(os.path.join(git_dir, "HEAD"))


def lacks_head(repository: Repository, git_dir: str) -> bool:
    """Tells whether HEAD of a linked worktree is gone, empty or broken, as a power cut leaves what nobody has flushed.

    Git sees no worktree then; where a reftable has it, one without a commit.
    """
    path = os.path.join(git_dir, "HEAD")
    if repository.has_reftable and lacks_tables(git_dir):
        return True
    if has_no_head(git_dir):
        return True
    said = content(path)
    is_whole = said.startswith("ref: refs/") or (len(said) in (40, 64) and not said.strip("0123456789abcdef"))
    return not is_whole and os.path.isfile(path) and not os.path.islink(path)


def has_no_head(git_dir: str) -> bool:
    """Tells whether HEAD of a linked worktree is gone. While git makes one, it is not there yet, and neither is an index."""
    return os.path.exists(os.path.join(git_dir, "index")) and not os.path.lexists(os.path.join(git_dir, "HEAD"))


def lacks_tables(git_dir: str) -> bool:
    """Tells whether a reftable of a worktree's own is gone, empty or cut off, or the list that names them is empty."""
    place = os.path.join(git_dir, "reftable")
    while True:
        names = content(os.path.join(place, "tables.list"))
        if names and all(_is_table(os.path.join(place, name)) for name in names.split("\n")):
            return False
        if names == content(os.path.join(place, "tables.list")):  # else git has joined them meanwhile
            return True


def _is_table(path: str) -> bool:
    """Tells whether a file begins and ends as a reftable does (reftable(5): the end has a checksum of its own)."""
    try:
        with open(path, "rb") as file:
            begin = file.read(5)
            size = {b"REFT\1": 68, b"REFT\2": 72}[begin]
            file.seek(-size, os.SEEK_END)
            end = file.read()
    except (OSError, KeyError):
        return False
    return end.startswith(begin) and zlib.crc32(end[:-4]) == int.from_bytes(end[-4:], "big")


def write_head(repository: Repository, git_dir: str, said: str) -> None:
    """Writes HEAD of a worktree that lacks it, flushed to the disk: git itself does nothing in such a one.

    Args:
        repository: whose worktree it is.
        git_dir: what git keeps of the worktree.
        said: an oid, or "ref: " and the name of a branch.

    Raises:
        WorktreeError: it cannot be written, or somebody has the lock.
        GitError: git cannot write it into a reftable.
    """
    path = os.path.join(git_dir, "HEAD")
    try:
        with open(f"{path}.lock", "xb", opener=premises.create) as file:
            # Where it is in a reftable, the tables say.
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
    """Has git write HEAD of a worktree into new reftables. What is left of old ones is put aside: git writes none beside a broken one."""
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
    """Returns the administrative directory of every linked worktree, with the path at which git believes the worktree to be."""
    named = ((git_dir, content(os.path.join(git_dir, "gitdir"))) for git_dir in _directories(repository))
    return [(git_dir, os.path.dirname(os.path.normpath(os.path.join(git_dir, dot_git)))) for git_dir, dot_git in named if dot_git]


def unfinished(repository: Repository) -> list[str]:
    """Returns the administrative directories that do not say where their worktree is: git is about to make them, or was killed at that."""
    return [git_dir for git_dir in _directories(repository) if not content(os.path.join(git_dir, "gitdir"))]


def _directories(repository: Repository) -> list[str]:
    place = administration(repository)
    return [os.path.join(place, name) for name in names_in(place)]


def moved_to(repository: Repository, git_dir: str, path: str, *more: str) -> str | None:
    """Returns where a worktree was moved by hand, as far as that can be found: beside where it was, in the main worktree, or beside that.

    Args:
        repository: seen from any of its worktrees.
        git_dir: what git keeps of the worktree: the directory is its own whose `.git` file names that.
        path: where it was.
        more: further directories to look in.
    """
    top = main_worktree(repository)
    for place in (os.path.dirname(path), *more, *([top, os.path.dirname(top)] if top is not None else [])):
        for name in names_in(place):
            path = os.path.join(place, name)
            named = named_by(path)
            if named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
                return path
    return None


def went_along(repository: Repository, git_dir: str, path: str) -> bool:
    """Tells whether a worktree may have been moved with its repository, in or beside which it was. Args: as `moved_to`."""
    return any(_is_left(place, git_dir) for place, _ in _along(repository, git_dir, path))


def left_by(repository: Repository, git_dir: str, path: str) -> str | None:
    """Returns where a worktree is whose repository was moved: without it, or together with it. Args: as `moved_to`."""
    if _is_left(path, git_dir):
        return path
    places = _along(repository, git_dir, path)
    return next((place for place, was in places if named_by(place) == was and not os.path.isdir(was)), None)


def _is_left(place: str, git_dir: str) -> bool:
    named = named_by(place)
    return named is not None and not os.path.isdir(named) and os.path.basename(named) == os.path.basename(git_dir)


def _along(repository: Repository, git_dir: str, path: str) -> list[tuple[str, str]]:
    """Returns where a worktree may be that was moved with its repository, and where what is kept of it was before. Args: as `moved_to`."""
    top = main_worktree(repository) or repository.common_dir
    parts = path.split(os.sep)
    return [
        (os.path.join(base, *parts[at:]), os.path.normpath(f"{os.sep.join(parts[:at])}/{os.path.relpath(git_dir, base)}"))
        for base in (top, os.path.dirname(top))
        for at in range(1, len(parts))
    ]


def content(path: str) -> str:
    """Returns the one line that a small file of git holds; "" where there is none, or what a disk has made of it."""
    try:
        with open(path, "rb") as file:
            data = file.read().removesuffix(b"\n")
    except OSError:
        return ""
    return "" if b"\0" in data else os.fsdecode(data)
