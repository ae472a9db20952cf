"""`git ckpt restore` and `git ckpt undo`."""

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

    from gitckpt.store.restore.restorer import Restored
    from gitckpt.store.store import Store


def restore(
    id_and_paths: Annotated[
        list[str], typer.Argument(metavar="ID [-- PATH…]", help="Checkpoint, run, rev, or latest; then what to restrict it to.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> None:
    """Put the files of a checkpoint into this worktree.

    What is here now is recorded first, in a safety checkpoint: git ckpt undo brings it back.
    Only what differs is touched: files, what is staged, and a merge or rebase in progress. HEAD stays. Ignored files stay.
    """
    with open_store(to_capture=True) as store:
        checkpoint = store.read(store.find(id_and_paths[0]))
        done = store.restore(checkpoint, [_from_top(store, path) for path in id_and_paths[1:]], dry_run=dry_run)
        _print(done, dry_run=dry_run)


def undo(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> None:
    """Take back the newest restore in this worktree; given again, take that back."""
    with open_store(to_capture=True) as store:
        _print(store.undo(dry_run=dry_run), dry_run=dry_run)


def _from_top(store: Store, path: str) -> bytes:
    """Returns a path relative to the top; links that lead to the top are followed, those inside of it are paths of their own."""
    if store.worktree is None:
        return os.fsencode(path)
    top = os.path.realpath(store.worktree)
    *parts, last = os.path.normpath(os.path.join(os.path.realpath(os.getcwd()), path)).split(os.sep)
    for number in range(1, len(parts) + 1):
        if os.path.realpath(os.sep.join(parts[:number]) or os.sep) == top:
            return os.fsencode(os.sep.join([*parts[number:], last]))
    if os.path.realpath(os.sep.join([*parts, last])) == top:
        return b""
    raise UsageError(f"{path} is outside of the worktree {store.worktree}", hint="name paths inside of it")


def _print(done: Restored, *, dry_run: bool) -> None:
    for change in done.changes:
        terminal.out(f"{change.kind:6}  {terminal.harmless(os.fsdecode(change.path))}")
    for remark in done.remarks:
        terminal.warn(terminal.harmless(remark))
    if dry_run:
        terminal.remark("nothing was changed")
    elif done.safety is None:
        terminal.remark("nothing to do: the worktree has these files")
    else:
        terminal.remark(f"what was here is in checkpoint {done.safety[: ids.SHORT]}; to go back: git ckpt undo")
