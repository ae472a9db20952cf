"""Write a checkpoint: first its objects, then all its refs in one transaction."""

from __future__ import annotations

import os
import time
from _thread import RLock  # `threading` would cost the hook 2 ms
from functools import partial

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
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

    from gitckpt.git.objects.writer import Item, Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Progress
    from gitckpt.store.records.keys import Claim

    Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]  # must not modify its input
    ProgressOf: TypeAlias = Callable[[Mapping[str, Any]], Progress | None]
    Flush: TypeAlias = Callable[[], None] | None
    Drafts: TypeAlias = Sequence[tuple["Proposal", bytes]]

    class Guard(Protocol):
        """The lease that a writer must hold while its transaction is applied."""

        drives: bool  # whether the writer is the driver, not a process that the driver started

        def update(self) -> Update:
            """Return the update that fails the transaction if the lease was replaced."""

        def check(self) -> None:
            """Raise `LeaseLost` if another process holds the lease: a retry would fail, too."""


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
    """A checkpoint to record; `document` is called again if another writer was faster."""

    fields: dict[str, Any]  # keys of the document; `document` adds the keys that depend on the run
    state: dict[str, Any] | None  # None: copied from the run's newest checkpoint
    starts_run: bool = False
    guard: Guard | None = None
    claim: Claim | None = None
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

    def document(self, previous: dict[str, Any] | None, carried: dict[str, Any]) -> bytes:
        """Render the document, given the keys and state of the run's newest checkpoint."""
        self.fields.update(self._initial)
        if self.fields.get("run") is not None:
            self.fields["sequence"] = ((previous or {}).get("sequence") or 0) + 1
            self.fields["parent"] = previous["id"] if previous else None
            from gitckpt.model import phase  # outside of runs, nothing is carried on

            phase.carry_tables(self.fields, previous or {})
        if self.change is not None:
            carried = self.change(carried)
        if self.state is not None and self.fields.get("rewound_to") is None:
            # `carried` is empty if this store wrote last.
            self.state.update((key, carried[key]) for key in self.keeps if key in carried)
        return document.render(self.fields, carried if self.state is None else self.state)

    def first_updates(self) -> list[Update]:
        updates = [self.guard.update()] if self.guard is not None else []
        return updates + (self.claim.updates(self.fields["run"]) if self.claim else [])


class Recorder:
    def __init__(self, repository: Repository, objects: Objects, refs: Refs) -> None:
        self._repository, self._objects, self._refs = repository, objects, refs
        self._newest: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = RLock()  # guards the cached values

    def record(
        self, proposal: Proposal, then: Sequence[Proposal] = (), needs: Sequence[str] = ()
    ) -> None:
        """Write a checkpoint and its successors `then`; flush them and objects `needs`.

        Raises `FilesPruned`, and `RefMoved` if other writers were faster for `PATIENCE` seconds.
        """
        deadline = time.monotonic() + PATIENCE
        attempt = 0
        with self._mutex, ref_names.write_lock(self._repository):
            while True:
                attempt += 1
                head, previous, carried = self._read_head(proposal)
                drafts = [(proposal, proposal.document(previous, carried))]
                for following in then:
                    last = drafts[-1][0]
                    drafts.append((following, following.document(last.fields, last.state or {})))
                try:
                    blob = self._write(drafts, head, needs, is_retry=attempt > 1)
                    if proposal.fields.get("run"):
                        self._newest[proposal.fields["run"]] = blob, dict(drafts[-1][0].fields)
                    return
                except RefMoved as error:
                    # Check all drafts: the check of a lease or an id raises a clearer error.
                    may_succeed = [self._may_succeed(draft, error, attempt) for draft, _ in drafts]
                    if not all(may_succeed) or time.monotonic() > deadline:
                        raise
                # Jitter; importing `random` takes 5 ms.
                time.sleep(os.urandom(1)[0] / 256 * 0.002 * min(attempt, 20))

    def _may_succeed(self, proposal: Proposal, error: RefMoved, attempt: int) -> bool:
        if proposal.guard is not None:
            proposal.guard.check()
        fields = proposal.fields
        if attempt == 1 or fields["id"] in error.message:
            ref_names.require_free(self._repository, fields["id"])
        exists = self._repository.cat_file.info
        return not (proposal.starts_run and exists(ref_names.RUNS + fields["run"]))

    def _read_head(self, proposal: Proposal) -> tuple[str, dict[str, Any] | None, dict[str, Any]]:
        """Return oid ("" for none), keys and (if needed) state of the run's newest one."""
        if (run := proposal.fields.get("run")) is None or proposal.starts_run:
            return "", None, {}
        ref = ref_names.RUNS + run
        if (head := self._refs.read(ref)) is None:
            raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")
        last_oid, previous = self._newest.get(run, ("", {}))
        state: dict[str, Any] = {}
        newest = None
        if lines := local_checkpoints.oids_after(self._repository, run, head):
            # Perhaps a writer was killed before the head moved.
            from gitckpt.store.records import heads

            newest = heads.find_head(lines, run, self._objects, self._refs)
        if newest is not None or last_oid != head or proposal.state is None:
            from gitckpt.model.codec import document_fields as fields_of

            newest = newest or ref_names.run_head(next(self._objects.read([head])), ref)
            previous, state = fields_of(newest), dict(newest.state)
        return head, previous, state

    def _write(self, drafts: Drafts, head: str, needs: Sequence[str], *, is_retry: bool) -> str:
        first, repository = drafts[0][0], self._repository
        run, commit = first.fields.get("run"), first.fields["git_sha"]
        format_ = repository.object_format
        documents = [(draft.fields, object_id("blob", data, format_)) for draft, data in drafts]
        line = commit_refs.Line(repository, commit, is_retry=is_retry) if commit else None
        # The store is valid after each of these updates, in order; the checkpoint's ref is last.
        updates = first.first_updates()
        updates += ref_names.new_refs(documents, head, line.update if line is not None else None)
        needed: list[Item] = [("blob", data) for _, data in drafts]
        if commit:  # before the refs: a kill leaves an extra line
            lines = [note.format_link(n["id"], n["phase"], n["timestamp"]) for n, _ in documents]
            notes.append(repository, {commit: lines})
        flushed = any((new.get("worktree") or {}).get("operation") for new, _ in documents)
        ids = [(new["id"], oid) for new, oid in documents]
        local_checkpoints.append(repository, ids, is_apart=first.is_apart, flushed=flushed)
        self._objects.write(needed, flushed=False)
        noted: list[str] = []
        if run and first.is_ours:
            drives = first.guard is not None and first.guard.drives
            oids = [oid for _, oid in documents]
            noted = local_checkpoints.extend(repository, run, head, oids, drives=drives)
        flush: Flush = partial(self._objects.flush, needs, noted)
        if len(needs) >= _MANY:
            self._objects.flush(needs, noted)
            flush = None
        try:
            self._apply(updates, line, flush)
        except GitError:
            if not (missing := self._find_missing(updates)):
                raise
            if (first.fields.get("worktree") or {}).get("tree") in missing:
                raise FilesPruned from None
            self._objects.write(needed)
            self._apply(updates, line, flush)
        if self._find_missing(updates):
            self._objects.write(needed)
        if line is not None:
            line.follow_up(self._refs.update)
        return documents[-1][1]

    def _find_missing(self, updates: Sequence[Update]) -> list[str]:
        # `git gc --prune=now` may delete objects before refs point to them.
        needed = [update.new for update in updates if update.new]
        return [oid for oid in needed if self._repository.cat_file.info(oid) is None]

    def _apply(self, updates: list[Update], line: commit_refs.Line | None, flush: Flush) -> None:
        try:
            self._refs.update(updates, flush)
        except (LockHeld, GitError) as error:
            if line is None or line.update not in updates:
                raise
            if not commit_refs.is_blocked(line.update.ref, error):
                raise
            updates.remove(line.update)  # maintenance creates the ref later
            self._refs.update(updates, flush)
