"""Define pipelines and phases, and parse `gitckpt.toml` and presets."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import ON_RESUME, Retries
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import phase as phase_labels
from gitckpt.model.arguments import closest_word, normalize_name, require_text
from gitckpt.model.errors import NotFoundError, UsageError
from gitckpt.model.values import dataclass, field
from gitckpt.store.config.file import ConfigFile, Table, read_config_file, read_text
from gitckpt.store.config.settings import FILE, PIPELINES

Texts = Mapping[str, str]  # values by name

CHECKPOINT, BATCH, FULLY_AUTONOMOUS = "checkpoint", "batch", "fully_autonomous"
# Pause after each phase, at the end of a group, or never.
_AUTONOMIES = (CHECKPOINT, BATCH, FULLY_AUTONOMOUS)

KEEP, REMOVE_WHEN_PUSHED = "keep", "remove_when_pushed"
WORKTREES = (KEEP, REMOVE_WHEN_PUSHED)

# Keys of a pipeline that may change while a run is paused: the run records its own name, autonomy
# and deadline, and phases have digests of their own.
CHANGEABLE = ("name", "phases", "description", "autonomy", "timeout", "retention", "source")

# Keys of a phase that may change while a run is paused: they do not change what the command does.
CHANGEABLE_IN_PHASES = ("name", "timeout", "idle_timeout", "retries", "autosave", "max_recoveries")

_UNORDERED = ("needs", "aliases", "skip_with", "files")


@dataclass(frozen=True, slots=True)
class PhaseDefinition:
    """A phase, as defined in `gitckpt.toml`. Durations are in microseconds."""

    name: str
    run: str | None = None  # shell command; None if `use` names a step
    use: str | None = None  # name of a built-in step
    env: Texts = field(default_factory=dict)
    timeout: int | None = None  # of one attempt
    idle_timeout: int | None = None  # longest time without output
    retries: Retries = field(default_factory=Retries)
    autosave: int = attempts.AUTOSAVE  # interval; 0 disables autosaves
    max_recoveries: int = attempts.MAX_RECOVERIES  # a further crash in the phase blocks the run
    group: str | None = None
    needs: tuple[str, ...] = ()  # phases that must come before this one
    on_resume: str = attempts.KEEP  # files of an unfinished attempt: `keep`, or `reset`
    must_change: bool = False  # an attempt that changes no file fails
    aliases: tuple[str, ...] = ()
    skip_with: tuple[str, ...] = ()  # skip the phase if any of these inputs is given
    options: Texts = field(default_factory=dict)  # key `with`: options of the step in `use`


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A pipeline, as defined in `gitckpt.toml`. Durations are in microseconds."""

    name: str
    phases: tuple[PhaseDefinition, ...]  # in execution order
    description: str = ""
    autonomy: str = FULLY_AUTONOMOUS
    timeout: int | None = None  # of the whole run
    env: Texts = field(default_factory=dict)
    worktree: str = KEEP  # of a complete run: `keep` or `remove_when_pushed`
    retention: int | None = None  # age at which complete runs expire
    inputs: Texts = field(default_factory=dict)  # name → default
    # Names of the inputs that are paths of files; a run stores copies of these files.
    files: tuple[str, ...] = ()
    source: str = ""  # path of the defining file, or `preset`

    def phase(self, text: str) -> PhaseDefinition:
        """Return the phase that has `text` as name or alias; ignore case and hyphens."""
        require_text("phase", text)
        for phase in self.phases:
            if phase.name == text:
                return phase
        pairs = [(name, phase) for phase in self.phases for name in (phase.name, *phase.aliases)]
        phases_by_name = {normalize_name(name): phase for name, phase in pairs}
        if normalize_name(text) in phases_by_name:
            return phases_by_name[normalize_name(text)]
        hint = f"phases: {', '.join(phase.name for phase in self.phases)}"
        closest_name = closest_word(normalize_name(text), phases_by_name)
        if closest_name:
            hint = f"did you mean {phases_by_name[closest_name].name}? {hint}"
        raise UsageError(f"the pipeline {self.name} has no phase {text!r}", hint=hint)

    def ends_phase_group(self, name: str) -> bool:
        """Return whether a phase is the last of its group, or belongs to no group."""
        for phase, next_phase in zip(self.phases, (*self.phases[1:], None), strict=True):
            if phase.name == name:
                return phase.group is None or next_phase is None or next_phase.group != phase.group
        raise KeyError(name)

    def value_digests(self) -> dict[str, str]:
        """Return a digest of each value that must not change while a run is paused."""
        changed_values = _nondefault_values(self, PipelineDefinition("", ()), CHANGEABLE)
        changed_values["order"] = [phase.name for phase in self.phases]
        for phase in self.phases:
            values = _nondefault_values(phase, PhaseDefinition(""), CHANGEABLE_IN_PHASES)
            for key, value in values.items():
                changed_values[f"{phase.name}.{key}"] = value
        to_json = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"))
        json_texts = {key: to_json(value).encode() for key, value in changed_values.items()}
        return {key: hashlib.sha256(text).hexdigest()[:16] for key, text in json_texts.items()}


def _nondefault_values(record: Any, default: object, free: Collection[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key in record.__match_args__:
        value = getattr(record, key)
        if key not in free and value != getattr(default, key):
            value = sorted(value) if key in _UNORDERED else value
            value = dict(value) if isinstance(value, Mapping) else value
            values["with" if key == "options" else key] = value
    return values


def describe_changes(old: Texts, new: Texts) -> list[str]:
    old_phases, new_phases = _phase_names_in_digest(old), _phase_names_in_digest(new)
    differing_keys = [key for key in {**new, **old} if old.get(key) != new.get(key)]
    changes = [
        "the order of the phases" if key == "order" else key
        for key in differing_keys
        # A new or missing phase implies another order.
        if "." not in key and (key != "order" or old_phases == new_phases)
    ]
    for name in new_phases:
        if name not in old_phases:
            changes.append(f"phase {name!r} is new")
            continue
        split_keys = [key.rpartition(".") for key in differing_keys]
        changes += [f"phase {name!r}: {key}" for phase, _, key in split_keys if phase == name]
    return changes + [f"phase {name!r} is gone" for name in old_phases if name not in new_phases]


def _phase_names_in_digest(digest: Texts) -> dict[str, None]:
    return dict.fromkeys(key.rpartition(".")[0] for key in digest if "." in key)


def parse_autonomy(text: str) -> str:
    require_text("autonomy", text)
    mode = text.strip().lower()
    mode = FULLY_AUTONOMOUS if mode == "autonomous" else mode
    if mode not in _AUTONOMIES:
        guess = closest_word(mode, _AUTONOMIES)
        hint = f"did you mean {guess}?" if guess else f"choose from {', '.join(_AUTONOMIES)}"
        raise UsageError(f"{text!r} is not a mode of autonomy", hint=hint)
    return mode


# Parsing. All mistakes are reported before any definition is returned.

KnownSteps = Mapping[str, Collection[str]]  # the steps that `use` may name, with their options

ParsedPhase = tuple[Table, PhaseDefinition]
_FIELDS = PipelineDefinition.__match_args__
_PIPELINE_KEYS = tuple(name for name in _FIELDS if name not in ("name", "phases", "source"))
_PIPELINE_KEYS += ("phases",)
_PHASE_KEYS = tuple("with" if key == "options" else key for key in PhaseDefinition.__match_args__)
_RETRIES_KEYS = Retries.__match_args__
_DEFAULT, _DEFAULT_PHASE = PipelineDefinition("", ()), PhaseDefinition("")
_DEFAULT_RETRIES = Retries()


def parse_pipelines(
    text: str, path: str, known_steps: KnownSteps, *, source: str = ""
) -> dict[str, PipelineDefinition]:
    def parse_pipeline_table(name: str, table: Table) -> PipelineDefinition:
        return _parse_pipeline(name, table, known_steps, source or path)

    return ConfigFile(text, path).read_tables(PIPELINES, "pipeline", parse_pipeline_table)


def _parse_pipeline(name: str, table: Table, steps: KnownSteps, source: str) -> PipelineDefinition:
    table.check_keys(_PIPELINE_KEYS)
    inputs = table.inputs("inputs")
    phase_tables = table.tables("phases", "phase")
    phases = [(item, _parse_phase(item, steps, inputs)) for item in phase_tables]
    if table.values.get("phases", []) == []:
        hint = f"add [[pipelines.{name}.phases]] with name and run"
        table.report(f"{table.label} has no phases", hint=hint)
    _require_distinct_names(phases)
    return PipelineDefinition(
        name=name,
        phases=_sort_phases_by_needs(table.label, phases),
        env=table.environment("env"),
        autonomy=_parse_autonomy(table),
        timeout=table.duration("timeout", positive=True),
        inputs=inputs,
        files=table.members("files", inputs, "input"),
        worktree=table.choice("worktree", WORKTREES, _DEFAULT.worktree),
        retention=table.duration("retention"),
        description=table.text("description", one_line=True) or "",
        source=source,
    )


def _parse_autonomy(table: Table) -> str:
    text = table.text("autonomy", _DEFAULT.autonomy) or _DEFAULT.autonomy
    try:
        return parse_autonomy(text)
    except UsageError as error:
        table.report(f"autonomy in {table.label}: {error.message}", "autonomy", hint=error.hint)
        return _DEFAULT.autonomy


def _parse_phase(table: Table, known_steps: KnownSteps, inputs: Collection[str]) -> PhaseDefinition:
    table.check_keys(_PHASE_KEYS)
    command, step = _parse_command(table, known_steps)
    return PhaseDefinition(
        name=table.read_name(phase_labels.NOT_PHASES),
        run=command,
        use=step,
        env=table.environment("env"),
        timeout=table.duration("timeout", positive=True),
        idle_timeout=table.duration("idle_timeout", positive=True),
        retries=_parse_retries(table),
        autosave=table.duration("autosave", _DEFAULT_PHASE.autosave) or 0,
        max_recoveries=table.count("max_recoveries", _DEFAULT_PHASE.max_recoveries),
        group=table.text("group", one_line=True),
        needs=table.names("needs"),
        on_resume=table.choice("on_resume", ON_RESUME, _DEFAULT_PHASE.on_resume),
        must_change=table.read_flag("must_change", default=_DEFAULT_PHASE.must_change),
        aliases=table.names("aliases"),
        skip_with=table.members("skip_with", inputs, "input"),
        options=_parse_options(table, step, known_steps),
    )


def _parse_command(table: Table, known_steps: KnownSteps) -> tuple[str | None, str | None]:
    if "run" in table.values and "use" in table.values:
        table.report(f"{table.label} has both keys, run and use", "use", hint="remove run or use")
    elif "run" not in table.values and "use" not in table.values:
        table.report(f"{table.label} has no command", hint='add run = "COMMAND"')
    command, step = table.text("run"), table.text("use")
    if step is not None and step not in known_steps:
        guess = closest_word(step, known_steps)
        hint = f"did you mean {guess!r}?" if guess else f"steps: {', '.join(sorted(known_steps))}"
        table.report(f"use in {table.label} names an unknown step: {step!r}", "use", hint=hint)
    return command, step


def _parse_options(table: Table, use: str | None, known_steps: KnownSteps) -> dict[str, str]:
    if "with" not in table.values:
        return {}
    if use is None:
        hint = "only built-in steps have options"
        table.report(f"{table.label} has the key with, but not the key use", "with", hint=hint)
        return {}
    options_table = table.subtable("with", f"with of {table.label}")
    if options_table is not None and use in known_steps:
        options_table.check_keys(tuple(known_steps[use]))
    return table.strings("with", f"with of {table.label}")


def _parse_retries(table: Table) -> Retries:
    if not isinstance(table.values.get("retries"), dict):
        return Retries(attempts=table.count("retries", _DEFAULT_RETRIES.attempts))
    retries = table.subtable("retries", f"retries of {table.label}")
    assert retries is not None
    retries.check_keys(_RETRIES_KEYS)
    delay = retries.duration("delay", _DEFAULT_RETRIES.delay) or 0
    max_delay = retries.duration("max_delay", max(delay, _DEFAULT_RETRIES.max_delay)) or 0
    if max_delay < delay:
        retries.report(f"max_delay in {retries.label} is less than delay", "max_delay")
    return Retries(
        attempts=retries.count("attempts", 1),
        delay=delay,
        backoff=retries.number("backoff", _DEFAULT_RETRIES.backoff, 1, 100),
        max_delay=max_delay,
        jitter=retries.number("jitter", _DEFAULT_RETRIES.jitter, 0, 1),
        on=retries.exit_codes("on"),
    )


def _require_distinct_names(phases: list[ParsedPhase]) -> None:
    first_uses: dict[str, tuple[str, Table, Sequence[str | int]]] = {}
    # All names first, as a name has precedence over an alias.
    entries: list[tuple[Table, str, str, Sequence[str | int]]]
    entries = [(table, definition.name, "phase name", ("name",)) for table, definition in phases]
    for table, definition in phases:
        aliases = enumerate(definition.aliases)
        entries += [(table, alias, "alias", ("aliases", i)) for i, alias in aliases]
    for table, name, kind, path in entries:
        if not name.strip():
            continue
        if normalize_name(name) not in first_uses:
            first_uses[normalize_name(name)] = (name, table, path)
            continue
        other_name, other_table, other_path = first_uses[normalize_name(name)]
        relation = "is used" if other_name == name else f"is too similar to {other_name!r}"
        message = f"the {kind} {name!r} {relation} in line {other_table.line_of_key(*other_path)}"
        hint = "names must differ by more than case, hyphens and underscores"
        table.report(message, *path, hint=hint)


def _sort_phases_by_needs(label: str, phases: list[ParsedPhase]) -> tuple[PhaseDefinition, ...]:
    # Keep the order of the file, but move each phase behind the phases that it needs.
    names = [definition.name for _, definition in phases]
    for table, definition in phases:
        table.require_members("needs", definition.needs, names, f"phase of {label}")
    ordered_phases: list[PhaseDefinition] = []
    queue = list(phases)
    while queue:
        queued_names = {definition.name for _, definition in queue}
        ready_pair = next((pair for pair in queue if queued_names.isdisjoint(pair[1].needs)), None)
        if ready_pair is None:
            cycle = _report_cycle_of_needs(queue)
            queue = [pair for pair in queue if pair[1].name not in cycle]
        else:
            queue.remove(ready_pair)
            ordered_phases.append(ready_pair[1])
    return tuple(ordered_phases)


def _report_cycle_of_needs(waiting: list[ParsedPhase]) -> list[str]:
    parsed_by_name = {definition.name: (table, definition) for table, definition in waiting}
    visited_names: list[str] = []
    name = waiting[0][1].name
    while name not in visited_names:
        visited_names.append(name)
        name = next(need for need in parsed_by_name[name][1].needs if need in parsed_by_name)
    cycle = visited_names[visited_names.index(name) :]
    first_index = min(range(len(cycle)), key=lambda i: parsed_by_name[cycle[i]][0].line_of_key())
    cycle = cycle[first_index:] + cycle[:first_index]
    message = f"phases need each other: {' → '.join([*cycle, cycle[0]])}"
    parsed_by_name[cycle[0]][0].report(message, "needs")
    return cycle


PRESETS = ("plan-to-pr", "rlm-act", "loop", "review")
PRESET = "preset"  # `source` of a preset

_DIRECTORY = os.path.join(os.path.dirname(__file__), "presets")


def config_path(repository: Repository) -> str:
    return os.path.join(repository.worktree or main_worktree(repository) or "", FILE)


def read_pipeline(path: str, name: str, known_steps: KnownSteps) -> PipelineDefinition:
    require_text("name", name)
    definitions = parse_pipelines(read_text(path), path, known_steps)
    if name in definitions:
        return definitions[name]
    if name in PRESETS:
        return read_preset(name, known_steps)
    presets = [preset for preset in PRESETS if preset not in definitions]
    names = [*definitions, *(f"{preset} (preset)" for preset in presets)]
    guess = closest_word(name, [*definitions, *presets])
    suggestion = f"did you mean {guess}? " if guess else ""
    hint = f"{suggestion}pipelines: {', '.join(names)}; define others in {os.path.basename(path)}"
    raise NotFoundError(f"there is no pipeline {name!r}", hint=hint)


def pipeline_of_run(path: str, name: str, known_steps: KnownSteps, run: str) -> PipelineDefinition:
    try:
        return read_pipeline(path, name, known_steps)
    except NotFoundError:  # the caller named the run, not the pipeline
        advice = f"end the run: git ckpt finish --force {run}; or remove it: git ckpt remove {run}"
        hint = f"restore the pipeline, then: git ckpt resume {run}; or {advice}"
        message = f"the pipeline {name!r} of run {run} is not in {path}"
        raise NotFoundError(message, hint=hint) from None


def describe_redefined_preset(definition: PipelineDefinition) -> str | None:
    if definition.name not in PRESETS or definition.source == PRESET:
        return None
    return f"{FILE} redefines the preset {definition.name}: check the commands in this file"


def read_pipeline_names(path: str) -> list[str]:
    config_file = read_config_file(path)
    table = config_file.table(PIPELINES)
    config_file.require_no_mistakes()
    return list(table.values)


def read_preset(name: str, known_steps: KnownSteps) -> PipelineDefinition:
    text = read_preset_text(name)
    return parse_pipelines(text, f"preset {name}", known_steps, source=PRESET)[name]


def read_preset_text(name: str) -> str:
    require_text("name", name)
    if name not in PRESETS:
        raise NotFoundError(f"there is no preset {name!r}", hint=f"presets: {', '.join(PRESETS)}")
    with open(os.path.join(_DIRECTORY, f"{name}.toml"), encoding="utf-8") as file:
        return file.read()
