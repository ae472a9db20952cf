"""The status of a run follows from its checkpoints and its driver."""

from __future__ import annotations

import pytest

from gitckpt.model import runstate


def test_a_run_whose_driver_does_nothing_is_stalled() -> None:
    assert runstate.status_of_run("a-started", "a-started", driven=True, stalled=True) == "stalled"
    assert runstate.status_of_run("a-started", "a-started", driven=False, stalled=True) == "crashed"
    assert {"running", "stalled"} == set(runstate.DRIVEN) < set(runstate.STATUSES)


@pytest.mark.parametrize(
    ("label", "newest", "driven", "expected"),
    [
        ("run-complete", "run-complete", True, "running"),
        (None, "manual-complete", True, "running"),
        ("run-complete", "run-complete", None, "complete"),
        ("run-complete", "run-complete", False, "complete"),
        (None, "run-complete", None, "complete"),
        ("run-complete", "manual-complete", None, "complete"),
        ("run-started", "run-started", None, "open"),
        ("run-started", "run-started", False, "crashed"),
        ("a-failed", "a-failed", None, "failed"),
        ("a-blocked", "a-blocked", None, "blocked"),
        ("a-partial", "a-partial", None, "paused"),
        ("a-complete", "a-complete", None, "paused"),
        ("a-skipped", "a-skipped", None, "paused"),
        ("a-started", "a-started", None, "crashed"),
        ("a-progress", "a-progress", None, "crashed"),
        ("a-complete", "a-complete", False, "crashed"),
        ("a-failed", "manual-complete", None, "failed"),
        (None, "manual-complete", None, "open"),
        (None, "a-failed", None, "open"),
        (None, "a-failed", False, "crashed"),
    ],
)
def test_the_status_of_a_run(
    label: str | None, newest: str, driven: bool | None, expected: str
) -> None:
    assert runstate.status_of_run(label, newest, driven=driven) == expected
    assert expected in runstate.STATUSES


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("a-failed", "failed"),
        ("a-blocked", "blocked"),
        ("a-partial", "open"),
        ("a-complete", "open"),
    ],
)
def test_of_what_nobody_drove_only_failures_count(label: str, expected: str) -> None:
    assert runstate.status_of_run(label, label, driven=None, by_driver=False) == expected
    assert runstate.status_of_run(label, label, driven=False, by_driver=False) == "crashed"
