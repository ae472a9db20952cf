"""What a reviewer finds, and what becomes of it over the cycles. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from gitckpt.durable.phases.review.text import trimmed
from gitckpt.model.values import dataclass, replace

FOUND, FIXED, STILL_PRESENT, REGRESSED = "found", "fixed", "still_present", "regressed"
STATUSES = (FOUND, FIXED, STILL_PRESENT, REGRESSED)

CRITICAL, MAJOR = "critical", "major"

OF_FILTER = "[filter:"
"""What the description of what a filter found begins with."""


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """Something that is to be changed before the work is approved.

    Attributes:
        severity: a word of the reviewer's, such as "critical", "major" or "minor".
        description: what is wrong.
        cycle: the cycle that it was found in; 0 where it is not known.
        status: one of `STATUSES`.
    """

    severity: str
    description: str
    cycle: int = 0
    status: str = FOUND

    @property
    def id(self) -> str:
        """Its id, by which it is known again in later cycles."""
        return finding_id(self.severity, self.description)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a reviewer says of a finding of an earlier cycle.

    Attributes:
        finding: its id.
        status: FIXED, STILL_PRESENT or REGRESSED.
        comment: the reviewer's.
    """

    finding: str
    status: str
    comment: str = ""


def finding_id(severity: str, description: str) -> str:
    """Returns the id of a finding: `f-` and 12 hex digits, the same for the same words whatever white space surrounds them."""
    text = f"{severity}:{trimmed(description)}"
    return f"f-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def verified(findings: Iterable[ReviewFinding], verifications: Sequence[Verification]) -> tuple[ReviewFinding, ...]:
    """Returns findings with the status that verifications give them; others keep theirs, and unknown ids count for nothing.

    Args:
        findings: of all cycles; one that was found more than once changes everywhere.
        verifications: in the order of the review; the last word about a finding counts.
    """
    status = {each.finding: each.status for each in verifications}
    return tuple(replace(each, status=status.get(each.id, each.status)) for each in findings)


def unresolved(findings: Iterable[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Returns the findings that are not fixed, each once, as it was found last, in the order in which they were found first."""
    last = {each.id: each for each in findings}
    return tuple(each for each in last.values() if each.status != FIXED)
