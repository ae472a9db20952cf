"""Whose a run is: one that was not written here goes on only where somebody has seen what decides, and says so.

What was written here, `gitckpt.store.roster` knows. Nothing that came by a fetch is in it, whatever it says of itself.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gitckpt.git import fsync
from gitckpt.git.objects import diff
from gitckpt.git.process import GitError
from gitckpt.model import codec, ids, jsonable
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.store import roster
from gitckpt.store import secrets as stored
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.roster import Roster
from gitckpt.store.runs.run_files import ENTRY, INPUT
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gitckpt.model.checkpoint import Checkpoint, Pipeline
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry

_MANY = 20
"""So many files, values or phases are shown, and how many more there are."""

_LONG = 2000
"""So many characters of a value are shown."""


class Untrusted(UsageError):
    """A checkpoint that was not written here should be gone on from.

    Args:
        message: the object and the cause.
        account: what decides whether to trust it, a line each.
        hint: the command to run next.
    """

    def __init__(self, message: str, account: Sequence[str], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(account)


def is_ours(store: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Tells whether a checkpoint was written here, or somebody here has adopted it.

    Outside of runs, a checkpoint without a pipeline counts as ours, unless it was replaced.

    Args:
        checkpoint: as it was read just now, from its own ref or the head of its run.
    """
    run = checkpoint.run
    if run is None:
        return checkpoint.pipeline is None and not store.is_replaced(checkpoint.id)
    oids = {store.refs.read(layout.CHECKPOINTS + checkpoint.id)}
    if store.refs.read(layout.RUNS + run) is not None:
        oid, newest = store.heads.head(run)
        oids |= {oid} if newest.id == checkpoint.id else set()
    return all(oid is None or roster.knows(store.repository, run, oid) for oid in oids) and oids != {None}


def read(store: Checkpoints, run: str, checkpoint_id: str) -> Checkpoint:
    """Returns a checkpoint that a run of ours goes by: a fetch may have put another one in its place.

    Args:
        checkpoint_id: the id of the checkpoint; it is of this run, or of one that this goes on from.

    Raises:
        NotFoundError: it is gone.
        Untrusted: it was not written here.
    """
    ref = layout.CHECKPOINTS + checkpoint_id
    oid = store.refs.read(ref) if ids.is_id(checkpoint_id) else None
    if oid is None:
        return store.read(checkpoint_id)  # says that it is gone
    found = codec.decode(layout.document(next(store.objects.read([oid])), ref, oid), ref)
    if not any(roster.knows(store.repository, each, oid) for each in (run, found.run) if each is not None):
        raise refusal(store, found, [])
    return found


def written_here(store: Checkpoints, query: Query) -> Iterator[Entry]:
    """Yields the checkpoints of a run that a query finds, newest first, and of those what was written or adopted here."""
    return (entry for entry in store.list(query) if entry.run is not None and roster.knows(store.repository, entry.run, entry.oid))


def adopt(store: Checkpoints, run: str, head: str | None = None, *, by: str | None = None) -> None:
    """Takes the checkpoints of a run for ours, as they stand; whatever is fetched later is somebody else's again.

    Args:
        head: the oid of the document that its head points to, as it was shown.
        by: the run that goes by them, where the run itself stays somebody else's: one that goes on from it.

    Raises:
        CkptError: it cannot be noted.
    """
    if by is None:
        _note_theirs(store, run, head)  # before anything is adopted: then nobody can tell any more
    entries = store.list(Query(run=run))
    oids = [*(entry.oid for entry in reversed(entries)), *([head] if head is not None else [])]
    paths = roster.note_chains(store.repository, by or run, oids)
    if not paths:
        raise CkptError(f"it cannot be noted that run {run} is adopted", hint="see why: git ckpt doctor")
    if by is None:
        known = Roster.read(store.repository, [entry.id for entry in entries])
        new = [(entry.id, entry.oid) for entry in reversed(entries) if not known.has(entry.id, entry.oid)]
        roster.note(store.repository, new, is_apart=True)
    fsync.flush(paths)


def _note_theirs(store: Checkpoints, run: str, head: str | None) -> None:
    """Notes with the worktrees of a run, which stand where the run was before others have gone on with it, what those lack."""
    ours = _ours(store, run)
    if ours is None or ours.oid == head:
        return
    # A commit or a save in the worktree after a fetch is not in the chain, nor is what a full disk has left out of it: the files are here.
    entries = store.list(Query(run=run))
    here = Roster.read(store.repository, [entry.id for entry in entries])
    theirs = [entry.id for entry in entries if not (here.has(entry.id, entry.oid) or here.is_ours(entry))]
    if theirs:
        ownership.note_behind(store.repository, run, ours.id, theirs[0])


def refusal(store: Checkpoints, checkpoint: Checkpoint, account: Sequence[str]) -> Untrusted:
    """Returns the error that something is not gone on from, with what decides."""
    short, run = checkpoint.id[: ids.SHORT], checkpoint.run
    if run is None and checkpoint.pipeline is None:
        error = roster.replaced(checkpoint.id, "; if you trust what came: --trust")
        return Untrusted(error.message, account, hint=str(error.hint))
    if run is None:
        return Untrusted(
            f"checkpoint {short} says what drives a run, and is of none: it was not written in this repository",
            account,
            hint="if you trust it: --trust",
        )
    ours = _ours(store, run)
    if ours is None and checkpoint.imported is not None:
        return Untrusted(
            f"what drives run {run} is from the file {checkpoint.imported.path}, which anybody may have written",
            account,
            hint=f"if you trust it as it stands: git ckpt resume {run} --trust",
        )
    if ours is None:
        return Untrusted(
            f"run {run} was not written in this repository", account, hint=f"if you trust it as it stands: git ckpt resume {run} --trust"
        )
    way = f"to go on without it: git ckpt remove {short}"
    if store.is_replaced(checkpoint.id):
        way = str(roster.replaced(checkpoint.id).hint)
    return Untrusted(
        f"checkpoint {short} of run {run} was not written in this repository; the newest that was is {ours.id[: ids.SHORT]}",
        account,
        hint=f"{way}; if you trust it: git ckpt resume {run} --trust",
    )


def account(store: Checkpoints, checkpoint: Checkpoint, commands: Sequence[str] = ()) -> list[str]:
    """Returns what decides whether to go on from a checkpoint of somebody else's, a line each: none of it is harmless on a terminal.

    Args:
        checkpoint: the one to go on from.
        commands: what would run, a line each, where that is known.
    """
    ours = _ours(store, checkpoint.run) if checkpoint.run is not None else None
    before = store.read(ours.id) if ours is not None else None
    pipeline = checkpoint.pipeline
    facts = [
        *_titled(f"files that differ from {_name(before)}", _files(store, checkpoint, before)),
        *_titled("operation in progress", [checkpoint.worktree.operation] if checkpoint.worktree and checkpoint.worktree.operation else []),
        *_titled("state" if before is None else f"state that differs from {_name(before)}", _state(checkpoint, before)),
    ]
    if pipeline is not None:
        facts += [
            *_titled("phases that it calls complete", pipeline.completed),
            *_titled("inputs", _inputs(store, checkpoint, pipeline)),
            *_titled("pauses", [pipeline.autonomy] if pipeline.autonomy else []),
        ]
    return [*facts, *_titled("commands that would run", commands, every=True)]


def _name(before: Checkpoint | None) -> str:
    return "the commit that is checked out" if before is None else f"checkpoint {before.id[: ids.SHORT]}"


def _ours(store: Checkpoints, run: str) -> Entry | None:
    """Returns the newest checkpoint of a run that was written here."""
    return next(written_here(store, Query(run=run)), None)


def _titled(title: str, lines: Iterable[str], *, every: bool = False) -> list[str]:
    """Returns lines below a title; nothing where there are none."""
    found = [line if len(line) <= _LONG else f"{line[:_LONG]}… ({len(line)} characters)" for line in lines]
    shown = found if every else found[:_MANY]
    more = [f"  … and {len(found) - len(shown)} more"] if len(found) > len(shown) else []
    return [f"{title}:", *(f"  {line}" for line in shown), *more] if found else []


def _files(store: Checkpoints, checkpoint: Checkpoint, before: Checkpoint | None) -> list[str]:
    if checkpoint.imported is not None and not checkpoint.git_sha:
        return []  # it begins with what is checked out
    here = (before.tree, before.git_sha) if before is not None else (None, store.objects.head()[0])
    try:
        trees = comparison.comparable(store.repository, store.objects, here, (checkpoint.tree, checkpoint.git_sha))
        return [str(one) for one in diff.differences(store.repository, *trees)]
    except (WorktreeError, GitError) as error:
        return [f"cannot be told: {error.message}"]


def _state(checkpoint: Checkpoint, before: Checkpoint | None) -> list[str]:
    changes = jsonable.compare(dict(before.state) if before is not None else {}, dict(checkpoint.state))
    return [f"{each.pointer} is gone" if each.is_removed else f"{each.pointer} = {_text(each.new)}" for each in changes]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _inputs(store: Checkpoints, checkpoint: Checkpoint, pipeline: Pipeline) -> list[str]:
    """Returns the inputs of a run; of those that are files how their copies begin, and whether they are what their digests say."""
    found, copies = [], _copies(store, checkpoint.tree) if pipeline.contents else {}
    for name, value in pipeline.inputs.items():
        line = f"{name} = {value}"
        if name in pipeline.contents:
            held = next(store.objects.read([copies[name]])) if name in copies else None
            if held is None:
                line += ", of which there is no copy"
            else:
                line += f", whose copy begins {_text(held[1][:200].decode('utf-8', 'replace'))}"
                if hashlib.sha256(held[1]).hexdigest() != pipeline.contents[name]:
                    line += ", which is not what its digest says" + (": it has masked places" if stored.has_masks(held[1]) else "")
        found.append(line)
    return found


def _copies(store: Checkpoints, tree: str | None) -> dict[str, str]:
    """Returns the oids of the copies of inputs that a snapshot holds, by name."""
    found = store.repository.cat_file.info(f"{tree}:{ENTRY.decode()}/{INPUT}") if tree is not None else None
    held = next(store.objects.read([found[0]])) if found is not None else None
    if held is None or held[0] != "tree":
        return {}
    try:
        entries = manifest.decoded(held[1], store.repository, found[0] if found is not None else "")
    except WorktreeError:
        return {}  # of each input it is then said that there is no copy
    return {name.decode("utf-8", "replace"): oid for name, (_, oid) in entries.items()}
