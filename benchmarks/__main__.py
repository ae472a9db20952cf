"""Prints the table of speeds; ends with 1 if one is over its limit."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile

from benchmarks import growth, week
from benchmarks.cases import CASES
from benchmarks.rows import Row
from benchmarks.stores import Scratch

_GROWTH, _WEEK = "growth", "week"


def main() -> int:
    """Measures the cases named on the command line, or all of them."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    more = f"{_GROWTH}: costs in ever larger stores; {_WEEK}: what a heavy week leaves behind"
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"any of: {', '.join(CASES)}; or {more}"
    )
    parser.add_argument(
        "--many", type=int, default=100_000, help='how many checkpoints "very many" is'
    )
    parser.add_argument(
        "--scratch", help="a directory for the repositories, kept for the next time"
    )
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES) - {_GROWTH, _WEEK}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="gitckpt-bench-") as temporary:
        scratch = Scratch(options.scratch or temporary)
        if _GROWTH in options.cases:
            for line in growth.table(scratch, options.many):
                print(line, flush=True)
            return 0
        if _WEEK in options.cases:
            lines = list(map(_shown, week.report(scratch)))
            return 0 if lines[-1].startswith("within") else 1
        scratch.clear()  # what a run has left that was ended
        print(
            f"{'what':<44} {'against':<34} {'found':>9} {'limit':>8}   median ms, ours and theirs"
        )
        try:
            for name in options.cases or CASES:
                for row in CASES[name](scratch, options.many):
                    missed += not row.reached
                    print(_line(row), flush=True)
        finally:
            scratch.clear()
    return 1 if missed else 0


def _shown(line: str) -> str:
    print(line, flush=True)
    return line


def _line(row: Row) -> str:
    limit = (
        ""
        if row.limit is None
        else f"{row.limit:.1f}x"
        if row.unit == "x"
        else f"+{row.limit:.0f} ms"
    )
    found = f"{row.found:.2f}x" if row.unit == "x" else f"+{row.found:.0f} ms"
    times = ""
    if row.pair is not None:
        medians = map(statistics.median, (row.pair.ours, row.pair.theirs))
        times = "  ".join(f"{seconds * 1000:.2f}" for seconds in medians)
    over = "" if row.reached else "   OVER"
    return f"{row.what:<44} {row.against:<34} {found:>9} {limit:>8}   {times}{over}"


if __name__ == "__main__":
    sys.exit(main())
