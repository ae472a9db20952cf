"""Read step graphs from `gitckpt.toml`; copy a run's state to a mirror file."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.steps.graph import COMPLETE, Graph, StepDefinition
from gitckpt.durable.steps.report import NOT_STARTED, STATUSES
from gitckpt.git.files import regular
from gitckpt.git.files.private_dirs import PRIVATE
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import jsonable, phase
from gitckpt.model.arguments import closest_word, normalize_name
from gitckpt.model.errors import CkptError, NotFoundError
from gitckpt.model.values import replace
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigFile, Table, read_text
from gitckpt.store.config.settings import STEPS

# Mirror: the state of a track as a file, rewritten after each report, for programs that read
# `metadata.json` and do not use gitckpt.

TRACK = "{track}"  # placeholder for the track name
_LARGEST = 16 * 1024 * 1024
_STATE_KEYS = ("loop_state", "track_id")
_SEE_MIRROR = "check mirror in gitckpt.toml"


def find_mirror_path_problem(pattern: str) -> str | None:
    if os.path.isabs(pattern) or not pattern.isprintable() or "\\" in pattern:
        return "must be relative to the top of the worktree"
    if not _is_in_worktree(pattern):
        return "must be a path in the worktree, without .., .git and .ckpt"
    if not pattern.endswith(".json"):
        return "must end in .json"
    return None if TRACK in pattern else f"must contain {TRACK}, or all tracks would share a file"


def _is_in_worktree(path: str) -> bool:
    names = path.split("/")
    if not path.isprintable() or "\\" in path:
        return False
    return not any(name in ("", ".", "..") or name.lower() in (".git", PRIVATE) for name in names)


def write_state_mirror(repository: Repository, pattern: str, state: Mapping[str, Any]) -> str:
    track = state.get("track_id")
    # Check the final path: with a track name inserted, it may differ from its pattern.
    mirror_path = pattern.replace(TRACK, track) if isinstance(track, str) else ""
    is_file_name = isinstance(track, str) and bool(track.strip(".")) and "/" not in track
    if not is_file_name or not _is_in_worktree(mirror_path):
        problem = f"the state is not mirrored: {track!r:.60} is not a file name"
        raise CkptError(problem, hint="name the track: --track add-login")
    worktree = repository.worktree or ""
    path = os.path.join(worktree, *mirror_path.split("/"))
    json_text = json.dumps(jsonable.to_json(state), indent=2, ensure_ascii=False) + "\n"
    try:
        _make_directories(worktree, os.path.dirname(mirror_path))
        _require_mirror_of_track(path, mirror_path, str(track))
        data = json_text.encode("utf-8", "surrogatepass")
        administration.write_worktree_file(repository, path, data)
    except OSError as error:
        raise CkptError(f"cannot write {mirror_path}: {error.strerror}", hint=_SEE_MIRROR) from None
    return mirror_path


def _make_directories(top: str, directory: str) -> None:
    path = top
    for name in directory.split("/") if directory else ():
        path = os.path.join(path, name)
        if os.path.islink(path):
            raise CkptError(f"gitckpt does not write through the link {path}", hint=_SEE_MIRROR)
        if not os.path.isdir(path):
            os.mkdir(path)


def _require_mirror_of_track(path: str, name: str, track: str) -> None:
    if not os.path.lexists(path):
        return
    try:
        content = json.loads(regular.read_content(path, _LARGEST, follow=False))
    except (ValueError, RecursionError):
        content = None
    # Only overwrite a file that holds the state of the same track.
    is_state = isinstance(content, dict) and not content.keys().isdisjoint(_STATE_KEYS)
    if is_state and content.get("track_id", track) == track:
        return
    problem = f"cannot write {name}: the existing file does not belong to the track {track}"
    raise CkptError(problem, hint="move the file away, or change mirror in gitckpt.toml")


SUPERPOWERS = "superpowers"  # the default graph
_GRAPH_KEYS = ("description", "mirror", "steps", "aliases", "max_fix_cycles", "max_iterations")
_STEP_KEYS: tuple[str, ...] = ("name", "on_pass", "on_fail", "agent", "optional")
_STEP_KEYS += ("only_if", "tasks", "fix_cycle", "version_key")
# Reserved step names: the end of the steps, statuses and labels of other checkpoints.
_RESERVED = (COMPLETE, *STATUSES, *phase.NOT_PHASES)
_DEFAULTS = Graph("", ())
_PRESET_FILE = os.path.join(os.path.dirname(__file__), "superpowers.toml")


def read_graph(path: str, name: str) -> Graph:
    return _parse_and_find_graph(name, read_text(path), path)


def read_graph_at_head(repository: Repository, name: str) -> Graph:
    text = settings.read_file_at_head(repository)
    return _parse_and_find_graph(name, text, f"HEAD:{settings.FILE}")


def _parse_and_find_graph(name: str, text: str, path: str) -> Graph:
    graphs = parse_graphs(text, path)
    if name in graphs:
        return graphs[name]
    if name == SUPERPOWERS:
        return read_preset_graph()
    names = list(dict.fromkeys((*graphs, SUPERPOWERS)))
    similar_name = closest_word(name, names)
    hint = f"there are: {', '.join(names)}; define others in {os.path.basename(path)}"
    if similar_name:
        hint = f"did you mean {similar_name}?"
    raise NotFoundError(f"there are no steps named {name!r}", hint=hint)


@functools.cache
def read_preset_graph() -> Graph:
    return parse_graphs(read_text(_PRESET_FILE), "preset superpowers")[SUPERPOWERS]


def read_preset_graph_text() -> str:
    return read_text(_PRESET_FILE)


def parse_graphs(text: str, path: str) -> dict[str, Graph]:
    if STEPS not in text:
        return {}  # other modules report mistakes in other parts of the file
    return ConfigFile(text, path).read_tables(STEPS, "steps", _parse_graph)


def _parse_graph(name: str, table: Table) -> Graph:
    table.check_keys(_GRAPH_KEYS)
    mirror = table.text("mirror", one_line=True)
    mistake = find_mirror_path_problem(mirror) if mirror is not None else None
    if mistake is not None:
        hint = 'such as "conductor/tracks/{track}/metadata.json"'
        table.report(f"mirror of {table.label} {mistake}", "mirror", hint=hint)
    if name == SUPERPOWERS and mirror is not None and {*table.values} <= {"mirror", "description"}:
        return replace(read_preset_graph(), mirror=mirror)  # with the preset's steps
    tables = table.tables("steps", "step")
    if not tables:
        table.report(f"{table.label} has no steps", "steps", hint=f"add [[steps.{name}.steps]]")
    names = [step_table.read_name(_RESERVED) for step_table in tables]
    named_tables = zip(names, tables, strict=True)
    required = [name for name, entry in named_tables if entry.values.get("optional") is not True]
    steps = tuple(
        _parse_step(entry, names, next((n for n in required if n not in names[: i + 1]), COMPLETE))
        for i, entry in enumerate(tables)
    )
    aliases = table.strings("aliases", f"aliases of {table.label}")
    _check_step_names(table, tables, names, aliases)
    _check_edges(table, tables, steps)
    return Graph(
        name=name,
        steps=steps,
        aliases=aliases,
        max_fix_cycles=table.count("max_fix_cycles", _DEFAULTS.max_fix_cycles),
        max_iterations=table.count("max_iterations", _DEFAULTS.max_iterations, 1),
        description=table.text("description", one_line=True) or "",
        mirror=mirror,
    )


def _parse_step(table: Table, names: Sequence[str], following: str) -> StepDefinition:
    # `following` is the default for on_pass.
    table.check_keys(_STEP_KEYS)
    target_names = (*names, COMPLETE)
    for edge_key in ("on_pass", "on_fail"):
        target = table.text(edge_key)
        if target is not None and target not in target_names:
            close = closest_word(target, target_names)
            hint = f"did you mean {close}?" if close else f"there are: {', '.join(target_names)}"
            problem = f"{edge_key} of {table.label} names {target!r}, which is not a step"
            table.report(problem, edge_key, hint=hint)
    return StepDefinition(
        name=str(table.values.get("name", "")),
        on_pass=table.text("on_pass") or following,
        on_fail=table.text("on_fail"),
        agent=table.text("agent", one_line=True),
        optional=table.read_flag("optional", default=False),
        only_if=table.text("only_if", one_line=True),
        has_tasks=table.read_flag("tasks", default=False),
        counts_cycles=table.read_flag("fix_cycle", default=False),
        version_key=table.text("version_key", one_line=True),
    )


def _check_step_names(
    graph: Table, tables: Sequence[Table], names: Sequence[str], aliases: dict[str, str]
) -> None:
    reserved = {normalize_name(name): name for name in (COMPLETE, NOT_STARTED)}
    used_names = dict(reserved)
    for table, name in zip(tables, names, strict=True):
        key = normalize_name(name)
        if name and key in used_names and key not in reserved:
            table.report(f"the step name {name!r} is too similar to {used_names[key]!r}", "name")
        used_names.setdefault(key, name)
    for alias, target in aliases.items():
        key = normalize_name(alias)
        if key in used_names:
            problem = f"the alias {alias!r} is too similar to {used_names[key]!r}"
            graph.report(problem, "aliases", alias)
        used_names.setdefault(key, alias)
        if target not in names and target != COMPLETE:
            problem = f"the alias {alias!r} names {target!r}, which is not a step"
            graph.report(problem, "aliases", alias)


def _check_edges(graph: Table, tables: Sequence[Table], steps: Sequence[StepDefinition]) -> None:
    steps_by_name = {step.name: step for step in steps}
    if steps and all(step.optional for step in steps):
        graph.report(f"every step of {graph.label} is optional", "steps")
    entered_steps = {step.on_pass for step in steps} | {step.on_fail for step in steps}
    entered_steps.add(next((step.name for step in steps if not step.optional), ""))
    for table, step in zip(tables, steps, strict=True):
        path = [step.name]
        while path[-1] in steps_by_name and steps_by_name[path[-1]].on_pass not in path:
            path.append(steps_by_name[path[-1]].on_pass)
        is_circle = path[-1] in steps_by_name and steps_by_name[path[-1]].on_pass == step.name
        if is_circle and step.name == next(member.name for member in steps if member.name in path):
            problem = f"on_pass leads in a circle: {' → '.join([*path, step.name])}"
            table.report(problem, "on_pass", hint=f"one step must lead to {COMPLETE}")
        if step.name and step.name not in entered_steps and not step.optional:
            hint = "name the step in on_pass or on_fail of another step, or make the step optional"
            table.report(f"no step leads to {table.label}", hint=hint)
        if step.counts_cycles and step.on_fail is None:
            hint = "name the step that repairs the failure"
            table.report(f"fix_cycle of {table.label} needs on_fail", "fix_cycle", hint=hint)
