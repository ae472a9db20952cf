"""Write the checkpoints of a run; keep unwritable checkpoints for a later retry."""

from __future__ import annotations

import contextlib
import copy
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from gitckpt.durable.command import process_tree
from gitckpt.durable.run import rewind
from gitckpt.git.command import NO_HOOKS
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import Repository
from gitckpt.model import toml
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import Attempt, Checkpoint, Pipeline, Progress
from gitckpt.model.errors import BusyError, CkptError, NotFoundError, StateError, UsageError
from gitckpt.model.phase import REWOUND, completed_phases_after
from gitckpt.model.values import replace
from gitckpt.store import error_log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import HeldLease, LeaseLost
from gitckpt.store.records import ref_names
from gitckpt.store.records.draft import SuccessorCheckpoint
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.draft import CheckpointDetails

# Seconds to wait for a lock: a git process whose driver was killed ends soon.
PATIENCE = 5.0

_NAMED = 3  # processes that an error names


@contextlib.contextmanager
def lock_run_files(repository: Repository, hold: HeldLease) -> Iterator[None]:
    run = hold.lease.run
    path = os.path.join(repository.make_private_dir(), ref_names.FILES_LOCK.format(run))
    lock = FileLock(path, PATIENCE, is_inherited=True)
    if not lock.acquire() and lock.is_taken:  # ignore a file system without locks
        raise _make_busy_error(run, path)
    try:
        hold.require_lease_held()
        yield
    finally:
        lock.release(delete=True)


def _make_busy_error(run: str, path: str) -> BusyError:
    processes = process_tree.find_processes_with_open_file(path)[:_NAMED]
    process_names = ", ".join(map(process_tree.describe_process, processes)) or "an unknown process"
    pids = " ".join(str(process.pid) for process in processes)
    resume = f"git ckpt resume {run}"
    hint = f"wait until the process ends, then: {resume}"
    if processes:
        hint = f"continue (kill -CONT {pids}) or end (kill -9 {pids}) the process; then: {resume}"
    return BusyError(f"another process restores files of run {run}: {process_names}", hint=hint)


# Seconds after which a file of a new worktree is not racily clean: git can trust its time stamp.
_RACY = 1.5

# Keys of the state that `git ckpt step` may write while a driver runs.
_STEP_KEYS = ("track_id", "blockers", "loop_state")


class _PendingCheckpoint(NamedTuple):
    label: str
    state: Mapping[str, Any]
    capture: bool
    details: CheckpointDetails  # include the id, by which a write that failed late is recognized


class CheckpointWriter:
    def __init__(
        self,
        store: Checkpoints,
        run: str,
        hold: HeldLease,
        files: RunFiles,
        newest: Checkpoint,
        *,
        made_at: float | None,
    ) -> None:
        self._store, self._run, self._hold, self._files = store, run, hold, files
        self.newest = newest
        self.pipeline = newest.pipeline or Pipeline()
        self.completed = dict(self.pipeline.completed)  # phase → id; "" while it is not written
        self.unwritten: list[str] = []
        self._is_report_cleared = False
        self._pending: list[_PendingCheckpoint] = []
        self._tried: set[str] = set()  # ids of pending checkpoints that may have been written
        self._has_written = False  # since the last restore
        self._step_state: dict[str, Any] = {}
        self.limits = store.settings_reader.read_limits().automatic()
        self._made_at = made_at  # when the worktree was created; None if it existed before

    def write_checkpoint(
        self,
        label: str,
        state: Mapping[str, Any],
        *,
        capture: bool = False,
        followed: bool = False,
        **details: Unpack[CheckpointDetails],
    ) -> None:
        """Record the pending checkpoints and this one; with `followed`, it stays pending."""
        details["run"] = self._run
        details.setdefault("id", self._store.new_id())
        details.setdefault("pipeline", self.pipeline)
        attempt, phases = details.get("attempt"), self.pipeline.phases
        progress = details.get("progress") or Progress()
        if attempt is not None and attempt.phase in phases and isinstance(progress, Progress):
            number = phases.index(attempt.phase) + 1
            details["progress"] = replace(progress, current_phase=number, total_phases=len(phases))
        if followed:
            toml.dump_state(dict(state), {})  # raise now if the state can never be written
        self._pending.append(_PendingCheckpoint(label, state, capture, details))
        self._update_completed_phases(label, details)
        if followed:
            return
        self.write_pending()
        if self._pending:
            # The caller may change the state before it is written.
            copied_state = copy.deepcopy(dict(self._pending[-1].state))
            self._pending[-1] = self._pending[-1]._replace(state=copied_state)

    def is_phase_complete(self, phase: str) -> bool:
        pending_labels = [pending.label for pending in self._pending]
        return bool(self.completed.get(phase)) or f"{phase}-complete" in pending_labels

    def write_pending(self) -> None:
        is_queue_empty = not self._pending
        while self._pending:
            label, is_pair = self._pending[0].label, self._can_record_next_two()
            try:
                if not self._dequeue_if_recorded():
                    self._record_first_pending(is_pair=is_pair)
            except LeaseLost:
                raise
            except KeyboardInterrupt:
                self._dequeue_if_recorded()
                raise
            except (StateError, UsageError):
                if is_pair:
                    continue  # try them one by one: the second may be valid
                del self._pending[0]
                raise
            except CkptError as error:
                self._report_unwritten_checkpoint(f"cannot record {label}: {error.message}")
                return
        if not is_queue_empty and not self._is_report_cleared:
            self._clear_unwritten_report()

    def _report_unwritten_checkpoint(self, sentence: str) -> None:
        if self.unwritten[-1:] != [sentence]:
            self.unwritten.append(sentence)
            self._is_report_cleared = False
            run_files.record_unwritten_notes(self._store.repository, self._run, self.unwritten)
            log_error(self._store.repository, sentence)

    def _clear_unwritten_report(self) -> None:
        self.unwritten.clear()
        # Including those of an earlier driver.
        run_files.record_unwritten_notes(self._store.repository, self._run, [])
        self._is_report_cleared = True

    def drop_last_pending_checkpoint(self) -> None:
        checkpoint_id = self._pending[-1].details["id"]
        with contextlib.suppress(NotFoundError):
            self._store.read(checkpoint_id)
            return  # it was written; only the confirmation was lost
        del self._pending[-1]
        self._tried.discard(checkpoint_id)
        if not self._pending:
            self._clear_unwritten_report()

    def log_failures(self, failures: list[str]) -> None:
        for failure in failures:
            log_error(self._store.repository, f"run {self._run}: {failure}")

    def mark_phase_incomplete(self, phase: str) -> None:
        phases = list(self.completed)
        if phase in self.completed:
            self.completed = {name: self.completed[name] for name in phases[: phases.index(phase)]}

    def go_back_to_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.remove_stale_locks()
        with lock_run_files(self._store.repository, self._hold):
            rewind.restore_run_output(self._store, self._files, checkpoint)
            last = self.newest if self._has_written else None
            for safety_id in rewind.restore_commit_and_files(self._store, checkpoint):
                safety = self._store.read(safety_id)
                if last and rewind.is_safety_redundant(self._store, safety, last, checkpoint):
                    self._store.remove([safety_id])
        self._has_written = False

    def remove_stale_locks(self) -> None:
        rewind.remove_stale_locks(self._store.repository, self._run)

    def find_completing_attempt(self, phase: str) -> Attempt | None:
        checkpoint_id = self.completed[phase]
        for pending in self._pending:
            attempt = pending.details.get("attempt")
            if attempt is not None and attempt.ended and pending.label.startswith(f"{phase}-"):
                return attempt
        try:
            attempt = trust.read(self._store, self._run, checkpoint_id).attempt
        except NotFoundError:
            message = f"the checkpoint with the result of phase {phase!r} is gone: {checkpoint_id}"
            hint = f"repeat the phase: git ckpt resume {self._run} --from {shell_quoted(phase)}"
            raise NotFoundError(message, hint=hint) from None
        return attempt if attempt is not None and attempt.phase == phase else None

    def _update_completed_phases(self, label: str, details: CheckpointDetails) -> None:
        pipeline = details.get("pipeline")
        if (details.get("rewound_to") or label == REWOUND) and pipeline is not None:
            self.completed = dict(pipeline.completed)
        self.completed = completed_phases_after(self.completed, label, "")

    def _can_record_next_two(self) -> bool:
        if len(self._pending) < 2 or self._pending[1].capture:
            return False
        # A checkpoint that was tried before may exist already: look it up by itself.
        return self._tried.isdisjoint({pending.details["id"] for pending in self._pending[:2]})

    def _record_first_pending(self, *, is_pair: bool) -> None:
        first, *successors = self._pending[: 1 + is_pair]
        self._tried.update(pending.details["id"] for pending in (first, *successors))
        follower = None
        for second in successors:
            follower = SuccessorCheckpoint(
                second.label, self._add_step_state(second), second.details
            )
        details: Any = {"guard": self._hold, "keeps": _STEP_KEYS, "then": follower, **first.details}
        state = self._add_step_state(first)
        if first.capture or not self._has_written:
            self._refresh_index()
            checkpoint = self._store.save(first.label, state, beside=self._files.added, **details)
        else:
            files = self.newest.worktree
            checkpoint = self._store.record(first.label, state, worktree=files, **details)
        following = follower.checkpoint if follower is not None else None
        self._dequeue_recorded([checkpoint] if following is None else [checkpoint, following])

    def _add_step_state(self, pending: _PendingCheckpoint) -> Mapping[str, Any]:
        is_rewind = pending.details.get("rewound_to")
        return pending.state if is_rewind else {**pending.state, **self._step_state}

    def _dequeue_recorded(self, checkpoints: Sequence[Checkpoint]) -> None:
        del self._pending[: len(checkpoints)]
        self._tried.difference_update(checkpoint.id for checkpoint in checkpoints)
        self.newest = newest = checkpoints[-1]
        self._step_state = {key: newest.state[key] for key in _STEP_KEYS if key in newest.state}
        self._has_written = True
        if newest.pipeline is not None and not self._pending:
            self.pipeline = newest.pipeline
            self.completed = dict(newest.pipeline.completed)

    def _dequeue_if_recorded(self) -> bool:
        checkpoint_id = self._pending[0].details["id"]
        if checkpoint_id not in self._tried:
            return False
        try:
            checkpoint = self._store.read(checkpoint_id)
        except NotFoundError:
            return False
        self._store.heads.move_head_up(self._run)
        self._dequeue_recorded([checkpoint])
        return True

    def _refresh_index(self) -> None:
        # git status reads files that are racily clean each time: see git-update-index(1).
        # So refresh the index once after the worktree was created.
        if self._made_at is not None and time.time() >= self._made_at + _RACY:
            self._made_at = None
            command = ("update-index", "-q", "--refresh")
            self._store.repository.git.run(*NO_HOOKS, *command, ok=(0, 1, 128), locks=True)


def log_error(repository: Repository, sentence: str) -> None:
    try:
        error_log.append_to_log(repository, sentence)
    except CkptError:
        return  # such as a full disk; the driver reports what it cannot write
