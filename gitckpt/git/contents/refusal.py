"""Interpret what git reports about files that it cannot read or store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from gitckpt.git.process import GitError
from gitckpt.git.worktree.administration import failing_filters, has_hung_up, met_change, process_filters
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

_REFUSED = re.compile(r"^fatal: (?:Unable to process path )?(.*)$", re.MULTILINE)
_FILTERED = ": clean filter '"
_CONVERTED = re.compile(r"^warning: in the working copy of '(.*)', (?:CRLF|LF) will be replaced by", re.MULTILINE)
_PASSED_OVER = re.compile(r"^Ignoring path (.*)$", re.MULTILINE)
_MISENCODED = re.compile(
    r"^fatal: (?:BOM is (?:prohibited|required) in|failed to encode|encoding) '(.*)' (?:if encoded as|from) ", re.MULTILINE
)

_INSERTING = "failed to insert into database"
# git prints this, too, if it could not read the file itself, or not all of it.
_INDEXING = "while indexing"

_STORING = (_INSERTING, "temporary file", "unable to write file")
_NOT_STARTED = ("the remote end hung up", "initialization for subprocess", "cannot fork to run subprocess")

_PARTS = 16
_STILL = "stop what writes to it, and run the command again; or leave all files out: git ckpt save --no-worktree"

_READ = ("update-index", "--add", "--remove", "--replace", "--ignore-skip-worktree-entries", "-z", "--stdin")


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that git did not read; its index entry is unchanged."""

    path: bytes
    cause: str
    driver: str = ""  # the required filter that failed
    is_name: bool = False  # git rejects the name, whatever the content


@dataclass(slots=True)
class Read:
    converted: list[bytes] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def read_in(index: PrivateIndex, paths: list[bytes], settings: Sequence[str], env: Mapping[str, str] | None) -> Read:
    """Read files into an index, in smaller parts if they change; remove missing ones."""
    result, parts = Read(), [paths]
    disabled: set[str] = set()
    is_refreshed = False
    while parts:
        part = parts.pop()
        # With core.safecrlf=true, git would refuse files whose line ends change.
        words = (*settings, *without_processes(disabled), "-c", "core.safecrlf=warn", *_READ)
        try:
            output = index.run(*words, data=b"".join(path + b"\0" for path in part), env=env)
        except GitError as error:
            if met_change(error):
                index.unlock()
                if len(part) == 1:
                    raise WorktreeError(f"{os.fsdecode(part[0])} changes each time that it is read", hint=_STILL) from None
                size = -(-len(part) // _PARTS)
                parts += [part[start : start + size] for start in range(0, len(part), size)]
                continue
            refused = refused_path(error, part)
            if refused is None and has_hung_up(error):
                broken = _not_starting(index, part) - disabled
                if broken:
                    disabled |= broken
                    parts.append(part)
                    continue
            if refused is None and not is_refreshed and failing_filters(index.repository, error):
                index.look_at_young()  # git has run the filter on another file
                is_refreshed = True
                parts.append(part)
                continue
            # A full disk is no reason to leave a file out.
            if refused is None or is_unstorable(error):
                raise
            result.refused.append(Refused(refused, cause(error), _failed_filter(error.stderr)))
            parts.append([path for path in part if path != refused])
        else:
            result.converted += converted(output.complaint, part)
            misnamed = passed_over(output.complaint, part)
            result.refused += [Refused(path, "git does not take this name", is_name=True) for path in misnamed]
    return result


def _failed_filter(complaint: str) -> str:
    for line in complaint.splitlines():
        if line.startswith("fatal: ") and line.endswith("' failed") and _FILTERED in line:
            return line.rpartition(_FILTERED)[2].removesuffix("' failed")
    return ""


def without_processes(drivers: Iterable[str]) -> list[str]:
    return [word for name in sorted(drivers) for word in ("-c", f"filter.{name}.process=")]


def _not_starting(index: PrivateIndex, paths: Sequence[bytes]) -> set[str]:
    words = index.git("check-attr", "-z", "--stdin", "filter", data=b"".join(path + b"\0" for path in paths)).split(b"\0")
    drivers = {os.fsdecode(name): path for path, name in zip(words[::3], words[2::3], strict=False)}
    broken = set()
    for name in drivers.keys() & process_filters(index.repository):
        done = index.run("hash-object", "--stdin", f"--path={os.fsdecode(drivers[name])}", data=b"\n", ok=(0, 128))
        if any(words in done.complaint for words in _NOT_STARTED):
            broken.add(name)
    return broken


def filter_works(index: PrivateIndex, path: bytes, oid: str) -> bool:
    """Return whether a file's clean filter accepts its blob; False for an empty one."""
    (blob,) = index.repository.cat_file.contents([oid])
    if blob is None or not blob[2]:
        return False
    done = index.run("hash-object", "--stdin", f"--path={os.fsdecode(path)}", data=blob[2], ok=(0, 1, 128))
    return done.code == 0


def refused_path(error: GitError, paths: Iterable[bytes]) -> bytes | None:
    """Return the path at which git gave up; None if it failed for another reason."""
    names = {*_REFUSED.findall(error.stderr), *_MISENCODED.findall(error.stderr)}
    names |= {name.partition(_FILTERED)[0] for name in names if name.endswith("' failed")}
    return next((path for path in paths if path.decode("utf-8", "replace") in names), None)


def is_unstorable(error: GitError) -> bool:
    return _INSERTING in error.stderr and _INDEXING not in error.stderr


def was_pruned(error: GitError) -> bool:
    """Return whether git failed because `git prune` deleted what it was writing to."""
    return "No such file or directory" in error.stderr and any(words in error.stderr for words in _STORING)


def cause(error: GitError) -> str:
    lines = [line.strip() for line in error.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    return lines[0].removeprefix("error: ").removeprefix("fatal: ") if lines else "it gave no reason"


def converted(said: str, paths: Sequence[bytes]) -> list[bytes]:
    """Return the paths that git warned about for changed line ends (`core.safecrlf`)."""
    return _named(_CONVERTED, said, paths)


def passed_over(said: str, paths: Sequence[bytes]) -> list[bytes]:
    """Return the paths that `git update-index` ignored, as their names are unsafe."""
    return _named(_PASSED_OVER, said, paths)


def _named(sentence: re.Pattern[str], said: str, paths: Sequence[bytes]) -> list[bytes]:
    names = set(sentence.findall(said))
    return [path for path in paths if path.decode("utf-8", "replace") in names] if names else []
