"""Keep the stack of steps that `undo` and `redo` take in a worktree.

A file in the worktree's git directory lists safety checkpoints, each with the oid of its
document: a fetch can replace what is behind an id. A step is noted before its first file is
replaced. If the file is lost, all safety checkpoints that were written in this worktree count.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from errno import EISDIR, ELOOP, ENOENT

from gitckpt.git import fsync
from gitckpt.git.files import atomic, private_dirs
from gitckpt.git.lock import Lock
from gitckpt.git.objects import diff
from gitckpt.git.worktree.administration import IndexGone
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store import local_checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import Query
from gitckpt.store.snapshot import comparison, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.snapshot.manifest import Contents

RESTORE, UNDO, REDO = "restore", "undo", "redo"
_GONE = "removed, expired, or replaced by a fetch"
# From this many steps on, those whose checkpoints are gone are dropped.
_MANY = 100
# Seconds to wait for other processes that change the stack; they take milliseconds.
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class UndoStep:
    """A step that can be taken in a worktree.

    Attributes:
        kind: "undo" or "redo".
        checkpoint: the safety checkpoint that it brings back.
    """

    kind: str
    checkpoint: CheckpointInfo


@dataclass(slots=True)
class Stack:
    """The steps of a worktree; each list ends with the next one to take."""

    undo: list[str]  # ids of checkpoints
    redo: list[str]
    # What the newest undo or redo restored; None after a restore or an interrupted step.
    here: str | None = None
    # The safety checkpoint of the interrupted step.
    open: str | None = None
    # Oids of the documents by id.
    oids: dict[str, str] = field(default_factory=dict)

    def side(self, kind: str) -> list[str]:
        """Return the checkpoints that "undo" or "redo" leads to."""
        return self.redo if kind == REDO else self.undo


def read(store: Checkpoints) -> Stack:
    """Return the steps of the worktree, even if their checkpoints are gone."""
    stack = _read(store.repository)
    if stack is not None:
        return stack
    here = local_checkpoints.name_of(store.repository)
    made = local_checkpoints.made_at(store.repository)
    safeties = [entry for entry in store.list() if entry.trigger == SAFETY]
    roster = LocalCheckpoints.read(store.repository, [entry.id for entry in safeties])
    undo = {}
    for entry in filter(roster.is_ours, reversed(safeties)):
        state = store.read(entry.id).state
        if (state.get("worktree"), state.get("made", made)) == (here, made):
            undo[entry.id] = entry.oid
    return Stack(list(undo), [], oids=undo)


def next_step(store: Checkpoints, stack: Stack, kind: str) -> tuple[str | None, Sequence[str]]:
    """Return the checkpoint that a step leads to, or None; and those that are gone."""
    gone: list[str] = []
    for name in reversed(stack.side(kind)):
        if _exists(store, stack, name):
            return name, gone
        gone.append(name)
    return None, gone


def nothing(stack: Stack, kind: str, gone: Sequence[str]) -> NotFoundError:
    """Return the error for a step that does not exist; `gone` comes from `next_step`."""
    others = "see other checkpoints: git ckpt list"
    if gone:
        where = "back" if kind == UNDO else "forward"
        message = f"the checkpoints of the steps further {where} are gone: {_GONE}"
        return NotFoundError(message, hint=others)
    if kind == REDO:
        message, hint = "no undo follows the newest restore", "see the steps: git ckpt undo --list"
        return NotFoundError(message, hint=hint)
    if stack.redo:
        message, hint = "there is nothing further back", "go forward again: git ckpt redo"
        return NotFoundError(message, hint=hint)
    return NotFoundError("nothing was restored in this worktree", hint=others)


def written_by_newest(store: Checkpoints, stack: Stack, wanted: Checkpoint) -> list[bytes]:
    """Return the files that the newest step wrote and the wanted checkpoint lacks."""
    newest, names = stack.here, []
    if newest is None:
        newest, names = wanted.state.get("before"), wanted.state.get("paths", [])
    try:
        written = store.read_own(str(newest))
    except (NotFoundError, WorktreeError):
        return []  # removed or replaced meanwhile: files that are ignored now stay
    before, after = (_contents(store, checkpoint).files for checkpoint in (wanted, written))
    paths = [name if isinstance(name, bytes) else str(name).encode() for name in names]
    differing = diff.differences(store.repository, before, after, paths)
    return [entry.path for entry in differing if entry.status == "A"]


def steps(store: Checkpoints) -> list[UndoStep]:
    """Return the steps that can be taken: back, then forward, the next one first."""
    stack = read(store)
    listed = store.list(Query(ids=[*stack.undo, *stack.redo]))
    entries = {entry.id: entry for entry in listed if stack.oids.get(entry.id) == entry.oid}
    return [
        UndoStep(kind, entries[name])
        for kind in (UNDO, REDO)
        for name in reversed(stack.side(kind))
        if name in entries
    ]


def begin(store: Checkpoints, kind: str, safety: Checkpoint) -> None:
    """Record that a restore, undo or redo begins, with its safety checkpoint."""
    with _locked(store.repository):
        stack = read(store)
        undo, redo = (
            [
                name
                for name in side
                if name != safety.id and (len(side) <= _MANY or _exists(store, stack, name))
            ]
            for side in (stack.undo, stack.redo)
        )
        interrupted = stack.open
        if interrupted is not None and not _exists(store, stack, interrupted):
            interrupted = None
        is_half_done = interrupted is not None and _is_half_done(store, safety, interrupted)
        if kind == RESTORE:
            undo += [interrupted] if interrupted is not None and interrupted in redo else []
            redo = []
        if not is_half_done:
            ahead = redo if kind == UNDO else undo
            here = stack.here if stack.here and _exists(store, stack, stack.here) else None
            if here is not None and not _is_same(store, store.read(here), safety):
                ahead.append(here)  # files were edited since: both states can be wanted
            ahead.append(safety.id)
        noted = LocalCheckpoints.read(store.repository, [safety.id]).oid(safety.id)
        oid = noted or store.refs.read(ref_names.CHECKPOINTS + safety.id) or ""
        now = interrupted if is_half_done else safety.id
        _write(store.repository, Stack(undo, redo, open=now, oids={**stack.oids, safety.id: oid}))


def finish(store: Checkpoints, kind: str, target: str) -> None:
    """Record that a step to the checkpoint `target` is complete."""
    with _locked(store.repository):
        stack = read(store)
        if kind == RESTORE:
            if stack.open is not None:
                _write(store.repository, Stack(stack.undo, stack.redo, oids=stack.oids))
            return
        side, ahead = stack.side(kind), stack.redo if kind == UNDO else stack.undo
        if stack.here is not None and stack.here != target:
            ahead.append(stack.here)
        del side[side.index(target) if target in side else len(side) :]
        _write(store.repository, Stack(stack.undo, stack.redo, here=target, oids=stack.oids))


def way_back(kind: str) -> str:
    """Return the command that reverts a step."""
    return "git ckpt redo" if kind == UNDO else "git ckpt undo"


@contextlib.contextmanager
def offered(kind: str) -> Iterator[None]:
    """Add the command that reverts the step to an error about a deleted private index."""
    try:
        yield
    except IndexGone as error:
        hint = f"{error.hint}, or go back to what was there before: {way_back(kind)}"
        raise error.but(hint=hint) from None


def skipped(gone: Sequence[str]) -> list[str]:
    """Return a remark on the skipped steps whose checkpoints are gone."""
    if not gone:
        return []
    names = ", ".join(name[: ids.SHORT] for name in gone)
    return [f"skipped steps whose checkpoints are gone ({_GONE}): {names}"]


def _exists(store: Checkpoints, stack: Stack, checkpoint: str) -> bool:
    # With the document it was recorded with.
    oid = stack.oids.get(checkpoint)
    return oid is not None and store.refs.read(ref_names.CHECKPOINTS + checkpoint) == oid


def _is_half_done(store: Checkpoints, safety: Checkpoint, interrupted: str) -> bool:
    """Return whether each path is as before an interrupted step, or as after it."""
    try:
        before = store.read(interrupted)
        after = store.read_own(str(before.state.get("before")))
        sides = [_trees(store, before), _trees(store, after)]
    except (NotFoundError, InvalidCheckpoint, WorktreeError):
        return False  # unknown: then it counts as a state of its own
    now = _trees(store, safety)
    for part in (0, 1):  # files, then what is staged
        before_paths, after_paths = (
            {entry.path for entry in diff.differences(store.repository, side[part], now[part])}
            for side in sides
        )
        if before_paths & after_paths:
            return False
    return True


def _is_same(store: Checkpoints, checkpoint: Checkpoint, other: Checkpoint) -> bool:
    """Return whether two checkpoints restore the same files, index and operation."""
    if (checkpoint.git_sha, checkpoint.tree) == (other.git_sha, other.tree):
        return True
    try:
        return _trees(store, checkpoint) == _trees(store, other) and _rest(
            store, checkpoint
        ) == _rest(store, other)
    except WorktreeError:
        return False


def _trees(store: Checkpoints, checkpoint: Checkpoint) -> tuple[str, str]:
    # Of the files, and of the index entries that are not in conflict.
    contents = _contents(store, checkpoint)
    staged = comparison.merged_tree(store.repository, contents, checkpoint.git_sha)
    return contents.files, staged


def _rest(store: Checkpoints, checkpoint: Checkpoint) -> tuple[object, ...]:
    contents = _contents(store, checkpoint)
    conflicts = {stage: tree for stage, tree in contents.index.items() if stage}
    return conflicts, contents.flags, contents.operation, contents.sparse


def _contents(store: Checkpoints, checkpoint: Checkpoint) -> Contents:
    return manifest.contents_of(checkpoint, store.repository, store.objects)


def _locked(repository: Repository) -> Lock:
    # Without the lock after `_PATIENCE`, the step goes on all the same.
    return Lock(os.path.join(repository.make_private_dir(), "undo.lock"), _PATIENCE)


def _read(repository: Repository) -> Stack | None:
    """Return the stack in the file; None if the file is lost or invalid."""
    try:
        with open(_path(repository), encoding="utf-8", opener=private_dirs.create) as file:
            document = json.load(file)
        stack = Stack(*(document[key] for key in ("undo", "redo", "here", "open", "oids")))
        if not all(ids.is_id(name) for name in [*stack.undo, *stack.redo]):
            return None
        if not all(isinstance(oid, str) for oid in stack.oids.values()):
            return None
    except OSError as error:
        if error.errno in (ENOENT, EISDIR, ELOOP):  # not written by gitckpt
            return None
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not (isinstance(stack.undo, list) and isinstance(stack.redo, list)):
        return None
    stack.here, stack.open = (
        name if isinstance(name, str) and ids.is_id(name) else None
        for name in (stack.here, stack.open)
    )
    return stack


def _write(repository: Repository, stack: Stack) -> None:
    path = _path(repository)
    names = {*stack.undo, *stack.redo, stack.here, stack.open}
    stack.oids = {name: oid for name, oid in stack.oids.items() if name in names}
    document = {key: getattr(stack, key) for key in ("undo", "redo", "here", "open", "oids")}
    try:
        atomic.write_own(path, json.dumps(document).encode(), flushed=True)
    except OSError as error:
        old = shell_word(f"{path}.old")
        hint = f"move it out of the way: mv {shell_word(path)} {old}"
        raise WorktreeError(
            f"cannot write {path}: {error.strerror}", hint=hint if error.errno == EISDIR else None
        ) from None
    fsync.flush([repository.git_dir])


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, ref_names.UNDO_FILE)
