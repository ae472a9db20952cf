"""What git complains of where it cannot read an index, or a file into one; and that an index is gone, of which it does not complain."""

from __future__ import annotations

import os
import re
import sys

from gitckpt.git import config
from gitckpt.model.errors import BusyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from gitckpt.git.process import GitError
    from gitckpt.git.repository import Repository

TRIES = 5
"""How often git is asked to read files that change meanwhile."""

_CHANGED = ("unstable object source data", "short read while indexing", "failed to read ")
_SIGBUS = 10 if sys.platform == "darwin" else 7  # importing `signal` takes as long as all else that a capture imports

_CORRUPT = ("index file", "bad index", "bad signature", "sharedindex", "shared index", "index entry", "index version", "index uses")
_FAILING, _FAILED = "clean filter '", "' failed"
_PROCESS = re.compile(r"^filter\.(.*)\.process$")
_HUNG_UP = "the remote end hung up unexpectedly"


def met_change(error: GitError) -> bool:
    """Tells whether git failed because a file changed while it read that, or was ended, as what it has mapped into memory is not there."""
    return error.code == -_SIGBUS or any(words in error.stderr for words in _CHANGED)


def is_corrupt(error: GitError) -> bool:
    """Tells whether git failed because it could not read the index."""
    return any(words in error.stderr for words in _CORRUPT)


def has_hung_up(error: GitError) -> bool:
    """Tell whether git died as a filter process did not start; it names no file."""
    return _HUNG_UP in error.stderr


def failing_filters(repository: Repository, error: GitError) -> set[str]:
    """Return the required filters by which git may have failed to read a file."""
    lines = error.stderr.splitlines()
    named = {line.partition(_FAILING)[2].rpartition(_FAILED)[0] for line in lines} - {""}
    return named or (process_filters(repository) if has_hung_up(error) else set())


def process_filters(repository: Repository) -> set[str]:
    """Return the filters for which the configuration names a process."""
    return {name[1] for key in config.read(repository, _PROCESS.pattern) if (name := _PROCESS.match(key))}


def filters_off(names: Iterable[str]) -> list[str]:
    """Return options by which some filters do nothing."""
    keys = ("clean=", "smudge=", "process=", "required=false")
    return [word for name in sorted(names) for key in keys for word in ("-c", f"filter.{name}.{key}")]


class IndexGone(BusyError):
    """A private index was deleted while git worked on it."""


class IndexWatch:
    """A context in which git works on a private index, and that notices if it is deleted: anybody may, with the directory that it is in.

    Git takes an index that is not there for an empty one, and a tree of it lacks all files but those that were read since.

    Args:
        path: of the index.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = -1
        self._is_there = False

    def __enter__(self) -> None:
        self._look()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, Exception):
            self._look()

    def begin(self) -> None:
        """Begins with the index that is written now. Another directory by the name of its own may get another index by its name."""
        self.end()
        try:
            self._place = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self.failure() from None

    def end(self) -> None:
        """Forgets the index, which is deleted now."""
        self._is_there = False
        place, self._place = self._place, -1
        if place >= 0:
            os.close(place)

    def _look(self) -> None:
        is_there = os.path.exists(self._path)
        if (self._is_there and not is_there) or not self._is_same_place():
            raise self.failure()
        self._is_there = is_there

    def _is_same_place(self) -> bool:
        if self._place < 0:
            return True
        try:
            return os.path.samestat(os.fstat(self._place), os.stat(os.path.dirname(self._path)))
        except FileNotFoundError:
            return False

    def failure(self) -> IndexGone:
        """Returns the error that says so."""
        place = os.path.dirname(self._path)
        return IndexGone(f"{place} was deleted while the files were looked at", hint="run the command again")
