"""`git ckpt loop`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.run import parse_limit, start

PIPELINE = "loop"


@options.usage("""
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
def loop(
    plan: str,
    issue: list[str] | None = None,
    base: str = "HEAD",
    timeout: str | None = None,
    until_tests_pass: bool = False,
    **inputs: object,
) -> int:
    """Call an agent until the plan is carried out.

    It is when its issues are closed and the tests pass. Prints the id of the run. Each iteration is
    a checkpoint. Kill it at any time: git ckpt resume ID repeats the interrupted iteration.
    """
    from gitckpt.durable.phases.options import slug

    options.refuse(not plan, "the plan has no name", "name its file: git ckpt loop PLAN.md")
    given = {name: str(value) for name, value in inputs.items() if value}
    given |= {"plan": plan, **({"issues": " ".join(issue)} if issue else {})}
    given |= {"until_tests_pass": "yes"} if until_tests_pass else {}
    how = {"about": slug(plan), "base": base, "timeout": parse_limit(timeout)}
    return start(PIPELINE, given, holder=f"git ckpt loop {terminal.harmless(plan)}", **how)
