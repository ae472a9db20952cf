"""What a caller hands in: an error names the argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from gitckpt.model import arguments
from gitckpt.model.errors import UsageError


def problem(check: Callable[..., object], *args: Any, **options: Any) -> str:
    """Returns what the error says."""
    with pytest.raises(UsageError) as caught:
        check(*args, **options)
    assert type(caught.value) is UsageError
    return caught.value.message


def test_what_is_of_the_type_passes() -> None:
    arguments.require("size", 1, int, "a number")
    arguments.require("size", 1.5, (int, float), "a number")
    arguments.require_text("phase", "")
    arguments.require_text("phase", None, may_be_none=True)
    arguments.require_callable("clock", len)
    arguments.require_callable("clock", None, may_be_none=True)


def test_what_is_of_another_type_is_named() -> None:
    assert problem(arguments.require, "size", "1", (int, float), "a number") == "size: must be a number, not '1'"
    assert problem(arguments.require_text, "phase", 7) == "phase: must be a string, not 7"
    assert problem(arguments.require_text, "phase", 7, may_be_none=True) == "phase: must be a string, not 7"
    assert problem(arguments.require_text, "phase", None) == "phase: must be a string, not None"
    assert problem(arguments.require_callable, "clock", 7) == "clock: must be a function, not 7"
    assert problem(arguments.require_callable, "clock", 7, may_be_none=True) == "clock: must be a function, not 7"
    assert problem(arguments.require_callable, "clock", None) == "clock: must be a function, not None"


def test_a_long_value_is_cut() -> None:
    assert problem(arguments.require_text, "phase", ["x" * 100]) == f"phase: must be a string, not ['{'x' * 58}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ()), ([], ()), (["a", ""], ("a", "")), (("a",), ("a",)), ({"a"}, ("a",)), ({"a": 1}.keys(), ("a",))],
)
def test_strings_may_be_any_collection(value: Any, expected: tuple[str, ...]) -> None:
    assert arguments.strings("errors", value) == expected


def test_strings_may_come_one_by_one() -> None:
    assert arguments.strings("errors", iter(["a", "b"])) == ("a", "b")


@pytest.mark.parametrize("value", ["one", b"one", {"one": 1}, 7])
def test_what_is_no_collection_of_strings_is_refused(value: Any) -> None:
    assert problem(arguments.strings, "errors", value) == f"errors: must be a list of strings, not {value!r}"


def test_the_one_that_is_no_string_is_named_by_its_place() -> None:
    assert problem(arguments.strings, "errors", ["one", None]) == "errors[1]: must be a string, not None"


def test_a_map_is_copied() -> None:
    given = OrderedDict(a=1)
    made = arguments.mapping("state", given)
    assert (type(made), made) == (dict, {"a": 1})
    made["b"] = 2
    assert given == {"a": 1}
    assert arguments.mapping("state", None) == {}
    assert problem(arguments.mapping, "state", [("a", 1)]) == "state: must be a map of names to values, not [('a', 1)]"
