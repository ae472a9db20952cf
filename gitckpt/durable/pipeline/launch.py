"""Start a run of a pipeline; detect changes before the run is resumed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any

from gitckpt.durable.agent import clients
from gitckpt.durable.agent.clients import AgentClient
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition, Texts
from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import Changed, PhaseFailed, RunSession
from gitckpt.durable.run.opener import begin_run, require_known_arguments
from gitckpt.git.files import regular
from gitckpt.git.process import LOCAL_VARIABLES
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import arguments, times
from gitckpt.model.arguments import join_first, require_number, require_text, require_type
from gitckpt.model.checkpoint import Attempt, Checkpoint, Pipeline
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases import leases
from gitckpt.store.runs import run_files

# Environment variable: "1" from the second attempt of a phase on, else unset.
RESUMED = "CKPT_RESUMED"

_MAX_STATE_VALUE = 4096  # characters of a value of the state in an environment variable
_MAX_INPUT = 30_000  # characters of an input in an environment variable; Linux allows 128 KiB
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """The run, phase, attempt and callbacks that a driver passes to a phase's action."""

    run: RunSession
    definition: PipelineDefinition
    phase: PhaseDefinition
    attempt: Attempt
    watchdog: Watchdog
    output: Callable[[bytes], None]
    tick: Callable[[float], None] | None = None  # gets the seconds since a long action began
    agents: Mapping[str, AgentClient] = field(default_factory=dict)  # of `gitckpt.toml`, by name
    announce: Callable[[str], None] = lambda _: None  # gets a line to show before an action

    def input_values(self) -> dict[str, str]:
        contents = self.run.pipeline.contents
        files = self.definition.files
        copies = {name: self.path_of_copy(name) if name in contents else "" for name in files}
        return {**self.definition.inputs, **self.run.pipeline.inputs, **copies}

    def path_of_copy(self, name: str) -> str:
        return os.path.join(self.run.files.path, run_files.INPUT, name)

    def input_names_at(self, path: str) -> list[str]:
        inputs, contents = self.run.pipeline.inputs, self.run.pipeline.contents
        file_inputs = self.definition.files
        return [name for name in file_inputs if inputs.get(name) == path and name in contents]

    def read_input_or_file(self, path: str, label: str) -> bytes:
        """Read an input's stored copy or a worktree file; errors call the file `label`."""
        top, resume_command = self.run.path, f"git ckpt resume {self.run.id}"
        copies = [self.path_of_copy(name) for name in self.input_names_at(path)]
        for file in (*copies, os.path.join(top, path)):
            is_outside = file in copies or os.path.isabs(path)
            try:
                if is_outside:
                    return regular.read_content(file)
                return regular.read_content_below(top, file)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                message = f"cannot read {label}: {file}: {error.strerror}"
                hint = f"make the file readable, then: {resume_command}"
                raise PhaseFailed(message, hint=hint) from None
        hint = f"create the file, then: {resume_command} --accept-changes"
        raise PhaseFailed(f"{label} does not exist: {path}", hint=hint)

    def option(self, name: str) -> str:
        """Return an option of the phase, with its placeholders replaced by values."""
        inputs = {**self.definition.inputs, **self.run.pipeline.inputs}
        # An empty input does not hide a result of an earlier phase.
        nonempty_inputs = {key: value for key, value in inputs.items() if value}
        try:
            values = {**inputs, **state_texts(self.run.state), **nonempty_inputs}
            return fill_placeholders(self.phase.options.get(name, ""), values)
        except KeyError as error:
            problem = f"no input or state is named {{{error.args[0]}}}"
            raise PhaseFailed(f"{name} of phase {self.phase.name!r}: {problem}") from None

    def client(self, role: str) -> AgentClient:
        client_name = self.option(role)
        redefinition = clients.describe_client_override(client_name, self.agents)
        if redefinition is not None:
            self.announce(redefinition)
        return clients.find_client(client_name, self.agents)

    def command_environment(self) -> dict[str, str]:
        run = self.run
        revisions = run.state.get("revisions")
        revision = revisions.get(self.phase.name) if isinstance(revisions, dict) else None
        env = {name: os.environ[name] for name in os.environ if not name.startswith("CKPT_")}
        for name in LOCAL_VARIABLES:
            env.pop(name, None)
        env |= {**self.definition.env, **self.phase.env}
        env |= {f"CKPT_STATE_{key.upper()}": value for key, value in state_texts(run.state).items()}
        for name, value in self.input_values().items():
            if len(value) <= _MAX_INPUT:
                env[f"CKPT_INPUT_{name.upper()}"] = value
        if self.attempt.number > 1:
            env[RESUMED] = "1"
        is_valid_revision = isinstance(revision, str) and "\0" not in revision
        env |= {leases.RUN_VARIABLE: run.id, leases.FENCE_VARIABLE: str(run.hold.lease.token)}
        env |= {"CKPT_PHASE": self.phase.name, "CKPT_ATTEMPT": str(self.attempt.number)}
        return env | {"CKPT_REVISION": str(revision) if is_valid_revision else ""}

    def check_and_tick(self, seconds: float) -> None:
        """Show the elapsed seconds of a command; raise an error if the run must stop."""
        self.run.check()
        if self.tick is not None:
            self.tick(seconds)


def state_texts(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of a run's state that can become environment variables."""
    texts = {}
    for key, value in state.items():
        text = str(value) if type(value) in (str, int, float) else ""
        is_valid_name = key.isascii() and key.replace("_", "a").isalnum()
        if text and is_valid_name and len(text) <= _MAX_STATE_VALUE and "\0" not in text:
            texts[key] = text
    return texts


def fill_placeholders(text: str, values: Texts) -> str:
    """Replace each `{name}` in a text by its value; raise KeyError for unknown names."""
    text = _PLACEHOLDER.sub(lambda match: values[match[1]] if match[1] else match[0][0], text)
    return text.strip()


@dataclass(frozen=True, slots=True)
class RunInputs:
    inputs: Texts  # paths inside the worktree are relative to its top
    contents: Mapping[str, bytes]  # of file inputs, by name

    @property
    def content_digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.contents.items()}

    def warn_of_masked_secrets(self, store: Checkpoints, warn: Callable[[str], None]) -> None:
        for name, content in self.contents.items():
            secret_hits = secrets.find_unsettled_secrets(store.repository, content)
            for hit, line, digest in secret_hits[:1]:
                more = f" and {len(secret_hits) - 1} more" if len(secret_hits) > 1 else ""
                place = f"the stored copy of {self.inputs[name]}, line {line} ({hit.rule}){more}"
                allow = f"git ckpt allow --secret {digest}"
                warn(f"masked what looks like a secret in {place}; if it is not a secret: {allow}")


def read_inputs(store: Checkpoints, definition: PipelineDefinition, texts: Texts) -> RunInputs:
    """Return a new run's inputs; mask secrets in texts, but not in paths and files."""
    _require_known_inputs(definition, texts)
    worktree_top = store.repository.worktree or main_worktree(store.repository)
    inputs, contents = {**definition.inputs, **_mask_input_texts(definition, texts)}, {}
    for name in definition.files:
        if inputs[name]:
            path = os.path.join(os.curdir if name in texts else worktree_top or "", inputs[name])
            path = os.path.abspath(path) if name in texts else path
            contents[name] = _read_input_file(path, name, worktree_top)
            # A project may be moved: store paths in the worktree relative to its top directory.
            real_path, real_top = os.path.realpath(path), os.path.realpath(worktree_top or "")
            is_in_worktree = worktree_top is not None and real_path.startswith(real_top + os.sep)
            inputs[name] = os.path.relpath(real_path, real_top) if is_in_worktree else path
    return RunInputs(inputs, contents)


def read_recorded_inputs(run: RunSession, definition: PipelineDefinition) -> RunInputs:
    contents = _read_input_copies(run, run.pipeline.contents, definition)
    require_unchanged_input_copies(run, definition)
    return RunInputs({**definition.inputs, **run.pipeline.inputs}, contents)


def require_unchanged_input_copies(run: RunSession, definition: PipelineDefinition) -> None:
    copies = _read_input_copies(run, run.pipeline.contents, definition)
    # The copies come from a snapshot, which may have been fetched.
    digests = RunInputs({}, copies).content_digests
    changed_names = [name for name in digests if digests[name] != run.pipeline.contents[name]]
    masked_names = [name for name in changed_names if secrets.has_masked_secrets(copies[name])]
    notes = dict.fromkeys(masked_names, " has masked secrets")
    changes = [f"the run's copy of the input {name}{notes.get(name, '')}" for name in changed_names]
    if masked_names:
        paths = join_first([run.pipeline.inputs.get(name, name) for name in masked_names])
        accept_command = f"git ckpt resume {run.id} --accept-changes"
        hint = f"restore the original {paths}, or continue with the masked copy: {accept_command}"
        raise Changed(run.id, changes, hint=hint)
    if changed_names:
        raise Changed(run.id, changes)


def start_run(
    store: Checkpoints,
    definition: PipelineDefinition,
    run_inputs: RunInputs,
    name: str,
    *,
    base: str = "HEAD",
    key: str | None = None,
    autonomy: str | None = None,
    timeout: int | None = None,  # microseconds
) -> Checkpoint:
    time_limit = timeout or definition.timeout
    record = Pipeline(
        name=definition.name,
        phases=tuple(phase.name for phase in definition.phases),
        autonomy=autonomy or definition.autonomy,
        deadline=times.to_text(store.clock() + time_limit) if time_limit is not None else None,
        definition=definition.value_digests(),
        inputs=dict(run_inputs.inputs),
        contents=run_inputs.content_digests,
    )
    files = run_inputs.contents
    return begin_run(store, name, base=base, state={}, pipeline=record, files=files, key=key)


def require_same_pipeline_and_inputs(
    newest: Checkpoint, definition: PipelineDefinition, run_inputs: RunInputs
) -> None:
    old_record = newest.pipeline or Pipeline()
    if old_record.name != definition.name:
        changes = [f"the run's pipeline is {old_record.name or 'none'}, not {definition.name}"]
    else:
        changes = pipeline.describe_changes(old_record.definition, definition.value_digests())
        old_inputs, new_inputs = (
            {**old_record.inputs, **old_record.contents},
            {**run_inputs.inputs, **run_inputs.content_digests},
        )
        changes += attempts.describe_input_changes(old_inputs, new_inputs, "input")
    if changes:
        hint = f"use another key, or continue this run: git ckpt resume {newest.run}"
        raise Changed(str(newest.run), changes, hint=hint)


def update_pipeline(
    store: Checkpoints, run: RunSession, definition: PipelineDefinition, *, accept: bool
) -> Pipeline:
    newest = run.writer.newest
    record = newest.pipeline or Pipeline()
    value_digests = definition.value_digests()
    changes = pipeline.describe_changes(record.definition, value_digests)
    contents = _read_current_input_files(store, newest, definition, accept=accept)
    digests, recorded = RunInputs({}, contents).content_digests, record.contents
    old_digests = {name: recorded[name] for name in digests if name in recorded}
    changes += attempts.describe_input_changes(old_digests, digests, "input")
    if accept:
        run.files.write_inputs(contents)
        new_copies = _read_input_copies(run, {**recorded, **digests}, definition)
        copy_digests = RunInputs({}, new_copies).content_digests
        phases = tuple(phase.name for phase in definition.phases)
        recorded = {**recorded, **digests, **copy_digests}
        return replace(record, phases=phases, definition=value_digests, contents=recorded)
    if changes:
        raise Changed(run.id, changes)
    # Replace copies with masked secrets by the original files, where these have not changed.
    saved = run.files.read_inputs()
    for name, data in list(contents.items()):
        is_same = digests[name] == recorded.get(name)
        if not is_same or saved.get(name) != secrets.mask_unsettled_secrets(store.repository, data):
            del contents[name]
    run.files.write_inputs(contents)
    return record


def _read_current_input_files(
    store: Checkpoints, newest: Checkpoint, definition: PipelineDefinition, *, accept: bool
) -> dict[str, bytes]:
    record, contents = newest.pipeline or Pipeline(), {}
    main_top = main_worktree(store.repository) or store.repository.worktree or ""
    worktree_tops = (store.repository.worktree or main_top, main_top)
    for name in definition.files:
        path = record.inputs.get(name)
        candidates = [os.path.join(top, path) for top in worktree_tops] if path else []
        file = next(filter(os.path.isfile, candidates), None)
        if file is None:
            continue  # only the run's copy exists
        # A path without recorded content was never read here: another tool may have set the path.
        if name in record.contents or (reason := _reason_to_exclude_file(store, file)) is None:
            contents[name] = _read_input_file(file, name, *worktree_tops)
        elif accept:
            message = f"cannot read {path}, the input {name} of {newest.run}: {reason}"
            raise UsageError(message, hint="start a new run: git ckpt run")
    return contents


def _reason_to_exclude_file(store: Checkpoints, path: str) -> str | None:
    from gitckpt.store.snapshot import limits

    repository = store.repository
    main_top = main_worktree(repository)
    if repository.worktree is None or not path.startswith(f"{repository.worktree}/"):
        if main_top is None:
            return "the file is not in a worktree"
        repository = Repository(repository.common_dir, main_top, repository.object_format)
    return limits.reason_not_captured(repository, store.settings_reader.read_limits(), path)


def replace_inputs(newest: Pipeline, definition: PipelineDefinition, texts: Texts) -> Pipeline:
    _require_known_inputs(definition, texts)
    for name in texts:
        if name in definition.files:
            hint = "change the file itself, then resume with --accept-changes"
            raise UsageError(f"cannot replace the input {name}, which is a file", hint=hint)
    return replace(newest, inputs={**newest.inputs, **_mask_input_texts(definition, texts)})


def _mask_input_texts(definition: PipelineDefinition, texts: Texts) -> dict[str, str]:
    # The paths of input files are not masked.
    files = definition.files
    return {key: text if key in files else secrets.mask_text(text) for key, text in texts.items()}


def _read_input_copies(
    run: RunSession, recorded: Collection[str], definition: PipelineDefinition
) -> dict[str, bytes]:
    directory = os.path.join(run.files.path, run_files.INPUT)
    names = [name for name in definition.files if name in recorded]
    return {name: _read_input_file(os.path.join(directory, name), name) for name in names}


def require_valid_run_options(options: Mapping[str, object], names: Collection[str]) -> None:
    require_known_arguments(options, names)
    require_text("holder", options.get("holder", ""))
    for name in ("autonomy", "phase"):
        require_text(name, options.get(name), may_be_none=True)
    require_number("timeout", options.get("timeout"), may_be_none=True)
    if options.get("timeout") == 0:
        raise UsageError("timeout: must be more than 0", hint="write a duration such as 30m")
    require_type("rewind", options.get("rewind"), (Checkpoint, NoneType), "a Checkpoint")
    require_type("inputs", options.get("inputs", {}), Mapping, "a map of names to values")


def _require_known_inputs(definition: PipelineDefinition, texts: Texts) -> None:
    for name, text in arguments.as_mapping("inputs", texts).items():
        require_text(f"inputs[{name!r}]", text)
        if name not in definition.inputs:
            names = ", ".join(definition.inputs) or "none"
            hint = f"inputs: {names}"
            raise UsageError(f"the pipeline {definition.name} has no input {name!r}", hint=hint)


def _read_input_file(path: str, name: str, *tops: str | None) -> bytes:
    # In one of the worktrees `tops`, do not follow a link that leads out of it.
    top = next((top for top in tops if top and path.startswith(f"{top}/")), None)
    try:
        return regular.read_content(path) if top is None else regular.read_content_below(top, path)
    except OSError as error:
        message = f"cannot read {path}, the input {name}: {error.strerror}"
        raise UsageError(message, hint="name a readable file") from None
