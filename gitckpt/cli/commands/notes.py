"""`git ckpt notes`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store


def notes() -> None:
    """Write pending notes now, so that git log shows them.

    See git log --notes=checkpoints. git ckpt save and list write notes at most once a minute, and
    maintenance does once a day.
    """
    with open_store() as store, terminal.waiting("writing notes"):
        is_written = store.write_notes()
    terminal.remark("the notes have every link by now" if is_written else "no link was waiting")
