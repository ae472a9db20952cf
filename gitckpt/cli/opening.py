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

    def import_what_comes_next() -> None:
        if to_capture:
            import gitckpt.git.worktree.index
        else:
            import gitckpt.store.checkpoints  # noqa: F401

    repository = (discover if any_git else open_repository)(meanwhile=import_what_comes_next)
    ahead = None
    if to_capture and repository.worktree is not None:
        from gitckpt.git.worktree.index import PrivateIndex

        ahead = PrivateIndex(repository)
        ahead.open()
        ahead.look_ahead()
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.listener import Listener
    from gitckpt.store.store import Store

    told: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in told:  # the stores of other worktrees and threads may have the same to say
            told.add(sentence)
            terminal.warn(sentence)

    listener = Listener(tell, terminal.progress)
    checkpoints = Checkpoints(repository, adapter="plumbing", ahead=ahead, listener=listener)
    if ahead is not None:
        checkpoints.refs.warm_up()
    return Store(checkpoints)
