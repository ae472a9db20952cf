"""What a restore would do, path by path, and what stands in its way."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from gitckpt.git.repository import Repository
from gitckpt.model.errors import WorktreeError
from gitckpt.store import indexing, treediff, verifier
from gitckpt.store.contents import ASSUMED, INTENT, SKIPPED, Contents
from gitckpt.store.treediff import Difference

ADD, CHANGE, DELETE, STAGE = "add", "change", "delete", "stage"
_KINDS = {"A": ADD, "D": DELETE, "M": CHANGE, "T": CHANGE}
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Change:
    """What a restore does to one path: its file is added, changed or deleted, or only its entry in the index differs ("stage")."""

    kind: str
    path: bytes


@dataclass(slots=True)
class Plan:
    """What a restore does."""

    files: list[Difference] = field(default_factory=list)
    """Files to be written or deleted."""

    submodules: list[Difference] = field(default_factory=list)
    """Submodules that were at another commit; they stay."""

    changes: list[Change] = field(default_factory=list)
    in_the_way: list[bytes] = field(default_factory=list)
    """Files where others are to be written, which no capture holds yet."""

    obstacles: list[bytes] = field(default_factory=list)
    """What is in the way and cannot be captured."""

    index_lines: list[bytes] = field(default_factory=list)
    """Lines for `PrivateIndex.put` that make the entries of the wanted paths those of the snapshot."""

    flags: dict[str, tuple[Collection[bytes], Collection[bytes]]] = field(default_factory=dict)
    """By flag, the wanted paths that get it, and those that lose it."""

    def require_no_obstacle(self) -> None:
        """Raises `WorktreeError` if something is in the way that no checkpoint would hold."""
        if self.obstacles or self.in_the_way:
            names = [path.decode("utf-8", "replace") for path in [*self.obstacles, *self.in_the_way]]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise WorktreeError(
                f"in the way of the files, and in no checkpoint: {', '.join(names[:_SHOWN])}{more}",
                hint="move it out of the way, then run the command again; nothing was changed",
            )


def make_plan(repository: Repository, found: tuple[Contents, str], wanted: tuple[Contents, str], paths: Sequence[bytes]) -> Plan:
    """Returns what is to be done to a worktree.

    Args:
        repository: seen from the worktree.
        found: what the worktree holds, and what HEAD points to ("" for nothing).
        wanted: what it shall hold, and the commit that this is linked to.
        paths: files and directories to which the restore is restricted; none for all.
    """
    return _Planner(repository, found, wanted, paths).plan


class _Planner:
    def __init__(self, repository: Repository, found: tuple[Contents, str], wanted: tuple[Contents, str], paths: Sequence[bytes]) -> None:
        self._repository = repository
        self._top = os.fsencode(repository.worktree or "")
        self._found, head = found
        self._wanted, commit = wanted
        self._paths = paths
        self.plan = Plan()
        skipped = set(self._wanted.flags.get(SKIPPED, ())) | set(self._found.flags.get(SKIPPED, ()))
        for one in treediff.differences(repository, self._found.files, self._wanted.files, paths):
            if one.is_submodule:
                self.plan.submodules.append(one)
            elif one.path not in skipped or self._is_there(one.path):
                self.plan.files.append(one)
        self._look_for_obstacles()
        before = verifier.merged_tree(repository, self._found, head)
        after = verifier.merged_tree(repository, self._wanted, commit)
        staged = treediff.differences(repository, before, after, paths)
        self._plan_index(staged)
        touched = {one.path for one in self.plan.files}
        self.plan.changes = [Change(_KINDS[one.status], one.path) for one in self.plan.files]
        self.plan.changes += [Change(STAGE, path) for path in sorted(self._staged - touched)]
        self.plan.changes.sort(key=lambda change: change.path)

    def _plan_index(self, staged: Iterable[Difference]) -> None:
        """Plans the entries of the index: those of the merged stage that differ, conflicts on either side, and flags."""
        before, after = (self._conflicts(contents) for contents in (self._found, self._wanted))
        unmerged = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        self._plan_flags()
        intent = self.plan.flags.get(INTENT, ((), ()))
        zero = b"0" * (64 if self._repository.object_format == "sha256" else 40)
        lines = {one.path: one.line for one in staged}
        self._staged = lines.keys() | unmerged | set(intent[0]) | set(intent[1])
        for path in sorted(self._staged):
            self.plan.index_lines.append(b"0 %s 0\t%s" % (zero, path))
            if path in lines:
                self.plan.index_lines.append(lines[path])
            self.plan.index_lines += after.get(path, [])

    def _plan_flags(self) -> None:
        for flag in (INTENT, ASSUMED, SKIPPED):
            before = {path for path in self._found.flags.get(flag, ()) if self._is_wanted(path)}
            after = {path for path in self._wanted.flags.get(flag, ()) if self._is_wanted(path)}
            if flag == SKIPPED and (self._found.sparse is not None or self._wanted.sparse is not None):
                continue  # what a sparse checkout skips is for its patterns to say
            if before != after:
                self.plan.flags[flag] = (sorted(after - before), sorted(before - after))

    def _conflicts(self, contents: Contents) -> dict[bytes, list[bytes]]:
        """Returns the lines of the entries in conflict, by path."""
        found: dict[bytes, list[bytes]] = {}
        for stage in (1, 2, 3):
            for line in indexing.stage_lines(self._repository, contents.index[stage], stage) if stage in contents.index else ():
                path = line.partition(b"\t")[2]
                if self._is_wanted(path):
                    found.setdefault(path, []).append(line)
        return found

    def _is_wanted(self, path: bytes) -> bool:
        return not self._paths or any(path == one or not one or path.startswith(one + b"/") for one in self._paths)

    def _is_there(self, path: bytes) -> bool:
        return os.path.lexists(os.path.join(self._top, path))

    def _look_for_obstacles(self) -> None:
        gone = {one.path for one in self.plan.files if one.status == "D"}
        for one in self.plan.files:
            if one.status == "D":
                continue
            path = os.path.join(self._top, one.path)
            if os.path.isdir(path) and not os.path.islink(path):
                self.plan.obstacles += [inside for inside in self._files_in(one.path) if inside not in gone]
            elif one.status == "A" and os.path.lexists(path):
                self._note(one.path, path)
            self._look_above(one.path, gone)
        self.plan.obstacles = sorted(set(self.plan.obstacles))

    def _note(self, path: bytes, whole: bytes) -> None:
        (self.plan.in_the_way if os.path.isfile(whole) or os.path.islink(whole) else self.plan.obstacles).append(path)

    def _look_above(self, path: bytes, gone: Collection[bytes]) -> None:
        parent = os.path.dirname(path)
        while parent:
            whole = os.path.join(self._top, parent)
            if os.path.islink(whole) or (os.path.lexists(whole) and not os.path.isdir(whole)):
                if parent not in gone:
                    self._note(parent, whole)
                return
            parent = os.path.dirname(parent)

    def _files_in(self, directory: bytes) -> list[bytes]:
        found = []
        for parent, directories, names in os.walk(os.path.join(self._top, directory)):
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            found += [os.path.relpath(os.path.join(parent, name), self._top) for name in [*names, *links]]
        return found
