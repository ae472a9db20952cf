"""Notes that list checkpoints of other commits, or leave some out: what git carries over when commits are rewritten.

Of all other notes the index tells whose lines they have. Which trees hold only such is kept beside it, by their oids, so that only what has
changed since is looked at: of a million notes that is a second instead of half a minute.
"""

from __future__ import annotations

from itertools import islice

from gitckpt.git.notes import Notes
from gitckpt.model import ids
from gitckpt.model.format import note
from gitckpt.store.records.index import Index
from gitckpt.store.records.removal.known import Known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PORTION = 50_000
"""So many notes are looked at together."""


class Carried:
    """The notes that are not plain, read once, when they are needed.

    Args:
        notes: reads them, and is for whoever changes them as well.
        index: knows which checkpoints are linked to a commit.
    """

    def __init__(self, notes: Notes, index: Index) -> None:
        self.notes = notes
        self._index = index
        self._found: dict[str, list[str]] | None = None

    def __call__(self) -> dict[str, list[str]]:
        """Returns the lines of each, by commit."""
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> dict[str, list[str]]:
        self._index.refresh()
        known, removals = Known(self._index).plain()
        trees: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        odd: set[str] = set()
        notes = self.notes.beyond(known, trees)
        while some := list(islice(notes, _PORTION)):
            for commit, lines in self._not_plain(some):
                odd.update(above(commit))
                if lines is not None:
                    found[commit] = lines
        Known(self._index).keep_plain({path: tree for path, tree in trees.items() if path not in odd}, removals)
        return found

    def _not_plain(self, notes: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str] | None]]:
        """Yields those of some notes, each by its commit and blob, with their lines; None for one that cannot be read."""
        own: dict[str, list[str]] = {commit: [] for commit, _ in notes}
        for commit, name, phase, timestamp in self._index.linked(list(own)):
            own[commit].append(note.link_line(name, phase, timestamp))
        likely = self.notes.blobs(own.values())
        left = [(commit, blob) for (commit, blob), expected in zip(notes, likely, strict=True) if blob != expected]
        for (commit, _), lines in zip(left, self.notes.texts([blob for _, blob in left]), strict=True):
            if lines is None or not _is_plain(lines, own[commit]):
                yield commit, lines


def above(commit: str) -> Iterator[str]:
    """Yields the digits that lead to the trees in which the note of a commit may be."""
    return (commit[:digits] for digits in range(0, len(commit), 2))


def _is_plain(lines: Sequence[str], own: Sequence[str]) -> bool:
    """Tells whether a note lists no other checkpoints than those of its commit, and leaves none out."""
    named = {note.link_id(line) for line in own}
    listed = (note.link_id(line) for line in lines)
    return all(name in named for name in listed if ids.is_id(name)) and not note.is_crowded(lines)
