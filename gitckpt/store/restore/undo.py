"""Keep the stack of `undo` and `redo` in a worktree's administrative directory.

A step is there from before its first file is replaced. One that never came to its end is open: both its sides stay within reach, and
what it has left half done is no step. The file may be lost: then all safety checkpoints of this worktree that were written here count as
steps back. Those that were fetched are of a worktree elsewhere, and of those with its name some may be of one that was removed since.
Each checkpoint is noted with the oid of its document: a fetch can replace what is behind an id.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from errno import EISDIR, ELOOP, ENOENT

from gitckpt.git import fsync
from gitckpt.git.files import atomic, premises
from gitckpt.git.lock import Lock
from gitckpt.git.objects import diff
from gitckpt.git.worktree.administration import IndexGone
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store import roster
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.roster import Roster
from gitckpt.store.snapshot import comparison, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.snapshot.manifest import Contents

RESTORE, UNDO, REDO = "restore", "undo", "redo"
_GONE = "removed, expired, or replaced by a fetch"
_MANY = 100
_PATIENCE = 10.0
"""How long others who change the steps are waited for, in seconds; they take milliseconds."""


@dataclass(frozen=True, slots=True)
class UndoStep:
    """A step that can be taken in a worktree.

    Attributes:
        kind: "undo" or "redo".
        checkpoint: the safety checkpoint that it brings back.
    """

    kind: str
    checkpoint: Entry


@dataclass(slots=True)
class Stack:
    """The steps of a worktree; each list ends with the next one to take.

    Attributes:
        undo: ids of the checkpoints that lead back.
        redo: ids of those that lead forward again.
        here: the one that the newest step brought back; None where that was a restore, or never came to its end.
        open: the one that was recorded for a step that never came to its end; None where there is none.
        oids: by id, the document that each of them was recorded with.
    """

    undo: list[str]
    redo: list[str]
    here: str | None = None
    open: str | None = None
    oids: dict[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether the newest step never came to its end."""
        return self.open is not None

    def side(self, kind: str) -> list[str]:
        """Returns the checkpoints that "undo" or "redo" leads to."""
        return self.redo if kind == REDO else self.undo


def read(store: Checkpoints) -> Stack:
    """Return the steps of the worktree, even if their checkpoints are gone."""
    found = _read(store.repository)
    if found is not None:
        return found
    here, made = roster.name_of(store.repository), roster.made_at(store.repository)
    undo = {}
    for entry in _safeties(store):
        state = store.read(entry.id).state
        if (state.get("worktree"), state.get("made", made)) == (here, made):
            undo[entry.id] = entry.oid
    return Stack(list(undo), [], oids=undo)


def _safeties(store: Checkpoints) -> list[Entry]:
    """Returns the safety checkpoints that were written here, the oldest first."""
    found = [entry for entry in store.list() if entry.trigger == SAFETY]
    known = Roster.read(store.repository, [entry.id for entry in found])
    return [entry for entry in reversed(found) if known.is_ours(entry)]


def next_step(store: Checkpoints, stack: Stack, kind: str) -> tuple[str | None, Sequence[str]]:
    """Return the checkpoint that a step leads to, or None; and those that are gone.

    Args:
        store: of the worktree.
        stack: its steps.
        kind: "undo" or "redo".
    """
    gone: list[str] = []
    for each in reversed(stack.side(kind)):
        if _is_there(store, stack, each):
            return each, gone
        gone.append(each)
    return None, gone


def nothing(stack: Stack, kind: str, gone: Sequence[str]) -> NotFoundError:
    """Return the error for a step that does not exist; `gone` comes from `next_step`."""
    others = "see what there is to go back to: git ckpt list"
    if gone:
        where = "back" if kind == UNDO else "forward"
        return NotFoundError(f"the checkpoints of the steps further {where} are gone: {_GONE}", hint=others)
    if kind == REDO:
        return NotFoundError("nothing was taken back since the newest restore", hint="see the steps: git ckpt undo --list")
    if stack.redo:
        return NotFoundError("there is nothing further back", hint="go forward again: git ckpt redo")
    return NotFoundError("nothing was restored in this worktree", hint=others)


def brought(store: Checkpoints, stack: Stack, wanted: Checkpoint) -> list[bytes]:
    """Return files that the newest step wrote and the checkpoint lacks."""
    brought, named = (stack.here, []) if stack.here else (wanted.state.get("before"), wanted.state.get("paths", []))
    try:
        newest = store.read_own(str(brought))
    except (NotFoundError, WorktreeError):
        return []  # it was removed or replaced meanwhile: those that are ignored by now stay
    before, after = (_contents(store, checkpoint).files for checkpoint in (wanted, newest))
    paths = [path if isinstance(path, bytes) else str(path).encode() for path in named]
    return [one.path for one in diff.differences(store.repository, before, after, paths) if one.status == "A"]


def steps(store: Checkpoints) -> list[UndoStep]:
    """Return the steps that can be taken: back, then forward, the next one first."""
    stack = read(store)
    entries = {entry.id: entry for entry in store.list(Query(ids=[*stack.undo, *stack.redo]))}
    there = {name: entry for name, entry in entries.items() if stack.oids.get(name) == entry.oid}
    return [UndoStep(kind, there[each]) for kind in (UNDO, REDO) for each in reversed(stack.side(kind)) if each in there]


def begin(store: Checkpoints, kind: str, made: Checkpoint) -> None:
    """Notes that a step begins.

    Args:
        store: of the worktree.
        kind: "restore", "undo" or "redo".
        made: the safety checkpoint that was recorded for it.
    """
    with _alone(store.repository):
        stack = read(store)
        sides = (_trimmed(store, stack, side) for side in (stack.undo, stack.redo))
        undo, redo = ([each for each in side if each != made.id] for side in sides)
        good = stack.open if stack.open is not None and _is_there(store, stack, stack.open) else None
        is_half = good is not None and _is_half_done(store, made, good)
        if kind == RESTORE:
            undo += [good] if good is not None and good in redo else []
            redo = []
        if not is_half:
            ahead = redo if kind == UNDO else undo
            if stack.here is not None and _is_there(store, stack, stack.here) and not _is_same(store, store.read(stack.here), made):
                ahead.append(stack.here)  # it was edited since: both are states that were there
            ahead.append(made.id)
        oids = {**stack.oids, made.id: _oid_of(store, made.id)}
        _write(store.repository, Stack(undo, redo, open=good if is_half else made.id, oids=oids))


def finish(store: Checkpoints, kind: str, target: str) -> None:
    """Notes that a step has come to its end, or that nothing was to be done for it.

    Args:
        store: of the worktree.
        kind: "restore", "undo" or "redo".
        target: id of the checkpoint that was brought back.
    """
    with _alone(store.repository):
        stack = read(store)
        if kind == RESTORE:
            if stack.is_open:
                _write(store.repository, Stack(stack.undo, stack.redo, oids=stack.oids))
            return
        here, ahead = stack.side(kind), stack.redo if kind == UNDO else stack.undo
        if stack.here not in (None, target):
            ahead.append(str(stack.here))
        del here[here.index(target) if target in here else len(here) :]
        _write(store.repository, Stack(stack.undo, stack.redo, here=target, oids=stack.oids))


def way_back(kind: str) -> str:
    """Returns the command that takes a step back."""
    return "git ckpt redo" if kind == UNDO else "git ckpt undo"


@contextlib.contextmanager
def offered(kind: str) -> Iterator[None]:
    """Add the command that reverts the step to an error about a deleted private index."""
    try:
        yield
    except IndexGone as error:
        raise error.but(hint=f"{error.hint}, or go back to what was there before: {way_back(kind)}") from None


def skipped(gone: Sequence[str]) -> list[str]:
    """Return a remark on the skipped steps whose checkpoints are gone."""
    if not gone:
        return []
    what = "the checkpoint of a step is" if len(gone) == 1 else f"the checkpoints of {len(gone)} steps are"
    return [f"{what} gone ({_GONE}): {', '.join(each[: ids.SHORT] for each in gone)}; this goes further"]


def _trimmed(store: Checkpoints, stack: Stack, side: list[str]) -> list[str]:
    """Return a side; if long, without steps whose checkpoints are gone."""
    return side if len(side) <= _MANY else [each for each in side if _is_there(store, stack, each)]


def _is_there(store: Checkpoints, stack: Stack, checkpoint: str) -> bool:
    """Tell whether a checkpoint is there with the document it was recorded with."""
    oid = stack.oids.get(checkpoint)
    return oid is not None and store.refs.read(layout.CHECKPOINTS + checkpoint) == oid


def _oid_of(store: Checkpoints, checkpoint: str) -> str:
    """Return the oid of the document of a checkpoint that was recorded just now."""
    noted = Roster.read(store.repository, [checkpoint]).oid(checkpoint)
    return noted or store.refs.read(layout.CHECKPOINTS + checkpoint) or ""


def _is_half_done(store: Checkpoints, made: Checkpoint, good: str) -> bool:
    """Return whether each path is as before an interrupted step, or as after it."""
    try:
        before = store.read(good)
        after = store.read_own(str(before.state.get("before")))
        sides = [_trees(store, before), _trees(store, after)]
    except (NotFoundError, InvalidCheckpoint, WorktreeError):
        return False  # nobody can tell: then it counts as a state that was there
    now = _trees(store, made)
    for place in (0, 1):  # files, then what is staged
        own = ({one.path for one in diff.differences(store.repository, side[place], now[place])} for side in sides)
        if set.intersection(*own):
            return False
    return True


def _is_same(store: Checkpoints, one: Checkpoint, other: Checkpoint) -> bool:
    """Return whether two checkpoints restore the same files, index and operation."""
    if (one.git_sha, one.tree) == (other.git_sha, other.tree):
        return True
    try:
        return _trees(store, one) == _trees(store, other) and _rest(store, one) == _rest(store, other)
    except WorktreeError:
        return False


def _trees(store: Checkpoints, checkpoint: Checkpoint) -> tuple[str, str]:
    """Return the trees of a checkpoint's files and of its unconflicted index entries."""
    found = _contents(store, checkpoint)
    return found.files, comparison.merged_tree(store.repository, found, checkpoint.git_sha)


def _rest(store: Checkpoints, checkpoint: Checkpoint) -> tuple[object, ...]:
    found = _contents(store, checkpoint)
    return {stage: tree for stage, tree in found.index.items() if stage}, found.flags, found.operation, found.sparse


def _contents(store: Checkpoints, checkpoint: Checkpoint) -> Contents:
    return manifest.contents_of(checkpoint, store.repository, store.objects)


def _alone(repository: Repository) -> Lock:
    """Return a lock for reading and writing the file; if it is held, go on without."""
    return Lock(os.path.join(repository.make_private_dir(), "undo.lock"), _PATIENCE)


def _read(repository: Repository) -> Stack | None:
    """Returns what the file says; None where it is lost, or says something else."""
    try:
        with open(_path(repository), encoding="utf-8", opener=premises.create) as file:
            said = json.load(file)
        undo, redo, here, is_open, oids = (said[key] for key in ("undo", "redo", "here", "open", "oids"))
    except OSError as error:
        if error.errno in (ENOENT, EISDIR, ELOOP):  # none of ours
            return None
        raise
    except (ValueError, KeyError, TypeError):
        return None
    if not (isinstance(undo, list) and isinstance(redo, list) and all(ids.is_id(each) for each in [*undo, *redo])):
        return None
    if not isinstance(oids, dict) or not all(isinstance(oid, str) for oid in oids.values()):
        return None
    here, is_open = (each if isinstance(each, str) and ids.is_id(each) else None for each in (here, is_open))
    return Stack(undo, redo, here, is_open, oids)


def _write(repository: Repository, stack: Stack) -> None:
    path = _path(repository)
    named = {*stack.undo, *stack.redo, stack.here, stack.open}
    oids = {name: oid for name, oid in stack.oids.items() if name in named}
    said = {"undo": stack.undo, "redo": stack.redo, "here": stack.here, "open": stack.open, "oids": oids}
    try:
        atomic.write_own(path, json.dumps(said).encode(), flushed=True)
    except OSError as error:
        hint = f"move it out of the way: mv {shell_word(path)} {shell_word(f'{path}.old')}" if error.errno == EISDIR else None
        raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
    fsync.flush([repository.git_dir])


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, layout.UNDO_FILE)
