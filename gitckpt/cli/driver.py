"""What `run` and `resume` have in common: driving a run to its end, or as far as it comes, and saying so."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from gitckpt.cli.screen import audience, terminal
from gitckpt.cli.screen.audience import Terminal
from gitckpt.durable.agent.client import read_clients
from gitckpt.durable.driver.driver import Driver
from gitckpt.durable.driver.registry import OPTIONS
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.definition import REMOVE_WHEN_PUSHED, PipelineDefinition
from gitckpt.durable.pipeline.file import read
from gitckpt.durable.run import next_attempt
from gitckpt.durable.run.errors import Cancelled, DeadlineReached, PhaseBlocked, PhaseFailed
from gitckpt.durable.run.run import Run
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.store.config import settings
from gitckpt.store.runs import unwritten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.store import Store


def definition_of(store: Store, name: str) -> PipelineDefinition:
    """Returns a pipeline: of `gitckpt.toml` in the worktree one is in, or a preset.

    Raises:
        NotFoundError, UsageError: there is none, or the file has mistakes.
    """
    return read(_file(store), name, OPTIONS)


def _file(store: Store) -> str:
    """Returns the path of the file with pipelines and agents: of the worktree one is in, or of the main one."""
    return os.path.join(store.repository.worktree or main_worktree(store.repository) or "", settings.FILE)


def inputs(words: Sequence[str]) -> dict[str, str]:
    """Returns inputs by name.

    Args:
        words: each `NAME=VALUE`.

    Raises:
        UsageError: one is not.
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word!r} is not NAME=VALUE", hint='write it as: -i question="what is it?"')
        found[name] = value
    return found


def begin(store: Store, first: Checkpoint, definition: PipelineDefinition, holder: str, skipped: Mapping[str, str] | None = None) -> int:
    """Drives a run that was recorded just now, and prints its id; returns and raises as `drive`.

    Args:
        store: of the repository.
        first: its first checkpoint.
        definition: its pipeline.
        holder: what its lease is taken for, for people.
        skipped: as for `drive`.
    """
    audience.name(str(first.run))
    return drive(store, Run.resume(store, str(first.run), adapter="plumbing", holder=holder), definition, skipped)


def drive(store: Store, run: Run, definition: PipelineDefinition, skipped: Mapping[str, str] | None = None) -> int:
    """Drives a run as far as it comes, and returns the exit code.

    Args:
        store: of the repository.
        run: the run; it is closed.
        definition: its pipeline.
        skipped: phases that need not be done, with the reason.

    Raises:
        PhaseFailed: a phase failed or is blocked, or the run has to stop.
        CkptError: its checkpoints could not be written.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    for remark in run.remarks:
        terminal.warn(terminal.harmless(remark))
    person = Terminal()
    try:
        agents = read_clients(_file(store)) if any(phase.use for phase in definition.phases) else {}
        result = Driver(run, definition, person, skipped, agents).drive()
        if result.is_complete:
            run.finish()
    except PhaseFailed as error:
        if error.hint is None:
            raise error.but(hint=_advice(error, run)) from None
        raise
    except KeyboardInterrupt:
        person.remark(f"interrupted; to go on: git ckpt resume {run.id}")
        raise
    finally:
        _close(run)
        _retire(store, definition)
    if run.unwritten:
        raise CkptError(f"not every checkpoint of run {run.id} could be written: {run.unwritten[-1]}", hint=f"git ckpt resume {run.id}")
    if not result.is_complete:
        last = run.last_attempt
        is_deferred = last is not None and last.ended == next_attempt.PARTIAL
        phase = terminal.harmless(str(result.after))
        where = f"at {phase}, which asks to be tried again later" if is_deferred else f"after {phase}"
        person.remark(f"paused {where}. To go on: git ckpt resume {run.id}")
        return PhaseFailed.exit_code if is_deferred else 0
    person.remark(f"run {run.id} is complete")
    tidy(store, run.id, run.path, definition)
    return 0


def tidy(store: Store, run: str, path: str | None, definition: PipelineDefinition) -> None:
    """Removes what the pipeline says is no longer needed after success.

    Args:
        store: of the repository.
        run: the id of a run that is complete.
        path: the top of its worktree; None where there is none.
        definition: its pipeline.
    """
    from gitckpt.store.retention import worktree

    files = store.heads.read(run).worktree
    is_clean = files is not None and not files.dirty  # what was not committed was not pushed either
    if definition.worktree == REMOVE_WHEN_PUSHED and is_clean and worktree.is_pushed(store, run):
        stays = worktree.remove_worktree(store, run)
        terminal.remark(f"its worktree stays: {terminal.harmless(stays)}" if stays else "its worktree is removed: all of it was pushed")
    elif path is not None:
        terminal.remark(f"its worktree: {terminal.harmless(path)}")


def _retire(store: Store, definition: PipelineDefinition) -> None:
    """Lets complete runs of the pipeline go that are as old as it says; what cannot go is no failure of the run that just ended."""
    if definition.retention is None:
        return
    from gitckpt.store.retention import cleanup

    try:
        cleanup.cleanup_runs(store, pipeline=definition.name, older_than=definition.retention)
    except CkptError as error:
        terminal.warn(terminal.harmless(f"old runs were not removed: {error.message}"))


def _advice(error: PhaseFailed, run: Run) -> str:
    """Returns what to do next, for an error that does not say it."""
    if isinstance(error, DeadlineReached):
        return f"to give it more time: git ckpt resume {run.id} --timeout 1h"
    if isinstance(error, PhaseBlocked) and run.last_attempt is not None:
        return f"when what blocks it is out of the way: git ckpt resume {run.id} --from '{run.last_attempt.phase}'"
    if isinstance(error, Cancelled):
        return f"to go on with it: git ckpt resume {run.id}"
    return f"see more: git ckpt status {run.id}; to go on: git ckpt resume {run.id}"


def _close(run: Run) -> None:
    """Gives the lease back, and tells what could not be written: what ended the run is more important than a disk that is full."""
    try:
        run.close()
    except CkptError as error:
        terminal.warn(terminal.harmless(f"the lease of run {run.id} could not be given back: {error.message}"))
    for sentence in run.unwritten:
        terminal.warn(terminal.harmless(sentence))
    if not run.unwritten:
        unwritten.note(run.store.repository, run.id, [])  # what an earlier driver could not write is made good by what came after


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(f"signal {number}")


@contextlib.contextmanager
def closed_on_error(run: Run) -> Iterator[None]:
    """Gives the lease of a run back if something is raised before it is driven."""
    try:
        yield
    except BaseException:
        run.close()
        raise


def accept(store: Store, run: Run, definition: PipelineDefinition, *, accept_changes: bool) -> None:
    """Compares a pipeline with what a run was started with; from now on it is driven by what is there now.

    Raises:
        Changed: something is not as it was, and that was not accepted.
    """
    pipeline, contents = launch.require_same(store, run.newest, definition, accept=accept_changes)
    launch.take_in(run, contents)
    run.change(pipeline)
