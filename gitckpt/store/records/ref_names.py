"""Name gitckpt's refs and files, plan a new checkpoint's refs, and read documents."""

from __future__ import annotations

import os

from gitckpt.git.lock import FileLock
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.refs import RefUpdate
from gitckpt.model import ids
from gitckpt.model.note import format_note_line
from gitckpt.model.values import dataclass
from gitckpt.store import notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gitckpt.git.objects.writer import Item, Items, ObjectDatabase
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
TAGS = "refs/ckpt/tags/"  # a user's names of checkpoints; `PINS` and `TEXTS` have their ids
PINS = "refs/ckpt/pins/"
TEXTS = "refs/ckpt/texts/"
NOTES = notes.NOTES

# Namespaces with refs that keep a checkpoint's objects alive, in write order.
OBJECTS = (TREES, OPERATIONS, ORIGINALS)

LABELS = (TAGS, PINS, TEXTS)

# Namespaces of gitckpt. Other tools also write to the first (`is_foreign`) and to refs/keep.
OWN = ("refs/checkpoints", "refs/ckpt", "refs/keep/ckpt", "refs/keep/ckpt-operations")
_MANY = 2000  # from this number of objects on, git reads ahead

# Phase labels.
RUN_STARTED = "run-started"  # first checkpoint of a run
RUN_COMPLETE = "run-complete"  # last checkpoint of a run; without it, the run is unfinished
SAFETY_COMPLETE = "safety-complete"  # recorded before files are replaced

# Files in a worktree's administrative directory.
LAST_CAPTURE = "ckpt-last-capture"  # what the newest capture of the worktree saw
UNDO_FILE = "ckpt-undo"  # the checkpoint that `undo` returns to
RUN_FILE = "ckpt-run"  # JSON: run and checkpoint that the worktree was created for
BEHIND_FILE = "ckpt-behind"  # ids of the newest local checkpoint and the adopted fetched one
SUBMODULES_FILE = "ckpt-submodules"  # exists until the submodules are checked out

# Files in the private directory.
WRITE_LOCK = "write.lock"  # held while refs of gitckpt are written
MAINTAINED = "maintained"  # mtime: last start of maintenance; line: its end and result
RESCUED = "rescued"  # mtime and line: when linked worktrees were last captured in the background
MAINTENANCE_LOCK = "maintenance.lock"  # held during background tasks
DRIVER = "driver"  # prefix of drivers' lock files (`leases.DriverLockFiles`)
FILES_LOCK = "files.{}.lock"  # held while files are restored into the worktree of the run `{}`

# Seconds to wait for `WRITE_LOCK`. Writers then go on without it: old values in updates protect.
PATIENCE = 10.0


def write_lock(repository: Repository, patience: float | None = None) -> FileLock:
    """Return the lock of all writers of gitckpt's refs; `patience` is in seconds."""
    path = os.path.join(repository.make_private_dir(), WRITE_LOCK)
    return FileLock(path, PATIENCE if patience is None else patience)


def make_link_lines(entries: Iterable[CheckpointInfo]) -> dict[str, list[str]]:
    lines_by_commit: dict[str, list[str]] = {}
    for entry in entries:
        if entry.git_sha:
            line = format_note_line(entry.id, entry.label, entry.timestamp)
            lines_by_commit.setdefault(entry.git_sha, []).append(line)
    return lines_by_commit


def is_uuid_ref(ref: str) -> bool:
    return ref.startswith(CHECKPOINTS) and ids.is_checkpoint_id(ref.removeprefix(CHECKPOINTS))


def is_foreign(ref: str) -> bool:
    """Return whether a ref in `refs/checkpoints/` is another tool's: it has no UUID."""
    return ref.startswith(CHECKPOINTS) and not ids.is_checkpoint_id(ref.removeprefix(CHECKPOINTS))


def plan_refs(
    documents: Sequence[tuple[dict[str, Any], str]], head: str, keep: RefUpdate | None
) -> list[RefUpdate]:
    """Return the updates that create the refs of checkpoints, in the order to apply."""
    updates = []
    for fields, _ in documents:
        worktree, import_ = fields.get("worktree") or {}, fields.get("imported") or {}
        oids = (worktree.get("tree"), worktree.get("operation_commit"), import_.get("original"))
        pairs = zip(OBJECTS, oids, strict=True)
        updates += [RefUpdate(namespace + fields["id"], oid, "") for namespace, oid in pairs if oid]
    if keep is not None:
        updates.append(keep)
    updates += [RefUpdate(CHECKPOINTS + fields["id"], blob, "") for fields, blob in documents]
    fields, blob = documents[-1]
    if fields.get("run"):
        updates.append(RefUpdate(RUNS + fields["run"], blob, head))
    return updates


def read_documents(repository: Repository, objects: ObjectDatabase, oids: Sequence[str]) -> Items:
    """Yield a (kind, content) pair for each object, or None if the object is missing."""
    from gitckpt.model import budget

    if len(oids) < _MANY:
        yield from objects.read(oids)
        return
    contents = repository.cat_file.read_contents(oids, budget.DOCUMENT.size)
    for oid, content in zip(oids, contents, strict=True):
        if content is not None and content[1] == OVERSIZED:
            yield from objects.read([oid])
        else:
            yield content[1:] if content is not None else None


def require_document(content: Item | None, ref: str, oid: str, *, lack: str = "missing") -> bytes:
    from gitckpt.model.errors import InvalidCheckpoint

    if content is None:
        hint = "find the cause: git ckpt verify"
        raise InvalidCheckpoint(ref, "", f"the object {oid} is {lack}", hint=hint)
    kind, data = content
    if kind == OVERSIZED:
        raise InvalidCheckpoint(ref, "", "points to an object larger than any valid document")
    if kind != "blob":
        raise InvalidCheckpoint(ref, "", f"points to a {kind}, not to a blob")
    return data


def parse_run_head(content: Item | None, ref: str) -> Checkpoint:
    from gitckpt.model.codec import decode
    from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint

    hint = "repair the head of the run: git ckpt verify --repair"
    if content is None or content[0] != "blob":
        raise InvalidCheckpoint(ref, "", "does not point to a checkpoint document", hint=hint)
    try:
        checkpoint = decode(content[1], ref)
    except NewerCheckpoint:
        raise
    except InvalidCheckpoint as error:
        raise error.but(hint=hint) from None
    if checkpoint.sequence is None:
        raise InvalidCheckpoint(ref, "sequence", "missing", hint=hint)
    return checkpoint


def require_unused_id(repository: Repository, checkpoint_id: str) -> None:
    patterns = [namespace + checkpoint_id for namespace in (CHECKPOINTS, *OBJECTS)]
    listing = repository.git.run("for-each-ref", "--format=%(refname)", *patterns).out
    if not (refs := listing.decode("utf-8", "replace").split()):
        return
    from gitckpt.model.errors import UsageError

    omit_hint = "omit the id to get a new one"
    if CHECKPOINTS + checkpoint_id in refs:
        problem = f"a checkpoint {checkpoint_id} exists already"
        raise UsageError(problem, hint=f"to see it: git ckpt show {checkpoint_id}; or {omit_hint}")
    problem = f"no checkpoint has the id {checkpoint_id}, but a leftover ref exists: {refs[0]}"
    raise UsageError(problem, hint=f"{omit_hint}, or delete leftovers: git ckpt verify --repair")


@dataclass(frozen=True, slots=True)
class WorktreeOwner:
    """The checkpoint and run for which gitckpt created a worktree, from `RUN_FILE`."""

    checkpoint: str
    run: str | None


def read_worktree_owner(git_dir: str) -> WorktreeOwner | None:
    path = os.path.join(git_dir, RUN_FILE)
    if not os.path.exists(path):
        return None
    import json

    try:
        with open(path, encoding="utf-8") as file:
            owner_fields = json.load(file)
        return WorktreeOwner(owner_fields["checkpoint"], owner_fields.get("run"))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
