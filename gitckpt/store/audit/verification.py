"""Check refs, notes, index and worktrees against the documents: `git ckpt verify`."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter

from gitckpt.git import graph
from gitckpt.git.notes import GitNotes
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.git.worktree import administration
from gitckpt.model import ids, note
from gitckpt.model.errors import Finding, WorktreeError
from gitckpt.model.values import dataclass, replace
from gitckpt.store import notes
from gitckpt.store.audit import inventory, objects, runs, worktrees
from gitckpt.store.audit.inventory import REPAIR, AuditData, Flaw, NoteLineChange
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import commit_refs, entry, index, ref_names
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Counted
    from gitckpt.git.objects.writer import Item

_INSPECTIONS = 3  # at most, while other processes change refs

# Documents do not contain the number of changed paths.
_FIELDS = attrgetter(*(name for name in entry.FIELDS if name != "changed"))


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `git ckpt verify`: what was checked, found and repaired."""

    checked: Mapping[str, int]  # number of checked refs, runs, worktrees etc. by name
    findings: Sequence[Finding]  # including repaired ones
    refused: Sequence[str] = ()  # a sentence for each repair that git refused

    @property
    def is_clean(self) -> bool:
        return all(finding.repaired for finding in self.findings)


def verify_repository(
    store: Checkpoints,
    *,
    repair: bool = False,
    contents: bool = False,
    only: Collection[str] | None = None,
    progress: Counted | None = None,
) -> Report:
    """Check all that gitckpt stores in a repository; see `Store.verify` for arguments."""
    bad_oids = graph.find_all_unreadable(store.repository, progress) if contents else set()
    checked_counts, flaws = _inspect_until_refs_settle(store, bad_oids, only)
    findings = {flaw.key: flaw.finding for flaw in flaws}
    tried_keys, failures = set[tuple[str, str, str]](), list[str]()
    # Replaced checkpoints first: foreign documents must not guide repairs.
    for is_last in (False, True) if repair else ():
        due = [flaw for flaw in flaws if flaw.can_be_repaired and flaw.key not in tried_keys]
        due = [flaw for flaw in due if is_last or flaw.finding.code == "checkpoint-replaced"]
        if not due:
            continue
        failures += repair_flaws(store, due)
        tried_keys |= {flaw.key for flaw in due}
        bad_oids = graph.find_unreadable(store.repository, sorted(bad_oids))  # notes are rewritten
        checked_counts, flaws = _inspect_until_refs_settle(store, bad_oids, only)
        if not is_last:  # report no flaws that the replaced documents caused
            findings = {flaw.key: flaw.finding for flaw in due}
        for flaw in flaws:
            findings.setdefault(flaw.key, flaw.finding)
    remaining_keys = {flaw.key for flaw in flaws}
    reported_findings = [
        replace(finding, repaired=key not in remaining_keys)
        for key, finding in findings.items()
        if key in remaining_keys or key in tried_keys
    ]
    return Report(checked_counts, reported_findings, failures)


def _inspect_until_refs_settle(
    store: Checkpoints, damaged: Collection[str], only: Collection[str] | None
) -> tuple[dict[str, int], list[Flaw]]:
    ref_hash, checked_counts, flaws = _inspect_repository(store, damaged, only)
    for _ in range(_INSPECTIONS - 1):
        if not flaws or inventory.list_gitckpt_refs(store.repository)[0] == ref_hash:
            break
        earlier_keys = {flaw.key for flaw in flaws}
        ref_hash, checked_counts, flaws = _inspect_repository(store, damaged, only)
        flaws = [flaw for flaw in flaws if flaw.key in earlier_keys]
    return checked_counts, flaws


def _inspect_repository(
    store: Checkpoints, damaged: Collection[str], only: Collection[str] | None
) -> tuple[bytes, dict[str, int], list[Flaw]]:
    empty_files = graph.find_empty_loose_objects(store.repository)
    evidence = inventory.gather_evidence(store)
    link_flaws, link_count = audit_links(store, evidence)
    worktree_flaws, worktree_count = worktrees.audit_worktrees(store, evidence)
    ids_to_check = None
    if only is not None:
        ids_of_runs = {row.id for name in only for row in evidence.runs.get(name, ())}
        ids_to_check = evidence.rows.keys() & set(only) | ids_of_runs
    flaws = [
        *evidence.flaws,
        *objects.audit_refs(store.repository, evidence),
        *objects.audit_labels(store, evidence),
        *objects.audit_objects(store, evidence, empty_files, damaged, ids_to_check),
        *objects.audit_snapshots(store, evidence),
        *runs.audit_runs(store, evidence),
        *link_flaws,
        *audit_index(store, evidence),
        *runs.audit_leases(store, evidence),
        *runs.audit_keys(store, evidence),
        *worktree_flaws,
    ]
    checked_counts = {
        "checkpoints": len(evidence.oids),
        "refs": len(evidence.oids) + len(evidence.refs),
        "runs": len(evidence.list_all_runs()),
        "links": link_count,
        "leases": len(evidence.list_refs_below(ref_names.LEASES)),
        "worktrees": worktree_count,
    }
    if only is not None and ids_to_check is not None:
        relevant = {*only, *(evidence.rows[id_].entry.git_sha for id_ in ids_to_check)} - {""}
        flaws = [flaw for flaw in flaws if any(name in "\0".join(flaw.key) for name in relevant)]
        checked_counts = dict.fromkeys(checked_counts, 0) | {"checkpoints": len(ids_to_check)}
    return evidence.digest, checked_counts, flaws


def repair_flaws(store: Checkpoints, flaws: Sequence[Flaw]) -> list[str]:
    failures: list[str] = []
    with ref_names.write_lock(store.repository) as is_alone:
        is_kept = False
        waiting = [flaw for flaw in flaws if flaw.updates and (is_alone or not flaw.is_leftover)]
        # Twice: a leftover ref, deleted late, can block a needed ref with a longer name.
        for _ in range(2):
            due_flaws, waiting, failures = waiting, [], []
            for flaw in due_flaws:
                try:
                    store.refs.apply_updates(flaw.updates)
                except RefMoved:
                    continue
                except GitError as error:
                    waiting.append(flaw)
                    failures.append(f"{flaw.finding.object}: {error.message}")
                else:
                    is_kept |= any(update.ref.startswith(ref_names.KEEP) for update in flaw.updates)
        if is_kept:
            with contextlib.suppress(RefMoved, LockHeld):
                apply, list_commits = store.refs.apply_updates, store.index.list_commits
                commit_refs.update_keep_refs(store.repository, apply, list_commits)
        _write_links(store, [flaw.link for flaw in flaws if flaw.link is not None])
    for flaw in flaws:
        if flaw.scaffold:
            ownership.discard_abandoned_dir(store.repository, flaw.scaffold)
        if flaw.worktree:
            (git_dir, path), linked_commits = flaw.worktree, store.index.list_commits() or ()
            if worktrees.can_forget(store.repository, git_dir, path, linked_commits):
                try:
                    administration.remove_git_dir(store.repository, git_dir)
                except WorktreeError as error:
                    failures.append(f"{path}: {error.message}")
    if any(flaw.in_index for flaw in flaws):
        store.index.delete_cache()
    return failures


def _write_links(store: Checkpoints, links: Sequence[NoteLineChange]) -> None:
    if not links:
        return
    repository = store.repository
    by_commit: dict[str, list[str]] = defaultdict(list)
    removed_ids = set()
    for link in links:
        if link.new is not None:
            by_commit[link.commit].append(link.new)
        elif link.old is not None:
            removed_ids.add(note.leading_id(link.old))

    def move_damaged_objects_aside(items: Sequence[Item]) -> None:
        oids = [object_id(kind, data, repository.object_format) for kind, data in items]
        # git does not rewrite an object whose file exists, even if the file is damaged.
        for oid in graph.find_unreadable(repository, oids):
            graph.move_object_aside(repository, oid)

    arguments = (repository, store.objects, store.refs, store.clock())
    notes.write_link_notes(
        *arguments, links=by_commit, removed_ids=removed_ids, prepared=move_damaged_objects_aside
    )


def audit_links(store: Checkpoints, evidence: AuditData) -> tuple[list[Flaw], int]:
    """Return the flaws of the git notes, and the number of links to checkpoints.

    A checkpoint counts as linked if any note names it (git copies notes to rewritten commits), if
    its note line is queued, or if its commit's note has no room for it.
    """
    repository = store.repository
    queued_lines, removals = notes.list_pending_links(repository)  # first: lines move to the notes
    # After a kill, queued lines may name checkpoints that were never recorded.
    queued_ids = {note.leading_id(line) for lines in queued_lines.values() for line in lines}
    queued_ids &= evidence.rows.keys()
    flaws: list[Flaw] = []
    full_notes: set[str] = set()
    link_count = 0
    for commit, lines in GitNotes(repository, store.objects, ref_names.NOTES).read_all_notes():
        if lines and note.note_omits_older(lines):
            full_notes.add(commit)
        for line in lines or ():
            id_ = note.leading_id(line)
            if id_ not in removals or id_ in evidence.rows:  # else the next write removes it
                link_count += ids.is_checkpoint_id(id_)
                flaws += _audit_note_line(evidence, commit, line)
    flaws.sort(key=lambda flaw: flaw.link.commit if flaw.link is not None else "")
    for row in evidence.rows.values():
        commit = row.entry.git_sha
        if not commit or row.id in evidence.listed:
            continue
        if row.id in queued_ids or commit in full_notes:
            link_count += 1
        elif evidence.is_object_sound(ref_names.KEEP, commit):
            sentence = f"the note of commit {commit} does not list this checkpoint"
            link = NoteLineChange(commit, None, _make_note_line(row.entry))
            flaws.append(Flaw(Finding("note-missing", row.ref, sentence, REPAIR), link=link))
    return flaws, link_count


def _audit_note_line(evidence: AuditData, commit: str, line: str) -> Iterator[Flaw]:
    checkpoint_id = note.leading_id(line)
    row = evidence.rows.get(checkpoint_id)
    correct_line = None if row is None else _make_note_line(row.entry)
    (evidence.strays if row is None else evidence.listed).add(checkpoint_id)
    is_absent = row is None and checkpoint_id not in evidence.invalid
    if row is not None and line != correct_line:
        sentence = f"the note of {commit} and the document of {checkpoint_id} differ"
    elif is_absent and ids.is_checkpoint_id(checkpoint_id):
        sentence = f"the note of {commit} lists {checkpoint_id}, which does not exist"
    else:
        return
    finding = Finding("note-stray", ref_names.NOTES, sentence, REPAIR)
    yield Flaw(finding, link=NoteLineChange(commit, line, correct_line))


def _make_note_line(info: entry.CheckpointInfo) -> str:
    return note.format_note_line(info.id, info.label, info.timestamp)


def audit_index(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    indexed_fields = {info.id: _FIELDS(info) for info in store.index.select()}
    expected = {id_: _FIELDS(row.entry) for id_, row in evidence.rows.items()}
    # The index may list a document that is invalid here: indexing does not read the state.
    all_ids = (indexed_fields.keys() | expected.keys()) - evidence.invalid.keys()
    if wrong_ids := sorted(id_ for id_ in all_ids if indexed_fields.get(id_) != expected.get(id_)):
        others = f" and {len(wrong_ids) - 1} more" if len(wrong_ids) > 1 else ""
        path = os.path.join(store.repository.private_dir, index.FILE)
        sentence = f"differs from the documents of {wrong_ids[0]}{others}"
        yield Flaw(Finding("index-stale", path, sentence, REPAIR), in_index=True)
