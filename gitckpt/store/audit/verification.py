"""Check refs, notes, index and worktrees against the documents: `git ckpt verify`.

docs/verify.md explains the code of each finding.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter

from gitckpt.git import graph
from gitckpt.git.notes import Notes
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.git.worktree import administration
from gitckpt.model import ids, note
from gitckpt.model.errors import Finding, WorktreeError
from gitckpt.model.values import dataclass, replace
from gitckpt.store import notes
from gitckpt.store.audit import inventory, objects, runs, worktrees
from gitckpt.store.audit.inventory import REPAIR, Evidence, Flaw, Link
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import commit_refs, entry, index, ref_names
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Item

_INSPECTIONS = 3  # at most, while other processes change refs

# Documents do not contain the number of changed paths.
_FIELDS = attrgetter(*(name for name in entry.FIELDS if name != "changed"))


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` checked, found and repaired."""

    checked: Mapping[str, int]  # number of checked refs, runs, worktrees etc. by name
    findings: Sequence[Finding]  # including repaired ones
    refused: Sequence[str] = ()  # a sentence for each repair that git refused

    @property
    def is_clean(self) -> bool:
        return all(finding.repaired for finding in self.findings)


def verify(
    store: Checkpoints,
    *,
    repair: bool = False,
    contents: bool = False,
    only: Collection[str] | None = None,
    progress: graph.Counted | None = None,
) -> Report:
    """Check all that gitckpt stores in a repository; arguments as of `Store.verify`.

    Other processes may write meanwhile. A repair drops a worktree only if no work is lost.
    """
    damaged = graph.find_all_unreadable(store.repository, progress) if contents else set()
    checked, flaws = _inspect_settled(store, damaged, only)
    findings = {flaw.key: flaw.finding for flaw in flaws}
    tried, refused = set[tuple[str, str, str]](), list[str]()
    # Replaced checkpoints first: foreign documents must not guide repairs.
    for is_last in (False, True) if repair else ():
        due = [flaw for flaw in flaws if flaw.can_be_repaired and flaw.key not in tried]
        due = [flaw for flaw in due if is_last or flaw.finding.code == "checkpoint-replaced"]
        if not due:
            continue
        refused += mend(store, due)
        tried |= {flaw.key for flaw in due}
        damaged = graph.find_unreadable(store.repository, sorted(damaged))  # notes are rewritten
        checked, flaws = _inspect_settled(store, damaged, only)
        if not is_last:  # report no flaws that the replaced documents caused
            findings = {flaw.key: flaw.finding for flaw in due}
        for flaw in flaws:
            findings.setdefault(flaw.key, flaw.finding)
    remaining = {flaw.key for flaw in flaws}
    reported = [
        replace(finding, repaired=key not in remaining)
        for key, finding in findings.items()
        if key in remaining or key in tried
    ]
    return Report(checked, reported, refused)


def _inspect_settled(
    store: Checkpoints, damaged: Collection[str], only: Collection[str] | None
) -> tuple[dict[str, int], list[Flaw]]:
    """Inspect until no process writes meanwhile; keep flaws that persist."""
    digest, checked, flaws = _inspect(store, damaged, only)
    for _ in range(_INSPECTIONS - 1):
        if not flaws or inventory.list_refs(store.repository)[0] == digest:
            break
        keys = {flaw.key for flaw in flaws}
        digest, checked, flaws = _inspect(store, damaged, only)
        flaws = [flaw for flaw in flaws if flaw.key in keys]
    return checked, flaws


def _inspect(
    store: Checkpoints, damaged: Collection[str], only: Collection[str] | None
) -> tuple[bytes, dict[str, int], list[Flaw]]:
    empty = graph.find_empty_files(store.repository)
    evidence = inventory.gather(store)
    in_links, link_count = audit_links(store, evidence)
    in_worktrees, worktree_count = worktrees.audit(store, evidence)
    checked_ids = None
    if only is not None:
        of_runs = {row.id for name in only for row in evidence.runs.get(name, ())}
        checked_ids = evidence.rows.keys() & set(only) | of_runs
    flaws = [
        *evidence.flaws,
        *objects.audit_refs(store.repository, evidence),
        *objects.audit_objects(store, evidence, empty, damaged, checked_ids),
        *objects.audit_snapshots(store, evidence),
        *runs.audit_runs(store, evidence),
        *in_links,
        *audit_index(store, evidence),
        *runs.audit_leases(store, evidence),
        *runs.audit_keys(store, evidence),
        *in_worktrees,
    ]
    checked = {
        "checkpoints": len(evidence.oids),
        "refs": len(evidence.oids) + len(evidence.refs),
        "runs": len(evidence.all_runs()),
        "links": link_count,
        "leases": len(evidence.below(ref_names.LEASES)),
        "worktrees": worktree_count,
    }
    if only is not None and checked_ids is not None:
        names = {*only, *(evidence.rows[id_].entry.git_sha for id_ in checked_ids)} - {""}
        flaws = [flaw for flaw in flaws if any(name in "\0".join(flaw.key) for name in names)]
        checked = dict.fromkeys(checked, 0) | {"checkpoints": len(checked_ids)}
    return evidence.digest, checked, flaws


def mend(store: Checkpoints, flaws: Sequence[Flaw]) -> list[str]:
    """Repair flaws, except those whose refs have moved; return a message per failure."""
    refused: list[str] = []
    with ref_names.write_lock(store.repository) as is_alone:
        is_kept = False
        remaining = [flaw for flaw in flaws if flaw.updates and (is_alone or not flaw.is_leftover)]
        # Twice: a leftover ref, deleted late, can block a needed ref with a longer name.
        for _ in range(2):
            due, remaining, refused = remaining, [], []
            for flaw in due:
                try:
                    store.refs.update(flaw.updates)
                except RefMoved:
                    continue
                except GitError as error:
                    remaining.append(flaw)
                    refused.append(f"{flaw.finding.object}: {error.message}")
                else:
                    is_kept |= any(update.ref.startswith(ref_names.KEEP) for update in flaw.updates)
        if is_kept:
            with contextlib.suppress(RefMoved, LockHeld):
                commit_refs.settle(store.repository, store.refs.update, store.index.commits)
        _write_links(store, [flaw.link for flaw in flaws if flaw.link is not None])
    for flaw in flaws:
        if flaw.scaffold:
            ownership.discard(store.repository, flaw.scaffold)
        if flaw.worktree:
            (git_dir, path), commits = flaw.worktree, store.index.commits() or ()
            if worktrees.can_forget(store.repository, git_dir, path, commits):
                try:
                    administration.forget(store.repository, git_dir)
                except WorktreeError as error:
                    refused.append(f"{path}: {error.message}")
    if any(flaw.in_index for flaw in flaws):
        store.index.discard()
    return refused


def _write_links(store: Checkpoints, links: Sequence[Link]) -> None:
    if not links:
        return
    repository = store.repository
    by_commit: dict[str, list[str]] = defaultdict(list)
    removed_ids = set()
    for link in links:
        if link.new is not None:
            by_commit[link.commit].append(link.new)
        elif link.old is not None:
            removed_ids.add(note.link_id(link.old))

    def move_damaged_aside(items: Sequence[Item]) -> None:
        oids = [object_id(kind, data, repository.object_format) for kind, data in items]
        # git does not rewrite an object whose file exists, even if the file is damaged.
        for oid in graph.find_unreadable(repository, oids):
            graph.move_aside(repository, oid)

    common = (repository, store.objects, store.refs, store.clock())
    notes.write(*common, links=by_commit, removed_ids=removed_ids, prepared=move_damaged_aside)


def audit_links(store: Checkpoints, evidence: Evidence) -> tuple[list[Flaw], int]:
    """Return the flaws of the notes, and the number of links.

    A checkpoint counts as linked if any note names it (git copies notes to rewritten commits), if
    its note line is queued, or if the note of its commit is full.
    """
    pending, removed = notes.pending(store.repository)  # before the notes: lines move there
    # After a kill, queued lines may name checkpoints that were never recorded.
    pending_ids = {note.link_id(line) for lines in pending.values() for line in lines}
    pending_ids &= evidence.rows.keys()
    flaws: list[Flaw] = []
    full: set[str] = set()
    count = 0
    for commit, lines in Notes(store.repository, store.objects, ref_names.NOTES).read_all():
        if lines and note.has_more(lines):
            full.add(commit)
        for line in lines or ():
            id_ = note.link_id(line)
            if id_ not in removed or id_ in evidence.rows:  # else the next write removes it
                count += ids.is_id(id_)
                flaws += _line_flaws(evidence, commit, line)
    flaws.sort(key=lambda flaw: flaw.link.commit if flaw.link is not None else "")
    for row in evidence.rows.values():
        commit = row.entry.git_sha
        if not commit or row.id in evidence.listed:
            continue
        if row.id in pending_ids or commit in full:
            count += 1
        elif evidence.is_sound(ref_names.KEEP, commit):
            sentence = f"the note of commit {commit} does not list this checkpoint"
            link = Link(commit, None, _link_line(row.entry))
            flaws.append(Flaw(Finding("note-missing", row.ref, sentence, REPAIR), link=link))
    return flaws, count


def _line_flaws(evidence: Evidence, commit: str, line: str) -> Iterator[Flaw]:
    """Yield the flaws of one line of a note, except lines that users wrote."""
    id_ = note.link_id(line)
    row = evidence.rows.get(id_)
    new = None if row is None else _link_line(row.entry)
    (evidence.strays if row is None else evidence.listed).add(id_)
    if row is not None and line != new:
        sentence = f"the note of {commit} and the document of {id_} differ"
    elif row is None and ids.is_id(id_) and id_ not in evidence.invalid:
        sentence = f"the note of {commit} lists {id_}, which does not exist"
    else:
        return
    finding = Finding("note-stray", ref_names.NOTES, sentence, REPAIR)
    yield Flaw(finding, link=Link(commit, line, new))


def _link_line(info: entry.CheckpointInfo) -> str:
    return note.format_link(info.id, info.label, info.timestamp)


def audit_index(store: Checkpoints, evidence: Evidence) -> Iterator[Flaw]:
    listed = {info.id: _FIELDS(info) for info in store.index.select()}
    valid = {id_: _FIELDS(row.entry) for id_, row in evidence.rows.items()}
    # The index may list a document that is invalid here: indexing does not read the state.
    names = (listed.keys() | valid.keys()) - evidence.invalid.keys()
    if differing := sorted(id_ for id_ in names if listed.get(id_) != valid.get(id_)):
        count = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        path = os.path.join(store.repository.private_dir, index.FILE)
        sentence = f"differs from the documents of {differing[0]}{count}"
        yield Flaw(Finding("index-stale", path, sentence, REPAIR), in_index=True)
