"""Errors for people, each with an exit code and a hint.

    CkptError                1   something failed
    ├─ UsageError            2   the call itself is wrong
    │  └─ RunComplete        2   the run to resume is complete
    ├─ RepositoryError      10   not a usable repository
    ├─ RunExists             1   a run with that key exists
    ├─ BusyError            11   a lock is held or a ref moved
    ├─ NotFoundError        12   no match for a name
    │  └─ AmbiguousError    12   several matches for a name
    ├─ InvalidCheckpoint    13   a document that cannot be trusted
    │  └─ NewerCheckpoint   13   a document of a later version
    ├─ StateError           13   a state that TOML cannot hold losslessly
    └─ WorktreeError        14   a directory or worktree in the way

The hook imports this module: keep it free of imports.
"""

from __future__ import annotations

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self


class CkptError(Exception):
    """An error for people.

    Args:
        message: what failed, on which object, and why; one sentence without a final period.
        hint: the command to run next, or what to change; None for no advice.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # For `pickle` and `copy` with any constructor: process pools hang without it.
        return _made_again, (type(self), self.args), self.__dict__

    def but(self, **changes: object) -> Self:
        """Return a copy with some attributes changed: a raised error is never changed."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__, **changes)
        return other.with_traceback(self.__traceback__)


def _made_again(kind: type[CkptError], args: tuple[object, ...]) -> CkptError:
    return kind.__new__(kind, *args)


class UsageError(CkptError):
    """The call itself is wrong: an option, an empty id, a phase without a name."""

    exit_code = 2


class RepositoryError(CkptError):
    """There is no repository here, or git cannot use it."""

    exit_code = 10


class BusyError(CkptError):
    """Another process holds a lock, or a ref moved in the meantime."""

    exit_code = 11


class NotFoundError(CkptError):
    """No checkpoint, run or commit has that name."""

    exit_code = 12


class AmbiguousError(NotFoundError):
    """Several things have that name: `candidates`, one line each."""

    def __init__(self, message: str, candidates: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(candidates)


class RunExists(CkptError):
    """A run with the requested key exists."""

    def __init__(self, message: str, run: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run = run


class RunComplete(UsageError):
    """The run to resume is complete; `results` by phase, in order of completion."""

    def __init__(self, run: str, results: Mapping[str, Any]) -> None:
        hint = f"to do a phase again: git ckpt resume {run} --from PHASE; or fork it: --fork"
        super().__init__(f"run {run} is complete", hint=hint)
        self.run = run
        self.results = dict(results)


_MOST_SAID = 500


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"


class InvalidCheckpoint(CkptError):
    """A ref holds no valid document; `field` is a dotted key, "" for the whole."""

    exit_code = 13

    def __init__(self, ref: str, field: str, problem: str, *, hint: str | None = None) -> None:
        field, problem = _short(field), _short(problem)  # both may quote a fetched document
        where = f"{ref}: {field}: " if field else f"{ref}: "
        super().__init__(where + problem, hint=hint)
        self.ref = ref
        self.field = field
        self.problem = problem


class NewerCheckpoint(InvalidCheckpoint):
    """A document of a version that this program does not know."""


class StateError(CkptError):
    """A value, at the JSON pointer `path`, that a document cannot hold losslessly."""

    exit_code = 13

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path or '/'}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class WorktreeError(CkptError):
    """A directory is in the way, or a worktree cannot be made or trusted."""

    exit_code = 14


# Results of inspections.


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that an inspection reports.

    Attributes:
        code: stable name of the kind of finding, such as "hook-missing".
        object: the affected ref, file or setting.
        cure: the command or line that fixes it; None for no advice.
    """

    code: str
    object: str
    sentence: str
    cure: str | None = None
    repaired: bool = False
