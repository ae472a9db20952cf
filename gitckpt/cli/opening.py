"""How a command opens the store: through git's own processes, as importing libgit2 would cost more than one command does."""

from __future__ import annotations

from gitckpt.cli.screen import terminal
from gitckpt.git.repository import discover, open_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.store.config.looseness import Loosening
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

    listener = Listener(tell, _ask, terminal.progress)
    checkpoints = Checkpoints(repository, adapter="plumbing", ahead=ahead, listener=listener)
    if ahead is not None:
        checkpoints.refs.warm_up()
    return Store(checkpoints)


def _ask(loosened: Sequence[Loosening]) -> bool | None:
    """Asks the person at the terminal, once, whether `gitckpt.toml` may loosen what is built in."""
    if not terminal.may_ask():
        return None
    told = ["gitckpt.toml is looser than what is built in:", *(f"  {line}" for line in loosening_lines(loosened))]
    said = terminal.ask("Shall that apply, here on this machine? [y/N] ", told=told)
    return None if said is None else said.lower() in ("y", "yes")


def loosening_lines(loosened: Sequence[Loosening]) -> list[str]:
    """Returns what a file loosens, a line for each value, whole: who approves it has to see all of it."""
    return [f"{each.key}: {each.effect}: {_difference(each)}" for each in loosened]


def _difference(each: Loosening) -> str:
    if not isinstance(each.value, list):
        return f"{each.value}, not {each.instead}"
    more = [pattern for pattern in each.value if pattern not in each.instead]
    less = [pattern for pattern in each.instead if pattern not in each.value]
    return "; ".join(f"{word} {', '.join(names)}" for word, names in (("with", more), ("without", less)) if names)
