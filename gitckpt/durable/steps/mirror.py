"""The state of a track as a file, for programs that read `metadata.json` and know nothing of gitckpt: written anew with each report.

Where it lies is said by `gitckpt.toml`, which may be anybody's: it is a file of the worktree, through no link, and never takes the place of
one that is not of that track.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from gitckpt.git.files import regular
from gitckpt.git.files.premises import PRIVATE
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import CkptError
from gitckpt.model.readers import jsonable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TRACK = "{track}"
"""Stands for the name of the track."""

_LARGEST = 16 * 1024 * 1024


def problem(pattern: str) -> str | None:
    """Returns why a path is none that a state may be written to, as a clause; None where it is one."""
    if os.path.isabs(pattern) or not pattern.isprintable() or "\\" in pattern:
        return "must be relative to the top of the worktree"
    if not _is_in_worktree(pattern):
        return "must lead to a file of the worktree, without .., .git and .ckpt"
    if not pattern.endswith(".json"):
        return "must end in .json"
    return None if TRACK in pattern else f"must have {TRACK} in it, or all tracks would share a file"


def _is_in_worktree(path: str) -> bool:
    """Tells whether a path leads to a file of the worktree. With the name of a track in it, it may lead elsewhere than its pattern does."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return False
    return not any(part in ("", ".", "..") or part.lower() in (".git", PRIVATE) for part in parts)


def write(repository: Repository, pattern: str, state: Mapping[str, Any]) -> str:
    """Writes the state of a run to its file, and returns the path of that.

    Args:
        repository: seen from the worktree.
        pattern: where it lies, as `gitckpt.toml` says: `problem` has nothing against it.
        state: of the run, with `track_id`.

    Raises:
        CkptError: it cannot be written, or something else is in its place; nothing is changed.
    """
    track = state.get("track_id")
    name = pattern.replace(TRACK, track) if isinstance(track, str) else ""
    if not isinstance(track, str) or not track.strip(".") or "/" in track or not _is_in_worktree(name):
        raise CkptError(f"the state is not mirrored: {track!r:.60} is no name of a file", hint="name the track: --track add-login")
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
    """Makes the directories on the way; none of them may be a link."""
    at = top
    for part in directory.split("/") if directory else ():
        at = os.path.join(at, part)
        if os.path.islink(at):
            raise CkptError(f"{at} is a link: nothing is written through it", hint="see mirror in gitckpt.toml")
        if not os.path.isdir(at):
            os.mkdir(at)


def _require_its_own(place: str, name: str, track: str) -> None:
    if not os.path.lexists(place):
        return
    try:
        there = json.loads(regular.content(place, _LARGEST, follow=False))
    except (ValueError, RecursionError):
        there = None
    is_own = isinstance(there, dict) and there.get("track_id", track) == track and ("loop_state" in there or "track_id" in there)
    if not is_own:
        raise CkptError(
            f"{name} is not written: what is there is not of the track {track}", hint="move it away, or change mirror in gitckpt.toml"
        )
