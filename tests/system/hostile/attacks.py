"""What somebody hostile may put into a repository whose refs are fetched or whose branch is checked out: an attack is a function, by name.

An attack changes a repository that has good checkpoints, and a run, as `Victim` says. Whoever adds one decorates it with `attack`: all that
is tried with every attack takes it from `ATTACKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.conftest import Checkout

BAD = "00000000-0000-4000-8000-000000000001"
"""The id of the checkpoint that an attack makes, where it makes one."""

EVIL = "20261121-201500-evil"
"""The run that an attack makes."""


@dataclass(frozen=True)
class Victim:
    """A repository that is attacked.

    Attributes:
        at: its worktree.
        checkpoint: id of a good checkpoint outside of runs.
        run: a good run.
        of_run: id of the newest checkpoint of that run.
        key: full name of the ref of the key of that run.
    """

    at: Checkout
    checkpoint: str
    run: str
    of_run: str
    key: str

    def blob(self, ref: str, content: str | bytes) -> str:
        """Points a ref to a blob; returns its oid."""
        return self.object(ref, "blob", content)

    def object(self, ref: str, kind: str, content: str | bytes) -> str:
        """Points a ref to an object that git need not find valid; returns its oid."""
        oid = self.at.git("hash-object", "-w", "--literally", "-t", kind, "--stdin", data=content)
        self.at.git("update-ref", ref, oid)
        return oid


Attack = Callable[[Victim], None]

ATTACKS: dict[str, Attack] = {}


def attack(do: Attack) -> Attack:
    """Adds an attack, under its own name."""
    ATTACKS[do.__name__] = do
    return do
