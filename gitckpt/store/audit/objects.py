"""Verifies that what checkpoints need is there: their commits with all history, their snapshots with all files.

And that these snapshots are such, and no more than anybody lists: those that were fetched may be anything.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from gitckpt.git.contents import bounds
from gitckpt.git.contents.bounds import UnsoundSnapshot
from gitckpt.git.damage import integrity
from gitckpt.git.damage.integrity import Damage
from gitckpt.git.damage.salvage import Salvage
from gitckpt.git.damage.soundness import Census
from gitckpt.git.disk import file_of
from gitckpt.git.graph import connectivity, kinds, partial
from gitckpt.git.objects.encoding import DIRECTORY, MalformedTree, decode_tree
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import rewrites
from gitckpt.model import ids
from gitckpt.model.errors import CkptError
from gitckpt.model.finding import Finding
from gitckpt.model.format import budget
from gitckpt.model.names import shell_word
from gitckpt.model.values import dataclass
from gitckpt.store.audit.inventory import KINDS, Evidence
from gitckpt.store.audit.ledger.table import SheetRow
from gitckpt.store.audit.repairable import REPAIR, Flaw, lasting
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.snapshot import manifest

_ANEW = "git fetch --refetch --no-tags REMOTE"
"""A plain fetch says which commits are here, and the other side leaves out all that they lead to."""

_PLAIN = frozenset((b"files", b"index", b"raw", b"run", b"auto-merge"))
"""Entries of a snapshot of which only trees are looked at."""


def audit(store: Checkpoints, evidence: Evidence, damage: Damage, only: Collection[int] | None = None) -> list[Flaw]:
    """Returns the checkpoints that lack objects, and what else is wrong with the files of objects.

    Args:
        evidence: what there is.
        damage: of the files that objects lie in.
        only: places of the checkpoints to look at, without their history; None for all.
    """
    roots = _Roots(evidence, only)
    lacking = connectivity.lacking(store.repository, store.objects, roots, damage.lost, with_history=only is None)
    flaws = [lasting("objects-unreadable", layout.OWN[1], lacking.complaint, "see what is wrong: git fsck")] if lacking.complaint else []
    lacks = lacking.samples or None in evidence.odd.values()

    def places() -> Iterable[int]:
        return evidence.places() if only is None else sorted(only)

    gone = {at: lost for at in places() if (lost := _gone(evidence.record(at), evidence))} if lacks else {}
    wanted = {oid: lacking.paths.get(oid, ()) for oid in {*damage.lost, *lacking.paths, *(oid for oids in gone.values() for oid in oids)}}
    found: Mapping[str, str] = {}
    if wanted:
        with Salvage(store.repository) as salvage:
            found = salvage.find(wanted, wanted)
    rewritten = rewrites.filtered(store.repository) if gone else {}
    for at in places() if lacks else ():
        record = evidence.record(at)
        own = gone.get(at, [])
        oids = list(dict.fromkeys([*own, *(oid for root in _roots(record, evidence) for oid in lacking.samples.get(root, ()))]))
        if oids:
            again = {oid: wanted[oid] for oid in oids if oid in found}
            commit = record.holds.get(layout.KEEP)
            if commit in own and commit in rewritten:
                flaws.append(_rewritten(record, commit))
            else:
                flaws.append(_incomplete(record, oids, again, lacks_commit=commit in own))
    return [*flaws, *_of_files(store.repository, damage, wanted, found)]


def _of_files(repository: Repository, damage: Damage, wanted: Mapping[str, Collection[bytes]], found: Mapping[str, str]) -> Iterator[Flaw]:
    for oid, path in sorted(damage.empty.items()):
        again = {oid: wanted[oid]} if oid in found else {}
        where = f"; its content is in {found[oid]}" if oid in found else ""
        sentence = (
            f"the file of an object is empty, as a power cut leaves it: git takes {oid} to be there, and never writes it again{where}"
        )
        if path == file_of(repository, oid):
            yield Flaw(Finding("object-empty", path, sentence, REPAIR), anew=again, empty=path)
        else:  # nobody but its owner deletes in a repository that is borrowed from
            yield lasting("object-empty", path, sentence, f"in the repository that has it, this one borrows from it: {REPAIR}")
    for path, sentence in sorted(damage.packs.items()):
        cure = f"git index-pack {shell_word(path.removesuffix('.idx'))}.pack" if path.endswith(".idx") else _from_clone()
        yield lasting("pack-damaged", path, f"{sentence}: git does not use it", cure)
    spoiled = damage.lost - damage.empty.keys()
    unneeded = integrity.unneeded(repository, spoiled - found.keys())
    for oid in sorted(spoiled):
        if oid in unneeded and os.path.isfile(file_of(repository, oid)):
            sentence = "its content is not what it was; no ref, reflog or index needs it"
            yield Flaw(Finding("object-damaged", oid, sentence, f"{REPAIR} --contents"), aside=oid)
        elif oid in unneeded:
            sentence = "its content is not what it was; no ref, reflog or index needs it, so it does no harm"
            yield lasting("object-damaged", oid, sentence, "git gc --prune=now")
        elif oid in found:
            sentence = f"its content is not what it was; that is in {found[oid]}"
            yield Flaw(Finding("object-damaged", oid, sentence, REPAIR), anew={oid: wanted[oid]})
        else:
            yield lasting("object-damaged", oid, "its content is not what it was", _from_clone(f" {oid}"))


def _from_clone(what: str = "") -> str:
    return f"put it aside, and fetch from a clone that has it: {_ANEW}{what}; see what else is wrong: git fsck"


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


def _incomplete(record: SheetRow, oids: list[str], again: Mapping[str, Collection[bytes]], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: connectivity.SHOWN]) + (" and others" if len(oids) > connectivity.SHOWN else "")
    sentence = f"{names} {'is' if len(oids) == 1 else 'are'} missing or damaged, which its files or history need"
    if again:
        return Flaw(Finding("objects-missing", record.ref, sentence, REPAIR), anew=again)
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
