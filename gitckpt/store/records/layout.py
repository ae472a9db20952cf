"""Where things are stored: the refs of one checkpoint, and the lines that link it to its commit. Imported by the hook."""

from __future__ import annotations

import os

from gitckpt.git.lock import Lock
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.refs import Update
from gitckpt.model import ids
from gitckpt.model.format.note import link_line
from gitckpt.store import links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import Entry

CHECKPOINTS = links.CHECKPOINTS
TREES = "refs/ckpt/trees/"
OPERATIONS = "refs/keep/ckpt-operations/"
ORIGINALS = "refs/ckpt/originals/"
KEEP = "refs/keep/ckpt/"
RUNS = "refs/ckpt/runs/"
LEASES = "refs/ckpt/leases/"
KEYS = "refs/ckpt/keys/"
NOTES = links.NOTES

HOLDERS = (TREES, OPERATIONS, ORIGINALS)
"""Where each checkpoint has refs of its own that keep alive what it needs, in write order."""

OWN = ("refs/checkpoints", "refs/ckpt", "refs/keep/ckpt", "refs/keep/ckpt-operations")
"""The namespaces of ours. Below the first, others have refs, too: `is_foreign`. The rest of `refs/keep` is theirs."""

_MANY = 2000
"""Of so many objects, or more, it pays to have git read ahead."""

RUN_STARTED = "run-started"
"""The phase label of the first checkpoint of a run."""

RUN_COMPLETE = "run-complete"
"""The phase label that ends a run; a run whose newest checkpoint has another one is unfinished."""

SAFETY_COMPLETE = "safety-complete"
"""The phase label of what is recorded before files are replaced."""

UNDO_FILE = "ckpt-undo"
"""In a worktree's administrative directory: names the checkpoint that `undo` goes back to."""

RUN_FILE = "ckpt-run"
"""In a worktree's administrative directory: names the run that the worktree belongs to, and the checkpoint it was made from."""

BEHIND_FILE = "ckpt-behind"
"""Beside that: names the checkpoint that the worktree stands at, where its run goes on from one that was fetched, and that one."""

SUBMODULES_FILE = "ckpt-submodules"
"""In a worktree's administrative directory: its submodules are still to be made."""

WRITE_LOCK = "write.lock"
"""In the private directory: held by whoever writes refs of ours."""

PATIENCE = 10.0
"""How long whoever holds it is waited for, in seconds; then one goes on without: what protects the data is the old value in each update."""

MAINTAINED = "maintained"
"""In the private directory: its time is when maintenance last started; its line says when it ended, and how."""

LEVELS = "levels"
"""In the private directory, where four are too few: how many levels a new holder gets (`git.objects.holder`)."""

MAINTENANCE_LOCK = "maintenance.lock"
"""In the private directory: held while tasks of the background are at work."""

DRIVER = "driver"
"""In the private directory: how the names of the lock files of drivers begin (`store.leases.lock_files`)."""

FILES_LOCK = "files.{}.lock"
"""In the private directory, while files are brought into the worktree of a run, whose id stands in the middle."""


def turn(repository: Repository, patience: float | None = None) -> Lock:
    """Returns the lock of writers.

    Args:
        patience: how long it is waited for, in seconds; by default `PATIENCE`.
    """
    return Lock(os.path.join(repository.make_private_dir(), WRITE_LOCK), PATIENCE if patience is None else patience)


def link_lines(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Returns the note lines of checkpoints, by commit; those that have none are left out."""
    lines: dict[str, list[str]] = {}
    for entry in entries:
        if entry.git_sha:
            lines.setdefault(entry.git_sha, []).append(link_line(entry.id, entry.label, entry.timestamp))
    return lines


def is_foreign(ref: str) -> bool:
    """Tells whether a ref below `refs/checkpoints/` belongs to another tool: ours are named by a UUID."""
    return ref.startswith(CHECKPOINTS) and not ids.is_id(ref.removeprefix(CHECKPOINTS))


def new_refs(made: Sequence[tuple[dict[str, Any], str]], head: str, kept: Update | None) -> list[Update]:
    """Returns the updates that make checkpoints, in write order: first what they need, last the head of their run.

    Args:
        made: keys and oid of each document; where there are several, they follow one another in a run.
        head: the blob that the run's head points to now; "" where the run starts, or there is none.
        kept: what keeps their commit; None where they have none.
    """
    updates = []
    for fields, _ in made:
        files, imported = fields.get("worktree") or {}, fields.get("imported") or {}
        held = zip(HOLDERS, (files.get("tree"), files.get("operation_commit"), imported.get("original")), strict=True)
        updates += [Update(space + fields["id"], oid, "") for space, oid in held if oid]
    if kept is not None:
        updates.append(kept)
    updates += [Update(CHECKPOINTS + fields["id"], blob, "") for fields, blob in made]
    fields, blob = made[-1]
    if fields.get("run"):
        updates.append(Update(RUNS + fields["run"], blob, head))
    return updates


def roots(fields: dict[str, Any]) -> list[str]:
    """Returns the oids of what a checkpoint with these keys leans on: the linked commit first."""
    files = fields.get("worktree") or {}
    return [oid for oid in (fields["git_sha"], files.get("tree"), files.get("operation_commit")) if oid]


def documents(repository: Repository, objects: Objects, oids: Sequence[str]) -> Iterator[tuple[str, bytes] | None]:
    """Yields kind and content of each of some objects; of many through git, which reads ahead on another processor.

    Args:
        oids: full ones.
    """
    from gitckpt.model.format import budget

    if len(oids) < _MANY:
        yield from objects.read(oids)
        return
    for oid, found in zip(oids, repository.cat_file.contents(oids, budget.DOCUMENT.size), strict=True):
        if found is not None and found[1] == OVERSIZED:
            yield from objects.read([oid])
        else:
            yield found[1:] if found is not None else None


def document(found: tuple[str, bytes] | None, ref: str, oid: str, *, lack: str = "missing", hint: str | None = None) -> bytes:
    """Returns the document that a ref below `refs/checkpoints/` points to.

    Args:
        found: kind and content of the object that it points to; None where it cannot be read.
        ref: full name of the ref.
        oid: what it points to.
        lack: what is said of an object that cannot be read.
        hint: what to do about that.

    Raises:
        InvalidCheckpoint: it is not there, or no blob.
    """
    from gitckpt.model.errors import InvalidCheckpoint

    if found is None:
        raise InvalidCheckpoint(ref, "", f"its object {oid} is {lack}", hint=hint or "see what is wrong: git ckpt verify")
    kind, data = found
    if kind == OVERSIZED:
        raise InvalidCheckpoint(ref, "", "points to an object that is too large for a document")
    if kind != "blob":
        raise InvalidCheckpoint(ref, "", f"points to a {kind}, not to a blob")
    return data


def run_head(found: tuple[str, bytes] | None, ref: str) -> Checkpoint:
    """Returns the checkpoint that a run's head points to.

    Args:
        found: kind and content of the object that the head points to; None where it is missing.
        ref: the head.

    Raises:
        InvalidCheckpoint: it is no checkpoint document of a run.
    """
    from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
    from gitckpt.model.readers.codec import decode

    hint = "the head of the run is damaged; mend it: git ckpt verify --repair"
    if found is None or found[0] != "blob":
        raise InvalidCheckpoint(ref, "", "does not point to a checkpoint document", hint=hint)
    try:
        newest = decode(found[1], ref)
    except NewerCheckpoint:
        raise
    except InvalidCheckpoint as error:
        raise error.but(hint=hint) from None
    if newest.sequence is None:
        raise InvalidCheckpoint(ref, "sequence", "missing", hint=hint)
    return newest


def require_free(repository: Repository, checkpoint_id: str) -> None:
    """Raises `UsageError` where refs of a checkpoint with this id are there: nobody's being faster will ever change that."""
    patterns = [space + checkpoint_id for space in (CHECKPOINTS, *HOLDERS)]
    refs = repository.git.run("for-each-ref", "--format=%(refname)", *patterns).out.decode("utf-8", "replace").split()
    if not refs:
        return
    from gitckpt.model.errors import UsageError

    if CHECKPOINTS + checkpoint_id in refs:
        hint = f"see it: git ckpt show {checkpoint_id}; leave the id out to get a fresh one"
        raise UsageError(f"there is a checkpoint {checkpoint_id} already", hint=hint) from None
    raise UsageError(
        f"the id {checkpoint_id} is taken: {refs[0]} is there, though no checkpoint is",
        hint="leave the id out to get a fresh one; to clear leftovers: git ckpt verify --repair",
    ) from None
