"""Run the mutation tester: `./dev mutate`.

It changes the code and reports the changes that no test notices.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent

TESTS = {
    "gitckpt/model": ("tests/model", "tests/store/runs/test_statediff.py"),
    "gitckpt/store/records/draft.py": (
        "tests/store/records/test_draft.py",
        "tests/store/records/test_record_carried.py",
        "tests/store/records/test_record_document.py",
        "tests/store/records/test_record_refused.py",
    ),
    "gitckpt/store/records/entry.py": (
        "tests/store/records/test_entry.py",
        "tests/store/records/test_listing.py",
    ),
    "gitckpt/store/records/finder.py": (
        "tests/store/snapshot/test_changed_files.py",
        "tests/store/records/test_find.py",
        "tests/store/records/test_finder.py",
    ),
    "gitckpt/store/records/heads.py": (
        "tests/store/test_local_checkpoints.py",
        "tests/store/records/test_heads_foreign.py",
        "tests/store/records/test_left_locks.py",
        "tests/store/records/test_locks.py",
        "tests/store/records/test_heads.py",
    ),
    "gitckpt/store/records/index.py": (
        "tests/store/snapshot/test_changed_files.py",
        "tests/store/records/test_entry.py",
        "tests/store/records/test_index.py",
        "tests/store/records/test_index_portions.py",
        "tests/store/records/test_index_validity.py",
        "tests/store/records/test_listing.py",
        "tests/store/records/test_ranks.py",
    ),
    "gitckpt/store/records/commit_refs.py": (
        "tests/store/records/test_commit_refs.py",
        "tests/store/records/test_commit_refs_hostile.py",
    ),
    "gitckpt/store/records/keys.py": (
        "tests/store/records/test_keys.py",
        "tests/store/records/test_keys_hostile.py",
    ),
    "gitckpt/store/records/ref_names.py": (
        "tests/store/records/test_record_document.py",
        "tests/store/records/test_ref_names.py",
        "tests/store/records/test_heads.py",
    ),
    "gitckpt/store/records/recorder.py": (
        "tests/store/records/test_commit_refs_hostile.py",
        "tests/store/records/test_keys.py",
        "tests/store/test_notes.py",
        "tests/store/records/test_record_carried.py",
        "tests/store/records/test_record_document.py",
        "tests/store/records/test_record_refused.py",
        "tests/store/records/test_record_repositories.py",
        "tests/store/records/test_recorder.py",
        "tests/store/runs/test_runs.py",
        "tests/system/kills/test_concurrent_gc.py",
    ),
    "gitckpt/store/records/remover.py": (
        "tests/store/records/test_left_locks.py",
        "tests/store/test_notes.py",
        "tests/store/retention/test_remove_expire.py",
        "tests/store/retention/test_remove_run.py",
        "tests/store/records/test_remover.py",
    ),
    "gitckpt/store/leases": ("tests/store/leases/test_leases.py",),
}
"""Map a folder or module to the quick tests of it.

A mutant runs the listed tests that call its function. A few tests that assert much are worth more
than the hundreds that record a checkpoint on their way.
"""

LEFT_OUT = (
    # Their workers import the mutation tester again, fail, and are started again without end.
    "tests/store/records/test_keys.py::test_eight_processes_start_one_run",
    "tests/store/runs/test_runs.py::TestRuns::test_starters_in_several_processes_never_share_one",
    # Eleven seconds for each mutant.
    (
        "tests/store/leases/test_leases.py::"
        "test_of_eight_that_take_a_lease_at_the_same_moment_one_gets_it_each_time"
    ),
    # The mutation tester wraps each function, so Python reaches its recursion limit earlier.
    "tests/store/runs/test_statediff.py::TestCompare::test_states_as_deep_as_they_may_be",
)
"""Tests that cannot be run with mutants."""

SETTINGS = """
[tool.mutmut]
source_paths = ["gitckpt"]
only_mutate = ["{only}"]
also_copy = ["hooks", "docs", "examples", "README.md"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {arguments}
timeout_constant = 3.0
timeout_multiplier = 4.0
"""

# Each mutant gets the same examples, and no example database: the result must be reproducible.
ARGUMENTS = [
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-seed=0",
    *(f"--deselect={test}" for test in LEFT_OUT),
]

IN_PROCESSES = """\
import os

if os.environ.get("MUTANT_UNDER_TEST") == "stats":
    del os.environ["MUTANT_UNDER_TEST"]
"""
"""Processes of tests cannot record the functions that they call, and would fail."""

NOTICED = {"killed", "timeout", "segfault", "suspicious"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants of some modules and print the survivors; return 1 if any."""
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__)
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        default=list(TESTS),
        help=f"modules, or folders, of {', '.join(TESTS)} (all)",
    )
    parser.add_argument(
        "--every",
        type=int,
        choices=(1, 2, 5, 10),
        default=1,
        help="only each second, fifth or tenth mutant of a function",
    )
    parser.add_argument(
        "--lane",
        choices=("test", "all"),
        default="all",
        help="test: quick tests alone, with fewer examples",
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (%(default)s)")
    options = parser.parse_args(arguments)
    survivors = 0
    for path in options.paths:
        name = os.path.relpath(path, PROJECT) if os.path.isabs(path) else path.rstrip("/")
        above = next(
            (place for place in TESTS if name == place or name.startswith(f"{place}/")), None
        )
        below = [place for place in TESTS if place.startswith(f"{name}/")]
        if not (above or below) or not (PROJECT / name).exists():
            parser.error(f"no tests are known for {path}: choose of {', '.join(TESTS)}")
        for each, tests in (
            [(name, TESTS[above])] if above else [(place, TESTS[place]) for place in below]
        ):
            survivors += mutate(each, tests, options.every, options.jobs, options.lane)
    return 1 if survivors else 0


def mutate(name: str, tests: Sequence[str], every: int, jobs: int, lane: str) -> int:
    """Run the mutants of a module or folder in a copy of the checkout.

    An interrupted run leaves no mutant in the checkout.

    Args:
        name: the path of the module or folder.
        tests: the tests to run for each mutant.
        every: run only every n-th mutant of a function.
        jobs: how many run at a time.
        lane: the lane of the tests.

    Returns:
        The number of mutants that no test noticed.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy_checkout(Path(scratch))
        # Python searches only directories that exist when it starts.
        mutated = Path(scratch, "mutants")
        mutated.mkdir()
        (mutated / "sitecustomize.py").write_text(IN_PROCESSES)
        only = name if name.endswith(".py") else f"{name}/*"
        settings = SETTINGS.format(
            only=only, tests=quoted(tests), arguments=quoted([*ARGUMENTS, f"--lane={lane}"])
        )
        with open(os.path.join(scratch, "pyproject.toml"), "a", encoding="utf-8") as file:
            file.write(settings)
        # The last digits of the numbers that mutants have within their function.
        digits = {1: "", 2: "13579", 5: "16", 10: "1"}[every]
        wanted = [f"*__mutmut_*[{digits}]"] if digits else []
        done = mutmut(scratch, "run", "--max-children", str(jobs), *wanted, shown=True)
        if done.returncode:
            sys.exit(done.returncode)
        lines = mutmut(scratch, "results", "--all", "true").stdout.splitlines()
        results = dict(line.strip().rsplit(": ", 1) for line in lines if ": " in line)
        survivors = sorted(
            mutant for mutant, result in results.items() if result not in NOTICED | {"not checked"}
        )
        sys.stdout.writelines(mutmut(scratch, "show", mutant).stdout for mutant in survivors)
        sys.stdout.write(summary(name, results, survivors))
        return len(survivors)


def summary(name: str, results: Mapping[str, str], survivors: Sequence[str]) -> str:
    """Count the mutants by result, and the survivors by module."""
    counts = Counter(results.values())
    ran = Counter(
        mutant.rsplit(".", 1)[0] for mutant, result in results.items() if result != "not checked"
    )
    left = Counter(mutant.rsplit(".", 1)[0] for mutant in survivors)
    all_counts = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    lines = [
        f"{name}: {len(results)} mutants: {all_counts}",
        *(f"  {module}: {left[module]} of {ran[module]} left" for module in sorted(ran)),
    ]
    return "\n".join(lines) + "\n"


def copy_checkout(scratch: Path) -> None:
    """Copy the tracked files and the files that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (PROJECT / name).exists():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, scratch / name)


def mutmut(scratch: str, *arguments: str, shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the mutation tester in a copy.

    Processes that the tests start import the mutated source.
    """
    environment = os.environ | {"PYTHONPATH": os.path.join(scratch, "mutants")}
    program = os.path.join(os.path.dirname(sys.executable), "mutmut")
    output = None if shown else subprocess.PIPE
    return subprocess.run(
        [program, *arguments], cwd=scratch, env=environment, text=True, check=False, stdout=output
    )


def quoted(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


if __name__ == "__main__":
    sys.exit(main())
