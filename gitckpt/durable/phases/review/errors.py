"""The ways in which coder and reviewer fail. Each leaves a checkpoint from which one can go on."""

from __future__ import annotations

from gitckpt.durable.run.errors import PhaseFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.phases.review.ports import Verdict


class ReviewFailed(PhaseFailed):
    """The work was not approved.

    Attributes:
        result: how far it came; None where that is not known.
    """

    result: Verdict | None = None


class MaxCyclesReached(ReviewFailed):
    """The last cycle ended without approval."""


class BudgetExceeded(ReviewFailed):
    """The answers have cost what they may, and the work is not approved."""


class Struggling(ReviewFailed):
    """Coder and reviewer go round in circles."""


class AgentFailed(ReviewFailed):
    """Coder or reviewer could not answer."""


class CommitRefused(ReviewFailed):
    """git, or a hook of the user's, refused to commit the coder's work."""


class Diverged(ReviewFailed):
    """HEAD is not where the recorded work can be gone on with."""
