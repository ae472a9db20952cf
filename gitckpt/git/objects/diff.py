"""List the entries of trees, compare trees, and count the differing paths."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from gitckpt.git.objects import encoding
from gitckpt.git.repository import Repository
from gitckpt.model.budget import PathLimits
from gitckpt.model.values import dataclass

Leaf = tuple[bytes, bytes, str]  # path, mode as in a tree (`encoding`), and oid

# Entries of a tree (git-ls-tree(1)); git prints canonical modes, whatever an old tree contains

_LINE = re.compile(rb"0?([0-7]{5,6}) [a-z]+ ([0-9a-f]+)\t([^\0]+)\0")
# Above this, filter here: git compares each path with each entry, and command lines are limited.
_MAX_PATHSPECS = 100


def list_leaves(
    repository: Repository,
    tree: str,
    paths: Collection[bytes] = (),
    *,
    with_trees: bool = False,
    recursive: bool = True,
) -> list[Leaf]:
    """List the files, links and submodules in a tree, or only at or below `paths`.

    `paths` are literal, not pathspecs. `with_trees` also lists the directories. If not `recursive`,
    this lists one level: at `paths`, or in directories that end with a slash there.
    """
    options = [*(["-r"] if recursive else []), *(["-t"] if with_trees else [])]
    if len(paths) <= _MAX_PATHSPECS:
        return _list_tree(repository, options, tree, paths)
    selected_paths, entries = set(paths), _list_tree(repository, options, tree, ())
    return [entry for entry in entries if _is_within(entry[0], selected_paths)]


def find_leaf(repository: Repository, tree: str, path: bytes) -> Leaf | None:
    entries = _list_tree(repository, [], tree, [path])
    return next((entry for entry in entries if entry[0] == path), None)


def list_paths(repository: Repository, tree: str, paths: Collection[bytes]) -> set[bytes]:
    return {path for path, _, _ in list_leaves(repository, tree, paths)} if paths else set()


def _list_tree(
    repository: Repository, options: list[str], tree: str, paths: Collection[bytes]
) -> list[Leaf]:
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", *options, tree, "--")
    out = repository.git.run(*words, *map(os.fsdecode, paths)).out
    return [(path, mode, oid.decode("ascii")) for mode, oid, path in _LINE.findall(out)]


def _is_within(path: bytes, selected: set[bytes]) -> bool:
    while path and path not in selected:
        path = path.rpartition(b"/")[0]
    return path != b""


# Differences between two trees (git-diff-tree(1), raw format)

# An unterminated name consumes the rest (possessive), so that matching stays linear.
_ENTRY = rb"([0-7]{5,6}) ([^\0/]++)(?:\0([\0-\xff]{%d})|\Z)"
_SHA1_ENTRY, _SHA256_ENTRY = (re.compile(_ENTRY % size) for size in (20, 32))
# From this many differences on, a git process is cheaper than reading the trees here.
_MAX_COMPARED = 200
_MAX_TREE_SIZE = 1 << 20  # bytes: git compares larger trees
# Independent of settings: submodules count even where `status` ignores them.
_RAW = ("--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
_TREE = encoding.DIRECTORY.zfill(6)
_BARRED = frozenset((b".", b"..", b".git"))
_TYPES = frozenset((0o040000, 0o100000, 0o120000, 0o160000))
_USUAL = frozenset((encoding.DIRECTORY, b"100644", b"100755", b"120000", encoding.GITLINK))
_KINDS = dict.fromkeys((b"100644", b"100755"), "file")
_KINDS |= {b"120000": "link", encoding.GITLINK: "submodule", _TREE: "directory"}


@dataclass(frozen=True, slots=True)
class PathDifference:
    """A path that differs between trees; mode and oid are zeros where it is missing."""

    status: str  # A (added), D (deleted), M (modified) or T (type changed)
    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def is_submodule(self) -> bool:
        return encoding.GITLINK in (self.old_mode, self.new_mode)

    @property
    def is_directory(self) -> bool:
        return _TREE in (self.old_mode, self.new_mode)

    @property
    def index_info_line(self) -> bytes:
        # For `PrivateIndex.put`, to bring an index to the new tree.
        mode = self.new_mode.lstrip(b"0") or b"0"
        return b"%s %s 0\t%s" % (mode, self.new.encode("ascii"), self.path)

    def __str__(self) -> str:
        return f"{self.status} {self.path.decode('utf-8', 'replace')}"


def diff_trees(
    repository: Repository,
    old: str,
    new: str,
    paths: Iterable[bytes] = (),
    *,
    with_trees: bool = False,
) -> list[PathDifference]:
    """Return the differences between two trees; with `paths`, only at or below these."""
    if old == new:
        return []
    pathspecs = [path.decode("utf-8", "surrogateescape") for path in paths]
    if not pathspecs or "" in pathspecs:
        pathspecs = []
        changes = _compare_trees(repository, old, new)
        if changes is not None:
            return [entry for entry in changes if with_trees or not entry.is_directory]
    options = ("-r", *(["-t"] if with_trees else []), "-z", *_RAW)
    words = ("--literal-pathspecs", "diff-tree", *options, old, new, "--", *pathspecs)
    records = repository.git.run(*words).out.split(b"\0")[:-1]
    result = []
    for head, path in zip(records[::2], records[1::2], strict=True):
        old_mode, new_mode, *fields = head[1:].split(b" ")
        old_oid, new_oid, status = (field.decode("ascii") for field in fields)
        result.append(PathDifference(status, path, old_mode, new_mode, old_oid, new_oid))
    return result


def count_differences(
    repository: Repository, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return at how many paths the trees of each pair differ; "" is the empty tree."""
    if not pairs:
        return {}
    empty_oid = encoding.empty_tree_oid(repository.object_format)
    full_pairs = {(old, new): (old or empty_oid, new or empty_oid) for old, new in pairs}
    totals = dict.fromkeys(full_pairs.values(), 0)
    data = "".join(f"{old} {new}\n" for old, new in totals).encode("ascii")
    current_pair = ("", "")
    # Not `splitlines`: with core.quotePath=false, paths may contain other line ends of Python's.
    out = repository.git.run("diff-tree", "--stdin", "-r", *_RAW, data=data).out
    for line in out.split(b"\n"):
        if line.startswith(b":"):
            totals[current_pair] += 1
        elif line:
            old, _, new = line.decode("ascii").partition(" ")
            current_pair = (old, new)
    return {pair: totals[trees] for pair, trees in full_pairs.items()}


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path that differs between two trees, and its added and removed lines."""

    status: str  # as in `PathDifference`
    path: bytes
    added: int | None  # None for a binary file or a submodule
    removed: int | None


_PAIR_LINE = re.compile(rb"[0-9a-f]{40,64} [0-9a-f]{40,64}\n")
# Independent of the user's drivers, which may run programs.
_PLAIN = ("--no-ext-diff", "--no-textconv")


def count_lines(
    repository: Repository, pairs: Collection[tuple[str, str]], paths: Sequence[bytes] = ()
) -> dict[tuple[str, str], list[FileChange]]:
    """Return how many lines changed in each file between the trees of each pair.

    `paths` are literal; if there are any, other files are left out. Takes one process.
    """
    out = _diff_pairs(repository, ("-z", "--numstat", *_RAW), pairs, paths)
    changes: dict[tuple[str, str], list[FileChange]] = {pair: [] for pair in pairs}
    current, statuses = ("", ""), dict[bytes, str]()
    records = iter(out.split(b"\0"))
    for text in records:
        record = text
        while header := _PAIR_LINE.match(record):
            old, new = header[0].decode("ascii").split()
            current, statuses, record = (old, new), {}, record[header.end() :]
        if record.startswith(b":"):
            statuses[next(records)] = record.rpartition(b" ")[2].decode("ascii")
        elif record:
            added, removed, path = record.split(b"\t", 2)
            counts = [None if count == b"-" else int(count) for count in (added, removed)]
            changes[current].append(FileChange(statuses[path], path, *counts))
    return changes


def format_pairs(
    repository: Repository,
    pairs: Collection[tuple[str, str]],
    options: Sequence[str],
    paths: Sequence[bytes] = (),
) -> dict[tuple[str, str], bytes]:
    """Return what git prints of each pair of trees with `options`, such as "-p"."""
    out = _diff_pairs(repository, options, pairs, paths)
    texts = dict.fromkeys(pairs, b"")
    headers = list(re.finditer(rb"^([0-9a-f]{40,64}) ([0-9a-f]{40,64})\n", out, re.MULTILINE))
    ends = [header.start() for header in headers[1:]] + [len(out)]
    for header, end in zip(headers, ends, strict=False):  # without headers, `ends` has one
        pair = header[1].decode("ascii"), header[2].decode("ascii")
        texts[pair] = out[header.end() : end].lstrip(b"\n")
    return texts


def _diff_pairs(
    repository: Repository,
    options: Sequence[str],
    pairs: Collection[tuple[str, str]],
    paths: Sequence[bytes],
) -> bytes:
    if not pairs:
        return b""
    data = "".join(f"{old} {new}\n" for old, new in dict.fromkeys(pairs)).encode("ascii")
    words = ("--literal-pathspecs", "diff-tree", "--stdin", "-r", *_PLAIN, *options, "--")
    pathspecs = [] if b"" in paths else map(os.fsdecode, paths)
    return repository.git.run(*words, *pathspecs, data=data).out


def _compare_trees(repository: Repository, old: str, new: str) -> list[PathDifference] | None:
    # As git does, with directories; None if there are too many, or git has to judge a tree.
    absent_entry = (b"000000", b"\0" * (len(old) // 2))
    empty_oid = encoding.empty_tree_oid(repository.object_format)
    found_differences: list[PathDifference] = []
    level_pairs = [(b"", old, new)]
    while level_pairs:
        trees = repository.cat_file.read_contents(
            [oid for _, *pair in level_pairs for oid in pair], _MAX_TREE_SIZE
        )
        next_level = []
        for (parent_path, *_), *items in zip(level_pairs, trees, trees, strict=True):
            try:
                entry_maps = [_decode_entries(repository, item) for item in items]
            except encoding.MalformedTree:
                return None
            for name in entry_maps[0].keys() | entry_maps[1].keys():
                old_side, new_side = pair = [side.get(name, absent_entry) for side in entry_maps]
                if old_side == new_side:
                    continue
                are_trees = [mode == _TREE for mode, _ in pair]
                is_exchanged = are_trees[0] != are_trees[1] and absent_entry not in pair
                steps = [(old_side, absent_entry), (absent_entry, new_side)]
                steps = steps if is_exchanged else [(old_side, new_side)]
                found_differences += [_compare(parent_path + name, *change) for change in steps]
                if any(are_trees):
                    old_tree, new_tree = (
                        oid.hex() if mode == _TREE else empty_oid for mode, oid in pair
                    )
                    next_level.append((parent_path + name + b"/", old_tree, new_tree))
            if len(found_differences) > _MAX_COMPARED:
                return None
        level_pairs = next_level
    return sorted(found_differences, key=lambda entry: entry.path + b"/" * entry.is_directory)


def _decode_entries(
    repository: Repository, tree: tuple[str, str, bytes] | None
) -> dict[bytes, tuple[bytes, bytes]]:
    # Raises MalformedTree where git might read the tree differently.
    if tree is None or tree[1] != "tree":
        raise encoding.MalformedTree("the object is missing or no tree")
    binary_entries = decode_raw_tree(tree[2], repository.object_format)
    entries = {name: (mode.zfill(6), oid) for name, (mode, oid) in binary_entries.items()}
    if not _KINDS.keys() >= {mode for mode, _ in entries.values()}:
        raise encoding.MalformedTree("an entry has a mode that git would not write")
    return entries


def _compare(path: bytes, old: tuple[bytes, bytes], new: tuple[bytes, bytes]) -> PathDifference:
    kinds = _KINDS.get(old[0]), _KINDS.get(new[0])
    status = "M" if kinds[0] == kinds[1] else "T"
    if None in kinds:
        status = "A" if kinds[0] is None else "D"
    return PathDifference(status, path, old[0], new[0], old[1].hex(), new[1].hex())


def list_new_objects(repository: Repository, base: str, tree: str) -> list[str]:
    """Return oids in `tree` that `base` does not have at the same path; no submodules."""
    return [
        difference.new
        for difference in diff_trees(repository, base, tree, with_trees=True)
        if difference.status != "D" and difference.new_mode != encoding.GITLINK
    ]


def decode_raw_tree(data: bytes, object_format: str) -> dict[bytes, tuple[bytes, bytes]]:
    """Decode a tree like `decode_tree`, but with binary oids and five times as fast."""
    pattern = _SHA256_ENTRY if object_format == "sha256" else _SHA1_ENTRY
    matches = pattern.findall(data)
    entries = {name: (mode, oid) for mode, name, oid in matches}
    size = sum(len(mode) + len(name) + len(oid) + 2 for mode, name, oid in matches)
    if len(entries) == len(matches) and size == len(data):
        return entries
    entries_by_hex = encoding.decode_tree(data, object_format)
    return {name: (mode, bytes.fromhex(oid)) for name, (mode, oid) in entries_by_hex.items()}


def find_odd_entry(entries: Mapping[bytes, tuple[bytes, object]]) -> str:
    """Describe the first entry that git would not write, such as ".."; "" for none."""
    for name, (mode, _) in entries.items():
        if name[:1] == b"." and name.lower() in _BARRED:
            return f"an entry is named {name!r}"
        if mode not in _USUAL and int(mode, 8) & 0o170000 not in _TYPES:
            return f"the entry {name[:60]!r} has the invalid mode {mode.decode('ascii')}"
    return ""


def _subtree_oid(entry: tuple[bytes, str] | None) -> str:
    return entry[1] if entry is not None and entry[0] == encoding.DIRECTORY else ""


_MOST_TREES, _MOST_ENTRIES = 256, 1000  # that a counter remembers


class DiffCounter:
    """Count the paths at which trees differ, up to limits; remember the counts.

    Trees that contain each other 256 times can expand a few kilobytes to endless paths.
    """

    def __init__(self, repository: Repository, limits: PathLimits) -> None:
        self._repository = repository
        self._limits = limits
        self._counted: dict[tuple[str, str], int] = {}
        self._flaws: dict[str, str] = {}
        self._recent: dict[str, encoding.Entries] = {}
        self._unreadable: set[str] = set()
        self._pairs_lacking_trees: set[tuple[str, str]] = set()
        self.flaw = ""  # what is wrong with the first malformed tree

    def exceeds_path_limit(self, old: str, new: str) -> bool:
        """Return whether trees differ at more paths than the limit, or `new` is malformed."""
        return self._count_differences(old, new, 0) > self._limits.count

    def met_unreadable_tree(self, old: str, new: str) -> bool:
        """Return whether a tree at or below a pair was unreadable, once these are counted."""
        return (old, new) in self._pairs_lacking_trees

    def _count_differences(self, old: str, new: str, depth: int) -> int:
        if old == new:
            return 0
        known_count = self._counted.get((old, new))
        if known_count is not None:
            return known_count
        if depth > self._limits.depth:
            return self._limits.count + 1
        old_entries, new_entries = self._recall_entries(old), self._recall_entries(new)
        if old in self._unreadable or new in self._unreadable:
            self._pairs_lacking_trees.add((old, new))
        total_count, flaw = 0, self._flaws.get(new) or find_odd_entry(new_entries)
        if flaw:
            self.flaw = self.flaw or f"the tree {new}: {flaw}"
            old_entries, new_entries, total_count = {}, {}, self._limits.count + 1
        for name in old_entries.keys() | new_entries.keys():
            both_entries = old_entries.get(name), new_entries.get(name)
            if both_entries[0] != both_entries[1]:
                pair = _subtree_oid(both_entries[0]), _subtree_oid(both_entries[1])
                total_count += 1 + self._count_differences(*pair, depth + 1)
                if pair in self._pairs_lacking_trees:
                    self._pairs_lacking_trees.add((old, new))
                if total_count > self._limits.count:
                    break
        self._counted[old, new] = total_count
        return total_count

    def _recall_entries(self, tree: str) -> encoding.Entries:
        # In a series of snapshots, each tree is compared with the one before and the one after.
        entries = self._recent.get(tree)
        if entries is None:
            entries = self.read_tree_entries(tree)
            if len(entries) <= _MOST_ENTRIES:
                self._recent[tree] = entries
            if len(self._recent) > _MOST_TREES:
                del self._recent[next(iter(self._recent))]
        return entries

    def read_tree_entries(self, tree: str) -> encoding.Entries:
        item = next(self._repository.cat_file.read_contents([tree])) if tree else None
        if item is None:
            if tree:
                self._unreadable.add(tree)
            return {}
        try:
            if item[1] != "tree":
                raise encoding.MalformedTree(f"the object is a {item[1]}")
            raw_entries = decode_raw_tree(item[2], self._repository.object_format)
            return {name: (mode, oid.hex()) for name, (mode, oid) in raw_entries.items()}
        except encoding.MalformedTree as error:
            self._flaws[tree] = str(error)
            return {}
