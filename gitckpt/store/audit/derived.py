"""Verifies what is derived from checkpoints: the notes that link commits to them, and the index of the listing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from gitckpt.git.notes.editor import Notes
from gitckpt.model import ids
from gitckpt.model.format import note
from gitckpt.store.audit.inventory import Evidence, Flaw, Link, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.links import waiting as waiting_links
from gitckpt.store.records import entry, index, layout
from gitckpt.store.records.entry import Entry
from gitckpt.store.records.removal.carried import above

_FIELDS = attrgetter(*(name for name in entry.FIELDS if name != "changed"))


def links(store: Checkpoints, evidence: Evidence, driven: Collection[str], plain: dict[str, str]) -> tuple[list[Flaw], int]:
    """Returns what is wrong with the notes, and how many links there are.

    A checkpoint is linked where the note of any commit lists it: git carries the notes of rewritten commits over. It may wait for that, or
    be one of those that a note only counts.

    Args:
        evidence: what there is.
        driven: runs that somebody drives, who may have put links off.
        plain: is given the trees of notes that list no checkpoints of other commits, and leave none out, by the digits that lead to them.
    """
    links_waiting = waiting_links(store.repository)  # first: they may be written meanwhile
    waiting = {note.link_id(line) for lines in links_waiting.values() for line in lines}
    waiting = {name for name in waiting if _valid(evidence, name) is not None}  # a kill leaves lines of those that were never finished
    stray: list[tuple[str, Flaw]] = []
    crowded: set[str] = set()
    count = 0
    trees: dict[str, str] = {}
    odd: set[str] = set()
    for commit, lines in Notes(store.repository, store.objects, layout.NOTES).each(trees):
        if lines is None or not _is_plain(evidence, commit, lines):
            odd.update(above(commit))
        if lines is None:
            continue
        if note.is_crowded(lines):
            crowded.add(commit)
        said = note.Note(lines)
        count += len(said.links) + said.left_out
        for line in lines:
            stray += ((commit, flaw) for flaw in _line(evidence, commit, line))
    stray.sort(key=lambda found: found[0])
    missing = _missing(evidence, driven, crowded, waiting)
    plain.update((path, tree) for path, tree in trees.items() if path not in odd)
    waits = sum(not evidence.listed[at] for name in waiting if (at := evidence.table.find(name)) is not None)
    return [*(flaw for _, flaw in stray), *missing], count + waits


def _missing(evidence: Evidence, driven: Collection[str], crowded: Collection[str], waiting: Collection[str]) -> Iterator[Flaw]:
    """Yields the checkpoints that no note lists, of commits whose notes list all."""
    for at in evidence.places():
        if evidence.listed[at]:
            continue
        record = evidence.record(at)
        commit = record.git_sha
        if commit in crowded or record.id in waiting or record.run in driven:
            continue
        if commit and evidence.kind(layout.KEEP, commit) == "commit":
            sentence = f"the note of its commit {commit} does not list it"
            new = note.link_line(record.id, record.phase, record.timestamp)
            yield mendable("note-missing", record.ref, sentence, link=Link(commit, None, new))


def _is_plain(evidence: Evidence, commit: str, lines: Sequence[str]) -> bool:
    """Tells of a note what `Carried` looks for: whether it lists no checkpoints of other commits, and leaves none out."""
    listed = [evidence.table.find(name) for name in map(note.link_id, lines) if ids.is_id(name)]
    is_own = all(at is not None and evidence.table.valid[at] and evidence.table.commit(at) == commit for at in listed)
    return is_own and not note.is_crowded(lines)


def _valid(evidence: Evidence, name: str) -> int | None:
    """Returns where a valid checkpoint stands in the table."""
    at = evidence.table.find(name)
    return at if at is not None and evidence.table.valid[at] else None


def _line(evidence: Evidence, commit: str, line: str) -> Iterator[Flaw]:
    """Yields what is wrong with one line of a note, and notes whom it lists. What people wrote there themselves is theirs."""
    name = note.link_id(line)
    at = _valid(evidence, name)
    if at is None:
        evidence.strays.add(name)
        if ids.is_id(name) and name not in evidence.unjudged:
            sentence = f"the note of {commit} lists {name}, which does not exist"
            yield mendable("note-stray", layout.NOTES, sentence, link=Link(commit, line, None))
        return
    evidence.listed[at] = 1
    record = evidence.record(at)
    new = note.link_line(name, record.phase, record.timestamp)
    if line != new:
        sentence = f"the note of {commit} says something else of {name} than its document"
        yield mendable("note-stray", layout.NOTES, sentence, link=Link(commit, line, new))


def listing(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Returns whether the index lists something else than there is."""
    listed = {entry.id: entry for entry in store.index.select()}
    valid = {record.id: record.entry for record in map(evidence.record, evidence.places())}
    # Of a document whose state cannot be read, the index knows the header.
    differing = sorted(
        name
        for name in listed.keys() | valid.keys()
        if name not in evidence.unjudged and not _says_the_same(listed.get(name), valid.get(name))
    )
    if not differing:
        return []
    others = f" and {len(differing) - 1} others" if len(differing) > 2 else " and one other" if len(differing) == 2 else ""
    path = os.path.join(store.repository.private_dir, index.FILE)
    return [mendable("index-stale", path, f"does not list {differing[0]}{others} as their documents say", in_index=True)]


def _says_the_same(listed: Entry | None, valid: Entry | None) -> bool:
    """Tell whether a listing says what the document does; how many paths have changed is in no document."""
    return listed is not None and valid is not None and _FIELDS(listed) == _FIELDS(valid)
