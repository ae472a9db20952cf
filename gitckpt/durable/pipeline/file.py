"""Pipelines by name: those of `gitckpt.toml`, and beneath them the presets, to use as they are or to copy into that file and change."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from gitckpt.durable.pipeline.definition import PipelineDefinition
from gitckpt.durable.pipeline.parser import parse
from gitckpt.model.arguments import require_text
from gitckpt.model.errors import NotFoundError
from gitckpt.model.names import closest
from gitckpt.store.config.file import read_file, text_of
from gitckpt.store.config.settings import FILE, PIPELINES

PRESETS = ("plan-to-pr", "rlm-act", "loop", "review")
PRESET = "preset"
"""What the definition of a preset says it comes from."""

_DIRECTORY = os.path.join(os.path.dirname(__file__), "presets")


def read(path: str, name: str, known_steps: Mapping[str, Collection[str]]) -> PipelineDefinition:
    """Returns a pipeline of a file, or the preset of that name where the file has none.

    Args:
        path: of the file; one that does not exist has no pipelines.
        name: of the pipeline.
        known_steps: what `use` may name, with the options of each.

    Raises:
        ConfigError: anything in any pipeline of the file is a mistake.
        NotFoundError: there is no such pipeline; those there are are named.
        UsageError: the file cannot be read, or the name is none.
    """
    require_text("name", name)
    found = parse(text_of(path), path, known_steps)
    if name in found:
        return found[name]
    if name in PRESETS:
        return preset(name, known_steps)
    there = dict.fromkeys(found, "") | {other: " (preset)" for other in PRESETS if other not in found}
    close = closest(name, there)
    known = ", ".join(other + kind for other, kind in there.items())
    hint = f"did you mean {close}? There are: {known}" if close else f"there are: {known}; others go into {os.path.basename(path)}"
    raise NotFoundError(f"no pipeline goes by {name!r}", hint=hint)


def read_of_run(path: str, name: str, known_steps: Mapping[str, Collection[str]], run: str) -> PipelineDefinition:
    """Returns the pipeline that drives a run.

    Args:
        path: as for `read`.
        name: as for `read`.
        known_steps: as for `read`.
        run: the id of the run.

    Raises:
        NotFoundError: it is not there any more; the run is named, and its ways out.
        ConfigError, UsageError: as `read`.
    """
    try:
        return read(path, name, known_steps)
    except NotFoundError:  # whoever goes on with a run, or with the newest, has not named the pipeline
        raise NotFoundError(
            f"the pipeline {name!r}, which drives run {run}, is not in {path}",
            hint=f"put it back there, then: git ckpt resume {run}; or end the run as it is: git ckpt finish --force {run}; "
            f"or remove it: git ckpt remove {run}",
        ) from None


def redefinition(definition: PipelineDefinition) -> str | None:
    """Returns in one line that a pipeline takes the place of the preset of that name; None where it does not."""
    if definition.name not in PRESETS or definition.source == PRESET:
        return None
    return f"{FILE} redefines the pipeline {definition.name}: what it runs stands in that file"


def names(path: str) -> list[str]:
    """Returns the names of the pipelines of a file, in order, unchecked; none where there is no such file.

    Raises:
        ConfigError: the file is not TOML.
        UsageError: it cannot be read.
    """
    file = read_file(path)
    found = file.table(PIPELINES)
    file.require_correct()
    return list(found.values)


def preset(name: str, known_steps: Mapping[str, Collection[str]]) -> PipelineDefinition:
    """Returns a preset.

    Args:
        name: of the preset.
        known_steps: what `use` may name, with the options of each.

    Raises:
        NotFoundError: there is no preset of that name.
        ConfigError: it uses a step that is not among the known ones.
    """
    return parse(preset_text(name), f"preset {name}", known_steps, source=PRESET)[name]


def preset_text(name: str) -> str:
    """Returns the TOML of a preset.

    Raises:
        NotFoundError: there is no preset of that name.
    """
    require_text("name", name)
    if name not in PRESETS:
        raise NotFoundError(f"no preset goes by {name!r}", hint=f"there are: {', '.join(PRESETS)}")
    with open(os.path.join(_DIRECTORY, f"{name}.toml"), encoding="utf-8") as file:
        return file.read()
