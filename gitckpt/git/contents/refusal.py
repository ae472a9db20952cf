"""What git says of a file that it cannot read into an index, or whose object it cannot write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gitckpt.git.objects.anchor import is_pruned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.process import GitError

_REFUSED = re.compile(r"^fatal: (?:Unable to process path )?(.*?)(?:: clean filter '.*' failed)?$", re.MULTILINE)
_CONVERTED = re.compile(r"^warning: in the working copy of '(.*)', (?:CRLF|LF) will be replaced by", re.MULTILINE)
_PASSED_OVER = re.compile(r"^Ignoring path (.*)$", re.MULTILINE)
_MISENCODED = re.compile(
    r"^fatal: (?:BOM is (?:prohibited|required) in|failed to encode|encoding) '(.*)' (?:if encoded as|from) ", re.MULTILINE
)

_INSERTING = "failed to insert into database"
_INDEXING = "while indexing"
"""What git says besides where it could not read the file itself, or not all of it."""

_STORING = (_INSERTING, "temporary file", "unable to write file")


def refused_path(error: GitError, paths: Iterable[bytes]) -> bytes | None:
    """Returns the path that git gave up at; None where it failed for another reason."""
    said = {*_REFUSED.findall(error.stderr), *_MISENCODED.findall(error.stderr)}
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
