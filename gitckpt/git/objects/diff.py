"""What differs between two trees, path by path (git-diff-tree(1), raw format), and at how many paths that is."""

from __future__ import annotations

from collections.abc import Iterable

from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, Entries, MalformedTree, decode_tree
from gitckpt.git.repository import Repository
from gitckpt.model.format.budget import Paths
from gitckpt.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs. Modes are as in trees; where there is nothing, mode and oid are zeros."""

    status: str
    """A (added), D (deleted), M (modified) or T (its type changed)."""

    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def is_submodule(self) -> bool:
        """Whether it is a submodule before and after, or before or after: its content is its own."""
        return GITLINK in (self.old_mode, self.new_mode)

    @property
    def line(self) -> bytes:
        """The line for `PrivateIndex.put` that makes an index agree with the second tree."""
        return b"%s %s 0\t%s" % (self.new_mode.lstrip(b"0") or b"0", self.new.encode("ascii"), self.path)

    def __str__(self) -> str:
        return f"{self.status} {self.path.decode('utf-8', 'replace')}"


def differences(repository: Repository, old: str, new: str, paths: Iterable[bytes] = (), *, with_trees: bool = False) -> list[Difference]:
    """Returns what differs between two trees, sorted by path.

    Args:
        repository: where.
        old: a tree.
        new: another one.
        paths: files or directories to look at, literally; none, or the empty one for the top, for all.
        with_trees: whether the directories that differ are returned as well.

    Raises:
        GitError: a tree is missing.
    """
    if old == new:
        return []
    options = ("-r", *(["-t"] if with_trees else []), "--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
    wanted = [path.decode("utf-8", "surrogateescape") for path in paths]
    if "" in wanted:
        wanted = []
    out = repository.git.run("--literal-pathspecs", "diff-tree", *options, old, new, "--", *wanted).out
    records = out.split(b"\0")[:-1]
    found = []
    for head, path in zip(records[::2], records[1::2], strict=True):
        old_mode, new_mode, before, after, status = head[1:].split(b" ")
        found.append(Difference(status.decode("ascii"), path, old_mode, new_mode, before.decode("ascii"), after.decode("ascii")))
    return found


def present(repository: Repository, tree: str, paths: Iterable[bytes]) -> set[bytes]:
    """Returns the files of a tree that have one of the paths, or are in a directory that has.

    Args:
        repository: where.
        tree: its oid.
        paths: one at least, literally.
    """
    wanted = [path.decode("utf-8", "surrogateescape") for path in paths]
    return set(repository.git.run("--literal-pathspecs", "ls-tree", "-r", "--name-only", "-z", tree, "--", *wanted).out.split(b"\0")[:-1])


class Expansion:
    """Counts the paths at which trees differ, before anybody lists them; remembers what it has counted.

    A tree may name another one 256 times, and that a third one: a few kilobytes that were fetched hold more paths than git can ever list,
    be it for `diff-tree -r`, `ls-tree -r` or a checkout. So each pair of trees is looked at once, and not what both have in common.

    Args:
        repository: where.
        limits: beyond which it stops.
    """

    def __init__(self, repository: Repository, limits: Paths) -> None:
        self._repository = repository
        self._limits = limits
        self._counted: dict[tuple[str, str], int] = {}

    def is_beyond(self, old: str, new: str) -> bool:
        """Tells whether two trees differ at more paths, or deeper down, than they may.

        Args:
            old: oid of a tree, "" for none.
            new: likewise. What is missing or malformed has no paths: git says so when it is to list it.
        """
        return self._count(old, new, 0) > self._limits.count

    def _count(self, old: str, new: str, depth: int) -> int:
        if old == new:
            return 0
        found = self._counted.get((old, new))
        if found is not None:
            return found
        if depth > self._limits.depth:
            return self._limits.count + 1
        before, after = self.entries(old), self.entries(new)
        total = 0
        for name in before.keys() | after.keys():
            sides = before.get(name), after.get(name)
            if sides[0] != sides[1]:
                trees = [side[1] if side is not None and side[0] == DIRECTORY else "" for side in sides]
                total += 1 + self._count(trees[0], trees[1], depth + 1)
                if total > self._limits.count:
                    break
        self._counted[old, new] = total
        return total

    def entries(self, tree: str) -> Entries:
        """Returns the entries of a tree; none for "", and for what is missing or malformed."""
        found = next(self._repository.cat_file.contents([tree])) if tree else None
        try:
            return decode_tree(found[2], self._repository.object_format) if found is not None and found[1] == "tree" else {}
        except MalformedTree:
            return {}
