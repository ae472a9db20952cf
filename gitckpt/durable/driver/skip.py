"""Phases that need not be done, as their results are given: inputs that a phase names, and the plans of the preset rlm-act."""

from __future__ import annotations

import json

from gitckpt.durable.pipeline.definition import PipelineDefinition
from gitckpt.durable.pipeline.file import PRESET
from gitckpt.durable.pipeline.launch import Given
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_RLM = "rlm-act"
_PLAN, _HIERARCHY = "plan_path", "hierarchy_path"
_CRITERIA = ("acceptance_criteria", "acceptanceCriteria")


def skipped(definition: PipelineDefinition, given: Given) -> dict[str, str]:
    """Returns the phases of a pipeline that need not be done: name → why.

    A plan in Markdown stands for the first four phases of rlm-act. Requirements in JSON stand for its research; for the decomposition too,
    where one of their children has acceptance criteria already.

    Args:
        definition: the pipeline.
        given: what it is started with.

    Raises:
        UsageError: requirements that are given are not JSON.
    """
    found = {}
    for phase in definition.phases:
        reason = next((name for name in phase.skip_with if given.inputs.get(name)), None)
        if reason is not None:
            found[phase.name] = f"{reason} is given: {given.inputs[reason]}"
    if definition.name == _RLM:
        found |= _rlm(definition, given)
    return found


def require_question(definition: PipelineDefinition, given: Given, skips: Mapping[str, str]) -> None:
    """Raise `UsageError` where the preset rlm-act is to be started with its research, and there is no question."""
    is_asked = definition.name == _RLM and definition.source == PRESET and "research" not in skips
    if is_asked and not given.inputs.get("question"):
        raise UsageError("there is no question: the phase 'research' needs it", hint='ask it: -i question="how does it work?"')


def _rlm(definition: PipelineDefinition, given: Given) -> dict[str, str]:
    path = given.inputs.get(_PLAN, "")
    names = [phase.name for phase in definition.phases]
    if path.endswith(".md"):
        return dict.fromkeys(names[:4], f"the plan is given: {path}")
    name = _PLAN if path.endswith(".json") else _HIERARCHY
    hierarchy = given.contents.get(name)
    if hierarchy is None:
        return {}
    try:
        found = _has_criteria(hierarchy)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{given.inputs[name]}, the input {name}, is not JSON: {error}", hint="correct it, then start again") from None
    if not found:
        return {}
    return dict.fromkeys(names[:2], "requirements with acceptance criteria are given")


def _has_criteria(data: bytes) -> bool:
    """Tells whether a hierarchy of requirements has acceptance criteria for one of its children.

    Args:
        data: the hierarchy as JSON.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply.
    """
    return _search(json.loads(data), is_child=False)


def _search(node: Any, *, is_child: bool) -> bool:
    if isinstance(node, list):
        return any(_search(each, is_child=is_child) for each in node)
    if not isinstance(node, dict):
        return False
    if is_child and any(node.get(key) for key in _CRITERIA):
        return True
    return any(_search(inner, is_child=is_child or key in ("children", "requirements")) for key, inner in node.items())
