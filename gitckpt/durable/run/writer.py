"""Write the checkpoints of a run; keep and retry what cannot be written."""

from __future__ import annotations

import contextlib
import copy
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.command import process_tree
from gitckpt.durable.run import rewind
from gitckpt.git.command import NO_HOOKS
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository
from gitckpt.model import toml
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import Attempt, Checkpoint, Pipeline, Progress
from gitckpt.model.errors import BusyError, CkptError, NotFoundError, StateError, UsageError
from gitckpt.model.phase import REWOUND, completed_after
from gitckpt.model.values import replace
from gitckpt.store import log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import Hold, LeaseLost
from gitckpt.store.records import layout
from gitckpt.store.records.draft import Successor
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from gitckpt.store.records.draft import Details


# Seconds to wait for another holder: a git whose driver was killed ends soon.
PATIENCE = 5.0

_NAMED = 3


class FilesLock:
    """Excludes other processes from the files of a run. A context manager.

    Raises BusyError, which names the processes that hold the lock, or LeaseLost.
    """

    def __init__(self, repository: Repository, hold: Hold) -> None:
        self._path = os.path.join(repository.make_private_dir(), layout.FILES_LOCK.format(hold.lease.run))
        self._lock = Lock(self._path, PATIENCE, is_inherited=True)
        self._hold = hold

    def __enter__(self) -> None:
        if not self._lock.acquire() and self._lock.is_taken:  # ignore a file system without locks
            raise _busy(self._hold.lease.run, self._path)
        try:
            self._hold.check()
        except BaseException:
            self._lock.release(delete=True)
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release(delete=True)


def _busy(run: str, path: str) -> BusyError:
    remaining = process_tree.holders(path)
    numbers = " ".join(str(process.pid) for process in remaining[:_NAMED])
    who = ", ".join(process_tree.describe(process) for process in remaining[:_NAMED]) or "a process that is not to be seen from here"
    hint = f"let it go on, if it was stopped (kill -CONT {numbers}), or end it (kill -9 {numbers}); then: git ckpt resume {run}"
    message = f"files of run {run} are being brought back, over what the next attempt would write: by {who}"
    return BusyError(message, hint=hint if remaining else f"when it has ended: git ckpt resume {run}")


# Seconds; git cannot tell by time stamps whether younger files changed.
_GRAIN = 1.5

# Keys of the state that `git ckpt step` writes while the run is driven.
_REPORTED = ("track_id", "blockers", "loop_state")


class Writer:
    """Writes the checkpoints of a run."""

    def __init__(self, store: Checkpoints, run: str, hold: Hold, files: RunFiles, newest: Checkpoint, *, made_at: float | None) -> None:
        self._store = store
        self._run = run
        self._hold = hold
        self._files = files
        self.newest = newest
        self.pipeline = newest.pipeline or Pipeline()
        self.completed = dict(self.pipeline.completed)  # phase → id; "" while it is not written
        self.unwritten: list[str] = []
        self._is_made_good = False
        self._waiting: list[tuple[str, Mapping[str, Any], bool, Details]] = []
        self._tried: set[str] = set()
        self._known = False
        self._reported: dict[str, Any] = {}
        self.limits = store.rules.limits().automatic()
        self._made_at = made_at  # when the worktree was created; None if it existed before

    def write(
        self,
        label: str,
        state: Mapping[str, Any],
        *,
        capture: bool = False,
        followed: bool = False,
        **details: Unpack[Details],
    ) -> None:
        """Record a checkpoint after the pending ones.

        Args:
            capture: whether files may have changed since the last checkpoint.
            followed: wait for the next checkpoint and share its transaction; else call `flush`.
            details: further keys of the document.

        Raises:
            LeaseLost: another process drives the run.
            StateError, UsageError: the checkpoint can never be written.
        """
        details["run"] = self._run
        # The id shows after an error whether the checkpoint was written.
        details.setdefault("id", self._store.new_id())
        details.setdefault("pipeline", self.pipeline)
        attempt = details.get("attempt")
        if attempt is not None and attempt.phase in self.pipeline.phases:
            number = self.pipeline.phases.index(attempt.phase) + 1
            progress = details.get("progress")
            progress = progress if isinstance(progress, Progress) else Progress()  # else the record is refused
            details["progress"] = replace(progress, current_phase=number, total_phases=len(self.pipeline.phases))
        if followed:
            toml.dump_state(dict(state), {})  # raise now if the state can never be written
        self._waiting.append((label, state, capture, details))
        self._note(label, details)
        if followed:
            return
        self.flush()
        if self._waiting:
            last = self._waiting[-1]
            # The caller may change the state before it is written.
            self._waiting[-1] = (last[0], copy.deepcopy(dict(last[1])), *last[2:])

    def has_ended(self, phase: str) -> bool:
        """Return whether the completion of a phase is recorded or pending."""
        return bool(self.completed.get(phase)) or any(label == f"{phase}-complete" for label, *_ in self._waiting)

    def flush(self) -> None:
        while self._waiting:
            label = self._waiting[0][0]
            together = self._go_together()
            try:
                if not self._drop_written():
                    self._record_first(together=together)
            except LeaseLost:
                raise
            except KeyboardInterrupt:
                self._drop_written()
                raise
            except (StateError, UsageError):
                if together:
                    continue  # one at a time: the other may be valid
                del self._waiting[0]
                raise
            except CkptError as error:
                sentence = f"{label} could not be recorded: {error.message}"
                if not self.unwritten or self.unwritten[-1] != sentence:
                    self.unwritten.append(sentence)
                    self._is_made_good = False
                    run_files.note(self._store.repository, self._run, self.unwritten)
                    append_log(self._store.repository, sentence)
                return
            if not self._waiting and not self._is_made_good:
                self.unwritten.clear()
                run_files.note(self._store.repository, self._run, [])  # including notes of an earlier driver
                self._is_made_good = True

    def withdraw(self) -> None:
        """Drop the last unwritten checkpoint, which announces an aborted action.

        Otherwise it would be written as soon as there is disk space.
        """
        checkpoint_id = self._waiting[-1][3]["id"]
        with contextlib.suppress(NotFoundError):
            self._store.read(checkpoint_id)
            return  # it was written; only the confirmation was lost
        del self._waiting[-1]
        self._tried.discard(checkpoint_id)
        if not self._waiting:
            self.unwritten.clear()
            run_files.note(self._store.repository, self._run, [])

    def notice(self, failures: list[str]) -> None:
        for failure in failures:
            append_log(self._store.repository, f"run {self._run}: {failure}")

    def reopen(self, phase: str) -> None:
        """Mark a phase and those completed after it as incomplete, in memory."""
        names = list(self.completed)
        if phase in self.completed:
            self.completed = {name: self.completed[name] for name in names[: names.index(phase)]}

    def go_back(self, checkpoint: Checkpoint) -> None:
        """Restore the files of an earlier checkpoint, after a safety checkpoint."""
        self.remove_locks()
        with FilesLock(self._store.repository, self._hold):
            rewind.take_output_back(self._store, self._files, checkpoint)
            recorded = self.newest if self._known else None
            for safety in rewind.go_back(self._store, checkpoint):
                if recorded is not None and rewind.is_held(self._store, self._store.read(safety), recorded, checkpoint):
                    self._store.remove([safety])
        self._known = False

    def remove_locks(self) -> None:
        rewind.remove_locks(self._store.repository, self._run)

    def bring_back(self, checkpoint_id: str) -> None:
        self.go_back(trust.read(self._store, self._run, checkpoint_id))

    def ended(self, phase: str) -> Attempt | None:
        """Return the attempt that completed a phase; None if unknown."""
        checkpoint_id = self.completed[phase]
        for label, _, _, details in self._waiting:
            attempt = details.get("attempt")
            if attempt is not None and label.startswith(f"{phase}-") and attempt.ended:
                return attempt
        try:
            attempt = trust.read(self._store, self._run, checkpoint_id).attempt
        except NotFoundError:
            raise NotFoundError(
                f"the checkpoint that holds the result of phase {phase!r} is gone: {checkpoint_id}",
                hint=f"do the phase again: git ckpt resume {self._run} --from {shell_word(phase)}",
            ) from None
        return attempt if attempt is not None and attempt.phase == phase else None

    def _note(self, label: str, details: Details) -> None:
        pipeline: Pipeline | None = details.get("pipeline")
        if (details.get("rewound_to") or label == REWOUND) and pipeline is not None:
            self.completed = dict(pipeline.completed)
        self.completed = completed_after(self.completed, label, "")

    def _go_together(self) -> bool:
        # A checkpoint that was tried before may exist already: look it up by itself.
        first, *others = self._waiting[:2]
        return bool(others) and not others[0][2] and not self._tried.intersection((first[3]["id"], others[0][3]["id"]))

    def _record_first(self, *, together: bool) -> None:
        self._tried.update(each[3]["id"] for each in self._waiting[: 1 + together])
        then = None
        label, state, capture, details = self._waiting[0]
        if together:
            then = Successor(self._waiting[1][0], self._told(self._waiting[1][1], self._waiting[1][3]), self._waiting[1][3])
        how: Any = {"guard": self._hold, "keeps": _REPORTED, "then": then, **details}
        state = self._told(state, details)
        if capture or not self._known:
            self._refresh()
            made = self._store.save(label, state, beside=self._files, **how)
        else:
            made = self._store.record(label, state, worktree=self.newest.worktree, **how)
        self._adopt([made, *([then.made] if then is not None and then.made is not None else [])])

    def _told(self, state: Mapping[str, Any], details: Details) -> Mapping[str, Any]:
        return state if details.get("rewound_to") else {**state, **self._reported}

    def _adopt(self, made: Sequence[Checkpoint]) -> None:
        del self._waiting[: len(made)]
        self._tried.difference_update(checkpoint.id for checkpoint in made)
        newest = made[-1]
        self._reported = {key: newest.state[key] for key in _REPORTED if key in newest.state}
        self._known = True
        self.newest = newest
        if newest.pipeline is not None and not self._waiting:
            self.pipeline = newest.pipeline
            self.completed = dict(newest.pipeline.completed)

    def _drop_written(self) -> bool:
        """Adopt the first pending checkpoint if it was written before an error."""
        checkpoint_id = self._waiting[0][3]["id"]
        if checkpoint_id not in self._tried:
            return False
        try:
            made = self._store.read(checkpoint_id)
        except NotFoundError:
            return False
        self._store.heads.move_up(self._run)
        self._adopt([made])
        return True

    def _refresh(self) -> None:
        # git status reads files as young as the index again each time: see "racy git" in
        # git-update-index(1). Refresh the index once after the worktree was created.
        if self._made_at is None or time.time() < self._made_at + _GRAIN:
            return
        self._made_at = None
        self._store.repository.git.run(*NO_HOOKS, "update-index", "-q", "--refresh", ok=(0, 1, 128), locks=True)


def append_log(repository: Repository, sentence: str) -> None:
    try:
        log.append(repository, sentence)
    except CkptError:
        return  # such as a full disk; the driver reports what it cannot write
