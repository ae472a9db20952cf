"""Read pipelines from `gitckpt.toml`, and the presets below them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition
from gitckpt.durable.run.attempts import ON_RESUME, Retries
from gitckpt.model import phase
from gitckpt.model.arguments import closest, folded, require_text
from gitckpt.model.errors import NotFoundError, UsageError
from gitckpt.store.config.file import ConfigFile, Table, read_file, text_of
from gitckpt.store.config.settings import FILE, PIPELINES

# Parsing. All mistakes are reported before any definition is returned.

_PIPELINE_KEYS = (*(name for name in PipelineDefinition.__match_args__ if name not in ("name", "phases", "source")), "phases")
_PHASE_KEYS = tuple("with" if name == "options" else name for name in PhaseDefinition.__match_args__)
_RETRIES_KEYS = Retries.__match_args__
_USUAL, _USUAL_PHASE, _USUAL_RETRIES = PipelineDefinition("", ()), PhaseDefinition(""), Retries()


def parse(text: str, path: str, known_steps: Mapping[str, Collection[str]], *, source: str | None = None) -> dict[str, PipelineDefinition]:
    """Return the pipelines in a text by name, in order.

    Args:
        known_steps: the steps that `use` may name, with their options.

    Raises:
        ConfigError: the text has mistakes.
    """
    return ConfigFile(text, path).each(PIPELINES, "pipeline", lambda name, table: _pipeline(name, table, known_steps, source or path))


def _pipeline(name: str, table: Table, known_steps: Mapping[str, Collection[str]], source: str) -> PipelineDefinition:
    table.only(_PIPELINE_KEYS)
    inputs = table.inputs("inputs")
    phases = [(each, _phase(each, known_steps, inputs)) for each in table.tables("phases", "phase")]
    if table.values.get("phases", []) == []:
        table.complain(f"{table.label} has no phases", hint=f"add [[pipelines.{name}.phases]] with name and run")
    _names_differ(phases)
    return PipelineDefinition(
        name=name,
        phases=_in_order(table.label, phases),
        env=table.environment("env"),
        autonomy=_autonomy(table),
        timeout=table.duration("timeout", positive=True),
        inputs=inputs,
        files=table.members("files", inputs, "input"),
        worktree=table.choice("worktree", pipeline.WORKTREES, _USUAL.worktree),
        retention=table.duration("retention"),
        description=table.text("description", one_line=True) or "",
        source=source,
    )


def _autonomy(table: Table) -> str:
    value = table.text("autonomy", _USUAL.autonomy) or _USUAL.autonomy
    try:
        return pipeline.autonomy(value)
    except UsageError as error:
        table.complain(f"autonomy in {table.label}: {error.message}", "autonomy", hint=error.hint)
        return _USUAL.autonomy


def _phase(table: Table, known_steps: Mapping[str, Collection[str]], inputs: Collection[str]) -> PhaseDefinition:
    table.only(_PHASE_KEYS)
    run, use = _command(table, known_steps)
    return PhaseDefinition(
        name=table.name(phase.NOT_PHASES),
        run=run,
        use=use,
        env=table.environment("env"),
        timeout=table.duration("timeout", positive=True),
        idle_timeout=table.duration("idle_timeout", positive=True),
        retries=_retries(table),
        autosave=table.duration("autosave", _USUAL_PHASE.autosave) or 0,
        max_recoveries=table.count("max_recoveries", _USUAL_PHASE.max_recoveries),
        group=table.text("group", one_line=True),
        needs=table.words("needs"),
        on_resume=table.choice("on_resume", ON_RESUME, _USUAL_PHASE.on_resume),
        must_change=table.flag("must_change", default=_USUAL_PHASE.must_change),
        aliases=table.words("aliases"),
        skip_with=table.members("skip_with", inputs, "input"),
        options=_options(table, use, known_steps),
    )


def _command(table: Table, known_steps: Mapping[str, Collection[str]]) -> tuple[str | None, str | None]:
    if "run" in table.values and "use" in table.values:
        table.complain(f"{table.label} has both run and use", "use", hint="keep one of them")
    elif "run" not in table.values and "use" not in table.values:
        table.complain(f"{table.label} has no command", hint='add run = "COMMAND"')
    run, use = table.text("run"), table.text("use")
    if use is not None and use not in known_steps:
        close = closest(use, known_steps)
        hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(sorted(known_steps))}" if known_steps else None
        table.complain(f"use in {table.label} names {use!r}, which is no step that gitckpt knows", "use", hint=hint)
    return run, use


def _options(table: Table, use: str | None, known_steps: Mapping[str, Collection[str]]) -> dict[str, str]:
    if "with" not in table.values:
        return {}
    if use is None:
        table.complain(f"{table.label} has with, but no use", "with", hint="only what gitckpt does itself has options")
        return {}
    inner = table.inner("with", f"with of {table.label}")
    if inner is not None and use in known_steps:
        inner.only(tuple(known_steps[use]))
    return table.strings("with", f"with of {table.label}")


def _retries(table: Table) -> Retries:
    if not isinstance(table.values.get("retries"), dict):
        return Retries(attempts=table.count("retries", _USUAL_RETRIES.attempts))
    inner = table.inner("retries", f"retries of {table.label}")
    assert inner is not None
    inner.only(_RETRIES_KEYS)
    delay = inner.duration("delay", _USUAL_RETRIES.delay) or 0
    longest = inner.duration("max_delay", max(delay, _USUAL_RETRIES.max_delay)) or 0
    if longest < delay:
        inner.complain(f"max_delay in {inner.label} is less than delay", "max_delay")
    return Retries(
        attempts=inner.count("attempts", 1),
        delay=delay,
        backoff=inner.number("backoff", _USUAL_RETRIES.backoff, 1, 100),
        max_delay=longest,
        jitter=inner.number("jitter", _USUAL_RETRIES.jitter, 0, 1),
        on=inner.codes("on"),
    )


def _names_differ(phases: list[tuple[Table, PhaseDefinition]]) -> None:
    taken: dict[str, tuple[str, Table, tuple[str | int, ...]]] = {}

    def take(table: Table, name: str, what: str, *path: str | int) -> None:
        if not name.strip():
            return
        if folded(name) in taken:
            other, where, place = taken[folded(name)]
            line = where.line(*place)
            same = f"is that of line {line}" if other == name else f"cannot be told from {other!r} in line {line}"
            table.complain(f"{what} {name!r} {same}", *path, hint="names differ by more than case, hyphens and underscores")
            return
        taken[folded(name)] = (name, table, path)

    # All names first: they have precedence over aliases.
    for table, definition in phases:
        take(table, definition.name, "the phase name", "name")
    for table, definition in phases:
        for i, alias in enumerate(definition.aliases):
            take(table, alias, "the alias", "aliases", i)


def _in_order(label: str, phases: list[tuple[Table, PhaseDefinition]]) -> tuple[PhaseDefinition, ...]:
    # Keeps the order of the file, but moves each phase behind those it needs.
    names = [definition.name for _, definition in phases]
    for table, definition in phases:
        table.known("needs", definition.needs, names, f"phase of {label}")
    ordered: list[PhaseDefinition] = []
    waiting = list(phases)
    while waiting:
        missing = {definition.name for _, definition in waiting}
        ready = next((each for each in waiting if missing.isdisjoint(each[1].needs)), None)
        if ready is None:
            cycle = _complain_of_cycle(waiting)
            waiting = [each for each in waiting if each[1].name not in cycle]
            continue
        waiting.remove(ready)
        ordered.append(ready[1])
    return tuple(ordered)


def _complain_of_cycle(waiting: list[tuple[Table, PhaseDefinition]]) -> list[str]:
    by_name = {definition.name: (table, definition) for table, definition in waiting}
    walked: list[str] = []
    name = waiting[0][1].name
    while name not in walked:
        walked.append(name)
        name = next(need for need in by_name[name][1].needs if need in by_name)
    cycle = walked[walked.index(name) :]
    first = min(range(len(cycle)), key=lambda i: by_name[cycle[i]][0].line())
    cycle = cycle[first:] + cycle[:first]
    by_name[cycle[0]][0].complain(f"phases need each other in a circle: {' → '.join([*cycle, cycle[0]])}", "needs")
    return cycle


# Pipelines by name, and the presets.

PRESETS = ("plan-to-pr", "rlm-act", "loop", "review")
PRESET = "preset"  # source of a preset

_DIRECTORY = os.path.join(os.path.dirname(__file__), "presets")


def read(path: str, name: str, known_steps: Mapping[str, Collection[str]]) -> PipelineDefinition:
    """Return a pipeline from a file, or the preset of that name.

    A missing file has no pipelines. A mistake in any pipeline raises ConfigError.
    """
    require_text("name", name)
    found = parse(text_of(path), path, known_steps)
    if name in found:
        return found[name]
    if name in PRESETS:
        return preset(name, known_steps)
    kinds = dict.fromkeys(found, "") | {other: " (preset)" for other in PRESETS if other not in found}
    close = closest(name, kinds)
    known = ", ".join(other + kind for other, kind in kinds.items())
    hint = f"did you mean {close}? There are: {known}" if close else f"there are: {known}; others go into {os.path.basename(path)}"
    raise NotFoundError(f"no pipeline goes by {name!r}", hint=hint)


def read_of_run(path: str, name: str, known_steps: Mapping[str, Collection[str]], run: str) -> PipelineDefinition:
    """Return the pipeline of a run; if it is gone, the hint names the ways out."""
    try:
        return read(path, name, known_steps)
    except NotFoundError:  # the caller named the run, not the pipeline
        raise NotFoundError(
            f"the pipeline {name!r}, which drives run {run}, is not in {path}",
            hint=f"put it back there, then: git ckpt resume {run}; or end the run as it is: git ckpt finish --force {run}; "
            f"or remove it: git ckpt remove {run}",
        ) from None


def redefinition(definition: PipelineDefinition) -> str | None:
    """Return a sentence if a pipeline in the file replaces a preset, or else None."""
    if definition.name not in PRESETS or definition.source == PRESET:
        return None
    return f"{FILE} redefines the pipeline {definition.name}: what it runs stands in that file"


def names(path: str) -> list[str]:
    """Return the names of the pipelines in a file, in order, without checking them."""
    file = read_file(path)
    found = file.table(PIPELINES)
    file.require_correct()
    return list(found.values)


def preset(name: str, known_steps: Mapping[str, Collection[str]]) -> PipelineDefinition:
    return parse(preset_text(name), f"preset {name}", known_steps, source=PRESET)[name]


def preset_text(name: str) -> str:
    require_text("name", name)
    if name not in PRESETS:
        raise NotFoundError(f"no preset goes by {name!r}", hint=f"there are: {', '.join(PRESETS)}")
    with open(os.path.join(_DIRECTORY, f"{name}.toml"), encoding="utf-8") as file:
        return file.read()
