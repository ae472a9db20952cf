"""Add files to an index, and interpret what git reports about unreadable files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from gitckpt.git.command import config_options, encode_paths
from gitckpt.git.contents.attributes import find_filters
from gitckpt.git.process import GitError, ProcResult
from gitckpt.git.worktree import administration
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Counted

_REFUSED = re.compile(r"^fatal: (?:Unable to process path )?(.*)$", re.MULTILINE)
_FILTERED = ": clean filter '"
_CONVERTED = re.compile(
    r"^warning: in the working copy of '(.*)', (?:CRLF|LF) will be replaced by", re.MULTILINE
)
_PASSED_OVER = re.compile(r"^Ignoring path (.*)$", re.MULTILINE)
_MISENCODED = re.compile(
    r"^fatal: (?:BOM is (?:prohibited|required) in|failed to encode|encoding) '(.*)' "
    r"(?:if encoded as|from) ",
    re.MULTILINE,
)

_INSERTING = "failed to insert into database"
# git prints this, too, if it could not read the file itself, or not all of it.
_INDEXING = "while indexing"

_STORING = (_INSERTING, "temporary file", "unable to write file")
_NOT_STARTED = (
    "the remote end hung up",
    "initialization for subprocess",
    "cannot fork to run subprocess",
)

_PARTS = 16
_CHANGING = (
    "stop the program that writes to the file, and run the command again; "
    "or save without any files: git ckpt save --no-worktree"
)

_READ = (
    *("update-index", "--add", "--remove", "--replace", "--ignore-skip-worktree-entries"),
    *("-z", "--stdin"),
)


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that git did not read, so that its index entry is unchanged."""

    path: bytes
    cause: str
    driver: str = ""  # the required filter that failed
    is_name: bool = False  # git rejects the name, whatever the content


@dataclass(slots=True)
class AddFilesResult:
    converted: list[bytes] = field(default_factory=list)
    refused: list[RefusedFile] = field(default_factory=list)


def add_files_to_index(
    index: PrivateIndex,
    paths: list[bytes],
    settings: Sequence[str],
    env: Mapping[str, str] | None,
    progress: Counted | None = None,
) -> AddFilesResult:
    """Add files to an index, remove missing ones; return the files that git refuses."""
    result, parts = AddFilesResult(), [paths]
    disabled: set[str] = set()
    is_refreshed = False
    while parts:
        part = parts.pop()
        # With core.safecrlf=true, git would refuse files whose line ends change.
        filter_options = config_options(*(f"filter.{name}.process=" for name in sorted(disabled)))
        words = (*settings, *filter_options, "-c", "core.safecrlf=warn", *_READ)
        try:
            data = encode_paths(part)
            complaint = index.run(*words, data=data, env=env, progress=progress).error_text
        except GitError as error:
            if administration.has_file_changed(error):
                index.delete_lock()
                if len(part) == 1:
                    message = f"{os.fsdecode(part[0])} changes while git reads the file"
                    raise WorktreeError(message, hint=_CHANGING) from None
                size = -(-len(part) // _PARTS)
                parts += [part[start : start + size] for start in range(0, len(part), size)]
                continue
            bad_path = find_refused_path(error, part)
            may_retry = bad_path is None and administration.has_hung_up(error)
            broken_filters = _find_broken_filters(index, part) - disabled if may_retry else set()
            may_refresh = bad_path is None and not is_refreshed
            if broken_filters:
                disabled |= broken_filters
            elif may_refresh and administration.find_failing_filters(index.repository, error):
                index.refresh_racy_entries()  # git has run the filter on another file
                is_refreshed = True
            # A full disk is no reason to leave a file out.
            elif bad_path is None or is_storage_failure(error):
                raise
            else:
                result.refused.append(
                    RefusedFile(bad_path, parse_cause(error), _parse_filter(error.stderr))
                )
            parts.append([path for path in part if path != bad_path])
            continue
        # git warns about changed line ends (`core.safecrlf`), and ignores files with unsafe names.
        result.converted += _match_paths(_CONVERTED, complaint, part)
        result.refused += [
            RefusedFile(path, "git rejects this name", is_name=True)
            for path in _match_paths(_PASSED_OVER, complaint, part)
        ]
    return result


def _parse_filter(complaint: str) -> str:
    for line in complaint.splitlines():
        if line.startswith("fatal: ") and line.endswith("' failed") and _FILTERED in line:
            return line.rpartition(_FILTERED)[2].removesuffix("' failed")
    return ""


def _find_broken_filters(index: PrivateIndex, paths: Sequence[bytes]) -> set[str]:
    examples = {name: path for path, name in find_filters(index, paths).items()}
    names = examples.keys() & administration.list_process_filters(index.repository)
    complaints = {
        name: _run_clean_filter(index, examples[name], b"\n").error_text for name in names
    }
    return {name for name in names if any(text in complaints[name] for text in _NOT_STARTED)}


def _run_clean_filter(index: PrivateIndex, path: bytes, data: bytes) -> ProcResult:
    words = ("hash-object", "--stdin", f"--path={os.fsdecode(path)}")
    return index.run(*words, data=data, ok=(0, 1, 128))


def does_filter_work(index: PrivateIndex, path: bytes, oid: str) -> bool:
    """Return whether a path's clean filter accepts a blob; False for an empty blob."""
    (blob,) = index.repository.cat_file.read_contents([oid])
    return blob is not None and bool(blob[2]) and _run_clean_filter(index, path, blob[2]).code == 0


def find_refused_path(error: GitError, paths: Iterable[bytes]) -> bytes | None:
    names = {*_REFUSED.findall(error.stderr), *_MISENCODED.findall(error.stderr)}
    names |= {name.partition(_FILTERED)[0] for name in names if name.endswith("' failed")}
    return next((path for path in paths if path.decode("utf-8", "replace") in names), None)


def is_storage_failure(error: GitError) -> bool:
    return _INSERTING in error.stderr and _INDEXING not in error.stderr


def was_directory_pruned(error: GitError) -> bool:
    is_gone = "No such file or directory" in error.stderr
    return is_gone and any(words in error.stderr for words in _STORING)


def parse_cause(error: GitError) -> str:
    for line in error.stderr.splitlines():
        if line.strip() and not line.startswith("hint:"):
            return line.strip().removeprefix("error: ").removeprefix("fatal: ")
    return "git gave no reason"


def _match_paths(sentence: re.Pattern[str], complaint: str, paths: Sequence[bytes]) -> list[bytes]:
    names = set(sentence.findall(complaint))
    return [path for path in paths if path.decode("utf-8", "replace") in names] if names else []
