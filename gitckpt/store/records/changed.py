"""How many paths a snapshot changed against its commit; counted when somebody looks, and kept in the index."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.model.format import budget
from gitckpt.store.records.entry import Entry
from gitckpt.store.records.index import Index


def count(repository: Repository, index: Index, entries: Sequence[Entry]) -> dict[str, int]:
    """Returns the number of changed paths by id, for those checkpoints whose files were captured, are still there, and can be counted."""
    known = {entry.id: entry.changed for entry in entries if entry.changed is not None}
    pairs: dict[tuple[str, str], list[str]] = {}
    expansion = diff.Expansion(repository, budget.SNAPSHOT)
    for entry in entries:
        if entry.changed is None and entry.tree:
            files = repository.cat_file.info(f"{entry.tree}:files")
            base = repository.cat_file.info(f"{entry.git_sha}^{{tree}}") if entry.git_sha else None
            if files and (base or not entry.git_sha) and not expansion.is_beyond(base[0] if base else "", files[0]):
                pairs.setdefault((base[0] if base else "", files[0]), []).append(entry.id)
    counted = diff.counts(repository, pairs)
    fresh = [(checkpoint, counted[pair]) for pair, checkpoints in pairs.items() for checkpoint in checkpoints]
    if fresh:
        index.remember_changed(fresh)
    return known | dict(fresh)
