"""Write a checkpoint: first the objects, then all refs in one transaction."""

from __future__ import annotations

import os
import time
from _thread import RLock  # `threading` would cost the hook 2 ms
from functools import partial

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, RefUpdate
from gitckpt.model import document, note
from gitckpt.model.errors import BusyError, NotFoundError
from gitckpt.model.values import dataclass, field
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.records import commit_refs, ref_names

# The hook imports this: nothing heavy.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any, Protocol, TypeAlias

    from gitckpt.git.objects.writer import Item, ObjectDatabase
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Progress
    from gitckpt.store.records.keys import KeyClaim

    Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]  # must not modify its input
    ProgressOf: TypeAlias = Callable[[Mapping[str, Any]], Progress | None]
    Flush: TypeAlias = Callable[[], None] | None
    Drafts: TypeAlias = Sequence[tuple["Proposal", bytes]]

    class LeaseGuard(Protocol):
        """The lease that a writer must hold while its transaction is applied."""

        drives: bool  # whether the writer is the driver, not a process that the driver started

        def make_lease_update(self) -> RefUpdate:
            """Return a ref update that makes the transaction fail if the lease is lost."""

        def require_lease_held(self) -> None:
            """Raise `LeaseLost` if another process holds the lease."""


PATIENCE = 30.0  # seconds to retry against other writers
# Flush this many objects or more before locking refs: other writers must not wait for the flush.
_MANY = 64


class FilesPruned(BusyError):
    def __init__(self) -> None:
        problem = "the captured files vanished before they could be recorded"
        problem += ": git gc --prune=now ran"
        super().__init__(problem, hint="wait until git gc ends, then run the command again")


@dataclass(slots=True)
class Proposal:
    """A checkpoint to record; each attempt to record it calls `render` again."""

    fields: dict[str, Any]  # keys of the document; `render` adds the keys that depend on the run
    state: dict[str, Any] | None  # None: copied from the run's newest checkpoint
    starts_run: bool = False
    guard: LeaseGuard | None = None
    claim: KeyClaim | None = None
    # If `state` is None: turns the previous state into the new one, and may modify `fields`.
    change: Change | None = None
    # Keys of the state whose newer values, written by another process, replace those in `state`.
    keeps: Collection[str] = ()
    # Whether the run may continue from this checkpoint without --trust: not if it was imported.
    is_ours: bool = True
    is_apart: bool = False  # whether its files are not from the current worktree
    _initial: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._initial = {name: self.fields.get(name) for name in ("pipeline", "attempt")}

    def render_document(self, previous: dict[str, Any] | None, carried: dict[str, Any]) -> bytes:
        self.fields.update(self._initial)
        if self.fields.get("run") is not None:
            self.fields["sequence"] = ((previous or {}).get("sequence") or 0) + 1
            self.fields["parent"] = previous["id"] if previous else None
            from gitckpt.model import phase  # outside of runs, nothing is carried on

            phase.copy_run_tables(self.fields, previous or {})
        if self.change is not None:
            carried = self.change(carried)
        if self.state is not None and self.fields.get("rewound_to") is None:
            # `carried` is empty if this store wrote last.
            self.state.update((key, carried[key]) for key in self.keeps if key in carried)
        return document.render_document(self.fields, carried if self.state is None else self.state)

    def list_guard_updates(self) -> list[RefUpdate]:
        updates = [self.guard.make_lease_update()] if self.guard is not None else []
        return updates + (self.claim.make_key_updates(self.fields["run"]) if self.claim else [])


class CheckpointRecorder:
    def __init__(self, repository: Repository, objects: ObjectDatabase, refs: Refs) -> None:
        self._repository, self._objects, self._refs = repository, objects, refs
        self._newest: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = RLock()  # guards the cached values

    def record_proposals(
        self, proposal: Proposal, then: Sequence[Proposal] = (), needs: Sequence[str] = ()
    ) -> None:
        """Write a checkpoint and its successors (`then`); flush the objects (`needs`)."""
        deadline = time.monotonic() + PATIENCE
        attempt = 0
        with self._mutex, ref_names.write_lock(self._repository):
            while True:
                attempt += 1
                head_oid, newest_fields, newest_state = self._read_run_head(proposal)
                drafts = [(proposal, proposal.render_document(newest_fields, newest_state))]
                for successor in then:
                    latest = drafts[-1][0]
                    content = successor.render_document(latest.fields, latest.state or {})
                    drafts.append((successor, content))
                try:
                    blob = self._write_documents(drafts, head_oid, needs, is_retry=attempt > 1)
                    if proposal.fields.get("run"):
                        self._newest[proposal.fields["run"]] = blob, dict(drafts[-1][0].fields)
                    return
                except RefMoved as error:
                    # Check all drafts: the check of a lease or an id raises a clearer error.
                    may_succeed = [self._may_retry(draft, error, attempt) for draft, _ in drafts]
                    if not all(may_succeed) or time.monotonic() > deadline:
                        raise
                # Jitter; importing `random` takes 5 ms.
                time.sleep(os.urandom(1)[0] / 256 * 0.002 * min(attempt, 20))

    def _may_retry(self, proposal: Proposal, error: RefMoved, attempt: int) -> bool:
        if proposal.guard is not None:
            proposal.guard.require_lease_held()
        fields = proposal.fields
        if attempt == 1 or fields["id"] in error.message:
            ref_names.require_unused_id(self._repository, fields["id"])
        exists = self._repository.cat_file.info
        return not (proposal.starts_run and exists(ref_names.RUNS + fields["run"]))

    def _read_run_head(
        self, proposal: Proposal
    ) -> tuple[str, dict[str, Any] | None, dict[str, Any]]:
        if (run := proposal.fields.get("run")) is None or proposal.starts_run:
            return "", None, {}
        ref = ref_names.RUNS + run
        if (head_oid := self._refs.read_ref(ref)) is None:
            raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")
        last_oid, newest_fields = self._newest.get(run, ("", {}))
        newest_state: dict[str, Any] = {}
        newest = None
        if oid_lines := local_checkpoints.list_oids_after(self._repository, run, head_oid):
            # Perhaps a writer was killed before the head moved.
            from gitckpt.store.records import heads

            newest = heads.find_run_head(oid_lines, run, self._objects, self._refs)
        if newest is not None or last_oid != head_oid or proposal.state is None:
            from gitckpt.model.codec import document_fields as fields_of

            newest = newest or ref_names.parse_run_head(next(self._objects.read([head_oid])), ref)
            newest_fields, newest_state = fields_of(newest), dict(newest.state)
        return head_oid, newest_fields, newest_state

    def _write_documents(
        self, drafts: Drafts, head: str, needs: Sequence[str], *, is_retry: bool
    ) -> str:
        first, repository = drafts[0][0], self._repository
        run, commit = first.fields.get("run"), first.fields["git_sha"]
        format_ = repository.object_format
        documents = [(draft.fields, object_id("blob", data, format_)) for draft, data in drafts]
        keep = commit_refs.KeepRef(repository, commit, is_retry=is_retry) if commit else None
        # The store is valid after each of these updates, in order; the checkpoint's ref is last.
        updates = first.list_guard_updates()
        updates += ref_names.plan_refs(documents, head, keep.update if keep is not None else None)
        objects: list[Item] = [("blob", data) for _, data in drafts]
        if commit:  # before the refs: a kill leaves an extra line
            note_lines = [
                note.format_note_line(n["id"], n["phase"], n["timestamp"]) for n, _ in documents
            ]
            notes.queue_links(repository, {commit: note_lines})
        has_operation = any((keys.get("worktree") or {}).get("operation") for keys, _ in documents)
        id_pairs = [(keys["id"], oid) for keys, oid in documents]
        local_checkpoints.append_lines(
            repository, id_pairs, is_apart=first.is_apart, flushed=has_operation
        )
        self._objects.write(objects, flushed=False)
        paths_to_flush: list[str] = []
        if run and first.is_ours:
            is_driver = first.guard is not None and first.guard.drives
            oids = [oid for _, oid in documents]
            paths_to_flush = local_checkpoints.extend_run_file(
                repository, run, head, oids, drives=is_driver
            )
        flush: Flush = partial(self._objects.flush, needs, paths_to_flush)
        if len(needs) >= _MANY:
            self._objects.flush(needs, paths_to_flush)
            flush = None
        try:
            self._apply(updates, keep, flush)
        except GitError:
            if not (missing_oids := self._find_missing_objects(updates)):
                raise
            if (first.fields.get("worktree") or {}).get("tree") in missing_oids:
                raise FilesPruned from None
            self._objects.write(objects)
            self._apply(updates, keep, flush)
        if self._find_missing_objects(updates):
            self._objects.write(objects)
        if keep is not None:
            keep.delete_parent_refs(self._refs.apply_updates)
        return documents[-1][1]

    def _find_missing_objects(self, updates: Sequence[RefUpdate]) -> list[str]:
        # `git gc --prune=now` may delete objects before refs point to them.
        new_oids = [update.new for update in updates if update.new]
        return [oid for oid in new_oids if self._repository.cat_file.info(oid) is None]

    def _apply(
        self, updates: list[RefUpdate], keep: commit_refs.KeepRef | None, flush: Flush
    ) -> None:
        try:
            self._refs.apply_updates(updates, flush)
        except (LockHeld, GitError) as error:
            if keep is None or keep.update not in updates:
                raise
            if not commit_refs.is_blocked(keep.update.ref, error):
                raise
            updates.remove(keep.update)  # maintenance creates the ref later
            self._refs.apply_updates(updates, flush)
