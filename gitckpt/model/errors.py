"""The errors that reach a person, each with its exit code and the command to run next.

The tree:

    CkptError                1   something failed
    ├─ UsageError            2   the call itself is wrong
    │  └─ RunComplete        2   a run is complete, and was to be gone on with
    ├─ RepositoryError      10   not a usable repository
    ├─ RunExists             1   a run with that key exists
    ├─ BusyError            11   a lock is held or a ref moved
    ├─ NotFoundError        12   nothing by that name
    │  └─ AmbiguousError    12   several by that name
    ├─ InvalidCheckpoint    13   a document that cannot be trusted
    │  └─ NewerCheckpoint   13   a document of a later version
    ├─ StateError           13   a state that TOML cannot hold losslessly
    └─ WorktreeError        14   a directory or worktree in the way

This module is imported by the hook, so it stays free of imports.
"""

from __future__ import annotations

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self


# The errors that reach a person, each with its exit code and the command to run next.


class CkptError(Exception):
    """An error for a person.

    Args:
        message: what happened, to which object, and why; one sentence without a final period.
        hint: the command to run next, or what to change; None where nothing can be advised.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """How `pickle` and `copy` make it again, with any constructor: pools of processes hand errors on that way, and hang without."""
        return _made_again, (type(self), self.args), self.__dict__

    def but(self, **changes: object) -> Self:
        """Returns a new error that differs from this one in some attributes: one that was raised is never changed.

        Args:
            changes: attributes by name.
        """
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__, **changes)
        return other.with_traceback(self.__traceback__)


def _made_again(kind: type[CkptError], args: tuple[object, ...]) -> CkptError:
    return kind.__new__(kind, *args)


class UsageError(CkptError):
    """The call itself is wrong: an option, an empty id, a phase without a name."""

    exit_code = 2


class RepositoryError(CkptError):
    """There is no repository here, or git cannot use the one there is."""

    exit_code = 10


class BusyError(CkptError):
    """A lock is held by somebody else, or a ref moved while we looked away."""

    exit_code = 11


class NotFoundError(CkptError):
    """Nothing goes by that name."""

    exit_code = 12


class AmbiguousError(NotFoundError):
    """Several things go by that name.

    Args:
        message: the name, and what was looked for.
        candidates: one line for each thing it could mean.
        hint: how to name one of them.
    """

    def __init__(self, message: str, candidates: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(candidates)


class RunExists(CkptError):
    """A run with the key that another one should start with exists.

    Args:
        message: the key and the run.
        hint: how to go on with it.
    """

    def __init__(self, message: str, run: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run = run


class RunComplete(UsageError):
    """A run that was to be gone on with is complete.

    Args:
        run: its id.
        results: what its phases returned, by name, in the order in which they were completed.
    """

    def __init__(self, run: str, results: Mapping[str, Any]) -> None:
        hint = f"to do a phase again: git ckpt resume {run} --from PHASE; or fork it: --fork"
        super().__init__(f"run {run} is complete", hint=hint)
        self.run = run
        self.results = dict(results)


_MOST_SAID = 500


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"


class InvalidCheckpoint(CkptError):
    """A ref under `refs/checkpoints/` does not hold a valid checkpoint document.

    Args:
        ref: full name of the ref.
        field: the offending key, dotted, or "" where the document as a whole is meant.
        problem: what is wrong with it.
    """

    exit_code = 13

    def __init__(self, ref: str, field: str, problem: str, *, hint: str | None = None) -> None:
        field, problem = _short(field), _short(problem)  # either may quote a document that somebody else has made
        where = f"{ref}: {field}: " if field else f"{ref}: "
        super().__init__(where + problem, hint=hint)
        self.ref = ref
        self.field = field
        self.problem = problem


class NewerCheckpoint(InvalidCheckpoint):
    """The document has a version that this program does not know."""


class StateError(CkptError):
    """A value that a checkpoint document cannot hold without changing it.

    Args:
        path: JSON pointer to the value.
        problem: why it cannot be stored.
    """

    exit_code = 13

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path or '/'}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class WorktreeError(CkptError):
    """A directory that is in the way, or a worktree that cannot be made or trusted."""

    exit_code = 14


# What an inspection reports.


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        code: stable name of the kind of finding, such as "hook-missing".
        object: the ref, file or setting it is about.
        sentence: what is wrong with it, for a person.
        cure: the command or line that mends it; None where nothing can be advised.
        repaired: whether it was mended just now.
    """

    code: str
    object: str
    sentence: str
    cure: str | None = None
    repaired: bool = False
