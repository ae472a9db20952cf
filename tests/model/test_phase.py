"""A phase label splits into a name and a status."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import UsageError
from gitckpt.model import phase
from tests.conftest import examples

quick = settings(max_examples=examples(150), deadline=None, database=None)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("research-complete", ("research", "complete")),
        ("code-review-failed", ("code-review", "failed")),
        ("research", ("research", "")),
        ("", ("", "")),
        ("-complete", ("", "complete")),
        ("research-", ("research", "")),
        ("a--b", ("a-", "b")),
        ("écrire le plan-started", ("écrire le plan", "started")),
    ],
)
def test_a_label_splits_at_its_last_hyphen(label: str, expected: tuple[str, str]) -> None:
    assert phase.split_label(label) == expected


@pytest.mark.parametrize("status", phase.STATUSES)
def test_a_label_with_a_status_is_taken_as_it_is(status: str) -> None:
    assert phase.to_phase_label(f"code-review-{status}") == f"code-review-{status}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("research", "research-complete"),
        ("code-review", "code-review-complete"),
        ("completed", "completed-complete"),
        ("on_failed-complete", "on_failed-complete"),
        ("failed-complete", "failed-complete"),
        ("fail-over", "fail-over-complete"),
        ("plan_complete", "plan_complete-complete"),
        ("write the plan", "write the plan-complete"),
        ("réviser", "réviser-complete"),
        ("research-success", "research-success-complete"),
        ("add-login", "add-login-complete"),
    ],
)
def test_a_name_without_status_counts_as_complete(text: str, expected: str) -> None:
    assert phase.to_phase_label(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-complete",
        " -failed",
        "research-",
        "research--failed",
        "research-Failed",
        "RESEARCH-COMPLETE",
        "build-fail",
        "code-review-Failure",
        "a\nb",
        "research-complete\n",
        "a\tb",
        "a\0b",
        "a\u2028b",
        "a\x85b",
        "a\x7fb",
        "\x1b[31mred",
        "\ud800",
        *phase.STATUSES,
        *(
            "fail",
            "Failed",
            "COMPLETE",
            "plan_failed",
            "plan failed",
            "plan.fail",
            "a:b/c_failure",
            "code-review_Failed",
        ),
        *("plan-complete ", " plan", "plan "),
    ],
)
def test_a_label_without_a_name_or_with_control_characters_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        phase.to_phase_label(text)
    assert (caught.value.message, caught.value.hint) == (
        f"{text!r} is not a phase",
        (
            "write NAME or NAME-STATUS on one line; a status is one of complete, failed, "
            "started, progress, blocked, skipped, partial"
        ),
    )


@quick
@given(st.text(max_size=30))
def test_what_label_returns_is_a_label_with_a_name_and_a_known_status(text: str) -> None:
    try:
        made = phase.to_phase_label(text)
    except UsageError:
        return
    name, status = phase.split_label(made)
    assert name.strip()
    assert status in phase.STATUSES
    assert phase.to_phase_label(made) == made


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("d-complete", {"a": "1", "b": "2", "c": "3", "d": "9"}),
        ("d-skipped", {"a": "1", "b": "2", "c": "3", "d": "9"}),
        ("d-started", {"a": "1", "b": "2", "c": "3"}),
        ("b-started", {"a": "1"}),
        ("a-started", {}),
        ("b-complete", {"a": "1", "c": "3", "b": "9"}),
        ("b-skipped", {"a": "1", "c": "3", "b": "9"}),
        *(
            (f"b-{status}", {"a": "1", "b": "2", "c": "3"})
            for status in ("failed", "progress", "blocked", "partial", "")
        ),
        *(
            (f"{name}-{status}", {"a": "1", "b": "2", "c": "3"})
            for name in phase.NOT_PHASES
            for status in ("complete", "started")
        ),
    ],
)
def test_what_is_complete_after_a_checkpoint(label: str, expected: dict[str, str]) -> None:
    completed = {"a": "1", "b": "2", "c": "3"}
    assert list(phase.completed_phases_after(completed, label, "9").items()) == list(
        expected.items()
    )
    assert completed == {"a": "1", "b": "2", "c": "3"}


def test_a_run_that_was_taken_back_keeps_what_its_checkpoint_says_and_gains_nothing() -> None:
    completed = {"a": "1", "b": "2"}
    assert phase.completed_phases_after(completed, phase.REWOUND, "9", ["a", "z"]) == {"a": "1"}
    assert phase.completed_phases_after(completed, phase.REWOUND, "9", []) == {}
    assert phase.completed_phases_after(completed, "c-complete", "9", ["a"]) == {
        "a": "1",
        "b": "2",
        "c": "9",
    }
