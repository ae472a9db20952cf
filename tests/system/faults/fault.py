"""What a kind of fault is to those who let it strike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.system.faults.operation import Ended, Operation, Place

MakePlace = Callable[[], Place]
"""Makes a fresh place where the operation begins."""


def nowhere_barred() -> str | None:
    """Says of a fault that it can strike anywhere."""
    return None


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: by which it is asked for.
        instants: names all at which it may strike an operation, after as many undisturbed ones as that takes.
        strike: does an operation, with the fault at one of these.
        quick: how many tries a run of minutes makes.
        long: how many one of an hour makes.
        obstacle: why it cannot strike here; None where it can.
        drawn: names an instant by a number between 0 and 1, where there are more than can be named.
    """

    name: str
    instants: Callable[[Operation, MakePlace], list[str]]
    strike: Callable[[Place, Operation, str], Ended]
    quick: int
    long: int
    obstacle: Callable[[], str | None] = nowhere_barred
    drawn: Callable[[float], str] | None = None
