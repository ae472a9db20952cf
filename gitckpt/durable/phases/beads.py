"""Makes issues of beads (`bd`), and finds those again that were made.

An issue is known again by the first word of its title, up to a colon, among those with a label: one that was made just before a kill, and
is recorded nowhere, need not be made twice.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from gitckpt.durable.command.execution import EXIT, Ending, last_line
from gitckpt.durable.phases import options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BD = "bd"
_LONGEST_TITLE = 72

AskBeads = Callable[[str], tuple[Ending, bytes]]
"""Runs a command of the shell, and returns how it ended, and its standard output."""


class TrackerFailed(Exception):
    """The tracker did not do what it was asked.

    Args:
        problem: in words.
        hangs: whether it did nothing for so long that nobody should wait for it again.
    """

    def __init__(self, problem: str, *, hangs: bool = False) -> None:
        super().__init__(problem)
        self.hangs = hangs


class Beads:
    """The issues below another one that have a label.

    Args:
        parent: the issue that they are children of.
        label: theirs.
        call: runs `bd`.
    """

    def __init__(self, parent: str, label: str, call: AskBeads) -> None:
        self._parent = parent
        self._label = label
        self._call = call

    def there(self) -> Mapping[str, str]:
        """Returns the ids of those that there are, by the word that their title begins with.

        Raises:
            TrackerFailed: it is not known.
        """
        said = self._ask(f"list --label {shlex.quote(self._label)}")
        issues: list[Any] = said if isinstance(said, list) else []
        found = {}
        for issue in issues:
            title, bead = (issue.get(key) if isinstance(issue, dict) else None for key in ("title", "id"))
            if isinstance(title, str) and isinstance(bead, str) and options.is_issue(bead):
                found[title.partition(":")[0]] = bead
        return found

    def create(self, word: str, title: str, description: str) -> str:
        """Makes an issue, and returns its id.

        Args:
            word: what it is known again by, without a colon.
            title: what it is about; white space counts as one space, and the end of a long one is cut off.
            description: more of it.

        Raises:
            TrackerFailed: it was not made, or it is not known which it is.
        """
        line = " ".join(title.replace("\0", " ").split())
        short = line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"
        words = [f"{word}: {short}", "--parent", self._parent, "--type", "task", "--labels", self._label]
        words.append("--description=" + description.replace("\0", " "))
        said = self._ask(f"create {' '.join(map(shlex.quote, words))}")
        issue = said[0] if isinstance(said, list) and said else said
        bead = issue.get("id") if isinstance(issue, dict) else None
        if not isinstance(bead, str) or not options.is_issue(bead):
            raise TrackerFailed(f"bd does not say which issue it has made for {word}")
        return bead

    def _ask(self, words: str) -> Any:
        """Returns what beads prints as JSON. Errors: as `create`."""
        outcome, said = self._call(f"{BD} {words} --json")
        what = words.partition(" ")[0]
        if outcome.ended_by != EXIT:
            raise TrackerFailed(f"bd {what} was ended: it took too long", hangs=True)
        if outcome.code:
            raise TrackerFailed(f"bd {what}: exit code {outcome.code}{last_line(outcome.tail)}")
        try:
            return json.loads(said) if said.strip() else None
        except (ValueError, RecursionError):
            raise TrackerFailed(f"bd {what} prints no JSON") from None
