"""Define the interface of a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.system.faults.operation import Ended, Operation, Place

MakePlace = Callable[[], Place]
"""Copies the repository in which the operation begins."""


def nowhere_barred() -> str | None:
    """Return no obstacle: the fault works on every machine."""
    return None


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: its name on the command line.
        instants: names all instants at which it may strike an operation, from undisturbed runs.
        strike: does an operation, with the fault at one instant.
        quick: the number of tries in a run of minutes.
        long: the number of tries in a run of an hour.
        obstacle: why it cannot strike on this machine; None if it can.
        drawn: names an instant by a number between 0 and 1, if there are too many to list.
    """

    name: str
    instants: Callable[[Operation, MakePlace], list[str]]
    strike: Callable[[Place, Operation, str], Ended]
    quick: int
    long: int
    obstacle: Callable[[], str | None] = nowhere_barred
    drawn: Callable[[float], str] | None = None
