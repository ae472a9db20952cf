"""Timestamps and ages are parsed strictly and written in one form."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import UsageError
from gitckpt.model import times
from tests.conftest import examples
from tests.model.example_documents import CHECKPOINT

quick = settings(max_examples=examples(200), deadline=None, database=None)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST, LAST = -62_135_596_800 * times.MICRO, 253_402_300_800 * times.MICRO - 1


def zones() -> st.SearchStrategy[datetime.timezone]:
    return st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
        lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
    )


@pytest.mark.parametrize(
    ("instant", "text", "stamp"),
    [
        (0, "1970-01-01T00:00:00.000000Z", "19700101-000000"),
        (1, "1970-01-01T00:00:00.000001Z", "19700101-000000"),
        (-1, "1969-12-31T23:59:59.999999Z", "19691231-235959"),
        (1_795_292_100_123_456, "2026-11-21T20:15:00.123456Z", "20261121-201500"),
        (951_782_400_000_000, "2000-02-29T00:00:00.000000Z", "20000229-000000"),
        (FIRST, "0001-01-01T00:00:00.000000Z", "00010101-000000"),
        (LAST, "9999-12-31T23:59:59.999999Z", "99991231-235959"),
    ],
)
def test_an_instant_is_written_in_utc_with_microseconds(
    instant: int, text: str, stamp: str
) -> None:
    assert (
        times.to_text(instant),
        times.to_run_id_stamp(instant),
        times.parse_timestamp(text),
    ) == (
        text,
        stamp,
        instant,
    )


@quick
@given(st.integers(FIRST, LAST))
def test_every_instant_of_four_digit_years_comes_back(instant: int) -> None:
    assert times.parse_timestamp(times.to_text(instant)) == instant


@quick
@given(st.integers(FIRST, LAST), st.integers(FIRST, LAST))
def test_timestamps_sort_like_their_instants(one: int, other: int) -> None:
    assert (times.to_text(one) < times.to_text(other)) == (one < other)


@quick
@given(
    st.datetimes(
        min_value=datetime.datetime(2, 1, 1),
        max_value=datetime.datetime(9998, 12, 31),
        timezones=zones(),
    )
)
def test_a_timestamp_with_any_offset_means_what_datetime_says(moment: datetime.datetime) -> None:
    assert times.parse_timestamp(moment.isoformat()) == (moment - EPOCH) // datetime.timedelta(
        microseconds=1
    )


NOON = times.parse_timestamp("2026-11-21T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "after_noon"),
    [
        ("2026-11-21T12:00:00Z", 0),
        ("2026-11-21t12:00:00z", 0),
        ("2026-11-21T12:00:00+00:00", 0),
        ("2026-11-21T12:00:00-00:00", 0),
        ("2026-11-21T13:30:00+01:30", 0),
        ("2026-11-21T00:01:00-11:59", 0),
        ("2026-11-22T11:59:00+23:59", 0),
        ("2026-11-21T12:00:00.5Z", 500_000),
        ("2026-11-21T12:00:00.000001Z", 1),
        ("2026-11-21T12:00:00.0000019Z", 1),
        ("2026-11-21T12:00:00.123456789123Z", 123_456),
        ("2026-11-21T13:00:00.25+01:00", 250_000),
        ("2026-11-21T12:00:00.25" + "0" * 6000 + "Z", 250_000),
    ],
)
def test_z_or_an_offset_and_any_fraction_are_read(text: str, after_noon: int) -> None:
    assert times.parse_timestamp(text) == NOON + after_noon


@pytest.mark.parametrize(
    ("leap", "next_minute"),
    [
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00Z"),
        ("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.5Z"),
    ],
)
def test_a_leap_second_counts_as_the_next_minute(leap: str, next_minute: str) -> None:
    assert times.parse_timestamp(leap) == times.parse_timestamp(next_minute)


@pytest.mark.parametrize(
    ("year", "leap"), [(2000, True), (2024, True), (1900, False), (2100, False), (2026, False)]
)
def test_the_29th_of_february_exists_in_leap_years_only(year: int, leap: bool) -> None:
    text = f"{year}-02-29T00:00:00Z"
    if leap:
        assert times.to_text(times.parse_timestamp(text)) == f"{year}-02-29T00:00:00.000000Z"
    else:
        with pytest.raises(ValueError, match="no such day"):
            times.parse_timestamp(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no UTC offset, neither Z nor ±hh:mm: ''"),
        ("Z", "not an RFC 3339 timestamp: 'Z'"),
        ("+01:30", "not an RFC 3339 timestamp: '+01:30'"),
        ("01:30", "no UTC offset, neither Z nor ±hh:mm: '01:30'"),
        ("yesterday", "no UTC offset, neither Z nor ±hh:mm: 'yesterday'"),
        ("2026-11-21", "no UTC offset, neither Z nor ±hh:mm: '2026-11-21'"),
        ("2026-11-21T12:00:00", "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00'"),
        ("2026-11-21 12:00:00Z", "not an RFC 3339 timestamp: '2026-11-21 12:00:00Z'"),
        ("2026-11-21T12:00Z", "not an RFC 3339 timestamp: '2026-11-21T12:00Z'"),
        ("20261121T120000Z", "not an RFC 3339 timestamp: '20261121T120000Z'"),
        ("2026/11-21T12:00:00Z", "not an RFC 3339 timestamp: '2026/11-21T12:00:00Z'"),
        ("2026-11/21T12:00:00Z", "not an RFC 3339 timestamp: '2026-11/21T12:00:00Z'"),
        ("2026-11-21T12.00:00Z", "not an RFC 3339 timestamp: '2026-11-21T12.00:00Z'"),
        ("2026-11-21T12:00.00Z", "not an RFC 3339 timestamp: '2026-11-21T12:00.00Z'"),
        ("2026-11-21T12:00:00.Z", "not an RFC 3339 timestamp: '2026-11-21T12:00:00.Z'"),
        ("2026-11-21T12:00:00,5Z", "not an RFC 3339 timestamp: '2026-11-21T12:00:00,5Z'"),
        ("2026-11-21T12:00:00.5 Z", "not a number: '5 '"),
        ("2026-11-21T12:00:00.٥Z", "not a number: '٥'"),
        ("2026-11-21T12:00:00.-5Z", "not a number: '-5'"),
        (
            "2026-11-21T12:00:00Z\n",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00Z\\n'",
        ),
        ("٢٠٢٦-11-21T12:00:00Z", "not a number: '٢٠٢٦'"),
        ("2026-1١-21T12:00:00Z", "not a number: '1١'"),
        ("-026-11-21T12:00:00Z", "not a number: '-026'"),
        ("2026-11-21T+2:00:00Z", "not a number: '+2'"),
        ("2026-11-21T24:00:00Z", "no such time of day: '2026-11-21T24:00:00Z'"),
        ("2026-11-21T12:60:00Z", "no such time of day: '2026-11-21T12:60:00Z'"),
        ("2026-11-21T12:00:61Z", "no such time of day: '2026-11-21T12:00:61Z'"),
        (
            "2026-11-21T12:00:00+24:00",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00+24:00'",
        ),
        (
            "2026-11-21T12:00:00+01:60",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00+01:60'",
        ),
        (
            "2026-11-21T12:00:00+0100",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00+0100'",
        ),
        (
            "2026-11-21T12:00:00+1:00",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T12:00:00+1:00'",
        ),
        ("2026-11-21T12:00:00+٠1:00", "not a number: '٠1'"),
        ("0000-01-01T00:00:00Z", "no such day: 0000-01-01"),
        ("2026-00-01T00:00:00Z", "no such day: 2026-00-01"),
        ("2026-13-01T00:00:00Z", "no such day: 2026-13-01"),
        ("2026-04-31T00:00:00Z", "no such day: 2026-04-31"),
        ("2026-04-00T00:00:00Z", "no such day: 2026-04-00"),
    ],
)
def test_what_is_no_rfc_3339_timestamp_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        times.parse_timestamp(text)
    assert str(caught.value) == problem


@quick
@given(st.one_of(st.text(max_size=30), st.text(alphabet="0123456789-:TZ+.٣ ", max_size=30)))
def test_garbage_raises_nothing_but_value_error(text: str) -> None:
    try:
        instant = times.parse_timestamp(text)
    except ValueError:
        return
    assert type(instant) is int


def test_now_is_an_instant_that_can_be_written() -> None:
    instant = times.now()
    assert times.parse_timestamp(times.to_text(instant)) == instant


def test_now_is_cut_to_whole_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_795_292_100_123_456_999)
    assert times.now() == 1_795_292_100_123_456


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("007d", 604_800),
        ("9" * 12 + "s", 10**12 - 1),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert times.parse_age(text) == seconds * times.MICRO


@pytest.mark.parametrize(
    "text",
    [
        "",
        "d",
        "7",
        "7 d",
        " 7d",
        "7d ",
        "7d\n",
        "+7d",
        "1.5h",
        "1_0d",
        "7D",
        "7y",
        "7dd",
        "1h30m",
        "٧d",
        "²d",
        "seven days",
        "9" * 13 + "s",
        "9" * 5000 + "d",
    ],
)
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        times.parse_age(text)
    assert (caught.value.message, caught.value.hint) == (
        f"{text!r} is not an age",
        "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "now"),
        (0, "now"),
        (1, "1s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_399, "23h"),
        (86_400, "1d"),
        (700_000, "8d"),
        (86_400 * 400, "400d"),
    ],
)
def test_an_age_is_shown_in_its_largest_whole_unit(seconds: int, expected: str) -> None:
    assert times.age_text(seconds * times.MICRO) == expected


def test_less_than_a_second_is_now() -> None:
    assert times.age_text(times.MICRO - 1) == "now"


@quick
@given(st.integers(times.MICRO, 10**15))
def test_a_shown_age_is_an_age_that_is_no_longer_than_the_true_one(length: int) -> None:
    shown = times.parse_age(times.age_text(length))
    assert shown <= length < 2 * shown


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0s"),
        (times.MICRO - 1, "0s"),
        (times.MICRO, "1s"),
        (90 * times.MICRO, "90s"),
        (60 * times.MICRO, "1m"),
        (1800 * times.MICRO + 1, "30m"),
        (7200 * times.MICRO, "2h"),
        (5400 * times.MICRO, "90m"),
        (86400 * times.MICRO, "1d"),
        (14 * 86400 * times.MICRO, "14d"),
    ],
)
def test_a_length_of_time_is_written_in_the_largest_unit_that_it_is_a_multiple_of(
    length: int, expected: str
) -> None:
    assert times.exact_age_text(length) == expected


@quick
@given(st.integers(0, 10**9))
def test_what_is_written_of_a_length_of_time_is_read_as_the_same(seconds: int) -> None:
    assert times.parse_age(times.exact_age_text(seconds * times.MICRO)) == seconds * times.MICRO


@quick
@given(
    st.datetimes(min_value=datetime.datetime(1, 1, 2), max_value=datetime.datetime(9999, 12, 30)),
    st.sampled_from(["", ".1", ".123456", ".1234567", ".000000"]),
    st.sampled_from(["Z", "z", "+00:00", "+01:30"]),
    st.sampled_from("Tt"),
    st.booleans(),
)
def test_a_usual_timestamp_is_as_it_would_be_written(
    when: datetime.datetime, fraction: str, offset: str, separator: str, leaps: bool
) -> None:
    text = (
        when.strftime(f"%m-%d{separator}%H:%M:")
        + ("60" if leaps else f"{when.second:02d}")
        + fraction
        + offset
    )
    text = f"{when.year:04d}-{text}"
    assert times.is_canonical_timestamp(text) == (
        times.to_text(times.parse_timestamp(text)) == text
    )


@pytest.mark.parametrize(
    ("text", "is_usual"),
    [
        ("2026-11-21T12:00:59.000000Z", True),
        ("2016-12-31T23:59:60.000000Z", False),
        ("2026-11-21t12:00:59.000000Z", False),
        ("2026-11-21T12:00:59.000000z", False),
        ("2026-11-21T12:00:59.0000000Z", False),
        ("2026-11-21T12:00:59.00000Z", False),
        ("2026-11-21T12:00:59.0+01:00", False),
        ("2026-11-21T12:00:59Z", False),
    ],
)
def test_whether_a_timestamp_is_usual(text: str, is_usual: bool) -> None:
    assert (
        times.is_canonical_timestamp(text)
        == is_usual
        == (times.to_text(times.parse_timestamp(text)) == text)
    )


def test_dates_are_remembered_and_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: dict[int, str] = {}
    monkeypatch.setattr(times, "_dates", remembered)
    monkeypatch.setattr(times, "_MANY_DATES", 3)
    days = [20_000 + number for number in (0, 1, 0, 2, 3)]
    texts = [
        (EPOCH + datetime.timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for day in days
    ]
    assert [times.to_text(day * 86_400 * times.MICRO) for day in days[:4]] == texts[:4]
    assert remembered == {day: text[:10] for day, text in zip(days[:4], texts, strict=False)}
    assert [times.to_text(days[4] * 86_400 * times.MICRO), remembered] == [
        texts[4],
        {days[4]: texts[4][:10]},
    ]


def test_an_instant_and_a_timestamp_are_an_aware_datetime_and_back() -> None:
    text = "2026-11-21T20:15:00.123456Z"
    when = datetime.datetime(2026, 11, 21, 20, 15, 0, 123456, tzinfo=datetime.UTC)
    assert [times.as_datetime(each) for each in (text, times.parse_timestamp(text))] == [when, when]
    assert (
        times.as_instant(when)
        == times.as_instant(when.astimezone(datetime.timezone(datetime.timedelta(hours=5))))
        == times.parse_timestamp(text)
    )
    assert CHECKPOINT.datetime == times.as_datetime(CHECKPOINT.time)


@pytest.mark.parametrize("instant", ["yesterday", None, 10**20])
def test_what_is_no_instant_is_no_datetime(instant: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^instant: must be microseconds since the epoch or a timestamp, not "
    ):
        times.as_datetime(instant)


@pytest.mark.parametrize("when", [datetime.datetime(2026, 1, 1), 7])
def test_a_datetime_without_a_zone_could_be_any_instant(when: Any) -> None:
    with pytest.raises(UsageError, match=r"^when: must be a datetime with a time zone, not "):
        times.as_instant(when)
