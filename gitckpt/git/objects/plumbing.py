"""The adapter that uses the git executable: `cat-file --batch-command` to read, `unpack-objects` for any number of objects to write."""

from __future__ import annotations

from gitckpt.git import disk
from gitckpt.git.objects import pack
from gitckpt.git.objects.anchor import Anchor, is_pruned
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, Standby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository


class Plumbing:
    """Objects of a repository, through the git executable.

    Args:
        repository: any repository that git opens.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        # Git would flush one after the other, or, by its batches, each but not its name.
        self._writers = Standby(lambda: repository.git.start("-c", "core.fsync=none", "unpack-objects", "-q"))
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
        """See `Objects.write`."""
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
        disk.drop_empty(self._repository, oids)
        writer = self._writers.take()
        writer.feed(pack.encode(items, self._repository.object_format)[0])  # git compresses it anew
        done = writer.communicate()
        return None if done.code == 0 else GitError(["unpack-objects"], done.code, done.complaint)

    def hold(self, oids: Iterable[str]) -> bool:
        """See `Objects.hold`."""
        return self._anchor.hold(oids)

    def settle(self) -> None:
        """See `Objects.settle`."""
        self._anchor.settle()

    def warm_up(self) -> None:
        """Starts the process that writes now, so that it stands by when it is needed."""
        self._writers.warm_up()

    def close(self) -> None:
        """See `Objects.close`."""
        self._anchor.close()
        self._writers.close()
        self._repository.cat_file.close()
