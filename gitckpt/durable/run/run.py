"""The public API of runs, which carry out each phase once, even after a crash.

    with Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "…"})
        run.phase("implementation", implement)

If a phase is already complete, `Run.phase` returns its recorded result.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack

from gitckpt.durable.run import attempts, rewind
from gitckpt.durable.run.attempts import USUAL, PhaseOptions, PhaseResult, RunSession
from gitckpt.durable.run.opener import OpenRunOptions, find_or_begin, reopen_run, require_incomplete
from gitckpt.model import arguments
from gitckpt.model.arguments import as_mapping, require_callable, require_text, require_type
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Progress
from gitckpt.model.document import shorten_message
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.phase import REWOUND
from gitckpt.model.runstate import REWINDING, rewind_message
from gitckpt.model.values import replace
from gitckpt.store.records import ref_names
from gitckpt.store.runs import trust
from gitckpt.store.store import Store, checkpoints_of_store


class Run:
    """A run that this process drives; the end of its `with` block completes the run."""

    def __init__(self, session: RunSession, remarks: Sequence[str] = ()) -> None:
        self._session, self._writer = session, session.writer
        self._store, self._remarks = Store(session.store), remarks
        self._pauses = False
        self._lock = threading.RLock()  # reentrant: a phase may call methods of its run

    @classmethod
    def start(
        cls,
        store: Store,
        name: str,
        *,
        key: str | None = None,
        base: str = "HEAD",
        state: Mapping[str, Any] | None = None,
        adapter: str = "auto",
    ) -> Self:
        """Start and drive a run in a new worktree, or resume the run started with `key`.

        A resumed run keeps its name, base and state. Raises NotFoundError if the revision `base`
        does not exist, LeaseHeld if another process drives the run, RunComplete (with `results`)
        if the run is complete, or WorktreeError if its worktree cannot be opened.
        """
        first_state = as_mapping("state", state)
        checkpoint, _ = find_or_begin(
            checkpoints_of_store(store), name, key=key, base=base, state=first_state
        )
        return cls.resume(store, str(checkpoint.run), adapter=adapter)

    @classmethod
    def begin(
        cls,
        store: Store,
        name: str,
        *,
        key: str | None = None,
        base: str = "HEAD",
        state: Mapping[str, Any] | None = None,
    ) -> tuple[Checkpoint, bool]:
        """Start a run without driving it, or find the run that was started with `key`.

        Returns the newest checkpoint of the run, and True if the run is new.
        """
        checkpoints = checkpoints_of_store(store)
        first_state = as_mapping("state", state)
        checkpoint, is_new = find_or_begin(checkpoints, name, key=key, base=base, state=first_state)
        if not is_new:
            require_incomplete(checkpoints, checkpoint)
            checkpoints.leases.require_lease_free(str(checkpoint.run))
        return checkpoint, is_new

    @classmethod
    def resume(cls, store: Store, run: str, **options: Unpack[OpenRunOptions]) -> Self:
        """Continue a run in its worktree, which is recreated if missing.

        The option `lease` is the length of the lease in microseconds; `directory` is the path of
        a recreated worktree. Raises NotFoundError, RunComplete (with the `results` of phases),
        Untrusted (another repository recorded the run), LeaseHeld or WorktreeError.
        """
        opening = reopen_run(checkpoints_of_store(store), run, **options)
        return cls(RunSession(opening), opening.remarks)

    @classmethod
    def fork(
        cls,
        store: Store,
        checkpoint: Checkpoint | str,
        name: str | None = None,
        **options: Unpack[OpenRunOptions],
    ) -> Self:
        """Start and drive a new run at a checkpoint; the checkpoint's run stays unchanged.

        Raises the errors of `Store.read`, Untrusted or WorktreeError.
        """
        fork = cls.begin_fork(store, checkpoint, name, trust=options.get("trust", False))
        return cls.resume(store, str(fork.run), **options)

    @classmethod
    def begin_fork(
        cls,
        store: Store,
        checkpoint: Checkpoint | str,
        name: str | None = None,
        *,
        trust: bool = False,
    ) -> Checkpoint:
        """Record and return the first checkpoint of a new run that continues `checkpoint`."""
        checkpoints = checkpoints_of_store(store)
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = store.read(checkpoint)
        return rewind.fork_run(checkpoints, checkpoint, name, trusted=trust)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._exclude_other_threads():
            try:
                if kind is None and not self._pauses:
                    self.finish()
            finally:
                self.close()
        if kind is None and self.unwritten:
            raise make_unwritten_error(self)

    def close(self) -> None:
        """Release the run's lease; an incomplete run can be resumed later."""
        with self._exclude_other_threads():
            self._session.close_and_release_lease()

    def pause(self) -> None:
        """Prevent the end of the `with` block from marking the run as complete."""
        with self._exclude_other_threads():
            self._pauses = True

    def finish(self) -> None:
        """Record that the run is complete."""
        with self._exclude_other_threads():
            self._writer.write_checkpoint(ref_names.RUN_COMPLETE, self.state, trigger=PHASE)

    @property
    def id(self) -> str:
        """Return the run id."""
        return self._session.id

    @property
    def path(self) -> str:
        """Return the path of the run's worktree."""
        return self._session.path

    @property
    def store(self) -> Store:
        """Return the checkpoint store of the run's worktree; `Run.close` closes the store."""
        return self._store

    @property
    def remarks(self) -> Sequence[str]:
        """Return sentences for the user about problems in opening the worktree."""
        return self._remarks

    @property
    def state(self) -> dict[str, Any]:
        """Return the run's state, a dict that phases may change and checkpoints record."""
        return self._session.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        require_type("state", state, dict, "a dict of names to values")
        with self._exclude_other_threads():
            self._session.state = state

    @property
    def last_attempt(self) -> Attempt | None:
        """Return the run's last attempt at any phase; None before the first attempt."""
        return self._session.last_attempt

    @property
    def completed(self) -> Mapping[str, str]:
        """Return a map from each completed phase, in order, to its checkpoint's id."""
        return self._writer.completed

    @property
    def newest(self) -> Checkpoint:
        """Return the newest checkpoint of the run, as far as this process knows."""
        return self._writer.newest

    @property
    def unwritten(self) -> list[str]:
        """Return sentences that say which checkpoints are not written yet, and why."""
        return self._writer.unwritten

    def phase(
        self,
        name: str,
        work: Callable[..., Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        conduct: PhaseOptions = USUAL,
    ) -> Any:
        """Call `work` with the `inputs`, and record and return the result, a JSON value.

        If the phase is complete, the recorded result is returned without a call. Raises Changed
        if the phase completed with other inputs, PhaseBlocked if it crashed too often, LeaseLost,
        or the error of `work`, which is recorded first.
        """

        def action(_: Attempt) -> PhaseResult:
            result = work(**input_values)
            if hasattr(type(result), "__await__"):  # not visible before the call
                if hasattr(result, "close"):
                    result.close()  # avoids the warning about a coroutine that was never awaited
                raise arguments.async_error("work", work)
            return PhaseResult(result)

        with self._exclude_other_threads():
            require_callable("work", work)
            require_type("conduct", conduct, PhaseOptions, "a PhaseOptions")
            input_values = as_mapping("inputs", inputs)
            input_digests = attempts.digest_inputs(input_values)
            return self._session.perform_phase(name, action, inputs=input_digests, conduct=conduct)

    def milestone(
        self,
        *,
        trigger: str = PHASE,
        message: str | None = None,
        progress: Progress | None = None,
        errors: Sequence[str] | None = None,
    ) -> None:
        """Record a checkpoint with the current files and state while a phase runs.

        Raises UsageError outside of a phase, and the errors of `check` if the run must stop.
        """
        with self._exclude_other_threads():
            self._session.milestone(
                trigger=trigger, message=message, progress=progress, errors=errors
            )

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        """Record that a phase is skipped, with its `result` and the reason in `message`."""
        with self._exclude_other_threads():
            attempts.require_valid_phase_name(name)
            number = self._session.attempts.attempts_at(name) + 1
            json_result = attempts.to_json(result)
            self._session.last_attempt = Attempt(name, number, ended="skipped", result=json_result)
            self._session.record_attempt("skipped", message=message)

    def redo(self, name: str, *, record: bool = False) -> None:
        """Mark a phase and all later phases as incomplete; `record` writes a checkpoint."""
        with self._exclude_other_threads():
            require_text("name", name)
            session = self._session
            if record:
                phases = session.attempts.list_phases(self.completed)
                name = attempts.find_phase(name, phases, self.id)
            self._writer.mark_phase_incomplete(name)
            last = self.last_attempt
            if last is not None and last.phase == name:
                # The caller has resolved what blocked the phase.
                status = attempts.FAILED if last.ended in (None, attempts.BLOCKED) else last.ended
                session.last_attempt = replace(last, ended=status, retry_at=None)
            if record:
                self._record_rewind(self.completed, message=shorten_message(f"redo phase {name!r}"))

    def restart(self, name: str) -> None:
        """Restore files and state from the start of a phase; mark the phase as incomplete."""
        with self._exclude_other_threads():
            require_text("name", name)
            start_checkpoint = self._session.attempts.find_first_start(name)
            if start_checkpoint is not None:
                self._writer.go_back_to_checkpoint(start_checkpoint)
                self.state = dict(start_checkpoint.state)
            self.redo(name)

    def rewind(self, checkpoint: Checkpoint | str) -> None:
        """Restore files, state and completed phases of an earlier checkpoint of this run.

        Records a checkpoint of the current files first. Raises the errors of `Store.read`,
        UsageError if the checkpoint belongs to another run, WorktreeError or CkptError.
        """
        with self._exclude_other_threads():
            target = checkpoint
            if not isinstance(target, Checkpoint):
                target = self._session.store.read(target)
            if target.run != self.id:
                owner = "no run" if target.run is None else f"run {target.run}"
                message = f"checkpoint {target.id} belongs to {owner}, not to run {self.id}"
                hint = f"list the checkpoints of the run: git ckpt list --run {self.id}"
                raise UsageError(message, hint=hint)
            target = trust.read(self._session.store, self.id, target.id)
            self._writer.remove_stale_locks()
            rewind.require_restorable(self._session.store, target)
            details: Any = {"trigger": PHASE, "message": rewind_message(target.id)}
            self._writer.write_checkpoint(REWINDING, self.state, capture=True, **details)
            if self.unwritten:  # the current files are not recorded yet, so do not change them
                reason = self.unwritten[-1]
                self._writer.drop_last_pending_checkpoint()
                problem = f"the current files cannot be recorded: {reason}"
                hint = f"fix the cause, then: git ckpt resume {target.id} --rewind"
                raise CkptError(f"cannot rewind run {self.id}: {problem}", hint=hint)
            self._writer.go_back_to_checkpoint(target)
            self.state = dict(target.state)
            attempt = target.attempt
            self._session.last_attempt = attempt if attempt and attempt.ended else None
            completed_phases = target.pipeline.completed if target.pipeline else {}
            self._record_rewind(completed_phases, rewound_to=target.id)

    def check(self) -> None:
        """Raise Cancelled, DeadlineReached or LeaseLost if the run must stop."""
        self._session.check()

    def wait(self, seconds: float) -> None:
        """Wait a number of seconds; raise the errors of `check` if the run must stop."""
        self._session.wait(seconds)

    @contextlib.contextmanager
    def _exclude_other_threads(self) -> Iterator[None]:
        # Another thread gets an error at once: waiting would hide that phases have an order.
        if not self._lock.acquire(blocking=False):
            message = f"another thread uses run {self.id}: phases of a run cannot run in parallel"
            hint = "call the phases from one thread, or start a run for each thread"
            raise UsageError(message, hint=hint)
        try:
            yield
        finally:
            self._lock.release()

    def _record_rewind(self, completed: Mapping[str, str], **details: Any) -> None:
        pipeline = replace(self._writer.pipeline, completed=dict(completed))
        details["attempt"] = self.last_attempt or Attempt("rewind", ended=attempts.COMPLETE)
        details |= {"trigger": PHASE, "pipeline": pipeline}
        self._writer.write_checkpoint(REWOUND, self.state, capture=True, **details)


def session_of(run: Run) -> RunSession:
    return run._session  # noqa: SLF001 - the only access to it


def make_unwritten_error(run: Run) -> CkptError:
    message = f"cannot write all checkpoints of run {run.id}: {run.unwritten[-1]}"
    return CkptError(message, hint=f"fix the cause, then: git ckpt resume {run.id}")
