"""Brings a snapshot back into a worktree that was made for it: files, index, flags, and the operation in progress."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.tree import DIRECTORY, Entries, decode_tree
from gitckpt.model.errors import WorktreeError
from gitckpt.store import operation

if TYPE_CHECKING:
    from gitckpt.git.objects import Objects

_PARALLEL = ("-c", "checkout.workers=0")


def bring_back(made: Repository, objects: Objects, tree: str, commit: str) -> None:
    """Fills an empty worktree with a snapshot.

    Args:
        made: seen from the worktree, which has neither files nor an index yet.
        objects: its objects.
        tree: the snapshot.
        commit: what HEAD points to; "" on an unborn branch.

    Raises:
        WorktreeError: git refuses a path in it, or an object is missing.
    """
    parts = _entries(made, objects, tree)
    try:
        made.git.run(*_PARALLEL, "read-tree", "--reset", "-u", parts[b"files"][1])
        stages = _entries(made, objects, parts[b"index"][1]) if b"index" in parts else {}
        if b"0" in stages:
            made.git.run("read-tree", "--reset", stages[b"0"][1])
        else:
            made.git.run("read-tree", *(["--reset", commit] if commit else ["--empty"]))
        for stage in (b"1", b"2", b"3"):
            if stage in stages:
                _add_stage(made, stage, stages[stage][1])
        if b"flags" in parts:
            _set_flags(made, next(objects.read([parts[b"flags"][1]])))
        made.git.run("update-index", "-q", "--refresh", ok=(0, 1), locks=True)
    except GitError as error:
        raise WorktreeError(f"cannot bring back the files {tree}: {error.message}") from None
    if b"operation" in parts:
        operation.bring_back(made.git_dir, _files_below(made, objects, parts[b"operation"][1]))


def difference(repository: Repository, wanted: str, found: str | None) -> str:
    """Returns which paths differ between two snapshots, for an error message."""
    if found is None:
        return "the worktree is clean"
    out = repository.git.run("diff-tree", "-r", "--name-status", "-z", wanted, found).out.decode("utf-8", "replace")
    names = out.split("\0")
    pairs = [f"{status} {path}" for status, path in zip(names[::2], names[1::2], strict=False)]
    return ", ".join(pairs[:5]) + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")


def _entries(repository: Repository, objects: Objects, tree: str) -> Entries:
    found = next(objects.read([tree]))
    if found is None or found[0] != "tree":
        raise WorktreeError(f"the tree {tree} is missing", hint="see what is wrong: git fsck")
    return decode_tree(found[1], repository.object_format)


def _add_stage(made: Repository, stage: bytes, tree: str) -> None:
    lines = []
    for entry in made.git.run("ls-tree", "-r", "-z", tree).out.split(b"\0")[:-1]:
        fields, _, path = entry.partition(b"\t")
        mode, _, oid = fields.split(b" ")
        lines.append(b"%s %s %s\t%s\0" % (mode, oid, stage, path))
    made.git.run("update-index", "-z", "--index-info", data=b"".join(lines))


def _set_flags(made: Repository, found: tuple[str, bytes] | None) -> None:
    paths: dict[bytes, list[bytes]] = {}
    for record in (found[1] if found else b"").split(b"\0")[:-1]:
        flag, _, path = record.partition(b" ")
        paths.setdefault(flag, []).append(path)
    literal = {"GIT_LITERAL_PATHSPECS": "1"}
    intent = paths.get(b"intent-to-add", [])
    if intent:
        add = ("add", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
        made.git.run(*add, data=b"\0".join(intent), env=literal)
    for option in ("assume-unchanged", "skip-worktree"):
        if option.encode() in paths:
            made.git.run("update-index", f"--{option}", "-z", "--stdin", data=b"\0".join(paths[option.encode()]))


def _files_below(repository: Repository, objects: Objects, tree: str, prefix: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, (mode, oid) in _entries(repository, objects, tree).items():
        path = prefix + os.fsdecode(name)
        if mode == DIRECTORY:
            found |= _files_below(repository, objects, oid, f"{path}/")
        else:
            content = next(objects.read([oid]))
            found[path] = content[1] if content else b""
    return found
