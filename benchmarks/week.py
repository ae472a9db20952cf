"""Measure the garbage of a week: five agents, each with 300 saves a day."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

from benchmarks.stores import DAY, Scratch, git
from gitckpt import Policy, Store
from gitckpt.git.repository import discover_repository
from gitckpt.model import times
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.retention import expiry, maintenance
from gitckpt.store.setup import install_hooks

AGENTS = 5
TURNS = 300
DAYS = 7
_COMMIT_EVERY = 25
_FILES = 40

MOST_LOOSE, MOST_BYTES = 1000, 25_000_000


class _Clock:
    """Tells the time of a week that passes within minutes."""

    def __init__(self, instant: int) -> None:
        self.instant = instant

    def __call__(self) -> int:
        self.instant += 1
        return self.instant


def report(scratch: Scratch) -> Iterator[str]:
    """Yields the lines of a table, a day each; the last line says whether the limits hold.

    Args:
        scratch: where the repository is made.
    """
    path = _made(scratch)
    clock = _Clock(times.now() - DAYS * DAY)
    began = clock.instant
    stores = [
        Store(Checkpoints(discover_repository(place), adapter="plumbing", clock=clock))
        for place in _worktrees(path)
    ]
    columns = (
        "day|saves|checkpoints|loose objects|in packs|bytes|a save, ms|maintenance, s|git says"
    )
    yield f"| {columns.replace('|', ' | ')} |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    loose = size = 0
    said = ""
    for day in range(DAYS):
        start = time.perf_counter()
        for turn in range(TURNS):
            clock.instant = began + day * DAY + turn * DAY // TURNS
            for agent, store in enumerate(stores):
                _work(store, path, agent, day * TURNS + turn)
        a_save = (time.perf_counter() - start) / (TURNS * AGENTS)
        start = time.perf_counter()
        said = _maintain(path, clock)
        took = time.perf_counter() - start
        counts = dict(line.split(": ") for line in git(path, "count-objects", "-v").splitlines())
        loose, size = int(counts["count"]), 1024 * (int(counts["size"]) + int(counts["size-pack"]))
        there = len(git(path, "for-each-ref", "refs/checkpoints").splitlines())
        saves = (day + 1) * TURNS * AGENTS
        yield (
            f"| {day + 1} | {saves:,} | {there:,} | {loose:,} | {int(counts['in-pack']):,}"
            f" | {size:,} | {1000 * a_save:.0f} | {took:.1f} "
            f"| {said or 'nothing'} |"
        )
    for store in stores:
        store.close()
    holds = loose <= MOST_LOOSE and size <= MOST_BYTES and not said
    limits = f"{MOST_LOOSE:,} loose objects and {MOST_BYTES:,} bytes, and git says nothing"
    yield f"{'within' if holds else 'OVER'} {limits}"


def _work(store: Store, path: str, agent: int, turn: int) -> None:
    """One turn of an agent: it writes over a file or two, saves, and now and then commits."""
    place = os.path.join(path, ".ckpt", f"agent-{agent}") if agent else path
    for number in (turn % _FILES, turn * 7 % _FILES):
        with open(os.path.join(place, f"module_{number}.py"), "a", encoding="utf-8") as file:
            file.write(f"def work_{agent}_{turn}() -> int:\n    return {turn * 31 % 1009}\n")
    store.save("turn-complete", agent="claude")
    if turn % _COMMIT_EVERY == _COMMIT_EVERY - 1:
        git(place, "add", "--all")
        git(
            place,
            "-c",
            "maintenance.auto=false",
            "commit",
            "--quiet",
            "--message",
            f"turn {turn}",
            "--no-verify",
        )
        store.record("commit-complete", trigger="post-commit")


def _maintain(path: str, clock: _Clock) -> str:
    """Run the daily maintenance; return what `git gc --auto` says afterwards."""
    repository = discover_repository(path)
    with Checkpoints(repository, adapter="plumbing", clock=clock) as store:
        expiry.expire_checkpoints(store, Policy())
    maintenance.pack_repository(repository)
    maintenance.collect_garbage(repository)
    auto = [
        "git",
        "-c",
        "maintenance.auto=true",
        "-c",
        "gc.auto=6700",
        "-c",
        "gc.autoDetach=false",
        "gc",
        "--auto",
    ]
    said = subprocess.run(auto, cwd=path, capture_output=True, text=True, check=True).stderr
    return " ".join(line for line in said.splitlines() if line.startswith(("warning", "error")))


def _made(scratch: Scratch) -> str:
    path = os.path.join(scratch.path, "week")
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet", path], check=True)
    for number in range(_FILES):
        with open(os.path.join(path, f"module_{number}.py"), "w", encoding="utf-8") as file:
            file.write(
                f'"""Module {number}."""\n\n'
                + "".join(f"VALUE_{line} = {line * number}\n" for line in range(60))
            )
    git(path, "config", "gc.auto", "6700")
    git(path, "config", "maintenance.auto", "true")
    install_hooks(discover_repository(path), "none")
    with open(os.path.join(path, ".git", "info", "exclude"), "a", encoding="utf-8") as file:
        file.write(".ckpt/\n")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--message", "begin")
    for agent in range(1, AGENTS):
        git(path, "worktree", "add", "--quiet", "-b", f"agent-{agent}", f".ckpt/agent-{agent}")
    return path


def _worktrees(path: str) -> list[str]:
    return [path, *(os.path.join(path, ".ckpt", f"agent-{agent}") for agent in range(1, AGENTS))]
