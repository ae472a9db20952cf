"""Carry out the phases of a pipeline, with pauses at which a person is asked."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from types import NoneType
from typing import Any, TypedDict

from gitckpt.durable.agent.clients import PRICE, AgentClient, Clients, find_client
from gitckpt.durable.command.watchdog import DriverEnvTag, Watchdog
from gitckpt.durable.phases import command
from gitckpt.durable.phases.options import PLAN, generate_branch_name, read_plan
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.definition import PRESET, PhaseDefinition, PipelineDefinition, Texts
from gitckpt.durable.pipeline.launch import PhaseContext, RunInputs, fill_placeholders, state_texts
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import PhaseBlocked, PhaseFailed, PhaseResult
from gitckpt.durable.run.run import Run, session_of
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import join_first, require_callable, require_type, shell_quoted
from gitckpt.model.checkpoint import Attempt, Checkpoint
from gitckpt.model.document import shorten_message
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.runs.run_files import RunFiles

_TAIL = 4096  # bytes of output, in which the last line is looked for


class RunOptions(TypedDict, total=False):
    autonomy: str | None  # "checkpoint", "batch" or "fully_autonomous"
    timeout: int | None  # microseconds from now to the deadline of the whole run
    holder: str  # who drives the run, as other processes see it in the lease


class ResumeOptions(RunOptions, total=False):
    directory: str | None  # path of the worktree; default: its previous path, or as configured
    take_over: bool  # take the lease from a stalled driver and end its commands
    phase: str | None  # redo this phase and all after it
    rewind: Checkpoint | None  # restore this checkpoint first, after saving newer content
    accept_changes: bool  # continue although the pipeline or its input files changed
    trust: bool  # adopt a run that was recorded in another repository
    inputs: Texts  # new values by input name; other inputs stay the same


def _run_loop(context: PhaseContext) -> PhaseResult:
    from gitckpt.durable.phases.loop.loop import AgentLoop

    return AgentLoop(context).run_iterations()


def _run_review(context: PhaseContext) -> PhaseResult:
    from gitckpt.durable.phases.review.phase import perform_review

    return perform_review(context)


def _ask_agent(context: PhaseContext) -> PhaseResult:
    from gitckpt.durable.phases.command import perform_agent_phase

    return perform_agent_phase(context)


def _require_plan_input(run_inputs: RunInputs, _: Callable[[str], str]) -> None:
    if not run_inputs.inputs.get(PLAN):
        raise UsageError("there is no plan", hint="name a file: git ckpt run PLAN, or -i plan=PLAN")


def _require_loop_options(run_inputs: RunInputs, option: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.loop import loop

    loop.parse_loop_options(option)
    try:
        template = run_inputs.contents.get("prompt", b"").decode("utf-8", "replace")
        loop.require_valid_template(template)
    except PhaseFailed as error:
        raise UsageError(error.message, hint=error.hint) from None


def _require_review_options(_: RunInputs, option: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.review.phase import parse_review_options

    parse_review_options(option)


@dataclass(frozen=True, slots=True)
class BuiltInStep:  # a built-in step, which phases name in `use`
    action: Callable[[PhaseContext], PhaseResult]
    options: str = ""  # names of options in the phase's `with`, separated by spaces
    progress_keys: tuple[str, ...] = ()  # keys of the run's state that hold the step's progress
    # Raises UsageError if the step would fail at once; gets the inputs and a getter of options.
    require: Callable[[RunInputs, Callable[[str], str]], None] | None = None
    required: str = ""  # option that must be set, from an input or by an earlier phase


_LOOP_OPTIONS = "plan issues epic agent prompt conversation tests done until_tests_pass "
_LOOP_OPTIONS += "max_iterations max_budget pause agent_timeout idle_timeout test_timeout"
_REVIEW_OPTIONS = "task title coder reviewer lint lint_retries filters epic max_cycles max_budget "
_REVIEW_OPTIONS += "agent_timeout force"

STEPS = {
    "read plan": BuiltInStep(read_plan, require=_require_plan_input),
    "generate branch": BuiltInStep(generate_branch_name),
    "agent": BuiltInStep(_ask_agent, "agent prompt agent_timeout", required="prompt"),
    "loop": BuiltInStep(
        _run_loop, _LOOP_OPTIONS, ("loop",), _require_loop_options, required="plan"
    ),
    "review": BuiltInStep(_run_review, _REVIEW_OPTIONS, ("review",), _require_review_options),
}

OPTIONS = {name: tuple(step.options.split()) for name, step in STEPS.items()}


def progress_keys(phase: PhaseDefinition) -> tuple[str, ...]:
    return STEPS[phase.use].progress_keys if phase.use in STEPS else ()


def require_valid_options(definition: PipelineDefinition, run_inputs: RunInputs) -> None:
    for position, phase in enumerate(definition.phases):
        step = STEPS.get(phase.use or "")
        if step is None:
            continue
        try:
            option_values = {
                name: fill_placeholders(text, run_inputs.inputs)
                for name, text in phase.options.items()
            }
        except KeyError:
            continue  # an option uses a value of the state, which is unknown before the phase
        if step.require is not None:
            step.require(run_inputs, lambda name, values=option_values: values.get(name, ""))  # type: ignore[misc]
        if position == 0 and step.required and not option_values.get(step.required):
            hint = f"add: -i {step.required}=PATH"
            raise UsageError(f"phase {phase.name!r} needs the input {step.required}", hint=hint)


_RLM = "rlm-act"
_PLAN, _HIERARCHY = "plan_path", "hierarchy_path"
_CHILDREN = ("children", "requirements")
_CRITERIA = ("acceptance_criteria", "acceptanceCriteria")


def phases_to_skip(definition: PipelineDefinition, run_inputs: RunInputs) -> dict[str, str]:
    skips = {}
    for phase in definition.phases:
        for name in reversed(phase.skip_with):
            if run_inputs.inputs.get(name):
                skips[phase.name] = f"{name} is given: {run_inputs.inputs[name]}"
    return skips | _find_rlm_skips(definition, run_inputs) if definition.name == _RLM else skips


def require_question(definition: PipelineDefinition, run_inputs: RunInputs, skips: Texts) -> None:
    is_asked = definition.name == _RLM and definition.source == PRESET and "research" not in skips
    if is_asked and not run_inputs.inputs.get("question"):
        hint = 'add a question: -i question="how does X work?"'
        raise UsageError("phase 'research' needs the input question", hint=hint)


def _find_rlm_skips(definition: PipelineDefinition, run_inputs: RunInputs) -> dict[str, str]:
    plan_path = run_inputs.inputs.get(_PLAN, "")
    phase_names = [phase.name for phase in definition.phases]
    if plan_path.endswith(".md"):
        return dict.fromkeys(phase_names[:4], f"the plan is given: {plan_path}")
    input_name = _PLAN if plan_path.endswith(".json") else _HIERARCHY
    if input_name not in run_inputs.contents:
        return {}
    try:
        content = json.loads(run_inputs.contents[input_name])
        has_criteria = _has_acceptance_criteria(content, is_child=False)
    except (ValueError, RecursionError) as error:
        message = f"the input {input_name} is not JSON: {run_inputs.inputs[input_name]}: {error}"
        raise UsageError(message, hint="correct the file, then start the run again") from None
    reason = "requirements with acceptance criteria are given"
    return dict.fromkeys(phase_names[:2], reason) if has_criteria else {}


def _has_acceptance_criteria(node: Any, *, is_child: bool) -> bool:
    if isinstance(node, list):
        return any(_has_acceptance_criteria(item, is_child=is_child) for item in node)
    if not isinstance(node, dict):
        return False
    if is_child and any(node.get(key) for key in _CRITERIA):
        return True
    children = [(child, is_child or key in _CHILDREN) for key, child in node.items()]
    return any(_has_acceptance_criteria(child, is_child=is_child) for child, is_child in children)


# Trust: a run that was recorded in another repository needs approval before it continues.

_MAX_SHOWN = 100  # characters shown of a command
_CUT_MARK = ", cut)"


def list_remaining_commands(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    pipeline = checkpoint.pipeline
    if pipeline is None or pipeline.name is None:
        return []
    try:
        path = pipelines.config_path(store.repository)
        definition = pipelines.read_pipeline(path, pipeline.name, OPTIONS)
    except CkptError as error:
        return [f"unknown: {error.message}"]
    phases = [phase for phase in definition.phases if phase.name not in pipeline.completed]
    texts = [phase.run if phase.run is not None else str(phase.use) for phase in phases]
    lines = [f"{phase.name}: {_shorten(text)}" for phase, text in zip(phases, texts, strict=True)]
    if any(line.endswith(_CUT_MARK) for line in lines):
        is_preset = definition.source == pipelines.PRESET
        show_command = f"git ckpt run --print {definition.name}" if is_preset else definition.source
        lines.append(f"in full: {show_command}")
    return lines


def _shorten(text: str) -> str:
    one_line, line_count = " ".join(text.split()), len(text.strip().splitlines())
    if len(one_line) <= _MAX_SHOWN:
        return one_line
    return f"{one_line[:_MAX_SHOWN].rstrip()}… ({line_count} lines{_CUT_MARK}"


# Agents defined in `gitckpt.toml`: a run calls only agents whose commands a person approved when
# starting the run, so that a branch with another `gitckpt.toml` cannot replace these commands.

_ROLES = ("agent", "coder", "reviewer")
_STEPS = ("agent", "loop", "review")  # steps that call an agent


def placeholder_values(
    newest: Checkpoint, definition: PipelineDefinition, inputs: Texts
) -> dict[str, str]:
    run_inputs = newest.pipeline.inputs if newest.pipeline is not None else {}
    return {**state_texts(newest.state), **definition.inputs, **run_inputs, **inputs}


def approve_agents(
    repository: Repository, definition: PipelineDefinition, values: Texts, clients: Clients
) -> None:
    digests = set(map(_digest_of, find_called_clients(definition, values, clients)))
    if new_digests := digests - settings.read_approved_digests(repository):
        settings.record_approval(repository, new_digests)


def require_approved_agents(repository: Repository, run: str, used: Iterable[AgentClient]) -> None:
    digests = settings.read_approved_digests(repository)
    new_clients = [client for client in dict.fromkeys(used) if _digest_of(client) not in digests]
    if new_clients:
        changes = [f"the agent {client.name} is {client.command}" for client in new_clients]
        raise attempts.Changed(run, changes)


def require_installed_agents(
    definition: PipelineDefinition, skipped: Collection[str], values: Texts, clients: Clients
) -> None:
    for phase in definition.phases:
        if phase.name in skipped:
            continue
        if phase.run is not None and definition.source != PRESET:
            return
        env = {**os.environ, **definition.env, **phase.env}
        for role in _ROLES if phase.use else ():
            try:
                name = fill_placeholders(phase.options.get(role, ""), values)
                tool = find_client(name, clients).find_missing_program(env, ".") if name else None
            except (KeyError, UsageError):
                continue  # the phase itself reports unknown values and bad commands
            if tool is not None and (os.sep not in tool or os.path.isabs(tool)):
                hint = f"install it, or choose another {role}: --{role} CLIENT of git ckpt loop "
                hint += f"and review, -i {role}=CLIENT of git ckpt run"
                raise attempts.AgentUnusable(f"the {role} is not installed: {tool}", hint=hint)


def find_called_clients(
    definition: PipelineDefinition, values: Texts, clients: Clients
) -> Iterator[AgentClient]:
    for phase in definition.phases:
        for role in _ROLES if phase.use and clients else ():
            client_name = _fill_or_empty(phase.options.get(role, ""), values)
            if client_name in clients:
                yield clients[client_name]


def find_called_agents(
    definition: PipelineDefinition, completed: Collection[str], values: Texts
) -> list[str]:
    agents: dict[str, None] = {}
    for phase in definition.phases:
        if phase.name in completed or phase.use not in _STEPS:
            continue
        client_names = [_fill_or_empty(phase.options.get(role, ""), values) for role in _ROLES]
        agents |= dict.fromkeys([name for name in client_names if name] or [phase.use])
    return list(agents)


def _fill_or_empty(text: str, values: Texts) -> str:
    try:
        return fill_placeholders(text, values)
    except KeyError:
        return ""  # `text` uses a value of the state, which is unknown before the phase


def _digest_of(client: AgentClient) -> str:
    field_values = [getattr(client, name) for name in client.__match_args__ if name != PRICE]
    return settings.digest_of("agents", field_values)


# Answers of a person after a phase: go on, redo the phase with remarks, redo it, or pause the run.
CONTINUE, REVISE, RESTART, EXIT = "continue", "revise", "restart", "exit"


class Observer:
    """Receives the events of a driven run; override `ask` to answer at pauses."""

    def started(self, run: str) -> None:
        """Handle the start of driving a run; `run` is the id of the run."""

    def warn(self, sentence: str) -> None:
        """Handle a problem that does not end the run; `sentence` describes the problem."""

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        """Handle the start of an attempt at phase `phase`, which is `number` of `total`."""

    def output(self, data: bytes) -> None:
        """Handle output that the command of a phase has written."""

    def tick(self, seconds: float) -> None:
        """Handle a clock tick of a running command, `seconds` after the command started."""

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        """Handle the end of a phase; `seconds` is None if the phase was skipped."""

    def ask(self, phase: str) -> tuple[str, str]:  # noqa: ARG002 - for subclasses
        """Return what to do after a phase: "continue", "restart", "revise" or "exit".

        The second string is the person's remarks on the phase, which only "revise" uses.
        """
        return EXIT, ""


class _WatchedOutput:
    """Pass on the output of a phase, and keep its last line for `git ckpt status`."""

    def __init__(self, observer: Observer, files: RunFiles) -> None:
        self._observer, self._files = observer, files
        self._tail = self._written = b""

    def output(self, data: bytes) -> None:
        self._observer.output(data)
        self._tail = (self._tail + data)[-_TAIL:]

    def tick(self, seconds: float) -> None:
        self._observer.tick(seconds)
        line = next(reversed(self._tail.strip().splitlines()), b"")
        if line and line != self._written:  # at most once a second
            self._written = line
            self._files.write_last_line(line)


def hint_after_failure(error: PhaseFailed, run: Run) -> str:
    resume = f"git ckpt resume {run.id}"
    if isinstance(error, attempts.DeadlineReached):
        return f"to give it more time: {resume} --timeout 1h"
    if isinstance(error, PhaseBlocked) and run.last_attempt is not None:
        return f"solve the problem, then: {resume} --from {shell_quoted(run.last_attempt.phase)}"
    if isinstance(error, attempts.Cancelled):
        return f"to continue: {resume}"
    edit = f"edit the files in {run.path}, then: {resume}"
    return f"see more: git ckpt status {run.id}; to continue, {edit}"


def require_valid_observer(observer: Observer | None) -> Observer:
    require_type("observer", observer, (Observer, NoneType), "an Observer")
    for name in vars(Observer) if observer is not None else ():
        if not name.startswith("_"):
            require_callable(f"observer.{name}", getattr(observer, name))
    return observer or Observer()


@dataclass(frozen=True, slots=True)
class DriveResult:
    is_complete: bool  # False: the run is paused or deferred
    after: str | None = None  # phase after which the run paused, or the deferred phase


class RunDriver:
    def __init__(
        self,
        run: Run,
        definition: PipelineDefinition,
        observer: Observer,
        skipped: Texts | None = None,
        agents: Clients | None = None,
    ) -> None:
        self._run, self._session = run, session_of(run)
        self._definition, self._observer = definition, observer
        self._skipped, self._agents = skipped or {}, agents or {}
        # Name, status and seconds of the last ended phase, until the observer has got them.
        self._unreported: tuple[str, str, float | None] | None = None
        self._announce = functools.cache(observer.warn)  # shows each sentence only once
        self._reported_suspects: set[str] = set()

    def drive_run(self) -> DriveResult:
        session = self._session
        token, directory = session.hold.lease.token, session.store.repository.common_dir
        tag = DriverEnvTag(session.id, token, directory)
        try:
            with Watchdog(tag) as watchdog:
                return self._drive_phases(watchdog)
        finally:
            self._report_last_ended_phase()

    def _drive_phases(self, watchdog: Watchdog) -> DriveResult:
        phases, position = self._definition.phases, 0
        while position < len(phases):
            phase = phases[position]
            if phase.name in self._run.completed:
                position += 1
                continue
            if phase.name in self._skipped:
                self._report_last_ended_phase()
                self._run.skip(phase.name, message=shorten_message(self._skipped[phase.name]))
                self._observer.ended(phase.name, "skipped", None)
                continue
            if not self._perform_phase(phase, position, watchdog):
                return DriveResult(is_complete=False, after=phase.name)
            if position + 1 < len(phases) and self._pauses_after(phase):
                answer, revision = self._observer.ask(phase.name)
                if answer == EXIT:
                    return DriveResult(is_complete=False, after=phase.name)
                if answer != CONTINUE:
                    self._repeat_phase(phase, answer, revision)
        return DriveResult(is_complete=True)

    def _pauses_after(self, phase: PhaseDefinition) -> bool:
        autonomy = self._session.pipeline.autonomy or self._definition.autonomy
        ends_group = autonomy == pipelines.BATCH and self._definition.ends_phase_group(phase.name)
        return autonomy == pipelines.CHECKPOINT or ends_group

    def _repeat_phase(self, phase: PhaseDefinition, answer: str, revision: str) -> None:
        run, name = self._run, phase.name
        if answer == RESTART:
            run.restart(name)
            return
        revisions = dict(run.state.get("revisions", {}))
        revisions[name] = "\n\n".join(filter(None, [revisions.get(name, ""), revision]))
        run.state["revisions"] = revisions
        redo_phase(run, name, progress_keys(phase))

    def _perform_phase(self, phase: PhaseDefinition, position: int, watchdog: Watchdog) -> bool:
        # Returns False if the phase asks to be retried later.
        other_options = (phase.autosave, phase.max_recoveries, phase.on_resume)
        phase_options = attempts.PhaseOptions(phase.retries, (PhaseFailed,), *other_options)
        session, observer = self._session, self._observer

        def perform_attempt(attempt: Attempt) -> PhaseResult:
            self._report_last_ended_phase()
            launch.require_unchanged_input_copies(session, self._definition)
            observer.begins(phase.name, attempt.number, position + 1, len(self._definition.phases))
            watched = _WatchedOutput(observer, session.files)
            callbacks = (watched.output, watched.tick, self._agents, self._announce)
            context = PhaseContext(session, self._definition, phase, attempt, watchdog, *callbacks)
            perform_step = (
                STEPS[phase.use].action if phase.use is not None else command.perform_command_phase
            )
            try:
                return perform_step(context)
            finally:
                session.files.write_last_line(b"")

        last = session.last_attempt
        if last is not None and last.phase == phase.name and last.ended == attempts.BLOCKED:
            retry_command = f"git ckpt resume {session.id} --from {shell_quoted(phase.name)}"
            hint = f"see why: git ckpt status {session.id}; then: {retry_command}"
            raise PhaseBlocked(f"phase {phase.name!r} of run {session.id} is blocked", hint=hint)
        watchdog.prepare_supervisor()  # while the start of the phase is recorded
        following_phases = self._definition.phases[position + 1 :]
        finished_names = {*self._run.completed, *self._skipped}
        is_followed = bool(following_phases) and following_phases[0].name not in finished_names
        is_followed = is_followed and not self._pauses_after(phase)
        try:
            session.perform_phase(
                phase.name, perform_attempt, inputs={}, conduct=phase_options, followed=is_followed
            )
        except attempts.PhaseDeferred:
            return False
        finally:
            last = session.last_attempt
            if last is not None and last.phase == phase.name:
                self._report_last_ended_phase()
                self._unreported = (phase.name, last.ended or "interrupted", last.seconds)
            if not is_followed or last is None or last.ended != attempts.COMPLETE:
                self._report_last_ended_phase()
        return True

    def _report_last_ended_phase(self) -> None:
        # Report the end of a phase only after it is recorded.
        phase_end, self._unreported = self._unreported, None
        if phase_end is not None:
            self._session.writer.write_pending()
            self._observer.ended(*phase_end)
            self._warn_of_suspected_secrets()

    def _warn_of_suspected_secrets(self) -> None:
        snapshot = self._run.newest.worktree
        suspects = snapshot.suspects if snapshot is not None else ()
        hits = {suspect.path: suspect for suspect in reversed(suspects)}
        new_suspects = [hits[path] for path in sorted(hits) if path not in self._reported_suspects]
        if new_suspects:
            self._reported_suspects.update(hits)
            places = join_first([f"{hit.path}:{hit.line} ({hit.rule})" for hit in new_suspects], 3)
            advice = f"if it is not a secret: git ckpt allow --secret {new_suspects[0].digest}"
            self._observer.warn(f"captured text that looks like a secret: {places}; {advice}")


def redo_phase(run: Run, name: str, state_keys: Iterable[str]) -> None:
    for key in state_keys:
        run.state.pop(key, None)
    run.redo(name)
