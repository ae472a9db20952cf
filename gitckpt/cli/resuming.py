"""`git ckpt resume`."""

from __future__ import annotations

import os

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def resume(
    id_: Annotated[str, typer.Argument(metavar="[ID]", help="Checkpoint, run, rev, or latest, which is the default.")] = "latest",
    no_run: Annotated[bool, typer.Option("--no-run", help="Only open the worktree (reserved: nothing else is done yet).")] = False,
    into: Annotated[str | None, typer.Option("--into", metavar="DIR", help="Make the worktree in DIR.")] = None,
) -> None:
    """Open a worktree with exactly the files of a checkpoint, and print its path.

    A worktree that is there already is left as it stands, with all that is unsaved in it.
    To go there: cd "$(git ckpt resume ID)". To be rid of it: git worktree remove -f -f PATH.
    """
    from gitckpt.store import resumption

    del no_run  # a checkpoint without a pipeline has nothing to run
    with open_store() as store:
        checkpoint = store.read(store.find(id_))
        opened = resumption.resume(store, checkpoint, os.path.abspath(into) if into else None)
        what = f"the worktree of {checkpoint.id[: ids.SHORT]} ({terminal.harmless(checkpoint.phase)})"
        terminal.remark(f"made {what}" if opened.made else f"{what} was there already, and is as it was left")
        for remark in opened.remarks:
            terminal.warn(terminal.harmless(remark))
        terminal.out_path(opened.path)
        if checkpoint.state:
            terminal.remark(f"its state: git ckpt show {checkpoint.id[: ids.SHORT]} --state")
