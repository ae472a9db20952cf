"""Writes loose objects as git does, without a process: compressed files that are named by their content. Imported by the hook.

libgit2 takes 0.9 ms for one, and `git unpack-objects` 3; a file takes 0.15.
"""

from __future__ import annotations

import os
import zlib

from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository

_TRIES = 10
_SHARED = 0o2022
"""Bits of the mode of `objects` by which others write there, too: git lets whoever shares a repository (core.sharedRepository) write to
each directory, and has new ones belong to the group."""

_LEVEL = 1
"""How hard git itself compresses loose objects."""

_SMALL, _WINDOW, _MEMORY = 8 << 10, 13, 6
"""Up to so many bytes an object is compressed with a window and tables that are large enough for it (`windowBits` and `memLevel` of zlib):
to clear those for a large one takes twice as long as to compress a document. Whoever reads may have a window that is larger."""


def write(repository: Repository, items: Sequence[Item], oids: Sequence[str]) -> None:
    """Writes objects, and flushes none. Each is there whole or not at all.

    Args:
        items: kind and content of each.
        oids: of the same.

    Raises:
        GitError: one cannot be written.
    """
    top = os.path.join(repository.common_dir, "objects")
    try:
        mode = os.stat(top).st_mode
        for (kind, data), oid in zip(items, oids, strict=True):
            _put(os.path.join(top, oid[:2]), oid[2:], kind, data, mode & 0o7777)
    except OSError as error:
        raise GitError(["write"], 1, f"{error.filename or top}: {error.strerror}") from None


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
    window, memory = (_WINDOW, _MEMORY) if len(data) <= _SMALL else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    compressor = zlib.compressobj(_LEVEL, wbits=window, memLevel=memory)
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
