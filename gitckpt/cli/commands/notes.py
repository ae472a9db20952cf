"""`git ckpt notes`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store


def notes() -> None:
    """Write pending notes now, so that git log --notes=checkpoints shows them.

    git ckpt save and list do so where no notes were written in the last minute, and the daily maintenance does as well.
    """
    with open_store() as store, terminal.Waiting("writing notes"):
        is_written = store.write_notes()
    terminal.remark("the notes have every link by now" if is_written else "no link was waiting")
