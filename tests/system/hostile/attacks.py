"""Register the attacks that an attacker can put into fetched refs or a branch.

An attack is a function that changes a repository with good checkpoints and a run (`Victim`). The
decorator `attack` adds it to `ATTACKS`, from which all tests take their attacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.conftest import Checkout

BAD = "00000000-0000-4000-8000-000000000001"
"""The id of the checkpoint of an attack."""

EVIL = "20261121-201500-evil"
"""The name of the run of an attack."""


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
        """Point a ref to a new blob; return its oid."""
        return self.object(ref, "blob", content)

    def object(self, ref: str, kind: str, content: str | bytes) -> str:
        """Point a ref to a new object, which may be invalid; return its oid."""
        oid = self.at.git("hash-object", "-w", "--literally", "-t", kind, "--stdin", data=content)
        self.at.git("update-ref", ref, oid)
        return oid


Attack = Callable[[Victim], None]

ATTACKS: dict[str, Attack] = {}


def attack(do: Attack) -> Attack:
    """Add an attack, under the name of its function."""
    ATTACKS[do.__name__] = do
    return do
