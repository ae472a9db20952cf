"""Performs the phases of a run: attempt after attempt at each, until it is complete or there shall be no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitckpt.durable.run import next_attempt
from gitckpt.durable.run.attempt import Attempting
from gitckpt.durable.run.errors import Cancelled, Changed, DeadlineReached, PhaseBlocked
from gitckpt.durable.run.next_attempt import NextAttempt
from gitckpt.durable.run.retry import KEEP, Conduct, Ended
from gitckpt.model import times
from gitckpt.model.checkpoint import PHASE, Attempt, Progress
from gitckpt.model.errors import UsageError
from gitckpt.model.names import shell_word
from gitckpt.model.values import replace
from gitckpt.store.leases.lease import LeaseLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.session import Session


class Performer:
    """Performs phases.

    Args:
        session: the run.
        accepts_changes: whether a phase that is complete may be called with other inputs than it was done with.
    """

    def __init__(self, session: Session, *, accepts_changes: bool) -> None:
        self._session = session
        self._writer = session.writer
        self._accepts = accepts_changes
        self._attempting: Attempting | None = None

    def perform(
        self,
        name: str,
        action: Callable[[Attempt], Ended],
        *,
        inputs: Mapping[str, str],
        conduct: Conduct,
        followed: bool = False,
    ) -> Any:
        """See `ActiveRun.perform`."""
        session = self._session
        next_attempt.require_name(name)
        if name in self._writer.completed:
            return self._recorded(name, inputs)
        coming = next_attempt.after(session.last_attempt, name, inputs, number=session.attempts.attempts_at(name))
        if coming.crashed and coming.attempt.recoveries > conduct.max_recoveries:
            self._block(coming.attempt, conduct)
        while True:
            self._wait(session.last_attempt, conduct)
            self._begin(coming, conduct)
            try:
                return self._attempt(action, conduct, followed=followed)
            except conduct.retry_on as error:
                if (
                    isinstance(error, LeaseLost | Cancelled | PhaseBlocked | DeadlineReached)
                    or session.last_attempt is None
                    or session.last_attempt.retry_at is None
                ):
                    raise
            coming = next_attempt.after(session.last_attempt, name, inputs)

    def milestone(self, *, trigger: str, message: str | None, progress: Progress | None, errors: Sequence[str] | None) -> None:
        """See `Run.milestone`."""
        if self._attempting is None:
            raise UsageError("a milestone belongs to a phase, and none is under way", hint="call it from the work of a phase")
        self._attempting.milestone(trigger=trigger, message=message, progress=progress, errors=errors)
        self._session.check()

    def _recorded(self, name: str, inputs: Mapping[str, str]) -> Any:
        """Returns the result of a phase that is complete."""
        attempt = self._writer.ended(name)
        if attempt is None:
            return None  # somebody else recorded the phase as complete
        differing = next_attempt.differing(attempt.inputs, inputs, f"phase {name!r}: input")
        if differing and attempt.ended == next_attempt.COMPLETE and not self._accepts:
            raise Changed(self._session.run, differing)
        return None if attempt.result is None else json.loads(attempt.result)

    def _begin(self, coming: NextAttempt, conduct: Conduct) -> None:
        """Records that an attempt begins."""
        session = self._session
        session.check()
        attempt = coming.attempt
        if not coming.is_first:
            self._writer.flush()
            # Where the last attempt ended orderly and the files have changed since, somebody has worked there.
            attempts, last = session.attempts, self._writer.newest.id
            resets = conduct.on_resume != KEEP and (coming.crashed or not attempts.was_worked_on(attempt.phase, last))
            attempt = replace(attempt, began=attempt.began or attempts.began(attempt.phase))
            self._writer.remove_locks()
            if resets and attempt.began is not None:
                self._writer.bring_back(attempt.began)
        session.last_attempt = attempt
        session.attempts.count_attempt(attempt)
        self._writer.write(f"{attempt.phase}-started", session.state, trigger=PHASE, attempt=attempt)

    def _attempt(self, action: Callable[[Attempt], Ended], conduct: Conduct, *, followed: bool) -> Any:
        self._attempting = Attempting(self._session, conduct, followed=followed)
        try:
            return self._attempting.carry_out(action)
        finally:
            self._attempting = None

    def _block(self, attempt: Attempt, conduct: Conduct) -> None:
        """Records that a phase is blocked, and raises `PhaseBlocked`."""
        session = self._session
        count = f"{attempt.recoveries} times without anybody having seen why; the limit is {conduct.max_recoveries}"
        message = f"phase {attempt.phase!r} ended {count}"
        blocked = session.last_attempt = replace(attempt, number=attempt.number - 1, ended=next_attempt.BLOCKED)
        self._writer.write(f"{attempt.phase}-blocked", session.state, capture=True, trigger=PHASE, attempt=blocked, errors=[message])
        raise PhaseBlocked(message, hint=f"see what it did, then: git ckpt resume {session.run} --from {shell_word(attempt.phase)}")

    def _wait(self, last: Attempt | None, conduct: Conduct) -> None:
        """Waits until the next attempt is due, and no longer than it can be to that: the clock may have been ahead when that was noted."""
        due = times.from_text(last.retry_at) if last is not None and last.retry_at is not None else 0
        self._session.wait(min(due - self._session.store.clock(), conduct.retries.longest_wait) / times.MICRO)
