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
from gitckpt.durable.agent.call import AgentAnswer, AgentRunner
from gitckpt.durable.agent.clients import AgentClient, remove_control_chars
from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import DEADLINE, CommandResult, Timeouts
from gitckpt.durable.phases import options
from gitckpt.durable.pipeline.definition import PhaseDefinition, Texts
from gitckpt.durable.pipeline.launch import PhaseContext
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import (
    AgentUnusable,
    DeadlineReached,
    PhaseFailed,
    PhaseResult,
    RunSession,
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


def perform_command_phase(context: PhaseContext) -> PhaseResult:
    phase, run = context.phase, context.run
    timeout, idle_timeout = map(microseconds_to_seconds, (phase.timeout, phase.idle_timeout))
    exchange = _StateExchangeFiles(run, phase)
    exchange.write_state_files()
    try:
        timeouts = Timeouts(timeout, idle_timeout, run.seconds_to_deadline())
        outcome = _run_shell_line(context, phase.run or "", timeouts, exchange.variables)
        if outcome.ended_by in (execution.TIMEOUT, execution.IDLE_TIMEOUT):
            is_timeout = outcome.ended_by == execution.TIMEOUT
            limit = phase.timeout if is_timeout else phase.idle_timeout
            reason = "the command took" if is_timeout else "the command printed nothing for"
            reason += f" more than {times.exact_age_text(limit or 0)}"
            message = f"phase {phase.name!r} was ended: {reason}"
            raise PhaseFailed(message, code=outcome.code, output=outcome.tail)
        if outcome.ended_by == DEADLINE or outcome.code:
            cause = execution.describe_exit(outcome.code) + execution.error_line(outcome.tail)
            raise make_phase_error(phase.name, outcome, cause)
        require_changed_files(context, context.attempt, outcome)
        run.state = exchange.read_changed_state(outcome)
    finally:
        exchange.remove_state_files()
    return PhaseResult(code=outcome.code, output=outcome.tail)


def _run_shell_line(
    context: PhaseContext, line: str, limits: Timeouts, env: Texts, *, show: bool = True
) -> CommandResult:
    kwargs: Any = {"directory": context.run.path, "env": {**context.command_environment(), **env}}
    kwargs |= {"watchdog": context.watchdog, "tick": context.check_and_tick, "patience": limits}
    return execution.run_command(line, output=context.output if show else lambda _: None, **kwargs)


def microseconds_to_seconds(length: int | None) -> float | None:
    return None if length is None else length / times.MICRO


def require_changed_files(
    context: PhaseContext, attempt: Attempt, outcome: CommandResult | AgentAnswer
) -> None:
    phase = context.phase
    if phase.must_change and not context.run.has_changed_files(attempt):
        message = f"phase {phase.name!r} produced no file changes"
        raise PhaseFailed(message, code=outcome.code, output=outcome.tail)


def make_phase_error(phase: str, outcome: CommandResult | AgentAnswer, cause: str) -> PhaseFailed:
    exit_code, output = outcome.code, outcome.tail
    if outcome.ended_by == DEADLINE:
        message = f"phase {phase!r} was ended: the run reached its deadline"
        return DeadlineReached(message, code=exit_code, output=output)
    blocked, deferred = attempts.PhaseBlocked, attempts.PhaseDeferred
    types = {BLOCKED: (blocked, "is blocked"), RETRY_LATER: (deferred, "asks to be retried later")}
    error_type, verb = types.get(exit_code, (PhaseFailed, "failed"))
    return error_type(f"phase {phase!r} {verb}: {cause}", code=exit_code, output=output)


class _StateExchangeFiles:
    """The files by which a command changes the run's state, such as $CKPT_STATE."""

    def __init__(self, run: RunSession, phase: PhaseDefinition) -> None:
        self._run, self._phase = run, phase
        self.state_path = os.path.join(run.files.path, "state.json")
        self.set_path = os.path.join(run.files.path, "set")
        self.output_path = os.path.join(run.files.path, run_files.OUTPUT, ids.make_slug(phase.name))
        self.variables = {"CKPT_STATE": self.state_path, "CKPT_SET": self.set_path}
        self.variables["CKPT_OUTPUT"] = self.output_path
        self._initial_state = b""

    def write_state_files(self) -> None:
        run_files.make_directory(self.output_path)
        state = json.dumps(jsonable.to_json(self._run.state), indent=2, ensure_ascii=False)
        self._initial_state = state.encode("utf-8", "surrogatepass") + b"\n"
        for path, data in ((self.state_path, self._initial_state), (self.set_path, b"")):
            try:
                if os.path.islink(path):
                    os.unlink(path)  # left by an attempt that was killed
                with open(path, "wb", opener=private_dirs.open_private_file) as file:
                    file.write(data)
            except OSError as error:  # on a full disk, the error names no file
                raise CkptError(f"cannot write {path}: {error.strerror}") from None

    def read_changed_state(self, outcome: CommandResult) -> dict[str, Any]:
        """Return the run's state after the command. Raises PhaseFailed if it is invalid."""
        try:
            private_dirs.require_own_directory(self._run.files.path)
            state_json = regular.read_content(self.state_path, _MAX_STATE, follow=False)
            set_file = io.BytesIO(regular.read_content(self.set_path, _MAX_STATE, follow=False))
            # Not str.splitlines: it would split a value at a form feed or U+2028.
            text_reader = io.TextIOWrapper(set_file, encoding="utf-8", errors="surrogateescape")
            assignments = [assignment.rstrip("\n") for assignment in text_reader]
        except WorktreeError as error:
            raise self._reject(error.message, outcome) from None
        except OSError as error:
            raise self._reject(f"cannot read {error.filename}: {error.strerror}", outcome) from None
        state = dict(self._run.state)
        if state_json != self._initial_state:
            try:
                state = json.loads(state_json)
            except (ValueError, RecursionError) as error:
                raise self._reject(f"CKPT_STATE is not JSON: {error}", outcome) from None
            if not isinstance(state, dict):
                type_name = type(state).__name__
                raise self._reject(f"CKPT_STATE is a JSON {type_name}, not an object", outcome)
        for assignment in assignments:
            match = _ASSIGNMENT.fullmatch(assignment)
            label = f"{assignment!r:.100} in CKPT_SET"
            if match is None or not match[1].strip():
                raise self._reject(f"{label} is not key=value", outcome)
            try:
                state[match[1].strip()] = self._parse_assigned_value(match[2], match[3])
            except OSError as error:
                problem = f"{label}: cannot read {error.filename}: {error.strerror}"
                raise self._reject(problem, outcome) from None
            except (ValueError, RecursionError) as error:
                raise self._reject(f"{label} is not key:=JSON: {error}", outcome) from None
        return state

    def _parse_assigned_value(self, operator: str, text: str) -> Any:
        # key:=JSON, key=TEXT, or key<FILE
        if operator == ":=":
            return json.loads(text)
        if operator == "=":
            return text
        path, directory = text.strip(), self._run.path
        if path.startswith(f"{self.output_path}/"):
            directory = self.output_path
        return regular.read_content_below(directory, path, _MAX_VALUE).decode("utf-8", "replace")

    def remove_state_files(self) -> None:
        for path in (self.state_path, self.set_path):
            if os.path.isdir(path) and not os.path.islink(path):
                private_dirs.discard_directory(path)
            elif os.path.lexists(path):
                os.unlink(path)
        is_directory = os.path.isdir(self.output_path) and not os.path.islink(self.output_path)
        if is_directory and not os.listdir(self.output_path):
            os.rmdir(self.output_path)

    def _reject(self, problem: str, outcome: CommandResult) -> PhaseFailed:
        message = f"phase {self._phase.name!r} failed: {problem}"
        return PhaseFailed(message, code=outcome.code, output=outcome.tail)


# Commands that built-in steps run: tests, linters, filters and issue trackers, each with a timeout.


def run_tool(
    context: PhaseContext, line: str, seconds: float, *, show: bool = False, name: str = ""
) -> CommandResult:
    timeouts = Timeouts(seconds, None, context.run.seconds_to_deadline())
    outcome = _run_shell_line(context, line, timeouts, {}, show=show)
    if outcome.ended_by == DEADLINE:
        message = f"{name or line} was ended: the run reached its deadline"
        raise DeadlineReached(message, output=outcome.tail)
    return outcome


def capture_tool_output(
    context: PhaseContext, line: str, seconds: float, file: str
) -> tuple[CommandResult, bytes]:
    path = os.path.join(context.run.files.path, file)
    run_files.make_directory(os.path.dirname(path))
    if os.path.islink(path):
        os.unlink(path)  # a phase may have left this link, and the shell would write to its target
    command_line = f"{line} > {shlex.quote(path)}"
    outcome = run_tool(context, command_line, seconds, name=line.partition(" ")[0])
    try:
        return outcome, regular.read_content(path, follow=False)
    except OSError:
        return outcome, b""


# How often a call of an agent is repeated after its connection was lost.
MAX_LOST = 5

# Key of the state: the time before which the agent refuses calls; absent without a rate limit.
RETRY_AT = "retry_at"

_LONGEST_PAUSE = 60.0

ShowLine = Callable[[str], None]  # shows a line to the user


def perform_agent_phase(context: PhaseContext) -> PhaseResult:
    run, phase = context.run, context.phase
    try:
        client = context.client("agent")
        agent_timeout = options.parse_seconds("agent_timeout", context.option("agent_timeout"), 0.0)
    except UsageError as error:
        raise PhaseFailed(error.message, hint=error.hint) from None
    prompt_path = context.option("prompt")
    if not prompt_path:
        raise PhaseFailed(f"phase {phase.name!r} has no prompt", hint='set prompt = "PATH"')
    prompt = context.read_input_or_file(prompt_path, "the prompt").decode("utf-8", "replace")
    env, files = context.command_environment(), os.path.join(run.files.path, "agent")
    require_installed(client, env, run)
    agent = AgentRunner(client, run.path, env, context.watchdog, files)
    # `began` is set because milestones at rate limits change the newest checkpoint.
    attempt = replace(context.attempt, began=context.attempt.began or run.writer.newest.id)
    phase_timeout, idle_timeout = map(microseconds_to_seconds, (phase.timeout, phase.idle_timeout))

    def call_client() -> AgentAnswer:
        timeouts = Timeouts(agent_timeout or phase_timeout, idle_timeout, run.seconds_to_deadline())
        return agent.ask_agent(prompt, context.output, context.check_and_tick, patience=timeouts)

    answer = ask_agent_with_retries(
        run, call_client, lambda text: context.output(f"{remove_control_chars(text)}\n".encode())
    )
    if answer.problem:
        raise make_phase_error(phase.name, answer, answer.problem)
    require_changed_files(context, attempt, answer)
    report = answer.report
    fields = {"cost_usd": report.cost_usd, "tokens": dict(report.tokens), "session": report.session}
    known_values = {key: value for key, value in fields.items() if value}
    return PhaseResult(known_values or None, answer.code, answer.tail)


def require_installed(agent: AgentClient, env: Texts, run: RunSession, role: str = "agent") -> None:
    missing_program = agent.find_missing_program(env, run.path)
    if missing_program is not None:
        resume_command = f"git ckpt resume {run.id}"
        hint = f"install {missing_program}, then: {resume_command}; "
        hint += f"or use another agent: {resume_command} --input {role}=CLIENT"
        raise AgentUnusable(f"the {role} is not installed: {missing_program}", hint=hint)


def make_agent_unusable_error(answer: AgentAnswer, run: str, role: str = "agent") -> AgentUnusable:
    resume = f"git ckpt resume {run}"
    message = f"cannot use {answer.client}: {answer.problem}"
    hint = f"fix this problem, then: {resume}; or use another agent: {resume} --input {role}=CLIENT"
    return AgentUnusable(message, code=answer.code, output=answer.tail, hint=hint)


def ask_agent_with_retries(
    run: RunSession, call: Callable[[], AgentAnswer], show: ShowLine, role: str = "agent"
) -> AgentAnswer:
    """Run `call`, and repeat it after a rate limit or a lost connection of the agent."""
    limit_count = lost_count = 0
    total_cost = 0.0
    while True:
        wait_for_rate_limit(run, run.state, show)
        answer = call()
        now = run.store.clock() / times.MICRO
        problem = failure.classify_failure(answer, now) or failure.CallFailure(failure.OTHER)
        total_cost += answer.report.cost_usd or 0.0
        if problem.kind == failure.FATAL:
            raise make_agent_unusable_error(answer, run.id, role)
        is_out_of_waits = problem.wait is None and limit_count >= failure.MOST_LIMITED
        is_final = {failure.LIMITED: is_out_of_waits, failure.TRANSIENT: lost_count >= MAX_LOST}
        if is_final.get(problem.kind, True):
            report = replace(answer.report, cost_usd=total_cost or answer.report.cost_usd)
            return replace(answer, report=report)
        show(answer.problem)
        if problem.kind == failure.TRANSIENT:
            lost_count += 1
            run.wait(min(2.0**lost_count, _LONGEST_PAUSE))
            continue
        limit_count += 1
        retry_at = now + failure.compute_rate_limit_wait(problem.wait, limit_count)
        retry_text = run.state[RETRY_AT] = times.to_text(int(retry_at * times.MICRO))
        run.milestone(message=f"limited until {retry_text}", errors=[answer.problem])


def wait_for_rate_limit(run: RunSession, state: MutableMapping[str, Any], show: ShowLine) -> None:
    """Wait until the time `state[RETRY_AT]`, when a rate limit ends; remove this key."""
    retry_text = state.get(RETRY_AT)
    # An imported file or a command can store any value here; ignore a value that is not a time.
    try:
        retry_time = times.parse_timestamp(retry_text) if isinstance(retry_text, str) else 0
    except ValueError:
        retry_time = 0
    seconds = (retry_time - run.store.clock()) / times.MICRO
    if seconds > 0:
        show(f"rate limited: the next call is at {retry_text}; to stop: git ckpt cancel {run.id}")
        run.wait(min(seconds, failure.LONGEST_TOLD))
    state.pop(RETRY_AT, None)
