"""Verifies what is derived from checkpoints: the notes that link commits to them, and the index of the listing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from operator import attrgetter

from gitckpt.git.notes import Notes
from gitckpt.model import ids, note
from gitckpt.store import notes
from gitckpt.store.audit.inventory import Evidence, Flaw, Link, SheetRow, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import entry, index, layout
from gitckpt.store.records.entry import Entry

_FIELDS = attrgetter(*(name for name in entry.FIELDS if name != "changed"))


def links(store: Checkpoints, evidence: Evidence) -> tuple[list[Flaw], int]:
    """Returns what is wrong with the notes, and how many links there are.

    A checkpoint is linked where the note of any commit lists it, as git carries the notes of rewritten commits over, where that waits, or
    where the note of its commit is full.

    Args:
        evidence: what there is.
    """
    lines_waiting, removed = notes.pending(store.repository)  # first: they may be written meanwhile
    waiting = {note.link_id(line) for lines in lines_waiting.values() for line in lines}
    waiting = {name for name in waiting if _valid(evidence, name) is not None}  # a kill leaves lines of those that were never finished
    stray: list[tuple[str, Flaw]] = []
    full: set[str] = set()
    count = 0
    for commit, lines in Notes(store.repository, store.objects, layout.NOTES).each():
        if lines and note.is_full(lines):
            full.add(commit)
        for line in lines or ():
            if note.link_id(line) in removed and _valid(evidence, note.link_id(line)) is None:
                continue  # the next write takes it out
            count += ids.is_id(note.link_id(line))
            stray += ((commit, flaw) for flaw in _line(evidence, commit, line))
    stray.sort(key=lambda found: found[0])
    unlisted = [record for at in evidence.places() if not evidence.listed[at] and (record := evidence.record(at)).git_sha]
    count += sum(record.id in waiting or record.git_sha in full for record in unlisted)
    missing = _missing(evidence, [record for record in unlisted if record.id not in waiting and record.git_sha not in full])
    return [*(flaw for _, flaw in stray), *missing], count


def _missing(evidence: Evidence, records: Iterable[SheetRow]) -> Iterator[Flaw]:
    """Yields a flaw for each of some checkpoints whose commit is kept."""
    for record in records:
        if evidence.kind(layout.KEEP, record.git_sha) == "commit":
            sentence = f"the note of its commit {record.git_sha} does not list it"
            new = note.link_line(record.id, record.phase, record.timestamp)
            yield mendable("note-missing", record.ref, sentence, link=Link(record.git_sha, None, new))


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
