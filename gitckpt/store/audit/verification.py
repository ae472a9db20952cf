"""Implement `git ckpt verify`: compare all derived data with the objects.

docs/verify.md explains each code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git import damage
from gitckpt.git.damage import Counted
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.git.worktree import administration
from gitckpt.model.errors import Finding, WorktreeError
from gitckpt.model.note import link_id
from gitckpt.model.values import dataclass, replace
from gitckpt.store import notes
from gitckpt.store.audit import derived, inventory, objects, runs
from gitckpt.store.audit import worktrees as audit_worktrees
from gitckpt.store.audit.inventory import Flaw, Link
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import index, keep, layout
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Item

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `verify`.

    Attributes:
        checked: the number of things checked, by kind.
        findings: all flaws, including the repaired ones.
        refused: repairs that git refused, a sentence each.
    """

    checked: Mapping[str, int]
    findings: Sequence[Finding]
    refused: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every finding was repaired."""
        return all(finding.repaired for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Look:
    listing: bytes
    checked: Mapping[str, int]
    flaws: Sequence[Flaw]


def verify(
    store: Checkpoints,
    *,
    repair: bool = False,
    contents: bool = False,
    only: Collection[str] | None = None,
    progress: Counted | None = None,
) -> Report:
    """Check everything that gitckpt keeps in a repository; safe beside writers.

    Args:
        store: its pending links count as missing.
        repair: whether to mend derived data: keep refs, run heads, links, the index, and leases
            without a run. A checkpoint that a fetch replaced gets its original document back if
            that still exists; no other is changed, and none is deleted. Git forgets a worktree
            whose directory and checkpoint are gone if nothing is lost.
        contents: whether to read every object of the repository.
        only: ids of checkpoints and runs to check, without the history of their commits.
        progress: called with the number of objects read and their total.
    """
    damaged = damage.all_unreadable(store.repository, progress) if contents else set()
    look = _settled(store, damaged, only)
    findings = {flaw.key: flaw.finding for flaw in look.flaws}
    tried: set[tuple[str, str, str]] = set()
    refused: Sequence[str] = ()
    replaced = [flaw for flaw in look.flaws if flaw.finding.code == "checkpoint-replaced"]
    replaced = [flaw for flaw in replaced if flaw.can_be_mended]
    if repair and replaced:  # first: foreign documents must not guide repairs
        refused = mend(store, replaced)
        tried |= {flaw.key for flaw in replaced}
        look = _settled(store, damaged, only)
        findings = {flaw.key: flaw.finding for flaw in (*replaced, *look.flaws)}
    remaining = {flaw.key for flaw in look.flaws}
    mendable = [flaw for flaw in look.flaws if flaw.can_be_mended and flaw.key not in tried] if repair else []
    if mendable:
        refused = [*refused, *mend(store, mendable)]
        tried |= {flaw.key for flaw in mendable}
        damaged = damage.unreadable(store.repository, sorted(damaged))  # notes are rewritten
        look = _settled(store, damaged, only)
        remaining = {flaw.key for flaw in look.flaws}
        findings |= {flaw.key: flaw.finding for flaw in look.flaws if flaw.key not in findings}
    report = [replace(finding, repaired=key not in remaining) for key, finding in findings.items() if key in remaining or key in tried]
    return Report(look.checked, report, refused)


def _settled(store: Checkpoints, damaged: Collection[str], only: Collection[str] | None) -> _Look:
    """Look again while others write; keep the flaws found each time."""
    look = _look(store, damaged, only)
    for _ in range(_LOOKS - 1):
        if not look.flaws or inventory.list_refs(store.repository).digest == look.listing:
            break
        again = _look(store, damaged, only)
        lasting = {flaw.key for flaw in look.flaws}
        look = replace(again, flaws=[flaw for flaw in again.flaws if flaw.key in lasting])
    return look


def _look(store: Checkpoints, damaged: Collection[str], only: Collection[str] | None) -> _Look:
    empty = damage.empty_files(store.repository)
    found = inventory.gather(store)
    in_links, links = derived.links(store, found)
    in_worktrees, worktrees = audit_worktrees.audit(store, found)
    places = _places(found, only) if only is not None else None
    flaws = [
        *found.flaws,
        *objects.audit_refs(store.repository, found),
        *objects.audit_objects(store, found, empty, damaged, places),
        *objects.snapshots(store, found),
        *runs.audit_runs(store, found),
        *in_links,
        *derived.listing(store, found),
        *runs.audit_leases(store, found),
        *runs.audit_keys(store, found),
        *in_worktrees,
    ]
    if only is not None and places is not None:
        flaws = _about(flaws, {*only, *(found.table.commit(at) for at in places)} - {""})
    checked = {
        "checkpoints": len(found.table),
        "refs": len(found.table) + len(found.refs),
        "runs": len(found.all_runs()),
        "links": links,
        "leases": len(found.below(layout.LEASES)),
        "worktrees": worktrees,
    }
    if places is not None:
        checked = dict.fromkeys(checked, 0) | {"checkpoints": len(places)}
    return _Look(found.listing, checked, flaws)


def _places(found: inventory.Evidence, only: Collection[str]) -> set[int]:
    runs = found.runs()
    named = {at for name in only if (at := found.table.find(name)) is not None and found.table.valid[at]}
    return named.union(*(runs[name] for name in only if name in runs))


def _about(flaws: Sequence[Flaw], names: Collection[str]) -> list[Flaw]:
    return [flaw for flaw in flaws if any(name in flaw.finding.object or name in flaw.finding.sentence for name in names)]


def mend(store: Checkpoints, flaws: Sequence[Flaw]) -> list[str]:
    """Mend flaws unchanged since they were found; return a sentence per failure."""
    refused: list[str] = []
    with layout.turn(store.repository) as alone:
        keeps_more = False
        left = [flaw for flaw in flaws if flaw.updates and (alone or not flaw.is_leftover)]
        # Twice: leftover refs, deleted last, can block a ref that is needed.
        for _ in range(2):
            due, left, refused = left, [], []
            for flaw in due:
                try:
                    store.refs.update(flaw.updates)
                except RefMoved:
                    continue
                except GitError as error:
                    left.append(flaw)
                    refused.append(f"{flaw.finding.object}: {error.message}")
                else:
                    keeps_more |= any(update.ref.startswith(layout.KEEP) for update in flaw.updates)
        if keeps_more:
            with contextlib.suppress(RefMoved, LockHeld):
                keep.settle(store.repository, store.refs.update, store.index.commits)
        links = [flaw.link for flaw in flaws if flaw.link is not None]
        if links:
            _write_links(store, links)
    for flaw in flaws:
        if flaw.scaffold:
            ownership.discard(store.repository, flaw.scaffold)
        if flaw.worktree:
            refused += _forget(store, *flaw.worktree)
    if any(flaw.in_index for flaw in flaws):
        _discard_index(store)
    return refused


def _forget(store: Checkpoints, git_dir: str, path: str) -> list[str]:
    if not audit_worktrees.can_be_forgotten(store.repository, git_dir, path, store.index.commits() or ()):
        return []
    try:
        administration.forget(store.repository, git_dir)
    except WorktreeError as error:
        return [f"{path}: {error.message}"]
    return []


def _write_links(store: Checkpoints, links: Sequence[Link]) -> None:
    by_commit: dict[str, list[str]] = {}
    for link in links:
        if link.new is not None:
            by_commit.setdefault(link.commit, []).append(link.new)
    gone = {link_id(link.old) for link in links if link.new is None and link.old is not None}

    def make_room(items: Sequence[Item]) -> None:
        made = [object_id(kind, data, store.repository.object_format) for kind, data in items]
        # Git does not rewrite an object whose file exists, even if that is damaged.
        for oid in damage.unreadable(store.repository, made):
            damage.move_aside(store.repository, oid)

    notes.write(store.repository, store.objects, store.refs, store.clock(), links=by_commit, gone=gone, prepared=make_room)


def _discard_index(store: Checkpoints) -> None:
    store.index.close()
    path = os.path.join(store.repository.private_dir, index.FILE)
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
