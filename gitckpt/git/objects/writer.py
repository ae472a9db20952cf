"""Write loose objects for both adapters, and flush them before refs lead to them. Imported by the hook."""

from __future__ import annotations

from gitckpt.git import fsync
from gitckpt.git.objects import loose
from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository

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
            from gitckpt.git.objects import pack

            pack.write(self._repository, items)
            return oids
        loose.write(self._repository, items, oids)
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
