"""Checkpoint documents, version 1, are written and read with unknown keys."""

from __future__ import annotations

import copy
import datetime
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt import Progress, Worktree
from gitckpt.model import codec, document, times, toml
from gitckpt.model.checkpoint import CLEAN, Omitted
from gitckpt.model.document import VERSION
from tests.model.example_documents import (
    CHECKPOINT,
    DOCUMENT,
    ID,
    PARENT,
    REF,
    SHA,
    SMALL,
    SMALL_DOCUMENT,
    TREE,
    changed,
    fields,
    quick,
)

# The document


def test_a_full_checkpoint_is_written_as_the_format_says() -> None:
    assert codec.encode(CHECKPOINT).decode() == DOCUMENT


def test_a_full_document_is_read() -> None:
    assert codec.decode(DOCUMENT.encode(), REF) == CHECKPOINT


def test_the_smallest_checkpoint_has_neither_run_nor_worktree_nor_progress() -> None:
    assert codec.encode(SMALL).decode() == SMALL_DOCUMENT
    assert codec.decode(SMALL_DOCUMENT.encode(), REF) == SMALL


def test_the_example_of_the_format_is_read() -> None:
    text = f"""
version = 1
id = "{ID}"      # UUID v4
run = "20261121-201500-add-login"
parent = "{PARENT}"
sequence = 7
phase = "research-complete"
timestamp = "2026-11-21T20:15:00.123456Z"
git_sha = "{SHA}"
branch = "feature/login"
trigger = "post-commit"
message = "a line"
agent = "superpowers:writing-plans"
errors = ["first", "second"]
types = {{ "/planning/owner" = "null", "/n" = "integer" }}

[worktree]
tree = "{TREE}"
dirty = true
operation = "merge"
omitted = [{{ path = "dump.bin", reason = "larger than 50 MB", size = 123456789 }}]

[progress]
current_phase = 2
total_phases = 5
current_task = "Designing parameter schema"
tasks_completed = 5
tasks_total = 35

[state]
n = "18446744073709551616"
planning.owner = "null"
planning.steps = [1, 2.0, "three"]
"""
    assert codec.decode(text.encode(), REF) == CHECKPOINT
    assert codec.decode(text.replace("\n", "\r\n").encode(), REF) == CHECKPOINT


@pytest.mark.parametrize(
    "worktree",
    [
        None,
        CLEAN,
        Worktree(dirty=True, tree=SHA),
        Worktree(dirty=True, omitted=(Omitted("a", "a socket"),)),
    ],
)
@pytest.mark.parametrize("progress", [None, Progress(), Progress(current_phase=0, tasks_total=0)])
@pytest.mark.parametrize(
    "trigger", ["post-merge", "manual", "phase", "loop", "review", "step", "safety", "import:forge"]
)
def test_every_kind_of_checkpoint_comes_back(
    worktree: Worktree | None, progress: Progress | None, trigger: str
) -> None:
    checkpoint = replace(SMALL, worktree=worktree, progress=progress, trigger=trigger, git_sha=TREE)
    assert codec.decode(codec.encode(checkpoint), REF) == checkpoint


def test_a_clean_worktree_says_so_and_no_more() -> None:
    assert b"\n[worktree]\ndirty = false\n\n[state]\n" in codec.encode(
        replace(SMALL, worktree=CLEAN)
    )


def test_a_document_found_elsewhere_than_at_its_ref_need_not_bear_its_name() -> None:
    assert codec.decode(DOCUMENT.encode(), "refs/ckpt/runs/20261121-201500-add-login") == CHECKPOINT


def test_the_hook_and_the_library_write_the_same_bytes() -> None:
    given_fields = {"state": None, "version": VERSION} | {
        key: value for key, value in fields().items() if key not in ("state", "types")
    }
    shuffled = dict(reversed([item for item in given_fields.items() if type(item[1]) is not dict]))
    tables = {key: value for key, value in given_fields.items() if type(value) is dict}
    assert document.render_document(tables | shuffled, dict(CHECKPOINT.state)) == DOCUMENT.encode()


def test_a_checkpoint_knows_its_time_its_phase_and_its_status() -> None:
    assert (CHECKPOINT.time, CHECKPOINT.phase_name, CHECKPOINT.status) == (
        1_795_292_100_123_456,
        "research",
        "complete",
    )
    assert (
        replace(SMALL, label="research").phase_name,
        replace(SMALL, label="research").status,
    ) == ("research", "")


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-11-21T20:15:00Z",
        "2026-11-21T20:15:00.1Z",
        "2026-11-21T20:15:00.123456789012Z",
        "2026-11-21T21:15:00+01:00",
        "2026-11-21T20:15:00.5-05:30",
    ],
)
def test_a_timestamp_with_z_or_offset_and_any_fraction_is_kept_as_it_was_written(
    timestamp: str,
) -> None:
    read = codec.decode(changed("timestamp", timestamp), REF)
    assert (read, read.time) == (
        replace(CHECKPOINT, timestamp=timestamp),
        times.parse_timestamp(timestamp),
    )


# Keys that this program does not know

LATER = {
    "answer": 42,
    "deep": {"": [1, {"x": datetime.date(2026, 11, 21)}]},
    "text": "\n[state]\n" * 20,
}


def test_unknown_keys_survive_reading_and_writing() -> None:
    found = fields()
    found |= {
        "later": 1,
        "later-table": copy.deepcopy(LATER),
        "later.list": [copy.deepcopy(LATER)],
        "": "\n[state]\nx = 1\n" * 9,
    }
    found["worktree"] |= {"hardlinks": ["a"], "more": copy.deepcopy(LATER)}
    found["worktree"]["omitted"][0] |= {"mode": "100644", "more": copy.deepcopy(LATER)}
    found["progress"] |= {"percent": 12.5, "more": copy.deepcopy(LATER)}
    data = toml.dumps(
        {key: value for key, value in found.items() if key != "state"} | {"state": found["state"]}
    ).encode()
    read = codec.decode(data, REF)
    assert read == replace(
        CHECKPOINT,
        unknown={
            "later": 1,
            "later-table": LATER,
            "later.list": [LATER],
            "": "\n[state]\nx = 1\n" * 9,
        },
        worktree=Worktree(
            dirty=True,
            tree=TREE,
            operation="merge",
            omitted=(
                Omitted(
                    "dump.bin",
                    "larger than 50 MB",
                    123456789,
                    unknown={"mode": "100644", "more": LATER},
                ),
            ),
            unknown={"hardlinks": ["a"], "more": LATER},
        ),
        progress=replace(
            CHECKPOINT.progress or Progress(), unknown={"percent": 12.5, "more": LATER}
        ),
    )
    assert codec.decode(codec.encode(read), REF) == read
    assert toml.loads(codec.encode(read).decode()) == found
    assert codec.decode_header(codec.encode(read), REF) == replace(read, state={})


KNOWN = frozenset(
    ("types", "state", "worktree", "imported", "progress", "attempt", "pipeline", *document.ORDER)
)


@pytest.mark.long
@quick
@given(
    st.dictionaries(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12).filter(
            lambda key: key not in KNOWN
        ),
        st.recursive(
            st.text(alphabet="\n[]\"'\\ state=x#", max_size=90)
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(alphabet="ab.[]\"' ", max_size=4), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_whatever_a_later_version_adds_is_kept(unknown: dict[str, Any]) -> None:
    checkpoint = replace(CHECKPOINT, unknown=unknown)
    data = codec.encode(checkpoint)
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (
        checkpoint,
        replace(checkpoint, state={}),
    )
