"""Detect the format of a file by its content, never by its name."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import Any

from gitckpt.formats.systems import content, forge, quasar, rlm_act, superpowers, yaml_text
from gitckpt.formats.systems.content import FORGE, NEBULA, QUASAR, RLM_ACT, SUPERPOWERS, WORKFLOW
from gitckpt.model.errors import UsageError

# Names of files that are examined when a directory is searched.
SUFFIXES = (".json", ".yaml", ".yml", ".toml")

# Directories of the tools: a file there is expected to have the format.
_DIRECTORIES = {
    ".rlm-act-checkpoints": RLM_ACT,
    ".workflow-checkpoints": WORKFLOW,
    ".forge/runs": FORGE,
    "conductor/tracks": SUPERPOWERS,
}

# Values of `--format`. "quasar" includes states of nebulas, which are recognized by content.
NAMES = {name: name for name in content.FORMATS if name != NEBULA}


def require_known_format(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"there is no format {name!r}", hint=f"choose one of {', '.join(NAMES)}")


_JSON: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    RLM_ACT: rlm_act.is_checkpoint_table,
    WORKFLOW: rlm_act.is_workflow_table,
    SUPERPOWERS: superpowers.is_track_table,
}
_TOML: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    NEBULA: quasar.is_nebula_table,
    QUASAR: quasar.is_review_table,
}
_START_LENGTH = 4096


def detect_format(source: content.SourceFile) -> str | None:
    """Detect a file's format, None if unknown; raise `BadFormat` if damaged."""
    start = source.data[:_START_LENGTH].removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"{"):
        keys = (b'"phase"', b'"loop_state"', b'"track_id"')
        if not any(key in source.data for key in keys):  # avoids parsing most files
            return None
        document = content.parse_json_unchanged(source, content.Remarks())
        return next((name for name, has_format in _JSON.items() if has_format(document)), None)
    if b"=" in source.data and (b"nebula_name" in source.data or b"max_cycles" in source.data):
        table = content.parse_toml(source, content.Remarks())
        return next((name for name, has_format in _TOML.items() if has_format(table)), None)
    has_keys = all(key in source.data for key in (b"steps:", b"id:", b"created_at:"))
    is_yaml = source.path.endswith((".yaml", ".yml"))
    if has_keys and is_yaml and forge.is_run_table(_parse_yaml(source)):
        return FORGE
    return None


def _parse_yaml(source: content.SourceFile) -> dict[str, Any]:
    return yaml_text.parse_yaml(content.decode_file(source, content.Remarks()), content.Remarks())


def require_complete_file(source: content.SourceFile) -> None:
    # A partly written file can lack the keys that identify its format.
    if source.path.endswith(".json"):
        content.parse_json_unchanged(source, content.Remarks())
    elif source.path.endswith(".toml"):
        content.parse_toml(source, content.Remarks())
    elif source.path.endswith((".yaml", ".yml")):
        _parse_yaml(source)


def format_by_path(path: str) -> str | None:
    directory, _, name = path.rpartition("/")
    for tool_directory, format_ in _DIRECTORIES.items():
        if f"/{tool_directory}/" in f"/{directory}/":
            is_track = format_ == SUPERPOWERS
            is_usual = name == "metadata.json" if is_track else name.endswith(SUFFIXES)
            return format_ if is_usual else None
    if name == "nebula.state.toml" or name.endswith(".nebula.state.toml"):
        return NEBULA
    return QUASAR if name.startswith("checkpoint") and name.endswith(".toml") else None


def may_be_of_other_tool(source: content.SourceFile, place_format: str) -> bool:
    is_quasar = place_format == QUASAR
    return is_quasar and not quasar.has_review_keys(content.parse_toml(source, content.Remarks()))


def is_nebula_state(source: content.SourceFile) -> bool:
    try:
        return quasar.is_nebula_table(content.parse_toml(source, content.Remarks()))
    except content.BadFormat:
        return False
