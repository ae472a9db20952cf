"""Verifies that what checkpoints need is there: their commits with all history, their snapshots with all files."""

from __future__ import annotations

from gitckpt.git.objects import connectivity
from gitckpt.model import ids
from gitckpt.store.audit.inventory import Evidence, Record
from gitckpt.store.audit.refs import KINDS
from gitckpt.store.audit.repairable import Flaw, lasting
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout


def audit(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Returns the checkpoints that lack objects."""
    roots = {record.entry.id: _roots(record, evidence) for record in evidence.records.values()}
    lacking, complaint = connectivity.lacking(store.repository, store.objects, {oid for held in roots.values() for oid in held})
    flaws = [lasting("objects-unreadable", layout.OWN[1], complaint, "see what is wrong: git fsck")] if complaint else []
    for record in evidence.records.values():
        gone = [
            oid
            for space, oid in record.holds.items()
            if oid not in evidence.kinds
            and (space == layout.KEEP or evidence.refs.get(space + record.entry.id) == oid)  # else its ref has a flaw of its own
        ]
        below = [oid for root in roots[record.entry.id] for oid in lacking.get(root, ())]
        if gone or below:
            flaws.append(_incomplete(record, list(dict.fromkeys([*gone, *below])), lacks_commit=record.holds.get(layout.KEEP) in gone))
    return flaws


def _roots(record: Record, evidence: Evidence) -> list[str]:
    return [oid for space, oid in record.holds.items() if evidence.kinds.get(oid) == KINDS[space]]


def _incomplete(record: Record, oids: list[str], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: connectivity.SHOWN]) + (" and others" if len(oids) > connectivity.SHOWN else "")
    verb = "is" if len(oids) == 1 else "are"
    fetch = f"git fetch --no-tags --no-prune REMOTE '{layout.KEEP}*:{layout.KEEP}*'" if lacks_commit else "git fetch REMOTE"
    cure = f"fetch from a clone that has it: {fetch}; or give it up: git ckpt remove {record.entry.id[: ids.SHORT]}"
    return lasting("objects-missing", record.ref, f"{names} {verb} missing or damaged, which its files or history need", cure)
