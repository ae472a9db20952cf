"""Restore a checkpoint into the current worktree; undo and redo restores.

A restore inspects the worktree, plans the changes, applies them, and compares the result with
the checkpoint. git writes only paths that differ, and refuses files that changed since they were
captured. HEAD never moves.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git import graph
from gitckpt.git.contents import annex, attributes, raw_files, unfiltered
from gitckpt.git.objects import diff
from gitckpt.git.objects.encoding import stays_within
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import first_of, quoted, shell_word
from gitckpt.model.checkpoint import SAFETY, Checkpoint, Omitted
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore import byte_exact, replacement
from gitckpt.store.restore import undo as undoing
from gitckpt.store.restore.plan import (
    CHANGE,
    DELETE,
    STAGE,
    PathChange,
    Plan,
    as_text,
    is_file,
    is_within,
    make_plan,
    missing,
    plan_shape,
    require_paths,
)
from gitckpt.store.restore.submodules import SubmoduleRemoval, SubmoduleRestoreResult, Submodules
from gitckpt.store.snapshot import assurance, capture, comparison, manifest
from gitckpt.store.snapshot.manifest import INTENT, SKIPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gitckpt.git.contents.unfiltered import HeldBack

    Announce = Callable[[Sequence[str]], None]

_ENDS = {
    "merge": "git merge --continue, or git merge --abort",
    "cherry-pick": "git cherry-pick --continue, or --abort",
    "revert": "git revert --continue, or --abort",
    "rebase": "git rebase --continue, or --abort",
    "am": "git am --continue, or --abort",
    "bisect": "git bisect good, bad or reset",
}
_OF_SUBMODULE = "the submodule "
# How many omitted paths a remark names.
_FEW = 3
# Paths that git may refuse, as they lead out of the worktree or into .git.
_UNUSUAL = re.compile(rb"[^ -~]|git|(^|/)\.|[~:\\]|//", re.IGNORECASE)
# How often a restore starts again while HEAD moves.
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Position:
    """The commit, branch and operation in progress of a worktree.

    Attributes:
        commit: full oid of HEAD; "" before the first commit.
        branch: short name; None if HEAD is detached.
        operation: the merge, rebase, … in progress, or None.
    """

    commit: str
    branch: str | None
    operation: str | None

    def __str__(self) -> str:
        commit = f"commit {self.commit[: ids.SHORT]}" if self.commit else "no commit yet"
        return f"{commit} ({self.branch or 'detached'})"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore.

    Attributes:
        checkpoint: id of the restored checkpoint.
        changes: what was or would be done, path by path.
        safety: id of the checkpoint of the previous state; None if nothing was done.
        remarks: further sentences for the user, for example about files that the checkpoint omits.
        head: the position of HEAD, which stays.
        source: where the checkpoint was recorded.
        apart: sentences about the difference between `head` and `source`.
        unfiltered: files left as git stores them as a filter fails; another restore completes them.
        kept: files that stay because no checkpoint can hold their content: the reason by path.
    """

    checkpoint: str
    changes: Sequence[PathChange]
    safety: str | None
    remarks: Sequence[str]
    head: Position
    source: Position
    apart: Sequence[str]
    unfiltered: Sequence[bytes] = ()
    kept: Mapping[bytes, str] = field(default_factory=dict)


def kept_failure(kept: Mapping[bytes, str]) -> WorktreeError:
    """Return the error for files that a restore has left as they were."""
    names = first_of([f"{quoted(path)} ({reason})" for path, reason in sorted(kept.items())])
    count = f"{len(kept)} files stay as they are" if len(kept) > 1 else "1 file stays as it is"
    hint = "make git able to read it (or move it away), then run the command again"
    return WorktreeError(f"{count}, as no checkpoint can hold what is in there: {names}", hint=hint)


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
    """Restore files, index and operation in progress of a checkpoint.

    Args:
        paths: files and directories, relative to the top; none for all, with the operation.
        index: whether the index entries of `paths` are restored; without paths they always are.
        dry_run: whether to return only what would be done.
        announce: receives the `apart` and `remarks` of the result before anything changes.
        trusted: whether a document that a fetch has replaced may be restored.

    Raises:
        WorktreeError: a fetch has replaced the checkpoint; there is no worktree; files are missing;
            an obstacle is in no checkpoint; or the restored files differ from the checkpoint.
        BusyError: another process changes the index or the files.
    """
    if not trusted and store.is_replaced(checkpoint.id):
        hint = f"; if you trust what came: git ckpt restore {checkpoint.id[: ids.SHORT]} --trust"
        raise local_checkpoints.replaced(checkpoint.id, hint)
    return _run(
        lambda: _Restore(store, checkpoint, paths, index=index), dry_run=dry_run, announce=announce
    )[1]


def undo(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest restore, or raise `NotFoundError`."""
    return _step(store, undoing.UNDO, dry_run, announce)


def redo(
    store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None
) -> RestoreResult:
    """Restore the state before the newest undo, or raise `NotFoundError`."""
    return _step(store, undoing.REDO, dry_run, announce)


def _step(store: Checkpoints, kind: str, dry_run: bool, announce: Announce) -> RestoreResult:
    stack = undoing.read(store)
    target, gone = undoing.next_step(store, stack, kind)
    if target is None:
        raise undoing.nothing(stack, kind, gone)
    checkpoint = store.read(target)
    written = undoing.written_by_newest(store, stack, checkpoint)

    def make() -> _Restore:
        return _Restore(store, checkpoint, (), written, step=kind, undone=checkpoint.state)

    done = _run(make, dry_run=dry_run, announce=announce)[1]
    cut_off = ["the step before this one was cut off"] if stack.open is not None else []
    return replace(done, remarks=[*undoing.skipped(gone), *cut_off, *done.remarks])


def _run(
    make: Callable[[], _Restore], *, dry_run: bool, announce: Announce
) -> tuple[_Restore, RestoreResult]:
    # Starts again if HEAD moves before anything has changed; `make` reads HEAD each time.
    for _ in range(_TRIES - 1):
        attempt = make()
        try:
            return attempt, attempt.run(dry_run=dry_run, announce=announce)
        except (BusyError, capture.Moved) as error:
            if attempt.has_begun or type(error) not in (BusyError, capture.Moved):
                raise  # a lock was waited for already
    last = make()
    return last, last.run(dry_run=dry_run, announce=announce)


def _restore_submodule(
    store: Checkpoints, checkpoint: Checkpoint, dry_run: bool
) -> SubmoduleRestoreResult:
    attempt, done = _run(
        lambda: _Restore(store, checkpoint, ()), dry_run=dry_run, announce=lambda _: None
    )
    nested = attempt.submodules
    remarks = [
        text for text in done.remarks if text.removeprefix(_OF_SUBMODULE) not in nested.failures
    ]
    failures = list(nested.failures)
    failures += [kept_failure(done.kept).message] if done.kept else []
    failures += [unfiltered.failure(done.unfiltered, "").message] if done.unfiltered else []
    return SubmoduleRestoreResult(done.changes, remarks, attempt.is_due, failures, nested.advice)


class _Restore:
    """A single restore: inspect, plan, apply, compare.

    Attributes:
        has_begun: whether files may have changed.
        is_due: whether there is anything to do.
    """

    def __init__(
        self,
        store: Checkpoints,
        checkpoint: Checkpoint,
        paths: Sequence[bytes],
        written: Sequence[bytes] = (),
        *,
        step: str = undoing.RESTORE,
        undone: Mapping[str, Any] | None = None,
        index: bool = False,
    ) -> None:
        self._undone = undone or {}
        self._store = store
        self._repository = store.repository
        self._objects = store.objects
        self._paths, self._written = list(paths), written
        self._has_index = index or not paths
        self._step = step
        self._head, self._branch = store.objects.head()
        self._left_out = _left_out(store.repository, checkpoint, self._paths)
        _require_source(store.repository, checkpoint)
        checkpoint, self._stand_in = manifest.with_commit(store.repository, checkpoint, self._head)
        self._checkpoint = checkpoint
        graph.fetch_for(store.repository, checkpoint.tree, checkpoint.git_sha)
        self._wanted = manifest.contents_of(checkpoint, store.repository, store.objects)
        self._limits = replace(store.rules.limits(), timeout=float("inf"))
        wanted = checkpoint if self._limits.submodules else replace(checkpoint, worktree=None)
        self.submodules = Submodules(store, wanted, paths, _restore_submodule)
        self._removal = SubmoduleRemoval(store, self._undone, self.submodules.paths, self._limits)
        self.is_due = self.has_begun = False
        self._unheld: dict[bytes, str] = {}
        self._apart: Collection[bytes] = modules.own_directories(self._repository)
        self._choose_operation()

    def _choose_operation(self) -> None:
        same_head = self._head == self._checkpoint.git_sha and self._stand_in is None
        wanted = {} if self._stand_in is not None else self._wanted.operation
        self._is_foreign = bool(wanted) and not local_checkpoints.is_captured_here(
            self._repository, self._checkpoint.id
        )
        wanted = {} if self._is_foreign else wanted
        self._would_move = same_head and operation.would_move(
            wanted, self._branch, self._checkpoint.branch
        )
        self._rebased: str | None = None
        if not operation.moves_nothing(self._repository, wanted):
            self._rebased = operation.rebased_branch(wanted)
            wanted = operation.detached(self._repository, wanted)
        self._wanted.operation = wanted
        self._brings_operation = same_head and not self._paths and not self._would_move

    def run(self, *, dry_run: bool, announce: Announce) -> RestoreResult:
        with self._store.private_index() as index:
            self._inspect(index)
            plan = self._plan(index)
            self._head_remarks = self._compare_heads()
            self.is_due = bool(
                self.submodules.plan() or plan.changes or plan.flags or self._changes_operation
            )
            if dry_run:
                self._require_objects(plan)
            files = {change.path for change in plan.files}
            pending = replacement.pending(self._repository, self._wanted.files, files, self._paths)
            if dry_run or not self.is_due:
                return self._complete(plan, pending, dry_run=dry_run)
            replacement.list_files(index, self._captured)
            expected = self._prepare(index, plan)
            self._require_still(index)
            if remarks := [*self._head_remarks, *self._remarks(plan)]:
                announce(remarks)
            safety = self._record_safety(plan)
            with undoing.offered(self._step):
                held = self._apply(index, plan, expected)
        held += replacement.complete(self._repository, pending)
        with undoing.offered(self._step):
            self._compare(plan, expected)
        self.submodules.apply()
        self._removal.apply(safety)
        undoing.finish(self._store, self._step, self._checkpoint.id)
        self.submodules.require_all()
        return self._result(plan, safety.id, held)

    # Inspect: capture the worktree, as it is and as a snapshot would hold it.

    def _inspect(self, index: PrivateIndex, also: Sequence[bytes] = ()) -> None:
        captured = capture.capture_in(
            index,
            self._objects,
            self._head,
            self._limits,
            [*self._written, *also],
            keeps=self._is_meant,
        )
        self._captured = captured
        self._unheld = {path: why for path, why in captured.unheld.items() if self._is_meant(path)}
        self._apart = captured.apart
        wanted = self._wanted
        wanted.directories = [path for path in wanted.directories if not self._stays(path)]
        wanted.modes = {path: mode for path, mode in wanted.modes.items() if not self._stays(path)}
        found = manifest.read(self._repository, self._objects, captured.worktree.tree, self._head)
        # A capture takes skipped files that do not exist from the index. Without their entries, git
        # writes what is missing.
        absent = missing(self._repository, found, wanted, self._checkpoint.git_sha, self._paths)
        found.files = (
            replacement.take_out(index, absent, wanted.files) if absent else captured.files
        )
        # A capture omits the settings if nothing converts, but restored attributes may convert.
        configured = self._limits.conversions(self._repository)
        found.conversion = attributes.settings(self._repository, configured)
        self._found = found

    def _is_meant(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _stays(self, path: bytes) -> bool:
        return path in self._unheld or modules.lies_in(path, self._apart)

    # Plan.

    def _plan(self, index: PrivateIndex) -> Plan:
        plan = self._plan_files(require=True)
        touched = {change.path for change in plan.changes if change.kind != STAGE}
        left_out = [*plan.in_the_way, *sorted(touched.intersection(self._captured.left))]
        if left_out:  # the settings omit them, but the safety checkpoint must hold them
            index.copy_from(os.path.join(self._repository.git_dir, "index"))
            self._inspect(index, left_out)
            plan = self._plan_files()
        plan.shape = plan_shape(
            self._repository,
            self._wanted,
            plan,
            self._paths,
            undone=self._undone,
            captured=self._found.directories,
        )
        omitted = self._captured.worktree.omitted
        plan.obstacles += replacement.in_place_of_files(
            self._repository, omitted, self._wanted.files, self._paths
        )
        plan.require_no_obstacle()
        plan.changes += [*plan.shape.changes, *self._removal.plan()]
        plan.changes.sort(key=lambda change: change.path)
        return plan

    def _plan_files(self, *, require: bool = False) -> Plan:
        found, wanted = (self._found, self._head), (self._wanted, self._checkpoint.git_sha)
        if require:
            require_paths(self._repository, (found, wanted), self._paths, self._checkpoint.id)
        return make_plan(
            self._repository,
            found,
            wanted,
            self._paths,
            self._written,
            index=self._has_index,
            stays=self._stays,
        )

    @property
    def _changes_operation(self) -> bool:
        return self._brings_operation and self._found.operation != self._wanted.operation

    def _prepare(self, index: PrivateIndex, plan: Plan) -> str:
        # Returns the tree to restore, after git has accepted every path and all objects exist.
        expected = self._wanted.files
        is_unusual = any(_UNUSUAL.search(change.path) for change in plan.files)
        if not plan.is_whole or plan.is_contradictory or is_unusual:
            refused = f"git refuses the files of checkpoint {self._checkpoint.id}"
            try:
                with PrivateIndex(self._repository) as scratch:
                    scratch.copy_from(index.path)
                    scratch.put([*(change.line for change in plan.files), *plan.rules_gone])
                    expected = scratch.write_tree()
            except GitError as error:
                raise WorktreeError(f"{refused}: {error.message}") from None
            planned = {change.path for change in plan.files} - set(plan.absent)
            left = diff.differences(self._repository, expected, self._wanted.files, self._paths)
            names = [str(change) for change in left if change.path in planned]
            if names:  # a tree can hold what no index can
                raise WorktreeError(f"{refused}: {first_of(names)}")
        self._require_objects(plan)
        if graph.promisor(self._repository):
            graph.fetch_missing(self._repository, expected, self._captured.files)
        return expected

    def _require_objects(self, plan: Plan) -> None:
        if self._brings_operation:
            operation.require_objects(self._repository, self._wanted.operation)
        if graph.promisor(self._repository):
            return  # git may fetch the blobs of files
        gone = set(byte_exact.missing(self._repository, plan.exactness))
        for change in plan.files:
            if change.new.strip("0") and self._repository.cat_file.info(change.new) is None:
                gone.add((change.path, change.new))
        if gone:
            lacking = first_of([f"{quoted(path)} (blob {oid})" for path, oid in sorted(gone)])
            raise WorktreeError(
                f"checkpoint {self._checkpoint.id} lacks what was in {lacking}",
                hint=manifest.VERIFY,
            )

    def _require_still(self, index: PrivateIndex) -> None:
        if self._objects.head()[0] != self._head:
            raise capture.moved()
        if not self._paths:
            index.require_latest()

    def _record_safety(self, plan: Plan) -> Checkpoint:
        state = {
            "worktree": local_checkpoints.name_of(self._repository),
            "made": local_checkpoints.made_at(self._repository),
            "before": self._checkpoint.id,
            "paths": [as_text(path) for path in self._paths],
            **plan.shape.state,
            **self.submodules.state,
        }
        message = f"before the files of {self._checkpoint.id[: ids.SHORT]} came back"
        files = self._captured.worktree
        if self._limits.submodules:  # also those to restore: the current index may lack them
            paths = {*self._captured.submodules, *self.submodules.paths}
            files = submodules.capture(self._store, files, paths, self._limits)
        safety = self._store.record(
            ref_names.SAFETY_COMPLETE, state, worktree=files, trigger=SAFETY, message=message
        )
        failure = assurance.failure(
            self._repository, self._store.objects, safety, self._store.announce
        )
        if failure is None and safety.git_sha != self._head:
            failure = capture.moved()  # the staged content would be attributed to another commit
        if failure is not None:
            self._store.remove([safety.id])
            raise failure
        self.has_begun = True
        undoing.begin(self._store, self._step, safety)
        return safety

    # Apply.

    def _apply(self, index: PrivateIndex, plan: Plan, expected: str) -> list[bytes]:
        # Returns the files that stay unfiltered because a filter fails.
        wanted = {change.path for change in plan.files}
        hidden = wanted.intersection(self._found.flags.get(SKIPPED, ()))
        configured = self._limits.conversions(self._repository)
        blobs = byte_exact.prepare(index, plan.exactness, configured, expected)
        if not self._paths:
            index.require_latest()
        try:
            if hidden:  # git writes no file whose entry is marked skip-worktree
                listed = hidden.intersection(path for path, *_ in index.entries())
                index.update("--no-skip-worktree", sorted(listed))
            as_is = self._captured.as_is
            replacement.take_away(
                index, {path: oid for path, oid in as_is.items() if path in wanted}
            )
            held = replacement.replace_files(index, plan.files, self._found.files, expected)
            if plan.shape.apply(self._repository):
                index.refresh()  # their ctime has changed
        except GitError as error:
            if replacement.is_out_of_date(error):
                raise byte_exact.changed(error.message) from None
            message = f"not every file could be written: {error.message}"
            raise WorktreeError(message, hint=self._back) from None
        byte_exact.bring_back(index, plan.exactness, configured, blobs)
        if annex.is_used(self._repository):
            files = manifest.regular_files(self._repository, expected)
            written = plan.written
            annex.populate(index, {path: oid for path, oid in files.items() if path in written})
        if held:
            unfiltered.forget(self._repository, plan.exactness.raw)
            held = [path for path in held if path not in plan.exactness.raw]
        self._write_index(index, plan, expected)
        if self._changes_operation:
            operation.clear(self._repository)
            operation.bring_back(self._repository, self._wanted.operation)
        return held

    def _write_index(self, index: PrivateIndex, plan: Plan, expected: str) -> None:
        if not self._paths:
            # In a sparse checkout, every entry without a file must stay marked skip-worktree.
            wanted = self._wanted
            if wanted.sparse is not None or self._found.sparse is not None:
                skipped = sorted(plan.without_file(self._repository))
                wanted = replace(wanted, flags={**wanted.flags, SKIPPED: skipped})
            manifest.turn_into(index, wanted, self._checkpoint.git_sha, expected)
            index.install()
            return
        # Even if no entry is restored, the stat data of converted files must be right.
        is_converted = not self._captured.is_as_stored or plan.exactness.touched is not None
        if not (self._has_index or is_converted):
            return
        with PrivateIndex(self._repository) as own:
            own.put(plan.index_lines)
            raw_files.refresh(own, plan.written)
            own.refresh()
            for flag, (gets, loses) in plan.flags.items():
                if flag == INTENT:
                    manifest.add_in_intent(own, self._wanted, gets)
                else:
                    manifest.change_flag(own, flag, gets, loses)
            own.install()

    # Compare.

    def _compare(self, plan: Plan, expected: str) -> None:
        gone = {change.path for change in plan.files if change.status == "D"} - set(plan.absent)
        for _ in range(_TRIES - 1):
            with contextlib.suppress(capture.Moved):
                return self._require_none(self._differences(plan, expected, gone))
        return self._require_none(self._differences(plan, expected, gone))

    def _differences(self, plan: Plan, expected: str, gone: Collection[bytes]) -> list[str]:
        if not self._paths:
            return comparison.compare(
                self._repository,
                self._objects,
                self._wanted,
                self._checkpoint.git_sha,
                self._limits,
                with_operation=self._brings_operation,
                gone=gone,
                stays=self._stays,
            )
        words = ("diff-index", "--cached", "--no-renames", "--diff-filter=D", "--name-only", "-z")
        with PrivateIndex(self._repository) as index:
            untracked = index.git(*words, expected).split(b"\0")[:-1]  # ignored ones, too
            head = self._objects.head()[0]
            again = capture.capture_in(
                index, self._objects, head, self._limits, untracked, keeps=self._is_meant
            )
        away = plan.without_file(self._repository)
        wrong = [
            change
            for change in diff.differences(self._repository, expected, again.files, self._paths)
            if change.path not in away and not self._stays(change.path)
        ]
        if not self._has_index:  # a skipped entry counts as a file where there is none
            top = os.fsencode(self._repository.worktree or "")
            wrong = [entry for entry in wrong if entry.status != "A" or is_file(top, entry.path)]
        shape = plan.shape
        differing = comparison.unexpected(self._repository, wrong, gone, plan.exactness.raw)
        return differing + comparison.unshaped(self._repository, shape.directories, shape.modes)

    def _require_none(self, differing: Sequence[str]) -> None:
        if differing:
            raise WorktreeError(
                f"what came back is not what checkpoint {self._checkpoint.id} captured: "
                f"{first_of(differing)}",
                hint=self._back,
            )

    @property
    def _back(self) -> str:
        return f"go back to what was there before: {undoing.way_back(self._step)}"

    # Result and remarks.

    def _complete(self, plan: Plan, pending: HeldBack, *, dry_run: bool) -> RestoreResult:
        # Also completes unfiltered files where a restore has nothing else to do.
        left: Sequence[bytes] = []
        if not dry_run:
            if self._step != undoing.RESTORE:
                undoing.finish(self._store, self._step, self._checkpoint.id)
            left = replacement.complete(self._repository, pending)
        plan.changes += [PathChange(CHANGE, path) for path in pending if path not in left]
        if not dry_run:
            self.submodules.require_all(is_changed=False)
        if not self.is_due:
            self._head_remarks = []
        return self._result(plan, None, left)

    def _result(self, plan: Plan, safety: str | None, held: Sequence[bytes]) -> RestoreResult:
        remarks = [*self._remarks(plan), *self._removal.remarks]
        remarks += [_OF_SUBMODULE + failure for failure in self.submodules.failures]
        return RestoreResult(
            self._checkpoint.id,
            sorted([*plan.changes, *self.submodules.changes], key=lambda change: change.path),
            safety,
            remarks,
            self._here,
            self._source,
            self._head_remarks,
            tuple(sorted(held)),
            self._unheld,
        )

    @property
    def _here(self) -> Position:
        return Position(self._head, self._branch, self._captured.worktree.operation)

    @property
    def _source(self) -> Position:
        files = self._checkpoint.worktree
        under_way = files.operation if files else None
        return Position(self._checkpoint.git_sha, self._checkpoint.branch, under_way)

    def _compare_heads(self) -> list[str]:
        """Return sentences on how HEAD differs from where the checkpoint was recorded."""
        here, source = self._here, self._source
        no_run = "--no-run " if self._checkpoint.run else ""
        elsewhere = f"git ckpt resume {no_run}{self._checkpoint.id[: ids.SHORT]}"
        of_operation = self._compare_operations(here, source, elsewhere)
        stays = f"HEAD stays at {here}"
        if here.commit != source.commit:
            files = "these files" if self._paths else "the files"
            shown = f"{files} of {source} show as changes there"
            return [f"{stays}; {shown}; to work at that commit: {elsewhere}", *of_operation]
        if here.branch == source.branch:
            return of_operation
        origin, advice = "while HEAD was detached", ""
        if source.branch is not None:
            end = "-- " if source.branch.startswith("-") else ""  # a document may say anything
            origin = f"on {source.branch}"
            advice = f"; to be there: git switch {end}{shell_word(source.branch)}"
        made = f"the checkpoint was made {origin}, at the same commit{advice}"
        return [f"{stays}; {made}", *of_operation]

    def _compare_operations(self, here: Position, source: Position, elsewhere: str) -> list[str]:
        current, captured = here.operation, None if self._is_foreign else source.operation
        is_same_commit = here.commit == source.commit
        remarks = []
        if self._changes_operation:
            if current and current != captured:
                back = undoing.way_back(self._step)
                remarks.append(
                    f"the {current} in progress here is put away; to have it again: {back}"
                )
            if captured:
                end = _ENDS.get(captured, "see git status")
                remarks.append(
                    f"the {captured} of the checkpoint is in progress again; to end it: {end}"
                )
            return remarks
        if not self._paths and not self._would_move and is_same_commit:
            return []
        if captured:
            why = "it belongs to another commit than HEAD"
            if self._paths:
                why = "only some paths come back"
            elif self._would_move:
                why = f"it would move {here.branch}"
            remarks.append(
                f"the {captured} of the checkpoint is left out, as {why}; "
                f"a worktree with it: {elsewhere}"
            )
        if current and not self._paths:
            files = "these files" + ("" if is_same_commit else ", which are of another commit")
            end = _ENDS.get(current, "see git status")
            remarks.append(f"the {current} in progress here goes on with {files}; to end it: {end}")
        return remarks

    def _remarks(self, plan: Plan) -> list[str]:
        covered = self.submodules.paths | self.submodules.moved
        covered |= {change.path for change in plan.changes if change.kind == DELETE}
        remarks = list(self._left_out)
        for change in plan.submodules:
            if change.path not in covered:
                then = (
                    f"it was at {change.new}"
                    if change.new.strip("0")
                    else "the checkpoint has none"
                )
                remarks.append(f"the submodule {_text(change.path)} stays as it is; {then}")
        inside = sorted(quoted(path) for path in plan.untouched if path not in self._unheld)
        if inside:
            remarks.append(
                f"left out, as they lie in the directory of a repository: {first_of(inside)}"
            )
        if plan.unknown:
            names = first_of(sorted(map(_text, plan.unknown)))
            remarks.append(f"untracked files stay, as the checkpoint does not list such: {names}")
        files = self._checkpoint.worktree
        written = {quoted(change.path) for change in plan.changes}
        converted = sorted(written.intersection(files.converted if files is not None else ()))
        if converted:
            names = first_of(converted)
            remarks.append(f"comes back as git writes it, not byte for byte: {names}")
        if self._brings_operation and self._rebased is not None:
            remarks.append(operation.farewell(self._rebased))
        if self._is_foreign and not self._paths:
            remarks.append(operation.FOREIGN)
        if self._stand_in is not None:
            remarks.append(self._stand_in)
        return remarks + self.submodules.remarks


def _require_source(repository: Repository, checkpoint: Checkpoint) -> None:
    """Raise `WorktreeError` without a worktree, or without files to restore."""
    files = checkpoint.worktree
    if repository.worktree is None:
        raise WorktreeError(
            "there is no worktree here to put files into",
            hint=f"open one: git ckpt resume {checkpoint.id[: ids.SHORT]}",
        )
    if files is not None and files.degraded and files.tree is None:
        commit = checkpoint.git_sha[:10]
        way = f"git restore --source={commit} --staged --worktree ."
        raise WorktreeError(
            f"checkpoint {checkpoint.id} has no files: {files.degraded}",
            hint=f"the files of its commit: {way}"
            if commit
            else "see other checkpoints: git ckpt list",
        )


def _left_out(repository: Repository, checkpoint: Checkpoint, paths: Sequence[bytes]) -> list[str]:
    """Return a remark on paths that the checkpoint omits and that are missing."""
    top = os.fsencode(repository.worktree or "")
    is_of_run = checkpoint.run is not None

    def is_missing(entry: Omitted) -> bool:
        path = modules.unquoted(entry.path).rstrip(b"/")
        is_beside = is_of_run and path.startswith(b"run/")  # kept beside the worktree
        if is_beside or path.split(b"/")[0] == b".git" or not stays_within(path):
            return False
        return is_within(path, paths) and not os.path.lexists(os.path.join(top, path))

    omitted = checkpoint.worktree.omitted if checkpoint.worktree is not None else ()
    names = [entry.path for entry in omitted if is_missing(entry)]
    if not names:
        return []
    count = "1 path" if len(names) == 1 else f"{len(names)} paths"
    see = f"see why: git ckpt show {checkpoint.id[: ids.SHORT]}"
    listed = first_of(names, _FEW)
    return [f"{count} left out of the checkpoint and missing here: {listed}; {see}"]


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")
