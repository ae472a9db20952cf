"""The adapter that reads through `git cat-file --batch-command`, and writes loose objects as git does. Imported by the hook.

To write takes no process: a loose object is a compressed file that is named by its content. It is there whole or not at all.
"""

from __future__ import annotations

import os
import zlib

from gitckpt.git import disk
from gitckpt.git.objects.anchor import Anchor, is_pruned
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository

_TRIES = 10
_SHARED = 0o2022
"""Bits of the mode of `objects` by which others write there, too: git lets whoever shares a repository (core.sharedRepository) write to
each directory, and has new ones belong to the group."""


class Plumbing:
    """Objects of a repository, with git's own means.

    Args:
        repository: any repository that git opens.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._anchor = Anchor(repository)

    def head(self) -> tuple[str, str | None]:
        """See `Objects.head`."""
        branch = self._repository.head_ref().removeprefix("refs/heads/") or None
        commit = self._repository.cat_file.info("HEAD")
        return commit[0] if commit else "", branch

    def read(self, oids: Sequence[str]) -> Iterator[tuple[str, bytes] | None]:
        """See `Objects.read`."""
        for found in self._repository.cat_file.contents(oids):
            yield None if found is None else (found[1], found[2])

    def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
        """See `Objects.write`. What is in a pack already is written all the same: no gc that is under way takes it then."""
        if not items:
            return []
        oids = [object_id(kind, data, self._repository.object_format) for kind, data in items]
        if not self._anchor.is_needed():
            failed = self._write_loosely(items, oids)
            if failed is None:
                self._anchor.remember(items)
                if flushed:
                    disk.flush_written(self._repository, oids)
                return oids
            if not is_pruned(failed):
                raise failed
        self._anchor.write(items)
        return oids

    def _write_loosely(self, items: Sequence[Item], oids: Sequence[str]) -> GitError | None:
        top = os.path.join(self._repository.common_dir, "objects")
        try:
            mode = os.stat(top).st_mode
        except OSError as error:
            raise GitError(["write"], 1, f"{top}: {error.strerror}") from None
        try:
            for (kind, data), oid in zip(items, oids, strict=True):
                _put(os.path.join(top, oid[:2]), oid[2:], kind, data, mode & 0o7777)
        except OSError as error:
            return GitError(["write"], 1, f"{error.filename or top}: {error.strerror}")
        return None

    def hold(self, oids: Iterable[str]) -> bool:
        """See `Objects.hold`."""
        return self._anchor.hold(oids)

    def settle(self) -> None:
        """See `Objects.settle`."""
        self._anchor.settle()

    def close(self) -> None:
        """See `Objects.close`."""
        self._anchor.close()
        self._repository.cat_file.close()


def _put(directory: str, name: str, kind: str, data: bytes, mode: int) -> None:
    """Writes a loose object, unless it is there and holds something: a power cut may have left its file empty.

    Args:
        directory: where; it is created where it was missing.
        name: of the file.
        kind: of the object.
        data: its content.
        mode: of the directory above.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(directory, name)
    try:
        if os.stat(path).st_size:
            os.utime(path)  # or a `git gc` could take it for an old one
            return
    except OSError:  # it is not there, or somebody else's
        pass
    compressor = zlib.compressobj(1)  # git's own level for loose objects
    whole = compressor.compress(b"%s %d\0" % (kind.encode("ascii"), len(data))) + compressor.compress(data) + compressor.flush()
    for tries in range(1, _TRIES + 1):
        scratch = os.path.join(directory, f"tmp_obj_{os.urandom(8).hex()}")  # what a kill leaves under such a name, git deletes
        try:
            _write_file(scratch, whole, mode)
            os.replace(scratch, path)
        except FileNotFoundError:  # a prune deletes directories that are empty, and scratch files
            if tries == _TRIES:
                raise
            _make(directory, mode)
        except OSError:
            _discard(scratch)
            raise
        else:
            return


def _write_file(path: str, data: bytes, above: int) -> None:
    """Writes a new file that nobody changes; who may read the directory of this mode may read it, but for what the umask says."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, above & 0o444)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if above & _SHARED:  # then the umask says nothing
            os.fchmod(fd, above & 0o444)
    finally:
        os.close(fd)


def _make(directory: str, above: int) -> None:
    try:
        os.mkdir(directory, above & 0o777)
    except FileExistsError:
        return
    if above & _SHARED:
        os.chmod(directory, above)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
