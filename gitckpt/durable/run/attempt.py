"""One attempt at a phase, from its start to its end, with the milestones in between."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from gitckpt.durable.run import next_attempt
from gitckpt.durable.run import retry as conducts
from gitckpt.durable.run.background import Autosaver, held
from gitckpt.durable.run.retry import Conduct, Ended
from gitckpt.model import times
from gitckpt.model.checkpoint import PHASE, Attempt, Progress
from gitckpt.model.values import replace
from gitckpt.store.leases.lease import LeaseLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.session import Session


class Attempting:
    """An attempt that is under way.

    Args:
        session: the run, whose `last_attempt` this is.
        conduct: how the phase is carried out.
        followed: whether another phase begins at once where it succeeds: its end is recorded with that, or by `Writer.flush`.
    """

    def __init__(self, session: Session, conduct: Conduct, *, followed: bool = False) -> None:
        assert session.last_attempt is not None
        self._session = session
        self._writer = session.writer
        self._conduct = conduct
        self._followed = followed
        self._attempt = session.last_attempt
        self._before = copy.deepcopy(session.state)
        self._started = time.monotonic()
        newest, limits = held(self._writer.newest), self._writer.limits
        self._saver = Autosaver(
            session.store, self._attempt.phase, session.run, newest, guard=session.hold, beside=session.files, limits=limits
        )

    def carry_out(self, action: Callable[[Attempt], Ended]) -> Any:
        """Does it, and returns its result.

        Args:
            action: what is to be done.

        Raises:
            LeaseLost: somebody else drives the run by now.
            Exception: what it raised, after it was recorded.
        """
        try:
            ended = self._act(action)
            result = next_attempt.to_json(ended.result, f"/{self._attempt.phase}")
            self._session.last_attempt = replace(
                self._attempt,
                ended=next_attempt.COMPLETE,
                exit_code=ended.code,
                seconds=self._seconds(),
                output=_masked(ended.output),
                result=_masked(result),
            )
            self._write("complete", followed=self._followed)
        except LeaseLost:
            raise
        except BaseException as error:
            if self._writer.has_ended(self._attempt.phase):
                raise  # an interrupt came when it was recorded as complete already, or is going to be
            self._session.state = self._before
            self._fail(error)
            raise
        finally:
            self._saver.close()
            self._writer.notice(self._saver.failures)
        return json.loads(result)

    def milestone(self, *, trigger: str, message: str | None, progress: Progress | None, errors: Sequence[str] | None) -> None:
        """See `Run.milestone`."""
        reached = replace(self._attempt, began=self._session.store.new_id(), recoveries=0)
        label = f"{reached.phase}-progress"
        with self._saver.paused():
            self._writer.write(
                label,
                self._session.state,
                capture=True,
                id=str(reached.began),
                trigger=trigger,
                attempt=reached,
                message=message,
                progress=progress,
                errors=errors,
            )
            self._saver.saved(held(self._writer.newest))
        if not self._writer.unwritten:
            self._attempt = self._session.last_attempt = reached
            self._before = copy.deepcopy(self._session.state)

    def _act(self, action: Callable[[Attempt], Ended]) -> Ended:
        if not self._conduct.autosave:
            return action(self._attempt)
        with self._saver.attendant(self._conduct.autosave / times.MICRO):
            return action(self._attempt)

    def _fail(self, error: BaseException) -> None:
        """Records how the attempt ended."""
        ended = conducts.failed(self._attempt, error, self._conduct, seconds=self._seconds(), now=self._session.store.clock())
        self._session.last_attempt = replace(ended, output=_masked(ended.output))
        self._write(str(ended.ended), errors=[str(_masked(each)) for each in conducts.errors(error)])

    def _write(self, status: str, errors: Sequence[str] = (), *, followed: bool = False) -> None:
        label, attempt = f"{self._attempt.phase}-{status}", self._session.last_attempt
        self._writer.write(label, self._session.state, capture=True, followed=followed, trigger=PHASE, attempt=attempt, errors=errors)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)


def _masked(text: str | None) -> str | None:
    """Returns what a phase said as it is stored: with what looks like a secret masked."""
    if not text:
        return text
    from gitckpt.store.secrets import detector

    return detector.masked(text)
