"""Checkpoint documents, version 1: what is written, what is read, and what is refused."""

from __future__ import annotations

import base64
import copy
import datetime
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitckpt.model import codec, document, times, toml
from gitckpt.model.checkpoint import CLEAN, VERSION, Checkpoint, Omitted, Progress, Worktree
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint, StateError

quick = settings(max_examples=150, deadline=None, database=None)
ID = "5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11"
PARENT = "0a1b2c3d-0000-4000-8000-00000000000f"
REF = f"refs/checkpoints/{ID}"
SHA = "9d905d54" * 5
TREE = "ab" * 32

DOCUMENT = f"""\
version = 1
id = "{ID}"
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

[types]
"/n" = "integer"
"/planning/owner" = "null"

[worktree]
dirty = true
tree = "{TREE}"
operation = "merge"
omitted = [{{path = "dump.bin", reason = "larger than 50 MB", size = 123456789}}]

[progress]
current_phase = 2
total_phases = 5
current_task = "Designing parameter schema"
tasks_completed = 5
tasks_total = 35

[state]
n = "18446744073709551616"

[state.planning]
owner = "null"
steps = [1, 2.0, "three"]
"""

CHECKPOINT = Checkpoint(
    id=ID,
    run="20261121-201500-add-login",
    parent=PARENT,
    sequence=7,
    phase="research-complete",
    timestamp="2026-11-21T20:15:00.123456Z",
    git_sha=SHA,
    branch="feature/login",
    trigger="post-commit",
    message="a line",
    agent="superpowers:writing-plans",
    errors=("first", "second"),
    worktree=Worktree(dirty=True, tree=TREE, operation="merge", omitted=(Omitted("dump.bin", "larger than 50 MB", 123456789),)),
    progress=Progress(current_phase=2, total_phases=5, current_task="Designing parameter schema", tasks_completed=5, tasks_total=35),
    state={"n": 2**64, "planning": {"owner": None, "steps": [1, 2.0, "three"]}},
)

SMALL = Checkpoint(id=ID, phase="commit-complete", timestamp="2026-11-21T20:15:00Z", git_sha="", trigger="manual")
SMALL_DOCUMENT = f"""\
version = 1
id = "{ID}"
phase = "commit-complete"
timestamp = "2026-11-21T20:15:00Z"
git_sha = ""
trigger = "manual"
errors = []

[state]
"""


def fields() -> dict[str, Any]:
    """Returns the whole document as a dict of its own."""
    return toml.loads(DOCUMENT)


REMOVED = object()


def changed(path: str, value: Any) -> bytes:
    """Returns the whole document with another value at a dotted path, or without it."""
    made = fields()
    table: Any = made
    *steps, last = path.split(".")
    for step in steps:
        table = table[int(step) if step.isdigit() else step]
    if value is REMOVED:
        del table[last]
    else:
        table[int(last) if last.isdigit() else last] = value
    return toml.dumps(made).encode()


def refusal(data: bytes, ref: str = REF) -> tuple[type[InvalidCheckpoint], str, str, str]:
    """Returns kind, ref, field and problem of the error that reading raises; header and whole document must agree."""
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.decode(data, ref)
    error = caught.value
    assert str(error) == (f"{error.ref}: {error.field}: {error.problem}" if error.field else f"{error.ref}: {error.problem}")
    assert error.exit_code == 13
    if not error.field.startswith(("types", "state")):
        with pytest.raises(InvalidCheckpoint) as caught:
            codec.decode_header(data, ref)
        assert (type(caught.value), str(caught.value)) == (type(error), str(error))
    return type(error), error.ref, error.field, error.problem


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
    "worktree", [None, CLEAN, Worktree(dirty=True, tree=SHA), Worktree(dirty=True, omitted=(Omitted("a", "a socket"),))]
)
@pytest.mark.parametrize("progress", [None, Progress(), Progress(current_phase=0, tasks_total=0)])
@pytest.mark.parametrize("trigger", ["post-merge", "manual", "phase", "loop", "review", "step", "safety", "import:forge"])
def test_every_kind_of_checkpoint_comes_back(worktree: Worktree | None, progress: Progress | None, trigger: str) -> None:
    checkpoint = replace(SMALL, worktree=worktree, progress=progress, trigger=trigger, git_sha=TREE)
    assert codec.decode(codec.encode(checkpoint), REF) == checkpoint


def test_a_clean_worktree_says_so_and_no_more() -> None:
    assert b"\n[worktree]\ndirty = false\n\n[state]\n" in codec.encode(replace(SMALL, worktree=CLEAN))


def test_a_document_found_elsewhere_than_at_its_ref_need_not_bear_its_name() -> None:
    assert codec.decode(DOCUMENT.encode(), "refs/ckpt/runs/20261121-201500-add-login") == CHECKPOINT


def test_the_hook_and_the_library_write_the_same_bytes() -> None:
    given_fields = {"state": None, "version": VERSION} | {key: value for key, value in fields().items() if key not in ("state", "types")}
    shuffled = dict(reversed([item for item in given_fields.items() if type(item[1]) is not dict]))
    tables = {key: value for key, value in given_fields.items() if type(value) is dict}
    assert document.render(tables | shuffled, dict(CHECKPOINT.state)) == DOCUMENT.encode()


def test_a_checkpoint_knows_its_time_its_phase_and_its_status() -> None:
    assert (CHECKPOINT.time, CHECKPOINT.phase_name, CHECKPOINT.status) == (1_795_292_100_123_456, "research", "complete")
    assert (replace(SMALL, phase="research").phase_name, replace(SMALL, phase="research").status) == ("research", "")


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
def test_a_timestamp_with_z_or_offset_and_any_fraction_is_kept_as_it_was_written(timestamp: str) -> None:
    read = codec.decode(changed("timestamp", timestamp), REF)
    assert (read, read.time) == (replace(CHECKPOINT, timestamp=timestamp), times.from_text(timestamp))


# Keys that this program does not know

LATER = {"answer": 42, "deep": {"": [1, {"x": datetime.date(2026, 11, 21)}]}, "text": "\n[state]\n" * 20}


def test_unknown_keys_survive_reading_and_writing() -> None:
    found = fields()
    found |= {"later": 1, "later-table": copy.deepcopy(LATER), "later.list": [copy.deepcopy(LATER)], "": "\n[state]\nx = 1\n" * 9}
    found["worktree"] |= {"submodules": ["a"], "more": copy.deepcopy(LATER)}
    found["worktree"]["omitted"][0] |= {"mode": "100644", "more": copy.deepcopy(LATER)}
    found["progress"] |= {"percent": 12.5, "more": copy.deepcopy(LATER)}
    data = toml.dumps({key: value for key, value in found.items() if key != "state"} | {"state": found["state"]}).encode()
    read = codec.decode(data, REF)
    assert read == replace(
        CHECKPOINT,
        unknown={"later": 1, "later-table": LATER, "later.list": [LATER], "": "\n[state]\nx = 1\n" * 9},
        worktree=Worktree(
            dirty=True,
            tree=TREE,
            operation="merge",
            omitted=(Omitted("dump.bin", "larger than 50 MB", 123456789, unknown={"mode": "100644", "more": LATER}),),
            unknown={"submodules": ["a"], "more": LATER},
        ),
        progress=replace(CHECKPOINT.progress or Progress(), unknown={"percent": 12.5, "more": LATER}),
    )
    assert codec.decode(codec.encode(read), REF) == read
    assert toml.loads(codec.encode(read).decode()) == found
    assert codec.decode_header(codec.encode(read), REF) == replace(read, state={})


KNOWN = frozenset(("types", "state", "worktree", "progress", *document.ORDER))


@quick
@given(
    st.dictionaries(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda key: key not in KNOWN),
        st.recursive(
            st.text(alphabet="\n[]\"'\\ state=x#", max_size=90) | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="ab.[]\"' ", max_size=4), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_whatever_a_later_version_adds_is_kept(unknown: dict[str, Any]) -> None:
    checkpoint = replace(CHECKPOINT, unknown=unknown)
    data = codec.encode(checkpoint)
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (checkpoint, replace(checkpoint, state={}))


# What is refused


@pytest.mark.parametrize("key", ["version", "id", "phase", "timestamp", "git_sha", "trigger", "errors", "state"])
def test_a_document_without_a_required_key_is_refused(key: str) -> None:
    assert refusal(changed(key, REMOVED)) == (InvalidCheckpoint, REF, key, "missing")


@pytest.mark.parametrize("key", ["worktree.dirty", "worktree.omitted.0.path", "worktree.omitted.0.reason"])
def test_a_table_without_a_required_key_is_refused(key: str) -> None:
    assert refusal(changed(key, REMOVED)) == (InvalidCheckpoint, REF, key.replace(".0", "[0]"), "missing")


@pytest.mark.parametrize(
    ("key", "without"),
    [
        ("branch", replace(CHECKPOINT, branch=None)),
        ("message", replace(CHECKPOINT, message=None)),
        ("agent", replace(CHECKPOINT, agent=None)),
        ("parent", replace(CHECKPOINT, parent=None)),
        ("worktree", replace(CHECKPOINT, worktree=None)),
        ("progress", replace(CHECKPOINT, progress=None)),
        ("worktree.tree", replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, tree=None))),
        ("worktree.operation", replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, operation=None))),
        ("worktree.omitted", replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, omitted=()))),
        ("progress.current_phase", replace(CHECKPOINT, progress=replace(CHECKPOINT.progress or Progress(), current_phase=None))),
        ("progress.tasks_total", replace(CHECKPOINT, progress=replace(CHECKPOINT.progress or Progress(), tasks_total=None))),
    ],
)
def test_every_other_key_may_be_absent(key: str, without: Checkpoint) -> None:
    assert codec.decode(changed(key, REMOVED), REF) == without


WORDS: dict[str, tuple[type, str]] = {
    "version": (int, "an integer"),
    "id": (str, "a string"),
    "run": (str, "a string"),
    "parent": (str, "a string"),
    "sequence": (int, "an integer"),
    "phase": (str, "a string"),
    "timestamp": (str, "a string"),
    "git_sha": (str, "a string"),
    "branch": (str, "a string"),
    "trigger": (str, "a string"),
    "message": (str, "a string"),
    "agent": (str, "a string"),
    "errors": (list, "an array"),
    "errors.0": (str, "a string"),
    "types": (dict, "a table"),
    "worktree": (dict, "a table"),
    "worktree.tree": (str, "a string"),
    "worktree.dirty": (bool, "a boolean"),
    "worktree.operation": (str, "a string"),
    "worktree.omitted": (list, "an array"),
    "worktree.omitted.0": (dict, "a table"),
    "worktree.omitted.0.path": (str, "a string"),
    "worktree.omitted.0.reason": (str, "a string"),
    "worktree.omitted.0.size": (int, "an integer"),
    "progress": (dict, "a table"),
    "progress.current_phase": (int, "an integer"),
    "progress.total_phases": (int, "an integer"),
    "progress.current_task": (str, "a string"),
    "progress.tasks_completed": (int, "an integer"),
    "progress.tasks_total": (int, "an integer"),
    "state": (dict, "a table"),
}
VALUES: list[Any] = ["x", 1, 1.0, True, [], {}, datetime.datetime(2026, 11, 21, 20, 15, tzinfo=datetime.UTC), datetime.date(2026, 11, 21)]


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, (kind, _) in WORDS.items() for value in VALUES if type(value) is not kind], ids=repr
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: Any) -> None:
    field = key.replace(".0", "[0]")
    assert refusal(changed(key, value)) == (InvalidCheckpoint, REF, field, f"must be {WORDS[key][1]}, not {value!r:.60}")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("version", 0, "must be 1, not 0"),
        ("version", -1, "must be 1, not -1"),
        ("id", "", "must be a UUID version 4 in lower case, not ''"),
        ("id", "latest", "must be a UUID version 4 in lower case, not 'latest'"),
        ("id", ID.upper(), f"must be a UUID version 4 in lower case, not '{ID.upper()}'"),
        ("id", ID.replace("-4e", "-1e"), f"must be a UUID version 4 in lower case, not '{ID.replace('-4e', '-1e')}'"),
        ("id", PARENT, f"{PARENT} is not the ref's name"),
        ("run", "", "must be a run id such as 20261121-201500-add-login, not ''"),
        ("run", "20261121-201500-../x", "must be a run id such as 20261121-201500-add-login, not '20261121-201500-../x'"),
        ("run", REMOVED, None),
        ("parent", "x", "must be a UUID version 4 in lower case, not 'x'"),
        ("sequence", 0, "must be 1 or more, not 0"),
        ("sequence", -(2**63), "must be 1 or more, not -9223372036854775808"),
        ("sequence", REMOVED, "belongs to a run: both keys or neither"),
        ("phase", "", "empty"),
        ("phase", " \n", "empty"),
        ("timestamp", "", "no UTC offset, neither Z nor ±hh:mm: ''"),
        ("timestamp", "yesterday", "no UTC offset, neither Z nor ±hh:mm: 'yesterday'"),
        ("timestamp", "2026-11-21T20:15:00", "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T20:15:00'"),
        ("timestamp", "2026-02-29T20:15:00Z", "day is out of range for month"),
        ("timestamp", "2026-11-21T25:15:00Z", "no such time of day: '2026-11-21T25:15:00Z'"),
        ("git_sha", "9d905d54", "must be a full object id or empty, not '9d905d54'"),
        ("git_sha", "HEAD", "must be a full object id or empty, not 'HEAD'"),
        ("git_sha", "A" * 40, f"must be a full object id or empty, not '{'A' * 40}'"),
        ("trigger", "", "must be a word such as manual or import:forge, not ''"),
        ("trigger", "Manual", "must be a word such as manual or import:forge, not 'Manual'"),
        ("trigger", "manual\n", "must be a word such as manual or import:forge, not 'manual\\n'"),
        ("trigger", "import:", "must be a word such as manual or import:forge, not 'import:'"),
        ("worktree.tree", "", "must be a full object id, not ''"),
        ("worktree.tree", "abc", "must be a full object id, not 'abc'"),
        ("worktree.omitted.0.size", -1, "must be 0 or more, not -1"),
        ("progress.current_phase", -1, "must be 0 or more, not -1"),
        ("progress.total_phases", -1, "must be 0 or more, not -1"),
        ("progress.tasks_completed", -1, "must be 0 or more, not -1"),
        ("progress.tasks_total", -1, "must be 0 or more, not -1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(key: str, value: Any, problem: str | None) -> None:
    field = "sequence" if key == "run" and problem is None else key.replace(".0", "[0]")
    problem = problem or "belongs to a run: both keys or neither"
    assert refusal(changed(key, value)) == (InvalidCheckpoint, REF, field, problem)


def test_a_parent_without_a_run_is_refused() -> None:
    data = SMALL_DOCUMENT.replace("phase", f'parent = "{PARENT}"\nphase', 1).encode()
    assert refusal(data) == (InvalidCheckpoint, REF, "parent", "belongs to a run, and there is no run")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe", "not UTF-8 (byte 0)"),
        (DOCUMENT.encode().replace(b"a line", b"a l\xefne"), f"not UTF-8 (byte {DOCUMENT.index('a line') + 3})"),
        (b"\x89PNG\r\n", "not UTF-8 (byte 0)"),
        (b'a = "\xed\xa0\x80"', "not UTF-8 (byte 5)"),
    ],
)
def test_what_is_not_utf_8_is_refused(data: bytes, problem: str) -> None:
    assert refusal(data) == (InvalidCheckpoint, REF, "", problem)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"hello",
        b"version = 1\nversion = 1\n",
        b"\x00",
        b"\xef\xbb\xbf" + SMALL_DOCUMENT.encode(),
        DOCUMENT.encode()[:100],
        DOCUMENT.encode() + b"[state]\n",
        SMALL_DOCUMENT.encode().replace(b"errors = []", b"errors = " + b"[" * 5000),
    ],
)
def test_what_is_not_toml_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.decode(data, REF)
    assert (type(caught.value), caught.value.ref, caught.value.field) == (InvalidCheckpoint, REF, "")
    assert caught.value.problem.startswith("not TOML: ")


def test_an_empty_blob_is_refused() -> None:
    assert refusal(b"") == (InvalidCheckpoint, REF, "version", "missing")


@pytest.mark.parametrize(
    "data",
    [changed("version", 2), changed("version", 2**63 - 1).replace(b"run", b"path"), b"version = 2", b"version = 3\n[state]\nid = 1\n"],
)
def test_a_document_of_a_later_version_is_refused_whatever_else_is_in_it(data: bytes) -> None:
    version = toml.loads(data.decode())["version"]
    assert refusal(data) == (NewerCheckpoint, REF, "version", f"written by a newer gitckpt (document version {version})")
    with pytest.raises(NewerCheckpoint) as caught:
        codec.decode(data, REF)
    assert caught.value.hint == "upgrade gitckpt: pip install -U gitckpt"


@pytest.mark.parametrize("key", ["id", "phase", "sequence", "timestamp", "branch", "errors", "worktree", "progress", "types"])
def test_an_integer_too_long_for_python_to_print_is_refused_like_any_other(key: str) -> None:
    lines = [line for line in SMALL_DOCUMENT.splitlines() if not line.startswith(f"{key} =")]
    huge = "0x" + "f" * 5000
    assert refusal("\n".join([f"{key} = {huge}", *lines]).encode())[2] in (key, "sequence")
    assert refusal("\n".join([f"{key} = [{huge}]", *lines]).encode())[2] in (key, "errors[0]")


def test_a_version_too_long_for_python_to_print_is_a_newer_one() -> None:
    data = SMALL_DOCUMENT.replace("version = 1", "version = 0x" + "f" * 5000).encode()
    problem = "written by a newer gitckpt (document version an integer of thousands of digits)"
    assert refusal(data) == (NewerCheckpoint, REF, "version", problem)


# The state


def json_values() -> st.SearchStrategy[Any]:
    texts = st.one_of(
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=90),
        st.sampled_from(
            ["", "a.b", "a/b", "~", "~1", "~01", '"', "'", "\r\n", "\0", "\x7f", "\x85", "\u2028", "𝄞", "\n[state]\n", "0", "null"]
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
    return st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=15)


@quick
@given(st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20), json_values(), max_size=5))
@example(
    {key: {key: [key, {key: None}], "n": {key: 2**70}} for key in ["", "a/b", "~1", "~", "a.b", "0", "\r\n", "\0", "\n[state]\n", '\'"""']}
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
    assert replace(read, state={}) == codec.decode_header(data, REF) == replace(checkpoint, state={})
    assert codec.encode(read) == data


@pytest.mark.parametrize("power", [18, 19, 63, 3912, 3913, 3914, 4299, 4300, 4301, 50_000])
def test_integers_of_any_size_come_back(power: int) -> None:
    state = {"n": [10**power, -(10**power), 2**power, -(2**power), 2**power - 1]}
    assert codec.decode(codec.encode(replace(SMALL, state=state)), REF).state == state


def test_ten_megabytes_of_text_come_back() -> None:
    state = {"plain": "x" * 10_000_000, "lines": 'a line with \\ and "\r\n𝄞\0' * 100_000, "raw": b"\x00\xff" * 500_000}
    checkpoint = replace(CHECKPOINT, state=state)
    data = codec.encode(checkpoint)
    assert codec.decode(data, REF) == checkpoint
    assert codec.decode_header(data, REF) == replace(checkpoint, state={})


def test_a_wide_state_comes_back() -> None:
    state = {f"key {i}": [None, i, {"a/b": None, "~": 2**64 + i}] for i in range(2000)}
    assert codec.decode(codec.encode(replace(SMALL, state=state)), REF).state == state


@pytest.mark.parametrize("mapping", [{}, {"a": 1}])
def test_a_state_that_can_be_stored_passes_the_check(mapping: Mapping[str, Any]) -> None:
    before = dict(mapping)
    codec.check_state(mapping)
    assert mapping == before


@pytest.mark.parametrize(
    ("state", "path", "problem"),
    [
        (None, "", "a state is a map of names to values, not None"),
        ([1], "", "a state is a map of names to values, not [1]"),
        ("x", "", "a state is a map of names to values, not 'x'"),
        pytest.param(10**5000, "", "a state is a map of names to values, not an integer of thousands of digits", id="huge"),
        ({1: 2}, "", "the key 1 is not a string"),
        ({"a": {"b/c": [0, (1,)]}}, "/a/b~1c/1", "a builtins.tuple cannot be stored"),
    ],
)
def test_a_state_that_cannot_be_stored_fails_the_check(state: Any, path: str, problem: str) -> None:
    with pytest.raises(StateError) as caught:
        codec.check_state(state)
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
        (replace(SMALL, worktree=Worktree(dirty=True, omitted=(Omitted("bad \udc80", "x"),))), "/worktree/omitted/0/path"),
        (replace(SMALL, unknown={"later": None, "more": [None]}), "/more/0"),
    ],
)
def test_text_that_is_no_utf_8_is_refused_outside_the_state_too(checkpoint: Checkpoint, path: str) -> None:
    with pytest.raises(StateError) as caught:
        codec.encode(checkpoint)
    assert caught.value.path == path


# Types, as other programs may write them

STATE = '[state]\ntext = "null"\nraw = "AP8="\nn = 7\nlist = ["a", {"" = "5"}, []]\n[state.""]\n"~/" = "x"\n'


def typed(types: str) -> bytes:
    return f"{SMALL_DOCUMENT.removesuffix('[state]' + chr(10))}[types]\n{types}\n\n{STATE}".encode()


def test_types_are_applied_wherever_their_pointers_lead() -> None:
    read = codec.decode(typed('"/text" = "null"\n"/raw" = "bytes"\n"/list/1/" = "integer"\n"/list/0" = "null"\n"//~0~1" = "null"'), REF)
    assert read.state == {"text": None, "raw": b"\x00\xff", "n": 7, "list": [None, {"": 5}, []], "": {"~/": None}}


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
        ("/list/" + "9" * 5000, "null", "points to nothing in the state"),
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
        ("/text", "", "the string there is no ''"),
        ("/text", "datetime", "the string there is no 'datetime'"),
        ("/text", "Null", "the string there is no 'Null'"),
        ("/text", "integer", "the string there is no 'integer'"),
        ("/text", "x" * 100, f"the string there is no '{'x' * 59}"),
        ("/raw", "integer", "the string there is no 'integer'"),
    ],
)
def test_types_that_do_not_fit_the_state_are_refused(pointer: str, kind: str, problem: str) -> None:
    data = typed(f'"{pointer}" = "{kind}"')
    assert refusal(data) == (InvalidCheckpoint, REF, f"types.{pointer}", problem)
    assert codec.decode_header(data, REF) == SMALL


@pytest.mark.parametrize("kind", ["1", "true", "[]", '{a = "null"}', '["null"]', "2026-11-21", pytest.param("0x" + "f" * 5000, id="huge")])
def test_a_type_that_is_no_string_is_refused(kind: str) -> None:
    kind_type, ref, field, problem = refusal(typed(f'"/text" = {kind}'))
    assert (kind_type, ref, field) == (InvalidCheckpoint, REF, "types./text")
    assert problem.startswith("the string there is no ")


def with_text(text: str, kind: str) -> bytes:
    return f'{SMALL_DOCUMENT.removesuffix("[state]" + chr(10))}[types]\n"/v" = "{kind}"\n\n[state]\nv = "{text}"\n'.encode()


@pytest.mark.parametrize("text", ["A", "A===", "AP8", "AP8=AP8=", "AP8=\\n", " AP8=", "AP_8", "A\\u0301P8=", "é"])
def test_bytes_that_are_no_base64_are_refused(text: str) -> None:
    assert refusal(with_text(text, "bytes")) == (InvalidCheckpoint, REF, "types./v", "the string there is no 'bytes'")


@pytest.mark.parametrize("text", ["", "1.0", "1e3", "0x", "0xg", "0o17", "1_000", " 1", "1\\n", "٣", "nan", "one", "9" * 5000])
def test_integers_that_are_none_are_refused(text: str) -> None:
    assert refusal(with_text(text, "integer")) == (InvalidCheckpoint, REF, "types./v", "the string there is no 'integer'")


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-5", -5), ("0xff", 255), ("-0xFF", -255), ("18446744073709551616", 2**64)])
def test_integers_may_be_decimal_or_hexadecimal(text: str, value: int) -> None:
    assert codec.decode(with_text(text, "integer"), REF).state == {"v": value}


def test_null_stands_for_any_string() -> None:
    assert codec.decode(with_text("whatever", "null"), REF).state == {"v": None}


@quick
@given(st.text(alphabet='/~01listtextraw"-', max_size=14), st.sampled_from(["null", "bytes", "integer", "x"]))
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


# The header


def read_or_fault(read: Callable[[bytes, str], Checkpoint], data: bytes) -> Checkpoint | InvalidCheckpoint:
    try:
        return read(data, REF)
    except InvalidCheckpoint as error:
        return error


def agree(data: bytes) -> None:
    """Checks that header and whole document say the same of it."""
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
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (CHECKPOINT, replace(CHECKPOINT, state={}))


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
    known = {"version": 1} | {key: value for key, value in fields().items() if key not in ("types", "worktree", "progress", "state")}
    unknown = {"extra": expected["extra"]} if "extra" in expected else {}
    unknown |= {key: expected[key] for key in ("stateless", "state-of-affairs") if key in expected}
    whole = replace(CHECKPOINT, worktree=None, progress=None, state=expected["state"], unknown=unknown)
    assert {key: value for key, value in expected.items() if key in known} == known
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (whole, replace(whole, state={}))


@pytest.mark.parametrize("state", ["state = {key = 1}\n", "state.key = 1\n", '"state" . key = 1\n', "'state'.\"key\" = 1\n"])
def test_a_state_may_stand_before_everything_else(state: str) -> None:
    data = (state + TOP + "[worktree]\ndirty = false\n").encode()
    whole = replace(CHECKPOINT, worktree=CLEAN, progress=None, state={"key": 1})
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (whole, replace(whole, state={}))


@pytest.mark.parametrize("key", ["message", "branch", "agent", "errors"])
@pytest.mark.parametrize(
    "text", ["\n[state]\n", "\n[state]\nx = 1\n[worktree]\ndirty = 5\n", '"""\n[state]\n', "'''\n[state]\n'''", "\r\n[state]\r\n"]
)
def test_text_that_looks_like_a_header_is_text(key: str, text: str) -> None:
    value = f"{text}{'and so on' * 10}{text}"
    change: dict[str, Any] = {key: (value, value) if key == "errors" else value}
    checkpoint = replace(CHECKPOINT, **change)
    data = codec.encode(checkpoint)
    assert (codec.decode(data, REF), codec.decode_header(data, REF)) == (checkpoint, replace(checkpoint, state={}))


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


@settings(max_examples=400, deadline=None, database=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(DOCUMENT)), st.integers(0, 12), st.sampled_from(SPLICES) | st.binary(max_size=3)),
        min_size=1,
        max_size=3,
    )
)
@example([(DOCUMENT.index("[worktree]"), 0, b"\n[state]\n"), (DOCUMENT.rindex("[state]\n"), 8, b"")])
@example([(DOCUMENT.index("[state]"), 7, b"[ state ]")])
def test_of_a_document_that_was_tampered_with_header_and_whole_say_the_same(splices: list[tuple[int, int, bytes]]) -> None:
    data = DOCUMENT.encode()
    for at, length, bytes_ in splices:
        data = data[:at] + bytes_ + data[at + length :]
    agree(data)


@quick
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_invalid_checkpoint(data: bytes) -> None:
    agree(data)
