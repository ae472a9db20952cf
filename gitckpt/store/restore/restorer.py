"""Restore a checkpoint into the current worktree; undo and redo restores.

git writes only paths that differ, and refuses where a file has changed since it was captured.
HEAD never moves.
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
from gitckpt.store import roster, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.restore import exactness, replacement
from gitckpt.store.restore import plan as shape_of
from gitckpt.store.restore import undo as undoing
from gitckpt.store.restore.plan import (
    CHANGE,
    DELETE,
    STAGE,
    PathChange,
    Plan,
    Shape,
    as_text,
    is_file,
    is_within,
    make_plan,
    missing,
    require_paths,
)
from gitckpt.store.restore.submodules import Departures, Returned, Submodules
from gitckpt.store.snapshot import assurance, capture, comparison, manifest
from gitckpt.store.snapshot.capture import Captured
from gitckpt.store.snapshot.manifest import INTENT, SKIPPED, Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gitckpt.git.contents.unfiltered import HeldBack

    Announce = Callable[[Sequence[str]], None]


# Position of HEAD and of the checkpoint.


_ENDS = {
    "merge": "git merge --continue, or git merge --abort",
    "cherry-pick": "git cherry-pick --continue, or --abort",
    "revert": "git revert --continue, or --abort",
    "rebase": "git rebase --continue, or --abort",
    "am": "git am --continue, or --abort",
    "bisect": "git bisect good, bad or reset",
}


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


def of(checkpoint: Checkpoint) -> Position:
    """Return the position at which a checkpoint was recorded."""
    files = checkpoint.worktree
    return Position(checkpoint.git_sha, checkpoint.branch, files.operation if files else None)


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between HEAD and the position of the restored checkpoint.

    Attributes:
        head: the position of HEAD, which stays.
        source: where the checkpoint was recorded.
        changes_operation: whether the operation in progress is replaced by that of the checkpoint.
        is_partial: whether only some paths are restored.
        would_move: whether the checkpoint's operation is left out because it would move the branch.
        is_foreign: whether it was captured in another repository; its operation is left out.
        elsewhere: the command that opens a worktree at the checkpoint's commit.
        back: the command that undoes the restore.
    """

    head: Position
    source: Position
    changes_operation: bool
    is_partial: bool
    would_move: bool
    is_foreign: bool
    elsewhere: str
    back: str

    def sentences(self) -> Sequence[str]:
        """Return the sentences to show before the restore; none without a gap."""
        return [*self._of_commit(), *self._of_operation()]

    def _of_commit(self) -> list[str]:
        head, source = self.head, self.source
        if head.commit != source.commit:
            files = f"{'these files' if self.is_partial else 'the files'} of {source}"
            said = f"HEAD stays at {head}; {files} show as changes there"
            return [f"{said}; to work at that commit: {self.elsewhere}"]
        if head.branch == source.branch:
            return []
        if source.branch is None:
            origin, advice = "while HEAD was detached", ""
        else:
            origin = f"on {source.branch}"
            end = "-- " if source.branch.startswith("-") else ""  # a document may say anything
            advice = f"; to be there: git switch {end}{shell_word(source.branch)}"
        return [f"HEAD stays at {head}; the checkpoint was made {origin}, at the same commit{advice}"]

    def _of_operation(self) -> list[str]:
        here, there = self.head.operation, None if self.is_foreign else self.source.operation
        said = []
        if self.changes_operation:
            if here and here != there:
                said.append(f"the {here} in progress here is put away; to have it again: {self.back}")
            if there:
                said.append(f"the {there} of the checkpoint is in progress again; to end it: {_end(there)}")
        elif self.is_partial or self.would_move or self.head.commit != self.source.commit:
            if there:
                why = f"it would move {self.head.branch}" if self.would_move else "it belongs to another commit than HEAD"
                why = "only some paths come back" if self.is_partial else why
                said.append(f"the {there} of the checkpoint is left out, as {why}; a worktree with it: {self.elsewhere}")
            if here and not self.is_partial:
                files = "these files" if self.head.commit == self.source.commit else "these files, which are of another commit"
                said.append(f"the {here} in progress here goes on with {files}; to end it: {_end(here)}")
        return said


def _end(operation: str) -> str:
    return _ENDS.get(operation, "see git status")


def require_source(store: Checkpoints, checkpoint: Checkpoint) -> None:
    """Raise `WorktreeError` without a worktree, or without files to restore."""
    files = checkpoint.worktree
    short = checkpoint.id[: ids.SHORT]
    if store.repository.worktree is None:
        raise WorktreeError("there is no worktree here to put files into", hint=f"open one: git ckpt resume {short}")
    if files is not None and files.degraded and files.tree is None:
        raise WorktreeError(
            f"checkpoint {checkpoint.id} has no files: {files.degraded}",
            hint=f"the files of its commit: git restore --source={checkpoint.git_sha[:10]} --staged --worktree ."
            if checkpoint.git_sha
            else "see what else there is: git ckpt list",
        )


# Result and remarks.


# How many omitted paths a remark names.
_FEW = 3


@dataclass(frozen=True, slots=True)
class Restored:
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


def remarks(
    checkpoint: Checkpoint,
    plan: Plan,
    *,
    spoken_for: Collection[bytes],
    rebased: str | None,
    is_foreign: bool,
    in_repositories: Collection[bytes] = (),
) -> list[str]:
    """Return the remarks on a restore, a sentence each.

    Args:
        plan: what will be or was done.
        spoken_for: submodules that other remarks cover.
        rebased: the branch of a rebase that comes back detached from it; None for none.
        is_foreign: whether an operation captured in another repository is left out.
        in_repositories: paths left out because they lie in the directory of a repository.
    """
    gone = {change.path for change in plan.changes if change.kind == DELETE}
    stay = [one for one in plan.submodules if one.path not in spoken_for and one.path not in gone]
    said = []
    for one in stay:
        then = f"it was at {one.new}" if one.new.strip("0") else "it was none"
        said.append(f"the submodule {one.path.decode('utf-8', 'replace')} stays as it is; {then}")
    if in_repositories:
        names = first_of(sorted(quoted(path) for path in in_repositories))
        said.append(f"left out, as they lie in the directory of a repository: {names}")
    if plan.unknown:
        names = first_of(sorted(path.decode("utf-8", "replace") for path in plan.unknown))
        said.append(f"untracked, and nobody looked for such files when the checkpoint was made, so they stay: {names}")
    files = checkpoint.worktree
    converted = {quoted(change.path) for change in plan.changes}.intersection(files.converted if files is not None else ())
    said += [f"comes back as git writes it, not byte for byte: {first_of(sorted(converted))}"] if converted else []
    said += [operation.farewell(rebased)] if rebased is not None else []
    said += [operation.FOREIGN] if is_foreign else []
    return said


def left_out(repository: Repository, checkpoint: Checkpoint, paths: Sequence[bytes]) -> list[str]:
    """Return a sentence on paths that the checkpoint omits and that are missing.

    Args:
        paths: files and directories to which the restore is restricted; none for all.
    """
    files = checkpoint.worktree
    omitted = files.omitted if files is not None else ()
    missing = [entry.path for entry in omitted if _is_missing(repository, checkpoint, entry, paths)]
    if not missing:
        return []
    short = checkpoint.id[: ids.SHORT]
    count = "1 path" if len(missing) == 1 else f"{len(missing)} paths"
    names = first_of(missing, _FEW)
    return [f"{count} left out of the checkpoint and missing here: {names}; see why: git ckpt show {short}"]


def _is_missing(
    repository: Repository,
    checkpoint: Checkpoint,
    entry: Omitted,
    paths: Sequence[bytes],
) -> bool:
    path = modules.unquoted(entry.path).rstrip(b"/")
    is_beside = checkpoint.run is not None and path.startswith(b"run/")  # a file of the run
    if is_beside or path.split(b"/")[0] == b".git" or not stays_within(path):
        return False
    whole = os.path.join(os.fsencode(repository.worktree or ""), path)
    return is_within(path, paths) and not os.path.lexists(whole)


# Restore, undo and redo.


_OF_SUBMODULE = "the submodule "
# Paths that git might refuse, as they lead out of the worktree or into .git: a scratch index tries them.
_UNUSUAL = re.compile(rb"[^ -~]|git|(^|/)\.|[~:\\]|//", re.IGNORECASE)
# How often a restore starts again while HEAD moves.
_TRIES = 10


def restore(
    store: Checkpoints,
    checkpoint: Checkpoint,
    paths: Sequence[bytes] = (),
    *,
    index: bool = False,
    dry_run: bool = False,
    announce: Announce = lambda _: None,
    trusted: bool = False,
) -> Restored:
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
        raise roster.replaced(checkpoint.id, f"; if you trust what came: git ckpt restore {checkpoint.id[: ids.SHORT]} --trust")

    def make() -> _Restore:
        return _Restore(store, checkpoint, paths, index=index)

    return _run(make, dry_run=dry_run, announce=announce)[1]


def undo(store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None) -> Restored:
    """Restore the state before the newest restore that is not undone.

    Arguments and errors are those of `restore`.

    Raises:
        NotFoundError: there is no such restore.
    """
    return _take(store, undoing.UNDO, dry_run, announce)


def redo(store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None) -> Restored:
    """Restore the state before the newest undo that no restore has followed.

    Arguments and errors are those of `restore`.

    Raises:
        NotFoundError: there is no such undo.
    """
    return _take(store, undoing.REDO, dry_run, announce)


def _take(store: Checkpoints, step: str, dry_run: bool, announce: Announce) -> Restored:
    stack = undoing.read(store)
    target, gone = undoing.next_step(store, stack, step)
    if target is None:
        raise undoing.nothing(stack, step, gone)
    checkpoint = store.read(target)
    written = undoing.brought(store, stack, checkpoint)

    def make() -> _Restore:
        return _Restore(store, checkpoint, (), written, step=step, undone=checkpoint.state)

    done = _run(make, dry_run=dry_run, announce=announce)[1]
    cut_off = ["the step before this one was cut off"] if stack.is_open else []
    return replace(done, remarks=[*undoing.skipped(gone), *cut_off, *done.remarks])


def _run(make: Callable[[], _Restore], *, dry_run: bool, announce: Announce) -> tuple[_Restore, Restored]:
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


class _Restore:
    """A single restore, from plan to comparison.

    Attributes:
        has_begun: whether files may have changed.
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
        self._left_out = left_out(store.repository, checkpoint, self._paths)
        self._step = step
        self._head, self._branch = store.objects.head()
        require_source(store, checkpoint)
        checkpoint, self._stand_in = manifest.with_commit(store.repository, checkpoint, self._head)
        self._checkpoint = checkpoint
        graph.fetch_for(store.repository, checkpoint.tree, checkpoint.git_sha)
        self._wanted = manifest.contents_of(checkpoint, store.repository, store.objects)
        if self._stand_in is not None:
            self._wanted.operation = {}
        self._limits = replace(store.rules.limits(), timeout=float("inf"))
        self._same_head = self._head == checkpoint.git_sha and self._stand_in is None
        self._rebased: str | None = None
        self.submodules = Submodules(store, checkpoint if self._limits.submodules else replace(checkpoint, worktree=None), paths, _inside)
        self._departures = Departures(store, self._undone, self.submodules.paths, self._limits)
        self.is_due = self.has_begun = self._is_converted = False
        self._unheld: dict[bytes, str] = {}
        self._apart: Collection[bytes] = modules.own_directories(self._repository)
        self._is_foreign = bool(self._wanted.operation) and not roster.is_captured_here(self._repository, checkpoint.id)
        if self._is_foreign:
            self._wanted.operation = {}
        self._would_move = self._same_head and operation.would_move(self._wanted.operation, self._branch, checkpoint.branch)
        if not operation.moves_nothing(self._repository, self._wanted.operation):
            self._rebased = operation.rebased_branch(self._wanted.operation)
            self._wanted.operation = operation.detached(self._repository, self._wanted.operation)

    def run(self, *, dry_run: bool, announce: Announce) -> Restored:
        with self._store.private_index() as index:
            captured, found = self._look(index, self._written)
            sides = (found, self._head), (self._wanted, self._checkpoint.git_sha)
            require_paths(self._repository, sides, self._paths, self._checkpoint.id)
            plan = self._plan(found)
            touched = {change.path for change in plan.changes if change.kind != STAGE}
            left_out = [*plan.in_the_way, *sorted(touched.intersection(captured.left))]
            if left_out:  # the settings omit them, but the safety checkpoint must hold them
                index.copy_from(os.path.join(self._repository.git_dir, "index"))
                captured, found = self._look(index, [*self._written, *left_out])
                plan = self._plan(found)
            shape = shape_of.plan(self._repository, self._wanted, plan, self._paths, undone=self._undone, captured=found.directories)
            omitted = captured.worktree.omitted
            plan.obstacles += replacement.in_place_of_files(self._repository, omitted, self._wanted.files, self._paths)
            plan.require_no_obstacle()
            plan.changes = sorted([*plan.changes, *shape.changes], key=lambda change: change.path)
            operations = self._brings_operation and found.operation != self._wanted.operation
            gap = self._gap(captured.worktree.operation, changes_operation=operations)
            plan.changes = sorted([*plan.changes, *self._departures.look()], key=lambda change: change.path)
            self.is_due = bool(self.submodules.look() or plan.changes or plan.flags or operations)
            if dry_run:
                self._require_objects(plan)
            pending = replacement.pending(self._repository, self._wanted.files, {one.path for one in plan.files}, self._paths)
            if dry_run or not self.is_due:
                return self._unchanged(plan, gap, pending, dry_run=dry_run)
            replacement.list_files(index, captured)
            expected = self._prepare(index, plan, captured.files)
            self._require_still(index)
            if coming := [*gap.sentences(), *self._remarks(plan)]:
                announce(coming)
            safety = self._record_safety(captured, {**shape.state, **self.submodules.state})
            with undoing.offered(self._step):
                held = self._write(index, plan, (captured, found), expected, shape)
        held += replacement.complete(self._repository, pending)
        with undoing.offered(self._step):
            self._verify(plan, expected, shape)
        self.submodules.bring_back()
        self._departures.take(safety)
        undoing.finish(self._store, self._step, self._checkpoint.id)
        self.submodules.require_all()
        return self._restored(plan, safety.id, gap, gap.sentences(), held)

    def _unchanged(self, plan: Plan, gap: Gap, pending: HeldBack, *, dry_run: bool) -> Restored:
        # Also completes unfiltered files where a restore has nothing else to do.
        left: Sequence[bytes] = []
        if not dry_run:
            if self._step != undoing.RESTORE:
                undoing.finish(self._store, self._step, self._checkpoint.id)
            left = replacement.complete(self._repository, pending)
        apart = gap.sentences() if self.is_due else []
        completed = (PathChange(CHANGE, path) for path in pending if path not in left)
        plan.changes = sorted([*plan.changes, *completed], key=lambda change: change.path)
        if not dry_run:
            self.submodules.require_all(is_changed=False)
        return self._restored(plan, None, gap, apart, left)

    def _restored(self, plan: Plan, safety: str | None, gap: Gap, apart: Sequence[str], held: Sequence[bytes]) -> Restored:
        changes = sorted([*plan.changes, *self.submodules.changes], key=lambda change: change.path)
        said = [*self._remarks(plan), *self._departures.remarks]
        said += [_OF_SUBMODULE + failure for failure in self.submodules.failures]
        made = Restored(self._checkpoint.id, changes, safety, said, gap.head, gap.source, apart, tuple(sorted(held)))
        return replace(made, kept=self._unheld)

    def _remarks(self, plan: Plan) -> list[str]:
        said = remarks(
            self._checkpoint,
            plan,
            spoken_for=self.submodules.paths | self.submodules.moved,
            rebased=self._rebased if self._brings_operation else None,
            is_foreign=self._is_foreign and not self._paths,
            in_repositories=[path for path in plan.untouched if path not in self._unheld],
        )
        said += [self._stand_in] if self._stand_in is not None else []
        return [*self._left_out, *said, *self.submodules.remarks]

    def _gap(self, under_way: str | None, *, changes_operation: bool) -> Gap:
        no_run = "--no-run " if self._checkpoint.run else ""
        return Gap(
            head=Position(self._head, self._branch, under_way),
            source=of(self._checkpoint),
            changes_operation=changes_operation,
            is_partial=bool(self._paths),
            would_move=self._would_move,
            is_foreign=self._is_foreign,
            elsewhere=f"git ckpt resume {no_run}{self._checkpoint.id[: ids.SHORT]}",
            back=undoing.way_back(self._step),
        )

    def _look(self, index: PrivateIndex, also: Sequence[bytes]) -> tuple[Captured, Contents]:
        captured = self._capture(index, also)
        self._is_converted = not captured.is_as_stored
        self._unheld = {path: reason for path, reason in captured.unheld.items() if self._is_meant(path)}
        self._apart = captured.apart
        directories = [path for path in self._wanted.directories if not self._stays(path)]
        modes = {path: mode for path, mode in self._wanted.modes.items() if not self._stays(path)}
        self._wanted = replace(self._wanted, directories=directories, modes=modes)
        found = manifest.read(self._repository, self._objects, captured.worktree.tree, self._head)
        found.files = self._files_there(index, captured, found)
        configured = self._limits.conversions(self._repository)
        # A capture omits the settings if nothing converts, but restored attributes may convert.
        found.conversion = attributes.settings(self._repository, configured)
        return captured, found

    def _files_there(self, index: PrivateIndex, captured: Captured, found: Contents) -> str:
        # A capture takes skipped files that do not exist from the index. Without their entries, git
        # writes what is missing.
        absent = missing(self._repository, found, self._wanted, self._checkpoint.git_sha, self._paths)
        return replacement.take_out(index, absent, self._wanted.files) if absent else captured.files

    @property
    def _brings_operation(self) -> bool:
        return self._same_head and not self._paths and not self._would_move

    def _capture(self, index: PrivateIndex, also: Sequence[bytes]) -> Captured:
        return capture.capture_in(index, self._objects, self._head, self._limits, also, keeps=self._is_meant)

    def _is_meant(self, path: bytes) -> bool:
        return is_within(path, self._paths)

    def _plan(self, found: Contents) -> Plan:
        sides = (found, self._head), (self._wanted, self._checkpoint.git_sha)
        return make_plan(self._repository, *sides, self._paths, self._written, index=self._has_index, stays=self._stays)

    def _stays(self, path: bytes) -> bool:
        return path in self._unheld or modules.lies_in(path, self._apart)

    def _prepare(self, index: PrivateIndex, plan: Plan, before: str) -> str:
        # Returns the tree to restore, after git has accepted every path and all objects exist.
        expected = self._wanted.files
        if not plan.is_whole or plan.is_contradictory or any(_UNUSUAL.search(one.path) for one in plan.files):
            try:
                with PrivateIndex(self._repository) as scratch:
                    scratch.copy_from(index.path)
                    scratch.put([*(one.line for one in plan.files), *plan.rules_gone])
                    expected = scratch.write_tree()
            except GitError as error:
                raise WorktreeError(f"git refuses the files of checkpoint {self._checkpoint.id}: {error.message}") from None
            planned = {one.path for one in plan.files} - set(plan.absent)
            left = diff.differences(self._repository, expected, self._wanted.files, self._paths)
            refused = [str(one) for one in left if one.path in planned]
            if refused:  # a tree can hold what no index can
                raise WorktreeError(f"git refuses the files of checkpoint {self._checkpoint.id}: {first_of(refused)}")
        self._require_objects(plan)
        if graph.promisor(self._repository):
            graph.fetch_missing(self._repository, expected, before)
        return expected

    def _require_objects(self, plan: Plan) -> None:
        # In a partial clone, git may fetch the blobs of files.
        if self._brings_operation:
            operation.require_objects(self._repository, self._wanted.operation)
        if graph.promisor(self._repository):
            return
        gone = [(one.path, one.new) for one in plan.files if one.new.strip("0") and self._repository.cat_file.info(one.new) is None]
        gone = sorted({*gone, *exactness.missing(self._repository, plan.exactness)})
        if gone:
            lacking = first_of([f"{quoted(path)} (blob {oid})" for path, oid in gone])
            raise WorktreeError(f"checkpoint {self._checkpoint.id} lacks what was in {lacking}", hint="see what is wrong: git ckpt verify")

    def _require_still(self, index: PrivateIndex) -> None:
        if self._objects.head()[0] != self._head:
            raise capture.moved()
        if not self._paths:
            index.require_latest()

    def _record_safety(self, captured: Captured, shape: Mapping[str, Any]) -> Checkpoint:
        state = {
            "worktree": roster.name_of(self._repository),
            "made": roster.made_at(self._repository),
            "before": self._checkpoint.id,
            "paths": [as_text(path) for path in self._paths],
            **shape,
        }
        message = f"before the files of {self._checkpoint.id[: ids.SHORT]} came back"
        found = captured.worktree
        if self._limits.submodules:  # also those to restore: the current index may lack them
            found = submodules.capture(self._store, found, {*captured.submodules, *self.submodules.paths}, self._limits)
        made = self._store.record(layout.SAFETY_COMPLETE, state, worktree=found, trigger=SAFETY, message=message)
        failure = assurance.failure(self._repository, self._store.objects, made, self._store.announce)
        if failure is not None:
            self._store.remove([made.id])
            raise failure
        if made.git_sha != self._head:  # the staged content would be attributed to that commit
            self._store.remove([made.id])
            raise capture.moved()
        self.has_begun = True
        undoing.begin(self._store, self._step, made)
        return made

    def _write(self, index: PrivateIndex, plan: Plan, before: tuple[Captured, Contents], expected: str, shape: Shape) -> list[bytes]:
        # Returns the files that stay unfiltered because a filter fails.
        captured, found = before
        wanted = {one.path for one in plan.files}
        hidden = wanted.intersection(found.flags.get(SKIPPED, ()))
        configured = self._limits.conversions(self._repository)
        blobs = exactness.prepare(index, plan.exactness, configured, expected)
        if not self._paths:
            index.require_latest()
        try:
            if hidden:  # git writes no file whose entry is marked skip-worktree
                index.update("--no-skip-worktree", sorted(hidden.intersection(path for path, *_ in index.entries())))
            replacement.take_away(index, {path: oid for path, oid in captured.as_is.items() if path in wanted})
            held = replacement.replace_files(index, plan.files, found.files, expected)
            if shape.apply(self._repository):
                index.refresh()  # their ctime has changed
        except GitError as error:
            raise (replacement.changed(error.message) if replacement.is_out_of_date(error) else self._unwritten(error.message)) from None
        exactness.bring_back(index, plan.exactness, configured, blobs)
        if annex.is_used(self._repository):
            there = manifest.regular_files(self._repository, expected)
            annex.populate(index, {path: oid for path, oid in there.items() if path in plan.written})
        if held:
            unfiltered.forget(self._repository, plan.exactness.raw)
            held = [path for path in held if path not in plan.exactness.raw]
        if self._paths:
            # Even if no entry is restored, the stat data of converted files must be right.
            if self._has_index or self._is_converted or plan.exactness.touched is not None:
                self._write_index_of_paths(plan)
        else:
            manifest.turn_into(index, self._kept_flags(plan, found), self._checkpoint.git_sha, expected)
            index.install()
        if self._brings_operation and found.operation != self._wanted.operation:
            operation.clear(self._repository)
            operation.bring_back(self._repository, self._wanted.operation)
        return held

    def _kept_flags(self, plan: Plan, found: Contents) -> Contents:
        # In a sparse checkout, every entry without a file must stay marked skip-worktree.
        wanted = self._wanted.flags.get(SKIPPED, [])
        if self._wanted.sparse is not None or found.sparse is not None:
            wanted = sorted(plan.without_file(self._repository))
        return replace(self._wanted, flags={**self._wanted.flags, SKIPPED: wanted})

    def _write_index_of_paths(self, plan: Plan) -> None:
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

    def _verify(self, plan: Plan, expected: str, shape: Shape) -> None:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(capture.Moved):
                return self._compare(plan, expected, shape)
        return self._compare(plan, expected, shape)

    def _compare(self, plan: Plan, expected: str, shape: Shape) -> None:
        gone = {one.path for one in plan.files if one.status == "D"} - set(plan.absent)
        if self._paths:
            with PrivateIndex(self._repository) as index:
                untracked = index.git("diff-index", "--cached", "--no-renames", "--diff-filter=D", "--name-only", "-z", expected)
                also = untracked.split(b"\0")[:-1]  # with those that are ignored
                head = self._objects.head()[0]
                again = capture.capture_in(index, self._objects, head, self._limits, also, keeps=self._is_meant)
            away = plan.without_file(self._repository)
            found = diff.differences(self._repository, expected, again.files, self._paths)
            came = [one for one in found if one.path not in away and not self._stays(one.path)]
            if not self._has_index:  # an entry that is skipped counts as a file where there is none
                top = os.fsencode(self._repository.worktree or "")
                came = [one for one in came if one.status != "A" or is_file(top, one.path)]
            differing = comparison.unexpected(self._repository, came, gone, plan.exactness.raw)
            differing += comparison.unshaped(self._repository, shape.directories, shape.modes)
        else:
            what = (self._repository, self._objects, self._wanted, self._checkpoint.git_sha, self._limits)
            differing = comparison.compare(*what, with_operation=self._brings_operation, gone=gone, stays=self._stays)
        self._require_none(differing)

    def _require_none(self, differing: Sequence[str]) -> None:
        if differing:
            raise WorktreeError(
                f"what came back is not what checkpoint {self._checkpoint.id} captured: {first_of(differing)}", hint=self._back
            )

    def _unwritten(self, what: str) -> WorktreeError:
        return WorktreeError(f"not every file could be written: {what}", hint=self._back)

    @property
    def _back(self) -> str:
        return f"go back to what was there before: {undoing.way_back(self._step)}"


def _inside(store: Checkpoints, checkpoint: Checkpoint, dry_run: bool) -> Returned:
    one, done = _run(lambda: _Restore(store, checkpoint, ()), dry_run=dry_run, announce=lambda _: None)
    failures = list(one.submodules.failures)
    said = [each for each in done.remarks if each.removeprefix(_OF_SUBMODULE) not in failures]
    failures += [kept_failure(done.kept).message] if done.kept else []
    if done.unfiltered:
        failures.append(unfiltered.failure(done.unfiltered, "").message)
    return Returned(done.changes, said, one.is_due, failures, one.submodules.advice)
