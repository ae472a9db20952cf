"""The budget of a document: counted before parsing, never too low.

The writer keeps to it.
"""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitckpt import Checkpoint, InvalidCheckpoint, StateError
from gitckpt.model import budget, codec, toml
from gitckpt.model.budget import LimitExceeded, SizeLimits
from tests.model.example_documents import (
    DOCUMENT,
    REF,
    SMALL,
    SMALL_DOCUMENT,
    changed,
    quick,
    read_or_fault,
)

PLENTY = SizeLimits(1 << 30, 1 << 30, 1 << 30)


def excess(text: str, limits: SizeLimits = budget.DOCUMENT) -> str:
    """Return the exceeded limit, or "" if a reader would accept the text."""
    try:
        budget.require_toml_within(text, limits)
    except LimitExceeded as error:
        return str(error)
    return ""


# What is counted


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("", 0, 0),
        ("a = 1\n", 1, 0),
        ("a.b . c = 1\n", 3, 0),
        ("'a.b'.\"c.d\" = 1\n", 2, 0),
        ("[a.b]\nc.d = 1\n", 4, 0),
        ("[[a]]\n[[a]]\nb = 1\n[[a.'c']]", 5, 0),
        ("  [ a . b ]  # [c.d] x.y = 1,2\n", 2, 0),
        ("a = 1.5\nb = 2.5e3\nc = 2026-11-21T20:15:00.5Z\n", 3, 0),
        ("a = [1.5, 2.5,\n 3.5, # 4, [5\n [6.0, 7.0]\n,\n]\n", 1, 5),
        ("a = {b = 1, c.d = [1, 2], e = {f = 1}}\n", 6, 1),
        ("a = [{b = 1}, {b = 1}]\nc = 1", 4, 1),
        ("a = [\n[1],\n[2.5]\n]\n[b]", 2, 1),
        ('a = "x.y = [1, 2] # \\" {"\nb = 1', 2, 0),
        ("a = 'x.y = [1, 2] # \\'\nb = 1", 2, 0),
        ('a = """\n[b]\nc.d = 1, 2\n\\""" "" """"\ne = 1', 2, 0),
        ('a = """x \\\n  [b]\nc.d = 1, 2 \\\n"""\ne = [1, 2]', 2, 1),
        ('a = """\\\n"""\nb.c = [1, 2] # """', 3, 1),
        ("a = '''\n[b]\nc.d = 1, 2 '' '''''\ne = 1", 2, 0),
        ("a = \"\"\"\"\"\"\nb = \"\"\nc = ''\nd = ''''''\n", 4, 0),
        ('a = 1 # it\'s """ not\nb = 2', 2, 0),
        ("a = [ # ]\n1, 2 ]\nb = 1", 2, 1),
    ],
)
def test_names_and_values_are_counted_and_nothing_within_strings_and_comments(
    text: str, names: int, values: int
) -> None:
    padding = (
        '"long" = {' + ", ".join(f"k{number} = []" for number in range(130)) + "}\n"
    )  # prevents the quick check from deciding
    tomllib.loads(text)
    assert not excess(text, SizeLimits(len(text), names, values))
    whole = padding + text
    assert not excess(whole, SizeLimits(len(whole), names + 131, values))
    assert (
        excess(whole, SizeLimits(len(whole), names + 130, values))
        == f"more than {names + 130} keys, each part of a dotted one counted"
    )
    if values:
        assert (
            excess(text, SizeLimits(len(text), names, values - 1))
            == f"more than {values - 1} values in arrays"
        )
    with pytest.raises(LimitExceeded, match="too large"):
        budget.require_toml_within(text, SizeLimits(len(text) - 1, names, values))


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("a = {}{}1{}\n", 1),
        ("a = [{}{}1{}]\n", 2),
        ("[x.y]\na = {}{}1{}\n", 3),
        ("[x]\na = {{b = {}{}1{}}}\n", 3),
        ("a = {{b.c = [[1], {}{}1{}]}}\n", 4),
    ],
)
def test_levels_are_keys_parts_of_them_and_places_in_arrays(text: str, levels: int) -> None:
    most = budget.MAX_LEVELS - levels
    assert not excess(text.format("", "[" * most, "]" * most))
    assert (
        excess(text.format("[", "[" * most, "]" * most + "]"))
        == "nests deeper than 256 levels, the parts of dotted keys counted"
    )


@pytest.mark.parametrize("text", ["[{}]\n", "{} = 1\n", "a = {{{} = 1}}\n", "[[{}]]\n"])
def test_a_dotted_key_has_no_more_parts_than_levels_are_allowed(text: str) -> None:
    most = budget.MAX_LEVELS - text.startswith("a")
    assert not excess(text.format(".".join("x" * most)))
    assert excess(text.format(".".join("x" * (most + 1)))).startswith(
        "nests deeper than 256 levels"
    )
    assert excess(".".join("x" * (most + 2))).startswith(
        "nests deeper"
    )  # not a key yet, but parsed all the same


@pytest.mark.parametrize(
    "number",
    [
        "9",
        "-9",
        "0x{}f",
        "0b{}1",
        "1_0",
        "1.5",
        "1e5",
        "1.5e5",
        "0o{}7",
        "[1, {}1",
        "[\n{}1",
        "[[1], [{}1",
        "2026-11-21T00:00:00.5",
    ],
)
def test_a_number_has_no_more_digits_than_are_allowed(number: str) -> None:
    digits = "1" * budget.MAX_DIGITS
    text = f"a = {number.replace('{}', digits) if '{}' in number else number + digits}"
    assert excess(text).endswith("where 128 are allowed")
    assert not excess(
        f"{digits * 2} = 1\n[{digits * 2}]\nx = {{{digits * 2} = '{digits * 2}', "
        f'y = "{digits * 2}"}} # {digits * 2}'
    )


def test_keys_are_looked_up_from_the_top_so_that_many_deep_ones_are_refused() -> None:
    def deep(keys: int) -> str:
        return f"[{'.'.join('x' * 199)}]\n" + "".join(f"k{number} = 1\n" for number in range(keys))

    most = (budget.DOCUMENT.max_key_depth_sum - 199) // 200
    assert not excess(deep(most))
    assert "keys too deep and too many" in excess(deep(most + 1))


def test_so_many_steps_as_are_allowed_are_taken() -> None:
    text = f"[{'.'.join('x' * 64)}]\n" + "".join(f"k{number} = 1.5\n" for number in range(64))
    allowed = 64 + 64 * 65  # the header, and the values below it
    assert SizeLimits(0, 132, 0).max_key_depth_sum == allowed
    assert not excess(text, SizeLimits(len(text), 132, 0))
    assert (
        excess(text, SizeLimits(len(text), 131, 0))
        == "keys too deep and too many: more than 4,192 steps from the top, added up"
    )


# Never too low

KEYS = st.lists(
    st.sampled_from(["a", "b", "-1", "'x.y = [{'", '"q\\".]"']), min_size=1, max_size=4
).map(" . ".join)
SCALARS = st.sampled_from(
    [
        *(
            "1",
            "-0x1f",
            "1.5",
            "6.0e-3",
            "inf",
            "true",
            "1979-05-27T07:32:00.9-07:00",
            "07:32:00",
            '""',
            "''",
            '"[.=,{#"',
            "'\"[.='",
        ),
        *('"""\n[a.b]\nc = "" \\""" # {,\n"""""', "'''\n[a]\n' '' #'''''", '"\\\\"', '"""\\\\"""'),
    ]
)
GAPS = st.sampled_from(["", " ", "\n", "# [a.b = {,'\"\n", '\t\n# """\n'])


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return arrays over several lines."""
    return st.lists(st.tuples(GAPS, values, GAPS).map("".join), max_size=4).map(
        lambda each: f"[{','.join(each)}{',' if each else ''}]"
    )


def tables(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return inline tables."""
    return st.lists(st.tuples(KEYS, values).map(" = ".join), max_size=3).map(
        lambda each: f"{{{', '.join(each)}}}"
    )


VALUES = st.recursive(SCALARS, lambda inner: arrays(inner) | tables(inner), max_leaves=8)
LINES = (
    st.tuples(KEYS, VALUES, st.sampled_from(["", " # x.y = [", "\r"])).map(
        lambda each: f"{each[0]}={each[1]}{each[2]}"
    )
    | KEYS.map(lambda key: f" [{key}]")
    | KEYS.map(lambda key: f"[[ {key} ]] # [")
    | st.sampled_from(["", "# a.b = [{"])
)


def found_in(value: Any) -> tuple[int, int, int]:
    """Return the minimal numbers of keys and commas of a value, and its depth."""
    inner = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    each = [found_in(one) for one in inner]
    is_table = isinstance(value, dict)
    names = sum(one[0] for one in each) + len(inner) * is_table
    commas = sum(one[1] for one in each)
    commas += (
        0 if is_table or not inner or isinstance(inner[0], dict) else len(inner) - 1
    )  # tables may stand in [[headers]]
    return names, commas, max((one[2] + 1 for one in each), default=0)


@quick
@given(st.lists(LINES, max_size=12).map("\n".join))
@example("a = [1, 2]\n[b.c]\nd.e = 3")
def test_what_a_parser_finds_was_counted(text: str) -> None:
    try:
        read = tomllib.loads(text)
    except ValueError:
        return
    names, commas, levels = found_in(read)
    assert not names or excess(text, SizeLimits(len(text), names - 1, 1 << 30))
    assert not commas or excess(text, SizeLimits(len(text), 1 << 30, commas - 1))
    assert levels <= budget.MAX_LEVELS
    assert not excess(
        text,
        SizeLimits(len(text), text.count("=") + text.count(".") + text.count("["), text.count(",")),
    )


@quick
@given(
    st.recursive(
        st.integers(-5, 5)
        | st.text(alphabet="a.\n[='\",{#", max_size=70)
        | st.floats(allow_nan=False),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(st.text(alphabet="ab. ='", max_size=3), inner, max_size=5)
        ),
        max_leaves=30,
    ),
    st.integers(0, 40),
    st.integers(0, 20),
)
def test_what_the_writer_writes_a_reader_takes(value: Any, names: int, values: int) -> None:
    limits = SizeLimits(1 << 20, names, values)
    with contextlib.suppress(StateError):
        assert not excess(toml.dumps({"x": value}, limits), limits)


@quick
@given(st.text(alphabet="{}[]=.,\n a1_\"'#\\", max_size=60))
@example("{")
def test_what_is_no_toml_is_let_through_or_refused(text: str) -> None:
    assert excess(text, SizeLimits(len(text), 0, 0)) in {
        *(
            "",
            "more than 0 keys, each part of a dotted one counted",
            "more than 0 values in arrays",
        ),
        "nests deeper than 256 levels, the parts of dotted keys counted",
    }


# Documents

MUTATIONS = st.tuples(
    st.integers(0, len(DOCUMENT)),
    st.integers(0, 40),
    st.sampled_from(
        [
            "",
            "[",
            "]",
            "{",
            "}",
            "=",
            ".",
            ",",
            '"',
            "'",
            '"""',
            "'''",
            "\n",
            "\\",
            "#",
            "9",
            "0x",
            "_",
            "-",
            "e",
            "T",
            ":",
            "\0",
            "\x7f",
            "é",
            "[[a]]",
        ]
    ),
    st.integers(1, 3) | st.sampled_from([200, 300, 3000]),
)


@quick
@given(st.lists(MUTATIONS, min_size=1, max_size=4))
def test_a_document_with_changes_is_read_or_refused_and_costs_what_is_allowed(
    changes: list[tuple[int, int, str, int]],
) -> None:
    text = DOCUMENT
    for at, cut, more, times in changes:
        text = text[:at] + more * times + text[at + cut :]
    for read in (codec.decode, codec.decode_header, codec.decode_summary):
        found = read_or_fault(read, text.encode())
        if isinstance(found, InvalidCheckpoint):
            assert "cannot be read" not in found.problem  # the message for unforeseen errors
            assert len(found.message) < 1200


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            ".".join("a" * 20_000) + " = 1",
            "nests deeper than 256 levels, the parts of dotted keys counted",
        ),
        ("a = " + "9" * 1_000_000, "a number of 1,000,000 digits, where 128 are allowed"),
        ("a = " + "[" * 10_000, "nests deeper than 256 levels, the parts of dotted keys counted"),
        (
            "".join(f"k{number} = 1\n" for number in range(60_000)),
            "more than 50,000 keys, each part of a dotted one counted",
        ),
        (f"a = [{'1,' * 100_001}]", "more than 100,000 values in arrays"),
        (f"a = '{'x' * budget.HEADER.size}'", "too large"),
    ],
    ids=["parts", "digits", "arrays", "keys", "values", "size"],
)
def test_a_header_that_costs_too_much_is_refused_by_every_reader(more: str, problem: str) -> None:
    data = SMALL_DOCUMENT.replace("errors = []", f"errors = []\n{more}").encode()
    for read in (codec.decode, codec.decode_header, codec.decode_summary):
        with pytest.raises(InvalidCheckpoint) as caught:
            read(data, REF)
        assert (caught.value.ref, caught.value.problem[: len(problem)]) == (REF, problem)


def test_a_document_larger_than_is_allowed_is_refused_before_it_is_looked_at() -> None:
    data = b"\xff" * (budget.DOCUMENT.size + 1)
    for read in (codec.decode, codec.decode_header, codec.decode_summary):
        with pytest.raises(
            InvalidCheckpoint, match="too large: 33,554,433 bytes, where 33,554,432 are allowed"
        ) as caught:
            read(data, REF)
        assert caught.value.ref == REF


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (
            {str(number): number for number in range(150_001)},
            "the state has 150,002 keys; readers accept 150,000",
        ),
        (
            {"a": [0] * 900_001},
            "the state has 900,001 values in arrays; readers accept 900,000",
        ),
        (
            {"a": "é" * (14 << 20)},
            "the state has 29,360,143 bytes; readers accept 29,360,128",
        ),
        ({"a": None, "b": [None] * 50_000}, "the document, less the state, has 50,0"),
        (
            {"a": 16**65_540},
            "an integer of 65,543 hexadecimal characters; readers accept 65,536",
        ),
        (
            {"a": [16**60_000] * 5},
            "the state has 300,015 characters in long integers; readers accept 262,144",
        ),
    ],
    ids=["keys", "values", "size", "types", "digits", "long"],
)
def test_the_writer_refuses_what_readers_would(state: dict[str, Any], problem: str) -> None:
    with pytest.raises(StateError) as caught:
        codec.encode(
            Checkpoint(
                id=SMALL.id,
                label="a-complete",
                timestamp=SMALL.timestamp,
                git_sha="",
                trigger="manual",
                state=state,
            )
        )
    assert caught.value.problem.startswith(problem)
    assert caught.value.hint


def within(lists: int, value: Any) -> Any:
    return [within(lists - 1, value)] if lists else value


@pytest.mark.parametrize(
    ("document", "limits", "less", "amount", "most"),
    [
        ({"a": 1}, (6, 2, 0), (5, 2, 0), "6 bytes", 5),
        ({"a": "é"}, (9, 2, 0), (8, 2, 0), "9 bytes", 8),
        ({"a": 1, "b": 2}, (12, 3, 0), (12, 2, 0), "3 keys", 2),
        ({"a": {"b": 1}, "c": 1}, (99, 4, 0), (99, 3, 0), "4 keys", 3),
        ({"a": {"b": {"c": 1}}}, (99, 9, 0), (99, 8, 0), "9 keys", 8),
        ({"a": [1, [2]]}, (99, 2, 3), (99, 2, 2), "3 values in arrays", 2),
        (
            {"a": within(40, {f"k{number}": 0 for number in range(9)})},
            (999, 13, 99),
            (999, 12, 99),
            "391 steps from the top to its keys, added up",
            384,
        ),
    ],
)
def test_the_writer_says_what_there_is_too_much_of(
    document: dict[str, Any],
    limits: tuple[int, int, int],
    less: tuple[int, int, int],
    amount: str,
    most: int,
) -> None:
    assert tomllib.loads(toml.dumps(document, SizeLimits(*limits))) == document
    with pytest.raises(StateError) as caught:
        toml.dumps(document, SizeLimits(*less))
    assert (caught.value.path, caught.value.problem) == (
        "",
        f"the document has {amount}; readers accept {most}",
    )
    assert (
        caught.value.hint
        == "put large data into a file of the worktree, and the path into the state"
    )


@pytest.mark.parametrize(
    ("sign", "digits"),
    [(1, budget.MAX_HEXADECIMAL - len("0x")), (-1, budget.MAX_HEXADECIMAL - len("-0x"))],
)
def test_the_longest_integers_that_readers_take_are_written_and_no_longer_ones(
    sign: int, digits: int
) -> None:
    longest, many = sign * 16 ** (digits - 1), budget.MAX_LONG // budget.MAX_HEXADECIMAL
    one = replace(SMALL, state={"v": [longest] * many, "decimal": 10**3900})
    assert codec.decode(codec.encode(one), REF) == one
    for state, problem, hint in (
        (
            {"v": longest * 16},
            "an integer of 65,537 hexadecimal characters; readers accept 65,536",
            "store the integer as bytes",
        ),
        (
            {"v": [longest] * many, "w": 16**4300},
            "the state has 266,447 characters in long integers; readers accept 262,144",
            "put large data into a file of the worktree, and the path into the state",
        ),
    ):
        with pytest.raises(StateError) as caught:
            codec.encode(replace(SMALL, state=state))
        assert (caught.value.problem, caught.value.hint) == (problem, hint)


@pytest.mark.long
def test_a_wide_state_and_a_long_one_come_back() -> None:
    state = {
        "text": "line\n" * 200_000,
        "wide": {f"k{number}": number for number in range(50_001)},
        "many": [1.5] * 100_001,
    }
    checkpoint = Checkpoint(
        id=SMALL.id,
        label="a-complete",
        timestamp=SMALL.timestamp,
        git_sha="",
        trigger="manual",
        state=state,
    )
    data = codec.encode(checkpoint)
    assert codec.decode(data, REF).state == state
    assert codec.decode_header(data, REF).state == {}


def test_what_a_document_says_is_cut_in_messages() -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.decode(changed("timestamp", "x" * 100_000), REF)
    assert len(caught.value.message) < 700
