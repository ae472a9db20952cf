"""List and compare trees, and count at how many paths they differ."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping

from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, Entries, MalformedTree, decode_tree, empty_tree
from gitckpt.git.repository import Repository
from gitckpt.model.budget import Paths
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Path, mode as in a tree (`encoding`), and oid.
    Leaf: TypeAlias = tuple[bytes, bytes, str]

# Entries of a tree (git-ls-tree(1)); git prints canonical modes, whatever an old tree contains

_LINE = re.compile(rb"0?([0-7]{5,6}) [a-z]+ ([0-9a-f]+)\t([^\0]+)\0")

# Above this, filter here: git compares each path with each entry, and command lines are limited.
_TREES_FEW = 100


def leaves(repository: Repository, tree: str, paths: Collection[bytes] = (), *, with_trees: bool = False) -> list[Leaf]:
    """Return files, links and submodules of a tree, in git's order.

    `paths` are literal paths of files or directories; none for all.
    """
    options = ["-r", *(["-t"] if with_trees else [])]
    if len(paths) <= _TREES_FEW:
        return _listed(repository, options, tree, paths)
    wanted = set(paths)
    return [entry for entry in _listed(repository, options, tree, ()) if _is_within(entry[0], wanted)]


def leaf(repository: Repository, tree: str, path: bytes) -> Leaf | None:
    """Return the entry at a path, which may be a directory, or None."""
    return next((entry for entry in _listed(repository, [], tree, [path]) if entry[0] == path), None)


def present(repository: Repository, tree: str, paths: Collection[bytes]) -> set[bytes]:
    """Return the paths of the `leaves` at some paths; none for no paths."""
    return {path for path, _, _ in leaves(repository, tree, paths)} if paths else set()


def _listed(repository: Repository, options: list[str], tree: str, paths: Collection[bytes]) -> list[Leaf]:
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", *options, tree, "--", *map(os.fsdecode, paths))
    return [(path, mode, oid.decode("ascii")) for mode, oid, path in _LINE.findall(repository.git.run(*words).out)]


def _is_within(path: bytes, wanted: set[bytes]) -> bool:
    while path and path not in wanted:
        path = path.rpartition(b"/")[0]
    return path != b""


# Differences between two trees (git-diff-tree(1), raw format)

# An unterminated name consumes the rest (possessive), so that matching stays linear.
_ENTRY = rb"([0-7]{5,6}) ([^\0/]++)(?:\0([\0-\xff]{%d})|\Z)"
_SHA1_ENTRY, _SHA256_ENTRY = (re.compile(_ENTRY % size) for size in (20, 32))
# From this many differences on, a git process is cheaper than reading the trees here.
_FEW = 200

_LARGEST = 1 << 20  # bytes: git compares larger trees

# Independent of settings: submodules count even where `status` ignores them.
_RAW = ("--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none")

_TREE = DIRECTORY.zfill(6)
_BARRED = frozenset((b".", b"..", b".git"))
_TYPES = frozenset((0o040000, 0o100000, 0o120000, 0o160000))
_USUAL = frozenset((DIRECTORY, b"100644", b"100755", b"120000", GITLINK))
_KINDS = {b"100644": "file", b"100755": "file", b"120000": "link", GITLINK: "submodule", _TREE: "directory"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs. Modes are as in trees; a missing side has zeros."""

    status: str  # A (added), D (deleted), M (modified) or T (type changed)
    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def is_submodule(self) -> bool:
        return GITLINK in (self.old_mode, self.new_mode)

    @property
    def is_directory(self) -> bool:
        return _TREE in (self.old_mode, self.new_mode)

    @property
    def line(self) -> bytes:
        # For `PrivateIndex.put`, to bring an index to the new tree.
        return b"%s %s 0\t%s" % (self.new_mode.lstrip(b"0") or b"0", self.new.encode("ascii"), self.path)

    def __str__(self) -> str:
        return f"{self.status} {self.path.decode('utf-8', 'replace')}"


def differences(repository: Repository, old: str, new: str, paths: Iterable[bytes] = (), *, with_trees: bool = False) -> list[Difference]:
    """Return the differences between two trees, sorted by path.

    `paths` are literal paths of files or directories; none, or an empty one, for all.
    """
    if old == new:
        return []
    wanted = [path.decode("utf-8", "surrogateescape") for path in paths]
    if not wanted or "" in wanted:
        wanted = []
        few = _few(repository, old, new)
        if few is not None:
            return few if with_trees else [one for one in few if not one.is_directory]
    options = ("-r", *(["-t"] if with_trees else []), "-z", *_RAW)
    out = repository.git.run("--literal-pathspecs", "diff-tree", *options, old, new, "--", *wanted).out
    records = out.split(b"\0")[:-1]
    result = []
    for head, path in zip(records[::2], records[1::2], strict=True):
        old_mode, new_mode, before, after, status = head[1:].split(b" ")
        result.append(Difference(status.decode("ascii"), path, old_mode, new_mode, before.decode("ascii"), after.decode("ascii")))
    return result


def counts(repository: Repository, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return at how many paths the trees of each pair differ; "" is the empty tree."""
    if not pairs:
        return {}
    empty = empty_tree(repository.object_format)
    compared = {(old, new): (old or empty, new or empty) for old, new in pairs}
    found = dict.fromkeys(compared.values(), 0)
    lines = "".join(f"{old} {new}\n" for old, new in found)
    current = ("", "")
    # Not `splitlines`: with core.quotePath=false, paths may contain other line ends of Python's.
    for line in repository.git.run("diff-tree", "--stdin", "-r", *_RAW, data=lines.encode("ascii")).out.split(b"\n"):
        if line.startswith(b":"):
            found[current] += 1
        elif line:
            old, _, new = line.decode("ascii").partition(" ")
            current = (old, new)
    return {pair: found[trees] for pair, trees in compared.items()}


def _few(repository: Repository, old: str, new: str) -> list[Difference] | None:
    # As git does, with directories; None if there are too many, or git has to judge a tree.
    nothing = (b"000000", b"\0" * (len(old) // 2))
    empty = empty_tree(repository.object_format)
    found: list[Difference] = []
    level = [(b"", old, new)]
    while level:
        read = repository.cat_file.contents([oid for _, *pair in level for oid in pair], _LARGEST)
        below = []
        for (above, *_), *pair in zip(level, read, read, strict=True):
            try:
                sides = [_entries(repository, tree) for tree in pair]
            except MalformedTree:
                return None
            for name in sides[0].keys() | sides[1].keys():
                was, now = (side.get(name, nothing) for side in sides)
                if was == now:
                    continue
                is_exchanged = (was[0] == _TREE) != (now[0] == _TREE) and nothing not in (was, now)
                steps = [(was, nothing), (nothing, now)] if is_exchanged else [(was, now)]
                found += [_difference(above + name, *step) for step in steps]
                if _TREE in (was[0], now[0]):
                    before, after = (oid.hex() if mode == _TREE else empty for mode, oid in (was, now))
                    below.append((above + name + b"/", before, after))
            if len(found) > _FEW:
                return None
        level = below
    return sorted(found, key=lambda one: one.path + b"/" if one.is_directory else one.path)


def _entries(repository: Repository, tree: tuple[str, str, bytes] | None) -> dict[bytes, tuple[bytes, bytes]]:
    # Raises MalformedTree where git might read the tree differently.
    if tree is None or tree[1] != "tree":
        raise MalformedTree("it is missing")
    found = {name: (mode.zfill(6), oid) for name, (mode, oid) in listed(tree[2], repository.object_format).items()}
    if not _KINDS.keys() >= {mode for mode, _ in found.values()}:
        raise MalformedTree("it has modes that git would not write")
    return found


def _difference(path: bytes, before: tuple[bytes, bytes], after: tuple[bytes, bytes]) -> Difference:
    kinds = _KINDS.get(before[0]), _KINDS.get(after[0])
    status = "A" if kinds[0] is None else "D" if kinds[1] is None else "M" if kinds[0] == kinds[1] else "T"
    return Difference(status, path, before[0], after[0], before[1].hex(), after[1].hex())


def own(repository: Repository, base: str, tree: str) -> list[str]:
    """Return the objects, but submodules, that `base` lacks at the same path."""
    return [
        difference.new
        for difference in differences(repository, base, tree, with_trees=True)
        if difference.status != "D" and difference.new_mode != GITLINK
    ]


def listed(data: bytes, object_format: str) -> dict[bytes, tuple[bytes, bytes]]:
    """Decode a tree like `decode_tree`, with raw oids, five times as fast."""
    pattern = _SHA256_ENTRY if object_format == "sha256" else _SHA1_ENTRY
    matches = pattern.findall(data)
    found = {name: (mode, oid) for mode, name, oid in matches}
    if len(found) != len(matches) or sum(map(len, found)) + sum(len(mode) + len(oid) + 2 for mode, oid in found.values()) != len(data):
        return {name: (mode, bytes.fromhex(oid)) for name, (mode, oid) in decode_tree(data, object_format).items()}
    return found


def oddity(entries: Mapping[bytes, tuple[bytes, object]]) -> str:
    """Return what git would not write into a tree, such as a path out of it; or ""."""
    for name, (mode, _) in entries.items():
        if name[:1] == b"." and name.lower() in _BARRED:
            return f"it has an entry named {name!r}"
        if mode not in _USUAL and int(mode, 8) & 0o170000 not in _TYPES:
            return f"it has an entry {name[:60]!r} of mode {mode.decode('ascii')}, which is no file, link, submodule or directory"
    return ""


class Expansion:
    """A cached count of the paths at which trees differ, to bound what git is to list.

    A tree may name another one 256 times, and that a third one: a few fetched kilobytes may hold
    more paths than git can ever list, by `diff-tree -r`, `ls-tree -r` or a checkout. So each pair
    of trees is counted once, and common entries are skipped.
    """

    def __init__(self, repository: Repository, limits: Paths) -> None:
        self._repository = repository
        self._limits = limits
        self._counted: dict[tuple[str, str], int] = {}
        self._flaws: dict[str, str] = {}
        self._unread: set[str] = set()
        self._lacking: set[tuple[str, str]] = set()
        self.flaw = ""  # what is wrong with the first malformed tree

    def is_beyond(self, old: str, new: str) -> bool:
        """Return whether two trees differ at more paths, or deeper, than the limits allow.

        A missing tree has no paths: git reports it when it lists it. A malformed tree counts as
        beyond, as it would end git together with all other requests. "" is the empty tree.
        """
        return self._count(old, new, 0) > self._limits.count

    def is_lacking(self, old: str, new: str) -> bool:
        """Return whether listing a pair, checked by `is_beyond`, needs unreadable trees."""
        return (old, new) in self._lacking

    def _count(self, old: str, new: str, depth: int) -> int:
        if old == new:
            return 0
        found = self._counted.get((old, new))
        if found is not None:
            return found
        if depth > self._limits.depth:
            return self._limits.count + 1
        before, after = self.entries(old), self.entries(new)
        if old in self._unread or new in self._unread:
            self._lacking.add((old, new))
        total, flaw = 0, self._flaws.get(new) or oddity(after)
        if flaw:
            self.flaw = self.flaw or f"the tree {new}: {flaw}"
            before, after, total = {}, {}, self._limits.count + 1
        for name in before.keys() | after.keys():
            sides = before.get(name), after.get(name)
            if sides[0] != sides[1]:
                trees = [side[1] if side is not None and side[0] == DIRECTORY else "" for side in sides]
                total += 1 + self._count(trees[0], trees[1], depth + 1)
                if (trees[0], trees[1]) in self._lacking:
                    self._lacking.add((old, new))
                if total > self._limits.count:
                    break
        self._counted[old, new] = total
        return total

    def entries(self, tree: str) -> Entries:
        found = next(self._repository.cat_file.contents([tree])) if tree else None
        if found is None:
            if tree:
                self._unread.add(tree)
            return {}
        try:
            if found[1] != "tree":
                raise MalformedTree(f"it is a {found[1]}")
            return decode_tree(found[2], self._repository.object_format)
        except MalformedTree as error:
            self._flaws[tree] = str(error)
            return {}
