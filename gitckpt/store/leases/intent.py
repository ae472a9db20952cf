"""Checkpoints of a run that are written down, and recorded a moment later, together with what follows them.

An intent is a document that nothing leads to yet, and its line in the chain of its run (`store/chains`). Neither is flushed: a kill of the
process leaves both, and whoever goes on with the run records the checkpoint then; a power cut may take them, and what they announce.
"""

from __future__ import annotations

from gitckpt.git.process import GitError
from gitckpt.model import ids
from gitckpt.model.checkpoint import PHASE, Checkpoint, Worktree
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.readers import codec
from gitckpt.store import chains
from gitckpt.store.records import draft, layout
from gitckpt.store.records.recorder import Proposal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
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

    def goes_with(self, commit: str, worktree: Worktree | None) -> bool:
        """Tells whether it can be recorded in one transaction with what has this commit, and these files."""
        return (self._drafted.git_sha, self._drafted.worktree) == (commit, worktree)

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
        phase: str,
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
            phase: its label.
            state: what it carries; nobody may change it any more.
            details: its other keys, with an id.
            worktree: its files.
            guard: the lease that must be held when it is recorded.
            keeps: as for `Proposal`.
            instant: now, in microseconds since the epoch.

        Raises:
            CkptError: as `Recorder.note`, or it could not be recorded.
        """
        draft.require_call(phase, details, state=state, worktree=worktree, keeps=keeps)
        head = draft.head(self._repository, self._objects)
        found = draft.draft(phase, state, details, head=head, worktree=worktree, checkpoint_id=details["id"], instant=instant)
        intent = Intent(found[0], Proposal(*found[1:], guard=guard, keeps=keeps))
        self._recorder.note(intent.proposal)
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

    def left(self, run: str, guard: Guard) -> Intent | None:
        """Returns the start of an attempt that a driver has written down, before it was killed, to follow the head; None where it has none.

        What is damaged, or no document that follows the head of the run, announces nothing.

        Args:
            guard: the lease of whoever goes on with the run.

        Raises:
            NotFoundError: there is no such run.
        """
        oid, newest = self._heads.head(run)
        for line in chains.noted_after(self._repository, run, oid):
            found = self._read(run, line.decode("ascii", "replace"))
            if found is not None and found.run == run and found.parent == newest.id and _announces(found):
                return Intent(found, Proposal(codec.fields(found), dict(found.state), guard=guard))
        return None

    def _read(self, run: str, oid: str) -> Checkpoint | None:
        try:
            found = next(self._objects.read([oid])) if ids.is_oid(oid) else None
            return layout.run_head(found, layout.RUNS + run) if found is not None else None
        except (GitError, InvalidCheckpoint):
            return None


def _announces(checkpoint: Checkpoint) -> bool:
    """Tells whether a checkpoint says that an attempt begins."""
    name, status = split(checkpoint.phase)
    return checkpoint.trigger == PHASE and status == STARTED and name not in NOT_PHASES
