"""Verifies that what checkpoints need is there: their commits with all history, their snapshots with all files.

And that these snapshots are such, and no more than anybody lists: those that were fetched may be anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gitckpt.git import damage
from gitckpt.git.contents import bounds
from gitckpt.git.contents.bounds import UnsoundSnapshot
from gitckpt.git.contents.tree_check import Census
from gitckpt.git.graph import connectivity, kinds, partial
from gitckpt.git.objects.encoding import DIRECTORY, MalformedTree, decode_tree
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import rewrites
from gitckpt.model import ids
from gitckpt.model.errors import CkptError
from gitckpt.model.format import budget
from gitckpt.model.names import shell_word
from gitckpt.model.values import dataclass
from gitckpt.store.audit.inventory import KINDS, Evidence
from gitckpt.store.audit.repairable import Flaw, lasting
from gitckpt.store.audit.table import SheetRow
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.snapshot import manifest

_ANEW = "git fetch --refetch --no-tags REMOTE"
"""A plain fetch says which commits are here, and the other side leaves out all that they lead to."""

_AGAIN = f"then write it again: git hash-object -w FILE; or fetch from a clone that has it: {_ANEW}"
_EMPTY = "the file of an object is empty, as a power cut leaves it: git takes {oid} to be there, and never writes it again"
_SPOILED = "its content is not what it was"

_PLAIN = frozenset((b"files", b"index", b"raw", b"run", b"auto-merge"))
"""Entries of a snapshot of which only trees are looked at."""


def audit(
    store: Checkpoints, evidence: Evidence, empty: Mapping[str, str], damaged: Collection[str], only: Collection[int] | None = None
) -> list[Flaw]:
    """Return the checkpoints that lack objects, and the objects that are damaged.

    Args:
        evidence: what there is.
        empty: paths of loose objects of length zero, by oid.
        damaged: other objects that cannot be read.
        only: places of the checkpoints to look at, without their history; None for all.
    """
    lost = {*damaged, *damage.unreadable(store.repository, sorted(empty))}
    roots = _Roots(evidence, only)
    lacking = connectivity.lacking(store.repository, store.objects, roots, lost, with_history=only is None)
    flaws = [lasting("objects-unreadable", layout.OWN[1], lacking.complaint, "see what is wrong: git fsck")] if lacking.complaint else []
    rewritten: Mapping[str, str] | None = None
    for at in evidence.places() if only is None else sorted(only):
        if not lacking.samples and None not in evidence.odd.values():
            break
        record = evidence.record(at)
        gone = _gone(record, evidence)
        oids = list(dict.fromkeys([*gone, *(oid for root in _roots(record, evidence) for oid in lacking.samples.get(root, ()))]))
        if not oids:
            continue
        commit = record.holds.get(layout.KEEP)
        if rewritten is None:
            rewritten = rewrites.filtered(store.repository)
        if commit in gone and commit in rewritten:
            flaws.append(_rewritten(record, commit))
        else:
            flaws.append(_incomplete(record, oids, lacks_commit=commit in gone))
    flaws += [
        lasting("object-empty", path, _EMPTY.format(oid=oid), f"remove it: rm -f {shell_word(path)}; {_AGAIN} {oid}")
        for oid, path in sorted(empty.items())
    ]
    flaws += [lasting("object-damaged", oid, _SPOILED, f"move its file away; {_AGAIN} {oid}") for oid in sorted(lost - empty.keys())]
    return flaws


def _gone(record: SheetRow, evidence: Evidence) -> list[str]:
    """Returns what a checkpoint names that is missing, where that is no flaw of a ref."""
    return [
        oid
        for space, oid in record.holds.items()
        if evidence.kind(space, oid) is None and (space == layout.KEEP or evidence.refs.get(space + record.id) == oid)
    ]


def _roots(record: SheetRow, evidence: Evidence) -> list[str]:
    return [oid for space, oid in record.holds.items() if evidence.kind(space, oid) == KINDS[space]]


@dataclass(frozen=True, slots=True)
class _Roots:
    """What all checkpoints lean on that is there, in the order of their timestamps, so that what is alike stands side by side.

    It can be gone through again and again, and is never in memory at once.
    """

    evidence: Evidence
    only: Collection[int] | None = None

    def __iter__(self) -> Iterator[str]:
        last = ""
        table = self.evidence.table
        for at in table.by_time() if self.only is None else sorted(self.only):
            commit = table.commit(at)
            if commit and commit != last and self.evidence.kind(layout.KEEP, commit) == KINDS[layout.KEEP]:
                yield commit
                last = commit
            if at in table.extras:
                yield from (oid for oid in _roots(self.evidence.record(at), self.evidence) if oid != commit)


def _incomplete(record: SheetRow, oids: list[str], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: connectivity.SHOWN]) + (" and others" if len(oids) > connectivity.SHOWN else "")
    sentence = f"{names} {'is' if len(oids) == 1 else 'are'} missing or damaged, which its files or history need"
    kept = f"git fetch --no-tags --no-prune REMOTE '{layout.KEEP}*:{layout.KEEP}*'"
    fetch = kept if lacks_commit else " ".join([_ANEW, *oids[: connectivity.SHOWN]])
    cure = f"fetch from a clone that has it: {fetch}; or give it up: git ckpt remove {record.id[: ids.SHORT]}"
    return lasting("objects-missing", record.ref, sentence, cure)


def _rewritten(record: SheetRow, commit: str) -> Flaw:
    return lasting("commit-rewritten", record.ref, f"git filter-repo has rewritten its commit {commit}", "git ckpt remove --rewritten")


def snapshots(store: Checkpoints, evidence: Evidence) -> Iterator[Flaw]:
    """Yields the checkpoints whose snapshot no command would bring back, each with the first thing that is wrong with it."""
    problems = dict(_problems(store, {tree for _, tree in _snapshots(evidence)}))
    for checkpoint, tree in _snapshots(evidence) if problems else ():
        if tree in problems:
            place = shell_word(layout.TREES + checkpoint)
            cure = f"look at it: git ls-tree {place}; remove it: git ckpt remove {checkpoint}"
            yield lasting("snapshot-invalid", layout.CHECKPOINTS + checkpoint, f"nothing can be brought back of it: {problems[tree]}", cure)


def _snapshots(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yields id and snapshot of each checkpoint whose snapshot is there."""
    for record in evidence.rich():
        tree = record.holds.get(layout.TREES)
        if tree is not None and evidence.kind(layout.TREES, tree) == KINDS[layout.TREES]:
            yield record.id, tree


def _problems(store: Checkpoints, trees: set[str]) -> Iterator[tuple[str, str]]:
    """Yields what is wrong, by snapshot; each tree that they share is read once."""
    repository, roots = store.repository, sorted(trees)
    is_whole = partial.promisor(repository) is None
    census = Census(repository, roots, lambda trees: trees if is_whole else _there(repository, trees))
    for tree, found in zip(roots, repository.cat_file.contents(roots), strict=True):
        try:
            parts = decode_tree(found[2], repository.object_format) if found is not None else {}
            if found is not None:
                bounds.require_shape(parts, tree)
            whole = [oid for mode, oid in parts.values() if mode == DIRECTORY]
            if flaw := census.flaw(tree):
                raise UnsoundSnapshot(flaw)
            if any(census.is_beyond(oid, budget.SNAPSHOT) for oid in whole):
                bounds.require(repository, tree, "")  # what is checked out does not count
            if is_whole and parts.keys() - _PLAIN:
                manifest.read(repository, store.objects, tree, "")
        except (UnsoundSnapshot, MalformedTree) as error:
            yield tree, str(error)
        except CkptError:
            pass  # something is missing, or damaged, which is a finding of its own


def _there(repository: Repository, trees: list[str]) -> list[str]:
    """Returns those of some trees that are there, without fetching any."""
    odd = kinds.unlike(repository, trees, "tree")
    return [tree for tree in trees if odd.get(tree, "tree") is not None]
