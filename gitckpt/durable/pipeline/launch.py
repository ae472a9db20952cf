"""Start a pipeline; compare a resumed run with its start."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any

from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition
from gitckpt.durable.run import attempts
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.attempts import Changed, PhaseFailed
from gitckpt.durable.run.opener import begin
from gitckpt.git.files import regular
from gitckpt.git.process import LOCAL_VARIABLES
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import times
from gitckpt.model.arguments import first_of, mapping, require, require_number, require_text
from gitckpt.model.checkpoint import Attempt, Checkpoint, Pipeline
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases import leases
from gitckpt.store.runs import run_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.agent.clients import Client


# Environment variable: "1" in a repeated phase, else unset.
RESUMED = "CKPT_RESUMED"

_LONGEST = 4096
_LONGEST_INPUT = 30_000  # systems allow 128 KiB for a variable
_PLACE = re.compile(r"\{\{|\}\}|\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt at a phase of a pipeline."""

    run: ActiveRun
    definition: PipelineDefinition
    phase: PhaseDefinition
    attempt: Attempt
    watchdog: Watchdog
    output: Callable[[bytes], None]
    tick: Callable[[float], None] | None = None  # gets the seconds since a long action began
    agents: Mapping[str, Client] = field(default_factory=dict)
    announce: Callable[[str], None] = lambda _: None  # gets a line to show before an action

    def inputs(self) -> dict[str, str]:
        """Return the inputs of the run; for files, the paths of their copies."""
        pipeline = self.run.pipeline
        found = {**self.definition.inputs, **pipeline.inputs}
        for name in self.definition.files:
            found[name] = os.path.join(self.run.files.path, run_files.INPUT, name) if name in pipeline.contents else ""
        return found

    def content(self, path: str, what: str) -> bytes:
        """Return the content of an input file, or else of a file of the worktree.

        Raises PhaseFailed, which names the file `what`, if it is missing or cannot be read.
        """
        run = self.run
        names = [name for name in self.definition.files if run.pipeline.inputs.get(name) == path and name in run.pipeline.contents]
        copies = [os.path.join(run.files.path, run_files.INPUT, name) for name in names]
        for place in (*copies, os.path.join(run.path, path)):
            is_copy = place in copies or os.path.isabs(path)
            try:
                return regular.content(place) if is_copy else regular.content_below(run.path, place)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                hint = f"make it a file that can be read, then: git ckpt resume {run.id}"
                raise PhaseFailed(f"{what} cannot be read: {place}: {error.strerror}", hint=hint) from None
        hint = f"put it there, then: git ckpt resume {run.id} --accept-changes"
        raise PhaseFailed(f"{what} is not there: {path}", hint=hint)

    def option(self, name: str) -> str:
        """Return an option of the phase with its placeholders filled.

        `{name}` names an input, or a string or number of the state; `{{` and `}}` are braces.
        Raises PhaseFailed for an unknown one.
        """
        given = {**self.definition.inputs, **self.run.pipeline.inputs}
        # An empty input does not hide a result of an earlier phase.
        known = {**given, **plain(self.run.state), **{key: value for key, value in given.items() if value}}
        try:
            return filled(self.phase.options.get(name, ""), known)
        except KeyError as error:
            place = f"{{{error.args[0]}}}"
            raise PhaseFailed(f"{name} of phase {self.phase.name!r} names {place}, and there is no such input or state") from None

    def client(self, role: str) -> Client:
        """Return the agent that an option names, or raise UsageError."""
        from gitckpt.durable.agent.clients import client_of, redefinition  # most phases are commands

        wanted = self.option(role)
        redefined = redefinition(wanted, self.agents)
        if redefined is not None:
            self.announce(redefined)
        return client_of(wanted, self.agents)

    def environment(self) -> dict[str, str]:
        run = self.run
        revisions = run.state.get("revisions")
        revision = revisions.get(self.phase.name) if isinstance(revisions, dict) else None
        env = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES and not name.startswith("CKPT_")}
        env |= {**self.definition.env, **self.phase.env}
        env |= {f"CKPT_STATE_{key.upper()}": value for key, value in plain(run.state).items()}
        env |= {f"CKPT_INPUT_{name.upper()}": value for name, value in self.inputs().items() if len(value) <= _LONGEST_INPUT}
        return env | {
            leases.RUN_VARIABLE: run.id,
            leases.FENCE_VARIABLE: str(run.hold.lease.token),
            "CKPT_REVISION": revision if isinstance(revision, str) and "\0" not in revision else "",
            "CKPT_PHASE": self.phase.name,
            "CKPT_ATTEMPT": str(self.attempt.number),
            **({RESUMED: "1"} if self.attempt.number > 1 else {}),
        }

    def look(self, seconds: float) -> None:
        """Raise if the run must stop; called about once a second in long actions."""
        self.run.check()
        if self.tick is not None:
            self.tick(seconds)


def plain(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the strings and numbers of a state that fit into an environment."""
    found = {}
    for key, value in state.items():
        text = str(value) if type(value) in (str, int, float) else ""
        if text and key.isascii() and key.replace("_", "a").isalnum() and len(text) <= _LONGEST and "\0" not in text:
            found[key] = text
    return found


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return an option with `{name}` replaced by values, and `{{` and `}}` by braces.

    Raises KeyError for an unknown name.
    """
    return _PLACE.sub(lambda found: found[0][0] if found[1] is None else known[found[1]], text).strip()


# Inputs, start and comparison.

_MASKED = ", in which what looked like a secret is masked, as in all that is stored; the file itself is gone, or another one by now"


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of a run."""

    inputs: Mapping[str, str]  # paths inside the worktree are relative to its top
    contents: Mapping[str, bytes]  # of file inputs, by name

    @property
    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.contents.items()}

    def tell(self, store: Checkpoints, warn: Callable[[str], None]) -> None:
        """Warn of files whose stored copies have masked secrets, and how to allow them."""
        for name, data in self.contents.items():
            found = secrets.unsettled(store.repository, data)
            for hit, line, digest in found[:1]:
                more = f", with {len(found) - 1} more" if len(found) > 1 else ""
                what = f"{self.inputs[name]}, line {line}, looks like a secret ({hit.rule}{more}): it is masked in the copy that is stored"
                warn(f"{what}; if it is none: git ckpt allow --secret {digest}")


def read_inputs(store: Checkpoints, definition: PipelineDefinition, said: Mapping[str, str]) -> Given:
    """Return the inputs of a new run.

    Files in `given` are relative to the current directory. Secrets in texts are masked from the
    start, so that all phases get the same text. Phases find secrets in their environment.
    """
    _require_inputs(definition, said)
    said = _masked(definition, said)
    top = store.repository.worktree or main_worktree(store.repository)
    inputs, contents = {**definition.inputs, **said}, {}
    for name in definition.files:
        if not inputs[name]:
            continue
        path = os.path.abspath(inputs[name]) if name in said else os.path.join(top or "", inputs[name])
        contents[name] = _content(path, name, top)
        inputs[name] = _relative(path, top)
    return Given(inputs, contents)


def given_to(run: ActiveRun, definition: PipelineDefinition) -> Given:
    """Return the inputs of a run from its own copies; errors as `require_copies`."""
    contents = _copies(run, run.pipeline, definition)
    require_copies(run, definition)
    return Given({**definition.inputs, **run.pipeline.inputs}, contents)


def require_copies(run: ActiveRun, definition: PipelineDefinition) -> None:
    """Raise `Changed` if the run's copies of input files differ from its start."""
    copies = _copies(run, run.pipeline, definition)
    # The copies come from a snapshot, which may have been fetched.
    wrong = [name for name, digest in Given({}, copies).digests.items() if digest != run.pipeline.contents[name]]
    if not wrong:
        return
    paths = [run.pipeline.inputs.get(name, name) for name in wrong if secrets.has_masks(copies[name])]
    if not paths:
        raise Changed(run.id, [f"the run's copy of the input {name}" for name in wrong])
    what = [f"the run's copy of the input {name}{_MASKED if secrets.has_masks(copies[name]) else ''}" for name in wrong]
    hint = f"put {first_of(paths)} back as it was; or go on with what is masked: git ckpt resume {run.id} --accept-changes"
    raise Changed(run.id, what, hint=hint)


def start(
    store: Checkpoints,
    definition: PipelineDefinition,
    given: Given,
    *,
    name: str,
    base: str = "HEAD",
    autonomy: str | None = None,
    timeout: int | None = None,
    key: str | None = None,
) -> Checkpoint:
    """Record the first checkpoint of a run of a pipeline.

    `name` becomes part of the run id. Autonomy and timeout (in microseconds) default to those of
    the pipeline.

    Raises:
        RunExists: the key is taken.
    """
    limit = timeout or definition.timeout
    said = Pipeline(
        name=definition.name,
        phases=tuple(phase.name for phase in definition.phases),
        autonomy=autonomy or definition.autonomy,
        deadline=times.to_text(store.clock() + limit) if limit is not None else None,
        definition=definition.digest(),
        inputs=dict(given.inputs),
        contents=given.digests,
    )
    return begin(store, name, base=base, state={}, pipeline=said, files=given.contents, key=key)


def require_same_start(newest: Checkpoint, definition: PipelineDefinition, given: Given) -> None:
    """Raise `Changed` if a run with a key was started with something else."""
    before = newest.pipeline or Pipeline()
    if before.name != definition.name:
        changed = [f"its pipeline is {before.name or 'none'}, not {definition.name}"]
    else:
        changed = pipeline.changes(before.definition, definition.digest())
        changed += attempts.differing_inputs({**before.inputs, **before.contents}, {**given.inputs, **given.digests}, "input")
    if changed:
        hint = f"start another run: another key; go on with this one: git ckpt resume {newest.run}"
        raise Changed(str(newest.run), changed, hint=hint)


def require_same(
    store: Checkpoints, newest: Checkpoint, definition: PipelineDefinition, *, accept: bool
) -> tuple[Pipeline, dict[str, bytes]]:
    """Raise Changed if pipeline or inputs differ from the start of a run.

    Returns the pipeline record from now on, and the file contents to copy; stored copies may be
    masked.
    """
    before = newest.pipeline or Pipeline()
    changed = pipeline.changes(before.definition, definition.digest())
    contents: dict[str, bytes] = {}
    top = main_worktree(store.repository) or store.repository.worktree or ""
    tops = (store.repository.worktree or top, top)
    for name in definition.files:
        path = before.inputs.get(name)
        places = [os.path.join(place, path) for place in tops] if path else []
        there = next((place for place in places if os.path.isfile(place)), None)
        if there is None:
            continue  # only the run's copy is left
        # A path without a recorded content was not read here before: another tool may have set it.
        if name not in before.contents and (reason := _left_out(store, there)) is not None:
            if accept:
                message = f"the input {name} of {newest.run} is {path}, which is not read: {reason}"
                raise UsageError(message, hint="start a run of your own: git ckpt run")
            continue
        contents[name] = _content(there, name, *tops)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    changed += attempts.differing_inputs({name: before.contents[name] for name in digests if name in before.contents}, digests, "input")
    if changed and not accept:
        raise Changed(str(newest.run), changed)
    if not changed and not accept:
        return before, {name: data for name, data in contents.items() if digests[name] == before.contents.get(name)}
    now = replace(
        before,
        phases=tuple(phase.name for phase in definition.phases),
        definition=definition.digest(),
        contents={**before.contents, **digests},
    )
    return now, contents


def _left_out(store: Checkpoints, path: str) -> str | None:
    from gitckpt.store.snapshot import limits

    repository = store.repository
    top = main_worktree(repository)
    if repository.worktree is None or not path.startswith(f"{repository.worktree}/"):
        if top is None:
            return "it is in no worktree"
        repository = Repository(repository.common_dir, top, repository.object_format)
    return limits.reason_to_leave(repository, store.rules.limits(), path)


def changed_inputs(newest: Pipeline, definition: PipelineDefinition, said: Mapping[str, str]) -> Pipeline:
    """Return the pipeline record with changed inputs, which cannot be files."""
    _require_inputs(definition, said)
    for name in said:
        if name in definition.files:
            hint = "change the file itself, then go on with it: --accept-changes"
            raise UsageError(f"the input {name} is a file, whose content belongs to the run", hint=hint)
    return replace(newest, inputs={**newest.inputs, **_masked(definition, said)})


def _masked(definition: PipelineDefinition, said: Mapping[str, str]) -> dict[str, str]:
    # Paths are not masked.
    return {name: value if name in definition.files else secrets.masked(value) for name, value in said.items()}


def with_copies(run: ActiveRun, now: Pipeline, definition: PipelineDefinition) -> Pipeline:
    """Return the pipeline record with the digests of the run's present copies."""
    return replace(now, contents={**now.contents, **Given({}, _copies(run, now, definition)).digests})


def take_in(run: ActiveRun, contents: Mapping[str, bytes], *, accepted: bool) -> None:
    """Replace the run's copies of input files.

    Unless accepted, only replace a masked copy of the same file.
    """
    there = {} if accepted else run.files.inputs()
    repository = run.store.repository
    run.files.keep(
        {name: data for name, data in contents.items() if accepted or there.get(name) == secrets.masked_copies(repository, data)}
    )


def _copies(run: ActiveRun, pipeline: Pipeline, definition: PipelineDefinition) -> dict[str, bytes]:
    names = [name for name in definition.files if name in pipeline.contents]
    return {name: _content(os.path.join(run.files.path, run_files.INPUT, name), name) for name in names}


def require_wishes(said: Mapping[str, object], known: Collection[str]) -> None:
    """Raise UsageError for unknown or mistyped arguments of a run."""
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise UsageError(f"there is no argument {unknown[0]!r}", hint=f"how a run may be driven: {', '.join(sorted(known))}")
    require_text("holder", said.get("holder", ""))
    for name in ("autonomy", "phase"):
        require_text(name, said.get(name), may_be_none=True)
    require_number("timeout", said.get("timeout"), may_be_none=True)
    if said.get("timeout") == 0:
        raise UsageError("timeout: 0 is no time at all", hint="write as much as it may take, such as 30m, or leave it out")
    require("rewind", said.get("rewind"), (Checkpoint, NoneType), "a Checkpoint")
    require("inputs", said.get("inputs", {}), Mapping, "a map of names to values")


def _require_inputs(definition: PipelineDefinition, said: Mapping[str, str]) -> None:
    for name, text in mapping("inputs", said).items():
        require_text(f"inputs[{name!r}]", text)
        if name not in definition.inputs:
            known = ", ".join(definition.inputs) or "none"
            raise UsageError(f"the pipeline {definition.name} has no input {name!r}", hint=f"its inputs: {known}")


def _content(path: str, name: str, *tops: str | None) -> bytes:
    # Within one of the worktrees `tops`, a link must not lead out.
    around = next((top for top in tops if top and path.startswith(f"{top}/")), None)
    try:
        return regular.content(path) if around is None else regular.content_below(around, path)
    except OSError as error:
        raise UsageError(f"cannot read {path}, the input {name}: {error.strerror}", hint="name a file that can be read") from None


def _relative(path: str, top: str | None) -> str:
    # A project may be moved: store paths below the worktree relative to its top.
    real, root = os.path.realpath(path), os.path.realpath(top) if top else ""
    return os.path.relpath(real, root) if top and real.startswith(root + os.sep) else path
