"""What kind of failure a client's is: whether it makes sense to ask again, and when. Told by what clients print, which nobody promises."""

from __future__ import annotations

import re

from gitckpt.durable.command import execution
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.agent.call import Answer

FATAL, LIMITED, TRANSIENT, OTHER = "fatal", "limited", "transient", "other"
"""It fails until somebody does something; it works again later; it may work at once; nothing is known but that it failed."""

_NOT_THERE = (126, 127)
_FATAL = re.compile(
    r"not logged in|please run /login|log ?in to continue|\b(invalid|missing|incorrect|no)\b[^\n]{0,20}\bapi[ _-]?key"
    r"|api[ _-]?key\b[^\n]{0,40}\b(missing|not set|not found|invalid|required|not valid)|authentication[ _]?(error|failed)|unauthori[sz]ed"
    r"|\b(status|error|code|http)\b[^\n]{0,12}\b401\b|\b(unknown|unexpected|unrecogni[sz]ed|invalid)\b[^\n]{0,12}\b(option|argument|flag)"
    r"|set an auth method|credentials? (are|is) (missing|invalid)",
    re.IGNORECASE,
)
_LIMITED = re.compile(
    r"\b(429|529)\b|rate[ _-]?limit|too many requests|overloaded|quota[^\n]{0,40}\b(exceeded|exhausted|reached)|resource[ _]exhausted"
    r"|usage limit|limit (was |is )?reached",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(
    r"\b(500|502|503|504)\b[^\n]{0,40}(error|gateway|unavailable|timeout)|internal server error|bad gateway|service unavailable"
    r"|connection (was )?(reset|refused|closed|aborted|error)|ECONN\w+|ETIMEDOUT|EAI_AGAIN|socket hang up|network error|stream disconnected"
    r"|temporarily unavailable|could not resolve host",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b(?:status(?:[_ -]?code)?|error|code|http)\b[^\n]{0,12}?\b([45]\d\d)\b", re.IGNORECASE)
_REFUSED = ("400", "401", "404", "413", "422")
"""Statuses of HTTP that say that the same request never succeeds, whatever words stand beside them."""

_CANNOT_PAY = ("402", "403")
"""Those that say so, unless a limit is named: some servers send them for one."""

_AFTER = re.compile(
    r"(?:retry[ -]after|try again in|wait|resets? in|in about)\W{0,3}(\d{1,6}(?:\.\d+)?) ?"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_AT = re.compile(r"\|(\d{10})\b|resets? at[^\n]{0,12}?(\d{10})\b")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0
"""In seconds: how long is waited where a client that is limited does not say for how long; each time twice as long, up to that."""

MOST_LIMITED = 8
"""So often in a row, four hours in all, an agent is waited for that is limited and does not say until when: it may only speak of limits."""

_DOUBLINGS = 12
"""After so many, both waits are as long as they get."""

LONGEST_TOLD = 24 * 3600.0
"""In seconds: what a client tells is an agent's output, and nobody waits for a year."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure.

    Attributes:
        kind: `FATAL`, `LIMITED`, `TRANSIENT` or `OTHER`.
        wait: how long the client says to wait, in seconds; None where it does not.
    """

    kind: str
    wait: float | None = None


def classify(answer: Answer, now: float) -> Failure | None:
    """Returns what kind of failure an answer is; None where it is none, or was ended from outside.

    Where the agent has done anything, another call is an attempt like any other, unless a limit has ended it.

    Args:
        answer: the answer.
        now: the current time, in seconds since the epoch.
    """
    if not answer.problem:
        return None
    said = f"{answer.report.error or ''}\n{answer.said}"
    if answer.report.worked:  # then most of it is about its work, of limits perhaps: what ended it, the client says, or stands at the end
        said = answer.report.error or execution.last_line(answer.said)
    if answer.code in _NOT_THERE and not answer.report.worked:
        return Failure(FATAL)
    status = _status(answer, said)
    if status not in _REFUSED and _LIMITED.search(said):
        return Failure(LIMITED, _wait(said, now))
    if answer.report.worked:
        return Failure(OTHER)
    if status in (*_REFUSED, *_CANNOT_PAY) or _FATAL.search(said):
        return Failure(FATAL)
    return Failure(TRANSIENT if _TRANSIENT.search(said) else OTHER)


def _status(answer: Answer, said: str) -> str | None:
    """Return the status of HTTP that a client names last as its error; None where it names none."""
    found = _STATUS.findall(answer.report.error or execution.last_line(answer.said))
    # What stands before the last line may be about the work of an agent, as a 404 of the server that it tests.
    found = found or [status for status in _STATUS.findall(said) if status in ("401", "429", "529")]
    return found[-1] if found else None


def _wait(said: str, now: float) -> float | None:
    """Returns how long to wait, as a client tells it: for a while, or until an instant."""
    found = _AT.search(said)
    if found is not None:
        left = float(found[1] or found[2]) - now
        return min(left, LONGEST_TOLD) if left > 0 else None
    found = _AFTER.search(said)
    if found is None:
        return None
    unit = (found[2] or "s").lower()
    factor = 0.001 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    return min(float(found[1]) * factor, LONGEST_TOLD)


def pause(told: float | None, times: int) -> float:
    """Returns how long to wait, in seconds, after so many limits in a row.

    Args:
        told: what the client says, in seconds, which counts; but where it says milliseconds, or none, again and again, it would be asked
            without end: so it is a second at least, then twice as long each time, up to `FIRST_WAIT`. None where it says nothing.
        times: how many.
    """
    doubled = 2.0 ** min(max(times - 1, 0), _DOUBLINGS)
    return min(FIRST_WAIT * doubled, LONGEST_WAIT) if told is None else max(told, min(doubled, FIRST_WAIT))
