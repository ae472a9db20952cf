"""The pipelines that come with gitckpt, as texts to use as they are or to copy into `gitckpt.toml` and change."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from gitckpt.durable.pipeline.definition import PipelineDefinition
from gitckpt.durable.pipeline.parser import parse
from gitckpt.model.errors import NotFoundError

SOURCE = "preset"
"""What the definition of a preset says it comes from."""

_DIRECTORY = os.path.join(os.path.dirname(__file__), "presets")
_NAMES = ("plan-to-pr", "rlm-act", "loop", "review")


def names() -> tuple[str, ...]:
    """Returns the names of the presets."""
    return _NAMES


def text(name: str) -> str:
    """Returns the TOML of a preset.

    Raises:
        NotFoundError: there is no preset of that name.
    """
    if name not in _NAMES:
        raise NotFoundError(f"no preset goes by {name!r}", hint=f"there are: {', '.join(_NAMES)}")
    with open(os.path.join(_DIRECTORY, f"{name}.toml"), encoding="utf-8") as file:
        return file.read()


def definition(name: str, known_steps: Mapping[str, Collection[str]]) -> PipelineDefinition:
    """Returns a preset.

    Args:
        name: of the preset.
        known_steps: what `use` may name, with the options of each.

    Raises:
        NotFoundError: there is no preset of that name.
        ConfigError: it uses a step that is not among the known ones.
    """
    return parse(text(name), f"preset {name}", known_steps, source=SOURCE)[name]
