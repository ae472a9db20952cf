"""Step graphs of `gitckpt.toml`, the preset, and mirror files."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence

from gitckpt.durable.steps.graph import COMPLETE, MAX_FIX_CYCLES, MAX_ITERATIONS, Graph, StepDefinition
from gitckpt.durable.steps.report import NOT_STARTED, STATUSES
from gitckpt.git.files import regular
from gitckpt.git.files.premises import PRIVATE
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import jsonable, phase
from gitckpt.model.arguments import closest, folded
from gitckpt.model.errors import CkptError, NotFoundError
from gitckpt.model.values import replace
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigFile, Table, text_of
from gitckpt.store.config.settings import STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Mirror: the state of a track as a file, rewritten after each report, for programs that read
# `metadata.json` and do not use gitckpt.

TRACK = "{track}"  # placeholder for the track name
_LARGEST = 16 * 1024 * 1024


def problem(pattern: str) -> str | None:
    """Return why a path cannot be a mirror, as a clause; None if it can."""
    if os.path.isabs(pattern) or not pattern.isprintable() or "\\" in pattern:
        return "must be relative to the top of the worktree"
    if not _is_in_worktree(pattern):
        return "must lead to a file of the worktree, without .., .git and .ckpt"
    if not pattern.endswith(".json"):
        return "must end in .json"
    return None if TRACK in pattern else f"must have {TRACK} in it, or all tracks would share a file"


def _is_in_worktree(path: str) -> bool:
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return False
    return not any(part in ("", ".", "..") or part.lower() in (".git", PRIVATE) for part in parts)


def write(repository: Repository, pattern: str, state: Mapping[str, Any]) -> str:
    """Write the state of a run to its mirror file and return the file's path.

    `repository` is opened in the worktree; `pattern` has passed `problem`.
    """
    track = state.get("track_id")
    name = pattern.replace(TRACK, track) if isinstance(track, str) else ""
    if not isinstance(track, str) or not track.strip(".") or "/" in track or not _is_in_worktree(name):
        raise CkptError(f"the state is not mirrored: {track!r:.60} is no name of a file", hint="name the track: --track add-login")
    # The check covers the final path: with a track name inserted, it may differ from its pattern.
    top = repository.worktree or ""
    place = os.path.join(top, *name.split("/"))
    data = json.dumps(jsonable.plain(state), indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    try:
        _make(top, os.path.dirname(name))
        _require_its_own(place, name, track)
        administration.write_file(repository, place, data)
    except OSError as error:
        raise CkptError(f"{name} is not written: {error.strerror}", hint="see mirror in gitckpt.toml") from None
    return name


def _make(top: str, directory: str) -> None:
    path = top
    for part in directory.split("/") if directory else ():
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise CkptError(f"{path} is a link: nothing is written through it", hint="see mirror in gitckpt.toml")
        if not os.path.isdir(path):
            os.mkdir(path)


def _require_its_own(place: str, name: str, track: str) -> None:
    if not os.path.lexists(place):
        return
    try:
        present = json.loads(regular.content(place, _LARGEST, follow=False))
    except (ValueError, RecursionError):
        present = None
    # Only overwrite a file that holds the state of the same track.
    is_own = isinstance(present, dict) and present.get("track_id", track) == track and ("loop_state" in present or "track_id" in present)
    if not is_own:
        raise CkptError(
            f"{name} is not written: what is there is not of the track {track}", hint="move it away, or change mirror in gitckpt.toml"
        )


# Step graphs by name.

SUPERPOWERS = "superpowers"  # the default graph

_GRAPH_KEYS = ("description", "mirror", "steps", "aliases", "max_fix_cycles", "max_iterations")
_STEP_KEYS = ("name", "on_pass", "on_fail", "agent", "optional", "only_if", "tasks", "fix_cycle", "version_key")
# Not allowed as step names: the end, statuses and the names of other checkpoints.
_RESERVED = (COMPLETE, *STATUSES, *phase.NOT_PHASES)

_PRESET = os.path.join(os.path.dirname(__file__), "superpowers.toml")


def read(path: str, name: str) -> Graph:
    """Return a step graph from a file, if it exists, or the preset of that name."""
    return _named(name, text_of(path), path)


def read_head(repository: Repository, name: str) -> Graph:
    """Return a step graph from the file in HEAD, as `read` does."""
    return _named(name, settings.head_text(repository), f"HEAD:{settings.FILE}")


def _named(name: str, text: str, path: str) -> Graph:
    found = parse(text, path)
    if name not in found and name == SUPERPOWERS:
        return preset()
    if name in found:
        return found[name]
    known = list(dict.fromkeys((*found, SUPERPOWERS)))
    close = closest(name, known)
    hint = f"did you mean {close}?" if close else f"there are: {', '.join(known)}; others go into {os.path.basename(path)}"
    raise NotFoundError(f"no steps go by {name!r}", hint=hint)


@functools.cache
def preset() -> Graph:
    return parse(text_of(_PRESET), "preset superpowers")[SUPERPOWERS]


def preset_text() -> str:
    return text_of(_PRESET)


def parse(text: str, path: str) -> dict[str, Graph]:
    """Return the step graphs in a TOML text; `path` is its name in messages."""
    if STEPS not in text:
        return {}  # mistakes in other parts of the file are reported by their readers
    return ConfigFile(text, path).each(STEPS, "steps", _graph)


def _graph(name: str, table: Table) -> Graph:
    table.only(_GRAPH_KEYS)
    mirror = table.text("mirror", one_line=True)
    wrong = problem(mirror) if mirror is not None else None
    if wrong is not None:
        table.complain(f"mirror of {table.label} {wrong}", "mirror", hint='such as "conductor/tracks/{track}/metadata.json"')
    if name == SUPERPOWERS and mirror is not None and set(table.values) <= {"mirror", "description"}:
        return replace(preset(), mirror=mirror)  # with the preset's steps
    tables = table.tables("steps", "step")
    if not tables:
        table.complain(f"{table.label} has no steps", "steps", hint=f"add [[steps.{name}.steps]] with a name")
    names = [each.name(_RESERVED) for each in tables]
    needed = [name for name, each in zip(names, tables, strict=True) if each.values.get("optional") is not True]
    steps = tuple(_step(each, names, next((n for n in needed if n not in names[: i + 1]), COMPLETE)) for i, each in enumerate(tables))
    aliases = table.strings("aliases", f"aliases of {table.label}")
    _names_differ(table, tables, names, aliases)
    _ends(table, tables, steps)
    return Graph(
        name=name,
        steps=steps,
        aliases=aliases,
        max_fix_cycles=table.count("max_fix_cycles", MAX_FIX_CYCLES),
        max_iterations=table.count("max_iterations", MAX_ITERATIONS, 1),
        description=table.text("description", one_line=True) or "",
        mirror=mirror,
    )


def _step(table: Table, names: Sequence[str], following: str) -> StepDefinition:
    # `following` is the default for on_pass.
    table.only(_STEP_KEYS)
    for key in ("on_pass", "on_fail"):
        target = table.text(key)
        if target is not None and target not in names and target != COMPLETE:
            close = closest(target, (*names, COMPLETE))
            hint = f"did you mean {close}?" if close else f"there are: {', '.join((*names, COMPLETE))}"
            table.complain(f"{key} of {table.label} names {target!r}, which is no step", key, hint=hint)
    return StepDefinition(
        name=str(table.values.get("name", "")),
        on_pass=table.text("on_pass") or following,
        on_fail=table.text("on_fail"),
        agent=table.text("agent", one_line=True),
        optional=table.flag("optional", default=False),
        only_if=table.text("only_if", one_line=True),
        has_tasks=table.flag("tasks", default=False),
        counts_cycles=table.flag("fix_cycle", default=False),
        version_key=table.text("version_key", one_line=True),
    )


def _names_differ(graph: Table, tables: Sequence[Table], names: Sequence[str], aliases: dict[str, str]) -> None:
    taken: dict[str, str] = {folded(word): word for word in (COMPLETE, NOT_STARTED)}
    for table, name in zip(tables, names, strict=True):
        if name and folded(name) in taken and folded(name) != folded(COMPLETE) and folded(name) != folded(NOT_STARTED):
            table.complain(f"the step name {name!r} cannot be told from {taken[folded(name)]!r}", "name")
        taken.setdefault(folded(name), name)
    for alias, target in aliases.items():
        if folded(alias) in taken:
            graph.complain(f"the alias {alias!r} cannot be told from {taken[folded(alias)]!r}", "aliases", alias)
        taken.setdefault(folded(alias), alias)
        if target not in names and target != COMPLETE:
            graph.complain(f"the alias {alias!r} names {target!r}, which is no step", "aliases", alias)


def _ends(graph: Table, tables: Sequence[Table], steps: Sequence[StepDefinition]) -> None:
    """Report circles, unreachable steps, and fix cycles without on_fail."""
    by_name = {step.name: step for step in steps}
    if steps and all(step.optional for step in steps):
        graph.complain(f"every step of {graph.label} is optional", "steps")
    entered = {step.on_pass for step in steps} | {step.on_fail for step in steps}
    first = next((step.name for step in steps if not step.optional), "")
    for table, step in zip(tables, steps, strict=True):
        walked = [step.name]
        while by_name.get(walked[-1]) is not None and by_name[walked[-1]].on_pass not in walked:
            walked.append(by_name[walked[-1]].on_pass)
        closes = walked[-1] in by_name and by_name[walked[-1]].on_pass == step.name
        if closes and step.name == next(each.name for each in steps if each.name in walked):
            table.complain(f"steps pass in a circle: {' → '.join([*walked, step.name])}", "on_pass", hint=f"one must lead to {COMPLETE}")
        if step.name and step.name not in entered and step.name != first and not step.optional:
            table.complain(f"nothing leads to {table.label}", hint="name it in on_pass or on_fail of another step, or make it optional")
        if step.counts_cycles and step.on_fail is None:
            table.complain(f"fix_cycle of {table.label} needs on_fail", "fix_cycle", hint="name the step that mends what failed")
