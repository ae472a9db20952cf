"""`git ckpt loop`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

PIPELINE = "loop"


def loop(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN.md", help="The plan that the agent carries out.")
    ],
    issue: Annotated[
        list[str] | None,
        typer.Option(
            "--issue",
            metavar="ID",
            help="An issue of beads that must be closed; may be given again.",
        ),
    ] = None,
    epic: Annotated[
        str, typer.Option("--epic", metavar="ID", help="The issue that holds the others.")
    ] = "",
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME|COMMAND", help="Who does the work.")
    ] = None,
    done: Annotated[
        str, typer.Option("--done", metavar="COMMAND", help="Says by exit code 0 that all is done.")
    ] = "",
    until_tests_pass: Annotated[
        bool, typer.Option("--until-tests-pass", help="Let the tests alone decide.")
    ] = False,
    tests: Annotated[
        str,
        typer.Option(
            "--tests", metavar="COMMAND", help="Tests; by default pytest, or make test without it."
        ),
    ] = "",
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="FILE", help="A template for the prompt.")
    ] = "",
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation", metavar="new|continue", help="Whether calls go on with one."
        ),
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option("--max-iterations", metavar="N", help="How often it is called at most."),
    ] = None,
    max_budget: Annotated[
        str | None,
        typer.Option("--max-budget", metavar="USD", help="What all calls together may cost."),
    ] = None,
    pause: Annotated[
        str | None, typer.Option("--pause", metavar="AGE", help="Between two calls.")
    ] = None,
    agent_timeout: Annotated[
        str | None,
        typer.Option("--agent-timeout", metavar="AGE", help="How long one call may take."),
    ] = None,
    idle_timeout: Annotated[
        str | None,
        typer.Option("--idle-timeout", metavar="AGE", help="How long the agent may be silent."),
    ] = None,
    test_timeout: Annotated[
        str | None,
        typer.Option("--test-timeout", metavar="AGE", help="How long the tests may take."),
    ] = None,
    base: Annotated[
        str, typer.Option("--base", metavar="REV", help="What the run's worktree begins with.")
    ] = "HEAD",
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="AGE", help="How long the whole run may take."),
    ] = None,
) -> int:
    """Let an agent work at a plan, again and again, until its issues are closed and the tests pass. Prints the id of the run.

    Each iteration is a checkpoint. Kill it anywhere: git ckpt resume ID goes on with the iteration it was at.
    """
    from gitckpt.cli import driver
    from gitckpt.durable.driver.pipelines import Pipelines
    from gitckpt.durable.phases.options import slug
    from gitckpt.model import times

    if not plan:
        raise UsageError("the plan has no name", hint="name its file: git ckpt loop PLAN.md")
    inputs = {
        "plan": plan,
        "issues": " ".join(issue or []),
        "epic": epic,
        "done": done,
        "tests": tests,
        "prompt": prompt,
    }
    inputs |= {"until_tests_pass": "yes"} if until_tests_pass else {}
    optional = {
        "agent": agent,
        "conversation": conversation,
        "max_budget": max_budget,
        "pause": pause,
    }
    optional |= {
        "agent_timeout": agent_timeout,
        "idle_timeout": idle_timeout,
        "test_timeout": test_timeout,
    }
    optional["max_iterations"] = None if max_iterations is None else str(max_iterations)
    inputs |= {name: value for name, value in optional.items() if value is not None}
    limit = times.parse_age(timeout) if timeout is not None else None
    inputs = {name: value for name, value in inputs.items() if value}
    with open_store() as store:
        holder = f"git ckpt loop {terminal.harmless(plan)}"
        return driver.drive(
            lambda person: Pipelines(store, person).run(
                PIPELINE, inputs, about=slug(plan), base=base, timeout=limit, holder=holder
            )
        )
