"""The TOML that the store writes: lossless, the same to every reader, and refused where it could not be."""

from __future__ import annotations

import copy
import datetime
import enum
import importlib
import importlib.util
import tomllib
import zoneinfo
from collections import OrderedDict
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
import tomlkit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitckpt.model import toml
from gitckpt.model.errors import StateError

quick = settings(max_examples=150, deadline=None, database=None)

NASTY = [
    "",
    " ",
    "a.b",
    'say "hi"',
    "it's",
    '"""',
    "'''",
    "back\\slash",
    "\\",
    "\\u0041",
    "a/b",
    "~",
    "~1",
    "~01",
    "#",
    "=",
    "[state]",
    "\n[state]\n",
    "\r\n",
    "\r",
    "\n",
    "tab\t",
    "nul\0",
    "del\x7f",
    "c1\x80\x85\x9f",
    "\u2028\u2029",
    "\ufeffbom",
    "\u202eright to left",
    "nonchar \ufffe\uffff",
    "𝄞 clef",
    "\U0010ffff",
    "e\u0301 é",
    "true",
    "inf",
    "1979-05-27",
    "0",
    "-1",
    "state",
    'long enough to be written on several lines, if it has\nsuch:\r\n\n  \\\n"""\n\'\'\'\n\x00 and ends in a quote"',
]
"""Text that has broken some writer or reader of TOML, JSON pointers or our own headers."""


def texts() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(NASTY), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))


def toml_scalars() -> st.SearchStrategy[Any]:
    zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes)))
    return st.one_of(
        texts(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.dates(),
        st.times(),
        st.datetimes(timezones=st.one_of(st.none(), zones)),
    ).filter(lambda value: not getattr(value, "fold", 0))


def trees(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4), max_leaves=15)
    return st.dictionaries(texts(), values, max_size=5)


# `repr` tells 1 from 1.0 and True, 0.0 from -0.0, shows nan as nan, and keeps the order of keys.


@quick
@given(trees(toml_scalars()))
@example({text: text for text in NASTY})
@example({"a": {text: {text: [text, {text: text}]} for text in NASTY}})
@example({"zero": [0, 0.0, -0.0, False], "one": [1, 1.0, True], "odd": [float("nan"), float("inf"), float("-inf"), 5e-324, 1e22, 1e16]})
def test_whatever_toml_knows_comes_back_equal_in_type_value_and_order(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    assert repr(toml.loads(toml.dumps(document))) == repr(document)
    assert repr(document) == repr(before)


def test_the_text_is_as_a_person_would_write_it() -> None:
    document = {
        "version": 1,
        "ratio": 0.5,
        "on": True,
        "text": 'a "quoted"\tword',
        "lines": 'first line of a text that is long enough\nsecond line of it, with a \\ and a "\r\n',
        "list": [1, [2, "x"], {"a": 1}],
        "none": [],
        "when": datetime.datetime(2026, 11, 21, 20, 15, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 11, 21),
        "hour": datetime.time(20, 15, 0, 5),
        "inline": {"a b": 1, "é": {}},
        "last": 1,
        "table": {"key": 1, "": {"x": "\x00\x7f\x85"}, "a.b": {}},
    }
    assert (
        toml.dumps(document)
        == '''\
version = 1
ratio = 0.5
on = true
text = "a \\"quoted\\"\\tword"
lines = """
first line of a text that is long enough
second line of it, with a \\\\ and a \\"\\r
"""
list = [1, [2, "x"], {a = 1}]
none = []
when = 2026-11-21T20:15:00+00:00
day = 2026-11-21
hour = 20:15:00.000005
inline = {"a b" = 1, "é" = {}}
last = 1

[table]
key = 1

[table.""]
x = "\\u0000\\u007F\\u0085"

[table."a.b"]
'''
    )


@quick
@given(trees(toml_scalars()))
def test_the_text_has_no_control_character_but_line_feed(document: dict[str, Any]) -> None:
    controls = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n"}
    assert controls & set(toml.dumps(document)) == set()


def plain(value: Any) -> Any:
    """Returns a value of another reader in Python's own types, with every zone as a fixed offset."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        offset = value.utcoffset()
        zone = None if offset is None else datetime.timezone(offset)
        return datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone)
    if isinstance(value, datetime.date):
        return datetime.date(value.year, value.month, value.day)
    if isinstance(value, datetime.time):
        return datetime.time(value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, bool):
        return bool(value)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(type(value))


STATES = trees(toml_scalars() | st.none() | st.binary(max_size=20) | st.integers())


@quick
@given(STATES)
@example({text: {text: [text, {text: None}]} for text in NASTY})
def test_tomlkit_reads_what_we_write_as_tomllib_does(state: dict[str, Any]) -> None:
    text = toml.dump_state(state, {})
    assert repr(plain(tomlkit.parse(text).unwrap())) == repr(tomllib.loads(text))


@pytest.mark.skipif(importlib.util.find_spec("rtoml") is None, reason="rtoml, a reader in Rust, is not installed")
@quick
@given(STATES)
@example({text: {text: [text, {text: None}]} for text in NASTY})
def test_a_reader_in_rust_reads_what_we_write_as_tomllib_does(state: dict[str, Any]) -> None:
    rtoml: Any = importlib.import_module("rtoml")
    text = toml.dump_state(state, {})
    assert repr(plain(rtoml.loads(text))) == repr(tomllib.loads(text))


def test_what_toml_lacks_is_written_as_a_string_and_named_by_its_pointer() -> None:
    types: dict[str, str] = {}
    state = {
        "none": None,
        "raw": b"\x00\xff",
        "big": [2**63, -(2**63) - 1, 2**63 - 1, -(2**63)],
        "": {"a/b": {"~": None}},
    }
    assert (
        toml.dump_state(state, types)
        == """\
[state]
none = "null"
raw = "AP8="
big = ["9223372036854775808", "-9223372036854775809", 9223372036854775807, -9223372036854775808]

[state.""]

[state."".\"a/b\"]
"~" = "null"
"""
    )
    assert types == {"/none": "null", "/raw": "bytes", "/big/0": "integer", "/big/1": "integer", "//a~1b/~0": "null"}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [4299, 4300, 4301, 20_000])
def test_integers_beyond_the_digits_that_python_prints_are_written_in_hex(sign: int, power: int) -> None:
    types: dict[str, str] = {}
    number = sign * 10**power
    text = toml.dump_state({"n": number}, types)
    assert (text, types) == (f'[state]\nn = "{hex(number)}"\n', {"/n": "integer"})


@pytest.mark.parametrize(("value", "kind"), [(None, "null"), (b"x", "bytes"), (2**63, "integer")])
def test_a_document_itself_holds_only_what_toml_knows(value: Any, kind: str) -> None:
    with pytest.raises(StateError) as caught:
        toml.dumps({"a": [{"b/c": value}]})
    assert (caught.value.path, caught.value.problem) == ("/a/0/b~1c", f"TOML has no {kind} for this value")


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
    """A zone that has no offset to tell."""

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
    (PurePosixPath("x"), "a pathlib.PurePosixPath cannot be stored"),
    (datetime.timedelta(1), "a datetime.timedelta cannot be stored"),
    (object(), "a builtins.object cannot be stored"),
    (len, "a builtins.builtin_function_or_method cannot be stored"),
    (int, "a builtins.type cannot be stored"),
    (range(3), "a builtins.range cannot be stored"),
    ("\ud800", "holds a lone surrogate (U+D800), which UTF-8 cannot encode"),
    ("file-\udcff\n" * 20, "holds a lone surrogate (U+DCFF), which UTF-8 cannot encode"),
    (datetime.time(12, tzinfo=datetime.UTC), "a time with a zone cannot be stored"),
    (datetime.time(2, fold=1), "a time with a zone cannot be stored"),
    (NOON.replace(tzinfo=BERLIN), "a date-time with the zone zoneinfo.ZoneInfo(key='Europe/Berlin') cannot be stored"),
    (NOON.replace(tzinfo=Nowhere()), "a date-time with the zone Nowhere() cannot be stored"),
    (
        NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(seconds=90))),
        "a date-time with the zone datetime.timezone(datetime.timedelta(seconds=90)) cannot be stored",
    ),
    (NOON.replace(fold=1), "a date-time with fold=1 cannot be stored"),
]


@pytest.mark.parametrize(("value", "problem"), UNSTORABLE, ids=[f"{type(value).__name__}-{i}" for i, (value, _) in enumerate(UNSTORABLE)])
def test_what_cannot_be_stored_unchanged_is_refused_with_its_pointer(value: Any, problem: str) -> None:
    holders: list[tuple[dict[str, Any], str]] = [
        ({"x": value}, "/x"),
        ({"": {"a/b": {"~": value}}}, "//a~1b/~0"),
        ({"list": [0, [1, value]]}, "/list/1/1"),
        ({"inline": {"k": [{"deep": value}]}, "plain": 1}, "/inline/k/0/deep"),
    ]
    for state, pointer in holders:
        with pytest.raises(StateError) as caught:
            toml.dump_state(state, {})
        assert (caught.value.path, caught.value.problem, caught.value.exit_code) == (pointer, problem, 13)
        assert str(caught.value) == f"{pointer}: {problem}"
        assert caught.value.hint or "fold" in problem


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
def test_a_key_that_is_no_string_is_refused_with_the_pointer_of_its_map(key: Any, problem: str) -> None:
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


@pytest.mark.parametrize("state", [{"a": {"k\udc80": 1}}, {"a": {"k\udc80": {"b": 1}}}, {"a": {"k\udc80": 1}, "z": 1}])
def test_a_lone_surrogate_in_a_key_is_refused_with_a_pointer_that_can_be_printed(state: dict[str, Any]) -> None:
    with pytest.raises(StateError) as caught:
        toml.dump_state(state, {})
    assert (caught.value.path, caught.value.problem) == ("/a/k\\udc80", "holds a lone surrogate (U+DC80), which UTF-8 cannot encode")
    assert str(caught.value).encode()


def nested(levels: int, kind: str) -> dict[str, Any]:
    """Returns a state with so many containers inside each other, itself not counted."""
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
    with pytest.raises(ValueError, match="nests too deeply"):
        toml.loads(text)


@pytest.mark.parametrize(
    ("path", "expected"), [(None, ""), ((None, ""), "/"), (((None, "a/b"), 0), "/a~1b/0"), ((None, "~1"), "/~01"), (((None, ""), ""), "//")]
)
def test_a_pointer_is_written_as_rfc_6901_says(path: Any, expected: str) -> None:
    assert toml.pointer(path) == expected
