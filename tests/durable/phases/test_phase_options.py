"""The options of phases are text, and convert to booleans, numbers and times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitckpt import UsageError
from gitckpt.durable.phases import options as phase_options


@pytest.mark.parametrize(
    ("text", "means"),
    [
        *((each, True) for each in ("yes", "YES", "true", "1")),
        *((each, False) for each in ("", "no", "No", "false", "0")),
    ],
)
def test_yes_or_no(text: str, means: bool) -> None:
    assert phase_options.parse_yes_or_no("force", text) is means


@pytest.mark.parametrize(("text", "number"), [("", 3), ("0", 0), ("7", 7), ("999999", 999_999)])
def test_a_number(text: str, number: int) -> None:
    assert phase_options.parse_count("max_cycles", text, 3) == number


@pytest.mark.parametrize(("text", "seconds"), [("", 9.5), ("90s", 90.0), ("2h", 7200.0)])
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert phase_options.parse_seconds("pause", text, 9.5) == seconds
    assert phase_options.read_timeout("timeout", text, 9.5) == seconds


def test_a_pause_may_be_none_at_all() -> None:
    assert phase_options.parse_seconds("pause", "0s", 9.5) == 0


AGE = "write a number and a unit: 90s, 30m, 12h, 7d or 2w"


@pytest.mark.parametrize(
    ("read", "message", "hint"),
    [
        (
            lambda: phase_options.parse_yes_or_no("force", "Perhaps"),
            "force is 'perhaps', not yes or no",
            "write yes or no",
        ),
        *(
            (
                lambda text=text: phase_options.parse_count("max_cycles", text, 3),
                f"max_cycles must be a whole number, not {text!r}",
                "write a whole number, such as 3",
            )
            for text in ("1.5", "many", "1000000", "\u0663", " 1")
        ),
        (
            lambda: phase_options.parse_count("max_cycles", "-1", 3),
            "max_cycles must be 0 or more, not '-1'",
            "write a whole number, such as 3",
        ),
        (
            lambda: phase_options.parse_dollars("max_budget", "-0.5"),
            "max_budget must be 0 or more, not '-0.5'",
            "write an amount in US dollars: 2.50",
        ),
        (
            lambda: phase_options.parse_seconds("pause", "-5s", 1.0),
            "pause: '-5s' is not an age",
            AGE,
        ),
        (
            lambda: phase_options.parse_seconds("pause", "soon", 1.0),
            "pause: 'soon' is not an age",
            AGE,
        ),
        (
            lambda: phase_options.read_timeout("timeout", "7", 1.0),
            "timeout: '7' is not an age",
            AGE,
        ),
        (
            lambda: phase_options.read_timeout("timeout", "0s", 1.0),
            "timeout must be more than 0, not '0s'",
            "write a duration such as 30m",
        ),
    ],
)
def test_what_is_refused(read: Callable[[], object], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read()
    assert (caught.value.message, caught.value.hint) == (message, hint)
