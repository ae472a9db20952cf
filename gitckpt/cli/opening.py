"""Open the store through git's own processes: importing libgit2 takes longer."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.git.repository import discover, open_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store


def open_store(*, to_capture: bool = False, any_git: bool = False) -> Store:
    """Open the store of the repository around the current directory.

    Args:
        to_capture: git starts to scan the worktree while Python imports.
        any_git: whether a git that is too old will do.
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
    from gitckpt.store.error_log import Listener
    from gitckpt.store.store import Store

    warned: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in warned:  # stores of other worktrees and threads may repeat it
            warned.add(sentence)
            terminal.warn(sentence)

    listener = Listener(tell, terminal.progress)
    checkpoints = Checkpoints(repository, adapter="plumbing", ahead=ahead, listener=listener)
    if ahead is not None:
        checkpoints.refs.warm_up()
    return Store(checkpoints)
