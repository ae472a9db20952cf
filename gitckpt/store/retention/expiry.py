"""Remove checkpoints and runs by policy; git collects their objects."""

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

# Clock check: whether background expiry can trust the system clock.

# File in the private directory, times in microseconds: start of gapless use and last check (since
# the epoch), then boot id and uptime at that check if known. A missing file means no gap.
_FILE = "clock"

_BOOT = "/proc/sys/kernel/random/boot_id"
_GAP, _PROOF = 30 * DAY, DAY
# How far the wall clock may run ahead of the uptime: the clock of a virtual machine that is
# halted each night jumps every morning. A clock ahead by less expires things at most a day too
# early.
_HALTED = DAY


def doubt(repository: Repository, now: int) -> str | None:
    """Record the time (µs since the epoch); return why it is not trusted, or None."""
    since, last, *then = _read(repository) or (0, now)
    # The uptime says something about `now` only if `now` comes from this machine's clock.
    beside = _running() if abs(now - times.now()) < HOUR else []
    gap = now - last
    is_same_start = bool(beside) and then[:1] == beside[:1]
    ahead, most = (gap - (beside[1] - then[1]), _HALTED) if is_same_start else (gap, _GAP)
    is_right = -HOUR <= ahead <= most
    if not is_right:
        since = now
    with contextlib.suppress(OSError):  # on a full disk, the older file does as well
        path = os.path.join(repository.make_private_dir(), _FILE)
        line = " ".join(map(str, (since, now, *beside)))
        atomic.write_own(path, f"{line}\n".encode("ascii"), flushed=False, opener=premises.create)
    if now - since >= _PROOF:
        return None
    return "the clock was set, or nobody has used this repository for a month: nothing expires unasked until it has gone on for a day"


def _running() -> list[int]:
    """Return a number for this boot and the uptime in microseconds; [] if unknown."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return []
    try:
        with open(_BOOT, "rb") as file:
            start = int(file.read(64).replace(b"-", b""), 16)
    except (OSError, ValueError):
        return []
    return [start, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000]


def _read(repository: Repository) -> list[int] | None:
    try:
        with open(os.path.join(repository.private_dir, _FILE), "rb", opener=premises.create) as file:
            found = [int(word) for word in file.read(256).split()]
    except (OSError, ValueError):
        return None
    return found if len(found) in (2, 4) else None


# Thinning: checkpoints by hooks and agents are reduced to one per hour, later to one per day,
# where the remaining one has what the others have.

_HOLDERS = ("refs/heads", "refs/tags", "refs/remotes")


def decide(
    store: Checkpoints, entries: Mapping[str, Entry], staying: Sequence[Candidate], rules: Policy, newest: Newest
) -> dict[str, Decision]:
    """Return the decisions to thin checkpoints out, by id.

    Args:
        staying: checkpoints that do not expire otherwise, newest first.
        newest: from which place on checkpoints are protected as the newest.
    """
    now = store.clock()
    mine = Roster.read(store.repository)
    spans = policy.spans([each for each in staying if mine.is_ours(entries[each.id])], rules, newest, now=now)
    if not spans:
        return {}
    used = runs.named(store) | ownership.checkpoints(store.repository)
    held = _Holdings(store, [entries[each.id] for span in spans for each in span.due], [entries[span.newest.id] for span in spans])
    decisions: dict[str, Decision] = {}
    for span in spans:
        first = nearest = entries[span.newest.id]
        for each in span.due:
            entry = entries[each.id]
            if each.id not in used and (held.has(nearest, entry) or (nearest is not first and held.has(first, entry))):
                decisions[each.id] = policy.thinned(each, span, now=now)
            else:
                nearest = entry
    return decisions


def heads(store: Checkpoints) -> set[str]:
    oids = set(store.refs.list(*_HOLDERS, fields="%(objectname)").decode("ascii").split())
    return set(store.repository.cat_file.known(sorted(oids)))


class _Holdings:
    """Check whether later checkpoints contain what the ones due for thinning contain."""

    def __init__(self, store: Checkpoints, due: Sequence[Entry], newest: Sequence[Entry]) -> None:
        self._repository = store.repository
        self._expansion = Expansion(store.repository, budget.SNAPSHOT)
        commits = {entry.git_sha for entry in due if entry.git_sha}
        self._there = set(store.repository.cat_file.known(sorted(commits)))
        stay = set(store.repository.cat_file.known(sorted({entry.git_sha for entry in newest if entry.git_sha})))
        self._outside = graph.outside(store.repository.git, self._there, heads(store) | stay) if self._there else set()

    def has(self, later: Entry, entry: Entry) -> bool:
        """Return whether a later checkpoint, or a commit that stays, has all of `entry`."""
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
        except CkptError:  # unreadable contents count as missing
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
        for difference in differences(self._repository, base, files):
            change = changed.get(difference.path)
            if difference.status == "D" or change is None:
                continue
            is_gone = change.status == "D" or (change.new_mode, change.new) == before.get(difference.path)
            # Without a branch, the version could come from another worktree.
            if is_gone or entry.branch is None:
                return False
        return True

    def _files(self, entry: Entry) -> str | None:
        if entry.tree is None:
            return self._tree(entry.git_sha)
        info = self._repository.cat_file.info(f"{entry.tree}:files")
        return info[0] if info is not None else None

    def _tree(self, commit: str) -> str | None:
        if not commit:
            return empty_tree(self._repository.object_format)
        info = self._repository.cat_file.info(f"{commit}^{{tree}}")
        return info[0] if info is not None else None


def _submodules(entry: Entry) -> set[str]:
    return {one.partition(" ")[2] for one in entry.submodules.split("\0")[:-1]}


# Removal of one run by name: the whole run, or nothing.


def remove(store: Checkpoints, run: str) -> int:
    info = summary.summary_of(store, run)
    lease = store.leases.read(run)
    if lease is not None and store.leases.is_held(*lease):
        raise store.leases.refusal(*lease)
    other = runs.needed_by(store, run)
    if other is not None:
        raise UsageError(
            f"run {run} stays: the unfinished run {other} refers to it", hint=f"remove that one first: git ckpt remove {other}"
        )
    by_run = runs.chains_of(store, [run])
    entries = by_run[run]
    wanted = Fate(run, info.label, len(entries), info.path, is_due=True, expires=True, reason="it was named")
    (fate,) = runs.remove(store, by_run, [wanted])
    if not fate.expires:
        raise fate.failure or _stays(fate)
    keys.forget_orphans(store.refs, store.objects, store.index.runs)
    roster.forget_others_chains(store.repository, store.index.runs)
    return len(entries)


def _stays(fate: Fate) -> CkptError:
    again = f"git ckpt remove {fate.run}"
    if fate.path is not None and worktree.HOLDS in fate.reason:
        hint = f"save that, or take it out: git -C {shell_word(fate.path)} ckpt save; then again: {again}"
    else:
        hint = f"once that is settled: {again}"
    return WorktreeError(f"run {fate.run} stays: {fate.reason}", hint=hint)


# Expiry by policy.


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of an expiry.

    Attributes:
        checkpoints: those removed (or to remove), each with the reason, newest first.
        runs: the fate of every run, the one with the newest checkpoint first.
        squashed: ids of progress checkpoints that go because their phase is complete.
        total: the number of checkpoints before.
        failed: checkpoints that could not be deleted, each with the error, newest first.
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
    """Remove the checkpoints and runs that a policy lets expire.

    Also removes progress checkpoints of complete phases and finishes interrupted removals. A run
    goes as a whole, with worktree, lease and files, unless its worktree holds what no checkpoint
    does. The cost depends on the checkpoints old enough to go, not on all. `failed` lists
    checkpoints whose refs are locked.

    Args:
        dry_run: whether to decide only.
        progress: called with a few words before each step.

    Raises:
        BusyError, GitError: a failure that no single checkpoint caused; the rest is whole.
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
            # A checkpoint that is being written is in the roster before it has refs.
            if is_alone:
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
    """Remove checkpoints; return the errors of failed removals, by id."""
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
            known = {}  # the listing may be stale
    # If only the keep refs could not be deleted, the next removal deletes them.
    return {id_: error for id_, error in failed.items() if store.refs.read(layout.CHECKPOINTS + id_) is not None}


def _finish(store: Checkpoints) -> None:
    with contextlib.suppress(BusyError):  # the next one does it
        # First: leftover refs can block a ref that is needed.
        sweep.sweep(store.repository, store.refs, store.announce)
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
    """Remove expired checkpoints outside of runs; return them, newest first.

    Args:
        failed: receives the errors of checkpoints that cannot be deleted, by id.
    """
    if not dry_run:
        with contextlib.suppress(BusyError):  # the links stay pending
            store.write_links()
    now = store.clock()
    entries, newest = _due(store, rules, now)
    tagged = _tagged(store) if entries else set()
    candidates = [_candidate(entry, tagged) for entry in entries]
    decisions = policy.apply(candidates, rules, newest, now=now)
    doubtful = [entry for entry, decision in zip(entries, decisions, strict=True) if not decision.expires]
    min_age = min(rules.rewritten_older_than, rules.older_than)
    rewritten = _rewritten(store, [entry for entry in doubtful if now - entry.time >= min_age])
    if rewritten:
        candidates = [replace(each, rewritten=True) if each.id in rewritten else each for each in candidates]
        decisions = policy.apply(candidates, rules, newest, now=now)
    staying = [each for each, decision in zip(candidates, decisions, strict=True) if not decision.expires]
    thinned = decide(store, {entry.id: entry for entry in entries}, staying, rules, newest)
    decided = [(entry, thinned.get(entry.id, decision)) for entry, decision in zip(entries, decisions, strict=True)]
    gone = [(entry, decision) for entry, decision in decided if decision.expires]
    if gone and not dry_run:
        progress(f"removing {len(gone)} checkpoints")
        listed = {entry.id: entry for entry, _ in gone}
        stuck = _remove_each(store, listed.keys(), runs=(), listed=listed)
        if failed is not None:
            failed |= stuck
    return gone


def _due(store: Checkpoints, rules: Policy, now: int) -> tuple[list[Entry], Newest]:
    """Return checkpoints outside of runs that may expire, and `keep_last` limits.

    Checkpoints written here count first: fetched ones dated years ahead must not push them out.
    With too few local ones, all of them stay, and so do the newest of all.
    """
    own = Roster.read(store.repository).ids_as_written(store.index.oids())
    if rules.everything:
        entries = list(store.list(Query(in_run=False)))
        others = [entry for entry in entries if entry.trigger not in (SAFETY, SUBMODULE)]
        safeties = [entry for entry in entries if entry.trigger == SAFETY]
        oldest = _oldest(others, own, rules.keep_last)
        return entries, Newest(oldest, oldest, _oldest(safeties, own, rules.safeties))
    hooks, agents, safety = Query(triggers=HOOK_TRIGGERS), Query(triggers=[MANUAL], by_agent=True), Query(triggers=[SAFETY])
    ours = Query(ids=sorted(own))  # only local checkpoints are thinned
    entries_by_id: dict[str, Entry] = {}
    for query, age in (
        (hooks, min(rules.older_than, rules.rewritten_older_than)),
        (safety, rules.safety_older_than),
        (ours, min(rules.hourly_after, rules.daily_after)),
    ):
        entries_by_id |= {entry.id: entry for entry in store.list(replace(query, in_run=False, until=max(now - age, 0)))}
    limits = [_oldest_of(store, kind, ours, rules.keep_last) for kind in (hooks, agents)]
    # The later place: at least `keep_last` checkpoints of both kinds together are as new.
    together = max(place for place in limits if place is not None) if rules.keep_last else None
    entries = sorted(entries_by_id.values(), key=_place, reverse=True)
    return entries, Newest(limits[0], together, _oldest_of(store, safety, ours, rules.safeties))


def _oldest_of(store: Checkpoints, kind: Query, ours: Query, count: int) -> Place | None:
    """Return the place of the `count`-th newest, or ALL if there are fewer."""
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
    """Do the same as `_oldest_of` for entries in memory, newest first."""
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
    # `%(*objectname)` is the commit that an annotated tag points to.
    return set(store.refs.list("refs/tags", fields="%(objectname) %(*objectname)").decode("ascii").split())


def _rewritten(store: Checkpoints, entries: Sequence[Entry]) -> set[str]:
    """Return the ids of hook checkpoints whose commit was amended or rebased away."""
    # No branch reaches such a commit, and the note of another commit lists the checkpoint.
    commits = {entry.id: entry.git_sha for entry in entries if entry.trigger in HOOK_TRIGGERS and entry.git_sha}
    commits = _elsewhere(store, commits) if commits else {}
    existing = set(store.repository.cat_file.known(sorted(set(commits.values()))))
    tips = heads(store) if existing else set()
    outside = graph.outside(store.repository.git, existing - tips, tips)
    return {checkpoint for checkpoint, commit in commits.items() if commit in outside or commit not in existing}


def _elsewhere(store: Checkpoints, commits: Mapping[str, str]) -> dict[str, str]:
    """Return the checkpoints whose link is also in the note of another commit."""
    pending = notes.waiting(store.repository)
    written = Notes(store.repository, store.objects, layout.NOTES).each()
    carried: set[str] = set()
    for commit, lines in chain(pending.items(), written):
        carried.update(commits.get(name, commit) for name in map(note.link_id, lines or ()) if commits.get(name, commit) != commit)
    return {checkpoint: commit for checkpoint, commit in commits.items() if commit in carried}
