"""Notes that list checkpoints of other commits, or leave some out: what git carries over when commits are rewritten.

Of all other notes the index tells whose lines they have, and so which oid a tree of some of them has: one that is as expected is not
even read. Which trees hold only such notes is kept beside the index, by their oids, so that only what has changed since is looked at: of
a million notes that is a second instead of seven.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter

from gitckpt.git.notes.editor import Notes
from gitckpt.model import ids
from gitckpt.model.format import note
from gitckpt.store.records.index import Index
from gitckpt.store.records.removal.known import Known
from gitckpt.store.records.rows import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PORTION = 50_000
"""So many notes are looked at together."""

_FLAT, _TREES = 512, 100
"""Trees that are likely to hold so many notes, and no trees, are made anew to compare them, so many together."""


class Carried:
    """The notes that are not plain, read when they are needed, and once more only where they have changed since.

    Args:
        notes: reads them, and is for whoever changes them as well.
        index: knows which checkpoints are linked to a commit.
    """

    def __init__(self, notes: Notes, index: Index) -> None:
        self.notes = notes
        self._index = index
        self._found: dict[str, list[str]] = {}
        self._tip: str | None = None

    def __call__(self) -> dict[str, list[str]]:
        """Returns the lines of each, by commit."""
        tip = self.notes.tip()
        if tip != self._tip:  # git may have carried a note over since
            self._found = self._look()
            self._tip = tip
        return self._found

    def _look(self) -> dict[str, list[str]]:
        self._index.refresh()
        known, removals = Known(self._index).plain()
        trees: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        odd: set[str] = set()
        notes = self.notes.beyond(lambda some: self._unlike([one for one in some if known.get(one[0]) != one[1]], trees), trees)
        while some := list(islice(notes, _PORTION)):
            for commit, lines in self._not_plain(some):
                odd.update(above(commit))
                if lines is not None:
                    found[commit] = lines
        Known(self._index).keep_plain({path: tree for path, tree in trees.items() if path not in odd}, removals)
        return found

    def _unlike(self, trees: Sequence[tuple[str, str]], alike: dict[str, str]) -> list[tuple[str, str]]:
        """Returns those of some trees of notes, all as deep, that are not what the index would make of them.

        Args:
            trees: each by the digits that lead to it, and its oid.
            alike: is given the others.
        """
        count, _ = self._index.aside(tables.mark, (0, 0))
        if not trees or count >> 4 * len(trees[0][0]) > _FLAT:
            return list(trees)
        for at in range(0, len(trees), _TREES):
            some = trees[at : at + _TREES]
            notes = self._below([path for path, _ in some])
            alike.update((path, oid) for path, oid in some if self.notes.tree(path, notes[path]) == oid)
        return [(path, oid) for path, oid in trees if alike.get(path) != oid]

    def _below(self, paths: Sequence[str]) -> dict[str, list[tuple[str, list[str]]]]:
        """Returns, by the digits that lead to some trees, the commits there and the lines that the index has for their notes."""
        found: dict[str, list[tuple[str, list[str]]]] = {path: [] for path in paths}
        digits = len(paths[0])
        for commit, links in groupby(self._index.linked_below(paths), itemgetter(0)):
            found[commit[:digits]].append((commit, [note.link_line(*link) for _, *link in links]))
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
