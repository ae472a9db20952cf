"""Find and read files of other tools: only regular files, never through links."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Container, Iterator

from gitckpt.formats.systems import detection
from gitckpt.formats.systems.content import LARGEST, BadFormat, SourceFile
from gitckpt.git.files import regular
from gitckpt.git.files.private_dirs import PRIVATE
from gitckpt.model.errors import NotFoundError
from gitckpt.model.values import dataclass

_MAX_PLAN = 1024 * 1024  # in bytes


@dataclass(frozen=True, slots=True)
class FileCandidate:
    full_path: str  # absolute path of the file
    path: str  # as shown; relative to the top of the worktree if inside it
    is_expected: bool  # named by the user, or in a tool's directory; others are skipped silently
    is_named: bool  # named by the user
    problem: str | None = None  # why the file cannot be read


def find_files(
    paths: list[str],
    top: str | None,
    captured: Callable[[str], Container[str] | None] = lambda _: None,
    not_captured: list[str] | None = None,
) -> Iterator[FileCandidate]:
    """Yield the files that `paths` name, and those below its directories, sorted.

    `captured` maps a directory to the files below it that a snapshot would capture; None means all
    files. Any other file is yielded only in a directory of a tool; else `not_captured` receives it.
    """
    for path in paths:
        if not os.path.lexists(path):
            hint = "name a file of another tool, or a directory: git ckpt import ."
            raise NotFoundError(f"there is no {path}", hint=hint)
    visited_files: set[str] = set()
    absolute_paths = [_resolve_parent(path) for path in paths]
    for full_path in absolute_paths:
        errors: list[OSError] = []
        is_directory = os.path.isdir(full_path) and not os.path.islink(full_path)
        candidates = _candidates_below(full_path, errors.append) if is_directory else [full_path]
        captured_files = captured(full_path) if is_directory else None
        for file in candidates:
            while errors:
                yield _unreadable_directory(errors.pop(0), top)
            if file in visited_files:
                continue
            visited_files.add(file)
            display_path = _display_path(file, top)
            is_named = file in absolute_paths
            is_expected = is_named or detection.format_by_path(display_path) is not None
            if is_expected or captured_files is None or file in captured_files:
                problem = "a link, and links are not followed" if os.path.islink(file) else None
                yield FileCandidate(file, display_path, is_expected, is_named, problem)
            elif not_captured is not None:
                not_captured.append(display_path)
        yield from (_unreadable_directory(error, top) for error in errors)


def _unreadable_directory(error: OSError, top: str | None) -> FileCandidate:
    full_path = str(error.filename)
    path = _display_path(full_path, top)
    return FileCandidate(full_path, path, is_expected=True, is_named=False, problem=error.strerror)


def _resolve_parent(path: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(parent), name)


def _candidates_below(directory: str, onerror: Callable[[OSError], object]) -> Iterator[str]:
    for parent, directories, names in os.walk(directory, onerror=onerror):
        directories[:] = sorted(name for name in directories if name not in (".git", PRIVATE))
        candidates = sorted(name for name in names if name.endswith(detection.SUFFIXES))
        yield from (os.path.join(parent, name) for name in candidates)


def _display_path(full_path: str, top: str | None) -> str:
    root = os.path.realpath(top) if top is not None else None
    is_inside = root is not None and full_path.startswith(root + os.sep)
    return os.path.relpath(full_path, root) if is_inside else full_path


def read_file(file: FileCandidate) -> SourceFile:
    if file.problem is not None:
        raise BadFormat(file.problem)
    try:
        data = regular.read_content(file.full_path, LARGEST, follow=False)
    except OSError as error:
        raise BadFormat(str(error.strerror)) from None
    return SourceFile(file.path, data)


def add_neighboring_plan(
    source: SourceFile, full_path: str, reason: Callable[[str], str | None]
) -> tuple[SourceFile, str | None]:
    """Return the source with the plan file beside it, and why a plan was not read."""
    # If a snapshot would omit the file as well, the plan is read: both belong to the tool.
    stem = os.path.basename(full_path).rpartition(".")[0]
    contents, remark = {}, None
    for name in (f"{stem}-plan.md", "plan.md"):
        path = os.path.join(os.path.dirname(full_path), name)
        if not os.path.lexists(path):
            continue
        obstacle = reason(path)
        if obstacle is not None and reason(full_path) is None:
            remark = f"has the plan {name} next to it, which was not read: {obstacle}"
            continue
        with contextlib.suppress(OSError):  # the plan is optional
            contents[name] = regular.read_content(path, _MAX_PLAN, follow=False)
    return SourceFile(source.path, source.data, contents), remark


def read_input(
    path: str, top: str | None, reason: Callable[[str], str | None], project: str = ""
) -> bytes:
    """Read a file of the worktree `top` that an imported file names.

    A path below `project`, the former path of the project, is taken as relative to `top`. Raises
    `BadFormat`, whose message continues a sentence that begins with the path.
    """
    not_found = "is not in the repository"
    if top is None or not path:
        raise BadFormat(not_found)
    root = os.path.realpath(top)
    for parent in (project.rstrip("/"), root):
        if parent and path.startswith(f"{parent}/"):
            path = path[len(parent) + 1 :]
            break
    try:
        file = os.path.realpath(os.path.join(root, path))
        if os.path.isabs(path) or not file.startswith(root + os.sep) or not os.path.lexists(file):
            raise BadFormat(not_found)
        if (obstacle := reason(file)) is not None:
            raise BadFormat(f"is not read: {obstacle}")
        return regular.read_content(file, _MAX_PLAN, follow=False)
    except OSError as error:
        raise BadFormat(f"is not read: {error.strerror}") from None
    except BadFormat:
        raise
    except ValueError:
        raise BadFormat(not_found) from None
