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
    Result,
    Resumption,
    Wishes,
    advice,
    memory_of,
    require_question,
    require_sense,
    skipped,
    told,
)
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import file, launch
from gitckpt.durable.pipeline.definition import REMOVE_WHEN_PUSHED, PipelineDefinition
from gitckpt.durable.run import attempts
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.attempts import PhaseFailed
from gitckpt.durable.run.opener import settle
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import ids, runstate, times
from gitckpt.model.arguments import require_text
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import CkptError, RunExists, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.records import layout
from gitckpt.store.runs import run_files, summary
from gitckpt.store.store import Store, inside

COMPLETE, PAUSED, DEFERRED = "complete", "paused", "deferred"


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan of a run of a pipeline."""

    definition: PipelineDefinition  # has `phases`, `autonomy` and `source`, the defining file
    given: launch.Given  # `inputs` by name, and the `contents` of file inputs
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
        self._observer = told(observer)

    def names(self) -> list[str]:
        """Return the names of the pipelines, presets last."""
        own = file.names(self._file())
        return [*own, *(name for name in file.PRESETS if name not in own)]

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
            driver.require_there(plan.definition, plan.skipped, known, clients)
            driver.note(self._store.repository, plan.definition, known, clients)
            timeout = wishes.get("timeout")
            first = launch.start(
                self._store, plan.definition, plan.given, name=about or name, base=base, autonomy=mode, timeout=timeout, key=key
            )
        except RunExists as error:
            newest = self._store.heads.catch_up(error.run)
            driver.require_trust(self._store, [newest], trusted=False, show=lambda *_: None)  # the key may have been fetched
            launch.require_same_start(newest, plan.definition, plan.given)
            if newest.label == layout.RUN_COMPLETE:
                settle(self._store, error.run)
                return self._was_complete(error.run, plan.definition)
            return self.resume(error.run, **wishes)
        plan.given.tell(self._store, self._observer.warn)
        run = ActiveRun.resume(self._store, str(first.run), adapter="plumbing", holder=wishes.get("holder", "a program"))
        return self._drive(run, plan.definition, plan.skipped)

    def resume(self, run: str, **how: Unpack[Resumption]) -> Outcome:
        """Continue a run of a pipeline at its first incomplete phase.

        Args:
            how: see `Resumption`.

        Raises:
            NotFoundError: unknown run, pipeline or phase.
            UsageError: the run is complete or has no pipeline, or an input is unknown or a file.
            Untrusted: the run or the checkpoint to rewind to was not written here; see `candidates`.
            Changed: the pipeline or its inputs changed.
            Exception: as `run`.
        """
        mode = _autonomy(how, Resumption)
        newest = self._store.heads.catch_up(run)
        if newest.pipeline is None or newest.pipeline.name is None:
            raise UsageError(f"no pipeline drives run {run}", hint=f"open its worktree: git ckpt resume --no-run {run}")
        definition = file.read_of_run(self._file(), newest.pipeline.name, OPTIONS, run)
        phase = how.get("phase")
        again = definition.phase(phase) if phase is not None else None
        back = how.get("rewind")
        wanted = [newest, *([back] if back is not None else [])]
        driver.require_trust(self._store, wanted, trusted=how.get("trust", False), show=lambda *_: None)
        if again is None and back is None and settle(self._store, run):
            return self._was_complete(run, definition)
        settings.read(self._store.repository).require_correct()
        if not (how.get("trust", False) or how.get("accept_changes", False)):
            known = driver.known_to(newest, definition, how.get("inputs", {}))
            driver.require_noted(self._store.repository, run, definition, known, self._clients(definition))
        opened = ActiveRun.resume(
            self._store,
            run,
            accept_changes=how.get("accept_changes", False),
            adapter="plumbing",
            holder=how.get("holder", "a program"),
            again=again is not None or back is not None,
            directory=how.get("directory"),
            take_over=how.get("take_over", False),
        )
        try:
            target = runstate.rewinding_to(newest)
            if back is not None:
                opened.rewind(back)
            elif target is not None:
                went_on = f"going back to {target[: ids.SHORT]} was cut off half-way, and the run goes on from what was there before"
                self._observer.warn(f"{went_on}; to go back: git ckpt resume {target} --rewind")
            self._bring_up_to_date(opened, definition, how, mode)
            if again is not None:
                later = definition.phases[definition.phases.index(again) :]
                opened.redo(again.name, {key for each in later for key in memory_of(each)})
            skips = skipped(definition, launch.given_to(opened, definition))
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
        from gitckpt.durable.phases.review import phase as review  # two dozen modules, only for reviews

        require_text("task", task)
        if not task.strip():
            raise UsageError("there is no task", hint="say what the task has become")
        status = summary.summary_of(self._store, run).status
        newest = self._store.heads.read(run)
        if status == runstate.COMPLETE or newest.pipeline is None or newest.pipeline.name != "review":
            raise UsageError(f"run {run} is no review that goes on", hint="see which runs there are: git ckpt runs")
        review.refactor(run_files.of_run(self._store.repository, run).path, task)

    def _file(self) -> str:
        repository = self._store.repository
        return os.path.join(repository.worktree or main_worktree(repository) or "", settings.FILE)

    def _clients(self, definition: PipelineDefinition) -> dict[str, Client]:
        return read_clients(self._file()) if any(phase.use for phase in definition.phases) else {}

    def _definition(self, name: str) -> PipelineDefinition:
        settings.read(self._store.repository)  # checks the whole file: finds [pipeline.NAME], a likely typo
        return file.read(self._file(), name, OPTIONS)

    def _bring_up_to_date(self, run: ActiveRun, definition: PipelineDefinition, how: Resumption, mode: str | None) -> None:
        accepts = how.get("accept_changes", False)
        pipeline, contents = launch.require_same(self._store, run.newest, definition, accept=accepts)
        launch.take_in(run, contents, accepted=accepts)
        if accepts:
            pipeline = launch.with_copies(run, pipeline, definition)
        if how.get("inputs"):
            pipeline = launch.changed_inputs(pipeline, definition, how["inputs"])
        if mode is not None:
            pipeline = replace(pipeline, autonomy=mode)
        timeout = how.get("timeout")
        if timeout is not None:
            pipeline = replace(pipeline, deadline=times.to_text(self._store.clock() + timeout))
        run.change(pipeline)

    def _drive(self, run: ActiveRun, definition: PipelineDefinition, skips: Mapping[str, str]) -> Outcome:
        try:
            self._observer.started(run.id)
            for remark in run.remarks:
                self._observer.warn(remark)
            redefined = file.redefinition(definition)
            if redefined is not None:
                self._observer.warn(redefined)
            clients = self._clients(definition)
            driver.note(run.store.repository, definition, driver.known_to(run.newest, definition, {}), clients)
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
        return self._outcome(run, definition, result)

    def _outcome(self, run: ActiveRun, definition: PipelineDefinition, result: Result) -> Outcome:
        if run.unwritten:
            hint = f"git ckpt resume {run.id}"
            raise CkptError(f"not every checkpoint of run {run.id} could be written: {run.unwritten[-1]}", hint=hint)
        if result.is_complete:
            return self._retired(run.id, definition, run.path)
        is_deferred = run.last_attempt is not None and run.last_attempt.ended == attempts.PARTIAL
        return Outcome(run.id, DEFERRED if is_deferred else PAUSED, run.path, result.after)

    def _was_complete(self, run: str, definition: PipelineDefinition) -> Outcome:
        return replace(self._retired(run, definition, summary.summary_of(self._store, run).path), was_complete=True)

    def _retired(self, run: str, definition: PipelineDefinition, path: str | None) -> Outcome:
        from gitckpt.store.retention import worktree

        files = self._store.heads.read(run).worktree
        is_clean = files is not None and not files.dirty  # uncommitted files were not pushed
        if path is None or definition.worktree != REMOVE_WHEN_PUSHED or not is_clean or not worktree.is_pushed(self._store, run):
            return Outcome(run, COMPLETE, path)
        stays = worktree.remove_worktree(self._store, run)
        return Outcome(run, COMPLETE, path if stays else None, removed=not stays, stays=stays)

    def _expire(self, definition: PipelineDefinition) -> None:
        # A failure to remove old runs is no failure of the run that just ended.
        from gitckpt.store.retention import expiry, maintenance

        try:
            if expiry.doubt(self._store.repository, self._store.clock()) is not None:
                return  # left to the next run that ends, or to maintenance
            said = definition.retention
            found = settings.read(self._store.repository)
            found.require_correct()
            age = said if said is not None else found.policy.runs_older_than
            if said is not None and definition.source != file.PRESET:
                age = settings.age_of_runs(self._store.repository, definition.name, age)
            maintenance.cleanup_runs(self._store, pipeline=definition.name, older_than=age)
        except CkptError as error:
            self._observer.warn(f"old runs were not removed: {error.message}")

    def _close(self, run: ActiveRun) -> None:
        # Only warn: the error that ended the run matters more than, say, a full disk.
        try:
            run.close()
        except CkptError as error:
            self._observer.warn(f"the lease of run {run.id} could not be given back: {error.message}")
        for sentence in run.unwritten:
            self._observer.warn(sentence)
        if not run.unwritten:
            run_files.note(run.store.repository, run.id, [])  # later checkpoints replace the unwritten ones of earlier drivers


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
    called = driver.named(definition, completed, driver.known_to(newest, definition, {}))
    phase = next((each for each in definition.phases if each.name not in completed), None)
    if phase is None:
        return "", called
    return f"{phase.name}: {phase.run if phase.run is not None else phase.use}", called


def _autonomy(wishes: Wishes, kind: type) -> str | None:
    launch.require_wishes(wishes, kind.__annotations__)
    said = wishes.get("autonomy")
    return pipelines.autonomy(said) if said is not None else None
