"""Errors that the user sees, each with an exit code and possibly a hint.

The hook imports this module: keep it free of imports.
"""

from __future__ import annotations

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self


class CkptError(Exception):
    """An error with a message for the user.

    Args:
        message: what failed, on which object, and why; one sentence without a final period.
        hint: the command to run next, or what to change; None for no advice.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __reduce__(self) -> tuple[object, ...]:
        # For `pickle` and `copy` with any constructor: process pools hang without it.
        return _recreate_error, (type(self), self.args), self.__dict__

    def but(self, **changes: object) -> Self:
        """Return a copy with changed attributes; a raised error must not be modified."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__, **changes)
        return copy.with_traceback(self.__traceback__)


def _recreate_error(kind: type[CkptError], args: tuple[object, ...]) -> CkptError:
    return kind.__new__(kind, *args)


class UsageError(CkptError):
    """The call itself is wrong, such as an unknown option, an empty id or phase name."""

    exit_code = 2


class RepositoryError(CkptError):
    """There is no repository here, or git cannot use it."""

    exit_code = 10


class BusyError(CkptError):
    """Another process holds a lock, or a ref moved in the meantime."""

    exit_code = 11


class NotFoundError(CkptError):
    """No checkpoint, run or commit has the requested name."""

    exit_code = 12


class AmbiguousError(NotFoundError):
    """Several checkpoints or runs match; `candidates` has a line for each of them."""

    def __init__(self, message: str, candidates: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(candidates)


class RunExists(CkptError):
    """A run with the requested key already exists; `run` is its id."""

    def __init__(self, message: str, run: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run = run


class RunComplete(UsageError):
    """The run to resume is complete; `results` maps each phase to its result."""

    def __init__(self, run: str, results: Mapping[str, Any]) -> None:
        hint = f"to do a phase again: git ckpt resume {run} --from PHASE; to fork the run: --fork"
        super().__init__(f"run {run} is complete", hint=hint)
        self.run = run
        self.results = dict(results)


def _shorten(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}…"


class InvalidCheckpoint(CkptError):
    """The document of a ref is invalid; `field` is the wrong key, or "" for all."""

    exit_code = 13

    def __init__(self, ref: str, field: str, problem: str, *, hint: str | None = None) -> None:
        field, problem = _shorten(field), _shorten(problem)  # both may quote a fetched document
        position = f"{ref}: {field}: " if field else f"{ref}: "
        super().__init__(position + problem, hint=hint)
        self.ref, self.field, self.problem = ref, field, problem


class NewerCheckpoint(InvalidCheckpoint):
    """A newer gitckpt wrote the document, in a version that this gitckpt cannot read."""


class StateError(CkptError):
    """A value of a state cannot be stored losslessly; `path` is its JSON pointer."""

    exit_code = 13

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path or '/'}: {problem}", hint=hint)
        self.path, self.problem = path, problem


class WorktreeError(CkptError):
    """A worktree cannot be created or trusted, or a directory is in its way."""

    exit_code = 14


# Results of `git ckpt doctor` and `verify`.


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that `git ckpt doctor` or `verify` reports.

    Attributes:
        code: stable name of the kind of finding, such as "hook-missing".
        object: the affected ref, file or setting.
        cure: the command to run, or the line to change; None for no advice.
    """

    code: str
    object: str
    sentence: str
    cure: str | None = None
    repaired: bool = False
