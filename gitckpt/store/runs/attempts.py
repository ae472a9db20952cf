"""What the checkpoints of a run that were written here say of its phases: who attempted them, when, and what has changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, STEP, Attempt, Checkpoint
from gitckpt.model.phase import NOT_PHASES, REWOUND, split
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records.entry import WITHIN, Query
from gitckpt.store.runs import trust
from gitckpt.store.snapshot import manifest
from gitckpt.store.submodules import keeper

_OF_OTHERS = (*HOOK_TRIGGERS, MANUAL, STEP)
"""Triggers of checkpoints of a run that whoever works in its worktree makes, also while nobody drives it."""


class Attempts:
    """The attempts at phases of a run until now.

    Args:
        store: as seen from the run's worktree.
        run: its id.
        is_new: whether nobody can have attempted any.
    """

    def __init__(self, store: Checkpoints, run: str, *, is_new: bool = False) -> None:
        self._store = store
        self._run = run
        self._attempts: Counter[str] | None = Counter() if is_new else None

    def phases(self, completed: Iterable[str]) -> list[str]:
        """Returns the names of the phases that the run is known to have, `completed` first, then in the order they came up."""
        entries = trust.written_here(self._store, Query(run=self._run))
        labels = [split(entry.label)[0] for entry in entries if entry.trigger not in (*WITHIN, STEP)]
        return list(dict.fromkeys([*completed, *(name for name in reversed(labels) if name not in NOT_PHASES)]))

    def attempts_at(self, phase: str) -> int:
        """Returns how many attempts at a phase there were."""
        if self._attempts is None:
            entries = trust.written_here(self._store, Query(run=self._run, status="started"))
            self._attempts = Counter(split(entry.label)[0] for entry in entries if entry.trigger == PHASE)
        return self._attempts[phase]

    def count_attempt(self, attempt: Attempt) -> None:
        """Notes that an attempt begins."""
        if self._attempts is not None:
            self._attempts[attempt.phase] = attempt.number

    def began(self, phase: str) -> str | None:
        """Returns the newest checkpoint at which a phase began, None where there is none."""
        found = trust.written_here(self._store, Query(run=self._run, label=f"{phase}-started"))
        return next((entry.id for entry in found), None)

    def began_first(self, phase: str) -> Checkpoint | None:
        """Returns the checkpoint at which the last attempts at a phase began, None where there were none."""
        newest = self.began(phase)
        if newest is None:
            return None
        checkpoint = trust.read(self._store, self._run, newest)
        first = checkpoint.attempt.began if checkpoint.attempt is not None else None
        return trust.read(self._store, self._run, first) if first is not None else checkpoint

    def differs_from(self, checkpoint_id: str) -> bool:
        """Tells whether commit or files of the worktree differ from those of a checkpoint."""
        then = trust.read(self._store, self._run, checkpoint_id)
        commit = self._store.objects.head()[0]
        if commit != then.git_sha:
            return True
        found = self._store.capture()
        tree = then.tree
        before, after = (manifest.read(self._store.repository, self._store.objects, oid, commit) for oid in (tree, found.tree))
        return (before.files, before.raw) != (after.files, after.raw) or keeper.differ(self._store, then.worktree, found)

    def was_worked_on(self, phase: str, newest: str) -> bool:
        """Tells whether commit or files of the worktree differ from what the driver recorded last of a phase.

        Args:
            newest: id of the newest checkpoint, which counts where the driver has recorded nothing.
        """
        # Not from the newest checkpoint: a commit or a save of whoever has worked there since extends the run as well, and whoever takes
        # the run back to that, or has the phase done again, means it to stay.
        target = None
        for entry in trust.written_here(self._store, Query(run=self._run)):
            if target not in (None, entry.id):
                continue
            target = None
            if entry.label == REWOUND:
                target = trust.read(self._store, self._run, entry.id).rewound_to
            elif entry.trigger not in _OF_OTHERS and split(entry.label)[0] == phase:
                return self.differs_from(entry.id)
        return self.differs_from(newest)
