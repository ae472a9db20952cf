"""The words of the step protocol: statuses as superpowers write them, and as people and models spell them."""

from __future__ import annotations

import re

NOT_STARTED, IN_PROGRESS, PASSED, FAILED, BLOCKED, SKIPPED = "NOT_STARTED", "IN_PROGRESS", "PASSED", "FAILED", "BLOCKED", "SKIPPED"
STATUSES = (NOT_STARTED, IN_PROGRESS, PASSED, FAILED, BLOCKED, SKIPPED)
ACTIVE, RESOLVED = "ACTIVE", "RESOLVED"
"""The statuses of a blocker."""

PASS, FAIL = "PASS", "FAIL"
"""The verdicts of a step that judges."""

_ALSO = {
    "PASS": PASSED,
    "COMPLETE": PASSED,
    "COMPLETED": PASSED,
    "DONE": PASSED,
    "PASSED_WITH_WARNINGS": PASSED,
    "COMPLETED_WITH_WARNINGS": PASSED,
    "FAIL": FAILED,
    "PARTIAL_FAIL": FAILED,
    "ESCALATE": BLOCKED,
    "ACTIVE": IN_PROGRESS,
    "STARTED": IN_PROGRESS,
    "BOARD_REVIEW": IN_PROGRESS,
    "NEW": NOT_STARTED,
    "PENDING": NOT_STARTED,
    "PLANNED": NOT_STARTED,
    "SKIP": SKIPPED,
}
_TASK = re.compile(
    r"(?:task\s+(\d+(?:\.\d+)*[a-z]?)|(\d+(?:\.\d+)+[a-z]?))(?=$|[\s:.)])"
    r"|(\d+[a-z]?)(?=$|[:)]|\.(?:\s|$))",  # "3 retries" begins with no number of a task
    re.IGNORECASE,
)


def status(value: object) -> str | None:
    """Returns one of `STATUSES` for what a state says, in whatever case and with whatever between the words; None where it is none."""
    if not isinstance(value, str):
        return None
    word = re.sub(r"[\s-]+", "_", value.strip()).upper()
    return word if word in STATUSES else _ALSO.get(word)


def task_id(text: str) -> str | None:
    """Returns the number that a task begins with, such as "2.3" for "2.3" and for "Task 2.3: Log in"; None where there is none."""
    found = _TASK.match(text.strip())
    return next(group.lower() for group in found.groups() if group) if found else None
