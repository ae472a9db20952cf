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

    from gitckpt.store.usage import Amount, Usage, WorktreeUse

    # What, which one, number, bytes, state.
    UsageRow = tuple[str, str, int | None, int | None, str]

_COLUMNS = ("WHAT", "NUMBER", "ON DISK", "STATE")
# Worktrees that are shown by default, the largest.
_SHOWN = 5

# Bytes from which on advice is given on freeing them, except for leftovers.
_WORTH = 1_000_000

_TEXTS = {
    "checkpoints": "checkpoints",
    "files": "files that only they keep",
    "leases": "leases and keys of runs",
    "links": "links in notes",
    "refs": "refs",
    "worktrees": "worktrees",
    "run_files": "files of runs beside them",
    "index": "index",
    "private": "logs and the like",
    "leftovers": "scratch files of processes",
    "total": "total",
}
_UNITS = {
    "files": "object",
    "worktree": "file",
    "run_files": "file",
    "index": "file",
    "private": "file",
}


@options.usage("""
--runs  Show every worktree, not only the 5 largest.
--json  Print one JSON document.
""")
def du(runs: bool = False, as_json: bool = False) -> None:
    """Show the disk usage of checkpoints, runs and private files.

    Changes nothing. Piped, each line has tab-separated columns: what, which, how many, bytes, state.
    """
    with open_store() as store:
        with terminal.Waiting("measuring what checkpoints take"):
            usage = store.usage()
        with contextlib.suppress(UsageError):  # `doctor` reports it
            store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    if as_json:
        terminal.out_json(_as_json(usage))
        return
    rows = list(
        _rows(usage, len(usage.worktrees) if runs or not terminal.is_terminal() else _SHOWN)
    )
    if terminal.is_terminal():
        terminal.table(
            _COLUMNS,
            [_cells(row) for row in rows if row[2] != 0 or row[0] in ("checkpoints", "worktree")],
        )
    else:
        for what, which, number, size, state in rows:
            cells = (
                what,
                which,
                *("" if each is None else str(each) for each in (number, size)),
                state,
            )
            terminal.out_row(cells)
    if not usage.is_complete:
        terminal.warn(
            "an object is damaged, so that some are not counted, or belong to others, too; see which: git ckpt verify --contents"
        )
    for line in _advice(usage):
        terminal.remark(line)


def _rows(usage: Usage, shown: int) -> Iterator[UsageRow]:
    for name in ("checkpoints", "files", "leases", "links", "refs"):
        amount: Amount = getattr(usage, name)
        yield name, "", amount.number, amount.bytes, ""
    yield "worktrees", "", len(usage.worktrees), sum(each.bytes for each in usage.worktrees), ""
    for each in usage.worktrees[:shown]:
        yield "worktree", each.run or each.path, each.files, each.bytes, each.status
    rest = usage.worktrees[shown:]
    if rest:
        yield (
            "worktree",
            f"{len(rest)} more: git ckpt du --runs",
            sum(each.files for each in rest),
            sum(each.bytes for each in rest),
            "",
        )
    for name in ("run_files", "index", "private"):
        amount = getattr(usage, name)
        yield name, "", amount.number, amount.bytes, ""
    yield (
        "leftovers",
        "",
        sum(each.number for each in usage.leftovers),
        sum(each.bytes for each in usage.leftovers),
        "",
    )
    for left in usage.leftovers:
        yield (
            "leftover",
            left.kind,
            left.number,
            left.bytes,
            f"{left.due} left by killed processes" if left.due else "",
        )
    yield "total", "", None, usage.bytes, ""


def _cells(row: UsageRow) -> list[str]:
    what, which, number, size, state = row
    label = (
        f"  {terminal.near(which) if which.startswith('/') else which}" if which else _TEXTS[what]
    )
    amount = (
        ""
        if number is None
        else terminal.count(number, _UNITS[what])
        if what in _UNITS
        else str(number)
    )
    return [label, amount, "in reftables" if size is None else terminal.size(size), state]


def _advice(usage: Usage) -> Iterator[str]:
    due = sum(leftover.due for leftover in usage.leftovers)
    if due:
        size = terminal.size(sum(leftover.due_bytes for leftover in usage.leftovers))
        yield f"{terminal.count(due, 'file')} of killed processes, {size}, which git ckpt expire deletes"
    if (
        usage.checkpoints.number
        and sum(each.bytes or 0 for each in (usage.checkpoints, usage.files)) >= _WORTH
    ):
        yield "what is due to go, and why: git ckpt expire --dry-run; the disk has it back after: git gc"
    if usage.loose.bytes is not None and usage.loose.bytes >= _WORTH:
        yield f"{terminal.count(usage.loose.number, 'object')} not packed yet, {terminal.size(usage.loose.bytes)}; to pack them: git gc"
    for status, cure in (
        ("complete", "goes with its checkpoints once these are old: git ckpt expire --dry-run"),
        ("unfinished", "stays until its run is complete: git ckpt runs, git ckpt finish RUN"),
    ):
        size_of_them = _bytes_of(usage, status)
        if size_of_them >= _WORTH:
            yield f"{terminal.size(size_of_them)} in worktrees of {status} runs; each {cure}"
    for_good = [each.path for each in usage.worktrees if each.status in (CHECKPOINT, REMOVED)]
    if for_good:  # of any size: no other command reports them
        remove = mounts.way_to_remove(for_good[0] if len(for_good) == 1 else "PATH")
        yield f"a worktree of a checkpoint, or of a run that is gone, stays until you remove it: {remove}"


def _bytes_of(usage: Usage, status: str) -> int:
    return sum(each.bytes for each in usage.worktrees if each.status == status)


def _as_json(usage: Usage) -> dict[str, Any]:
    amounts = (
        "checkpoints",
        "files",
        "leases",
        "links",
        "refs",
        "run_files",
        "index",
        "private",
        "loose",
    )
    return {
        **{name: _amount(getattr(usage, name)) for name in amounts},
        "worktrees": [_worktree(each) for each in usage.worktrees],
        "leftovers": [
            {
                "kind": each.kind,
                "number": each.number,
                "bytes": each.bytes,
                "due": each.due,
                "due_bytes": each.due_bytes,
            }
            for each in usage.leftovers
        ],
        "bytes": usage.bytes,
        "complete": usage.is_complete,
    }


def _amount(amount: Amount) -> dict[str, int | None]:
    return {"number": amount.number, "bytes": amount.bytes}


def _worktree(each: WorktreeUse) -> dict[str, Any]:
    return {
        "path": each.path,
        "run": each.run,
        "status": each.status,
        "files": each.files,
        "bytes": each.bytes,
    }
