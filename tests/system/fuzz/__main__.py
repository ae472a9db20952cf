"""Mutate the corpus and print the results (`./dev fuzz`); see `main`."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.system.fuzz.targets import TARGETS

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LONGEST = 4096
SLOWEST = 10
"""Seconds after which an input counts as endless."""

MEMORY = 2048
"""Megabytes that a target may take, with Python, libFuzzer and the corpus."""


@dataclass(frozen=True)
class Came:
    """The result of one target.

    Attributes:
        name: of the target.
        runs: how many inputs were read.
        new: how many of them reached new code.
        seconds: how long it took.
        said: the text about a failure; "" without one.
    """

    name: str
    runs: int
    new: int
    seconds: float
    said: str


def fuzz(name: str, runs: int, seconds: int, *, grow: bool, seed: int, found: Path) -> Came:
    """Fuzz a target.

    Args:
        name: of the target.
        runs: the number of inputs; 0 for any number.
        seconds: the time limit; 0 for none.
        grow: whether inputs that reach new code are added to the corpus.
        seed: of the random numbers; 0 for another one each time.
        found: where a failing input is written.
    """
    corpus = CORPUS / name
    corpus.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        limits = [
            f"-runs={runs or -1}",
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST}",
            f"-rss_limit_mb={MEMORY}",
        ]
        failing = f"-artifact_prefix={found}/{name}-"
        argv = [
            sys.executable,
            "-m",
            "tests.system.fuzz.worker",
            name,
            *limits,
            f"-seed={seed}",
            failing,
            "-print_final_stats=1",
            scratch,
            str(corpus),
        ]
        began = time.monotonic()
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=HERE.parents[2],
            check=False,
        )
        new = os.listdir(scratch)
        if grow and new:
            with tempfile.TemporaryDirectory() as merged:
                small = [
                    sys.executable,
                    "-m",
                    "tests.system.fuzz.worker",
                    name,
                    "-merge=1",
                    f"-max_len={LONGEST}",
                    merged,
                    str(corpus),
                    scratch,
                ]
                subprocess.run(small, capture_output=True, cwd=HERE.parents[2], check=True)
                if not os.listdir(merged):
                    raise RuntimeError(
                        f"nothing is left of the corpus of {name}: it stays as it was"
                    )
                for old in corpus.iterdir():
                    old.unlink()
                for each in Path(merged).iterdir():
                    (corpus / each.name).write_bytes(each.read_bytes())
    ran = re.search(r"stat::number_of_executed_units: +(\d+)", done.stderr)
    said = "" if done.returncode == 0 else _told(done.stdout + done.stderr)
    return Came(name, int(ran[1]) if ran else 0, len(new), time.monotonic() - began, said)


def say(text: str) -> None:
    """Print a text."""
    sys.stdout.write(f"{text}\n")


def _told(output: str) -> str:
    """Return what a fuzzer says of a failure, without its own statistics."""
    _, found, rest = output.partition("=== Uncaught Python exception")
    lines = (
        rest.partition("INFO: Instrumenting")[0].splitlines()
        if found
        else output.splitlines()[-30:]
    )
    return "\n".join(
        lines[-40:] + [line for line in output.splitlines() if line.startswith("artifact_prefix")]
    )


def main(words: list[str]) -> int:
    """Fuzz, print a table, and return 1 if any target failed."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; by default all"
    )
    parser.add_argument("--runs", type=int, default=0, help="how many inputs each target reads")
    parser.add_argument(
        "--seconds",
        type=int,
        default=0,
        help="how long, all targets added up; by default two minutes",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--grow", action="store_true", help="keep in the corpus what reaches something new"
    )
    options = parser.parse_args(words)
    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    total = options.seconds or (0 if options.runs else 120)
    each = -(-total // len(names))
    found = Path(tempfile.mkdtemp(prefix="fuzz-"))

    def one(name: str) -> Came:
        return fuzz(name, options.runs, each, grow=options.grow, seed=options.seed, found=found)

    with ThreadPoolExecutor(options.jobs) as pool:
        came = list(pool.map(one, names))
    say("| target | inputs | new ways | seconds |  |\n| --- | --- | --- | --- | --- |")
    for row in came:
        say(
            f"| {row.name} | {row.runs:,} | {row.new} | {row.seconds:.0f} | "
            f"{'FAILED' if row.said else ''} |"
        )
    for row in came:
        if row.said:
            say(f"\n{row.name}:\n{row.said}")
    failed = sum(bool(row.said) for row in came)
    say(
        f"\nfuzz: {sum(row.runs for row in came):,} inputs, {failed} targets failed"
        + (f"; the inputs: {found}" if failed else "")
    )
    if not failed:
        found.rmdir()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
