"""The public API of pipelines: preview, start, resume and drive their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from gitckpt.durable.agent.clients import Client, read_clients
from gitckpt.durable.driver import driver
from gitckpt.durable.driver.driver import OPTIONS, Driver, Observer, ResumeOptions, RunOptions
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.definition import REMOVE_WHEN_PUSHED, PipelineDefinition, Texts
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import PhaseFailed, Session
from gitckpt.durable.run.opener import OpenOptions, release_completed, reopen
from gitckpt.durable.run.run import Run, incomplete_record, session_of
from gitckpt.model import ids, runstate, times
from gitckpt.model.arguments import require_text
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import CkptError, RunExists, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files, summary
from gitckpt.store.runs import trust as trusting
from gitckpt.store.store import Store, inside

COMPLETE, PAUSED, DEFERRED = "complete", "paused", "deferred"


@dataclass(frozen=True, slots=True)
class Preview:
    """What `Pipelines.run` would use: the pipeline, its inputs, and skipped phases."""

    definition: PipelineDefinition  # `source` is the file that defines the pipeline, or "preset"
    given: launch.RunInputs  # `inputs` by name, and the `contents` of input files by name
    skipped: Texts  # name of each skipped phase → reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state in which `Pipelines.run` or `Pipelines.resume` left a run."""

    run: str  # id
    status: str  # "complete", "paused", or "deferred" if a phase asks to be retried later
    path: str | None  # the top of the worktree; None if it does not exist
    after: str | None = None  # phase after which the run paused, or the deferred phase
    removed: bool = False  # the worktree was removed because all its commits are pushed
    stays: str | None = None  # why the worktree could not be removed, if it should have been
    was_complete: bool = False  # the run was complete before the call


class Pipelines:
    """The pipelines in a repository's `gitckpt.toml`, and gitckpt's presets."""

    def __init__(self, store: Store, observer: Observer | None = None) -> None:
        self._store = inside(store)
        self._observer = driver.require_observer(observer)

    def names(self) -> list[str]:
        """Return the names of the pipelines in `gitckpt.toml`, then of the presets."""
        return list(dict.fromkeys([*pipelines.names(self._file()), *pipelines.PRESETS]))

    @staticmethod
    def preset(name: str) -> str:
        """Return the TOML text of a preset, as `git ckpt run --print` shows it."""
        return pipelines.preset_text(name)

    def preview(self, name: str, inputs: Texts | None = None) -> Preview:
        """Return what `run` would use for a pipeline, without starting a run.

        Raises NotFoundError (no such pipeline), ConfigError or UsageError (wrong inputs).
        """
        definition = self._definition(name)
        run_inputs = launch.read_inputs(self._store, definition, inputs or {})
        driver.require_valid_options(definition, run_inputs)
        skips = driver.phases_to_skip(definition, run_inputs)
        driver.require_question(definition, run_inputs, skips)
        return Preview(definition, run_inputs, skips)

    def run(
        self,
        name: str,
        inputs: Texts | None = None,
        *,
        about: str | None = None,
        base: str = "HEAD",
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Outcome:
        """Run a pipeline in a new worktree, or resume the run that has the same `key`.

        `about` is the subject of the run, by default the pipeline's name. `base` is the revision
        at which the worktree starts.

        Raises:
            NotFoundError, ConfigError, UsageError: wrong pipeline, inputs or `base`.
            Changed, Untrusted, LeaseHeld: the run with this `key` cannot be continued.
            PhaseFailed, LeaseLost, CkptError: the run stopped; the error has a `hint`.
        """
        mode = _parse_autonomy(options, RunOptions)
        # Do not execute commands from a file with mistakes.
        settings.read(self._store.repository).require_correct()
        plan = self.preview(name, inputs)
        definition = plan.definition
        try:
            if key is not None:
                self._store.claim(key).require_free()
            # Approve the agents before the run exists, so that a killed run can be resumed.
            values = {**definition.inputs, **plan.given.inputs}
            clients = self._clients(definition)
            driver.require_installed(definition, plan.skipped, values, clients)
            driver.approve_agents(self._store.repository, definition, values, clients)
            kwargs: Any = {"base": base, "key": key, "timeout": options.get("timeout")}
            subject = about or name
            first = launch.start(
                self._store, definition, plan.given, subject, autonomy=mode, **kwargs
            )
        except RunExists as error:
            newest = self._store.heads.catch_up(error.run)
            self.require_ours([newest])  # the key may have been fetched
            launch.require_same_start(newest, definition, plan.given)
            if newest.label == ref_names.RUN_COMPLETE:
                release_completed(self._store, error.run)
                return self._was_complete(error.run, definition)
            return self.resume(error.run, **options)
        plan.given.warn_of_secrets(self._store, self._observer.warn)
        return self._drive(self._open(str(first.run), options, {}), definition, plan.skipped)

    def resume(self, run: str, **options: Unpack[ResumeOptions]) -> Outcome:
        """Continue a run of a pipeline at its first incomplete phase.

        Raises NotFoundError, UsageError, Untrusted (the run was fetched), Changed, or the errors
        of `run`.
        """
        mode = _parse_autonomy(options, ResumeOptions)
        newest = self._store.heads.catch_up(run)
        if newest.pipeline is None or newest.pipeline.name is None:
            hint = f"open the worktree of the run: git ckpt resume --no-run {run}"
            raise UsageError(f"run {run} has no pipeline", hint=hint)
        definition = pipelines.read_of_run(self._file(), newest.pipeline.name, OPTIONS, run)
        phase, target = options.get("phase"), options.get("rewind")
        first = definition.phase(phase) if phase is not None else None
        trusted, accepts = options.get("trust", False), options.get("accept_changes", False)
        self.require_ours([newest, *([target] if target is not None else [])], trust=trusted)
        goes_back = first is not None or target is not None
        if not goes_back and release_completed(self._store, run):
            return self._was_complete(run, definition)
        settings.read(self._store.repository).require_correct()
        if not (trusted or accepts):
            values = driver.placeholder_values(newest, definition, options.get("inputs", {}))
            called = driver.called_clients(definition, values, self._clients(definition))
            driver.require_approved(self._store.repository, run, called)
        open_options: OpenOptions = {"accept_changes": accepts, "again": goes_back}
        open_options |= {"take_over": options.get("take_over", False)}
        open_options["directory"] = options.get("directory")
        opened = self._open(run, options, open_options)
        try:
            if target is not None:
                opened.rewind(target)
            elif (interrupted := runstate.rewind_target(newest)) is not None:
                undone = f"an interrupted rewind to {interrupted[: ids.SHORT]} was undone"
                retry = f"git ckpt resume {interrupted} --rewind"
                self._observer.warn(f"{undone}; to repeat the rewind: {retry}")
            session = session_of(opened)
            self._update_pipeline(session, definition, options, mode)
            if first is not None:
                later = definition.phases[definition.phases.index(first) :]
                keys = {key for later_phase in later for key in driver.progress_keys(later_phase)}
                driver.redo(opened, first.name, keys)
            skips = driver.phases_to_skip(definition, launch.recorded_inputs(session, definition))
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
        """Adopt runs that another repository recorded, or raise Untrusted without `trust`.

        `show` gets the id and a description of each run. With `adopt=False`, no run is adopted.
        """
        store = self._store
        for checkpoint in checkpoints:
            if trusting.is_ours(store, checkpoint):
                continue
            head = store.heads.head(checkpoint.run)[0] if checkpoint.run is not None else ""
            account = trusting.account(store, checkpoint, driver.list_commands(store, checkpoint))
            if not trust:
                raise trusting.refusal(store, checkpoint, account)
            show(checkpoint.run or checkpoint.id, account)
            if adopt and checkpoint.run is not None:
                trusting.adopt(store, checkpoint.run, head)

    def refactor(self, run: str, task: str) -> None:
        """Change the task of a running review; the coder gets the task in the next cycle."""
        # Imports two dozen modules that only reviews need.
        from gitckpt.durable.phases.review import phase as review

        require_text("task", task)
        if not task.strip():
            raise UsageError("the new task is empty", hint="describe the changed task")
        status = summary.summary_of(self._store, run).status
        newest = self._store.heads.read(run)
        name = newest.pipeline.name if newest.pipeline is not None else None
        if status == runstate.COMPLETE or name != "review":
            raise UsageError(f"run {run} is not an open review", hint="see: git ckpt runs")
        review.store_changed_task(run_files.of_run(self._store.repository, run).path, task)

    def _file(self) -> str:
        return pipelines.config_path(self._store.repository)

    def _clients(self, definition: PipelineDefinition) -> dict[str, Client]:
        return read_clients(self._file()) if any(phase.use for phase in definition.phases) else {}

    def _definition(self, name: str) -> PipelineDefinition:
        # Check the whole file, to find the likely typo [pipeline.NAME] of [pipelines.NAME].
        settings.read(self._store.repository)
        return pipelines.read(self._file(), name, OPTIONS)

    def _open(self, run: str, options: RunOptions, open_options: OpenOptions) -> Run:
        open_options |= {"adapter": "plumbing", "holder": options.get("holder", "a program")}
        opening = reopen(self._store, run, **open_options)
        return Run(Session(opening), opening.remarks)

    def _update_pipeline(
        self, run: Session, definition: PipelineDefinition, options: ResumeOptions, mode: str | None
    ) -> None:
        accept = options.get("accept_changes", False)
        pipeline = launch.update_pipeline(self._store, run, definition, accept=accept)
        if options.get("inputs"):
            pipeline = launch.replace_inputs(pipeline, definition, options["inputs"])
        if mode is not None:
            pipeline = replace(pipeline, autonomy=mode)
        timeout = options.get("timeout")
        if timeout is not None:
            pipeline = replace(pipeline, deadline=times.to_text(self._store.clock() + timeout))
        run.writer.pipeline = pipeline

    def _drive(self, run: Run, definition: PipelineDefinition, skips: Texts) -> Outcome:
        try:
            self._observer.started(run.id)
            redefined = pipelines.redefinition(definition)
            for remark in (*run.remarks, *([redefined] if redefined is not None else [])):
                self._observer.warn(remark)
            clients = self._clients(definition)
            values = driver.placeholder_values(run.newest, definition, {})
            driver.approve_agents(self._store.repository, definition, values, clients)
            result = Driver(run, definition, self._observer, skips, clients).drive()
            if result.is_complete:
                run.finish()
        except PhaseFailed as error:
            if error.hint is None:
                raise error.but(hint=driver.hint_for(error, run)) from None
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
        # Changes that are not committed cannot have been pushed.
        is_clean = files is not None and not files.dirty
        stays_by_design = path is None or definition.worktree != REMOVE_WHEN_PUSHED
        if stays_by_design or not is_clean or not worktree.is_pushed(self._store, run):
            return Outcome(run, COMPLETE, path)
        stays = worktree.remove_worktree(self._store, run)
        return Outcome(run, COMPLETE, path if stays else None, removed=not stays, stays=stays)

    def _expire(self, definition: PipelineDefinition) -> None:
        # Only warn about a failure to remove old runs: the run that just ended did not fail.
        from gitckpt.store.retention import expiry, maintenance

        try:
            if expiry.doubt(self._store.repository, self._store.clock()) is not None:
                return  # the next run that ends, or maintenance, removes old runs
            config = settings.read(self._store.repository)
            config.require_correct()
            age = definition.retention
            if age is None:
                age = config.policy.runs_older_than
            elif definition.source != pipelines.PRESET:
                age = settings.age_of_runs(self._store.repository, definition.name, age)
            maintenance.cleanup_runs(self._store, pipeline=definition.name, older_than=age)
        except CkptError as error:
            self._observer.warn(f"cannot remove old runs: {error.message}")

    def _close(self, run: Run) -> None:
        # Only warn, to not hide the error that ended the run, for example behind a full disk.
        try:
            run.close()
        except CkptError as error:
            self._observer.warn(f"cannot release the lease of run {run.id}: {error.message}")
        for sentence in run.unwritten:
            self._observer.warn(sentence)
        if not run.unwritten:
            # The checkpoints of this driver replace the unwritten ones of earlier drivers.
            run_files.record_unwritten(self._store.repository, run.id, [])


def next_step(store: Store, newest: Checkpoint) -> tuple[str, list[str]]:
    """Return "PHASE: COMMAND" for the next phase, and the agents of incomplete phases."""
    pipeline = newest.pipeline
    if pipeline is None or pipeline.name is None:
        return "", []
    try:
        definition = pipelines.read(
            pipelines.config_path(inside(store).repository), pipeline.name, OPTIONS
        )
    except CkptError:
        return "", []
    completed = pipeline.completed
    called = driver.called_agents(
        definition, completed, driver.placeholder_values(newest, definition, {})
    )
    for phase in definition.phases:
        if phase.name not in completed:
            return f"{phase.name}: {phase.run if phase.run is not None else phase.use}", called
    return "", called


def _parse_autonomy(options: RunOptions, kind: type) -> str | None:
    launch.require_options(options, kind.__annotations__)
    mode = options.get("autonomy")
    return pipelines.parse_autonomy(mode) if mode is not None else None
