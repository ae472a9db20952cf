"""A failure is recorded and raised unchanged, even if its exception misbehaves."""

from __future__ import annotations

import pytest

from gitckpt import PhaseFailed, PhaseOptions, Retries, Run, StateError, Store
from tests.durable.conftest import Counted


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError("nothing to say")


FAILURES: dict[str, tuple[Exception, str]] = {
    "surrogate": (OSError("no \udcff here"), "OSError: no \\udcff here"),
    "long": (ValueError("x" * 5_000_000), f"ValueError: {'x' * 19_988}… (5,000,012 characters)"),
    "mute": (Mute(), "Mute: <exception str() failed>"),
    "bytes": (PhaseFailed("it failed", errors=(b"no",)), "b'no'"),  # type: ignore[arg-type]
    "output": (
        PhaseFailed("it failed", output="\ud800" + "x" * 5_000_000, code=2**80),
        "it failed",
    ),
}


@pytest.mark.parametrize(("error", "said"), FAILURES.values(), ids=FAILURES)
def test_it_is_recorded_and_comes_as_it_is(plain: Store, error: Exception, said: str) -> None:
    with pytest.raises(type(error)) as raised, Run.start(plain, "add-login") as run:
        run.phase("research", Counted(error))
    assert raised.value is error
    newest = plain.newest(run.id)
    assert (newest.label, newest.errors, plain.runs()[0].status) == (
        "research-failed",
        (said,),
        "failed",
    )


def test_it_is_tried_again(plain: Store) -> None:
    with Run.start(plain, "add-login") as run:
        work = Counted(OSError("\udcff"), ValueError("x" * 5_000_000), Mute(), result=3)
        assert (
            run.phase("research", work, conduct=PhaseOptions(retries=Retries(attempts=3, delay=0)))
            == 3
        )
    assert run.last_attempt is not None
    assert (run.last_attempt.number, run.last_attempt.failures, run.last_attempt.recoveries) == (
        4,
        3,
        0,
    )


@pytest.mark.long
def test_many_errors_are_counted(plain: Store) -> None:
    with pytest.raises(PhaseFailed), Run.start(plain, "add-login") as run:
        run.phase(
            "research",
            Counted(PhaseFailed("it failed", errors=tuple("e" * 20_000 for _ in range(5000)))),
        )
    assert plain.newest(run.id).errors == (*["e" * 20_000] * 100, "and 4,900 more")


def test_an_integer_that_json_cannot_hold_is_no_result(plain: Store) -> None:
    with (
        pytest.raises(StateError, match=r"^/research: an integer is too long to be read again: "),
        Run.start(plain, "add-login") as run,
    ):
        run.phase("research", Counted(result=10**5000))
    assert plain.newest(run.id).label == "research-failed"
