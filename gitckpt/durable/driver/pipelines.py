"""The public API of pipelines: preview a pipeline, start a run, or resume a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from gitckpt.durable.agent.clients import AgentClient, read_clients
from gitckpt.durable.driver import driver
from gitckpt.durable.driver.driver import OPTIONS, Observer, ResumeOptions, RunDriver, RunOptions
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.definition import REMOVE_WHEN_PUSHED, PipelineDefinition, Texts
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import PhaseFailed, RunSession
from gitckpt.durable.run.opener import OpenRunOptions, release_lease_of_complete_run, reopen_run
from gitckpt.durable.run.run import Run, make_unwritten_error, session_of
from gitckpt.model import ids, runstate, times
from gitckpt.model.arguments import join_first, quote_path, require_text
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import CkptError, RunExists, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files, summary
from gitckpt.store.runs import trust as trusting
from gitckpt.store.store import Store, checkpoints_of_store

COMPLETE, PAUSED, DEFERRED = "complete", "paused", "deferred"
_MAX_NAMED = 3  # uncommitted files that a warning names


@dataclass(frozen=True, slots=True)
class Preview:
    """The pipeline, inputs and skipped phases that `Pipelines.run` would use."""

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
    merge_command: str | None = None  # that brings the run's work into another worktree


class Pipelines:
    """The pipelines in a repository's `gitckpt.toml`, and gitckpt's presets."""

    def __init__(self, store: Store, observer: Observer | None = None) -> None:
        self._store = checkpoints_of_store(store)
        self._observer = driver.require_valid_observer(observer)

    def names(self) -> list[str]:
        """Return the names of the pipelines in `gitckpt.toml`, then of the presets."""
        names = pipelines.read_pipeline_names(self._config_path())
        return list(dict.fromkeys([*names, *pipelines.PRESETS]))

    @staticmethod
    def preset(name: str) -> str:
        """Return the TOML text of a preset, a pipeline that gitckpt provides."""
        return pipelines.read_preset_text(name)

    def preview(self, name: str, inputs: Texts | None = None) -> Preview:
        """Return the inputs and skipped phases that `run` would use, but start no run.

        Raises NotFoundError (no such pipeline), ConfigError (bad file) or UsageError (bad inputs).
        """
        definition = self._read_definition(name)
        run_inputs = launch.read_inputs(self._store, definition, inputs or {})
        driver.require_valid_options(definition, run_inputs)
        skip_reasons = driver.phases_to_skip(definition, run_inputs)
        driver.require_question(definition, run_inputs, skip_reasons)
        return Preview(definition, run_inputs, skip_reasons)

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
        """Run a pipeline in a new worktree, or resume the run that was started with `key`.

        `about` becomes part of the run's id; the default is the pipeline's name. `base` is the
        revision at which the worktree starts.

        Raises:
            NotFoundError, ConfigError, UsageError: wrong pipeline, inputs or `base`.
            Changed, Untrusted, LeaseHeld: the run with this `key` cannot be continued.
            PhaseFailed, LeaseLost, CkptError: the run stopped; the error has a `hint`.
        """
        autonomy = _parse_autonomy_option(options, RunOptions)
        # Do not execute commands from a file with mistakes.
        settings.read_settings(self._store.repository).require_valid_settings()
        preview = self.preview(name, inputs)
        definition = preview.definition
        try:
            if key is not None:
                self._store.claim_of_key(key).require_key_unused()
            # Approve the agents before the run exists, so that a killed run can be resumed.
            values = {**definition.inputs, **preview.given.inputs}
            clients = self._read_clients(definition)
            driver.require_installed_agents(definition, preview.skipped, values, clients)
            driver.approve_agents(self._store.repository, definition, values, clients)
            start_options: Any = {"base": base, "key": key, "timeout": options.get("timeout")}
            subject = about or name
            first_checkpoint = launch.start_run(
                self._store, definition, preview.given, subject, autonomy=autonomy, **start_options
            )
        except RunExists as error:
            newest = self._store.heads.move_head_up_and_read(error.run)
            self.require_ours([newest])  # the key may have been fetched
            launch.require_same_pipeline_and_inputs(newest, definition, preview.given)
            if newest.label == ref_names.RUN_COMPLETE:
                release_lease_of_complete_run(self._store, error.run)
                return self._report_already_complete(error.run, definition)
            return self.resume(error.run, **options)
        preview.given.warn_of_masked_secrets(self._store, self._observer.warn)
        self._warn_of_uncommitted_files(first_checkpoint.git_sha, preview.given)
        run = self._open_run(str(first_checkpoint.run), options, {})
        return self._drive_run(run, definition, preview.skipped)

    def resume(self, run: str, **options: Unpack[ResumeOptions]) -> Outcome:
        """Continue a run of a pipeline at the run's first incomplete phase.

        Raises NotFoundError, UsageError, Untrusted if another repository recorded the run, Changed
        if the pipeline or inputs changed, or the errors of `Pipelines.run`.
        """
        autonomy = _parse_autonomy_option(options, ResumeOptions)
        newest = self._store.heads.move_head_up_and_read(run)
        if newest.pipeline is None or newest.pipeline.name is None:
            hint = f"open the worktree of the run: git ckpt resume --no-run {run}"
            raise UsageError(f"run {run} has no pipeline", hint=hint)
        path, name = self._config_path(), newest.pipeline.name
        definition = pipelines.pipeline_of_run(path, name, OPTIONS, run)
        phase, target = options.get("phase"), options.get("rewind")
        first_phase = definition.phase(phase) if phase is not None else None
        trusted, accepts_changes = options.get("trust", False), options.get("accept_changes", False)
        self.require_ours([newest, *([target] if target is not None else [])], trust=trusted)
        goes_back = first_phase is not None or target is not None
        if not goes_back and release_lease_of_complete_run(self._store, run):
            return self._report_already_complete(run, definition)
        settings.read_settings(self._store.repository).require_valid_settings()
        if not (trusted or accepts_changes):
            values = driver.placeholder_values(newest, definition, options.get("inputs", {}))
            clients = driver.find_called_clients(definition, values, self._read_clients(definition))
            driver.require_approved_agents(self._store.repository, run, clients)
        open_options: OpenRunOptions = {"accept_changes": accepts_changes, "again": goes_back}
        open_options |= {"take_over": options.get("take_over", False)}
        open_options["directory"] = options.get("directory")
        opened_run = self._open_run(run, options, open_options)
        try:
            if target is not None:
                opened_run.rewind(target)
            elif (interrupted_id := runstate.interrupted_rewind_target(newest)) is not None:
                undone = f"an interrupted rewind to {interrupted_id[: ids.SHORT]} was undone"
                retry_command = f"git ckpt resume {interrupted_id} --rewind"
                self._observer.warn(f"{undone}; to repeat the rewind: {retry_command}")
            session = session_of(opened_run)
            self._update_pipeline(session, definition, options, autonomy)
            if first_phase is not None:
                phases = definition.phases[definition.phases.index(first_phase) :]
                keys = {key for redone in phases for key in driver.progress_keys(redone)}
                driver.redo_phase(opened_run, first_phase.name, keys)
            run_inputs = launch.read_recorded_inputs(session, definition)
            reasons = driver.phases_to_skip(definition, run_inputs)
        except BaseException:
            opened_run.close()
            raise
        return self._drive_run(opened_run, definition, reasons)

    def require_ours(
        self,
        checkpoints: Sequence[Checkpoint],
        *,
        trust: bool = False,
        show: Callable[[str, Sequence[str]], None] = lambda *_: None,
        adopt: bool = True,
    ) -> None:
        """Adopt runs of other repositories, or raise Untrusted if `trust` is false.

        `show` gets the id and a description of each run. Without `adopt`, runs are only shown.
        """
        store = self._store
        for checkpoint in checkpoints:
            if trusting.is_trusted(store, checkpoint):
                continue
            head = store.heads.read_head(checkpoint.run)[0] if checkpoint.run is not None else ""
            commands = driver.list_remaining_commands(store, checkpoint)
            lines = trusting.describe(store, checkpoint, commands)
            if not trust:
                raise trusting.trust_error(store, checkpoint, lines)
            show(checkpoint.run or checkpoint.id, lines)
            if adopt and checkpoint.run is not None:
                trusting.adopt(store, checkpoint.run, head)

    def refactor(self, run: str, task: str) -> None:
        """Change the task of a running review; the coding agent gets it in the next cycle."""
        # Imports two dozen modules that only reviews need.
        from gitckpt.durable.phases.review import phase as review

        require_text("task", task)
        if not task.strip():
            raise UsageError("the new task is empty", hint="describe the changed task")
        status = summary.summarize_run(self._store, run).status
        newest = self._store.heads.read(run)
        pipeline_name = newest.pipeline.name if newest.pipeline is not None else None
        if status == runstate.COMPLETE or pipeline_name != "review":
            raise UsageError(f"run {run} is not an open review", hint="see: git ckpt runs")
        review.store_changed_task(run_files.files_of_run(self._store.repository, run).path, task)

    def _config_path(self) -> str:
        return pipelines.config_path(self._store.repository)

    def _read_clients(self, definition: PipelineDefinition) -> dict[str, AgentClient]:
        calls_agents = any(phase.use for phase in definition.phases)
        return read_clients(self._config_path()) if calls_agents else {}

    def _read_definition(self, name: str) -> PipelineDefinition:
        # Check the whole file, to find the likely typo [pipeline.NAME] of [pipelines.NAME].
        settings.read_settings(self._store.repository)
        return pipelines.read_pipeline(self._config_path(), name, OPTIONS)

    def _open_run(self, run: str, options: RunOptions, open_options: OpenRunOptions) -> Run:
        open_options |= {"adapter": "plumbing", "holder": options.get("holder", "a program")}
        opening = reopen_run(self._store, run, **open_options)
        return Run(RunSession(opening), opening.remarks)

    def _update_pipeline(
        self,
        run: RunSession,
        definition: PipelineDefinition,
        options: ResumeOptions,
        mode: str | None,
    ) -> None:
        accepts_changes = options.get("accept_changes", False)
        pipeline = launch.update_pipeline(self._store, run, definition, accept=accepts_changes)
        if options.get("inputs"):
            pipeline = launch.replace_inputs(pipeline, definition, options["inputs"])
        if mode is not None:
            pipeline = replace(pipeline, autonomy=mode)
        timeout = options.get("timeout")
        if timeout is not None:
            pipeline = replace(pipeline, deadline=times.to_text(self._store.clock() + timeout))
        run.writer.pipeline = pipeline

    def _drive_run(self, run: Run, definition: PipelineDefinition, skips: Texts) -> Outcome:
        try:
            self._observer.started(run.id)
            redefinition = pipelines.describe_redefined_preset(definition)
            for remark in (*run.remarks, *([redefinition] if redefinition is not None else [])):
                self._observer.warn(remark)
            clients = self._read_clients(definition)
            values = driver.placeholder_values(run.newest, definition, {})
            driver.approve_agents(self._store.repository, definition, values, clients)
            drive_result = RunDriver(run, definition, self._observer, skips, clients).drive_run()
            if drive_result.is_complete:
                run.finish()
        except PhaseFailed as error:
            if error.hint is None:
                raise error.but(hint=driver.hint_after_failure(error, run)) from None
            raise
        finally:
            self._close_run(run)
            self._expire_old_runs(definition)
        if run.unwritten:
            raise make_unwritten_error(run)
        if drive_result.is_complete:
            return self._remove_worktree_if_pushed(run.id, definition, run.path)
        is_deferred = run.last_attempt is not None and run.last_attempt.ended == attempts.PARTIAL
        return Outcome(run.id, DEFERRED if is_deferred else PAUSED, run.path, drive_result.after)

    def _report_already_complete(self, run: str, definition: PipelineDefinition) -> Outcome:
        path = summary.summarize_run(self._store, run).path
        return replace(self._remove_worktree_if_pushed(run, definition, path), was_complete=True)

    def _remove_worktree_if_pushed(
        self, run: str, definition: PipelineDefinition, path: str | None
    ) -> Outcome:
        from gitckpt.store.retention import worktree

        snapshot = self._store.heads.read(run).worktree
        # Changes that are not committed cannot have been pushed.
        is_clean = snapshot is not None and not snapshot.dirty
        keeps_worktree = path is None or definition.worktree != REMOVE_WHEN_PUSHED
        if keeps_worktree or not is_clean or not worktree.is_run_pushed(self._store, run):
            command = summary.merge_command(self._store, run)
            return Outcome(run, COMPLETE, path, merge_command=command)
        reason = worktree.remove_worktree(self._store, run)
        return Outcome(run, COMPLETE, path if reason else None, removed=not reason, stays=reason)

    def _warn_of_uncommitted_files(self, commit: str, run_inputs: launch.RunInputs) -> None:
        repository = self._store.repository
        if repository.worktree is None:
            return
        command = ("--no-optional-locks", "status", "--porcelain", "-z", "--no-renames")
        options = ("--untracked-files=all", "--ignore-submodules=dirty")
        entries = repository.git.run(*command, *options).out.split(b"\0")[:-1]
        used = {run_inputs.inputs[name] for name in run_inputs.contents}  # the run has copies
        used.add(os.path.relpath(self._config_path(), repository.worktree))
        paths = [quote_path(entry[3:]) for entry in entries]
        if paths := [path for path in paths if path not in used]:
            files = f"{len(paths)} uncommitted file{'s' if len(paths) > 1 else ''}"
            start = f"the run starts from commit {commit[: ids.SHORT]}, without {files}"
            names = join_first(paths, _MAX_NAMED)
            self._observer.warn(f"{start} ({names}); to include them, commit them first")

    def _expire_old_runs(self, definition: PipelineDefinition) -> None:
        # Only warn about a failure to remove old runs: the run that just ended did not fail.
        from gitckpt.store.retention import expiry, maintenance

        try:
            if expiry.check_clock(self._store.repository, self._store.clock()) is not None:
                return  # the next run that ends, or maintenance, removes old runs
            config = settings.read_settings(self._store.repository)
            config.require_valid_settings()
            max_age = definition.retention
            if max_age is None:
                max_age = config.policy.runs_older_than
            elif definition.source != pipelines.PRESET:
                max_age = settings.age_of_runs(self._store.repository, definition.name, max_age)
            maintenance.cleanup_runs(self._store, pipeline=definition.name, older_than=max_age)
        except CkptError as error:
            self._observer.warn(f"cannot remove old runs: {error.message}")

    def _close_run(self, run: Run) -> None:
        # Only warn, to not hide the error that ended the run, for example behind a full disk.
        try:
            run.close()
        except CkptError as error:
            self._observer.warn(f"cannot release the lease of run {run.id}: {error.message}")
        for sentence in run.unwritten:
            self._observer.warn(sentence)
        if not run.unwritten:
            # The checkpoints of this driver replace the unwritten ones of earlier drivers.
            run_files.record_unwritten_notes(self._store.repository, run.id, [])


def describe_next_phase(store: Store, newest: Checkpoint) -> tuple[str, list[str]]:
    """Return "PHASE: COMMAND" for the next phase, and the agents still to be called."""
    pipeline = newest.pipeline
    if pipeline is None or pipeline.name is None:
        return "", []
    try:
        definition = pipelines.read_pipeline(
            pipelines.config_path(checkpoints_of_store(store).repository), pipeline.name, OPTIONS
        )
    except CkptError:
        return "", []
    completed = pipeline.completed
    values = driver.placeholder_values(newest, definition, {})
    agents = driver.find_called_agents(definition, completed, values)
    for phase in definition.phases:
        if phase.name not in completed:
            return f"{phase.name}: {phase.run if phase.run is not None else phase.use}", agents
    return "", agents


def _parse_autonomy_option(options: RunOptions, kind: type) -> str | None:
    launch.require_valid_run_options(options, kind.__annotations__)
    mode = options.get("autonomy")
    return pipelines.parse_autonomy(mode) if mode is not None else None
