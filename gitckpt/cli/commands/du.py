"""Implement `git ckpt du`."""

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


@options.declare_parameters("""
--runs  Show every worktree, not only the 5 largest.
--json  Print one JSON document.
""")
def print_disk_usage(runs: bool = False, as_json: bool = False) -> None:
    """Show the disk usage of checkpoints, runs and private files.

    Changes nothing. In a pipe, lines have tab-separated columns: what, which, number, bytes, state.
    """
    with open_store() as store:
        with terminal.show_waiting("measuring what checkpoints take"):
            usage = store.usage()
        with contextlib.suppress(UsageError):  # `doctor` reports an invalid gitckpt.toml
            store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    if as_json:
        terminal.out_json(_usage_as_json(usage))
        return
    max_worktrees = _MAX_WORKTREES if terminal.is_terminal() and not runs else len(usage.worktrees)
    rows = list(_usage_rows(usage, max_worktrees))
    if terminal.is_terminal():
        always_shown = ("checkpoints", "worktree")
        shown_rows = [row for row in rows if row[2] != 0 or row[0] in always_shown]
        terminal.out_table(_COLUMNS, [_table_cells(row) for row in shown_rows])
    else:
        for row in rows:
            terminal.out_row("" if cell is None else str(cell) for cell in row)
    if not usage.is_complete:
        problem = "an object is damaged, so the numbers are incomplete"
        terminal.warn(f"{problem}; to find it: git ckpt verify --contents")
    for line in _advice_lines(usage):
        terminal.remark(line)


def _usage_rows(usage: Usage, max_worktrees: int) -> Iterator[UsageRow]:
    def amount_row(name: str) -> UsageRow:
        measured: Amount = getattr(usage, name)
        return name, "", measured.number, measured.bytes, ""

    worktrees, leftovers = usage.worktrees, usage.leftovers
    yield from map(amount_row, _AMOUNTS)
    yield "worktrees", "", len(worktrees), sum(entry.bytes for entry in worktrees), ""
    for entry in worktrees[:max_worktrees]:
        yield "worktree", entry.run or entry.path, entry.files, entry.bytes, entry.status
    if hidden := worktrees[max_worktrees:]:
        name = f"{len(hidden)} more: git ckpt du --runs"
        files, size = sum(entry.files for entry in hidden), sum(entry.bytes for entry in hidden)
        yield "worktree", name, files, size, ""
    yield from map(amount_row, _FILES)
    file_count = sum(leftover.number for leftover in leftovers)
    yield "leftovers", "", file_count, sum(leftover.bytes for leftover in leftovers), ""
    for leftover in leftovers:
        state = f"{leftover.due} left by killed processes" if leftover.due else ""
        yield "leftover", leftover.kind, leftover.number, leftover.bytes, state
    yield "total", "", None, usage.bytes, ""


def _table_cells(row: UsageRow) -> list[str]:
    kind, name, number, size, state = row
    shown_name = terminal.shorter_path(name) if name.startswith("/") else name
    label = f"  {shown_name}" if name else _TEXTS[kind]
    amount = "" if number is None else str(number)
    if number is not None and kind in _UNITS:
        amount = terminal.plural(number, _UNITS[kind])
    return [label, amount, "in reftables" if size is None else terminal.size_text(size), state]


def _advice_lines(usage: Usage) -> Iterator[str]:
    if due_files := sum(leftover.due for leftover in usage.leftovers):
        size = terminal.size_text(sum(leftover.due_bytes for leftover in usage.leftovers))
        file_count = terminal.plural(due_files, "file")
        yield f"{file_count} of killed processes, {size}; to delete them: git ckpt expire"
    checkpoint_bytes = (usage.checkpoints.bytes or 0) + (usage.files.bytes or 0)
    if usage.checkpoints.number and checkpoint_bytes >= _MIN_ADVISED:
        yield "to see what expires: git ckpt expire --dry-run; to free space after that: git gc"
    loose_objects = usage.loose
    if loose_objects.bytes is not None and loose_objects.bytes >= _MIN_ADVISED:
        object_count = terminal.plural(loose_objects.number, "loose object")
        yield f"{object_count}, {terminal.size_text(loose_objects.bytes)}; to pack them: git gc"
    for status, cure in (
        ("complete", "such a worktree is removed when its run expires: git ckpt expire --dry-run"),
        ("unfinished", "such a worktree stays until its run is complete: git ckpt finish RUN"),
    ):
        status_bytes = sum(entry.bytes for entry in usage.worktrees if entry.status == status)
        if status_bytes >= _MIN_ADVISED:
            yield f"{terminal.size_text(status_bytes)} in worktrees of {status} runs; {cure}"
    paths = [entry.path for entry in usage.worktrees if entry.status in (CHECKPOINT, REMOVED)]
    if paths:  # of any size: no other command reports them
        command = mounts.removal_command(paths[0] if len(paths) == 1 else "PATH")
        yield f"worktrees of checkpoints and of removed runs stay; to remove one: {command}"


def _usage_as_json(usage: Usage) -> dict[str, Any]:
    amounts = (*_AMOUNTS, *_FILES, "loose")
    worktree_keys, leftover_keys = "path run status files bytes", "kind number bytes due due_bytes"
    return {
        **{name: terminal.pick_fields(getattr(usage, name), "number bytes") for name in amounts},
        "worktrees": [terminal.pick_fields(entry, worktree_keys) for entry in usage.worktrees],
        "leftovers": [terminal.pick_fields(entry, leftover_keys) for entry in usage.leftovers],
        "bytes": usage.bytes,
        "complete": usage.is_complete,
    }
