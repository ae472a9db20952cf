"""Plain documents: what is read of them with one match is what the codec says, and what is not plain, or wrong, is left to it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt.model.checkpoint import Attempt, Checkpoint, Imported, Pipeline, Progress, Submodule, Worktree
from gitckpt.model.format import budget
from gitckpt.model.readers import codec
from gitckpt.model.readers.plain import PlainReader
from gitckpt.store.records import entry
from tests.model.example_documents import CHECKPOINT, DOCUMENT, DRIVEN_DOCUMENT, ID, PARENT, SMALL_DOCUMENT, quick, read_or_fault

OID = "0123456789abcdef0123456789abcdef01234567"
PLAIN = replace(
    CHECKPOINT, errors=(), worktree=None, progress=None, pipeline=None, attempt=None, imported=None, state={"a": "b", "n": 3}, unknown={}
)


def agree(data: bytes) -> bool:
    """Checks that what is read with one match is what the codec says; tells whether it was."""
    found, said = PlainReader().read(data, ID), read_or_fault(codec.decode, data)
    if found is None:
        return False
    assert isinstance(said, Checkpoint), (data, said)
    assert entry.audited_plain(found, bytes.fromhex(OID)) == entry.audited(said, OID)
    assert (found.parent, found.tree, entry.submodules(said)) == (said.parent, said.tree, "")
    assert (found.examined, found.dirty) == (said.worktree is not None, said.worktree is not None and said.worktree.dirty)
    assert {said.forked_from, said.rewound_to, said.attempt, said.pipeline, said.imported} == {None}
    return True


def rows_agree(data: bytes) -> bool:
    """Checks that the row of what a listing reads with one match is the one that the codec gives; tells whether it was read so."""
    found, said = PlainReader().summary(data, ID), read_or_fault(codec.decode_summary, data)
    if found is None:
        return False
    assert isinstance(said, Checkpoint), (data, said)
    rows = entry.row_plain(found, bytes.fromhex(OID)), entry.row(said, OID)
    assert (rows[0], list(map(type, rows[0]))) == (rows[1], list(map(type, rows[1])))
    return True


KINDS = [
    PLAIN,
    replace(PLAIN, state={}),
    replace(PLAIN, run=None, sequence=None, parent=None),
    replace(PLAIN, git_sha="", branch=None, message=None, agent=None),
    replace(PLAIN, git_sha=OID + OID[:24]),
    replace(PLAIN, worktree=Worktree(dirty=False)),
    replace(PLAIN, worktree=Worktree(dirty=True, tree=OID)),
]


@pytest.mark.parametrize("checkpoint", KINDS)
def test_plain_documents_are_read(checkpoint: Checkpoint) -> None:
    checkpoint = replace(checkpoint, forked_from=None, rewound_to=None, timestamp="2026-11-21T20:16:35.123456Z")
    assert agree(codec.encode(checkpoint))
    for phase in ("plan", "a-b-failed", "-complete", "x-", "é-started"):
        assert rows_agree(codec.encode(replace(checkpoint, label=phase)))


BASE = codec.encode(replace(PLAIN, forked_from=None, rewound_to=None, timestamp="2026-11-21T20:16:35.123456Z")).decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r'^id = ".', 'id = "x'),
        (r'^id = "........', 'id = "00000000'),
        (r"^sequence = .*\n", ""),
        (r"^run = .*\n", ""),
        (r'^run = ".*"', 'run = "no run"'),
        (r'^phase = ".*"', 'phase = "  "'),
        ("T20:16:35", "T20:16:60"),
        ("T20:16:35", "T24:16:35"),
        ("2026-11-21T", "2026-02-30T"),
        (r'^parent = ".*"', f'parent = "{PARENT.upper()}"'),
        (r'^trigger = ".*"', 'trigger = "Two words"'),
        (r"^n = 3$", "a = 3"),
        (r"^n = 3$", "n = 03"),
        (r"^n = 3$", "n m = 3"),
        (r"^n = 3$", "n.m = 3"),
        (r"^n = 3$", "[state.n]"),
        (r"^n = 3$", "n = 3 # three"),
        (r"^n = 3$", "\nn = 3"),
        (r"^n = 3$", "n = 1_0"),
        (r"^n = 3$", 'n = "\\\\u0041"'),
        (r"^version = 1$", "version = 2"),
        (r"^errors = \[\]$", 'errors = ["one"]'),
        (r"^errors = \[\]\n", 'errors = []\nlater = "key"\n'),
    ],
)
def test_what_is_not_plain_is_left_to_the_codec(old: str, new: str) -> None:
    data, count = re.subn(old, new, BASE, flags=re.MULTILINE)
    assert (count, agree(data.encode())) == (1, False)


def test_a_long_document_and_one_that_is_not_utf_8_are_left_to_the_codec() -> None:
    assert not agree((BASE + f'long = "{"x" * 4000}"\n').encode())
    assert not agree((BASE + 'odd = "x"\n').encode().replace(b'"x"', b'"\xff"'))


@quick
@given(st.data())
def test_no_change_of_a_plain_document_is_read_as_something_else(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(BASE)))
    width = data.draw(st.integers(0, 3))
    marks = ['"', "\n", "[", "]", "=", " ", "0", "é", "\x7f", "\r", "a = 1\n", "[x]\n", "-"]
    pieces = st.one_of(st.sampled_from(marks), st.text(max_size=3))
    changed = BASE[:at] + data.draw(pieces) + BASE[at + width :]
    agree(changed.encode("utf-8", "surrogatepass"))
    rows_agree(changed.encode("utf-8", "surrogatepass"))


DRIVEN = Pipeline(name="ci", phases=("plan", "build"), completed={"plan": PARENT})


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("checkpoint", "is_plain"),
    [
        (replace(PLAIN, state={"long": "x" * 9000, "deep": {"a": [1, {"b": None}]}, "big": [2**64]}), False),  # with a table `types`
        (replace(PLAIN, state={"long": "x" * 9000, "deep": {"a": [1, {"b": 2}]}}), True),
        (replace(PLAIN, pipeline=DRIVEN, attempt=Attempt(phase="build")), True),
        (replace(PLAIN, attempt=Attempt(phase="build", output="\n[types]\n")), True),
        (replace(PLAIN, pipeline=replace(DRIVEN, inputs={"a": "b"})), True),
        (replace(PLAIN, progress=Progress(current_phase=1)), False),
        (replace(PLAIN, imported=Imported("a", OID, "2026-11-21T20:16:35Z")), False),
        (replace(PLAIN, errors=("one",)), False),
        (replace(PLAIN, forked_from=PARENT), False),
        (replace(PLAIN, message="x" * 5000), False),
        (replace(PLAIN, message="a\nb"), False),
        (replace(PLAIN, timestamp="2026-11-21T20:16:35+01:00"), False),
        (replace(PLAIN, worktree=Worktree(dirty=True, operation="merge")), False),
        (replace(PLAIN, worktree=Worktree(dirty=True, submodules=(Submodule("sub", ID, OID, dirty=False),))), False),
    ],
)
def test_the_row_of_any_document(checkpoint: Checkpoint, *, is_plain: bool) -> None:
    timestamp = "2026-11-21T20:16:35.123456Z" if checkpoint.timestamp == PLAIN.timestamp else checkpoint.timestamp
    assert rows_agree(codec.encode(replace(checkpoint, timestamp=timestamp))) == is_plain


@pytest.mark.parametrize("document", [DOCUMENT, SMALL_DOCUMENT, DRIVEN_DOCUMENT])
def test_other_documents_are_left_to_the_codec(document: str) -> None:
    assert not rows_agree(document.encode())


HEAD = BASE.partition("[state]\n")[0].encode()
TABLES = [
    *(b"[state]\n", b"[state]", b"[state.a]\n", b"[[state.b]]\n", b" [state]\n", b"[state] # x\n", b"[ state ]\n", b"[state]\r\n"),
    *(b"[attempt]\n", b"[pipeline]\n", b"[pipeline.inputs]\n", b"[types]\n", b"[worktree]\n", b"[other]\n", b"\t[other]\n"),
    *(b'phase = "build"\n', b'name = "ci"\n', b"a = 1\n", b"a = [\n", b"]\n", b'a = """\n', b'"""\n', b"\xff\n", b"\n", b"# x\n"),
]


@quick
@given(st.lists(st.sampled_from(TABLES), max_size=9))
def test_whatever_follows_the_header_the_row_is_that_of_the_codec(tables: list[bytes]) -> None:
    rows_agree(HEAD + b"".join(tables))
    rows_agree(HEAD + b"[state]\n" + b"".join(tables))
    rows_agree(HEAD + b"[attempt]\n" + b"".join(tables) + b"[state]\n")


def test_what_is_beyond_any_budget_has_no_row() -> None:
    data = HEAD + b"[state]\n" + b"#" * budget.DOCUMENT.size
    assert not rows_agree(data)
    assert rows_agree(data[: budget.DOCUMENT.size])
