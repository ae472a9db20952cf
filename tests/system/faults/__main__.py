"""Let faults strike operations, and report violations (`./dev prove`).

Exits with 1 if there are any, and names each so that it can be repeated.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.system.faults import cuts
from tests.system.faults.fault import Fault
from tests.system.faults.operations import OPERATIONS, Bench
from tests.system.faults.trial import FAULTS, Trial, Verdict, named
from tests.system.power.disk import NoDisk

POWER = "power"
SHARES = {"quick": 0.1, "all": 1.0}
_THOROUGH = 4
"""With `--long`, one in so many tries is judged in full, with all later commands."""

_SHOWN = 30
"""The number of violations of a fault that are printed."""


@dataclass
class Row:
    """A line of the table.

    Attributes:
        name: of the fault.
        operations: how many operations it struck.
        tries: how many there were.
        lost: how many acknowledged checkpoints were lost or changed.
        others: how many other violations there were.
        seconds: of all processes together.
        remark: why the fault was not tried.
    """

    name: str
    operations: int = 0
    tries: int = 0
    lost: int = 0
    others: int = 0
    seconds: float = 0.0
    remark: str = ""

    def add(self, verdict: Verdict) -> None:
        """Add the result of a verdict."""
        self.tries += verdict.tries
        self.lost += verdict.lost
        self.others += len(verdict.wrong) - verdict.lost
        self.seconds += verdict.seconds

    def line(self) -> str:
        """Return the row as a line of a table in Markdown."""
        if self.remark:
            return f"| {self.name} | | | | | skipped: {self.remark} |"
        return (
            f"| {self.name} | {self.operations} | {self.tries} | {self.lost} | {self.others} | "
            f"{self.seconds:.0f} |"
        )


HEAD = (
    "| fault | operations | tries | acknowledged checkpoints lost | other violations | seconds |",
    "| --- | --- | --- | --- | --- | --- |",
)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


_trial: Trial | None = None


def _begin(directory: str, kept: str) -> None:
    """Create the trial of a worker process."""
    global _trial  # noqa: PLW0603 - one for each process
    mine = Path(directory, str(os.getpid()))
    mine.mkdir(parents=True)
    _trial = Trial(mine, Bench(Path(directory)), Path(kept))


def _make(operation: str) -> None:
    assert _trial is not None
    _trial.bench.make(OPERATIONS[operation])


def _instants(name: str) -> tuple[str, list[str]]:
    assert _trial is not None
    return name, _trial.instants(*named(name))


def _attempt(name: str, instant: str, is_brief: bool) -> Verdict:
    assert _trial is not None
    try:
        return _trial.attempt(*named(name), instant, is_brief=is_brief)
    except Exception as error:  # noqa: BLE001 - a try that cannot be made must not stop the others
        return Verdict(
            f"{name}/{instant}", [f"the try was stopped by {type(error).__name__}: {error}"]
        )


def _cut(way: str, scenario: str, tries: int, every: int, seed: int) -> Verdict:
    assert _trial is not None
    began = time.monotonic()
    try:
        count, wrong = cuts.cut(way, scenario, _trial.directory, tries, every, seed)
    except NoDisk as error:
        return Verdict(f"{POWER}/{way}: {error}", tries=0)
    return Verdict(f"{POWER}/{scenario}/{way}", wrong, time.monotonic() - began, tries=count)


def chosen(
    instants: Sequence[tuple[str, list[str]]], fault: Fault, tries: int, chance: random.Random
) -> Iterator[tuple[str, str]]:
    """Yield instants of a fault, alternating between the operations.

    First come the named instants in random order, then instants drawn by number.

    Args:
        instants: `fault/operation` and its instants.
        fault: the name of the fault.
        tries: the number of instants.
        chance: the source of random numbers.
    """
    lots = {name: chance.sample(named_ones, len(named_ones)) for name, named_ones in instants}
    left = {name: list(lot) for name, lot in lots.items() if lot}
    count = 0
    while count < tries:
        for name, lot in left.items():
            if count >= tries:
                return
            # Draw every fourth instant, where the fault allows it.
            draws = fault.drawn is not None and (not lot or count % 4 == 3)
            if not lot and not draws:
                lot.extend(chance.sample(lots[name], len(lots[name])))
            count += 1
            yield (
                name,
                fault.drawn(chance.random()) if draws and fault.drawn is not None else lot.pop(),
            )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="./dev prove", description=__doc__)
    names = ", ".join([*FAULTS, POWER])
    parser.add_argument(
        "what",
        nargs="*",
        metavar="FAULT[/OPERATION[/INSTANT]]",
        help=(
            f"faults: {names}; operations: {', '.join(OPERATIONS)}; "
            "a fault with its instant, as a violation names it, repeats that try"
        ),
    )
    parser.add_argument(
        "--long", action="store_true", help="10,000 kills, and more of the others: an hour"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the tries")
    parser.add_argument("--tries", type=int, help="so many of each fault")
    parser.add_argument("--seed", type=int, help="for the same instants again")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="tries at a time (%(default)s)"
    )
    parser.add_argument(
        "--keep",
        default="prove-failures",
        metavar="DIR",
        help="where repositories are kept with which something is wrong",
    )
    options = parser.parse_args(arguments)
    for what in options.what:
        fault, _, rest = what.partition("/")
        operation = rest.partition("/")[0]
        if fault not in (*FAULTS, POWER):
            parser.error(f"no such fault: {fault} (there are {names})")
        if operation and (fault == POWER or operation not in OPERATIONS):
            parser.error(
                f"no such operation: {operation} (there are {', '.join(OPERATIONS)}; "
                "of power, say ./dev prove power --help)"
            )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Try faults, print violations and the table; return 1 if there were violations."""
    options = parsed(arguments)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    what = [each.split("/", 2) for each in options.what or (*FAULTS, POWER)]
    rows = {}
    kept = Path(options.keep).resolve()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gitckpt-prove-") as temporary,
        ProcessPoolExecutor(
            options.jobs,
            multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(temporary, str(kept)),
        ) as pool,
    ):
        for fault in dict.fromkeys(words[0] for words in what):
            row = rows[fault] = Row(fault)
            mine = [words for words in what if words[0] == fault]
            verdicts = (
                _power(pool, row, options, seed)
                if fault == POWER
                else _struck(pool, row, mine, options, seed)
            )
            _listen(row, verdicts)
    say("")
    for line in (*HEAD, *(row.line() for row in rows.values())):
        say(line)
    tries, wrong = (
        sum(row.tries for row in rows.values()),
        sum(row.lost + row.others for row in rows.values()),
    )
    say(
        f"\nprove: {tries} tries, {wrong} violations, seed {seed}, "
        f"{time.monotonic() - began:.0f} s with {options.jobs} at a time"
    )
    return 1 if wrong or not tries else 0


def _listen(row: Row, verdicts: Iterable[Verdict]) -> None:
    began, shown = time.monotonic(), 0
    for verdict in verdicts:
        row.add(verdict)
        if not verdict.wrong:
            continue
        shown += 1
        if shown <= _SHOWN:
            say(f"prove: VIOLATION: repeat it with: ./dev prove '{verdict.label}'")
            for sentence in verdict.wrong[:8]:
                say(f"    {sentence[:1500]}")
            if verdict.kept:
                say(f"    what the fault left is in {verdict.kept}")
    say(
        f"prove: {row.name}: {row.tries} tries, {row.lost + row.others} violations, "
        f"{time.monotonic() - began:.0f} s"
    )


def _struck(
    pool: ProcessPoolExecutor,
    row: Row,
    what: Sequence[Sequence[str]],
    options: argparse.Namespace,
    seed: int,
) -> Iterator[Verdict]:
    fault = FAULTS[row.name]
    obstacle = fault.obstacle()
    if obstacle is not None:
        row.remark = obstacle
        return
    given = [(f"{row.name}/{words[1]}", words[2]) for words in what if len(words) == 3]
    names = [
        f"{row.name}/{name}"
        for words in what
        if len(words) < 3
        for name in (words[1:2] or OPERATIONS)
    ]
    for made in [
        pool.submit(_make, name)
        for name in sorted(
            {words[1] for words in what if len(words) == 3}
            | {name.partition("/")[2] for name in names}
        )
    ]:
        made.result()
    instants = [future.result() for future in [pool.submit(_instants, name) for name in names]]
    tries = options.tries or (
        fault.long
        if options.long
        else int(fault.quick * SHARES["quick" if options.quick else "all"])
    )
    drawn = (
        list(chosen(instants, fault, tries, random.Random(f"{seed}{row.name}"))) if names else []
    )
    row.operations = len({name for name, _ in (*given, *drawn)})
    repeats = options.tries or 1
    jobs = [
        pool.submit(_attempt, name, instant, False)
        for name, instant in given
        for _ in range(repeats)
    ]
    jobs += [
        pool.submit(_attempt, *each, options.long and number % _THOROUGH > 0)
        for number, each in enumerate(drawn)
    ]
    for job in as_completed(jobs):
        yield job.result()


def _power(
    pool: ProcessPoolExecutor, row: Row, options: argparse.Namespace, seed: int
) -> Iterator[Verdict]:
    tries = options.tries or (440 if options.long else 11 if options.quick else 220)
    every = 2 if options.long else 40 if options.quick else 5
    jobs = [
        pool.submit(
            _cut, way, scenario, len(range(number, tries, len(cuts.SCENARIOS))), every, seed
        )
        for way in cuts.ways()
        for number, scenario in enumerate(cuts.SCENARIOS)
    ]
    row.operations = len(cuts.SCENARIOS)
    obstacles = set()
    for job in as_completed(jobs):
        verdict = job.result()
        if verdict.tries:
            yield verdict
        else:
            obstacles.add(verdict.label)
    for obstacle in sorted(obstacles):
        say(f"prove: no disk can be cut off here: {obstacle}")
    if not jobs or (obstacles and not row.tries):
        row.remark = "there is neither a disk that can be cut off nor strace"


if __name__ == "__main__":
    sys.exit(main())
