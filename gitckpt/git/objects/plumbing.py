"""Read objects with `git cat-file`, or choose libgit2. Imported by the hook."""

from __future__ import annotations

from gitckpt.git.objects.writer import ObjectWriter
from gitckpt.model import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.writer import Items, ObjectDatabase
    from gitckpt.git.repository import Repository


class PlumbingObjects(ObjectWriter):
    def read_head(self) -> tuple[str, str | None]:
        branch = self._repository.head_ref().removeprefix("refs/heads/") or None
        commit = self._repository.cat_file.info("HEAD")
        return commit[0] if commit else "", branch

    def read(self, oids: Sequence[str], max_size: int | None = budget.DOCUMENT.size) -> Items:
        for item in self._repository.cat_file.read_contents(oids, max_size):
            yield None if item is None else (item[1], item[2])

    def close(self) -> None:
        self._repository.cat_file.close()


def open_objects(repository: Repository, adapter: str = "auto") -> ObjectDatabase:
    """Open the adapter "plumbing" or "libgit2"; "auto" is libgit2 if it can be used."""
    if adapter == "plumbing":
        return PlumbingObjects(repository)
    from gitckpt.git.objects import libgit2
    from gitckpt.model.errors import RepositoryError, UsageError

    if adapter not in ("auto", "libgit2"):
        hint = "use one of these: auto, libgit2, plumbing"
        raise UsageError(f"there is no adapter {adapter!r}", hint=hint)
    try:
        return libgit2.Libgit2Objects(repository)
    except RepositoryError:
        if adapter == "libgit2":
            raise
        return PlumbingObjects(repository)
