"""Plain documents: what is read of them with one match is what the codec says, and what is not plain, or wrong, is left to it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt.model.checkpoint import Checkpoint, Worktree
from gitckpt.model.readers import codec
from gitckpt.model.readers.plain import PlainReader
from gitckpt.store.records import entry
from tests.model.example_documents import CHECKPOINT, ID, PARENT, quick, read_or_fault

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


@pytest.mark.parametrize(
    "checkpoint",
    [
        PLAIN,
        replace(PLAIN, state={}),
        replace(PLAIN, run=None, sequence=None, parent=None),
        replace(PLAIN, git_sha="", branch=None, message=None, agent=None),
        replace(PLAIN, git_sha=OID + OID[:24]),
        replace(PLAIN, worktree=Worktree(dirty=False)),
        replace(PLAIN, worktree=Worktree(dirty=True, tree=OID)),
    ],
)
def test_plain_documents_are_read(checkpoint: Checkpoint) -> None:
    checkpoint = replace(checkpoint, forked_from=None, rewound_to=None, timestamp="2026-11-21T20:16:35.123456Z")
    assert agree(codec.encode(checkpoint))


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
