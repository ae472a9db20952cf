"""`git ckpt expire`."""

from __future__ import annotations

import gc

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.remove import print_kept_worktrees
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.retention.expiry import ExpireResult


@options.usage("""
--older-than AGE  Remove checkpoints older than AGE: 90s, 30m, 12h, 7d, 2w.
--keep-last N  Keep the N newest checkpoints.
--all  Consider every checkpoint and unfinished runs, not only those that hooks made.
-n, --dry-run  Print what would be removed, and why; remove nothing.
""")
def expire(
    older_than: str | None = None,
    keep_last: int | None = None,
    all_: bool = False,
    dry_run: bool = False,
) -> int:
    """Remove what the retention settings no longer keep.

    Removes what hooks recorded, once it is old, and complete runs with their worktrees. Of what
    hooks or agents recorded, one an hour stays after a day, and one a day after a week.

    A run is removed as a whole. It stays while its worktree has changes that no checkpoint has. To
    remove every checkpoint: --all --older-than 0s --keep-last 0.

    Prints what is removed with the reason; piped, in tab-separated columns with full ids. A dry run
    lists all runs. If something cannot be deleted, the rest is removed and the exit code is 1.
    """
    with open_store() as store:
        policy = store.policy()
        if all_:
            policy = replace(policy, everything=True)
        if older_than is not None:
            policy = replace(policy, older_than=times.parse_age(older_than))
        if keep_last is not None:
            policy = replace(policy, keep_last=keep_last)
        gc.disable()  # it takes 1 s for 100,000 checkpoints, which have no cycles
        try:
            with terminal.Waiting("deciding what expires"):
                expired = store.expire(policy, dry_run=dry_run, progress=terminal.progress)
        except KeyboardInterrupt:
            if not dry_run:
                terminal.progress("")
                terminal.warn("interrupted; run git ckpt expire again to finish")
            raise
        finally:
            gc.enable()
            if not dry_run:
                terminal.progress("")
        if not dry_run:
            print_kept_worktrees(store, {entry.id for entry, _ in expired.checkpoints})
    rows = _rows(expired, dry_run=dry_run)
    if not terminal.is_terminal():
        for row in rows:
            terminal.out_row(row)
    elif rows:
        shown = [
            (verb, id_[: ids.SHORT] if ids.is_id(id_) else id_, phase, why)
            for verb, id_, phase, why in rows
        ]
        terminal.table(("WHAT", "ID", "PHASE", "WHY"), shown)
    terminal.remark(_summary(expired, "would expire" if dry_run else "expired"))
    for message, hint in {error.message: error.hint for _, error in expired.failed}.items():
        terminal.fail(CkptError(message, hint=hint))
    return 1 if expired.failed else 0


def _rows(result: ExpireResult, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    # A dry run shows all runs, else only those that are due.
    gone = "expires" if dry_run else "expired"
    runs = {fate.run for fate in result.runs}
    rows = []
    for fate in result.runs:
        if fate.is_due or dry_run:
            with_it = f"; {terminal.count(fate.checkpoints - len(fate.keeps), 'checkpoint')}"
            with_it += f", worktree {fate.path}" if fate.path else ""
            why = fate.reason + (with_it if fate.expires else "")
            rows.append((gone if fate.expires else "stays", fate.run, fate.label, why))
    for entry, decision in result.checkpoints:
        if entry.run not in runs or entry.id in result.squashed:
            rows.append((gone, entry.id, entry.label, decision.reason))
    rows += [("failed", entry.id, entry.label, error.message) for entry, error in result.failed]
    return rows


def _summary(found: ExpireResult, verb: str) -> str:
    summary = f"{len(found.checkpoints)} of {terminal.count(found.total, 'checkpoint')} {verb}"
    if found.failed:
        summary += f", {len(found.failed)} failed"
    if found.runs:
        expiring = sum(fate.expires for fate in found.runs)
        summary += f"; {expiring} of {terminal.count(len(found.runs), 'run')}"
    return summary
