"""Check a snapshot before use: it may have been fetched.

Its trees must be as git writes them, and their paths within fixed limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from gitckpt.git import fsync
from gitckpt.git.files import premises
from gitckpt.git.objects.diff import Expansion, listed, oddity
from gitckpt.git.objects.encoding import DIRECTORY, Entries, MalformedTree, empty_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.model import budget
from gitckpt.model.budget import Paths
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


# Limits of a snapshot.

HINT = "it was not made by gitckpt: git ckpt list, and git ckpt remove with its id"

_DIRECTORIES = (b"files", b"index", b"operation", b"raw", b"run", b"auto-merge")
_LISTS = (b"flags", b"directories", b"modes", b"sparse", b"conversion")

_MOST = budget.OPERATION
# Beyond this, an operation in progress is neither kept nor restored.
OPERATION = f"more than {_MOST.count:,} files, {_MOST.depth} directories within each other, or {budget.OPERATION_SIZE:,} bytes"


class UnsoundSnapshot(WorktreeError):
    """A snapshot that gitckpt did not make."""


def require(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Raise `UnsoundSnapshot` if a snapshot is too large or has a malformed tree.

    What HEAD already has is not checked. Without a `snapshot` (oid of its tree), the `commit` has
    the files; "" for none.
    """
    head = repository.cat_file.info("HEAD^{tree}")
    whole, base = Expansion(repository, budget.SNAPSHOT), head[0] if head is not None else ""
    parts = whole.entries(snapshot) if snapshot is not None else {b"": (DIRECTORY, base_tree(repository, commit))}
    if snapshot is not None and repository.cat_file.info(snapshot) is not None:
        require_shape(parts, snapshot)
    stages = whole.entries(parts.pop(b"index")[1]) if b"index" in parts else {}
    trees = [oid for mode, oid in (*parts.values(), *stages.values()) if mode == DIRECTORY]
    is_beyond = any(whole.is_beyond(base, tree) for tree in trees)
    if whole.flaw:
        raise UnsoundSnapshot(f"{whole.flaw}: {'the snapshot' if snapshot else 'the commit'} {snapshot or commit} leads to it", hint=HINT)
    if is_beyond:
        raise UnsoundSnapshot(_too_much(snapshot or commit), hint=HINT)


def _too_much(tree: str) -> str:
    return f"the tree {tree} holds more than {budget.SNAPSHOT.count:,} paths, or directories within each other without end"


def require_shape(parts: Entries, snapshot: str) -> None:
    """Raise `UnsoundSnapshot` unless directories and lists are where they belong."""
    if b"files" not in parts:
        raise UnsoundSnapshot(f"{snapshot} is not the tree of a snapshot: it has no files/", hint=HINT)
    for name, (mode, _) in parts.items():
        if (name in _DIRECTORIES and mode != DIRECTORY) or (name in _LISTS and mode == DIRECTORY):
            is_list = "a list" if name in _LISTS else "a directory"
            raise UnsoundSnapshot(f"{snapshot} is not the tree of a snapshot: {name.decode('ascii')} is not {is_list}", hint=HINT)


def is_too_much(operation: Mapping[str, bytes]) -> bool:
    directories = {os.path.dirname(name) for name in operation}
    count = len(operation) + sum(name.count("/") + 1 for name in directories)  # an upper bound
    deep = any(name.count("/") > budget.OPERATION.depth for name in operation)
    return count > budget.OPERATION.count or deep or sum(map(len, operation.values())) > budget.OPERATION_SIZE


def base_tree(repository: Repository, commit: str) -> str:
    tree = repository.cat_file.info(f"{commit}^{{tree}}") if commit else None
    return tree[0] if tree else empty_tree(repository.object_format)


# Check that trees are as git writes them, and count their paths: each tree is read once.

# In bytes: no directory of a million files is larger; git itself handles larger ones.
_LARGEST = 64 << 20

_TREE = DIRECTORY.zfill(6)


def _is_sorted(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bool:
    names = [name + b"/" if mode.zfill(6) == _TREE else name for name, (mode, _) in entries.items()]
    return names == sorted(names)


class Census:
    """Trees with everything below them; missing objects count as nothing.

    Args:
        there: returns which of some trees may be read: a partial clone would fetch missing ones.
    """

    def __init__(self, repository: Repository, roots: Iterable[str], there: Callable[[list[str]], list[str]] = lambda trees: trees) -> None:
        self._repository = repository
        self._flaws: dict[str, str] = {}
        self._below: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._known: dict[str, tuple[int, int, str]] = {}
        self._names: dict[str, str] = {}  # one string per oid, however many trees name it
        level = list(dict.fromkeys(roots))
        while level:
            level = there([oid for oid in dict.fromkeys(level) if oid not in self._below])
            level = [child for oid, found in zip(level, self._read(level), strict=True) for child in self._take(oid, found)]

    def flaw(self, root: str) -> str:
        oid = self._counted(root)[2]
        return f"the tree {oid}: {self._flaws[oid]}" if oid else ""

    def is_beyond(self, root: str, limits: Paths) -> bool:
        """Return whether a tree, repetitions counted, has too many or too deep paths."""
        paths, depth, _ = self._counted(root)
        return paths > limits.count or depth > limits.depth

    def _read(self, level: list[str]) -> Iterator[tuple[str, str, bytes] | None]:
        return self._repository.cat_file.contents(level, _LARGEST)

    def _take(self, oid: str, found: tuple[str, str, bytes] | None) -> tuple[str, ...]:
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
        # Iterative: a fetched tree may have any depth.
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
                flawed = oid if oid in self._flaws else next((flawed_below for *_, flawed_below in below if flawed_below), "")
                depth = max((depth for _, depth, _ in below), default=-1) + 1
                self._known[oid] = count + sum(paths for paths, *_ in below), depth, flawed
        return self._known[root]


# A quarantine for many new objects, which become packs: git would write and flush a file for each.

# The order in which the files of a pack are moved: git finds a pack by its .idx.
_ENDINGS = (".pack", ".rev", ".idx")


class Quarantine:
    """A directory for new objects of git commands; deleted at the end.

    Call git with `options` before the command name, and with `environment`.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._objects = os.path.join(repository.common_dir, "objects")
        self._path = repository.scratch("objects")
        # Without fsync: packs are flushed when they are moved, loose objects need no flush.
        self.options = ("-c", "core.bigFileThreshold=1", "-c", "core.fsync=none")
        self.environment = {"GIT_OBJECT_DIRECTORY": self._path, "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self._objects)}

    def __enter__(self) -> Self:
        os.makedirs(os.path.join(self._path, "pack"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        premises.discard(self._path)  # leftovers are swept later

    def migrate(self, deadline: float | None = None) -> None:
        """Move the objects into the repository, as packs flushed to disk."""
        pack = os.path.join(self._path, "pack")
        oids = [fan + name for fan in os.listdir(self._path) if len(fan) == 2 for name in os.listdir(os.path.join(self._path, fan))]
        made = os.listdir(pack)
        indexes = [name for name in made if name.endswith(".idx")]
        if oids or len(indexes) > 1:
            known = f"--object-format={self._repository.object_format}"
            for name in indexes:
                with open(os.path.join(pack, name), "rb") as file:
                    listed = self._repository.git.run("show-index", known, data=file.read(), deadline=deadline).out
                oids += [line.split(b" ")[1].decode("ascii") for line in listed.splitlines()]
            # No search for deltas: it would dominate the time, and a later repack finds them.
            words = (*self.options, "pack-objects", "-q", "--window=0", os.path.join(self._path, "one"))
            data = "".join(f"{oid}\n" for oid in dict.fromkeys(oids)).encode("ascii")
            self._repository.git.run(*words, data=data, env=self.environment, deadline=deadline)
            for name in made:
                os.unlink(os.path.join(pack, name))
            for name in os.listdir(self._path):
                if name.startswith("one-"):
                    os.replace(os.path.join(self._path, name), os.path.join(pack, f"pack{name[3:]}"))
            made = os.listdir(pack)
        target = os.path.join(self._objects, "pack")
        try:
            os.makedirs(target, exist_ok=True)
            fsync.flush(os.path.join(pack, name) for name in made)
            for name in (name for ending in _ENDINGS for name in made if name.endswith(ending)):
                os.replace(os.path.join(pack, name), os.path.join(target, name))
            fsync.flush([target])
        except OSError as error:
            raise GitError(["update-index"], 1, f"{error.filename}: {error.strerror}") from None


def _quoted(path: str) -> str:
    # For git's colon-separated lists (Documentation/git.txt).
    if ":" not in path and '"' not in path and path.isprintable():
        return path
    octal = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(path))
    return f'"{octal}"'
