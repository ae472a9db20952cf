"""Open the checkpoint store through git processes: libgit2 loads more slowly."""

from __future__ import annotations

import os
import sys
import time

from gitckpt.cli import terminal
from gitckpt.git import process
from gitckpt.git.repository import discover_repository, open_repository
from gitckpt.model import ids, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.store import Store

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PATIENCE = 5.0  # seconds for the profile of the user's shell


def login_shell_advice() -> str | None:
    """Return advice if Codex would not find `git-ckpt`, otherwise None.

    Codex runs commands in a login shell, whose profile may set another PATH. Returns None without
    Codex, with a git alias `ckpt`, or if the shell gives no answer within 5 seconds.
    """
    import shutil

    shell, program = os.environ.get("SHELL", ""), shutil.which("git-ckpt")
    if program is None or shutil.which("codex") is None or os.path.basename(shell) not in _SHELLS:
        return None
    try:
        alias = process.run_program([process.git_executable(), "config", "--get", "alias.ckpt"])
        argv = [shell, "-lc", "command -v git-ckpt"]
        child = (
            process.Child(argv, process.git_environment(), own_group=True) if alias.code else None
        )
        if child is None or child.communicate(deadline=time.monotonic() + _PATIENCE).code == 0:
            return None
    except CkptError:  # the profile waits for input, or the shell does not start
        return None
    command = f"git config --global alias.ckpt {shell_quoted(f'!{os.path.abspath(program)}')}"
    return f"Codex runs commands in a login shell, which does not find git-ckpt; run: {command}"


def open_store(
    *, to_capture: bool = False, any_git: bool = False, revision_hint: str = ""
) -> Store:
    """Open the checkpoint store of the repository around the current directory.

    With `to_capture`, git scans the worktree while Python imports modules. With `any_git`, a git
    that is too old for gitckpt is accepted, too. `revision_hint`, such as "git show {}", follows
    the note on an address that is a git revision.
    """

    def import_modules() -> None:
        if to_capture:
            import gitckpt.git.worktree.index
        else:
            import gitckpt.store.checkpoints  # noqa: F401

    repository = (discover_repository if any_git else open_repository)(meanwhile=import_modules)
    index_copy = None
    if to_capture and repository.worktree is not None:
        from gitckpt.git.worktree.index import PrivateIndex

        index_copy = PrivateIndex(repository)
        index_copy.copy_user_index()
        index_copy.start_status_process()
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.error_log import Listener
    from gitckpt.store.store import Store

    printed_warnings: set[str] = set()

    def warn_once(sentence: str) -> None:
        if sentence not in printed_warnings:  # stores of other worktrees and threads may repeat it
            printed_warnings.add(sentence)
            terminal.warn(sentence)

    def explain_revision(text: str, commit: str, entry: CheckpointInfo) -> None:
        name = shell_quoted(text)
        age = times.age_text(max(times.now() - entry.time, 0))
        place = "a commit" if commit.startswith(text.lower()) else f"commit {commit[:10]}"
        checkpoint = f"{entry.id[: ids.SHORT]} ({age if age == 'now' else f'{age} ago'})"
        note = f"note: {name} is {place}, using its newest checkpoint {checkpoint}"
        note += f"; {revision_hint.format(name)}" if revision_hint else ""
        if note not in printed_warnings and not terminal.TerminalState.prints_json:
            printed_warnings.add(note)
            terminal.remark(note)

    count = terminal.count_progress if sys.stderr.isatty() else None
    listener = Listener(warn_once, terminal.show_progress, count)
    checkpoints = Checkpoints(
        repository,
        adapter="plumbing",
        ahead=index_copy,
        listener=listener,
        on_revision=explain_revision,
    )
    if index_copy is not None:
        checkpoints.refs.start_idle_process()
    return Store(checkpoints)
