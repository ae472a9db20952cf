"""Convert timestamps (RFC 3339 in UTC) and ages such as `90s`.

The hook imports this module, which therefore imports only `time`.
"""

from __future__ import annotations

import time

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt

MICRO = 1_000_000  # an instant in this package is a whole number of microseconds since the epoch

# Seconds. Younger files are not deleted: a process may be writing their checkpoint or run.
GRACE = 3600
_EPOCH = 719_163  # date(1970, 1, 1).toordinal()
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY = 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": _DAY, "w": 604800}
_MANY_DATES = 1000
# Days since the epoch -> date. A million timestamps have a few hundred dates, which take most time.
_dates: dict[int, str] = {}


def now() -> int:
    return time.time_ns() // 1000


def to_text(instant: int) -> str:
    """Format an instant in RFC 3339, such as `2026-11-21T20:15:00.123456Z`."""
    seconds, micros = divmod(instant, MICRO)
    days, second = divmod(seconds, _DAY)
    minutes, second = divmod(second, 60)
    hour, minute = divmod(minutes, 60)
    date = _dates.get(days) or _date_text(days)
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}.{micros:06d}Z"


def _date_text(days: int) -> str:
    if len(_dates) >= _MANY_DATES:
        _dates.clear()
    date = _dates[days] = "{:04d}-{:02d}-{:02d}".format(*time.gmtime(days * _DAY)[:3])
    return date


def to_run_id_stamp(instant: int) -> str:
    """Format an instant as `YYYYMMDD-HHMMSS` (UTC), the beginning of a run id."""
    return "{:04d}{:02d}{:02d}-{:02d}{:02d}{:02d}".format(*time.gmtime(instant // MICRO)[:6])


def parse_timestamp(text: str) -> int:
    # A leap second (`:60`) counts as the first instant of the next minute.
    clock, offset = _split_utc_offset(text)
    separators = clock[4:5] + clock[7:8] + clock[10:11].upper() + clock[13:14] + clock[16:17]
    if len(clock) < 19 or separators != "--T::":
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    parts = (clock[:4], clock[5:7], clock[8:10], clock[11:13], clock[14:16], clock[17:19])
    year, month, day, hour, minute, second = map(_parse_number, parts)
    days = _day_number(year, month, day) - _EPOCH
    if not (hour <= 23 and minute <= 59 and second <= 60):
        raise ValueError(f"no such time of day: {text!r}")
    micros = 0
    if len(clock) > 19:
        if clock[19] != "." or len(clock) == 20:
            raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
        _require_digits(clock[20:])
        micros = int(clock[20:26].ljust(6, "0"))
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset
    return seconds * MICRO + micros


def as_datetime(instant: int | str) -> dt.datetime:
    """Convert an instant or timestamp to a UTC `datetime`, or raise `UsageError`."""
    import datetime as dt  # the import takes 2 ms

    try:
        micros = parse_timestamp(instant) if isinstance(instant, str) else int(instant)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
    except (TypeError, ValueError, OverflowError):
        expected = "microseconds since the epoch or a timestamp"
        raise UsageError(f"instant: must be {expected}, not {instant!r:.60}") from None


def as_instant(when: dt.datetime) -> int:
    """Convert an aware `datetime` to an instant, or raise `UsageError`."""
    import datetime as dt

    if not isinstance(when, dt.datetime) or when.utcoffset() is None:
        problem = f"when: must be a datetime with a time zone, not {when!r:.80}"
        raise UsageError(problem, hint="datetime.now(UTC) has one")
    return (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def is_canonical_timestamp(text: str) -> bool:
    separators = text[10:11] + text[19:20] + text[26:]
    return len(text) == 27 and separators == "T.Z" and text[17:19] != "60"


def _day_number(year: int, month: int, day: int) -> int:
    # As `datetime.date.toordinal`, whose import takes 2 ms.
    is_leap_year = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    is_valid_month = year >= 1 and 1 <= month <= 12
    if not is_valid_month or not 1 <= day <= _LENGTHS[month - 1] + (is_leap_year and month == 2):
        raise ValueError(f"no such day: {year:04d}-{month:02d}-{day:02d}")
    past_years = year - 1
    days = past_years * 365 + past_years // 4 - past_years // 100 + past_years // 400
    return days + sum(_LENGTHS[: month - 1]) + (is_leap_year and month > 2) + day


def _split_utc_offset(text: str) -> tuple[str, int]:
    if text[-1:] in ("Z", "z"):
        return text[:-1], 0
    if len(text) >= 6 and text[-6] in "+-" and text[-3] == ":":
        hours, minutes = _parse_number(text[-5:-3]), _parse_number(text[-2:])
        if hours <= 23 and minutes <= 59:
            seconds = hours * 3600 + minutes * 60
            return text[:-6], seconds if text[-6] == "+" else -seconds
    raise ValueError(f"no UTC offset, neither Z nor ±hh:mm: {text!r}")


def _parse_number(digits: str) -> int:
    _require_digits(digits)
    return int(digits)


def _require_digits(digits: str) -> None:
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"not a number: {digits!r}")


def parse_age(text: str) -> int:
    """Parse an age such as `90s`, `30m`, `12h`, `7d` or `2w` to microseconds."""
    count, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (count.isascii() and count.isdigit() and len(count) <= 12):
        hint = "write a number and a unit: 90s, 30m, 12h, 7d or 2w"
        raise UsageError(f"{text!r} is not an age", hint=hint)
    return int(count) * _UNITS[unit] * MICRO


# Formats of dates for `strftime`, in local time, as `git log --date` has them.
DATE_FORMATS = {
    "local": "%a %b %e %H:%M:%S %Y",
    "iso": "%Y-%m-%d %H:%M:%S %z",
    "short": "%Y-%m-%d",
    "unix": "%s",
    "relative": "",
}


def parse_date_format(text: str) -> str:
    """Return the `strftime` format that `--date` names; "" for relative dates."""
    kind, colon, own_format = text.partition(":")
    if kind == "format" and colon:
        return own_format
    if text not in DATE_FORMATS:
        hint = f"use one of {', '.join(DATE_FORMATS)}, format:%H:%M"
        raise UsageError(f"there is no date format {text!r}", hint=hint)
    return DATE_FORMATS[text]


def format_date(instant: int, date_format: str) -> str:
    """Format an instant in local time, or "" for an age such as "3m ago"."""
    if not date_format:
        age = age_text(max(now() - instant, 0))
        return age if age == "now" else f"{age} ago"
    return time.strftime(date_format, time.localtime(instant // MICRO))


def exact_age_text(length: int) -> str:
    """Format microseconds in the largest unit that divides them: `90s`, `2h`, `7d`."""
    seconds = length // MICRO
    units = [unit for unit in "dhm" if seconds and seconds % _UNITS[unit] == 0]
    unit = units[0] if units else "s"
    return f"{seconds // _UNITS[unit]}{unit}"


def age_text(length: int) -> str:
    """Format microseconds in the largest unit, rounded down: `45s`, `3m`; 0 is "now"."""
    seconds = length // MICRO
    unit = next((unit for unit in "dhms" if seconds >= _UNITS[unit]), None)
    return f"{seconds // _UNITS[unit]}{unit}" if unit else "now"


def duration_text(seconds: float) -> str:
    """Format seconds as people write them: `3.2s`, `45s`, `2m05s`, `1h02m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
