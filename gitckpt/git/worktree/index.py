"""A private copy of a worktree's index, which git works on instead of the user's.

It starts as a copy of the user's index with its time stamp, so that git reads again only files that may have changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from gitckpt.git.command import NO_HOOKS
from gitckpt.git.files.refs_stat import content_mark
from gitckpt.git.filesystem import copied_within
from gitckpt.git.objects.encoding import object_hash, oid_size
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.git.refs import LockHeld
from gitckpt.git.worktree.complaints import TRIES, IndexWatch, failing_filters, filters_off, met_change
from gitckpt.model.errors import BusyError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import BinaryIO, Self, TypeAlias

    from gitckpt.git.process import Child, Completed
    from gitckpt.git.repository import Repository

    IndexEntry: TypeAlias = tuple[bytes, bytes, str, int, bytes]
    """Path, mode, oid, stage, and git's tag: H; S for one to be skipped, M for one in conflict; small for one assumed to be unchanged."""

# The extensions of other programs' indexes are not for this copy: split, it would leave shared files behind; a file system monitor or
# the untracked cache would have to be believed, where looking is the point; and git 2.39 lists one file many times where it makes an
# index sparse that has entries added in intent only.
_PLAIN = (
    *("-c", "core.splitIndex=false", "-c", "core.untrackedCache=false", "-c", "index.sparse=false"),
    *("-c", "core.fsync=none,pack,pack-metadata", *NO_HOOKS),  # loose objects are flushed side by side, before a ref leads to them
    # What is larger goes into a pack, piece by piece: git holds the whole of a smaller file in memory, and 512 MB is its idea of small.
    *("-c", "core.bigFileThreshold=32m"),
)
PARALLEL = ("-c", f"checkout.workers={max(8, os.cpu_count() or 1)}", "-c", "checkout.thresholdForParallelism=100")
"""Options for git commands that write files, where git by itself writes alone. More processes than cores: they wait for the disk."""

_LOOK = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"),
    *("--no-renames", "--no-ahead-behind", "--ignore-submodules=none"),
)
_ENTRY = re.compile(rb"([A-Za-z]) ([0-7]{6}) ([0-9a-f]+) ([0-3])\t([^\0]+)\0")

_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems. Another one than ours may have a clock of its own, too."""


class PrivateIndex:
    """A copy of an index, from `open` on. A context manager that opens and closes it; the copy is gone at its end.

    Args:
        repository: seen from the worktree whose index it is.
        deadline: when to give up, on the clock of `time.monotonic`.

    Attributes:
        path: absolute path of the copy.
        is_rebuilt: whether the user's index could not be read, so that this one starts from the commit, with nothing staged.
        opened: when it was opened, by the file system that the worktree is on, in nanoseconds: what changed before was not changed since.
    """

    def __init__(self, repository: Repository, deadline: float | None = None) -> None:
        self.repository = repository
        self.deadline = deadline
        self.is_rebuilt = False
        self.opened = 0
        self._look: Child | None = None
        self._origin: BinaryIO | None = None
        self.path = repository.scratch("index")
        self._watch = IndexWatch(self.path)
        self._options = [*_PLAIN]
        if not os.path.exists(os.path.join(repository.git_dir, "hEAD")):
            self._options += ["-c", "core.ignoreCase=false"]  # set by mistake, it would hide README beside readme
        if _has_links(repository):
            self._options += ["-c", "core.symlinks=true"]  # or a link and a file that stands for one would be the same

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Copies the user's index, unless that was done.

        Raises:
            WorktreeError: it cannot be copied.
        """
        if self._look is not None:
            return
        top = self.repository.worktree
        if top is not None and not os.path.isdir(top):  # whoever works in it may have deleted or moved it
            state = "no directory" if os.path.lexists(top) else "gone"
            raise WorktreeError(f"cannot look at the files of {top}: it is {state}", hint="if it is that of a run: git ckpt resume")
        try:
            self.opened = _clock(self.repository)
        except FileNotFoundError:
            raise self._watch.failure() from None
        try:
            self.copy_from(os.path.join(self.repository.git_dir, "index"))
        except BaseException:
            self._let_go()
            self._remove()
            raise

    def close(self) -> None:
        """Removes the copy, and ends what still looks."""
        self._stop_looking()
        self._let_go()
        self._remove()

    def look(self, *options: str) -> Child:
        """Returns a `git status` as a surveyor reads it, for `finish`: one that looks already, or a new one.

        Args:
            options: settings for git; with any, a new one starts.
        """
        child, self._look = self._look, None
        if child is not None and options:
            child.kill_group()
        return child if child is not None and not options else self.start(*options, *_LOOK)

    def look_ahead(self) -> None:
        """Lets git begin to look at the files, for `look` to find it at work."""
        self._look = self.start(*_LOOK)

    def _stop_looking(self) -> None:
        child, self._look = self._look, None
        if child is not None:
            child.kill_group()

    def copy_from(self, path: str) -> None:
        """Starts again as a copy of another index, or as an empty one where there is none.

        Raises:
            WorktreeError: it cannot be copied.
        """
        self._stop_looking()
        self._let_go()
        if not os.path.exists(path):
            self._remove()
            return
        try:
            origin = self._origin = open(path, "rb")  # noqa: SIM115 - held until the copy is gone
            self._watch.begin()
            with self._watch:
                _copy(origin, self.path)
        except OSError as error:
            place = os.path.dirname(self.path)  # not by its own name: who tries again and again says the same again
            raise WorktreeError(f"cannot copy the index into {place}: {error.strerror}") from None

    def git(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        """Runs a git command on this index and returns its output.

        Raises:
            GitError: another exit code; DeadlinePassed: it took too long.
        """
        return self.run(*args, data=data, ok=ok).out

    def run(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,), env: Mapping[str, str] | None = None) -> Completed:
        """Runs a git command on this index and returns all that it said; `env` are more variables. Raises as `git`."""
        environment = {"GIT_INDEX_FILE": self.path, **(env or {})}
        left = TRIES
        while True:
            try:
                with self._watch:
                    return self.repository.git.run(*self._options, *args, data=data, env=environment, ok=ok, deadline=self.deadline)
            except GitError as error:
                left -= 1
                if not left or not met_change(error):
                    raise
            self.unlock()

    def unlock(self) -> None:
        """Removes the lock on this copy that a git of ours has left which was killed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.lock")

    def edit(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> Completed:
        """Run a git command that writes this index and stores no file.

        When git writes an index, it compares all files that are as young as the one before. Filters
        that fail at that are switched off. Raises as `git`.
        """
        try:
            return self.run(*args, data=data, ok=ok)
        except GitError as error:
            failing = failing_filters(self.repository, error)
            if not failing:
                raise
        return self.run(*filters_off(failing), *args, data=data, ok=ok)

    def start(self, *args: str) -> Child:
        """Starts a git command on this index, for `finish`."""
        return self.repository.git.start(*self._options, *args, env={"GIT_INDEX_FILE": self.path})

    def finish(self, child: Child, *, ok: Sequence[int] = (0,)) -> bytes:
        """Waits for a command that was started, and returns its output. Raises as `git`."""
        with self._watch:
            return self.repository.git.finish(child, child.argv[6:], ok=ok, deadline=self.deadline).out

    def require_time(self, doing: str) -> None:
        """Raises `DeadlinePassed` where the time is over: for what is done without git.

        Args:
            doing: what takes the place of a git command in the error.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlinePassed([doing], 0, "it took too long")

    def write_tree(self) -> str:
        """Writes this index as a tree, and returns its oid; blobs that a partial clone lacks may be missing.

        Raises:
            GitError: entries are in conflict, or git cannot write.
        """
        return self.edit("write-tree", "--missing-ok").out.strip().decode("ascii")

    def entries(self, mode: bytes = b"") -> list[IndexEntry]:
        """Returns what this index lists, sorted by path and stage (git-ls-files(1)). Raises as `git`.

        Args:
            mode: of those that are wanted, where they are few: all of 100,000 take 0.15 seconds.
        """
        listing = self.git("ls-files", "--stage", "-v", "-z")
        if mode:
            listing = b"".join(line + b"\0" for line in listing.split(b"\0") if line[2:8] == mode)
        listed = _ENTRY.findall(listing)
        return [(path, mode, oid.decode("ascii"), int(stage), tag) for tag, mode, oid, stage, path in listed]

    def refresh(self) -> None:
        """Has git note when files last changed that have changed in nothing else, so that it need not read them again. Raises as `git`."""
        self.edit("update-index", "-q", "--refresh", ok=(0, 1))

    def look_at_young(self) -> None:
        """Let git compare files as young as this index now, and not once more.

        Raises as `git`.
        """
        self.edit("update-index", "-q", "--refresh", "--force-write-index", ok=(0, 1))
        later = time.time() + _GRAIN / 1e9
        os.utime(self.path, (later, later))

    def put(self, lines: Iterable[bytes]) -> None:
        """Sets or removes entries.

        Args:
            lines: each as `git update-index --index-info` takes it, without the end: mode, oid, stage, tab, path; mode 0 removes.

        Raises:
            GitError: git refuses a path.
        """
        data = b"".join(line + b"\0" for line in lines)
        if data:
            done = self.edit("update-index", "-z", "--index-info", data=data)
            if "Ignoring path" in done.complaint:  # git goes on without it, and calls that success
                raise GitError(["update-index"], done.code, done.complaint)

    def is_whole(self) -> bool:
        """Tells whether this index ends with the checksum of all before it (gitformat-index(5)): git reads one that was cut off."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return True
        size = oid_size(self.repository.object_format)
        checksum = data[-size:]
        return not checksum.strip(b"\0") or object_hash(self.repository.object_format, data[:-size]).digest() == checksum

    def update(self, option: str, paths: Iterable[bytes]) -> None:
        """Does to some entries what an option of `git update-index` says.

        Args:
            option: such as "--force-remove" or "--skip-worktree".
            paths: of the entries; without any, nothing is done.
        """
        data = b"".join(path + b"\0" for path in paths)
        if data:
            self.edit("update-index", option, "-z", "--stdin", data=data)

    def rebuild(self, commit: str) -> None:
        """Starts again from a commit ("" for none), as the user's index cannot be read."""
        self.close()
        self.git("read-tree", commit or "--empty")
        self.is_rebuilt = True

    def require_unlocked(self) -> None:
        """Raises `LockHeld` if another process is about to change the worktree's index."""
        lock = os.path.join(self.repository.git_dir, "index.lock")
        if os.path.lexists(lock) and not _is_left_over(lock, self.repository.private_dir):
            raise LockHeld(lock)

    def require_latest(self) -> None:
        """Raises `BusyError` where the user's index lists something else than when it was copied: what was staged since is nowhere else.

        Git writes it anew whenever it has looked at files, which changes nothing that it lists.
        """
        target = os.path.join(self.repository.git_dir, "index")
        origin = self._origin
        then = os.fstat(origin.fileno()) if origin is not None else None
        try:
            now = os.stat(target)
        except FileNotFoundError:
            return
        if self.is_rebuilt or (then is not None and content_mark(now) == content_mark(then)):
            return
        words = ("ls-files", "--stage", "-v", "-z")
        with PrivateIndex(self.repository) as later:
            listed = later.git(*words)
        with contextlib.closing(PrivateIndex(self.repository)) as earlier:
            if origin is not None:
                _copy(origin, earlier.path)
            is_same = listed == earlier.git(*words)
        if not is_same or (then is not None and os.path.samestat(now, then)):
            raise BusyError(f"another process has changed {target} meanwhile", hint="look at git status, then run the command again")

    def install(self) -> None:
        """Makes this index the worktree's own, under git's lock and at once.

        Raises:
            LockHeld: another process is about to change the worktree's index.
            BusyError: as `require_latest`.
            WorktreeError: it cannot be written.
        """
        target = os.path.join(self.repository.git_dir, "index")
        lock = f"{target}.lock"
        try:
            with open(self.path, "rb+") as file:
                os.fsync(file.fileno())
            if _is_left_over(lock, self.repository.private_dir):
                os.unlink(lock)
            os.link(self.path, lock)
            try:
                self.require_latest()
                os.replace(lock, target)
            except BaseException:
                os.unlink(lock)
                raise
        except FileExistsError:
            raise LockHeld(lock) from None
        except OSError as error:
            raise WorktreeError(f"cannot write {target}: {error.strerror}") from None

    def _let_go(self) -> None:
        if self._origin is not None:
            self._origin.close()
            self._origin = None

    def _remove(self) -> None:
        self._watch.end()
        for leftover in (self.path, f"{self.path}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)


def _copy(source: BinaryIO, target: str) -> None:
    """Copies a file with its mode and its time stamp: by that git tells which entries are racy."""
    status = os.fstat(source.fileno())
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, status.st_mode & 0o777), "wb") as copy:
        if not copied_within(source.fileno(), copy.fileno(), status.st_size):
            source.seek(0)
            copy.write(source.read())
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _has_links(repository: Repository) -> bool:
    """Tells whether the worktree is on a file system that has symlinks, which is tried out beside our own files if these are on it, too."""
    scratch = repository.scratch("symlink")
    try:
        if os.stat(repository.private_dir).st_dev != os.stat(repository.worktree or "").st_dev:
            return False
        os.symlink("nowhere", scratch)
        os.unlink(scratch)
    except OSError:
        return False
    return True


def _clock(repository: Repository) -> int:
    directory = repository.make_private_dir()
    os.utime(directory)
    here = os.stat(directory)
    is_same = repository.worktree is None or os.stat(repository.worktree).st_dev == here.st_dev
    return here.st_ctime_ns - (0 if is_same else _GRAIN)


def _is_left_over(lock: str, directory: str) -> bool:
    """Tells whether a lock was left by a process that was killed in `install`: then it is one file with that process's private index."""
    try:
        found = os.stat(lock)
    except FileNotFoundError:
        return False
    if found.st_nlink == 1:
        return False
    from gitckpt.git.leftovers import is_alive

    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith("index.") and os.path.samestat(os.stat(path), found):
            return not is_alive(int(name.split(".")[1]))
    return False
