"""Open the store through git's own processes: importing libgit2 takes longer."""

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

# Whether a login shell finds `git-ckpt`.

PROGRAM, CODEX = "git-ckpt", "codex"

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
# Seconds for the profile of the user's shell.
_PATIENCE = 5.0


def advice() -> str | None:
    """Return the advice for Codex if a login shell does not find `git-ckpt`.

    Codex runs commands in a login shell, whose profile may set PATH. None where the shell finds it,
    git has an alias for it, Codex is missing, or the answer is unknown. Takes a few milliseconds,
    or as long as the profile.
    """
    import shutil

    shell = os.environ.get("SHELL", "")
    program = shutil.which(PROGRAM)
    if (
        program is None
        or shutil.which(CODEX) is None
        or os.path.basename(shell) not in _SHELLS
        or not os.access(shell, os.X_OK)
    ):
        return None
    try:
        if not process.run(
            [process.git_executable(), "config", "--get", "alias.ckpt"]
        ).code or _finds(shell):
            return None
    except CkptError:  # the profile waits for input, or the shell does not start
        return None
    alias = shlex.quote(f"!{os.path.abspath(program)}")
    return f"a login shell, in which Codex runs its commands, does not find {PROGRAM}; git finds it by: git config --global alias.ckpt {alias}"


def _finds(shell: str) -> bool:
    child = process.Child(
        [shell, "-lc", f"command -v {PROGRAM}"], process.environment(), own_group=True
    )
    return child.communicate(deadline=time.monotonic() + _PATIENCE).code == 0


# Opening the store.


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
