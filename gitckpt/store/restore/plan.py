"""Plan what a restore does to each path, and find what is in its way."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, exact_files
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference, paths_in_tree
from gitckpt.git.objects.encoding import oid_size, stays_within
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as ignore
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.restore import byte_exact
from gitckpt.store.restore.byte_exact import Exactness
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.manifest import ABSENT, ASSUMED, INTENT, SKIPPED, Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ADD, CHANGE, DELETE, STAGE, MODE = "add", "change", "delete", "stage", "mode"
_KINDS = {"A": ADD, "D": DELETE, "M": CHANGE, "T": CHANGE}
# Keys in a safety checkpoint's state: directories made and modes narrowed by the restore.
_MADE, _NARROWED = "directories", "modes"

_Paths = Sequence[bytes]
_PathTest = Callable[[bytes], bool]
Side = tuple[Contents, str]  # contents of the worktree or a snapshot; its commit ("" for none)


@dataclass(frozen=True, slots=True)
class PathChange:
    """What a restore does to one path; directories end in a slash.

    `kind` is "add", "change" or "delete" for a file; "mode" if only the permission bits change;
    "stage" if only the index entry differs.
    """

    kind: str
    path: bytes


@dataclass(slots=True)
class Plan:
    """What a restore does to files, directories and index."""

    files: list[Difference] = field(default_factory=list)  # to write or delete
    # Whether all files equal the snapshot after the restore.
    is_whole: bool = True
    # Whether the tree has a file and a directory of the same name; git makes no such tree.
    is_contradictory: bool = False
    submodules: list[Difference] = field(default_factory=list)  # at another commit than captured
    exactness: Exactness = field(default_factory=Exactness)
    changes: list[PathChange] = field(default_factory=list)
    in_the_way: list[bytes] = field(default_factory=list)  # blocking files in no checkpoint
    obstacles: list[bytes] = field(default_factory=list)  # blocking paths, not capturable
    # Lines for `PrivateIndex.put` that restore the index entries of the selected paths.
    index_lines: list[bytes] = field(default_factory=list)
    unknown: Collection[bytes] = ()  # untracked files that stay: the snapshot did not capture any
    untouched: list[bytes] = field(default_factory=list)  # differing files that must stay
    # Index lines that remove `.gitattributes` entries without a file, which affect other files.
    attributes_gone: list[bytes] = field(default_factory=list)
    skipped: Collection[bytes] = ()  # marked skip-worktree now or in the snapshot: may lack a file
    # Files to delete while their skip-worktree index entries stay.
    absent: Collection[bytes] = ()
    # By index flag: the selected paths that get the flag, and the paths that lose it.
    flags: dict[str, tuple[Collection[bytes], Collection[bytes]]] = field(default_factory=dict)
    directories: Collection[bytes] = ()  # that must exist
    removed: Collection[bytes] = ()  # directories to remove if empty
    modes: Mapping[bytes, int] = field(default_factory=dict)  # permission bits to set, by path
    widened: dict[bytes, int] = field(default_factory=dict)  # permission bits to add back, by path
    state: dict[str, Any] = field(default_factory=dict)  # what `undo` will need

    @property
    def outdated(self) -> set[bytes]:
        """Return the paths that git must stat again."""
        to_write = paths_in(self.files, "AMT")
        return to_write - self.exactness.raw.keys() | self.exactness.rewritten

    def without_file(self, repository: Repository) -> set[bytes]:
        """Return the paths marked skip-worktree that have no file in the worktree."""
        top = os.fsencode(repository.worktree or "")
        return {path for path in self.skipped if not is_file(top, path)}

    def require_no_obstacle(self) -> None:
        """Raise `WorktreeError` if the restore would overwrite a path in no checkpoint."""
        if paths := [*self.obstacles, *self.in_the_way]:
            names = join_first([decode_path(path) for path in paths])
            hint = "move these paths away, then run the command again; nothing was changed"
            message = f"the restore would overwrite paths that are in no checkpoint: {names}"
            raise WorktreeError(message, hint=hint)

    def apply_modes(self, repository: Repository) -> bool:
        """Make and remove empty directories, set modes; return whether any was planned."""
        top = repository.worktree or ""
        exact_files.remove_empty(top, self.removed)
        exact_files.widen(top, self.widened)
        exact_files.bring_back(top, self.directories, self.modes)
        return bool(self.removed or self.widened or self.directories or self.modes)


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    """Return whether `path` is or is below one of `paths`; True if `paths` is empty."""
    return not paths or any(path == top or not top or path.startswith(top + b"/") for top in paths)


def is_file(top: bytes, path: bytes) -> bool:
    """Return whether a path is a regular file or symlink, and not below a symlink."""
    absolute = os.path.join(top, path)
    if not (os.path.isfile(absolute) or os.path.islink(absolute)):
        return False
    return not any(os.path.islink(os.path.join(top, parent)) for parent in _list_parents(path))


def decode_path(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def as_text(path: bytes) -> str | bytes:
    """Return a path as text if it is valid UTF-8, else the bytes."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return path


def paths_in(changes: Iterable[Difference], only: str = "AMTD") -> set[bytes]:
    return {change.path for change in changes if change.status in only}


def find_missing(
    repository: Repository, current: Contents, target: Side, paths: Sequence[bytes]
) -> set[bytes]:
    """Return the paths in `current` that the worktree has no file for.

    A path marked skip-worktree counts only if the restore may write it.
    """
    snapshot, commit = target
    skipped = set(current.flags.get(SKIPPED, ()) if current.sparse is not None else ())
    if current.sparse == snapshot.sparse:
        skipped -= set(snapshot.flags.get(SKIPPED, ()))
    elif skipped:
        entries = comparison.merged_tree(repository, snapshot, commit)
        skipped &= paths_in(diff.differences(repository, entries, snapshot.files))
    top = os.fsencode(repository.worktree or "")
    away = {path for path in skipped if is_within(path, paths) and not is_file(top, path)}
    return away.union(current.flags.get(ABSENT, ()))


class Planner:
    """Plan how a restore turns the worktree (`current`) into a snapshot (`target`).

    Empty `paths` selects all. `stays` tells whether the restore must not touch a file.
    """

    def __init__(
        self, repository: Repository, current: Side, target: Side, paths: _Paths, stays: _PathTest
    ) -> None:
        self._repository, self._paths, self._stays = repository, paths, stays
        self._top = os.fsencode(repository.worktree or "")
        self._current, self._target = current[0], target[0]
        # Trees of all index entries, at stage 0.
        self._old_entries = comparison.merged_tree(repository, *current)
        self._new_entries = comparison.merged_tree(repository, *target)
        self._restaged: set[bytes] = set()
        self.plan = Plan()

    def require_paths(self, checkpoint: str) -> None:
        """Raise `NotFoundError` if a path is in neither the worktree nor the checkpoint."""
        paths = [path for path in self._paths if path]
        existing: set[bytes] = set()
        sides = ((self._current, self._old_entries), (self._target, self._new_entries))
        for side, entries in sides if paths else ():
            for tree in (side.files, entries):
                existing |= paths_in_tree(self._repository, tree, paths)
            conflicts = manifest.conflict_lines(self._repository, side)
            existing |= {line.partition(b"\t")[2] for line in conflicts}
            existing.update(side.flags.get(INTENT, ()), side.directories)
        if absent := [path for path in paths if not any(is_within(e, [path]) for e in existing)]:
            names = ", ".join(map(decode_path, absent))
            hint = f"list its files: git ls-tree -r --name-only {self._target.files[:10]}"
            message = f"neither in the worktree nor in checkpoint {checkpoint}: {names}"
            raise NotFoundError(message, hint=hint)

    def make(self, undone: Collection[bytes], *, index: bool) -> Plan:
        """Plan the changes of files; with `index`, also of index entries.

        `undone` lists files that the restore being undone has created.
        """
        plan, stays = self.plan, self._stays
        # Selected paths with an index entry, but no file, in the snapshot.
        differing = self._find_differences(self._new_entries, self._target.files)
        fileless = paths_in((entry for entry in differing if not entry.is_submodule), "D")
        fileless |= self._find_unmerged(self._target)
        self._plan_files(fileless, undone)
        self._find_obstacles()
        if index:
            # Ignored files that the restored index would make tracked.
            candidates = sorted(fileless - paths_in(plan.files))
            paths = [path for path in candidates if not stays(path) and self._is_file(path)]
            captured = paths_in_tree(self._repository, self._current.files, paths)
            plan.in_the_way += [path for path in paths if path not in captured]
            self._plan_index(fileless)
        sides = self._current, self._target
        plan.exactness = byte_exact.plan(self._repository, *sides, plan.files, self._may_change)
        equal_blobs = plan.exactness.equal_blobs
        staged = self._restaged - paths_in(plan.files) - equal_blobs.keys()
        plan.changes = [PathChange(_KINDS[change.status], change.path) for change in plan.files]
        plan.changes += [PathChange(CHANGE, path) for path in equal_blobs]
        plan.changes += [PathChange(STAGE, path) for path in staged]
        return plan

    def _plan_files(self, fileless: Collection[bytes], undone: Collection[bytes]) -> None:
        plan = self.plan
        plan.skipped = self._find_skipped()
        differing = self._find_differences(self._current.files, self._target.files)
        # Trees may have been fetched; git refuses other bad paths.
        if unsafe := [change.path for change in differing if not stays_within(change.path)]:
            message = f"a file of the checkpoint has an unsafe path: {unsafe[0]!r}"
            raise WorktreeError(message, hint="look at it: git fsck")
        spared = self._find_unlisted(differing) - set(fileless) - set(undone)
        if self._target.sparse in (None, self._current.sparse):
            # Files that the worktree has and the snapshot only lists as skip-worktree entries.
            safe = filter(stays_within, self._target.absent_paths)
            paths = {path for path in safe if self._is_wanted(path) and self._is_file(path)}
            plan.absent = paths & paths_in_tree(self._repository, self._current.files, paths)
        zeros = "0" * len(self._current.files)
        absent = (b"100644", b"000000", zeros, zeros)
        plan.files += [Difference("D", path, *absent) for path in sorted(plan.absent)]
        for change in differing:
            path = change.path
            if change.is_submodule:
                plan.submodules.append(change)
            elif path in plan.absent:
                continue
            elif self._stays(path):
                plan.untouched.append(path)
            elif path not in spared and (path not in plan.skipped or self._is_file(path)):
                plan.files.append(change)
        plan.is_whole = not self._paths and plan.files == differing
        to_write = paths_in(plan.files, "AMT")
        plan.is_contradictory = any(
            not to_write.isdisjoint(_list_parents(path)) for path in to_write
        )

    def _find_differences(self, old_tree: str, tree: str) -> list[Difference]:
        return diff.differences(self._repository, old_tree, tree, self._paths)

    def _find_unlisted(self, differing: list[Difference]) -> set[bytes]:
        """Return untracked files to keep, as the snapshot cannot tell about them.

        The snapshot has no untracked files at all, or its ignore rules exclude these files.
        """
        current, target = self._current, self._target
        rules_differ = any(os.path.basename(change.path) == ignore.RULES for change in differing)
        if not target.is_of_commit and not rules_differ:
            return set()
        additions = diff.differences(self._repository, self._old_entries, current.files)
        untracked = paths_in(additions, "A") - self._find_unmerged(current)
        to_write = paths_in(differing, "AMT")
        for path in to_write:  # a file to write replaces its parents
            untracked.difference_update(_list_parents(path))
        deleted = paths_in(differing, "D") & untracked
        unlisted = [path for path in deleted if to_write.isdisjoint(_list_parents(path))]
        if target.is_of_commit:
            self.plan.unknown = unlisted
            return set(unlisted)
        rules = ignore.rules_in(self._repository, current.files)
        rules = {path: oid for path, oid in rules.items() if not self._is_wanted(path)}
        new_rules = ignore.rules_in(self._repository, target.files)
        rules |= {path: oid for path, oid in new_rules.items() if self._is_wanted(path)}
        return ignore.ignored_by(self._repository, rules, unlisted)

    def _find_unmerged(self, contents: Contents) -> set[bytes]:
        # `git write-tree` omits entries in conflict and entries added with intent-to-add.
        intended = self._choose_wanted(contents.flags.get(INTENT, ()))
        return intended.union(self._list_conflicts(contents))

    def _find_skipped(self) -> set[bytes]:
        # Paths that need no file. With equal sparse patterns, these are the snapshot's.
        # A path whose captured file differs from its entry does need a file.
        current, away = self._current, set(self._target.absent_paths)
        if current.sparse in (None, self._target.sparse):
            return away
        skipped = set(current.flags.get(SKIPPED, ())) - away
        if skipped:
            trees = self._new_entries, self._target.files
            skipped -= paths_in(diff.differences(self._repository, *trees))
        return away | skipped

    def _plan_index(self, fileless: Collection[bytes]) -> None:
        plan = self.plan
        staged = self._find_differences(self._old_entries, self._new_entries)
        old, new = self._list_conflicts(self._current), self._list_conflicts(self._target)
        unmerged = {path for path in {*old, *new} if old.get(path) != new.get(path)}
        deleted = paths_in(plan.files, "D").intersection(fileless) - set(plan.absent)
        self._plan_flags(paths_in(staged) | unmerged, deleted)
        zero = b"0" * 2 * oid_size(self._repository.object_format)
        lines, deleted_entries = {entry.path: entry.line for entry in staged}, paths_in(staged, "D")
        self._restaged = {*lines, *unmerged}.union(*plan.flags.get(INTENT, ()))
        for path in sorted(self._restaged):
            plan.index_lines.append(b"0 %s 0\t%s" % (zero, path))
            if path in lines:
                plan.index_lines.append(lines[path])
            is_rule = os.path.basename(path) == attributes.FILE
            if is_rule and path in deleted_entries and not self._is_file(path):
                plan.attributes_gone.append(lines[path])
            plan.index_lines += new.get(path, [])

    def _plan_flags(self, staged: Collection[bytes], deleted: set[bytes]) -> None:
        # Rewritten entries lose their flags (git-update-index(1), `--index-info`). A deleted file
        # may still be marked: git clears skip-worktree only when it writes the index.
        is_sparse = self._current.sparse is not None
        for flag in (INTENT, ASSUMED, SKIPPED):
            old = self._choose_wanted(self._current.flags.get(flag, ()))
            new = self._choose_wanted(self._target.flags.get(flag, ()))
            if flag == SKIPPED and (is_sparse or self._target.sparse is not None):
                to_write = {change.path: change.status != "D" for change in self.plan.files}
                skipped = self._choose_wanted(self.plan.skipped)
                new = {path for path in skipped if not to_write.get(path, self._is_file(path))}
                old |= deleted - new if is_sparse else set()
            stays = old if flag == INTENT else old.difference(staged)
            if old != new or stays != old:
                self.plan.flags[flag] = (sorted(new - stays), sorted(old - new))

    def _list_conflicts(self, contents: Contents) -> dict[bytes, list[bytes]]:
        conflicts: dict[bytes, list[bytes]] = defaultdict(list)
        for line in manifest.conflict_lines(self._repository, contents):
            path = line.partition(b"\t")[2]
            if self._is_wanted(path):
                conflicts[path].append(line)
        return conflicts

    def _is_wanted(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _may_change(self, path: bytes) -> bool:
        return self._is_wanted(path) and not self._stays(path)

    def _choose_wanted(self, paths: Iterable[bytes]) -> set[bytes]:
        return set(filter(self._is_wanted, paths))

    def _is_file(self, path: bytes) -> bool:
        return is_file(self._top, path)

    def _resolve(self, path: bytes) -> bytes:
        return os.path.join(self._top, path)

    def _find_obstacles(self) -> None:
        plan, deleted = self.plan, paths_in(self.plan.files, "D")
        for change in plan.files:
            if change.status == "D":
                continue
            absolute, parents = self._resolve(change.path), _list_parents(change.path)
            obstacle = next(filter(self._is_no_directory, parents), None)
            if obstacle is None:
                if os.path.isdir(absolute) and not os.path.islink(absolute):
                    plan.obstacles += set(self._list_files(absolute)) - deleted
                elif change.status == "A" and os.path.lexists(absolute):
                    obstacle = change.path
            if obstacle is not None and obstacle not in deleted:
                absolute = self._resolve(obstacle)
                is_plain = os.path.isfile(absolute) or os.path.islink(absolute)
                (plan.in_the_way if is_plain else plan.obstacles).append(obstacle)
        plan.obstacles = sorted(set(plan.obstacles))

    def _is_no_directory(self, path: bytes) -> bool:
        absolute = self._resolve(path)
        is_plain = os.path.islink(absolute) or not os.path.isdir(absolute)
        return is_plain and os.path.lexists(absolute)

    def _list_files(self, directory: bytes) -> list[bytes]:
        paths = []
        for parent, directories, names in os.walk(directory):
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            paths += [os.path.join(parent, name) for name in [*names, *links]]
        return [os.path.relpath(path, self._top) for path in paths]

    def plan_modes(self, undone: Mapping[str, Any]) -> None:
        """Plan directories without files and permission bits; find obstacles.

        `undone` is the state of the safety checkpoint that `undo` or `redo` restores; else empty.
        """
        plan, target, top = self.plan, self._target, os.fsdecode(self._top)
        removable = [
            path for path in map(_as_bytes, undone.get(_MADE, ())) if exact_files.is_plain(path)
        ]
        for path in self._choose_wanted(plan.skipped):
            if self._is_hollow(path):  # git clears skip-worktree where something exists
                below = (parent for parent, _, _ in os.walk(self._resolve(path)))
                removable += [os.path.relpath(parent, self._top) for parent in below]
        exact_files.require_plain(target.directories, target.modes)
        plan.directories = list(filter(self._is_wanted, target.directories))
        plan.modes = {path: mode for path, mode in target.modes.items() if self._is_wanted(path)}
        touched = paths_in(plan.files)
        wider = exact_files.wider_modes(top, plan.modes)
        narrowed = {path: mode for path, mode in wider.items() if path not in touched}
        changed_modes = set(narrowed)
        needed = exact_files.with_parents(plan.directories)
        blocked = sorted(needed - paths_in(plan.files, "D"))
        plan.obstacles += filter(self._is_no_directory, blocked)
        existing = (path for path in dict.fromkeys(removable) if os.path.isdir(self._resolve(path)))
        plan.removed = [path for path in existing if path not in needed]
        recorded = {_as_bytes(name): mode for name, mode in dict(undone.get(_NARROWED, {})).items()}
        for path in sorted(recorded.keys() - touched - plan.modes.keys()):
            mode = plan.widened[path] = int(recorded[path]) & 0o777
            absolute = self._resolve(path)
            if os.path.lexists(absolute) and mode & ~os.lstat(absolute).st_mode:
                changed_modes.add(path)
        missing = exact_files.missing_directories(top, plan.directories)
        plan.changes += [PathChange(ADD, path + b"/") for path in missing]
        for path in plan.removed:
            names = os.listdir(self._resolve(path))
            if all(os.path.join(path, name) in plan.removed for name in names):
                plan.changes.append(PathChange(DELETE, path + b"/"))
        plan.changes += [PathChange(MODE, path) for path in changed_modes]
        if to_make := exact_files.missing_directories(top, sorted(needed)):
            plan.state[_MADE] = [as_text(path) for path in to_make]
        if narrowed:
            texts = ((as_text(path), mode) for path, mode in narrowed.items())
            plan.state[_NARROWED] = {text: mode for text, mode in texts if isinstance(text, str)}

    def _is_hollow(self, path: bytes) -> bool:
        # A captured directory that holds only directories, and is not a submodule's.
        absolute = self._resolve(path)
        is_directory = os.path.isdir(absolute) and not os.path.islink(absolute)
        if not is_directory or any(names for _, _, names in os.walk(absolute)):
            return False
        return any(is_within(entry, [path]) for entry in self._current.directories)


def _list_parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def _as_bytes(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))
