"""Finds files of other tools below a directory, and reads them: regular files alone, and none through a link."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator

from gitckpt.formats.systems import detection
from gitckpt.formats.systems.content import LARGEST, Source, Unreadable
from gitckpt.git.files import regular
from gitckpt.git.files.premises import PRIVATE
from gitckpt.model.errors import NotFoundError
from gitckpt.model.values import dataclass

_BESIDE = 1024 * 1024
"""In bytes: a larger file beside another one is no plan."""

_LEFT_OUT = (".git", PRIVATE)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be another tool's.

    Attributes:
        place: absolute path.
        path: as it is shown: relative to the top of the worktree where it lies in it.
        is_meant: whether it was named, or lies where one of the tools puts its files; else it is passed over without a word.
        is_named: whether it was named.
        problem: why it cannot be read; None where it can.
    """

    place: str
    path: str
    is_meant: bool
    is_named: bool
    problem: str | None = None


def search(
    paths: list[str],
    top: str | None,
    captured: Callable[[str], Container[str] | None] = lambda _: None,
    left: list[str] | None = None,
) -> Iterator[Found]:
    """Yields files: those that are named, and below directories those whose names end as theirs do, in order of their names.

    Args:
        paths: of files and directories, as seen from the current directory.
        top: of the worktree.
        captured: returns the files below a directory that a snapshot would capture; None where
            all of it is searched. Other files are yielded only where a tool keeps its own.
        left: takes in the files that are not yielded for that reason.

    Raises:
        NotFoundError: nothing is at one of the paths.
    """
    for path in paths:
        if not os.path.lexists(path):
            raise NotFoundError(f"there is no {path}", hint="name a file of another tool, or a directory to be searched: git ckpt import .")
    seen: set[str] = set()
    places = [_place(path) for path in paths]
    for place in places:
        closed: list[OSError] = []
        is_directory = os.path.isdir(place) and not os.path.islink(place)
        below = _below(place, closed.append) if is_directory else [place]
        allowed = captured(place) if is_directory else None
        for each in below:
            while closed:
                yield _closed(closed.pop(0), top)
            if each in seen:
                continue
            seen.add(each)
            shown = _shown(each, top)
            is_named = each in places
            is_meant = is_named or detection.format_by_place(shown) is not None
            if not is_meant and allowed is not None and each not in allowed:
                if left is not None:
                    left.append(shown)
                continue
            problem = "it is a link, and links are not followed" if os.path.islink(each) else None
            yield Found(each, shown, is_meant, is_named, problem)
        yield from (_closed(error, top) for error in closed)


def _closed(error: OSError, top: str | None) -> Found:
    """Returns a directory that cannot be read, and may hold anything."""
    place = str(error.filename)
    return Found(place, _shown(place, top), is_meant=True, is_named=False, problem=error.strerror)


def _place(path: str) -> str:
    """Returns the absolute path of what may be a link itself; links on the way to it are resolved."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


def _below(directory: str, onerror: Callable[[OSError], object]) -> Iterator[str]:
    for above, directories, names in os.walk(directory, onerror=onerror):
        directories[:] = sorted(name for name in directories if name not in _LEFT_OUT)
        yield from (os.path.join(above, name) for name in sorted(names) if name.endswith(detection.SUFFIXES))


def _shown(place: str, top: str | None) -> str:
    root = os.path.realpath(top) if top is not None else None
    inside = root is not None and place.startswith(root + os.sep)
    return os.path.relpath(place, root) if inside else place


def read(found: Found) -> Source:
    """Returns a file with what lies beside it.

    Raises:
        Unreadable: it is missing, too large, or no regular file.
    """
    if found.problem is not None:
        raise Unreadable(found.problem)
    try:
        data = regular.content(found.place, LARGEST, follow=False)
    except OSError as error:
        raise Unreadable(str(error.strerror)) from None
    return Source(found.path, data)


def beside(source: Source, place: str, reason: Callable[[str], str | None]) -> tuple[Source, str | None]:
    """Returns a file with the plan that lies beside it, and what to say of one that is not read.

    Args:
        source: the file.
        place: its absolute path.
        reason: returns why a snapshot would leave out a file. In an ignored directory of a tool,
            the plan is as much the tool's as the file itself.
    """
    stem = os.path.basename(place).rpartition(".")[0]
    there, remark = {}, None
    for name in (f"{stem}-plan.md", "plan.md"):
        path = os.path.join(os.path.dirname(place), name)
        if not os.path.lexists(path):
            continue
        left = reason(path)
        if left is not None and reason(place) is None:
            remark = f"has {name} beside it, which is not read: {left}"
            continue
        try:
            there[name] = regular.content(path, _BESIDE, follow=False)
        except OSError:
            continue  # it need not be there
    return Source(source.path, source.data, there), remark


def inside(path: str, top: str | None, reason: Callable[[str], str | None], project: str = "") -> bytes:
    """Returns the content of a file that another file names.

    Args:
        path: as the other file has it.
        top: of the worktree.
        reason: returns why a snapshot would leave out a file.
        project: where the project lay when the other file was written: what lay in it is looked for at `top`.

    Raises:
        Unreadable: it is not read; the message is what to say behind its name.
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
        if (left := reason(place)) is not None:
            raise Unreadable(f"is not read: {left}")
        return regular.content(place, _BESIDE, follow=False)
    except OSError as error:
        raise Unreadable(f"is not read: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(missing) from None
