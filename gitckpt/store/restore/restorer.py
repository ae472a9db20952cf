"""Restore a checkpoint into the current worktree; undo and redo restores.

git writes only paths that differ, and refuses to overwrite files that changed since their capture.
HEAD of the superproject never moves.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from gitckpt.git import graph
from gitckpt.git.contents import attributes, exact_files, unfiltered
from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import stays_within
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import join_first, quote_path, shell_word
from gitckpt.model.checkpoint import SAFETY, Checkpoint
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore import byte_exact, replacement
from gitckpt.store.restore import plan as planning
from gitckpt.store.restore import undo as undoing
from gitckpt.store.restore.plan import PathChange, Plan, Planner, decode_path, is_within, paths_in
from gitckpt.store.restore.submodules import SubmoduleRemoval, SubmoduleRestoreResult, Submodules
from gitckpt.store.snapshot import capture, comparison, manifest
from gitckpt.store.snapshot.capture import Captured
from gitckpt.store.snapshot.manifest import INTENT, SKIPPED

Announce = Callable[[Sequence[str]], None]

_ENDINGS = {
    "merge": "git merge --continue, or git merge --abort",
    "cherry-pick": "git cherry-pick --continue, or --abort",
    "revert": "git revert --continue, or --abort",
    "rebase": "git rebase --continue, or --abort",
    "am": "git am --continue, or --abort",
    "bisect": "git bisect good, bad or reset",
}
_OF_SUBMODULE = "the submodule "
_MAX_NAMED = 3  # omitted paths that a remark names
# Paths that git may refuse, as they lead out of the worktree or into .git.
_UNUSUAL = re.compile(rb"[^ -~]|git|(^|/)\.|[~:\\]|//", re.IGNORECASE)
_TRIES = 10  # attempts while other processes move HEAD


@dataclass(frozen=True, slots=True)
class Position:
    """The commit, branch and operation in progress of a worktree or checkpoint."""

    commit: str  # full oid of HEAD; "" before the first commit
    branch: str | None  # short name; None if HEAD is detached
    operation: str | None  # the merge, rebase, … in progress

    def __str__(self) -> str:
        commit = f"commit {self.commit[: ids.SHORT]}" if self.commit else "no commit yet"
        return f"{commit} ({self.branch or 'detached'})"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a restore changed, and remarks for the user."""

    checkpoint: str  # id
    changes: Sequence[PathChange]
    safety: str | None  # id of the checkpoint of the previous state; None if nothing was done
    remarks: Sequence[str]  # for the user, for example about files that the checkpoint omits
    head: Position  # of the worktree; a restore does not move HEAD
    source: Position  # where the checkpoint was recorded
    apart: Sequence[str]  # sentences on how `head` differs from `source`
    # Files written as git stores them because a filter fails; another restore filters them.
    unfiltered: Sequence[bytes] = ()
    # Files left unchanged because no checkpoint can hold their content: reasons by path.
    kept: Mapping[bytes, str] = field(default_factory=dict)


def kept_failure(kept: Mapping[bytes, str]) -> WorktreeError:
    """Return the error for files that a restore did not change; see `kept`."""
    names = join_first([f"{quote_path(path)} ({reason})" for path, reason in sorted(kept.items())])
    count = f"{len(kept)} files were" if len(kept) > 1 else "1 file was"
    hint = "make these files readable for git (or move them away), then run the command again"
    message = f"{count} not restored, as no checkpoint can hold the current content: {names}"
    return WorktreeError(message, hint=hint)


def restore(
    store: Checkpoints,
    checkpoint: Checkpoint,
    paths: Sequence[bytes] = (),
    *,
    index: bool = False,
    dry_run: bool = False,
    announce: Announce = lambda _: None,
    trusted: bool = False,
) -> RestoreResult:
    """Restore files, index and operation of a checkpoint; see `Store.restore`.

    Empty `paths` selects everything. `announce` receives the `apart` and `remarks` of the result
    before anything changes. Raises `BusyError` if another process changes index or files.
    """
    if not trusted and store.is_replaced(checkpoint.id):
        command = f"git ckpt restore {checkpoint.id[: ids.SHORT]} --trust"
        hint = f"; if you trust the fetched one: {command}"
        raise local_checkpoints.replaced(checkpoint.id, hint)
    return _run(lambda: _Restore(store, checkpoint, paths, index=index), dry_run, announce)[1]


def undo(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest restore; `NotFoundError` without one."""
    return _step(store, undoing.UNDO, dry_run, announce)


def redo(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest undo; `NotFoundError` without one."""
    return _step(store, undoing.REDO, dry_run, announce)


def _step(store: Checkpoints, kind: str, dry_run: bool, announce: Announce) -> RestoreResult:
    stack = undoing.read(store)
    target, missing = undoing.next_step(store, stack, kind)
    if target is None:
        raise undoing.no_step_error(stack, kind, missing)
    checkpoint = store.read(target)
    paths = undoing.written_by_newest(store, stack, checkpoint)
    attempt = functools.partial(_Restore, store, checkpoint, (), paths, step=kind)
    result = _run(attempt, dry_run, announce)[1]
    remarks = undoing.skipped_remarks(missing)
    if stack.open is not None:
        remarks.append("the previous restore, undo or redo was interrupted")
    return replace(result, remarks=[*remarks, *result.remarks])


def _run(
    make: Callable[[], _Restore], dry_run: bool, announce: Announce
) -> tuple[_Restore, RestoreResult]:
    # Tries again if HEAD moved before the restore changed anything; `make` reads HEAD each time.
    for _ in range(_TRIES - 1):
        attempt = make()
        try:
            return attempt, attempt.run(dry_run=dry_run, announce=announce)
        except (BusyError, capture.Moved) as error:
            if attempt.has_begun or type(error) not in (BusyError, capture.Moved):
                raise  # subclasses, as for a lock, have waited already
    last = make()
    return last, last.run(dry_run=dry_run, announce=announce)


def _restore_submodule(
    store: Checkpoints, checkpoint: Checkpoint, dry_run: bool
) -> SubmoduleRestoreResult:
    attempt, result = _run(lambda: _Restore(store, checkpoint, ()), dry_run, lambda _: None)
    failures = list(attempt.submodules.failures)
    remarks = [text for text in result.remarks if text.removeprefix(_OF_SUBMODULE) not in failures]
    failures += [kept_failure(result.kept).message] if result.kept else []
    failures += [unfiltered.failure(result.unfiltered, "").message] if result.unfiltered else []
    advice = attempt.submodules.advice
    return SubmoduleRestoreResult(result.changes, remarks, attempt.is_due, failures, advice)


class _Restore:
    """One attempt to restore: inspect, plan, apply, compare.

    `has_begun` tells whether files may have changed, `is_due` whether anything has to change.
    """

    def __init__(
        self,
        store: Checkpoints,
        checkpoint: Checkpoint,
        paths: Sequence[bytes],
        undone_files: Sequence[bytes] = (),
        *,
        step: str = undoing.RESTORE,
        index: bool = False,
    ) -> None:
        repository = store.repository
        self._store, self._repository, self._objects = store, repository, store.objects
        self._paths, self._undone_files = list(paths), undone_files
        self._undone = {} if step == undoing.RESTORE else checkpoint.state
        self._restores_index, self._step = index or not paths, step
        self._head, self._branch = store.objects.head()
        self._omitted_remarks = _list_omitted(repository, checkpoint, self._paths)
        _require_source(repository, checkpoint)
        checkpoint, self._commit_remark = manifest.with_commit(repository, checkpoint, self._head)
        self._checkpoint = checkpoint
        graph.fetch_trees_of(repository, checkpoint.tree, checkpoint.git_sha)
        self._target = manifest.contents_of(checkpoint, repository, store.objects)
        self._limits = replace(store.rules.limits(), timeout=float("inf"))
        source = checkpoint if self._limits.submodules else replace(checkpoint, worktree=None)
        self.submodules = Submodules(store, source, paths, _restore_submodule)
        self._removal = SubmoduleRemoval(store, self._undone, self.submodules.paths, self._limits)
        self.is_due = self.has_begun = False
        self._unheld: dict[bytes, str] = {}
        self._nested_repositories: Collection[bytes] = modules.git_dirs_inside(repository)
        self._choose_operation()

    def _choose_operation(self) -> None:
        repository, checkpoint = self._repository, self._checkpoint
        same_head = self._head == checkpoint.git_sha and self._commit_remark is None
        files = self._target.operation if self._commit_remark is None else {}
        is_ours = not files or local_checkpoints.is_captured_here(repository, checkpoint.id)
        self._is_foreign = not is_ours
        files = files if is_ours else {}
        branches = self._branch, checkpoint.branch
        self._would_move = same_head and operation.would_move_branch(files, *branches)
        self._rebased: str | None = None
        if not operation.moves_no_branch(repository, files):
            self._rebased = operation.rebased_branch(files)
            files = operation.detach(repository, files)
        self._target.operation = files
        self._brings_operation = same_head and not self._paths and not self._would_move

    def run(self, *, dry_run: bool, announce: Announce) -> RestoreResult:
        with self._store.private_index() as index:
            self._inspect(index)
            plan = self._plan(index)
            apart = self._compare_heads()
            is_due = self.submodules.plan() or plan.changes or plan.flags
            self.is_due = bool(is_due or self._changes_operation)
            if dry_run:
                self._require_objects(plan)
            pending = replacement.find_unfiltered(
                self._repository, self._target.files, paths_in(plan.files), self._paths
            )
            if dry_run or not self.is_due:
                still_failing: list[bytes] = []
                if not dry_run:
                    if self._step != undoing.RESTORE:
                        undoing.finish(self._store, self._step, self._checkpoint.id)
                    still_failing = replacement.filter_pending(self._repository, pending)
                    self.submodules.require_all(is_changed=False)
                completed = [path for path in pending if path not in still_failing]
                plan.changes += [PathChange(planning.CHANGE, path) for path in completed]
                return self._report(plan, None, still_failing, apart if self.is_due else [])
            replacement.list_files(index, self._captured)
            expected = self._prepare(index, plan)
            if self._objects.head()[0] != self._head:
                raise capture.moved_error()
            if not self._paths:
                index.require_latest()
            if remarks := [*apart, *self._list_remarks(plan)]:
                announce(remarks)
            safety = self._record_safety(plan)
            with undoing.with_revert_hint(self._step):
                still_failing = self._apply(index, plan, expected)
        still_failing += replacement.filter_pending(self._repository, pending)
        with undoing.with_revert_hint(self._step):
            self._compare(plan, expected)
        self.submodules.apply()
        self._removal.apply(safety)
        undoing.finish(self._store, self._step, self._checkpoint.id)
        self.submodules.require_all()
        return self._report(plan, safety.id, still_failing, apart)

    def _capture(self, index: PrivateIndex, head: str, untracked: Sequence[bytes]) -> Captured:
        settings = self._limits, untracked
        return capture.capture_in(index, self._objects, head, *settings, keeps=self._is_selected)

    def _inspect(self, index: PrivateIndex, also: Sequence[bytes] = ()) -> None:
        captured = self._capture(index, self._head, [*self._undone_files, *also])
        self._captured = captured
        self._unheld = {
            path: why for path, why in captured.unheld.items() if self._is_selected(path)
        }
        self._nested_repositories = captured.apart
        target = self._target
        target.directories = [path for path in target.directories if not self._stays(path)]
        target.modes = {path: mode for path, mode in target.modes.items() if not self._stays(path)}
        current = manifest.read(self._repository, self._objects, captured.worktree.tree, self._head)
        # A capture takes missing skipped files from the index; without entries, git writes them.
        side = target, self._checkpoint.git_sha
        absent = planning.find_missing(self._repository, current, side, self._paths)
        current.files = captured.files
        if absent:
            current.files = replacement.remove_entries(index, absent, target.files)
        # A capture omits the settings if nothing converts, but restored attributes may convert.
        configured = self._limits.conversions(self._repository)
        current.conversion = attributes.conversion_settings(self._repository, configured)
        self._current = current

    def _is_selected(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _stays(self, path: bytes) -> bool:
        return path in self._unheld or modules.is_below(path, self._nested_repositories)

    # Plan.

    def _plan(self, index: PrivateIndex) -> Plan:
        planner = self._make_planner()
        planner.require_paths(self._checkpoint.id)
        plan = planner.make(self._undone_files, index=self._restores_index)
        touched = {change.path for change in plan.changes if change.kind != planning.STAGE}
        uncaptured = [*plan.in_the_way, *sorted(touched.intersection(self._captured.lossy))]
        if uncaptured:  # the settings omit these files, but the safety checkpoint must hold them
            index.copy_from(os.path.join(self._repository.git_dir, "index"))
            self._inspect(index, uncaptured)
            planner = self._make_planner()
            plan = planner.make(self._undone_files, index=self._restores_index)
        planner.plan_modes(self._undone)
        omitted, files = self._captured.worktree.omitted, self._target.files
        plan.obstacles += replacement.list_special(self._repository, omitted, files, self._paths)
        plan.require_no_obstacle()
        plan.changes += self._removal.plan()
        plan.changes.sort(key=lambda change: change.path)
        return plan

    def _make_planner(self) -> Planner:
        sides = (self._current, self._head), (self._target, self._checkpoint.git_sha)
        return Planner(self._repository, *sides, self._paths, self._stays)

    @property
    def _changes_operation(self) -> bool:
        return self._brings_operation and self._current.operation != self._target.operation

    def _prepare(self, index: PrivateIndex, plan: Plan) -> str:
        """Check that git accepts all paths and has all objects; return the tree to write."""
        expected = self._target.files
        is_unusual = any(_UNUSUAL.search(change.path) for change in plan.files)
        if not plan.is_whole or plan.is_contradictory or is_unusual:
            refused = f"git refuses the files of checkpoint {self._checkpoint.id}"
            try:
                with PrivateIndex(self._repository) as scratch:
                    scratch.copy_from(index.path)
                    scratch.put([*(change.line for change in plan.files), *plan.attributes_gone])
                    expected = scratch.write_tree()
            except GitError as error:
                raise WorktreeError(f"{refused}: {error.message}") from None
            planned = paths_in(plan.files) - set(plan.absent)
            trees = expected, self._target.files
            differing = diff.differences(self._repository, *trees, self._paths)
            if names := [
                str(change) for change in differing if change.path in planned
            ]:  # a tree can have paths that the index refuses
                raise WorktreeError(f"{refused}: {join_first(names)}")
        self._require_objects(plan)
        if graph.promisor(self._repository):
            graph.fetch_missing(self._repository, expected, self._captured.files)
        return expected

    def _require_objects(self, plan: Plan) -> None:
        if self._brings_operation:
            operation.require_objects(self._repository, self._target.operation)
        if graph.promisor(self._repository):
            return  # git may fetch the blobs of files
        oids = {*plan.exactness.raw.items()}
        oids |= {(change.path, change.new) for change in plan.files if change.new.strip("0")}
        info = self._repository.cat_file.info
        if missing := sorted(pair for pair in oids if info(pair[1]) is None):
            names = join_first([f"{quote_path(path)} (blob {oid})" for path, oid in missing])
            message = f"checkpoint {self._checkpoint.id} lacks the content of {names}"
            raise WorktreeError(message, hint=manifest.VERIFY)

    def _record_safety(self, plan: Plan) -> Checkpoint:
        state = {
            "worktree": local_checkpoints.worktree_name(self._repository),
            "made": local_checkpoints.creation_time(self._repository),
            "before": self._checkpoint.id,
            "paths": [*map(planning.as_text, self._paths)],
            **plan.state,
            **self.submodules.state,
        }
        message = f"before the restore of checkpoint {self._checkpoint.id[: ids.SHORT]}"
        files, label, store = self._captured.worktree, ref_names.SAFETY_COMPLETE, self._store
        if self._limits.submodules:  # also submodules to restore, which the index may lack
            paths = {*self._captured.submodules, *self.submodules.paths}
            files = submodules.capture(store, files, paths, self._limits)
        safety = store.record(label, state, worktree=files, trigger=SAFETY, message=message)
        failure = capture.repair(self._repository, store.objects, safety, store.announce)
        if failure is None and safety.git_sha != self._head:
            failure = capture.moved_error()  # else the index would count as that of another commit
        if failure is not None:
            store.remove([safety.id])
            raise failure
        self.has_begun = True
        undoing.begin(store, self._step, safety)
        return safety

    def _apply(self, index: PrivateIndex, plan: Plan, expected: str) -> list[bytes]:
        """Change files, index and operation; return the files whose filter fails."""
        paths, raw = paths_in(plan.files), plan.exactness.raw
        hidden = paths.intersection(self._current.flags.get(SKIPPED, ()))
        configured = self._limits.conversions(self._repository)
        byte_exact.prepare(index, plan.exactness, configured, expected)
        if not self._paths:
            index.require_latest()
        try:
            if hidden:  # git writes no file whose entry is marked skip-worktree
                listed = hidden.intersection(path for path, *_ in index.entries())
                index.update("--no-skip-worktree", sorted(listed))
            as_is = self._captured.as_is.items()
            exact = {path: oid for path, oid in as_is if path in paths}
            replacement.delete_unconvertible(index, exact)
            trees = self._current.files, expected
            still_failing = replacement.replace_files(index, plan.files, *trees)
            if plan.apply_modes(self._repository):
                index.refresh()  # a new mode changes the ctime of a file
        except GitError as error:
            if replacement.is_out_of_date(error):
                raise byte_exact.changed_error(error.message) from None
            message = f"git could not write every file: {error.message}"
            raise WorktreeError(message, hint=self._revert_hint) from None
        byte_exact.write_captured(index, plan.exactness)
        if unfiltered.uses_annex(self._repository):
            files, outdated = manifest.regular_files(self._repository, expected), plan.outdated
            unfiltered.populate_annexed(
                index, {path: oid for path, oid in files.items() if path in outdated}
            )
        if still_failing:
            unfiltered.forget(self._repository, raw)
        self._write_index(index, plan, expected)
        if self._changes_operation:
            operation.end_operation(self._repository)
            operation.bring_back(self._repository, self._target.operation)
        return [path for path in still_failing if path not in raw]

    def _write_index(self, index: PrivateIndex, plan: Plan, expected: str) -> None:
        if not self._paths:
            # In a sparse checkout, every entry without a file must stay marked skip-worktree.
            target = self._target
            if target.sparse is not None or self._current.sparse is not None:
                skipped = sorted(plan.without_file(self._repository))
                target = replace(target, flags={**target.flags, SKIPPED: skipped})
            manifest.turn_into(index, target, self._checkpoint.git_sha, expected)
            index.install()
            return
        # Even if no index entry is restored, git needs the stat data of converted files.
        is_converted = not self._captured.is_as_stored or plan.exactness.touched is not None
        if not (self._restores_index or is_converted):
            return
        with PrivateIndex(self._repository) as private_index:
            private_index.put(plan.index_lines)
            exact_files.refresh(private_index, plan.outdated)
            private_index.refresh()
            for flag, (added, removed) in plan.flags.items():
                if flag == INTENT:
                    manifest.add_in_intent(private_index, self._target, added)
                else:
                    manifest.change_flag(private_index, flag, added, removed)
            private_index.install()

    def _compare(self, plan: Plan, expected: str) -> None:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(capture.Moved):
                return self._require_equal(self._find_differences(plan, expected))
        return self._require_equal(self._find_differences(plan, expected))

    def _find_differences(self, plan: Plan, expected: str) -> list[str]:
        deleted = paths_in(plan.files, "D") - set(plan.absent)
        if not self._paths:
            target = self._target, self._checkpoint.git_sha
            return comparison.compare(
                *(self._repository, self._objects, *target, self._limits),
                with_operation=self._brings_operation,
                deleted=deleted,
                stays=self._stays,
            )
        words = ("diff-index", "--cached", "--no-renames", "--diff-filter=D", "--name-only", "-z")
        with PrivateIndex(self._repository) as index:
            untracked = index.git(*words, expected).split(b"\0")[:-1]  # also ignored files
            files = self._capture(index, self._objects.head()[0], untracked).files
        away = plan.without_file(self._repository)
        top = os.fsencode(self._repository.worktree or "")
        wrong = [
            change
            for change in diff.differences(self._repository, expected, files, self._paths)
            if change.path not in away and not self._stays(change.path)
            # A capture lists a skip-worktree entry as a file, even without a file.
            if self._restores_index or change.status != "A" or planning.is_file(top, change.path)
        ]
        names = comparison.unexpected(self._repository, wrong, deleted, plan.exactness.raw)
        return names + comparison.find_wrong_layout(self._repository, plan.directories, plan.modes)

    def _require_equal(self, differing: Sequence[str]) -> None:
        if differing:
            reason = f"the restored files differ from checkpoint {self._checkpoint.id}"
            raise WorktreeError(f"{reason}: {join_first(differing)}", hint=self._revert_hint)

    @property
    def _revert_hint(self) -> str:
        return f"restore the previous state: {undoing.revert_command(self._step)}"

    def _report(
        self, plan: Plan, safety: str | None, still_failing: Sequence[bytes], apart: Sequence[str]
    ) -> RestoreResult:
        remarks = [*self._list_remarks(plan), *self._removal.remarks]
        remarks += [_OF_SUBMODULE + failure for failure in self.submodules.failures]
        changes = sorted([*plan.changes, *self.submodules.changes], key=lambda change: change.path)
        result = self._checkpoint.id, changes, safety, remarks, self._position, self._source
        return RestoreResult(*result, apart, tuple(sorted(still_failing)), self._unheld)

    def _compare_heads(self) -> list[str]:
        """Return sentences on how HEAD differs from the position of the checkpoint."""
        checkpoint, files = self._checkpoint, self._checkpoint.worktree
        current = Position(self._head, self._branch, self._captured.worktree.operation)
        under_way = files.operation if files else None
        source = Position(checkpoint.git_sha, checkpoint.branch, under_way)
        self._position, self._source = current, source
        no_run = "--no-run " if checkpoint.run else ""
        resume = f"git ckpt resume {no_run}{checkpoint.id[: ids.SHORT]}"
        remarks = self._compare_operations(current, source, resume)
        if current.commit != source.commit:
            files_of = f"{'these' if self._paths else 'the'} files of {source}"
            stays = f"HEAD stays at {current}; git status shows {files_of} as changes"
            return [f"{stays}; to work at that commit: {resume}", *remarks]
        if current.branch == source.branch:
            return remarks
        origin, advice = "while HEAD was detached", ""
        if source.branch is not None:
            end = "-- " if source.branch.startswith("-") else ""  # fetched: may be any text
            origin = f"on {source.branch}"
            advice = f"; to switch to that branch: git switch {end}{shell_word(source.branch)}"
        recorded = f"the checkpoint was made {origin}, at the same commit{advice}"
        return [f"HEAD stays at {current}; {recorded}", *remarks]

    def _compare_operations(self, position: Position, source: Position, resume: str) -> list[str]:
        current, captured = position.operation, None if self._is_foreign else source.operation
        end = _ENDINGS.get(
            (captured if self._changes_operation else current) or "", "see git status"
        )
        suffix = "" if position.commit == source.commit else ", which belong to another commit"
        remarks = []
        if self._changes_operation:
            if current and current != captured:
                back = f"to return to that state: {undoing.revert_command(self._step)}"
                remarks.append(f"the {current} in progress in the worktree is ended; {back}")
            if captured:
                remark = f"the {captured} of the checkpoint is in progress again"
                remarks.append(f"{remark}; to end it: {end}")
        elif self._paths or self._would_move or suffix:
            if captured:
                reason = "the checkpoint was recorded at another commit than HEAD"
                if self._paths:
                    reason = "only some paths are restored"
                elif self._would_move:
                    reason = f"that would move {position.branch}"
                remark = f"the {captured} of the checkpoint is not restored, as {reason}"
                remarks.append(f"{remark}; to open a worktree with the {captured}: {resume}")
            if current and not self._paths:
                remark = f"the {current} in progress continues with the restored files{suffix}"
                remarks.append(f"{remark}; to end it: {end}")
        return remarks

    def _list_remarks(self, plan: Plan) -> list[str]:
        deleted = {change.path for change in plan.changes if change.kind == planning.DELETE}
        covered = self.submodules.paths | self.submodules.moved | deleted
        remarks = list(self._omitted_remarks)
        for change in (change for change in plan.submodules if change.path not in covered):
            existed = change.new.strip("0")
            past = f"was at {change.new} then" if existed else "is not in the checkpoint"
            remarks.append(f"the submodule {decode_path(change.path)} is not changed; it {past}")
        if inside := [quote_path(path) for path in plan.untouched if path not in self._unheld]:
            names = join_first(sorted(inside))
            remarks.append(f"files inside of another repository are not restored: {names}")
        if plan.unknown:
            names = join_first(sorted(map(decode_path, plan.unknown)))
            remarks.append(f"untracked files stay, as the checkpoint captured none: {names}")
        files = self._checkpoint.worktree
        paths = {quote_path(change.path) for change in plan.changes}
        if converted := paths.intersection(files.converted if files is not None else ()):
            names = join_first(sorted(converted))
            remarks.append(f"not restored byte for byte, as git converts these files: {names}")
        if self._brings_operation and self._rebased is not None:
            remarks.append(operation.hint_on_branch(self._rebased))
        if self._is_foreign and not self._paths:
            remarks.append(operation.FOREIGN)
        remarks += [self._commit_remark] if self._commit_remark is not None else []
        return remarks + self.submodules.remarks


def _require_source(repository: Repository, checkpoint: Checkpoint) -> None:
    """Raise `WorktreeError` if there is no worktree, or the checkpoint has no files."""
    files, commit = checkpoint.worktree, checkpoint.git_sha[:10]
    if repository.worktree is None:
        hint = f"open a worktree: git ckpt resume {checkpoint.id[: ids.SHORT]}"
        raise WorktreeError("the repository has no worktree to restore files into", hint=hint)
    if files is not None and files.degraded and files.tree is None:
        hint = "see other checkpoints: git ckpt list"
        if commit:
            hint = f"the files of its commit: git restore --source={commit} --staged --worktree ."
        raise WorktreeError(f"checkpoint {checkpoint.id} has no files: {files.degraded}", hint=hint)


def _list_omitted(
    repository: Repository, checkpoint: Checkpoint, paths: Sequence[bytes]
) -> list[str]:
    """Return a remark on omitted paths that the worktree lacks, too; [] for none."""
    top, names = os.fsencode(repository.worktree or ""), []
    for entry in checkpoint.worktree.omitted if checkpoint.worktree is not None else ():
        path = modules.unquote(entry.path).rstrip(b"/")
        is_beside = checkpoint.run is not None and path.startswith(b"run/")  # not in the worktree
        is_private = path.split(b"/")[0] == b".git" or not stays_within(path)
        if not is_beside and not is_private and is_within(path, paths):
            names += [] if os.path.lexists(os.path.join(top, path)) else [entry.path]
    if not names:
        return []
    count = "1 path" if len(names) == 1 else f"{len(names)} paths"
    reason = f"neither in the checkpoint nor in the worktree: {join_first(names, _MAX_NAMED)}"
    return [f"{count} {reason}; see why: git ckpt show {checkpoint.id[: ids.SHORT]}"]
