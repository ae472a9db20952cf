"""Checkpoints of a run that are written down, and recorded a moment later, together with what follows them.

An intent is a document that nothing leads to yet, and its line in the chain of its run (`store/chains`). Neither is flushed: a kill of the
process leaves both, and whoever goes on with the run records the checkpoint then; a power cut may take them, and what they announce.
"""

from __future__ import annotations

import contextlib
import copy

from gitckpt.git.process import GitError
from gitckpt.model import ids
from gitckpt.model.checkpoint import PHASE, Checkpoint, Worktree
from gitckpt.model.errors import CkptError, InvalidCheckpoint, UsageError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.readers import codec
from gitckpt.model.values import replace
from gitckpt.store import chains, log
from gitckpt.store.leases.lease import LeaseLost
from gitckpt.store.records import draft, layout
from gitckpt.store.records.recorder import Proposal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.store.records.draft import Details
    from gitckpt.store.records.heads import Heads
    from gitckpt.store.records.recorder import Guard, Recorder

STARTED = "started"
"""The status of the only checkpoints that wait: whoever was told of anything else was told that it is recorded."""


class Intent:
    """A checkpoint that is to be recorded.

    Args:
        drafted: the checkpoint, without its place in its run.
        proposal: likewise.

    Attributes:
        made: the checkpoint as it was recorded; None until then.
    """

    def __init__(self, drafted: Checkpoint, proposal: Proposal) -> None:
        self._drafted = drafted
        self.proposal = proposal
        self.made: Checkpoint | None = None

    def goes_with(self, commit: str, branch: str | None, worktree: Worktree | None) -> bool:
        """Tells whether it can be recorded in one transaction with what has this commit, on this branch, and these files."""
        return (self._drafted.git_sha, self._drafted.branch, self._drafted.worktree) == (commit, branch, worktree)

    def recorded(self) -> None:
        """Notes that it was."""
        self.made = draft.recorded(self._drafted, self.proposal.fields, self.proposal.state)


class Intents:
    """Writes checkpoints down that are to be recorded.

    Args:
        repository: as of the store.
        objects: likewise.
        recorder: likewise.
        heads: likewise.
    """

    def __init__(self, repository: Repository, objects: Objects, recorder: Recorder, heads: Heads) -> None:
        self._repository = repository
        self._objects = objects
        self._recorder = recorder
        self._heads = heads

    def begin(
        self,
        label: str,
        state: Mapping[str, Any],
        details: Details,
        *,
        worktree: Worktree | None,
        guard: Guard,
        keeps: Collection[str],
        instant: int,
    ) -> Intent:
        """Writes a checkpoint down that has the files of the newest one of its run; nothing is flushed, and no ref changes.

        Args:
            label: as for `Store.record`.
            state: what it carries; the caller may change it afterwards.
            details: its other keys, with an id.
            worktree: its files.
            guard: the lease that must be held when it is recorded.
            keeps: as for `Proposal`.
            instant: now, in microseconds since the epoch.

        Raises:
            CkptError: as `Recorder.note`, or it could not be recorded.
        """
        draft.require_call(label, details, state=state, worktree=worktree, keeps=keeps)
        head = draft.head(self._repository, self._objects)
        found = draft.draft(label, state, details, head=head, worktree=worktree, checkpoint_id=details["id"], instant=instant)
        intent = Intent(found[0], Proposal(*found[1:], guard=guard, keeps=keeps))
        self._recorder.note(intent.proposal)
        intent.proposal.state = copy.deepcopy(found[2])  # now that it is known to hold nothing that cannot be copied
        return intent

    def settle(self, intent: Intent, instant: int) -> Checkpoint:
        """Records what was written down, unless it is; returns it. Errors: as `Recorder.record`.

        Args:
            instant: now, in microseconds since the epoch.
        """
        if intent.made is None:
            self._recorder.record(intent.proposal, instant)
            intent.recorded()
        assert intent.made is not None
        return intent.made

    def take_up(self, run: str, guard: Guard, instant: int, new_id: Callable[[], str]) -> Checkpoint | None:
        """Records the start of an attempt that a driver has written down, before it was killed, to follow the head; returns it, if any.

        What is damaged, was removed, or is no document that follows the head of the run, announces nothing. What cannot be recorded is no
        reason not to go on with the run: the log says so.

        Args:
            guard: the lease of whoever goes on with the run.
            instant: now, in microseconds since the epoch.
            new_id: returns a fresh UUID version 4.

        Raises:
            NotFoundError: there is no such run.
            LeaseLost: somebody else drives it by now.
        """
        found = self._left(run)
        if found is None:
            return None
        try:
            with contextlib.suppress(UsageError):
                return self._record(found, guard, instant)
            # A transaction that was cut off has left refs under its id, perhaps.
            return self._record(replace(found, id=new_id()), guard, instant)
        except LeaseLost:
            raise
        except CkptError as error:
            with contextlib.suppress(CkptError):  # the disk is full, perhaps
                log.append(self._repository, f"run {run}: {found.label} was written down, and cannot be recorded: {error.message}")
            return None

    def _record(self, found: Checkpoint, guard: Guard, instant: int) -> Checkpoint:
        return self.settle(Intent(found, Proposal(codec.fields(found), dict(found.state), guard=guard)), instant)

    def _left(self, run: str) -> Checkpoint | None:
        """Returns the newest start that was written down to follow the head of a run; None where there is none."""
        head, newest = self._heads.head(run)
        for line in chains.noted_after(self._repository, run, head):
            oid = line.decode("ascii", "replace")
            if oid == head:
                return None  # it was moved back to that: see `chains.turn_back`
            found = self._read(run, oid)
            if found is not None and found.run == run and found.parent == newest.id and _announces(found):
                return found
        return None

    def _read(self, run: str, oid: str) -> Checkpoint | None:
        try:
            found = next(self._objects.read([oid])) if ids.is_oid(oid) else None
            return layout.run_head(found, layout.RUNS + run) if found is not None else None
        except (GitError, InvalidCheckpoint):
            return None


def _announces(checkpoint: Checkpoint) -> bool:
    """Tells whether a checkpoint says that an attempt begins."""
    name, status = split(checkpoint.label)
    return checkpoint.trigger == PHASE and status == STARTED and name not in NOT_PHASES
