"""Files that nothing converts, put in the place of others without git, which would go through the whole index for them, three times.

All are looked at before the first one is touched: each must hold what it held when it was captured, or not be there. Just before it goes,
it must still be the file that was looked at. What takes the place of another one is complete by then, so that nobody finds half of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from gitckpt.git.contents import layout, raw_files
from gitckpt.git.objects.encoding import EXECUTABLE, FILE, LINK, OVERSIZED, object_hash, object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gitckpt.git.objects.diff import Difference
    from gitckpt.git.repository import Repository

    Identity = tuple[int, int, int, int, int, int]

_LARGEST, _LARGEST_TOGETHER = 8 << 20, 32 << 20
"""In bytes: what is held in memory at once."""

_MANY = 1000
"""So many files git writes as fast, and in parallel."""

_KINDS = frozenset((FILE, EXECUTABLE, LINK))
_OTHER = b"", ""
"""Mode and oid of what is neither a file nor a link."""

_LONGEST_TARGET = 4096
"""In bytes, with the end: `PATH_MAX` of Linux."""

_SCRATCH = b".gitckpt-"
_LEFT_OVER = re.compile(re.escape(_SCRATCH) + rb"[0-9a-f]{16}")
_CHUNK = 1 << 20
_GONE = (FileNotFoundError, NotADirectoryError)


class Interference(Exception):
    """A file is not as it was captured.

    Args:
        path: of the file.
    """

    def __init__(self, path: bytes) -> None:
        super().__init__(os.fsdecode(path))
        self.path = path


class Exchange:
    """Replaces files; made by `of`.

    Args:
        repository: seen from the worktree.
        files: from those that are there to those that shall be.
        contents: what these hold, by oid.
    """

    def __init__(self, repository: Repository, files: Sequence[Difference], contents: Mapping[str, bytes]) -> None:
        self._repository = repository
        self._top = repository.worktree or ""
        self._files = files
        self._contents = contents
        self._seen: dict[bytes, Identity] = {}

    @classmethod
    def of(cls, repository: Repository, files: Sequence[Difference]) -> Exchange | None:
        """Returns what replaces files; None where that is better left to git: many, large, damaged, or one in the place of a directory.

        A tree that git did not make may have one name twice: git says what is wrong with that.

        Args:
            repository: seen from the worktree.
            files: as for the class; none of them is of a path that git might refuse.
        """
        paths = {one.path for one in files}
        is_odd = len(files) >= _MANY or len(paths) < len(files)
        if is_odd or not paths.isdisjoint(layout.with_above([os.path.dirname(path) for path in paths])):
            return None
        coming = [one for one in files if one.status != "D"]
        kinds = {one.new_mode for one in coming} | {one.old_mode for one in files if one.status != "A"}
        if not kinds <= _KINDS:
            return None
        oids = list(dict.fromkeys(one.new for one in coming))
        contents: dict[str, bytes] = {}
        left = _LARGEST_TOGETHER
        for oid, found in zip(oids, repository.cat_file.contents(oids, _LARGEST), strict=True):
            if found is None or found[1] == OVERSIZED or object_id(*found[1:], repository.object_format) != oid or len(found[2]) > left:
                return None
            contents[oid] = found[2]
            left -= len(found[2])
        if not all(_is_target(contents[one.new]) for one in coming if one.new_mode == LINK):
            return None
        return cls(repository, files, contents)

    def replace(self) -> None:
        """Replaces them.

        Raises:
            Interference: one is not as it was captured; if it was found at once, nothing was touched.
            OSError: one cannot be written; WorktreeError: nor can its directory.
        """
        for one in self._files:
            self._look(one)
        gone = [one.path for one in self._files if one.status == "D"]
        for path in gone:
            with _named(path), raw_files.directory_of(self._repository, path) as (fd, name):
                self._require_same(path, name, fd)
                os.unlink(name, dir_fd=fd)
        emptied = layout.with_above([os.path.dirname(path) for path in gone])
        layout.remove_empty(self._top, emptied - {_here(os.fsencode(self._top))})  # as git, not beneath somebody's feet
        coming = [one for one in self._files if one.status != "D"]
        layout.make(self._top, {above for one in coming if one.status == "A" and (above := os.path.dirname(one.path))})
        for one in coming:
            self._put(one)

    def missed(self) -> list[Difference]:
        """Returns those that are not as they shall be."""
        nothing = (None, _OTHER)  # a directory may have come in the place of a file
        wanted = ((one, nothing if one.status == "D" else ((one.new_mode, one.new),)) for one in self._files)
        return [one for one, allowed in wanted if self._kind_and_oid(one.path) not in allowed]

    def _look(self, one: Difference) -> None:
        """Raises `Interference` unless a file is as it was, and remembers which one that is."""
        try:
            if self._kind_and_oid(one.path) != ((one.old_mode, one.old) if one.status != "A" else None):
                raise Interference(one.path)
        except OSError:
            raise Interference(one.path) from None

    def _kind_and_oid(self, path: bytes) -> tuple[bytes, str] | None:
        """Returns mode and oid of what is at a path, None where there is nothing. Raises `OSError` where it cannot be read."""
        kind = self._repository.object_format
        try:
            with raw_files.directory_of(self._repository, path) as (fd, name):
                status = os.lstat(name, dir_fd=fd)
                self._seen[path] = _identity(status)
                if stat.S_ISLNK(status.st_mode):
                    return LINK, object_id("blob", os.readlink(name, dir_fd=fd), kind)
                if not stat.S_ISREG(status.st_mode):
                    return _OTHER
                with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd), "rb") as file:
                    digest = object_hash(kind, b"blob %d\0" % status.st_size)
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
        except _GONE:
            return None
        return EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE, digest.hexdigest()

    def _require_same(self, path: bytes, name: bytes, fd: int) -> None:
        try:
            now = _identity(os.lstat(name, dir_fd=fd))
        except _GONE:
            raise Interference(path) from None
        if now != self._seen.get(path):
            raise Interference(path)

    def _put(self, one: Difference) -> None:
        with _named(one.path), raw_files.directory_of(self._repository, one.path) as (fd, name):
            if one.status == "A":
                try:
                    _write(name, fd, one.new_mode, self._contents[one.new])
                except FileExistsError:
                    raise Interference(one.path) from None
                return
            scratch = _SCRATCH + os.urandom(8).hex().encode()
            _write(scratch, fd, one.new_mode, self._contents[one.new])
            try:
                self._require_same(one.path, name, fd)
                os.rename(scratch, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                os.unlink(scratch, dir_fd=fd)
                raise


def left_over(repository: Repository, directories: Collection[bytes]) -> list[bytes]:
    """Returns the files that were to take the place of others when a kill came; git may ignore them.

    Args:
        repository: seen from the worktree.
        directories: in which to look, relative to the top.
    """
    found: list[bytes] = []
    for directory in sorted(directories):
        with contextlib.suppress(OSError):
            names = os.listdir(os.path.join(os.fsencode(repository.worktree or ""), directory))
            found += [os.path.join(directory, name) for name in sorted(names) if _LEFT_OVER.fullmatch(name)]
    return found


def _here(top: bytes) -> bytes:
    """Returns the current directory, relative to the top; "" where it is gone."""
    try:
        return os.path.relpath(os.fsencode(os.getcwd()), top)
    except FileNotFoundError:
        return b""


@contextlib.contextmanager
def _named(path: bytes) -> Iterator[None]:
    """Has an error of the system name the file that is meant, and not what is written to take its place, nor what a link leads to."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _is_target(data: bytes) -> bool:
    """Tells whether a link can lead there; what git did not make may hold anything."""
    return 0 < len(data) < _LONGEST_TARGET and b"\0" not in data


def _write(name: bytes, fd: int, mode: bytes, data: bytes) -> None:
    """Makes a file, or nothing. Raises `FileExistsError` where something is there."""
    if mode == LINK:
        os.symlink(data, name, dir_fd=fd)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    made = os.open(name, flags, 0o777 if mode == EXECUTABLE else 0o666, dir_fd=fd)
    try:
        with open(made, "wb") as file:
            file.write(data)
    except BaseException:
        os.unlink(name, dir_fd=fd)
        raise


def _identity(status: os.stat_result) -> Identity:
    """Returns what is another one where somebody has written the file, or put another one in its place."""
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
