"""A run that this process drives: phases that are done once, whatever happens in between.

    with Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "…"})
        run.phase("implementation", implement)

Every phase is a chain of checkpoints: `<phase>-started`, perhaps `<phase>-progress`, then `<phase>-complete` or `<phase>-failed`. One that
is complete is not done again; its recorded result is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gitckpt.durable.run import next_attempt
from gitckpt.durable.run.background import Attendant, heartbeat
from gitckpt.durable.run.opener import Opening, find_or_begin, reopen
from gitckpt.durable.run.performer import Performer
from gitckpt.durable.run.retry import USUAL, Conduct, Ended, require_call
from gitckpt.durable.run.session import Session
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

_PUBLIC = (
    *("start", "resume", "close", "pause", "finish", "phase", "milestone", "skip", "redo", "restart", "rewind", "check", "wait"),
    *("id", "path", "store", "state", "last_attempt", "completed", "newest", "unwritten"),
)


class Run:
    """A run that this process drives, from `start` or `resume` to `close`. A context manager: leaving it normally completes the run.

    Args:
        opening: the run, its worktree and its lease.
        sleep: waits for a time in seconds.

    Attributes:
        id: its id.
        path: the top of its worktree.
        store: the store as seen from there.
    """

    def __init__(self, opening: Opening, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.id = opening.run
        self.path = opening.path
        self.store = opening.store
        self.files = opening.files
        self.remarks = opening.remarks
        self.hold = opening.hold
        self._opening = opening
        self._session = Session(opening, sleep)
        self._writer = self._session.writer
        self._performer = Performer(self._session, accepts_changes=opening.accepts_changes)
        self._heartbeat: Attendant = heartbeat(opening.hold, opening.store.repository, RENEWAL)
        self._heartbeat.__enter__()
        self._pauses = False
        if opening.newest.phase == REWINDING:  # it was killed while files were brought back
            self._writer.go_back(opening.newest)

    def __dir__(self) -> list[str]:
        return sorted(_PUBLIC)

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
            how: `accept_changes=True` goes on though the inputs of phases are other ones than they were; `again=True` goes on with a run
                that is complete; `directory` is where its worktree is made; `holder` says to others who drives it; `lease` is how long it
                is theirs without a sign of life, in microseconds; `adapter` is as for `Store`.

        Raises:
            NotFoundError: there is no such run.
            UsageError: it is complete, or there is no such argument.
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
    def state(self) -> dict[str, Any]:
        """What its checkpoints carry; a phase may change it."""
        return self._session.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._session.state = state

    @property
    def last_attempt(self) -> Attempt | None:
        """The last attempt at a phase."""
        return self._session.last_attempt

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
        return self._performer.perform(name, action, inputs=inputs, conduct=conduct)

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
        self._performer.milestone(trigger=trigger, message=message, progress=progress, errors=errors)

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        """Records that a phase need not be done.

        Args:
            name: of the phase.
            result: what it returns.
            message: why, one line.
        """
        next_attempt.require_name(name)
        attempt = Attempt(name, self._writer.attempts_at(name) + 1, ended="skipped", result=next_attempt.to_json(result))
        self._session.last_attempt = attempt
        self._writer.write(f"{name}-skipped", self.state, trigger=PHASE, attempt=attempt, message=message)

    def redo(self, name: str, forget: Iterable[str] = ()) -> None:
        """Lets a phase be done again, complete or not, with all that were completed after it.

        Args:
            name: of the phase.
            forget: keys of the state that say how far it has come.
        """
        for key in forget:
            self.state.pop(key, None)
        self._writer.reopen(name)
        last = self.last_attempt
        if last is not None and last.phase == name:
            # Whoever asks for it has settled what blocked it.
            ended = next_attempt.FAILED if last.ended in (None, next_attempt.BLOCKED) else last.ended
            self._session.last_attempt = replace(last, ended=ended, retry_at=None)

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

    def rewind(self, checkpoint: Checkpoint | str) -> None:
        """Takes the run back to an earlier checkpoint: its files, its state, and which phases are complete. What is newer is saved first.

        Args:
            checkpoint: one of this run, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            UsageError: it is of another run, or of none; nothing was changed.
            WorktreeError: the files cannot be brought back.
        """
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = self.store.read(checkpoint)
        if checkpoint.run != self.id:
            whose = "of no run" if checkpoint.run is None else f"of run {checkpoint.run}"
            hint = f"see which are of this one: git ckpt list --run {self.id}"
            raise UsageError(f"checkpoint {checkpoint.id} is {whose}, not of {self.id}", hint=hint)
        self._writer.write(REWINDING, self.state, capture=True, trigger=PHASE, message=f"before going back to {checkpoint.id}")
        self._writer.go_back(checkpoint)
        self.state = dict(checkpoint.state)
        pipeline = replace(self.pipeline, completed=checkpoint.pipeline.completed if checkpoint.pipeline else {})
        last = self._session.last_attempt = checkpoint.attempt if checkpoint.attempt and checkpoint.attempt.ended else None
        attempt = last or Attempt("rewind", ended=next_attempt.COMPLETE)
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
        self._session.check()

    def wait(self, seconds: float) -> None:
        """Waits, as long as the run need not stop. Errors: as `check`."""
        self._session.wait(seconds)

    def seconds_left(self) -> float | None:
        """Returns how long the run may still take; None for as long as it likes."""
        return self._session.seconds_left()

    def has_changed_files(self, attempt: Attempt) -> bool:
        """Tells whether files of the worktree differ from what they were when the phase of an attempt began."""
        return self._writer.differs_from(attempt.began or self._writer.newest.id)
