"""The header of a document, read without the state, agrees with the whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitckpt import Attempt, Checkpoint, InvalidCheckpoint, NewerCheckpoint, Pipeline
from gitckpt.model import codec, toml
from gitckpt.model.checkpoint import CLEAN
from tests.conftest import examples
from tests.model.example_documents import (
    CHECKPOINT,
    DOCUMENT,
    ID,
    PARENT,
    REF,
    fields,
    quick,
    read_or_fault,
)


def agree(data: bytes) -> None:
    """Assert that header and whole document agree."""
    whole, header = read_or_fault(codec.decode, data), read_or_fault(codec.decode_header, data)
    if isinstance(whole, Checkpoint):
        assert header == replace(whole, state={})
    elif isinstance(header, Checkpoint):
        # The fault lies in the state alone: without it, the document is sound.
        assert codec.decode(codec.encode(header), REF) == header
    else:
        assert type(header) is type(whole)


PARTS = {
    "types": DOCUMENT[DOCUMENT.index("[types]") : DOCUMENT.index("[worktree]")],
    "worktree": DOCUMENT[DOCUMENT.index("[worktree]") : DOCUMENT.index("[progress]")],
    "progress": DOCUMENT[DOCUMENT.index("[progress]") : DOCUMENT.index("[state]")],
    "state": DOCUMENT[DOCUMENT.index("[state]") :],
}
TOP = DOCUMENT[: DOCUMENT.index("\n[types]")] + "\n"


@pytest.mark.parametrize("order", list(itertools.permutations(PARTS)), ids="-".join)
def test_tables_may_stand_in_any_order(order: tuple[str, ...]) -> None:
    data = (TOP + "".join(PARTS[name] for name in order)).encode()
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (
        CHECKPOINT,
        replace(CHECKPOINT, state={}),
    )


@pytest.mark.parametrize(
    "state",
    [
        "[state] # the state\n{}",
        "[ state ]\n{}",
        '["state"]\n{}',
        "['state']\n{}",
        "\t[state]\n{}",
        "[state]\n\n\n{}",
        "[state]\r\n{}",
        "[state]\n{}\n[[extra]]\n",
        "[state]\n{}\n \t[extra]\n",
        "[state]\n{}\n[ extra . inner ]\n",
        "[state]\n{}\n['state'.list]\n",
        "[state]\n{}\n[state . list]\n",
        "[state]\n{}\n[state.list]\n",
        "[state]\n{}\n[[state.list]]\n",
        "[state]\n{}\n[stateless]\n",
        "[state]\n{}\n[state-of-affairs]\n",
        "[state]\n{}\ntext = '''\n[state]\n[worktree]\n'''\n",
        "[state]\n{}\ntext = '''\n[extra]\n[state]\n'''\n",
        "[state]\n{}\nlist = [\n[1],\n[2],\n]\n",
        "[state]\n[extra]\n{}",
        "[state.a]\nx = 1\n[state]\n{}",
        "[extra]\ntext = '''\n[state]\n'''\n[state]\n{}",
        "[extra]\ntext = '''\n[state]\n'''\n[state]\n{}\n[extra.more]\n",
        '[extra]\ntext = """\n[state]\n"""\n[state]\n{}',
        "[extra]\nlist = [ # [\n'''\n[state]\n''',\n]\n[state]\n{}",
    ],
)
def test_a_state_may_be_written_in_any_way_that_toml_allows(state: str) -> None:
    data = f"{TOP}{state.format('key = 1')}".encode()
    expected = toml.loads(data.decode())
    known = {"version": 1} | {
        key: value
        for key, value in fields().items()
        if key not in ("types", "worktree", "progress", "state")
    }
    unknown = {"extra": expected["extra"]} if "extra" in expected else {}
    unknown |= {key: expected[key] for key in ("stateless", "state-of-affairs") if key in expected}
    whole = replace(
        CHECKPOINT, worktree=None, progress=None, state=expected["state"], unknown=unknown
    )
    assert {key: value for key, value in expected.items() if key in known} == known
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (
        whole,
        replace(whole, state={}),
    )


@pytest.mark.parametrize(
    "state",
    ["state = {key = 1}\n", "state.key = 1\n", '"state" . key = 1\n', "'state'.\"key\" = 1\n"],
)
def test_a_state_may_stand_before_everything_else(state: str) -> None:
    data = (state + TOP + "[worktree]\ndirty = false\n").encode()
    whole = replace(CHECKPOINT, worktree=CLEAN, progress=None, state={"key": 1})
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (
        whole,
        replace(whole, state={}),
    )


@pytest.mark.parametrize("key", ["message", "branch", "agent", "errors"])
@pytest.mark.parametrize(
    "text",
    [
        "\n[state]\n",
        "\n[state]\nx = 1\n[worktree]\ndirty = 5\n",
        '"""\n[state]\n',
        "'''\n[state]\n'''",
        "\r\n[state]\r\n",
    ],
)
def test_text_that_looks_like_a_header_is_text(key: str, text: str) -> None:
    value = f"{text}{'and so on' * 10}{text}"
    change: dict[str, Any] = {key: (value, value) if key == "errors" else value}
    checkpoint = replace(CHECKPOINT, **change)
    data = codec.encode(checkpoint)
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (
        checkpoint,
        replace(checkpoint, state={}),
    )


def test_the_header_is_read_though_the_state_is_broken() -> None:
    data = DOCUMENT.encode() + b"owner = 1\n\xff = \n"
    assert codec.decode_header(data, REF) == replace(CHECKPOINT, state={})
    with pytest.raises(InvalidCheckpoint):
        codec.decode(data, REF)


SPLICES = [
    b"\n[state]\n",
    b"\n[worktree]\n",
    b"\n[x]\n",
    b'"""',
    b"'''",
    b'"',
    b"'",
    b"[",
    b"]",
    b"=",
    b"#",
    b"\n",
    b"\r",
    b"\\",
    b"\xff",
    b"\0",
    b"1",
    b"{",
    b"}",
]


@settings(max_examples=examples(400), deadline=None, database=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(DOCUMENT)),
            st.integers(0, 12),
            st.sampled_from(SPLICES) | st.binary(max_size=3),
        ),
        min_size=1,
        max_size=3,
    )
)
@example(
    [(DOCUMENT.index("[worktree]"), 0, b"\n[state]\n"), (DOCUMENT.rindex("[state]\n"), 8, b"")]
)
@example([(DOCUMENT.index("[state]"), 7, b"[ state ]")])
def test_of_a_document_that_was_tampered_with_header_and_whole_say_the_same(
    splices: list[tuple[int, int, bytes]],
) -> None:
    data = DOCUMENT.encode()
    for at, length, bytes_ in splices:
        data = data[:at] + bytes_ + data[at + length :]
    agree(data)


@quick
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_invalid_checkpoint(data: bytes) -> None:
    agree(data)


DRIVEN = replace(
    CHECKPOINT,
    run="20261121-201500-add-login",
    sequence=3,
    parent=PARENT,
    pipeline=Pipeline(
        name="ci", phases=("a", "b"), completed={"a": ID}, definition={"a.run": "0" * 16}
    ),
    attempt=Attempt("b", 2, inputs={"x": "1"}),
    state={"\n[pipeline]\n": "\n[attempt]\n", "deep": {"pipeline": 1}},
)


def test_a_summary_leaves_out_state_and_what_drives_the_run() -> None:
    data = codec.encode(DRIVEN)
    assert codec.decode_summary(data, REF) == replace(DRIVEN, state={}, pipeline=None, attempt=None)
    assert codec.decode_summary(codec.encode(CHECKPOINT), REF) == replace(CHECKPOINT, state={})


def test_a_summary_leaves_out_what_toml_lacks_in_the_state() -> None:
    data = codec.encode(replace(DRIVEN, state={"owner": None, "n": 2**64}))
    assert codec.decode_summary(data, REF) == replace(DRIVEN, state={}, pipeline=None, attempt=None)


def test_a_summary_needs_no_empty_lines() -> None:
    data = codec.encode(DRIVEN).replace(b"\n\n", b"\n")
    assert codec.decode_summary(data, REF) == replace(DRIVEN, state={}, pipeline=None, attempt=None)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: (
            "".join(text.partition("\n[worktree]\n")[::2]) + "\n[worktree]\ndirty = true\n"
        ),
        lambda text: text + "\n[later]\nx = 1\n",
        lambda text: 'more = """\n[pipeline]\n"""\n' + text,
    ],
    ids=["a table before it", "an unknown table after it", "a text of several lines"],
)
def test_where_another_order_could_mislead_a_summary_all_is_read(
    change: Callable[[str], str],
) -> None:
    data = change(codec.encode(DRIVEN).decode()).encode()
    assert codec.decode_summary(data, REF) == codec.decode_header(data, REF)


def test_a_summary_of_a_newer_document_is_refused() -> None:
    data = codec.encode(DRIVEN).replace(b"version = 1", b"version = 2")
    with pytest.raises(NewerCheckpoint) as caught:
        codec.decode_summary(data, REF)
    assert (caught.value.ref, caught.value.field) == (REF, "version")
