"""Write a checkpoint: objects first, then all its refs in one transaction.

The hook uses this, so it imports nothing heavy. The order of the updates makes it safe: after each
prefix of them the store is valid, and the checkpoint's own ref is the commit point.
"""

from __future__ import annotations

import os
import time
from _thread import RLock  # `threading` would cost the hook 2 ms

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.model import document, note
from gitckpt.model.errors import BusyError, NotFoundError
from gitckpt.store import notes, roster
from gitckpt.store.records import keep, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any, Protocol, TypeAlias

    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Progress
    from gitckpt.store.records.keys import Claim

    Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]  # must not modify its input
    ProgressOf: TypeAlias = Callable[[Mapping[str, Any]], Progress | None]

    class Guard(Protocol):
        """A transaction's condition: the lease of a run.

        `drives` is true for the driver's own lease, false for that of a process it started.
        """

        drives: bool

        def update(self) -> Update:
            """Return the first update of the transaction."""

        def check(self) -> None:
            """Raise `LeaseLost` if the transaction can never succeed again."""


PATIENCE = 30.0  # seconds to retry against other writers
# From this number of objects on, flush before locking refs: other writers must not wait for that.
_MANY = 64


class FilesPruned(BusyError):
    """`git gc --prune=now` deleted the captured objects; nothing was recorded."""

    def __init__(self) -> None:
        super().__init__(
            "the captured files vanished before they could be recorded: somebody ran git gc --prune=now",
            hint="wait for it to end, then run the command again",
        )


class Proposal:
    """A checkpoint to record; its document is made again after each lost race.

    Args:
        fields: keys of the document; keys that depend on the run are filled in.
        state: None keeps the state of the run's newest checkpoint.
        change: returns the new state if `state` is None, and may change `fields`. It is called
            again after a lost race.
        keeps: keys of the state that others write too. If another process has extended the run,
            its values replace those of `state`.
        is_ours: whether the run may continue from it without trust; false if its inputs are from
            a foreign file.
        is_apart: whether its files are not those of the present worktree.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        state: dict[str, Any] | None,
        *,
        starts_run: bool = False,
        guard: Guard | None = None,
        claim: Claim | None = None,
        change: Change | None = None,
        keeps: Collection[str] = (),
        is_ours: bool = True,
        is_apart: bool = False,
    ) -> None:
        self.fields = fields
        self.state = state
        self.starts_run = starts_run
        self.guard = guard
        self.claim = claim
        self._change = change
        self.keeps = keeps
        self.is_ours = is_ours
        self.is_apart = is_apart
        self._own = {name: fields.get(name) for name in ("pipeline", "attempt")}

    def document(self, before: dict[str, Any] | None, carried: dict[str, Any]) -> bytes:
        """Return the document that follows `before`, the run's newest checkpoint if any."""
        self.fields.update(self._own)
        if self.fields.get("run") is not None:
            self.fields.update(sequence=(before["sequence"] or 0) + 1 if before else 1, parent=before["id"] if before else None)
            from gitckpt.model import phase  # outside of runs, nothing is carried on

            phase.carry(self.fields, before or {})
        if self._change is not None:
            carried = self._change(carried)
        if self.state is not None and self.fields.get("rewound_to") is None:
            self.state.update((key, carried[key]) for key in self.keeps if key in carried)  # empty if this store wrote last
        return document.render(self.fields, carried if self.state is None else self.state)

    def fences(self) -> list[Update]:
        """Return the first updates of the transaction: lease and key."""
        held = [self.guard.update()] if self.guard is not None else []
        return [*held, *(self.claim.updates(self.fields["run"]) if self.claim is not None else [])]


class Recorder:
    def __init__(self, repository: Repository, objects: Objects, refs: Refs) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        self._line: keep.Line | None = None
        self._turn = RLock()  # guards the cached values

    def record(self, proposal: Proposal, then: Sequence[Proposal] = (), needs: Sequence[str] = ()) -> None:
        """Write a checkpoint and flush it to disk.

        Args:
            then: checkpoints that follow in its run, in the same transaction, with its commit and
                files and their own states.
            needs: objects of the snapshot, to flush before the refs move.

        Raises:
            RefMoved: the run to start exists, or others were faster for `PATIENCE` seconds.
            FilesPruned: the snapshot is gone.
        """
        deadline = time.monotonic() + PATIENCE
        attempt = 0
        with self._turn, layout.turn(self._repository):
            while True:
                attempt += 1
                head, before, carried = self._place(proposal)
                made = [(proposal, proposal.document(before, carried))]
                for each in then:
                    made.append((each, each.document(made[-1][0].fields, made[-1][0].state or {})))
                try:
                    blob = self._write(made, head, needs, again=attempt > 1)
                    if proposal.fields.get("run"):
                        self._written[proposal.fields["run"]] = blob, dict(made[-1][0].fields)
                    return
                except RefMoved as error:
                    hopeless = [each for each, _ in made if not self._may_succeed(each, error, attempt)]
                    if hopeless or time.monotonic() > deadline:
                        raise
                time.sleep(os.urandom(1)[0] / 256 * 0.002 * min(attempt, 20))  # jitter; importing `random` takes 5 ms

    def _may_succeed(self, proposal: Proposal, error: RefMoved, attempt: int) -> bool:
        if proposal.guard is not None:
            proposal.guard.check()
        fields = proposal.fields
        if attempt == 1 or fields["id"] in error.message:
            layout.require_free(self._repository, fields["id"])
        return not (proposal.starts_run and self._repository.cat_file.info(layout.RUNS + fields["run"]) is not None)

    def _place(self, proposal: Proposal) -> tuple[str, dict[str, Any] | None, dict[str, Any]]:
        """Return the run's head ("" for none), its keys, and its state if needed."""
        run = proposal.fields.get("run")
        if run is None or proposal.starts_run:
            return "", None, {}
        ref = layout.RUNS + run
        found = self._refs.read(ref)
        if found is None:
            raise NotFoundError(f"no run {run}", hint="see which runs there are: git ckpt runs")

        written, before = self._written.get(run, ("", {}))
        state: dict[str, Any] = {}
        newest = None
        if noted := roster.noted_after(self._repository, run, found):  # perhaps a writer was killed before the head moved
            from gitckpt.store.records import heads

            newest = heads.recorded_among(noted, run, self._objects, self._refs)
        if newest is not None or written != found or proposal.state is None:
            from gitckpt.model.codec import fields as fields_of

            newest = newest or layout.run_head(next(self._objects.read([found])), ref)
            before, state = fields_of(newest), dict(newest.state)
        return found, before, state

    def _write(
        self,
        made: Sequence[tuple[Proposal, bytes]],
        head: str,
        needs: Sequence[str],
        *,
        again: bool,
    ) -> str:
        fields, commit = made[0][0].fields, made[0][0].fields["git_sha"]
        documents = [(each.fields, object_id("blob", data, self._repository.object_format)) for each, data in made]
        line = self._line_of(commit, again=again) if commit else None
        updates = [*made[0][0].fences(), *layout.new_refs(documents, head, line.update if line is not None else None)]
        needed: list[Item] = [("blob", data) for _, data in made]
        if commit:  # before the refs: a kill leaves an extra line
            lines = [note.link_line(new["id"], new["phase"], new["timestamp"]) for new, _ in documents]
            notes.append(self._repository, {commit: lines})
        flushed = any((new.get("worktree") or {}).get("operation") for new, _ in documents)
        roster.note(self._repository, [(new["id"], oid) for new, oid in documents], is_apart=made[0][0].is_apart, flushed=flushed)
        self._objects.write(needed, flushed=False)
        guard, noted = made[0][0].guard, list[str]()
        if fields.get("run") and made[0][0].is_ours:
            drives = guard is not None and guard.drives
            new = [oid for _, oid in documents]
            noted = roster.extend(self._repository, fields["run"], head, new, drives=drives)

        def flush() -> None:
            self._objects.flush(needs, noted)

        meanwhile: Callable[[], None] | None = flush
        if len(needs) >= _MANY:
            flush()
            meanwhile = None
        try:
            self._apply(updates, line, meanwhile)
        except GitError:
            lost = self._lost(updates)
            if not lost:
                raise
            if (fields.get("worktree") or {}).get("tree") in lost:
                raise FilesPruned from None
            self._objects.write(needed)
            self._apply(updates, line, meanwhile)
        if self._lost(updates):
            self._objects.write(needed)
        if line is not None:
            line.follow_up(self._refs.update)
            self._line = line.recorded()
        return documents[-1][1]

    def _line_of(self, commit: str, *, again: bool) -> keep.Line:
        last, self._line = self._line, None
        if last is not None and last.commit == commit and not again and last.is_as_it_was():
            return last
        return keep.Line(self._repository, commit, again=again)

    def _lost(self, updates: Sequence[Update]) -> list[str]:
        """Return the objects that `git gc --prune=now` deleted before refs held them."""
        return [update.new for update in updates if update.new and self._repository.cat_file.info(update.new) is None]

    def _apply(self, updates: list[Update], line: keep.Line | None, meanwhile: Callable[[], None] | None) -> None:
        """Apply updates in one transaction, without the keep ref if that is blocked."""
        try:
            self._refs.update(updates, meanwhile)
        except (LockHeld, GitError) as error:
            if line is None or line.update not in updates or not keep.is_barred(line.update.ref, error):
                raise
            updates.remove(line.update)  # maintenance creates the ref
            self._refs.update(updates, meanwhile)
