"""Removal of one run by name: as a whole, as expiry does it, or not at all."""

from __future__ import annotations

from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.names import shell_word
from gitckpt.store import chains
from gitckpt.store.records import keys
from gitckpt.store.retention import runs, worktree
from gitckpt.store.retention.runs import Fate
from gitckpt.store.runs import summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints


def remove(store: Checkpoints, run: str) -> int:
    """As `Store.remove_run`."""
    known = summary.summary(store, run)
    found = store.leases.read(run)
    if found is not None and store.leases.is_held(*found):
        raise store.leases.refusal(*found)
    other = runs.needed_by(store, run)
    if other is not None:
        raise UsageError(
            f"run {run} stays: the unfinished run {other} refers to it", hint=f"remove that one first: git ckpt remove {other}"
        )
    by_run = runs.chains_of(store, [run])
    entries = by_run[run]
    wanted = Fate(run, known.label, len(entries), known.path, is_due=True, expires=True, reason="it was named")
    (fate,) = runs.remove(store, by_run, [wanted])
    if not fate.expires:
        raise fate.failure or _stays(fate)
    keys.forget_orphans(store.refs, store.objects, store.index.runs)
    chains.forget_others(store.repository, store.index.runs)
    return len(entries)


def _stays(fate: Fate) -> CkptError:
    """Returns the error for a run that stays, with what would let it go."""
    again = f"git ckpt remove {fate.run}"
    if fate.path is not None and worktree.HOLDS in fate.reason:
        hint = f"save that, or take it out: git -C {shell_word(fate.path)} ckpt save; then again: {again}"
    else:
        hint = f"once that is settled: {again}"
    return WorktreeError(f"run {fate.run} stays: {fate.reason}", hint=hint)
