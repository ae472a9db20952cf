"""Implement `git ckpt guard`, `git ckpt watch` and `git ckpt rescue`."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git import process
from gitckpt.model import times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError, RepositoryError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gitckpt.store.worktrees.rescue import LostWorktree

_LOST_COLUMNS = ("WORKTREE", "ID", "AGE", "FILES", "MESSAGE")
# Exit codes of a shell for a program that cannot be started, and for a missing one.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

_POSIX = """\
# Have git ckpt guard git commands that can destroy work: eval "$(git ckpt guard --shell {shell})"
git() {{
    for ckpt_word in "$@"; do
        case $ckpt_word in
            {words}) command git ckpt guard -- git "$@"; return ;;
        esac
    done
    command git "$@"
}}
"""
_POSIX_RM = """\
rm() {
    command git ckpt guard -- rm "$@"
}
"""
_FISH = """\
# Have git ckpt guard git commands that can destroy work: git ckpt guard --shell fish | source
function git --wraps git
    for ckpt_word in $argv
        switch $ckpt_word
            case {words}
                command git ckpt guard -- git $argv
                return
        end
    end
    command git $argv
end
"""
_FISH_RM = """\
function rm --wraps rm
    command git ckpt guard -- rm $argv
end
"""
_SHELLS = ("bash", "zsh", "fish")


@options.declare_parameters("""
[-- COMMAND…]  The command to run after the files were captured.
--shell SHELL  Print functions for bash, zsh or fish that guard destructive git commands.
--rm  With --shell: guard rm as well.
""")
def guard(paths: list[str] | None = None, shell: str | None = None, rm: bool = False) -> int:
    """Capture changed files, then run a command that may destroy them.

    Replaces itself by the command, so its exit code and signals are those of the command. A capture
    that fails prints a warning, and the command runs all the same.
    """
    command = paths or []
    options.refuse_if(command and shell, "--shell excludes a command", "leave out one of them")
    options.refuse_if(
        rm and not shell, "--rm needs --shell", "run: git ckpt guard --shell bash --rm"
    )
    if shell is not None:
        options.require_one_of("shell", shell, _SHELLS)
        for line in _functions(shell, rm=rm).splitlines():
            terminal.out(line)
        return 0
    options.refuse_if(not command, "COMMAND is missing", "run: git ckpt guard -- git reset --hard")
    _capture(command)
    _leave_git_alias()
    if (code := _explain_unstartable(command[0])) is not None:
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        process.replace_by(shutil.which(command[0]) or command[0], command)
    except OSError as error:
        terminal.print_error(UsageError(f"cannot start {command[0]}: {error.strerror}"))
        return _NOT_EXECUTABLE


def _functions(shell: str, *, rm: bool) -> str:
    from gitckpt.agents.shell_command import DESTRUCTIVE

    if shell == "fish":
        return _FISH.format(words=" ".join(DESTRUCTIVE)) + (_FISH_RM if rm else "")
    text = _POSIX.format(shell=shell, words="|".join(DESTRUCTIVE))
    return text + (_POSIX_RM if rm else "")


def _capture(command: Sequence[str]) -> None:
    """Capture what the command may destroy; warn if that fails."""
    text = " ".join(map(shell_quoted, command))
    try:
        opened = open_store()
    except RepositoryError:
        return  # outside of a repository there is nothing to guard
    try:
        with opened as store:
            from gitckpt.agents import guards

            checkpoint = guards.guard(store, text)
    except (CkptError, OSError) as error:
        terminal.warn(f"the files were not captured: {error}")
        return
    if checkpoint is not None and checkpoint.worktree is not None:
        if checkpoint.worktree.degraded:
            from gitckpt.store.snapshot.limits import LARGER_BUDGET

            reason = f"{checkpoint.worktree.degraded}; {LARGER_BUDGET}"
            terminal.warn(f"the files were not captured: {reason}")
            return
        undo = f"undo with: git ckpt restore {checkpoint.id[:8]}"
        terminal.remark(f"the files are saved as {checkpoint.id[:8]}; {undo}")


def _leave_git_alias() -> None:
    # git runs an alias at the top of the worktree, and may name its repository to it.
    prefix = os.environ.pop("GIT_PREFIX", None)
    if prefix is not None:
        os.environ.pop("GIT_DIR", None)
        os.chdir(prefix or ".")


def _explain_unstartable(program: str) -> int | None:
    """Print why a program cannot be started, and return the exit code; None if it can."""
    if shutil.which(program) is not None:
        return None
    is_file = "/" in program and os.path.exists(program)
    problem = (
        f"{program} is not executable" if is_file else f"no program {program!r} is on the PATH"
    )
    terminal.print_error(UsageError(problem))
    return _NOT_EXECUTABLE if is_file else _NOT_FOUND


@options.declare_parameters("""
[-- COMMAND…]  The command to watch; the watch ends with it.
--every AGE  How long files must be left alone before a checkpoint.  [default: 5s]
""")
def watch(paths: list[str] | None = None, every: str = "5s") -> int:
    """Record a checkpoint whenever files settle after a change.

    For agents without hooks. With a command, begins and ends with a checkpoint, and passes on the
    exit code; without one, watches until Ctrl-C.
    """
    seconds = times.parse_age(every) / times.MICRO
    options.refuse_if(seconds <= 0, "--every must be more than 0", "run: git ckpt watch --every 5s")
    with open_store() as store:
        from gitckpt.agents.watch import Watch

        if store.worktree is None:
            raise RepositoryError("a bare repository has no files to watch")
        command = paths or []
        _leave_git_alias()
        if command and (code := _explain_unstartable(command[0])) is not None:
            return code
        watcher = Watch(store, seconds, terminal.remark)
        try:
            start = partial(process.start_attached, command, os.environ)
            return watcher.run(start if command else None)
        except CkptError as error:
            terminal.print_error(error)
            return _NOT_EXECUTABLE


@options.declare_parameters("""
[NAME]  The worktree to bring back, by its name or a checkpoint.  [default: list them all]
--into DIR  The directory of the new worktree.
--json  Print one JSON document.
""")
def rescue(name: str | None = None, into: str | None = None, as_json: bool = False) -> None:
    """List vanished worktrees whose files are in a checkpoint; restore one.

    Maintenance captures the changed files of all linked worktrees, of any tool. Prints the
    path of the worktree that was brought back.
    """
    options.refuse_if(into and name is None, "--into needs NAME", "run: git ckpt rescue")
    with open_store() as store:
        lost = store.lost_worktrees()
        if name is not None:
            checkpoint_id = next((entry.newest.id for entry in lost if entry.name == name), None)
            checkpoint_id = checkpoint_id or store.find(name)
            with terminal.show_waiting("opening the worktree"):
                result = store.resume(checkpoint_id, os.path.abspath(into) if into else None)
            terminal.out_path(result.path)
            return
        changed_counts = store.changed_files([entry.newest for entry in lost])
    if as_json:
        terminal.out_json({"worktrees": [_lost_as_json(entry, changed_counts) for entry in lost]})
        return
    if not lost:
        terminal.remark("no worktree with changed files has vanished")
    rows = []
    for entry in lost:
        newest = entry.newest
        age = terminal.age_or_timestamp(newest.time, times.now(), newest.timestamp)
        changed = str(changed_counts.get(newest.id, ""))
        rows.append((entry.name, terminal.short_id(newest.id), age, changed, newest.message))
    terminal.out_rows(_LOST_COLUMNS, rows)


def _lost_as_json(entry: LostWorktree, changed_counts: Mapping[str, int]) -> dict[str, object]:
    return {
        "name": entry.name,
        **terminal.pick_fields(entry.newest, "id timestamp git_sha branch message"),
        "changed": changed_counts.get(entry.newest.id),
        "checkpoints": entry.count,
    }
