"""How many paths a snapshot changed against its commit; counted when somebody looks, and kept in the index."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git.objects.diff import Expansion
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.git.repository import Repository
from gitckpt.model.format import budget
from gitckpt.store.records.entry import Entry
from gitckpt.store.records.index import Index


def count(repository: Repository, index: Index, entries: Sequence[Entry]) -> dict[str, int]:
    """Returns the number of changed paths by id, for those checkpoints whose files were captured, are still there, and can be counted."""
    known = {entry.id: entry.changed for entry in entries if entry.changed is not None}
    pairs: dict[tuple[str, str], list[str]] = {}
    expansion = Expansion(repository, budget.SNAPSHOT)
    for entry in entries:
        if entry.changed is None and entry.tree:
            files = repository.cat_file.info(f"{entry.tree}:files")
            base = repository.cat_file.info(f"{entry.git_sha}^{{tree}}") if entry.git_sha else None
            if files and (base or not entry.git_sha) and not expansion.is_beyond(base[0] if base else "", files[0]):
                pairs.setdefault((base[0] if base else "", files[0]), []).append(entry.id)
    counted = _count_pairs(repository, list(pairs))
    fresh = [(checkpoint, counted[pair]) for pair, checkpoints in pairs.items() for checkpoint in checkpoints]
    if fresh:
        index.remember_changed(fresh)
    return known | dict(fresh)


def _count_pairs(repository: Repository, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Returns the number of paths that differ between the trees of each pair; "" stands for no files at all."""
    if not pairs:
        return {}
    empty = empty_tree(repository.object_format)
    compared = {pair: (pair[0] or empty, pair[1]) for pair in pairs}  # a commit may have no files, either
    counts = dict.fromkeys(compared.values(), 0)
    lines = "".join(f"{base} {files}\n" for base, files in counts)
    out = repository.git.run("diff-tree", "--stdin", "-r", "--raw", "--no-renames", "--no-abbrev", data=lines.encode()).out
    current = ("", "")
    for line in out.decode("utf-8", "replace").split("\n"):  # names may have other ends of lines, with core.quotePath=false
        if line.startswith(":"):
            counts[current] += 1
        elif line:
            base, _, files = line.partition(" ")
            current = (base, files)
    return {pair: counts[trees] for pair, trees in compared.items()}
