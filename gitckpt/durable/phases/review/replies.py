"""Reads what a reviewer answers: blocks of ISSUE, VERIFICATION and REPORT, and the word APPROVED. Pure.

ISSUE:                          VERIFICATION:                     REPORT:
SEVERITY: major                 FINDING_ID: f-0123456789ab        SATISFACTION: high
DESCRIPTION: what is wrong,     STATUS: fixed                     RISK: low
on as many lines as it takes    COMMENT: why                      NEEDS_HUMAN_REVIEW: no
                                                                  SUMMARY: one line
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gitckpt.durable.phases.review.finding import FIXED, MAJOR, REGRESSED, STILL_PRESENT, ReviewFinding, Verification
from gitckpt.durable.phases.review.text import trimmed
from gitckpt.model.values import dataclass

_ISSUE, _VERIFICATION, _REPORT, _APPROVED = "ISSUE:", "VERIFICATION:", "REPORT:", "APPROVED:"
_SEVERITY, _DESCRIPTION = "SEVERITY:", "DESCRIPTION:"
_FIELDS = {"SATISFACTION:": "satisfaction", "RISK:": "risk", "NEEDS_HUMAN_REVIEW:": "needs_human_review", "SUMMARY:": "summary"}


@dataclass(frozen=True, slots=True)
class ReviewReport:
    """What a reviewer says of the work as a whole.

    Attributes:
        satisfaction: high, medium or low.
        risk: high, medium or low.
        needs_human_review: whether a person should look at it.
        summary: one line.
    """

    satisfaction: str = ""
    risk: str = ""
    needs_human_review: bool = False
    summary: str = ""


def findings(answer: str) -> tuple[ReviewFinding, ...]:
    """Returns what an answer finds. One without a severity is major; one without a description counts for nothing."""
    found = [_finding(block) for block in _blocks(answer, _ISSUE, lambda line: line in ("", _ISSUE))]
    return tuple(each for each in found if each.description)


def verifications(answer: str) -> tuple[Verification, ...]:
    """Returns what an answer says of earlier findings. A status that is not known means that the finding is still present."""
    blocks = _blocks(answer, _VERIFICATION, lambda line: line in ("", _VERIFICATION, _ISSUE, _REPORT) or line.startswith(_APPROVED))
    said = [(_last(block, "FINDING_ID:"), _last(block, "STATUS:").lower(), _last(block, "COMMENT:")) for block in blocks]
    return tuple(
        Verification(finding, status if status in (FIXED, REGRESSED) else STILL_PRESENT, comment)
        for finding, status, comment in said
        if finding
    )


def report(answer: str) -> ReviewReport | None:
    """Returns the first report of an answer that has a field; None where there is none."""
    for block in _blocks(answer, _REPORT, lambda line: bool(line) and not line.startswith(tuple(_FIELDS))):
        said = {name: _last(block, field) for field, name in _FIELDS.items()}
        if any(block):
            needs = said["needs_human_review"].lower() in ("yes", "true")
            return ReviewReport(said["satisfaction"].lower(), said["risk"].lower(), needs, said["summary"])
    return None


def is_approved(answer: str) -> bool:
    """Tells whether an answer approves of the work, whatever else it says."""
    return any(line.startswith(_APPROVED) for line in _lines(answer))


def _lines(answer: str) -> list[str]:
    return [trimmed(line) for line in answer.split("\n")]


def _blocks(answer: str, head: str, ends: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yields the lines that follow each head, up to one that ends the block."""
    lines = _lines(answer)
    at = 0
    while at < len(lines):
        at += 1
        if lines[at - 1] != head:
            continue
        block = []
        while at < len(lines) and not ends(lines[at]):
            block.append(lines[at])
            at += 1
        yield block


def _last(block: list[str], field: str) -> str:
    """Returns the value that a block gives to a field last; "" where it gives none."""
    return next((trimmed(line.removeprefix(field)) for line in reversed(block) if line.startswith(field)), "")


def _finding(block: list[str]) -> ReviewFinding:
    description: list[str] = []
    continues = False
    for line in block:
        if line.startswith(_DESCRIPTION) and not continues:
            description, continues = [trimmed(line.removeprefix(_DESCRIPTION))], True
        elif line.startswith((_SEVERITY, _APPROVED)):
            continues = False
        elif continues:
            description.append(line)
    return ReviewFinding(_last(block, _SEVERITY) or MAJOR, trimmed(" ".join(description)))
