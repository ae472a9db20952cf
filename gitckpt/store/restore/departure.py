"""Submodules that a restore has checked out, and that go again when it is taken back; their repositories stay where git keeps them.

A file goes only if the safety checkpoint holds it, one by one, and a directory only when it is empty: what came meanwhile stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence

from gitckpt.git.files import mounts
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.objects.trees import leaves
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import modules
from gitckpt.model.checkpoint import Checkpoint, Submodule
from gitckpt.model.errors import CkptError
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.restore.plan import DELETE, PathChange
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


KEY = "submodules"
"""In the state of a safety checkpoint: what the restore is to check out, with what is said of it by `before`."""


class _Stays(CkptError):
    """A submodule has something that no checkpoint holds, or is not as it was captured."""


def before(store: Checkpoints, kept: Repository, top: str) -> dict[str, Any]:
    """Returns what is to be known of a submodule that is about to be checked out: its HEAD, and how many directories are missing.

    Args:
        store: of the worktree around it.
        kept: its repository.
        top: where it is to be.
    """
    missing = 0
    while not os.path.lexists(top):
        top, missing = os.path.dirname(top), missing + 1
    with contextlib.closing(store.seen_from(kept, "plumbing")) as inner:
        head, branch = inner.objects.head()
    return {"head": head, "branch": branch or "", "missing": missing}


class Departures:
    """The submodules that go.

    Args:
        store: of the worktree around them.
        undone: the state of the safety checkpoint whose restore is taken back; empty for a restore.
        stay: the submodules that are to be there.
        limits: of captures.

    Attributes:
        remarks: which of them stay, and why.
    """

    def __init__(self, store: Checkpoints, undone: Mapping[str, Any], stay: Iterable[bytes], limits: Limits) -> None:
        self._store = store
        self._limits = limits
        said = undone.get(KEY, {})
        known = {modules.unquoted(str(text)): was for text, was in said.items()} if isinstance(said, dict) else {}
        self._known = {path: was for path, was in known.items() if path not in set(stay) and isinstance(was, dict)}
        self.remarks: list[str] = []

    def look(self) -> list[PathChange]:
        """Returns what would be done."""
        return [PathChange(DELETE, path) for path in sorted(self._known) if self._is_there(path)]

    def take(self, safety: Checkpoint) -> None:
        """Takes them away.

        Args:
            safety: the checkpoint of what is there.
        """
        held = {modules.unquoted(one.path): one for one in safety.worktree.submodules} if safety.worktree is not None else {}
        for path, was in sorted(self._known.items()):
            if not self._is_there(path):
                continue
            try:
                if path not in held:
                    raise _Stays("no checkpoint holds it")
                self._take(path, held[path], was)
            except (CkptError, OSError) as error:
                why = error.message if isinstance(error, CkptError) else f"{error.strerror}"
                self.remarks.append(f"the submodule {path.decode('utf-8', 'replace')} stays: {why}")

    def _is_there(self, path: bytes) -> bool:
        there = modules.seen_from(self._store.repository, path)
        if there is None:
            return False
        there.close()
        return True

    def _take(self, path: bytes, one: Submodule, was: Mapping[str, Any]) -> None:
        there = modules.seen_from(self._store.repository, path)
        if there is None:
            return
        mounted = mounts.reason(there.worktree or "")
        if mounted is not None:
            raise _Stays(mounted)
        top = os.fsencode(there.worktree or "")
        with contextlib.closing(self._store.seen_from(there, "plumbing")) as inner:
            checkpoint = inner.read_own(one.checkpoint)
            files = sorted(os.path.relpath(each, top) for each in self._files(inner, checkpoint))
            directories = _directories(top)
            _point_head(inner, str(was.get("head", "")), str(was.get("branch", "")))
        ends = [name for name in files if os.path.basename(name) == b".git"]  # what says whose they are goes last
        for name in [*(name for name in files if name not in ends), *sorted(ends, key=len, reverse=True)]:
            os.unlink(os.path.join(top, name))
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
        missing = was.get("missing", 0)
        for _ in range(missing if isinstance(missing, int) else 0):
            os.rmdir(top)
            top = os.path.dirname(top)

    def _files(self, inner: Checkpoints, checkpoint: Checkpoint) -> list[bytes]:
        """Returns all files of a submodule, those of submodules within it too, each of which a checkpoint holds.

        Raises:
            _Stays: one of them is in no checkpoint.
        """
        repository = inner.repository
        top = os.fsencode(repository.worktree or "")
        if not os.path.isfile(os.path.join(top, b".git")):
            raise _Stays("its repository is in it")
        found = checkpoint.worktree
        if found is None or found.degraded or found.omitted or found.converted:
            raise _Stays("its checkpoint leaves something out")
        now = inner.capture(self._limits)
        if (inner.objects.head()[0], now.tree, now.dirty) != (checkpoint.git_sha, found.tree, found.dirty):
            raise _Stays("it has changed meanwhile")
        held = {path for path, mode, _ in leaves(repository, manifest.files_of(repository, checkpoint)) if mode != GITLINK} | {b".git"}
        files: list[bytes] = []
        within: list[bytes] = []
        for one in found.submodules:
            path = modules.unquoted(one.path)
            there = modules.seen_from(repository, path)
            if there is None:
                raise _Stays("it has changed meanwhile")
            with contextlib.closing(inner.seen_from(there, "plumbing")) as nested:
                files += self._files(nested, nested.read(one.checkpoint))
            within.append(os.path.join(top, path))
        for parent, names, others in os.walk(top):
            names[:] = [name for name in names if os.path.join(parent, name) not in within]
            links = [name for name in names if os.path.islink(os.path.join(parent, name))]
            for name in [*others, *links]:
                whole = os.path.join(parent, name)
                if os.path.relpath(whole, top) not in held:
                    raise _Stays(f"no checkpoint holds {os.path.relpath(whole, top).decode('utf-8', 'replace')} in it")
                files.append(whole)
        return files


def _directories(top: bytes) -> list[bytes]:
    return [
        os.path.join(parent, name) for parent, names, _ in os.walk(top) for name in names if not os.path.islink(os.path.join(parent, name))
    ]


def _point_head(inner: Checkpoints, head: str, branch: str) -> None:
    """Points HEAD to where it was; the checkpoint that was made keeps the commit that it leaves."""
    now: Sequence[str | None] = inner.objects.head()
    if not head or (now[0], now[1] or "") == (head, branch) or inner.repository.cat_file.info(f"{head}^{{commit}}") is None:
        return
    is_there = bool(branch) and inner.repository.tip_of(branch) == head
    inner.repository.point_head(BRANCHES + branch if is_there else head, f"checkout: moving to {branch if is_there else head}")
