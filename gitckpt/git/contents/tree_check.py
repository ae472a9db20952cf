"""Whether trees are what git would write, and how much is below them: each is read once, whatever leads to it.

A fetch looks at none of that (`transfer.fsckObjects` is off by default), and a few kilobytes may be of endless paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gitckpt.git.objects.diff import listed, oddity
from gitckpt.git.objects.encoding import DIRECTORY, MalformedTree
from gitckpt.git.repository import Repository
from gitckpt.model.format.budget import Paths

_LARGEST = 64 << 20
"""In bytes: no directory of a million files is larger, and what is larger is left to git."""

_TREE = DIRECTORY.zfill(6)


def _is_sorted(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bool:
    names = [name + b"/" if mode.zfill(6) == _TREE else name for name, (mode, _) in entries.items()]
    return names == sorted(names)


class Census:
    """Some trees with all that is below them. What is missing counts for nothing.

    Args:
        roots: oids of trees.
        there: returns those of some trees that may be read; by default all. A partial clone would fetch the others.
    """

    def __init__(self, repository: Repository, roots: Iterable[str], there: Callable[[list[str]], list[str]] = lambda trees: trees) -> None:
        self._repository = repository
        self._flaws: dict[str, str] = {}
        self._below: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._known: dict[str, tuple[int, int, str]] = {}
        self._names: dict[str, str] = {}  # one text for each oid, however many trees name it
        level = list(dict.fromkeys(roots))
        while level:
            level = there([oid for oid in dict.fromkeys(level) if oid not in self._below])
            level = [child for oid, found in zip(level, self._read(level), strict=True) for child in self._take(oid, found)]

    def flaw(self, root: str) -> str:
        """Returns what is wrong with a tree, or the first one below it that is not sound; "" where nothing is."""
        oid = self._counted(root)[2]
        return f"the tree {oid}: {self._flaws[oid]}" if oid else ""

    def is_beyond(self, root: str, limits: Paths) -> bool:
        """Tells whether a tree has more paths, or deeper ones, than it may, each path counted as often as it is there."""
        paths, depth, _ = self._counted(root)
        return paths > limits.count or depth > limits.depth

    def _read(self, level: list[str]) -> Iterator[tuple[str, str, bytes] | None]:
        return self._repository.cat_file.contents(level, _LARGEST)

    def _take(self, oid: str, found: tuple[str, str, bytes] | None) -> tuple[str, ...]:
        """Notes what is wrong with a tree, and returns the trees that it names."""
        self._below[oid] = 0, ()
        if found is None or found[1] not in ("tree", "blob", "commit", "tag"):
            return ()
        if found[1] != "tree":
            self._flaws[oid] = f"it is a {found[1]}, and is named as a directory"
            return ()
        try:
            entries = listed(found[2], self._repository.object_format)
        except MalformedTree as error:
            self._flaws[oid] = str(error)
            return ()
        flaw = oddity(entries) or ("" if _is_sorted(entries) else "its entries are not in the order of git")
        if flaw:
            self._flaws[oid] = flaw
        trees = (raw.hex() for mode, raw in entries.values() if mode.zfill(6) == _TREE)
        children = tuple(self._names.setdefault(child, child) for child in trees)
        self._below[oid] = len(entries), children
        return children

    def _counted(self, root: str) -> tuple[int, int, str]:
        """Returns paths, depth, and the first tree that is not sound, of a tree; without recursion, as it may be of any depth."""
        waiting = [root]
        while waiting:
            oid = waiting[-1]
            count, children = self._below.get(oid, (0, ()))
            pending = [child for child in children if child not in self._known] if oid not in self._known else []
            if pending:
                waiting += pending
                continue
            waiting.pop()
            if oid not in self._known:
                below = [self._known[child] for child in children]
                flawed = oid if oid in self._flaws else next((found for *_, found in below if found), "")
                depth = max((depth for _, depth, _ in below), default=-1) + 1
                self._known[oid] = count + sum(paths for paths, *_ in below), depth, flawed
        return self._known[root]
