"""`git ckpt expire`."""

from __future__ import annotations

import gc

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.remove import print_kept_worktrees
from gitckpt.cli.opening import open_store
from gitckpt.model import times
from gitckpt.model.errors import CkptError
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.store.retention.expiry import ExpireResult


@options.usage("""
--older-than AGE  Remove checkpoints older than AGE: 90s, 30m, 12h, 7d, 2w.
--keep-last N  Keep the N newest checkpoints.
--all  Consider every checkpoint and unfinished runs, not only those that hooks made.
-n, --dry-run  Print what would be removed, and why; remove nothing.
""")
def expire(
    older_than: str | None = None, all_: bool = False, dry_run: bool = False, **given: Any
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
        policy = replace(store.policy(), **given)
        if all_:
            policy = replace(policy, everything=True)
        if older_than is not None:
            policy = replace(policy, older_than=times.parse_age(older_than))
        gc.disable()  # it takes 1 s for 100,000 checkpoints, which have no cycles
        try:
            with terminal.waiting("deciding what expires"):
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
    terminal.out_rows(("WHAT", "ID", "PHASE", "WHY"), _rows(expired, dry_run=dry_run))
    terminal.remark(_summary(expired, "would expire" if dry_run else "expired"))
    for message, hint in {error.message: error.hint for _, error in expired.failed}.items():
        terminal.fail(CkptError(message, hint=hint))
    return 1 if expired.failed else 0


def _rows(result: ExpireResult, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    # A dry run shows all runs, else only those that are due.
    verb = "expires" if dry_run else "expired"
    runs = {fate.run for fate in result.runs}
    rows = []
    for fate in result.runs:
        if fate.is_due or dry_run:
            why = fate.reason
            if fate.expires:
                why += f"; {terminal.count(fate.checkpoints - len(fate.keeps), 'checkpoint')}"
                why += f", worktree {fate.path}" if fate.path else ""
            rows.append((verb if fate.expires else "stays", fate.run, fate.label, why))
    reasons = [
        (verb, entry, decision.reason)
        for entry, decision in result.checkpoints
        if entry.run not in runs or entry.id in result.squashed
    ]
    reasons += [("failed", entry, error.message) for entry, error in result.failed]
    return rows + [(what, terminal.short(each.id), each.label, why) for what, each, why in reasons]


def _summary(found: ExpireResult, verb: str) -> str:
    summary = f"{len(found.checkpoints)} of {terminal.count(found.total, 'checkpoint')} {verb}"
    if found.failed:
        summary += f", {len(found.failed)} failed"
    if found.runs:
        expiring = sum(fate.expires for fate in found.runs)
        summary += f"; {expiring} of {terminal.count(len(found.runs), 'run')}"
    return summary
