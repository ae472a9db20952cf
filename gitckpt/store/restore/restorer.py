"""Restore: puts the files of a checkpoint into the worktree one is in, after a safety checkpoint; and takes that back.

Only paths that differ are touched, by git, which refuses where a file changed since it was captured. HEAD never moves.
"""

from __future__ import annotations

import contextlib
import os
import re

from gitckpt.git.contents import annex, attributes, raw_files, unfiltered
from gitckpt.git.graph import partial
from gitckpt.git.objects import diff
from gitckpt.git.process import GitError
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.checkpoint import SAFETY, Checkpoint
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.names import first_of, quoted
from gitckpt.model.values import replace
from gitckpt.store import roster
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.restore import exactness, position, replacement
from gitckpt.store.restore import shape as shape_of
from gitckpt.store.restore import undo as undoing
from gitckpt.store.restore.departure import Departures
from gitckpt.store.restore.plan import (
    CHANGE,
    STAGE,
    PathChange,
    Plan,
    is_file,
    is_within,
    make_plan,
    missing,
    require_paths,
)
from gitckpt.store.restore.position import Gap, Position
from gitckpt.store.restore.report import Restored, kept_failure, left_out, remarks
from gitckpt.store.restore.shape import Shape, as_text
from gitckpt.store.restore.submodules import Returned, Submodules
from gitckpt.store.snapshot import assurance, capture, comparison, index_state, manifest
from gitckpt.store.snapshot.capture import Captured
from gitckpt.store.snapshot.manifest import INTENT, SKIPPED, Contents
from gitckpt.store.submodules import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from gitckpt.git.contents.unfiltered import HeldBack

    Announce = Callable[[Sequence[str]], None]

_OF_SUBMODULE = "the submodule "
_UNUSUAL = re.compile(rb"[^ -~]|git|(^|/)\.|[~:\\]|//", re.IGNORECASE)
# A path that git might refuse, because it leads out of the worktree or into .git, is tried in a scratch index first.
_TRIES = 10
"""So often a restore looks at the worktree while others commit."""


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
    """Puts the files, the index and the operation in progress of a checkpoint into the worktree.

    Args:
        store: of the worktree.
        checkpoint: what it shall hold.
        paths: files and directories to which this is restricted, relative to the top; none for all, with the operation in progress.
        index: whether the entries of the paths in the index come back as well; without paths they always do.
        dry_run: whether to say only what would be done.
        announce: is told before anything is changed what `apart` and `remarks` of the result say, unless that is nothing.
        trusted: whether a document that a fetch has replaced may come back.

    Raises:
        WorktreeError: a fetch has replaced the checkpoint; there is no worktree; the checkpoint's files are missing or were not captured;
            something is in the way that no checkpoint holds; or, after it was done, files and checkpoint differ.
        BusyError: another process changes the index or the files.
    """
    if not trusted and store.is_replaced(checkpoint.id):
        raise roster.replaced(checkpoint.id, f"; if you trust what came: git ckpt restore {checkpoint.id[: ids.SHORT]} --trust")

    def make() -> _Restore:
        return _Restore(store, checkpoint, paths, index=index)

    return _run(make, dry_run=dry_run, announce=announce)[1]


def undo(store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None) -> Restored:
    """Goes back to what was there before the newest restore in this worktree, or before the one that was taken back last.

    Args and errors: as `restore`.

    Raises:
        NotFoundError: there is none.
    """
    return _take(store, undoing.UNDO, dry_run, announce)


def redo(store: Checkpoints, *, dry_run: bool = False, announce: Announce = lambda _: None) -> Restored:
    """Brings back what was there before the newest undo in this worktree that was not followed by a restore.

    Args and errors: as `restore`.

    Raises:
        NotFoundError: there is none.
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
    """Run a restore, anew where somebody commits before anything is changed.

    Args:
        make: makes it, for the commit that HEAD points to then.
        dry_run: as for `restore`.
        announce: as for `restore`.

    Raises:
        BusyError, Moved: somebody commits each time.
    """
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
    """One restore, from plan to comparison.

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
        position.require_source(store, checkpoint)
        checkpoint, self._stand_in = manifest.with_commit(store.repository, checkpoint, self._head)
        self._checkpoint = checkpoint
        partial.fetch_for(store.repository, checkpoint.tree, checkpoint.git_sha)
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
            if left_out:  # what the settings leave out: the safety checkpoint shall hold it
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
        """Return what a restore would do, or complete one for which nothing is to be done.

        Args:
            plan: what is to be done.
            gap: what is told of it.
            pending: files that are here only as git stores them.
            dry_run: whether nothing is to be changed.
        """
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
        """Return what a person should know beside the gap: the same before the act and after it."""
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
            source=position.of(self._checkpoint),
            changes_operation=changes_operation,
            is_partial=bool(self._paths),
            would_move=self._would_move,
            is_foreign=self._is_foreign,
            elsewhere=f"git ckpt resume {no_run}{self._checkpoint.id[: ids.SHORT]}",
            back=undoing.way_back(self._step),
        )

    def _look(self, index: PrivateIndex, also: Sequence[bytes]) -> tuple[Captured, Contents]:
        """Returns what a capture found, and what the worktree holds by that."""
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
        # A capture leaves them out where nothing converts; attributes that come back may.
        found.conversion = attributes.settings(self._repository, configured)
        return captured, found

    def _files_there(self, index: PrivateIndex, captured: Captured, found: Contents) -> str:
        """Returns the tree of the files that are there; the index has entries for no others then, so that git writes what is missing.

        A capture holds what the index says of files that are to be skipped and are not there.
        """
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
        """Tell whether a file is not to be touched."""
        return path in self._unheld or modules.lies_in(path, self._apart)

    def _prepare(self, index: PrivateIndex, plan: Plan, before: str) -> str:
        """Returns the tree that the files shall have instead of `before`; git has checked every path, and every object is there."""
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
        if partial.promisor(self._repository):
            partial.fetch_missing(self._repository, expected, before)
        return expected

    def _require_objects(self, plan: Plan) -> None:
        """Raises `WorktreeError` where an object is missing that the restore needs; in a partial clone, git may fetch those of files."""
        if self._brings_operation:
            operation.require_objects(self._repository, self._wanted.operation)
        if partial.promisor(self._repository):
            return
        gone = [(one.path, one.new) for one in plan.files if one.new.strip("0") and self._repository.cat_file.info(one.new) is None]
        gone = sorted({*gone, *exactness.missing(self._repository, plan.exactness)})
        if gone:
            lacking = first_of([f"{quoted(path)} (blob {oid})" for path, oid in gone])
            raise WorktreeError(f"checkpoint {self._checkpoint.id} lacks what was in {lacking}", hint="see what is wrong: git ckpt verify")

    def _require_still(self, index: PrivateIndex) -> None:
        """Raise `BusyError` or `Moved` where somebody staged or committed since the capture."""
        if self._objects.head()[0] != self._head:
            raise capture.moved()
        if not self._paths:
            index.require_latest()

    def _record_safety(self, captured: Captured, shape: Mapping[str, Any]) -> Checkpoint:
        """Record what is there now; from here on `undo` can bring it back."""
        state = {
            "worktree": roster.name_of(self._repository),
            "made": roster.made_at(self._repository),
            "before": self._checkpoint.id,
            "paths": [as_text(path) for path in self._paths],
            **shape,
        }
        message = f"before the files of {self._checkpoint.id[: ids.SHORT]} came back"
        found = captured.worktree
        if self._limits.submodules:  # those that come back as well: an index without them may be here
            found = keeper.capture(self._store, found, {*captured.submodules, *self.submodules.paths}, self._limits)
        made = self._store.record(layout.SAFETY_COMPLETE, state, worktree=found, trigger=SAFETY, message=message)
        failure = assurance.failure(self._repository, self._store.objects, made, self._store.announce)
        if failure is not None:
            self._store.remove([made.id])
            raise failure
        if made.git_sha != self._head:  # what is staged would be taken for that commit
            self._store.remove([made.id])
            raise capture.moved()
        self.has_begun = True
        undoing.begin(self._store, self._step, made)
        return made

    def _write(self, index: PrivateIndex, plan: Plan, before: tuple[Captured, Contents], expected: str, shape: Shape) -> list[bytes]:
        """Writes files, index and operation; returns the files that are there only as git stores them, because a filter fails."""
        captured, found = before
        wanted = {one.path for one in plan.files}
        hidden = wanted.intersection(found.flags.get(SKIPPED, ()))
        configured = self._limits.conversions(self._repository)
        blobs = exactness.prepare(index, plan.exactness, configured, expected)
        if not self._paths:
            index.require_latest()
        try:
            if hidden:  # git writes no file whose entry is to be skipped
                index.update("--no-skip-worktree", sorted(hidden.intersection(path for path, *_ in index.entries())))
            replacement.take_away(index, {path: oid for path, oid in captured.as_is.items() if path in wanted})
            held = replacement.replace_files(index, plan.files, found.files, expected)
            if shape.apply(self._repository):
                index.refresh()  # the time of their last change is another one by now
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
            # Without their entries, what git knows of converted files has to be right all the same.
            if self._has_index or self._is_converted or plan.exactness.touched is not None:
                self._write_index_of_paths(plan)
        else:
            index_state.turn_into(index, self._kept_flags(plan, found), self._checkpoint.git_sha, expected)
            index.install()
        if self._brings_operation and found.operation != self._wanted.operation:
            operation.clear(self._repository)
            operation.bring_back(self._repository, self._wanted.operation)
        return held

    def _kept_flags(self, plan: Plan, found: Contents) -> Contents:
        """Returns what is wanted, with every entry marked to be skipped that has no file here because the checkout is sparse."""
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
                    index_state.add_in_intent(own, self._wanted, gets)
                else:
                    index_state.change_flag(own, flag, gets, loses)
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
    """Restores a submodule; see `submodules.Restore`."""
    one, done = _run(lambda: _Restore(store, checkpoint, ()), dry_run=dry_run, announce=lambda _: None)
    failures = list(one.submodules.failures)
    said = [each for each in done.remarks if each.removeprefix(_OF_SUBMODULE) not in failures]
    failures += [kept_failure(done.kept).message] if done.kept else []
    if done.unfiltered:
        failures.append(unfiltered.failure(done.unfiltered, "").message)
    return Returned(done.changes, said, one.is_due, failures, one.submodules.advice)
