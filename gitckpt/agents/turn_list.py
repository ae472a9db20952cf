"""List the turns of agents' sessions, with what each of them changed."""

from __future__ import annotations

from collections.abc import Iterator

from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass
from gitckpt.store.records import turns
from gitckpt.store.records.turns import Turn
from gitckpt.store.store import Store, checkpoints_of_store


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a turn changed; the counts of lines are None for a binary file."""

    path: str
    added: int | None
    removed: int | None


def list_turns(store: Store, run: str | None = None, limit: int | None = None) -> list[Turn]:
    """List the turns of one session, or of all, newest first."""
    return turns.list_turns(checkpoints_of_store(store).index, run)[:limit]


def find_session(store: Store, text: str) -> str:
    """Return the run of a session by a unique part of its id, or the client's id.

    Raises NotFoundError or AmbiguousError.
    """
    return checkpoints_of_store(store).addresses.find_session(text)


def find_turn(store: Store, text: str) -> Turn | None:
    """Return the turn at an address SESSION:NUMBER; None if `text` is no such address.

    Raises NotFoundError or AmbiguousError if there is no such session or turn.
    """
    return checkpoints_of_store(store).addresses.find_turn(text)


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
