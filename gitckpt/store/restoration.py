"""What compares the files of checkpoints with the worktree one is in, and puts them there and takes that back. A part of `Store`."""

from __future__ import annotations

import os

from gitckpt.model.arguments import paths_of, require_callable, strings
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store.upkeep import Upkeep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.model.readers.statediff import StateChange
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
            UsageError: `paths` is no list of paths.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
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

        require_callable("announce", announce)
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

        require_callable("announce", announce)
        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """Returns what `undo` and `redo` can do in this worktree: the steps back, then those forward, each time the next one first."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def diff(
        self, before: Checkpoint | str, after: Checkpoint | str | None = None, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()
    ) -> bytes:
        """Returns git's own diff of the files of two checkpoints, or of one and this worktree.

        Args:
            before: a checkpoint, or its full id.
            after: another one; None for the files as they are in this worktree now.
            paths: patterns of git's to look at only, which count from the current directory where there is a worktree.
            options: more options of `git diff`, such as "--stat".

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: files are missing, or there is no worktree here to compare with.
            UsageError: `paths` is no list of paths, or `options` none of strings.
        """
        from gitckpt.store.snapshot import comparison, manifest

        repository = self._checkpoints.repository
        patterns = [os.fsdecode(path) for path in paths_of(paths)]
        first, second = self._given(before), None if after is None else self._given(after)
        # First what may be missing: a capture of the same files would write it anew.
        manifest.files_of(repository, first)
        here = self._current() if second is None else (second.tree, second.git_sha)
        old, new = comparison.comparable(repository, self._checkpoints.objects, (first.tree, first.git_sha), here)
        place = ["-C", os.getcwd()] if repository.worktree else []
        return repository.git.run(*place, "diff", "--no-color", *strings("options", options), old, new, "--", *patterns).out

    def _current(self) -> tuple[str | None, str]:
        """Returns the snapshot of this worktree as it is now, and its commit."""
        inside = self._checkpoints
        if inside.repository.worktree is None:
            raise WorktreeError("there is no worktree here to compare with", hint="compare two checkpoints: git ckpt diff ID ID")
        return inside.capture(with_submodules=False).tree, inside.objects.head()[0]

    def diff_states(self, before: Checkpoint | str, after: Checkpoint | str) -> Sequence[StateChange]:
        """Returns the values that differ in the states of two checkpoints.

        Args:
            before: a checkpoint, or its full id.
            after: another one.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
        """
        from gitckpt.model.readers import statediff

        return statediff.compare(dict(self._given(before).state), dict(self._given(after).state))

    def _given(self, checkpoint: Checkpoint | str) -> Checkpoint:
        return checkpoint if isinstance(checkpoint, Checkpoint) else self._checkpoints.read(checkpoint)
