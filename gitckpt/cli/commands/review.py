"""`git ckpt review`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.git.files import regular
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

PIPELINE = "review"


def review(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK|TASK.md", help="What is to be done: a text, or a file with it."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="What commits call it; by default after the task."
        ),
    ] = None,
    coder: Annotated[
        str | None, typer.Option("--coder", metavar="NAME|COMMAND", help="Who does the work.")
    ] = None,
    reviewer: Annotated[
        str | None, typer.Option("--reviewer", metavar="NAME|COMMAND", help="Who judges it.")
    ] = None,
    lint: Annotated[
        str | None,
        typer.Option("--lint", metavar="COMMAND", help="Must succeed before the review."),
    ] = None,
    lint_retries: Annotated[
        int | None,
        typer.Option("--lint-retries", metavar="N", help="How often the coder may satisfy it."),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="NAME=COMMAND", help="Must succeed, too; may be given again."
        ),
    ] = None,
    epic: Annotated[
        str | None,
        typer.Option(
            "--epic", metavar="ID", help="An issue of beads: each finding becomes a child of it."
        ),
    ] = None,
    max_cycles: Annotated[
        int | None, typer.Option("--max-cycles", metavar="N", help="How often the coder may try.")
    ] = None,
    max_budget: Annotated[
        str | None,
        typer.Option("--max-budget", metavar="USD", help="What all answers together may cost."),
    ] = None,
    agent_timeout: Annotated[
        str | None,
        typer.Option("--agent-timeout", metavar="AGE", help="How long an answer may take."),
    ] = None,
    refactor: Annotated[
        str | None,
        typer.Option(
            "--refactor",
            metavar="RUN",
            help="Start nothing: TASK is what the task of this run has become.",
        ),
    ] = None,
    base: Annotated[
        str, typer.Option("--base", metavar="REV", help="What the run's worktree begins with.")
    ] = "HEAD",
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="AGE", help="How long the whole run may take."),
    ] = None,
) -> int:
    """Let a coder work at a task and a reviewer judge the work, until it is approved. Prints the id of the run.

    Each transition is a checkpoint. Kill it anywhere: git ckpt resume ID goes on where it was.
    """
    text = _text(task)
    if refactor is not None:
        return _refactor(refactor, text)
    from gitckpt.cli import driver
    from gitckpt.durable.driver.pipelines import Pipelines
    from gitckpt.model import ids, times

    about = name or ids.slug(text.strip().partition("\n")[0])
    inputs = {"title": text, "task": about, "filters": "\n".join(filter_ or [])}
    counts = {"lint_retries": lint_retries, "max_cycles": max_cycles}
    optional = {
        "coder": coder,
        "reviewer": reviewer,
        "lint": lint,
        "epic": epic,
        "max_budget": max_budget,
        "agent_timeout": agent_timeout,
    }
    optional |= {key: None if value is None else str(value) for key, value in counts.items()}
    inputs |= {key: value for key, value in optional.items() if value is not None}
    limit = times.parse_age(timeout) if timeout is not None else None
    inputs = {key: value for key, value in inputs.items() if value.strip()}
    with open_store() as store:
        holder = f"git ckpt review {terminal.harmless(about)}"
        return driver.drive(
            lambda person: Pipelines(store, person).run(
                PIPELINE, inputs, about=about, base=base, timeout=limit, holder=holder
            )
        )


def _text(task: str) -> str:
    if not task.endswith(".md"):
        return task
    try:
        return regular.content(task).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read the task {task}: {error.strerror}") from None


def _refactor(run: str, text: str) -> int:
    from gitckpt.durable.driver.pipelines import Pipelines

    if not text.strip():
        raise UsageError("there is no task", hint="say what the task has become")
    with open_store() as store:
        Pipelines(store).refactor(store.find_run(run), text)
        terminal.remark("the coder is told of it in the next cycle")
    return 0
