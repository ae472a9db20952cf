"""List the turns of agents' sessions, with what each of them changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gitckpt.agents.clients import CLIENTS
from gitckpt.model import phase
from gitckpt.model.checkpoint import GUARD, TURN
from gitckpt.model.errors import AmbiguousError, CkptError, NotFoundError
from gitckpt.model.values import dataclass, field
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.store import Store

_ADDRESS = re.compile(r"(.+):([0-9]+)")
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


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a turn changed; the counts of lines are None for a binary file."""

    path: str
    added: int | None
    removed: int | None


def list_turns(store: Store, run: str | None = None, limit: int | None = None) -> list[Turn]:
    """List the turns of one session, or of all, newest first."""
    triggers = [TURN, GUARD]
    entries = store.list(Query(run=run, in_run=True, triggers=triggers))
    turns: dict[tuple[str, int], Turn] = {}
    for entry in entries:
        number = phase.turn_number(entry.label)
        if number is not None and entry.run is not None:
            key = entry.run, number
            turns.setdefault(key, Turn(*key)).entries.insert(0, entry)
    for (name, number), turn in turns.items():
        following = turns.get((name, number + 1))
        turn.following = following.before if following is not None else None
    return list(turns.values())[:limit]


def find_session(store: Store, text: str) -> str:
    """Return the run of a session by a unique part of its id, or the client's id.

    Raises NotFoundError or AmbiguousError.
    """
    for client in CLIENTS:
        run = store.run_of(f"agent:{client}:{text}")
        if run is not None:
            return run
    runs = list(dict.fromkeys(turn.run for turn in list_turns(store)))
    matches = [run for run in runs if run == text] or [run for run in runs if text in run]
    if len(matches) == 1:
        return matches[0]
    if matches:
        problem = f"{len(matches)} sessions match {text!r}"
        raise AmbiguousError(
            problem, candidates=matches, hint="name the session by a longer part of it"
        )
    raise NotFoundError(f"no session {text!r}", hint="list the sessions: git ckpt turns")


def find_turn(store: Store, text: str) -> Turn | None:
    """Return the turn at an address SESSION:NUMBER; None if `text` is no such address.

    Raises NotFoundError or AmbiguousError if there is no such session or turn.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    run, number = find_session(store, match[1]), int(match[2])
    for turn in list_turns(store, run):
        if turn.number == number:
            return turn
    hint = f"list the turns: git ckpt turns {run}"
    raise NotFoundError(f"the session {run} has no turn {number}", hint=hint)


def changed_files(store: Store, turn: Turn) -> list[ChangedFile]:
    """Return the files that a turn changed; [] if its begin or end is unknown."""
    before, after = turn.before, turn.after
    if after is None or not turn.has_begin or before.is_degraded or after.is_degraded:
        return []
    if (before.tree, before.git_sha) == (after.tree, after.git_sha):
        return []
    try:
        listing = store.diff(before.id, after.id, options=["--numstat", "-z"])
    except CkptError:
        return []  # a checkpoint is gone or damaged: `verify` reports it
    return list(_parse_numstat(listing))


def _parse_numstat(listing: bytes) -> Iterator[ChangedFile]:
    for line in listing.split(b"\0")[:-1]:
        added, removed, path = line.split(b"\t", 2)
        counts = [None if count == b"-" else int(count) for count in (added, removed)]
        yield ChangedFile(path.decode("utf-8", "replace"), counts[0], counts[1])
