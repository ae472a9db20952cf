"""The adapter that reads through `git cat-file --batch-command`, and writes loose objects as git does. Imported by the hook."""

from __future__ import annotations

from gitckpt.git.objects.writer import ObjectWriter
from gitckpt.model.format import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Plumbing(ObjectWriter):
    """Objects of a repository, with git's own means.

    Args:
        repository: any repository that git opens.
    """

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
        self._repository.cat_file.close()
