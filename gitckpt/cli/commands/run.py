"""Implement `git ckpt run`, `git ckpt loop` and `git ckpt review`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git.files import regular
from gitckpt.model import ids, times
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gitckpt.durable.driver.pipelines import Preview


@options.declare_parameters("""
PIPELINE|PLAN.md  A pipeline of gitckpt.toml, a preset, or a plan.
-i, --input NAME=VALUE  An input of the pipeline; may be repeated.
--base REV  The commit that the run's worktree starts from.  [default: HEAD]
--autonomy MODE  When to pause: checkpoint, batch or fully_autonomous.
--timeout AGE  Time limit of the whole run.
--key TEXT  Your own name for the run; a run with this name is continued.
-n, --dry-run  Print what would be done; start nothing.
--print  Print the preset, to copy it into gitckpt.toml.
""")
def run_pipeline(
    pipeline: str,
    input_: list[str] | None = None,
    base: str = "HEAD",
    autonomy: str | None = None,
    timeout: str | None = None,
    key: str | None = None,
    dry_run: bool = False,
    print_: bool = False,
) -> int:
    """Run a pipeline in its own worktree, with a checkpoint of each phase.

    Prints the id of the run. After a kill, git ckpt resume ID continues at the first phase that is
    not complete.
    """
    from gitckpt.durable.driver.pipelines import Pipelines

    if print_:
        terminal.out_document(Pipelines.preset(pipeline).encode())
        return 0
    from gitckpt.cli import driver
    from gitckpt.durable.phases.options import make_branch_slug
    from gitckpt.durable.pipeline import definition as pipelines

    inputs = driver.parse_inputs(input_ or [])
    limit = _parse_time_limit(timeout)
    mode = pipelines.parse_autonomy(autonomy) if autonomy is not None else None
    name, subject = pipeline, pipeline
    if pipeline.endswith(".md") or (os.path.isfile(pipeline) and os.sep in pipeline):
        name, subject = "plan-to-pr", make_branch_slug(pipeline)
        inputs = {"plan": pipeline, **inputs}
    elif pipeline == "plan-to-pr" and inputs.get("plan"):
        subject = make_branch_slug(inputs["plan"])
    if dry_run:
        with open_store() as store:
            _print_preview(Pipelines(store).preview(name, inputs), mode)
        return 0
    start_options = {"about": subject, "base": base, "key": key, "autonomy": mode, "timeout": limit}
    return _start_run(name, inputs, f"run {pipeline}", **start_options)


def _parse_time_limit(age: str | None) -> int | None:
    return times.parse_age(age) if age is not None else None


def _start_run(pipeline: str, inputs: Mapping[str, str], arguments: str, **run_options: Any) -> int:
    from gitckpt.cli import driver
    from gitckpt.durable.driver.pipelines import Pipelines

    run_options["holder"] = f"git ckpt {terminal.escape_text(arguments)}"
    with open_store() as store:
        return driver.drive_pipeline(
            lambda observer: Pipelines(store, observer).run(pipeline, inputs, **run_options)
        )


def _print_preview(preview: Preview, mode: str | None) -> None:
    from gitckpt.durable.pipeline.definition import describe_redefined_preset

    definition = preview.definition
    if (warning := describe_redefined_preset(definition)) is not None:
        terminal.warn(warning)
    autonomy = mode or definition.autonomy
    terminal.out(f"pipeline {definition.name}, {autonomy}, from {definition.source}")
    for input_name, value in preview.given.inputs.items():
        terminal.out(f"input {input_name} = {value}")
    for number, phase in enumerate(definition.phases, 1):
        terminal.out(f"{number}. {phase.name}")
        if phase.name in preview.skipped:
            terminal.out(f"   skipped: {preview.skipped[phase.name]}")
            continue
        for line in (phase.run or f"(gitckpt itself: {phase.use})").strip("\n").split("\n"):
            terminal.out(f"   | {line}".rstrip())
        settings = {
            "timeout": phase.timeout and times.exact_age_text(phase.timeout),
            "idle timeout": phase.idle_timeout and times.exact_age_text(phase.idle_timeout),
            "retries": phase.retries.attempts,
            "autosave": phase.run and phase.autosave and times.exact_age_text(phase.autosave),
            "group": phase.group,
        }
        if details := ", ".join(f"{key} {value}" for key, value in settings.items() if value):
            terminal.out(f"   {details}")


@options.declare_parameters("""
PLAN.md  The plan that the agent carries out.
--issue ID  An issue of beads that must be closed; may be repeated.
--epic ID  The issue of beads that contains the others.
--agent NAME|COMMAND  The agent.
--done COMMAND  The work is done when COMMAND exits with 0.
--until-tests-pass  The work is done when the tests pass.
--tests COMMAND  The tests.  [default: pytest, or make test without it]
--prompt FILE  The template of the prompt.
--conversation new|continue  Start a new conversation for each call, or continue one.
--max-iterations N  Call the agent at most N times.  [default: 100]
--max-budget USD  Stop when all calls together have cost USD.
--pause AGE  Wait between two calls.  [default: 10s]
--agent-timeout AGE  Time limit of a call.  [default: 1h]
--idle-timeout AGE  Time limit without output of the agent.
--test-timeout AGE  Time limit of the tests.  [default: 5m]
--base REV  The commit that the run's worktree starts from.  [default: HEAD]
--timeout AGE  Time limit of the whole run.
""")
def loop_agent(
    plan: str,
    issue: list[str] | None = None,
    base: str = "HEAD",
    timeout: str | None = None,
    until_tests_pass: bool = False,
    **inputs: object,
) -> int:
    """Call an agent until the plan is carried out.

    The plan is done when its issues are closed and the tests pass. Prints the id of the run. Each
    iteration is a checkpoint. After a kill, git ckpt resume ID repeats the last iteration.
    """
    from gitckpt.durable.phases.options import make_branch_slug

    options.refuse_if(not plan, "the plan's name is empty", "name its file: git ckpt loop PLAN.md")
    input_texts = {name: str(value) for name, value in inputs.items() if value} | {"plan": plan}
    input_texts |= {"issues": " ".join(issue)} if issue else {}
    input_texts |= {"until_tests_pass": "yes"} if until_tests_pass else {}
    start_options: dict[str, Any] = {"about": make_branch_slug(plan), "base": base}
    start_options["timeout"] = _parse_time_limit(timeout)
    return _start_run("loop", input_texts, f"loop {plan}", **start_options)


@options.declare_parameters("""
TASK|TASK.md  The task: a text, or a file with it.
--name NAME  The name of the task in commits.  [default: from the task]
--coder NAME|COMMAND  The agent that does the work.
--reviewer NAME|COMMAND  The agent that reviews it.
--lint COMMAND  A command that must succeed before the review.
--lint-retries N  Let the coder fix lint errors at most N times.  [default: 2]
--filter NAME=COMMAND  Another command that must succeed; may be repeated.
--epic ID  The issue of beads that gets each finding as a child.
--max-cycles N  Let the coder try at most N times.  [default: 3]
--max-budget USD  Stop when all answers together have cost USD.
--agent-timeout AGE  Time limit of an answer.  [default: 1h]
--refactor RUN  Replace the task of this run by TASK, and start nothing.
--base REV  The commit that the run's worktree starts from.  [default: HEAD]
--timeout AGE  Time limit of the whole run.
""")
def run_review(
    task: str,
    name: str | None = None,
    filter_: list[str] | None = None,
    refactor: str | None = None,
    base: str = "HEAD",
    timeout: str | None = None,
    **inputs: object,
) -> int:
    """Let a coder agent work until a reviewer agent approves the work.

    Prints the id of the run. Records a checkpoint at each new state of the review. After a kill,
    git ckpt resume ID continues the run.
    """
    task_text = _read_task(task)
    if refactor is not None:
        from gitckpt.durable.driver.pipelines import Pipelines

        options.refuse_if(not task_text.strip(), "the new task is empty", "give a task as TASK")
        with open_store() as store:
            Pipelines(store).refactor(store.find_run(refactor), task_text)
            terminal.remark("the coder gets the new task in the next cycle")
        return 0
    subject = name or ids.make_slug(task_text.strip().partition("\n")[0])
    input_texts = {key: str(value) for key, value in inputs.items() if value is not None}
    input_texts |= {"title": task_text, "task": subject, "filters": "\n".join(filter_ or [])}
    input_texts = {key: value for key, value in input_texts.items() if value.strip()}
    start_options = {"about": subject, "base": base, "timeout": _parse_time_limit(timeout)}
    return _start_run("review", input_texts, f"review {subject}", **start_options)


def _read_task(task: str) -> str:
    if not task.endswith(".md"):
        return task
    try:
        return regular.read_content(task).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read the task {task}: {error.strerror}") from None
