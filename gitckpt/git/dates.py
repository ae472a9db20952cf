"""Parse the points in time that people type, in the local time zone.

git's own parser (`git rev-parse --since`) takes any text that it does not understand for "now".
"""

from __future__ import annotations

import datetime as dt
import re

from gitckpt.model import times
from gitckpt.model.errors import UsageError

_AGO = re.compile(r"([0-9]{1,9})[ .]?(s|sec|second|m|min|minute|h|hour|d|day|w|week)s?(?:[ .]ago)?")
_CLOCK = re.compile(
    r"(?:(today|yesterday|[0-9]{4}-[0-9]{2}-[0-9]{2})[ .t])?"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
)
_HINT = "write an age (20m, 2h, 3d), a time (11:40, yesterday 18:00) or a date (2026-11-26 18:00)"


def parse_instant(text: str, now: int | None = None) -> int:
    """Return the microseconds since the epoch of an age, a time of day, or a date.

    A time of day without a date is the latest one that is not in the future. A date without a time
    is its beginning.
    """
    current = times.now() if now is None else now
    today = dt.datetime.fromtimestamp(current // times.MICRO, dt.UTC).astimezone().date()
    words = " ".join(text.lower().split())
    try:
        if words == "now":
            return current
        if ago := _AGO.fullmatch(words):
            return max(current - times.parse_age(f"{int(ago[1])}{ago[2][0]}"), 0)
        days = {"today": today, "yesterday": today - dt.timedelta(days=1)}
        if words in days:
            return _to_instant(dt.datetime.combine(days[words], dt.time()))
        if clock := _CLOCK.fullmatch(words):
            named, hour, minute, second = clock.groups()
            day = days.get(named or "today") or dt.date.fromisoformat(named)
            time = dt.time(int(hour), int(minute), int(second or 0))
            instant = _to_instant(dt.datetime.combine(day, time))
            if named is None and instant > current:
                instant = _to_instant(dt.datetime.combine(days["yesterday"], time))
            return instant
        return _to_instant(dt.datetime.fromisoformat(words.upper()))
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r:.60} is not a point in time", hint=_HINT) from None


def _to_instant(when: dt.datetime) -> int:
    instant = times.as_instant(when.astimezone())
    if instant < 0:
        raise ValueError("before 1970")
    return instant
