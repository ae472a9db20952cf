"""The rows about worktrees: what it costs to capture one, to make one, and to put files back."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

from benchmarks.rows import CKPT, Row
from benchmarks.stores import Scratch, git, path_of
from benchmarks.timing import Pair, alternate, process
from gitckpt import Store

FILES = 40_000
MADE = 20_000
_GRAIN = 2.1
"""Age in seconds below which git and gitckpt read a file again (racy time stamp)."""


def save(scratch: Scratch, many: int) -> Iterator[Row]:
    """Captures of a large tree, clean and with 20 changed and 20 new files."""
    del many
    path = scratch.tree(FILES)
    git(path, "reset", "--quiet", "--hard")
    git(path, "clean", "-dfqx")
    status = process(["git", "status"], path)
    _settle(path)
    ours = process([*CKPT, "-q", "save"], path)
    yield _row(
        f"git ckpt save, clean tree of {FILES:,}",
        "git status",
        alternate(ours, status, runs=15),
        1.6,
    )
    _change(path, "changed")
    for number in range(20):
        with open(os.path.join(path, f"new-{number}.txt"), "w", encoding="utf-8") as file:
            file.write(f"new {number}\n" * 100)
    _settle(path)

    def stash_and_status() -> None:
        for command in (["stash", "create"], ["status"]):
            subprocess.run(["git", *command], cwd=path, stdout=subprocess.DEVNULL, check=True)

    what = f"git ckpt save, {FILES:,} files, 20 changed, 20 new"
    yield _row(
        what, "git stash create and git status", alternate(ours, stash_and_status, runs=15), 1.0
    )
    with Store.open(path) as store:
        pair = alternate(lambda: store.save("measure-complete", {}), status, runs=15)
    yield _row("the same, Store.save in a warm process", "git status", pair, 1.5)


def resume(scratch: Scratch, many: int) -> Iterator[Row]:
    """Worktrees of 20,000 files: made, and opened again."""
    del many
    path = scratch.tree(MADE)
    made = subprocess.run(
        [*CKPT, "-q", "save"], cwd=path, check=True, capture_output=True, text=True
    ).stdout.strip()
    places = [os.path.join(scratch.path, name) for name in ("resume-ours", "resume-theirs")]

    def clear() -> None:
        for place in filter(os.path.exists, places):
            os.unlink(
                os.path.join(place, ".git")
            )  # or it would be taken for one that was moved, and gone on with
            scratch.put_aside(place)
        git(path, "worktree", "prune", "--expire=now")
        os.sync()

    ours = process([*CKPT, "-q", "resume", made, "--into", places[0]], path)
    theirs = process(["git", "worktree", "add", "--quiet", "--detach", places[1]], path)
    yield _row(
        f"resume making a worktree of {MADE:,} files",
        "git worktree add",
        alternate(ours, theirs, runs=3, before=clear, warm_up=1),
        0.33,
    )
    clear()
    ours()
    _settle(places[0])
    pair = alternate(ours, process(["git", "status"], places[0]), runs=15)
    yield Row(
        "resume of a worktree that is there",
        "git status in it",
        pair.excess * 1000,
        150.0,
        "ms",
        pair,
    )
    clear()


def restore(scratch: Scratch, many: int) -> Iterator[Row]:
    """20 changed files of a large tree put back."""
    del many
    path = scratch.tree(FILES)
    git(path, "reset", "--quiet", "--hard")
    git(path, "clean", "-dfqx")
    _settle(path)
    made = subprocess.run(
        [*CKPT, "-q", "save"], cwd=path, check=True, capture_output=True, text=True
    ).stdout.strip()
    turn = 0

    def change() -> None:
        nonlocal turn
        turn += 1
        _change(path, f"turn {turn}")

    pair = alternate(
        process([*CKPT, "-q", "restore", made], path),
        process(["git", "status"], path),
        runs=9,
        before=change,
    )
    yield _row(f"restore of 20 changed among {FILES:,}", "git status", pair, 3.0)


def size(scratch: Scratch, many: int) -> Iterator[Row]:
    """1,000 one-line edits, as checkpoints and as commits, after `git gc`."""
    count = min(1000, many)
    source = scratch.tree(10_000)
    ours, theirs = scratch.copy(source, "size-ours"), scratch.copy(source, "size-theirs")
    with Store.open(ours) as store:
        for number in range(count):
            _edit(ours, number)
            store.save("measure-complete", {})
    for number in range(count):
        _edit(theirs, number)
        git(theirs, "commit", "--quiet", "--all", "--message", f"edit {number}")
    sizes = []
    for path in (ours, theirs):
        git(path, "reset", "--quiet", "--hard")
        git(path, "gc", "--quiet", "--prune=now")
        sizes.append(_size(os.path.join(path, ".git")))
    yield Row(
        f"{count:,} checkpoints of edits in 10,000 files",
        f"as commits ({sizes[1] // 1000:,} kB)",
        sizes[0] / sizes[1],
        1.2,
        "x",
        None,
    )


def _row(what: str, against: str, pair: Pair, limit: float) -> Row:
    return Row(what, against, pair.ratio, limit, "x", pair)


def _change(path: str, text: str) -> None:
    for number in range(0, FILES, FILES // 20):
        with open(os.path.join(path, path_of(number)), "a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def _edit(path: str, number: int) -> None:
    with open(os.path.join(path, path_of(number * 7 % 10_000)), "a", encoding="utf-8") as file:
        file.write(f"edit {number}\n")


def _settle(path: str) -> None:
    """Waits until time stamps tell what changed, and lets git take note of them."""
    time.sleep(_GRAIN)
    git(path, "status")


def _size(directory: str) -> int:
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(directory)
        for name in names
    )
