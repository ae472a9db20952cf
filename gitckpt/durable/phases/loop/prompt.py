"""What the agent of the autonomous loop is asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from string import Template

from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.model.values import dataclass

NAMES = ("plan", "epic", "issues", "tests", "tracking", "failure")
"""What a template may name after a `$`."""

_TEMPLATE = os.path.join(os.path.dirname(__file__), "prompt.md")

_TRACKING = """
## Beads tracking

```
bd ready                              # issues that nothing blocks
bd show <id>                          # one issue
bd update <id> --status=in_progress   # begin with it
bd close <id>                         # it is done
bd sync                               # bring the issues into git
```
"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is to be done.

    Attributes:
        plan: path of the plan.
        epic: id of the issue that holds the others; "" for none.
        issues: ids of the issues, one for each phase of the plan, in order.
        tests: the command that tests.
    """

    plan: str
    epic: str
    issues: Sequence[str]
    tests: str


def default() -> str:
    """Returns the template that is used where none is given."""
    with open(_TEMPLATE, encoding="utf-8") as file:
        return file.read()


def build(template: str, task: Assignment, failure: str, revision: str = "", resumed: str = "") -> str:
    """Returns a prompt.

    Args:
        template: text in which `$plan`, `$epic`, `$issues`, `$tests`, `$tracking` and `$failure` are replaced; `$$` is a dollar sign. Where
            `$failure` is missing, what it stands for is added at the end.
        task: what is to be done.
        failure: what the last test run said, if it failed; "" else.
        revision: what a person wants to be revised; "" for nothing.
        resumed: what is to be known of an earlier attempt; "" for nothing.

    Raises:
        PhaseFailed: the template has another name after a `$`.
    """
    failed = f"\n## The tests failed\n\nMake them pass. This is what they said last:\n\n```\n{failure.strip()}\n```\n" if failure else ""
    if revision:
        failed = f"\n## To be revised\n\n{revision.strip()}\n{failed}"
    if resumed:
        failed = f"\n## Resumed\n\n{resumed}\n{failed}"
    values = {
        "plan": task.plan,
        "epic": f"\n**Epic**: `{task.epic}`\n" if task.epic else "",
        "issues": _issues(task.issues),
        "tests": f"`{task.tests}`" if task.tests else "`pytest` or `make test`",
        "tracking": _TRACKING if task.issues or task.epic else "",
        "failure": failed,
    }
    require_usable(template)
    pattern = Template(template)
    text = pattern.substitute(values)
    return (text if "failure" in pattern.get_identifiers() else text + failed).rstrip() + "\n"


def require_usable(template: str) -> None:
    """Looks whether a template can be filled in.

    Raises:
        PhaseFailed: it has another name after a `$`, or none.
    """
    pattern = Template(template)
    unknown = [name for name in pattern.get_identifiers() if name not in NAMES]
    if pattern.is_valid() and not unknown:
        return
    what = f"there is no ${unknown[0]}" if unknown else "a $ in it stands alone"
    known = ", ".join(f"${name}" for name in NAMES)
    raise PhaseFailed(f"the template of the prompt cannot be used: {what}", hint=f"it may name {known}; write $$ for $")


def _issues(issues: Sequence[str]) -> str:
    lines = "".join(f"- Phase {number}: `{issue}`\n" for number, issue in enumerate(issues, 1))
    return f"\n**Phase Issues**:\n{lines}" if lines else ""
