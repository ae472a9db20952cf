"""Implement `git ckpt verify`: compare all derived data with the objects.

docs/verify.md explains each code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git import graph
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.git.worktree import administration
from gitckpt.model.errors import Finding, WorktreeError
from gitckpt.model.note import link_id
from gitckpt.model.values import dataclass, replace
from gitckpt.store import notes
from gitckpt.store.audit import derived, inventory, objects, runs, worktrees
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import commit_refs, ref_names
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Item

_INSPECTIONS = 3  # at most, while others write


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `verify`, with the number of things checked by kind.

    `findings` include the repaired ones; `refused` has a sentence for each repair git refused.
    """

    checked: Mapping[str, int]
    findings: Sequence[Finding]
    refused: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every finding was repaired."""
        return all(finding.repaired for finding in self.findings)


def verify(
    store: Checkpoints,
    *,
    repair: bool = False,
    contents: bool = False,
    only: Collection[str] | None = None,
    progress: graph.Counted | None = None,
) -> Report:
    """Check everything that gitckpt keeps in a repository, as `Store.verify`.

    It is safe beside writers. Of the repairs: a checkpoint that a fetch replaced gets its document
    back if that still exists; a worktree whose directory and checkpoint are gone is forgotten if
    nothing is lost.
    """
    damaged = graph.all_unreadable(store.repository, progress) if contents else set()
    checked, flaws = _inspect_settled(store, damaged, only)
    findings = {flaw.key: flaw.finding for flaw in flaws}
    tried, refused = set[tuple[str, str, str]](), list[str]()
    # Replaced checkpoints first: foreign documents must not guide repairs.
    for is_last in (False, True) if repair else ():
        due = [flaw for flaw in flaws if flaw.can_be_mended and flaw.key not in tried]
        if not is_last:
            due = [flaw for flaw in due if flaw.finding.code == "checkpoint-replaced"]
        if not due:
            continue
        refused += mend(store, due)
        tried |= {flaw.key for flaw in due}
        damaged = graph.unreadable(store.repository, sorted(damaged))  # notes are rewritten
        checked, flaws = _inspect_settled(store, damaged, only)
        if not is_last:  # what followed from the foreign documents is not reported
            findings = {flaw.key: flaw.finding for flaw in due}
        for flaw in flaws:
            findings.setdefault(flaw.key, flaw.finding)
    remaining = {flaw.key for flaw in flaws}
    reported = [(key, findings[key]) for key in findings if key in remaining or key in tried]
    report = [replace(finding, repaired=key not in remaining) for key, finding in reported]
    return Report(checked, report, refused)


def _inspect_settled(
    store: Checkpoints, damaged: Collection[str], only: Collection[str] | None
) -> tuple[dict[str, int], list[inventory.Flaw]]:
    """Inspect again while others write; keep the flaws found each time."""
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
) -> tuple[bytes, dict[str, int], list[inventory.Flaw]]:
    empty = graph.empty_files(store.repository)
    evidence = inventory.gather(store)
    in_links, links = derived.links(store, evidence)
    in_worktrees, worktree_count = worktrees.audit(store, evidence)
    checked_ids = None
    if only is not None:
        chains = [evidence.runs[name] for name in only if name in evidence.runs]
        rows = {row.id for chain in chains for row in chain}
        checked_ids = evidence.rows.keys() & set(only) | rows
    flaws = [
        *evidence.flaws,
        *objects.audit_refs(store.repository, evidence),
        *objects.audit_objects(store, evidence, empty, damaged, checked_ids),
        *objects.snapshots(store, evidence),
        *runs.audit_runs(store, evidence),
        *in_links,
        *derived.listing(store, evidence),
        *runs.audit_leases(store, evidence),
        *runs.audit_keys(store, evidence),
        *in_worktrees,
    ]
    checked = {
        "checkpoints": len(evidence.oids),
        "refs": len(evidence.oids) + len(evidence.refs),
        "runs": len(evidence.all_runs()),
        "links": links,
        "leases": len(evidence.below(ref_names.LEASES)),
        "worktrees": worktree_count,
    }
    if only is not None and checked_ids is not None:
        names = {*only, *(evidence.rows[id_].entry.git_sha for id_ in checked_ids)} - {""}
        flaws = [flaw for flaw in flaws if any(name in "\0".join(flaw.key) for name in names)]
        checked = dict.fromkeys(checked, 0) | {"checkpoints": len(checked_ids)}
    return evidence.digest, checked, flaws


def mend(store: Checkpoints, flaws: Sequence[inventory.Flaw]) -> list[str]:
    """Mend flaws unchanged since they were found; return a sentence per failure."""
    refused: list[str] = []
    with ref_names.turn(store.repository) as is_alone:
        is_kept = False
        remaining = [flaw for flaw in flaws if flaw.updates and (is_alone or not flaw.is_leftover)]
        # Twice: leftover refs, deleted last, can block a ref that is needed.
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
            if worktrees.can_be_forgotten(store.repository, git_dir, path, commits):
                try:
                    administration.forget(store.repository, git_dir)
                except WorktreeError as error:
                    refused.append(f"{path}: {error.message}")
    if any(flaw.in_index for flaw in flaws):
        store.index.discard()
    return refused


def _write_links(store: Checkpoints, links: Sequence[inventory.Link]) -> None:
    if not links:
        return
    repository = store.repository
    by_commit: dict[str, list[str]] = {}
    for link in links:
        if link.new is not None:
            by_commit.setdefault(link.commit, []).append(link.new)
    removed_ids = {link_id(link.old) for link in links if link.new is None and link.old is not None}

    def make_room(items: Sequence[Item]) -> None:
        oids = [object_id(kind, data, repository.object_format) for kind, data in items]
        # Git does not rewrite an object whose file exists, even if that is damaged.
        for oid in graph.unreadable(repository, oids):
            graph.move_aside(repository, oid)

    common = (repository, store.objects, store.refs, store.clock())
    notes.write(*common, links=by_commit, removed_ids=removed_ids, prepared=make_room)
