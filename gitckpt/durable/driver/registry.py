"""The steps that gitckpt knows itself: what a phase with `use` does instead of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitckpt.durable.phases.plan import generate_branch, read_plan
from gitckpt.durable.pipeline.context import Context
from gitckpt.durable.pipeline.definition import PhaseDefinition
from gitckpt.durable.run.retry import Ended


def run_loop(context: Context) -> Ended:
    """Lets an agent work at a plan, again and again, until it is carried out."""
    from gitckpt.durable.phases.loop.loop import Loop

    return Loop(context).go()


def run_review(context: Context) -> Ended:
    """Lets a coder work at a task and a reviewer judge the work, until it is approved."""
    from gitckpt.durable.phases.review.phase import carry_out

    return carry_out(context)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that gitckpt does itself.

    Attributes:
        action: what it does.
        options: what `with` may say of it.
        memory: keys of the state that say how far it has come.
    """

    action: Callable[[Context], Ended]
    options: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


LOOP_OPTIONS = (
    *("plan", "issues", "epic", "agent", "prompt", "conversation", "tests", "done", "until_tests_pass"),
    *("max_iterations", "pause", "agent_timeout", "test_timeout"),
)

REVIEW_OPTIONS = (
    *("task", "title", "coder", "reviewer", "lint", "lint_retries", "filters"),
    *("max_cycles", "max_budget", "agent_timeout", "force"),
)

STEPS = {
    "read plan": Step(read_plan),
    "generate branch": Step(generate_branch),
    "loop": Step(run_loop, LOOP_OPTIONS, ("loop",)),
    "review": Step(run_review, REVIEW_OPTIONS, ("review",)),
}
"""Name → what it does."""

OPTIONS = {name: step.options for name, step in STEPS.items()}
"""Name → what `with` may say of it."""


def memory_of(phase: PhaseDefinition) -> tuple[str, ...]:
    """Returns the keys of the state that say how far a phase has come, which is done again from its beginning without them."""
    return STEPS[phase.use].memory if phase.use in STEPS else ()
