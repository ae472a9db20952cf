"""Call an agent in place of a command, and map its failures to those of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping

from gitckpt.durable.agent import call as failure
from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command.execution import DEADLINE, Timeouts
from gitckpt.durable.phases import options
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.attempts import (
    AgentUnusable,
    DeadlineReached,
    Ended,
    PhaseBlocked,
    PhaseDeferred,
    PhaseFailed,
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
_RETRY_LATER, _BLOCKED = 75, 4


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
    require_there(client, env, run)
    agent = Agent(client, run.path, env, context.watchdog, directory)
    attempt = (
        context.attempt if context.attempt.began else replace(context.attempt, began=run.newest.id)
    )  # milestones follow, at limits
    usual, idle = (
        None if length is None else length / times.MICRO
        for length in (phase.timeout, phase.idle_timeout)
    )

    def call() -> Answer:
        patience = Timeouts(limit or usual, idle, run.seconds_left())
        return agent.ask(prompt, patience=patience, output=context.output, tick=context.look)

    answer = patiently(run, call, lambda text: context.output(f"{words(text)}\n".encode()))
    _require_success(phase.name, answer)
    if phase.must_change and not run.has_changed_files(attempt):
        raise PhaseFailed(
            f"phase {phase.name!r} produced no file changes", code=answer.code, output=answer.tail
        )
    report = answer.report
    said = {"cost_usd": report.cost_usd, "tokens": dict(report.tokens), "session": report.session}
    return Ended(
        result={key: value for key, value in said.items() if value} or None,
        code=answer.code,
        output=answer.tail,
    )


def _prompt(context: Context) -> str:
    path = context.option("prompt")
    if not path:
        raise PhaseFailed(
            f"phase {context.phase.name!r} asks an agent nothing",
            hint='name a file: prompt = "PATH"',
        )
    return context.content(path, "what the agent is asked").decode("utf-8", "replace")


def _require_success(name: str, answer: Answer) -> None:
    if not answer.problem:
        return
    what = f"phase {name!r}"
    if answer.ended_by == DEADLINE:
        raise DeadlineReached(
            f"{what} was ended: the run took longer than it may",
            code=answer.code,
            output=answer.tail,
        )
    ending = {_BLOCKED: PhaseBlocked, _RETRY_LATER: PhaseDeferred}.get(answer.code, PhaseFailed)
    verb = {_BLOCKED: "is blocked", _RETRY_LATER: "asks to be tried again later"}.get(
        answer.code, "failed"
    )
    raise ending(f"{what} {verb}: {answer.problem}", code=answer.code, output=answer.tail)


def require_there(
    client: Client, env: Mapping[str, str], run: ActiveRun, role: str = "agent"
) -> None:
    """Raise `AgentUnusable` if the client of an input (`role`) is not installed."""
    missing = client.missing(env, run.path)
    if missing is not None:
        again = f"git ckpt resume {run.id}"
        hint = f"install it, then: {again}; or name another one: {again} --input {role}=CLIENT"
        raise AgentUnusable(f"the {role} is not there: {missing}", hint=hint)


def unusable(answer: Answer, run: str, role: str = "agent") -> AgentUnusable:
    """Return the error for an agent that cannot answer until its setup is fixed."""
    return AgentUnusable(
        f"{answer.client} cannot be asked: {answer.problem}",
        code=answer.code,
        output=answer.tail,
        hint=f"settle that, then: git ckpt resume {run}; or name another agent: --input {role}=CLIENT",
    )


def patiently(
    run: ActiveRun, call: Callable[[], Answer], show: Callable[[str], None], role: str = "agent"
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
        found = failure.classify(answer, now)
        cost += answer.report.cost_usd or 0.0
        if found is not None and found.kind == failure.FATAL:
            raise unusable(answer, run.id, role)
        stays = (found is not None and found.kind == failure.TRANSIENT and lost >= MOST_LOST) or (
            found is not None
            and found.kind == failure.LIMITED
            and found.wait is None
            and limited >= failure.MOST_LIMITED
        )
        if found is None or found.kind == failure.OTHER or stays:
            return replace(
                answer, report=replace(answer.report, cost_usd=cost or answer.report.cost_usd)
            )
        show(answer.problem)
        if found.kind == failure.TRANSIENT:
            lost += 1
            run.wait(min(2.0**lost, _LONGEST_PAUSE))
            continue
        limited += 1
        until = run.state[RETRY_AT] = times.to_text(
            int((now + failure.pause(found.wait, limited)) * times.MICRO)
        )
        run.milestone(message=f"limited until {until}", errors=[answer.problem])


def wait_for_a_limit(
    run: ActiveRun, state: MutableMapping[str, Any], show: Callable[[str], None]
) -> None:
    """Wait until the time in `state[RETRY_AT]`, then remove it."""
    until = state.get(RETRY_AT)
    # An imported file or a command can store anything here; a value that is no time is no limit.
    try:
        left = (
            (times.from_text(until) - run.store.clock()) / times.MICRO
            if isinstance(until, str)
            else 0.0
        )
    except ValueError:
        left = 0.0
    if left > 0:
        show(f"limited: the agent is asked again at {until}; git ckpt cancel {run.id} ends that")
        run.wait(min(left, failure.LONGEST_TOLD))
    state.pop(RETRY_AT, None)
