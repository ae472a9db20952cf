"""Drive a run through its pipeline, phase by phase, with pauses for people."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from types import NoneType
from typing import TypedDict

from gitckpt.durable.agent.clients import PRICE, Client, client_of
from gitckpt.durable.command.env_tag import EnvTag
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.durable.phases.command import CommandPhase
from gitckpt.durable.phases.options import PLAN, generate_branch, read_plan
from gitckpt.durable.pipeline import file, launch
from gitckpt.durable.pipeline.definition import BATCH, CHECKPOINT, PhaseDefinition, PipelineDefinition
from gitckpt.durable.pipeline.file import PRESET
from gitckpt.durable.pipeline.launch import Context, Given, filled, plain
from gitckpt.durable.run import attempts
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.attempts import (
    AgentUnusable,
    Cancelled,
    Changed,
    Conduct,
    DeadlineReached,
    Ended,
    PhaseBlocked,
    PhaseDeferred,
    PhaseFailed,
)
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model.arguments import first_of, require, require_callable, shell_word
from gitckpt.model.checkpoint import Attempt, Checkpoint
from gitckpt.model.document import message_of
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass
from gitckpt.store.config import settings
from gitckpt.store.runs import trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gitckpt.store.checkpoints import Checkpoints


class Wishes(TypedDict, total=False):
    """Options of a run of a pipeline; by default, those of before or of the pipeline."""

    autonomy: str | None  # "checkpoint", "batch" or "fully_autonomous"
    timeout: int | None  # of the whole run from now on, in microseconds
    holder: str  # the purpose of the lease, for people


class Resumption(Wishes, total=False):
    """Options for resuming a run of a pipeline."""

    directory: str | None  # of the worktree; default: where it was, or as configured
    take_over: bool  # from a stalled driver: it can write no more and its commands are ended
    phase: str | None  # redo this phase and all after it
    rewind: Checkpoint | None  # return to this checkpoint first; newer content is saved
    accept_changes: bool  # of the pipeline or its inputs
    trust: bool  # adopt a run that was not written here
    inputs: Mapping[str, str]  # changed ones


def _run_loop(context: Context) -> Ended:
    from gitckpt.durable.phases.loop.loop import Loop

    return Loop(context).go()


def _run_review(context: Context) -> Ended:
    from gitckpt.durable.phases.review.phase import carry_out

    return carry_out(context)


def _ask_agent(context: Context) -> Ended:
    from gitckpt.durable.phases.agent import ask

    return ask(context)


def _require_plan(given: Given, _: Callable[[str], str]) -> None:
    if not given.inputs.get(PLAN):
        raise UsageError("there is no plan", hint="name it: git ckpt run PLAN.md; or as an input: -i plan=PLAN.md")


def _require_loop(given: Given, said: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.loop import loop, prompt

    loop.read(said)
    try:
        prompt.require_usable(given.contents.get("prompt", b"").decode("utf-8", "replace"))
    except PhaseFailed as error:
        raise UsageError(error.message, hint=error.hint) from None


def _require_review(_: Given, said: Callable[[str], str]) -> None:
    from gitckpt.durable.phases.review.phase import read

    read(said)


@dataclass(frozen=True, slots=True)
class Step:
    """A built-in step."""

    action: Callable[[Context], Ended]
    options: tuple[str, ...] = ()  # keys of `with`
    memory: tuple[str, ...] = ()  # keys of the state that hold its progress
    # Gets the inputs and a getter of options; raises UsageError if the step would fail at once.
    require: Callable[[Given, Callable[[str], str]], None] | None = None
    needs: str = ""  # the required option, which an earlier phase may determine


_LOOP_OPTIONS = (
    *("plan", "issues", "epic", "agent", "prompt", "conversation", "tests", "done", "until_tests_pass"),
    *("max_iterations", "max_budget", "pause", "agent_timeout", "idle_timeout", "test_timeout"),
)

_REVIEW_OPTIONS = (
    *("task", "title", "coder", "reviewer", "lint", "lint_retries", "filters"),
    *("epic", "max_cycles", "max_budget", "agent_timeout", "force"),
)

STEPS = {
    "read plan": Step(read_plan, require=_require_plan),
    "generate branch": Step(generate_branch),
    "agent": Step(_ask_agent, ("agent", "prompt", "agent_timeout"), needs="prompt"),
    "loop": Step(_run_loop, _LOOP_OPTIONS, ("loop",), _require_loop, needs="plan"),
    "review": Step(_run_review, _REVIEW_OPTIONS, ("review",), _require_review),
}

OPTIONS = {name: step.options for name, step in STEPS.items()}


def memory_of(phase: PhaseDefinition) -> tuple[str, ...]:
    """Return the keys of the state that hold the progress of a phase."""
    return STEPS[phase.use].memory if phase.use in STEPS else ()


def require_sense(definition: PipelineDefinition, given: Given) -> None:
    """Raise UsageError before the start if the options of a step are invalid."""
    for at, phase in enumerate(definition.phases):
        step = STEPS.get(phase.use or "")
        if step is None:
            continue
        try:
            said = {name: filled(text, given.inputs) for name, text in phase.options.items()}
        except KeyError:
            continue  # the state is known when the phase begins
        if step.require is not None:
            step.require(given, lambda name, said=said: said.get(name, ""))  # type: ignore[misc]
        if at == 0 and step.needs and not said.get(step.needs):
            raise UsageError(f"there is no {step.needs}: phase {phase.name!r} needs it", hint=f"name it: -i {step.needs}=PATH")


_RLM = "rlm-act"
_PLAN, _HIERARCHY = "plan_path", "hierarchy_path"
_CRITERIA = ("acceptance_criteria", "acceptanceCriteria")


def skipped(definition: PipelineDefinition, given: Given) -> dict[str, str]:
    """Return the phases to skip: name → reason.

    In rlm-act, a Markdown plan replaces the first four phases. Requirements in JSON replace its
    research and, if a child has acceptance criteria, the decomposition.
    """
    found = {}
    for phase in definition.phases:
        reason = next((name for name in phase.skip_with if given.inputs.get(name)), None)
        if reason is not None:
            found[phase.name] = f"{reason} is given: {given.inputs[reason]}"
    if definition.name == _RLM:
        found |= _rlm(definition, given)
    return found


def require_question(definition: PipelineDefinition, given: Given, skips: Mapping[str, str]) -> None:
    """Raise UsageError if the research phase of rlm-act has no question."""
    is_asked = definition.name == _RLM and definition.source == PRESET and "research" not in skips
    if is_asked and not given.inputs.get("question"):
        raise UsageError("there is no question: the phase 'research' needs it", hint='ask it: -i question="how does it work?"')


def _rlm(definition: PipelineDefinition, given: Given) -> dict[str, str]:
    path = given.inputs.get(_PLAN, "")
    names = [phase.name for phase in definition.phases]
    if path.endswith(".md"):
        return dict.fromkeys(names[:4], f"the plan is given: {path}")
    name = _PLAN if path.endswith(".json") else _HIERARCHY
    hierarchy = given.contents.get(name)
    if hierarchy is None:
        return {}
    try:
        found = _has_criteria(json.loads(hierarchy), is_child=False)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{given.inputs[name]}, the input {name}, is not JSON: {error}", hint="correct it, then start again") from None
    if not found:
        return {}
    return dict.fromkeys(names[:2], "requirements with acceptance criteria are given")


def _has_criteria(node: Any, *, is_child: bool) -> bool:
    if isinstance(node, list):
        return any(_has_criteria(each, is_child=is_child) for each in node)
    if not isinstance(node, dict):
        return False
    if is_child and any(node.get(key) for key in _CRITERIA):
        return True
    return any(_has_criteria(inner, is_child=is_child or key in ("children", "requirements")) for key, inner in node.items())


# Trust: a run that was not written here needs approval before it continues.

_SHOWN = 100  # characters of a command
_CUT = ", cut)"


def require_trust(
    store: Checkpoints, wanted: Sequence[Checkpoint], *, trusted: bool, show: Callable[[str, Sequence[str]], None], adopts: bool = True
) -> None:
    """Adopt the run of checkpoints that were not written here, if trusted.

    `wanted` are all of one run, or one of none. `show` gets the id and the facts before anything is
    done.
    """
    for checkpoint in wanted:
        if trust.is_ours(store, checkpoint):
            continue
        head = store.heads.head(checkpoint.run)[0] if checkpoint.run is not None else ""
        account = trust.account(store, checkpoint, _commands(store, checkpoint))
        if not trusted:
            raise trust.refusal(store, checkpoint, account)
        show(checkpoint.run or checkpoint.id, account)
        if adopts and checkpoint.run is not None:
            trust.adopt(store, checkpoint.run, head)


def _commands(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    # By the pipeline of that name in this repository.
    pipeline = checkpoint.pipeline
    if pipeline is None or pipeline.name is None:
        return []
    top = store.repository.worktree or main_worktree(store.repository) or ""
    try:
        definition = file.read(os.path.join(top, settings.FILE), pipeline.name, OPTIONS)
    except CkptError as error:
        return [f"cannot be told: {error.message}"]
    left = [phase for phase in definition.phases if phase.name not in pipeline.completed]
    commands = [f"{phase.name}: {_brief(phase.run if phase.run is not None else str(phase.use))}" for phase in left]
    if any(command.endswith(_CUT) for command in commands):
        place = f"git ckpt run --print {definition.name}" if definition.source == file.PRESET else f"see {definition.source}"
        commands.append(f"the whole of them: {place}")
    return commands


def _brief(command: str) -> str:
    line = " ".join(command.split())
    if len(line) <= _SHOWN:
        return line
    return f"{line[:_SHOWN].rstrip()}… ({len(command.strip().splitlines())} lines{_CUT}"


# Agents of `gitckpt.toml`: a run only calls those it was started with, so that no branch can
# replace their commands.

_ROLES = ("agent", "coder", "reviewer")
_STEPS = ("agent", "loop", "review")  # phases that call an agent


def known_to(newest: Checkpoint, definition: PipelineDefinition, inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the values for placeholders in options: state and inputs of a run."""
    given = newest.pipeline.inputs if newest.pipeline is not None else {}
    return {**plain(newest.state), **definition.inputs, **given, **inputs}


def note(repository: Repository, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]) -> None:
    """Record on this machine the agents that a person started or accepted a run with."""
    digests = {_digest(client) for client in _called(definition, known, clients)} - settings.approved(repository)
    if digests:
        settings.note(repository, digests)


def require_noted(
    repository: Repository, run: str, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Raise `Changed` if a run calls an agent that is not recorded; see `note`."""
    approved = settings.approved(repository)
    new = dict.fromkeys(client for client in _called(definition, known, clients) if _digest(client) not in approved)
    if new:
        raise Changed(run, [f"the agent {client.name} is {client.command}" for client in new])


def require_there(
    definition: PipelineDefinition, skipped: Collection[str], known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Raise AgentUnusable before the start if the program of an agent is missing.

    Only checks the phases before the first command of a custom pipeline, as that may install an
    agent. The path of a program may only exist in the run's worktree.
    """
    for phase in definition.phases:
        if phase.name in skipped:
            continue
        if phase.run is not None and definition.source != PRESET:
            return
        env = {**os.environ, **definition.env, **phase.env}
        for role in _ROLES if phase.use else ():
            try:
                wanted = filled(phase.options.get(role, ""), known)
                missing = client_of(wanted, clients).missing(env, os.curdir) if wanted else None
            except (KeyError, UsageError):
                continue  # the state is known when the phase begins; the phase reports a bad command
            if missing is not None and (os.sep not in missing or os.path.isabs(missing)):
                options = f"--{role} CLIENT of git ckpt loop and review, -i {role}=CLIENT of git ckpt run"
                raise AgentUnusable(f"the {role} is not there: {missing}", hint=f"install it, or name another one: {options}")


def _called(definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]) -> Iterator[Client]:
    for phase in definition.phases:
        for role in _ROLES if phase.use and clients else ():
            name = _filled(phase.options.get(role, ""), known)
            if name in clients:
                yield clients[name]


def named(definition: PipelineDefinition, completed: Collection[str], known: Mapping[str, str]) -> list[str]:
    """Return the agents, or else the steps, that the remaining phases call."""
    found: dict[str, None] = {}
    for phase in definition.phases:
        if phase.name in completed or phase.use not in _STEPS:
            continue
        names = [_filled(phase.options.get(role, ""), known) for role in _ROLES]
        found |= dict.fromkeys([name for name in names if name] or [phase.use])
    return list(found)


def _filled(text: str, known: Mapping[str, str]) -> str:
    try:
        return filled(text, known)
    except KeyError:
        return ""  # the state is known when the phase begins


def _digest(client: Client) -> str:
    return settings.digest_of("agents", [getattr(client, name) for name in client.__match_args__ if name != PRICE])


# The answers to a pause.
CONTINUE, REVISE, RESTART, EXIT = "continue", "revise", "restart", "exit"


class Observer:
    """Receives events of a driver and answers its pauses.

    This base class ignores events and leaves a run that pauses.
    """

    def started(self, run: str) -> None:
        """A run, named by its id, is now driven."""

    def warn(self, sentence: str) -> None:
        """A problem occurred that does not end the run."""

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        """A phase begins, number `number` of `total`."""

    def output(self, data: bytes) -> None:
        """A command wrote output."""

    def tick(self, seconds: float) -> None:
        """A command has been running for `seconds`; called about once a second."""

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        """A phase ended or was skipped."""

    def ask(self, phase: str) -> tuple[str, str]:  # noqa: ARG002 - for those who ask
        """Return the answer to a pause after a phase, and the text of a revision.

        The answer is "continue", "revise", "restart" or "exit".
        """
        return EXIT, ""


def advice(error: PhaseFailed, run: ActiveRun) -> str:
    if isinstance(error, DeadlineReached):
        return f"to give it more time: git ckpt resume {run.id} --timeout 1h"
    if isinstance(error, PhaseBlocked) and run.last_attempt is not None:
        return f"when what blocks it is out of the way: git ckpt resume {run.id} --from {shell_word(run.last_attempt.phase)}"
    if isinstance(error, Cancelled):
        return f"to go on with it: git ckpt resume {run.id}"
    return f"see more: git ckpt status {run.id}; to go on: git ckpt resume {run.id}"


def told(observer: Observer | None) -> Observer:
    """Return the observer, or a silent one; raise UsageError for a bad one."""
    require("observer", observer, (Observer, NoneType), "an Observer")
    for name in vars(Observer) if observer is not None else ():
        if not name.startswith("_"):
            require_callable(f"observer.{name}", getattr(observer, name))
    return observer or Observer()


@dataclass(frozen=True, slots=True)
class Result:
    is_complete: bool  # otherwise the run is paused
    after: str | None = None  # the phase before the pause


class Driver:
    def __init__(
        self,
        run: ActiveRun,
        definition: PipelineDefinition,
        observer: Observer,
        skipped: Mapping[str, str] | None = None,
        agents: Mapping[str, Client] | None = None,
    ) -> None:
        self._run = run
        self._definition = definition
        self._observer = observer
        self._skipped = skipped or {}
        self._agents = agents or {}
        self._untold: tuple[str, str, float | None] | None = None
        self._announced: set[str] = set()
        self._suspects: set[str] = set()

    def drive(self) -> Result:
        run = self._run
        try:
            with Watchdog(EnvTag(run.id, run.hold.lease.token, run.store.repository.common_dir)) as watchdog:
                return self._drive(watchdog)
        finally:
            self._tell()

    def _drive(self, watchdog: Watchdog) -> Result:
        phases, position = self._definition.phases, 0
        while position < len(phases):
            phase = phases[position]
            if phase.name in self._run.completed:
                position += 1
                continue
            if phase.name in self._skipped:
                self._tell()
                self._run.skip(phase.name, message=message_of(self._skipped[phase.name]))
                self._observer.ended(phase.name, "skipped", None)
                continue
            if not self._do(phase, position, watchdog):
                return Result(is_complete=False, after=phase.name)
            if position + 1 < len(phases) and self._pauses_after(phase):
                answer, revision = self._observer.ask(phase.name)
                if answer == EXIT:
                    return Result(is_complete=False, after=phase.name)
                if answer != CONTINUE:
                    self._again(phase, answer, revision)
        return Result(is_complete=True)

    def _is_followed(self, phase: PhaseDefinition, at: int) -> bool:
        coming = self._definition.phases[at + 1 : at + 2]
        return bool(coming) and not self._pauses_after(phase) and coming[0].name not in (*self._run.completed, *self._skipped)

    def _pauses_after(self, phase: PhaseDefinition) -> bool:
        autonomy = self._run.pipeline.autonomy or self._definition.autonomy
        return autonomy == CHECKPOINT or (autonomy == BATCH and self._definition.ends_group(phase.name))

    def _again(self, phase: PhaseDefinition, answer: str, revision: str) -> None:
        if answer == RESTART:
            self._run.restart(phase.name)
        else:
            self._run.revise(phase.name, revision, memory_of(phase))

    def _do(self, phase: PhaseDefinition, at: int, watchdog: Watchdog) -> bool:
        # Returns False if the phase asks to be retried later.
        conduct = Conduct(phase.retries, (PhaseFailed,), phase.autosave, phase.max_recoveries, phase.on_resume)

        def action(attempt: Attempt) -> Ended:
            self._tell()
            launch.require_copies(self._run, self._definition)
            observer = self._observer
            observer.begins(phase.name, attempt.number, at + 1, len(self._definition.phases))
            told = (observer.output, observer.tick, self._agents, self._announce)
            context = Context(self._run, self._definition, phase, attempt, watchdog, *told)
            return STEPS[phase.use].action(context) if phase.use is not None else CommandPhase(context).perform()

        self._require_not_blocked(phase)
        watchdog.prepare()  # ready when the start of the phase is recorded
        followed = self._is_followed(phase, at)
        try:
            self._run.perform(phase.name, action, inputs={}, conduct=conduct, followed=followed)
        except PhaseDeferred:
            return False
        finally:
            last = self._run.last_attempt
            if last is not None and last.phase == phase.name:
                self._tell()
                self._untold = (phase.name, last.ended or "interrupted", last.seconds)
            if not followed or last is None or last.ended != attempts.COMPLETE:
                self._tell()
        return True

    def _announce(self, sentence: str) -> None:
        if sentence not in self._announced:
            self._announced.add(sentence)
            self._observer.warn(sentence)

    def _tell(self) -> None:
        # Report the end of a phase only after it is recorded.
        untold, self._untold = self._untold, None
        if untold is not None:
            self._run.flush()
            self._observer.ended(*untold)
            self._warn_of_suspects()

    def _warn_of_suspects(self) -> None:
        files = self._run.newest.worktree
        first = {suspect.path: suspect for suspect in reversed(files.suspects)} if files is not None else {}
        fresh = [suspect for path, suspect in sorted(first.items()) if path not in self._suspects]
        if fresh:
            self._suspects.update(first)
            named = first_of([f"{each.path}:{each.line} ({each.rule})" for each in fresh], 3)
            advice = f"if it is none: git ckpt allow --secret {fresh[0].digest}"
            self._observer.warn(f"captured, and looks like a secret: {named}; {advice}")

    def _require_not_blocked(self, phase: PhaseDefinition) -> None:
        last = self._run.last_attempt
        if last is not None and last.phase == phase.name and last.ended == attempts.BLOCKED:
            raise PhaseBlocked(
                f"phase {phase.name!r} of run {self._run.id} is blocked",
                hint=f"see why: git ckpt status {self._run.id}; then: git ckpt resume {self._run.id} --from {shell_word(phase.name)}",
            )
