"""List the files of a checkpoint, and search the files of several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import DIRECTORY, FILES, GITLINK, LINK, has_no_dotdot
from gitckpt.git.process import GitError
from gitckpt.model.arguments import quote_path, shell_quoted
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import NotFoundError, UsageError
from gitckpt.model.ids import SHORT
from gitckpt.model.values import dataclass, replace
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.history.log import Listing, has_files
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.snapshot import manifest

_KINDS = {LINK: "link", GITLINK: "submodule", DIRECTORY: "directory"}
_NEWEST = 20  # checkpoints that are searched unless the caller names them
_MOST_OIDS = 10_000  # on one command line of git


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, link, submodule or directory of a checkpoint."""

    path: bytes  # relative to the top of the worktree
    mode: str  # in octal, as in a tree of git: "100644"
    oid: str  # "" for a directory without files
    size: int | None = None  # in bytes; None for a directory or submodule

    @property
    def kind(self) -> str:
        """Either "file", "link", "submodule" or "directory"."""
        return _KINDS.get(self.mode.lstrip("0").encode("ascii"), "file")


def list_files(
    store: Checkpoints, checkpoint: Checkpoint, path: bytes, *, recursive: bool
) -> list[StoredFile]:
    """List what is at a path of a checkpoint, or below it; b"" is the top.

    Raises NotFoundError.
    """
    repository = store.repository
    tree = manifest.files_tree(repository, checkpoint)
    leaf: diff.Leaf | None = (b"", DIRECTORY, tree)
    if path:
        is_inside = has_no_dotdot(path) and not path.startswith(b"/")
        leaf = diff.find_leaf(repository, tree, path) if is_inside else None
    empty = _list_empty_directories(store, checkpoint, path)
    if leaf is None and not empty:
        raise _missing_error(checkpoint, path)
    below = [path + b"/" if leaf is not None and leaf[1] == DIRECTORY else path] if path else []
    leaves = diff.list_leaves(repository, tree, below, recursive=recursive) if leaf else []
    raw = manifest.raw_tree(repository, checkpoint.tree)  # the bytes of these files
    raw_oids = (
        {name: oid for name, _, oid in diff.list_leaves(repository, raw, below)} if raw else {}
    )
    found = [
        StoredFile(name, mode.decode("ascii").zfill(6), raw_oids.get(name, oid))
        for name, mode, oid in leaves
    ]
    names = {entry.path for entry in found}
    start = len(path) + 1 if path else 0
    for directory in empty:
        inner = directory[start:].partition(b"/")[0]
        name = directory if recursive else directory[:start] + inner
        if inner and name not in names:
            names.add(name)
            found.append(StoredFile(name, "040000", ""))
    found.sort(key=lambda entry: entry.path)
    infos = repository.cat_file.list_infos([entry.oid or "-" for entry in found])
    sizes = [info[2] if info is not None and info[1] == "blob" else None for info in infos]
    return [replace(entry, size=size) for entry, size in zip(found, sizes, strict=True)]


def _list_empty_directories(store: Checkpoints, checkpoint: Checkpoint, path: bytes) -> list[bytes]:
    if checkpoint.tree is None:
        return []
    contents = manifest.contents_of(checkpoint, store.repository, store.objects)
    inside = path + b"/" if path else b""
    return [name for name in contents.directories if name == path or name.startswith(inside)]


def _missing_error(checkpoint: Checkpoint, path: bytes) -> NotFoundError:
    name, short = quote_path(path), checkpoint.id[:SHORT]
    hint = f"find it: git ckpt why {shell_quoted(name)}"
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        if name.startswith(f"{submodule.path}/"):
            inner = (
                f"{submodule.checkpoint[:SHORT]} {shell_quoted(name[len(submodule.path) + 1 :])}"
            )
            hint = f"it is in a submodule: git -C {shell_quoted(submodule.path)} ckpt ls {inner}"
    return NotFoundError(f"checkpoint {short} has no file {name!r}", hint=hint)


# Search


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line of a stored file that matches; without a line, the whole file."""

    checkpoint: CheckpointInfo  # the newest one with this content at this path
    count: int  # of the checkpoints that were searched and have the same
    path: bytes
    line: int | None  # counted from 1
    text: bytes


def newest_here(store: Checkpoints) -> list[CheckpointInfo]:
    """Return the newest checkpoints with files of the current worktree.

    Safety checkpoints count: they may have what an `undo` took.
    """
    listing, found = Listing(store, Query()), list[CheckpointInfo]()
    key = local_checkpoints.worktree_key(store.repository)
    while len(found) < _NEWEST and listing.read_more():
        found = [e for e in listing.entries if listing.keys[e.id] == key and has_files(e)]
    return found[:_NEWEST]


def grep(
    store: Checkpoints,
    pattern: str,
    entries: Sequence[CheckpointInfo],
    *,
    paths: Sequence[bytes] = (),
    options: Sequence[str] = (),
) -> list[GrepMatch]:
    """Search the files of checkpoints; the same content is searched once.

    `options` are options of `git grep`, such as "-i"; with "-l", matches have no line.
    """
    first: dict[tuple[bytes, str], CheckpointInfo] = {}
    counts: dict[tuple[bytes, str], int] = {}
    for entry, files in _iterate_files(store, entries, paths):
        for found in files.items():
            first.setdefault(found, entry)
            counts[found] = counts.get(found, 0) + 1
    lines: dict[str, list[tuple[int | None, bytes]]] = {}
    oids = list(dict.fromkeys(oid for _, oid in first))
    for start in range(0, len(oids), _MOST_OIDS):
        for oid, line, text in _grep_blobs(store, pattern, oids[start:][:_MOST_OIDS], options):
            lines.setdefault(oid, []).append((line, text))
    return [
        GrepMatch(entry, counts[path, oid], path, *match)
        for (path, oid), entry in first.items()
        for match in lines.get(oid, ())
    ]


def _iterate_files(
    store: Checkpoints, entries: Sequence[CheckpointInfo], paths: Sequence[bytes]
) -> Iterator[tuple[CheckpointInfo, dict[bytes, str]]]:
    repository, last, files = store.repository, "", dict[bytes, str]()
    selected = [] if b"" in paths else paths
    for entry in entries:
        tree = manifest.tree_of_files(repository, entry.tree, entry.git_sha)
        if not last:
            leaves = diff.list_leaves(repository, tree, selected)
            files = {path: oid for path, mode, oid in leaves if mode in FILES}
        else:
            files = dict(files)
            for change in diff.diff_trees(repository, last, tree, selected):
                files.pop(change.path, None)
                if change.new_mode in FILES:
                    files[change.path] = change.new
        last = tree
        yield entry, files


def _grep_blobs(
    store: Checkpoints, pattern: str, oids: Sequence[str], options: Sequence[str]
) -> Iterator[tuple[str, int | None, bytes]]:
    kind = [] if {"-E", "-F"}.intersection(options) else ["-G"]  # whatever grep.patternType is
    words = ("grep", "--no-color", "--full-name", "--no-textconv", "-n", *kind, *options)
    try:
        result = store.repository.git.run(*words, "-e", pattern, *oids, "--", ok=(0, 1))
    except GitError as error:
        raise UsageError(error.message, hint="write a pattern as for git grep") from None
    for line in result.out.split(b"\n"):
        found = re.match(rb"([0-9a-f]{40,64}):([0-9]+):", line)
        if found is not None:
            yield found[1].decode("ascii"), int(found[2]), line[found.end() :]
        elif whole := re.fullmatch(rb"(?:Binary file )?([0-9a-f]{40,64})( matches)?", line):
            yield whole[1].decode("ascii"), None, b"binary file matches" if whole[2] else b""
