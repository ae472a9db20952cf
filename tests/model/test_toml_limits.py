"""The codec refuses values that TOML cannot hold, and text that is not TOML.

The error has a pointer to the value.
"""

from __future__ import annotations

import datetime
import enum
import zoneinfo
from collections import OrderedDict
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from gitckpt import StateError
from gitckpt.model import toml


class Name(str):
    __slots__ = ()


class Table(dict[str, Any]):
    pass


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Stamp(datetime.datetime):
    pass


class Nowhere(datetime.tzinfo):
    """A time zone without an offset."""

    def utcoffset(self, when: datetime.datetime | None) -> None:
        return None

    def dst(self, when: datetime.datetime | None) -> None:
        return None

    def tzname(self, when: datetime.datetime | None) -> None:
        return None

    def __repr__(self) -> str:
        return "Nowhere()"


NOON = datetime.datetime(2026, 11, 21, 12)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UNSTORABLE: list[tuple[Any, str]] = [
    ((1, 2), "a builtins.tuple cannot be stored"),
    ((), "a builtins.tuple cannot be stored"),
    ({1, 2}, "a builtins.set cannot be stored"),
    (frozenset(), "a builtins.frozenset cannot be stored"),
    (Name("x"), f"a {__name__}.Name cannot be stored"),
    (Table(a=1), f"a {__name__}.Table cannot be stored"),
    (OrderedDict(a=1), "a collections.OrderedDict cannot be stored"),
    (MappingProxyType({}), "a builtins.mappingproxy cannot be stored"),
    (Colour.RED, f"a {__name__}.Colour cannot be stored"),
    (Level.LOW, f"a {__name__}.Level cannot be stored"),
    (Stamp(2026, 11, 21), f"a {__name__}.Stamp cannot be stored"),
    (bytearray(b"x"), "a builtins.bytearray cannot be stored"),
    (memoryview(b"x"), "a builtins.memoryview cannot be stored"),
    (1j, "a builtins.complex cannot be stored"),
    (Decimal(1), "a decimal.Decimal cannot be stored"),
    (PurePosixPath("x"), f"a {PurePosixPath.__module__}.PurePosixPath cannot be stored"),
    (datetime.timedelta(1), "a datetime.timedelta cannot be stored"),
    (object(), "a builtins.object cannot be stored"),
    (len, "a builtins.builtin_function_or_method cannot be stored"),
    (int, "a builtins.type cannot be stored"),
    (range(3), "a builtins.range cannot be stored"),
    ("\ud800", "holds a lone surrogate (U+D800), which UTF-8 cannot encode"),
    ("file-\udcff\n" * 20, "holds a lone surrogate (U+DCFF), which UTF-8 cannot encode"),
    (datetime.time(12, tzinfo=datetime.UTC), "a time with a zone cannot be stored"),
    (datetime.time(2, fold=1), "a time with a zone cannot be stored"),
    (
        NOON.replace(tzinfo=BERLIN),
        "a date-time with the zone zoneinfo.ZoneInfo(key='Europe/Berlin') cannot be stored",
    ),
    (NOON.replace(tzinfo=Nowhere()), "a date-time with the zone Nowhere() cannot be stored"),
    (
        NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(seconds=90))),
        (
            "a date-time with the zone datetime.timezone(datetime.timedelta(seconds=90)) "
            "cannot be stored"
        ),
    ),
    (NOON.replace(fold=1), "a date-time with fold=1 cannot be stored"),
]


@pytest.mark.parametrize(
    ("value", "problem"),
    UNSTORABLE,
    ids=[f"{type(value).__name__}-{i}" for i, (value, _) in enumerate(UNSTORABLE)],
)
def test_what_cannot_be_stored_unchanged_is_refused_with_its_pointer(
    value: Any, problem: str
) -> None:
    holders: list[tuple[dict[str, Any], str]] = [
        ({"x": value}, "/x"),
        ({"": {"a/b": {"~": value}}}, "//a~1b/~0"),
        ({"list": [0, [1, value]]}, "/list/1/1"),
        ({"inline": {"k": [{"deep": value}]}, "plain": 1}, "/inline/k/0/deep"),
    ]
    for state, pointer in holders:
        with pytest.raises(StateError) as caught:
            toml.dump_state(state, {})
        assert (caught.value.path, caught.value.problem, caught.value.exit_code) == (
            pointer,
            problem,
            13,
        )
        assert str(caught.value) == f"{pointer}: {problem}"
        assert caught.value.hint or "fold" in problem


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ((1, 2), "a state holds JSON values, bytes, and dates and times; convert the value first"),
        (datetime.time(12, tzinfo=datetime.UTC), "TOML has zones for date-times only"),
        (
            NOON.replace(tzinfo=BERLIN),
            "convert the value to a fixed offset of whole minutes, such as datetime.timezone.utc",
        ),
        (NOON.replace(fold=1), None),
        (
            "\udcff",
            "decode file names and program output with errors='replace', or store them as bytes",
        ),
        (
            {"\udcff": 1},
            "decode file names and program output with errors='replace', or store them as bytes",
        ),
        ({1: 2}, "TOML and JSON have string keys only"),
    ],
)
def test_whoever_has_what_cannot_be_stored_is_told_what_to_do(value: Any, hint: str | None) -> None:
    with pytest.raises(StateError) as caught:
        toml.dump_state({"x": value}, {})
    assert caught.value.hint == hint


def test_an_integer_that_python_might_not_print_is_written_in_hex() -> None:
    assert toml.dump_state({"x": 2**12_999}, {}) == f'[state]\nx = "{2**12_999}"\n'
    assert toml.dump_state({"x": 2**13_000}, {}) == f'[state]\nx = "{hex(2**13_000)}"\n'


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (1, "the key 1 is not a string"),
        (True, "the key True is not a string"),
        (None, "the key None is not a string"),
        (1.5, "the key 1.5 is not a string"),
        (("a", "b"), "the key ('a', 'b') is not a string"),
        (b"x", "the key b'x' is not a string"),
        (Name("x"), "the key 'x' is not a string"),
        (16**5000, f"the key 0x1{'0' * 5000} is not a string"),
    ],
    ids=["int", "bool", "none", "float", "tuple", "bytes", "str subclass", "huge int"],
)
def test_a_key_that_is_no_string_is_refused_with_the_pointer_of_its_map(
    key: Any, problem: str
) -> None:
    states: list[tuple[dict[Any, Any], str]] = [
        ({key: 1}, ""),
        ({"a": {key: {}}}, "/a"),
        ({"a": [{key: 1}]}, "/a/0"),
        ({"a": {"b": {key: 1}}, "c": 1}, "/a/b"),
    ]
    for state, pointer in states:
        with pytest.raises(StateError) as caught:
            toml.dump_state(state, {})
        assert (caught.value.path, caught.value.problem) == (pointer, problem)


@pytest.mark.parametrize(
    "state", [{"a": {"k\udc80": 1}}, {"a": {"k\udc80": {"b": 1}}}, {"a": {"k\udc80": 1}, "z": 1}]
)
def test_a_lone_surrogate_in_a_key_is_refused_with_a_pointer_that_can_be_printed(
    state: dict[str, Any],
) -> None:
    with pytest.raises(StateError) as caught:
        toml.dump_state(state, {})
    assert (caught.value.path, caught.value.problem) == (
        "/a/k\\udc80",
        "holds a lone surrogate (U+DC80), which UTF-8 cannot encode",
    )
    assert str(caught.value).encode()


def nested(levels: int, kind: str) -> dict[str, Any]:
    """Return a state with nested containers, itself not counted as a level."""
    value: Any = 1
    for level in range(levels):
        value = [value] if kind == "lists" or (kind == "both" and level % 2) else {"k": value}
    return {"k": value} | ({"after": 1} if kind == "inline" else {})


@pytest.mark.parametrize("kind", ["tables", "inline", "lists", "both"])
def test_200_levels_come_back_and_one_more_is_refused(kind: str) -> None:
    state = nested(toml.MAX_DEPTH, kind)
    assert toml.loads(toml.dump_state(state, {})) == {"state": state}
    with pytest.raises(StateError) as caught:
        toml.dump_state(nested(toml.MAX_DEPTH + 1, kind), {})
    assert caught.value.problem == "nests deeper than 200 levels"
    assert caught.value.path.count("/") == 201


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_a_value_that_contains_itself_is_refused(kind: str) -> None:
    loop: Any = [] if kind == "list" else {}
    if kind == "list":
        loop.append(loop)
    else:
        loop["again"] = loop
    with pytest.raises(StateError, match="nests deeper than 200 levels"):
        toml.dump_state({"loop": loop}, {})


def test_a_zone_s_name_is_dropped_and_its_offset_kept() -> None:
    moment = NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET"))
    read = toml.loads(toml.dumps({"at": moment}))["at"]
    assert (read, read.utcoffset()) == (moment, datetime.timedelta(hours=1))


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a = ",
        "a = 1\na = 2",
        "[a]\n[a]",
        "a = 0123",
        "a = 2026-13-45",
        'a = "\\ud800"',
        "a = " + "9" * 5000,
        "\ufeffa = 1",
    ],
)
def test_what_is_no_toml_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        toml.loads(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "{b = " * 100_000])
def test_nesting_beyond_what_python_follows_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="nests deeper than 256 levels"):
        toml.loads(text)
    with pytest.raises(ValueError, match="nests too deeply"):
        toml.loads(text, None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, ""),
        ((None, ""), "/"),
        (((None, "a/b"), 0), "/a~1b/0"),
        ((None, "~1"), "/~01"),
        (((None, ""), ""), "//"),
    ],
)
def test_a_pointer_is_written_as_rfc_6901_says(path: Any, expected: str) -> None:
    assert toml.json_pointer(path) == expected
