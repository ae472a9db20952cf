"""What commands cost among 1,000 checkpoints, 10,000, and so on, as a table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.rows import CKPT
from benchmarks.stores import DAY, Scratch, add_runs, git
from gitckpt.store.records import ref_names

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_WARM = 5
DUE = 1_000
_PIPELINE = '[[pipelines.ci.phases]]\nname = "one"\nrun = "exit 1"\n'


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command cost.

    Attributes:
        wall: seconds.
        cpu: seconds of the command and of all that it started.
        memory: megabytes that the largest of its processes took.
    """

    wall: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        return f"{_seconds(self.wall)}/{_seconds(self.cpu)} s, {self.memory:.0f} MB"


def table(scratch: Scratch, many: int) -> Iterator[str]:
    """Yields the lines of the table, a column for each size.

    Args:
        scratch: where the repositories are made, and kept.
        many: the size that none is larger than.
    """
    sizes = [size for size in SIZES if size <= many]
    columns = []
    for size in sizes:
        found = {}
        for name, cost in _measured(scratch, size):
            sys.stderr.write(f"{size:>9,}  {name}: {cost}\n")
            found[name] = cost
        columns.append(found)
    yield f"| wall/CPU seconds, memory | {' | '.join(f'{size:,}' for size in sizes)} |"
    yield f"| --- |{' --- |' * len(sizes)}"
    for name in columns[0]:
        yield f"| {name} | {' | '.join(str(found[name]) for found in columns)} |"


def _measured(scratch: Scratch, size: int) -> Iterator[tuple[str, Cost]]:
    path = _prepared(scratch, size)

    def ckpt(*words: str, at: str = path) -> Cost:
        return _cost([*CKPT, *words], at)

    for index in _indexes(path):
        os.unlink(index)
    yield "list, first after a clone", ckpt("list", "-n", "20")
    (run,) = git(path, "for-each-ref", "--format=%(refname:lstrip=3)", ref_names.RUNS).split()
    newest = git(path, "rev-parse", "HEAD").strip()
    for name, words in {
        "list -n 20": ("list", "-n", "20"),
        "show": ("show", newest),
        "status": ("status",),
        "resume RUN": ("resume", run, "--no-run"),
        "expire --dry-run": ("expire", "--dry-run"),
    }.items():
        yield name, _least(lambda words=words: ckpt(*words))  # type: ignore[misc]  # mypy infers no default of a lambda
    yield "save", _least(lambda: ckpt("-q", "save"))
    yield (
        "hook",
        _least(
            lambda: _cost([os.path.join(path, ".git/hooks/post-commit")], path),
            before=lambda: _commit(path),
        ),
    )
    copy = scratch.copy(
        path, "growth-expire"
    )  # before the next row, which leaves there what the first removal looks for
    yield "verify", ckpt("verify")
    yield from _of_git(scratch, path)
    ckpt("list", "-n", "1", at=copy)
    for number, name in enumerate(("expire 1 %, the first time", "expire 1 %"), 1):
        yield (
            name,
            ckpt(
                "expire",
                "--older-than",
                "39d",
                "--keep-last",
                str(size - number * size // 100),
                at=copy,
            ),
        )
        git(copy, "pack-refs", "--all")
        ckpt("list", "-n", "1", at=copy)
    add_runs(copy, DUE, 5, 20 * DAY)
    ckpt("list", "-n", "1", at=copy)
    yield f"expire of {DUE:,} runs", ckpt("expire", "--older-than", "90d", at=copy)
    shutil.rmtree(copy)


def _of_git(scratch: Scratch, path: str) -> Iterator[tuple[str, Cost]]:
    """Yields what the user's own commands cost."""
    yield "git status", _least(lambda: _cost(["git", "status"], path))
    yield "git log --all -5", _least(lambda: _cost(["git", "log", "--all", "-5"], path))
    remote = os.path.join(scratch.path, "growth-remote")
    shutil.rmtree(remote, ignore_errors=True)
    git(path, "clone", "--quiet", "--bare", "--single-branch", path, remote)
    other = scratch.copy(path, "growth-fetch")
    git(other, "remote", "add", "ahead", remote)
    ahead = git(remote, "commit-tree", "-p", "HEAD", "-m", "ahead", "HEAD^{tree}").strip()
    git(remote, "update-ref", "HEAD", ahead)
    yield "git fetch of one commit", _cost(["git", "fetch", "--quiet", "ahead"], other)
    yield (
        "git push of one commit to it",
        _cost(["git", "push", "--quiet", other, f"{ahead}:refs/heads/pushed"], remote),
    )
    yield "git gc", _cost(["git", "gc", "--quiet"], other)
    shutil.rmtree(other)
    shutil.rmtree(remote)


def _prepared(scratch: Scratch, size: int) -> str:
    """Returns a repository of so many checkpoints, with hooks and a run whose worktree is there."""
    source = scratch.store(size)
    path = os.path.join(scratch.path, f"growth-{size}")
    if not os.path.exists(path):
        new = scratch.copy(source, f"growth-{size}")
        subprocess.run([*CKPT, "-q", "init"], cwd=new, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(new, "gitckpt.toml"), "w", encoding="utf-8") as file:
            file.write(_PIPELINE)
        git(new, "add", "gitckpt.toml")
        _commit(new, "--no-verify")
        os.rename(new, path)
        subprocess.run([*CKPT, "-q", "run", "ci"], cwd=path, check=False, capture_output=True)
    with open(os.path.join(path, ".git", "ckpt", ref_names.MAINTAINED), "wb"):
        pass  # or maintenance would be at work beside what is measured
    return path


def _indexes(path: str) -> list[str]:
    place = os.path.join(path, ".git", "ckpt")
    return [os.path.join(place, name) for name in os.listdir(place) if ".sqlite" in name]


def _commit(path: str, *options: str) -> None:
    environment = os.environ | {"GITCKPT_SKIP": "1"}
    subprocess.run(
        ["git", "commit", "--quiet", "--allow-empty", "-m", "x", *options],
        cwd=path,
        check=True,
        env=environment,
    )


def _least(measured: Callable[[], Cost], before: Callable[[], None] = lambda: None) -> Cost:
    """Returns the quickest of some runs."""
    found = []
    for _ in range(_WARM):
        before()
        found.append(measured())
    return min(found, key=lambda cost: cost.wall)


_MEASURER = """
import os, sys, time
null = os.open(os.devnull, os.O_WRONLY)
began = time.perf_counter()
quietly = [(os.POSIX_SPAWN_DUP2, null, number) for number in (1, 2)]
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quietly)
_, status, used = os.wait4(child, 0)
cpu = used.ru_utime + used.ru_stime
print(os.waitstatus_to_exitcode(status), time.perf_counter() - began, cpu, used.ru_maxrss)
"""
"""Start a program from a small process: Linux counts the parent's memory, too."""


def _cost(argv: Sequence[str], cwd: str) -> Cost:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _MEASURER, *argv],
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    code, wall, cpu, memory = done.stdout.split()
    if int(code) not in (0, 11):
        raise RuntimeError(f"{' '.join(argv)} ended with {code} in {cwd}")
    return Cost(float(wall), float(cpu), int(memory) / 1024)


def _seconds(value: float) -> str:
    return f"{value:.2f}".lstrip("0") if value < 10 else f"{value:.0f}"
