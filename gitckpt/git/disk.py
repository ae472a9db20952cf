"""Gets what was written to the disk: the contents of files, and the names by which they are found. Imported by the hook.

A file that was flushed and renamed has its contents on the disk and its new name perhaps not: that is flushed with the directory.
`git add` and `git commit` flush no object, and a checkpoint leans on theirs. So all that is new among the loose objects and packs is
flushed before its refs are written. A file in the private directory says up to when that was done, by the clock of the file system. It may
be deleted at any time: what came within the last hour is flushed then.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock, start_new_thread  # `threading` would cost the hook 2 ms
from errno import EBADF, EINVAL, ENOENT, ENOSYS, ENOTDIR, ENOTSUP

from gitckpt.git.files import premises, recent
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Self

    from gitckpt.git.repository import Repository

SETTLED = 3600
"""In seconds: what has not changed for so long is on the disk by itself. Linux writes what has been waiting for half a minute."""

_AT_ONCE = 8
"""At most so many are flushed side by side: the file system commits its journal once for all that wait. 30 files take 30 ms one by one,
so 8; and a file with its directory as long as one of them. Of few, a thread for five: to start one takes 0.1 ms."""

MARK = "flushed"
"""The file in the private directory: a time in nanoseconds, which directories of objects are meant, when the machine was started by the
clock, and the last commit that was flushed."""

_NANO = 10**9
_PACKED = "packed-refs"
_FEW = 3
_QUICK = 0.0002
"""In seconds for each: where the disk was as quick last time, a few go one after the other, as two threads would take 0.14 ms."""

_ALL_FROM = 64
"""From so many on, the whole file system is flushed, which takes 7 ms for 100 files and 200 for 10,000, where these side by side take 900.

With fewer it is not worth the risk: it waits for what other programs write, too.
"""

_MUCH = 4 << 20
"""In bytes: a disk that writes 100 MB a second takes 40 ms for that."""

_GONE = (ENOENT, ENOTDIR)
_UNABLE = (EINVAL, ENOTSUP, EBADF, ENOSYS)
"""What file systems answer that cannot flush a directory."""

_above: dict[str, int] = {}
"""When directories had changed that this process has flushed, by their paths."""


class _Pace:
    last = 1.0  # how long this process waited for a file, in seconds


def flush(paths: Iterable[str], above: Iterable[str] = (), meanwhile: Callable[[], object] | None = None) -> None:
    """Waits until files and directories are on the disk: of a file its contents, of a directory the names in it.

    What is gone is passed over, as a file that was packed meanwhile. Where this ends: a disk that says it has written what it has not, and
    file systems that cannot flush a directory.

    Args:
        paths: of any file systems, in any order.
        above: directories that seldom change; they are flushed where they have since this process did so last.
        meanwhile: what this thread does while the others wait.

    Raises:
        CkptError: the disk reports an error.
        Exception: what `meanwhile` raises.
    """
    changed = _changed(above)
    waiting = list(dict.fromkeys([*paths, *changed]))
    if len(waiting) >= _ALL_FROM:
        from gitckpt.git import filesystem

        waiting = filesystem.flush_all(waiting, _ALL_FROM)
    last, many, began = waiting[-1:], len(waiting), time.monotonic()
    failures: list[OSError] = []
    at_once = 1 if _Pace.last < _QUICK and many <= _FEW else min(_AT_ONCE, 2 + many // 5)
    running = [_start(waiting, failures) for _ in range(min(at_once, many) - (meanwhile is None))]
    try:
        if meanwhile is not None:
            meanwhile()
        _work(waiting, failures)
    finally:
        for lock in running:
            lock.acquire()
    if last:
        _empty_cache(last[0], failures)
    if many and meanwhile is None:
        _Pace.last = (time.monotonic() - began) / many
    if failures:
        raise _failed(failures[0])
    _above.update(changed)


def has_changed(path: str) -> bool:
    """Tells whether a file has changed lately; the answers of `flush` to `above` go by the same rule."""
    return bool(_changed([path]))


def _changed(above: Iterable[str]) -> dict[str, int]:
    """Returns when directories or files changed that may have to be flushed; those that are gone need not be."""
    found: dict[str, int] = {}
    settled = time.time_ns() - SETTLED * 10**9
    for path in above:
        try:
            time_ns = os.stat(path).st_ctime_ns
        except OSError:
            continue
        if time_ns > settled and _above.get(path) != time_ns:
            found[path] = time_ns
    return found


def _start(waiting: list[str], failures: list[OSError]) -> LockType:
    lock = allocate_lock()
    lock.acquire()

    def work() -> None:
        try:
            _work(waiting, failures)
        finally:
            lock.release()

    start_new_thread(work, ())
    return lock


def _work(waiting: list[str], failures: list[OSError]) -> None:
    """Flushes what waits until there is nothing left; others do so at the same time."""
    while True:
        try:
            path = waiting.pop()
        except IndexError:
            return
        _carry_out(os.fsync, path, failures)


def _carry_out(flush_fd: Callable[[int], object], path: str, failures: list[OSError]) -> None:
    """Flushes a file or a directory, and notes a failure that is neither its being gone nor the file system's being unable to."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flush_fd(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (*_GONE, *_UNABLE):
            failures.append(OSError(error.errno, error.strerror, path))  # a flush that fails names no file


def _empty_cache(path: str, failures: list[OSError]) -> None:
    """Has a Mac's disk write what it was handed: fsync(2) there waits until the disk has it, and not until it is written."""
    if sys.platform != "darwin":
        return
    import fcntl

    _carry_out(lambda fd: fcntl.fcntl(fd, fcntl.F_FULLFSYNC), path, failures)


def _failed(error: OSError) -> CkptError:
    return CkptError(f"cannot flush {error.filename} to the disk: {error.strerror}", hint="look at the disk: dmesg")


def _unwritable(path: str, error: OSError) -> CkptError:
    """Returns an error of ours, for which a run waits until the disk has room again."""
    return CkptError(f"cannot write {path}: {error.strerror}", hint="make room there, or look at the disk: dmesg")


class Due:
    """What has to be on the disk before a checkpoint is, as it was found. As a context, it takes away what only its flush makes use of.

    Attributes:
        is_much: whether it takes so long that nobody should have to wait for our locks meanwhile.
    """

    __slots__ = ("_above", "_keep", "_lots", "_scratch", "is_much")

    def __init__(
        self,
        lots: Sequence[Sequence[str]],
        above: Sequence[str],
        *,
        is_much: bool = False,
        scratch: str = "",
        keep: Callable[[], str] | None = None,
    ) -> None:
        self._lots = lots
        self._above = above
        self._scratch = scratch
        self._keep = keep
        self.is_much = is_much

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch:
            try:
                os.unlink(self._scratch)
            except FileNotFoundError:  # the private directory may be deleted at any time
                pass

    def flush(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Waits until it is; again, where it is called again.

        Args:
            meanwhile: as for the function `flush`.

        Raises:
            CkptError: the disk reports an error.
            Exception: what `meanwhile` raises.
        """
        for lot in self._lots:
            flush(lot, self._above, meanwhile)
            meanwhile = None
        if self._keep is not None:
            self._scratch, self._keep = self._keep(), None


class Arrivals:
    """The objects that came into a repository since they were last flushed, whoever wrote them."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._top = os.path.join(repository.common_dir, "objects")
        self._known: set[str] = set()
        self._then = 0

    def look(
        self,
        roots: Collection[str],
        written: Iterable[str],
        branch: str | None = None,
        beside: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> Due:
        """Looks for what has to be on the disk before a checkpoint is.

        Args:
            roots: oids of what it leans on, with all beneath: first the commit, then trees.
            written: oids of objects that were written for it just now, and not flushed.
            branch: the one that it is recorded on. To flush anything may get the name of its ref to the disk, and not what it says: git
                takes one that is empty for broken. The packed refs are flushed, too: a `git gc` flushes none of those that it packs.
                So is HEAD, which a commit writes where it is detached, and a checkout everywhere: git opens no worktree where it is empty.
                The same goes for every other worktree: what is written before the mark is never looked at again.
            beside: files that are no objects, and directories that seldom change, as `paths` and `above` of the function `flush`.
        """
        if self.has_flushed(roots, branch):
            paths, above = _places(self._repository, written)
            return Due([[*paths, *beside[0]]], [*above, *beside[1]])
        return self._look(roots, [_PACKED, *recent.standing(self._repository, branch)], beside)

    def has_flushed(self, roots: Collection[str], branch: str | None = None) -> bool:
        """Tells whether what a checkpoint leans on is on the disk. Args: as for `look`."""
        files = recent.standing(self._repository, branch)
        if self._known.issuperset(roots):
            then = self._then
            files += [file_of(self._repository, root) for root in roots]  # a gc takes some, and they come again
        else:
            then, commit = self._read()
            if [*roots] != commit:
                return False
        return not any(recent.came_at(path) >= then for path in files)

    def catch_up(self, refs: Sequence[str] = ()) -> None:
        """Waits until all objects that are there are on the disk.

        Args:
            refs: refs that others wrote, and that are to be on the disk after them: their names, or the paths of their files.

        Raises:
            CkptError: the disk reports an error.
        """
        with self._look((), refs, ((), ())) as due:
            due.flush()

    def _look(self, roots: Collection[str], refs: Sequence[str], beside: tuple[Sequence[str], Sequence[str]]) -> Due:
        then, commit = self._read()
        path = f"{self._mark()}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            with open(path, "xb", opener=premises.create) as file:
                now = os.fstat(file.fileno()).st_mtime_ns  # before the look, or what came during it would be taken for flushed
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            hour_ago = now - SETTLED * _NANO
            since = max(then, hour_ago) if then <= now else hour_ago  # else the clock was set back, and has not caught up yet
            if refs:
                refs = [*refs, *recent.standing(self._repository, None), *recent.elsewhere(self._repository)]
            changed = _changed([os.path.join(self._repository.common_dir, _PACKED)] if _PACKED in refs else ())
            new, theirs = [*self._new(since), *beside[0]], [*recent.refs(self._repository, refs, since)]
            # The notes that git has copied come after what they need; a branch leads to its commit already.
            lots = [[*new, *theirs]] if roots else [new, theirs]
            is_much = len(new) + len(theirs) >= _ALL_FROM or _is_large(new)
        except BaseException:
            os.unlink(path)
            raise

        def keep() -> str:
            left = ""  # of the scratch file, which becomes the mark
            _above.update(changed)
            said = " ".join([str(now), self._identity(), str(recent.started()), *([*roots][:1] or commit)])
            try:
                with open(path, "wb", opener=premises.create) as file:
                    file.write(said.encode("ascii"))
                os.replace(path, self._mark())
            except (FileNotFoundError, IsADirectoryError):  # then nobody knows next time what was flushed now, and no more
                left = path
            except OSError as error:
                raise _unwritable(path, error) from None
            self._known.clear()
            self._known.update(roots)
            self._then = now
            return left

        return Due(lots, beside[1], is_much=is_much, scratch=path, keep=keep)

    def _mark(self) -> str:
        return os.path.join(self._repository.make_private_dir(), MARK)

    def _read(self) -> tuple[int, list[str]]:
        """Returns until when all was flushed, in nanoseconds, and a commit that was; 0 and none where that is not known."""
        try:
            with open(self._mark(), "rb", opener=premises.create) as file:
                then, identity, started, *commit = file.read().decode("ascii", "replace").split()
                written = os.fstat(file.fileno()).st_mtime_ns
            if identity != self._identity():  # the repository was copied, or borrows elsewhere, and what it holds now is new
                return 0, []
            # Where the clock was set back since, what came then may be older than the mark, whatever time it is by now.
            is_right = int(then) <= written and abs(int(started) - recent.started()) < recent.STEP
            return int(then) if is_right else 0, commit
        except (OSError, ValueError):
            return 0, []

    def _stores(self) -> list[str]:
        """Returns the directories that objects are read from."""
        if not os.path.exists(os.path.join(self._top, "info", "alternates")):
            return [self._top]
        from gitckpt.git.objects import alternates

        return [place for place in alternates.stores(self._top) if os.path.isdir(place)]

    def _identity(self) -> str:
        return ",".join(f"{found.st_dev}:{found.st_ino}" for found in map(os.stat, self._stores()))

    def _new(self, since: int) -> Iterator[str]:
        """Yields the files of objects that came at an instant or after it, with their directories, those that are borrowed, too."""
        for top in self._stores():
            yield from recent.objects(top, since)


def flush_written(repository: Repository, oids: Iterable[str]) -> None:
    """Waits until loose objects are on the disk; those in a pack are.

    Raises:
        CkptError: the disk reports an error.
    """
    flush(*_places(repository, oids))


def _places(repository: Repository, oids: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the files of loose objects and their directories, and the one above these, which seldom changes."""
    paths = [file_of(repository, oid) for oid in oids]
    return [*paths, *map(os.path.dirname, paths)], [os.path.join(repository.common_dir, "objects")] if paths else []


def _is_large(paths: Sequence[str]) -> bool:
    """Tells whether it takes long to flush a few files, such as that of a large file which was committed just now."""
    left = _MUCH
    for path in paths:
        try:
            left -= os.stat(path).st_size
        except OSError:  # a gc has packed it
            continue
    return left < 0


def file_of(repository: Repository, oid: str) -> str:
    """Returns the path of a loose object, whether it is there or not."""
    return f"{repository.common_dir}/objects/{oid[:2]}/{oid[2:]}"


def is_there(repository: Repository, oid: str) -> bool:
    """Tells whether a loose object is there, and no power cut has left it without contents."""
    try:
        return os.stat(file_of(repository, oid)).st_size > 0
    except OSError:
        return False
