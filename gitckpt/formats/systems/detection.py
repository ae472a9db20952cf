"""Which format a file has: told by its content, never by its name. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import Any

from gitckpt.formats.systems import content, forge, quasar, rlm_act, superpowers, yaml_text
from gitckpt.formats.systems.content import FORGE, FORMATS, NEBULA, QUASAR, RLM_ACT, SUPERPOWERS, WORKFLOW, Remarks, Source, Unreadable

SUFFIXES = (".json", ".yaml", ".yml", ".toml")
"""How the names of files end that are looked into where a directory is searched."""

_HOMES = {
    ".rlm-act-checkpoints": RLM_ACT,
    ".workflow-checkpoints": WORKFLOW,
    ".forge/runs": FORGE,
    "conductor/tracks": SUPERPOWERS,
}
"""Directories that belong to these tools: what lies there and cannot be read is an error."""

NAMES = {name: name for name in FORMATS if name != NEBULA}
"""What `--format` takes; the state of a nebula is told from a checkpoint of quasar's by its content."""

_JSON: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    RLM_ACT: rlm_act.is_one,
    WORKFLOW: rlm_act.is_workflow,
    SUPERPOWERS: superpowers.is_one,
}
_TOML: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {NEBULA: quasar.is_nebula, QUASAR: quasar.is_one}
_WHOLE: Mapping[str, Callable[[Source], object]] = {
    ".json": lambda source: content.json_as_it_is(source, Remarks()),
    ".toml": lambda source: content.toml_of(source, Remarks()),
    ".yaml": lambda source: yaml_text.read(content.text_of(source, Remarks()), Remarks()),
    ".yml": lambda source: yaml_text.read(content.text_of(source, Remarks()), Remarks()),
}
_BEGINNING = 4096
_JSON_WORDS = (b'"phase"', b'"loop_state"', b'"track_id"')


def format_of(source: Source) -> str | None:
    """Returns the format of a file, one of `FORMATS`; None where it is none of them.

    Raises:
        Unreadable: it looks like one, and cannot be read.
    """
    start = source.data[:_BEGINNING].removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"{"):
        if not any(word in source.data for word in _JSON_WORDS):  # most files need not be parsed to know that
            return None
        found = content.json_as_it_is(source, Remarks())
        return next((name for name, is_one in _JSON.items() if is_one(found)), None)
    if all(word in source.data for word in (b"nebula_name", b"=")) or all(word in source.data for word in (b"max_cycles", b"=")):
        table = content.toml_of(source, Remarks())
        return next((name for name, is_one in _TOML.items() if is_one(table)), None)
    if source.path.endswith((".yaml", ".yml")) and all(word in source.data for word in (b"steps:", b"id:", b"created_at:")):
        remarks = Remarks()
        return FORGE if forge.is_one(yaml_text.read(content.text_of(source, remarks), remarks)) else None
    return None


def require_whole(source: Source) -> None:
    """Sees to it that a file of none of the formats is whole: one that was torn while it was written lacks what it would be told by.

    Args:
        source: a file that was named, or lies where one of the tools puts its own.

    Raises:
        Unreadable: it is not what the end of its name says.
    """
    read = next((read for suffix, read in _WHOLE.items() if source.path.endswith(suffix)), None)
    if read is not None:
        read(source)


def format_by_place(path: str) -> str | None:
    """Return the format of the tool that puts its files where a file lies; None where none does."""
    where, _, name = path.rpartition("/")
    found = next((format_ for home, format_ in _HOMES.items() if f"/{home}/" in f"/{where}/"), None)
    if found is not None:
        is_its_name = name.endswith(SUFFIXES) and (found != SUPERPOWERS or name == "metadata.json")
        return found if is_its_name else None
    if name == "nebula.state.toml" or name.endswith(".nebula.state.toml"):
        return NEBULA
    return QUASAR if name.startswith("checkpoint") and name.endswith(".toml") else None


def may_be_anybodys(source: Source, place_format: str) -> bool:
    """Return whether a file of none of the formats may be of no tool at all: `checkpoint.toml` is a name that others give as well."""
    return place_format == QUASAR and not quasar.has_signs(content.toml_of(source, Remarks()))


def is_state_of_nebula(source: Source) -> bool:
    """Tells whether a file is the state of a nebula: it goes by the name of quasar, too."""
    try:
        return quasar.is_nebula(content.toml_of(source, Remarks()))
    except Unreadable:
        return False
