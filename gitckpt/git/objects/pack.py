"""Packs: whole objects as one stream, and written into a repository with an index of their own (gitformat-pack(5), both version 2)."""

from __future__ import annotations

import os
import zlib

from gitckpt.git import fsync
from gitckpt.git.objects.encoding import object_hash, object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository

_KINDS = {"commit": 1, "tree": 2, "blob": 3}
_TRIES = 10
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


def write(repository: Repository, items: Sequence[Item]) -> None:
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
        _put(f"{path}.pack", data)
        _put(f"{path}.idx", index)  # last: by it, git finds the pack
    except OSError as error:
        raise GitError(["write"], 1, f"{error.filename or path}: {error.strerror}") from None
    fsync.flush([directory, os.path.dirname(directory)])


def _put(path: str, data: bytes) -> None:
    """Write a file below `objects`, flushed to the disk, and all at once."""
    # Who may read the directory may read the file, as git has it where a group shares the repository.
    directory = os.path.dirname(path)
    mode = os.stat(directory).st_mode & 0o444
    for tries in range(1, _TRIES + 1):
        scratch = os.path.join(directory, f"tmp_ckpt_{os.urandom(8).hex()}")  # what a kill leaves under such a name, git deletes
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        try:
            os.replace(scratch, path)
        except FileNotFoundError:  # a `git prune` found it
            if tries == _TRIES:
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
