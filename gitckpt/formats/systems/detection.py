"""Detect the format of a file by its content, never by its name."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import Any

from gitckpt.formats.systems import content, forge, quasar, rlm_act, superpowers, yaml_text
from gitckpt.formats.systems.content import (
    FORGE,
    FORMATS,
    NEBULA,
    QUASAR,
    RLM_ACT,
    SUPERPOWERS,
    WORKFLOW,
    Remarks,
    Source,
    Unreadable,
)

# Names of files that are examined when a directory is searched.
SUFFIXES = (".json", ".yaml", ".yml", ".toml")

# Directories of the tools: an unreadable file there is an error.
_HOMES = {
    ".rlm-act-checkpoints": RLM_ACT,
    ".workflow-checkpoints": WORKFLOW,
    ".forge/runs": FORGE,
    "conductor/tracks": SUPERPOWERS,
}

# Values of `--format`. The content tells a nebula's state from quasar's checkpoint.
NAMES = {name: name for name in FORMATS if name != NEBULA}

_JSON: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    RLM_ACT: rlm_act.is_one,
    WORKFLOW: rlm_act.is_workflow,
    SUPERPOWERS: superpowers.is_one,
}
_TOML: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    NEBULA: quasar.is_nebula,
    QUASAR: quasar.is_one,
}
_WHOLE: Mapping[str, Callable[[Source], object]] = {
    ".json": lambda source: content.json_as_it_is(source, Remarks()),
    ".toml": lambda source: content.toml_of(source, Remarks()),
    ".yaml": lambda source: yaml_text.read(content.text_of(source, Remarks()), Remarks()),
    ".yml": lambda source: yaml_text.read(content.text_of(source, Remarks()), Remarks()),
}
_BEGINNING = 4096
_JSON_WORDS = (b'"phase"', b'"loop_state"', b'"track_id"')


def format_of(source: Source) -> str | None:
    """Return the format of a file, or None; `Unreadable` if it is damaged."""
    start = source.data[:_BEGINNING].removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"{"):
        if not any(word in source.data for word in _JSON_WORDS):  # avoids parsing most files
            return None
        document = content.json_as_it_is(source, Remarks())
        return next((name for name, is_one in _JSON.items() if is_one(document)), None)
    if b"=" in source.data and (b"nebula_name" in source.data or b"max_cycles" in source.data):
        table = content.toml_of(source, Remarks())
        return next((name for name, is_one in _TOML.items() if is_one(table)), None)
    if source.path.endswith((".yaml", ".yml")) and all(
        word in source.data for word in (b"steps:", b"id:", b"created_at:")
    ):
        remarks = Remarks()
        return (
            FORGE
            if forge.is_one(yaml_text.read(content.text_of(source, remarks), remarks))
            else None
        )
    return None


def require_whole(source: Source) -> None:
    """Raise `Unreadable` if a file of unknown format does not match its suffix."""
    # A file that was torn while it was written can lack the keys that identify its format.
    read = next((read for suffix, read in _WHOLE.items() if source.path.endswith(suffix)), None)
    if read is not None:
        read(source)


def format_by_place(path: str) -> str | None:
    where, _, name = path.rpartition("/")
    format_of_home = next(
        (format_ for home, format_ in _HOMES.items() if f"/{home}/" in f"/{where}/"), None
    )
    if format_of_home is not None:
        is_its_name = name.endswith(SUFFIXES) and (
            format_of_home != SUPERPOWERS or name == "metadata.json"
        )
        return format_of_home if is_its_name else None
    if name == "nebula.state.toml" or name.endswith(".nebula.state.toml"):
        return NEBULA
    return QUASAR if name.startswith("checkpoint") and name.endswith(".toml") else None


def may_be_anybodys(source: Source, place_format: str) -> bool:
    """Return whether a file may belong to no tool: others use `checkpoint.toml`, too."""
    return place_format == QUASAR and not quasar.has_signs(content.toml_of(source, Remarks()))


def is_state_of_nebula(source: Source) -> bool:
    try:
        return quasar.is_nebula(content.toml_of(source, Remarks()))
    except Unreadable:
        return False
