"""Trust: a foreign run continues only after the user approves it.

`gitckpt.store.local_checkpoints` lists what was written here, and never fetched checkpoints.
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

# How many files, values or phases are shown; the rest are counted.
_MANY = 20
# How many characters of a value are shown.
_LONG = 2000


class Untrusted(UsageError):
    """A checkpoint to continue from was not written here.

    Args:
        account: what to consider before trusting it, a line each.
        hint: the command to run next.
    """

    def __init__(self, message: str, account: Sequence[str], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(account)


def is_ours(store: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint was written or adopted here.

    Outside of runs, a checkpoint without a pipeline counts as local unless it was replaced.
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
    """Return a checkpoint that a local run depends on; a fetch may have replaced it.

    It is of this run, or of one that it continues.

    Raises:
        NotFoundError, Untrusted: it is gone, or was not written here.
    """
    ref = layout.CHECKPOINTS + checkpoint_id
    oid = store.refs.read(ref) if ids.is_id(checkpoint_id) else None
    if oid is None:
        return store.read(checkpoint_id)  # raises the error
    checkpoint = codec.decode(layout.document(next(store.objects.read([oid])), ref, oid), ref)
    if not any(roster.knows(store.repository, each, oid) for each in (run, checkpoint.run) if each is not None):
        raise refusal(store, checkpoint, [])
    return checkpoint


def written_here(store: Checkpoints, query: Query) -> Iterator[Entry]:
    """Yield the run checkpoints that match a query and were written or adopted here."""
    return (entry for entry in store.list(query) if entry.run is not None and roster.knows(store.repository, entry.run, entry.oid))


def adopt(store: Checkpoints, run: str, head: str | None = None, *, by: str | None = None) -> None:
    """Adopt the existing checkpoints of a run; later fetched ones are foreign again.

    Args:
        head: the oid that its head points to, as shown to the user.
        by: the run that continues from it, if the run itself stays foreign.
    """
    if by is None:
        _note_theirs(store, run, head)  # first: adoption makes them indistinguishable
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
    """Record which foreign checkpoints the worktrees of a run, still behind, lack."""
    newest = _ours(store, run)
    if newest is None or newest.oid == head:
        return
    # Local saves after a fetch, and saves lost to a full disk, are not in the chain, but their
    # files are here.
    entries = store.list(Query(run=run))
    known = Roster.read(store.repository, [entry.id for entry in entries])
    theirs = [entry.id for entry in entries if not (known.has(entry.id, entry.oid) or known.is_ours(entry))]
    if theirs:
        ownership.note_behind(store.repository, run, newest.id, theirs[0])


def refusal(store: Checkpoints, checkpoint: Checkpoint, account: Sequence[str]) -> Untrusted:
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
    """Describe what to consider before continuing from a foreign checkpoint, by line.

    The lines are not escaped for a terminal. `commands` would run, if known.
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
    return next(written_here(store, Query(run=run)), None)


def _titled(title: str, lines: Iterable[str], *, every: bool = False) -> list[str]:
    found = [line if len(line) <= _LONG else f"{line[:_LONG]}… ({len(line)} characters)" for line in lines]
    shown = found if every else found[:_MANY]
    more = [f"  … and {len(found) - len(shown)} more"] if len(found) > len(shown) else []
    return [f"{title}:", *(f"  {line}" for line in shown), *more] if found else []


def _files(store: Checkpoints, checkpoint: Checkpoint, before: Checkpoint | None) -> list[str]:
    if checkpoint.imported is not None and not checkpoint.git_sha:
        return []  # it starts from the current checkout
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
    """Describe the inputs of a run; of files also how their copies begin."""
    lines, copies = [], _copies(store, checkpoint.tree) if pipeline.contents else {}
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
        lines.append(line)
    return lines


def _copies(store: Checkpoints, tree: str | None) -> dict[str, str]:
    found = store.repository.cat_file.info(f"{tree}:{ENTRY.decode()}/{INPUT}") if tree is not None else None
    held = next(store.objects.read([found[0]])) if found is not None else None
    if held is None or held[0] != "tree":
        return {}
    try:
        entries = manifest.decoded(held[1], store.repository, found[0] if found is not None else "")
    except WorktreeError:
        return {}  # each input is then reported to have no copy
    return {name.decode("utf-8", "replace"): oid for name, (_, oid) in entries.items()}
