"""What a run, the phases it performs and the attempt under way hold in common, so that none of them has to know another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gitckpt.durable.run.errors import Cancelled, DeadlineReached
from gitckpt.durable.run.writer import Writer
from gitckpt.model import times
from gitckpt.model.arguments import require
from gitckpt.store.runs.attempts import Attempts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.opener import Opening
    from gitckpt.model.checkpoint import Attempt

_SLICE = 0.5
"""How long a wait lasts until somebody looks whether the run shall stop, in seconds."""


class Session:
    """A run while this process drives it.

    Args:
        opening: the run, its worktree and its lease.
        sleep: waits for a time in seconds.

    Attributes:
        run: its id.
        store: as seen from its worktree.
        hold: its lease.
        files: its files that lie beside the worktree.
        attempts: what its checkpoints say of its phases.
        writer: writes its checkpoints.
        state: what they carry; a phase may change it.
        last_attempt: the last attempt at a phase.
    """

    def __init__(self, opening: Opening, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self.run = opening.run
        self.store = opening.store
        self.hold = opening.hold
        self.files = opening.files
        made_at = time.time() if opening.made else None
        self.attempts = Attempts(opening.store, opening.run, is_new=(opening.newest.sequence or 0) <= 1)
        self.writer = Writer(opening.store, opening.run, opening.hold, opening.files, opening.newest, made_at=made_at)
        self.state: dict[str, Any] = dict(opening.newest.state)
        self.last_attempt: Attempt | None = opening.newest.attempt

    def check(self) -> None:
        """Looks whether the run shall stop.

        Raises:
            Cancelled: somebody asked for it.
            DeadlineReached: the run took as long as it may.
            LeaseLost: somebody else drives it by now.
        """
        self.hold.check()
        if self.hold.lease.cancelled:
            raise Cancelled(f"run {self.run} was cancelled", hint=f"to go on with it: git ckpt resume {self.run}")
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise DeadlineReached(f"run {self.run} took longer than it may, until {self.writer.pipeline.deadline}")

    def wait(self, seconds: float) -> None:
        """As `Run.wait`."""
        require("seconds", seconds, (int, float), "a number of seconds")
        until = self.store.clock() + seconds * times.MICRO
        # By the clock, as a machine that sleeps does not count; never longer than was said, where the clock is set back meanwhile.
        while (left := min((until - self.store.clock()) / times.MICRO, seconds)) > 0:
            self.check()
            pause = min(left, _SLICE)
            self._sleep(pause)
            seconds -= pause

    def seconds_left(self) -> float | None:
        """Returns how long the run may still take; None for as long as it likes."""
        deadline = self.writer.pipeline.deadline
        return None if deadline is None else (times.from_text(deadline) - self.store.clock()) / times.MICRO
