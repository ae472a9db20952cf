"""How a phase can end other than well, each with the status that its checkpoint gets. Whatever else it raises is a failure."""

from __future__ import annotations

from gitckpt.model.errors import CkptError, UsageError


class PhaseFailed(CkptError):
    """A phase failed; its run can be resumed.

    Args:
        message: what failed, and why.
        errors: all that went wrong, in order, for the checkpoint; by default the message.
        code: the exit code of its command; None where there was none.
        output: the end of what it printed.
        hint: the command to run next.
    """

    exit_code = 20
    status = "failed"

    def __init__(
        self, message: str, *, errors: tuple[str, ...] = (), code: int | None = None, output: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors or (message,)
        self.code = code
        self.output = output


class PhaseBlocked(PhaseFailed):
    """A phase cannot go on without somebody's help."""

    exit_code = 4
    status = "blocked"


class AgentUnusable(PhaseFailed):
    """An agent cannot be asked until somebody does something: it is not there, not logged in, or does not know its options."""

    exit_code = 4


class PhaseDeferred(PhaseFailed):
    """A phase asks to be tried again later."""

    status = "partial"


class Cancelled(PhaseFailed):
    """Somebody asked the driver to stop."""

    exit_code = 130


class DeadlineReached(PhaseFailed):
    """The run took as long as it may."""


class Changed(UsageError):
    """A run was to go on under other inputs or another definition than it was started with.

    Args:
        what: what changed, each thing in words.
        hint: what can be done about it.
    """

    def __init__(self, run: str, what: list[str], *, hint: str = "put it back, or go on with what is there now: --accept-changes") -> None:
        super().__init__(f"run {run} was started with something else: {'; '.join(what)}", hint=hint)
        self.what = what
