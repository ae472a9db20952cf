"""Errors keep their values after they are raised."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from gitckpt import (
    AmbiguousError,
    Changed,
    CkptError,
    ConfigError,
    DamagedObject,
    FilesPruned,
    GitError,
    InvalidCheckpoint,
    LockHeld,
    PhaseBlocked,
    RunExists,
    StateError,
    Untrusted,
)

ERRORS = [
    CkptError("it failed", hint="old"),
    InvalidCheckpoint("refs/checkpoints/a", "phase", "is missing", hint="old"),
    PhaseBlocked("it is blocked", errors=("one", "two"), code=4, output="said", hint="old"),
    Changed("20260101-000000-a", ["input 'x' has changed"]),
]


OTHERS = [
    AmbiguousError("ab is two", ("abc", "abd")),
    ConfigError("gitckpt.toml", []),
    DamagedObject("an object is damaged", "ab"),
    FilesPruned(),
    GitError(["gc"], 1, "no"),
    LockHeld("HEAD.lock"),
    RunExists("it exists", "20260101-000000-a"),
    StateError("/a", "cannot be stored"),
    Untrusted("it was fetched", ["a"], hint="trust it"),
]


@pytest.mark.parametrize("error", [*ERRORS, *OTHERS], ids=lambda error: type(error).__name__)
def test_an_error_goes_from_process_to_process(error: CkptError) -> None:
    """An error that `pickle` cannot load breaks the process pool that raised it."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(other), other.args, vars(other)) == (type(error), error.args, vars(error))


def fail() -> None:
    raise StateError("/a", "cannot be stored")


def test_a_pool_hands_it_on() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(StateError, match=r"^/a: cannot be stored$"):
        pool.submit(fail).result(timeout=60)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_but_for_its_hint_is_another_one(error: CkptError) -> None:
    before = vars(error).copy()
    other = error.but(hint="new")
    assert (type(other), other.args, vars(other)) == (
        type(error),
        error.args,
        before | {"hint": "new"},
    )
    assert vars(error) == before
    assert other is not error


def test_an_error_but_for_its_hint_tells_where_it_was_raised() -> None:
    with pytest.raises(CkptError) as caught:
        raise CkptError("it failed")
    assert caught.value.__traceback__ is not None
    assert caught.value.but(hint="new").__traceback__ is caught.value.__traceback__


def test_what_errors_know_besides_their_message() -> None:
    ambiguous = AmbiguousError("ab is two", ("abc", "abd"), hint="write more of it")
    assert (ambiguous.args, vars(ambiguous)) == (
        ("ab is two",),
        {"message": "ab is two", "hint": "write more of it", "candidates": ["abc", "abd"]},
    )
    exists = RunExists("it exists", "20260101-000000-a", hint="go on with it")
    assert (exists.args, vars(exists)) == (
        ("it exists",),
        {"message": "it exists", "hint": "go on with it", "run": "20260101-000000-a"},
    )
    state = StateError("", "cannot be stored", hint="leave it out")
    assert vars(state) == {
        "message": "/: cannot be stored",
        "hint": "leave it out",
        "path": "",
        "problem": "cannot be stored",
    }
