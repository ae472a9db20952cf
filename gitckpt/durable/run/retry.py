"""How a phase is carried out and tried again, and how an attempt at it ended."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable, Mapping

from gitckpt.durable.run.errors import Cancelled, DeadlineReached, PhaseBlocked, PhaseDeferred, PhaseFailed
from gitckpt.durable.run.next_attempt import FAILED
from gitckpt.model import times
from gitckpt.model.arguments import instances, mapping, refused, require, require_callable, require_number
from gitckpt.model.checkpoint import Attempt
from gitckpt.model.errors import StateError
from gitckpt.model.times import MICRO
from gitckpt.model.values import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


KEEP, RESET = "keep", "reset"
ON_RESUME = (KEEP, RESET)
"""What becomes of the files of an attempt that did not end well: they stay, or are what they were when the phase began."""

_LONGEST = 100 * 365 * 86_400 * MICRO
"""The longest wait, in microseconds: what comes after it has a year of four digits."""

_MOST_SAID, _MOST_ERRORS = 20_000, 100
"""In characters, of one error or the end of an output; and of how many errors. With more, a checkpoint could not be written that says a
phase has failed."""

AUTOSAVE = 300 * MICRO
MAX_RECOVERIES = 3


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a phase is tried again after a failure, and how long it waits before. Lengths of time are in microseconds."""

    attempts: int = 0
    """So many attempts more than the first."""

    delay: int = MICRO
    """The wait before the first of them."""

    backoff: float = 2.0
    """Each further wait is so many times as long as the one before."""

    max_delay: int = 3600 * MICRO
    jitter: float = 0.1
    """A wait is longer or shorter by up to this share, so that many runs do not all come back at the same time."""

    on: tuple[int, ...] = ()
    """The exit codes after which there is another attempt; any, where there are none."""

    def __post_init__(self) -> None:
        for name in ("attempts", "delay", "max_delay"):
            require_number(name, getattr(self, name))
        # Said now, as with `Conduct`: what a wait cannot be worked out of would take the place of the failure.
        for name, most, what in (("backoff", math.inf, "a number from 0 on"), ("jitter", 1, "a number from 0 to 1")):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise refused(name, value, what)
        object.__setattr__(self, "on", instances("on", self.on, int, "an exit code"))

    @property
    def longest_wait(self) -> int:
        """How long a wait is at most, in microseconds."""
        return round(min(self.max_delay, _LONGEST) * (1 + self.jitter))

    def wait_before(self, attempt: int, random: float) -> int:
        """Returns how long to wait before an attempt, in microseconds.

        Args:
            attempt: its number; 1 is the first attempt, before which there is no wait, and 2 the first retry.
            random: at least 0 and less than 1; where in its range the wait lies, in the middle at 0.5.
        """
        if attempt < 2 or not self.delay:
            return 0
        longest = min(self.max_delay, _LONGEST)
        try:
            wait = min(self.delay * self.backoff ** (attempt - 2), longest)
        except OverflowError:
            wait = longest
        return round(wait * (1 + self.jitter * (2 * random - 1)))

    def retries(self, code: int | None) -> bool:
        """Tells whether a failure is one after which there is another attempt, so long as `attempts` are left.

        Args:
            code: the exit code; None where the attempt ended without one, by a time limit for example.
        """
        return self.attempts > 0 and (not self.on or code in self.on)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended that did not fail.

    Attributes:
        result: what the phase returns, a JSON value.
        code: the exit code of its command; None where there was none.
        output: the end of what it printed.
    """

    result: Any = None
    code: int | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a phase is carried out. Lengths of time are in microseconds.

    Attributes:
        retries: how often it is tried again, and when.
        retry_on: the exceptions after which it is.
        autosave: how often its files are saved in between; 0 for never.
        max_recoveries: after more crashes than that the run is blocked.
        on_resume: `keep`, or `reset`: whether a further attempt begins with the files as they are, or as they were at first.
    """

    retries: Retries = field(default_factory=Retries)
    retry_on: tuple[type[Exception], ...] = (Exception,)
    autosave: int = AUTOSAVE
    max_recoveries: int = MAX_RECOVERIES
    on_resume: str = KEEP

    def __post_init__(self) -> None:
        # Said now, and not when a phase has failed, whose failure could then not be recorded.
        require("retries", self.retries, Retries, "a Retries")
        for each in self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,):
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise refused("retry_on", self.retry_on, "a tuple of exceptions")
        require_number("autosave", self.autosave)
        require_number("max_recoveries", self.max_recoveries)
        if self.on_resume not in ON_RESUME:
            raise refused("on_resume", self.on_resume, " or ".join(map(repr, ON_RESUME)))


USUAL = Conduct()
"""A phase that is tried once."""


def require_call(work: Callable[..., Any], inputs: Mapping[str, Any] | None, conduct: Conduct) -> dict[str, Any]:
    """Returns the inputs that a phase is called with.

    Raises:
        UsageError: an argument is of a wrong type; it is named.
    """
    require_callable("work", work)
    require("conduct", conduct, Conduct, "a Conduct")
    return mapping("inputs", inputs)


def failed(attempt: Attempt, error: BaseException, conduct: Conduct, *, seconds: float, now: int) -> Attempt:
    """Returns an attempt that ended with an exception; it says whether there will be another one, and when.

    Args:
        attempt: as it began.
        error: the exception.
        conduct: how often the phase is tried.
        seconds: how long it took.
        now: the current instant, in microseconds since the epoch.
    """
    ending = error if isinstance(error, PhaseFailed) else None
    code = ending.code if ending is not None and isinstance(ending.code, int) and ending.code.bit_length() < 64 else None
    failures = attempt.failures + 1
    again = (
        isinstance(error, conduct.retry_on)
        and not isinstance(error, PhaseBlocked | Cancelled | DeadlineReached | StateError)
        and failures <= conduct.retries.attempts
        and (conduct.retries.retries(code) or isinstance(error, PhaseDeferred))
    )
    retry_at = None
    if again:
        chance = int.from_bytes(os.urandom(4)) / 2**32
        retry_at = times.to_text(now + conduct.retries.wait_before(failures + 1, chance))
    return replace(
        attempt,
        ended=FAILED if again or ending is None else ending.status,
        failures=failures,
        retry_at=retry_at,
        exit_code=code,
        seconds=seconds,
        output=_storable(ending.output)[-_MOST_SAID:] if ending is not None and ending.output is not None else None,
    )


def errors(error: BaseException) -> list[str]:
    """Returns what a checkpoint says of an exception that ended an attempt, whatever that says of itself."""
    if isinstance(error, PhaseFailed):
        found = [_cut(each) for each in error.errors[:_MOST_ERRORS]]
        more = len(error.errors) - len(found)
        return [*found, f"and {more:,} more"] if more else found
    if isinstance(error, KeyboardInterrupt):
        return ["interrupted"]
    said = str(traceback.TracebackException(type(error), error, None, compact=True))  # which a class that fails at saying it does not hide
    return [_cut(f"{type(error).__name__}: {said}" if said else type(error).__name__)]


def _cut(text: object) -> str:
    whole = _storable(text)
    return whole if len(whole) <= _MOST_SAID else f"{whole[:_MOST_SAID]}… ({len(whole):,} characters)"


def _storable(text: object) -> str:
    """Returns a text that UTF-8 can hold: names of files and outputs of programs come with lone surrogates for other bytes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
