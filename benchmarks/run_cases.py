"""The rows about runs: what a hundred phases cost, and a listing of a thousand runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO

from benchmarks.rows import CKPT, Row
from benchmarks.stores import Scratch, git
from benchmarks.timing import Pair, alternate, process
from gitckpt import PhaseOptions, Run, Store

PHASES = 100
FILES = 1_000
RUNS = 1_000
CHECKPOINTS = 20


def phases(scratch: Scratch, many: int) -> Iterator[Row]:
    """A hundred trivial phases, through the command line and through the library."""
    del many
    path = scratch.copy(scratch.tree(FILES), "phases")
    text = "".join(
        f'[[pipelines.trivial.phases]]\nname = "phase {number}"\nrun = "true"\n'
        for number in range(PHASES)
    )
    with open(os.path.join(path, "gitckpt.toml"), "w", encoding="utf-8") as file:
        file.write(text)
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--message", "a pipeline")
    ours = process([*CKPT, "-q", "run", "trivial"], path)

    def theirs() -> None:
        for number in range(PHASES):
            subprocess.run(["git", "add", "--all"], cwd=path, check=True)
            subprocess.run(
                ["git", "commit", "--quiet", "--allow-empty", "--message", f"phase {number}"],
                cwd=path,
                check=True,
            )

    pair = alternate(ours, theirs, runs=5, warm_up=1)
    yield Row(
        f"git ckpt run, {PHASES} phases, {FILES:,} files",
        f"{PHASES} × git add -A, git commit",
        pair.ratio,
        2.5,
        "x",
        pair,
    )
    yield from _library(scratch, scratch.copy(scratch.tree(FILES), "phases-library"))


_DBOS = """
import sys, time
try:
    from dbos import DBOS
except ImportError:
    sys.exit(0)
DBOS(config={"name": "bench", "system_database_url": "sqlite:///" + sys.argv[1]})

@DBOS.step()
def step() -> int:
    return 1

@DBOS.workflow()
def workflow() -> float:
    start = time.perf_counter()
    for _ in range(int(sys.argv[2])):
        step()
    return time.perf_counter() - start

DBOS.launch()
print("ready", flush=True)
for _ in sys.stdin:
    print(workflow(), flush=True)
DBOS.destroy()
"""
"""In a process of its own: its seven threads would take turns with what is measured beside it."""


def _library(scratch: Scratch, path: str) -> Iterator[Row]:
    argv = [
        sys.executable,
        "-c",
        _DBOS,
        os.path.join(scratch.path, "dbos-runs.sqlite"),
        str(PHASES),
    ]
    dbos = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert dbos.stdin is not None
    assert dbos.stdout is not None
    if not _is_ready(dbos.stdout):
        yield Row(
            "the same in the library",
            "100 DBOS steps (not installed: pip install dbos)",
            0.0,
            None,
            "x",
            None,
        )
        return
    theirs: list[float] = []
    ours: list[float] = []
    conduct = PhaseOptions(autosave=0)
    for _ in range(6):
        dbos.stdin.write("\n")
        dbos.stdin.flush()
        theirs.append(float(dbos.stdout.readline()))
        with Store.open(path) as store, Run.start(store, "trivial") as run:
            start = time.perf_counter()
            for number in range(PHASES):
                run.phase(f"phase {number}", lambda: 1, conduct=conduct)
            ours.append(time.perf_counter() - start)
    dbos.stdin.close()
    dbos.wait()
    pair = Pair(ours[1:], theirs[1:])
    found = statistics.median(pair.ours) / statistics.median(pair.theirs)
    yield Row(
        "the same in the library, no file changes",
        f"{PHASES} DBOS sqlite steps",
        found,
        4.0,
        "x",
        pair,
    )


def _is_ready(out: IO[str]) -> bool:
    """Tells whether a process says that it is ready; what it logs before is passed over."""
    return any(line == "ready\n" for line in iter(out.readline, ""))


def runs(scratch: Scratch, many: int) -> Iterator[Row]:
    """A listing of very many runs."""
    del many
    path = scratch.runs(RUNS, CHECKPOINTS)
    refs = process(["git", "for-each-ref", "refs/ckpt/runs"], path)
    ours = process([*CKPT, "runs"], path)
    pair = alternate(ours, refs, runs=15)
    yield Row(
        f"git ckpt runs, {RUNS:,} × {CHECKPOINTS} checkpoints",
        "git for-each-ref refs/ckpt/runs",
        pair.excess * 1000,
        300.0,
        "ms",
        pair,
    )
