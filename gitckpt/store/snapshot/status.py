"""Survey a worktree: its git status, its index flags, and files that git skips."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping

from gitckpt.git.contents import exact_files
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.process import Child, GitError
from gitckpt.git.worktree import administration, modules
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quote_path
from gitckpt.model.checkpoint import Omitted
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot.manifest import ABSENT, ASSUMED, INTENT, SKIPPED, intent_flags

# Special files, which git skips silently.
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a fifo"}
_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")


@dataclass(slots=True)
class DirectoryScan:
    index: PrivateIndex
    top: bytes
    # Paths that cannot be captured, each with the reason.
    problems: list[tuple[bytes, str]] = field(default_factory=list)
    visited: set[bytes] = field(default_factory=set)  # directories that were listed
    modes: dict[bytes, int] = field(default_factory=dict)  # of `visited`, without the top
    # Top directories of embedded repositories; incomplete in ignored directories.
    repositories: list[bytes] = field(default_factory=list)
    unknown: set[bytes] = field(default_factory=set)  # subdirectories to list
    special: list[tuple[bytes, str]] = field(default_factory=list)  # path and kind; may be ignored

    def scan(self, directories: Iterable[bytes]) -> None:
        """List the directories that were not listed yet, parents before children."""
        for directory in sorted(directories):
            # Do not follow symbolic links.
            is_inside = not directory or os.path.dirname(directory) in self.visited
            if is_inside and directory not in self.visited:
                self._scan_directory(directory)

    def scan_subdirectories(self, excluded: Collection[bytes]) -> None:
        """List the `unknown` directories and all below; omit ignored and `excluded` ones."""
        while self.unknown:
            unvisited = (self.unknown - self.visited).difference(excluded)
            self.unknown.clear()
            dot_gits = {path: os.path.join(self.top, path, b".git") for path in sorted(unvisited)}
            plain = [path for path, dot_git in dot_gits.items() if not os.path.lexists(dot_git)]
            self.repositories += sorted(unvisited.difference(plain))
            ignored = self._get_ignored(plain)  # with a slash, a directory's own rules would decide
            self.scan(path for path in plain if path not in ignored)
        ignored = self._get_ignored([path for path, _ in self.special])
        self.problems += [(path, reason) for path, reason in self.special if path not in ignored]

    def _scan_directory(self, directory: bytes) -> None:
        prefix = directory + b"/" if directory else b""
        absolute_path = os.path.join(self.top, directory)
        try:
            status = os.lstat(absolute_path)
            if not stat.S_ISDIR(status.st_mode):
                return
            directories, special_files = _list_directory(absolute_path)
        except PermissionError:
            self.problems.append((prefix, "cannot be read: permission denied"))
            return
        except (FileNotFoundError, NotADirectoryError):
            return  # a tracked directory that was deleted
        self.visited.add(directory)
        if directory:
            self.modes[directory] = status.st_mode
        self.unknown.update(prefix + name for name in directories)
        self.special += [(prefix + name, kind) for name, kind in special_files]

    def _get_ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        words = ("check-ignore", "--no-index", "-z", "--stdin")
        return set(self.index.git(*words, data=b"\0".join(paths), ok=(0, 1)).split(b"\0"))


def _list_directory(directory: bytes) -> tuple[list[bytes], list[tuple[bytes, str]]]:
    directories, special_files = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                continue
            if not entry.is_dir(follow_symlinks=False):
                special_files.append((entry.name, _file_kind(entry)))
            elif entry.name != b".git":
                directories.append(entry.name)
    return directories, special_files


def _file_kind(entry: os.DirEntry[bytes]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    return _KINDS.get(stat.S_IFMT(mode), "not a regular file")


_FLAGS = {b"h": (ASSUMED,), b"s": (ASSUMED, SKIPPED), b"S": (SKIPPED,)}
_PASSED_OVER = "files at the path of a submodule that is not checked out: git skips them"
_INSTEAD = "; replaces a tracked file, whose staged content is in the checkpoint"
_GONE = b"000000"


@dataclass(slots=True)
class GitStatus:
    """The state of a worktree, with paths relative to its top directory."""

    output: bytes = b""  # of `git status`
    commit: str = ""  # the commit of HEAD; "" on an unborn branch
    is_staged: bool = False  # whether the index differs from the commit
    # Conflict entries by stage, each as `<mode> <oid>\t<path>`.
    conflicts: dict[int, list[bytes]] = field(default_factory=dict)
    unmerged: list[bytes] = field(default_factory=list)  # paths in conflict
    # Tracked paths in conflict, or whose file differs from the index or is missing.
    changed: list[bytes] = field(default_factory=list)
    staged: dict[bytes, bytes] = field(default_factory=dict)  # oids in the index of changed paths
    deleted: list[bytes] = field(default_factory=list)  # paths in `changed` without a file
    untracked: list[bytes] = field(default_factory=list)
    nested: list[bytes] = field(default_factory=list)  # embedded repositories, ending in a slash
    # Bare repositories and the git directories of this one, without a slash: not captured.
    apart: Collection[bytes] = ()
    vanished: dict[bytes, bytes] = field(default_factory=dict)  # oids of deleted entries, by path
    submodules: dict[bytes, Omitted] = field(default_factory=dict)  # checked-out ones by path
    flags: dict[str, list[bytes]] = field(default_factory=dict)  # paths by flag, as in `Snapshot`
    passed_over: list[Omitted] = field(default_factory=list)  # such as sockets
    directories: Collection[bytes] = ()  # all that are not ignored; the top is the empty path
    leading: Collection[bytes] = ()  # the parents of index entries at all levels, with the top
    modes: Mapping[bytes, int] = field(default_factory=dict)  # of directories, from lstat(2)


def survey_worktree(index: PrivateIndex) -> tuple[GitStatus, bytes | None]:
    """Return the state of a worktree, and its sparse-checkout settings.

    The settings are None if the checkout is not sparse. Clears the flags assume-unchanged and
    skip-worktree in the private index; `GitStatus.flags` lists the paths that had them.
    """
    known = index.known_status.output if index.known_status is not None else None
    processes = (
        [index.take_status_process()] if known is None else []
    )  # the last one is `git status`
    try:
        if not index.has_valid_checksum():
            raise GitError(["ls-files"], 128, "index file corrupt")
        processes.insert(0, index.start_git("ls-files", "-v", "-z"))
        sparse_settings = intent.read_sparse_checkout(index.repository)  # while git status runs
        survey = GitStatus()
        paths = _read_index_flags(index.wait_for_output(processes[0]), survey)
        survey.leading = all_parents_of(paths)
        if _clear_index_flags(index, survey, is_sparse=sparse_settings is not None):
            for process in processes[1:]:
                process.kill_process_group()
            processes.append(index.take_status_process())
            known = None  # the flags hide changes from it
        scan = DirectoryScan(index, os.fsencode(index.repository.worktree or ""))
        survey.apart = modules.find_git_dirs_inside(index.repository)
        # While git status runs.
        scan.scan(path for path in survey.leading if not modules.is_below(path, survey.apart))
        survey.output = _wait_for_git_status(index, processes) if known is None else known
        _parse_git_status(survey.output, survey)
    finally:
        for process in processes:
            if not process.has_ended:
                process.kill_process_group()
    _exclude_git_dirs(scan.top, survey)
    # `git status` shows an intent-to-add entry without a file like an empty file, and no modes.
    empty_oid = intent.intent_to_add_oid(index.repository.object_format) if survey.vanished else b""
    intent_paths = [*survey.flags.get(INTENT, ())]
    intent_paths += [path for path, oid in survey.vanished.items() if oid == empty_oid]
    intent_modes = intent.find_intent_to_add_entries(index, intent_paths)
    survey.flags.update(intent_flags(intent_modes))
    intent.drop_cached_trees(index, sorted(intent_modes))

    untracked_parents = all_parents_of(survey.untracked)
    scan.scan(untracked_parents)
    scan.scan_subdirectories(survey.apart)
    survey.directories, survey.modes = scan.visited, scan.modes
    changed_paths = set(survey.changed)
    for path, reason in scan.problems:
        suffix = _INSTEAD if path in changed_paths else ""
        survey.passed_over.append(Omitted(quote_path(path), reason + suffix))
    # Directories beside tracked files that contain neither tracked nor untracked files.
    other_directories = scan.visited.difference(survey.leading, untracked_parents)
    empty_dirs = {path for path in other_directories if path.rpartition(b"/")[0] in survey.leading}
    _find_submodules(index, survey, scan, empty_dirs)
    return survey, sparse_settings


def _wait_for_git_status(index: PrivateIndex, children: list[Child]) -> bytes:
    options: list[str] = []
    remaining_tries = administration.TRIES
    while True:
        try:
            return index.wait_for_output(children[-1])
        except GitError as error:
            remaining_tries -= 1
            if options:
                raise
            if remaining_tries and administration.has_file_changed(error):
                index.delete_lock()
            # Files that need a failing required filter count as changed.
            elif failed_filters := administration.find_failing_filters(index.repository, error):
                options = administration.disable_filters(failed_filters)
            else:
                raise
        children.append(index.take_status_process(*options))


def _read_index_flags(listing: bytes, survey: GitStatus) -> list[bytes]:
    entries = listing.split(b"\0")[:-1]
    if any(b"\0%s " % tag in listing or listing.startswith(tag + b" ") for tag in _FLAGS):
        for entry in entries:
            for flag in _FLAGS.get(entry[:1], ()):
                survey.flags.setdefault(flag, []).append(entry[2:])
    return [entry[2:] for entry in entries]


def _clear_index_flags(index: PrivateIndex, survey: GitStatus, *, is_sparse: bool) -> bool:
    assumed_paths, skipped_paths = survey.flags.get(ASSUMED, []), survey.flags.get(SKIPPED, [])
    if is_sparse:
        skipped_paths = []  # git itself clears the flag if there is a file
    elif skipped_paths:
        top = os.fsencode(index.repository.worktree or "")
        absent = [path for path in skipped_paths if not os.path.lexists(os.path.join(top, path))]
        if absent:
            survey.flags[ABSENT] = absent
            skipped_paths = sorted(set(skipped_paths) - set(absent))
    index.update_paths("--no-assume-unchanged", assumed_paths)
    index.update_paths("--no-skip-worktree", skipped_paths)
    return bool(assumed_paths or skipped_paths)


def all_parents_of(paths: Iterable[bytes]) -> set[bytes]:
    """Return all parent directories of paths, including the top (the empty path)."""
    return exact_files.add_parent_directories({path.rpartition(b"/")[0] for path in paths}) | {b""}


def _parse_git_status(out: bytes, survey: GitStatus) -> None:
    for record in out.split(b"\0"):
        record_kind = record[:1]
        if record_kind == b"1":
            _, status_letters, submodule, *modes, _, oid, path = record.split(b" ", 8)
            survey.staged[path] = oid
            if status_letters[1:] == b"D":
                survey.vanished[path] = oid
            _read_changed(survey, status_letters, submodule, modes[2], path)
        elif record_kind == b"?":
            path = record[2:]
            (survey.nested if path.endswith(b"/") else survey.untracked).append(path)
        elif record_kind == b"u":
            *fields, path = record.split(b" ", 10)
            survey.is_staged = True
            survey.unmerged.append(path)
            survey.changed.append(path)
            if fields[6] == _GONE:
                survey.deleted.append(path)
            for stage, entry in enumerate(zip(fields[3:6], fields[7:10], strict=True), start=1):
                if entry[0] != _GONE:
                    survey.conflicts.setdefault(stage, []).append(b"%s %s\t%s" % (*entry, path))
        elif record.startswith(b"# branch.oid ") and record[13:] != b"(initial)":
            survey.commit = record[13:].decode("ascii")


def _exclude_git_dirs(top: bytes, survey: GitStatus) -> None:
    git_dirs = survey.apart  # git's own directories; bare repositories without tracked files follow

    def exclude_below(paths: list[bytes], directories: Collection[bytes] = git_dirs) -> list[bytes]:
        return [path for path in paths if not modules.is_below(path, directories)]

    survey.changed, survey.deleted = exclude_below(survey.changed), exclude_below(survey.deleted)
    untracked_paths = exclude_below(survey.untracked)
    candidate_paths = modules.find_bare_repositories(top, untracked_paths)
    inner = [path for path in candidate_paths if path not in survey.leading]
    outer_repos = [path for path in inner if not modules.is_below(os.path.dirname(path), inner)]
    survey.untracked = exclude_below(untracked_paths, outer_repos)
    survey.nested = [*exclude_below(survey.nested), *(path + b"/" for path in outer_repos)]
    survey.apart = [*git_dirs, *outer_repos]


def _read_changed(survey: GitStatus, xy: bytes, submodule: bytes, mode: bytes, path: bytes) -> None:
    if xy[1:] == b"A":
        survey.flags.setdefault(INTENT, []).append(path)
    if xy[:1] != b".":
        survey.is_staged = True
    if xy[1:] == b".":
        return
    if submodule[:1] == b"S" and mode != _GONE:
        survey.submodules[path] = Omitted("", "", dirty=submodule[2:] != b"..")
        if submodule[1:2] != b"C":
            return
    survey.changed.append(path)
    if mode == _GONE:
        survey.deleted.append(path)


def _find_submodules(
    index: PrivateIndex, survey: GitStatus, scan: DirectoryScan, bare: Collection[bytes]
) -> None:
    survey_before, survey.submodules = survey.submodules, {}
    unlisted_repositories = {path + b"/" for path in scan.repositories}.difference(survey.nested)
    if not survey_before and not bare and not unlisted_repositories:
        return
    for path, _, staged_oid, _, _ in index.list_entries(GITLINK):
        absolute_path = os.path.join(scan.top, path)
        if not os.path.lexists(os.path.join(absolute_path, b".git")):
            if path in bare and any(file_names for _, _, file_names in os.walk(absolute_path)):
                survey.passed_over.append(Omitted(quote_path(path + b"/"), _PASSED_OVER))
            continue
        dirty = path in survey_before and bool(survey_before[path].dirty)
        oid = modules.read_submodule_head(absolute_path) if path in survey_before else staged_oid
        reason = f"a submodule{' with uncommitted changes' if dirty else ''}: its files stay in it"
        survey.submodules[path] = Omitted(quote_path(path), reason, oid=oid, dirty=dirty)
