"""Expiry: what the policy lets go is removed; the objects are git's to collect."""

from __future__ import annotations

import contextlib

from gitckpt.git.notes import Notes
from gitckpt.model import policy
from gitckpt.model.errors import BusyError
from gitckpt.model.format import note
from gitckpt.model.policy import Candidate, Decision, Policy
from gitckpt.model.values import dataclass
from gitckpt.store import chains, links, provenance
from gitckpt.store.records import keys, layout
from gitckpt.store.records.entry import Entry
from gitckpt.store.retention import runs as run_expiry
from gitckpt.store.retention import sweep, thinning, worktree
from gitckpt.store.retention.runs import Fate
from gitckpt.store.submodules import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gitckpt.store.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class Expired:
    """What became of everything.

    Attributes:
        checkpoints: every checkpoint with what became of it and why, newest first.
        runs: the same for every run, the one with the newest checkpoint first.
        squashed: the ids of checkpoints that go without their run, as they only tell of progress within a phase that is complete.
    """

    checkpoints: Sequence[tuple[Entry, Decision]]
    runs: Sequence[Fate]
    squashed: Collection[str]


def expire(store: Checkpoints, rules: Policy, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None) -> Expired:
    """Removes the checkpoints and runs that a policy lets go, and progress within phases that are complete; finishes what was interrupted.

    A run goes as a whole, with its worktree, its lease and its files, if a checkpoint holds all that is in the worktree; if not, it stays.

    Args:
        store: of the repository.
        rules: the policy.
        dry_run: whether to decide only.
        progress: is told what is being done, a few words at a time.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`; what was removed until then stays removed, the rest is whole.
        WorktreeError: what an interrupted removal has left of a worktree cannot be deleted.
    """
    if not dry_run:
        progress("clearing away what was interrupted")
        _finish(store)
    alone, noted = expire_alone(store, rules, dry_run=dry_run, progress=progress)
    entries = [entry for entry, _ in alone]
    runs = run_expiry.decide(store, entries, rules)
    runs = run_expiry.foresee(store, runs) if dry_run else run_expiry.remove(store, entries, runs, progress, settled=False, noted=noted)
    squashed = run_expiry.squashed(store, entries, {fate.run for fate in runs if fate.expires})
    if not dry_run:
        if squashed:
            progress(f"removing {len(squashed)} checkpoints of phases that are complete")
            store.remove(squashed.keys(), settled=False, noted=noted)
        progress("letting go of commits that no checkpoint needs")
        run_expiry.forget_leases(store)
        keys.forget_orphans(store.refs, store.objects, store.index.runs)
        chains.forget_others(store.repository, store.index.runs)
        provenance.forget_others(store.repository, {entry.id for entry, decision in alone if entry.run is None and not decision.expires})
        with contextlib.suppress(BusyError):  # the next one does it
            store.settle()
        keeper.sweep(store)
        worktree.finish(store.repository)  # last: what cannot be deleted is an error, and no reason to keep anything else
    whole = {fate.run: fate for fate in runs}
    decided = []
    for entry, decision in alone:
        fate = whole.get(entry.run or "")
        if entry.id in squashed:
            reason = f"phase {squashed[entry.id]} is complete"
            decided.append((entry, Decision(entry.id, expires=True, reason=reason)))
        elif fate is not None:
            decided.append((entry, Decision(entry.id, expires=fate.expires and entry.id not in fate.keeps, reason=fate.reason)))
        else:
            decided.append((entry, decision))
    return Expired(decided, runs, squashed.keys())


def _finish(store: Checkpoints) -> None:
    """Ends what removals have begun that were interrupted, and clears away what other processes have left that were killed."""
    with contextlib.suppress(BusyError):  # the next one does it
        sweep.sweep(store.repository, store.refs)  # first: what is left over may stand in the way of a ref that is needed
        store.finish()
    sweep.sweep_files(store.repository)


def expire_alone(
    store: Checkpoints, rules: Policy, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None
) -> tuple[list[tuple[Entry, Decision]], Mapping[str, Sequence[str]]]:
    """Removes the checkpoints outside of runs that a policy lets go: `expire` looks after the others.

    Args:
        store: of the repository.
        rules: the policy.
        dry_run: whether to decide only.
        progress: as for `expire`.

    Returns:
        Every checkpoint with what became of it and why, newest first; and the lines of every note, as they were before.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`.
    """
    entries = list(store.list())
    if not dry_run:
        with contextlib.suppress(BusyError):  # they go on waiting
            store.write_links()
    waiting = links.waiting(store.repository)
    notes = Notes(store.repository, store.objects, layout.NOTES)
    noted = notes.everything(note.link_line(entry.id, entry.phase, entry.timestamp) for entry in entries if entry.git_sha)
    rewritten = _rewritten(entries, noted, waiting)
    tagged = _tagged(store)
    candidates = [
        Candidate(
            id=entry.id,
            time=entry.time,
            trigger=entry.trigger,
            run=entry.run,
            rewritten=entry.id in rewritten,
            line=entry.branch,
            agent=entry.agent is not None,
            tagged=bool(tagged) and (entry.oid in tagged or entry.git_sha in tagged),
        )
        for entry in entries
    ]
    decisions = policy.apply(candidates, rules, now=store.clock())
    staying = [each for each, decision in zip(candidates, decisions, strict=True) if not decision.expires]
    thin = thinning.decide(store, {entry.id: entry for entry in entries}, staying, rules)
    decisions = [thin.get(decision.id, decision) for decision in decisions]
    gone = {entry.id: entry.oid for entry, decision in zip(entries, decisions, strict=True) if decision.expires}
    if gone and not dry_run:
        progress(f"removing {len(gone)} of {len(entries)} checkpoints")
        store.remove(gone.keys(), notes=notes, noted=noted, runs=(), oids=gone, settled=False)
    return list(zip(entries, decisions, strict=True)), noted


def _tagged(store: Checkpoints) -> set[str]:
    """Returns what tags point to, and what the tagged commit is of those that are objects."""
    return set(store.refs.list("refs/tags", fields="%(objectname) %(*objectname)").decode("ascii").split())


def _rewritten(entries: Sequence[Entry], *noted: Mapping[str, Sequence[str]]) -> set[str]:
    """Returns the ids of checkpoints that belong to another commit by what is noted: their own was rewritten."""
    commits = {entry.id: entry.git_sha for entry in entries}
    listed = [(note.link_id(line), commit) for notes in noted for commit, lines in notes.items() for line in lines]
    found = {checkpoint for checkpoint, commit in listed if commits.get(checkpoint, commit) != commit}
    crowded = [(commit, lines) for notes in noted for commit, lines in notes.items() if note.is_crowded(lines)]
    left: set[str] = set()  # commits of which the notes of others have not every checkpoint
    for commit, lines in crowded:
        left |= note.commits(lines, (commits.get(note.link_id(line), "") for line in lines)) - {commit}
    return found | {entry.id for entry in entries if entry.git_sha in left}
