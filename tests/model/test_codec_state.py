"""The state in a checkpoint document reads back exactly equal, or is refused."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitckpt import Checkpoint, StateError, Worktree
from gitckpt.model import codec
from gitckpt.model.checkpoint import Omitted
from tests.model.example_documents import CHECKPOINT, REF, SMALL, quick


def json_values() -> st.SearchStrategy[Any]:
    texts = st.one_of(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=90),
        st.sampled_from(
            [
                "",
                "a.b",
                "a/b",
                "~",
                "~1",
                "~01",
                '"',
                "'",
                "\r\n",
                "\0",
                "\x7f",
                "\x85",
                "\u2028",
                "𝄞",
                "\n[state]\n",
                "0",
                "null",
            ]
        ),
    )
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(10**400), 10**400),
        st.floats(),
        texts,
        st.binary(max_size=30),
        st.dates(),
        st.times().filter(lambda value: not value.fold),
        st.datetimes().filter(lambda value: not value.fold),
        st.datetimes(timezones=st.just(datetime.UTC)).filter(lambda value: not value.fold),
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=15,
    )


@pytest.mark.long
@quick
@given(
    st.dictionaries(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20),
        json_values(),
        max_size=5,
    )
)
@example(
    {
        key: {key: [key, {key: None}], "n": {key: 2**70}}
        for key in ["", "a/b", "~1", "~", "a.b", "0", "\r\n", "\0", "\n[state]\n", '\'"""']
    }
)
@example({"text": "\n[state]\n" * 10, "after": "\n[worktree]\ndirty = 1\n" * 10})
@example({"state": {"state": {}}, "types": {"/a": "null"}, "version": 9})
def test_every_state_comes_back_exactly_equal_and_is_not_touched(state: dict[str, Any]) -> None:
    checkpoint = replace(CHECKPOINT, state=state)
    before = repr(state)
    data = codec.encode(checkpoint)
    read = codec.decode(data, REF)
    # `repr` tells 1 from 1.0 and True, shows nan as nan, and keeps the order of keys.
    assert (repr(read.state), repr(state)) == (before, before)
    assert (
        replace(read, state={}) == codec.decode_header(data, REF) == replace(checkpoint, state={})
    )
    assert codec.encode(read) == data


@pytest.mark.parametrize("power", [18, 19, 63, 3912, 3913, 3914, 4299, 4300, 4301, 50_000])
def test_integers_of_any_size_come_back(power: int) -> None:
    state = {"n": [10**power, -(10**power), 2**power, -(2**power), 2**power - 1]}
    assert codec.decode(codec.encode(replace(SMALL, state=state)), REF).state == state


@pytest.mark.long
def test_ten_megabytes_of_text_come_back() -> None:
    state = {
        "plain": "x" * 10_000_000,
        "lines": 'a line with \\ and "\r\n𝄞\0' * 100_000,
        "raw": b"\x00\xff" * 500_000,
    }
    checkpoint = replace(CHECKPOINT, state=state)
    data = codec.encode(checkpoint)
    assert codec.decode(data, REF) == checkpoint
    assert codec.decode_header(data, REF) == replace(checkpoint, state={})


def test_a_wide_state_comes_back() -> None:
    state = {f"key {i}": [None, i, {"a/b": None, "~": 2**64 + i}] for i in range(2000)}
    assert codec.decode(codec.encode(replace(SMALL, state=state)), REF).state == state


@pytest.mark.parametrize("mapping", [{}, {"a": 1}])
def test_a_map_passes_as_a_state(mapping: Mapping[str, Any]) -> None:
    before = dict(mapping)
    codec.require_state_map(mapping)
    assert mapping == before


@pytest.mark.parametrize(
    ("state", "path", "problem"),
    [
        (None, "", "a state is a map of names to values, not None"),
        ([1], "", "a state is a map of names to values, not [1]"),
        ("x", "", "a state is a map of names to values, not 'x'"),
        pytest.param(
            10**5000,
            "",
            "a state is a map of names to values, not an integer of thousands of digits",
            id="huge",
        ),
        ({1: 2}, "", "the key 1 is not a string"),
        ({"a": {"b/c": [0, (1,)]}}, "/a/b~1c/1", "a builtins.tuple cannot be stored"),
    ],
)
def test_a_state_that_cannot_be_stored_is_refused(state: Any, path: str, problem: str) -> None:
    def store() -> None:
        codec.require_state_map(state)
        codec.encode(replace(SMALL, state=state))

    with pytest.raises(StateError) as caught:
        store()
    assert (caught.value.path, caught.value.problem) == (path, problem)


def test_a_refused_state_is_not_touched() -> None:
    inner: dict[str, Any] = {"ok": [1, None, b"x", 2**64], "bad": (1, 2)}
    state = {"a": inner, "b": None}
    before = copy.deepcopy(state)
    with pytest.raises(StateError) as caught:
        codec.encode(replace(CHECKPOINT, state=state))
    assert caught.value.path == "/a/bad"
    assert state == before


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [
        (replace(SMALL, errors=("ok", "bad \udc80")), "/errors/1"),
        (replace(SMALL, message="bad \udc80"), "/message"),
        (
            replace(SMALL, worktree=Worktree(dirty=True, omitted=(Omitted("bad \udc80", "x"),))),
            "/worktree/omitted/0/path",
        ),
        (replace(SMALL, unknown={"later": None, "more": [None]}), "/more/0"),
    ],
)
def test_text_that_is_no_utf_8_is_refused_outside_the_state_too(
    checkpoint: Checkpoint, path: str
) -> None:
    with pytest.raises(StateError) as caught:
        codec.encode(checkpoint)
    assert caught.value.path == path
