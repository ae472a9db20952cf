"""Implement `git ckpt bisect`."""

from __future__ import annotations

import os
import signal

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git import process
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.store.history.bisection import Bisection
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.store import Store

# Changes to the directory first, which `posix_spawn` cannot. Standard output is for the result.
_IN_DIRECTORY = ("sh", "-c", 'cd -- "$1" && shift && exec "$@" >&2', "sh")
_CONTINUE = "to continue: git ckpt bisect; to forget it: git ckpt bisect --reset"


@options.declare_parameters("""
[-- COMMAND…]  The command, which fails in bad checkpoints; without one, continue.
--good ID  A checkpoint in which it succeeds.  [default: the oldest one before]
--bad ID  A checkpoint in which it fails.  [default: latest]
--reset  Forget the search.
""")
def bisect_checkpoints(
    paths: list[str] | None = None,
    good: str | None = None,
    bad: str | None = None,
    reset: bool = False,
) -> None:
    """Find the first checkpoint in which a command fails.

    Tries checkpoints of one run or worktree, each in a new worktree that is removed afterwards. The
    exit code 125 skips one, as in git bisect. Exits with 1 if the oldest one already fails.
    """
    command = paths or []
    is_new = bool(command or good or bad)
    options.refuse_if(
        reset and is_new, "--reset takes nothing else", "run: git ckpt bisect --reset"
    )
    with open_store() as store:
        if reset:
            if not store.reset_bisection():
                terminal.remark("no bisection has begun")
            return
        search = _continue_or_begin(store, command, good, bad, is_new=is_new)
        try:
            result = store.bisect(search, _Trials(search.command).run, progress=_print_verdict)
        except KeyboardInterrupt:
            terminal.remark(_CONTINUE)
            raise
        for entry in result.skipped:
            terminal.remark(f"skipped, and perhaps bad: {_describe(entry)}")
        first_bad = result.first_bad
        if result.last_good is None:
            oldest = f"the oldest checkpoint {first_bad.id[: ids.SHORT]} of the range already fails"
            hint = "name one in which it succeeds (git ckpt list --all): git ckpt bisect --good ID"
            hint += " -- COMMAND"
            raise CkptError(f"{oldest}; the command may never have passed here", hint=hint)
        terminal.remark(f"last good: {_describe(result.last_good)}")
        if not terminal.is_terminal():
            terminal.out(first_bad.id)
            return
        name = terminal.style(f"checkpoint {first_bad.id[: ids.SHORT]}", "yellow")
        terminal.out(name, " is the first bad one: ", first_bad.message or first_bad.label)
        terminal.remark(f"see what it changed: git ckpt log -p -n1 {first_bad.id[: ids.SHORT]}")


def _continue_or_begin(
    store: Store, command: Sequence[str], good: str | None, bad: str | None, *, is_new: bool
) -> Bisection:
    search = store.bisection()
    options.refuse_if(search is not None and is_new, "a bisection has not ended", _CONTINUE)
    if search is not None:
        return search
    hint = "run: git ckpt bisect --good ID -- make test"
    options.refuse_if(not command, "no bisection has begun, and there is no command", hint)
    good_id = store.find(good) if good is not None else None
    return store.begin_bisection(command, good=good_id, bad=store.find(bad or "latest"))


class _Trials:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        names = set(process.LOCAL_VARIABLES)  # set if an alias of git called this command
        self._env = {name: value for name, value in os.environ.items() if name not in names}

    def run(self, directory: str, _: str) -> int:
        pid = process.start_attached([*_IN_DIRECTORY, directory, *self._command], self._env)
        try:
            return process.wait_for_exit(pid)
        except BaseException:  # Ctrl-C: the command must not outlive its directory
            os.kill(pid, signal.SIGTERM)
            process.wait_for_exit(pid)
            raise


def _print_verdict(entry: CheckpointInfo, verdict: str, left: int) -> None:
    count = f"; {terminal.plural(left, 'checkpoint')} left" if left > 1 else ""
    terminal.remark(f"{verdict}: {_describe(entry)}{count}")


def _describe(entry: CheckpointInfo) -> str:
    age = times.age_text(max(times.now() - entry.time, 0))
    return f"{entry.id[: ids.SHORT]} ({age}) {entry.message or entry.label}"
