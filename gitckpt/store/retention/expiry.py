"""Expiry: what the policy lets go is removed; the objects are git's to collect."""

from __future__ import annotations

import contextlib
import os
import time
from itertools import chain

from gitckpt.git import graph
from gitckpt.git.files import atomic, premises
from gitckpt.git.notes import Notes
from gitckpt.git.objects.diff import Expansion, differences
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.git.repository import Repository
from gitckpt.model import budget, note, policy, times
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, SAFETY, SUBMODULE
from gitckpt.model.errors import BusyError, CkptError, UsageError, WorktreeError
from gitckpt.model.policy import ALL, DAY, HOUR, Candidate, Decision, Newest, Place, Policy
from gitckpt.model.values import dataclass, replace
from gitckpt.store import notes, roster, submodules
from gitckpt.store.records import keys, layout
from gitckpt.store.records.entry import Entry, Query
from gitckpt.store.retention import runs, sweep, worktree
from gitckpt.store.retention import runs as run_expiry
from gitckpt.store.retention.runs import Fate
from gitckpt.store.roster import Roster
from gitckpt.store.runs import summary
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from gitckpt.store.checkpoints import Checkpoints


# Whether the clock can be gone by where things expire that nobody asked to go.


_FILE = "clock"
"""In the private directory: since when the clock has gone on without a gap, and when it was looked at last, in microseconds since the
epoch; the start of the machine that this was in, and how long after it. Where the file is missing, there was no gap."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_GAP, _PROOF = 30 * DAY, DAY
_HALTED = DAY
"""So far a clock may have gone ahead of the other one: a virtual machine that is halted each night stops that, and has its clock set each
morning. By a clock that is ahead no more than this, things go a day too early."""


def doubt(repository: Repository, now: int) -> str | None:
    """Takes note of what time it is, and returns why nothing should expire by it, one clause; None where that is as good as any.

    Args:
        now: by the clock, in microseconds since the epoch.
    """
    since, last, *then = _read(repository) or (0, now)
    beside = _running() if abs(now - times.now()) < HOUR else []  # it is of the clock of this machine, and of no other one
    gap = now - last
    is_same_start = bool(beside) and then[:1] == beside[:1]
    ahead, most = (gap - (beside[1] - then[1]), _HALTED) if is_same_start else (gap, _GAP)
    is_right = -HOUR <= ahead <= most
    if not is_right:
        since = now
    with contextlib.suppress(OSError):  # on a full disk, what is older says as much
        path = os.path.join(repository.make_private_dir(), _FILE)
        line = " ".join(map(str, (since, now, *beside)))
        atomic.write_own(path, f"{line}\n".encode("ascii"), flushed=False, opener=premises.create)
    if now - since >= _PROOF:
        return None
    return "the clock was set, or nobody has used this repository for a month: nothing expires unasked until it has gone on for a day"


def _running() -> list[int]:
    """Returns a number for this start of the machine, and for how long it has run, in microseconds; nothing where that cannot be told."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return []
    try:
        with open(_BOOT, "rb") as file:
            start = int(file.read(64).replace(b"-", b""), 16)
    except (OSError, ValueError):
        return []
    return [start, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000]


def _read(repository: Repository) -> list[int] | None:
    """Returns two numbers, or four."""
    try:
        with open(os.path.join(repository.private_dir, _FILE), "rb", opener=premises.create) as file:
            found = [int(word) for word in file.read(256).split()]
    except (OSError, ValueError):
        return None
    return found if len(found) in (2, 4) else None


# Thinning: of what hooks and agents made, one checkpoint an hour stays, then one a day, where it has what the others have.


_HOLDERS = ("refs/heads", "refs/tags", "refs/remotes")


def decide(
    store: Checkpoints, entries: Mapping[str, Entry], staying: Sequence[Candidate], rules: Policy, newest: Newest
) -> dict[str, Decision]:
    """Returns the decisions on those that are thinned away, by id.

    Args:
        entries: the checkpoints, by id.
        staying: those of them that do not expire, newest first.
        rules: the policy.
        newest: which stay as they are among the newest.
    """
    now = store.clock()
    mine = Roster.read(store.repository)
    spans = policy.spans([each for each in staying if mine.is_ours(entries[each.id])], rules, newest, now=now)
    if not spans:
        return {}
    used = runs.named(store) | ownership.checkpoints(store.repository)
    held = _Holdings(store, [entries[each.id] for span in spans for each in span.due], [entries[span.newest.id] for span in spans])
    found: dict[str, Decision] = {}
    for span in spans:
        first = nearest = entries[span.newest.id]
        for each in span.due:
            entry = entries[each.id]
            if each.id not in used and (held.has(nearest, entry) or (nearest is not first and held.has(first, entry))):
                found[each.id] = policy.thinned(each, span, now=now)
            else:
                nearest = entry
    return found


def heads(store: Checkpoints) -> set[str]:
    """Returns what branches, tags and remote-tracking branches point to, as far as it is there."""
    found = set(store.refs.list(*_HOLDERS, fields="%(objectname)").decode("ascii").split())
    return set(store.repository.cat_file.known(sorted(found)))


class _Holdings:
    """Tells what checkpoints hold that later ones have, too.

    Args:
        due: those that may go.
        newest: those that stay in any case.
    """

    def __init__(self, store: Checkpoints, due: Sequence[Entry], newest: Sequence[Entry]) -> None:
        self._repository = store.repository
        self._expansion = Expansion(store.repository, budget.SNAPSHOT)
        commits = {entry.git_sha for entry in due if entry.git_sha}
        self._there = set(store.repository.cat_file.known(sorted(commits)))
        stay = set(store.repository.cat_file.known(sorted({entry.git_sha for entry in newest if entry.git_sha})))
        self._outside = graph.outside(store.repository.git, self._there, heads(store) | stay) if self._there else set()

    def has(self, later: Entry, entry: Entry) -> bool:
        """Tells whether a later checkpoint, or a commit that stays, has what one has. What cannot be read is nowhere else."""
        if entry.git_sha and entry.git_sha not in self._there:
            return False
        is_reached = entry.git_sha not in self._outside
        if entry.trigger in HOOK_TRIGGERS:
            return is_reached and entry.tree in (None, later.tree)
        if entry.operation is not None and entry.operation != later.operation:
            return False
        if not _submodules(entry) <= _submodules(later):
            return False
        try:
            return self._has_paths(later, entry, is_reached=is_reached)
        except CkptError:
            return False

    def _has_paths(self, later: Entry, entry: Entry, *, is_reached: bool) -> bool:
        files, after, committed = self._files(entry), self._files(later), self._tree(entry.git_sha)
        if files is None or after is None or committed is None:
            return False
        base = committed if is_reached else self._tree("")
        if (
            base is None
            or any(self._expansion.is_beyond(each, files) for each in (base, committed))
            or self._expansion.is_beyond(files, after)
        ):
            return False
        before = {one.path: (one.old_mode, one.old) for one in differences(self._repository, committed, files)}
        changed = {one.path: one for one in differences(self._repository, files, after)}
        for own in differences(self._repository, base, files):
            then = changed.get(own.path)
            if own.status == "D" or then is None:
                continue
            is_gone = then.status == "D" or (then.new_mode, then.new) == before.get(own.path)
            if is_gone or entry.branch is None:  # of two worktrees without a branch, nobody can tell whose version that is
                return False
        return True

    def _files(self, entry: Entry) -> str | None:
        """Returns the tree of the files of a checkpoint; None where it is missing."""
        if entry.tree is None:
            return self._tree(entry.git_sha)
        found = self._repository.cat_file.info(f"{entry.tree}:files")
        return found[0] if found is not None else None

    def _tree(self, commit: str) -> str | None:
        if not commit:
            return empty_tree(self._repository.object_format)
        found = self._repository.cat_file.info(f"{commit}^{{tree}}")
        return found[0] if found is not None else None


def _submodules(entry: Entry) -> set[str]:
    return {one.partition(" ")[2] for one in entry.submodules.split("\0")[:-1]}


# Removal of one run by name: as a whole, as expiry does it, or not at all.


def remove(store: Checkpoints, run: str) -> int:
    """As `Store.remove_run`."""
    known = summary.summary_of(store, run)
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
    roster.forget_others_chains(store.repository, store.index.runs)
    return len(entries)


def _stays(fate: Fate) -> CkptError:
    """Returns the error for a run that stays, with what would let it go."""
    again = f"git ckpt remove {fate.run}"
    if fate.path is not None and worktree.HOLDS in fate.reason:
        hint = f"save that, or take it out: git -C {shell_word(fate.path)} ckpt save; then again: {again}"
    else:
        hint = f"once that is settled: {again}"
    return WorktreeError(f"run {fate.run} stays: {fate.reason}", hint=hint)


# Expiry: what the policy lets go is removed; the objects are git's to collect.


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
        roster.forget_others_chains(store.repository, store.index.runs)
        with layout.turn(store.repository) as is_alone:
            if is_alone:  # a record in progress has its line before its refs
                roster.forget_others(store.repository, store.index.oids)
        with contextlib.suppress(BusyError):  # the next one does it
            store.remover().settle()
        submodules.sweep(store)
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
    thin = decide(store, {entry.id: entry for entry in entries}, staying, rules, newest)
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
    tips = heads(store) if there else set()
    outside = graph.outside(store.repository.git, there - tips, tips)
    return {checkpoint for checkpoint, commit in mine.items() if commit in outside or commit not in there}


def _elsewhere(store: Checkpoints, commits: Mapping[str, str]) -> dict[str, str]:
    """Returns those of some checkpoints, each with its commit, of whose commit a line has been carried to another one."""
    waiting = notes.waiting(store.repository)
    written = Notes(store.repository, store.objects, layout.NOTES).each()
    carried: set[str] = set()
    for commit, lines in chain(waiting.items(), written):
        carried.update(commits.get(name, commit) for name in map(note.link_id, lines or ()) if commits.get(name, commit) != commit)
    return {checkpoint: commit for checkpoint, commit in commits.items() if commit in carried}
