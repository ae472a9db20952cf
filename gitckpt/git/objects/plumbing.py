"""The adapter that reads through `git cat-file --batch-command`, and writes loose objects as git does. Imported by the hook."""

from __future__ import annotations

from gitckpt.git.objects.anchor import Anchor
from gitckpt.model.format import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.repository import Repository


class Plumbing(Anchor):
    """Objects of a repository, with git's own means.

    Args:
        repository: any repository that git opens.
    """

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository)

    def head(self) -> tuple[str, str | None]:
        """See `Objects.head`."""
        branch = self._repository.head_ref().removeprefix("refs/heads/") or None
        commit = self._repository.cat_file.info("HEAD")
        return commit[0] if commit else "", branch

    def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Iterator[tuple[str, bytes] | None]:
        """See `Objects.read`."""
        for found in self._repository.cat_file.contents(oids, most):
            yield None if found is None else (found[1], found[2])

    def close(self) -> None:
        """See `Objects.close`."""
        self._let_go()
        self._repository.cat_file.close()
