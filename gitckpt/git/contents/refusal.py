"""What git says of a file that it cannot read into an index, or whose object it cannot write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from gitckpt.git.objects.anchor import is_pruned
from gitckpt.git.process import GitError
from gitckpt.git.worktree.complaints import met_change
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
_INDEXING = "while indexing"
"""What git says besides where it could not read the file itself, or not all of it."""

_STORING = (_INSERTING, "temporary file", "unable to write file")


_PARTS = 16
_STILL = "stop what writes to it, and run the command again; or leave all files out: git ckpt save --no-worktree"

_READ = ("update-index", "--add", "--remove", "--replace", "--ignore-skip-worktree-entries", "-z", "--stdin")


@dataclass(slots=True)
class Read:
    """What became of files that were to be read into an index.

    Attributes:
        converted: those of which git warned that their line ends come back otherwise.
        refused: those that it has not read, each with the reason; of them, the index has what it had.
    """

    converted: list[bytes] = field(default_factory=list)
    refused: list[tuple[bytes, str]] = field(default_factory=list)


def read_in(index: PrivateIndex, paths: list[bytes], settings: Sequence[str], env: Mapping[str, str] | None) -> Read:
    """Reads files into an index, and takes out those that are not there. Of files that change all the while, a few are read at a time.

    Args:
        index: private.
        paths: of the files, from the top of the worktree.
        settings: options of git itself.
        env: more variables.

    Raises:
        GitError: git cannot store what it has read.
        WorktreeError: a file changes each time that it is read, alone, too.
    """
    found, parts = Read(), [paths]
    # Whatever the user says of line ends that change: what is to be saved is to be saved.
    words = (*settings, "-c", "core.safecrlf=warn", *_READ)
    while parts:
        part = parts.pop()
        try:
            said = index.run(*words, data=b"".join(path + b"\0" for path in part), env=env)
        except GitError as error:
            if met_change(error):
                index.unlock()
                if len(part) == 1:
                    raise WorktreeError(f"{os.fsdecode(part[0])} changes each time that it is read", hint=_STILL) from None
                size = -(-len(part) // _PARTS)
                parts += [part[at : at + size] for at in range(0, len(part), size)]
                continue
            refused = refused_path(error, part)
            if refused is None or is_unstorable(error):
                raise
            found.refused.append((refused, f"git cannot store it: {cause(error)}"))
            parts.append([path for path in part if path != refused])
        else:
            found.converted += converted(said.complaint, part)
            found.refused += [(path, "git does not take this name") for path in passed_over(said.complaint, part)]
    return found


def refused_path(error: GitError, paths: Iterable[bytes]) -> bytes | None:
    """Returns the path that git gave up at; None where it failed for another reason."""
    said = {*_REFUSED.findall(error.stderr), *_MISENCODED.findall(error.stderr)}
    said |= {name.partition(_FILTERED)[0] for name in said if name.endswith("' failed")}
    return next((path for path in paths if path.decode("utf-8", "replace") in said), None)


def is_unstorable(error: GitError) -> bool:
    """Tells whether git has read a file, and could not write its object: a full disk is no reason to leave the file out."""
    return _INSERTING in error.stderr and _INDEXING not in error.stderr


def was_pruned(error: GitError) -> bool:
    """Tells whether git failed because a `git prune` deleted what it was writing to."""
    return is_pruned(error) and any(words in error.stderr for words in _STORING)


def cause(error: GitError) -> str:
    """Returns what git said first."""
    lines = [line.strip() for line in error.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    return lines[0].removeprefix("error: ").removeprefix("fatal: ") if lines else "it gave no reason"


def converted(said: str, paths: Sequence[bytes]) -> list[bytes]:
    """Returns the paths of which git warned that their line ends come back otherwise, as it does where `core.safecrlf` is `warn`."""
    return _named(_CONVERTED, said, paths)


def passed_over(said: str, paths: Sequence[bytes]) -> list[bytes]:
    """Returns the paths that `git update-index` left out, as their names might stand for `.git` somewhere; that is no failure to it."""
    return _named(_PASSED_OVER, said, paths)


def _named(sentence: re.Pattern[str], said: str, paths: Sequence[bytes]) -> list[bytes]:
    names = set(sentence.findall(said))
    return [path for path in paths if path.decode("utf-8", "replace") in names] if names else []
