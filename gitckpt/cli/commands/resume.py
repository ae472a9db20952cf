"""`git ckpt resume`."""

from __future__ import annotations

import os

from gitckpt.cli.opening import open_store
from gitckpt.cli.screen import terminal
from gitckpt.model import ids
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.store import Store


def resume(
    id_: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Checkpoint, run, rev, or latest; by default the newest run that can go on.")
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Only open the worktree.")] = False,
    into: Annotated[str | None, typer.Option("--into", metavar="DIR", help="Make the worktree in DIR.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="PHASE", help="Do this phase again, and all after it.")] = None,
    fork: Annotated[bool, typer.Option("--fork", help="Go on in a new run; the old one stays as it is.")] = False,
    rewind: Annotated[
        bool, typer.Option("--rewind", help="Go back to an older checkpoint of the run; what is newer is saved first.")
    ] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on though the pipeline, or what it was started with, has changed.")
    ] = False,
    autonomy: Annotated[
        str | None, typer.Option("--autonomy", metavar="MODE", help="From now on pause as checkpoint, batch or fully_autonomous say.")
    ] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="AGE", help="Give the whole run so much time from now on.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Go on with a run of somebody else's, with the inputs that it brings.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on though HEAD has diverged from the recorded work of a review; once.")
    ] = False,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="From now on, another input; may be given again.")
    ] = None,
) -> int:
    """Go on with a run at its first phase that is not complete; or open a worktree with the files of a checkpoint, and print its path.

    A worktree that is there already is left as it stands, with all that is unsaved in it.
    To go there: cd "$(git ckpt resume --no-run ID)".
    """
    with open_store() as store:
        checkpoint = store.read(store.find(id_)) if id_ is not None else _newest(store)
        _require_sense(checkpoint, fork=fork, rewind=rewind)
        if checkpoint.run is not None and (id_ is None or checkpoint.run.startswith(id_)):
            checkpoint = store.heads.catch_up(checkpoint.run)  # a hook of a driver that was killed may still have been at work
        elif not (no_run or fork or rewind):
            _require_newest(store, checkpoint)
        path = os.path.abspath(into) if into else None
        if fork:
            from gitckpt.durable.run.rewind import fork as forked

            checkpoint = forked(store, checkpoint)
            terminal.remark(f"run {checkpoint.run} goes on from {str(checkpoint.forked_from)[: ids.SHORT]}")
        pipeline = checkpoint.pipeline
        if no_run or checkpoint.run is None or (pipeline is None or pipeline.name is None):
            if rewind:
                _rewind(store, checkpoint)
            elif from_ is not None:
                raise UsageError("nothing is to be done again: no pipeline drives it", hint="leave out --from")
            else:
                _open(store, checkpoint, path)
            return 0
        return _go_on(
            store,
            checkpoint,
            path,
            _Wishes(from_, rewind, accept_changes, trust, autonomy, timeout, [*(inputs or []), *(["force=yes"] if force else [])]),
        )


def go_on(store: Store, newest: Checkpoint, *, autonomy: str | None, timeout: str | None) -> int:
    """Goes on with a run of a pipeline as the command does without further options, and returns the exit code.

    Args:
        store: of the repository.
        newest: the run's newest checkpoint.
        autonomy: what was typed for it, if anything.
        timeout: the same.
    """
    return _go_on(store, newest, None, _Wishes(None, False, False, False, autonomy, timeout, []))


def _newest(store: Store) -> Checkpoint:
    """Returns the newest checkpoint of the newest run of a pipeline that can go on; where there is none, of all."""
    from gitckpt.store.records import finder
    from gitckpt.store.runs import summary

    for run in store.runs():
        if run.status in summary.RESUMABLE:
            newest = store.read(run.newest)
            if newest.pipeline is not None and newest.pipeline.name is not None:
                return newest
    return store.read(store.find(finder.LATEST))


class _Wishes:
    """How a run shall go on, as the options say."""

    def __init__(
        self,
        from_: str | None,
        rewind: bool,
        accept_changes: bool,
        trust: bool,
        autonomy: str | None,
        timeout: str | None,
        inputs: list[str],
    ) -> None:
        from gitckpt.cli import driver
        from gitckpt.durable.pipeline import definition as pipeline
        from gitckpt.model import times

        self.from_ = from_
        self.rewind = rewind
        self.accept_changes = accept_changes
        self.trust = trust
        self.autonomy = pipeline.autonomy(autonomy) if autonomy is not None else None
        self.timeout = times.parse_age(timeout) if timeout is not None else None
        self.inputs = driver.inputs(inputs)


def _require_sense(checkpoint: Checkpoint, *, fork: bool, rewind: bool) -> None:
    """Raises `UsageError` where the options and the checkpoint do not go together."""
    if fork and rewind:
        raise UsageError("--fork and --rewind exclude each other", hint="--fork leaves the run as it is, --rewind takes it back")
    if rewind and checkpoint.run is None:
        raise UsageError(f"checkpoint {checkpoint.id} belongs to no run", hint=f"open it: git ckpt resume {checkpoint.id}")


def _require_newest(store: Store, checkpoint: Checkpoint) -> None:
    """Raises `UsageError` for an older checkpoint of a run."""
    if checkpoint.run is None:
        return
    newest = store.heads.catch_up(checkpoint.run)
    if newest.id != checkpoint.id:
        short = checkpoint.id[: ids.SHORT]
        raise UsageError(
            f"checkpoint {short} is not the newest of run {checkpoint.run}",
            hint=f"take the run back: git ckpt resume {short} --rewind; go on in another run: --fork; only look at its files: --no-run",
        )


def _open(store: Store, checkpoint: Checkpoint, directory: str | None) -> None:
    """Opens the worktree, and prints its path."""
    opened = store.resume(checkpoint, directory)
    what = f"the worktree of {checkpoint.id[: ids.SHORT]} ({terminal.harmless(checkpoint.phase)})"
    terminal.remark(f"made {what}" if opened.made else f"{what} was there already, and is as it was left")
    for remark in opened.remarks:
        terminal.warn(terminal.harmless(remark))
    terminal.out_path(opened.path)
    if checkpoint.state:
        terminal.remark(f"its state: git ckpt show {checkpoint.id[: ids.SHORT]} --state")


def _rewind(store: Store, checkpoint: Checkpoint) -> None:
    """Takes a run that nobody drives back to a checkpoint, and prints the path of its worktree."""
    from gitckpt.durable.run.run import Run

    with Run.resume(store, str(checkpoint.run), adapter="plumbing", holder="git ckpt resume --rewind", again=True) as run:
        run.pause()
        run.rewind(checkpoint)
    terminal.remark(f"run {run.id} is back at {checkpoint.id[: ids.SHORT]} ({terminal.harmless(checkpoint.phase)})")
    terminal.out_path(run.path)


def _go_on(store: Store, checkpoint: Checkpoint, directory: str | None, wishes: _Wishes) -> int:
    """Drives a run of a pipeline on, and returns the exit code."""
    from dataclasses import replace

    from gitckpt.cli import driver
    from gitckpt.cli.screen import audience
    from gitckpt.durable.driver.registry import memory_of
    from gitckpt.durable.driver.skip import skipped
    from gitckpt.durable.pipeline import launch
    from gitckpt.durable.run.opener import settle
    from gitckpt.durable.run.run import Run
    from gitckpt.model import times
    from gitckpt.store.runs import summary

    name = checkpoint.pipeline.name if checkpoint.pipeline else None
    definition = driver.definition_of(store, str(name))
    phase = definition.phase(wishes.from_) if wishes.from_ is not None else None
    if phase is None and not wishes.rewind and settle(store, str(checkpoint.run)):
        terminal.out(str(checkpoint.run))
        terminal.remark(f"run {checkpoint.run} is complete; its driver was killed after that")
        driver.tidy(store, str(checkpoint.run), summary.summary(store, str(checkpoint.run)).path, definition)
        return 0
    if not wishes.trust:
        launch.require_vouched(store, checkpoint, definition)
    run = Run.resume(
        store,
        str(checkpoint.run),
        accept_changes=wishes.accept_changes,
        adapter="plumbing",
        holder="git ckpt resume",
        again=phase is not None or wishes.rewind,
        directory=directory,
    )
    with driver.closed_on_error(run):
        if wishes.rewind:
            run.rewind(checkpoint)
        driver.accept(store, run, definition, accept_changes=wishes.accept_changes)
        if wishes.inputs:
            run.change(launch.changed_inputs(run.pipeline, definition, wishes.inputs))
        if wishes.autonomy is not None:
            run.change(replace(run.pipeline, autonomy=wishes.autonomy))
        if wishes.timeout is not None:
            run.change(replace(run.pipeline, deadline=times.to_text(store.clock() + wishes.timeout)))
        if phase is not None:
            later = definition.phases[definition.phases.index(phase) :]
            run.redo(phase.name, {key for each in later for key in memory_of(each)})
        skips = skipped(definition, launch.given_to(run, definition))
    audience.name(run.id)
    return driver.drive(store, run, definition, skips)
