"""The steps that gitckpt knows itself: what a phase with `use` does instead of a command."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.durable.phases.plan import PLAN, generate_branch, read_plan
from gitckpt.durable.pipeline.context import Context, filled
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition
from gitckpt.durable.pipeline.launch import Given
from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.durable.run.retry import Ended
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass


def _run_loop(context: Context) -> Ended:
    """Lets an agent work at a plan, again and again, until it is carried out."""
    from gitckpt.durable.phases.loop.loop import Loop

    return Loop(context).go()


def _run_review(context: Context) -> Ended:
    """Lets a coder work at a task and a reviewer judge the work, until it is approved."""
    from gitckpt.durable.phases.review.phase import carry_out

    return carry_out(context)


def _ask_agent(context: Context) -> Ended:
    """Asks an agent what a file says."""
    from gitckpt.durable.phases.agent import ask

    return ask(context)


def _require_plan(given: Given, _: Callable[[str], str]) -> None:
    if not given.inputs.get(PLAN):
        raise UsageError("there is no plan", hint="name it: git ckpt run PLAN.md; or as an input: -i plan=PLAN.md")


def _require_loop(given: Given, said: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.loop import options, prompt

    options.read(said)
    try:
        prompt.require_usable(given.contents.get("prompt", b"").decode("utf-8", "replace"))
    except PhaseFailed as error:
        raise UsageError(error.message, hint=error.hint) from None


def _require_review(_: Given, said: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.review.phase import read

    read(said)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that gitckpt does itself.

    Attributes:
        action: what it does.
        options: what `with` may say of it.
        memory: keys of the state that say how far it has come.
        require: raises `UsageError` where it would fail at once, given the inputs, and what is said of an option by its name.
        needs: the option without which it can do nothing, which an earlier phase may find out; "" where there is none.
    """

    action: Callable[[Context], Ended]
    options: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    require: Callable[[Given, Callable[[str], str]], None] | None = None
    needs: str = ""


_LOOP_OPTIONS = (
    *("plan", "issues", "epic", "agent", "prompt", "conversation", "tests", "done", "until_tests_pass"),
    *("max_iterations", "max_budget", "pause", "agent_timeout", "idle_timeout", "test_timeout"),
)

_REVIEW_OPTIONS = (
    *("task", "title", "coder", "reviewer", "lint", "lint_retries", "filters"),
    *("epic", "max_cycles", "max_budget", "agent_timeout", "force"),
)

STEPS = {
    "read plan": Step(read_plan, require=_require_plan),
    "generate branch": Step(generate_branch),
    "agent": Step(_ask_agent, ("agent", "prompt", "agent_timeout"), needs="prompt"),
    "loop": Step(_run_loop, _LOOP_OPTIONS, ("loop",), _require_loop, needs="plan"),
    "review": Step(_run_review, _REVIEW_OPTIONS, ("review",), _require_review),
}
"""Name → what it does."""

OPTIONS = {name: step.options for name, step in STEPS.items()}
"""Name → what `with` may say of it."""


def memory_of(phase: PhaseDefinition) -> tuple[str, ...]:
    """Returns the keys of the state that say how far a phase has come, which is done again from its beginning without them."""
    return STEPS[phase.use].memory if phase.use in STEPS else ()


def require_sense(definition: PipelineDefinition, given: Given) -> None:
    """Looks, before a run starts, whether what its steps are carried out with can be understood.

    Args:
        definition: the pipeline.
        given: what it is started with.

    Raises:
        UsageError: something cannot.
    """
    for at, phase in enumerate(definition.phases):
        step = STEPS.get(phase.use or "")
        if step is None:
            continue
        try:
            said = {name: filled(text, given.inputs) for name, text in phase.options.items()}
        except KeyError:
            continue  # what the state says is known when the phase begins
        if step.require is not None:
            step.require(given, lambda name, said=said: said.get(name, ""))  # type: ignore[misc]
        if at == 0 and step.needs and not said.get(step.needs):
            raise UsageError(f"there is no {step.needs}: phase {phase.name!r} needs it", hint=f"name it: -i {step.needs}=PATH")
