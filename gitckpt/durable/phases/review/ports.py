"""What a review is given, and what it gives back: agents, journal, commits, options, result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gitckpt.durable.phases.review.finding import ReviewFinding
from gitckpt.durable.phases.review.replies import ReviewReport
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import dataclass, field

BUDGET_VARIABLE = "CKPT_BUDGET_USD"
"""The environment variable that tells an agent what its answer may cost, in US dollars. It may ignore it."""

Checker = Callable[[str], tuple[int, str]]
"""Runs a command in the worktree, and returns its exit code and what it printed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answers.

    Attributes:
        ok: whether it did what it was asked.
        problem: why not, one sentence.
        text: its final answer.
        cost_usd: what it cost; None where it does not say.
        session: the conversation that it was part of; None where it does not say.
    """

    ok: bool
    problem: str = ""
    text: str = ""
    cost_usd: float | None = None
    session: str | None = None


class Asks(Protocol):
    """An agent."""

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply:
        """Returns its answer.

        Args:
            prompt: what it is asked.
            session: the conversation to go on with; None for a new one.
            env: variables to set for it.
        """


class Journal(Protocol):
    """Where the state is kept: a run.

    Attributes:
        state: JSON values, all that a later attempt begins with.
    """

    state: dict[str, Any]

    @property
    def id(self) -> str:
        """By which a person goes on with it."""

    def milestone(
        self, *, trigger: str = "review", message: str | None = None, progress: Progress | None = None, errors: Sequence[str] = ()
    ) -> object:
        """Records the state and the files."""

    def check(self) -> None:
        """Raises where the run shall stop."""


class Committing(Protocol):
    """The commits of the worktree, as `gitckpt.durable.phases.review.commits.Commits` makes them."""

    def head(self) -> str:
        """Returns HEAD's oid; "" on an unborn branch."""

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commits whatever has changed, and returns HEAD."""

    def relation(self, recorded: str) -> str:
        """Returns how a recorded commit relates to HEAD."""


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """What is to be done.

    Attributes:
        task: its name, which the subjects of commits begin with.
        title: the task itself, of any length.
        max_cycles: how often the coder may try.
        max_budget_usd: what all answers together may cost, in US dollars; 0 for as much as they like.
        lint: a command that fails where the linter complains; None for none.
        lint_retries: how often in a cycle the coder is asked to satisfy it.
        filters: name → a command that must succeed before the reviewer is asked, in order.
        epic: the issue of beads below which each finding becomes one; "" for none.
        force: whether to go on although HEAD has diverged from the recorded work.
    """

    task: str
    title: str
    max_cycles: int = 3
    max_budget_usd: float = 0.0
    lint: str | None = None
    lint_retries: int = 2
    filters: Mapping[str, str] = field(default_factory=dict)
    epic: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it ended.

    Attributes:
        approved: whether the reviewer approved.
        cycles: how many there were.
        total_cost_usd: of all answers.
        findings: of all cycles, with what became of them.
        report: the reviewer's last.
        reason: why it was not approved; "" where it was.
    """

    approved: bool
    cycles: int
    total_cost_usd: float
    findings: tuple[ReviewFinding, ...]
    report: ReviewReport | None
    reason: str = ""
