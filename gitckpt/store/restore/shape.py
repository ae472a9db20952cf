"""Directories without files, and narrow modes: what a restore makes and changes of them, and what an undo takes back."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.contents import layout
from gitckpt.git.repository import Repository
from gitckpt.model.values import dataclass, field
from gitckpt.store.restore.plan import ADD, DELETE, MODE, PathChange, Plan, is_within
from gitckpt.store.snapshot.manifest import Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_MADE, _NARROWED = "directories", "modes"
"""Keys in the state of a safety checkpoint: what the restore made, and what may more than it left it."""


@dataclass(slots=True)
class Shape:
    """What is done beside the files. Directories end in a slash where people see them."""

    directories: Collection[bytes] = ()
    """That shall be there."""

    modes: Mapping[bytes, int] = field(default_factory=dict)
    removed: Collection[bytes] = ()
    """That go, where they are empty."""

    widened: Mapping[bytes, int] = field(default_factory=dict)
    changes: Sequence[PathChange] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    """For the safety checkpoint: what `undo` has to know."""

    def apply(self, repository: Repository) -> bool:
        """Does it; tells whether there was anything to do. Raises `WorktreeError` where a path is not to be trusted, or cannot be made."""
        top = repository.worktree or ""
        layout.remove_empty(top, self.removed)
        layout.widen(top, self.widened)
        layout.bring_back(top, self.directories, self.modes)
        return bool(self.removed or self.widened or self.directories or self.modes)


def plan(
    repository: Repository, wanted: Contents, files: Plan, paths: Sequence[bytes], *, undone: Mapping[str, Any], captured: Collection[bytes]
) -> Shape:
    """Returns what is to be done beside the files.

    Args:
        repository: seen from the worktree.
        wanted: what it shall hold.
        files: what is to be done to the files.
        paths: files and directories to which the restore is restricted; none for all.
        undone: the state of the safety checkpoint whose restore is taken back; empty for a restore.
        captured: the directories without files that the safety checkpoint will hold.
    """
    made = [path for path in map(_path, undone.get(_MADE, ())) if layout.is_plain(path)]
    widened = {_path(name): int(mode) & 0o777 for name, mode in dict(undone.get(_NARROWED, {})).items()}
    top = repository.worktree or ""
    hollow = [path for path in files.skipped if is_within(path, paths) and _is_hollow(path, os.fsencode(top), captured)]
    if not (wanted.directories or wanted.modes or made or widened or hollow):
        return Shape()
    layout.require_plain(wanted.directories, wanted.modes)
    touched = {one.path for one in files.files}
    directories = [path for path in wanted.directories if is_within(path, paths)]
    modes = {path: mode for path, mode in wanted.modes.items() if is_within(path, paths)}
    coming = layout.missing(top, sorted(layout.with_above(directories)))
    narrowed = {path: now for path, now in layout.wider(top, modes).items() if path not in touched}
    kept = layout.with_above(directories)
    gone = {one.path for one in files.files if one.status == "D"}
    files.obstacles += [path for path in sorted(kept - gone) if _is_in_the_way(os.path.join(os.fsencode(top), path))]
    within = (path for one in hollow for path in _within(os.fsencode(top), one))  # git takes such an entry for one that is not skipped
    made = list(dict.fromkeys([*made, *within]))
    removed = [path for path in made if path not in kept and os.path.isdir(os.path.join(os.fsencode(top), path))]
    widened = {path: mode for path, mode in widened.items() if path not in touched and path not in modes}
    changes = [PathChange(ADD, path + b"/") for path in layout.missing(top, directories)]
    changes += [
        PathChange(DELETE, path + b"/") for path in removed if _is_empty(os.path.join(os.fsencode(top), path), removed, os.fsencode(top))
    ]
    changes += [PathChange(MODE, path) for path in sorted({*narrowed, *_narrower(top, widened)})]
    state: dict[str, Any] = {}
    if coming:
        state[_MADE] = [as_text(path) for path in coming]
    if narrowed:
        state[_NARROWED] = {os.fsdecode(path): mode for path, mode in narrowed.items() if _is_text(path)}
    return Shape(directories, modes, removed, widened, changes, state)


def _within(top: bytes, path: bytes) -> list[bytes]:
    """Returns a directory, and those in it."""
    return [os.path.relpath(parent, top) for parent, _, _ in os.walk(os.path.join(top, path))]


def _is_hollow(path: bytes, top: bytes, captured: Collection[bytes]) -> bool:
    """Tells whether there is a directory that holds at most others, and that a capture has: not that of a submodule."""
    whole = os.path.join(top, path)
    if not os.path.isdir(whole) or os.path.islink(whole) or any(names for _, _, names in os.walk(whole)):
        return False
    return any(is_within(one, [path]) for one in captured)


def _narrower(top: str, modes: Mapping[bytes, int]) -> set[bytes]:
    """Returns which files and directories may less than they may again."""
    found = set()
    for path, mode in modes.items():
        whole = os.path.join(os.fsencode(top), path)
        if os.path.lexists(whole) and mode & ~os.lstat(whole).st_mode:
            found.add(path)
    return found


def _is_in_the_way(path: bytes) -> bool:
    return os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path))


def _is_empty(path: bytes, removed: Collection[bytes], top: bytes) -> bool:
    return all(os.path.join(path, name)[len(top) + 1 :] in removed for name in os.listdir(path))


def _path(said: object) -> bytes:
    return said if isinstance(said, bytes) else os.fsencode(str(said))


def _is_text(path: bytes) -> bool:
    return isinstance(as_text(path), str)


def as_text(path: bytes) -> str | bytes:
    """Returns a path as text where it is UTF-8: people look at states."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return path
