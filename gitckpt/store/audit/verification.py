"""`git ckpt verify`: every checkpoint derived anew from objects alone, and all that is derived compared with that.

docs/verify.md says what each code means.
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
    """What was found.

    Attributes:
        checked: how many things of each kind were looked at.
        findings: what is not as it should be, and what was not and has been mended.
        refused: what git refused when it was to be mended, a sentence each.
    """

    checked: Mapping[str, int]
    findings: Sequence[Finding]
    refused: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong any more."""
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
    """Looks at everything that gitckpt keeps in a repository. Safe beside others that write.

    Args:
        store: of the repository. Links that it has put off and not yet written count as missing.
        repair: whether to mend what is derived: refs that keep something alive, run heads, links, the index, leases of no run.
            A checkpoint whose document a fetch has replaced gets its own one back, where that is still there; no other is ever
            changed, none is deleted, and no worktree; git forgets one whose directory and checkpoint are gone, where nothing is
            lost by that.
        contents: whether to read every object of the repository.
        only: ids of checkpoints and runs to look at, without the history before their commits.
        progress: told how many of how many objects were read.

    Raises:
        LockHeld: a lock file stayed in the way of mending; what was mended until then stays so.
        GitError: git cannot read the repository.
    """
    damaged = damage.all_unreadable(store.repository, progress) if contents else set()
    found = _settled(store, damaged, only)
    findings = {flaw.key: flaw.finding for flaw in found.flaws}
    tried: set[tuple[str, str, str]] = set()
    refused: Sequence[str] = ()
    replaced = [flaw for flaw in found.flaws if flaw.finding.code == "checkpoint-replaced"]
    replaced = [flaw for flaw in replaced if flaw.can_be_mended]
    if repair and replaced:  # first: a stranger's documents say nothing about what to mend
        refused = mend(store, replaced)
        tried |= {flaw.key for flaw in replaced}
        found = _settled(store, damaged, only)
        findings = {flaw.key: flaw.finding for flaw in (*replaced, *found.flaws)}
    left = {flaw.key for flaw in found.flaws}
    mendable = [flaw for flaw in found.flaws if flaw.can_be_mended and flaw.key not in tried] if repair else []
    if mendable:
        refused = [*refused, *mend(store, mendable)]
        tried |= {flaw.key for flaw in mendable}
        damaged = damage.unreadable(store.repository, sorted(damaged))  # those of notes were written again
        found = _settled(store, damaged, only)
        left = {flaw.key for flaw in found.flaws}
        findings |= {flaw.key: flaw.finding for flaw in found.flaws if flaw.key not in findings}
    report = [replace(finding, repaired=key not in left) for key, finding in findings.items() if key in left or key in tried]
    return Report(found.checked, report, refused)


def _settled(store: Checkpoints, damaged: Collection[str], only: Collection[str] | None) -> _Look:
    """Looks again while others write, and keeps what is found each time: a record in progress is no flaw."""
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
    """Return the places of valid checkpoints that are named, or whose run is."""
    runs = found.runs()
    named = {at for name in only if (at := found.table.find(name)) is not None and found.table.valid[at]}
    return named.union(*(runs[name] for name in only if name in runs))


def _about(flaws: Sequence[Flaw], names: Collection[str]) -> list[Flaw]:
    """Return the flaws that speak of one of some checkpoints, runs or commits."""
    return [flaw for flaw in flaws if any(name in flaw.finding.object or name in flaw.finding.sentence for name in names)]


def mend(store: Checkpoints, flaws: Sequence[Flaw]) -> list[str]:
    """Mends what can be mended. What somebody else changed meanwhile is left as they made it.

    Args:
        flaws: what was found.

    Returns:
        What git refused, a sentence each.

    Raises:
        LockHeld: a lock file stayed in the way; what was mended until then stays so.
    """
    refused: list[str] = []
    with layout.turn(store.repository) as alone:
        keeps_more = False
        left = [flaw for flaw in flaws if flaw.updates and (alone or not flaw.is_leftover)]
        for _ in range(2):  # what is left over goes last, and may stand in the way of a ref that is needed
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
    """Has git forget a worktree whose directory is gone, if still nothing is lost by it; returns what it refused, one sentence."""
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
        for oid in damage.unreadable(store.repository, made):  # or one that is the same as before would stay as it is
            damage.move_aside(store.repository, oid)

    notes.write(store.repository, store.objects, store.refs, store.clock(), links=by_commit, gone=gone, prepared=make_room)


def _discard_index(store: Checkpoints) -> None:
    """Deletes the derived index; the next question makes it anew."""
    store.index.close()
    path = os.path.join(store.repository.private_dir, index.FILE)
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
