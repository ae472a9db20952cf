"""The documents that a loop works with: the plan, and the template of the prompt."""

from __future__ import annotations

import os

from gitckpt.durable.phases.loop import prompt
from gitckpt.durable.pipeline.context import Context
from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.git.files import premises, regular
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError
from gitckpt.store.runs import run_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Documents:
    """Finds them, in the worktree or among the files that the run was started with.

    Args:
        context: the attempt.

    Attributes:
        plans: the paths of the plan, of which the first counts that is there.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.plans = [line.strip() for line in context.option("plan").splitlines() if line.strip()]

    def plan(self, memory: dict[str, Any]) -> str:
        """Returns where the plan is: in the worktree, as the agent is to update it.

        One that the run was started with is put there at first, as it need not be committed, or may have been changed since; and again
        where somebody has accepted another one.

        Args:
            memory: of the loop; its `plan` is the digest of the plan that was put there.

        Raises:
            PhaseFailed: it is not there.
            WorktreeError: it cannot be written.
        """
        for path in self.plans:
            there = os.path.join(self._context.run.path, path)
            name = self._given(path)
            if name and not os.path.isabs(path):
                digest = self._context.run.pipeline.contents[name]
                if memory["plan"] != digest:
                    self._put(self._copy(name), there)
                    memory["plan"] = digest
            if os.path.isfile(there):
                return path
            if name:
                return self._copy(name)
        raise PhaseFailed(f"Plan not found: {', '.join(self.plans)}", hint="write it, and commit it where the run begins")

    def template(self) -> str:
        """Returns the template of the prompt: the one that the run was started with, or a file of the worktree, or that of gitckpt.

        Raises:
            PhaseFailed: it is not there.
        """
        path = self._context.option("prompt")
        if not path:
            return prompt.default()
        name = self._given(path)
        for place in (self._copy(name) if name else "", os.path.join(self._context.run.path, path)):
            if os.path.isfile(place):
                return self._text(place, path)
        raise PhaseFailed(f"the template of the prompt is not there: {path}", hint="write it, and commit it where the run begins")

    def _text(self, place: str, path: str) -> str:
        top = self._context.run.path
        is_in_worktree = place == os.path.join(top, path) and not os.path.isabs(path)
        try:
            data = regular.content_below(top, place) if is_in_worktree else regular.content(place)
        except OSError as error:
            message = f"the template of the prompt cannot be read: {path}: {error.strerror}"
            raise PhaseFailed(message, hint="make it a file of the worktree") from None
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def _given(self, path: str) -> str:
        """Returns the input whose file a path is and which the run has a copy of; "" where there is none."""
        pipeline = self._context.run.pipeline
        names = [name for name in self._context.definition.files if name in pipeline.contents and pipeline.inputs.get(name) == path]
        return next((name for name in names if os.path.isfile(self._copy(name))), "")

    def _copy(self, name: str) -> str:
        return os.path.join(self._context.run.files.path, run_files.INPUT, name)

    def _put(self, copy: str, there: str) -> None:
        """Lets the plan of the worktree be that of the run."""
        with open(copy, "rb") as file:
            data = file.read()
        if os.path.isfile(there):
            with open(there, "rb") as file:
                if file.read() == data:
                    return
        run_files.make_directory(os.path.dirname(there))
        try:
            with premises.holding(os.path.dirname(there)):
                administration.write_file(self._context.run.store.repository, there, data)
        except OSError as error:
            raise WorktreeError(f"cannot write {there}: {error.strerror}") from None
