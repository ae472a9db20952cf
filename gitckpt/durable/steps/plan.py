"""The tasks of a plan in Markdown: `- [ ] Task 2.3: Log in`, and what has become of each. Pure: text in, tasks out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitckpt.durable.steps import statuses
from gitckpt.model.values import dataclass, replace

OPEN, STARTED, DONE, STUCK = " ", "~", "x", "!"
"""The marks in the brackets: pending, in progress, done, blocked."""

_BOX = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d+[.)])[ \t]+\[(?P<mark>.)\][ \t]*(?P<text>.*)")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<text>Task[ \t]+\d.*)", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_OID = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class PlanTask:
    """One task of a plan.

    Attributes:
        id: its number, such as "2.3"; None where it has none.
        title: its text.
        mark: what stands in its brackets.
        line: where, from 1.
        commit: what made it, as the plan says; None where it does not.
    """

    id: str | None
    title: str
    mark: str
    line: int
    commit: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is ticked."""
        return self.mark == DONE

    @property
    def name(self) -> str:
        """Its number, or else its text."""
        return self.id or self.title


def tasks(text: str) -> list[PlanTask]:
    """Returns the tasks of a plan, in its order.

    A task is an item with brackets; one that is indented below another, and has no number, belongs to that. Or it is a heading
    `### Task 2.3: …`, whose items without a number are its steps: it is done when all of them are.
    """
    found: list[PlanTask] = []
    indent, heading, fence = -1, -1, ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if fence:
            continue
        title = _HEADING.match(line)
        box = _BOX.match(line)
        if title is not None:
            found.append(_task(title["text"], "", number))
            indent, heading = -1, len(found) - 1
        elif line.startswith("#"):
            indent, heading = -1, -1
        elif box is not None:
            here = len(box["indent"].expandtabs(4))
            task = _task(box["text"], box["mark"].lower(), number)
            if task.id is None and heading >= 0:
                found[heading] = replace(found[heading], mark=_both(found[heading].mark, task.mark))
            elif task.id is not None or indent < 0 or here <= indent:
                found.append(task)
                indent, heading = here, -1
    return [task for task in found if task.mark]


def first_open(plan: Sequence[PlanTask]) -> PlanTask | None:
    """Returns the first task in the order of the plan that is not done; None where all are."""
    return next((task for task in plan if not task.is_done), None)


def open_after(plan: Sequence[PlanTask], last: str) -> PlanTask | None:
    """Returns the first task behind a task that is not done; None where there is none, or no such task.

    Args:
        plan: its tasks.
        last: the number of the task.
    """
    at = next((i for i, task in enumerate(plan) if task.id == last), len(plan))
    return first_open(plan[at + 1 :])


def _task(text: str, mark: str, line: int) -> PlanTask:
    title, comments = _without_comments(text)
    commit = comments[0] if comments and _OID.fullmatch(comments[0]) else None
    title = title.replace("**", "").replace("`", "").strip()
    return PlanTask(statuses.task_id(title), title, mark, line, commit)


def _without_comments(text: str) -> tuple[str, list[str]]:
    """Return a line without its comments, and these."""
    parts, comments, end = [], [], 0
    while (start := text.find("<!--", end)) >= 0 and (close := text.find("-->", start + 4)) >= 0:
        parts.append(text[end:start])
        comments.append(text[start + 4 : close].strip())
        end = close + 3
    return "".join([*parts, text[end:]]), comments


def _both(before: str, mark: str) -> str:
    """Returns the mark of a task from that of its steps until now, and that of one more."""
    if before in ("", mark):
        return mark
    return STUCK if STUCK in (before, mark) else STARTED
