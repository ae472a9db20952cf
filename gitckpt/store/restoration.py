"""What puts the files of checkpoints into the worktree one is in, and takes that back, step by step. A part of `Store`."""

from __future__ import annotations

import os

from gitckpt.model.arguments import paths_of
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.store.upkeep import Upkeep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.store.restore.report import Restored
    from gitckpt.store.restore.undo import UndoStep

    _Path = str | bytes | os.PathLike[str]


class Restoration(Upkeep):
    """What can be done with the files of the worktree that a store is seen from; programs take `Store`."""

    def restore(
        self,
        checkpoint: Checkpoint | str,
        paths: Sequence[_Path] = (),
        *,
        dry_run: bool = False,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
        trust: bool = False,
    ) -> Restored:
        """Puts the files of a checkpoint into this worktree, after a checkpoint of what is here; HEAD stays.

        What was taken back until now with `undo` is out of reach of `redo` then.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: only these, from the top of the worktree; by default all, with what is staged and an operation in progress.
            dry_run: whether to say only what would change.
            announce: is told, before the first file is replaced, what it means that the checkpoint is of another commit or branch than
                HEAD, or in the middle of an operation, a sentence each; `apart` of the result says it afterwards. Not called where there
                is nothing to say.
            trust: whether a rebase in progress that was captured elsewhere may bring the commands that it runs when it goes on.

        Raises:
            NotFoundError: one of the paths is neither here nor in the checkpoint.
            WorktreeError: something is in the way or missing; nothing was changed.
            UsageError: `paths` is no list.
        """
        from gitckpt.store.restore import restorer

        names = [os.fsencode(path) for path in paths_of(paths)]
        return restorer.restore(self._checkpoints, self._given(checkpoint), names, dry_run=dry_run, announce=announce, trusted=trust)

    def undo(self, *, dry_run: bool = False, announce: Callable[[Sequence[str]], None] = lambda _: None) -> Restored:
        """Takes the newest `restore` in this worktree back; called again, the one before it, up to the first.

        What is here now is in a checkpoint first, with all that was edited since; `redo` brings it back.

        Args:
            dry_run: whether to say only what would change.
            announce: as for `restore`.

        Raises:
            NotFoundError: there is nothing to take back.
            WorktreeError: as `restore`.
        """
        from gitckpt.store.restore import restorer

        return restorer.undo(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: Callable[[Sequence[str]], None] = lambda _: None) -> Restored:
        """Brings back what was here before the newest `undo`; called again, what was here before the one that preceded it.

        What is here now is in a checkpoint first; `undo` brings it back.

        Args:
            dry_run: whether to say only what would change.
            announce: as for `restore`.

        Raises:
            NotFoundError: nothing was taken back since the newest `restore`.
            WorktreeError: as `restore`.
        """
        from gitckpt.store.restore import restorer

        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """Returns what `undo` and `redo` can do in this worktree: the steps back, then those forward, each time the next one first."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def _given(self, checkpoint: Checkpoint | str) -> Checkpoint:
        return checkpoint if isinstance(checkpoint, Checkpoint) else self._checkpoints.read(checkpoint)
