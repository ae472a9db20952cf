"""Checkpoint documents to read and to break, and the errors of broken ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from gitckpt import Attempt, Checkpoint, InvalidCheckpoint, Pipeline, Progress, Worktree
from gitckpt.model import codec, toml
from gitckpt.model.checkpoint import Imported, Omitted, Submodule, Suspect
from tests.conftest import examples

quick = settings(max_examples=examples(150), deadline=None, database=None)
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
    label="research-complete",
    timestamp="2026-11-21T20:15:00.123456Z",
    git_sha=SHA,
    branch="feature/login",
    trigger="post-commit",
    message="a line",
    agent="superpowers:writing-plans",
    errors=("first", "second"),
    worktree=Worktree(
        dirty=True,
        tree=TREE,
        operation="merge",
        omitted=(Omitted("dump.bin", "larger than 50 MB", 123456789),),
    ),
    progress=Progress(
        current_phase=2,
        total_phases=5,
        current_task="Designing parameter schema",
        tasks_completed=5,
        tasks_total=35,
    ),
    state={"n": 2**64, "planning": {"owner": None, "steps": [1, 2.0, "three"]}},
)

SMALL = Checkpoint(
    id=ID, label="commit-complete", timestamp="2026-11-21T20:15:00Z", git_sha="", trigger="manual"
)
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


DRIVEN_DOCUMENT = f"""\
version = 1
id = "{ID}"
run = "20261121-201500-add-login"
sequence = 3
phase = "build-failed"
timestamp = "2026-11-21T20:15:00Z"
git_sha = "{SHA}"
trigger = "phase"
errors = []

[worktree]
dirty = true
operation_commit = "{SHA}"
omitted = [{{path = "sub", reason = "a repository", oid = "{SHA}", dirty = false}}]
submodules = [{{path = "lib", checkpoint = "{PARENT}", git_sha = "{SHA}", dirty = true}}]
converted = ["a.txt", "b.txt"]
suspects = [{{path = ".env", rule = "private key", line = 7, digest = "0123abcd"}}]
degraded = "the disk is full"

[imported]
path = "plan.json"
original = "{TREE}"
at = "2026-11-21T20:17:00Z"
untrusted = true

[pipeline]
name = "ci"
phases = ["plan", "build"]
completed = {{plan = "{PARENT}"}}
autonomy = "batch"
deadline = "2026-11-22T00:00:00Z"

[pipeline.definition]
"plan.run" = "0123"

[pipeline.inputs]
branch = "main"

[pipeline.contents]
notes = "4567"

[attempt]
phase = "build"
number = 4
ended = "failed"
began = "{PARENT}"
failures = 2
recoveries = 3
retry_at = "2026-11-21T20:16:00Z"
exit_code = -9
seconds = 1.5
output = "no such file"
result = "null"

[attempt.inputs]
x = "89ab"

[state]
"""

DRIVEN = Checkpoint(
    id=ID,
    run="20261121-201500-add-login",
    sequence=3,
    label="build-failed",
    timestamp="2026-11-21T20:15:00Z",
    git_sha=SHA,
    trigger="phase",
    worktree=Worktree(
        dirty=True,
        operation_commit=SHA,
        omitted=(Omitted("sub", "a repository", oid=SHA, dirty=False),),
        submodules=(Submodule("lib", PARENT, SHA, dirty=True),),
        converted=("a.txt", "b.txt"),
        suspects=(Suspect(".env", "private key", 7, "0123abcd"),),
        degraded="the disk is full",
    ),
    pipeline=Pipeline(
        name="ci",
        phases=("plan", "build"),
        completed={"plan": PARENT},
        autonomy="batch",
        deadline="2026-11-22T00:00:00Z",
        definition={"plan.run": "0123"},
        inputs={"branch": "main"},
        contents={"notes": "4567"},
    ),
    attempt=Attempt(
        phase="build",
        number=4,
        ended="failed",
        began=PARENT,
        failures=2,
        recoveries=3,
        retry_at="2026-11-21T20:16:00Z",
        exit_code=-9,
        seconds=1.5,
        output="no such file",
        result="null",
        inputs={"x": "89ab"},
    ),
    imported=Imported("plan.json", TREE, "2026-11-21T20:17:00Z", untrusted=True),
)


def fields(document: str = DOCUMENT) -> dict[str, Any]:
    """Return the whole document as a new dict."""
    return toml.loads(document)


REMOVED = object()


def changed(path: str, value: Any, document: str = DOCUMENT) -> bytes:
    """Return the whole document with a dotted path changed or removed."""
    made = fields(document)
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
    """Return kind, ref, field and problem of the error that reading raises.

    Header and whole document must agree.
    """
    with pytest.raises(InvalidCheckpoint) as caught:
        codec.decode(data, ref)
    error = caught.value
    assert str(error) == (
        f"{error.ref}: {error.field}: {error.problem}"
        if error.field
        else f"{error.ref}: {error.problem}"
    )
    assert error.exit_code == 13
    if not error.field.startswith(("types", "state")):
        with pytest.raises(InvalidCheckpoint) as caught:
            codec.decode_header(data, ref)
        assert (type(caught.value), str(caught.value)) == (type(error), str(error))
    return type(error), error.ref, error.field, error.problem


def read_or_fault(
    read: Callable[[bytes, str], Checkpoint], data: bytes
) -> Checkpoint | InvalidCheckpoint:
    try:
        return read(data, REF)
    except InvalidCheckpoint as error:
        return error
