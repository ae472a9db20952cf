"""Plan what a restore does to each path; find paths that prevent the restore."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, exact_files
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import PathDifference, list_paths
from gitckpt.git.objects.encoding import has_no_dotdot, oid_length
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as ignore
from gitckpt.model import ids
from gitckpt.model.arguments import closest_word, join_first, quote_path
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.restore import byte_exact
from gitckpt.store.restore.byte_exact import ByteExactPlan
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.manifest import ABSENT, ASSUMED, INTENT, SKIPPED, Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ADD, CHANGE, DELETE, STAGE, UNSTAGE, MODE = "add", "change", "delete", "stage", "unstage", "mode"
_KINDS = {"A": ADD, "D": DELETE, "M": CHANGE, "T": CHANGE}
# Keys in a safety checkpoint's state: directories made and modes narrowed by the restore.
_MADE, _NARROWED = "directories", "modes"

_Paths = Sequence[bytes]
_PathTest = Callable[[bytes], bool]
Side = tuple[Snapshot, str]  # contents of the worktree or a snapshot; its commit ("" for none)


@dataclass(frozen=True, slots=True)
class PathChange:
    """A change that a restore makes to one path; the path of a directory ends in "/".

    `kind` is "add", "change" or "delete"; or "mode" if only the permission bits change, "stage" if
    only the entry in the index changes, or "unstage" if only that entry goes.
    """

    kind: str
    path: bytes


@dataclass(slots=True)
class RestorePlan:
    """The planned changes of a restore to files, directories and the index."""

    files: list[PathDifference] = field(default_factory=list)  # to write or delete
    is_whole: bool = True  # whether all files equal the snapshot after the restore
    # Whether the tree has a file and a directory of the same name; git makes no such tree.
    is_contradictory: bool = False
    submodules: list[PathDifference] = field(default_factory=list)  # whose commit differs
    exactness: ByteExactPlan = field(default_factory=ByteExactPlan)
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
    absent: Collection[bytes] = ()  # files to delete; their skip-worktree index entries stay
    # By index flag: the selected paths that get the flag, and the paths that lose it.
    flags: dict[str, tuple[Collection[bytes], Collection[bytes]]] = field(default_factory=dict)
    directories: Collection[bytes] = ()  # that must exist
    removed: Collection[bytes] = ()  # directories to remove if empty
    modes: Mapping[bytes, int] = field(default_factory=dict)  # permission bits to set, by path
    widened: dict[bytes, int] = field(default_factory=dict)  # permission bits to add back, by path
    state: dict[str, Any] = field(default_factory=dict)  # what `undo` will need

    @property
    def paths_to_stat(self) -> set[bytes]:
        """The written paths, for which the index needs new stat data."""
        written_paths = paths_of(self.files, "AMT")
        return written_paths - self.exactness.raw.keys() | self.exactness.rewritten

    def list_skipped_without_file(self, repository: Repository) -> set[bytes]:
        top = os.fsencode(repository.worktree or "")
        return {path for path in self.skipped if not is_file(top, path)}

    def require_no_blocking_path(self) -> None:
        """Raise `WorktreeError` if a path blocks the restore and no checkpoint has it."""
        if blocking_paths := [*self.obstacles, *self.in_the_way]:
            names = join_first([decode_path(path) for path in blocking_paths])
            hint = "move these paths away, then run the command again; nothing was changed"
            message = f"the restore would overwrite paths that are in no checkpoint: {names}"
            raise WorktreeError(message, hint=hint)

    def apply_modes(self, repository: Repository) -> bool:
        """Apply planned modes and empty directories; return whether any was planned."""
        top = repository.worktree or ""
        exact_files.remove_empty_directories(top, self.removed)
        exact_files.widen_modes(top, self.widened)
        exact_files.bring_back(top, self.directories, self.modes)
        return bool(self.removed or self.widened or self.directories or self.modes)


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    """Return whether `path` is in or below `paths`; empty `paths` contain every path."""
    return not paths or any(path == top or not top or path.startswith(top + b"/") for top in paths)


def is_file(top: bytes, path: bytes) -> bool:
    """Return whether `path` in `top` is a file or symlink, and not below a symlink."""
    absolute = os.path.join(top, path)
    if not (os.path.isfile(absolute) or os.path.islink(absolute)):
        return False
    return not any(os.path.islink(os.path.join(top, parent)) for parent in _list_parents(path))


def decode_path(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def decode_if_utf8(path: bytes) -> str | bytes:
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return path


def paths_of(changes: Iterable[PathDifference], only: str = "AMTD") -> set[bytes]:
    return {change.path for change in changes if change.status in only}


def find_missing_files(
    repository: Repository, current: Snapshot, target: Side, paths: Sequence[bytes]
) -> set[bytes]:
    """Return the paths in the capture `current` for which the worktree has no file.

    Omits paths marked skip-worktree, unless the restore may write them.
    """
    snapshot, commit = target
    skipped_paths = set(current.flags.get(SKIPPED, ()) if current.sparse is not None else ())
    if current.sparse == snapshot.sparse:
        skipped_paths -= set(snapshot.flags.get(SKIPPED, ()))
    elif skipped_paths:
        index_tree = comparison.staged_tree(repository, snapshot, commit)
        skipped_paths &= paths_of(diff.diff_trees(repository, index_tree, snapshot.files))
    top = os.fsencode(repository.worktree or "")
    missing = {path for path in skipped_paths if is_within(path, paths) and not is_file(top, path)}
    return missing.union(current.flags.get(ABSENT, ()))


class RestorePlanner:
    """Plan how a restore turns the worktree (`current`) into a snapshot (`target`).

    Empty `paths` select all paths. `stays` tells whether the restore must not change a path.
    """

    def __init__(
        self, repository: Repository, current: Side, target: Side, paths: _Paths, stays: _PathTest
    ) -> None:
        self._repository, self._paths, self._stays = repository, paths, stays
        self._top = os.fsencode(repository.worktree or "")
        self._current, self._target = current[0], target[0]
        # Trees of all index entries, at stage 0.
        self._old_entries = comparison.staged_tree(repository, *current)
        self._new_entries = comparison.staged_tree(repository, *target)
        self._restaged: set[bytes] = set()
        self._unstaged: set[bytes] = set()  # of these, the ones that leave the index
        self.plan = RestorePlan()

    def require_known_paths(self, checkpoint: str) -> None:
        """Raise `NotFoundError` if worktree and checkpoint both lack one of the paths."""
        paths = [path for path in self._paths if path]
        known_paths: set[bytes] = set()
        sides = ((self._current, self._old_entries), (self._target, self._new_entries))
        for side, index_tree in sides if paths else ():
            for tree in (side.files, index_tree):
                known_paths |= list_paths(self._repository, tree, paths)
            conflict_lines = manifest.index_lines_of_conflicts(self._repository, side)
            known_paths |= {line.partition(b"\t")[2] for line in conflict_lines}
            known_paths.update(side.flags.get(INTENT, ()), side.directories)
        if absent := [path for path in paths if not any(is_within(e, [path]) for e in known_paths)]:
            names = ", ".join(map(decode_path, absent))
            hint = f"list its files: git ckpt ls {checkpoint[: ids.SHORT]}"
            similar_path = self._find_similar_path(absent[0])
            if similar_path is not None:
                hint = f"did you mean {quote_path(similar_path)}? {hint}"
            message = f"neither in the worktree nor in checkpoint {checkpoint}: {names}"
            raise NotFoundError(message, hint=hint)

    def _find_similar_path(self, path: bytes) -> bytes | None:
        paths = [leaf[0] for leaf in diff.list_leaves(self._repository, self._target.files)]
        name = os.path.basename(path)
        same_name = (other for other in paths if os.path.basename(other) == name)
        directory = os.path.dirname(path)
        neighbors = {decode_path(p): p for p in paths if os.path.dirname(p) == directory}
        text = closest_word(decode_path(path), neighbors)
        return next(same_name, None) if text is None else neighbors[text]

    def plan_changes(self, undone: Collection[bytes], *, index: bool) -> RestorePlan:
        """Plan the changes of files, and of index entries if `index` is true.

        `undone` lists the files that an earlier restore created, if this restore undoes it.
        """
        plan, stays = self.plan, self._stays
        # Selected paths with an index entry, but no file, in the snapshot.
        differences = self._find_differences(self._new_entries, self._target.files)
        fileless_paths = paths_of((entry for entry in differences if not entry.is_submodule), "D")
        fileless_paths |= self._find_unmerged_paths(self._target)
        self._plan_file_changes(fileless_paths, undone)
        self._find_blocking_paths()
        if index:
            # Ignored files that the restored index would make tracked.
            newly_tracked = sorted(fileless_paths - paths_of(plan.files))
            paths = [path for path in newly_tracked if not stays(path) and self._is_file(path)]
            tracked_paths = list_paths(self._repository, self._current.files, paths)
            plan.in_the_way += [path for path in paths if path not in tracked_paths]
            self._plan_index_changes(fileless_paths)
        sources = self._repository, self._current, self._target
        plan.exactness = byte_exact.plan_exact_files(*sources, plan.files, self._may_change)
        equal_blobs = plan.exactness.equal_blobs
        staged_paths = self._restaged - paths_of(plan.files) - equal_blobs.keys()
        plan.changes = [PathChange(_KINDS[change.status], change.path) for change in plan.files]
        plan.changes += [PathChange(CHANGE, path) for path in equal_blobs]
        unstaged_paths = staged_paths & self._unstaged
        plan.changes += [PathChange(STAGE, path) for path in staged_paths - unstaged_paths]
        plan.changes += [PathChange(UNSTAGE, path) for path in unstaged_paths]
        return plan

    def _plan_file_changes(self, fileless: Collection[bytes], undone: Collection[bytes]) -> None:
        plan = self.plan
        plan.skipped = self._find_needing_no_file()
        differences = self._find_differences(self._current.files, self._target.files)
        # Trees may have been fetched; git refuses other bad paths.
        if unsafe := [change.path for change in differences if not has_no_dotdot(change.path)]:
            message = f"a file of the checkpoint has an unsafe path: {unsafe[0]!r}"
            raise WorktreeError(message, hint="look at it: git fsck")
        kept_paths = self._find_untracked_to_keep(differences) - set(fileless) - set(undone)
        if self._target.sparse in (None, self._current.sparse):
            # Files that the worktree has and the snapshot only lists as skip-worktree entries.
            safe_paths = filter(has_no_dotdot, self._target.absent_paths)
            paths = {path for path in safe_paths if self._is_selected(path) and self._is_file(path)}
            plan.absent = paths & list_paths(self._repository, self._current.files, paths)
        zeros = "0" * len(self._current.files)
        absent_entry = (b"100644", b"000000", zeros, zeros)
        plan.files += [PathDifference("D", path, *absent_entry) for path in sorted(plan.absent)]
        for change in differences:
            path = change.path
            if change.is_submodule:
                plan.submodules.append(change)
            elif path in plan.absent:
                continue
            elif self._stays(path):
                plan.untouched.append(path)
            elif path not in kept_paths and (path not in plan.skipped or self._is_file(path)):
                plan.files.append(change)
        plan.is_whole = not self._paths and plan.files == differences
        written = paths_of(plan.files, "AMT")
        plan.is_contradictory = any(not written.isdisjoint(_list_parents(path)) for path in written)

    def _find_differences(self, old_tree: str, tree: str) -> list[PathDifference]:
        return diff.diff_trees(self._repository, old_tree, tree, self._paths)

    def _find_untracked_to_keep(self, differing: list[PathDifference]) -> set[bytes]:
        """Return untracked files to keep because the snapshot could not capture them."""
        current, target = self._current, self._target
        rules_differ = any(os.path.basename(change.path) == ignore.RULES for change in differing)
        if not target.is_of_commit and not rules_differ:
            return set()
        additions = diff.diff_trees(self._repository, self._old_entries, current.files)
        new_paths = paths_of(additions, "A") - self._find_unmerged_paths(current)
        written_paths = paths_of(differing, "AMT")
        for path in written_paths:  # a file to write replaces its parents
            new_paths.difference_update(_list_parents(path))
        deleted = paths_of(differing, "D") & new_paths
        unlisted_paths = [path for path in deleted if written_paths.isdisjoint(_list_parents(path))]
        if target.is_of_commit:
            self.plan.unknown = unlisted_paths
            return set(unlisted_paths)
        rule_oids = ignore.list_gitignore_files(self._repository, current.files)
        rule_oids = {path: oid for path, oid in rule_oids.items() if not self._is_selected(path)}
        new_rules = ignore.list_gitignore_files(self._repository, target.files)
        rule_oids |= {path: oid for path, oid in new_rules.items() if self._is_selected(path)}
        return ignore.find_ignored_paths(self._repository, rule_oids, unlisted_paths)

    def _find_unmerged_paths(self, contents: Snapshot) -> set[bytes]:
        # `git write-tree` omits entries in conflict and entries added with intent-to-add.
        intent_paths = self._select_paths(contents.flags.get(INTENT, ()))
        return intent_paths.union(self._list_conflicts(contents))

    def _find_needing_no_file(self) -> set[bytes]:
        # Paths that need no file. With equal sparse patterns, these are the snapshot's.
        # A path whose captured file differs from its entry does need a file.
        current, absent_paths = self._current, set(self._target.absent_paths)
        if current.sparse in (None, self._target.sparse):
            return absent_paths
        skipped_paths = set(current.flags.get(SKIPPED, ())) - absent_paths
        if skipped_paths:
            trees = self._new_entries, self._target.files
            skipped_paths -= paths_of(diff.diff_trees(self._repository, *trees))
        return absent_paths | skipped_paths

    def _plan_index_changes(self, fileless: Collection[bytes]) -> None:
        plan = self.plan
        staged = self._find_differences(self._old_entries, self._new_entries)
        before, after = self._list_conflicts(self._current), self._list_conflicts(self._target)
        unmerged_paths = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        deleted_paths = paths_of(plan.files, "D").intersection(fileless) - set(plan.absent)
        self._plan_index_flags(paths_of(staged) | unmerged_paths, deleted_paths)
        null_oid = b"0" * 2 * oid_length(self._repository.object_format)
        lines = {entry.path: entry.index_info_line for entry in staged}
        deleted_entries = paths_of(staged, "D")
        self._restaged = {*lines, *unmerged_paths}.union(*plan.flags.get(INTENT, ()))
        remaining = self._select_paths(self._target.flags.get(INTENT, ())).union(after)
        self._unstaged = self._restaged - remaining - (lines.keys() - deleted_entries)
        for path in sorted(self._restaged):
            plan.index_lines.append(b"0 %s 0\t%s" % (null_oid, path))
            if path in lines:
                plan.index_lines.append(lines[path])
            is_rule = os.path.basename(path) == attributes.FILE
            if is_rule and path in deleted_entries and not self._is_file(path):
                plan.attributes_gone.append(lines[path])
            plan.index_lines += after.get(path, [])

    def _plan_index_flags(self, staged: Collection[bytes], deleted: set[bytes]) -> None:
        # Rewritten entries lose their flags (git-update-index(1), `--index-info`). A deleted file
        # may still be marked: git clears skip-worktree only when it writes the index.
        is_sparse = self._current.sparse is not None
        for flag in (INTENT, ASSUMED, SKIPPED):
            old_paths = self._select_paths(self._current.flags.get(flag, ()))
            new = self._select_paths(self._target.flags.get(flag, ()))
            if flag == SKIPPED and (is_sparse or self._target.sparse is not None):
                is_written = {change.path: change.status != "D" for change in self.plan.files}
                fileless = self._select_paths(self.plan.skipped)
                new = {path for path in fileless if not is_written.get(path, self._is_file(path))}
                old_paths |= deleted - new if is_sparse else set()
            kept_paths = old_paths if flag == INTENT else old_paths.difference(staged)
            if old_paths != new or kept_paths != old_paths:
                self.plan.flags[flag] = (sorted(new - kept_paths), sorted(old_paths - new))

    def _list_conflicts(self, contents: Snapshot) -> dict[bytes, list[bytes]]:
        conflicts: dict[bytes, list[bytes]] = defaultdict(list)
        for line in manifest.index_lines_of_conflicts(self._repository, contents):
            path = line.partition(b"\t")[2]
            if self._is_selected(path):
                conflicts[path].append(line)
        return conflicts

    def _is_selected(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _may_change(self, path: bytes) -> bool:
        return self._is_selected(path) and not self._stays(path)

    def _select_paths(self, paths: Iterable[bytes]) -> set[bytes]:
        return set(filter(self._is_selected, paths))

    def _is_file(self, path: bytes) -> bool:
        return is_file(self._top, path)

    def _abspath(self, path: bytes) -> bytes:
        return os.path.join(self._top, path)

    def _find_blocking_paths(self) -> None:
        plan, deleted_paths = self.plan, paths_of(self.plan.files, "D")
        for change in plan.files:
            if change.status == "D":
                continue
            absolute_path, parents = self._abspath(change.path), _list_parents(change.path)
            obstacle = next(filter(self._is_non_directory, parents), None)
            if obstacle is None:
                if os.path.isdir(absolute_path) and not os.path.islink(absolute_path):
                    plan.obstacles += set(self._list_files(absolute_path)) - deleted_paths
                elif change.status == "A" and os.path.lexists(absolute_path):
                    obstacle = change.path
            if obstacle is not None and obstacle not in deleted_paths:
                absolute_path = self._abspath(obstacle)
                is_plain_file = os.path.isfile(absolute_path) or os.path.islink(absolute_path)
                (plan.in_the_way if is_plain_file else plan.obstacles).append(obstacle)
        plan.obstacles = sorted(set(plan.obstacles))

    def _is_non_directory(self, path: bytes) -> bool:
        absolute_path = self._abspath(path)
        is_no_directory = os.path.islink(absolute_path) or not os.path.isdir(absolute_path)
        return is_no_directory and os.path.lexists(absolute_path)

    def _list_files(self, directory: bytes) -> list[bytes]:
        paths = []
        for parent, directories, file_names in os.walk(directory):
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            paths += [os.path.join(parent, name) for name in [*file_names, *links]]
        return [os.path.relpath(path, self._top) for path in paths]

    def plan_directories_and_modes(self, undone: Mapping[str, Any]) -> None:
        """Plan the changes of empty directories and of permission bits.

        `undone` is the state of the safety checkpoint that `undo` or `redo` restores, or empty.
        """
        plan, target, top = self.plan, self._target, os.fsdecode(self._top)
        removable = list(filter(exact_files.is_safe_path, map(_as_bytes, undone.get(_MADE, ()))))
        for path in self._select_paths(plan.skipped):
            if self._has_only_dirs(path):  # git clears skip-worktree where something exists
                paths_below = (parent for parent, _, _ in os.walk(self._abspath(path)))
                removable += [os.path.relpath(parent, self._top) for parent in paths_below]
        exact_files.require_safe_paths(target.directories, target.modes)
        plan.directories = list(filter(self._is_selected, target.directories))
        plan.modes = {path: mode for path, mode in target.modes.items() if self._is_selected(path)}
        touched = paths_of(plan.files)
        wider_modes = exact_files.find_wider_modes(top, plan.modes)
        narrowed_modes = {path: mode for path, mode in wider_modes.items() if path not in touched}
        changed_paths = set(narrowed_modes)
        directories = exact_files.add_parent_directories(plan.directories)
        blocked_paths = sorted(directories - paths_of(plan.files, "D"))
        plan.obstacles += filter(self._is_non_directory, blocked_paths)
        existing = (path for path in dict.fromkeys(removable) if os.path.isdir(self._abspath(path)))
        plan.removed = [path for path in existing if path not in directories]
        recorded = {_as_bytes(name): mode for name, mode in dict(undone.get(_NARROWED, {})).items()}
        for path in sorted(recorded.keys() - touched - plan.modes.keys()):
            mode = plan.widened[path] = int(recorded[path]) & 0o777
            absolute_path = self._abspath(path)
            if os.path.lexists(absolute_path) and mode & ~os.lstat(absolute_path).st_mode:
                changed_paths.add(path)
        missing_paths = exact_files.find_missing_directories(top, plan.directories)
        plan.changes += [PathChange(ADD, path + b"/") for path in missing_paths]
        for path in plan.removed:
            child_names = os.listdir(self._abspath(path))
            if all(os.path.join(path, name) in plan.removed for name in child_names):
                plan.changes.append(PathChange(DELETE, path + b"/"))
        plan.changes += [PathChange(MODE, path) for path in changed_paths]
        if directories_to_make := exact_files.find_missing_directories(top, sorted(directories)):
            plan.state[_MADE] = [decode_if_utf8(path) for path in directories_to_make]
        if narrowed_modes:
            pairs = ((decode_if_utf8(path), mode) for path, mode in narrowed_modes.items())
            plan.state[_NARROWED] = {text: mode for text, mode in pairs if isinstance(text, str)}

    def _has_only_dirs(self, path: bytes) -> bool:
        # A captured directory that holds only directories, and is not a submodule's.
        absolute_path = self._abspath(path)
        is_directory = os.path.isdir(absolute_path) and not os.path.islink(absolute_path)
        if not is_directory or any(names for _, _, names in os.walk(absolute_path)):
            return False
        return any(is_within(entry, [path]) for entry in self._current.directories)


def _list_parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def _as_bytes(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))
