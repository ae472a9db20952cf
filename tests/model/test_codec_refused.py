"""Invalid checkpoint documents are refused with ref, field and problem."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from gitckpt import Checkpoint, InvalidCheckpoint, NewerCheckpoint, Progress
from gitckpt.model import codec, toml
from gitckpt.model.checkpoint import CLEAN
from tests.model.example_documents import (
    CHECKPOINT,
    DOCUMENT,
    ID,
    PARENT,
    REF,
    REMOVED,
    SMALL_DOCUMENT,
    changed,
    refusal,
)


@pytest.mark.parametrize(
    "key", ["version", "id", "phase", "timestamp", "git_sha", "trigger", "errors", "state"]
)
def test_a_document_without_a_required_key_is_refused(key: str) -> None:
    assert refusal(changed(key, REMOVED)) == (InvalidCheckpoint, REF, key, "missing")


@pytest.mark.parametrize(
    "key", ["worktree.dirty", "worktree.omitted.0.path", "worktree.omitted.0.reason"]
)
def test_a_table_without_a_required_key_is_refused(key: str) -> None:
    assert refusal(changed(key, REMOVED)) == (
        InvalidCheckpoint,
        REF,
        key.replace(".0", "[0]"),
        "missing",
    )


@pytest.mark.parametrize(
    ("key", "without"),
    [
        ("branch", replace(CHECKPOINT, branch=None)),
        ("message", replace(CHECKPOINT, message=None)),
        ("agent", replace(CHECKPOINT, agent=None)),
        ("parent", replace(CHECKPOINT, parent=None)),
        ("worktree", replace(CHECKPOINT, worktree=None)),
        ("progress", replace(CHECKPOINT, progress=None)),
        (
            "worktree.tree",
            replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, tree=None)),
        ),
        (
            "worktree.operation",
            replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, operation=None)),
        ),
        (
            "worktree.omitted",
            replace(CHECKPOINT, worktree=replace(CHECKPOINT.worktree or CLEAN, omitted=())),
        ),
        (
            "progress.current_phase",
            replace(
                CHECKPOINT, progress=replace(CHECKPOINT.progress or Progress(), current_phase=None)
            ),
        ),
        (
            "progress.tasks_total",
            replace(
                CHECKPOINT, progress=replace(CHECKPOINT.progress or Progress(), tasks_total=None)
            ),
        ),
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
VALUES: list[Any] = [
    "x",
    1,
    1.0,
    True,
    [],
    {},
    datetime.datetime(2026, 11, 21, 20, 15, tzinfo=datetime.UTC),
    datetime.date(2026, 11, 21),
]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key, (kind, _) in WORDS.items()
        for value in VALUES
        if type(value) is not kind
    ],
    ids=repr,
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: Any) -> None:
    field = key.replace(".0", "[0]")
    assert refusal(changed(key, value)) == (
        InvalidCheckpoint,
        REF,
        field,
        f"must be {WORDS[key][1]}, not {value!r:.60}",
    )


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("version", 0, "must be 1, not 0"),
        ("version", -1, "must be 1, not -1"),
        ("id", "", "must be a UUID version 4 in lower case, not ''"),
        ("id", "latest", "must be a UUID version 4 in lower case, not 'latest'"),
        ("id", ID.upper(), f"must be a UUID version 4 in lower case, not '{ID.upper()}'"),
        (
            "id",
            ID.replace("-4e", "-1e"),
            f"must be a UUID version 4 in lower case, not '{ID.replace('-4e', '-1e')}'",
        ),
        ("id", PARENT, f"{PARENT} is not the ref's name"),
        ("run", "", "must be a run id such as 20261121-201500-add-login, not ''"),
        (
            "run",
            "20261121-201500-../x",
            "must be a run id such as 20261121-201500-add-login, not '20261121-201500-../x'",
        ),
        ("run", REMOVED, None),
        ("parent", "x", "must be a UUID version 4 in lower case, not 'x'"),
        ("sequence", 0, "must be 1 or more, not 0"),
        ("sequence", -(2**63), "must be 1 or more, not -9223372036854775808"),
        ("sequence", REMOVED, "belongs to a run: both keys or neither"),
        ("phase", "", "empty"),
        ("phase", " \n", "empty"),
        ("timestamp", "", "no UTC offset, neither Z nor ±hh:mm: ''"),
        ("timestamp", "yesterday", "no UTC offset, neither Z nor ±hh:mm: 'yesterday'"),
        (
            "timestamp",
            "2026-11-21T20:15:00",
            "no UTC offset, neither Z nor ±hh:mm: '2026-11-21T20:15:00'",
        ),
        ("timestamp", "2026-02-29T20:15:00Z", "no such day: 2026-02-29"),
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


@pytest.mark.parametrize("value", ['"x"', "1", "true", "[]"])
def test_seconds_that_are_no_float_are_refused(value: str) -> None:
    data = SMALL_DOCUMENT.replace(
        "\n[state]", f'\n[attempt]\nphase = "build"\nseconds = {value}\n\n[state]'
    ).encode()
    found = refusal(data)
    assert found[:3] == (InvalidCheckpoint, REF, "attempt.seconds")
    assert found[3].startswith("must be a float, not ")


def test_a_parent_without_a_run_is_refused() -> None:
    data = SMALL_DOCUMENT.replace("phase", f'parent = "{PARENT}"\nphase', 1).encode()
    assert refusal(data) == (
        InvalidCheckpoint,
        REF,
        "parent",
        "belongs to a run, and there is no run",
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe", "not UTF-8 (byte 0)"),
        (
            DOCUMENT.encode().replace(b"a line", b"a l\xefne"),
            f"not UTF-8 (byte {DOCUMENT.index('a line') + 3})",
        ),
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
        SMALL_DOCUMENT.encode().replace(b"errors = []", b"errors = " + b"[" * 200),
    ],
)
def test_what_is_not_toml_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.decode(data, REF)
    assert (type(caught.value), caught.value.ref, caught.value.field) == (
        InvalidCheckpoint,
        REF,
        "",
    )
    assert caught.value.problem.startswith("not TOML: ")


def test_an_empty_blob_is_refused() -> None:
    assert refusal(b"") == (InvalidCheckpoint, REF, "version", "missing")


@pytest.mark.parametrize(
    "data",
    [
        changed("version", 2),
        changed("version", 2**63 - 1).replace(b"run", b"path"),
        b"version = 2",
        b"version = 3\n[state]\nid = 1\n",
    ],
)
def test_a_document_of_a_later_version_is_refused_whatever_else_is_in_it(data: bytes) -> None:
    version = toml.loads(data.decode())["version"]
    assert refusal(data) == (
        NewerCheckpoint,
        REF,
        "version",
        f"written by a newer gitckpt (document version {version})",
    )
    with pytest.raises(NewerCheckpoint) as caught:
        codec.decode(data, REF)
    assert caught.value.hint == "upgrade gitckpt: pip install -U gitckpt"


@pytest.mark.parametrize(
    "key",
    ["id", "phase", "sequence", "timestamp", "branch", "errors", "worktree", "progress", "types"],
)
def test_an_integer_too_long_for_python_to_print_is_refused_like_any_other(key: str) -> None:
    lines = [line for line in SMALL_DOCUMENT.splitlines() if not line.startswith(f"{key} =")]
    long, longer = "0x" + "f" * 100, "0x" + "f" * 5000
    assert refusal("\n".join([f"{key} = {long}", *lines]).encode())[2] in (key, "sequence")
    assert refusal("\n".join([f"{key} = [{long}]", *lines]).encode())[2] in (key, "errors[0]")
    problem = "a number of 5,002 digits, where 128 are allowed"
    assert refusal("\n".join([f"{key} = {longer}", *lines]).encode()) == (
        InvalidCheckpoint,
        REF,
        "",
        problem,
    )


def test_a_version_beyond_64_bits_is_a_newer_one() -> None:
    data = SMALL_DOCUMENT.replace("version = 1", "version = 0x" + "f" * 30).encode()
    problem = f"written by a newer gitckpt (document version {16**30 - 1})"
    assert refusal(data) == (NewerCheckpoint, REF, "version", problem)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("sequence = 2", "sequence = {}", "sequence"),
        ("errors = []", "errors = []\nlater = {}", "later"),
        ("errors = []", "errors = []\nlater = [1, {{a = [{}]}}]", "later"),
        ("errors = []", "errors = []\nworktree = {{dirty = true, later = {}}}", "worktree.later"),
        ("errors = []", "errors = []\nprogress = {{tasks_total = {}}}", "progress.tasks_total"),
        (
            "errors = []",
            "errors = []\nattempt = {{phase = 'x', exit_code = {}}}",
            "attempt.exit_code",
        ),
    ],
)
def test_integers_outside_of_the_state_have_64_bits(
    number: int, before: str, after: str, field: str
) -> None:
    small = SMALL_DOCUMENT.replace(
        "errors = []", 'run = "20261121-201500-x"\nsequence = 2\nerrors = []'
    )
    data = small.replace(before, after.format(number)).encode()
    problem = f"must be an integer of 64 bits, not {number}"
    for read in (codec.decode, codec.decode_header, codec.decode_summary):
        with pytest.raises(InvalidCheckpoint) as caught:
            read(data, REF)
        assert (caught.value.field, caught.value.problem) == (field, problem)


@pytest.mark.parametrize("read", ["decode", "decode_header", "decode_summary"])
def test_what_nobody_foresaw_is_said_of_the_ref(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too\n deep")

    monkeypatch.setattr(codec, f"_{read}", fail)
    with pytest.raises(InvalidCheckpoint) as caught:
        getattr(codec, read)(b"", REF)
    assert (caught.value.ref, caught.value.field, caught.value.problem) == (
        REF,
        "",
        "cannot be read: RecursionError: too deep",
    )
