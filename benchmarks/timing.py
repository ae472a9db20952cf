"""Times two things in turn, A B A B …, so that a machine whose speed drifts is fair to both."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Pair:
    """What was measured, in seconds.

    Attributes:
        ours: of each run.
        theirs: of each run of the baseline.
    """

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratio(self) -> float:
        """The median of the ratios of neighbouring runs."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def excess(self) -> float:
        """The median of the differences of neighbouring runs, in seconds."""
        return statistics.median(a - b for a, b in zip(self.ours, self.theirs, strict=True))


def alternate(
    ours: Action,
    theirs: Action,
    *,
    runs: int,
    before: Action | None = None,
    before_ours: Action | None = None,
    warm_up: int = 2,
) -> Pair:
    """Times two actions in turn.

    Args:
        ours: what is measured.
        theirs: the baseline.
        runs: how often each counts.
        before: done before each run of either, untimed.
        before_ours: done before each run of the first, untimed.
        warm_up: runs of each that do not count.
    """
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(warm_up + runs):
        for action, times in zip((ours, theirs), found, strict=True):
            for prepare in (before, before_ours if action is ours else None):
                if prepare is not None:
                    prepare()
            start = time.perf_counter()
            action()
            if number >= warm_up:
                times.append(time.perf_counter() - start)
    return Pair(*found)


def process(argv: Sequence[str], cwd: str, output: str = os.devnull) -> Action:
    """Returns an action that runs a program to its end.

    Args:
        argv: program and arguments.
        cwd: its directory.
        output: the file that its standard output goes to.
    """

    def run() -> None:
        with open(output, "wb") as file:
            subprocess.run(argv, cwd=cwd, stdout=file, check=True)

    return run
