"""Check that the trees of a snapshot are well-formed and not too large."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from gitckpt.git import fsync, graph
from gitckpt.git.files import private_dirs
from gitckpt.git.objects.diff import DiffCounter, decode_raw_tree, find_odd_entry
from gitckpt.git.objects.encoding import DIRECTORY, Entries, MalformedTree, empty_tree_oid
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.model import budget
from gitckpt.model.budget import PathLimits
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# Limits of a snapshot.

HINT = "another program made the snapshot: find it with git ckpt list, then: git ckpt remove ID"

_DIRECTORIES = (b"files", b"index", b"operation", b"raw", b"run", b"auto-merge")
_LISTS = (b"flags", b"directories", b"modes", b"sparse", b"conversion")

_LIMITS = budget.OPERATION
# Beyond this, an operation in progress is neither captured nor restored.
OPERATION = (
    f"more than {_LIMITS.count:,} files, {_LIMITS.depth} nested directories, "
    f"or {budget.OPERATION_SIZE:,} bytes"
)


class UnsoundSnapshot(WorktreeError):
    """A snapshot is malformed or too large, so gitckpt cannot have made it."""


def require_sound_snapshot(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Raise `UnsoundSnapshot` if a snapshot is too large or has a malformed tree.

    Trees that are also in HEAD are not checked. `snapshot` is the oid of the snapshot's tree. If it
    is None, the tree of `commit` is checked instead; "" means no commit.
    """
    head = repository.cat_file.info("HEAD^{tree}")
    expansion, base = DiffCounter(repository, budget.SNAPSHOT), head[0] if head is not None else ""
    if snapshot is None:
        parts = {b"": (DIRECTORY, tree_of_commit(repository, commit))}
    else:
        parts = expansion.read_tree_entries(snapshot)
        if repository.cat_file.info(snapshot) is not None:
            require_snapshot_shape(parts, snapshot)
    stages = expansion.read_tree_entries(parts.pop(b"index")[1]) if b"index" in parts else {}
    trees = [oid for mode, oid in (*parts.values(), *stages.values()) if mode == DIRECTORY]
    is_beyond = any(expansion.exceeds_path_limit(base, tree) for tree in trees)
    if expansion.flaw:
        root = f"the snapshot {snapshot}" if snapshot else f"the commit {commit}"
        raise UnsoundSnapshot(f"{root} is malformed: {expansion.flaw}", hint=HINT)
    if is_beyond:
        limit = f"more than {budget.SNAPSHOT.count:,} paths, or too many nested directories"
        raise UnsoundSnapshot(f"the tree {snapshot or commit} holds {limit}", hint=HINT)


def require_snapshot_shape(parts: Entries, snapshot: str) -> None:
    """Raise `UnsoundSnapshot` if an entry of the snapshot's tree has the wrong type."""
    message = f"{snapshot} is not the tree of a snapshot"
    if b"files" not in parts:
        raise UnsoundSnapshot(f"{message}: it has no files/", hint=HINT)
    for name, (mode, _) in parts.items():
        if (name in _DIRECTORIES and mode != DIRECTORY) or (name in _LISTS and mode == DIRECTORY):
            kind = "a list" if name in _LISTS else "a directory"
            raise UnsoundSnapshot(f"{message}: {name.decode('ascii')} is not {kind}", hint=HINT)


def is_operation_too_large(operation: Mapping[str, bytes]) -> bool:
    directories = {os.path.dirname(name) for name in operation}
    count = len(operation) + sum(name.count("/") + 1 for name in directories)  # an upper bound
    is_deep = any(name.count("/") > _LIMITS.depth for name in operation)
    size = sum(map(len, operation.values()))
    return is_deep or count > _LIMITS.count or size > budget.OPERATION_SIZE


def tree_of_commit(repository: Repository, commit: str) -> str:
    tree = repository.cat_file.info(f"{commit}^{{tree}}") if commit else None
    return tree[0] if tree else empty_tree_oid(repository.object_format)


# Check that trees are as git writes them, and count their paths: each tree is read once.

# In bytes: no directory of a million files is larger; git itself handles larger ones.
_LARGEST = 64 << 20

_TREE = DIRECTORY.zfill(6)

_Filter = Callable[[list[str]], list[str]]


class TreeChecker:
    """Check trees and count the paths in them; a missing tree counts as empty."""

    def __init__(self, repository: Repository, roots: Iterable[str], readable: _Filter) -> None:
        # `readable` returns which trees may be read: a partial clone would fetch missing ones.
        self._repository = repository
        self._flaws: dict[str, str] = {}
        self._below: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._known: dict[str, tuple[int, int, str]] = {}
        self._names: dict[str, str] = {}  # one string per oid, however many trees name it
        queue = list(dict.fromkeys(roots))
        while queue:
            queue = readable([oid for oid in dict.fromkeys(queue) if oid not in self._below])
            trees = repository.cat_file.read_contents(queue, _LARGEST)
            queue = [
                child
                for oid, tree in zip(queue, trees, strict=True)
                for child in self._add_tree(oid, tree)
            ]

    def find_tree_flaw(self, root: str) -> str:
        oid = self._count_paths(root)[2]
        return f"the tree {oid}: {self._flaws[oid]}" if oid else ""

    def exceeds_path_limits(self, root: str, limits: PathLimits) -> bool:
        paths, depth, _ = self._count_paths(root)
        return paths > limits.count or depth > limits.depth

    def _add_tree(self, oid: str, item: tuple[str, str, bytes] | None) -> tuple[str, ...]:
        self._below[oid] = 0, ()
        if item is None or item[1] not in ("tree", "blob", "commit", "tag"):
            return ()
        if item[1] != "tree":
            self._flaws[oid] = f"a {item[1]} is listed as a directory"
            return ()
        try:
            entries = decode_raw_tree(item[2], self._repository.object_format)
        except MalformedTree as error:
            self._flaws[oid] = str(error)
            return ()
        trees = {name: raw for name, (mode, raw) in entries.items() if mode.zfill(6) == _TREE}
        names = [name + b"/" if name in trees else name for name in entries]
        is_sorted = names == sorted(names)
        flaw = find_odd_entry(entries) or (
            "" if is_sorted else "the entries are not in the order of git"
        )
        if flaw:
            self._flaws[oid] = flaw
        oids = (raw.hex() for raw in trees.values())
        children = tuple(self._names.setdefault(child, child) for child in oids)
        self._below[oid] = len(entries), children
        return children

    def _count_paths(self, root: str) -> tuple[int, int, str]:
        # Iterative: a fetched tree may have any depth.
        waiting_oids = [root]
        while waiting_oids:
            oid = waiting_oids[-1]
            count, child_oids = self._below.get(oid, (0, ()))
            if oid in self._known:
                waiting_oids.pop()
                continue
            uncounted_oids = [child for child in child_oids if child not in self._known]
            if uncounted_oids:
                waiting_oids += uncounted_oids
                continue
            waiting_oids.pop()
            counts = [self._known[child] for child in child_oids]
            flawed_oid = oid if oid in self._flaws else next((bad for *_, bad in counts if bad), "")
            depth = max((depth for _, depth, _ in counts), default=-1) + 1
            self._known[oid] = count + sum(paths for paths, *_ in counts), depth, flawed_oid
        return self._known[root]


# A quarantine for many new objects, which become packs: git would write and flush a file for each.

# The order in which the files of a pack are moved: git finds a pack by its .idx.
_ENDINGS = (".pack", ".rev", ".idx")


class ObjectQuarantine:
    """A temporary object directory, whose objects move to the repository later."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._objects = os.path.join(repository.common_dir, "objects")
        self._path = repository.scratch_path("objects")
        # Without fsync: packs are flushed when they are moved, loose objects need no flush.
        self.options = ("-c", "core.bigFileThreshold=1", "-c", "core.fsync=none")
        self.environment = {
            "GIT_OBJECT_DIRECTORY": self._path,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote_path(self._objects),
        }

    def __enter__(self) -> Self:
        os.makedirs(os.path.join(self._path, "pack"))
        return self

    def __exit__(self, *_: object) -> None:
        private_dirs.discard_directory(self._path)  # leftovers are swept later

    def migrate_objects(self, deadline: float | None = None) -> None:
        """Move the objects into the repository, as packs that are flushed to the disk."""
        pack_dir = os.path.join(self._path, "pack")
        oids = [
            prefix + name
            for prefix in os.listdir(self._path)
            if len(prefix) == 2
            for name in os.listdir(os.path.join(self._path, prefix))
        ]
        names = os.listdir(pack_dir)
        index_names = [name for name in names if name.endswith(".idx")]
        if oids or len(index_names) > 1:
            for name in index_names:
                oids += graph.list_pack(self._repository, os.path.join(pack_dir, name), deadline)
            # No search for deltas: it would dominate the time, and a later repack finds them.
            pack_prefix = os.path.join(self._path, "one")
            words = (*self.options, "pack-objects", "-q", "--window=0", pack_prefix)
            data = "".join(f"{oid}\n" for oid in dict.fromkeys(oids)).encode("ascii")
            self._repository.git.run(*words, data=data, env=self.environment, deadline=deadline)
            for name in names:
                os.unlink(os.path.join(pack_dir, name))
            for name in os.listdir(self._path):
                if name.startswith("one-"):
                    os.replace(f"{self._path}/{name}", os.path.join(pack_dir, f"pack{name[3:]}"))
            names = os.listdir(pack_dir)
        target_dir = os.path.join(self._objects, "pack")
        try:
            os.makedirs(target_dir, exist_ok=True)
            fsync.flush(os.path.join(pack_dir, name) for name in names)
            for name in (name for ending in _ENDINGS for name in names if name.endswith(ending)):
                os.replace(os.path.join(pack_dir, name), os.path.join(target_dir, name))
            fsync.flush([target_dir])
        except OSError as error:
            raise GitError(["update-index"], 1, f"{error.filename}: {error.strerror}") from None


def _quote_path(path: str) -> str:
    # For git's colon-separated lists (Documentation/git.txt).
    if ":" not in path and '"' not in path and path.isprintable():
        return path
    octal = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in os.fsencode(path)
    )
    return f'"{octal}"'
