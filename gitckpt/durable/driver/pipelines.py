"""The public API of pipelines: start, resume and drive their runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from gitckpt.durable.agent.clients import Client, read_clients
from gitckpt.durable.driver import driver
from gitckpt.durable.driver.driver import (
    OPTIONS,
    Driver,
    Observer,
    Resumption,
    Wishes,
    advice,
    memory_of,
    redo,
    require_observer,
    require_question,
    require_sense,
    skipped,
)
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import file, launch
from gitckpt.durable.pipeline.definition import REMOVE_WHEN_PUSHED, PipelineDefinition
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import PhaseFailed, Session
from gitckpt.durable.run.opener import release_completed, reopen
from gitckpt.durable.run.run import Run, incomplete_record, session_of
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import ids, runstate, times
from gitckpt.model.arguments import require_text
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import CkptError, RunExists, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files, summary
from gitckpt.store.store import Store, inside

COMPLETE, PAUSED, DEFERRED = "complete", "paused", "deferred"


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan of a run of a pipeline."""

    definition: PipelineDefinition  # has `phases`, `autonomy` and `source`, the defining file
    given: launch.Given  # has `inputs` by name, and the `contents` of those that are files
    skipped: Mapping[str, str]  # phase → reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of driving a run of a pipeline."""

    run: str
    status: str  # "complete", "paused", or "deferred" if a phase asks to be retried later
    path: str | None  # the top of the worktree; None if it does not exist
    after: str | None = None  # the phase before the pause, or the deferred one
    removed: bool = False  # the pipeline removes its worktree when all is pushed
    stays: str | None = None  # why the worktree stays although the pipeline removes it
    was_complete: bool = False  # nothing was left to do


class Pipelines:
    """The pipelines of a repository: those in `gitckpt.toml` and the presets.

    The file is that of the store's worktree, or else of the main one. `observer` receives events
    and answers pauses.
    """

    def __init__(self, store: Store, observer: Observer | None = None) -> None:
        self._store = inside(store)
        self._observer = require_observer(observer)

    def names(self) -> list[str]:
        """Return the names of the pipelines, presets last."""
        names = file.names(self._file())
        return list(dict.fromkeys([*names, *file.PRESETS]))

    @staticmethod
    def preset(name: str) -> str:
        """Return the TOML of a preset, as `git ckpt run --print`."""
        return file.preset_text(name)

    def preview(self, name: str, inputs: Mapping[str, str] | None = None) -> Preview:
        """Return what a run would do, without changing anything.

        Args:
            inputs: by name; files by paths relative to the current directory.

        Raises:
            NotFoundError: unknown pipeline.
            ConfigError: the file has mistakes.
            UsageError: unknown input, unreadable file or invalid value.
        """
        definition = self._definition(name)
        given = launch.read_inputs(self._store, definition, inputs or {})
        require_sense(definition, given)
        skips = skipped(definition, given)
        require_question(definition, given, skips)
        return Preview(definition, given, skips)

    def run(
        self,
        name: str,
        inputs: Mapping[str, str] | None = None,
        *,
        about: str | None = None,
        base: str = "HEAD",
        key: str | None = None,
        **wishes: Unpack[Wishes],
    ) -> Outcome:
        """Run a pipeline in a new worktree, or resume the run with the key.

        Args:
            name: the pipeline; "loop" has an agent carry out the input `plan`, "review" has a coder
                and a reviewer work on `title`.
            inputs: as for `preview`.
            about: the subject; part of the run id. Default: the pipeline's name.
            base: the rev that the worktree starts with.
            key: the caller's unique name: repeated calls share one run.
            wishes: `autonomy`, `timeout` (in microseconds) and `holder`; see `Wishes`.

        Raises:
            NotFoundError, ConfigError, UsageError: as `preview`, or unknown rev.
            Changed: the run with that key was started with something else.
            Untrusted: the run with that key was not written here.
            LeaseHeld: a live process drives the run with that key.
            PhaseFailed: a phase failed or is blocked, or the run must stop; see `hint`.
                `AgentUnusable` without a run if the program of an agent is missing.
            LeaseLost: another process drives the run now.
            CkptError: checkpoints could not be written.
        """
        mode = _autonomy(wishes, Wishes)
        # Do not execute commands from a file with mistakes.
        settings.read(self._store.repository).require_correct()
        plan = self.preview(name, inputs)
        try:
            if key is not None:
                self._store.claim(key).require_free()
            # Note the agents before the run exists: after a kill, it continues with them.
            known = {**plan.definition.inputs, **plan.given.inputs}
            clients = self._clients(plan.definition)
            driver.require_installed(plan.definition, plan.skipped, known, clients)
            called = driver.called_clients(plan.definition, known, clients)
            driver.note(self._store.repository, called)
            first = launch.start(
                self._store,
                plan.definition,
                plan.given,
                name=about or name,
                base=base,
                autonomy=mode,
                timeout=wishes.get("timeout"),
                key=key,
            )
        except RunExists as error:
            newest = self._store.heads.catch_up(error.run)
            driver.require_trust(self._store, [newest])  # the key may have been fetched
            launch.require_same_start(newest, plan.definition, plan.given)
            if newest.label == ref_names.RUN_COMPLETE:
                release_completed(self._store, error.run)
                return self._was_complete(error.run, plan.definition)
            return self.resume(error.run, **wishes)
        plan.given.warn_of_secrets(self._store, self._observer.warn)
        holder = wishes.get("holder", "a program")
        opening = reopen(self._store, str(first.run), adapter="plumbing", holder=holder)
        run = Run(Session(opening), opening.remarks)
        return self._drive(run, plan.definition, plan.skipped)

    def resume(self, run: str, **how: Unpack[Resumption]) -> Outcome:
        """Continue a run of a pipeline at its first incomplete phase.

        Args:
            how: see `Resumption`.

        Raises:
            NotFoundError: unknown run, pipeline or phase.
            UsageError: the run is complete or has no pipeline, or an input is unknown or a file.
            Untrusted: run or checkpoint was not written here; see `candidates`.
            Changed: the pipeline or its inputs changed.
            Exception: as `run`.
        """
        mode = _autonomy(how, Resumption)
        newest = self._store.heads.catch_up(run)
        if newest.pipeline is None or newest.pipeline.name is None:
            raise UsageError(
                f"run {run} has no pipeline",
                hint=f"open its worktree: git ckpt resume --no-run {run}",
            )
        definition = file.read_of_run(self._file(), newest.pipeline.name, OPTIONS, run)
        phase, target = how.get("phase"), how.get("rewind")
        first = definition.phase(phase) if phase is not None else None
        trusted, accepts = how.get("trust", False), how.get("accept_changes", False)
        checkpoints = [newest, *([target] if target is not None else [])]
        driver.require_trust(self._store, checkpoints, trusted=trusted)
        goes_back = first is not None or target is not None
        if not goes_back and release_completed(self._store, run):
            return self._was_complete(run, definition)
        settings.read(self._store.repository).require_correct()
        if not (trusted or accepts):
            known = driver.known_to(newest, definition, how.get("inputs", {}))
            called = driver.called_clients(definition, known, self._clients(definition))
            driver.require_noted(self._store.repository, run, called)
        opening = reopen(
            self._store,
            run,
            accept_changes=accepts,
            adapter="plumbing",
            holder=how.get("holder", "a program"),
            again=goes_back,
            directory=how.get("directory"),
            take_over=how.get("take_over", False),
        )
        opened = Run(Session(opening), opening.remarks)
        try:
            if target is not None:
                opened.rewind(target)
            elif (interrupted := runstate.rewinding_to(newest)) is not None:
                self._observer.warn(
                    f"an interrupted rewind to {interrupted[: ids.SHORT]} was undone; "
                    f"to repeat it: git ckpt resume {interrupted} --rewind"
                )
            session = session_of(opened)
            self._update_pipeline(session, definition, how, mode)
            if first is not None:
                later = definition.phases[definition.phases.index(first) :]
                redo(opened, first.name, {key for other in later for key in memory_of(other)})
            skips = skipped(definition, launch.given_to(session, definition))
        except BaseException:
            opened.close()
            raise
        return self._drive(opened, definition, skips)

    def require_ours(
        self,
        checkpoints: Sequence[Checkpoint],
        *,
        trust: bool = False,
        show: Callable[[str, Sequence[str]], None] = lambda *_: None,
        adopt: bool = True,
    ) -> None:
        """Adopt the run of foreign checkpoints, if trusted, as `resume` does.

        Args:
            checkpoints: the checkpoints to continue from; all of one run, or one of none.
            show: called before anything is done, with the id and the facts, one per line: files,
                state and commands.
            adopt: adopt the run; not needed for a fork.

        Raises:
            Untrusted: a checkpoint was not written here and is not trusted; see `candidates`.
            CkptError: the adoption cannot be recorded.
        """
        driver.require_trust(self._store, checkpoints, trusted=trust, show=show, adopts=adopt)

    def refactor(self, run: str, task: str) -> None:
        """Change the task of a running "review"; the coder gets it in the next cycle.

        Raises:
            NotFoundError: unknown run.
            UsageError: the run is not an open review, or the task is empty.
        """
        # Two dozen modules, only for reviews.
        from gitckpt.durable.phases.review import phase as review

        require_text("task", task)
        if not task.strip():
            raise UsageError("the new task is empty", hint="describe the changed task")
        status = summary.summary_of(self._store, run).status
        newest = self._store.heads.read(run)
        if (
            status == runstate.COMPLETE
            or newest.pipeline is None
            or newest.pipeline.name != "review"
        ):
            raise UsageError(
                f"run {run} is not an open review", hint="list the runs: git ckpt runs"
            )
        review.refactor(run_files.of_run(self._store.repository, run).path, task)

    def _file(self) -> str:
        repository = self._store.repository
        return os.path.join(repository.worktree or main_worktree(repository) or "", settings.FILE)

    def _clients(self, definition: PipelineDefinition) -> dict[str, Client]:
        return read_clients(self._file()) if any(phase.use for phase in definition.phases) else {}

    def _definition(self, name: str) -> PipelineDefinition:
        # Checks the whole file: finds [pipeline.NAME], a likely typo.
        settings.read(self._store.repository)
        return file.read(self._file(), name, OPTIONS)

    def _update_pipeline(
        self, run: Session, definition: PipelineDefinition, how: Resumption, mode: str | None
    ) -> None:
        accept = how.get("accept_changes", False)
        pipeline = launch.update_pipeline(self._store, run, definition, accept=accept)
        if how.get("inputs"):
            pipeline = launch.changed_inputs(pipeline, definition, how["inputs"])
        if mode is not None:
            pipeline = replace(pipeline, autonomy=mode)
        timeout = how.get("timeout")
        if timeout is not None:
            pipeline = replace(pipeline, deadline=times.to_text(self._store.clock() + timeout))
        run.writer.pipeline = pipeline

    def _drive(self, run: Run, definition: PipelineDefinition, skips: Mapping[str, str]) -> Outcome:
        try:
            self._observer.started(run.id)
            redefined = file.redefinition(definition)
            for remark in (*run.remarks, *([redefined] if redefined is not None else [])):
                self._observer.warn(remark)
            clients = self._clients(definition)
            known = driver.known_to(run.newest, definition, {})
            called = driver.called_clients(definition, known, clients)
            driver.note(self._store.repository, called)
            result = Driver(run, definition, self._observer, skips, clients).drive()
            if result.is_complete:
                run.finish()
        except PhaseFailed as error:
            if error.hint is None:
                raise error.but(hint=advice(error, run)) from None
            raise
        finally:
            self._close(run)
            self._expire(definition)
        if run.unwritten:
            raise incomplete_record(run)
        if result.is_complete:
            return self._complete(run.id, definition, run.path)
        is_deferred = run.last_attempt is not None and run.last_attempt.ended == attempts.PARTIAL
        return Outcome(run.id, DEFERRED if is_deferred else PAUSED, run.path, result.after)

    def _was_complete(self, run: str, definition: PipelineDefinition) -> Outcome:
        path = summary.summary_of(self._store, run).path
        return replace(self._complete(run, definition, path), was_complete=True)

    def _complete(self, run: str, definition: PipelineDefinition, path: str | None) -> Outcome:
        from gitckpt.store.retention import worktree

        files = self._store.heads.read(run).worktree
        is_clean = files is not None and not files.dirty  # uncommitted files were not pushed
        if (
            path is None
            or definition.worktree != REMOVE_WHEN_PUSHED
            or not is_clean
            or not worktree.is_pushed(self._store, run)
        ):
            return Outcome(run, COMPLETE, path)
        stays = worktree.remove_worktree(self._store, run)
        return Outcome(run, COMPLETE, path if stays else None, removed=not stays, stays=stays)

    def _expire(self, definition: PipelineDefinition) -> None:
        # A failure to remove old runs is no failure of the run that just ended.
        from gitckpt.store.retention import expiry, maintenance

        try:
            if expiry.doubt(self._store.repository, self._store.clock()) is not None:
                return  # left to the next run that ends, or to maintenance
            config = settings.read(self._store.repository)
            config.require_correct()
            age = definition.retention
            if age is None:
                age = config.policy.runs_older_than
            elif definition.source != file.PRESET:
                age = settings.age_of_runs(self._store.repository, definition.name, age)
            maintenance.cleanup_runs(self._store, pipeline=definition.name, older_than=age)
        except CkptError as error:
            self._observer.warn(f"cannot remove old runs: {error.message}")

    def _close(self, run: Run) -> None:
        # Only warn: the error that ended the run matters more than, say, a full disk.
        try:
            run.close()
        except CkptError as error:
            self._observer.warn(f"cannot release the lease of run {run.id}: {error.message}")
        for sentence in run.unwritten:
            self._observer.warn(sentence)
        if not run.unwritten:
            # Later checkpoints replace the unwritten ones of earlier drivers.
            run_files.note(self._store.repository, run.id, [])


def outlook(store: Store, newest: Checkpoint) -> tuple[str, list[str]]:
    """Return the next command of a run as `phase: command`, and the agents it calls.

    Both are empty if the pipeline cannot be read; `Pipelines.resume` reports the reason.
    """
    pipeline, repository = newest.pipeline, inside(store).repository
    top = repository.worktree or main_worktree(repository) or ""
    if pipeline is None or pipeline.name is None:
        return "", []
    try:
        definition = file.read(os.path.join(top, settings.FILE), pipeline.name, OPTIONS)
    except CkptError:
        return "", []
    completed = pipeline.completed
    called = driver.called_agents(definition, completed, driver.known_to(newest, definition, {}))
    for phase in definition.phases:
        if phase.name not in completed:
            return f"{phase.name}: {phase.run if phase.run is not None else phase.use}", called
    return "", called


def _autonomy(wishes: Wishes, kind: type) -> str | None:
    launch.require_options(wishes, kind.__annotations__)
    mode = wishes.get("autonomy")
    return pipelines.autonomy(mode) if mode is not None else None
