"""`git ckpt remove`."""

from __future__ import annotations

from gitckpt.cli.opening import open_store
from gitckpt.cli.screen import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Checkpoints: ids, prefixes, runs (their newest), revs or latest.")],
) -> None:
    """Remove checkpoints by name, in the middle of a run too. Their objects are git's to collect."""
    with open_store() as store:
        found = list(dict.fromkeys(store.find(text) for text in ids))
        try:
            store.remove(found)
        except KeyboardInterrupt:
            terminal.warn("interrupted; what has begun to go goes with the next removal: git ckpt list shows what has not")
            raise
        for checkpoint_id in found:
            terminal.out(checkpoint_id)
