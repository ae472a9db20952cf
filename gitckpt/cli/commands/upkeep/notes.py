"""`git ckpt notes`."""

from __future__ import annotations

from gitckpt.cli.opening import open_store
from gitckpt.cli.screen import terminal


def notes() -> None:
    """Write the links that wait into the notes, for git log --notes=checkpoints to show.

    A checkpoint does so by itself where no other one has in the last minute, and so does the daily maintenance.
    """
    with open_store() as store, terminal.Waiting("writing notes"):
        is_written = store.write_notes()
    terminal.remark("the notes have every link by now" if is_written else "no link was waiting")
