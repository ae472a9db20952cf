"""Which attempt at a phase comes next, from what the run's newest checkpoint says of the last one. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from gitckpt.model import phase as phase_labels
from gitckpt.model.checkpoint import Attempt
from gitckpt.model.errors import StateError, UsageError
from gitckpt.model.names import closest, folded
from gitckpt.model.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FAILED, BLOCKED, PARTIAL, COMPLETE = "failed", "blocked", "partial", "complete"


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """What comes next in a phase.

    Attributes:
        attempt: the attempt to make.
        crashed: whether the last one ended without anybody having noted it.
        is_first: whether the phase begins with it.
    """

    attempt: Attempt
    crashed: bool
    is_first: bool


def after(last: Attempt | None, phase: str, inputs: Mapping[str, str], *, number: int = 0) -> NextAttempt:
    """Returns the attempt that follows.

    A crash is no failure: it uses up a recovery, not a retry. What failed for good, was blocked or put off has all its retries again.

    Args:
        last: the last attempt that the run made, at this phase or another one; None where there was none.
        phase: the phase to attempt.
        inputs: digests of what it is called with.
        number: of the last attempt at this phase, where `last` is about another one.
    """
    if last is None or last.phase != phase or last.ended == COMPLETE:
        if last is not None and last.phase == phase:
            number = last.number
        return NextAttempt(Attempt(phase, number + 1, inputs=inputs), crashed=False, is_first=True)
    fresh = Attempt(phase, last.number + 1, began=last.began, inputs=inputs)
    if last.ended is None:
        return NextAttempt(replace(fresh, failures=last.failures, recoveries=last.recoveries + 1), crashed=True, is_first=False)
    if last.ended == FAILED and last.retry_at is not None:
        return NextAttempt(replace(fresh, failures=last.failures, recoveries=last.recoveries), crashed=False, is_first=False)
    return NextAttempt(fresh, crashed=False, is_first=False)


def require_name(name: str) -> None:
    """Raises `UsageError` for what cannot be the name of a phase: labels could not tell it apart."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or phase_labels.split(name)[1] in phase_labels.STATUSES
        or name in phase_labels.NOT_PHASES
    ):
        raise UsageError(f"{name!r} cannot be the name of a phase", hint="choose another name, that does not end in a status")


def meant(text: str, names: Sequence[str], run: str) -> str:
    """Returns the phase that a person means.

    Args:
        text: its name, in any case, and with hyphens or underscores for spaces.
        names: of the phases that there are.
        run: whose they are, for the error.

    Raises:
        UsageError: there is none; those there are, and the closest, are named.
    """
    known = {folded(name): name for name in reversed(names)}
    if text in names or folded(text) in known:
        return text if text in names else known[folded(text)]
    close = closest(folded(text), known)
    hint = f"its phases: {', '.join(names)}" if names else "it has none yet; leave out --from"
    raise UsageError(f"run {run} has no phase {text!r}", hint=f"did you mean {known[close]}? I{hint[1:]}" if close else hint)


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns a digest for each of the values that a phase is called with.

    Args:
        values: JSON values by name.

    Raises:
        StateError: one is no JSON value.
    """
    return {name: hashlib.sha256(to_json(value, f"/{name}").encode()).hexdigest()[:16] for name, value in values.items()}


def to_json(value: Any, path: str = "") -> str:
    """Returns a value as JSON from which it comes back equal.

    Args:
        value: the value.
        path: JSON pointer to it, for the error.

    Raises:
        StateError: it is no JSON value: it would come back as another one.
    """
    try:
        _require_json(value, path)
    except RecursionError:
        raise StateError(path, "nested too deeply") from None
    try:
        return json.dumps(value, sort_keys=path != "")
    except ValueError as error:
        raise StateError(path, f"an integer is too long to be read again: {error}", hint="return it as a string") from None


def _require_json(value: Any, path: str) -> None:
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str:
                raise StateError(f"{path}/{key}", f"a key must be a string, not {key!r:.60}")
            _require_json(inner, f"{path}/{key}")
    elif type(value) is list:
        for number, inner in enumerate(value):
            _require_json(inner, f"{path}/{number}")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise StateError(path, f"{type(value).__name__} is no JSON value, and would not come back as it is: {value!r:.60}")


def differing(old: Mapping[str, str], new: Mapping[str, str], kind: str) -> list[str]:
    """Returns what differs between two maps of digests or values, in words, by name.

    Args:
        old: what was recorded.
        new: what is there now.
        kind: what the names are names of, such as "input".
    """
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            found.append(f"{kind} {name!r} is gone")
        elif name not in old:
            found.append(f"{kind} {name!r} is new")
        elif old[name] != new[name]:
            found.append(f"{kind} {name!r} has changed")
    return found
