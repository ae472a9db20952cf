"""`git ckpt remove`."""

from __future__ import annotations

from gitckpt.cli.opening import open_store
from gitckpt.cli.screen import terminal
from gitckpt.model.errors import CkptError
from gitckpt.model.ids import SHORT
from gitckpt.model.names import shell_word
from gitckpt.store.records import finder, layout
from gitckpt.store.records.entry import Query
from gitckpt.store.store import inside
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Annotated

    import typer

    from gitckpt.store.store import Store


def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Checkpoints: ids, prefixes, revs or latest. Or runs: ids, prefixes.")],
) -> None:
    """Remove checkpoints by name, in the middle of a run too; or runs as a whole. Their objects are git's to collect.

    A run goes with its worktree, and stays where that holds what no checkpoint does, or somebody drives it.
    """
    with open_store() as store:
        runs, found = _meant(store, ids)
        of_runs = {entry.id for run in runs for entry in store.list(Query(run=run))}
        stay: list[CkptError] = []
        try:
            for run in runs:
                try:
                    store.remove_run(run)
                except CkptError as error:
                    stay.append(error)  # the others go all the same
                else:
                    terminal.out(run)
            if found:
                store.remove(found)
        except KeyboardInterrupt:
            terminal.warn("interrupted; what has begun to go goes with the next removal: git ckpt list shows what has not")
            raise
        for checkpoint_id in found:
            terminal.out(checkpoint_id)
        tell_what_stays(store, of_runs | set(found))
        for each in stay[:-1]:
            terminal.fail(each)
        if stay:
            raise stay[-1]


def tell_what_stays(store: Store, removed: Collection[str]) -> None:
    """Names the worktrees that were made from checkpoints, with the command that removes them: no work is removed unasked.

    Args:
        removed: the ids of checkpoints that were to be removed; those that are there all the same do not count.
    """
    here = inside(store)
    for path, checkpoint_id in ownership.made_from(here.repository, removed):
        if here.refs.read(layout.CHECKPOINTS + checkpoint_id) is None:
            remove_it = f"git worktree remove --force --force {shell_word(path)}"
            terminal.remark(f"the worktree made from {checkpoint_id[:SHORT]} stays; to remove that: {remove_it}")


def _meant(store: Store, texts: list[str]) -> tuple[list[str], list[str]]:
    """Returns the runs and the checkpoints that a person means: before anything goes, as nothing shall where one of them is not there."""
    here = inside(store)
    runs: set[str] = set()
    found: dict[str, None] = {}
    for text in texts:
        run = finder.named_run(text, here.repository, here.index)
        if run is not None:
            runs.add(run)
        else:
            found[store.find(text)] = None
    if not runs:
        return [], list(found)
    # The youngest first: it may refer to an older one that is named, too, and would keep that.
    return [each.id for each in sorted(store.runs(), key=lambda each: -each.started) if each.id in runs], list(found)
