"""The store as programs have it: the checkpoints of a repository, and all that the command line can do with them."""

from __future__ import annotations

import contextlib
import os
from types import NoneType
from typing import TYPE_CHECKING

from gitckpt.model.arguments import refused, require, strings
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.ids import require_run_id
from gitckpt.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Path = str | bytes | os.PathLike[str]

    from gitckpt.model.policy import Policy
    from gitckpt.store.audit.verification import Report
    from gitckpt.store.restore.restorer import Restored
    from gitckpt.store.retention.expiry import Expired
    from gitckpt.store.runs.summary import RunInfo
    from gitckpt.store.runs.timeline import History
    from gitckpt.store.worktrees.opener import Opened

_PUBLIC = (
    *("open", "close", "record", "save", "capture", "read", "raw", "find", "list", "links", "problems"),
    *("diff", "resume", "restore", "undo", "remove", "expire", "verify"),
    *("runs", "history", "cancel", "run_of", "latest_resumable"),
)


class Store(Checkpoints):
    """The checkpoints of one repository. A context manager; `close` ends its processes and writes what was put off.

        with Store.open() as store:
            saved = store.save("plan-complete", {"step": 3})
            store.restore(saved.id)

    Threads may share it: each call does what it would do alone, and calls that record or list take turns. `close` comes after the last
    of them, and a process that was forked opens a store of its own. What `dir` does not list may change without notice.
    """

    def __dir__(self) -> list[str]:
        return sorted(_PUBLIC)

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
            UsageError: `paths` or `options` is no list.
        """
        from gitckpt.store.snapshot.manifest import files_of

        patterns = [os.fsdecode(path) for path in _paths(paths)]
        old = files_of(self.repository, self._given(before))
        new = self._current_files() if after is None else files_of(self.repository, self._given(after))
        here = ["-C", os.getcwd()] if self.repository.worktree else []
        return self.repository.git.run(*here, "diff", "--no-color", *strings("options", options), old, new, "--", *patterns).out

    def _current_files(self) -> str:
        """Returns the tree of the files as they are in this worktree now."""
        if self.repository.worktree is None:
            raise WorktreeError("there is no worktree here to compare with", hint="compare two checkpoints: git ckpt diff ID ID")
        from gitckpt.store.snapshot import manifest

        return manifest.tree_of_files(self.repository, self.capture().tree, self.objects.head()[0])

    def resume(self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None) -> Opened:
        """Returns the worktree of a checkpoint, made with its files if it is not there. To go on with a run: `Run.resume`.

        Args:
            checkpoint: a checkpoint, or its full id.
            directory: the worktree's path; by default one named after run or checkpoint, where the settings say.

        Raises:
            WorktreeError: the directory is in the way, something is missing, or what came back is not what was captured.
        """
        from gitckpt.store.worktrees import resumption

        return resumption.resume(self, self._given(checkpoint), directory)

    def restore(self, checkpoint: Checkpoint | str, paths: Sequence[_Path] = (), *, dry_run: bool = False) -> Restored:
        """Puts the files of a checkpoint into this worktree, after a checkpoint of what is here; HEAD stays.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: only these, from the top of the worktree; by default all, with what is staged and an operation in progress.
            dry_run: whether to say only what would change.

        Raises:
            NotFoundError: one of the paths is neither here nor in the checkpoint.
            WorktreeError: something is in the way or missing; nothing was changed.
            UsageError: `paths` is no list.
        """
        from gitckpt.store.restore import restorer

        return restorer.restore(self, self._given(checkpoint), [os.fsencode(path) for path in _paths(paths)], dry_run=dry_run)

    def undo(self, *, dry_run: bool = False) -> Restored:
        """Takes the newest `restore` in this worktree back, or an `undo`.

        Args:
            dry_run: whether to say only what would change.

        Raises:
            NotFoundError: there is nothing to take back.
            WorktreeError: as `restore`.
        """
        from gitckpt.store.restore import restorer

        return restorer.undo(self, dry_run=dry_run)

    def expire(self, policy: Policy | None = None, *, dry_run: bool = False) -> Expired:
        """Removes the checkpoints and runs that a policy lets go.

        A run goes as a whole, with its worktree, if a checkpoint holds all that is in the worktree; if not, it stays.

        Args:
            policy: the rules; by default those of the settings.
            dry_run: whether to decide only.

        Raises:
            BusyError: somebody was faster, or holds a lock; what was removed until then stays removed, the rest is whole.
            UsageError: the settings cannot be understood, or the policy is none.
        """
        from gitckpt.model.policy import Policy
        from gitckpt.store.config import settings
        from gitckpt.store.retention import expiry

        require("policy", policy, (Policy, NoneType), "a Policy")
        return expiry.expire(self, policy or settings.read(self.repository).policy, dry_run=dry_run)

    def verify(self, *, repair: bool = False) -> Report:
        """Looks at every checkpoint and all it needs.

        Args:
            repair: whether to mend what is derived; no checkpoint and no worktree is ever changed.

        Raises:
            BusyError: a lock stayed in the way of mending.
        """
        from gitckpt.store.audit import verification

        with contextlib.suppress(BusyError):  # what this store itself has put off is no flaw of the repository
            self._recorder.write_links(self.clock())
        return verification.verify(self, repair=repair)

    def runs(self) -> Sequence[RunInfo]:
        """Returns what has become of each run, the one with the newest checkpoint first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self)

    def history(self, run: str) -> History:
        """Returns one run, phase by phase.

        Args:
            run: its id.

        Raises:
            NotFoundError: there is no such run.
        """
        from gitckpt.store.runs import timeline

        return timeline.read(self, run)

    def cancel(self, run: str) -> bool:
        """Asks whoever drives a run to stop. They do when they next look: with `Run.check`, `Run.wait` or a milestone.

        Args:
            run: its id.

        Returns:
            Whether somebody drives it.

        Raises:
            UsageError: it is no run id.
            BusyError: the lease changed each time it was about to be written.
        """
        return self.leases.cancel(require_run_id(run)) is not None

    def run_of(self, key: str) -> str | None:
        """Returns the id of the run that was started with a key; None where there is none, or not any more. Errors: as `keys.Claim`."""
        return self.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Returns the checkpoint to go on with; None where there is none.

        It is the newest one of the newest run that is neither complete nor driven by anybody; or, where that is newer, the newest of a
        phase that was recorded outside of runs, as a script does with `git ckpt save --phase research-failed`.
        """
        from gitckpt.store.runs import resumable

        return resumable.latest_resumable(self)

    def _given(self, checkpoint: Checkpoint | str) -> Checkpoint:
        return checkpoint if isinstance(checkpoint, Checkpoint) else self.read(checkpoint)


def _paths(paths: Sequence[_Path]) -> Sequence[_Path]:
    """Returns the paths of a call. One alone is refused: a string is a list of letters, which nobody means."""
    if isinstance(paths, str | bytes | os.PathLike):
        raise refused("paths", paths, "a list of paths")
    return paths
