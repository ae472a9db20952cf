"""Writes one checkpoint: objects, then all its refs in one transaction, then a look whether the objects are still there.

Used by the library and by the hook, so it imports nothing heavy. The order of the updates is the safety: every prefix of it is a valid
store, and the checkpoint's own ref is the commit point.
"""

from __future__ import annotations

import os
import time
from _thread import RLock  # `threading` would cost the hook 2 ms

from gitckpt.git.lock import Lock
from gitckpt.git.notes import Notes
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.model import document
from gitckpt.model.errors import BusyError, NotFoundError, UsageError
from gitckpt.store.records import keep, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, Protocol, TypeAlias

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint, Progress

    Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
    ProgressOf: TypeAlias = Callable[[Mapping[str, Any]], Progress | None]

    class Guard(Protocol):
        """What a transaction depends on: the lease of a run."""

        def update(self) -> Update:
            """Returns what the transaction begins with."""

        def check(self) -> None:
            """Raises `LeaseLost` if it can never succeed again."""

    class Claim(Protocol):
        """What a run that starts claims for itself: its key."""

        def updates(self, run: str) -> list[Update]:
            """Returns what the transaction begins with; raises `RunExists` where another run has it."""


LOCK_FILE = "write.lock"
PATIENCE = 30.0
"""How long a record is tried against other writers, in seconds."""

_STEP = "step"
_LOCK_PATIENCE = 10.0
_LINK_TRIES = 20

LINK_INTERVAL = 1.0
"""Links go out with their checkpoint; in a burst only this often, in seconds. Those put off follow with a later one."""


class FilesPruned(BusyError):
    """The files were captured, and their objects taken by a `git gc --prune=now` before a ref held them; nothing was recorded."""


class Recorder:
    """Writes checkpoints.

    Args:
        repository: where.
        objects: its objects.
        update: applies ref updates in one transaction: `Refs.update`, or a process for each.
    """

    def __init__(self, repository: Repository, objects: Objects, update: Callable[[list[Update]], None]) -> None:
        self._repository = repository
        self._objects = objects
        self._update = update
        self.notes = Notes(repository, objects, layout.NOTES)
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        self._pending_links: dict[str, list[str]] = {}
        self._linked_at = float("-inf")
        self._turn = RLock()  # what it remembers belongs to one thread at a time

    def record(
        self,
        fields: dict[str, Any],
        state: dict[str, Any] | None,
        instant: int,
        *,
        starts_run: bool = False,
        guard: Guard | None = None,
        claim: Claim | None = None,
        change: Change | None = None,
        keeps: Collection[str] = (),
    ) -> str:
        """Writes a checkpoint, flushed to the disk.

        Args:
            fields: the document's keys; where `run` is given, `sequence` and `parent` are filled in, and `pipeline` and `attempt`
                are carried on.
            state: the caller's data; None carries the state of the run's newest checkpoint on.
            instant: now, in microseconds since the epoch.
            starts_run: whether `run` must not exist yet.
            guard: the lease that must be held when the refs are written.
            claim: the key that the run starts with.
            change: makes the state of the one that the run's newest checkpoint has at that moment, where `state` is None; it may change
                `fields`, is called again when others were faster, and what it raises is raised here.
            keeps: keys of the state that others write, too: where somebody has extended the run since this recorder did, what they say
                goes into `state`, in place of what it says itself.

        Returns:
            The oid of the document.

        Raises:
            LeaseLost: somebody else drives the run by now.
            RunExists: another run has the key.
            StateError: the state cannot be stored losslessly.
            NotFoundError: `run` does not exist.
            UsageError: a checkpoint, or something in the place of one of its refs, has the id.
            RefMoved: `run` exists already, though it should start here; or other writers were faster for `PATIENCE` seconds.
            LockHeld: a lock file stayed in the way.
            FilesPruned: the snapshot is gone.
            GitError: the objects or refs could not be written.
        """
        deadline = time.monotonic() + PATIENCE
        attempt = 0
        own = {name: fields.get(name) for name in ("pipeline", "attempt")}
        with self._turn, self._lock():
            due = time.monotonic() - self._linked_at >= LINK_INTERVAL
            while True:
                attempt += 1
                fields.update(own)
                head, carried = self._take_place(fields, starts_run=starts_run, with_state=state is None)
                if change is not None:
                    carried = change(carried)
                if state is not None and fields.get("rewound_to") is None:
                    state.update((key, carried[key]) for key in keeps if key in carried)  # without any, where we were the last to write
                data = document.render(fields, carried if state is None else state)
                try:
                    blob = self._write(fields, data, head, instant, with_links=due and attempt <= _LINK_TRIES, guard=guard, claim=claim)
                    if fields.get("run"):
                        self._written[fields["run"]] = blob, dict(fields)
                    return blob
                except RefMoved as error:
                    if guard is not None:
                        guard.check()
                    if attempt == 1 or fields["id"] in error.message:
                        self._require_free(fields["id"])
                    taken = starts_run and self._repository.cat_file.info(layout.RUNS + fields["run"]) is not None
                    if taken or time.monotonic() > deadline:
                        raise
                except LockHeld as error:
                    if layout.NOTES not in error.path:
                        raise
                    attempt = _LINK_TRIES
                time.sleep(os.urandom(1)[0] / 256 * 0.002 * min(attempt, 20))  # jitter; importing `random` takes 5 ms

    def write_links(self, instant: int, links: dict[str, list[str]] | None = None) -> None:
        """Writes the links that were put off, and others.

        Args:
            instant: now, in microseconds since the epoch.
            links: more note lines by commit.

        Raises:
            BusyError, GitError: they could not be written; they stay pending.
        """
        deadline = time.monotonic() + PATIENCE
        with self._turn:
            self._pending_links = _joined(self._pending_links, links or {})
            if self._pending_links:
                self._write_pending(instant, deadline)

    def _write_pending(self, instant: int, deadline: float) -> None:
        with self._lock():
            while True:
                updates: list[Update] = []
                self._objects.write([], self._link(self._pending_links, updates, instant))
                try:
                    self._update(updates)
                except RefMoved:
                    if time.monotonic() > deadline:
                        raise
                else:
                    self._pending_links = {}
                    return

    def _lock(self) -> Lock:
        return Lock(os.path.join(self._repository.make_private_dir(), LOCK_FILE), _LOCK_PATIENCE)

    def _take_place(self, fields: dict[str, Any], *, starts_run: bool, with_state: bool) -> tuple[str, dict[str, Any]]:
        """Fills in the place in the run; returns the blob that is the run's head now ("" where there is none), and its state if wanted."""
        run = fields.get("run")
        if run is None:
            return "", {}
        if starts_run:
            fields.update(sequence=1, parent=None)
            _carry(fields, {})
            return "", {}
        ref = layout.RUNS + run
        found = self._repository.cat_file.info(ref)
        if found is None:
            raise NotFoundError(f"no run {run}", hint="see which runs there are: git ckpt runs")
        written, before = self._written.get(run, ("", {}))
        state: dict[str, Any] = {}
        if written != found[0] or with_state:
            from gitckpt.model.codec import fields as fields_of

            newest = layout.run_head(next(self._objects.read([found[0]])), ref)
            before, state = fields_of(newest), dict(newest.state)
        fields.update(sequence=(before["sequence"] or 0) + 1, parent=before["id"])
        _carry(fields, before)
        return found[0], state

    def _write(
        self,
        fields: dict[str, Any],
        data: bytes,
        head: str,
        instant: int,
        *,
        with_links: bool,
        guard: Guard | None = None,
        claim: Claim | None = None,
    ) -> str:
        blob = object_id("blob", data, self._repository.object_format)
        line = keep.Line(self._repository, fields["git_sha"], has_branch=bool(fields.get("branch"))) if fields["git_sha"] else None
        kept = line.update if line is not None else None
        fences = [*([guard.update()] if guard is not None else []), *(claim.updates(fields["run"]) if claim is not None else [])]
        updates = [*fences, *layout.new_refs(fields, blob, head, kept)]
        needed = [*(line.objects if line is not None else ()), ("blob", data)]
        derived: list[tuple[str, bytes]] = []
        if fields["git_sha"]:
            link = layout.link_line(fields["id"], fields["phase"], fields["timestamp"])
            links = _joined(self._pending_links, {fields["git_sha"]: [link]})
            if with_links:
                derived = self._link(links, updates, instant)
        self._objects.write(needed, derived)
        try:
            self._update(updates)
        except LockHeld as error:
            if line is None or not error.path.endswith(f"/{line.update.ref}.lock"):
                raise
            at = updates.index(line.update)
            updates[at : at + 1] = line.detour()
            self._objects.write(line.objects)
            self._update(updates)
        except GitError:
            gone = [update.new for update in updates if update.new and self._repository.cat_file.info(update.new) is None]
            if not gone:
                raise
            self._require_tree(fields, gone)
            self._objects.write(needed, derived)  # a `gc --prune=now` took them before their refs were there
            self._update(updates)
        if fields["git_sha"]:
            self._pending_links = {} if with_links else links
        if self._repository.cat_file.info(blob) is None:  # a `gc --prune=now` ran between the object and its ref
            self._objects.write(needed, derived)
        if line is not None:
            line.follow_up(self._objects, self._update)
        return blob

    def _require_free(self, checkpoint_id: str) -> None:
        """Raises an error where refs of a checkpoint with this id are there: nobody's being faster will ever change that."""
        patterns = [space + checkpoint_id for space in (layout.CHECKPOINTS, *layout.HOLDERS)]
        refs = self._repository.git.run("for-each-ref", "--format=%(refname)", *patterns).out.decode("utf-8", "replace").split()
        if layout.CHECKPOINTS + checkpoint_id in refs:
            hint = f"see it: git ckpt show {checkpoint_id}; leave the id out to get a fresh one"
            raise UsageError(f"there is a checkpoint {checkpoint_id} already", hint=hint) from None
        if refs:
            raise UsageError(
                f"the id {checkpoint_id} is taken: {refs[0]} is there, though no checkpoint is",
                hint="leave the id out to get a fresh one; to clear leftovers: git ckpt verify --repair",
            ) from None

    @staticmethod
    def _require_tree(fields: dict[str, Any], gone: list[str]) -> None:
        if (fields.get("worktree") or {}).get("tree") in gone:
            raise FilesPruned(
                "the captured files vanished before they could be recorded: somebody ran git gc --prune=now",
                hint="wait for it to end, then run the command again",
            ) from None

    def _link(self, links: dict[str, list[str]], updates: list[Update], instant: int) -> list[tuple[str, bytes]]:
        """Appends the update of the notes ref, and returns the objects it needs."""
        tip = self.notes.tip()
        new_tip, derived = self.notes.edited(
            tip, list(links), lambda commit, lines: lines + [line for line in links[commit] if line not in lines], instant
        )
        if new_tip != tip:
            updates.append(Update(layout.NOTES, new_tip, tip))
        self._linked_at = time.monotonic()
        return derived


class Changing:
    """A change for `Recorder.record` that keeps the checkpoint in step with the state it makes.

    Args:
        checkpoint: as it was drafted.
        fields: its keys, which are going to be written.
        change: makes the new state of the one before; must not change that.
        progress_of: says how far the run has come by the new state; None leaves the table as it was drafted.

    Attributes:
        checkpoint: as it was made last.
        state: as it was made last.
    """

    def __init__(self, checkpoint: Checkpoint, fields: dict[str, Any], change: Change, progress_of: ProgressOf | None) -> None:
        self.checkpoint = checkpoint
        self.state: dict[str, Any] = {}
        self._fields = fields
        self._change = change
        self._progress_of = progress_of
        if progress_of is not None:
            fields["progress"] = None  # its place is before the tables that a run carries on

    def __call__(self, before: dict[str, Any]) -> dict[str, Any]:
        """Makes the new state, and returns it."""
        from dataclasses import replace

        from gitckpt.model import codec
        from gitckpt.store.records import draft

        self.state = self._change(before)
        if self._progress_of is not None:
            self.checkpoint = replace(self.checkpoint, progress=self._progress_of(self.state))
            self._fields["progress"] = codec.fields(self.checkpoint).get("progress")
        draft.require_valid({**self._fields, "sequence": None, "parent": None}, self.state)
        return self.state


def _carry(fields: dict[str, Any], before: dict[str, Any]) -> None:
    """Carries on what drives a run and at which attempt it is; says which of its phases are complete after this checkpoint.

    Args:
        fields: keys of the new checkpoint, changed in place; what they say already stays, less the phases that are complete.
        before: keys of the newest checkpoint of the run until now; none where it starts.
    """
    own, carried = fields.get("pipeline"), before.get("pipeline")
    pipeline = own or carried
    if pipeline is not None:
        from gitckpt.model.phase import completed_after

        label = fields["phase"] if fields["trigger"] != _STEP else ""  # steps of a protocol are no phases of what drives the run
        known = pipeline if carried is None or fields.get("rewound_to") is not None else carried
        after = completed_after(dict(known.get("completed", {})), label, fields["id"])
        fields["pipeline"] = {key: value for key, value in pipeline.items() if key != "completed"} | ({"completed": after} if after else {})
    if fields.get("attempt") is None and before.get("attempt") is not None:
        ended = ("exit_code", "seconds", "output", "result")
        fields["attempt"] = {key: value for key, value in before["attempt"].items() if key not in ended}


def _joined(some: dict[str, list[str]], more: dict[str, list[str]]) -> dict[str, list[str]]:
    return {commit: [*some.get(commit, ()), *more.get(commit, ())] for commit in {**some, **more}}
