"""Which issues are closed: asked of beads, or of any command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from gitckpt.durable.command.execution import EXIT, Ending, last_line
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CLOSED = ("closed", "done", "complete", "tombstone")
"""The statuses of an issue that is closed; the first one is that of beads, the others are of older versions and of people's own."""

Call = Callable[[str], Ending]
"""Runs a shell command and returns how it ended; its output is whole, unless it is very long."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the issues are.

    Attributes:
        closed: the ids of those that are closed.
        open: of the others, the unknown ones with them.
        problem: why not more is known, in a sentence; "" where nothing is missing.
    """

    closed: tuple[str, ...]
    open: tuple[str, ...]
    problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be done."""
        return not self.open and not self.problem


def beads(issues: Sequence[str], read: Callable[[Sequence[str]], tuple[Ending, bytes]]) -> Standing:
    """Asks beads (`bd show ID… --json`).

    Its text form says nothing since version 0.47; so only JSON counts: an array of issues, or with older versions a single one. An issue
    that is not found is mentioned on standard error only, so each that was asked for must be there.

    Args:
        issues: ids.
        read: asks for issues by their ids, and returns how the command ended, and its standard output.
    """
    outcome, said = read(issues)
    if outcome.ended_by != EXIT:
        return Standing((), tuple(issues), "bd was ended: it took too long")
    found = statuses(said)
    closed = tuple(issue for issue in issues if found.get(issue, "") in CLOSED)
    still = tuple(issue for issue in issues if issue not in closed)
    unknown = [issue for issue in issues if issue not in found]
    if not unknown and not outcome.code:
        return Standing(closed, still)
    what = f"bd does not tell of {', '.join(unknown)}" if unknown else f"bd failed: exit code {outcome.code}"
    return Standing(closed, still, what + (last_line(outcome.tail) if outcome.code else ""))


def statuses(said: bytes) -> Mapping[str, str]:
    """Returns the status of each issue that beads told of, in lower case.

    Args:
        said: what `bd show … --json` printed.
    """
    try:
        document = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    issues: list[Any] = document if isinstance(document, list) else [document]
    return {
        issue["id"]: issue["status"].strip().lower()
        for issue in issues
        if isinstance(issue, dict) and isinstance(issue.get("id"), str) and isinstance(issue.get("status"), str)
    }


def command(line: str, call: Call) -> Standing:
    """Asks a command: exit code 0 says that all is done.

    Args:
        line: what the shell runs.
        call: runs it.
    """
    outcome = call(line)
    if outcome.ended_by == EXIT and outcome.code == 0:
        return Standing((), ())
    how = f"exit code {outcome.code}" if outcome.ended_by == EXIT else "it took too long"
    return Standing((), (), f"{line}: {how}{last_line(outcome.tail)}")
