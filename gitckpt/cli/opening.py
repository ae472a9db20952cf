"""How a command opens the store: through git's own processes, as importing libgit2 would cost more than one command does."""

from __future__ import annotations

from gitckpt.cli.screen import terminal
from gitckpt.git.repository import discover, open_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store


def open_store(*, to_capture: bool = False, any_git: bool = False) -> Store:
    """Returns the store of the repository that the current directory is in.

    Args:
        to_capture: whether the worktree is going to be captured: git begins to look at it while Python still imports.
        any_git: whether a git that is too old will do.

    Raises:
        RepositoryError: there is none, git refuses it, or git is too old.
        WorktreeError: the index cannot be copied.
    """
    repository = discover() if any_git else open_repository()
    ahead = None
    if to_capture and repository.worktree is not None:
        from gitckpt.git.worktree.index import PrivateIndex

        ahead = PrivateIndex(repository)
        ahead.open()
        ahead.look_ahead()
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.store import Store

    return Store(Checkpoints(repository, adapter="plumbing", ahead=ahead, tell=_tell))


def _tell(sentence: str) -> None:
    terminal.warn(terminal.harmless(sentence))
