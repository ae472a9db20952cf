"""Drive a run for `run`, `resume`, `loop` and `review`, and print how it ended."""

from __future__ import annotations

import signal

from gitckpt.cli import terminal
from gitckpt.cli.audience import Terminal
from gitckpt.durable.driver.pipelines import COMPLETE, DEFERRED
from gitckpt.durable.run.attempts import PhaseFailed
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from gitckpt.durable.driver.pipelines import Outcome


def inputs(words: Sequence[str]) -> dict[str, str]:
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            hint = 'write it as: -i question="what is it?"'
            raise UsageError(f"{word!r} is not NAME=VALUE", hint=hint)
        values[name] = value
    return values


def drive(go: Callable[[Terminal], Outcome]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    person = Terminal()
    try:
        outcome = go(person)
    except KeyboardInterrupt:
        if person.run is not None:
            person.remark(f"interrupted; to go on: git ckpt resume {person.run}")
        raise
    if outcome.was_complete:
        terminal.out(outcome.run)
    if outcome.status != COMPLETE:
        is_deferred = outcome.status == DEFERRED
        later = f"at {outcome.after}, which asks to be tried again later"
        where = later if is_deferred else f"after {outcome.after}"
        person.remark(f"paused {where}. To go on: git ckpt resume {outcome.run}")
        return PhaseFailed.exit_code if is_deferred else 0
    person.remark(f"run {outcome.run} is complete{' already' if outcome.was_complete else ''}")
    if outcome.removed:
        person.remark("its worktree is removed: all of it was pushed")
    elif outcome.stays:
        person.remark(f"its worktree stays: {outcome.stays}")
    elif outcome.path is not None:
        person.remark(f"its worktree: {outcome.path}")
    return 0


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(f"signal {number}")
