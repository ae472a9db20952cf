"""Read and write the tree of a snapshot (`docs/format.md`), which may be fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.contents import bounds
from gitckpt.git.contents.bounds import UnsoundSnapshot
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import (
    DIRECTORY,
    FILE,
    FILES,
    GITLINK,
    OVERSIZED,
    Entries,
    MalformedTree,
    decode_tree,
    empty_tree,
    encode_tree,
    object_id,
    stays_within,
)
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree import operation as rewrites
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import budget
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from gitckpt.git.objects.diff import Leaf
    from gitckpt.git.objects.port import Objects
    from gitckpt.model.checkpoint import Checkpoint, Worktree
    from gitckpt.store.snapshot.limits import Limits

    class Beside(Protocol):
        """Files outside of the worktree that a snapshot keeps as well."""

        def added(self, repository: Repository, objects: Objects, found: Worktree, commit: str, limits: Limits) -> Worktree:
            """Return what a capture found, with these files in its tree."""


INTENT, ASSUMED, SKIPPED, ABSENT = "intent-to-add", "assume-unchanged", "skip-worktree", "absent"
RAW, CONVERSION = b"raw", b"conversion"  # entries of a snapshot's tree

# Flags of intent-to-add entries whose modes are not those of a plain file.
INTENDED = {"executable": intent.EXECUTABLE, "link": intent.LINK, "repository": intent.REPOSITORY}

VERIFY = "see what is wrong: git ckpt verify"

base_tree = bounds.base_tree


@dataclass(slots=True)
class Contents:
    files: str  # the tree of the whole worktree
    # A tree for each stage that has entries; if empty, the index equals the linked commit.
    index: Mapping[int, str] = field(default_factory=dict)
    # Paths by flag: those of the index, and `ABSENT` for skipped entries without a file.
    flags: Mapping[str, list[bytes]] = field(default_factory=dict)
    operation: Mapping[str, bytes] = field(default_factory=dict)  # from `operation.collect`
    sparse: bytes | None = None  # from `sparse.read`
    raw: str | None = None  # the tree of files, byte for byte, that git would write differently
    conversion: bytes = b""  # `attributes.settings` at the time of the capture
    directories: list[bytes] = field(default_factory=list)  # without files; only the innermost ones
    modes: Mapping[bytes, int] = field(default_factory=dict)  # those narrower than the umask allows
    # Whether only the commit was recorded: untracked files are not known.
    is_of_commit: bool = False

    @property
    def away(self) -> list[bytes]:
        """Paths of skipped entries that had no file."""
        # In a sparse checkout git clears the flag if there is a file; elsewhere a file is usual.
        return self.flags.get(ABSENT if self.sparse is None else SKIPPED, [])


def flags_of(intended: Mapping[bytes, bytes]) -> dict[str, list[bytes]]:
    """Return intent-to-add entries (modes by path) as paths by flag."""
    found = {INTENT: sorted(intended)}
    found |= {flag: sorted(path for path, mode in intended.items() if mode == its) for flag, its in INTENDED.items()}
    return {flag: paths for flag, paths in found.items() if paths}


def require_commit(repository: Repository, checkpoint: Checkpoint) -> None:
    commit = checkpoint.git_sha
    if commit and repository.cat_file.info(f"{commit}^{{commit}}") is None:
        hint = f"fetch it from where it still is, or {VERIFY}"
        raise WorktreeError(f"commit {commit} of checkpoint {checkpoint.id} is missing", hint=hint)


def with_commit(repository: Repository, checkpoint: Checkpoint, head: str | None) -> tuple[Checkpoint, str | None]:
    """Return a checkpoint that can be restored without its commit, and a remark.

    The commit that `git filter-repo` put in its place stands in, else HEAD. It decides what is
    staged. The operation in progress is left out, as it is about commits that are gone.

    Args:
        head: the commit of HEAD, "" for none; None if HEAD must not stand in, as no person looks
            at the worktree before work continues.

    Returns:
        The checkpoint, and a remark for the user; None if the commit exists.

    Raises:
        WorktreeError: its commit is missing, and nothing can stand in.
    """
    commit = checkpoint.git_sha
    if not commit or repository.cat_file.info(f"{commit}^{{commit}}") is not None:
        return checkpoint, None
    new = rewrites.filtered(repository).get(commit, "")
    is_there = bool(new) and repository.cat_file.info(f"{new}^{{commit}}") is not None
    if not is_there and (checkpoint.tree is None or head is None):
        require_commit(repository, checkpoint)
    files = checkpoint.worktree
    if files is not None:
        files = replace(files, operation=None, operation_commit=None)
    if is_there:
        said = f"commit {commit[:10]} was rewritten: taken to be {new[:10]}"
        said += "" if checkpoint.tree is not None else ", whose files these are"
        return replace(checkpoint, git_sha=new, worktree=files), said
    said = f"commit {commit[:10]} is gone: the files are those of the checkpoint, and what is staged is as HEAD has it"
    return replace(checkpoint, git_sha=head or "", worktree=files), said


def files_of(repository: Repository, checkpoint: Checkpoint) -> str:
    """Return the tree of a checkpoint's files."""
    return tree_of_files(repository, checkpoint.tree, checkpoint.git_sha)


def tree_of_files(repository: Repository, snapshot: str | None, commit: str) -> str:
    """Return the tree of the files of a snapshot, or of a commit ("" for none)."""
    if snapshot is None and not commit:
        return empty_tree(repository.object_format)
    name = f"{commit}^{{tree}}" if snapshot is None else f"{snapshot}:files"
    bounds.require(repository, snapshot, commit)
    found = repository.cat_file.info(name)
    if found is None:
        raise WorktreeError(f"{name} is missing", hint=VERIFY)
    return found[0]


def write(repository: Repository, objects: Objects, content: Contents) -> str:
    """Write the tree of a snapshot and return its oid; the caller flushes it."""
    pending: list[tuple[str, bytes]] = []

    def put(kind: str, data: bytes) -> str:
        pending.append((kind, data))
        return object_id(kind, data, repository.object_format)

    def put_directory(files: Mapping[str, bytes]) -> str:
        entries: Entries = {}
        below: dict[str, dict[str, bytes]] = {}
        for name, data in files.items():
            first, slash, rest = name.partition("/")
            if slash:
                below.setdefault(first, {})[rest] = data
            else:
                entries[os.fsencode(name)] = (FILE, put("blob", data))
        for name, inner in below.items():
            entries[os.fsencode(name)] = (DIRECTORY, put_directory(inner))
        return put("tree", encode_tree(entries))

    whole: Entries = {b"files": (DIRECTORY, content.files)}
    if content.index:
        stages: Entries = {str(stage).encode(): (DIRECTORY, tree) for stage, tree in content.index.items()}
        whole[b"index"] = (DIRECTORY, put("tree", encode_tree(stages)))
    if content.flags:
        records = (b"%s %s\0" % (flag.encode(), path) for flag, paths in content.flags.items() for path in paths)
        whole[b"flags"] = (FILE, put("blob", b"".join(records)))
    if content.operation:
        whole[b"operation"] = (DIRECTORY, put_directory(content.operation))
        merged = content.operation.get("AUTO_MERGE", b"").decode("ascii", "replace").strip()
        if merged:
            whole[b"auto-merge"] = (DIRECTORY, merged)  # a gc may take it: git does not protect it
    if content.sparse is not None:
        whole[b"sparse"] = (FILE, put("blob", content.sparse))
    if content.raw is not None:
        whole[RAW] = (DIRECTORY, content.raw)
    if content.conversion:
        whole[CONVERSION] = (FILE, put("blob", content.conversion))
    if content.directories:
        whole[b"directories"] = (FILE, put("blob", b"".join(path + b"\0" for path in content.directories)))
    if content.modes:
        whole[b"modes"] = (FILE, put("blob", b"".join(b"%03o %s\0" % (mode, path) for path, mode in sorted(content.modes.items()))))
    tree = put("tree", encode_tree(whole))
    objects.write(pending, flushed=False)
    return tree


def contents_of(checkpoint: Checkpoint, repository: Repository, objects: Objects) -> Contents:
    bounds.require(repository, checkpoint.tree, checkpoint.git_sha)
    found = read(repository, objects, checkpoint.tree, checkpoint.git_sha)
    return replace(found, is_of_commit=checkpoint.worktree is None)


def read(repository: Repository, objects: Objects, tree: str | None, commit: str) -> Contents:
    """Return what a snapshot holds; without a `tree`, the linked commit ("" for none).

    Raises:
        WorktreeError: an object is missing, or the tree is not a snapshot.
    """
    if tree is None:
        return Contents(base_tree(repository, commit))
    reader = _Reader(repository, objects)
    parts = reader.entries(tree)
    bounds.require_shape(parts, tree)
    stages = reader.entries(parts[b"index"][1]) if b"index" in parts else {}
    flags: dict[str, list[bytes]] = {}
    for record in reader.blob(parts[b"flags"][1]).split(b"\0")[:-1] if b"flags" in parts else ():
        flag, _, path = record.partition(b" ")
        flags.setdefault(flag.decode("utf-8", "replace"), []).append(path)
    modes = (record.partition(b" ") for record in (reader.blob(parts[b"modes"][1]).split(b"\0")[:-1] if b"modes" in parts else ()))
    return Contents(
        files=parts[b"files"][1],
        index={int(stage): oid for stage, (_, oid) in stages.items() if stage in (b"0", b"1", b"2", b"3")},
        flags=flags,
        operation=reader.files_below(parts[b"operation"][1]) if b"operation" in parts else {},
        sparse=reader.blob(parts[b"sparse"][1]) if b"sparse" in parts else None,
        raw=parts[RAW][1] if RAW in parts else None,
        conversion=reader.blob(parts[CONVERSION][1]) if CONVERSION in parts else b"",
        directories=reader.blob(parts[b"directories"][1]).split(b"\0")[:-1] if b"directories" in parts else [],
        modes={path: int(mode, 8) & 0o777 for mode, _, path in modes if re.fullmatch(rb"[0-7]{1,6}", mode)},
    )


def write_raw(repository: Repository, objects: Objects, raw: Mapping[bytes, str]) -> str | None:
    """Write the tree of files kept byte for byte (oids by path), if there are any."""
    pending: list[tuple[str, bytes]] = []

    def put(files: Mapping[bytes, str]) -> str:
        entries: Entries = {}
        below: dict[bytes, dict[bytes, str]] = {}
        for path, oid in files.items():
            first, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(first, {})[rest] = oid
            else:
                entries[first] = (FILE, oid)
        entries |= {name: (DIRECTORY, put(inner)) for name, inner in below.items()}
        data = encode_tree(entries)
        pending.append(("tree", data))
        return object_id("tree", data, repository.object_format)

    if not raw:
        return None
    tree = put(raw)
    objects.write(pending, flushed=False)
    return tree


def raw_of(repository: Repository, contents: Contents) -> dict[bytes, str]:
    """Return oids of the files to restore byte for byte; skips those not in `files`."""
    if contents.raw is None:
        return {}
    found = {}
    known = regular_files(repository, contents.files)
    for path, mode, oid in _leaves(repository, contents.raw):
        if mode not in FILES:
            raise WorktreeError(f"the snapshot keeps {path!r} byte for byte, which is no file", hint="it was not made by gitckpt")
        if path in known:
            found[path] = oid
    return found


def raw_tree(repository: Repository, tree: str | None) -> str | None:
    """Return the tree of the files that a snapshot keeps byte for byte, or None."""
    found = repository.cat_file.info(f"{tree}:{RAW.decode()}") if tree is not None else None
    return found[0] if found is not None and found[1] == "tree" else None


def conversion_of(repository: Repository, tree: str | None) -> bytes:
    if tree is None:
        return b""
    found = next(repository.cat_file.contents([f"{tree}:{CONVERSION.decode()}"], budget.LIST))
    return found[2] if found is not None and found[1] == "blob" else b""


def differing_raw(repository: Repository, before: Contents, after: Contents) -> list[bytes]:
    """Return the paths at which two snapshots keep different bytes."""
    old, new = ({} if before.raw == after.raw else raw_of(repository, each) for each in (before, after))
    return sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))


def regular_files(repository: Repository, tree: str) -> dict[bytes, str]:
    """Return the oids of the files of a tree by path, without links and submodules."""
    return {path: oid for path, mode, oid in _leaves(repository, tree) if mode in FILES}


def _leaves(repository: Repository, tree: str) -> list[Leaf]:
    try:
        return leaves(repository, tree)
    except GitError as error:
        raise WorktreeError(f"the tree {tree} of the snapshot cannot be read: {error.message}", hint=VERIFY) from None


def decoded(data: bytes, repository: Repository, tree: str) -> Entries:
    try:
        return decode_tree(data, repository.object_format)
    except MalformedTree as error:
        raise UnsoundSnapshot(f"the tree {tree} of the snapshot: {error}", hint=VERIFY) from None


class _Reader:
    def __init__(self, repository: Repository, objects: Objects) -> None:
        self._repository = repository
        self._objects = objects

    def entries(self, tree: str) -> Entries:
        found = next(self._objects.read([tree], None))
        if found is None or found[0] != "tree":
            raise WorktreeError(f"the tree {tree} of the snapshot is missing", hint=VERIFY)
        return decoded(found[1], self._repository, tree)

    def blob(self, oid: str) -> bytes:
        return self._blobs([oid], budget.LIST)[0]

    def _blobs(self, oids: Sequence[str], most: int) -> list[bytes]:
        contents: list[bytes] = []
        size = 0
        for oid, found in zip(oids, self._objects.read(oids, most), strict=True):
            if found is None or found[0] not in ("blob", OVERSIZED):
                raise WorktreeError(f"the blob {oid} of the snapshot is missing", hint=VERIFY)
            size += len(found[1])
            if found[0] == OVERSIZED or size > most:
                raise UnsoundSnapshot(
                    f"the snapshot keeps more than {most:,} bytes of what is read as a whole: with {oid}", hint=bounds.HINT
                )
            contents.append(found[1])
        return contents

    def files_below(self, top: str) -> dict[str, bytes]:
        oids: dict[str, str] = {}
        level, count, depth = [("", top)], 0, 0
        while level:
            below = []
            for prefix, tree in level:
                entries = self.entries(tree)
                count += len(entries)
                if count > budget.OPERATION.count or depth > budget.OPERATION.depth:
                    raise UnsoundSnapshot(f"the operation {top} of the snapshot has {bounds.OPERATION}", hint=bounds.HINT)
                for name, (mode, oid) in entries.items():
                    path = prefix + os.fsdecode(name)
                    if mode == DIRECTORY:
                        below.append((f"{path}/", oid))
                    else:
                        oids[path] = oid
            level, depth = below, depth + 1
        return dict(zip(oids, self._blobs([*oids.values()], budget.OPERATION_SIZE), strict=True))


# Single files and extras of a snapshot.


# Entry of a snapshot for the files that a run keeps beside its worktree.
_BESIDE = "run"


@dataclass(frozen=True, slots=True)
class Extras:
    """What a snapshot holds beyond git's trees; paths are relative to the top.

    Attributes:
        raw: files kept byte for byte because git would write them differently.
        directories: the deepest directories that hold no file of the snapshot.
        modes: permission bits narrower than the umask allows, by path.
    """

    raw: Sequence[bytes]
    directories: Sequence[bytes]
    modes: Mapping[bytes, int]


def extras(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> Extras:
    """Return what the snapshot of a checkpoint holds besides git's files."""
    if checkpoint.tree is None:
        return Extras((), (), {})
    contents = contents_of(checkpoint, repository, objects)
    return Extras(sorted(raw_of(repository, contents)), contents.directories, contents.modes)


def content(repository: Repository, checkpoint: Checkpoint, path: bytes, *, beside: bool) -> bytes:
    """Return the content of a file of a checkpoint.

    Args:
        path: from the top of the worktree.
        beside: whether it is a file that the run keeps beside the worktree.

    Raises:
        NotFoundError: there is no such file.
        WorktreeError: the files or its content are missing.
    """
    if beside:
        bounds.require(repository, checkpoint.tree, "")
        trees = [f"{checkpoint.tree}:{_BESIDE}"] if checkpoint.tree is not None else []
    else:
        files = files_of(repository, checkpoint)
        raw = raw_tree(repository, checkpoint.tree)  # raw files come first: they hold the bytes of the file
        trees = [files] if raw is None else [raw, files]
    for tree in trees:
        oid = _blob(repository, tree, path)
        if oid is not None:
            blob = next(repository.cat_file.contents([oid]))
            if blob is None:
                raise WorktreeError(f"{oid}, the content of {os.fsdecode(path)}, is missing", hint=VERIFY)
            return blob[2]
    where = "beside its worktree" if beside else "among its files"
    raise NotFoundError(f"checkpoint {checkpoint.id} has no file {os.fsdecode(path)!r} {where}", hint=f"see: git ckpt show {checkpoint.id}")


def _blob(repository: Repository, tree: str, path: bytes) -> str | None:
    if not stays_within(path) or repository.cat_file.info(tree) is None:
        return None
    found = diff.leaf(repository, tree, path)  # `cat-file` reads a name per line, and a path may contain newlines
    return found[2] if found is not None and found[1] not in (DIRECTORY, GITLINK) else None


def turn_into(index: PrivateIndex, contents: Contents, commit: str, listed: str | None = None) -> None:
    """Turn an index that lists the files of a worktree into the index of a snapshot.

    Keeps what git knows of unchanged files, so that it need not read them again. `listed` is the
    tree of the present entries, if known.
    """
    merged = contents.index.get(0) if contents.index else base_tree(index.repository, commit)
    if listed is None or merged is None:
        index.edit("read-tree", *(["--reset", merged] if merged else ["--empty"]))
    else:  # half the time, as few entries differ
        differing = diff.differences(index.repository, listed, merged)
        index.put(one.line for one in sorted(differing, key=lambda one: one.status != "D"))
    index.put(conflicts(index.repository, contents))
    add_in_intent(index, contents, contents.flags.get(INTENT, ()))
    for flag in (ASSUMED, SKIPPED):
        change_flag(index, flag, contents.flags.get(flag, ()), ())


def conflicts(repository: Repository, contents: Contents) -> list[bytes]:
    """Return the entries in conflict, as lines for `PrivateIndex.put`."""
    lines: list[bytes] = []
    for stage in (1, 2, 3):
        tree = contents.index.get(stage)
        found = leaves(repository, tree) if tree else ()
        lines += [b"%s %s %d\t%s" % (mode, oid.encode("ascii"), stage, path) for path, mode, oid in found]
    return lines


def add_in_intent(index: PrivateIndex, contents: Contents, paths: Collection[bytes]) -> None:
    modes = {path: mode for flag, mode in INTENDED.items() for path in contents.flags.get(flag, ())}
    if paths:
        intent.add(index, paths, modes)


def change_flag(index: PrivateIndex, flag: str, gets: Collection[bytes], loses: Collection[bytes]) -> None:
    """Set or clear a flag of entries: "assume-unchanged" or "skip-worktree".

    Skips paths that are not in the index or in conflict.
    """
    listed = {path for path, _, _, stage, _ in index.entries() if stage == 0} if gets or loses else set()
    for option, paths in ((f"--{flag}", gets), (f"--no-{flag}", loses)):
        index.update(option, sorted(set(paths).intersection(listed)))
