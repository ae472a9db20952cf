"""The TOML that the store writes: lossless, portable, and readable."""

from __future__ import annotations

import copy
import datetime
import importlib
import importlib.util
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitckpt import StateError
from gitckpt.model import toml
from tests.conftest import examples

quick = settings(max_examples=examples(150), deadline=None, database=None)

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
    (
        'long enough to be written on several lines, if it has\nsuch:\r\n\n  \\\n"""\n'
        "'''\n\x00 and ends in a quote\""
    ),
]
"""Text that has broken a TOML writer or reader, JSON pointers, or our headers."""


def texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(NASTY),
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80),
    )


def toml_scalars() -> st.SearchStrategy[Any]:
    zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
        lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
    )
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
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4),
        max_leaves=15,
    )
    return st.dictionaries(texts(), values, max_size=5)


# `repr` tells 1 from 1.0 and True, 0.0 from -0.0, shows nan as nan, and keeps the order of keys.


@pytest.mark.long
@quick
@given(trees(toml_scalars()))
@example({text: text for text in NASTY})
@example({"a": {text: {text: [text, {text: text}]} for text in NASTY}})
@example(
    {
        "zero": [0, 0.0, -0.0, False],
        "one": [1, 1.0, True],
        "odd": [float("nan"), float("inf"), float("-inf"), 5e-324, 1e22, 1e16],
    }
)
def test_whatever_toml_knows_comes_back_equal_in_type_value_and_order(
    document: dict[str, Any],
) -> None:
    before = copy.deepcopy(document)
    assert repr(toml.loads(toml.dumps(document))) == repr(document)
    assert repr(document) == repr(before)


def test_the_text_is_as_a_person_would_write_it() -> None:
    document = {
        "version": 1,
        "ratio": 0.5,
        "on": True,
        "text": 'a "quoted"\tword',
        "lines": (
            'first line of a text that is long enough\nsecond line of it, with a \\ and a "\r\n'
        ),
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


@pytest.mark.parametrize(
    ("key", "written"),
    [
        *((key, key) for key in ("a", "A_1", "a-b", "-", "1", "0x", "1979-05-27", "true")),
        *((key, f'"{key}"') for key in ("", " ", "a b", "a.b", "é", "a/b", "'", "#")),
        ('say "hi"', '"say \\"hi\\""'),
        ("\\", '"\\\\"'),
        ("x\n" * 30, '"' + "x\\n" * 30 + '"'),
    ],
)
def test_a_key_is_bare_where_it_may_be_and_never_on_several_lines(key: str, written: str) -> None:
    document = {"one": {key: {key: 1}}, "all": [], "two": {key: {}}}
    text = f"one = {{{written} = {{{written} = 1}}}}\nall = []\n\n[two]\n\n[two.{written}]\n"
    assert (toml.dumps(document), toml.loads(text)) == (text, document)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x" * 59 + "\n", '"""\n' + "x" * 59 + '\n"""'),
        ("x" * 58 + "\n", '"' + "x" * 58 + '\\n"'),
        ("x[0] = 1\n" * 10, '"""\n' + "x[0] = 1\n" * 10 + '"""'),
        ("\N{NO-BREAK SPACE}[x]\n" * 12, '"""\n' + "\N{NO-BREAK SPACE}[x]\n" * 12 + '"""'),
        ("[x]\n" * 15, '"' + "[x]\\n" * 15 + '"'),
        ("x\n" * 28 + " \t[x]", '"' + "x\\n" * 28 + ' \\t[x]"'),
    ],
    ids=[
        "long",
        "shorter",
        "brackets",
        "behind a space that is none",
        "header",
        "header further down",
    ],
)
def test_a_long_text_is_written_line_by_line_unless_a_line_looks_like_a_header(
    text: str, written: str
) -> None:
    assert toml.dumps({"text": text}) == f"text = {written}\n"
    assert toml.loads(toml.dumps({"text": text})) == {"text": text}


@pytest.mark.long
@quick
@given(trees(toml_scalars()))
def test_the_text_has_no_control_character_but_line_feed(document: dict[str, Any]) -> None:
    controls = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n"}
    assert controls & set(toml.dumps(document)) == set()


def plain(value: Any) -> Any:
    """Return another reader's value in Python's types, with zones as fixed offsets."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        offset = value.utcoffset()
        zone = None if offset is None else datetime.timezone(offset)
        return datetime.datetime(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
            zone,
        )
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


@pytest.mark.long
@quick
@given(STATES)
@example({text: {text: [text, {text: None}]} for text in NASTY})
def test_tomlkit_reads_what_we_write_as_tomllib_does(state: dict[str, Any]) -> None:
    text = toml.dump_state(state, {})
    assert repr(plain(tomlkit.parse(text).unwrap())) == repr(tomllib.loads(text))


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("rtoml") is None, reason="rtoml, a reader in Rust, is not installed"
)
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
    assert types == {
        "/none": "null",
        "/raw": "bytes",
        "/big/0": "integer",
        "/big/1": "integer",
        "//a~1b/~0": "null",
    }


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [4299, 4300, 4301, 20_000])
def test_integers_beyond_the_digits_that_python_prints_are_written_in_hex(
    sign: int, power: int
) -> None:
    types: dict[str, str] = {}
    number = sign * 10**power
    text = toml.dump_state({"n": number}, types)
    assert (text, types) == (f'[state]\nn = "{hex(number)}"\n', {"/n": "integer"})


@pytest.mark.parametrize(("value", "kind"), [(None, "null"), (b"x", "bytes"), (2**63, "integer")])
def test_a_document_itself_holds_only_what_toml_knows(value: Any, kind: str) -> None:
    with pytest.raises(StateError) as caught:
        toml.dumps({"a": [{"b/c": value}]})
    assert (caught.value.path, caught.value.problem) == (
        "/a/0/b~1c",
        f"TOML has no {kind} for this value",
    )
