"""Try an operation with a fault at one of its instants, and judge the result."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.system.faults import clocks, collecting, kills, processes, refusals
from tests.system.faults.fault import Fault
from tests.system.faults.judge import LOST, Judge, Known, kinds_of_files, refs_of
from tests.system.faults.operation import Operation, Place
from tests.system.faults.operations import OPERATIONS, Bench
from tests.system.faults.view import View

FAULTS = {
    each.name: each
    for each in (
        kills.KILLS,
        kills.GIT_KILLED,
        refusals.DISK_FULL,
        refusals.IO_ERRORS,
        refusals.DESCRIPTORS,
        refusals.READ_ONLY,
        clocks.CLOCKS,
        collecting.COLLECTING,
    )
}

SPOKEN = frozenset({"ckpt/log", "ckpt/maintenance.lock", "ckpt/damaged"})
"""Kinds of files that a fault may leave: log, maintenance lock, damaged objects."""


@dataclass(frozen=True)
class Verdict:
    """The result of one try, or of several of a kind.

    Attributes:
        label: fault, operation and instant, as `./dev prove` takes them.
        wrong: the violations, a sentence each.
        seconds: how long it took.
        tries: how many there were.
        kept: the path of the repository that the fault left; "" without violations.
    """

    label: str
    wrong: Sequence[str] = ()
    seconds: float = 0.0
    tries: int = 1
    kept: str = ""

    @property
    def lost(self) -> int:
        """The number of sentences about acknowledged checkpoints that were lost."""
        return sum(sentence.startswith(LOST) for sentence in self.wrong)


@dataclass
class Trial:
    """A worker that tries one fault at a time; each process has its own.

    Args:
        directory: for all its files.
        bench: the original repositories of the operations.
        kept: where repositories with violations are put.
    """

    directory: Path
    bench: Bench
    kept: Path
    _known: dict[str, Known] = field(default_factory=dict)
    _count: int = 0

    def make(self, operation: Operation) -> Place:
        """Copy the repository in which an operation begins."""
        self._count += 1
        return self.bench.copy(operation, self.directory / str(self._count))

    def known(self, operation: Operation) -> Known:
        """Return the results of an undisturbed operation, which must have no violations."""
        if operation.name not in self._known:
            noted = (
                self.directory.parent / "known" / operation.name
            )  # shared by all workers, as it takes half a second
            if not noted.exists():
                noted.parent.mkdir(exist_ok=True)
                scratch = noted.with_name(f"{operation.name}.{os.getpid()}")
                scratch.write_bytes(pickle.dumps(self._look(operation)))
                scratch.replace(noted)
            self._known[operation.name] = pickle.loads(noted.read_bytes())
        return self._known[operation.name]

    def _look(self, operation: Operation) -> Known:
        place = self.make(operation)
        before, refs = View.of(place), refs_of(place)
        ended = processes.run(place, operation.command(place))
        known = Known(before, View.of(place), refs, frozenset())
        wrong = Judge(operation, known, is_first=True).flaws(place, ended)
        if ended.code or wrong:
            raise AssertionError(
                f"undisturbed, {operation.name} ended with {ended.code}: "
                f"{ended.err}{'; '.join(wrong)}"
            )
        kinds = kinds_of_files(place) | SPOKEN
        self.bench.forget(place)
        return replace(known, kinds=kinds)

    def instants(self, fault: Fault, operation: Operation) -> list[str]:
        """Name the instants of an operation at which a fault may strike."""
        places: list[Place] = []

        def make() -> Place:
            places.append(self.make(operation))
            return places[-1]

        try:
            return fault.instants(operation, make)
        finally:
            for place in places:
                self.bench.forget(place)

    def attempt(
        self, fault: Fault, operation: Operation, instant: str, *, is_brief: bool = False
    ) -> Verdict:
        """Let a fault strike once, and return the violations.

        `is_brief` is as for `Judge.flaws`.
        """
        label = f"{fault.name}/{operation.name}/{instant}"
        known = self.known(operation)
        began = time.monotonic()
        place = self.make(operation)
        ended = fault.strike(place, operation, instant)
        left = place.top.with_name(f"{place.top.name}-left")
        subprocess.run(["cp", "-a", str(place.top), str(left)], check=True)
        try:
            wrong = Judge(operation, known).flaws(place, ended, is_brief=is_brief)
        except Exception as error:  # noqa: BLE001 - a repository that cannot be judged is a violation
            wrong = [f"the judge was stopped by {type(error).__name__}: {error}"]
        kept = ""
        if wrong:
            kept = str(self.kept / label.replace("/", "_").replace(".", "-"))
            shutil.rmtree(kept, ignore_errors=True)
            os.makedirs(self.kept, exist_ok=True)
            shutil.move(left, kept)
            Path(kept, "verdict").write_text(
                "\n".join([label, f"ended with {ended.code}", ended.out, ended.err, *wrong, ""])
            )
        self.bench.forget(place)
        shutil.rmtree(left, ignore_errors=True)
        return Verdict(label, wrong, time.monotonic() - began, kept=kept)


def named(name: str) -> tuple[Fault, Operation]:
    """Return a fault and an operation by `fault/operation`."""
    fault, _, operation = name.partition("/")
    return FAULTS[fault], OPERATIONS[operation]
