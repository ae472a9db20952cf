"""The adapter that uses the git executable: `cat-file --batch-command` to read, `unpack-objects` for any number of objects to write."""

from __future__ import annotations

import zlib

from gitckpt.git.command import DURABLE
from gitckpt.git.objects.encoding import object_hash
from gitckpt.git.process import GitError, Standby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository

_PACK_KINDS = {"commit": 1, "tree": 2, "blob": 3}


class Plumbing:
    """Objects of a repository, through the git executable.

    Args:
        repository: any repository that git opens.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._durable = Standby(lambda: repository.git.start(*DURABLE, "unpack-objects", "-q"))
        self._derived = Standby(lambda: repository.git.start("unpack-objects", "-q"))

    def head(self) -> tuple[str, str | None]:
        """See `Objects.head`."""
        branch = self._repository.head_ref().removeprefix("refs/heads/") or None
        commit = self._repository.cat_file.info("HEAD")
        return commit[0] if commit else "", branch

    def read(self, oids: Sequence[str]) -> Iterator[tuple[str, bytes] | None]:
        """See `Objects.read`."""
        for found in self._repository.cat_file.contents(oids):
            yield None if found is None else (found[1], found[2])

    def write(self, durable: Sequence[Item], derived: Sequence[Item] = ()) -> None:
        """See `Objects.write`."""
        writers = []
        for standby, items in ((self._durable, durable), (self._derived, derived)):
            if items:
                writer = standby.take()
                writer.feed(_pack(items, self._repository.object_format))
                writers.append(writer)
        for done in [writer.communicate() for writer in writers]:
            if done.code != 0:
                raise GitError(["unpack-objects"], done.code, done.complaint)

    def warm_up(self) -> None:
        """Starts the processes that write now, so that they stand by when they are needed."""
        self._durable.warm_up()
        self._derived.warm_up()

    def close(self) -> None:
        """See `Objects.close`."""
        self._durable.close()
        self._derived.close()
        self._repository.cat_file.close()


def _pack(objects: Sequence[Item], object_format: str) -> bytes:
    """Returns a pack of whole objects (gitformat-pack(5), version 2)."""
    parts = [b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big")]
    for kind, data in objects:
        size = len(data)
        byte, size = _PACK_KINDS[kind] << 4 | size & 15, size >> 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        header.append(byte)
        parts += [bytes(header), zlib.compress(data, 0)]  # git compresses it anew
    whole = b"".join(parts)
    return whole + object_hash(object_format, whole).digest()
