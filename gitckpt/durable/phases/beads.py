"""Create and find issues of beads (`bd`).

The first word of a title, up to the colon, identifies an issue among those with a label. So an
issue that was created just before a kill, and is not recorded, is not created twice.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from gitckpt.durable.command.execution import EXIT, CommandResult, last_line
from gitckpt.durable.phases import options

BD = "bd"
_LONGEST_TITLE = 72

# Runs a shell command; returns how it ended and its standard output.
AskBeads = Callable[[str], tuple[CommandResult, bytes]]


class TrackerFailed(Exception):
    """An error of the tracker; `hangs` means that it timed out, so do not wait again."""

    def __init__(self, problem: str, *, hangs: bool = False) -> None:
        super().__init__(problem)
        self.hangs = hangs


class Beads:
    """The child issues of an issue that have a label. Methods raise `TrackerFailed`."""

    def __init__(self, parent: str, label: str, call: AskBeads) -> None:
        self._parent, self._label, self._call = parent, label, call

    def existing(self) -> Mapping[str, str]:
        """Return the ids of existing issues by the first word of their title."""
        answer = self._ask(f"list --label {shlex.quote(self._label)}")
        issues: list[Any] = answer if isinstance(answer, list) else []
        existing = {}
        for issue in filter(lambda issue: isinstance(issue, dict), issues):
            title, bead = issue.get("title"), issue.get("id")
            if isinstance(title, str) and isinstance(bead, str) and options.is_issue(bead):
                existing[title.partition(":")[0]] = bead
        return existing

    def create(self, key: str, title: str, description: str) -> str:
        """Create an issue and return its id. `word` identifies the issue; it has no colon."""
        line = " ".join(title.replace("\0", " ").split())
        short = line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"
        arguments = [f"{key}: {short}", "--parent", self._parent, "--type", "task"]
        arguments += ["--labels", self._label]
        arguments.append("--description=" + description.replace("\0", " "))
        answer = self._ask(f"create {' '.join(map(shlex.quote, arguments))}")
        issue = answer[0] if isinstance(answer, list) and answer else answer
        bead = issue.get("id") if isinstance(issue, dict) else None
        if not isinstance(bead, str) or not options.is_issue(bead):
            raise TrackerFailed(f"bd does not report the id of the issue for {key}")
        return bead

    def _ask(self, words: str) -> Any:
        outcome, output = self._call(f"{BD} {words} --json")
        command = words.partition(" ")[0]
        if outcome.ended_by != EXIT:
            raise TrackerFailed(f"bd {command} timed out", hangs=True)
        if outcome.code:
            raise TrackerFailed(f"bd {command}: exit code {outcome.code}{last_line(outcome.tail)}")
        try:
            return json.loads(output) if output.strip() else None
        except (ValueError, RecursionError):
            raise TrackerFailed(f"bd {command} prints no JSON") from None
