"""Findings: their ids, and the effect of verifications."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt.durable.phases.review.state import (
    FIXED,
    FOUND,
    REGRESSED,
    STILL_PRESENT,
    ReviewFinding,
    Verification,
    find_unresolved,
    make_finding_id,
    update_statuses,
)

ONE = ReviewFinding("critical", "bug A", 1)
TWO = ReviewFinding("major", "bug B", 1)
THREE = ReviewFinding("minor", "bug C", 2)


class TestFindingId:
    def test_it_is_quasar_s(self) -> None:
        digest = hashlib.sha256("major:it's broken — ✓".encode()).hexdigest()
        assert make_finding_id("major", "it's broken — ✓") == f"f-{digest[:12]}"

    def test_sha256sum_finds_the_same(self) -> None:
        assert [ONE.id, TWO.id, THREE.id] == ["f-e9efd919a8f6", "f-d941e571f8a2", "f-e6304c311840"]

    @pytest.mark.parametrize(
        "white", [" ", "\t", "\r\n", "\v\f", "\x85", "\xa0", "\u2003", "\u3000"]
    )
    def test_white_space_around_it_does_not_matter(self, white: str) -> None:
        assert make_finding_id("major", f"{white}missing check{white}") == make_finding_id(
            "major", "missing check"
        )

    @pytest.mark.parametrize(
        "text", ["missing  check", "missing check\x1f", "Missing check", "missing check."]
    )
    def test_any_other_difference_does(self, text: str) -> None:
        assert make_finding_id("major", text) != make_finding_id("major", "missing check")

    def test_the_severity_does(self) -> None:
        assert make_finding_id("critical", "missing check") != make_finding_id(
            "minor", "missing check"
        )

    @given(st.text(), st.text())
    def test_it_has_one_shape_and_is_always_the_same(self, severity: str, description: str) -> None:
        made = make_finding_id(severity, description)
        assert made == make_finding_id(severity, description)
        assert made.startswith("f-")
        assert len(made) == 14
        assert set(made[2:]) <= set("0123456789abcdef")


class TestVerified:
    def test_each_gets_the_status_that_was_said(self) -> None:
        said = [
            Verification(ONE.id, FIXED, "gone"),
            Verification(TWO.id, STILL_PRESENT),
            Verification(THREE.id, REGRESSED),
        ]
        assert [each.status for each in update_statuses([ONE, TWO, THREE], said)] == [
            FIXED,
            STILL_PRESENT,
            REGRESSED,
        ]

    def test_one_that_nothing_is_said_of_keeps_its_status(self) -> None:
        before = [ReviewFinding("major", "bug", 1, FIXED), TWO]
        assert update_statuses(before, [Verification("f-unknown", FIXED)]) == tuple(before)

    def test_one_that_was_found_twice_changes_everywhere(self) -> None:
        again = ReviewFinding(ONE.severity, f" {ONE.description} ", 2)
        assert [
            each.status for each in update_statuses([ONE, again], [Verification(ONE.id, FIXED)])
        ] == [
            FIXED,
            FIXED,
        ]

    def test_the_last_word_counts(self) -> None:
        assert (
            update_statuses([ONE], [Verification(ONE.id, FIXED), Verification(ONE.id, REGRESSED)])[
                0
            ].status
            == REGRESSED
        )

    def test_nothing_to_verify(self) -> None:
        assert update_statuses([], [Verification(ONE.id, FIXED)]) == ()


class TestUnresolved:
    def test_what_is_fixed_is_left_out(self) -> None:
        findings = [
            ONE,
            ReviewFinding("major", "bug B", 1, FIXED),
            ReviewFinding("minor", "bug C", 2, REGRESSED),
        ]
        assert find_unresolved(findings) == (ONE, findings[2])

    def test_each_counts_once_as_it_was_found_last(self) -> None:
        again = ReviewFinding("critical", "bug A", 3, FOUND)
        assert find_unresolved(
            [ReviewFinding("critical", "bug A", 1, STILL_PRESENT), TWO, again]
        ) == (
            again,
            TWO,
        )

    def test_one_that_is_found_again_after_it_was_fixed_is_open(self) -> None:
        again = ReviewFinding("critical", "bug A", 3)
        assert find_unresolved([ReviewFinding("critical", "bug A", 1, FIXED), again]) == (again,)
