"""Step graphs: the steps of a protocol and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model.arguments import closest_word, normalize_name
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

COMPLETE = "COMPLETE"  # follows the last step: a run at COMPLETE is done
MAX_FIX_CYCLES = 3
MAX_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class StepDefinition:
    name: str
    on_pass: str = COMPLETE  # the next step after a pass
    on_fail: str | None = None  # the next step after a failure; None: start this step again
    agent: str | None = None  # recorded if no report of the step names an agent
    optional: bool = False  # may be done before the step in `on_pass`, and may be skipped
    only_if: str | None = None  # skip this step unless the previous step set this key to true
    has_tasks: bool = False  # works through the tasks of a plan
    counts_cycles: bool = False  # each failure of the step counts as a fix cycle
    # Record key of a counter: +1 each time that a failure leads back to this step.
    version_key: str | None = None


END = StepDefinition(COMPLETE)


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps that a run goes through, and the transitions between them."""

    name: str
    steps: tuple[StepDefinition, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_fix_cycles: int = MAX_FIX_CYCLES
    max_iterations: int = MAX_ITERATIONS
    description: str = ""
    # Path of the file in the worktree to which each report writes the state; contains `{track}`.
    mirror: str | None = None

    @property
    def first(self) -> StepDefinition:
        return next(step for step in self.steps if not step.optional)

    def find(self, text: object) -> StepDefinition | None:
        """Return the step whose name or alias is `text`, or None; ignore case and hyphens."""
        if not isinstance(text, str):
            return None
        steps = {normalize_name(step.name): step for step in (*self.steps, END)}
        alias_targets = {normalize_name(alias): target for alias, target in self.aliases.items()}
        return steps.get(normalize_name(alias_targets.get(normalize_name(text), text)))

    def step(self, text: str) -> StepDefinition:
        """Return the step whose name or alias is `text`. Raises UsageError if not found."""
        step = self.find(text)
        if step is not None:
            return step
        step_names = [step.name for step in self.steps]
        names_by_key = {normalize_name(name): name for name in (*step_names, *self.aliases)}
        close_key = closest_word(normalize_name(text), names_by_key)
        hint = f"the steps: {', '.join(step_names)}"
        if close_key:
            hint = f"did you mean {names_by_key[close_key]}? The steps: {', '.join(step_names)}"
        raise UsageError(f"{self.name} has no step {text!r}", hint=hint)

    def after(self, step: StepDefinition, records: Mapping[str, object]) -> StepDefinition:
        """Return the next step after `step` passed; skip conditional steps not required."""
        step_record = records.get(step.name)
        next_step = self._find_step_by_name(step.on_pass)
        while next_step.only_if is not None:
            is_required = _is_true(records.get(next_step.name), "required")
            if is_required or _is_true(step_record, next_step.only_if):
                break
            next_step = self._find_step_by_name(next_step.on_pass)
        return next_step

    def _find_step_by_name(self, name: str) -> StepDefinition:
        return next((step for step in self.steps if step.name == name), END)


def _is_true(record: object, key: str) -> bool:
    return isinstance(record, Mapping) and record.get(key) is True
