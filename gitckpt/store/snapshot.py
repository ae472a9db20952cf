"""Captures the files of a worktree as a tree: what is committed, staged, changed, untracked or half merged.

Files are turned into blobs by git itself (filters, eol and LFS apply), through a private index that starts as a copy of the user's, with
its time stamp, so that git reads again only what may have changed. The user's index, HEAD, refs and stash are not touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gitckpt.git.hashing import object_id
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.tree import DIRECTORY, FILE, Entries, encode_tree
from gitckpt.model.checkpoint import Omitted, Worktree
from gitckpt.model.errors import WorktreeError
from gitckpt.store import operation

if TYPE_CHECKING:
    from gitckpt.git.objects import Objects

_DURABLE_BATCH = ("-c", "core.fsync=loose-object", "-c", "core.fsyncMethod=batch")
_PRIVATE_INDEX = ("-c", "core.splitIndex=false", "-c", "core.fsmonitor=false", "-c", "advice.addEmbeddedRepo=false")
_FLAGS = {b"h": ("assume-unchanged",), b"s": ("assume-unchanged", "skip-worktree"), b"S": ("skip-worktree",)}
_UNREADABLE = re.compile(r"^error: unable to index file '(.*)'$|^error: '(.*)/' does not have a commit checked out$", re.MULTILINE)


@dataclass(slots=True)
class _Index:
    """What the user's index says beyond its paths."""

    stages: dict[int, list[tuple[bytes, str, bytes]]] = field(default_factory=dict)
    """Mode, oid and path of the entries in conflict, by stage."""

    flags: list[tuple[str, bytes]] = field(default_factory=list)
    maybe_intent: list[bytes] = field(default_factory=list)
    """Paths whose blob is empty: only among them can be one that is added in intent only."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What a snapshot holds."""

    files: str
    index: Mapping[int, str]
    flags: Sequence[tuple[str, bytes]]
    operation: Mapping[str, bytes]


def capture(repository: Repository, objects: Objects, commit: str) -> Worktree:
    """Captures the worktree.

    Args:
        repository: seen from the worktree.
        objects: its objects.
        commit: what HEAD points to; "" on an unborn branch.

    Returns:
        The table `[worktree]` of a checkpoint; its tree, where the worktree is dirty, is written but held by no ref yet.

    Raises:
        WorktreeError: there is no worktree here, or git cannot read it.
    """
    if repository.worktree is None:
        raise WorktreeError("there is no worktree here whose files could be saved", hint="leave them out: git ckpt save --no-worktree")
    under_way = operation.in_progress(repository.git_dir)
    with _private_index(repository) as index:
        try:
            said = _read_index(repository, index)
            base = _base_tree(repository, commit)
            staged = bool(said.stages) or _differs(repository, index, base)
            parts = _index_parts(repository, index, said) if staged else {}
            intent = _intent_to_add(repository, index, said.maybe_intent)
            omitted = _add_everything(repository, index)
            files = _git(repository, index, "write-tree", "--missing-ok").strip().decode()
        except GitError as error:
            raise WorktreeError(
                f"cannot capture the files of {repository.worktree}: {error.message}", hint="leave them out: git ckpt save --no-worktree"
            ) from None
    flags = said.flags + [("intent-to-add", path) for path in intent]
    if not (staged or flags or under_way or files != base):
        return Worktree(dirty=False, omitted=omitted)
    content = _Content(files, parts, flags, operation.collect(repository.git_dir) if under_way else {})
    return Worktree(dirty=True, tree=_write(repository, objects, content), operation=under_way, omitted=omitted)


@contextlib.contextmanager
def _private_index(repository: Repository) -> Iterator[str]:
    """Yields the path of a copy of the user's index, with its time stamp: git compares files with it to find racy entries."""
    path = os.path.join(repository.make_private_dir(), f"index.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        _copy(os.path.join(repository.git_dir, "index"), path)
        yield path
    finally:
        for leftover in (path, f"{path}.lock", f"{path}.stage", f"{path}.stage.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)


def _copy(index: str, path: str) -> None:
    """Copies an index with its time stamp, if there is one."""
    try:
        shutil.copy2(index, path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WorktreeError(f"cannot copy the index to {path}: {error.strerror}") from None


def _git(repository: Repository, index: str, *args: str, data: bytes = b"", ok: tuple[int, ...] = (0,)) -> bytes:
    return repository.git.run(*_DURABLE_BATCH, *_PRIVATE_INDEX, *args, data=data, env={"GIT_INDEX_FILE": index}, ok=ok).out


def _read_index(repository: Repository, index: str) -> _Index:
    found = _Index()
    empty = object_id("blob", b"", repository.object_format).encode()
    sparse = repository.git.run("config", "--bool", "core.sparseCheckout", ok=(0, 1)).out.strip() == b"true"
    listing = _git(repository, index, "ls-files", "--stage", "-v", "-z")
    for entry in listing.split(b"\0"):
        tag = entry[:1]
        if tag == b"H" and empty not in entry:
            continue
        if not entry:
            break
        fields, _, path = entry[2:].partition(b"\t")
        mode, oid, stage = fields.split(b" ")
        if stage != b"0":
            found.stages.setdefault(int(stage), []).append((mode, oid.decode(), path))
        else:
            found.flags += [(flag, path) for flag in _FLAGS.get(tag, ()) if not (sparse and flag == "skip-worktree")]
        if oid == empty and stage == b"0":
            found.maybe_intent.append(path)
    return found


def _base_tree(repository: Repository, commit: str) -> str:
    found = repository.cat_file.info(f"{commit}^{{tree}}") if commit else None
    return found[0] if found else object_id("tree", b"", repository.object_format)


def _differs(repository: Repository, index: str, base: str) -> bool:
    env = {"GIT_INDEX_FILE": index}
    return repository.git.run(*_PRIVATE_INDEX, "diff-index", "--cached", "--quiet", base, "--", env=env, ok=(0, 1)).code == 1


def _index_parts(repository: Repository, index: str, said: _Index) -> Mapping[int, str]:
    """Returns a tree for each stage of the index that has entries."""
    staging = f"{index}.stage"
    _copy(index, staging)
    unmerged = sorted({path for entries in said.stages.values() for _, _, path in entries})
    zero = "0" * len(object_id("blob", b"", repository.object_format))
    _index_info(repository, staging, [b"0 %s 0\t%s" % (zero.encode(), path) for path in unmerged])
    parts = {0: _git(repository, staging, "write-tree", "--missing-ok").strip().decode()}
    for stage, entries in said.stages.items():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging)
        _index_info(repository, staging, [b"%s %s 0\t%s" % (mode, oid.encode(), path) for mode, oid, path in entries])
        parts[stage] = _git(repository, staging, "write-tree", "--missing-ok").strip().decode()
    return parts


def _index_info(repository: Repository, index: str, lines: list[bytes]) -> None:
    if lines:
        _git(repository, index, "update-index", "-z", "--index-info", data=b"".join(line + b"\0" for line in lines))


def _intent_to_add(repository: Repository, index: str, candidates: list[bytes]) -> list[bytes]:
    if not candidates:
        return []
    found = _git(repository, index, "diff-files", "--diff-filter=A", "--name-only", "-z")
    return sorted(set(found.split(b"\0")) & set(candidates))


def _add_everything(repository: Repository, index: str) -> tuple[Omitted, ...]:
    """Adds every file that is not ignored to the private index, and returns what git could not read."""
    _git(repository, index, "update-index", "-q", "--really-refresh", ok=(0, 1))
    done = repository.git.run(
        *(*_DURABLE_BATCH, *_PRIVATE_INDEX, "add", "--all", "--sparse", "--ignore-errors", "--", "."),
        env={"GIT_INDEX_FILE": index},
        ok=(0, 1),
    )
    said = _UNREADABLE.findall(done.complaint)
    names = list(dict.fromkeys((one or other).removesuffix("/") for one, other in said))  # some versions complain twice
    if done.code == 1 and not names:
        raise GitError(["add"], done.code, done.complaint)
    return tuple(Omitted(path=name, reason="git cannot read it") for name in names)


def _write(repository: Repository, objects: Objects, content: _Content) -> str:
    """Writes the tree of a snapshot: `files/`, `index/<stage>/`, `operation/` and `flags`."""
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
        whole[b"flags"] = (FILE, put("blob", b"".join(b"%s %s\0" % (flag.encode(), path) for flag, path in content.flags)))
    if content.operation:
        whole[b"operation"] = (DIRECTORY, put_directory(content.operation))
    tree = put("tree", encode_tree(whole))
    objects.write(pending)
    return tree
