"""What has become of runs, who drives them, and whose they are. A part of `Store`."""

from __future__ import annotations

from gitckpt.model.arguments import require_seconds, require_text, strings
from gitckpt.model.ids import require_run_id
from gitckpt.store.restoration import Restoration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.runs.summary import RunInfo
    from gitckpt.store.runs.timeline import History


class Supervision(Restoration):
    """What can be done with runs without driving them; programs take `Store`."""

    def find_run(self, text: str) -> str:
        """Returns the id of the run that a person means.

        Args:
            text: the id, or a prefix of it.

        Raises:
            NotFoundError, AmbiguousError: none goes by it, or several do.
        """
        from gitckpt.store.records import finder

        require_text("text", text)
        return finder.find_run(text, self._checkpoints.index)

    def run_named(self, text: str) -> str | None:
        """Returns the id of the run that a person means who may mean a checkpoint as well; None where it is no run's, nor a prefix of one.

        Args:
            text: what `find` takes.

        Raises:
            AmbiguousError: several checkpoints or runs go by it; they are listed.
        """
        from gitckpt.store.records import finder

        return finder.named_run(text, self._checkpoints.repository, self._checkpoints.index)

    def newest(self, run: str) -> Checkpoint:
        """Returns the newest checkpoint of a run, that of a hook which was still at work when the driver died included.

        Args:
            run: its id.

        Raises:
            NotFoundError: there is no such run.
            InvalidCheckpoint: it is no valid document.
        """
        return self._checkpoints.heads.catch_up(require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Tells whether a checkpoint was written here, or adopted: what was fetched drives nothing before somebody has said `trust`.

        Outside of runs that is so of all that bring nothing along that drives a run.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
        """
        from gitckpt.store.runs import trust

        return trust.is_ours(self._checkpoints, self._given(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """Returns what has become of each run, the one with the newest checkpoint first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """Return the unfinished runs of this worktree, the newest checkpoint first.

        Each was started in this worktree, or has it. None is complete, or driven by anybody.
        """
        from gitckpt.store.runs import resumable

        return resumable.unfinished(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return which checkpoints and runs other worktrees made: the worktree by id.

        Args:
            names: full ids. What was fetched, or replaced by a fetch, is of no worktree here.

        Raises:
            UsageError: it is no list of strings.
        """
        from gitckpt.store.runs import resumable

        return resumable.made_elsewhere(self._checkpoints, strings("names", names))

    def history(self, run: str) -> History:
        """Returns one run, phase by phase.

        Args:
            run: its id.

        Raises:
            NotFoundError: there is no such run.
        """
        from gitckpt.store.runs import timeline

        return timeline.read(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stops whoever drives a run, and waits for their end, as `git ckpt cancel` does. The run can be resumed.

        A driver in another process of this machine gets SIGTERM: `git ckpt run` ends its phase, and records it as failed; a program that
        does not handle the signal ends there, and its run has crashed. A driver elsewhere, or in this very process, stops when it next
        looks: with `Run.check`, `Run.wait` or a milestone; in this process that is not waited for.

        Args:
            run: its id.
            wait: how long their end is waited for, in seconds; 0 only asks: nobody is signalled, and they stop when they next look.

        Returns:
            Whether somebody drove it.

        Raises:
            UsageError: it is no run id, or `wait` is no number from 0 on.
            BusyError: the lease changed each time it was about to be written.
            CkptError: they were asked to stop, and have not in that time, or are stalled, and will when they go on.
        """
        from gitckpt.store.leases import cancellation

        require_seconds("wait", wait)
        inside = self._checkpoints
        return cancellation.cancel(inside.leases, require_run_id(run), wait=wait, tell=inside.announce)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Takes a run from a driver that is stalled, for whoever goes on with it next: that driver can write nothing more.

        What it had started is ended by the next `Run.resume`, which does both with its own `take_over`.

        Args:
            run: its id.
            holder: who takes it over, for people.

        Raises:
            UsageError: it is no run id, or `holder` is no string.
            NotFoundError: there is no such run.
            LeaseHeld: somebody drives it who is not stalled.
            BusyError: the lease could not be written.
        """
        require_text("holder", holder)
        inside = self._checkpoints
        inside.heads.read(require_run_id(run))
        inside.leases.acquire(run, holder, take_over=True).release()

    def run_of(self, key: str) -> str | None:
        """Returns the id of the run that was started with a key; None where there is none, or not any more. Errors: as `keys.Claim`."""
        return self._checkpoints.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Returns the checkpoint to go on with; None where there is none.

        It is the newest one of the newest of `unfinished_runs`; or, where that is newer, the newest of a phase that was recorded in this
        worktree outside of runs, as a script does with `git ckpt save --phase research-failed`.
        """
        from gitckpt.store.runs import resumable

        return resumable.latest_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Removes a run as a whole, whatever has become of it: its checkpoints, worktree, lease and files.

        Args:
            run: its id.

        Returns:
            How many checkpoints went with it.

        Raises:
            NotFoundError: there is no such run.
            LeaseHeld: somebody who is alive drives it.
            WorktreeError: its worktree holds what no checkpoint does, or cannot be removed; the run stays.
            UsageError: an unfinished run refers to it; it stays.
            BusyError: as `remove`; the run may be without its worktree then, and goes with the next call.
        """
        from gitckpt.store.retention import whole

        return whole.remove(self._checkpoints, require_run_id(run))
