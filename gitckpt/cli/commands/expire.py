"""`git ckpt expire`."""

from __future__ import annotations

import gc

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.remove import tell_what_stays
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from gitckpt.store.retention.expiry import ExpireResult


def expire(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="What is older goes: 90s, 30m, 12h, 7d, 2w."
        ),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(
            "--keep-last", metavar="N", parser=options.count, help="So many of the newest stay."
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all", help="Not only those made by hooks: every checkpoint, and unfinished runs too."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only print what would go, and why.")
    ] = False,
) -> int:
    """Remove checkpoints by policy: those made by hooks, once they are old; and runs that are complete, with their worktrees.

    Of those that hooks made or agents saved, one an hour stays after a day, and one a day after a week, if it has what the others have.

    A run goes as a whole, and stays where its worktree holds what no checkpoint does. To remove every checkpoint there is, say so:
    --all --older-than 0s --keep-last 0.

    What goes is printed with the reason: in a table, or piped, in tab-separated columns with full ids. A dry run has all runs.

    What cannot be deleted is printed as failed, the others go all the same, and the exit code is 1.
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
                terminal.warn(
                    "interrupted; what was begun is finished by the next: git ckpt expire; the rest goes with the same command"
                )
            raise
        finally:
            gc.enable()
            if not dry_run:
                terminal.progress("")
        if not dry_run:
            tell_what_stays(store, {entry.id for entry, _ in expired.checkpoints})
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
    return 0


def _rows(found: ExpireResult, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    # A dry run shows all runs, else only those that are due.
    gone = "expires" if dry_run else "expired"
    runs = {fate.run for fate in found.runs}
    rows = []
    for fate in found.runs:
        if fate.is_due or dry_run:
            with_it = f"; {terminal.count(fate.checkpoints - len(fate.keeps), 'checkpoint')}"
            with_it += f", worktree {fate.path}" if fate.path else ""
            why = fate.reason + (with_it if fate.expires else "")
            rows.append((gone if fate.expires else "stays", fate.run, fate.label, why))
    for entry, decision in found.checkpoints:
        if entry.run not in runs or entry.id in found.squashed:
            rows.append((gone, entry.id, entry.label, decision.reason))
    return rows


def _summary(found: ExpireResult, verb: str) -> str:
    summary = f"{len(found.checkpoints)} of {terminal.count(found.total, 'checkpoint')} {verb}"
    if found.runs:
        summary += f"; {sum(fate.expires for fate in found.runs)} of {terminal.count(len(found.runs), 'run')}"
    return summary
