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
    unknown = [entry for entry in entries if entry.changed is None and entry.tree]
    found = _trees(repository, [f"{entry.tree}:files" for entry in unknown])
    bases = _trees(repository, [f"{entry.git_sha}^{{tree}}" for entry in unknown if entry.git_sha])
    pairs: dict[tuple[str, str], list[str]] = {}
    expansion = diff.Expansion(repository, budget.SNAPSHOT)
    for entry in unknown:
        files = found.get(f"{entry.tree}:files")
        base = bases.get(f"{entry.git_sha}^{{tree}}") if entry.git_sha else ""
        # One tree that cannot be read would end git, with all that is asked of it besides.
        if files is not None and base is not None and not expansion.is_beyond(base, files) and not expansion.is_lacking(base, files):
            pairs.setdefault((base, files), []).append(entry.id)
    counted = diff.counts(repository, pairs)
    fresh = [(checkpoint, counted[pair]) for pair, checkpoints in pairs.items() for checkpoint in checkpoints]
    if fresh:
        index.remember_changed(fresh)
    return known | dict(fresh)


def _trees(repository: Repository, names: Sequence[str]) -> dict[str, str]:
    """Returns the oid of each tree that is named, but for those that are missing, or damaged, or behind something that is."""
    once = list(dict.fromkeys(names))
    return {name: read[0] for name, read in zip(once, repository.cat_file.contents(once), strict=True) if read is not None}
