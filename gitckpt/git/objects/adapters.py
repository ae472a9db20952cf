"""Which adapter serves the objects of a repository."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository


def open_objects(repository: Repository, adapter: str = "auto") -> Objects:
    """Returns the objects of a repository.

    Args:
        adapter: "libgit2", "plumbing", or "auto": libgit2 where it opens the repository, plumbing elsewhere.

    Raises:
        RepositoryError: libgit2 was asked for and cannot open the repository.
        UsageError: there is no such adapter.
    """
    from gitckpt.git.objects.plumbing import Plumbing

    if adapter == "plumbing":
        return Plumbing(repository)
    from gitckpt.git.objects import libgit2
    from gitckpt.model.errors import RepositoryError, UsageError

    if adapter not in ("auto", "libgit2"):
        raise UsageError(f"there is no adapter {adapter!r}", hint="adapters: auto, libgit2, plumbing")
    try:
        return libgit2.Libgit2(repository)
    except RepositoryError:
        if adapter == "libgit2":
            raise
        return Plumbing(repository)
