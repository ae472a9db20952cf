"""Verifies the refs that keep alive what checkpoints need, and finds those that keep something for nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from gitckpt.git.refs import Update
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.store.audit.inventory import Evidence, Record
from gitckpt.store.audit.repairable import Flaw, lasting, mendable
from gitckpt.store.records import layout
from gitckpt.store.retention import sweep

WORDS = {layout.COMMITS: "commit", layout.TREES: "tree", layout.OPERATIONS: "operation"}
KINDS = {layout.COMMITS: "commit", layout.TREES: "tree", layout.OPERATIONS: "commit"}
"""Namespace → the kind of object that its refs point to."""

_MEANT = {layout.COMMITS: "linked commit", layout.TREES: "snapshot", layout.OPERATIONS: "commit of its operation"}


def audit(repository: Repository, evidence: Evidence) -> list[Flaw]:
    """Returns what is wrong with the refs of checkpoints, other than their own."""
    flaws = [flaw for record in evidence.records.values() for flaw in _of_checkpoint(repository, record, evidence)]
    for space in layout.HOLDERS:
        for name, ref, oid in evidence.below(space):
            if not evidence.is_there(name.rpartition("/")[2]) and not is_young(repository, ref):
                owner = layout.CHECKPOINTS + name
                updates = (Update(owner, "", ""), Update(ref, "", oid)) if ids.is_id(name) else (Update(ref, "", oid),)
                sentence = "keeps something for a checkpoint that does not exist"
                flaws.append(mendable("ref-leftover", ref, sentence, updates=updates, is_leftover=True))
    return flaws


def is_young(repository: Repository, ref: str) -> bool:
    """Tells whether a ref may belong to a checkpoint that is being written."""
    try:
        return time.time() - os.stat(os.path.join(repository.common_dir, ref)).st_mtime < sweep.GRACE
    except OSError:
        return False  # packed, or in a reftable, where transactions are all or nothing


def _of_checkpoint(repository: Repository, record: Record, evidence: Evidence) -> Iterator[Flaw]:
    for space in layout.HOLDERS:
        ref = space + record.entry.id
        wanted, there = record.holds.get(space), evidence.refs.get(ref)
        if wanted is None:
            if there is not None and not is_young(repository, ref):
                sentence = f"its checkpoint names no {_MEANT[space]}"
                yield mendable("ref-leftover", ref, sentence, updates=(Update(ref, "", there),), is_leftover=True)
            continue
        kind = evidence.kinds.get(wanted)
        if kind is not None and kind != KINDS[space]:
            sentence = f"its checkpoint names {wanted}, which is a {kind}, not a {KINDS[space]}"
            yield lasting(f"{WORDS[space]}-ref-wrong", ref, sentence, f"git ckpt remove {record.entry.id}")
        elif there != wanted:
            yield _unlike(record, space, there, is_gone=kind is None)


def _unlike(record: Record, space: str, there: str | None, *, is_gone: bool) -> Flaw:
    """Returns the flaw of a ref that is missing or points elsewhere."""
    ref, wanted = space + record.entry.id, record.holds[space]
    if there is None:
        code, sentence = f"{WORDS[space]}-ref-missing", f"nothing keeps {wanted}, the {_MEANT[space]} of its checkpoint"
    else:
        code, sentence = f"{WORDS[space]}-ref-wrong", f"points to {there}, not to {wanted}, the {_MEANT[space]} of its checkpoint"
    if is_gone:
        cure = f"fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE +{ref}:{ref}"
        return lasting(code, ref, f"{sentence}; that is missing", cure)
    return mendable(code, ref, sentence, updates=(record.is_there, Update(ref, wanted, there or "")))
