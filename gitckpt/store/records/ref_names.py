"""Names of gitckpt's refs and files, and the refs of a new checkpoint."""

from __future__ import annotations

import os

from gitckpt.git.lock import Lock
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.refs import Update
from gitckpt.model import ids
from gitckpt.model.note import format_link
from gitckpt.model.values import dataclass
from gitckpt.store import notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gitckpt.git.objects.writer import Item, Items, Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import CheckpointInfo

CHECKPOINTS = notes.CHECKPOINTS
TREES = "refs/ckpt/trees/"
OPERATIONS = "refs/keep/ckpt-operations/"
ORIGINALS = "refs/ckpt/originals/"
KEEP = "refs/keep/ckpt/"
RUNS = "refs/ckpt/runs/"
LEASES = "refs/ckpt/leases/"
KEYS = "refs/ckpt/keys/"
NOTES = notes.NOTES

# Namespaces with refs that keep a checkpoint's objects alive, in write order.
OBJECTS = (TREES, OPERATIONS, ORIGINALS)

# Namespaces of gitckpt. Other tools also write to the first (`is_foreign`) and to refs/keep.
OWN = ("refs/checkpoints", "refs/ckpt", "refs/keep/ckpt", "refs/keep/ckpt-operations")
_MANY = 2000  # from this number of objects on, git reads ahead

# Phase labels.
RUN_STARTED = "run-started"  # first checkpoint of a run
RUN_COMPLETE = "run-complete"  # last checkpoint of a run; without it, the run is unfinished
SAFETY_COMPLETE = "safety-complete"  # recorded before files are replaced

# Files in a worktree's administrative directory.
UNDO_FILE = "ckpt-undo"  # the checkpoint that `undo` returns to
RUN_FILE = "ckpt-run"  # JSON: run and checkpoint that the worktree was created for
BEHIND_FILE = "ckpt-behind"  # ids of the newest local checkpoint and the adopted fetched one
SUBMODULES_FILE = "ckpt-submodules"  # exists until the submodules are checked out

# Files in the private directory.
WRITE_LOCK = "write.lock"  # held while refs of gitckpt are written
MAINTAINED = "maintained"  # mtime: last start of maintenance; line: its end and result
MAINTENANCE_LOCK = "maintenance.lock"  # held during background tasks
DRIVER = "driver"  # prefix of drivers' lock files (`leases.LockFiles`)
FILES_LOCK = "files.{}.lock"  # held while files are restored into the worktree of the run `{}`

# Seconds to wait for `WRITE_LOCK`. Writers then go on without it: old values in updates protect.
PATIENCE = 10.0


def write_lock(repository: Repository, patience: float | None = None) -> Lock:
    """Return the lock that writers of refs hold; `patience` is in seconds."""
    path = os.path.join(repository.make_private_dir(), WRITE_LOCK)
    return Lock(path, PATIENCE if patience is None else patience)


def link_lines(entries: Iterable[CheckpointInfo]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for entry in entries:
        if entry.git_sha:
            line = format_link(entry.id, entry.label, entry.timestamp)
            lines.setdefault(entry.git_sha, []).append(line)
    return lines


def is_own(ref: str) -> bool:
    return ref.startswith(CHECKPOINTS) and ids.is_id(ref.removeprefix(CHECKPOINTS))


def is_foreign(ref: str) -> bool:
    """Return whether a ref in `refs/checkpoints/` is foreign: its name is no UUID."""
    return ref.startswith(CHECKPOINTS) and not ids.is_id(ref.removeprefix(CHECKPOINTS))


def new_refs(
    documents: Sequence[tuple[dict[str, Any], str]], head: str, keep: Update | None
) -> list[Update]:
    """Return the updates that create checkpoints: object refs first, run head last.

    `documents` are pairs of keys and oid, `head` is the run head's old oid or "".
    """
    updates = []
    for fields, _ in documents:
        files, imported = fields.get("worktree") or {}, fields.get("imported") or {}
        oids = (files.get("tree"), files.get("operation_commit"), imported.get("original"))
        pairs = zip(OBJECTS, oids, strict=True)
        updates += [Update(space + fields["id"], oid, "") for space, oid in pairs if oid]
    if keep is not None:
        updates.append(keep)
    updates += [Update(CHECKPOINTS + fields["id"], blob, "") for fields, blob in documents]
    fields, blob = documents[-1]
    if fields.get("run"):
        updates.append(Update(RUNS + fields["run"], blob, head))
    return updates


def documents(repository: Repository, objects: Objects, oids: Sequence[str]) -> Items:
    """Yield (kind, content) of each object, None for missing ones; git may read ahead."""
    from gitckpt.model import budget

    if len(oids) < _MANY:
        yield from objects.read(oids)
        return
    contents = repository.cat_file.contents(oids, budget.DOCUMENT.size)
    for oid, content in zip(oids, contents, strict=True):
        if content is not None and content[1] == OVERSIZED:
            yield from objects.read([oid])
        else:
            yield content[1:] if content is not None else None


def document(content: Item | None, ref: str, oid: str, *, lack: str = "missing") -> bytes:
    """Return the document that a ref points to, given its object (kind, bytes)."""
    from gitckpt.model.errors import InvalidCheckpoint

    if content is None:
        hint = "find the cause: git ckpt verify"
        raise InvalidCheckpoint(ref, "", f"the object {oid} is {lack}", hint=hint)
    kind, data = content
    if kind == OVERSIZED:
        raise InvalidCheckpoint(ref, "", "points to an object that is too large for a document")
    if kind != "blob":
        raise InvalidCheckpoint(ref, "", f"points to a {kind}, not to a blob")
    return data


def run_head(content: Item | None, ref: str) -> Checkpoint:
    from gitckpt.model.codec import decode
    from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint

    hint = "repair the head of the run: git ckpt verify --repair"
    if content is None or content[0] != "blob":
        raise InvalidCheckpoint(ref, "", "does not point to a checkpoint document", hint=hint)
    try:
        newest = decode(content[1], ref)
    except NewerCheckpoint:
        raise
    except InvalidCheckpoint as error:
        raise error.but(hint=hint) from None
    if newest.sequence is None:
        raise InvalidCheckpoint(ref, "sequence", "missing", hint=hint)
    return newest


def require_free(repository: Repository, checkpoint_id: str) -> None:
    patterns = [space + checkpoint_id for space in (CHECKPOINTS, *OBJECTS)]
    output = repository.git.run("for-each-ref", "--format=%(refname)", *patterns).out
    if not (refs := output.decode("utf-8", "replace").split()):
        return
    from gitckpt.model.errors import UsageError

    omit = "omit the id to get a new one"
    if CHECKPOINTS + checkpoint_id in refs:
        problem = f"a checkpoint {checkpoint_id} exists already"
        raise UsageError(problem, hint=f"to see it: git ckpt show {checkpoint_id}; or {omit}")
    problem = f"no checkpoint has the id {checkpoint_id}, but a leftover ref exists: {refs[0]}"
    raise UsageError(problem, hint=f"{omit}, or delete leftovers: git ckpt verify --repair")


@dataclass(frozen=True, slots=True)
class Owner:
    """The checkpoint and run that a worktree was created for, from `RUN_FILE`."""

    checkpoint: str
    run: str | None


def owner_in(git_dir: str) -> Owner | None:
    """Read the owner of a worktree; None if gitckpt did not create the worktree."""
    path = os.path.join(git_dir, RUN_FILE)
    if not os.path.exists(path):
        return None
    import json

    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return Owner(fields["checkpoint"], fields.get("run"))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
