"""Store which checkpoints the next `undo` and `redo` of a worktree restore.

A restore first records a safety checkpoint. A file in the worktree's git directory lists them, with
the oids of their documents, which a fetch can replace. If it is lost, `undo` uses all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from errno import EISDIR, ELOOP, ENOENT

from gitckpt.git import fsync
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.lock import FileLock
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import IndexGone
from gitckpt.model import ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import SAFETY, Checkpoint
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.manifest import Snapshot

RESTORE, UNDO, REDO = "restore", "undo", "redo"
_KEYS = ("undo", "redo", "here", "open", "oids")  # of the document, in the order of `UndoStack`
_GONE = "removed, expired, or replaced by a fetch"
_LONG = 100  # steps; from longer lists, steps without a checkpoint are dropped
_FIRST = 20  # checkpoints to read before reading all
_PATIENCE = 10.0  # seconds; other processes that change the stack take milliseconds


@dataclass(frozen=True, slots=True)
class UndoStep:
    """An `undo` or `redo` that is possible in a worktree."""

    kind: str  # "undo" or "redo"
    checkpoint: CheckpointInfo  # the checkpoint that the step restores


@dataclass(slots=True)
class UndoStack:
    """The possible steps (undo, redo) in a worktree; each list ends in the next step."""

    undo: list[str]  # ids of the checkpoints to restore
    redo: list[str]
    # The checkpoint that the newest undo or redo restored; None after a restore or interruption.
    position: str | None = None
    open: str | None = None  # the safety checkpoint of the interrupted step
    oids: dict[str, str] = field(default_factory=dict)  # of the documents, by id

    def step_ids(self, kind: str) -> list[str]:
        return self.redo if kind == REDO else self.undo


def read_stack(store: Checkpoints) -> UndoStack:
    """Read the possible steps of the worktree, even if their checkpoints are removed."""
    if (stack := _load_stack(store.repository)) is not None:
        return stack
    worktree = local_checkpoints.worktree_name(store.repository)
    creation_time = local_checkpoints.worktree_creation_time(store.repository)
    safety_entries = [entry for entry in store.list() if entry.trigger == SAFETY]
    local_ids = LocalCheckpoints.read(store.repository, [entry.id for entry in safety_entries])
    oids = {}
    for entry in filter(local_ids.is_written_here, reversed(safety_entries)):
        state = store.read(entry.id).state
        if (state.get("worktree"), state.get("made", creation_time)) == (worktree, creation_time):
            oids[entry.id] = entry.oid
    return UndoStack(list(oids), [], oids=oids)


def next_step(store: Checkpoints, stack: UndoStack, kind: str) -> tuple[str | None, Sequence[str]]:
    """Return the checkpoint to restore (or None), and removed ones that come before."""
    missing_ids: list[str] = []
    for checkpoint_id in reversed(stack.step_ids(kind)):
        if _is_stored(store, stack, checkpoint_id):
            return checkpoint_id, missing_ids
        missing_ids.append(checkpoint_id)
    return None, missing_ids


def no_step_error(stack: UndoStack, kind: str, missing: Sequence[str]) -> NotFoundError:
    """Return the error that no step is possible; `missing` lists removed checkpoints."""
    problem = "nothing was restored in this worktree"
    hint = "see other checkpoints: git ckpt list"
    if missing:
        problem = f"the checkpoints that {kind} would restore are gone: {_GONE}"
    elif kind == REDO:
        problem, hint = "no undo follows the newest restore", "see the steps: git ckpt undo --list"
    elif stack.redo:
        problem, hint = "no earlier restore is left to undo", "redo the newest undo: git ckpt redo"
    return NotFoundError(problem, hint=hint)


def read_latest_files(
    store: Checkpoints, stack: UndoStack, target: Checkpoint
) -> tuple[str | None, list[bytes]]:
    """Return the tree that the newest step restored (None if gone), and its paths."""
    newest_id, paths = stack.position, list[bytes]()
    if newest_id is None:
        newest_id, paths = target.state.get("before"), read_paths(target)
    try:
        return _read_contents(store, store.read_own(str(newest_id))).files, paths
    except (NotFoundError, WorktreeError):
        return None, paths


def list_created_files(
    store: Checkpoints, target: Checkpoint, latest: str | None, paths: Sequence[bytes]
) -> list[bytes]:
    """Return the files that the newest step created, and that `target` does not have."""
    if latest is None:
        return []  # the checkpoint is gone: newly created, now ignored files stay
    old_files = _read_contents(store, target).files
    differences = diff.diff_trees(store.repository, old_files, latest, paths)
    return [entry.path for entry in differences if entry.status == "A"]


def read_paths(safety: Checkpoint) -> list[bytes]:
    """Return the paths to which the restore after the checkpoint `safety` was limited."""
    names = safety.state.get("paths", [])
    return [name if isinstance(name, bytes) else str(name).encode() for name in names]


def find_restored(state: Mapping[str, object]) -> str | None:
    """Return the checkpoint that was restored, from the state of a safety checkpoint."""
    restored = str(state.get("restored", state.get("before")))  # older ones have no "restored"
    return restored if ids.is_checkpoint_id(restored) else None


def find_reverted_restore(kind: str, target: Checkpoint) -> str | None:
    """Return the checkpoint whose restore an undo takes back, or a redo repeats."""
    is_undo_state = target.state.get("step", RESTORE) == UNDO
    return find_restored(target.state) if is_undo_state == (kind == REDO) else None


def list_steps(store: Checkpoints) -> list[UndoStep]:
    """List the possible undo steps, then the redo steps, each from the next one on."""
    stack = read_stack(store)
    listed_entries = store.list(Query(ids=[*stack.undo, *stack.redo]))
    entries = {entry.id: entry for entry in listed_entries if stack.oids.get(entry.id) == entry.oid}
    return [
        UndoStep(kind, entries[checkpoint_id])
        for kind in (UNDO, REDO)
        for checkpoint_id in reversed(stack.step_ids(kind))
        if checkpoint_id in entries
    ]


def find_current(store: Checkpoints) -> str | None:
    """Return the checkpoint that the worktree was last saved as or restored to."""
    key = local_checkpoints.worktree_key(store.repository)
    for limit in (_FIRST, None):
        entries = store.list(Query(limit=limit))
        local = LocalCheckpoints.read(store.repository, [entry.id for entry in entries])
        for entry in entries:
            if not (local.is_written_here(entry) and local.was_captured_in(entry.id, key)):
                continue
            if entry.trigger != SAFETY:
                return entry.id
            state = store.read(entry.id).state  # of a restore; with paths, of some files only
            if not state.get("paths") and ids.is_checkpoint_id(str(state.get("before"))):
                return str(state["before"])
    return None


def record_restore_start(store: Checkpoints, kind: str, safety: Checkpoint) -> None:
    """Record that a restore, undo or redo begins; `safety` has the state before it."""
    with _undo_stack_lock(store.repository):
        stack = read_stack(store)
        undo, redo = (_other_steps(store, stack, side, safety) for side in (stack.undo, stack.redo))
        interrupted = stack.open if _is_stored(store, stack, stack.open) else None
        is_half_done = interrupted is not None and _is_restore_half_done(store, safety, interrupted)
        if kind == RESTORE:
            undo += [interrupted] if interrupted is not None and interrupted in redo else []
            redo = []
        if not is_half_done:
            other_ids = redo if kind == UNDO else undo
            newest = stack.position if _is_stored(store, stack, stack.position) else None
            if newest is not None and not _have_same_state(store, store.read(newest), safety):
                other_ids.append(newest)  # files were edited since: the user may want either state
            other_ids.append(safety.id)
        recorded_oid = LocalCheckpoints.read(store.repository, [safety.id]).find_oid(safety.id)
        oid = recorded_oid or store.refs.read_ref(ref_names.CHECKPOINTS + safety.id) or ""
        open_id, oids = interrupted if is_half_done else safety.id, {**stack.oids, safety.id: oid}
        _write_stack(store.repository, UndoStack(undo, redo, open=open_id, oids=oids))


def record_restore_end(store: Checkpoints, kind: str, target: str) -> None:
    """Record that a restore, undo or redo has restored the checkpoint `target`."""
    with _undo_stack_lock(store.repository):
        stack = read_stack(store)
        if kind == RESTORE:
            if stack.open is not None:
                _write_stack(store.repository, UndoStack(stack.undo, stack.redo, oids=stack.oids))
            return
        same_ids, opposite_ids = stack.step_ids(kind), stack.redo if kind == UNDO else stack.undo
        if stack.position is not None and stack.position != target:
            opposite_ids.append(stack.position)
        del same_ids[same_ids.index(target) if target in same_ids else len(same_ids) :]
        new_stack = UndoStack(stack.undo, stack.redo, position=target, oids=stack.oids)
        _write_stack(store.repository, new_stack)


def revert_command(kind: str) -> str:
    return "git ckpt redo" if kind == UNDO else "git ckpt undo"


@contextlib.contextmanager
def add_revert_hint_to_errors(kind: str) -> Iterator[None]:
    """Add the command that reverts the step to the hint of an `IndexGone` error."""
    try:
        yield
    except IndexGone as error:
        hint = f"{error.hint}, or restore the previous state: {revert_command(kind)}"
        raise error.but(hint=hint) from None


def remark_on_skipped_steps(missing: Sequence[str]) -> list[str]:
    """Make a remark on steps that are skipped as their checkpoints are `missing`."""
    short_ids = ", ".join(checkpoint_id[: ids.SHORT] for checkpoint_id in missing)
    return [f"skipped steps whose checkpoints are gone ({_GONE}): {short_ids}"] if missing else []


def _other_steps(
    store: Checkpoints, stack: UndoStack, side: list[str], safety: Checkpoint
) -> list[str]:
    steps = [id_ for id_ in side if id_ != safety.id]
    return steps if len(side) <= _LONG else [id_ for id_ in steps if _is_stored(store, stack, id_)]


def _is_stored(store: Checkpoints, stack: UndoStack, checkpoint: str | None) -> bool:
    # A fetch may have replaced the document: the oid tells.
    oid = stack.oids.get(checkpoint or "")
    return oid is not None and store.refs.read_ref(f"{ref_names.CHECKPOINTS}{checkpoint}") == oid


def _is_restore_half_done(store: Checkpoints, safety: Checkpoint, interrupted: str) -> bool:
    try:
        before = store.read(interrupted)
        after = store.read_own(str(before.state.get("before")))
        trees_of_sides = [_restored_state(store, checkpoint)[:2] for checkpoint in (before, after)]
    except (NotFoundError, InvalidCheckpoint, WorktreeError):
        return False  # unknown: counts as a state to return to
    trees_now = _restored_state(store, safety)[:2]
    for *trees, tree in zip(*trees_of_sides, trees_now, strict=True):  # files, then index entries
        differences = (diff.diff_trees(store.repository, side, tree) for side in trees)
        start_paths, target_paths = ({entry.path for entry in entries} for entries in differences)
        if start_paths & target_paths:
            return False
    return True


def _have_same_state(store: Checkpoints, checkpoint: Checkpoint, safety: Checkpoint) -> bool:
    if (checkpoint.git_sha, checkpoint.tree) == (safety.git_sha, safety.tree):
        return True
    with contextlib.suppress(WorktreeError):
        return _restored_state(store, checkpoint) == _restored_state(store, safety)
    return False


def _restored_state(store: Checkpoints, checkpoint: Checkpoint) -> tuple[str, str, object]:
    contents = _read_contents(store, checkpoint)
    staged_tree = comparison.staged_tree(store.repository, contents, checkpoint.git_sha)
    conflict_trees = {stage: tree for stage, tree in contents.index.items() if stage}
    other_state = conflict_trees, contents.flags, contents.operation, contents.sparse
    return contents.files, staged_tree, other_state


def _read_contents(store: Checkpoints, checkpoint: Checkpoint) -> Snapshot:
    return manifest.contents_of(checkpoint, store.repository, store.objects)


def _undo_stack_lock(repository: Repository) -> FileLock:
    # After `_PATIENCE` seconds, the step continues without the lock.
    return FileLock(os.path.join(repository.make_private_dir(), "undo.lock"), _PATIENCE)


def _load_stack(repository: Repository) -> UndoStack | None:
    try:
        path = _stack_path(repository)
        with open(path, encoding="utf-8", opener=private_dirs.open_private_file) as file:
            stack_document = json.load(file)
        stack = UndoStack(*(stack_document[key] for key in _KEYS))
        id_lists = stack.undo, stack.redo
        if not all(
            isinstance(ids_, list) and all(map(ids.is_checkpoint_id, ids_)) for ids_ in id_lists
        ):
            return None
        if not all(isinstance(oid, str) for oid in stack.oids.values()):
            return None
    except OSError as error:
        if error.errno in (ENOENT, EISDIR, ELOOP):  # missing, a directory or a link
            return None
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    stack.position, stack.open = (
        id_ if isinstance(id_, str) and ids.is_checkpoint_id(id_) else None
        for id_ in (stack.position, stack.open)
    )
    return stack


def _write_stack(repository: Repository, stack: UndoStack) -> None:
    path = _stack_path(repository)
    ids_in_use = {*stack.undo, *stack.redo, stack.position, stack.open}
    stack.oids = {id_: oid for id_, oid in stack.oids.items() if id_ in ids_in_use}
    stack_values = stack.undo, stack.redo, stack.position, stack.open, stack.oids
    stack_document = dict(zip(_KEYS, stack_values, strict=True))
    try:
        regular.write_private_file(path, json.dumps(stack_document).encode(), flushed=True)
    except OSError as error:
        command = f"mv {shell_quoted(path)} {shell_quoted(f'{path}.old')}"
        hint = f"move the directory away: {command}" if error.errno == EISDIR else None
        raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
    fsync.flush([repository.git_dir])


def _stack_path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, ref_names.UNDO_FILE)
