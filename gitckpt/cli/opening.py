"""How a command opens the store: through git's own processes, as importing libgit2 would cost more than one command does."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store


def open_store() -> Store:
    """Returns the store of the repository that the current directory is in.

    Raises:
        RepositoryError: there is none, git refuses it, or git is too old.
    """
    from gitckpt.store.store import Store

    return Store.open(adapter="plumbing")
