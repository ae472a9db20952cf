"""Plan what a restore does to each path, and find what is in its way."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, dir_modes
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference, present
from gitckpt.git.objects.encoding import oid_size, stays_within
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as ignore
from gitckpt.model.arguments import first_of
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
# State keys of a safety checkpoint: directories that the restore made, modes that it narrowed.
_MADE, _NARROWED = "directories", "modes"

Side = tuple[Contents, str]  # of the worktree or a snapshot, with its commit ("" for none)


@dataclass(frozen=True, slots=True)
class PathChange:
    """What a restore does to one path; directories end in a slash.

    Attributes:
        kind: "add", "change" or "delete" for a file; "mode" if only the permission bits change;
            "stage" if only the index entry differs.
    """

    kind: str
    path: bytes


@dataclass(slots=True)
class Shape:
    """Changes of directories without files, and of narrow modes."""

    # Directories that must exist.
    directories: Collection[bytes] = ()
    modes: Mapping[bytes, int] = field(default_factory=dict)
    # Directories to remove if they are empty.
    removed: Collection[bytes] = ()
    widened: Mapping[bytes, int] = field(default_factory=dict)
    changes: Sequence[PathChange] = ()
    # What `undo` needs, for the state of the safety checkpoint.
    state: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, repository: Repository) -> bool:
        """Apply the changes; return whether there were any."""
        top = repository.worktree or ""
        dir_modes.remove_empty(top, self.removed)
        dir_modes.widen(top, self.widened)
        dir_modes.bring_back(top, self.directories, self.modes)
        return bool(self.removed or self.widened or self.directories or self.modes)


@dataclass(slots=True)
class Plan:
    """What a restore does to files and index."""

    # Files to write or delete.
    files: list[Difference] = field(default_factory=list)
    # Whether the files equal those of the snapshot afterwards, without exception.
    is_whole: bool = True
    # A file and a directory of the same name are wanted: git did not make that tree.
    is_contradictory: bool = False
    # Submodules that were at another commit; they stay.
    submodules: list[Difference] = field(default_factory=list)
    exactness: Exactness = field(default_factory=Exactness)
    shape: Shape = field(default_factory=Shape)
    changes: list[PathChange] = field(default_factory=list)
    # Existing files at paths to write that no capture holds yet.
    in_the_way: list[bytes] = field(default_factory=list)
    # Paths in the way that cannot be captured.
    obstacles: list[bytes] = field(default_factory=list)
    # Lines for `PrivateIndex.put` that restore the entries of the wanted paths.
    index_lines: list[bytes] = field(default_factory=list)
    # Untracked files that stay: the capture of the checkpoint did not look for such files.
    unknown: Collection[bytes] = ()
    # Files that differ and stay: no checkpoint holds them, or they lie in a repository.
    untouched: list[bytes] = field(default_factory=list)
    # Lines that remove `.gitattributes` entries without a file: they would affect other files.
    rules_gone: list[bytes] = field(default_factory=list)
    # Paths marked skip-worktree, here or in the snapshot, that may stay absent.
    skipped: Collection[bytes] = ()
    # Files to delete whose skip-worktree entries stay, with a content that no file had.
    absent: Collection[bytes] = ()
    # By flag: the wanted paths that get it, and those that lose it.
    flags: dict[str, tuple[Collection[bytes], Collection[bytes]]] = field(default_factory=dict)

    @property
    def written(self) -> set[bytes]:
        """Return the paths that git must stat again."""
        coming = {change.path for change in self.files if change.status != "D"}
        return coming - self.exactness.raw.keys() | set(self.exactness.written)

    def without_file(self, repository: Repository) -> set[bytes]:
        """Return the skipped paths that have an index entry but no file now."""
        top = os.fsencode(repository.worktree or "")
        return {path for path in self.skipped if not is_file(top, path)}

    def require_no_obstacle(self) -> None:
        """Raise `WorktreeError` if a path in the way is in no checkpoint."""
        paths = [*self.obstacles, *self.in_the_way]
        if paths:
            names = first_of([path.decode("utf-8", "replace") for path in paths])
            hint = "move it out of the way, then run the command again; nothing was changed"
            message = f"in the way of the files, and in no checkpoint: {names}"
            raise WorktreeError(message, hint=hint)


def make_plan(
    repository: Repository,
    found: Side,
    wanted: Side,
    paths: Sequence[bytes],
    written: Collection[bytes] = (),
    *,
    index: bool = True,
    stays: Callable[[bytes], bool] = lambda _: False,
) -> Plan:
    """Plan how a worktree becomes that of a snapshot.

    Args:
        paths: files and directories to which the restore is restricted; none for all.
        written: files that exist only because of the restore that is undone.
        index: whether the index entries of `paths` are restored as well.
        stays: tells whether a file must not be touched.
    """
    return _Planner(repository, found, wanted, paths, stays).make(written, index=index)


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    """Return whether a path is in one of `paths`; always if there are none."""
    return not paths or any(path == top or not top or path.startswith(top + b"/") for top in paths)


def is_file(top: bytes, path: bytes) -> bool:
    """Return whether a path is a file or symlink, not below another symlink."""
    whole = os.path.join(top, path)
    if not (os.path.isfile(whole) or os.path.islink(whole)):
        return False
    return not any(os.path.islink(os.path.join(top, parent)) for parent in _above(path))


def missing(
    repository: Repository, found: Contents, wanted: Contents, commit: str, paths: Sequence[bytes]
) -> set[bytes]:
    """Return files that a capture took from the index and that do not exist.

    In a sparse checkout, only those that the restore may write. `commit` is the one of `wanted`.
    """
    skipped = set(found.flags.get(SKIPPED, ()) if found.sparse is not None else ())
    if found.sparse == wanted.sparse:
        skipped -= set(wanted.flags.get(SKIPPED, ()))
    elif skipped:
        entries = comparison.merged_tree(repository, wanted, commit)
        skipped &= _paths_of(diff.differences(repository, entries, wanted.files))
    top = os.fsencode(repository.worktree or "")
    away = {path for path in skipped if is_within(path, paths) and not is_file(top, path)}
    return away.union(found.flags.get(ABSENT, ()))


def require_paths(
    repository: Repository, sides: Sequence[Side], paths: Sequence[bytes], checkpoint: str
) -> None:
    """Raise `NotFoundError` if a path is in neither side: worktree, checkpoint."""
    named = [path for path in paths if path]
    if not named:
        return
    known: set[bytes] = set()
    for side, commit in sides:
        for tree in (side.files, comparison.merged_tree(repository, side, commit)):
            known |= present(repository, tree, named)
        known |= {line.partition(b"\t")[2] for line in manifest.conflicts(repository, side)}
        known.update(side.flags.get(INTENT, ()), side.directories)
    gone = [path for path in named if not any(is_within(entry, [path]) for entry in known)]
    if gone:
        names = ", ".join(path.decode("utf-8", "replace") for path in gone)
        raise NotFoundError(
            f"neither here nor in checkpoint {checkpoint}: {names}",
            hint=f"see what it holds: git ls-tree -r --name-only {sides[1][0].files[:10]}",
        )


class _Planner:
    def __init__(
        self,
        repository: Repository,
        found: Side,
        wanted: Side,
        paths: Sequence[bytes],
        stays: Callable[[bytes], bool],
    ) -> None:
        self._repository = repository
        self._top = os.fsencode(repository.worktree or "")
        self._found, head = found
        self._wanted, commit = wanted
        self._paths = paths
        self._stays = stays
        self._before = comparison.merged_tree(repository, self._found, head)
        self._after = comparison.merged_tree(repository, self._wanted, commit)
        self._staged: set[bytes] = set()
        self.plan = Plan()

    def make(self, written: Collection[bytes], *, index: bool) -> Plan:
        plan, stays = self.plan, self._stays
        fileless = self._fileless()
        self._plan_files(fileless, written)
        self._find_obstacles()
        if index:
            self._find_ignored({path for path in fileless if not stays(path)})
            self._plan_index(fileless)
        plan.exactness = byte_exact.plan(
            self._repository,
            self._found,
            self._wanted,
            plan.files,
            lambda path: self._is_wanted(path) and not stays(path),
        )
        alike = plan.exactness.alike
        staged = sorted(self._staged - _paths_of(plan.files) - alike.keys())
        plan.changes = [PathChange(_KINDS[change.status], change.path) for change in plan.files]
        plan.changes += [PathChange(CHANGE, path) for path in alike]
        plan.changes += [PathChange(STAGE, path) for path in staged]
        plan.changes.sort(key=lambda change: change.path)
        return plan

    def _plan_files(self, fileless: Collection[bytes], written: Collection[bytes]) -> None:
        plan = self.plan
        plan.skipped = self._skipped()
        differing = self._differences(self._found.files, self._wanted.files)
        for change in differing:  # trees may have been fetched; git refuses other bad paths
            if not stays_within(change.path):
                message = f"a file of the checkpoint has an unsafe path: {change.path!r}"
                raise WorktreeError(message, hint="look at it: git fsck")
        spared = self._unlisted(differing) - set(fileless) - set(written)
        plan.absent = self._absent()
        zeros = "0" * len(self._found.files)
        plan.files += [
            Difference("D", path, b"100644", b"000000", zeros, zeros)
            for path in sorted(plan.absent)
        ]
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
        coming = _paths_of(plan.files, only="AMT")
        plan.is_contradictory = any(not coming.isdisjoint(_above(path)) for path in coming)

    def _differences(self, before: str, after: str) -> list[Difference]:
        return diff.differences(self._repository, before, after, self._paths)

    def _unlisted(self, differing: list[Difference]) -> set[bytes]:
        """Return untracked files to spare, as the snapshot says nothing about them.

        Its capture did not list untracked files, or its rules ignore them.
        """
        found, wanted = self._found, self._wanted
        rules_differ = any(os.path.basename(change.path) == ignore.RULES for change in differing)
        if not wanted.is_of_commit and not rules_differ:
            return set()
        additions = diff.differences(self._repository, self._before, found.files)
        untracked = _paths_of(additions, only="A") - self._staged_apart(found)
        written = _paths_of(differing, only="AMT")
        for path in written:  # a file to write needs their place
            untracked.difference_update(_above(path))
        gone = [
            path
            for path in _paths_of(differing, only="D") & untracked
            if written.isdisjoint(_above(path))
        ]
        if wanted.is_of_commit:
            self.plan.unknown = gone
            return set(gone)
        rules = {
            path: oid
            for files, is_coming in ((found.files, False), (wanted.files, True))
            for path, oid in ignore.rules_in(self._repository, files).items()
            if self._is_wanted(path) == is_coming
        }
        return ignore.ignored_by(self._repository, rules, gone)

    def _fileless(self) -> set[bytes]:
        # The wanted index entries without a file.
        differing = self._differences(self._after, self._wanted.files)
        gone = {entry.path for entry in differing if entry.status == "D" and not entry.is_submodule}
        return gone | self._staged_apart(self._wanted)

    def _staged_apart(self, contents: Contents) -> set[bytes]:
        # `write-tree` leaves out entries in conflict and entries added with intent-to-add.
        intended = filter(self._is_wanted, contents.flags.get(INTENT, ()))
        return {*self._conflicts(contents), *intended}

    def _find_ignored(self, fileless: Collection[bytes]) -> None:
        # Ignored files that would become tracked: the wanted index has them, the snapshot no file.
        planned = _paths_of(self.plan.files)
        paths = [path for path in sorted(fileless) if path not in planned and self._is_file(path)]
        captured = present(self._repository, self._found.files, paths)
        self.plan.in_the_way += [path for path in paths if path not in captured]

    def _absent(self) -> set[bytes]:
        # Files that exist here but not in the snapshot, where their entries are skipped.
        if self._wanted.sparse is not None and self._wanted.sparse != self._found.sparse:
            return set()
        safe = filter(stays_within, self._wanted.away)
        paths = [path for path in safe if self._is_wanted(path) and self._is_file(path)]
        return set(paths) & present(self._repository, self._found.files, paths)

    def _skipped(self) -> set[bytes]:
        # Paths whose files stay away. With the same patterns, these are the ones of the snapshot. A
        # path that is skipped here, but existed then and differed from its entry, is not among
        # them: the entry does not hold its content.
        wanted = set(self._wanted.away)
        if self._found.sparse is None or self._found.sparse == self._wanted.sparse:
            return wanted
        skipped = set(self._found.flags.get(SKIPPED, ())) - wanted
        if skipped:
            differing = diff.differences(self._repository, self._after, self._wanted.files)
            skipped -= _paths_of(differing)
        return wanted | skipped

    def _plan_index(self, fileless: Collection[bytes]) -> None:
        plan = self.plan
        staged = self._differences(self._before, self._after)
        before, after = self._conflicts(self._found), self._conflicts(self._wanted)
        unmerged = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        deleted = _paths_of(plan.files, only="D").intersection(fileless) - set(plan.absent)
        self._plan_flags(_paths_of(staged) | unmerged, deleted)
        zero = b"0" * 2 * oid_size(self._repository.object_format)
        lines = {entry.path: entry.line for entry in staged}
        gone = _paths_of(staged, only="D")
        self._staged = {*lines, *unmerged}.union(*plan.flags.get(INTENT, ()))
        for path in sorted(self._staged):
            plan.index_lines.append(b"0 %s 0\t%s" % (zero, path))
            if path in lines:
                plan.index_lines.append(lines[path])
            is_rule = os.path.basename(path) == attributes.FILE
            if is_rule and path in gone and not self._is_file(path):
                plan.rules_gone.append(lines[path])
            plan.index_lines += after.get(path, [])

    def _plan_flags(self, staged: Collection[bytes], deleted: set[bytes]) -> None:
        # Rewritten entries lose their flags (git-update-index(1), `--index-info`). The entry of a
        # deleted file may still be marked: git clears skip-worktree only when it writes the index.
        is_sparse = self._found.sparse is not None
        for flag in (INTENT, ASSUMED, SKIPPED):
            before = set(filter(self._is_wanted, self._found.flags.get(flag, ())))
            after = set(filter(self._is_wanted, self._wanted.flags.get(flag, ())))
            if flag == SKIPPED and (is_sparse or self._wanted.sparse is not None):
                after = set(filter(self._is_wanted, self._without_file_then()))
                before |= deleted - after if is_sparse else set()
            stays = before if flag == INTENT else before.difference(staged)
            if before != after or stays != before:
                self.plan.flags[flag] = (sorted(after - stays), sorted(before - after))

    def _without_file_then(self) -> list[bytes]:
        planned = {change.path: change.status != "D" for change in self.plan.files}
        return [path for path in self.plan.skipped if not planned.get(path, self._is_file(path))]

    def _conflicts(self, contents: Contents) -> dict[bytes, list[bytes]]:
        conflicts: dict[bytes, list[bytes]] = {}
        for line in manifest.conflicts(self._repository, contents):
            path = line.partition(b"\t")[2]
            if self._is_wanted(path):
                conflicts.setdefault(path, []).append(line)
        return conflicts

    def _is_wanted(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _is_file(self, path: bytes) -> bool:
        return is_file(self._top, path)

    def _find_obstacles(self) -> None:
        obstacles = self.plan.obstacles
        gone = _paths_of(self.plan.files, only="D")
        for change in self.plan.files:
            if change.status == "D" or self._is_blocked(change.path, gone):
                continue
            whole = os.path.join(self._top, change.path)
            if os.path.isdir(whole) and not os.path.islink(whole):
                obstacles += [path for path in self._files_in(whole) if path not in gone]
            elif change.status == "A" and os.path.lexists(whole):
                self._note_obstacle(change.path)
        self.plan.obstacles = sorted(set(obstacles))

    def _note_obstacle(self, path: bytes) -> None:
        whole = os.path.join(self._top, path)
        is_plain = os.path.isfile(whole) or os.path.islink(whole)
        (self.plan.in_the_way if is_plain else self.plan.obstacles).append(path)

    def _is_blocked(self, path: bytes, gone: Collection[bytes]) -> bool:
        for parent in _above(path):
            if _is_no_directory(os.path.join(self._top, parent)):
                if parent not in gone:
                    self._note_obstacle(parent)
                return True
        return False

    def _files_in(self, directory: bytes) -> list[bytes]:
        paths = []
        for parent, directories, names in os.walk(directory):
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            paths += [os.path.join(parent, name) for name in [*names, *links]]
        return [os.path.relpath(path, self._top) for path in paths]


def _paths_of(changes: Iterable[Difference], only: str = "AMTD") -> set[bytes]:
    return {change.path for change in changes if change.status in only}


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


# Directories without files, and narrow modes.


def plan_shape(
    repository: Repository,
    wanted: Contents,
    plan: Plan,
    paths: Sequence[bytes],
    *,
    undone: Mapping[str, Any],
    captured: Collection[bytes],
) -> Shape:
    """Plan directories without files and narrow modes; add obstacles to the plan.

    Args:
        undone: state of the safety checkpoint whose restore is undone; empty for a restore.
        captured: directories without files that the safety checkpoint will hold.
    """
    top = os.fsencode(repository.worktree or "")
    made = [path for path in map(_path, undone.get(_MADE, ())) if dir_modes.is_plain(path)]
    narrowed_then = dict(undone.get(_NARROWED, {})).items()
    widened = {_path(name): int(mode) & 0o777 for name, mode in narrowed_then}
    hollow = [
        path for path in plan.skipped if is_within(path, paths) and _is_hollow(top, path, captured)
    ]
    if not (wanted.directories or wanted.modes or made or widened or hollow):
        return Shape()
    dir_modes.require_plain(wanted.directories, wanted.modes)
    touched = _paths_of(plan.files)
    directories = [path for path in wanted.directories if is_within(path, paths)]
    modes = {path: mode for path, mode in wanted.modes.items() if is_within(path, paths)}
    wider = dir_modes.wider(os.fsdecode(top), modes)
    narrowed = {path: mode for path, mode in wider.items() if path not in touched}
    kept = dir_modes.with_above(directories)
    blocked = sorted(kept - _paths_of(plan.files, only="D"))
    plan.obstacles += [path for path in blocked if _is_no_directory(os.path.join(top, path))]
    for path in hollow:  # git clears skip-worktree where something exists
        below = (parent for parent, _, _ in os.walk(os.path.join(top, path)))
        made += [os.path.relpath(parent, top) for parent in below]
    removed = [
        path
        for path in dict.fromkeys(made)
        if path not in kept and os.path.isdir(os.path.join(top, path))
    ]
    widened = {
        path: mode for path, mode in widened.items() if path not in touched and path not in modes
    }
    missing_here = dir_modes.missing(os.fsdecode(top), directories)
    changes = [PathChange(ADD, path + b"/") for path in missing_here]
    changes += [
        PathChange(DELETE, path + b"/")
        for path in removed
        if all(os.path.join(path, name) in removed for name in os.listdir(os.path.join(top, path)))
    ]
    changes += [PathChange(MODE, path) for path in sorted({*narrowed, *_narrower(top, widened)})]
    state: dict[str, Any] = {}
    coming = dir_modes.missing(os.fsdecode(top), sorted(dir_modes.with_above(directories)))
    if coming:
        state[_MADE] = [as_text(path) for path in coming]
    if narrowed:
        names = {as_text(path): mode for path, mode in narrowed.items()}
        state[_NARROWED] = {name: mode for name, mode in names.items() if isinstance(name, str)}
    return Shape(directories, modes, removed, widened, changes, state)


def _is_hollow(top: bytes, path: bytes, captured: Collection[bytes]) -> bool:
    # A captured directory that holds only directories; the directory of a submodule does not count.
    whole = os.path.join(top, path)
    if not os.path.isdir(whole) or os.path.islink(whole):
        return False
    has_files = any(names for _, _, names in os.walk(whole))
    return not has_files and any(is_within(directory, [path]) for directory in captured)


def _narrower(top: bytes, modes: Mapping[bytes, int]) -> set[bytes]:
    whole = {
        path: os.path.join(top, path) for path in modes if os.path.lexists(os.path.join(top, path))
    }
    return {path for path, file in whole.items() if modes[path] & ~os.lstat(file).st_mode}


def _is_no_directory(path: bytes) -> bool:
    return os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path))


def _path(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))


def as_text(path: bytes) -> str | bytes:
    """Return a path as text if it is UTF-8: people read the state of checkpoints."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return path
