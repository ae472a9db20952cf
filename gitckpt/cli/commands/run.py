"""`git ckpt run`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.driver.driver import Wishes
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
    if print_:
        from gitckpt.durable.driver.pipelines import Pipelines

        terminal.out_document(Pipelines.preset(pipeline).encode())
        return 0
    from gitckpt.cli import driver
    from gitckpt.durable.driver.pipelines import Pipelines
    from gitckpt.durable.pipeline import definition as pipelines
    from gitckpt.model import times

    given = driver.inputs(input_ or [])
    mode = pipelines.autonomy(autonomy) if autonomy is not None else None
    limit = times.parse_age(timeout) if timeout is not None else None
    name, about = pipeline, pipeline
    if pipeline.endswith(".md") or (os.path.isfile(pipeline) and os.sep in pipeline):
        from gitckpt.durable.phases.options import slug

        name, about, given = PLAN_PIPELINE, slug(pipeline), {"plan": pipeline, **given}
    elif pipeline == PLAN_PIPELINE and given.get("plan"):
        from gitckpt.durable.phases.options import slug

        about = slug(given["plan"])
    with open_store() as store:
        if dry_run:
            _print_plan(Pipelines(store).preview(name, given), mode)
            return 0
        wishes: Wishes = {
            "autonomy": mode,
            "timeout": limit,
            "holder": f"git ckpt run {terminal.harmless(pipeline)}",
        }
        return driver.drive(
            lambda person: Pipelines(store, person).run(
                name, given, about=about, base=base, key=key, **wishes
            )
        )


def _print_plan(plan: Preview, mode: str | None) -> None:
    from gitckpt.durable.pipeline.file import redefinition
    from gitckpt.model import times

    definition, given, skips = plan.definition, plan.given, plan.skipped
    redefined = redefinition(definition)
    if redefined is not None:
        terminal.warn(redefined)
    source = definition.source
    terminal.out(f"pipeline {definition.name}, {mode or definition.autonomy}, from {source}")
    for name, value in given.inputs.items():
        terminal.out(f"input {name} = {value}")
    for number, phase in enumerate(definition.phases, 1):
        terminal.out(f"{number}. {phase.name}")
        if phase.name in skips:
            terminal.out(f"   skipped: {skips[phase.name]}")
            continue
        for line in (phase.run or f"(gitckpt itself: {phase.use})").strip("\n").split("\n"):
            terminal.out(f"   | {line}".rstrip())
        options = {
            "timeout": times.length_text(phase.timeout) if phase.timeout else "",
            "idle timeout": times.length_text(phase.idle_timeout) if phase.idle_timeout else "",
            "retries": str(phase.retries.attempts or ""),
            "autosave": times.length_text(phase.autosave) if phase.run and phase.autosave else "",
            "group": phase.group or "",
        }
        notes = ", ".join(f"{key} {value}" for key, value in options.items() if value)
        if notes:
            terminal.out(f"   {notes}")
