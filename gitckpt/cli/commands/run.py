"""`git ckpt run`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitckpt.durable.driver.pipelines import Preview

PLAN_PIPELINE = "plan-to-pr"


@options.usage("""
PIPELINE|PLAN.md  A pipeline of gitckpt.toml, a preset, or a plan.
-i, --input NAME=VALUE  An input of the pipeline; may be repeated.
--base REV  The commit that the run's worktree starts from.  [default: HEAD]
--autonomy MODE  When to pause: checkpoint, batch or fully_autonomous.
--timeout AGE  Time limit of the whole run.
--key TEXT  Your own name for the run; a run with this name is continued.
-n, --dry-run  Print what would be done; start nothing.
--print  Print the preset, to copy it into gitckpt.toml.
""")
def run(
    pipeline: str,
    input_: list[str] | None = None,
    base: str = "HEAD",
    autonomy: str | None = None,
    timeout: str | None = None,
    key: str | None = None,
    dry_run: bool = False,
    print_: bool = False,
) -> int:
    """Run a pipeline in its own worktree, a checkpoint per phase.

    Prints the id of the run. Kill it at any time: git ckpt resume ID continues at the first phase
    that is not complete.
    """
    from gitckpt.durable.driver.pipelines import Pipelines

    if print_:
        terminal.out_document(Pipelines.preset(pipeline).encode())
        return 0
    from gitckpt.cli import driver
    from gitckpt.durable.phases.options import slug
    from gitckpt.durable.pipeline import definition as pipelines

    given = driver.inputs(input_ or [])
    limit = parse_limit(timeout)
    mode = pipelines.autonomy(autonomy) if autonomy is not None else None
    name, about = pipeline, pipeline
    if pipeline.endswith(".md") or (os.path.isfile(pipeline) and os.sep in pipeline):
        name, about, given = PLAN_PIPELINE, slug(pipeline), {"plan": pipeline, **given}
    elif pipeline == PLAN_PIPELINE and given.get("plan"):
        about = slug(given["plan"])
    if dry_run:
        with open_store() as store:
            _print_plan(Pipelines(store).preview(name, given), mode)
        return 0
    holder = f"git ckpt run {terminal.harmless(pipeline)}"
    how = {"about": about, "base": base, "key": key, "autonomy": mode, "timeout": limit}
    return start(name, given, holder=holder, **how)


def parse_limit(age: str | None) -> int | None:
    return times.parse_age(age) if age is not None else None


def start(pipeline: str, given: Mapping[str, str], **how: Any) -> int:
    from gitckpt.cli import driver
    from gitckpt.durable.driver.pipelines import Pipelines

    with open_store() as store:
        return driver.drive(lambda person: Pipelines(store, person).run(pipeline, given, **how))


def _print_plan(plan: Preview, mode: str | None) -> None:
    from gitckpt.durable.pipeline.definition import redefinition

    definition = plan.definition
    redefined = redefinition(definition)
    if redefined is not None:
        terminal.warn(redefined)
    source = f"from {definition.source}"
    terminal.out(f"pipeline {definition.name}, {mode or definition.autonomy}, {source}")
    for name, value in plan.given.inputs.items():
        terminal.out(f"input {name} = {value}")
    for number, phase in enumerate(definition.phases, 1):
        terminal.out(f"{number}. {phase.name}")
        if phase.name in plan.skipped:
            terminal.out(f"   skipped: {plan.skipped[phase.name]}")
            continue
        for line in (phase.run or f"(gitckpt itself: {phase.use})").strip("\n").split("\n"):
            terminal.out(f"   | {line}".rstrip())
        facts = {
            "timeout": phase.timeout and times.length_text(phase.timeout),
            "idle timeout": phase.idle_timeout and times.length_text(phase.idle_timeout),
            "retries": phase.retries.attempts,
            "autosave": phase.run and phase.autosave and times.length_text(phase.autosave),
            "group": phase.group,
        }
        notes = ", ".join(f"{key} {value}" for key, value in facts.items() if value)
        if notes:
            terminal.out(f"   {notes}")
