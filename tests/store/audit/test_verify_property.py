"""`verify` accepts whatever gitckpt does, and repairs lost derived data."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gitckpt import CheckpointInfo, Policy, Store
from tests.conftest import Checkout
from tests.store.audit.verifying import age, look, told
from tests.store.conftest import MakeStore
from tests.stores import OWN_REFS

STEPS = 25
PHASES = ("a", "b")


class Walk:
    """Random operations on a repository.

    Attributes:
        runs: the unfinished runs, each with the name of its started phase, or "".
    """

    def __init__(self, checkout: Checkout, store: Store, dice: random.Random) -> None:
        self.checkout = checkout
        self.store = store
        self.dice = dice
        self.runs: dict[str, str] = {}

    def step(self) -> None:
        self.dice.choice(
            [
                self.record,
                self.save,
                self.start,
                self.proceed,
                self.proceed,
                self.proceed,
                self.commit,
                self.remove,
                self.expire,
            ]
        )()

    def record(self) -> None:
        self.store.record(
            "plan-complete",
            {"n": self.dice.random()},
            trigger=self.dice.choice(["manual", "post-commit"]),
        )

    def save(self) -> None:
        self.checkout.write(
            self.dice.choice(["new", "deep/er", "README"]), f"{self.dice.random()}\n"
        )
        self.store.save("work-partial")

    def start(self) -> None:
        self.runs[str(self.store.record("run-started", {}, start="work").run)] = ""

    def proceed(self) -> None:
        """Continue a run: start a phase, make progress, end it, or end the run."""
        for run in self.dice.sample(sorted(self.runs), min(1, len(self.runs))):
            if not self.runs[run] and self.dice.random() < 0.2:
                self.store.record("run-complete", run=run)
                del self.runs[run]
                return
            name = self.runs[run] or self.dice.choice(PHASES)
            status = (
                self.dice.choice(["progress", "progress", "failed", "complete"])
                if self.runs[run]
                else "started"
            )
            self.store.record(f"{name}-{status}", run=run)
            self.runs[run] = "" if status in ("failed", "complete") else name

    def commit(self) -> None:
        self.checkout.git("add", "--all")
        self.checkout.git(
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "x",
            *(["--amend"] if self.dice.random() < 0.5 else []),
        )

    def remove(self) -> None:
        """Remove a single checkpoint, a whole run, or parts of a run at random."""
        entries = self.store.list()
        alone = [[entry.id] for entry in entries if entry.run is None]
        chains = [
            [entry for entry in entries if entry.run == run]
            for run in {entry.run for entry in entries if entry.run}
        ]
        squashed = [
            [entry.id for entry in chain if self._may_be_squashed(entry.label, chain)]
            for chain in chains
        ]
        chosen = self.dice.choice(
            [*alone, *([entry.id for entry in chain] for chain in chains), *squashed, []]
        )
        self.store.remove(chosen)
        left = {entry.run for entry in self.store.list()}
        self.runs = {run: name for run, name in self.runs.items() if run in left}

    @staticmethod
    def _may_be_squashed(label: str, chain: list[CheckpointInfo]) -> bool:
        name, _, status = label.rpartition("-")
        done = {entry.label for entry in chain[:1]}
        return status == "progress" and f"{name}-complete" in done

    def expire(self) -> None:
        self.store.expire(
            replace(
                Policy(), older_than=0, rewritten_older_than=0, keep_last=self.dice.randrange(5)
            )
        )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_what_gitckpt_does_is_clean_and_what_is_lost_of_it_is_mended(
    checkout: Checkout, make_store: MakeStore, seed: int
) -> None:
    dice = random.Random(seed)
    checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
    for _ in range(3):
        with make_store(checkout) as store:
            walk = Walk(checkout, store, dice)
            for _ in range(STEPS):
                walk.step()
        assert told(look(checkout)) == []
    before = checkout.refs(*OWN_REFS)
    derived = [ref for ref in before if not ref.startswith("refs/checkpoints/")]
    for ref in dice.sample(derived, min(len(derived), 5)):
        checkout.git("update-ref", "-d", ref)
    for ref in dice.sample(derived, min(len(derived), 5)):
        checkout.git("update-ref", ref, "HEAD^{tree}")
        age(checkout, ref)
    if dice.random() < 0.5:
        checkout.git("update-ref", "-d", "refs/notes/checkpoints")
    report = look(checkout, repair=True)
    assert report.findings
    assert report.is_clean
    assert told(look(checkout)) == []
    assert checkout.refs(*OWN_REFS) == before
