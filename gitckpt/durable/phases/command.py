"""Perform phases that are a shell command or a single call of an agent."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Callable, MutableMapping
from typing import Any

from gitckpt.durable.agent import call as failure
from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import DEADLINE, CommandResult, Timeouts
from gitckpt.durable.phases import options
from gitckpt.durable.pipeline.definition import PhaseDefinition, Texts
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import (
    AgentUnusable,
    DeadlineReached,
    PhaseFailed,
    PhaseResult,
    Session,
)
from gitckpt.git.files import private_dirs, regular
from gitckpt.model import ids, jsonable, times
from gitckpt.model.checkpoint import Attempt
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.values import replace
from gitckpt.store.runs import run_files

_ASSIGNMENT = re.compile(r"([^=<]*?)(:=|=|<)(.*)")
_MAX_VALUE = 1024 * 1024  # bytes of a file in `key<FILE`
_MAX_STATE = 64 * 1024 * 1024  # bytes of CKPT_STATE; a valid state has at most half as many

# Special exit codes: EX_TEMPFAIL of sysexits.h, and "blocked" of gitckpt itself.
RETRY_LATER, BLOCKED = 75, 4


def perform(context: Context) -> PhaseResult:
    phase, run = context.phase, context.run
    timeout, idle_timeout = map(in_seconds, (phase.timeout, phase.idle_timeout))
    files = _Exchange(run, phase)
    files.write_files()
    try:
        limits = Timeouts(timeout, idle_timeout, run.seconds_left())
        outcome = _run_line(context, phase.run or "", limits, files.variables)
        if outcome.ended_by in (execution.TIMEOUT, execution.IDLE_TIMEOUT):
            is_timeout = outcome.ended_by == execution.TIMEOUT
            limit = phase.timeout if is_timeout else phase.idle_timeout
            reason = "the command took" if is_timeout else "the command printed nothing for"
            reason += f" more than {times.exact_age_text(limit or 0)}"
            message = f"phase {phase.name!r} was ended: {reason}"
            raise PhaseFailed(message, code=outcome.code, output=outcome.tail)
        if outcome.ended_by == DEADLINE or outcome.code:
            cause = execution.cause_of(outcome.code) + execution.last_line(outcome.tail)
            raise phase_failure(phase.name, outcome, cause)
        require_changes(context, context.attempt, outcome)
        run.state = files.read_state(outcome)
    finally:
        files.remove_files()
    return PhaseResult(code=outcome.code, output=outcome.tail)


def _run_line(
    context: Context, line: str, limits: Timeouts, env: Texts, *, show: bool = True
) -> CommandResult:
    kwargs: Any = {"directory": context.run.path, "env": {**context.environment(), **env}}
    kwargs |= {"watchdog": context.watchdog, "tick": context.check_and_tick, "patience": limits}
    return execution.run_command(line, output=context.output if show else lambda _: None, **kwargs)


def in_seconds(length: int | None) -> float | None:
    return None if length is None else length / times.MICRO


def require_changes(context: Context, attempt: Attempt, outcome: CommandResult | Answer) -> None:
    phase = context.phase
    if phase.must_change and not context.run.has_changed_files(attempt):
        message = f"phase {phase.name!r} produced no file changes"
        raise PhaseFailed(message, code=outcome.code, output=outcome.tail)


def phase_failure(phase: str, outcome: CommandResult | Answer, cause: str) -> PhaseFailed:
    code, output = outcome.code, outcome.tail
    if outcome.ended_by == DEADLINE:
        message = f"phase {phase!r} was ended: the run reached its deadline"
        return DeadlineReached(message, code=code, output=output)
    blocked, deferred = attempts.PhaseBlocked, attempts.PhaseDeferred
    kinds = {BLOCKED: (blocked, "is blocked"), RETRY_LATER: (deferred, "asks to be retried later")}
    error, verb = kinds.get(code, (PhaseFailed, "failed"))
    return error(f"phase {phase!r} {verb}: {cause}", code=code, output=output)


class _Exchange:
    """The files by which a command returns values, such as the file $CKPT_STATE."""

    def __init__(self, run: Session, phase: PhaseDefinition) -> None:
        self._run, self._phase = run, phase
        self.state_path = os.path.join(run.files.path, "state.json")
        self.set_path = os.path.join(run.files.path, "set")
        self.output_path = os.path.join(run.files.path, run_files.OUTPUT, ids.make_slug(phase.name))
        self.variables = {"CKPT_STATE": self.state_path, "CKPT_SET": self.set_path}
        self.variables["CKPT_OUTPUT"] = self.output_path
        self._initial_state = b""

    def write_files(self) -> None:
        run_files.make_directory(self.output_path)
        state = json.dumps(jsonable.to_json(self._run.state), indent=2, ensure_ascii=False)
        self._initial_state = state.encode("utf-8", "surrogatepass") + b"\n"
        for path, data in ((self.state_path, self._initial_state), (self.set_path, b"")):
            try:
                if os.path.islink(path):
                    os.unlink(path)  # left by an attempt that was killed
                with open(path, "wb", opener=private_dirs.create) as file:
                    file.write(data)
            except OSError as error:  # on a full disk, the error names no file
                raise CkptError(f"cannot write {path}: {error.strerror}") from None

    def read_state(self, outcome: CommandResult) -> dict[str, Any]:
        """Return the run's state with the command's changes; raise PhaseFailed if invalid."""
        try:
            private_dirs.require(self._run.files.path)
            new_state = regular.content(self.state_path, _MAX_STATE, follow=False)
            text = io.BytesIO(regular.content(self.set_path, _MAX_STATE, follow=False))
            # Not str.splitlines: it would split a value at a form feed or U+2028.
            reader = io.TextIOWrapper(text, encoding="utf-8", errors="surrogateescape")
            lines = [line.rstrip("\n") for line in reader]
        except WorktreeError as error:
            raise self._error(error.message, outcome) from None
        except OSError as error:
            raise self._error(f"cannot read {error.filename}: {error.strerror}", outcome) from None
        state = dict(self._run.state)
        if new_state != self._initial_state:
            try:
                state = json.loads(new_state)
            except (ValueError, RecursionError) as error:
                raise self._error(f"CKPT_STATE is not JSON: {error}", outcome) from None
            if not isinstance(state, dict):
                kind = type(state).__name__
                raise self._error(f"CKPT_STATE is a JSON {kind}, not an object", outcome)
        for line in lines:
            match = _ASSIGNMENT.fullmatch(line)
            shown_line = f"{line!r:.100} in CKPT_SET"
            if match is None or not match[1].strip():
                raise self._error(f"{shown_line} is not key=value", outcome)
            try:
                state[match[1].strip()] = self._parse_value(match[2], match[3])
            except OSError as error:
                problem = f"{shown_line}: cannot read {error.filename}: {error.strerror}"
                raise self._error(problem, outcome) from None
            except (ValueError, RecursionError) as error:
                raise self._error(f"{shown_line} is not key:=JSON: {error}", outcome) from None
        return state

    def _parse_value(self, operator: str, text: str) -> Any:
        # key:=JSON, key=TEXT, or key<FILE
        if operator == ":=":
            return json.loads(text)
        if operator == "=":
            return text
        path, top = text.strip(), self._run.path
        if path.startswith(f"{self.output_path}/"):
            top = self.output_path
        return regular.content_below(top, path, _MAX_VALUE).decode("utf-8", "replace")

    def remove_files(self) -> None:
        for path in (self.state_path, self.set_path):
            if os.path.isdir(path) and not os.path.islink(path):
                private_dirs.discard(path)
            elif os.path.lexists(path):
                os.unlink(path)
        is_directory = os.path.isdir(self.output_path) and not os.path.islink(self.output_path)
        if is_directory and not os.listdir(self.output_path):
            os.rmdir(self.output_path)

    def _error(self, problem: str, outcome: CommandResult) -> PhaseFailed:
        message = f"phase {self._phase.name!r} failed: {problem}"
        return PhaseFailed(message, code=outcome.code, output=outcome.tail)


# Commands that built-in steps run: tests, linters, filters and issue trackers, each with a timeout.


def run(
    context: Context, line: str, seconds: float, *, show: bool = False, name: str = ""
) -> CommandResult:
    """Run a shell command in the run's worktree, with a timeout of `seconds`."""
    timeouts = Timeouts(seconds, None, context.run.seconds_left())
    outcome = _run_line(context, line, timeouts, {}, show=show)
    if outcome.ended_by == DEADLINE:
        message = f"{name or line} was ended: the run reached its deadline"
        raise DeadlineReached(message, output=outcome.tail)
    return outcome


def capture(context: Context, line: str, seconds: float, file: str) -> tuple[CommandResult, bytes]:
    """Run a command as `run` does; return its standard output, which `file` stores."""
    path = os.path.join(context.run.files.path, file)
    run_files.make_directory(os.path.dirname(path))
    if os.path.islink(path):
        os.unlink(path)  # a phase may have left this link, and the shell would write to its target
    outcome = run(context, f"{line} > {shlex.quote(path)}", seconds, name=line.partition(" ")[0])
    try:
        return outcome, regular.content(path, follow=False)
    except OSError:
        return outcome, b""


# How often a call of an agent is repeated after its connection was lost.
MAX_LOST = 5

# Key of the state: the time before which the agent refuses calls; absent without a rate limit.
RETRY_AT = "retry_at"

_LONGEST_PAUSE = 60.0

ShowLine = Callable[[str], None]  # shows a line to the user


def call_agent(context: Context) -> PhaseResult:
    run, phase = context.run, context.phase
    try:
        client = context.client("agent")
        agent_timeout = options.parse_pause("agent_timeout", context.option("agent_timeout"), 0.0)
    except UsageError as error:
        raise PhaseFailed(error.message, hint=error.hint) from None
    path = context.option("prompt")
    if not path:
        raise PhaseFailed(f"phase {phase.name!r} has no prompt", hint='set prompt = "PATH"')
    prompt = context.content(path, "the prompt").decode("utf-8", "replace")
    env, directory = context.environment(), os.path.join(run.files.path, "agent")
    require_installed(client, env, run)
    agent = Agent(client, run.path, env, context.watchdog, directory)
    # `began` is set because milestones at rate limits change the newest checkpoint.
    attempt = replace(context.attempt, began=context.attempt.began or run.writer.newest.id)
    phase_timeout, idle_timeout = map(in_seconds, (phase.timeout, phase.idle_timeout))

    def call() -> Answer:
        timeouts = Timeouts(agent_timeout or phase_timeout, idle_timeout, run.seconds_left())
        return agent.ask(prompt, context.output, context.check_and_tick, patience=timeouts)

    answer = ask_patiently(run, call, lambda text: context.output(f"{words(text)}\n".encode()))
    if answer.problem:
        raise phase_failure(phase.name, answer, answer.problem)
    require_changes(context, attempt, answer)
    report = answer.report
    result = {"cost_usd": report.cost_usd, "tokens": dict(report.tokens), "session": report.session}
    values = {key: value for key, value in result.items() if value}
    return PhaseResult(values or None, answer.code, answer.tail)


def require_installed(client: Client, env: Texts, run: Session, role: str = "agent") -> None:
    missing = client.missing(env, run.path)
    if missing is not None:
        resume = f"git ckpt resume {run.id}"
        hint = f"install {missing}, then: {resume}; "
        hint += f"or use another agent: {resume} --input {role}=CLIENT"
        raise AgentUnusable(f"the {role} is not installed: {missing}", hint=hint)


def unusable_error(answer: Answer, run: str, role: str = "agent") -> AgentUnusable:
    resume = f"git ckpt resume {run}"
    message = f"cannot use {answer.client}: {answer.problem}"
    hint = f"fix this problem, then: {resume}; or use another agent: {resume} --input {role}=CLIENT"
    return AgentUnusable(message, code=answer.code, output=answer.tail, hint=hint)


def ask_patiently(
    run: Session, call: Callable[[], Answer], show: ShowLine, role: str = "agent"
) -> Answer:
    """Call an agent, and call it again after a rate limit or a lost connection."""
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
        is_final = {failure.LIMITED: is_out_of_waits, failure.TRANSIENT: lost >= MAX_LOST}
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
    """Wait until the rate limit ends, at `state[RETRY_AT]`, and remove this key."""
    until = state.get(RETRY_AT)
    # An imported file or a command can store any value here; ignore a value that is not a time.
    try:
        due = times.from_text(until) if isinstance(until, str) else 0
    except ValueError:
        due = 0
    seconds = (due - run.store.clock()) / times.MICRO
    if seconds > 0:
        show(f"rate limited: the next call is at {until}; to stop: git ckpt cancel {run.id}")
        run.wait(min(seconds, failure.LONGEST_TOLD))
    state.pop(RETRY_AT, None)
