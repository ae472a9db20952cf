"""Points in time as people type them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gitckpt.git.dates import parse_instant
from gitckpt.model import times
from gitckpt.model.errors import UsageError

NOW = times.parse_timestamp("2026-11-26T20:15:00.5+01:00")


@pytest.fixture(autouse=True)
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the tests in a time zone with daylight saving."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-26T20:15:00.5+01:00"),
        ("20m", "2026-11-26T19:55:00.5+01:00"),
        ("2h", "2026-11-26T18:15:00.5+01:00"),
        ("3 days ago", "2026-11-23T20:15:00.5+01:00"),
        ("2.hours.ago", "2026-11-26T18:15:00.5+01:00"),
        ("11:40", "2026-11-26T11:40:00+01:00"),
        ("20:15", "2026-11-26T20:15:00+01:00"),
        ("20:15:01", "2026-11-25T20:15:01+01:00"),
        ("23:59", "2026-11-25T23:59:00+01:00"),
        ("today", "2026-11-26T00:00:00+01:00"),
        ("today 23:59", "2026-11-26T23:59:00+01:00"),
        ("Yesterday", "2026-11-25T00:00:00+01:00"),
        ("yesterday  18:00", "2026-11-25T18:00:00+01:00"),
        ("2026-11-20", "2026-11-20T00:00:00+01:00"),
        ("2026-07-01 8:30", "2026-07-01T08:30:00+02:00"),
        ("2026-11-20T18:00", "2026-11-20T18:00:00+01:00"),
        ("2026-11-20T18:00:00.25Z", "2026-11-20T18:00:00.25Z"),
        ("2026-11-20 18:00:00+05:00", "2026-11-20T18:00:00+05:00"),
    ],
)
def test_points_in_time(text: str, expected: str) -> None:
    assert parse_instant(text, NOW) == times.parse_timestamp(expected)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "7", "7y", "-2h", "1h30m", "24:00", "11:60", "1140", "tomorrow 11:40"),
        *("2026-13-01", "2026-11-31 11:40", "0001-01-01", "1969-12-31", "9999-12-31T23:59-23:00"),
        *("now\n\x1b[31m", "\ud800", "٢h", "9" * 5000 + "d"),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_instant(text, NOW)
    assert caught.value.message == f"{text!r:.60} is not a point in time"
    assert "11:40" in str(caught.value.hint)
