"""`git ckpt start`, `finish` and `cancel`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import runstate
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from gitckpt.store.store import Store


def start(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="What the run is about; becomes part of its id.")
    ] = "work",
    base: Annotated[
        str, typer.Option("--base", metavar="REV", help="What its worktree begins with.")
    ] = "HEAD",
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="TEXT",
            help="Your own name for it: where a run has it, that one is opened.",
        ),
    ] = None,
) -> None:
    """Open a run with a worktree of its own, and print its path; every commit and save in there extends the run.

    To go there: cd "$(git ckpt start add-login)". When the work is done: git ckpt finish.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        newest, has_begun = Run.begin(store, name, key=key, base=base)
        opened = store.resume(newest)
        for remark in opened.remarks:
            terminal.warn(remark)
        terminal.out_path(opened.path)
        terminal.remark(
            f"run {newest.run} has begun" if has_begun else f"run {newest.run} was there already"
        )


def finish(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The run; by default the one whose worktree this is."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Though it failed or is blocked: it counts as complete then, and expires.",
        ),
    ] = False,
) -> None:
    """Record that a run is complete, with its files as they are now. Prints the id of the checkpoint."""
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        name = _run(store, run)
        history = store.history(name)
        if history.summary.status in (runstate.FAILED, runstate.BLOCKED) and not force:
            raise UsageError(
                f"run {name} is {history.summary.status}: {history.summary.label}",
                hint=f"see why: git ckpt status {name}; to call it complete all the same: git ckpt finish --force {name}",
            )
        finishing = Run.resume(store, name, adapter="plumbing", holder="git ckpt finish")
        try:
            with finishing:
                pass
        except CkptError as error:
            if finishing.unwritten:
                raise error.but(
                    hint=f"remove what is in the way, then: git ckpt finish {name}"
                ) from None
            raise
        terminal.out(finishing.newest.id)
        terminal.remark(f"run {finishing.id} is complete; its worktree: {finishing.path}")


def cancel(run: Annotated[str, typer.Argument(metavar="RUN", help="The run to stop.")]) -> None:
    """Stop a run that is being driven: its phase is ended and recorded as failed; it can be resumed."""
    with open_store() as store:
        name = _run(store, run)
        if not store.cancel(name):
            raise CkptError(
                f"run {name} is not running", hint=f"see what became of it: git ckpt status {name}"
            )
        terminal.remark(f"run {name} has stopped; to go on: git ckpt resume {name}")


def _run(store: Store, text: str | None) -> str:
    if text is not None:
        return store.find_run(text)
    run = store.run
    if run is None:
        raise UsageError("this is no run's worktree", hint="name the run: git ckpt runs lists them")
    return run
