"""Verifies keys: each is one, and names a run that exists."""

from __future__ import annotations

from gitckpt.git.refs import Update
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.store.audit.inventory import Evidence
from gitckpt.store.audit.repairable import Flaw, lasting, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import keys, layout
from gitckpt.store.records.keep import is_young


def audit(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Returns what is wrong with keys."""
    runs = evidence.all_runs()
    flaws: list[Flaw] = []
    held = evidence.below(layout.KEYS)
    for (_, ref, oid), found in zip(held, store.objects.read([oid for _, _, oid in held]), strict=True):
        try:
            run = keys.run_in(found, ref)
        except InvalidCheckpoint as error:
            flaws.append(lasting("key-invalid", ref, error.message.removeprefix(f"{ref}: "), error.hint))
            continue
        if run not in runs and not is_young(store.repository, ref):
            updates = (Update(layout.RUNS + run, "", ""), Update(ref, "", oid))
            flaws.append(mendable("key-orphan", ref, f"its run {run} does not exist", updates=updates, is_leftover=True))
    return flaws
