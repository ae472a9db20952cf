"""Verifies leases: each is one, and of a run that exists."""

from __future__ import annotations

from gitckpt.git.refs import Update
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.names import shell_word
from gitckpt.store.audit.inventory import Evidence
from gitckpt.store.audit.repairable import Flaw, lasting, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.lease import parse
from gitckpt.store.records import layout


def audit(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Returns what is wrong with leases. A run that somebody who is alive drives may be about to start."""
    runs = evidence.all_runs()
    flaws: list[Flaw] = []
    held = evidence.below(layout.LEASES)
    for (run, ref, oid), found in zip(held, store.objects.read([oid for _, _, oid in held]), strict=True):
        try:
            if found is None or found[0] != "blob":
                raise InvalidCheckpoint(ref, "", "does not point to a lease")
            lease = parse(found[1], ref)
        except InvalidCheckpoint as error:
            take_over = f"git ckpt resume {run} --take-over" if run in runs else f"git update-ref -d {shell_word(ref)}"
            cure = error.hint or f"if nobody drives the run: {take_over}"
            flaws.append(lasting("lease-invalid", ref, error.message.removeprefix(f"{ref}: "), cure))
            continue
        if lease.is_endless(store.clock()):
            sentence = f"it is good until {lease.expires}, and says that it was renewed at {lease.renewed}: no driver says so"
            flaws.append(lasting("lease-endless", ref, sentence, f"if nobody drives the run: git ckpt resume {run} --take-over"))
        if run not in runs and not store.leases.is_held(oid, lease):
            flaws.append(mendable("lease-orphan", ref, "its run does not exist", updates=(Update(ref, "", oid),)))
    return flaws
