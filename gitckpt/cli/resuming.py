"""`git ckpt resume`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store


def resume(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Checkpoint, run, latest, or a rev.")] = "latest",
    no_run: Annotated[bool, typer.Option("--no-run", help="Only open the worktree.")] = False,
    into: Annotated[str | None, typer.Option("--into", metavar="DIR", help="Make the worktree in DIR.")] = None,
) -> None:
    """Open a worktree with exactly the files of a checkpoint, and print its path.

    A worktree that is there already is left as it stands, with all that is unsaved in it. Its state: `git ckpt show ID --state`.
    """
    from gitckpt.store import resumption

    del no_run  # a checkpoint without a pipeline has nothing to run
    with open_store() as store:
        checkpoint = store.read(store.find(id_))
        opened = resumption.resume(store, checkpoint, os.path.abspath(into) if into else None)
        done = "made" if opened.made else "is there already and was left as it stands:"
        terminal.remark(f"worktree of {checkpoint.phase} ({checkpoint.timestamp}) {done}")
        terminal.out(opened.path)
        if checkpoint.state:
            terminal.remark(f"its state: git ckpt show {checkpoint.id[:8]} --state")
