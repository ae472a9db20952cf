"""How a command opens the store: through git's own processes, as importing libgit2 would cost more than one command does."""

from __future__ import annotations

import os
import shlex
import time

from gitckpt.cli import terminal
from gitckpt.git import process
from gitckpt.git.repository import discover, open_repository
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store


# Whether a login shell finds `git-ckpt`: agents such as Codex run their commands in one, whose profile may set PATH anew.


PROGRAM, CODEX = "git-ckpt", "codex"

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PATIENCE = 5.0
"""In seconds, for the person's own profile."""


def advice() -> str | None:
    """Returns the sentence that says what helps where a login shell of this person does not find the program.

    None where it does, where git has an alias for it, where there is no Codex, or where nothing can be said: there is no `SHELL` that is a
    shell, or the program is not on PATH itself. What the shell does takes a few milliseconds, or as long as its profile.
    """
    import shutil

    shell = os.environ.get("SHELL", "")
    found = shutil.which(PROGRAM)
    if found is None or shutil.which(CODEX) is None or os.path.basename(shell) not in _SHELLS or not os.access(shell, os.X_OK):
        return None
    try:
        if not process.run([process.git_executable(), "config", "--get", "alias.ckpt"]).code or _finds(shell):
            return None
    except CkptError:  # a profile that waits for something, or a shell that does not start: then nothing is known
        return None
    alias = shlex.quote(f"!{os.path.abspath(found)}")
    return (
        f"a login shell, in which Codex runs its commands, does not find {PROGRAM}; git finds it by: git config --global alias.ckpt {alias}"
    )


def _finds(shell: str) -> bool:
    child = process.Child([shell, "-lc", f"command -v {PROGRAM}"], process.environment(), own_group=True)
    return child.communicate(deadline=time.monotonic() + _PATIENCE).code == 0


# How a command opens the store: through git's own processes, as importing libgit2 would cost more than one command does.


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
    from gitckpt.store.log import Listener
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
