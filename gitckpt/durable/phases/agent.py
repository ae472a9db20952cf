"""Call an agent in place of a command, and map its failures to those of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from gitckpt.durable.agent import call as failure
from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command.execution import Timeouts
from gitckpt.durable.phases import options
from gitckpt.durable.phases.command import failure_of, in_seconds, require_changes
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import AgentUnusable, PhaseFailed, PhaseResult, Session
from gitckpt.model import times
from gitckpt.model.errors import UsageError
from gitckpt.model.values import replace

# How often a call is repeated after its connection was lost.
MOST_LOST = 5

# State key: no calls before this time. Absent where there is no limit.
RETRY_AT = "retry_at"

_LONGEST_PAUSE = 60.0

ShowLine = Callable[[str], None]  # shows a line to the user


def ask(context: Context) -> PhaseResult:
    run, phase = context.run, context.phase
    try:
        client = context.client("agent")
        limit = options.pause("agent_timeout", context.option("agent_timeout"), 0.0)
    except UsageError as error:
        raise PhaseFailed(error.message, hint=error.hint) from None
    path = context.option("prompt")
    if not path:
        message = f"phase {phase.name!r} has no prompt"
        raise PhaseFailed(message, hint='name a file: prompt = "PATH"')
    prompt = context.content(path, "the prompt").decode("utf-8", "replace")
    env, directory = context.environment(), os.path.join(run.files.path, "agent")
    require_installed(client, env, run)
    agent = Agent(client, run.path, env, context.watchdog, directory)
    # Milestones follow, at limits.
    attempt = replace(context.attempt, began=context.attempt.began or run.writer.newest.id)
    usual, idle = map(in_seconds, (phase.timeout, phase.idle_timeout))

    def call() -> Answer:
        patience = Timeouts(limit or usual, idle, run.seconds_left())
        return agent.ask(prompt, context.output, context.look, patience=patience)

    answer = ask_patiently(run, call, lambda text: context.output(f"{words(text)}\n".encode()))
    if answer.problem:
        raise failure_of(phase.name, answer, answer.problem)
    require_changes(context, attempt, answer)
    report = answer.report
    result = {"cost_usd": report.cost_usd, "tokens": dict(report.tokens), "session": report.session}
    values = {key: value for key, value in result.items() if value}
    return PhaseResult(values or None, answer.code, answer.tail)


def require_installed(
    client: Client, env: Mapping[str, str], run: Session, role: str = "agent"
) -> None:
    """Raise `AgentUnusable` if the client of an input (`role`) is not installed."""
    missing = client.missing(env, run.path)
    if missing is not None:
        resume = f"git ckpt resume {run.id}"
        hint = f"install it, then: {resume}; or use another one: {resume} --input {role}=CLIENT"
        raise AgentUnusable(f"the {role} is not installed: {missing}", hint=hint)


def unusable_error(answer: Answer, run: str, role: str = "agent") -> AgentUnusable:
    resume = f"git ckpt resume {run}"
    message = f"cannot use {answer.client}: {answer.problem}"
    hint = f"fix that, then: {resume}; or use another agent: {resume} --input {role}=CLIENT"
    return AgentUnusable(message, code=answer.code, output=answer.tail, hint=hint)


def ask_patiently(
    run: Session, call: Callable[[], Answer], show: ShowLine, role: str = "agent"
) -> Answer:
    """Call an agent until it answers; wait for rate limits, retry lost connections.

    Returns the last answer, with the cost of all calls.
    """
    limited = lost = 0
    cost = 0.0
    while True:
        wait_for_a_limit(run, run.state, show)
        answer = call()
        now = run.store.clock() / times.MICRO
        problem = failure.classify(answer, now) or failure.Failure(failure.OTHER)
        cost += answer.report.cost_usd or 0.0
        if problem.kind == failure.FATAL:
            raise unusable_error(answer, run.id, role)
        is_out_of_waits = problem.wait is None and limited >= failure.MOST_LIMITED
        is_final = {failure.LIMITED: is_out_of_waits, failure.TRANSIENT: lost >= MOST_LOST}
        if is_final.get(problem.kind, True):
            report = replace(answer.report, cost_usd=cost or answer.report.cost_usd)
            return replace(answer, report=report)
        show(answer.problem)
        if problem.kind == failure.TRANSIENT:
            lost += 1
            run.wait(min(2.0**lost, _LONGEST_PAUSE))
            continue
        limited += 1
        retry_at = now + failure.pause(problem.wait, limited)
        until = run.state[RETRY_AT] = times.to_text(int(retry_at * times.MICRO))
        run.milestone(message=f"limited until {until}", errors=[answer.problem])


def wait_for_a_limit(run: Session, state: MutableMapping[str, Any], show: ShowLine) -> None:
    """Wait until the time in `state[RETRY_AT]`, then remove it."""
    until = state.get(RETRY_AT)
    # An imported file or a command can store anything here; a value that is no time is no limit.
    try:
        due = times.from_text(until) if isinstance(until, str) else 0
    except ValueError:
        due = 0
    seconds = (due - run.store.clock()) / times.MICRO
    if seconds > 0:
        show(f"limited: the next call is at {until}; to stop: git ckpt cancel {run.id}")
        run.wait(min(seconds, failure.LONGEST_TOLD))
    state.pop(RETRY_AT, None)
