"""Drives a run through its pipeline: phase after phase, with pauses where people want to have a look."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType

from gitckpt.durable.command.env_tag import EnvTag
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.durable.driver.registry import STEPS, memory_of
from gitckpt.durable.phases.command import CommandPhase
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.context import Context
from gitckpt.durable.pipeline.definition import BATCH, CHECKPOINT, PhaseDefinition, PipelineDefinition
from gitckpt.durable.run import next_attempt
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.errors import Cancelled, DeadlineReached, PhaseBlocked, PhaseDeferred, PhaseFailed
from gitckpt.durable.run.retry import Conduct, Ended
from gitckpt.model.arguments import require, require_callable
from gitckpt.model.checkpoint import Attempt
from gitckpt.model.format.document import message_of
from gitckpt.model.names import first_of, shell_word
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.agent.client import Client

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
            if not followed or last is None or last.ended != next_attempt.COMPLETE:
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
        if last is not None and last.phase == phase.name and last.ended == next_attempt.BLOCKED:
            raise PhaseBlocked(
                f"phase {phase.name!r} of run {self._run.id} is blocked",
                hint=f"see why: git ckpt status {self._run.id}; then: git ckpt resume {self._run.id} --from {shell_word(phase.name)}",
            )
