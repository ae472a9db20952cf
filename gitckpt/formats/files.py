"""Find and read files of other tools: only regular files, never through links."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Container, Iterator

from gitckpt.formats.systems import detection
from gitckpt.formats.systems.content import LARGEST, Source, Unreadable
from gitckpt.git.files import regular
from gitckpt.git.files.private_dirs import PRIVATE
from gitckpt.model.errors import NotFoundError
from gitckpt.model.values import dataclass

_MAX_PLAN = 1024 * 1024  # in bytes


@dataclass(frozen=True, slots=True)
class Found:
    place: str  # absolute path of the file
    path: str  # as shown; relative to the top of the worktree if inside it
    is_meant: bool  # named by the user, or in a tool's directory; others are skipped silently
    is_named: bool  # named by the user
    problem: str | None = None  # why the file cannot be read


def search(
    paths: list[str],
    top: str | None,
    captured: Callable[[str], Container[str] | None] = lambda _: None,
    not_captured: list[str] | None = None,
) -> Iterator[Found]:
    """Yield the named files, and the candidates below directories, sorted by name.

    `captured` returns the files below a directory that a snapshot would capture, or None for all.
    Other files are yielded only in directories of a tool, else added to `not_captured`.
    """
    for path in paths:
        if not os.path.lexists(path):
            hint = "name a file of another tool, or a directory: git ckpt import ."
            raise NotFoundError(f"there is no {path}", hint=hint)
    visited: set[str] = set()
    places = [_place(path) for path in paths]
    for place in places:
        unreadable: list[OSError] = []
        is_directory = os.path.isdir(place) and not os.path.islink(place)
        below = _candidates_below(place, unreadable.append) if is_directory else [place]
        allowed = captured(place) if is_directory else None
        for file in below:
            while unreadable:
                yield _unreadable_directory(unreadable.pop(0), top)
            if file in visited:
                continue
            visited.add(file)
            display_path = _display_path(file, top)
            is_named = file in places
            is_meant = is_named or detection.format_by_place(display_path) is not None
            if is_meant or allowed is None or file in allowed:
                why = "a link, and links are not followed" if os.path.islink(file) else None
                yield Found(file, display_path, is_meant, is_named, why)
            elif not_captured is not None:
                not_captured.append(display_path)
        yield from (_unreadable_directory(error, top) for error in unreadable)


def _unreadable_directory(error: OSError, top: str | None) -> Found:
    place = str(error.filename)
    path = _display_path(place, top)
    return Found(place, path, is_meant=True, is_named=False, problem=error.strerror)


def _place(path: str) -> str:
    """Return an absolute path with links resolved, except in its last component."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


def _candidates_below(directory: str, onerror: Callable[[OSError], object]) -> Iterator[str]:
    for above, directories, names in os.walk(directory, onerror=onerror):
        directories[:] = sorted(name for name in directories if name not in (".git", PRIVATE))
        candidates = sorted(name for name in names if name.endswith(detection.SUFFIXES))
        yield from (os.path.join(above, name) for name in candidates)


def _display_path(place: str, top: str | None) -> str:
    root = os.path.realpath(top) if top is not None else None
    inside = root is not None and place.startswith(root + os.sep)
    return os.path.relpath(place, root) if inside else place


def read(file: Found) -> Source:
    """Read a file; raise `Unreadable` if it is not a regular file, or too large."""
    if file.problem is not None:
        raise Unreadable(file.problem)
    try:
        data = regular.content(file.place, LARGEST, follow=False)
    except OSError as error:
        raise Unreadable(str(error.strerror)) from None
    return Source(file.path, data)


def with_plan(
    source: Source, place: str, reason: Callable[[str], str | None]
) -> tuple[Source, str | None]:
    """Return a file with the plan next to it, and a remark if the plan was not read."""
    # If a snapshot would omit the file as well, the plan is read: both belong to the tool.
    stem = os.path.basename(place).rpartition(".")[0]
    contents, remark = {}, None
    for name in (f"{stem}-plan.md", "plan.md"):
        path = os.path.join(os.path.dirname(place), name)
        if not os.path.lexists(path):
            continue
        why = reason(path)
        if why is not None and reason(place) is None:
            remark = f"has the plan {name} next to it, which was not read: {why}"
            continue
        with contextlib.suppress(OSError):  # the plan is optional
            contents[name] = regular.content(path, _MAX_PLAN, follow=False)
    return Source(source.path, source.data, contents), remark


def read_named(
    path: str, top: str | None, reason: Callable[[str], str | None], project: str = ""
) -> bytes:
    """Read a file of the worktree that an imported file names.

    Paths below `project`, the former path of the project, are looked up below `top`. The message
    of `Unreadable` continues a sentence that begins with the name of the file.
    """
    missing = "is not in the repository"
    if top is None or not path:
        raise Unreadable(missing)
    root = os.path.realpath(top)
    for above in (project.rstrip("/"), root):
        if above and path.startswith(f"{above}/"):
            path = path[len(above) + 1 :]
            break
    try:
        place = os.path.realpath(os.path.join(root, path))
        if os.path.isabs(path) or not place.startswith(root + os.sep) or not os.path.lexists(place):
            raise Unreadable(missing)
        if (why := reason(place)) is not None:
            raise Unreadable(f"is not read: {why}")
        return regular.content(place, _MAX_PLAN, follow=False)
    except OSError as error:
        raise Unreadable(f"is not read: {error.strerror}") from None
    except Unreadable:
        raise
    except ValueError:
        raise Unreadable(missing) from None
