"""What compares the files of checkpoints with the worktree one is in, and puts them there and takes that back. A part of `Store`."""

from __future__ import annotations

import os

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, cure_of_promised
from gitckpt.model import ids
from gitckpt.model.arguments import paths_of, require_callable, require_path, words
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import NotFoundError, UsageError, WorktreeError
from gitckpt.model.names import first_of
from gitckpt.store.upkeep import Upkeep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.model.readers.statediff import StateChange
    from gitckpt.store.restore.extraction import Extras
    from gitckpt.store.restore.report import Restored
    from gitckpt.store.restore.undo import UndoStep

    _Path = str | bytes | os.PathLike[str]


class Restoration(Upkeep):
    """What can be done with the files of the worktree that a store is seen from; programs take `Store`."""

    def restore(
        self,
        checkpoint: Checkpoint | str,
        paths: Sequence[_Path] | None = None,
        *,
        index: bool = False,
        dry_run: bool = False,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
        trust: bool = False,
    ) -> Restored:
        """Puts the files of a checkpoint into this worktree, after a checkpoint of what is here; HEAD stays.

        What was taken back until now with `undo` is out of reach of `redo` then.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: only these, from the top of the worktree, which is "."; by default all, with what is staged and an operation in progress.
            index: whether the entries of `paths` in the index come back, too; without `paths` they always do.
            dry_run: whether to say only what would change.
            announce: is told, before anything is changed, what a person should know, a sentence each: that the
                checkpoint is of another commit or branch than HEAD, or in the middle of an operation (`apart` of the
                result), and what else `remarks` has. Not called where there is nothing to say.
            trust: whether a checkpoint whose document a fetch has replaced may be restored.

        Raises:
            NotFoundError: one of the paths is neither here nor in the checkpoint.
            WorktreeError: something is in the way or missing; nothing was changed.
            UsageError: `paths` is no list of paths, or an empty one, or one of them is empty: who names none does not mean all.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        names = _named(paths) if paths is not None else []
        given = self._given(checkpoint)
        return restorer.restore(
            self._checkpoints,
            given,
            names,
            index=index,
            dry_run=dry_run,
            announce=announce,
            trusted=trust,
        )

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

    def is_cut_off(self) -> bool:
        """Tells whether the newest restore, `undo` or `redo` in this worktree never came to its end: some files may be of either side.

        To take that step back, or to do it again, brings all of them to one side.
        """
        from gitckpt.store.restore import undo

        return undo.read(self._checkpoints).is_open

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
            NotFoundError, InvalidCheckpoint: as `read`; or no file of either side matches one of the paths.
            WorktreeError: files are missing, or there is no worktree here to compare with.
            UsageError: `paths` is no list of paths, or `options` none of strings.
        """
        from gitckpt.store.snapshot import comparison, manifest

        repository = self._checkpoints.repository
        paths = paths_of(paths)
        first, second = self._given(before), None if after is None else self._given(after)
        # First what may be missing: a capture of the same files would write it anew.
        manifest.files_of(repository, first)
        here = self._current() if second is None else (second.tree, second.git_sha)
        old, new = comparison.comparable(repository, self._checkpoints.objects, (first.tree, first.git_sha), here)
        other = "among the files here that are captured" if second is None else f"in checkpoint {second.id[: ids.SHORT]}"
        self._require_matches((old, new), paths, f"in checkpoint {first.id[: ids.SHORT]} or {other}")
        return self._compared(old, new, paths, options)

    def diff_commit(self, checkpoint: Checkpoint | str, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()) -> bytes:
        """Returns git's own diff of the commit that a checkpoint is linked to, and its files: what `git ckpt show` counts.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: as for `diff`.
            options: as for `diff`.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: the commit or files are missing.
            UsageError: as `diff`.
        """
        from gitckpt.store.snapshot import manifest

        repository, given = self._checkpoints.repository, self._given(checkpoint)
        base = manifest.tree_of_files(repository, None, given.git_sha)
        return self._compared(base, manifest.files_of(repository, given), paths_of(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        """Raise `NotFoundError` where a pattern matches no file of some trees: a mistyped path would look like one without changes."""
        repository = self._checkpoints.repository
        nothing = object_id("tree", b"", repository.object_format)
        unmatched = [path for path in paths if not any(self._compared(nothing, tree, [path], ["--name-only"]) for tree in trees)]
        if unmatched:
            names = first_of([os.fsdecode(path) for path in unmatched])
            hint = "paths count from the current directory; see which files differ: git ckpt diff ID --stat"
            raise NotFoundError(f"no file {where} matches {names}", hint=hint)

    def _compared(self, old: str, new: str, paths: Sequence[_Path], options: Sequence[str]) -> bytes:
        repository = self._checkpoints.repository
        try:
            place = ["-C", os.getcwd()] if repository.worktree else []
        except FileNotFoundError:  # it is gone: they count from the top
            place = []
        patterns = [os.fsdecode(path) for path in paths]
        options = words("options", options)
        try:
            return repository.git.run(*place, "diff", "--no-color", *options, old, new, "--", *patterns).out
        except GitError as error:
            if cure_of_promised(error.stderr) is None:
                raise
            raise WorktreeError(
                "contents of files are missing here: this is a partial clone, and diff fetches nothing",
                hint=f"fetch them: git diff --numstat {old} {new}; then run the command again",
            ) from None

    def file(self, checkpoint: Checkpoint | str, path: _Path, *, beside: bool = False) -> bytes:
        """Returns the content of a file of a checkpoint: as git stores it; or byte for byte, where git would write that otherwise.

        Args:
            checkpoint: a checkpoint, or its full id.
            path: of the file, from the top of the worktree; of a link, where that leads to is its content.
            beside: whether it is one of those that the run keeps beside its worktree, as `beside` names it.

        Raises:
            NotFoundError: the checkpoint has no such file; or as `read`.
            InvalidCheckpoint: as `read`.
            WorktreeError: its files are missing.
            UsageError: it is no path.
        """
        from gitckpt.store.restore import extraction

        require_path("path", path)
        return extraction.content(self._checkpoints.repository, self._given(checkpoint), os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """Returns the names of the files that a run kept beside its worktree: its inputs, and what its phases put out.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: there are more than anybody lists.
        """
        from gitckpt.store.runs import run_files

        return run_files.names(self._checkpoints.repository, self._given(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """Returns the names of those among the files that `beside` names in which what looked like a secret was masked.

        Args and errors: as `beside`.
        """
        from gitckpt.store.runs import run_files

        return run_files.masked(self._checkpoints.repository, self._given(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Returns what the snapshot of a checkpoint has that a tree of git's cannot hold.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: an object of the snapshot is missing or damaged, or there are more paths than anybody lists.
        """
        from gitckpt.store.restore import extraction

        return extraction.extras(self._checkpoints.repository, self._checkpoints.objects, self._given(checkpoint))

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


def _named(paths: Sequence[_Path]) -> list[bytes]:
    """Returns paths as git has them, that of the top as b""."""
    names = [os.fsencode(path) for path in paths_of(paths)]
    if not names:
        raise UsageError("paths: the list is empty", hint="leave it out to restore all files; to restore none, do not call restore")
    if b"" in names:
        raise UsageError("paths: one of them is empty", hint='name "." for all files')
    return [b"" if name == b"." else name for name in names]
