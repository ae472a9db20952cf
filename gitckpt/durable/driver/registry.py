"""The steps that gitckpt knows itself: what a phase with `use` does instead of a command."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from gitckpt.durable.pipeline.context import Work
from gitckpt.durable.pipeline.definition import PhaseDefinition
from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.durable.run.retry import Ended
from gitckpt.store.runs import run_files

_NOT_IN_SLUG = re.compile(r"[^a-z0-9-]+")
_WORD_ENDS = re.compile(r"[-_\s]+")
PLAN = "plan"
"""The input that is the plan."""


def read_plan(work: Work) -> Ended:
    """Reads the plan that the run was started with: `plan_path`, `plan_title` and `plan_hash` join the state.

    Raises:
        PhaseFailed: there is none, or its front matter has no end.
    """
    run = work.run
    path = run.pipeline.inputs.get(PLAN, "")
    try:
        with open(os.path.join(run.files.path, run_files.INPUT, PLAN), "rb") as file:
            data = file.read()
    except OSError as error:
        raise PhaseFailed(
            f"cannot read the plan {path or PLAN}: {error.strerror}", hint="start another run: git ckpt run PLAN.md"
        ) from None
    title = title_of(data.decode("utf-8", "replace"), path)
    run.state |= {"plan_path": path, "plan_title": title, "plan_hash": hashlib.sha256(data).hexdigest()}
    return Ended(result=title, output=f"{title}\n")


def generate_branch(work: Work) -> Ended:
    """Names the branch after the plan: `branch` joins the state."""
    run = work.run
    branch = f"forge/{slug(str(run.state.get('plan_path', '')))}"
    run.state["branch"] = branch
    return Ended(result=branch, output=f"{branch}\n")


def run_loop(work: Work) -> Ended:
    """Lets an agent work at a plan, again and again, until it is carried out."""
    from gitckpt.durable.phases.loop.loop import Loop

    return Loop(work).go()


def run_review(work: Work) -> Ended:
    """Lets a coder work at a task and a reviewer judge the work, until it is approved."""
    from gitckpt.durable.phases.review.phase import carry_out

    return carry_out(work)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that gitckpt does itself.

    Attributes:
        action: what it does.
        options: what `with` may say of it.
        memory: keys of the state that say how far it has come.
    """

    action: Callable[[Work], Ended]
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


def slug(path: str) -> str:
    """Returns what a plan is called in branches: its file name without extension, in lower case, with hyphens for other characters."""
    name = os.path.basename(path)
    stem = name[: name.rindex(".")] if "." in name else name
    return _NOT_IN_SLUG.sub("-", stem.lower()).strip("-") or "unnamed"


def title_of(text: str, path: str) -> str:
    """Returns the title of a plan: `title` of its front matter, or its file name in words.

    Args:
        text: of the plan.
        path: of its file.

    Raises:
        PhaseFailed: the front matter has no end.
    """
    if text.startswith("---\n"):
        head, end, _ = text[4:].partition("\n---")
        if not end and not text[4:].startswith("---"):
            raise PhaseFailed(f"the front matter of {path} has no end", hint="close it with a line ---, then start another run")
        for line in head.split("\n"):
            key, colon, value = line.partition(":")
            if colon and key.strip() == "title" and value.strip():
                return " ".join(value.strip().strip("\"'").split())
    name = os.path.basename(path)
    stem = name[: name.rindex(".")] if "." in name else name
    return " ".join(word.capitalize() for word in _WORD_ENDS.split(stem) if word) or "Unnamed"
