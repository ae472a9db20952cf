"""Restore a checkpoint into the current worktree; undo and redo restores.

git writes only paths that differ, and overwrites no file that changed since gitckpt captured it.
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
from gitckpt.git.objects.encoding import has_no_dotdot
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import join_first, quote_path, shell_quoted
from gitckpt.model.checkpoint import SAFETY, Checkpoint
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore import byte_exact, replacement
from gitckpt.store.restore import plan as planning
from gitckpt.store.restore import undo as undoing
from gitckpt.store.restore.plan import PathChange, RestorePlan, decode_path, is_within, paths_of
from gitckpt.store.restore.submodules import SubmoduleRemoval, SubmoduleRestorer, SubmoduleResult
from gitckpt.store.snapshot import capture, comparison, manifest
from gitckpt.store.snapshot.capture import CaptureResult
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
    """The commit and branch of HEAD, and the operation (such as a merge) in progress."""

    commit: str  # full oid of HEAD; "" before the first commit
    branch: str | None  # short name; None if HEAD is detached
    operation: str | None  # the merge, rebase, … in progress

    def __str__(self) -> str:
        commit = f"commit {self.commit[: ids.SHORT]}" if self.commit else "no commit yet"
        return f"{commit} ({self.branch or 'detached'})"


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The restore that an undo takes back or a redo repeats."""

    restored: str | None  # id of the checkpoint that was restored; None if unknown
    paths: Sequence[bytes]  # to which the restore was limited; empty for all
    time: int  # of the restore, or of its undo, in microseconds since the epoch
    edited: Sequence[bytes]  # files edited since then; the edits are in the safety checkpoint


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The changes that a restore made, and remarks for the user."""

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
    step: StepInfo | None = None  # of `undo` and `redo`


def files_not_restored_error(kept: Mapping[bytes, str]) -> WorktreeError:
    """Return the error about files that were not restored; `kept` has the reasons."""
    names = join_first([f"{quote_path(path)} ({reason})" for path, reason in sorted(kept.items())])
    count = f"{len(kept)} files were" if len(kept) > 1 else "1 file was"
    hint = "make these files readable for git (or move them away), then run the command again"
    message = f"{count} not restored, as no checkpoint can hold the current content: {names}"
    return WorktreeError(message, hint=hint)


def restore_checkpoint(
    store: Checkpoints,
    checkpoint: Checkpoint,
    paths: Sequence[bytes] = (),
    *,
    index: bool = False,
    dry_run: bool = False,
    announce: Announce = lambda _: None,
    trusted: bool = False,
) -> RestoreResult:
    """Restore files, index, and the operation (such as a merge) that was in progress.

    Empty `paths` select everything. `announce` receives the `apart` and `remarks` of the result
    before anything changes. Raises `BusyError` if another process changes the index or a file.
    """
    if not trusted and store.is_replaced(checkpoint.id):
        command = f"git ckpt restore {checkpoint.id[: ids.SHORT]} --trust"
        hint = f"; if you trust the fetched one: {command}"
        raise local_checkpoints.replaced_error(checkpoint.id, hint)
    return _retry(lambda: _RestoreTry(store, checkpoint, paths, index=index), dry_run, announce)[1]


def undo_restore(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest restore, or raise `NotFoundError`."""
    return _undo_redo(store, undoing.UNDO, dry_run, announce)


def redo_restore(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest undo, or raise `NotFoundError`."""
    return _undo_redo(store, undoing.REDO, dry_run, announce)


def _undo_redo(store: Checkpoints, kind: str, dry_run: bool, announce: Announce) -> RestoreResult:
    stack = undoing.read_stack(store)
    checkpoint_id, missing_ids = undoing.next_step(store, stack, kind)
    if checkpoint_id is None:
        raise undoing.no_step_error(stack, kind, missing_ids)
    checkpoint = store.read(checkpoint_id)
    latest_files, paths = undoing.read_latest_files(store, stack, checkpoint)
    created_files = undoing.list_created_files(store, checkpoint, latest_files, paths)
    make = functools.partial(_RestoreTry, store, checkpoint, (), created_files, step=kind)
    attempt, result = _retry(make, dry_run, announce)
    known_files = None if missing_ids else latest_files  # skipped steps changed files, too
    edited = attempt.list_edited_files(result.changes, known_files, paths)
    restored = undoing.find_reverted_restore(kind, checkpoint)
    restored_paths = undoing.read_paths(checkpoint)
    result = replace(result, step=StepInfo(restored, restored_paths, checkpoint.time, edited))
    remarks = undoing.remark_on_skipped_steps(missing_ids)
    if stack.open is not None:
        remarks.append("the previous restore, undo or redo was interrupted")
    return replace(result, remarks=[*remarks, *result.remarks])


def _retry(
    make: Callable[[], _RestoreTry], dry_run: bool, announce: Announce
) -> tuple[_RestoreTry, RestoreResult]:
    # Tries again if HEAD moved before the restore changed anything; `make` reads HEAD each time.
    for _ in range(_TRIES - 1):
        attempt = make()
        try:
            return attempt, attempt.run(dry_run=dry_run, announce=announce)
        except (BusyError, capture.Moved) as error:
            if attempt.has_begun or type(error) not in (BusyError, capture.Moved):
                raise  # subclasses, as for a lock, have waited already
    last_attempt = make()
    return last_attempt, last_attempt.run(dry_run=dry_run, announce=announce)


def _restore_submodule(store: Checkpoints, captured: Checkpoint, dry_run: bool) -> SubmoduleResult:
    attempt, result = _retry(lambda: _RestoreTry(store, captured, ()), dry_run, lambda _: None)
    sentences = list(attempt.submodules.failures)
    remarks = [text for text in result.remarks if text.removeprefix(_OF_SUBMODULE) not in sentences]
    sentences += [files_not_restored_error(result.kept).message] if result.kept else []
    if result.unfiltered:
        sentences.append(unfiltered.unfiltered_files_error(result.unfiltered, "").message)
    advice = attempt.submodules.advice
    return SubmoduleResult(result.changes, remarks, attempt.is_due, sentences, advice)


class _RestoreTry:
    """One attempt to restore a checkpoint; `run` executes it.

    `has_begun` tells whether files may have changed already, `is_due` whether any change is needed.
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
        self._head, self._branch = store.objects.read_head()
        self._omitted_remarks = _describe_omitted_paths(repository, checkpoint, self._paths)
        _require_files_to_restore(repository, checkpoint)
        checkpoint, self._commit_remark = manifest.relink_commit(repository, checkpoint, self._head)
        self._checkpoint = checkpoint
        graph.fetch_trees_of(repository, checkpoint.tree, checkpoint.git_sha)
        self._target = manifest.contents_of(checkpoint, repository, store.objects)
        self._limits = replace(store.settings_reader.read_limits(), timeout=float("inf"))
        files_source = checkpoint if self._limits.submodules else replace(checkpoint, worktree=None)
        self.submodules = SubmoduleRestorer(store, files_source, paths, _restore_submodule)
        self._removal = SubmoduleRemoval(store, self._undone, self.submodules.paths, self._limits)
        self.is_due = self.has_begun = False
        self._unheld: dict[bytes, str] = {}
        self._nested_repositories: Collection[bytes] = modules.find_git_dirs_inside(repository)
        self._choose_git_operation()

    def _choose_git_operation(self) -> None:
        repository, checkpoint = self._repository, self._checkpoint
        same_head = self._head == checkpoint.git_sha and self._commit_remark is None
        state_files = self._target.operation if self._commit_remark is None else {}
        is_ours = not state_files or local_checkpoints.is_captured_here(repository, checkpoint.id)
        self._is_foreign = not is_ours
        state_files = state_files if is_ours else {}
        branch_pair = self._branch, checkpoint.branch
        self._would_move = same_head and operation.would_move_branch(state_files, *branch_pair)
        self._rebased: str | None = None
        if not operation.moves_no_branch(repository, state_files):
            self._rebased = operation.find_rebased_branch(state_files)
            state_files = operation.detach_operation(repository, state_files)
        self._target.operation = state_files
        self._brings_operation = same_head and not self._paths and not self._would_move

    def run(self, *, dry_run: bool, announce: Announce) -> RestoreResult:
        with self._store.take_private_index() as index:
            self._capture_current(index)
            plan = self._make_restore_plan(index)
            head_remarks = self._describe_head_changes()
            is_due = self.submodules.plan_submodules() or plan.changes or plan.flags
            self.is_due = bool(is_due or self._changes_git_operation)
            if dry_run:
                self._require_stored_objects(plan)
            pending_files = replacement.find_unfiltered_files(
                self._repository, self._target.files, paths_of(plan.files), self._paths
            )
            if dry_run or not self.is_due:
                failing_files: list[bytes] = []
                if not dry_run:
                    if self._step != undoing.RESTORE:
                        undoing.record_restore_end(self._store, self._step, self._checkpoint.id)
                    failing_files = replacement.run_pending_filters(self._repository, pending_files)
                    self.submodules.require_all_restored(is_changed=False)
                filtered_paths = [path for path in pending_files if path not in failing_files]
                plan.changes += [PathChange(planning.CHANGE, path) for path in filtered_paths]
                return self._result(plan, None, failing_files, head_remarks if self.is_due else [])
            replacement.add_unlisted(index, self._captured)
            expected_tree = self._prepare_tree_to_write(index, plan)
            if self._objects.read_head()[0] != self._head:
                raise capture.head_moved_error()
            if not self._paths:
                index.require_user_index_unchanged()
            if remarks := [*head_remarks, *self._list_remarks(plan)]:
                announce(remarks)
            safety = self._record_safety_checkpoint(plan)
            with undoing.add_revert_hint_to_errors(self._step):
                failing_files = self._apply_plan(index, plan, expected_tree)
        failing_files += replacement.run_pending_filters(self._repository, pending_files)
        with undoing.add_revert_hint_to_errors(self._step):
            self._require_restored_files(plan, expected_tree)
        self.submodules.restore_submodules()
        self._removal.remove_submodules(safety)
        undoing.record_restore_end(self._store, self._step, self._checkpoint.id)
        self.submodules.require_all_restored()
        return self._result(plan, safety.id, failing_files, head_remarks)

    def _capture(self, index: PrivateIndex, head: str, untracked: Sequence[bytes]) -> CaptureResult:
        settings = self._limits, untracked
        return capture.capture_in(index, self._objects, head, *settings, keeps=self._is_selected)

    def _capture_current(self, index: PrivateIndex, also: Sequence[bytes] = ()) -> None:
        self._captured = captured = self._capture(index, self._head, [*self._undone_files, *also])
        unheld_files = captured.unheld.items()
        self._unheld = {path: reason for path, reason in unheld_files if self._is_selected(path)}
        self._nested_repositories = captured.apart
        target = self._target
        target.directories = [path for path in target.directories if not self._stays(path)]
        target.modes = {path: mode for path, mode in target.modes.items() if not self._stays(path)}
        current = manifest.read(self._repository, self._objects, captured.worktree.tree, self._head)
        # A capture takes missing skipped files from the index; without entries, git writes them.
        target_side = target, self._checkpoint.git_sha
        missing = planning.find_missing_files(self._repository, current, target_side, self._paths)
        current.files = captured.files
        if missing:
            current.files = replacement.remove_index_entries(index, missing, target.files)
        # A capture omits the settings if nothing converts, but restored attributes may convert.
        configured = self._limits.git_settings(self._repository)
        current.conversion = attributes.describe_conversion(self._repository, configured)
        self._current = current

    def _is_selected(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _stays(self, path: bytes) -> bool:
        return path in self._unheld or modules.is_below(path, self._nested_repositories)

    def list_edited_files(
        self, changes: Sequence[PathChange], files: str | None, paths: Sequence[bytes]
    ) -> list[bytes]:
        """Return the files in `changes` that were edited since the restore.

        Args:
            changes: of the undo or redo.
            files: the tree that the restore wrote; None if unknown.
            paths: to which the restore was limited; empty for all.
        """
        if files is None:
            return []
        differences = diff.diff_trees(self._repository, files, self._current.files)
        edited_paths = paths_of(differences)
        kinds = (planning.ADD, planning.CHANGE, planning.DELETE)
        changed = [change.path for change in changes if change.kind in kinds]
        return [path for path in changed if path in edited_paths or not is_within(path, paths)]

    # Plan.

    def _make_restore_plan(self, index: PrivateIndex) -> RestorePlan:
        planner = self._make_planner()
        planner.require_known_paths(self._checkpoint.id)
        plan = planner.plan_changes(self._undone_files, index=self._restores_index)
        index_kinds = planning.STAGE, planning.UNSTAGE
        touched_paths = {change.path for change in plan.changes if change.kind not in index_kinds}
        to_capture = [*plan.in_the_way, *sorted(touched_paths.intersection(self._captured.lossy))]
        if to_capture:  # the settings omit these files, but the safety checkpoint must hold them
            index.copy_index_from(os.path.join(self._repository.git_dir, "index"))
            self._capture_current(index, to_capture)
            planner = self._make_planner()
            plan = planner.plan_changes(self._undone_files, index=self._restores_index)
        planner.plan_directories_and_modes(self._undone)
        omissions, tree = self._captured.worktree.omitted, self._target.files
        plan.obstacles += replacement.special_files(self._repository, omissions, tree, self._paths)
        plan.require_no_blocking_path()
        plan.changes += self._removal.plan_removals()
        plan.changes.sort(key=lambda change: change.path)
        return plan

    def _make_planner(self) -> planning.RestorePlanner:
        sides = (self._current, self._head), (self._target, self._checkpoint.git_sha)
        return planning.RestorePlanner(self._repository, *sides, self._paths, self._stays)

    @property
    def _changes_git_operation(self) -> bool:
        return self._brings_operation and self._current.operation != self._target.operation

    def _prepare_tree_to_write(self, index: PrivateIndex, plan: RestorePlan) -> str:
        tree = self._target.files
        is_unusual = any(_UNUSUAL.search(change.path) for change in plan.files)
        if not plan.is_whole or plan.is_contradictory or is_unusual:
            message_start = f"git refuses the files of checkpoint {self._checkpoint.id}"
            try:
                with PrivateIndex(self._repository) as scratch:
                    scratch.copy_index_from(index.path)
                    lines = (change.index_info_line for change in plan.files)
                    scratch.put_entries([*lines, *plan.attributes_gone])
                    tree = scratch.write_tree()
            except GitError as error:
                raise WorktreeError(f"{message_start}: {error.message}") from None
            planned_paths = paths_of(plan.files) - set(plan.absent)
            tree_pair = tree, self._target.files
            differences = diff.diff_trees(self._repository, *tree_pair, self._paths)
            if refused_changes := [
                str(change) for change in differences if change.path in planned_paths
            ]:  # a tree can have paths that the index refuses
                raise WorktreeError(f"{message_start}: {join_first(refused_changes)}")
        self._require_stored_objects(plan)
        if graph.find_promisor_remote(self._repository):
            graph.fetch_missing_objects(self._repository, tree, self._captured.files)
        return tree

    def _require_stored_objects(self, plan: RestorePlan) -> None:
        if self._brings_operation:
            operation.require_ref_objects(self._repository, self._target.operation)
        if graph.find_promisor_remote(self._repository):
            return  # git may fetch the blobs of files
        oids = {*plan.exactness.raw.items()}
        oids |= {(change.path, change.new) for change in plan.files if change.new.strip("0")}
        read_info = self._repository.cat_file.info
        if missing_blobs := sorted(pair for pair in oids if read_info(pair[1]) is None):
            names = join_first([f"{quote_path(path)} (blob {oid})" for path, oid in missing_blobs])
            message = f"checkpoint {self._checkpoint.id} lacks the content of {names}"
            raise WorktreeError(message, hint=manifest.VERIFY)

    def _record_safety_checkpoint(self, plan: RestorePlan) -> Checkpoint:
        restored = undoing.find_restored(self._undone) or self._checkpoint.id
        state = {
            "worktree": local_checkpoints.worktree_name(self._repository),
            "made": local_checkpoints.worktree_creation_time(self._repository),
            "before": self._checkpoint.id,
            "paths": [*map(planning.decode_if_utf8, self._paths)],
            "step": self._step,
            "restored": restored,
            **plan.state,
            **self.submodules.undo_state,
        }
        noun = "checkpoint" if self._step == undoing.RESTORE else "restore"
        message = f"before the {self._step} of {noun} {restored[: ids.SHORT]}"
        worktree, label, store = self._captured.worktree, ref_names.SAFETY_COMPLETE, self._store
        if self._limits.submodules:  # also submodules to restore, which the index may lack
            submodule_paths = {*self._captured.submodules, *self.submodules.paths}
            worktree = submodules.capture_submodules(store, worktree, submodule_paths, self._limits)
        safety = store.record(label, state, worktree=worktree, trigger=SAFETY, message=message)
        error = capture.repair_snapshot(self._repository, store.objects, safety, store.announce)
        if error is None and safety.git_sha != self._head:
            error = capture.head_moved_error()  # else the index would count as another commit's
        if error is not None:
            store.remove([safety.id])
            raise error
        self.has_begun = True
        undoing.record_restore_start(store, self._step, safety)
        return safety

    def _apply_plan(self, index: PrivateIndex, plan: RestorePlan, expected: str) -> list[bytes]:
        """Change the files and the index as planned; return the files left unfiltered."""
        changed_paths, raw_files = paths_of(plan.files), plan.exactness.raw
        skipped_paths = changed_paths.intersection(self._current.flags.get(SKIPPED, ()))
        configured = self._limits.git_settings(self._repository)
        byte_exact.require_files_unchanged(index, plan.exactness, configured, expected)
        if not self._paths:
            index.require_user_index_unchanged()
        try:
            if skipped_paths:  # git writes no file whose entry is marked skip-worktree
                index_paths = skipped_paths.intersection(path for path, *_ in index.list_entries())
                index.update_paths("--no-skip-worktree", sorted(index_paths))
            raw_oids = self._captured.as_is.items()
            exact_oids = {path: oid for path, oid in raw_oids if path in changed_paths}
            replacement.delete_unconvertible_files(index, exact_oids)
            old_and_new_tree = self._current.files, expected
            failing_files = replacement.replace_files(index, plan.files, *old_and_new_tree)
            if plan.apply_modes(self._repository):
                index.refresh_stat_data()  # a new mode changes the ctime of a file
        except GitError as error:
            if replacement.is_outdated_index_error(error):
                raise byte_exact.file_changed_error(error.message) from None
            message = f"git could not write every file: {error.message}"
            raise WorktreeError(message, hint=self._revert_hint) from None
        byte_exact.write_exact_bytes(index, plan.exactness)
        if unfiltered.uses_git_annex(self._repository):
            files, outdated = manifest.regular_files(self._repository, expected), plan.paths_to_stat
            outdated_files = {path: oid for path, oid in files.items() if path in outdated}
            unfiltered.populate_annexed_files(index, outdated_files)
        if failing_files:
            unfiltered.forget_unfiltered_files(self._repository, raw_files)
        self._write_index(index, plan, expected)
        if self._changes_git_operation:
            operation.end_operation(self._repository)
            operation.restore_operation(self._repository, self._target.operation)
        return [path for path in failing_files if path not in raw_files]

    def _write_index(self, index: PrivateIndex, plan: RestorePlan, expected: str) -> None:
        if not self._paths:
            # In a sparse checkout, every entry without a file must stay marked skip-worktree.
            target = self._target
            if target.sparse is not None or self._current.sparse is not None:
                skipped_paths = sorted(plan.list_skipped_without_file(self._repository))
                target = replace(target, flags={**target.flags, SKIPPED: skipped_paths})
            manifest.set_index_to_snapshot(index, target, self._checkpoint.git_sha, expected)
            index.replace_user_index()
            return
        # Even if no index entry is restored, git needs the stat data of converted files.
        has_conversions = not self._captured.is_as_stored or plan.exactness.touched is not None
        if not (self._restores_index or has_conversions):
            return
        with PrivateIndex(self._repository) as private_index:
            private_index.put_entries(plan.index_lines)
            exact_files.refresh_index_entries(private_index, plan.paths_to_stat)
            private_index.refresh_stat_data()
            for flag, (paths_to_flag, paths_to_unflag) in plan.flags.items():
                if flag == INTENT:
                    manifest.add_intent_entries(private_index, self._target, paths_to_flag)
                else:
                    manifest.change_index_flag(private_index, flag, paths_to_flag, paths_to_unflag)
            private_index.replace_user_index()

    def _require_restored_files(self, plan: RestorePlan, expected: str) -> None:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(capture.Moved):
                return self._require_no_differences(self._compare_with_worktree(plan, expected))
        return self._require_no_differences(self._compare_with_worktree(plan, expected))

    def _compare_with_worktree(self, plan: RestorePlan, expected: str) -> list[str]:
        deleted_paths = paths_of(plan.files, "D") - set(plan.absent)
        if not self._paths:
            wanted = self._target, self._checkpoint.git_sha
            return comparison.compare_with_worktree(
                *(self._repository, self._objects, *wanted, self._limits),
                with_operation=self._brings_operation,
                deleted=deleted_paths,
                stays=self._stays,
            )
        command = ("diff-index", "--cached", "--no-renames", "--diff-filter=D", "--name-only", "-z")
        with PrivateIndex(self._repository) as index:
            untracked_paths = index.git(*command, expected).split(b"\0")[:-1]  # also ignored files
            files_tree = self._capture(index, self._objects.read_head()[0], untracked_paths).files
        missing_paths = plan.list_skipped_without_file(self._repository)
        top = os.fsencode(self._repository.worktree or "")
        changes = [
            change
            for change in diff.diff_trees(self._repository, expected, files_tree, self._paths)
            if change.path not in missing_paths and not self._stays(change.path)
            # A capture lists a skip-worktree entry as a file, even without a file.
            if self._restores_index or change.status != "A" or planning.is_file(top, change.path)
        ]
        names = comparison.unexpected_changes(
            self._repository, changes, deleted_paths, plan.exactness.raw
        )
        return names + comparison.find_wrong_modes(self._repository, plan.directories, plan.modes)

    def _require_no_differences(self, differing: Sequence[str]) -> None:
        if differing:
            problem = f"the restored files differ from checkpoint {self._checkpoint.id}"
            raise WorktreeError(f"{problem}: {join_first(differing)}", hint=self._revert_hint)

    @property
    def _revert_hint(self) -> str:
        return f"restore the previous state: {undoing.revert_command(self._step)}"

    def _result(
        self, plan: RestorePlan, safety: str | None, failing: Sequence[bytes], apart: Sequence[str]
    ) -> RestoreResult:
        remarks = [*self._list_remarks(plan), *self._removal.remarks]
        remarks += [_OF_SUBMODULE + failure for failure in self.submodules.failures]
        changes = sorted([*plan.changes, *self.submodules.changes], key=lambda change: change.path)
        main_fields = self._checkpoint.id, changes, safety, remarks, self._position, self._source
        return RestoreResult(*main_fields, apart, tuple(sorted(failing)), self._unheld)

    def _describe_head_changes(self) -> list[str]:
        checkpoint, captured = self._checkpoint, self._checkpoint.worktree
        position = Position(self._head, self._branch, self._captured.worktree.operation)
        source_operation = captured.operation if captured else None
        source = Position(checkpoint.git_sha, checkpoint.branch, source_operation)
        self._position, self._source = position, source
        option = "--no-run " if checkpoint.run else ""
        resume = f"git ckpt resume {option}{checkpoint.id[: ids.SHORT]}"
        remarks = self._compare_operations(position, source, resume)
        if self._paths:  # the user does not expect HEAD to move
            return remarks
        if position.commit != source.commit:
            place = source if source.commit else "the start, without a commit"
            return [f"HEAD stays at {position}; to work at {place}: {resume}", *remarks]
        if position.branch == source.branch:
            return remarks
        circumstance, advice = "while HEAD was detached", ""
        if source.branch is not None:
            end = "-- " if source.branch.startswith("-") else ""  # fetched: may be any text
            circumstance = f"on {source.branch}"
            advice = f": git switch {end}{shell_quoted(source.branch)}"
        remark = f"the checkpoint was made {circumstance}, at the same commit{advice}"
        return [f"HEAD stays at {position}; {remark}", *remarks]

    def _compare_operations(self, position: Position, source: Position, resume: str) -> list[str]:
        active, captured = position.operation, None if self._is_foreign else source.operation
        ended_operation = captured if self._changes_git_operation else active
        end_commands = _ENDINGS.get(ended_operation or "", "see git status")
        suffix = "" if position.commit == source.commit else ", which belong to another commit"
        remarks = []
        if self._changes_git_operation:
            if active and active != captured:
                hint = f"to return to that state: {undoing.revert_command(self._step)}"
                remarks.append(f"the {active} in progress in the worktree is ended; {hint}")
            if captured:
                remark = f"the {captured} of the checkpoint is in progress again"
                remarks.append(f"{remark}; to end it: {end_commands}")
        elif self._paths or self._would_move or suffix:
            if captured:
                reason = "the checkpoint was recorded at another commit than HEAD"
                if self._paths:
                    reason = "only some paths are restored"
                elif self._would_move:
                    reason = f"that would move {position.branch}"
                remark = f"the {captured} of the checkpoint is not restored, as {reason}"
                remarks.append(f"{remark}; to open a worktree with the {captured}: {resume}")
            if active and not self._paths:
                remark = f"the {active} in progress continues with the restored files{suffix}"
                remarks.append(f"{remark}; to end it: {end_commands}")
        return remarks

    def _list_remarks(self, plan: RestorePlan) -> list[str]:
        deleted_paths = {change.path for change in plan.changes if change.kind == planning.DELETE}
        reported_paths = self.submodules.paths | self.submodules.moved | deleted_paths
        remarks = list(self._omitted_remarks)
        for change in (change for change in plan.submodules if change.path not in reported_paths):
            has_old_commit = change.new.strip("0")
            state = f"was at {change.new} then" if has_old_commit else "is not in the checkpoint"
            remarks.append(f"the submodule {decode_path(change.path)} is not changed; it {state}")
        if inner_files := [quote_path(path) for path in plan.untouched if path not in self._unheld]:
            file_names = join_first(sorted(inner_files))
            remarks.append(f"files inside of another repository are not restored: {file_names}")
        if plan.unknown:
            file_names = join_first(sorted(map(decode_path, plan.unknown)))
            remarks.append(f"untracked files stay, as the checkpoint captured none: {file_names}")
        files = self._checkpoint.worktree
        paths = {quote_path(change.path) for change in plan.changes}
        if converted_files := paths.intersection(files.converted if files is not None else ()):
            file_names = join_first(sorted(converted_files))
            remarks.append(f"not restored byte for byte, as git converts these files: {file_names}")
        if self._brings_operation and self._rebased is not None:
            remarks.append(operation.hint_on_branch(self._rebased))
        if self._is_foreign and not self._paths:
            remarks.append(operation.FOREIGN)
        remarks += [self._commit_remark] if self._commit_remark is not None else []
        return remarks + self.submodules.remarks


def _require_files_to_restore(repository: Repository, checkpoint: Checkpoint) -> None:
    files, commit = checkpoint.worktree, checkpoint.git_sha[:10]
    if repository.worktree is None:
        hint = f"open a worktree: git ckpt resume {checkpoint.id[: ids.SHORT]}"
        raise WorktreeError("the repository has no worktree to restore files into", hint=hint)
    if files is not None and files.degraded and files.tree is None:
        hint = "see other checkpoints: git ckpt list"
        if commit:
            hint = f"the files of its commit: git restore --source={commit} --staged --worktree ."
        raise WorktreeError(f"checkpoint {checkpoint.id} has no files: {files.degraded}", hint=hint)


def _describe_omitted_paths(
    repository: Repository, checkpoint: Checkpoint, paths: Sequence[bytes]
) -> list[str]:
    top, missing = os.fsencode(repository.worktree or ""), []
    for entry in checkpoint.worktree.omitted if checkpoint.worktree is not None else ():
        path = modules.unquote_path(entry.path).rstrip(b"/")
        is_run_file = checkpoint.run is not None and path.startswith(b"run/")  # not in the worktree
        is_in_git_dir = path.split(b"/")[0] == b".git" or not has_no_dotdot(path)
        if not is_run_file and not is_in_git_dir and is_within(path, paths):
            missing += [] if os.path.lexists(os.path.join(top, path)) else [entry.path]
    if not missing:
        return []
    count_words = "1 path" if len(missing) == 1 else f"{len(missing)} paths"
    reason = f"neither in the checkpoint nor in the worktree: {join_first(missing, _MAX_NAMED)}"
    return [f"{count_words} {reason}; see why: git ckpt show {checkpoint.id[: ids.SHORT]}"]
