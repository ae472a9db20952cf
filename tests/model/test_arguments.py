"""Arguments that a caller passes: an error names the argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import UsageError
from gitckpt.model import arguments


def problem(check: Callable[..., object], *args: Any, **options: Any) -> str:
    """Return the text of the error."""
    with pytest.raises(UsageError) as caught:
        check(*args, **options)
    assert type(caught.value) is UsageError
    return caught.value.message


def test_what_is_of_the_type_passes() -> None:
    arguments.require_type("size", 1, int, "a number")
    arguments.require_type("size", 1.5, (int, float), "a number")
    arguments.require_text("phase", "")
    arguments.require_text("phase", None, may_be_none=True)
    arguments.require_callable("clock", len)
    arguments.require_callable("clock", None, may_be_none=True)


def test_what_is_of_another_type_is_named() -> None:
    assert (
        problem(arguments.require_type, "size", "1", (int, float), "a number")
        == "size: must be a number, not '1'"
    )
    assert problem(arguments.require_text, "phase", 7) == "phase: must be a string, not 7"
    assert (
        problem(arguments.require_text, "phase", 7, may_be_none=True)
        == "phase: must be a string, not 7"
    )
    assert problem(arguments.require_text, "phase", None) == "phase: must be a string, not None"
    assert problem(arguments.require_callable, "clock", 7) == "clock: must be a function, not 7"
    assert (
        problem(arguments.require_callable, "clock", 7, may_be_none=True)
        == "clock: must be a function, not 7"
    )
    assert (
        problem(arguments.require_callable, "clock", None) == "clock: must be a function, not None"
    )


def test_a_long_value_is_cut() -> None:
    assert (
        problem(arguments.require_text, "phase", ["x" * 100])
        == f"phase: must be a string, not ['{'x' * 58}"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ([], ()),
        (["a", ""], ("a", "")),
        (("a",), ("a",)),
        ({"a"}, ("a",)),
        ({"a": 1}.keys(), ("a",)),
    ],
)
def test_strings_may_be_any_collection(value: Any, expected: tuple[str, ...]) -> None:
    assert arguments.as_strings("errors", value) == expected


def test_strings_may_come_one_by_one() -> None:
    assert arguments.as_strings("errors", iter(["a", "b"])) == ("a", "b")


@pytest.mark.parametrize("value", ["one", b"one", {"one": 1}, 7])
def test_what_is_no_collection_of_strings_is_refused(value: Any) -> None:
    assert (
        problem(arguments.as_strings, "errors", value)
        == f"errors: must be a list of strings, not {value!r}"
    )


def test_the_one_that_is_no_string_is_named_by_its_place() -> None:
    assert (
        problem(arguments.as_strings, "errors", ["one", None])
        == "errors[1]: must be a string, not None"
    )


def test_a_map_is_copied() -> None:
    given = OrderedDict(a=1)
    made = arguments.as_mapping("state", given)
    assert (type(made), made) == (dict, {"a": 1})
    made["b"] = 2
    assert given == {"a": 1}
    assert arguments.as_mapping("state", None) == {}
    assert (
        problem(arguments.as_mapping, "state", [("a", 1)])
        == "state: must be a map of names to values, not [('a', 1)]"
    )


@pytest.mark.parametrize("paths", [[], ["a", b"b"], ("a",), [Path("a")], {"a"}])
def test_paths_are_several(paths: Any) -> None:
    assert arguments.as_paths(paths) == tuple(paths)
    assert arguments.as_paths(iter(paths)) == tuple(paths)


@pytest.mark.parametrize("paths", [None, 3, {"a": 1}])
def test_what_is_no_list_of_paths_is_refused(paths: Any) -> None:
    assert problem(arguments.as_paths, paths) == f"paths: must be a list of paths, not {paths!r}"
    assert problem(arguments.as_paths, [b"a", paths]) == f"paths[1]: must be a path, not {paths!r}"


def test_a_path_may_have_to_be_text() -> None:
    arguments.require_path("path", b"a")
    arguments.require_path("path", Path("a"), as_text=True)
    assert (
        problem(arguments.require_path, "path", b"a", as_text=True)
        == "path: must be a path, not b'a'"
    )
    for path in ("a\0", b"\0"):
        assert (
            problem(arguments.require_path, "path", path)
            == f"path: must be a path without a NUL byte, not {path!r}"
        )


def test_all_of_a_list_is_of_one_type() -> None:
    assert arguments.as_tuple("codes", iter([1, 2]), int, "a code") == (1, 2)
    assert arguments.as_tuple("codes", None, int, "a code") == ()
    assert (
        problem(arguments.as_tuple, "codes", [1, "2"], int, "a code")
        == "codes[1]: must be a code, not '2'"
    )
    for wrong in ("12", {1: 2}, 7, b"1"):
        assert (
            problem(arguments.as_tuple, "codes", wrong, int, "a code")
            == f"codes: must be a list with each item a code, not {wrong!r}"
        )


@pytest.mark.parametrize("seconds", [0, 1, 0.5, float("inf")])
def test_a_length_of_time_is_whole_or_not(seconds: float) -> None:
    arguments.require_seconds("wait", seconds)


@pytest.mark.parametrize("seconds", [-1, -0.5, "1", None, True, float("nan")])
def test_what_is_no_length_of_time_is_refused(seconds: Any) -> None:
    assert (
        problem(arguments.require_seconds, "wait", seconds)
        == f"wait: must be a number of seconds from 0 on, not {seconds!r}"
    )


@pytest.mark.parametrize("path", ["a", b"a", Path("a")])
def test_one_path_alone_is_refused(path: Any) -> None:
    assert problem(arguments.as_paths, path) == f"paths: must be a list of paths, not {path!r}"


@pytest.mark.parametrize("number", [0, 1, 10**30])
def test_a_number_is_whole_and_from_0_on(number: int) -> None:
    arguments.require_number("limit", number)
    arguments.require_number("limit", None, may_be_none=True)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        *(("1", "a whole number"), (1.0, "a whole number"), (None, "a whole number")),
        *(
            (-1, "a whole number from 0 on"),
            (True, "a whole number from 0 on"),
            (False, "a whole number from 0 on"),
        ),
    ],
)
def test_another_number_is_refused(value: Any, what: str) -> None:
    assert (
        problem(arguments.require_number, "limit", value) == f"limit: must be {what}, not {value!r}"
    )
    if value is not None:
        assert (
            problem(arguments.require_number, "limit", value, may_be_none=True)
            == f"limit: must be {what}, not {value!r}"
        )
