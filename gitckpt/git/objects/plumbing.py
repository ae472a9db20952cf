"""The adapter that reads through `git cat-file --batch-command`, and writes loose objects as git does. Imported by the hook."""

from __future__ import annotations

from gitckpt.git.objects.anchor import Anchor
from gitckpt.model.format import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.repository import Repository


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

    def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Iterator[tuple[str, bytes] | None]:
        """See `Objects.read`."""
        for found in self._repository.cat_file.contents(oids, most):
            yield None if found is None else (found[1], found[2])

    def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
        """See `Objects.write`."""
        return self._anchor.write(items, flushed=flushed)

    def hold(self, names: Iterable[str], *, revs: bool = False) -> bool:
        """See `Objects.hold`."""
        return self._anchor.hold(names, revs=revs)

    def settle(self) -> None:
        """See `Objects.settle`."""
        self._anchor.settle()

    def close(self) -> None:
        """See `Objects.close`."""
        self._anchor.close()
        self._repository.cat_file.close()
