"""The adapter that uses the git executable: `cat-file --batch-command` to read, `unpack-objects` for any number of objects to write."""

from __future__ import annotations

from gitckpt.git.command import DURABLE
from gitckpt.git.objects import pack
from gitckpt.git.objects.anchor import Anchor, is_pruned
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
        self._durable = Standby(lambda: repository.git.start(*DURABLE, "unpack-objects", "-q"))
        self._derived = Standby(lambda: repository.git.start("unpack-objects", "-q"))
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

    def write(self, durable: Sequence[Item], derived: Sequence[Item] = ()) -> None:
        """See `Objects.write`."""
        items = [*durable, *derived]
        if not items:
            return
        if not self._anchor.is_needed():
            failed = self._write_loosely(durable, derived)
            if failed is None:
                self._anchor.remember(items)
                return
            if not is_pruned(failed):
                raise failed
        self._anchor.write(items)

    def _write_loosely(self, durable: Sequence[Item], derived: Sequence[Item]) -> GitError | None:
        writers = []
        for standby, items in ((self._durable, durable), (self._derived, derived)):
            if items:
                writer = standby.take()
                writer.feed(pack.encode(items, self._repository.object_format)[0])  # git compresses it anew
                writers.append(writer)
        ends = [writer.communicate() for writer in writers]
        return next((GitError(["unpack-objects"], done.code, done.complaint) for done in ends if done.code != 0), None)

    def hold(self, oids: Iterable[str]) -> bool:
        """See `Objects.hold`."""
        return self._anchor.hold(oids)

    def settle(self) -> None:
        """See `Objects.settle`."""
        self._anchor.settle()

    def warm_up(self) -> None:
        """Starts the processes that write now, so that they stand by when they are needed."""
        self._durable.warm_up()
        self._derived.warm_up()

    def close(self) -> None:
        """See `Objects.close`."""
        self._anchor.close()
        self._durable.close()
        self._derived.close()
        self._repository.cat_file.close()
