"""Define the interface for git objects, and write loose objects and packs.

`libgit2` (pygit2) is faster in a long-lived process, but takes 80 ms to import and cannot open all
repositories. `plumbing` calls git, which opens them all. The hook imports this module.
"""

from __future__ import annotations

import os
import zlib
from itertools import accumulate

from gitckpt.git import fsync
from gitckpt.git.objects.encoding import object_hash, object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    from gitckpt.git.repository import Repository
    from gitckpt.model import budget

    Item = tuple[str, bytes]  # kind and content
    Items = Iterator[Item | None]

    class ObjectDatabase(Protocol):
        def read_head(self) -> tuple[str, str | None]:
            """Return the commit of HEAD ("" if unborn) and its branch (None if detached)."""

        def read(self, oids: Sequence[str], max_size: int | None = budget.DOCUMENT.size) -> Items:
            """Yield the kind and content of each object.

            An unreadable object yields None. One larger than `max_size` has the kind OVERSIZED.
            """

        def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
            """Write objects, blobs before trees before commits, and return their oids.

            If `flushed`, wait until the objects are on the disk.
            """

        def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
            """Flush all written objects, the objects `oids` and the files `paths` to the disk."""

        def close(self) -> None: ...

# Loose objects

_TRIES = 10
# Mode bits of `objects` in a shared repository (core.sharedRepository): git makes each directory
# writable for the group, and new ones inherit it.
_SHARED = 0o2022
_LEVEL = 1  # git's own for loose objects
# Up to this size, a small window and tables suffice (zlib's `windowBits` and `memLevel`): clearing
# large ones takes twice as long as compressing a document. Readers may use a larger window.
_SMALL, _WINDOW, _MEMORY = 8 << 10, 13, 6


def write_loose_objects(repository: Repository, items: Sequence[Item], oids: Sequence[str]) -> None:
    """Write each object as a loose object, atomically, but do not flush it."""
    top = os.path.join(repository.common_dir, "objects")
    try:
        mode = os.stat(top).st_mode
        for (kind, data), oid in zip(items, oids, strict=True):
            _write_loose_object(os.path.join(top, oid[:2]), oid[2:], kind, data, mode & 0o7777)
    except OSError as error:
        raise GitError(["hash-object"], 1, f"{error.filename or top}: {error.strerror}") from None


def _write_loose_object(directory: str, name: str, kind: str, data: bytes, mode: int) -> None:
    path = os.path.join(directory, name)
    try:
        if os.stat(path).st_size:  # a power cut may have left an empty file
            os.utime(path)  # else `git gc` could prune it as old
            return
    except OSError:  # missing, or owned by another user
        pass
    is_small = len(data) <= _SMALL
    window_bits, memory = (_WINDOW, _MEMORY) if is_small else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    compressor = zlib.compressobj(_LEVEL, wbits=window_bits, memLevel=memory)
    parts = (b"%s %d\0" % (kind.encode("ascii"), len(data)), data)
    content = b"".join([*map(compressor.compress, parts), compressor.flush()])
    for try_number in range(1, _TRIES + 1):
        # git deletes a leftover.
        scratch = os.path.join(directory, f"tmp_obj_{os.urandom(8).hex()}")
        try:
            _write_new_file(scratch, content, mode)
            os.replace(scratch, path)
        except FileNotFoundError:  # a prune deletes empty directories and scratch files
            if try_number == _TRIES:
                raise
            _make_object_directory(directory, mode)
        except OSError:
            try:
                os.unlink(scratch)
            except OSError:
                pass
            raise
        else:
            return


def _write_new_file(path: str, data: bytes, directory_mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, directory_mode & 0o444)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if directory_mode & _SHARED:  # the umask does not count
            os.fchmod(fd, directory_mode & 0o444)
    finally:
        os.close(fd)


def _make_object_directory(directory: str, directory_mode: int) -> None:
    try:
        os.mkdir(directory, directory_mode & 0o777)
    except FileExistsError:
        return
    if directory_mode & _SHARED:
        os.chmod(directory, directory_mode)


# Packs of whole objects and their indexes (gitformat-pack(5), both version 2)

_KINDS = {"commit": 1, "tree": 2, "blob": 3}
_MAX_OFFSET = 1 << 31  # larger offsets go into a separate table


def encode_pack(
    objects: Sequence[Item], object_format: str, level: int = 0
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a pack without deltas, and the offset and CRC-32 of each object in it."""
    parts = [b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big")]
    positions: list[tuple[int, int]] = []
    offset = len(parts[0])
    for kind, data in objects:
        size = len(data)
        byte, size = _KINDS[kind] << 4 | size & 15, size >> 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        header.append(byte)
        entry = bytes(header) + zlib.compress(data, level)
        positions.append((offset, zlib.crc32(entry)))
        offset += len(entry)
        parts.append(entry)
    pack = b"".join(parts)
    return pack + object_hash(object_format, pack).digest(), positions


def write_pack(repository: Repository, items: Sequence[Item]) -> None:
    """Write a pack of all objects, even of existing ones, and flush it to the disk."""
    object_format = repository.object_format
    objects = {object_id(kind, data, object_format): (kind, data) for kind, data in items}
    data, positions = encode_pack(list(objects.values()), object_format, level=-1)
    index = _encode_idx(dict(zip(objects, positions, strict=True)), data, object_format)
    directory = os.path.join(repository.common_dir, "objects", "pack")
    path = os.path.join(directory, f"pack-{os.urandom(20).hex()}")
    try:
        os.makedirs(directory, exist_ok=True)
        _write_and_flush_file(f"{path}.pack", data)
        _write_and_flush_file(f"{path}.idx", index)  # last: git finds the pack by it
    except OSError as error:
        raise GitError(["index-pack"], 1, f"{error.filename or path}: {error.strerror}") from None
    fsync.flush([directory, os.path.dirname(directory)])


def _write_and_flush_file(path: str, data: bytes) -> None:
    # As readable as the directory, as git does it in a shared repository.
    directory = os.path.dirname(path)
    mode = os.stat(directory).st_mode & 0o444
    for tries in range(1, _TRIES + 1):
        # git deletes a leftover.
        scratch = os.path.join(directory, f"tmp_ckpt_{os.urandom(8).hex()}")
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        try:
            os.replace(scratch, path)
        except FileNotFoundError:  # deleted by a `git prune`
            if tries == _TRIES:
                raise
        else:
            return


def _encode_idx(positions: dict[str, tuple[int, int]], pack: bytes, object_format: str) -> bytes:
    sorted_oids = sorted(positions)
    counts = [0] * 256
    for oid in sorted_oids:
        counts[int(oid[:2], 16)] += 1
    parts = [b"\377tOc", (2).to_bytes(4, "big")]
    parts += [total.to_bytes(4, "big") for total in accumulate(counts)]
    parts += [bytes.fromhex(oid) for oid in sorted_oids]
    parts += [positions[oid][1].to_bytes(4, "big") for oid in sorted_oids]
    large_offsets: list[int] = []
    for oid in sorted_oids:
        offset = positions[oid][0]
        if offset >= _MAX_OFFSET:
            large_offsets.append(offset)
            offset = 1 << 31 | (len(large_offsets) - 1)
        parts.append(offset.to_bytes(4, "big"))
    parts += [offset.to_bytes(8, "big") for offset in large_offsets]
    content = b"".join(parts) + pack[-len(object_hash(object_format, b"").digest()) :]
    return content + object_hash(object_format, content).digest()


# The writer of both adapters

# From this number of objects on, write a pack, as the next `git gc --auto` would.
_PACKED_FROM = 5000


class ObjectWriter:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._unflushed: dict[str, None] = {}

    def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
        if not items:
            return []
        oids = [object_id(kind, data, self._repository.object_format) for kind, data in items]
        if len(items) >= _PACKED_FROM:
            write_pack(self._repository, items)
            return oids
        write_loose_objects(self._repository, items, oids)
        self._unflushed.update(dict.fromkeys(oids))
        if flushed:
            self.flush()
        return oids

    def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        # Another thread may flush at the same time: its objects stay listed until they are on disk.
        unflushed = list(self._unflushed)
        fsync.flush([*fsync.object_paths(self._repository.common_dir, [*unflushed, *oids]), *paths])
        for oid in unflushed:
            self._unflushed.pop(oid, None)
