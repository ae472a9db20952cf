"""Verifies what is derived from checkpoints: the notes that link commits to them, and the index of the listing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from gitckpt.git.notes import Notes
from gitckpt.model import ids
from gitckpt.model.format import note
from gitckpt.model.values import replace
from gitckpt.store.audit.inventory import Evidence
from gitckpt.store.audit.repairable import Flaw, Link, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.links import waiting as waiting_links
from gitckpt.store.records import index, layout


def links(store: Checkpoints, evidence: Evidence, driven: Collection[str]) -> tuple[list[Flaw], int]:
    """Returns what is wrong with the notes, and how many links there are.

    A checkpoint is linked where the note of any commit lists it: git carries the notes of rewritten commits over. It may wait for that, or
    be one of those that a note only counts.

    Args:
        store: of the repository.
        evidence: what there is.
        driven: runs that somebody drives, who may have put links off.
    """
    flaws: list[Flaw] = []
    links_waiting = waiting_links(store.repository)  # first: they may be written meanwhile
    waiting = {note.link_id(line) for lines in links_waiting.values() for line in lines}
    noted = Notes(store.repository, store.objects, layout.NOTES).everything()
    listed: set[str] = set()
    for commit in sorted(noted):
        for line in noted[commit]:
            name = note.link_id(line)
            listed.add(name)
            flaws += _line(evidence, commit, name, line)
    crowded = {commit for commit, lines in noted.items() if note.is_crowded(lines)}
    waiting &= evidence.records.keys()  # a kill leaves lines of checkpoints that were never finished
    for record in evidence.records.values():
        entry = record.entry
        if entry.git_sha in crowded or entry.id in waiting:
            continue
        if entry.id not in listed and entry.run not in driven and evidence.kinds.get(entry.git_sha) == "commit":
            sentence = f"the note of its commit {entry.git_sha} does not list it"
            new = note.link_line(entry.id, entry.phase, entry.timestamp)
            flaws.append(mendable("note-missing", record.ref, sentence, link=Link(entry.git_sha, None, new)))
    left_out = sum(note.Note(noted[commit]).left_out for commit in crowded)
    return flaws, sum(len(note.Note(lines).links) for lines in noted.values()) + left_out + len(waiting - listed)


def _line(evidence: Evidence, commit: str, name: str, line: str) -> Iterator[Flaw]:
    """Yields what is wrong with one line of a note. What people wrote there themselves is theirs."""
    if name in evidence.records:
        entry = evidence.records[name].entry
        new = note.link_line(entry.id, entry.phase, entry.timestamp)
        if line != new:
            sentence = f"the note of {commit} says something else of {name} than its document"
            yield mendable("note-stray", layout.NOTES, sentence, link=Link(commit, line, new))
    elif ids.is_id(name) and name not in evidence.unjudged:
        sentence = f"the note of {commit} lists {name}, which does not exist"
        yield mendable("note-stray", layout.NOTES, sentence, link=Link(commit, line, None))


def listing(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Returns whether the index lists something else than there is."""
    found = {entry.id: replace(entry, changed=None) for entry in store.list()}
    wanted = {record.entry.id: replace(record.entry, changed=None) for record in evidence.records.values()}
    # Of a document whose state cannot be read, the index knows the header.
    differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name) and name not in evidence.unjudged)
    if not differing:
        return []
    others = f" and {len(differing) - 1} others" if len(differing) > 2 else " and one other" if len(differing) == 2 else ""
    path = os.path.join(store.repository.private_dir, index.FILE)
    return [mendable("index-stale", path, f"does not list {differing[0]}{others} as their documents say", in_index=True)]
