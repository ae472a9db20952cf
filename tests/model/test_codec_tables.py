"""The tables `[pipeline]` and `[attempt]`, and missing files in `[worktree]`.

The documents are those of runs with a driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gitckpt import Attempt, Checkpoint, InvalidCheckpoint, Pipeline, StateError
from gitckpt.model import codec
from gitckpt.model.checkpoint import Suspect
from tests.model.example_documents import (
    DRIVEN,
    DRIVEN_DOCUMENT,
    PARENT,
    REF,
    REMOVED,
    SMALL,
    changed,
    fields,
    refusal,
)

LATER = {"later": [1, {"x": "y"}]}


def test_it_is_written_as_the_format_says() -> None:
    assert codec.encode(DRIVEN).decode() == DRIVEN_DOCUMENT


def test_it_is_read() -> None:
    assert codec.decode(DRIVEN_DOCUMENT.encode(), REF) == DRIVEN
    assert codec.decode_header(DRIVEN_DOCUMENT.encode(), REF) == DRIVEN


def test_keys_of_later_versions_are_kept() -> None:
    assert DRIVEN.pipeline is not None
    assert DRIVEN.attempt is not None
    assert DRIVEN.imported is not None
    assert DRIVEN.worktree is not None
    lists: dict[str, Any] = {
        key: tuple(replace(each, unknown=LATER) for each in getattr(DRIVEN.worktree, key))
        for key in ("omitted", "submodules", "suspects")
    }
    later = replace(
        DRIVEN,
        worktree=replace(DRIVEN.worktree, **lists, unknown=LATER),
        imported=replace(DRIVEN.imported, unknown=LATER),
        pipeline=replace(DRIVEN.pipeline, unknown=LATER),
        attempt=replace(DRIVEN.attempt, unknown=LATER),
    )
    assert codec.decode(codec.encode(later), REF) == later


def test_of_an_attempt_only_the_phase_must_be_told_and_of_a_pipeline_nothing() -> None:
    least = replace(
        SMALL, attempt=Attempt("build", 1, failures=0, recoveries=0), pipeline=Pipeline()
    )
    data = codec.encode(SMALL).replace(
        b"\n[state]", b'\n[pipeline]\n\n[attempt]\nphase = "build"\n\n[state]'
    )
    assert codec.decode(data, REF) == least
    first = data.replace(b'"build"', b'"build"\nnumber = 1\nfailures = 0\nrecoveries = 0')
    assert codec.decode(first, REF) == least
    assert codec.encode(least) == first


def test_of_a_suspect_the_line_may_be_missing() -> None:
    data = changed("worktree.suspects.0.line", REMOVED, DRIVEN_DOCUMENT)
    found = codec.decode(data, REF).worktree
    assert found is not None
    assert found.suspects == (Suspect(".env", "private key", 1, "0123abcd"),)


def test_a_map_that_is_none_of_python_s_own_is_written_like_one() -> None:
    class Others(Mapping[str, str]):
        def __getitem__(self, key: str) -> str:
            return {"x": "89ab"}[key]

        def __iter__(self) -> Any:
            return iter(["x"])

        def __len__(self) -> int:
            return 1

    assert DRIVEN.attempt is not None
    assert (
        codec.encode(replace(DRIVEN, attempt=replace(DRIVEN.attempt, inputs=Others()))).decode()
        == DRIVEN_DOCUMENT
    )


WORDS: dict[str, tuple[type, str]] = {
    "worktree.operation_commit": (str, "a string"),
    "worktree.omitted.0.oid": (str, "a string"),
    "worktree.omitted.0.dirty": (bool, "a boolean"),
    "worktree.submodules": (list, "an array"),
    "worktree.submodules.0": (dict, "a table"),
    "worktree.submodules.0.path": (str, "a string"),
    "worktree.submodules.0.checkpoint": (str, "a string"),
    "worktree.submodules.0.git_sha": (str, "a string"),
    "worktree.submodules.0.dirty": (bool, "a boolean"),
    "worktree.converted": (list, "an array"),
    "worktree.converted.1": (str, "a string"),
    "worktree.suspects": (list, "an array"),
    "worktree.suspects.0": (dict, "a table"),
    "worktree.suspects.0.path": (str, "a string"),
    "worktree.suspects.0.rule": (str, "a string"),
    "worktree.suspects.0.line": (int, "an integer"),
    "worktree.suspects.0.digest": (str, "a string"),
    "worktree.degraded": (str, "a string"),
    "imported": (dict, "a table"),
    "imported.path": (str, "a string"),
    "imported.original": (str, "a string"),
    "imported.at": (str, "a string"),
    "imported.untrusted": (bool, "a boolean"),
    "pipeline": (dict, "a table"),
    "pipeline.name": (str, "a string"),
    "pipeline.phases": (list, "an array"),
    "pipeline.phases.0": (str, "a string"),
    "pipeline.completed": (dict, "a table"),
    "pipeline.completed.plan": (str, "a string"),
    "pipeline.autonomy": (str, "a string"),
    "pipeline.deadline": (str, "a string"),
    "pipeline.definition": (dict, "a table"),
    "pipeline.inputs": (dict, "a table"),
    "pipeline.inputs.branch": (str, "a string"),
    "pipeline.contents": (dict, "a table"),
    "attempt": (dict, "a table"),
    "attempt.phase": (str, "a string"),
    "attempt.number": (int, "an integer"),
    "attempt.ended": (str, "a string"),
    "attempt.began": (str, "a string"),
    "attempt.failures": (int, "an integer"),
    "attempt.recoveries": (int, "an integer"),
    "attempt.retry_at": (str, "a string"),
    "attempt.exit_code": (int, "an integer"),
    "attempt.output": (str, "a string"),
    "attempt.result": (str, "a string"),
    "attempt.inputs": (dict, "a table"),
}


@pytest.mark.parametrize("key", WORDS)
def test_a_value_of_the_wrong_type_is_refused(key: str) -> None:
    kind, words = WORDS[key]
    values: list[Any] = ["x", 1, True, [], {}]
    for value in values:
        if type(value) is not kind:
            field = key.replace(".0", "[0]").replace(".1", "[1]")
            assert refusal(changed(key, value, DRIVEN_DOCUMENT)) == (
                InvalidCheckpoint,
                REF,
                field,
                f"must be {words}, not {value!r}",
            )


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("worktree.operation_commit", "HEAD", "must be a full object id, not 'HEAD'"),
        ("worktree.omitted.0.oid", "", "must be a full object id, not ''"),
        ("worktree.omitted.0.path", REMOVED, "missing"),
        ("worktree.omitted.0.reason", REMOVED, "missing"),
        ("worktree.omitted.0.size", -1, "must be 0 or more, not -1"),
        ("worktree.submodules.0.path", REMOVED, "missing"),
        (
            "worktree.submodules.0.checkpoint",
            "x",
            "must be a UUID version 4 in lower case, not 'x'",
        ),
        ("worktree.submodules.0.checkpoint", REMOVED, "missing"),
        ("worktree.submodules.0.git_sha", "HEAD", "must be a full object id or empty, not 'HEAD'"),
        ("worktree.submodules.0.git_sha", REMOVED, "missing"),
        ("worktree.submodules.0.dirty", REMOVED, "missing"),
        ("worktree.suspects.0.path", REMOVED, "missing"),
        ("worktree.suspects.0.rule", REMOVED, "missing"),
        ("worktree.suspects.0.line", 0, "must be 1 or more, not 0"),
        ("worktree.suspects.0.digest", REMOVED, "missing"),
        ("imported.path", REMOVED, "missing"),
        ("imported.original", "HEAD", "must be a full object id, not 'HEAD'"),
        ("imported.original", REMOVED, "missing"),
        ("imported.at", "noon", "no UTC offset, neither Z nor ±hh:mm: 'noon'"),
        ("imported.at", REMOVED, "missing"),
        ("pipeline.completed.plan", "x", "must be a UUID version 4 in lower case, not 'x'"),
        ("pipeline.deadline", "noon", "no UTC offset, neither Z nor ±hh:mm: 'noon'"),
        ("attempt.phase", " ", "empty"),
        ("attempt.phase", REMOVED, "missing"),
        ("attempt.number", 0, "must be 1 or more, not 0"),
        ("attempt.began", "x", "must be a UUID version 4 in lower case, not 'x'"),
        ("attempt.failures", -1, "must be 0 or more, not -1"),
        ("attempt.recoveries", -1, "must be 0 or more, not -1"),
        ("attempt.retry_at", "noon", "no UTC offset, neither Z nor ±hh:mm: 'noon'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(key: str, value: Any, problem: str) -> None:
    assert refusal(changed(key, value, DRIVEN_DOCUMENT)) == (
        InvalidCheckpoint,
        REF,
        key.replace(".0", "[0]"),
        problem,
    )


def test_the_tables_are_read_alone() -> None:
    found = fields(DRIVEN_DOCUMENT)
    assert codec.read_document_tables({}) == {}
    assert codec.read_document_tables({"pipeline": found["pipeline"]}) == {
        "pipeline": DRIVEN.pipeline
    }
    assert codec.read_document_tables({key: found[key] for key in ("attempt", "pipeline")}) == {
        "attempt": DRIVEN.attempt,
        "pipeline": DRIVEN.pipeline,
    }


@pytest.mark.parametrize("table", ["pipeline", "attempt"])
def test_an_error_in_a_table_that_is_read_alone_names_its_key(table: str) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.read_document_tables({table: {"phase": "build", "inputs": 1}})
    assert (caught.value.ref, caught.value.field, caught.value.problem) == (
        "",
        f"{table}.inputs",
        "must be a table, not 1",
    )


@pytest.mark.parametrize("checkpoint", [DRIVEN, SMALL], ids=["driven", "small"])
def test_what_a_checkpoint_is_written_from_passes_the_check(checkpoint: Checkpoint) -> None:
    codec.require_valid_document(codec.document_fields(checkpoint), REF)


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"phase": " "}, "phase", "empty"),
        ({"phase": None}, "phase", "missing"),
        ({"id": PARENT}, "id", f"{PARENT} is not the ref's name"),
        ({"attempt": {}}, "attempt.phase", "missing"),
        ({"errors": "one"}, "errors", "must be an array, not 'one'"),
    ],
)
def test_the_check_raises_what_reading_would(
    change: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.require_valid_document(codec.document_fields(DRIVEN) | change, REF)
    assert (caught.value.ref, caught.value.field, caught.value.problem) == (REF, field, problem)


@pytest.mark.parametrize("key", ["forked_from", "rewound_to"])
def test_a_checkpoint_that_a_run_goes_back_to_comes_back(key: str) -> None:
    others: dict[str, Any] = {key: PARENT}
    checkpoint = replace(SMALL, **others)
    data = codec.encode(checkpoint)
    assert data.decode() == codec.encode(SMALL).decode().replace(
        "errors", f'{key} = "{PARENT}"\nerrors'
    )
    assert codec.decode(data, REF) == checkpoint
    assert refusal(data.replace(PARENT.encode(), b"x")) == (
        InvalidCheckpoint,
        REF,
        key,
        "must be a UUID version 4 in lower case, not 'x'",
    )


def test_a_state_that_is_no_map_is_refused_as_a_whole() -> None:
    codec.require_state_map({})
    for state in (None, [], "x", [("a", 1)]):
        with pytest.raises(StateError) as caught:
            codec.require_state_map(state)
        assert str(caught.value) == f"/: a state is a map of names to values, not {state!r}"
