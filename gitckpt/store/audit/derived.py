"""Verify data derived from checkpoints: notes on commits, and the listing index."""

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
    """Return the flaws of the notes, and the number of links.

    A checkpoint is linked if the note of any commit lists it (git copies notes of rewritten
    commits), if its link is pending, or if the note of its commit is full.
    """
    pending, removed = notes.pending(store.repository)  # first: they may be written meanwhile
    pending_ids = {note.link_id(line) for lines in pending.values() for line in lines}
    # A kill leaves pending lines of checkpoints that were never finished.
    pending_ids = {name for name in pending_ids if _valid(evidence, name) is not None}
    stray: list[tuple[str, Flaw]] = []
    full: set[str] = set()
    count = 0
    for commit, lines in Notes(store.repository, store.objects, layout.NOTES).each():
        if lines and note.is_full(lines):
            full.add(commit)
        for line in lines or ():
            if note.link_id(line) in removed and _valid(evidence, note.link_id(line)) is None:
                continue  # the next write removes it
            count += ids.is_id(note.link_id(line))
            stray += ((commit, flaw) for flaw in _line(evidence, commit, line))
    stray.sort(key=lambda found: found[0])
    unlisted = [record for at in evidence.places() if not evidence.listed[at] and (record := evidence.record(at)).git_sha]
    count += sum(record.id in pending_ids or record.git_sha in full for record in unlisted)
    missing = _missing(evidence, [record for record in unlisted if record.id not in pending_ids and record.git_sha not in full])
    return [*(flaw for _, flaw in stray), *missing], count


def _missing(evidence: Evidence, records: Iterable[SheetRow]) -> Iterator[Flaw]:
    for record in records:
        if evidence.kind(layout.KEEP, record.git_sha) == "commit":
            sentence = f"the note of its commit {record.git_sha} does not list it"
            new = note.link_line(record.id, record.phase, record.timestamp)
            yield mendable("note-missing", record.ref, sentence, link=Link(record.git_sha, None, new))


def _valid(evidence: Evidence, name: str) -> int | None:
    at = evidence.table.find(name)
    return at if at is not None and evidence.table.valid[at] else None


def _line(evidence: Evidence, commit: str, line: str) -> Iterator[Flaw]:
    """Yield the flaws of one line of a note; lines by users are left alone."""
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
    listed = {entry.id: entry for entry in store.index.select()}
    valid = {record.id: record.entry for record in map(evidence.record, evidence.places())}
    # The index has the header of documents whose state is unreadable.
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
    """Return whether an index entry equals its document."""
    return listed is not None and valid is not None and _FIELDS(listed) == _FIELDS(valid)
