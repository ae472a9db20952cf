"""What becomes of the notes when checkpoints go: they name them no longer."""

from __future__ import annotations

from gitckpt.git.notes.editor import Notes
from gitckpt.git.refs import Update
from gitckpt.git.repository import Repository
from gitckpt.model.errors import CkptError
from gitckpt.model.format import note
from gitckpt.model.readers.fence import fenced
from gitckpt.store import links
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Entry, Query
from gitckpt.store.records.index import Index
from gitckpt.store.records.removal.carried import Carried
from gitckpt.store.records.removal.known import Known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gitckpt.git.objects.port import Objects

    Noted = Callable[[], Mapping[str, Sequence[str]]]
    _Found = tuple[str, set[str], set[str]]
    """The notes commit, the commits whose notes change, and those whose notes leave checkpoints out."""


class Withdrawal:
    """Takes some checkpoints out of the notes. What that makes of them is worked out once, when it is asked for.

    Args:
        notes: the notes that link commits to checkpoints.
        index: knows the commits of checkpoints.
        gone: the ids of those that go.
        instant: now, in microseconds since the epoch.
        noted: returns the lines of the notes that list checkpoints of other commits, where somebody has read them already.
        listed: each of the checkpoints by its id, where they have been listed already.
    """

    def __init__(
        self,
        repository: Repository,
        objects: Objects,
        notes: Notes,
        index: Index,
        *,
        gone: Collection[str],
        instant: int,
        noted: Noted | None = None,
        listed: Mapping[str, Entry] | None = None,
    ) -> None:
        self._repository = repository
        self._objects = objects
        self._notes = notes
        self._index = index
        self._gone = frozenset(gone)
        self._instant = instant
        self._noted = noted
        self._listed = listed
        self._found: _Found | None = None
        self._updates: list[Update] | None = None

    def look(self) -> None:
        """Finds the notes that change, once: which takes seconds where nobody has looked at all of them before."""
        if self._found is None:
            self._found = self._looked()

    def work_out(self) -> None:
        """Works out what becomes of the notes, and writes it, once."""
        if self._updates is None:
            self.look()
            self._updates = self._worked_out(self._found) if self._found is not None else []

    def apply(self, update: Callable[[Sequence[Update]], object], others: Sequence[Update] = ()) -> None:
        """Takes them out, unless that was done before.

        Args:
            update: applies updates in one transaction.
            others: what comes after it, in the same one.
        """
        self.work_out()
        updates = [*(self._updates or ()), *others]
        if updates:
            update(updates)
        self._updates = []

    def _looked(self) -> _Found | None:
        tip = self._notes.tip()
        if not tip or not self._gone:
            return None
        entries = Known(self._index).entries(Query(ids=list(self._gone))) if self._listed is None else self._listed.values()
        noted = self._read()
        crowded = {commit for commit, lines in noted.items() if note.is_crowded(lines)}
        own = {entry.git_sha for entry in entries if entry.git_sha}
        carried = {
            commit
            for commit, lines in noted.items()
            if any(note.link_id(line) in self._gone for line in lines) or (commit in crowded and {commit, *note.Note(lines).commits} & own)
        }
        return tip, own | carried, crowded

    def _worked_out(self, found: _Found) -> list[Update]:
        tip, commits, crowded = found

        def remaining(commit: str, lines: list[str]) -> list[str]:
            linked = self._linked(commit, lines) if commit in crowded else []
            return note.anew(commit, lines, linked) if linked else [line for line in lines if note.link_id(line) not in self._gone]

        new_tip, derived = self._notes.edited(tip, list(commits), remaining, self._instant)
        self._objects.write(derived)
        return [Update(layout.NOTES, new_tip, tip)] if new_tip != tip else []

    def _read(self) -> Mapping[str, Sequence[str]]:
        if self._noted is not None:
            return self._noted()
        try:
            return fenced(layout.CHECKPOINTS, Carried(self._notes, self._index))
        except CkptError:
            return self._notes.everything()

    def _linked(self, commit: str, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Returns the line and the commit of each checkpoint that a note stands for which does not name them all, less those that go.

        Those that wait are not among them: whoever writes them into the note counts them.
        """
        out = self._gone | {note.link_id(line) for line in links.waiting(self._repository).get(commit, ())}
        known = Known(self._index)
        listed = known.entries(Query(ids=[note.link_id(line) for line in note.Note(lines).links]))
        commits = {commit, *note.commits(lines, (entry.git_sha for entry in listed))}
        found = {entry.id: entry for entry in (*listed, *(entry for each in commits for entry in known.entries(Query(git_sha=each))))}
        return [(note.link_line(one.id, one.label, one.timestamp), one.git_sha) for one in found.values() if one.id not in out]
