"""The steps of a protocol and their order. Pure values."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model.arguments import closest, folded
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

COMPLETE = "COMPLETE"  # the target of the last step: a run at it is done
MAX_FIX_CYCLES = 3
MAX_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class StepDefinition:
    name: str
    on_pass: str = COMPLETE  # the next step after a pass
    on_fail: str | None = None  # the next step after a failure; None: start this step again
    agent: str | None = None  # the agent of a record whose reports name none
    optional: bool = False  # may be done before the step in `on_pass`, and may be skipped
    only_if: str | None = None  # skip this step unless the previous step set this key to true
    has_tasks: bool = False  # works through the tasks of a plan
    counts_cycles: bool = False  # failures count as fix cycles
    # Record key that counts the attempts: +1 each time a failure leads back here.
    version_key: str | None = None


END = StepDefinition(COMPLETE)


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps and the transitions between them."""

    name: str
    steps: tuple[StepDefinition, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_fix_cycles: int = MAX_FIX_CYCLES
    max_iterations: int = MAX_ITERATIONS
    description: str = ""
    # File of the worktree that gets the state after each report; contains `{track}`.
    mirror: str | None = None

    @property
    def first(self) -> StepDefinition:
        return next(step for step in self.steps if not step.optional)

    def find(self, text: object) -> StepDefinition | None:
        """Return a step by name or alias, whatever its case, hyphens and spaces; or None."""
        if not isinstance(text, str):
            return None
        names = {folded(step.name): step for step in (*self.steps, END)}
        target = {folded(alias): target for alias, target in self.aliases.items()}.get(folded(text), text)
        return names.get(folded(target))

    def step(self, text: str) -> StepDefinition:
        """Return a step as `find` does, or raise UsageError."""
        found = self.find(text)
        if found is not None:
            return found
        names = {folded(name): name for name in (*(step.name for step in self.steps), *self.aliases)}
        close = closest(folded(text), names)
        known = ", ".join(step.name for step in self.steps)
        hint = f"did you mean {names[close]}? The steps: {known}" if close else f"the steps: {known}"
        raise UsageError(f"{self.name} has no step {text!r}", hint=hint)

    def after(self, step: StepDefinition, records: Mapping[str, object]) -> StepDefinition:
        """Return the step after one that passed or was skipped; `records` by step name."""
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
