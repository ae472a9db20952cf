"""Call an agent in place of a command, and map its failures to those of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping

from gitckpt.durable.agent import call as failure
from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command.execution import Timeouts
from gitckpt.durable.phases import options
from gitckpt.durable.phases.command import failure_of
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import (
    AgentUnusable,
    Ended,
    PhaseFailed,
    Session,
)
from gitckpt.model import times
from gitckpt.model.errors import UsageError
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# How often a call is repeated after its connection was lost.
MOST_LOST = 5

# State key: no calls before this time. Absent where there is no limit.
RETRY_AT = "retry_at"

_LONGEST_PAUSE = 60.0


def ask(context: Context) -> Ended:
    """Call an agent with the prompt from the option `prompt`, and wait for its answer."""
    run, phase = context.run, context.phase
    try:
        client = context.client("agent")
        limit = options.pause("agent_timeout", context.option("agent_timeout"), 0.0)
    except UsageError as error:
        raise PhaseFailed(error.message, hint=error.hint) from None
    prompt = _prompt(context)
    env, directory = context.environment(), os.path.join(run.files.path, "agent")
    require_installed(client, env, run)
    agent = Agent(client, run.path, env, context.watchdog, directory)
    attempt = (
        context.attempt
        if context.attempt.began
        else replace(context.attempt, began=run.writer.newest.id)
    )  # milestones follow, at limits
    usual, idle = (
        None if length is None else length / times.MICRO
        for length in (phase.timeout, phase.idle_timeout)
    )

    def call() -> Answer:
        patience = Timeouts(limit or usual, idle, run.seconds_left())
        return agent.ask(prompt, patience=patience, output=context.output, tick=context.look)

    answer = patiently(run, call, lambda text: context.output(f"{words(text)}\n".encode()))
    if answer.problem:
        raise failure_of(phase.name, answer, answer.problem)
    if phase.must_change and not run.has_changed_files(attempt):
        raise PhaseFailed(
            f"phase {phase.name!r} produced no file changes", code=answer.code, output=answer.tail
        )
    report = answer.report
    result = {"cost_usd": report.cost_usd, "tokens": dict(report.tokens), "session": report.session}
    return Ended(
        result={key: value for key, value in result.items() if value} or None,
        code=answer.code,
        output=answer.tail,
    )


def _prompt(context: Context) -> str:
    path = context.option("prompt")
    if not path:
        raise PhaseFailed(
            f"phase {context.phase.name!r} has no prompt", hint='name a file: prompt = "PATH"'
        )
    return context.content(path, "the prompt").decode("utf-8", "replace")


def require_installed(
    client: Client, env: Mapping[str, str], run: Session, role: str = "agent"
) -> None:
    """Raise `AgentUnusable` if the client of an input (`role`) is not installed."""
    missing = client.missing(env, run.path)
    if missing is not None:
        again = f"git ckpt resume {run.id}"
        hint = f"install it, then: {again}; or use another one: {again} --input {role}=CLIENT"
        raise AgentUnusable(f"the {role} is not installed: {missing}", hint=hint)


def unusable(answer: Answer, run: str, role: str = "agent") -> AgentUnusable:
    """Return the error for an agent that cannot answer until its setup is fixed."""
    resume = f"git ckpt resume {run}"
    return AgentUnusable(
        f"cannot use {answer.client}: {answer.problem}",
        code=answer.code,
        output=answer.tail,
        hint=f"fix that, then: {resume}; or use another agent: {resume} --input {role}=CLIENT",
    )


def patiently(
    run: Session, call: Callable[[], Answer], show: Callable[[str], None], role: str = "agent"
) -> Answer:
    """Call an agent until it answers; wait for rate limits, retry lost connections.

    The last answer is returned, with the cost of all calls. `role` is the input that names the
    agent.
    """
    limited = lost = 0
    cost = 0.0
    while True:
        wait_for_a_limit(run, run.state, show)
        answer = call()
        now = run.store.clock() / times.MICRO
        problem = failure.classify(answer, now)
        cost += answer.report.cost_usd or 0.0
        kind = problem.kind if problem is not None else failure.OTHER
        wait = problem.wait if problem is not None else None
        if kind == failure.FATAL:
            raise unusable(answer, run.id, role)
        is_final = (
            kind == failure.OTHER
            or (kind == failure.TRANSIENT and lost >= MOST_LOST)
            or (kind == failure.LIMITED and wait is None and limited >= failure.MOST_LIMITED)
        )
        if is_final:
            report = replace(answer.report, cost_usd=cost or answer.report.cost_usd)
            return replace(answer, report=report)
        show(answer.problem)
        if kind == failure.TRANSIENT:
            lost += 1
            run.wait(min(2.0**lost, _LONGEST_PAUSE))
            continue
        limited += 1
        retry_at = now + failure.pause(wait, limited)
        until = run.state[RETRY_AT] = times.to_text(int(retry_at * times.MICRO))
        run.milestone(message=f"limited until {until}", errors=[answer.problem])


def wait_for_a_limit(
    run: Session, state: MutableMapping[str, Any], show: Callable[[str], None]
) -> None:
    """Wait until the time in `state[RETRY_AT]`, then remove it."""
    until = state.get(RETRY_AT)
    # An imported file or a command can store anything here; a value that is no time is no limit.
    try:
        due = times.from_text(until) if isinstance(until, str) else 0
    except ValueError:
        due = 0
    left = (due - run.store.clock()) / times.MICRO
    if left > 0:
        show(f"limited: the next call is at {until}; to stop: git ckpt cancel {run.id}")
        run.wait(min(left, failure.LONGEST_TOLD))
    state.pop(RETRY_AT, None)
