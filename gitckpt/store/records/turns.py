"""Group the checkpoints of agents' sessions into turns."""

from __future__ import annotations

from gitckpt.model import phase
from gitckpt.model.checkpoint import GUARD, TURN
from gitckpt.model.values import dataclass, field
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.records.index import Index

OPEN, COMPLETE, INTERRUPTED = "open", "complete", "interrupted"


@dataclass(slots=True)
class Turn:
    """One turn of an agent: its prompt, and the checkpoints before, in and after it."""

    run: str
    number: int
    entries: list[CheckpointInfo] = field(default_factory=list)  # oldest first
    following: CheckpointInfo | None = None  # the first of the next turn, if there is one

    @property
    def before(self) -> CheckpointInfo:
        """The checkpoint at the begin; if that has expired, the first one that is left."""
        return self.entries[0]

    @property
    def has_begin(self) -> bool:
        return self.entries[0].status == "started"

    @property
    def after(self) -> CheckpointInfo | None:
        """The checkpoint at the end, or at the begin of the next turn, or None."""
        last = self.entries[-1]
        return last if last.trigger == TURN and last is not self.before else self.following

    @property
    def guards(self) -> list[CheckpointInfo]:
        return [entry for entry in self.entries if entry.trigger == GUARD]

    @property
    def _has_expired_end(self) -> bool:
        if self.following is None:
            return False
        last, first = self.entries[-1].sequence, self.following.sequence
        return last is not None and first is not None and last + 1 < first

    @property
    def status(self) -> str:
        if self.entries[-1].status == "complete" or self._has_expired_end:
            return COMPLETE
        return OPEN if self.after is None else INTERRUPTED


def list_turns(index: Index, run: str | None = None) -> list[Turn]:
    """List the turns of one session, or of all, newest first."""
    entries = index.select(Query(run=run, in_run=True, triggers=[TURN, GUARD]))
    turns: dict[tuple[str, int], Turn] = {}
    for entry in entries:
        number = phase.turn_number(entry.label)
        if number is not None and entry.run is not None:
            key = entry.run, number
            turns.setdefault(key, Turn(*key)).entries.insert(0, entry)
    for (name, number), turn in turns.items():
        following = turns.get((name, number + 1))
        turn.following = following.before if following is not None else None
    return list(turns.values())
