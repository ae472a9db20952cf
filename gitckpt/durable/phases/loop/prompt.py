"""Build the prompt of the autonomous loop, and find the documents that it needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from string import Template
from typing import Any

from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import PhaseFailed
from gitckpt.git.files import private_dirs
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store.runs import run_files

# The placeholders that a template may contain after a `$`.
NAMES = ("plan", "epic", "issues", "tests", "tracking", "failure")

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
    plan: str
    epic: str  # the parent issue; "": none
    issues: Sequence[str]  # one for each phase of the plan, in order
    tests: str  # the test command


def default() -> str:
    with open(_TEMPLATE, encoding="utf-8") as file:
        return file.read()


def build(
    template: str, task: Assignment, failure: str, revision: str = "", resumed: str = ""
) -> str:
    """Fill in a template, and return the prompt.

    `$$` is a dollar sign. Without `$failure` in the template, its text is appended. `failure` is
    the output of failed tests, `revision` the user's wish, `resumed` a note about an earlier
    attempt.
    """
    failed = ""
    if failure:
        failed = "\n## The tests failed\n\nMake them pass. This is their last output:\n\n"
        failed += f"```\n{failure.strip()}\n```\n"
    if revision:
        failed = f"\n## To be revised\n\n{revision.strip()}\n{failed}"
    if resumed:
        failed = f"\n## Resumed\n\n{resumed}\n{failed}"
    lines = "".join(f"- Phase {number}: `{issue}`\n" for number, issue in enumerate(task.issues, 1))
    values = {"plan": task.plan, "failure": failed}
    values["epic"] = f"\n**Epic**: `{task.epic}`\n" if task.epic else ""
    values["issues"] = f"\n**Phase Issues**:\n{lines}" if lines else ""
    values["tests"] = f"`{task.tests}`" if task.tests else "`pytest` or `make test`"
    values["tracking"] = _TRACKING if task.issues or task.epic else ""
    require_usable(template)
    pattern = Template(template)
    text = pattern.substitute(values)
    return (text if "failure" in pattern.get_identifiers() else text + failed).rstrip() + "\n"


def require_usable(template: str) -> None:
    """Raise `PhaseFailed` if a template has an unknown or empty placeholder."""
    pattern = Template(template)
    unknown = [name for name in pattern.get_identifiers() if name not in NAMES]
    if pattern.is_valid() and not unknown:
        return
    problem = f"${unknown[0]} is unknown" if unknown else "it has a single $"
    known = ", ".join(f"${name}" for name in NAMES)
    hint = f"use {known}; write $$ for $"
    raise PhaseFailed(f"cannot use the template of the prompt: {problem}", hint=hint)


# The documents of a loop: the plan and the template.


class Documents:
    """Finds plan and template in the worktree or among the input files of the run."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Candidate paths of the plan; the first that exists counts.
        self.plans = [line.strip() for line in context.option("plan").splitlines() if line.strip()]

    def plan(self, memory: dict[str, Any]) -> str:
        """Return the path of the plan, copied to the worktree for the agent to update."""
        run = self._context.run
        for path in self.plans:
            place = os.path.join(run.path, path)
            names = self._context.names_of(path)
            copies = [(name, self._context.copy_of(name)) for name in names]
            name, copy = next((pair for pair in copies if os.path.isfile(pair[1])), ("", ""))
            # The plan may be uncommitted or changed since; accepting another one replaces it.
            # `memory` has the digest of the plan that was copied.
            digest = run.pipeline.contents[name] if name else memory["plan"]
            if digest != memory["plan"] and not os.path.isabs(path):
                self._put(copy, place)
                memory["plan"] = digest
            if os.path.isfile(place):
                return path
            if copy:
                return copy
        hint = "create it, and commit it where the run begins"
        raise PhaseFailed(f"Plan not found: {', '.join(self.plans)}", hint=hint)

    def template(self) -> str:
        """Return the template: an input, a file of the worktree, or the built-in one."""
        path = self._context.option("prompt")
        if not path:
            return default()
        data = self._context.content(path, "the template of the prompt")
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def _put(self, copy: str, path: str) -> None:
        with open(copy, "rb") as file:
            data = file.read()
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read() == data:
                    return
        run_files.make_directory(os.path.dirname(path))
        try:
            with private_dirs.hold_open(os.path.dirname(path)):
                administration.write_file(self._context.run.store.repository, path, data)
        except OSError as error:
            raise WorktreeError(f"cannot write {path}: {error.strerror}") from None
