"""Plan how a restore changes each path, and find obstacles."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, layout
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference, present
from gitckpt.git.objects.encoding import oid_size, stays_within
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as ignore
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.restore import exactness
from gitckpt.store.restore.exactness import Exactness
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.manifest import ABSENT, ASSUMED, INTENT, SKIPPED, Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Plan of files and index.


ADD, CHANGE, DELETE, STAGE, MODE = "add", "change", "delete", "stage", "mode"
_KINDS = {"A": ADD, "D": DELETE, "M": CHANGE, "T": CHANGE}


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
    # Index lines that remove `.gitattributes` entries without a file; git would apply them to other
    # files.
    rules_gone: list[bytes] = field(default_factory=list)
    # Paths marked skip-worktree, here or in the snapshot, that may stay absent.
    skipped: Collection[bytes] = ()
    # Files to delete whose skip-worktree entries stay, with a content that no file had.
    absent: Collection[bytes] = ()
    # By flag: the paths that get it and the paths that lose it.
    flags: dict[str, tuple[Collection[bytes], Collection[bytes]]] = field(default_factory=dict)

    @property
    def written(self) -> set[bytes]:
        """Return the paths that git must stat again.

        An entry that stays may record the size of another conversion.
        """
        coming = {one.path for one in self.files if one.status != "D"}
        return coming - self.exactness.raw.keys() | set(self.exactness.written)

    def without_file(self, repository: Repository) -> set[bytes]:
        """Return the skipped paths that have an index entry but no file now."""
        top = os.fsencode(repository.worktree or "")
        return {path for path in self.skipped if not is_file(top, path)}

    def require_no_obstacle(self) -> None:
        """Raise `WorktreeError` if a path in the way is in no checkpoint."""
        if self.obstacles or self.in_the_way:
            names = [path.decode("utf-8", "replace") for path in [*self.obstacles, *self.in_the_way]]
            raise WorktreeError(
                f"in the way of the files, and in no checkpoint: {first_of(names)}",
                hint="move it out of the way, then run the command again; nothing was changed",
            )


def make_plan(
    repository: Repository,
    found: tuple[Contents, str],
    wanted: tuple[Contents, str],
    paths: Sequence[bytes],
    written: Collection[bytes] = (),
    *,
    index: bool = True,
    stays: Callable[[bytes], bool] = lambda _: False,
) -> Plan:
    """Plan how a worktree becomes that of a snapshot.

    Args:
        found: contents of the worktree, and the commit of HEAD ("" for none).
        wanted: contents of the snapshot, and its linked commit.
        paths: files and directories to which the restore is restricted; none for all.
        written: files that exist only because of the restore that is undone.
        index: whether the index entries of `paths` are restored as well.
        stays: tells whether a file must not be touched.
    """
    return _Planner(repository, found, wanted, paths, written, index=index, stays=stays).plan


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    """Return whether a path is in one of `paths`; without paths, all are."""
    return not paths or any(path == one or not one or path.startswith(one + b"/") for one in paths)


def is_file(top: bytes, path: bytes) -> bool:
    """Return whether a path is a file or symlink, not below another symlink."""
    whole = os.path.join(top, path)
    there = os.path.isfile(whole) or os.path.islink(whole)
    return there and not any(os.path.islink(os.path.join(top, parent)) for parent in _above(path))


def missing(repository: Repository, found: Contents, wanted: Contents, commit: str, paths: Sequence[bytes]) -> set[bytes]:
    """Return files that a capture took from the index and that do not exist.

    In a sparse checkout, only files that the restore may write.

    Args:
        found: contents of the worktree.
        wanted: contents of the snapshot.
        commit: the linked commit of the snapshot.
        paths: files and directories to which the restore is restricted; none for all.
    """
    skipped = set(found.flags.get(SKIPPED, ()) if found.sparse is not None else ())
    if found.sparse == wanted.sparse:
        skipped -= set(wanted.flags.get(SKIPPED, ()))
    elif skipped:
        entries = comparison.merged_tree(repository, wanted, commit)
        skipped &= {one.path for one in diff.differences(repository, entries, wanted.files)}
    top = os.fsencode(repository.worktree or "")
    away = {path for path in skipped if is_within(path, paths) and not is_file(top, path)}
    return away.union(found.flags.get(ABSENT, ()))


def require_paths(repository: Repository, sides: Sequence[tuple[Contents, str]], paths: Sequence[bytes], checkpoint: str) -> None:
    """Raise `NotFoundError` if a path is neither here nor in the checkpoint.

    Args:
        sides: contents and commit of the worktree, then of the checkpoint.
        paths: relative to the top of the worktree.
        checkpoint: its id.
    """
    named = [path for path in paths if path]
    if not named:
        return
    known: set[bytes] = set()
    for side, commit in sides:
        for tree in (side.files, comparison.merged_tree(repository, side, commit)):
            known |= present(repository, tree, named)
        known |= {line.partition(b"\t")[2] for line in manifest.conflicts(repository, side)}
        known.update(side.flags.get(INTENT, ()), side.directories)
    gone = [path for path in named if not any(one == path or one.startswith(path + b"/") for one in known)]
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
        found: tuple[Contents, str],
        wanted: tuple[Contents, str],
        paths: Sequence[bytes],
        written: Collection[bytes],
        *,
        index: bool,
        stays: Callable[[bytes], bool],
    ) -> None:
        self._repository = repository
        self._top = os.fsencode(repository.worktree or "")
        self._found, head = found
        self._wanted, commit = wanted
        self._paths = paths
        self.plan = Plan()
        after = comparison.merged_tree(repository, self._wanted, commit)
        self.plan.skipped = self._skipped(after)
        differing = diff.differences(repository, self._found.files, self._wanted.files, paths)
        _require_relative(differing)
        before = comparison.merged_tree(repository, self._found, head)
        fileless = self._fileless(after)
        spared = self._not_known_then(differing, before) - fileless - set(written)
        self.plan.absent = self._absent()
        self.plan.files += [_deletion(path, self._found.files) for path in sorted(self.plan.absent)]
        for one in differing:
            if one.is_submodule:
                self.plan.submodules.append(one)
            elif one.path in self.plan.absent:
                continue
            elif stays(one.path):
                self.plan.untouched.append(one.path)
            elif one.path not in spared and (one.path not in self.plan.skipped or self._is_file(one.path)):
                self.plan.files.append(one)
        self.plan.is_whole = not paths and self.plan.files == differing
        coming = {one.path for one in self.plan.files if one.status != "D"}
        self.plan.is_contradictory = any(not coming.isdisjoint(_above(path)) for path in coming)
        self._look_for_obstacles()
        self._staged: set[bytes] = set()
        if index:
            self._look_for_ignored({path for path in fileless if not stays(path)})
            self._plan_index(diff.differences(repository, before, after, paths), fileless)
        self.plan.exactness = exactness.plan(
            repository, self._found, self._wanted, self.plan.files, lambda path: self._is_wanted(path) and not stays(path)
        )
        touched = {one.path for one in self.plan.files} | self.plan.exactness.alike.keys()
        self.plan.changes = [PathChange(_KINDS[one.status], one.path) for one in self.plan.files]
        self.plan.changes += [PathChange(CHANGE, path) for path in self.plan.exactness.alike]
        self.plan.changes += [PathChange(STAGE, path) for path in sorted(self._staged - touched)]
        self.plan.changes.sort(key=lambda change: change.path)

    def _not_known_then(self, differing: list[Difference], before: str) -> set[bytes]:
        # Untracked files that would be deleted although the snapshot says nothing about them: its
        # capture looked for no untracked files, or its rules ignore them.
        if not self._wanted.is_of_commit and not any(os.path.basename(one.path) == ignore.RULES for one in differing):
            return set()
        untracked = {one.path for one in diff.differences(self._repository, before, self._found.files) if one.status == "A"}
        untracked -= self._staged_apart(self._found)
        written = {one.path for one in differing if one.status != "D"}
        untracked -= {parent for path in written for parent in _above(path)}  # a file to write needs their place
        gone = [one.path for one in differing if one.status == "D" and one.path in untracked and written.isdisjoint(_above(one.path))]
        if self._wanted.is_of_commit:
            self.plan.unknown = gone
            return set(gone)
        rules = {path: oid for path, oid in ignore.rules_in(self._repository, self._found.files).items() if not self._is_wanted(path)}
        coming = ignore.rules_in(self._repository, self._wanted.files)
        rules |= {path: oid for path, oid in coming.items() if self._is_wanted(path)}
        return ignore.ignored_by(self._repository, rules, gone)

    def _fileless(self, after: str) -> set[bytes]:
        # `after` is the tree of the wanted index entries; the result includes entries without a
        # file.
        differing = diff.differences(self._repository, after, self._wanted.files, self._paths)
        return {one.path for one in differing if one.status == "D" and not one.is_submodule} | self._staged_apart(self._wanted)

    def _staged_apart(self, contents: Contents) -> set[bytes]:
        # `write-tree` leaves out entries in conflict and entries added with intent-to-add.
        return {*self._conflicts(contents), *filter(self._is_wanted, contents.flags.get(INTENT, ()))}

    def _look_for_ignored(self, fileless: Collection[bytes]) -> None:
        # Ignored files that would become tracked: the wanted index has them, the snapshot no file.
        planned = {one.path for one in self.plan.files}
        there = [path for path in sorted(fileless) if path not in planned and self._is_file(path)]
        known = present(self._repository, self._found.files, there)
        self.plan.in_the_way += [path for path in there if path not in known]

    def _absent(self) -> set[bytes]:
        # Files that exist here but not in the snapshot, where their entries are skipped.
        if self._wanted.sparse is not None and self._wanted.sparse != self._found.sparse:
            return set()
        plain = filter(stays_within, self._wanted.away)
        there = [path for path in plain if self._is_wanted(path) and self._is_file(path)]
        return set(there) & present(self._repository, self._found.files, there)

    def _skipped(self, after: str) -> set[bytes]:
        # Paths whose files stay away. With the same patterns, these are the ones of the snapshot. A
        # path that is skipped here, but existed then and differed from its entry, is not among
        # them: the entry does not hold its content.
        wanted = set(self._wanted.away)
        if self._found.sparse is None or self._found.sparse == self._wanted.sparse:
            return wanted
        found = set(self._found.flags.get(SKIPPED, ())) - wanted
        if found:
            found -= {one.path for one in diff.differences(self._repository, after, self._wanted.files)}
        return wanted | found

    def _plan_index(self, staged: Sequence[Difference], fileless: Collection[bytes]) -> None:
        before, after = (self._conflicts(contents) for contents in (self._found, self._wanted))
        unmerged = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        deleted = {one.path for one in self.plan.files if one.status == "D"}.intersection(fileless).difference(self.plan.absent)
        self._plan_flags({one.path for one in staged} | unmerged, deleted)
        intent = self.plan.flags.get(INTENT, ((), ()))
        zero = b"0" * 2 * oid_size(self._repository.object_format)
        lines = {one.path: one.line for one in staged}
        gone = {one.path for one in staged if one.status == "D"}
        self._staged = {*lines, *unmerged, *intent[0], *intent[1]}
        for path in sorted(self._staged):
            self.plan.index_lines.append(b"0 %s 0\t%s" % (zero, path))
            if path in lines:
                self.plan.index_lines.append(lines[path])
            if path in gone and os.path.basename(path) == attributes.FILE and not self._is_file(path):
                self.plan.rules_gone.append(lines[path])
            self.plan.index_lines += after.get(path, [])

    def _plan_flags(self, staged: Collection[bytes], deleted: Collection[bytes]) -> None:
        # Rewritten entries lose their flags (git-update-index(1), `--index-info`). The entry of a
        # deleted file may still be marked: git clears skip-worktree only when it writes the index.
        for flag in (INTENT, ASSUMED, SKIPPED):
            before = {path for path in self._found.flags.get(flag, ()) if self._is_wanted(path)}
            after = {path for path in self._wanted.flags.get(flag, ()) if self._is_wanted(path)}
            if flag == SKIPPED and (self._found.sparse is not None or self._wanted.sparse is not None):
                after = set(filter(self._is_wanted, self._without_file_then()))
                before |= set(deleted) - after if self._found.sparse is not None else set()
            stays = before if flag == INTENT else before.difference(staged)
            if before != after or stays != before:
                self.plan.flags[flag] = (sorted(after - stays), sorted(before - after))

    def _without_file_then(self) -> list[bytes]:
        planned = {one.path: one.status != "D" for one in self.plan.files}
        return [path for path in sorted(self.plan.skipped) if not planned.get(path, self._is_file(path))]

    def _conflicts(self, contents: Contents) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for line in manifest.conflicts(self._repository, contents):
            path = line.partition(b"\t")[2]
            if self._is_wanted(path):
                found.setdefault(path, []).append(line)
        return found

    def _is_wanted(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _is_file(self, path: bytes) -> bool:
        return is_file(self._top, path)

    def _look_for_obstacles(self) -> None:
        gone = {one.path for one in self.plan.files if one.status == "D"}
        for one in self.plan.files:
            if one.status == "D" or self._is_blocked(one.path, gone):
                continue
            path = os.path.join(self._top, one.path)
            if os.path.isdir(path) and not os.path.islink(path):
                self.plan.obstacles += [inside for inside in self._files_in(one.path) if inside not in gone]
            elif one.status == "A" and os.path.lexists(path):
                self._note(one.path, path)
        self.plan.obstacles = sorted(set(self.plan.obstacles))

    def _note(self, path: bytes, whole: bytes) -> None:
        (self.plan.in_the_way if os.path.isfile(whole) or os.path.islink(whole) else self.plan.obstacles).append(path)

    def _is_blocked(self, path: bytes, gone: Collection[bytes]) -> bool:
        for parent in _above(path):
            whole = os.path.join(self._top, parent)
            if os.path.islink(whole) or (os.path.lexists(whole) and not os.path.isdir(whole)):
                if parent not in gone:
                    self._note(parent, whole)
                return True
        return False

    def _files_in(self, directory: bytes) -> list[bytes]:
        found = []
        for parent, directories, names in os.walk(os.path.join(self._top, directory)):
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            found += [os.path.relpath(os.path.join(parent, name), self._top) for name in [*names, *links]]
        return found


def _deletion(path: bytes, tree: str) -> Difference:
    zeros = "0" * len(tree)
    return Difference("D", path, b"100644", b"000000", zeros, zeros)


def _require_relative(differing: Iterable[Difference]) -> None:
    # Trees may have been fetched. git itself refuses other bad paths.
    for one in differing:
        if not stays_within(one.path):
            raise WorktreeError(f"the files are not to be trusted, as one has the path {one.path!r}", hint="look at it: git fsck")


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


# Directories without files, and narrow modes.


# State keys of a safety checkpoint: directories that the restore made, modes that it narrowed.
_MADE, _NARROWED = "directories", "modes"


@dataclass(slots=True)
class Shape:
    """Changes of directories and modes; in `changes`, directories end in a slash."""

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
        layout.remove_empty(top, self.removed)
        layout.widen(top, self.widened)
        layout.bring_back(top, self.directories, self.modes)
        return bool(self.removed or self.widened or self.directories or self.modes)


def plan(
    repository: Repository, wanted: Contents, files: Plan, paths: Sequence[bytes], *, undone: Mapping[str, Any], captured: Collection[bytes]
) -> Shape:
    """Plan the changes of directories without files and of narrow modes.

    Args:
        wanted: contents of the snapshot.
        files: the plan for the files; obstacles are added to it.
        paths: files and directories to which the restore is restricted; none for all.
        undone: state of the safety checkpoint whose restore is undone; empty for a restore.
        captured: directories without files that the safety checkpoint will hold.
    """
    made = [path for path in map(_path, undone.get(_MADE, ())) if layout.is_plain(path)]
    widened = {_path(name): int(mode) & 0o777 for name, mode in dict(undone.get(_NARROWED, {})).items()}
    top = repository.worktree or ""
    hollow = [path for path in files.skipped if is_within(path, paths) and _is_hollow(path, os.fsencode(top), captured)]
    if not (wanted.directories or wanted.modes or made or widened or hollow):
        return Shape()
    layout.require_plain(wanted.directories, wanted.modes)
    touched = {one.path for one in files.files}
    directories = [path for path in wanted.directories if is_within(path, paths)]
    modes = {path: mode for path, mode in wanted.modes.items() if is_within(path, paths)}
    coming = layout.missing(top, sorted(layout.with_above(directories)))
    narrowed = {path: now for path, now in layout.wider(top, modes).items() if path not in touched}
    kept = layout.with_above(directories)
    gone = {one.path for one in files.files if one.status == "D"}
    files.obstacles += [path for path in sorted(kept - gone) if _is_in_the_way(os.path.join(os.fsencode(top), path))]
    within = (path for one in hollow for path in _within(os.fsencode(top), one))  # git clears skip-worktree where something exists
    made = list(dict.fromkeys([*made, *within]))
    removed = [path for path in made if path not in kept and os.path.isdir(os.path.join(os.fsencode(top), path))]
    widened = {path: mode for path, mode in widened.items() if path not in touched and path not in modes}
    changes = [PathChange(ADD, path + b"/") for path in layout.missing(top, directories)]
    changes += [
        PathChange(DELETE, path + b"/") for path in removed if _is_empty(os.path.join(os.fsencode(top), path), removed, os.fsencode(top))
    ]
    changes += [PathChange(MODE, path) for path in sorted({*narrowed, *_narrower(top, widened)})]
    state: dict[str, Any] = {}
    if coming:
        state[_MADE] = [as_text(path) for path in coming]
    if narrowed:
        state[_NARROWED] = {os.fsdecode(path): mode for path, mode in narrowed.items() if _is_text(path)}
    return Shape(directories, modes, removed, widened, changes, state)


def _within(top: bytes, path: bytes) -> list[bytes]:
    return [os.path.relpath(parent, top) for parent, _, _ in os.walk(os.path.join(top, path))]


def _is_hollow(path: bytes, top: bytes, captured: Collection[bytes]) -> bool:
    # A captured directory that holds only directories; the directory of a submodule does not count.
    whole = os.path.join(top, path)
    if not os.path.isdir(whole) or os.path.islink(whole) or any(names for _, _, names in os.walk(whole)):
        return False
    return any(is_within(one, [path]) for one in captured)


def _narrower(top: str, modes: Mapping[bytes, int]) -> set[bytes]:
    found = set()
    for path, mode in modes.items():
        whole = os.path.join(os.fsencode(top), path)
        if os.path.lexists(whole) and mode & ~os.lstat(whole).st_mode:
            found.add(path)
    return found


def _is_in_the_way(path: bytes) -> bool:
    return os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path))


def _is_empty(path: bytes, removed: Collection[bytes], top: bytes) -> bool:
    return all(os.path.join(path, name)[len(top) + 1 :] in removed for name in os.listdir(path))


def _path(said: object) -> bytes:
    return said if isinstance(said, bytes) else os.fsencode(str(said))


def _is_text(path: bytes) -> bool:
    return isinstance(as_text(path), str)


def as_text(path: bytes) -> str | bytes:
    """Return a path as text if it is UTF-8: people read the state of checkpoints."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return path
