"""Drives a run through its pipeline: phase after phase, with pauses where people want to have a look."""

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


# What whoever starts a run of a pipeline, or goes on with it, may wish for: the arguments of `Pipelines.run` and `Pipelines.resume`.


class Wishes(TypedDict, total=False):
    """How a run of a pipeline shall be driven."""

    autonomy: str | None
    """When it pauses, from now on: "checkpoint", "batch" or "fully_autonomous"; by default as before, or as the pipeline says."""

    timeout: int | None
    """How long the whole run may take from now on, in microseconds; by default as before, or as the pipeline says."""

    holder: str
    """What its lease is taken for, for people."""


class Resumption(Wishes, total=False):
    """How a run of a pipeline is gone on with."""

    directory: str | None
    """Where its worktree is made; by default where it was, or where the settings say."""

    take_over: bool
    """Whether it is taken from a driver that is alive and stalled; that one can write nothing more, and its commands are ended."""

    phase: str | None
    """A phase that is done again, with all after it."""

    rewind: Checkpoint | None
    """An earlier checkpoint of the run to go back to first; what is newer is saved."""

    accept_changes: bool
    """Whether it goes on though the pipeline, or what it was started with, has changed."""

    trust: bool
    """Whether a run that was not written here is taken for one of ours, as it stands."""

    inputs: Mapping[str, str]
    """Inputs that are other ones from now on."""


# The steps that gitckpt knows itself: what a phase with `use` does instead of a command.


def _run_loop(context: Context) -> Ended:
    """Lets an agent work at a plan, again and again, until it is carried out."""
    from gitckpt.durable.phases.loop.loop import Loop

    return Loop(context).go()


def _run_review(context: Context) -> Ended:
    """Lets a coder work at a task and a reviewer judge the work, until it is approved."""
    from gitckpt.durable.phases.review.phase import carry_out

    return carry_out(context)


def _ask_agent(context: Context) -> Ended:
    """Asks an agent what a file says."""
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
    """Something that gitckpt does itself.

    Attributes:
        action: what it does.
        options: what `with` may say of it.
        memory: keys of the state that say how far it has come.
        require: raises `UsageError` where it would fail at once, given the inputs, and what is said of an option by its name.
        needs: the option without which it can do nothing, which an earlier phase may find out; "" where there is none.
    """

    action: Callable[[Context], Ended]
    options: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    require: Callable[[Given, Callable[[str], str]], None] | None = None
    needs: str = ""


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
"""Name → what it does."""

OPTIONS = {name: step.options for name, step in STEPS.items()}
"""Name → what `with` may say of it."""


def memory_of(phase: PhaseDefinition) -> tuple[str, ...]:
    """Returns the keys of the state that say how far a phase has come, which is done again from its beginning without them."""
    return STEPS[phase.use].memory if phase.use in STEPS else ()


def require_sense(definition: PipelineDefinition, given: Given) -> None:
    """Looks, before a run starts, whether what its steps are carried out with can be understood.

    Args:
        definition: the pipeline.
        given: what it is started with.

    Raises:
        UsageError: something cannot.
    """
    for at, phase in enumerate(definition.phases):
        step = STEPS.get(phase.use or "")
        if step is None:
            continue
        try:
            said = {name: filled(text, given.inputs) for name, text in phase.options.items()}
        except KeyError:
            continue  # what the state says is known when the phase begins
        if step.require is not None:
            step.require(given, lambda name, said=said: said.get(name, ""))  # type: ignore[misc]
        if at == 0 and step.needs and not said.get(step.needs):
            raise UsageError(f"there is no {step.needs}: phase {phase.name!r} needs it", hint=f"name it: -i {step.needs}=PATH")


# Phases that need not be done, as their results are given: inputs that a phase names, and the plans of the preset rlm-act.


_RLM = "rlm-act"
_PLAN, _HIERARCHY = "plan_path", "hierarchy_path"
_CRITERIA = ("acceptance_criteria", "acceptanceCriteria")


def skipped(definition: PipelineDefinition, given: Given) -> dict[str, str]:
    """Returns the phases of a pipeline that need not be done: name → why.

    A plan in Markdown stands for the first four phases of rlm-act. Requirements in JSON stand for its research; for the decomposition too,
    where one of their children has acceptance criteria already.

    Args:
        definition: the pipeline.
        given: what it is started with.

    Raises:
        UsageError: requirements that are given are not JSON.
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
    """Raise `UsageError` where the preset rlm-act is to be started with its research, and there is no question."""
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
        found = _has_criteria(hierarchy)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{given.inputs[name]}, the input {name}, is not JSON: {error}", hint="correct it, then start again") from None
    if not found:
        return {}
    return dict.fromkeys(names[:2], "requirements with acceptance criteria are given")


def _has_criteria(data: bytes) -> bool:
    """Tells whether a hierarchy of requirements has acceptance criteria for one of its children.

    Args:
        data: the hierarchy as JSON.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply.
    """
    return _search(json.loads(data), is_child=False)


def _search(node: Any, *, is_child: bool) -> bool:
    if isinstance(node, list):
        return any(_search(each, is_child=is_child) for each in node)
    if not isinstance(node, dict):
        return False
    if is_child and any(node.get(key) for key in _CRITERIA):
        return True
    return any(_search(inner, is_child=is_child or key in ("children", "requirements")) for key, inner in node.items())


# Asks for trust before a run of somebody else's goes on, and takes it for one of ours once that is given.


_SHOWN = 100
"""So many characters of a command are shown."""

_CUT = ", cut)"


def require_trust(
    store: Checkpoints, wanted: Sequence[Checkpoint], *, trusted: bool, show: Callable[[str, Sequence[str]], None], adopts: bool = True
) -> None:
    """Looks whether checkpoints were written here; where they were not, and are trusted, what decides is shown, and their run is adopted.

    Args:
        wanted: what is to be gone on from: of one run, or one that is of none.
        trusted: whether somebody says that what others have written may be gone on from.
        show: is given the id of the checkpoint, and what decides, a line each, before anything is done.
        adopts: whether the run becomes one of ours.

    Raises:
        Untrusted: one was not written here, and is not trusted.
        CkptError: it cannot be noted that the run is adopted.
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
    """Returns what a run would do, by the pipeline of that name here, a line for each phase that it does not call complete."""
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
    """Return a command on one line; of a long one its beginning, and how many lines it has."""
    line = " ".join(command.split())
    if len(line) <= _SHOWN:
        return line
    return f"{line[:_SHOWN].rstrip()}… ({len(command.strip().splitlines())} lines{_CUT}"


# Which agents of `gitckpt.toml` a run calls: those that it was started with; no branch puts another command in their place.


_ROLES = ("agent", "coder", "reviewer")
_STEPS = ("agent", "loop", "review")
"""The steps that call an agent."""


def known_to(newest: Checkpoint, definition: PipelineDefinition, inputs: Mapping[str, str]) -> dict[str, str]:
    """Returns what options of phases may name: what the state of a run says, and its inputs, by name.

    Args:
        newest: the newest checkpoint of the run.
        definition: its pipeline.
        inputs: those that are other ones from now on.
    """
    given = newest.pipeline.inputs if newest.pipeline is not None else {}
    return {**plain(newest.state), **definition.inputs, **given, **inputs}


def note(repository: Repository, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]) -> None:
    """Notes, on this machine, the agents of the file that somebody has started a run with, or accepts.

    Args:
        definition: the pipeline of the run.
        known: its inputs, and what its state says, by name.
        clients: the agents of the file, by name.

    Raises:
        CkptError: it cannot be noted.
    """
    digests = {_digest(client) for client in _called(definition, known, clients)} - settings.approved(repository)
    if digests:
        settings.note(repository, digests)


def require_noted(
    repository: Repository, run: str, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Looks whether each agent of the file that a run calls is one that a run was started with here; the arguments are those of `note`.

    Raises:
        Changed: one is not; it is named with its command.
    """
    approved = settings.approved(repository)
    new = dict.fromkeys(client for client in _called(definition, known, clients) if _digest(client) not in approved)
    if new:
        raise Changed(run, [f"the agent {client.name} is {client.command}" for client in new])


def require_there(
    definition: PipelineDefinition, skipped: Collection[str], known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Look, before a run starts, whether the programs of the agents that it calls are there.

    A command of the file's own pipelines may install one, so only the phases before the first such command are looked at; and what a
    command with a path is, the run's worktree decides.

    Args:
        definition: the pipeline.
        skipped: the names of phases that are not done.
        known: what options may name, by name.
        clients: the agents of the file, by name.

    Raises:
        AgentUnusable: one is not there.
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
                continue  # which state names it, is known when the phase begins; what is no command, the phase says
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
    """Return the agents that the remaining phases of a run call, or their steps.

    Args:
        definition: the pipeline of the run.
        completed: the phases that are complete.
        known: its inputs, and what its state says, by name.
    """
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
        return ""  # which state names it, is known when the phase begins


def _digest(client: Client) -> str:
    return settings.digest_of("agents", [getattr(client, name) for name in client.__match_args__ if name != PRICE])


# Drives a run through its pipeline: phase after phase, with pauses where people want to have a look.


CONTINUE, REVISE, RESTART, EXIT = "continue", "revise", "restart", "exit"
"""What may be answered where a run pauses."""


class Observer:
    """Whoever is told what a driver does, and may be asked. This one keeps silent, and lets a run that pauses be left."""

    def started(self, run: str) -> None:
        """A run is driven from now on; this is its id."""

    def warn(self, sentence: str) -> None:
        """Something went wrong that does not end the run."""

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        """A phase begins; it is number `number` of `total`."""

    def output(self, data: bytes) -> None:
        """A command printed something."""

    def tick(self, seconds: float) -> None:
        """A command has been running for so long; about once a second."""

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        """A phase ended, or was skipped."""

    def ask(self, phase: str) -> tuple[str, str]:  # noqa: ARG002 - for those who ask
        """A run pauses after a phase: returns "continue", "revise", "restart" or "exit", and what is to be revised."""
        return EXIT, ""


def advice(error: PhaseFailed, run: ActiveRun) -> str:
    """Returns what to do next, for an error that does not say it."""
    if isinstance(error, DeadlineReached):
        return f"to give it more time: git ckpt resume {run.id} --timeout 1h"
    if isinstance(error, PhaseBlocked) and run.last_attempt is not None:
        return f"when what blocks it is out of the way: git ckpt resume {run.id} --from {shell_word(run.last_attempt.phase)}"
    if isinstance(error, Cancelled):
        return f"to go on with it: git ckpt resume {run.id}"
    return f"see more: git ckpt status {run.id}; to go on: git ckpt resume {run.id}"


def told(observer: Observer | None) -> Observer:
    """Returns who is told: by default nobody.

    Raises:
        UsageError: it is no observer, or one of its methods is asynchronous.
    """
    require("observer", observer, (Observer, NoneType), "an Observer")
    for name in vars(Observer) if observer is not None else ():
        if not name.startswith("_"):
            require_callable(f"observer.{name}", getattr(observer, name))
    return observer or Observer()


@dataclass(frozen=True, slots=True)
class Result:
    """How far a driver came.

    Attributes:
        is_complete: whether every phase is; if not, the run is paused.
        after: the phase after which it is paused.
    """

    is_complete: bool
    after: str | None = None


class Driver:
    """Drives a run through a pipeline.

    Args:
        definition: the pipeline.
        observer: is told and asked.
        skipped: phase → why it need not be done, with the message for its checkpoint.
        agents: the agents that are configured, by name.
    """

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
        """Does every phase that is not complete, in order.

        Raises:
            PhaseFailed: one failed, is blocked, or the run has to stop.
            LeaseLost: somebody else drives the run by now.
        """
        run = self._run
        try:
            with Watchdog(EnvTag(run.id, run.hold.lease.token, run.store.repository.common_dir)) as watchdog:
                return self._drive(watchdog)
        finally:
            self._tell()

    def _drive(self, watchdog: Watchdog) -> Result:
        phases, at = self._definition.phases, 0
        while at < len(phases):
            phase = phases[at]
            if phase.name in self._run.completed:
                at += 1
                continue
            if phase.name in self._skipped:
                self._tell()
                self._run.skip(phase.name, message=message_of(self._skipped[phase.name]))
                self._observer.ended(phase.name, "skipped", None)
                continue
            if not self._do(phase, at, watchdog):
                return Result(is_complete=False, after=phase.name)
            if at + 1 < len(phases) and self._pauses_after(phase):
                answer, revision = self._observer.ask(phase.name)
                if answer == EXIT:
                    return Result(is_complete=False, after=phase.name)
                if answer != CONTINUE:
                    self._again(phase, answer, revision)
        return Result(is_complete=True)

    def _is_followed(self, phase: PhaseDefinition, at: int) -> bool:
        """Tells whether another phase begins as soon as this one is complete."""
        coming = self._definition.phases[at + 1 : at + 2]
        return bool(coming) and not self._pauses_after(phase) and coming[0].name not in (*self._run.completed, *self._skipped)

    def _pauses_after(self, phase: PhaseDefinition) -> bool:
        autonomy = self._run.pipeline.autonomy or self._definition.autonomy
        return autonomy == CHECKPOINT or (autonomy == BATCH and self._definition.ends_group(phase.name))

    def _again(self, phase: PhaseDefinition, answer: str, revision: str) -> None:
        """Lets a phase be done again: with what shall be revised, or from where it began."""
        if answer == RESTART:
            self._run.restart(phase.name)
        else:
            self._run.revise(phase.name, revision, memory_of(phase))

    def _do(self, phase: PhaseDefinition, at: int, watchdog: Watchdog) -> bool:
        """Does a phase; returns False where it asks to be tried later."""
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
        watchdog.prepare()  # it is ready once it is recorded that the phase begins
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
        """Tells what a person is to know before it happens, once."""
        if sentence not in self._announced:
            self._announced.add(sentence)
            self._observer.warn(sentence)

    def _tell(self) -> None:
        """Tells how the last phase ended: not before it is recorded."""
        untold, self._untold = self._untold, None
        if untold is not None:
            self._run.flush()
            self._observer.ended(*untold)
            self._warn_of_suspects()

    def _warn_of_suspects(self) -> None:
        """Name the files that look like secrets in the newest checkpoint, each once in a run."""
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
