"""The types in a checkpoint document, as other programs may write them."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt import Checkpoint, InvalidCheckpoint
from gitckpt.model import budget, codec, toml
from tests.model.example_documents import REF, SMALL, SMALL_DOCUMENT, quick, read_or_fault, refusal

STATE = (
    '[state]\ntext = "null"\nraw = "AP8="\nn = 7\nlist = ["a", {"" = "5"}, []]\n[state.""]\n'
    '"~/" = "x"\n'
)


def typed(types: str) -> bytes:
    return f"{SMALL_DOCUMENT.removesuffix('[state]' + chr(10))}[types]\n{types}\n\n{STATE}".encode()


def test_types_are_applied_wherever_their_pointers_lead() -> None:
    read = codec.decode(
        typed(
            '"/text" = "null"\n"/raw" = "bytes"\n"/list/1/" = "integer"\n'
            '"/list/0" = "null"\n"//~0~1" = "null"'
        ),
        REF,
    )
    assert read.state == {
        "text": None,
        "raw": b"\x00\xff",
        "n": 7,
        "list": [None, {"": 5}, []],
        "": {"~/": None},
    }


@pytest.mark.parametrize(
    ("pointer", "kind", "problem"),
    [
        ("/nothing", "null", "points to nothing in the state"),
        ("/text/0", "null", "points to nothing in the state"),
        ("/n/0", "null", "points to nothing in the state"),
        ("/list/3", "null", "points to nothing in the state"),
        ("/list/-1", "null", "points to nothing in the state"),
        ("/list/-3", "null", "points to nothing in the state"),
        ("/list/-", "null", "points to nothing in the state"),
        ("/list/00", "null", "points to nothing in the state"),
        ("/list/+0", "null", "points to nothing in the state"),
        ("/list/ 0", "null", "points to nothing in the state"),
        ("/list/0_0", "null", "points to nothing in the state"),
        ("/list/٠", "null", "points to nothing in the state"),
        ("/list/" + "9" * 400, "null", "points to nothing in the state"),
        ("/list/x", "null", "points to nothing in the state"),
        ("/list/2/0", "null", "points to nothing in the state"),
        ("text", "null", "points to nothing in the state"),
        ("state/text", "null", "points to nothing in the state"),
        ("#/text", "null", "points to nothing in the state"),
        ("/text/", "null", "points to nothing in the state"),
        ("//~0/", "null", "points to nothing in the state"),
        ("", "null", "must point to a string in the state"),
        ("/", "null", "must point to a string in the state"),
        ("/n", "integer", "must point to a string in the state"),
        ("/list", "null", "must point to a string in the state"),
        ("/list/1", "bytes", "must point to a string in the state"),
        ("/text", "", "must point to a string that encodes ''"),
        ("/text", "datetime", "must point to a string that encodes 'datetime'"),
        ("/text", "Null", "must point to a string that encodes 'Null'"),
        ("/text", "integer", "must point to a string that encodes 'integer'"),
        ("/text", "x" * 100, f"must point to a string that encodes '{'x' * 59}"),
        ("/raw", "integer", "must point to a string that encodes 'integer'"),
    ],
)
def test_types_that_do_not_fit_the_state_are_refused(pointer: str, kind: str, problem: str) -> None:
    data = typed(f'"{pointer}" = "{kind}"')
    assert refusal(data) == (InvalidCheckpoint, REF, f"types.{pointer}", problem)
    assert codec.decode_header(data, REF) == SMALL


@pytest.mark.parametrize(
    "kind",
    [
        "1",
        "true",
        "[]",
        '{a = "null"}',
        '["null"]',
        "2026-11-21",
        pytest.param("0x" + "f" * 120, id="huge"),
    ],
)
def test_a_type_that_is_no_string_is_refused(kind: str) -> None:
    kind_type, ref, field, problem = refusal(typed(f'"/text" = {kind}'))
    assert (kind_type, ref, field) == (InvalidCheckpoint, REF, "types./text")
    assert problem.startswith("must point to a string that encodes ")


def with_text(text: str, kind: str) -> bytes:
    return (
        f'{SMALL_DOCUMENT.removesuffix("[state]" + chr(10))}[types]\n"/v" = "{kind}"\n\n'
        f'[state]\nv = "{text}"\n'
    ).encode()


@pytest.mark.parametrize(
    "text", ["A", "A===", "AP8", "AP8=AP8=", "AP8=\\n", " AP8=", "AP_8", "A\\u0301P8=", "é"]
)
def test_bytes_that_are_no_base64_are_refused(text: str) -> None:
    assert refusal(with_text(text, "bytes")) == (
        InvalidCheckpoint,
        REF,
        "types./v",
        "must point to a string that encodes 'bytes'",
    )


@pytest.mark.parametrize(
    "text", ["", "1.0", "1e3", "0x", "0xg", "0o17", "1_000", " 1", "1\\n", "٣", "nan", "one"]
)
def test_integers_that_are_none_are_refused(text: str) -> None:
    assert refusal(with_text(text, "integer")) == (
        InvalidCheckpoint,
        REF,
        "types./v",
        "must point to a string that encodes 'integer'",
    )


@pytest.mark.parametrize(
    "text",
    [
        "9" * (budget.MAX_DECIMAL + 1),
        "0x" + "9" * (budget.MAX_HEXADECIMAL - 1),
        "-" + "9" * 1_000_000,
    ],
    ids=["decimal", "hex", "long"],
)
def test_integers_of_more_digits_than_are_allowed_are_refused(text: str) -> None:
    assert refusal(with_text(text, "integer")) == (
        InvalidCheckpoint,
        REF,
        "types./v",
        "an integer of more digits than are allowed",
    )
    assert codec.decode(with_text(text[: budget.MAX_DECIMAL], "integer"), REF).state["v"] == int(
        text[: budget.MAX_DECIMAL], 0
    )


def test_all_long_integers_together_have_no_more_digits_than_are_allowed() -> None:
    one = "0x" + "9" * (budget.MAX_HEXADECIMAL - 2)

    def of(count: int) -> bytes:
        types = "".join(f'"/v/{number}" = "integer"\n' for number in range(count))
        values = ", ".join([f'"{one}"'] * count)
        return (
            f"{SMALL_DOCUMENT.removesuffix('[state]' + chr(10))}[types]\n{types}\n[state]\n"
            f"v = [{values}]\n"
        ).encode()

    most = budget.MAX_LONG // budget.MAX_HEXADECIMAL
    assert len(codec.decode(of(most), REF).state["v"]) == most
    assert refusal(of(most + 1))[2:] == (
        f"types./v/{most}",
        "an integer of more digits than are allowed",
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-5", -5), ("0xff", 255), ("-0xFF", -255), ("18446744073709551616", 2**64)],
)
def test_integers_may_be_decimal_or_hexadecimal(text: str, value: int) -> None:
    assert codec.decode(with_text(text, "integer"), REF).state == {"v": value}


def test_null_stands_for_any_string() -> None:
    assert codec.decode(with_text("whatever", "null"), REF).state == {"v": None}


@quick
@given(
    st.text(alphabet='/~01listtextraw"-', max_size=14),
    st.sampled_from(["null", "bytes", "integer", "x"]),
)
def test_types_either_fit_or_raise_invalid_checkpoint(pointer: str, kind: str) -> None:
    found = read_or_fault(codec.decode, typed(toml.dumps({pointer: kind}).strip()))
    if isinstance(found, Checkpoint):
        assert replace(found, state={}) == SMALL
    else:
        assert found.field == f"types.{pointer}"


def test_bytes_are_stored_as_base64() -> None:
    raw = bytes(range(256))
    data = codec.encode(replace(SMALL, state={"v": raw}))
    assert data == with_text(base64.b64encode(raw).decode(), "bytes")
