"""A row of the table, and what every case needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.stores import Scratch
from benchmarks.timing import Pair


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: is measured.
        against: what it is compared with.
        found: the ratio, or the excess in milliseconds.
        limit: the most it may be; None where it is told for information.
        unit: "x" or "ms".
        pair: the times themselves.
    """

    what: str
    against: str
    found: float
    limit: float | None
    unit: str
    pair: Pair | None

    @property
    def reached(self) -> bool:
        """Whether it is within its limit."""
        return self.limit is None or self.found <= self.limit


Case = Callable[[Scratch, int], Iterator[Row]]
"""Yield rows, given a scratch directory and the number of checkpoints of a store."""

_SCRIPT = os.path.join(os.path.dirname(sys.executable), "git-ckpt")
CKPT = [_SCRIPT] if os.path.exists(_SCRIPT) else [sys.executable, "-m", "gitckpt"]
"""What `git ckpt` starts, where it is installed beside this Python."""
