"""A run that this process drives, for pipelines, phases and the CLI."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import (
    USUAL,
    Attendant,
    Ended,
    Performer,
    PhaseOptions,
    Session,
    heartbeat,
    require_call,
)
from gitckpt.durable.run.opener import Opening, find_or_begin, reopen
from gitckpt.durable.run.rewind import require_way
from gitckpt.model.arguments import must_not_be_async, require_text
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Pipeline, Progress
from gitckpt.model.document import message_of
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.phase import REWOUND
from gitckpt.model.runstate import REWINDING, before_rewind, rewinding_to
from gitckpt.model.values import replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import RENEWAL, LeaseLost
from gitckpt.store.records import ref_names
from gitckpt.store.runs import trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from gitckpt.durable.run.opener import OpenOptions


class ActiveRun:
    """A run that this process drives; `Run`, its public form, documents the methods."""

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
        if rewinding_to(opening.newest) is not None:  # the last driver was killed during a rewind
            self._writer.go_back(opening.newest)

    @classmethod
    def start(
        cls,
        store: Checkpoints,
        name: str,
        *,
        key: str | None = None,
        base: str = "HEAD",
        state: Mapping[str, Any] | None = None,
        adapter: str = "auto",
    ) -> Self:
        newest, _ = find_or_begin(store, name, key=key, base=base, state=state or {})
        return cls.resume(store, str(newest.run), adapter=adapter)

    @classmethod
    def resume(cls, store: Checkpoints, run: str, **how: Unpack[OpenOptions]) -> Self:
        return cls(reopen(store, run, **how))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        self._heartbeat.close()
        try:
            self._writer.flush()
            self.store.close()  # writes pending notes, so the lease must still be held
            self.hold.release()
        except LeaseLost:
            return  # another driver has taken over
        except CkptError as error:
            # The lease ends with this process anyway.
            self._writer.notice([f"its lease was not given back: {error.message}"])
        finally:
            self._opening.close()

    def pause(self) -> None:
        self._pauses = True

    def finish(self) -> None:
        self._writer.write(ref_names.RUN_COMPLETE, self.state, trigger=PHASE)

    @property
    def state(self) -> dict[str, Any]:
        return self._session.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._session.state = state

    @property
    def last_attempt(self) -> Attempt | None:
        return self._session.last_attempt

    @property
    def completed(self) -> Mapping[str, str]:
        return self._writer.completed

    @property
    def pipeline(self) -> Pipeline:
        return self._writer.pipeline

    @property
    def newest(self) -> Checkpoint:
        return self._writer.newest

    @property
    def unwritten(self) -> list[str]:
        return self._writer.unwritten

    def phase(
        self,
        name: str,
        work: Callable[..., Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        conduct: PhaseOptions = USUAL,
    ) -> Any:
        given = require_call(work, inputs, conduct)

        def perform(_: Attempt) -> Ended:
            result = work(**given)
            if hasattr(type(result), "__await__"):  # not visible before the call
                if hasattr(result, "close"):
                    result.close()  # avoids the warning about a coroutine that was never awaited
                raise must_not_be_async("work", work)
            return Ended(result)

        return self.perform(name, perform, inputs=attempts.digests(given), conduct=conduct)

    def perform(
        self,
        name: str,
        action: Callable[[Attempt], Ended],
        *,
        inputs: Mapping[str, str],
        conduct: PhaseOptions,
        followed: bool = False,
    ) -> Any:
        """Carry out a phase as `phase`, with an action that receives its attempt.

        `inputs` are digests. With `followed`, another phase begins at once: a success is recorded
        together with its start, or by `flush`.
        """
        return self._performer.perform(
            name, action, inputs=inputs, conduct=conduct, followed=followed
        )

    def flush(self) -> None:
        self._writer.flush()

    def milestone(
        self,
        *,
        trigger: str = PHASE,
        message: str | None = None,
        progress: Progress | None = None,
        errors: Sequence[str] | None = None,
    ) -> None:
        self._performer.milestone(
            trigger=trigger, message=message, progress=progress, errors=errors
        )

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        attempts.require_name(name)
        attempt = Attempt(
            name,
            self._session.attempts.attempts_at(name) + 1,
            ended="skipped",
            result=attempts.to_json(result),
        )
        self._session.last_attempt = attempt
        self._writer.write(
            f"{name}-skipped", self.state, trigger=PHASE, attempt=attempt, message=message
        )

    def redo(self, name: str, forget: Iterable[str] = ()) -> None:
        """See `Run.redo`; `forget` names keys of the state to remove."""
        require_text("name", name)
        for key in forget:
            self.state.pop(key, None)
        self._writer.reopen(name)
        last = self.last_attempt
        if last is not None and last.phase == name:
            # The caller has resolved what blocked the phase.
            ended = attempts.FAILED if last.ended in (None, attempts.BLOCKED) else last.ended
            self._session.last_attempt = replace(last, ended=ended, retry_at=None)

    def reopen(self, name: str) -> None:
        """Record that a phase must be done again, as `Run.redo` with `record`."""
        require_text("name", name)
        meant = attempts.meant(name, self._session.attempts.phases(self.completed), self.id)
        self.redo(meant)
        pipeline = replace(self.pipeline, completed=dict(self.completed))
        attempt = self.last_attempt or Attempt("rewind", ended=attempts.COMPLETE)
        message = message_of(f"phase {meant!r} is to be done again")
        self._writer.write(
            REWOUND,
            self.state,
            capture=True,
            trigger=PHASE,
            pipeline=pipeline,
            attempt=attempt,
            message=message,
        )

    def revise(self, name: str, revision: str, forget: Iterable[str] = ()) -> None:
        """Redo a phase with a text added to `revisions` in the state."""
        revisions = dict(self.state.get("revisions", {}))
        revisions[name] = "\n\n".join(filter(None, [revisions.get(name, ""), revision]))
        self.state["revisions"] = revisions
        self.redo(name, forget)

    def restart(self, name: str) -> None:
        require_text("name", name)
        began = self._session.attempts.began_first(name)
        if began is not None:
            self._writer.go_back(began)
            self.state = dict(began.state)
        self.redo(name)

    def rewind(self, checkpoint: Checkpoint | str) -> None:
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = self.store.read(checkpoint)
        if checkpoint.run == self.id:
            checkpoint = trust.read(self.store, self.id, checkpoint.id)
        if checkpoint.run != self.id:
            whose = "of no run" if checkpoint.run is None else f"of run {checkpoint.run}"
            hint = f"see which are of this one: git ckpt list --run {self.id}"
            raise UsageError(f"checkpoint {checkpoint.id} is {whose}, not of {self.id}", hint=hint)
        self._writer.remove_locks()
        require_way(self.store, checkpoint)
        self._writer.write(
            REWINDING, self.state, capture=True, trigger=PHASE, message=before_rewind(checkpoint.id)
        )
        if self.unwritten:  # the newer files are not safe yet, so do not touch them
            why = self.unwritten[-1]
            self._writer.withdraw()
            raise CkptError(
                f"run {self.id} is not taken back, as it could not be recorded as it is now: {why}",
                hint=f"remove what is in the way, then: git ckpt resume {checkpoint.id} --rewind",
            )
        self._writer.go_back(checkpoint)
        self.state = dict(checkpoint.state)
        pipeline = replace(
            self.pipeline, completed=checkpoint.pipeline.completed if checkpoint.pipeline else {}
        )
        last = self._session.last_attempt = (
            checkpoint.attempt if checkpoint.attempt and checkpoint.attempt.ended else None
        )
        attempt = last or Attempt("rewind", ended=attempts.COMPLETE)
        self._writer.write(
            REWOUND,
            self.state,
            capture=True,
            trigger=PHASE,
            pipeline=pipeline,
            attempt=attempt,
            rewound_to=checkpoint.id,
        )

    def change(self, pipeline: Pipeline) -> None:
        """Set the pipeline for the next checkpoints."""
        self._writer.pipeline = pipeline

    def check(self) -> None:
        self._session.check()

    def wait(self, seconds: float) -> None:
        self._session.wait(seconds)

    def seconds_left(self) -> float | None:
        return self._session.seconds_left()

    def has_changed_files(self, attempt: Attempt) -> bool:
        """Return whether files changed since the phase of an attempt began."""
        return self._session.attempts.differs_from(attempt.began or self._writer.newest.id)
