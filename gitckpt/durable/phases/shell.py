"""Commands that a phase runs beside its own: tests, linters, filters and trackers, each for so long at most."""

from __future__ import annotations

import os
import shlex

from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import DEADLINE, Ending, Patience
from gitckpt.durable.run.errors import DeadlineReached
from gitckpt.git.files import regular
from gitckpt.store.runs import run_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.pipeline.context import Context


def run(context: Context, line: str, seconds: float, *, show: bool = False, name: str = "") -> Ending:
    """Runs a command in the worktree of a run.

    Args:
        context: the attempt at a phase.
        line: what the shell runs.
        seconds: how long it may take.
        show: whether people see what it prints.
        name: what it is called where the run has no time left; by default the line.

    Raises:
        DeadlineReached: the run has no time left.
    """
    outcome = execution.run_command(
        line,
        directory=context.run.path,
        env=context.environment(),
        watchdog=context.watchdog,
        patience=Patience(seconds, None, context.run.seconds_left()),
        output=context.output if show else lambda _: None,
        tick=context.look,
    )
    if outcome.ended_by == DEADLINE:
        raise DeadlineReached(f"{name or line} was ended: the run took longer than it may", output=outcome.tail)
    return outcome


def ask(context: Context, line: str, seconds: float, place: str) -> tuple[Ending, bytes]:
    """Runs a command whose standard output has to be told from what it complains of; returns that as well.

    Args:
        place: where it is kept, in the directory of the run's files.

    Others, and errors: as `run`.
    """
    path = os.path.join(context.run.files.path, place)
    run_files.make_directory(os.path.dirname(path))
    if os.path.islink(path):
        os.unlink(path)  # a phase may have left it: the shell would write where it leads
    outcome = run(context, f"{line} > {shlex.quote(path)}", seconds, name=line.partition(" ")[0])
    try:
        return outcome, regular.content(path, follow=False)
    except OSError:
        return outcome, b""
