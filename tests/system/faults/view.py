"""Read the user's own data: files, index, HEAD, branches, stash, settings, hooks."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.faults.operation import Place

_HALF = ".gitckpt-"
"""A part of the temporary names of hooks during installation."""

_SCRATCH = re.compile(r"\..*\.[0-9]+\.[0-9a-f]{8}")
"""The name of a temporary file that a kill leaves until the target is rewritten."""

Files = dict[str, tuple[str, bytes]]
"""Path → mode as git knows it, and content."""


def is_scratch(path: str) -> bool:
    """Tell whether a file of a worktree is a temporary file of gitckpt."""
    return _SCRATCH.fullmatch(os.path.basename(path)) is not None


def worktree_files(top: Path, *, ignored: tuple[str, ...] = ("ignored",)) -> Files:
    """Return the files of a worktree that a checkpoint holds."""
    found: Files = {}
    for directory, names, files in os.walk(top):
        here = os.path.relpath(directory, top)
        names[:] = [name for name in names if name not in (".git", ".ckpt")]
        for name in (
            *files,
            *(name for name in names if os.path.islink(os.path.join(directory, name))),
        ):
            path = name if here == "." else f"{here}/{name}"
            if path == ".git" or path in ignored:
                continue
            full = os.path.join(directory, name)
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                found[path] = ("120000", os.fsencode(os.readlink(full)))
            else:
                found[path] = ("100755" if mode & 0o100 else "100644", Path(full).read_bytes())
    return found


def _settings(place: Place) -> dict[str, bytes]:
    lines = place.git("config", "--local", "--list").decode().splitlines()
    return {line: str(lines.count(line)).encode() for line in lines}


@dataclass(frozen=True)
class View:
    """The user's own data.

    Attributes:
        files: of the worktree.
        ignored: files that git ignores.
        index: its entries.
        raw: the bytes of the index.
        refs: HEAD, branches, tags and the stash.
        config: the settings of the repository, each with its number of occurrences.
    """

    files: Files
    ignored: bytes
    index: bytes
    raw: bytes
    refs: bytes
    config: dict[str, bytes]
    hooks: dict[str, bytes]

    @classmethod
    def of(cls, place: Place) -> View:
        """Return the current data."""
        git = place.project / ".git"
        hooks = git / "hooks"
        return cls(
            files=worktree_files(place.project),
            ignored=(place.project / "ignored").read_bytes(),
            index=place.git("ls-files", "--stage", "-v", "-z"),
            raw=(git / "index").read_bytes(),
            refs=(git / "HEAD").read_bytes()
            + place.git(
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                "refs/heads",
                "refs/tags",
                "refs/stash",
                "refs/remotes",
            )
            + (git / "logs/refs/stash").read_bytes(),
            config=_settings(place),
            hooks={path.name: path.read_bytes() for path in sorted(hooks.iterdir())}
            if hooks.exists()
            else {},
        )

    def differences(
        self, before: View, after: View, changes: frozenset[str], *, is_over: bool = True
    ) -> list[str]:
        """Return the parts that are neither unchanged nor as after an undisturbed one.

        Args:
            before: the data before the operation.
            after: the data after an undisturbed one.
            changes: the parts that the operation may change.
            is_over: whether it came to its end; until then, a file that it replaces may be missing
                or incomplete.
        """
        found = []
        for each in fields(self):
            name = each.name
            mine, was, will = (getattr(view, name) for view in (self, before, after))
            if name == "raw":
                if "index" not in changes and mine != was:
                    found.append("the index is not what it was, byte for byte")
            elif mine == was or (name in changes and mine == will):
                continue
            elif isinstance(mine, dict):
                allowed = (was, will) if name in changes else (was,)
                odd = [
                    path
                    for path in {*mine, *was, *will}
                    if not any(mine.get(path) == each.get(path) for each in allowed)
                ]
                if name == "files":
                    odd = [path for path in odd if not is_scratch(path)]
                if name == "files" and name in changes and not is_over:
                    odd = [path for path in odd if was.get(path) == will.get(path)]
                if name == "hooks" and name in changes and not is_over:
                    odd = [path for path in odd if _HALF not in path]
                if odd:
                    found.append(f"{name} are not what they were: {', '.join(sorted(odd))}")
            else:
                found.append(f"{name} is not what it was")
        return found
