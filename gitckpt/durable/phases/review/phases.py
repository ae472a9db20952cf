"""The phases of the cycle, by name and by the numbers that quasar gives them. Pure."""

from __future__ import annotations

IDLE, BEAD_CREATED, CODING, CODE_COMPLETE = "idle", "bead_created", "coding", "code_complete"
LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE = "linting", "filtering", "reviewing", "review_complete"
RESOLVING_ISSUES, APPROVED, ERROR = "resolving_issues", "approved", "error"

PHASES = (
    *(IDLE, BEAD_CREATED, CODING, CODE_COMPLETE, LINTING, FILTERING),
    *(REVIEWING, REVIEW_COMPLETE, RESOLVING_ISSUES, APPROVED, ERROR),
)
"""In the order of their numbers, from 0."""

WITHOUT_FILTERING = tuple(phase for phase in PHASES if phase != FILTERING)
"""The numbers of files that quasar wrote before 23 February 2026."""

WITHOUT_LINTING = tuple(phase for phase in WITHOUT_FILTERING if phase != LINTING)
"""The numbers of files that quasar wrote before 18 February 2026."""
