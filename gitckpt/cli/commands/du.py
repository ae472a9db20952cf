"""`git ckpt du`."""

from __future__ import annotations

import contextlib

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git.files import mounts
from gitckpt.model.errors import UsageError
from gitckpt.store.usage import CHECKPOINT, REMOVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gitckpt.store.usage import Amount, Usage

    # Kind, name, number, bytes, state.
    UsageRow = tuple[str, str, int | None, int | None, str]

_COLUMNS = ("WHAT", "NUMBER", "ON DISK", "STATE")
_MAX_WORKTREES = 5  # by default, only the largest are shown
# Bytes below which no advice is given on freeing space, except for leftovers.
_MIN_ADVISED = 1_000_000
_AMOUNTS = ("checkpoints", "files", "leases", "links", "refs")
_FILES = ("run_files", "index", "private")
_TEXTS = {
    "checkpoints": "checkpoints",
    "files": "files only in checkpoints",
    "leases": "leases and keys of runs",
    "links": "links in notes",
    "refs": "refs",
    "worktrees": "worktrees",
    "run_files": "files of runs beside worktrees",
    "index": "index",
    "private": "logs and other private files",
    "leftovers": "scratch files of processes",
    "total": "total",
}
_UNITS = {"files": "object", **dict.fromkeys(("worktree", *_FILES), "file")}


@options.usage("""
--runs  Show every worktree, not only the 5 largest.
--json  Print one JSON document.
""")
def du(runs: bool = False, as_json: bool = False) -> None:
    """Show the disk usage of checkpoints, runs and private files.

    Changes nothing. Piped, each line has tab-separated columns: what, which, number, bytes, state.
    """
    with open_store() as store:
        with terminal.waiting("measuring what checkpoints take"):
            usage = store.usage()
        with contextlib.suppress(UsageError):  # `doctor` reports an invalid gitckpt.toml
            store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    if as_json:
        terminal.out_json(_as_json(usage))
        return
    limit = _MAX_WORKTREES if terminal.is_terminal() and not runs else len(usage.worktrees)
    rows = list(_rows(usage, limit))
    if terminal.is_terminal():
        even_empty = ("checkpoints", "worktree")
        shown = [row for row in rows if row[2] != 0 or row[0] in even_empty]
        terminal.out_table(_COLUMNS, [_cells(row) for row in shown])
    else:
        for row in rows:
            terminal.out_row("" if cell is None else str(cell) for cell in row)
    if not usage.is_complete:
        problem = "an object is damaged, so the numbers are incomplete"
        terminal.warn(f"{problem}: git ckpt verify --contents")
    for line in _advice_lines(usage):
        terminal.remark(line)


def _rows(usage: Usage, limit: int) -> Iterator[UsageRow]:
    def amount(name: str) -> UsageRow:
        value: Amount = getattr(usage, name)
        return name, "", value.number, value.bytes, ""

    worktrees, leftovers = usage.worktrees, usage.leftovers
    yield from map(amount, _AMOUNTS)
    yield "worktrees", "", len(worktrees), sum(tree.bytes for tree in worktrees), ""
    for tree in worktrees[:limit]:
        yield "worktree", tree.run or tree.path, tree.files, tree.bytes, tree.status
    if hidden := worktrees[limit:]:
        name = f"{len(hidden)} more: git ckpt du --runs"
        number, size = sum(tree.files for tree in hidden), sum(tree.bytes for tree in hidden)
        yield "worktree", name, number, size, ""
    yield from map(amount, _FILES)
    number = sum(leftover.number for leftover in leftovers)
    yield "leftovers", "", number, sum(leftover.bytes for leftover in leftovers), ""
    for leftover in leftovers:
        state = f"{leftover.due} left by killed processes" if leftover.due else ""
        yield "leftover", leftover.kind, leftover.number, leftover.bytes, state
    yield "total", "", None, usage.bytes, ""


def _cells(row: UsageRow) -> list[str]:
    kind, name, number, size, state = row
    indented = terminal.shorter_path(name) if name.startswith("/") else name
    label = f"  {indented}" if name else _TEXTS[kind]
    amount = "" if number is None else str(number)
    if number is not None and kind in _UNITS:
        amount = terminal.count(number, _UNITS[kind])
    return [label, amount, "in reftables" if size is None else terminal.size(size), state]


def _advice_lines(usage: Usage) -> Iterator[str]:
    if due := sum(leftover.due for leftover in usage.leftovers):
        size = terminal.size(sum(leftover.due_bytes for leftover in usage.leftovers))
        files = terminal.count(due, "file")
        yield f"{files} of killed processes, {size}; to delete: git ckpt expire"
    size_of_all = (usage.checkpoints.bytes or 0) + (usage.files.bytes or 0)
    if usage.checkpoints.number and size_of_all >= _MIN_ADVISED:
        yield "to see what would expire: git ckpt expire --dry-run; to free space then: git gc"
    loose = usage.loose
    if loose.bytes is not None and loose.bytes >= _MIN_ADVISED:
        objects = terminal.count(loose.number, "loose object")
        yield f"{objects}, {terminal.size(loose.bytes)}; to pack: git gc"
    for status, cure in (
        ("complete", "such a worktree is removed when its run expires: git ckpt expire --dry-run"),
        ("unfinished", "such a worktree stays until its run is complete: git ckpt finish RUN"),
    ):
        size_of_trees = sum(tree.bytes for tree in usage.worktrees if tree.status == status)
        if size_of_trees >= _MIN_ADVISED:
            yield f"{terminal.size(size_of_trees)} in worktrees of {status} runs; {cure}"
    paths = [tree.path for tree in usage.worktrees if tree.status in (CHECKPOINT, REMOVED)]
    if paths:  # of any size: no other command reports them
        command = mounts.removal_command(paths[0] if len(paths) == 1 else "PATH")
        yield f"worktrees of checkpoints and of removed runs stay; to remove: {command}"


def _as_json(usage: Usage) -> dict[str, Any]:
    amounts = (*_AMOUNTS, *_FILES, "loose")
    worktree, leftover = "path run status files bytes", "kind number bytes due due_bytes"
    return {
        **{name: terminal.attributes(getattr(usage, name), "number bytes") for name in amounts},
        "worktrees": [terminal.attributes(entry, worktree) for entry in usage.worktrees],
        "leftovers": [terminal.attributes(entry, leftover) for entry in usage.leftovers],
        "bytes": usage.bytes,
        "complete": usage.is_complete,
    }
