"""A run that this process drives: phases that are done once, whatever happens in between.

    with Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "…"})
        run.phase("implementation", implement)

Every phase is a chain of checkpoints: `<phase>-started`, perhaps `<phase>-progress`, then `<phase>-complete` or `<phase>-failed`. One that
is complete is not done again; its recorded result is returned.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gitckpt.durable.run import next_attempt
from gitckpt.durable.run.attempt import Attempting
from gitckpt.durable.run.background import Attendant, heartbeat
from gitckpt.durable.run.errors import Cancelled, Changed, DeadlineReached, PhaseBlocked
from gitckpt.durable.run.opener import Opening, find_or_begin, reopen
from gitckpt.durable.run.retry import KEEP, USUAL, Conduct, Ended, require_call
from gitckpt.durable.run.writer import Writer
from gitckpt.model import times
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Pipeline, Progress
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.store.leases.lease import LeaseLost
from gitckpt.store.leases.leases import RENEWAL
from gitckpt.store.records import layout
from gitckpt.store.runs import trust
from gitckpt.store.store import Store

if TYPE_CHECKING:
    from typing import Unpack

    from gitckpt.durable.run.opener import How

REWINDING = "rewind-started"
"""The phase label of what is recorded before a run is taken back."""

_SLICE = 0.5
"""How long a wait lasts until somebody looks whether the run shall stop, in seconds."""


class Run:
    """A run that this process drives, from `start` or `resume` to `close`. A context manager: leaving it normally completes the run.

    Args:
        opening: the run, its worktree and its lease.
        sleep: waits for a time in seconds.

    Attributes:
        id: its id.
        path: the top of its worktree.
        store: the store as seen from there.
        state: what its checkpoints carry; a phase may change it.
        last_attempt: the last attempt at a phase.
    """

    def __init__(self, opening: Opening, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.id = opening.run
        self.path = opening.path
        self.store = opening.store
        self.state: dict[str, Any] = dict(opening.newest.state)
        self.files = opening.files
        self.remarks = opening.remarks
        self.hold = opening.hold
        self._opening = opening
        self._sleep = sleep
        self._accepts = opening.accepts_changes
        made_at = time.time() if opening.made else None
        self._writer = Writer(opening.store, opening.run, opening.hold, opening.files, opening.newest, made_at=made_at)
        self.last_attempt: Attempt | None = opening.newest.attempt
        self._heartbeat: Attendant = heartbeat(opening.hold, opening.store.repository, RENEWAL)
        self._heartbeat.__enter__()
        self._attempting: Attempting | None = None
        self._pauses = False
        if opening.newest.phase == REWINDING:  # it was killed while files were brought back
            self._writer.go_back(opening.newest)

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
        """Starts a run in a worktree of its own, and drives it; or, where a run has the key, goes on with that as `resume` does.

        Args:
            store: of the repository.
            name: what it is about; becomes part of its id.
            key: the caller's own name for it, such as "nightly-2026-11-22": however often and by however many processes it is started,
                there is one run. Where there is one, `name`, `base` and `state` are what they were when it began.
            base: the rev that its worktree begins with.
            state: what its checkpoints carry.
            adapter: as for `Store`.

        Raises:
            NotFoundError: there is no such rev.
            WorktreeError: the worktree cannot be made.
            LeaseHeld, UsageError: the run with that key is driven by somebody, or complete.
        """
        newest, _ = find_or_begin(store, name, key=key, base=base, state=state or {})
        return cls.resume(store, str(newest.run), adapter=adapter)

    @classmethod
    def resume(cls, store: Store, run: str, **how: Unpack[How]) -> Self:
        """Goes on with a run, in its worktree, which is made again if it is gone.

        Args:
            store: of the repository.
            run: its id.
            how: as for `reopen`.

        Raises:
            NotFoundError: there is no such run.
            UsageError: it is complete.
            LeaseHeld: somebody who is alive drives it.
            WorktreeError: its worktree cannot be opened.
        """
        return cls(reopen(store, run, **how))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and not self._pauses:
                self.finish()
        finally:
            self.close()
        if kind is None and self.unwritten:
            raise CkptError(
                f"not every checkpoint of run {self.id} could be written: {self.unwritten[-1]}",
                hint=f"remove what is in the way, then: git ckpt resume {self.id}",
            )

    def close(self) -> None:
        """Gives the lease back. What is not complete can be resumed."""
        self._heartbeat.close()
        try:
            self._writer.flush()
            self.store.close()  # writes the links that were put off, while the lease still says that somebody is at it
            self.hold.release()
        except LeaseLost:
            return  # it is somebody else's by now
        except CkptError as error:
            self._writer.notice([f"its lease was not given back: {error.message}"])  # it ends with this process
        finally:
            self._opening.close()

    def pause(self) -> None:
        """Lets the run be left without completing it."""
        self._pauses = True

    def finish(self) -> None:
        """Completes the run."""
        self._writer.write(layout.RUN_COMPLETE, self.state, trigger=PHASE)

    @property
    def completed(self) -> Mapping[str, str]:
        """Phase → the checkpoint that completed it, in order of completion."""
        return self._writer.completed

    @property
    def pipeline(self) -> Pipeline:
        """What drives the run."""
        return self._writer.pipeline

    @property
    def newest(self) -> Checkpoint:
        """Its newest checkpoint that this process knows of."""
        return self._writer.newest

    @property
    def unwritten(self) -> list[str]:
        """The checkpoints that could not be written until now, and why, a sentence each."""
        return self._writer.unwritten

    def phase(
        self,
        name: str,
        work: Callable[..., Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        conduct: Conduct = USUAL,
    ) -> Any:
        """Does a phase, unless it is complete; returns what `work` returned, then or now.

        Args:
            name: of the phase.
            work: called with the inputs by name. It works in the directory `path`, may change `state`, and returns a JSON value.
            inputs: JSON values. They belong to the phase: with other ones it is not the same.
            conduct: how often it is tried, and so on.

        Raises:
            Changed: the phase is complete, but was called with other inputs.
            PhaseBlocked: it crashed too often.
            LeaseLost: somebody else drives the run by now.
            Exception: what `work` raised, after it was recorded.
        """
        given = require_call(work, inputs, conduct)

        def perform(_: Attempt) -> Ended:
            return Ended(work(**given))

        return self.perform(name, perform, inputs=next_attempt.digests(given), conduct=conduct)

    def perform(self, name: str, action: Callable[[Attempt], Ended], *, inputs: Mapping[str, str], conduct: Conduct) -> Any:
        """As `phase`, for an action that knows of its attempt, and digests of its inputs."""
        next_attempt.require_name(name)
        if name in self.completed:
            return self._recorded(name, inputs)
        coming = next_attempt.after(self.last_attempt, name, inputs, number=self._writer.attempts_at(name))
        if coming.crashed and coming.attempt.recoveries > conduct.max_recoveries:
            self._block(coming.attempt, conduct)
        while True:
            self._wait(self.last_attempt)
            self._begin(coming, conduct)
            try:
                return self._attempt(action, conduct)
            except conduct.retry_on as error:
                if (
                    isinstance(error, LeaseLost | Cancelled | PhaseBlocked | DeadlineReached)
                    or self.last_attempt is None
                    or self.last_attempt.retry_at is None
                ):
                    raise
            coming = next_attempt.after(self.last_attempt, name, inputs)

    def milestone(
        self, *, trigger: str = PHASE, message: str | None = None, progress: Progress | None = None, errors: Sequence[str] | None = None
    ) -> None:
        """Records, within a phase, how far it has come: its files and the state.

        After a crash or a failure, the next attempt begins with this state, and where the phase resets its files, with these files.

        Args:
            trigger: what caused the checkpoint.
            message: one line for people.
            progress: how far the phase has come.
            errors: what went wrong since the last one, in order.

        Raises:
            UsageError: no phase is under way.
            Cancelled, DeadlineReached, LeaseLost: the run shall stop, as with `check`.
        """
        if self._attempting is None:
            raise UsageError("a milestone belongs to a phase, and none is under way", hint="call it from the work of a phase")
        self._attempting.milestone(trigger=trigger, message=message, progress=progress, errors=errors)
        self.check()

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        """Records that a phase need not be done.

        Args:
            name: of the phase.
            result: what it returns.
            message: why, one line.
        """
        next_attempt.require_name(name)
        self.last_attempt = Attempt(name, self._writer.attempts_at(name) + 1, ended="skipped", result=next_attempt.to_json(result))
        self._writer.write(f"{name}-skipped", self.state, trigger=PHASE, attempt=self.last_attempt, message=message)

    def redo(self, name: str, forget: Iterable[str] = ()) -> None:
        """Lets a phase be done again, complete or not, with all that were completed after it.

        Args:
            name: of the phase.
            forget: keys of the state that say how far it has come.
        """
        for key in forget:
            self.state.pop(key, None)
        self._writer.reopen(name)
        if self.last_attempt is not None and self.last_attempt.phase == name:
            ended = self.last_attempt.ended
            again = (
                next_attempt.FAILED if ended in (None, next_attempt.BLOCKED) else ended
            )  # whoever asks for it has settled what blocked it
            self.last_attempt = replace(self.last_attempt, ended=again, retry_at=None)

    def revise(self, name: str, revision: str, forget: Iterable[str] = ()) -> None:
        """Lets a phase be done again, with what shall be revised as `revisions` in the state; `forget` as for `redo`."""
        revisions = dict(self.state.get("revisions", {}))
        revisions[name] = "\n\n".join(filter(None, [revisions.get(name, ""), revision]))
        self.state["revisions"] = revisions
        self.redo(name, forget)

    def restart(self, name: str) -> None:
        """Lets a phase be done again, with files and state as they were when it began.

        Raises:
            WorktreeError: the files cannot be brought back.
        """
        began = self._writer.began_first(name)
        if began is not None:
            self._writer.go_back(began)
            self.state = dict(began.state)
        self.redo(name)

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Takes the run back to an earlier checkpoint: its files, its state, and which phases are complete. What is newer is saved first.

        Raises:
            WorktreeError: the files cannot be brought back.
        """
        self._writer.write(REWINDING, self.state, capture=True, trigger=PHASE, message=f"before going back to {checkpoint.id}")
        self._writer.go_back(checkpoint)
        self.state = dict(checkpoint.state)
        pipeline = replace(self.pipeline, completed=checkpoint.pipeline.completed if checkpoint.pipeline else {})
        self.last_attempt = checkpoint.attempt if checkpoint.attempt and checkpoint.attempt.ended else None
        attempt = self.last_attempt or Attempt("rewind", ended=next_attempt.COMPLETE)
        self._writer.write(
            "rewind-complete", self.state, capture=True, trigger=PHASE, pipeline=pipeline, attempt=attempt, rewound_to=checkpoint.id
        )

    def change(self, pipeline: Pipeline) -> None:
        """Lets the next checkpoints say that something else drives the run from now on."""
        if pipeline.inputs:
            trust.vouch(self.store.repository, pipeline)
        self._writer.pipeline = pipeline

    def check(self) -> None:
        """Looks whether the run shall stop; for work that takes long.

        Raises:
            Cancelled: somebody asked for it.
            DeadlineReached: the run took as long as it may.
            LeaseLost: somebody else drives it by now.
        """
        self.hold.check()
        if self.hold.lease.cancelled:
            raise Cancelled(f"run {self.id} was cancelled", hint=f"to go on with it: git ckpt resume {self.id}")
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise DeadlineReached(f"run {self.id} took longer than it may, until {self.pipeline.deadline}")

    def wait(self, seconds: float) -> None:
        """Waits, as long as the run need not stop. Errors: as `check`."""
        until = self.store.clock() + round(seconds * times.MICRO)
        while (left := (until - self.store.clock()) / times.MICRO) > 0:
            self.check()
            self._sleep(min(left, _SLICE))

    def seconds_left(self) -> float | None:
        """Returns how long the run may still take; None for as long as it likes."""
        deadline = self.pipeline.deadline
        return None if deadline is None else (times.from_text(deadline) - self.store.clock()) / times.MICRO

    def has_changed_files(self, attempt: Attempt) -> bool:
        """Tells whether files of the worktree differ from what they were when the phase of an attempt began."""
        return self._writer.differs_from(attempt.began or self._writer.newest.id)

    def _recorded(self, name: str, inputs: Mapping[str, str]) -> Any:
        """Returns the result of a phase that is complete."""
        attempt = self._writer.ended(name)
        if attempt is None:
            return None  # somebody else recorded the phase as complete
        differing = next_attempt.differing(attempt.inputs, inputs, f"phase {name!r}: input")
        if differing and attempt.ended == next_attempt.COMPLETE and not self._accepts:
            raise Changed(self.id, differing)
        return None if attempt.result is None else json.loads(attempt.result)

    def _begin(self, coming: next_attempt.Next, conduct: Conduct) -> None:
        """Records that an attempt begins."""
        self.check()
        attempt = coming.attempt
        if not coming.is_first:
            # Where the last attempt ended orderly and the files have changed since, somebody has worked there.
            resets = conduct.on_resume != KEEP and (coming.crashed or not self._writer.differs_from(self._writer.newest.id))
            attempt = self._writer.prepare_again(attempt, resets=resets)
        self.last_attempt = attempt
        self._writer.count_attempt(attempt)
        self._writer.write(f"{attempt.phase}-started", self.state, trigger=PHASE, attempt=attempt)

    def _attempt(self, action: Callable[[Attempt], Ended], conduct: Conduct) -> Any:
        self._attempting = Attempting(self, self._writer, conduct)
        try:
            return self._attempting.carry_out(action)
        finally:
            self._attempting = None

    def _block(self, attempt: Attempt, conduct: Conduct) -> None:
        """Records that a phase is blocked, and raises `PhaseBlocked`."""
        count = f"{attempt.recoveries} times without anybody having seen why; the limit is {conduct.max_recoveries}"
        message = f"phase {attempt.phase!r} ended {count}"
        self.last_attempt = replace(attempt, number=attempt.number - 1, ended=next_attempt.BLOCKED)
        self._writer.write(f"{attempt.phase}-blocked", self.state, capture=True, trigger=PHASE, attempt=self.last_attempt, errors=[message])
        raise PhaseBlocked(message, hint=f"see what it did, then: git ckpt resume {self.id} --from '{attempt.phase}'")

    def _wait(self, last: Attempt | None) -> None:
        """Waits until the next attempt is due."""
        due = times.from_text(last.retry_at) if last is not None and last.retry_at is not None else 0
        self.wait((due - self.store.clock()) / times.MICRO)
