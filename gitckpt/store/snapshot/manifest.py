"""Read and write the tree of a snapshot, as described in `docs/format.md`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.contents import bounds
from gitckpt.git.contents.bounds import UnsoundSnapshot
from gitckpt.git.objects import diff, encoding
from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import DIRECTORY, FILES, Entries, MalformedTree, object_id
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
    from gitckpt.git.objects.diff import Leaf
    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.model.checkpoint import Checkpoint


INTENT, ASSUMED, SKIPPED, ABSENT = "intent-to-add", "assume-unchanged", "skip-worktree", "absent"
RAW, CONVERSION = b"raw", b"conversion"  # entries of a snapshot's tree
_STAGES = (b"0", b"1", b"2", b"3")
_MODE = re.compile(rb"[0-7]{1,6}")

# Flags of intent-to-add entries whose mode is not that of a regular file.
INTENDED = {"executable": intent.EXECUTABLE, "link": intent.LINK, "repository": intent.REPOSITORY}

VERIFY = "find the cause: git ckpt verify"

base_tree = bounds.tree_of_commit


@dataclass(slots=True)
class Snapshot:
    files: str  # the tree of the whole worktree
    # A tree for each stage with entries; if {}, the index equals the linked commit.
    index: Mapping[int, str] = field(default_factory=dict)
    # Paths by flag: index flags, and `ABSENT` for skip-worktree entries without a file.
    flags: Mapping[str, list[bytes]] = field(default_factory=dict)
    operation: Mapping[str, bytes] = field(default_factory=dict)  # from `operation.collect`
    sparse: bytes | None = None  # from `sparse.read`
    raw: str | None = None  # a tree of raw copies: files that a checkout would write differently
    conversion: bytes = b""  # `attributes.describe_conversion` at the time of the capture
    directories: list[bytes] = field(default_factory=list)  # empty ones; only the innermost
    modes: Mapping[bytes, int] = field(default_factory=dict)  # if narrower than the umask allows
    # Whether no files were captured: `files` is the tree of the linked commit.
    is_of_commit: bool = False

    @property
    def absent_paths(self) -> list[bytes]:
        """Return the paths of skip-worktree entries that had no file when captured."""
        # In a sparse checkout git clears the flag if there is a file; elsewhere a file is usual.
        return self.flags.get(ABSENT if self.sparse is None else SKIPPED, [])


def intent_flags(intended: Mapping[bytes, bytes]) -> dict[str, list[bytes]]:
    flags = {INTENT: sorted(intended)}
    for flag, flag_mode in INTENDED.items():
        flags[flag] = sorted(path for path, mode in intended.items() if mode == flag_mode)
    return {flag: paths for flag, paths in flags.items() if paths}


def _has_commit(repository: Repository, commit: str) -> bool:
    return bool(commit) and repository.cat_file.info(f"{commit}^{{commit}}") is not None


def require_linked_commit(repository: Repository, checkpoint: Checkpoint) -> None:
    commit = checkpoint.git_sha
    if commit and not _has_commit(repository, commit):
        hint = f"fetch the commit from a clone that has it, or {VERIFY}"
        raise WorktreeError(f"commit {commit} of checkpoint {checkpoint.id} is missing", hint=hint)


def relink_commit(
    repository: Repository, checkpoint: Checkpoint, head: str | None
) -> tuple[Checkpoint, str | None]:
    """Replace the linked commit of a checkpoint if the repository lacks that commit.

    The new commit is the one to which `git filter-repo` rewrote the old commit, else `head`; an
    operation in progress is dropped. Returns the checkpoint, and a remark on the replacement or
    None. Raises WorktreeError if no commit can replace the old one.
    """
    commit = checkpoint.git_sha
    if not commit or _has_commit(repository, commit):
        return checkpoint, None
    new_commit = rewrites.read_filter_repo_map(repository).get(commit, "")
    if _has_commit(repository, new_commit):
        remark = f"commit {commit[:10]} was rewritten: using {new_commit[:10]} instead"
        remark += "" if checkpoint.tree is not None else ", with the files of that commit"
    else:
        if checkpoint.tree is None or head is None:
            require_linked_commit(repository, checkpoint)
        new_commit = head or ""
        remark = f"commit {commit[:10]} is gone: the files are those of the checkpoint"
        remark += ", and the index has the files of HEAD"
    worktree = checkpoint.worktree
    if worktree is not None:
        worktree = replace(worktree, operation=None, operation_commit=None)
    return replace(checkpoint, git_sha=new_commit, worktree=worktree), remark


def files_tree(repository: Repository, checkpoint: Checkpoint) -> str:
    return tree_of_files(repository, checkpoint.tree, checkpoint.git_sha)


def tree_of_files(repository: Repository, snapshot: str | None, commit: str) -> str:
    """Return the tree of a snapshot's files; without a snapshot, that of `commit`."""
    if snapshot is None and not commit:
        return encoding.empty_tree_oid(repository.object_format)
    name = f"{commit}^{{tree}}" if snapshot is None else f"{snapshot}:files"
    bounds.require_sound_snapshot(repository, snapshot, commit)
    object_info = repository.cat_file.info(name)
    if object_info is None:
        raise WorktreeError(f"{name} is missing", hint=VERIFY)
    return object_info[0]


class _PendingObjects:
    def __init__(self, repository: Repository, objects: ObjectDatabase) -> None:
        self._format = repository.object_format
        self._objects = objects
        self._contents: list[tuple[str, bytes]] = []

    def blob(self, data: bytes) -> str:
        self._contents.append(("blob", data))
        return object_id("blob", data, self._format)

    def tree(self, entries: Entries) -> str:
        data = encoding.encode_tree(entries)
        self._contents.append(("tree", data))
        return object_id("tree", data, self._format)

    def add_tree_of(self, files: Mapping[bytes, str]) -> str:
        entries: Entries = {}
        subtrees: dict[bytes, dict[bytes, str]] = {}
        for path, oid in files.items():
            first_name, slash, inner_path = path.partition(b"/")
            if slash:
                subtrees.setdefault(first_name, {})[inner_path] = oid
            else:
                entries[first_name] = (encoding.FILE, oid)
        entries |= {name: (DIRECTORY, self.add_tree_of(inner)) for name, inner in subtrees.items()}
        return self.tree(entries)

    def write(self) -> None:
        self._objects.write(self._contents, flushed=False)


def write(repository: Repository, objects: ObjectDatabase, content: Snapshot) -> str:
    """Write a snapshot and return the oid of its tree; the caller flushes the objects."""
    pending = _PendingObjects(repository, objects)
    trees: dict[bytes, str | None] = {b"files": content.files, RAW: content.raw}
    if content.index:
        stages = {str(stage).encode(): (DIRECTORY, tree) for stage, tree in content.index.items()}
        trees[b"index"] = pending.tree(stages)
    if content.operation:
        files = {os.fsencode(name): pending.blob(data) for name, data in content.operation.items()}
        trees[b"operation"] = pending.add_tree_of(files)
        merge_tree = content.operation.get("AUTO_MERGE", b"").decode("ascii", "replace").strip()
        trees[b"auto-merge"] = merge_tree  # reachable from here, because git gc does not protect it
    flags = [(flag.encode(), path) for flag, paths in content.flags.items() for path in paths]
    modes = [(b"%03o" % mode, path) for path, mode in sorted(content.modes.items())]
    blobs = {
        b"flags": b"".join(b"%s %s\0" % pair for pair in flags),
        b"directories": b"".join(path + b"\0" for path in content.directories),
        b"modes": b"".join(b"%s %s\0" % pair for pair in modes),
        CONVERSION: content.conversion,
    }
    entries = {name: (DIRECTORY, tree) for name, tree in trees.items() if tree}
    blob_oids = {name: pending.blob(data) for name, data in blobs.items() if data}
    entries |= {name: (encoding.FILE, oid) for name, oid in blob_oids.items()}
    if content.sparse is not None:  # also if b"": the sparse-checkout file is empty
        entries[b"sparse"] = (encoding.FILE, pending.blob(content.sparse))
    tree = pending.tree(entries)
    pending.write()
    return tree


def contents_of(captured: Checkpoint, repository: Repository, objects: ObjectDatabase) -> Snapshot:
    bounds.require_sound_snapshot(repository, captured.tree, captured.git_sha)
    contents = read(repository, objects, captured.tree, captured.git_sha)
    return replace(contents, is_of_commit=captured.worktree is None)


def read(
    repository: Repository, objects: ObjectDatabase, tree: str | None, commit: str
) -> Snapshot:
    """Read the snapshot `tree`; if `tree` is None, return the contents of `commit`."""
    if tree is None:
        return Snapshot(base_tree(repository, commit))
    reader = _SnapshotReader(repository, objects)
    parts = reader.read_tree(tree)
    bounds.require_snapshot_shape(parts, tree)
    stage_entries = reader.read_tree(parts[b"index"][1]) if b"index" in parts else {}

    def read_blob(name: bytes) -> bytes:
        return reader.get_blobs([parts[name][1]], budget.LIST)[0] if name in parts else b""

    def read_pairs(name: bytes) -> list[tuple[bytes, bytes]]:
        records = (record.partition(b" ") for record in read_blob(name).split(b"\0")[:-1])
        return [(value, path) for value, _, path in records]

    flags: dict[str, list[bytes]] = {}
    for flag, path in read_pairs(b"flags"):
        flags.setdefault(flag.decode("utf-8", "replace"), []).append(path)
    modes = read_pairs(b"modes")
    return Snapshot(
        files=parts[b"files"][1],
        index={int(stage): oid for stage, (_, oid) in stage_entries.items() if stage in _STAGES},
        flags=flags,
        operation=reader.read_files_below(parts[b"operation"][1]) if b"operation" in parts else {},
        sparse=read_blob(b"sparse") if b"sparse" in parts else None,
        raw=parts[RAW][1] if RAW in parts else None,
        conversion=read_blob(CONVERSION),
        directories=read_blob(b"directories").split(b"\0")[:-1],
        modes={path: int(mode, 8) & 0o777 for mode, path in modes if _MODE.fullmatch(mode)},
    )


def write_raw(
    repository: Repository, objects: ObjectDatabase, raw: Mapping[bytes, str]
) -> str | None:
    if not raw:
        return None
    pending_objects = _PendingObjects(repository, objects)
    tree = pending_objects.add_tree_of(raw)
    pending_objects.write()
    return tree


def raw_files(repository: Repository, contents: Snapshot) -> dict[bytes, str]:
    """Map each file with a raw copy (its bytes without conversion) to the copy's oid."""
    if contents.raw is None:
        return {}
    raw_oids = {}
    files = regular_files(repository, contents.files)
    for path, mode, oid in _list_files_in_tree(repository, contents.raw):
        if mode not in FILES:
            message = f"the snapshot has a raw copy of {path!r}, which is not a regular file"
            raise WorktreeError(message, hint="gitckpt did not make this snapshot")
        if path in files:
            raw_oids[path] = oid
    return raw_oids


def raw_tree(repository: Repository, tree: str | None) -> str | None:
    object_info = repository.cat_file.info(f"{tree}:{RAW.decode()}") if tree is not None else None
    return object_info[0] if object_info is not None and object_info[1] == "tree" else None


def conversion_of(repository: Repository, tree: str | None) -> bytes:
    if tree is None:
        return b""
    blob = next(repository.cat_file.read_contents([f"{tree}:{CONVERSION.decode()}"], budget.LIST))
    return blob[2] if blob is not None and blob[1] == "blob" else b""


def differing_raw_paths(repository: Repository, first: Snapshot, second: Snapshot) -> list[bytes]:
    if first.raw == second.raw:
        return []
    raw1, raw2 = raw_files(repository, first), raw_files(repository, second)
    return sorted(path for path in raw1.keys() | raw2.keys() if raw1.get(path) != raw2.get(path))


def regular_files(repository: Repository, tree: str) -> dict[bytes, str]:
    """Map the path of each regular file below a tree to the oid of its blob."""
    return {path: oid for path, mode, oid in _list_files_in_tree(repository, tree) if mode in FILES}


def _list_files_in_tree(repository: Repository, tree: str) -> list[Leaf]:
    try:
        return list_leaves(repository, tree)
    except GitError as error:
        message = f"the tree {tree} of the snapshot cannot be read: {error.message}"
        raise WorktreeError(message, hint=VERIFY) from None


def decode_snapshot_tree(data: bytes, repository: Repository, tree: str) -> Entries:
    try:
        return encoding.decode_tree(data, repository.object_format)
    except MalformedTree as error:
        raise UnsoundSnapshot(f"the tree {tree} of the snapshot: {error}", hint=VERIFY) from None


class _SnapshotReader:
    def __init__(self, repository: Repository, objects: ObjectDatabase) -> None:
        self._repository = repository
        self._objects = objects

    def read_tree(self, tree: str) -> Entries:
        tree_object = next(self._objects.read([tree], None))
        if tree_object is None or tree_object[0] != "tree":
            raise WorktreeError(f"the tree {tree} of the snapshot is missing", hint=VERIFY)
        return decode_snapshot_tree(tree_object[1], self._repository, tree)

    def get_blobs(self, oids: Sequence[str], limit: int) -> list[bytes]:
        contents: list[bytes] = []
        total_size = 0
        for oid, blob in zip(oids, self._objects.read(oids, limit), strict=True):
            if blob is None or blob[0] not in ("blob", encoding.OVERSIZED):
                raise WorktreeError(f"the blob {oid} of the snapshot is missing", hint=VERIFY)
            total_size += len(blob[1])
            if blob[0] == encoding.OVERSIZED or total_size > limit:
                message = f"the lists in the snapshot, with {oid}, exceed {limit:,} bytes"
                raise UnsoundSnapshot(message, hint=bounds.HINT)
            contents.append(blob[1])
        return contents

    def read_files_below(self, top: str) -> dict[str, bytes]:
        oids: dict[str, str] = {}
        current_level, entry_count, depth = [("", top)], 0, 0
        while current_level:
            next_level = []
            for prefix, tree in current_level:
                entries = self.read_tree(tree)
                entry_count += len(entries)
                if entry_count > budget.OPERATION.count or depth > budget.OPERATION.depth:
                    message = f"the operation {top} of the snapshot has {bounds.OPERATION}"
                    raise UnsoundSnapshot(message, hint=bounds.HINT)
                for name, (mode, oid) in entries.items():
                    path = prefix + os.fsdecode(name)
                    if mode == DIRECTORY:
                        next_level.append((f"{path}/", oid))
                    else:
                        oids[path] = oid
            current_level, depth = next_level, depth + 1
        return dict(zip(oids, self.get_blobs([*oids.values()], budget.OPERATION_SIZE), strict=True))


_BESIDE = "run"  # entry of a snapshot for files that a run keeps outside its worktree


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts of a snapshot that no git tree has; paths are relative to the top."""

    raw: Sequence[bytes]  # files with raw copies, because a checkout would write them differently
    directories: Sequence[bytes]  # those without files and subdirectories in the snapshot
    modes: Mapping[bytes, int]  # permission bits narrower than the umask allows, by path


def read_extras(repository: Repository, objects: ObjectDatabase, checkpoint: Checkpoint) -> Extras:
    if checkpoint.tree is None:
        return Extras((), (), {})
    contents = contents_of(checkpoint, repository, objects)
    return Extras(sorted(raw_files(repository, contents)), contents.directories, contents.modes)


def content(repository: Repository, checkpoint: Checkpoint, path: bytes, *, beside: bool) -> bytes:
    """Return a file's content; with `beside`, of a run's file outside the worktree."""
    if beside:
        bounds.require_sound_snapshot(repository, checkpoint.tree, "")
        trees = [f"{checkpoint.tree}:{_BESIDE}"] if checkpoint.tree is not None else []
    else:
        raw = raw_tree(repository, checkpoint.tree)  # first: it holds the bytes of the file
        trees = [tree for tree in (raw, files_tree(repository, checkpoint)) if tree is not None]
    name = os.fsdecode(path)
    for tree in trees:
        oid = _find_blob(repository, tree, path)
        if oid is not None:
            blob = next(repository.cat_file.read_contents([oid]))
            if blob is None:
                raise WorktreeError(f"{oid}, the content of {name}, is missing", hint=VERIFY)
            return blob[2]
    where = "beside its worktree" if beside else "among its files"
    hint = f"see: git ckpt show {checkpoint.id}"
    raise NotFoundError(f"checkpoint {checkpoint.id} has no file {name!r} {where}", hint=hint)


def _find_blob(repository: Repository, tree: str, path: bytes) -> str | None:
    if not encoding.has_no_dotdot(path) or repository.cat_file.info(tree) is None:
        return None
    # `cat-file` reads a name per line, and a path may contain newlines.
    entry = diff.find_leaf(repository, tree, path)
    return entry[2] if entry and entry[1] not in (DIRECTORY, encoding.GITLINK) else None


def set_index_to_snapshot(
    index: PrivateIndex, contents: Snapshot, commit: str, listed: str | None = None
) -> None:
    """Set an index to that of a snapshot; `listed` is the index's tree, if known."""
    staged_tree = contents.index.get(0) if contents.index else base_tree(index.repository, commit)
    if listed is None or staged_tree is None:
        index.edit_index("read-tree", *(["--reset", staged_tree] if staged_tree else ["--empty"]))
    else:  # takes half the time, as few entries differ
        changes = diff.diff_trees(index.repository, listed, staged_tree)
        changes = sorted(changes, key=lambda item: item.status != "D")
        index.put_entries(item.index_info_line for item in changes)
    index.put_entries(index_lines_of_conflicts(index.repository, contents))
    add_intent_entries(index, contents, contents.flags.get(INTENT, ()))
    for flag in (ASSUMED, SKIPPED):
        change_index_flag(index, flag, contents.flags.get(flag, ()), ())


def index_lines_of_conflicts(repository: Repository, contents: Snapshot) -> list[bytes]:
    return [
        b"%s %s %d\t%s" % (mode, oid.encode("ascii"), stage, path)
        for stage in (1, 2, 3)
        if (tree := contents.index.get(stage))
        for path, mode, oid in list_leaves(repository, tree)
    ]


def add_intent_entries(index: PrivateIndex, contents: Snapshot, paths: Collection[bytes]) -> None:
    modes = {path: mode for flag, mode in INTENDED.items() for path in contents.flags.get(flag, ())}
    if paths:
        intent.add_intent(index, paths, modes)


def change_index_flag(
    index: PrivateIndex, flag: str, to_set: Collection[bytes], to_clear: Collection[bytes]
) -> None:
    if not to_set and not to_clear:
        return
    paths_with_entry = {path for path, _, _, stage, _ in index.list_entries() if stage == 0}
    for option, paths in ((f"--{flag}", to_set), (f"--no-{flag}", to_clear)):
        index.update_paths(option, sorted(set(paths).intersection(paths_with_entry)))
