"""Verify data derived from checkpoints: notes on commits, and the listing index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter

from gitckpt.git.notes import Notes
from gitckpt.model import ids, note
from gitckpt.model.errors import Finding
from gitckpt.store import notes
from gitckpt.store.audit.inventory import REPAIR, Evidence, Flaw, Link
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import entry, index, ref_names

# Only the index counts changed paths.
_FIELDS = attrgetter(*(name for name in entry.FIELDS if name != "changed"))


def links(store: Checkpoints, evidence: Evidence) -> tuple[list[Flaw], int]:
    """Return the flaws of the notes, and the number of links.

    A checkpoint is linked if any note lists it (git copies notes of rewritten commits), if its link
    is pending, or if the note of its commit is full.
    """
    pending, removed = notes.pending(store.repository)  # first: they may be written meanwhile
    # A kill leaves pending lines of checkpoints that were never finished.
    pending_ids = {note.link_id(line) for lines in pending.values() for line in lines}
    pending_ids &= evidence.rows.keys()
    stray: list[tuple[str, Flaw]] = []
    full: set[str] = set()
    count = 0
    for commit, lines in Notes(store.repository, store.objects, ref_names.NOTES).read_all():
        if lines and note.is_full(lines):
            full.add(commit)
        for line in lines or ():
            id_ = note.link_id(line)
            if id_ in removed and id_ not in evidence.rows:
                continue  # the next write removes it
            count += ids.is_id(id_)
            stray += ((commit, flaw) for flaw in _line_flaws(evidence, commit, line))
    stray.sort(key=lambda pair: pair[0])
    flaws = [flaw for _, flaw in stray]
    for row in evidence.rows.values():
        commit = row.entry.git_sha
        if not commit or row.id in evidence.listed:
            continue
        if row.id in pending_ids or commit in full:
            count += 1
        elif evidence.is_sound(ref_names.KEEP, commit):
            sentence = f"the note of its commit {commit} does not list it"
            link = Link(commit, None, _link_line(row.entry))
            flaws.append(Flaw(Finding("note-missing", row.ref, sentence, REPAIR), link=link))
    return flaws, count


def _line_flaws(evidence: Evidence, commit: str, line: str) -> Iterator[Flaw]:
    """Yield the flaws of one line of a note; lines by users are left alone."""
    id_, new, sentence = note.link_id(line), None, None
    row = evidence.rows.get(id_)
    if row is not None:
        evidence.listed.add(id_)
        new = _link_line(row.entry)
        if line != new:
            sentence = f"the note of {commit} describes {id_} differently than its document"
    else:
        evidence.strays.add(id_)
        if ids.is_id(id_) and id_ not in evidence.unjudged:
            sentence = f"the note of {commit} lists {id_}, which does not exist"
    if sentence is not None:
        finding = Finding("note-stray", ref_names.NOTES, sentence, REPAIR)
        yield Flaw(finding, link=Link(commit, line, new))


def _link_line(info: entry.CheckpointInfo) -> str:
    return note.link_line(info.id, info.label, info.timestamp)


def listing(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    listed = {info.id: _FIELDS(info) for info in store.index.select()}
    valid = {id_: _FIELDS(row.entry) for id_, row in evidence.rows.items()}
    # The index has the header of documents whose state is unreadable.
    names = (listed.keys() | valid.keys()) - evidence.unjudged.keys()
    differing = sorted(id_ for id_ in names if listed.get(id_) != valid.get(id_))
    if not differing:
        return []
    others = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    path = os.path.join(store.repository.private_dir, index.FILE)
    sentence = f"does not list {differing[0]}{others} as their documents say"
    return [Flaw(Finding("index-stale", path, sentence, REPAIR), in_index=True)]
