"""Write loose objects for both adapters, and flush them before refs lead to them. Imported by the hook."""

from __future__ import annotations

import os
import zlib

from gitckpt.git import fsync
from gitckpt.git.objects.encoding import object_hash, object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository


# Writes loose objects as git does, without a process: compressed files that are named by their content. Imported by the hook.


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


# Packs: whole objects as one stream, and written into a repository with an index of their own (gitformat-pack(5), both version 2).


_KINDS = {"commit": 1, "tree": 2, "blob": 3}
_PACK_TRIES = 10
_FAR = 1 << 31  # from here on, offsets are in a table of their own


def encode(objects: Sequence[Item], object_format: str, level: int = 0) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns a pack of whole objects, and where each begins, with the checksum of what stands there.

    Args:
        objects: none twice.
        object_format: "sha1" or "sha256".
        level: how hard they are compressed, as for zlib.
    """
    parts = [b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big")]
    places: list[tuple[int, int]] = []
    at = len(parts[0])
    for kind, data in objects:
        size = len(data)
        byte, size = _KINDS[kind] << 4 | size & 15, size >> 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        header.append(byte)
        entry = bytes(header) + zlib.compress(data, level)
        places.append((at, zlib.crc32(entry)))
        at += len(entry)
        parts.append(entry)
    whole = b"".join(parts)
    return whole + object_hash(object_format, whole).digest(), places


def write_pack(repository: Repository, items: Sequence[Item]) -> None:
    """Write objects as a pack of their own, whether they exist already or not, flushed to the disk.

    Args:
        items: at least one.

    Raises:
        GitError: it cannot be written.
        CkptError: the disk reports an error.
    """
    objects = {object_id(kind, data, repository.object_format): (kind, data) for kind, data in items}
    data, places = encode(list(objects.values()), repository.object_format, level=-1)
    index = _index(dict(zip(objects, places, strict=True)), data, repository.object_format)
    directory = os.path.join(repository.common_dir, "objects", "pack")
    path = os.path.join(directory, f"pack-{os.urandom(20).hex()}")
    try:
        os.makedirs(directory, exist_ok=True)
        _put_pack(f"{path}.pack", data)
        _put_pack(f"{path}.idx", index)  # last: by it, git finds the pack
    except OSError as error:
        raise GitError(["write"], 1, f"{error.filename or path}: {error.strerror}") from None
    fsync.flush([directory, os.path.dirname(directory)])


def _put_pack(path: str, data: bytes) -> None:
    """Write a file below `objects`, flushed to the disk, and all at once."""
    # Who may read the directory may read the file, as git has it where a group shares the repository.
    directory = os.path.dirname(path)
    mode = os.stat(directory).st_mode & 0o444
    for tries in range(1, _PACK_TRIES + 1):
        scratch = os.path.join(directory, f"tmp_ckpt_{os.urandom(8).hex()}")  # what a kill leaves under such a name, git deletes
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        try:
            os.replace(scratch, path)
        except FileNotFoundError:  # a `git prune` found it
            if tries == _PACK_TRIES:
                raise
        else:
            return


def _index(places: dict[str, tuple[int, int]], pack: bytes, object_format: str) -> bytes:
    """Returns the index of a pack.

    Args:
        places: what `encode` returned, by oid.
        pack: its content.
        object_format: "sha1" or "sha256".
    """
    ordered = sorted(places)
    counts = [0] * 256
    for oid in ordered:
        counts[int(oid[:2], 16)] += 1
    total = 0
    parts = [b"\377tOc", (2).to_bytes(4, "big")]
    for count in counts:
        total += count
        parts.append(total.to_bytes(4, "big"))
    parts += [bytes.fromhex(oid) for oid in ordered]
    parts += [places[oid][1].to_bytes(4, "big") for oid in ordered]
    far = [places[oid][0] for oid in ordered if places[oid][0] >= _FAR]
    numbers = iter(range(len(far)))
    offsets = (places[oid][0] for oid in ordered)
    parts += [(offset if offset < _FAR else 1 << 31 | next(numbers)).to_bytes(4, "big") for offset in offsets]
    parts += [offset.to_bytes(8, "big") for offset in far]
    whole = b"".join(parts) + pack[-len(object_hash(object_format, b"").digest()) :]
    return whole + object_hash(object_format, whole).digest()


# Write loose objects for both adapters, and flush them before refs lead to them. Imported by the hook.


_PACKED_FROM = 5000
"""So many objects go into a pack at once: loose, each costs a file, and the next `git gc --auto` would pack them."""


class ObjectWriter:
    """Writes objects, and remembers those that are not flushed yet."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._unflushed: dict[str, None] = {}

    def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
        """See `Objects.write`."""
        if not items:
            return []
        oids = [object_id(kind, data, self._repository.object_format) for kind, data in items]
        if len(items) >= _PACKED_FROM:
            write_pack(self._repository, items)
            return oids
        write(self._repository, items, oids)
        self._unflushed.update(dict.fromkeys(oids))
        if flushed:
            self.flush()
        return oids

    def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        """See `Objects.flush`."""
        # Another thread may flush at the same time: what it wrote stays listed until it is on the disk.
        own = list(self._unflushed)
        fsync.flush([*fsync.object_paths(self._repository.common_dir, [*own, *oids]), *paths])
        for oid in own:
            self._unflushed.pop(oid, None)
