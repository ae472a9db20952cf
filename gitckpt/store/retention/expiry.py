"""Expiry: what the policy lets go is removed; the objects are git's to collect."""

from __future__ import annotations

import contextlib
from itertools import chain

from gitckpt.git.graph import reachability
from gitckpt.git.notes import Notes
from gitckpt.model import policy
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, SAFETY, SUBMODULE
from gitckpt.model.errors import BusyError, CkptError
from gitckpt.model.format import note
from gitckpt.model.policy import ALL, Candidate, Decision, Newest, Place, Policy
from gitckpt.model.values import dataclass, replace
from gitckpt.store import chains, notes, roster
from gitckpt.store.records import keys, layout
from gitckpt.store.records.entry import Entry, Query
from gitckpt.store.retention import runs as run_expiry
from gitckpt.store.retention import sweep, thinning, worktree
from gitckpt.store.retention.runs import Fate
from gitckpt.store.roster import Roster
from gitckpt.store.submodules import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from gitckpt.store.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class Expired:
    """What goes, or went.

    Attributes:
        checkpoints: those that go, each with the reason, newest first.
        runs: every run with what becomes of it, the one with the newest checkpoint first.
        squashed: the ids of checkpoints that go without their run, as they only tell of progress within a phase that is complete.
        total: how many checkpoints there were.
        failed: those that were to go, are still there and could not be deleted, each with the error, in the same order.
    """

    checkpoints: Sequence[tuple[Entry, Decision]]
    runs: Sequence[Fate]
    squashed: Collection[str]
    total: int
    failed: Sequence[tuple[Entry, CkptError]] = ()


def expire(
    store: Checkpoints,
    rules: Policy,
    *,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Expired:
    """Removes the checkpoints and runs that a policy lets go, and progress within phases that are complete; finishes what was interrupted.

    A run goes as a whole, with its worktree, its lease and its files, if a checkpoint holds all that is in the worktree; if not, it stays.
    Only what is old enough to go is looked at, however many others there are. A checkpoint that cannot be deleted, as somebody holds a lock
    of its ref, keeps no other: it is among those that failed.

    Args:
        rules: the policy.
        dry_run: whether to decide only.
        progress: is told what is being done, a few words at a time.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`, where no checkpoint is to blame; what was removed until then stays removed, the
            rest is whole.
    """
    if not dry_run:
        progress("clearing away what was interrupted")
        _finish(store)
    total, _ = store.index.sizes()
    failed: dict[str, CkptError] = {}
    alone = expire_alone(store, rules, dry_run=dry_run, progress=progress, failed=failed)
    runs, by_run = run_expiry.decide(store, rules)
    runs = run_expiry.foresee(store, runs) if dry_run else run_expiry.remove(store, by_run, runs, progress, settled=False)
    squashed = run_expiry.squashed(store, {fate.run for fate in runs if fate.expires})
    if not dry_run:
        if squashed:
            progress(f"removing {len(squashed)} checkpoints of phases that are complete")
            failed |= _remove_each(store, squashed.keys())
        for fate in runs:
            if fate.failure is not None:
                stay = (entry.id for entry in by_run[fate.run] if entry.id not in fate.keeps)
                failed |= {id_: fate.failure for id_ in stay if store.refs.read(layout.CHECKPOINTS + id_) is not None}
        progress("letting go of commits that no checkpoint needs")
        run_expiry.forget_leases(store)
        with contextlib.suppress(BusyError):  # the next one does it
            keys.forget_orphans(store.refs, store.objects, store.index.runs)
        chains.forget_others(store.repository, store.index.runs)
        with layout.turn(store.repository) as is_alone:
            if is_alone:  # a record in progress has its line before its refs
                roster.forget_others(store.repository, store.index.oids)
        with contextlib.suppress(BusyError):  # the next one does it
            store.remover().settle()
        keeper.sweep(store)
        for sentence in worktree.finish(store.repository):
            store.announce(sentence)
    done = [(entry, Decision(entry.id, expires=True, reason=f"phase {phase} is complete")) for entry, phase in squashed.values()]
    done += [
        (entry, Decision(entry.id, expires=True, reason=fate.reason))
        for fate in runs
        if fate.expires or fate.failure is not None
        for entry in by_run[fate.run]
        if entry.id not in fate.keeps
    ]
    due = sorted([*alone, *done], key=lambda pair: (pair[0].time, pair[0].sequence or 0, pair[0].id), reverse=True)
    gone = [pair for pair in due if pair[0].id not in failed]
    stuck = [(entry, failed[entry.id]) for entry, _ in due if entry.id in failed]
    return Expired(gone, runs, frozenset(squashed), total, stuck)


def _remove_each(store: Checkpoints, ids: Collection[str], **known: Any) -> dict[str, CkptError]:
    """Remove checkpoints; return the errors of those that cannot be deleted, by id, after all others are gone.

    Args:
        ids: of the checkpoints.
        known: what else is known, as for `Checkpoints.remove`.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`, where no checkpoint is to blame.
    """
    failed: dict[str, CkptError] = {}
    while left := set(ids).difference(failed):
        try:
            store.remove(left, settled=False, **known)
            break
        except CkptError as error:
            stuck = run_expiry.blamed(error, left)
            if not stuck:
                raise
            failed |= dict.fromkeys(stuck, error)
            known = {}  # what was listed may have changed
    # What keeps objects alive may be all that could not be deleted: the next removal does it.
    return {id_: error for id_, error in failed.items() if store.refs.read(layout.CHECKPOINTS + id_) is not None}


def _finish(store: Checkpoints) -> None:
    """Ends what removals have begun that were interrupted, and clears away what other processes have left that were killed."""
    with contextlib.suppress(BusyError):  # the next one does it
        sweep.sweep(store.repository, store.refs, store.announce)  # first: what is left over may stand in the way of a ref that is needed
        store.remover().finish()
    sweep.sweep_files(store.repository)


def expire_alone(
    store: Checkpoints,
    rules: Policy,
    *,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    failed: dict[str, CkptError] | None = None,
) -> list[tuple[Entry, Decision]]:
    """Removes the checkpoints outside of runs that a policy lets go: `expire` looks after the others.

    Args:
        rules: the policy.
        dry_run: whether to decide only.
        progress: as for `expire`.
        failed: takes in what goes and cannot be deleted, by id.

    Returns:
        Those that go, and why, newest first.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`.
    """
    if not dry_run:
        with contextlib.suppress(BusyError):  # they go on waiting
            store.write_links()
    now = store.clock()
    entries, newest = _due(store, rules, now)
    tagged = _tagged(store) if entries else set()
    candidates = [_candidate(entry, tagged) for entry in entries]
    decisions = policy.apply(candidates, rules, newest, now=now)
    doubtful = [entry for entry, decision in zip(entries, decisions, strict=True) if not decision.expires]
    least = min(rules.rewritten_older_than, rules.older_than)
    rewritten = _rewritten(store, [entry for entry in doubtful if now - entry.time >= least])
    if rewritten:
        candidates = [replace(each, rewritten=True) if each.id in rewritten else each for each in candidates]
        decisions = policy.apply(candidates, rules, newest, now=now)
    staying = [each for each, decision in zip(candidates, decisions, strict=True) if not decision.expires]
    thin = thinning.decide(store, {entry.id: entry for entry in entries}, staying, rules, newest)
    decided = [(entry, thin.get(entry.id, decision)) for entry, decision in zip(entries, decisions, strict=True)]
    gone = [(entry, decision) for entry, decision in decided if decision.expires]
    if gone and not dry_run:
        progress(f"removing {len(gone)} checkpoints")
        listed = {entry.id: entry for entry, _ in gone}
        stuck = _remove_each(store, listed.keys(), runs=(), listed=listed)
        if failed is not None:
            failed |= stuck
    return gone


def _due(store: Checkpoints, rules: Policy, now: int) -> tuple[list[Entry], Newest]:
    """Returns the checkpoints outside of runs that are old enough to go, newest first, and which stay among the newest.

    Among the newest only those take places that were written here, where that is known: what was fetched, with dates years ahead, would
    let all of ours go. While there are too few of ours for all places, they stay, and the newest of all do as well.
    """
    own = Roster.read(store.repository).ids_as_written(store.index.oids())
    if rules.everything:
        entries = list(store.list(Query(in_run=False)))
        others = [entry for entry in entries if entry.trigger not in (SAFETY, SUBMODULE)]
        safeties = [entry for entry in entries if entry.trigger == SAFETY]
        oldest = _oldest(others, own, rules.keep_last)
        return entries, Newest(oldest, oldest, _oldest(safeties, own, rules.safeties))
    hooks, agents, safety = Query(triggers=HOOK_TRIGGERS), Query(triggers=[MANUAL], by_agent=True), Query(triggers=[SAFETY])
    ours = Query(ids=sorted(own))  # of the others none is thinned, however many there are
    found: dict[str, Entry] = {}
    for query, age in (
        (hooks, min(rules.older_than, rules.rewritten_older_than)),
        (safety, rules.safety_older_than),
        (ours, min(rules.hourly_after, rules.daily_after)),
    ):
        found |= {entry.id: entry for entry in store.list(replace(query, in_run=False, until=max(now - age, 0)))}
    first = [_oldest_of(store, kind, ours, rules.keep_last) for kind in (hooks, agents)]
    # The later place: so many of one kind are as new, and of both together no fewer.
    together = max(place for place in first if place is not None) if rules.keep_last else None
    entries = sorted(found.values(), key=_place, reverse=True)
    return entries, Newest(first[0], together, _oldest_of(store, safety, ours, rules.safeties))


def _oldest_of(store: Checkpoints, kind: Query, ours: Query, count: int) -> Place | None:
    """Returns the place of the oldest of so many of the newest; None for no one, and the place before all where there are fewer."""
    if count == 0:
        return None
    each = replace(kind, in_run=False)
    last = replace(each, skip=count - 1, limit=1)
    if ours.ids and (found := store.list(replace(last, ids=ours.ids))):
        return _place(found[0])
    found = store.list(last)
    own = store.list(replace(each, ids=ours.ids)) if ours.ids and found else ()
    return min(_place(entry) for entry in (*found, *own[-1:])) if found else ALL


def _oldest(entries: Sequence[Entry], own: Collection[str], count: int) -> Place | None:
    """Returns the same of some, newest first."""
    if count == 0:
        return None
    ours = [entry for entry in entries if entry.id in own]
    if len(ours) >= count:
        return _place(ours[count - 1])
    return min(_place(entry) for entry in (entries[count - 1], *ours[-1:])) if len(entries) >= count else ALL


def _place(entry: Entry) -> Place:
    return entry.time, entry.id


def _candidate(entry: Entry, tagged: Collection[str]) -> Candidate:
    return Candidate(
        id=entry.id,
        time=entry.time,
        trigger=entry.trigger,
        run=entry.run,
        rewritten=False,
        line=entry.branch,
        agent=entry.agent is not None,
        tagged=bool(tagged) and (entry.oid in tagged or entry.git_sha in tagged),
    )


def _tagged(store: Checkpoints) -> set[str]:
    """Returns what tags point to, and what the tagged commit is of those that are objects."""
    return set(store.refs.list("refs/tags", fields="%(objectname) %(*objectname)").decode("ascii").split())


def _rewritten(store: Checkpoints, entries: Sequence[Entry]) -> set[str]:
    """Returns the ids of checkpoints by hooks whose commit was rewritten: no branch leads to it, and the note of another one lists them."""
    mine = {entry.id: entry.git_sha for entry in entries if entry.trigger in HOOK_TRIGGERS and entry.git_sha}
    mine = _elsewhere(store, mine) if mine else {}
    there = set(store.repository.cat_file.known(sorted(set(mine.values()))))
    tips = thinning.heads(store) if there else set()
    outside = reachability.outside(store.repository.git, there - tips, tips)
    return {checkpoint for checkpoint, commit in mine.items() if commit in outside or commit not in there}


def _elsewhere(store: Checkpoints, commits: Mapping[str, str]) -> dict[str, str]:
    """Returns those of some checkpoints, each with its commit, of whose commit a line has been carried to another one."""
    waiting = notes.waiting(store.repository)
    written = Notes(store.repository, store.objects, layout.NOTES).each()
    carried: set[str] = set()
    for commit, lines in chain(waiting.items(), written):
        carried.update(commits.get(name, commit) for name in map(note.link_id, lines or ()) if commits.get(name, commit) != commit)
    return {checkpoint: commit for checkpoint, commit in commits.items() if commit in carried}
