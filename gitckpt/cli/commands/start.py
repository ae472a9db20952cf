"""`git ckpt start`, `finish` and `cancel`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import runstate
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store


@options.usage("""
[NAME]  The subject of the run; becomes part of its id.
--base REV  The commit that the worktree starts from.  [default: HEAD]
--key TEXT  Your own name for the run; a run with this name is opened.
""")
def start(name: str = "work", base: str = "HEAD", key: str | None = None) -> None:
    """Open a run with its own worktree, and print the path.

    Every commit and save in the worktree extends the run: cd "$(git ckpt start add-login)". When
    the work is done: git ckpt finish.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        newest, has_begun = Run.begin(store, name, key=key, base=base)
        opened = store.resume(newest)
        for remark in opened.remarks:
            terminal.warn(remark)
        terminal.out_path(opened.path)
        terminal.remark(f"run {newest.run} {'has begun' if has_begun else 'was there already'}")


@options.usage("""
[RUN]  The run.  [default: the run of this worktree]
--force  Record a failed or blocked run as complete; it expires like others.
""")
def finish(run: str | None = None, force: bool = False) -> None:
    """Record that a run is complete, with its files.

    Prints the id of the checkpoint.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        name = _run(store, run)
        summary = store.history(name).summary
        is_undone = summary.status in (runstate.FAILED, runstate.BLOCKED)
        hint = f"see why: git ckpt status {name}; to finish it anyway: --force"
        problem = f"run {name} is {summary.status}: {summary.label}"
        options.refuse(is_undone and not force, problem, hint)
        finishing = Run.resume(store, name, adapter="plumbing", holder="git ckpt finish")
        try:
            with finishing:
                pass
        except CkptError as error:
            if not finishing.unwritten:
                raise
            hint = f"remove what is in the way, then: git ckpt finish {name}"
            raise error.but(hint=hint) from None
        terminal.out(finishing.newest.id)
        terminal.remark(f"run {finishing.id} is complete; its worktree: {finishing.path}")


@options.usage("""
RUN  The run to stop.
""")
def cancel(run: str) -> None:
    """Stop a run that is driven; it can be resumed.

    Ends its phase and records it as failed.
    """
    with open_store() as store:
        name = _run(store, run)
        if not store.cancel(name):
            hint = f"see what became of it: git ckpt status {name}"
            raise CkptError(f"run {name} is not running", hint=hint)
        terminal.remark(f"run {name} has stopped; to go on: git ckpt resume {name}")


def _run(store: Store, text: str | None) -> str:
    run = store.find_run(text) if text is not None else store.run
    if run is None:
        raise UsageError("this is no run's worktree", hint="name the run: git ckpt runs lists them")
    return run
