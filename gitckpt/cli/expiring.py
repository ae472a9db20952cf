"""`git ckpt expire`."""

from __future__ import annotations

import dataclasses

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def expire(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="What is older goes: 90s, 30m, 12h, 7d, 2w.")
    ] = None,
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", metavar="N", parser=options.count, help="So many of the newest stay.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Not only those made by hooks: every checkpoint, of unfinished runs too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only print what would become of each, and why.")] = False,
) -> None:
    """Remove checkpoints by policy: those made by hooks, once they are old.

    To remove every checkpoint there is, say so: --all --older-than 0s --keep-last 0.

    Each is printed with the reason: in a table, or piped, in tab-separated columns with full ids.
    """
    from gitckpt.store import maintenance, settings

    with open_store() as store:
        policy = settings.read(store.repository).policy
        if all_:
            policy = dataclasses.replace(policy, everything=True)
        if older_than is not None:
            policy = dataclasses.replace(policy, older_than=times.parse_age(older_than))
        if keep_last is not None:
            policy = dataclasses.replace(policy, keep_last=keep_last)
        decided = store.expire(policy, dry_run=dry_run)
        if not dry_run:
            maintenance.pack(store.repository)
    gone = [(entry, decision) for entry, decision in decided if decision.expires]
    rows = []
    for entry, decision in decided if dry_run else gone:
        verb = ("expires" if dry_run else "expired") if decision.expires else "stays"
        rows.append((verb, entry.id, terminal.harmless(entry.phase), decision.reason))
    if not terminal.is_terminal():
        for row in rows:
            terminal.out("\t".join(row))
    elif rows:
        terminal.table(("WHAT", "ID", "PHASE", "WHY"), [(verb, id_[: ids.SHORT], phase, why) for verb, id_, phase, why in rows])
    noun = "checkpoint" if len(decided) == 1 else "checkpoints"
    terminal.remark(f"{len(gone)} of {len(decided)} {noun} {'would expire' if dry_run else 'expired'}")
