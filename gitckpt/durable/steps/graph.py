"""What the steps of a protocol are, and which of them follows which. Pure values."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model.arguments import closest, folded
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

COMPLETE = "COMPLETE"
"""Where the steps end: a run that is there has nothing left to do."""

MAX_FIX_CYCLES = 3
MAX_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step."""

    name: str
    on_pass: str = COMPLETE
    """The step that follows when it has passed, or `COMPLETE`."""

    on_fail: str | None = None
    """The step that follows when it has failed; None where it is to be started again itself."""

    agent: str | None = None
    """Who does it, where nobody says otherwise."""

    optional: bool = False
    """Whether it may be done before the step that it leads to, and need not be."""

    only_if: str | None = None
    """A key that the step before it must have set to true; it is passed over otherwise."""

    has_tasks: bool = False
    """Whether it goes through the tasks of a plan."""

    counts_cycles: bool = False
    """Whether its failures count as fix cycles."""

    version_key: str | None = None
    """The key of its record that counts how often it was done: one more each time a failure leads back to it."""


END = StepDefinition(COMPLETE)


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps, and the ways between them."""

    name: str
    steps: tuple[StepDefinition, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_fix_cycles: int = MAX_FIX_CYCLES
    max_iterations: int = MAX_ITERATIONS
    description: str = ""
    mirror: str | None = None
    """The file of the worktree that the state of a track is written to with each report, with `{track}` in its path; None for no file."""

    @property
    def first(self) -> StepDefinition:
        """The step that a run begins with."""
        return next(step for step in self.steps if not step.optional)

    def find(self, text: object) -> StepDefinition | None:
        """Returns the step of a name or alias, in any case and with hyphens or spaces for underscores; None where there is none."""
        if not isinstance(text, str):
            return None
        names = {folded(step.name): step for step in (*self.steps, END)}
        target = {folded(alias): target for alias, target in self.aliases.items()}.get(folded(text), text)
        return names.get(folded(target))

    def step(self, text: str) -> StepDefinition:
        """Returns the step that a person means; takes what `find` does.

        Raises:
            UsageError: there is none; those there are, and the closest, are named.
        """
        found = self.find(text)
        if found is not None:
            return found
        names = {folded(name): name for name in (*(step.name for step in self.steps), *self.aliases)}
        close = closest(folded(text), names)
        known = ", ".join(step.name for step in self.steps)
        hint = f"did you mean {names[close]}? The steps: {known}" if close else f"the steps: {known}"
        raise UsageError(f"{self.name} has no step {text!r}", hint=hint)

    def after(self, step: StepDefinition, records: Mapping[str, object]) -> StepDefinition:
        """Returns what follows a step that has passed, or was skipped.

        Args:
            step: the step.
            records: what is known of each step, by name.
        """
        here = records.get(step.name)
        following = self._named(step.on_pass)
        while following.only_if is not None:
            own = records.get(following.name)
            if _is_true(here, following.only_if) or _is_true(own, "required"):
                break
            following = self._named(following.on_pass)
        return following

    def _named(self, name: str) -> StepDefinition:
        return next((step for step in self.steps if step.name == name), END)


def _is_true(record: object, key: str) -> bool:
    return isinstance(record, Mapping) and record.get(key) is True
