"""The parser finds findings, verifications, report and approval in any answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt.durable.phases.review import state
from gitckpt.durable.phases.review.state import (
    ReviewFinding,
    ReviewReport,
    Verification,
    make_finding_id,
)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("", []),
        ("The code looks good.\n\nAPPROVED: it does what was asked", []),
        (
            (
                "I found a problem.\n\nISSUE:\nSEVERITY: critical\nDESCRIPTION: "
                "the connection is never closed"
            ),
            [("critical", "the connection is never closed")],
        ),
        (
            (
                "ISSUE:\nSEVERITY: major\nDESCRIPTION: one\n\nISSUE:\nSEVERITY: minor\n"
                "DESCRIPTION: two\n\nISSUE:\nDESCRIPTION: three"
            ),
            [("major", "one"), ("minor", "two"), ("major", "three")],
        ),
        (
            "ISSUE:\nSEVERITY: major\nDESCRIPTION: one\nISSUE:\nSEVERITY: minor\nDESCRIPTION: two",
            [("major", "one"), ("minor", "two")],
        ),
        (
            "ISSUE:\nSEVERITY: major\nDESCRIPTION: it tries\nagain on\n  400 Bad Request\n\nmore",
            [("major", "it tries again on 400 Bad Request")],
        ),
        ("ISSUE:\nDESCRIPTION:\nbelow its name", [("major", "below its name")]),
        (
            "ISSUE:\nDESCRIPTION: the severity comes last\nSEVERITY: minor",
            [("minor", "the severity comes last")],
        ),
        ("ISSUE:\nSEVERITY:\nDESCRIPTION: no severity", [("major", "no severity")]),
        ("ISSUE:\nSEVERITY: major\nDESCRIPTION:", []),
        ("ISSUE:\nSEVERITY: major\n\nDESCRIPTION: too late", []),
        ("ISSUE: in a sentence\nDESCRIPTION: no block", []),
        (
            "ISSUE:\nSEVERITY: major\nDESCRIPTION: it ends\nAPPROVED: here\nnot there",
            [("major", "it ends")],
        ),
        ("ISSUE:\nsome words first\nDESCRIPTION: then this\n", [("major", "then this")]),
        (
            "ISSUE:\r\nSEVERITY: major\r\nDESCRIPTION: line ends\r\nof Windows\r\n",
            [("major", "line ends of Windows")],
        ),
        ("  ISSUE:  \n\tSEVERITY: Major \n DESCRIPTION: indented ", [("Major", "indented")]),
        (
            "ISSUE:\nDESCRIPTION: one\nDESCRIPTION: is not two",
            [("major", "one DESCRIPTION: is not two")],
        ),
        ("ISSUE:\nDESCRIPTION: one\nSEVERITY: minor\nDESCRIPTION: another", [("minor", "another")]),
        ("issue:\ndescription: in small letters", []),
    ],
)
def test_findings(answer: str, found: list[tuple[str, str]]) -> None:
    assert [(each.severity, each.description) for each in state.parse_findings(answer)] == found


def test_a_finding_has_the_id_of_its_words_and_is_found() -> None:
    (found,) = state.parse_findings("ISSUE:\nDESCRIPTION: missing check")
    assert found == ReviewFinding("major", "missing check", 0, "found")
    assert found.id == make_finding_id("major", "missing check")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", []),
        (
            "VERIFICATION:\nFINDING_ID: f-1\nSTATUS: fixed\nCOMMENT: gone",
            [("f-1", "fixed", "gone")],
        ),
        ("VERIFICATION:\nFINDING_ID: f-1\nSTATUS: still_present", [("f-1", "still_present", "")]),
        ("VERIFICATION:\nFINDING_ID: f-1\nSTATUS: REGRESSED", [("f-1", "regressed", "")]),
        ("VERIFICATION:\nFINDING_ID: f-1\nSTATUS: mostly fixed", [("f-1", "still_present", "")]),
        ("VERIFICATION:\nFINDING_ID: f-1", [("f-1", "still_present", "")]),
        ("VERIFICATION:\nFINDING_ID: f-1\nSTATUS: found", [("f-1", "still_present", "")]),
        ("VERIFICATION:\nSTATUS: fixed", []),
        ("VERIFICATION:\n\nFINDING_ID: f-1\nSTATUS: fixed", []),
        (
            (
                "VERIFICATION:\nFINDING_ID: f-1\nSTATUS: fixed\nVERIFICATION:\nFINDING_ID: "
                "f-2\nSTATUS: regressed\nISSUE:\nSTATUS: fixed"
            ),
            [("f-1", "fixed", ""), ("f-2", "regressed", "")],
        ),
        (
            "VERIFICATION:\nFINDING_ID: f-1\nAPPROVED: yes\nSTATUS: fixed",
            [("f-1", "still_present", "")],
        ),
        ("VERIFICATION:\nFINDING_ID: f-1\nREPORT:\nSTATUS: fixed", [("f-1", "still_present", "")]),
        ("VERIFICATION:\nFINDING_ID: f-1\nsome words\nSTATUS: fixed", [("f-1", "fixed", "")]),
    ],
)
def test_verifications(answer: str, said: list[tuple[str, str, str]]) -> None:
    assert state.parse_verifications(answer) == tuple(Verification(*each) for each in said)


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        ("", None),
        ("REPORT:\n", None),
        ("REPORT:\nnothing of it", None),
        (
            (
                "REPORT:\nSATISFACTION: HIGH\nRISK: low\nNEEDS_HUMAN_REVIEW: no\n"
                "SUMMARY: Fine: it works"
            ),
            ReviewReport("high", "low", False, "Fine: it works"),
        ),
        (
            "REPORT:\n\nNEEDS_HUMAN_REVIEW: Yes\n\nSUMMARY: look",
            ReviewReport(needs_human_review=True, summary="look"),
        ),
        ("REPORT:\nNEEDS_HUMAN_REVIEW: true", ReviewReport(needs_human_review=True)),
        ("REPORT:\nNEEDS_HUMAN_REVIEW: perhaps", ReviewReport()),
        ("REPORT:\nRISK: high\nand then\nSUMMARY: too late", ReviewReport(risk="high")),
        ("REPORT:\nwords\nREPORT:\nRISK: low", ReviewReport(risk="low")),
    ],
)
def test_report(answer: str, report: ReviewReport | None) -> None:
    assert state.parse_report(answer) == report


@pytest.mark.parametrize(
    ("answer", "approved"),
    [
        ("APPROVED: looks good", True),
        ("  APPROVED: all checks pass", True),
        ("Words before\n\nAPPROVED: fine", True),
        ("APPROVED:", True),
        ("ISSUE:\nSEVERITY: major\nDESCRIPTION: bug\n\nAPPROVED: all the same", True),
        ("ISSUE:\nSEVERITY: major\nDESCRIPTION: bug", False),
        ("Not approved yet", False),
        ("I say APPROVED: perhaps", False),
        ("approved: in small letters", False),
        ("", False),
    ],
)
def test_approval(answer: str, approved: bool) -> None:
    assert state.is_approved(answer) is approved


@given(
    st.lists(
        st.sampled_from(
            [
                "ISSUE:",
                "SEVERITY: a",
                "DESCRIPTION: b",
                "VERIFICATION:",
                "FINDING_ID: c",
                "STATUS: d",
                "REPORT:",
                "RISK: e",
                "",
                "x",
            ]
        )
    ).map("\n".join)
    | st.text()
)
def test_no_answer_is_too_odd(answer: str) -> None:
    assert all(each.description and each.severity for each in state.parse_findings(answer))
    assert all(each.finding for each in state.parse_verifications(answer))
    state.parse_report(answer)
