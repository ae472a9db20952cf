"""Capture a worktree as a snapshot (a git tree); check and repair snapshots."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from gitckpt.git import fsync, graph
from gitckpt.git.contents import attributes, bounds, conversion, exact_files
from gitckpt.git.files import regular
from gitckpt.git.objects import diff, encoding
from gitckpt.git.objects.encoding import MalformedTree, decode_tree, object_id
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.administration import IndexGone, is_index_corrupt
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import join_first, quote_path
from gitckpt.model.checkpoint import Omitted, Suspect, Worktree
from gitckpt.model.errors import BusyError, CkptError, WorktreeError
from gitckpt.model.table import short_repr
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records import ref_names
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import last_capture, manifest
from gitckpt.store.snapshot.limits import EXCESS, Limits, format_size
from gitckpt.store.snapshot.status import GitStatus, all_parents_of, survey_worktree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Counted
    from gitckpt.git.contents.plain_files import TreeWriter
    from gitckpt.git.contents.refusal import RefusedFile
    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.snapshot.last_capture import CaptureEvidence

    # From commit and tree of all files, return the objects that only the tree has; None: unknown.
    Parts = Callable[[str, str], Collection[str] | None]


_UNREADABLE = re.compile(r"(?:loose|packed) object ([0-9a-f]{40,64}) \(stored in ")
_ATTRIBUTES = b".gitattributes"
# From this many files on, their objects go into a pack: 1,000 loose ones take 20 ms and as many
# flushes.
_MANY = 1000
# Files per `git add`: git compares each object that it streams into a pack with all objects in
# that pack (`already_written` in bulk-checkin.c).
_AT_ONCE = 20_000
_WITHOUT = "save without files: git ckpt save --no-worktree"
_NAMED = 3  # files of each kind that the reason of an aborted capture names
_NESTED = "an embedded repository: not captured"


class Moved(WorktreeError):
    """HEAD moved while the files of the worktree were captured."""


def head_moved_error() -> Moved:
    return Moved("HEAD moved while the files were captured", hint="run the command again")


class DamagedObject(WorktreeError):
    def __init__(self, message: str, oid: str) -> None:
        super().__init__(message, hint="find the cause: git ckpt verify --contents")
        self.oid = oid


@dataclass(frozen=True, slots=True)
class CaptureResult:
    # The table `[worktree]` of a checkpoint; no ref holds its tree yet.
    worktree: Worktree
    files: str  # the tree of all files; "" after a timeout
    submodules: Collection[bytes] = ()  # checked-out ones; `worktree.omitted` lists them, too
    lossy: Collection[bytes] = ()  # files stored only as git converts them, not byte for byte
    # The objects of `files` that the commit may lack; None if the capture does not know them.
    parts: Collection[str] | None = None
    as_is: Mapping[bytes, str] = field(default_factory=dict)  # raw oids of files git cannot convert
    # Reasons, by path, why tracked files are not captured; `files` has their staged content.
    unheld: Mapping[bytes, str] = field(default_factory=dict)
    apart: Collection[bytes] = ()  # embedded repositories: nothing in them is captured
    unlisted: Collection[bytes] = ()  # paths for which the private index is out of date
    # What the capture saw before it read the files; None if that does not show all changes.
    evidence: CaptureEvidence | None = None
    is_as_stored: bool = False  # whether git converts no file (line ends, filters)


def capture(
    index: PrivateIndex, objects: ObjectDatabase, commit: str, limits: Limits
) -> CaptureResult:
    """Capture the files, the index and an operation in progress of a worktree.

    `commit` is the commit of HEAD, or "" on an unborn branch. If `limits.timeout` passes, the
    result has no files, and its `worktree.degraded` is the reason.
    """
    if index.repository.worktree is None:
        raise WorktreeError("this repository has no worktree to save files from", hint=_WITHOUT)
    index.deadline = limits.deadline()
    top = os.fsencode(index.repository.worktree)
    files = _WorktreeCapture(index, objects, commit, limits, top)
    try:
        with index:
            return _run(files)
    except DeadlinePassed:
        reason = f"capturing the files took more than {limits.timeout:g} seconds"
        degraded = f"{reason}; {files.describe_left_out()}"
        return CaptureResult(Worktree(dirty=True, degraded=degraded), "")


def capture_in(
    index: PrivateIndex,
    objects: ObjectDatabase,
    commit: str,
    limits: Limits,
    also: Collection[bytes] = (),
    *,
    keeps: Callable[[bytes], bool] = lambda _: False,
) -> CaptureResult:
    """Capture a worktree, with `index` as its open private index.

    `also` lists untracked paths to capture in any case. `keeps` is called with the path of a file
    that its clean filter refuses, and returns whether to store that file without the filter.
    """
    top = os.fsencode(index.repository.worktree or "")
    return _run(_WorktreeCapture(index, objects, commit, limits, top, set(also), keeps))


def _run(files: _WorktreeCapture) -> CaptureResult:
    try:
        return files.run()
    except DeadlinePassed:
        raise
    except GitError as error:
        from gitckpt.git.contents import refusal

        if refusal.was_directory_pruned(error):
            raise FilesPruned from None
        message = f"cannot capture the files of {os.fsdecode(files.top)}: {error.message}"
        unreadable_match = _UNREADABLE.search(error.stderr)
        if unreadable_match is not None:
            raise DamagedObject(message, unreadable_match[1]) from None
        # If objects cannot be stored, a checkpoint without files cannot either: no such hint.
        hint = error.hint or (None if refusal.is_storage_failure(error) else _WITHOUT)
        raise WorktreeError(message, hint=hint) from None


@dataclass(slots=True)
class _WorktreeCapture:
    index: PrivateIndex
    objects: ObjectDatabase
    commit: str
    limits: Limits
    top: bytes
    also: Collection[bytes] = ()
    keeps: Callable[[bytes], bool] = lambda _: False
    survey: GitStatus = field(default_factory=GitStatus)
    tracked: Collection[bytes] = ()  # tracked paths whose file differs from the index
    included: Collection[bytes] = ()  # ignored or secret paths to capture
    read: list[bytes] = field(default_factory=list)  # files to read
    unread: set[bytes] = field(default_factory=set)  # files that cannot be read
    converted: list[str] = field(default_factory=list)
    omitted: list[Omitted] = field(default_factory=list)
    as_is: dict[bytes, str] = field(default_factory=dict)
    unheld: dict[bytes, str] = field(default_factory=dict)
    writer: TreeWriter | None = None

    def describe_left_out(self) -> str:
        """Name the changed and untracked files that `git status` listed, for people."""
        survey = self.survey
        if not survey.output:
            return "which files have changed is unknown"
        kinds = {"changed": {*survey.staged, *survey.unmerged}, "untracked": survey.untracked}
        phrases = []
        for kind, paths in kinds.items():
            names = join_first([short_repr(quote_path(path)) for path in sorted(paths)], _NAMED)
            phrases += [f"{len(paths)} {kind} ({names})"] if paths else []
        return f"left out: {', '.join(phrases)}"

    def run(self) -> CaptureResult:
        sparse_rules = self._survey_worktree()
        survey, repository = self.survey, self.index.repository
        hidden = survey.flags.keys() - ({manifest.SKIPPED} if sparse_rules is not None else set())
        is_certain = not hidden and not self.limits.include and not self.also
        evidence = None
        if is_certain:
            evidence = last_capture.gather(repository, survey.output, self.index.opened)
        operation_name = repository.operation_in_progress()
        base_tree = manifest.base_tree(repository, self.commit)
        stages = self._write_index_trees() if survey.is_staged else {}
        if not survey.is_staged and manifest.INTENT in survey.flags:  # git does not compare these
            tree = self.index.write_tree()
            stages = {0: tree} if tree != base_tree else {}
        paths = list(dict.fromkeys([*survey.changed, *self._list_untracked_files()]))
        paths_without_file = [*survey.deleted, *survey.flags.get(manifest.SKIPPED, ())]
        rule_directories = {*survey.directories, *all_parents_of({*self.also, *self.included})}
        # None if git converts nothing.
        rules = attributes.read_attribute_rules(
            repository, self.limits.git_settings(repository), rule_directories, paths_without_file
        )
        files = self._write_files_tree(base_tree, rules, paths)
        inexact_files = self._find_converted(rules)
        raw_tree = manifest.write_raw(repository, self.objects, inexact_files.raw | self.as_is)
        directories, modes = self._find_directories_and_modes(files)
        for path in survey.nested:
            oid = modules.read_submodule_head(os.path.join(self.top, path))
            self.omitted.append(Omitted(quote_path(path), _NESTED, oid=oid))
        self.omitted += [*survey.submodules.values(), *survey.passed_over]
        content = manifest.Snapshot(files, stages, survey.flags, sparse=sparse_rules, raw=raw_tree)
        if rules:
            content.conversion = attributes.describe_conversion(repository, rules.configured)
        content.directories, content.modes = directories, modes
        is_flagged = any(flag != manifest.SKIPPED or sparse_rules is None for flag in survey.flags)
        is_dirty = bool(stages or is_flagged or operation_name or files != base_tree)
        is_exact = sparse_rules is None and raw_tree is None
        if is_dirty or not is_exact or content.conversion or directories or modes:
            worktree = self._write(content, operation_name, dirty=is_dirty)
        else:
            worktree = Worktree(dirty=False)  # the commit has the files
        omitted_by_path = {entry.path: entry for entry in self.omitted}  # the last reason is best
        omitted = tuple(entry for _, entry in sorted(omitted_by_path.items()))
        worktree = replace(worktree, omitted=omitted, converted=tuple(sorted(self.converted)))
        captured = CaptureResult(worktree, files, survey.submodules.keys(), inexact_files.skipped)
        captured = replace(captured, as_is=self.as_is, unheld=self.unheld, apart=survey.apart)
        captured = replace(captured, is_as_stored=rules is None, evidence=evidence)
        if self.writer is None:
            return captured
        unlisted = [*self.read, *survey.deleted]
        return replace(captured, parts=self.writer.written_oids, unlisted=unlisted)

    def _write(self, content: manifest.Snapshot, under_way: str | None, *, dirty: bool) -> Worktree:
        repository, needed = self.index.repository, None
        if under_way:
            state = operation.collect_operation_files(repository)
            if bounds.is_operation_too_large(state):
                reason = f"the state of the {under_way} in progress: {bounds.OPERATION}"
                self.omitted.append(Omitted(".git", reason))
                under_way, state = None, {}
            content.operation = state
            needed = operation.write_keep_commit(repository, self.objects, state, self.commit)
        tree = manifest.write(repository, self.objects, content)
        suspects: tuple[Suspect, ...] = ()
        if self.read:
            from gitckpt.store import secrets

            stored = self.writer.contents if self.writer is not None else None
            paths = [path for path in self.read if path not in self.unread]
            suspects = secrets.find_suspected_secrets(self.index, content.files, paths, stored)
        return Worktree(dirty, tree, under_way, needed, suspects=suspects)

    def _survey_worktree(self) -> bytes | None:
        try:
            self.survey, sparse_settings = survey_worktree(self.index)
        except GitError as error:
            if isinstance(error, DeadlinePassed) or not is_index_corrupt(error):
                raise
            self.index.rebuild_from_commit(self.commit)
            reason = "git cannot read the index, so staged changes are not captured"
            self.omitted.append(Omitted(".git/index", reason))
            self.survey, sparse_settings = survey_worktree(self.index)
        if self.survey.commit != self.commit:
            raise head_moved_error()
        self.tracked = set(self.survey.changed)
        return sparse_settings

    def _find_directories_and_modes(self, files: str) -> tuple[list[bytes], dict[bytes, int]]:
        survey = self.survey
        nonempty = set(survey.leading) - {os.path.dirname(path) for path in survey.deleted}
        nonempty |= {os.path.dirname(path) for path in self.read}
        candidates, repository = set(survey.directories) - nonempty, self.index.repository
        directories = exact_files.find_empty_directories(repository, self.top, candidates, files)
        modes = exact_files.find_narrow_directory_modes(survey.modes)
        modes |= exact_files.find_narrow_file_modes(self.top, self.read)
        limit = exact_files.MOST
        if (excess := len(directories) - limit) > 0:
            reason = f"an empty directory, as are {excess - 1} more: a snapshot keeps {limit}"
            self._omit_file(directories[limit], reason)
        if (excess := len(modes) - limit) > 0:
            first_excess_path = sorted(modes)[limit]
            reason = f"only its mode, and {excess - 1} more modes: a snapshot keeps {limit}"
            self._omit_file(first_excess_path, reason)
            modes = {path: mode for path, mode in modes.items() if path < first_excess_path}
        return directories[:limit], modes

    def _write_index_trees(self) -> Mapping[int, str]:
        if not self.survey.conflicts:
            return {0: self.index.write_tree()}
        # In a copy: the private index keeps its conflicts until the files are added.
        repository = self.index.repository
        zero_oid = b"0" * len(object_id("blob", b"", repository.object_format))
        with PrivateIndex(repository, self.index.deadline) as scratch:
            scratch.copy_index_from(self.index.path)
            scratch.put_entries(b"0 %s 0\t%s" % (zero_oid, path) for path in self.survey.unmerged)
            trees = {0: scratch.write_tree()}
            for stage, entries in self.survey.conflicts.items():
                scratch.git("read-tree", "--empty")
                scratch.put_entries(b"%s 0\t%s" % tuple(entry.split(b"\t", 1)) for entry in entries)
                trees[stage] = scratch.write_tree()
        return trees

    def _write_files_tree(
        self, base: str, rules: attributes.AttributeRules | None, paths: list[bytes]
    ) -> str:
        index, survey = self.index, self.survey
        if not paths:
            return index.write_tree() if survey.is_staged or index.is_rebuilt else base
        from gitckpt.git.contents import unfiltered  # costly: only if files differ

        to_drop = set(survey.deleted)
        self.read = [path for path in paths if path not in to_drop]
        if rules is None and (plain_tree := self._write_tree_without_git(base, to_drop)):
            return plain_tree
        deleted_attributes = {path for path in to_drop if os.path.basename(path) == _ATTRIBUTES}
        # git would not look at these, or not drop their stages.
        unreachable_paths = set(filter(self._is_unreachable_by_git, to_drop - deleted_attributes))
        index.update_paths("--force-remove", sorted(unreachable_paths))
        oids = unfiltered.load_record(index.repository)
        recorded = {path: oids[path] for path in paths if path in oids}
        unfiltered.add_unfiltered_to_index(index, recorded)
        to_add = [path for path in paths if path not in to_drop and path not in oids]
        self._add_files([*sorted(to_drop - deleted_attributes - unreachable_paths), *to_add])
        our_entries = _choose_conflict_sides(survey)
        unread_conflicts = sorted(self.unread & our_entries.keys())
        index.put_entries(b"%s %s 0\t%s" % (*our_entries[path], path) for path in unread_conflicts)
        # Last: their filters must apply to the other files, lest a secret is stored in plain text.
        index.update_paths("--force-remove", sorted(deleted_attributes))
        return index.write_tree()

    def _write_tree_without_git(self, base: str, deleted: set[bytes]) -> str | None:
        survey, repository = self.survey, self.index.repository
        is_special = survey.is_staged or survey.conflicts or survey.flags or not self.commit
        if is_special or self.index.is_rebuilt or len(self.read) >= _MANY:
            return None
        if not self.limits.git_settings(repository).takes_as_is:
            return None
        from gitckpt.git.contents import unfiltered
        from gitckpt.git.contents.plain_files import TreeWriter

        if conversion.has_conversion_cache(repository) or unfiltered.load_record(repository):
            return None
        writer = TreeWriter(repository, self.objects)
        added_paths = set(self.read).difference(survey.changed)
        tree = writer.write_changed_tree(base, deleted, self.read, added_paths)
        self.writer = writer if tree is not None else None
        self.index.require_time_left("write-tree")
        return tree

    def _list_untracked_files(self) -> list[bytes]:
        included_paths = {path for path in self.also if not self._is_unreachable_by_git(path)}
        if self.limits.include:
            listed_paths = self.index.git(*self.limits.include_command()).split(b"\0")[:-1]
            files = {path for path in listed_paths if not path.endswith(b"/")}
            included_paths |= files.difference(self.also)
        apart = self.survey.apart
        self.included = {path for path in included_paths if not modules.is_below(path, apart)}
        accepted_paths = []
        for path in dict.fromkeys([*self.survey.untracked, *sorted(self.included)]):
            reason = None
            if path not in self.also:
                absolute_path = os.path.join(self.top, path)
                reason = self.limits.reason_to_omit(absolute_path, included=path in self.included)
            if reason is None:
                accepted_paths.append(path)
            else:
                self.omitted.append(Omitted(quote_path(path), *reason))
        return self._drop_excess_files(accepted_paths)

    def _drop_excess_files(self, untracked: list[bytes]) -> list[bytes]:
        max_total_size = self.limits.max_total_size
        if max_total_size is None:
            return untracked
        limited_paths = [path for path in untracked if path not in self.also]
        sizes = {path: _size_of_file(os.path.join(self.top, path)) for path in limited_paths}
        dropped = set(self.limits.find_excess(sizes))
        limit = f"{format_size(max_total_size)} of untracked files"
        reason = f"{EXCESS} {limit}, the smallest first"
        self.omitted += [Omitted(quote_path(path), reason, sizes[path]) for path in sorted(dropped)]
        return [path for path in untracked if path not in dropped]

    def _is_unreachable_by_git(self, path: bytes) -> bool:
        absolute_path = os.path.join(self.top, path)
        if os.path.isdir(absolute_path) and not os.path.islink(absolute_path):
            return True
        while path := os.path.dirname(path):
            if os.path.islink(os.path.join(self.top, path)):
                return True
        return False

    def _add_files(self, paths: list[bytes]) -> None:
        readable_paths = []
        for path in paths:
            file = os.path.join(self.top, path)
            if os.path.islink(file) or not os.path.isfile(file) or os.access(file, os.R_OK):
                readable_paths.append(path)
            else:
                self._omit_file(path, "cannot be read: permission denied")
        if len(readable_paths) < _MANY:
            self._add_to_index(readable_paths)
            return
        from gitckpt.git.contents.bounds import ObjectQuarantine

        repository, total = self.index.repository, len(readable_paths)
        with ObjectQuarantine(repository) as quarantine:
            settings = quarantine.options, quarantine.environment
            for start in range(0, total, _AT_ONCE):
                progress = repository.counter("reading files", start, total)
                paths = readable_paths[start : start + _AT_ONCE]
                self._add_to_index(paths, *settings, progress)
            quarantine.migrate_objects(self.index.deadline)

    def _add_to_index(
        self,
        paths: list[bytes],
        settings: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        progress: Counted | None = None,
    ) -> None:
        from gitckpt.git.contents import refusal

        result = refusal.add_files_to_index(self.index, paths, settings, env, progress)
        self.converted += map(quote_path, result.converted)
        for refused_file in result.refused:
            reason, may_store_as_is = self._explain_refusal(refused_file)
            if not may_store_as_is or not self._store_without_filter(refused_file.path):
                self._omit_file(refused_file.path, reason)

    def _explain_refusal(self, refused: RefusedFile) -> tuple[str, bool]:
        from gitckpt.git.contents import refusal

        path, driver = refused.path, refused.driver
        if refused.is_name:
            return refused.cause, False
        if not driver or path not in self.tracked:
            return f"git cannot store it: {refused.cause}", not driver
        _, our_oid = _choose_conflict_sides(self.survey).get(path, (b"", b""))
        oid = self.survey.staged.get(path, our_oid).decode("ascii")
        if oid.strip("0") and refusal.does_filter_work(self.index, path, oid):
            may_store_as_is = self.keeps(path) and self.limits.secret_pattern(path) is None
            return f"filter {driver} refuses it", may_store_as_is
        return f"filter {driver} does not work: {refused.cause}", False

    def _store_without_filter(self, path: bytes) -> bool:
        (data,) = exact_files.read_files(self.index.repository, [path])
        if data is None:
            return False
        (oid,) = self.objects.write([("blob", data)], flushed=False)
        is_executable = os.lstat(os.path.join(self.top, path)).st_mode & 0o100
        mode = encoding.EXECUTABLE if is_executable else encoding.FILE
        self.index.put_entries([b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path)])
        self.as_is[path] = oid
        return True

    def _find_converted(self, rules: attributes.AttributeRules | None) -> conversion.ConvertedFiles:
        if rules is None and not conversion.has_conversion_cache(self.index.repository):
            return conversion.ConvertedFiles()
        terms = self.limits.terms({*self.also, *self.included}, self.also)
        conversion_search = conversion.ConversionSearch(self.index, self.objects, rules, terms)
        inexact = conversion_search.find_converted_files(self.unread | self.as_is.keys())
        filtered = {quote_path(path) for path in inexact.required}.intersection(self.converted)
        self.converted = sorted({*map(quote_path, inexact.skipped), *filtered})
        return inexact

    def _omit_file(self, path: bytes, reason: str) -> None:
        self.unread.add(path)
        if path in self.tracked:
            self.unheld[path] = reason
        self.omitted.append(Omitted(quote_path(path), reason))


def _size_of_file(path: bytes) -> int:
    with contextlib.suppress(OSError):
        return os.lstat(path).st_size
    return 0


def _choose_conflict_sides(survey: GitStatus) -> dict[bytes, tuple[bytes, bytes]]:
    sides = {}
    for stage in (1, 3, 2):
        for entry in survey.conflicts.get(stage, ()):
            mode_and_oid, _, path = entry.partition(b"\t")
            mode, oid = mode_and_oid.split(b" ")
            sides[path] = mode, oid
    return sides


# Check each snapshot after it was recorded; capture it again if objects were pruned meanwhile.

_ATTEMPTS = 10
_CAPTURES = 2  # with pruned objects: while `git gc --prune=now` runs, even `git commit` fails


def is_readable(repository: Repository, checkpoint: Checkpoint, parts: Parts | None = None) -> bool:
    """Return whether git can read all objects of a checkpoint's snapshot."""
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        if not modules.is_ref_in_submodule(repository, modules.unquote_path(submodule.path), ref):
            return False  # another process removed the checkpoint meanwhile
    if checkpoint.tree is None:
        return True
    oids = list_objects_beyond_commit(repository, checkpoint.tree, checkpoint.git_sha, parts)
    return oids is not None and not graph.find_unreadable(repository, list(oids))


def list_objects_beyond_commit(
    repository: Repository, tree: str, commit: str, parts: Parts | None
) -> set[str] | None:
    """Return the oids in a snapshot that `commit` does not have; None if unreadable."""
    base = manifest.base_tree(repository, commit)
    oids = {tree}
    try:
        for name, (mode, oid) in _read_tree(repository, tree).items():
            oids.add(oid)
            known_oids = parts(commit, oid) if parts and name == b"files" else None
            if known_oids is not None:
                oids.update(known_oids)
            elif mode == encoding.DIRECTORY:
                stages = _read_tree(repository, oid).values() if name == b"index" else [(mode, oid)]
                for _, tree_oid in stages:
                    oids.update([tree_oid, *diff.list_new_objects(repository, base, tree_oid)])
    except (GitError, MalformedTree):
        return None
    return oids - {base}


def _read_tree(repository: Repository, tree: str) -> encoding.Entries:
    tree_object = next(repository.cat_file.read_contents([tree]))
    if tree_object is None:
        raise MalformedTree("the object is missing")
    return decode_tree(tree_object[2], repository.object_format)


def record_until_complete(
    repository: Repository,
    objects: ObjectDatabase,
    attempt: Callable[[], Checkpoint],
    remove: Callable[[list[str]], object],
    say: Callable[[str], None],
    *,
    parts: Parts | None = None,
) -> Checkpoint:
    """Record a checkpoint with `attempt`, again if objects are lost or HEAD moves.

    `remove` deletes a checkpoint with unreadable objects, and `say` shows a message to the user.
    Returns the first complete checkpoint. Raises the last error after 10 attempts, or after 2
    attempts that lost objects.
    """
    pruned_captures = 0
    oids_aside: set[str] = set()
    reason: CkptError | None = None
    for remaining_attempts in reversed(range(_ATTEMPTS)):
        try:
            checkpoint = attempt()
        except Moved:
            continue
        except FilesPruned:
            pruned_captures += 1
            if pruned_captures == _CAPTURES:
                raise
            continue
        except IndexGone:  # anything may delete the private index, even repeatedly
            if not remaining_attempts:
                raise
            continue
        except DamagedObject as error:  # git reads link objects before it writes them
            if error.oid in oids_aside or not _move_aside(repository, objects, error.oid):
                raise
            oids_aside.add(error.oid)
            say(_damaged_object_message(repository, error.oid))
            continue
        reason = repair_snapshot(repository, objects, checkpoint, say, parts)
        if reason is None:
            return checkpoint
        remove([checkpoint.id])
        pruned_captures += 1
        if pruned_captures == _CAPTURES:
            break
    raise reason or _busy_error()


def repair_snapshot(
    repository: Repository,
    objects: ObjectDatabase,
    checkpoint: Checkpoint,
    say: Callable[[str], None],
    parts: Parts | None = None,
) -> CkptError | None:
    """Rewrite a snapshot's damaged objects from files; return an error if that fails."""
    if is_readable(repository, checkpoint, parts):
        return None
    messages, reason = _rewrite_damaged_blobs(repository, objects, checkpoint)
    for message in messages:
        say(message)
    return None if is_readable(repository, checkpoint) else reason or _busy_error()


def _busy_error() -> BusyError:
    message = "HEAD moves, or git gc prunes new objects, during each attempt"
    return BusyError(message, hint="wait until git is done, then run the command again")


# Rewrite damaged objects of a snapshot while the worktree still has the files.

_SNAPSHOT = re.compile(rb"^(files|raw|index/[0-3])/")  # prefixes of worktree paths in a snapshot


def _rewrite_damaged_blobs(
    repository: Repository, objects: ObjectDatabase, checkpoint: Checkpoint
) -> tuple[list[str], CkptError | None]:
    messages = []
    error: CkptError | None = None
    damaged = _find_damaged_objects(repository, objects, checkpoint)
    for oid, (paths, is_committed) in sorted(damaged.items()):
        source = next((path for path in paths if _write_blob(repository, objects, oid, path)), None)
        if source is not None:
            origin = f"was rewritten from {quote_path(source)}"
            messages.append(f"the object {oid} was missing or damaged, and {origin}")
        elif not paths and not is_committed and graph.move_object_aside(repository, oid):
            messages.append(_damaged_object_message(repository, oid))
        else:
            names = ", ".join(quote_path(path) for path in sorted(set(paths))[:3])
            name = f"{oid} of {names}" if names else oid
            message = f"the object {name} is missing or damaged, and no file has that content"
            hint = "stage the file again: git add; or see how to fetch the object: "
            error = WorktreeError(message, hint=f"{hint}git ckpt verify --contents")
    return messages, error


def _damaged_object_message(repository: Repository, oid: str) -> str:
    directory = f"{repository.private_dir}/damaged"
    return f"the object {oid} was damaged and is rewritten; the damaged file is in {directory}"


def _move_aside(repository: Repository, objects: ObjectDatabase, oid: str) -> bool:
    head = manifest.base_tree(repository, "HEAD")
    is_committed = oid in _list_paths_by_oid(objects, head, repository.object_format, set())
    return not is_committed and graph.move_object_aside(repository, oid)


def _find_damaged_objects(
    repository: Repository, objects: ObjectDatabase, checkpoint: Checkpoint
) -> dict[str, tuple[list[bytes], bool]]:
    if checkpoint.tree is None:
        return {}
    broken_trees: set[str] = set()
    all_paths = _list_paths_by_oid(objects, checkpoint.tree, repository.object_format, broken_trees)
    base = manifest.base_tree(repository, checkpoint.git_sha)
    old_paths = _list_paths_by_oid(objects, base, repository.object_format, broken_trees)
    suspect_oids = sorted(broken_trees.union(all_paths.keys() - old_paths.keys()))
    unreadable_oids = graph.find_unreadable(repository, suspect_oids)
    return {oid: (all_paths.get(oid, []), oid in old_paths) for oid in unreadable_oids}


def _list_paths_by_oid(
    objects: ObjectDatabase, root: str, object_format: str, broken: set[str]
) -> dict[str, list[bytes]]:
    paths_by_oid: dict[str, list[bytes]] = {}
    trees: dict[str, bytes] = {root: b""}
    while trees:
        subtrees: dict[str, bytes] = {}
        for (oid, path), entry in zip(trees.items(), objects.read(list(trees), None), strict=True):
            paths_by_oid[oid] = []
            entries: encoding.Entries = {}
            try:
                if entry is None or entry[0] != "tree":
                    raise MalformedTree("the object is missing")
                entries = decode_tree(entry[1], object_format)
            except MalformedTree:
                broken.add(oid)
            for name, (mode, child_oid) in entries.items():
                child_path = b"/".join([path, name]) if path else name
                if mode == encoding.DIRECTORY:
                    subtrees.setdefault(child_oid, child_path)
                elif mode != encoding.GITLINK:
                    paths_by_oid.setdefault(child_oid, []).append(_SNAPSHOT.sub(b"", child_path))
        trees = {oid: path for oid, path in subtrees.items() if oid not in paths_by_oid}
    return paths_by_oid


def _write_blob(repository: Repository, objects: ObjectDatabase, oid: str, path: bytes) -> bool:
    absolute = os.path.join(os.fsencode(repository.worktree or ""), path)
    try:
        data = os.readlink(absolute) if os.path.islink(absolute) else regular.read_content(absolute)
    except OSError:
        return False
    if object_id("blob", data, repository.object_format) == oid:
        graph.move_object_aside(repository, oid)
        objects.write([("blob", data)])  # also if a damaged pack has it: git would write nothing
        return True
    words = ("-c", "core.safecrlf=false", "hash-object", "--stdin", f"--path={os.fsdecode(path)}")
    if repository.git.run(*words, data=data, ok=(0, 1, 128)).out.decode("ascii").strip() != oid:
        return False
    graph.move_object_aside(repository, oid)
    repository.git.run(*words, "-w", data=data)
    fsync.flush(fsync.object_paths(repository.common_dir, [oid]))
    return True
