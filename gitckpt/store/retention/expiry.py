"""Remove checkpoints and runs by policy; git gc deletes the objects later."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Sequence
from itertools import chain

from gitckpt.git import graph
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.notes import GitNotes
from gitckpt.git.objects.diff import DiffCounter, diff_trees
from gitckpt.git.objects.encoding import empty_tree_oid
from gitckpt.git.repository import Repository
from gitckpt.model import budget, note, policy, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import (
    EXPIRING,
    GUARD,
    HOOK_TRIGGERS,
    MANUAL,
    SAFETY,
    SUBMODULE,
    TURN,
)
from gitckpt.model.errors import BusyError, CkptError, UsageError, WorktreeError
from gitckpt.model.policy import (
    DAY,
    HOUR,
    Decision,
    ExpiryCandidate,
    NewestKept,
    Place,
    Policy,
    ThinningGroup,
)
from gitckpt.model.values import dataclass, replace
from gitckpt.store import local_checkpoints, notes, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import keys, ref_names
from gitckpt.store.records.entry import ById, CheckpointInfo, Infos, Query
from gitckpt.store.records.index import Notify
from gitckpt.store.retention import runs, sweep, worktree
from gitckpt.store.runs import summary
from gitckpt.store.worktrees import ownership

Failures = dict[str, CkptError]  # by id of a checkpoint

# File in the private directory, one line: start of use without a gap, last check (both in µs since
# the epoch), then boot id and uptime (in µs) at that check if known. No file: no gap.
_CLOCK_FILE = "clock"
_BOOT = "/proc/sys/kernel/random/boot_id"
_GAP, _PROOF = 30 * DAY, DAY
# How far the wall clock may run ahead of the uptime: the clock of a virtual machine that is
# halted each night jumps every morning. If the clock is wrong by less, checkpoints expire at
# most a day early.
_MAX_JUMP = DAY


def check_clock(repository: Repository, instant: int) -> str | None:
    """Return why the time `instant` (in µs) may be wrong, or None; record the time."""
    start_of_use, last_check, *last_boot = _read_clock(repository) or (0, instant)
    # The uptime says something about `now` only if `now` comes from this machine's clock.
    new_boot = _read_uptime() if abs(instant - times.now()) < HOUR else []
    is_same_boot = bool(new_boot) and last_boot[:1] == new_boot[:1]
    uptime_passed, max_jump = (new_boot[1] - last_boot[1], _MAX_JUMP) if is_same_boot else (0, _GAP)
    if not -HOUR <= instant - last_check - uptime_passed <= max_jump:
        start_of_use = instant
    with contextlib.suppress(OSError):  # on a full disk, the older file suffices
        path = os.path.join(repository.make_private_dir(), _CLOCK_FILE)
        line = b"%s\n" % " ".join(map(str, (start_of_use, instant, *new_boot))).encode("ascii")
        regular.write_private_file(path, line, flushed=False, opener=private_dirs.open_private_file)
    if instant - start_of_use >= _PROOF:
        return None
    return "the clock was set, or the repository was unused for a month: nothing expires for a day"


def _read_uptime() -> list[int]:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return []
    try:
        with open(_BOOT, "rb") as file:
            boot = int(file.read(64).replace(b"-", b""), 16)
    except (OSError, ValueError):
        return []
    return [boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000]


def _read_clock(repository: Repository) -> list[int] | None:
    path = os.path.join(repository.private_dir, _CLOCK_FILE)
    try:
        with open(path, "rb", opener=private_dirs.open_private_file) as file:
            values = [int(number) for number in file.read(256).split()]
    except (OSError, ValueError):
        return None
    return values if len(values) in (2, 4) else None


# Thinning: checkpoints by hooks and agents are reduced to one per hour, later to one per day,
# if the remaining checkpoint contains all contents of the removed ones.


def decide_thinned(
    store: Checkpoints,
    entries: ById,
    staying: Sequence[ExpiryCandidate],
    rules: Policy,
    newest: NewestKept,
) -> dict[str, Decision]:
    """Decide which checkpoints to remove because later checkpoints contain them.

    `staying` lists the candidates, which did not expire by age. Returns the decisions by id.
    """
    local = LocalCheckpoints.read(store.repository)
    local_candidates = [c for c in staying if local.is_written_here(entries[c.id])]
    groups = policy.find_groups_to_thin(local_candidates, rules, newest, now=store.clock())
    if not groups:
        return {}
    return _thin_groups(store, groups, entries, _used_checkpoints(store))


def thin_sessions(
    store: Checkpoints, rules: Policy, but: Collection[str]
) -> dict[str, tuple[CheckpointInfo, str]]:
    """Return the checkpoints that expire within sessions, with reasons, by id.

    `but` names the runs that expire as a whole.
    """
    kept_ids = store.labels.read_kept_ids()
    entries = {e.id: e for e in store.list(Query(in_run=True, triggers=[TURN, GUARD]))}
    local = LocalCheckpoints.read(store.repository)  # only local ones are thinned
    by_session: dict[str | None, list[ExpiryCandidate]] = {}
    for entry in entries.values():
        if entry.run not in but and entry.id not in kept_ids and local.is_written_here(entry):
            by_session.setdefault(entry.run, []).append(_make_candidate(entry, set()))
    decisions: dict[str, Decision] = {}
    groups: list[ThinningGroup] = []
    for candidates in by_session.values():
        expired, hours = policy.thin_session(candidates, rules, now=store.clock())
        decisions |= {decision.id: decision for decision in expired}
        groups += hours
    if not decisions and not groups:
        return {}
    used = _used_checkpoints(store)
    decisions = {id_: decisions[id_] for id_ in decisions.keys() - used}
    decisions |= _thin_groups(store, groups, entries, used)
    return {id_: (entries[id_], decision.reason) for id_, decision in decisions.items()}


def _used_checkpoints(store: Checkpoints) -> set[str]:
    worktree_ids = ownership.checkpoints_of_worktrees(store.repository)
    return runs.referenced_checkpoints(store) | worktree_ids


def _thin_groups(
    store: Checkpoints, groups: Sequence[ThinningGroup], entries: ById, used: Collection[str]
) -> dict[str, Decision]:
    due_entries = [entries[candidate.id] for group in groups for candidate in group.due]
    newest_entries = [entries[group.newest.id] for group in groups]
    coverage = _ContentsCheck(store, due_entries, newest_entries)
    decisions: dict[str, Decision] = {}
    for group, newest in zip(groups, newest_entries, strict=True):
        nearest = newest
        for candidate in group.due:
            entry = entries[candidate.id]
            if entry.id not in used and any(coverage.contains(c, entry) for c in (nearest, newest)):
                decisions[entry.id] = policy.thinning_decision(candidate, group, now=store.clock())
            else:
                nearest = entry
    return decisions


def list_ref_tips(store: Checkpoints) -> set[str]:
    output = store.refs.list_refs("refs/heads", "refs/tags", "refs/remotes", fields="%(objectname)")
    oids = sorted(set(output.decode("ascii").split()))
    return set(store.repository.cat_file.list_existing_objects(oids))


class _ContentsCheck:
    def __init__(self, store: Checkpoints, due: Infos, newest: Infos) -> None:
        self._repository = store.repository
        self._expansion = DiffCounter(store.repository, budget.SNAPSHOT)
        self._existing = _existing_commits(store, due)
        tips = list_ref_tips(store) | _existing_commits(store, newest) if self._existing else set()
        self._outside = graph.find_commits_outside(store.repository.git, self._existing, tips)

    def contains(self, later: CheckpointInfo, entry: CheckpointInfo) -> bool:
        """Return whether `later` and reachable commits have all contents of `entry`."""
        if entry.git_sha and entry.git_sha not in self._existing:
            return False
        is_reached = entry.git_sha not in self._outside
        if entry.trigger in HOOK_TRIGGERS:
            return is_reached and entry.tree in (None, later.tree)
        if entry.operation is not None and entry.operation != later.operation:
            return False
        if not _submodules(entry) <= _submodules(later):
            return False
        try:
            return self._has_files(later, entry, is_reached=is_reached)
        except CkptError:  # unreadable contents count as missing
            return False

    def _has_files(self, later: CheckpointInfo, entry: CheckpointInfo, *, is_reached: bool) -> bool:
        repository = self._repository
        files, later_tree = self._files_tree(entry), self._files_tree(later)
        of_commit = self._commit_tree(entry.git_sha)
        base_tree = of_commit if is_reached else self._commit_tree("")
        if files is None or later_tree is None or of_commit is None or base_tree is None:
            return False
        tree_pairs = ((base_tree, files), (of_commit, files), (files, later_tree))
        if any(self._expansion.exceeds_path_limit(*pair) for pair in tree_pairs):
            return False
        old_files = {d.path: (d.old_mode, d.old) for d in diff_trees(repository, of_commit, files)}
        changes = {d.path: d for d in diff_trees(repository, files, later_tree)}
        paths = [d.path for d in diff_trees(repository, base_tree, files) if d.status != "D"]
        for path in filter(changes.__contains__, paths):
            new_version = changes[path].new_mode, changes[path].new
            is_lost = changes[path].status == "D" or new_version == old_files.get(path)
            # Without a branch, the version could come from another worktree.
            if is_lost or entry.branch is None:
                return False
        return True

    def _files_tree(self, entry: CheckpointInfo) -> str | None:
        return self._oid(f"{entry.tree}:files") if entry.tree else self._commit_tree(entry.git_sha)

    def _commit_tree(self, commit: str) -> str | None:
        empty = empty_tree_oid(self._repository.object_format)
        return self._oid(f"{commit}^{{tree}}") if commit else empty

    def _oid(self, name: str) -> str | None:
        info = self._repository.cat_file.info(name)
        return info[0] if info is not None else None


def _existing_commits(store: Checkpoints, entries: Infos) -> set[str]:
    commits = {entry.git_sha for entry in entries if entry.git_sha}
    return set(store.repository.cat_file.list_existing_objects(sorted(commits)))


def _submodules(entry: CheckpointInfo) -> set[str]:
    return {text.partition(" ")[2] for text in entry.submodules.split("\0")[:-1]}


def remove_run(store: Checkpoints, run: str) -> int:
    info = summary.summarize_run(store, run)
    store.leases.require_lease_free(run)
    if (dependent := runs.find_referring_run(store, run)) is not None:
        problem = f"run {run} stays: the unfinished run {dependent} refers to its checkpoints"
        raise UsageError(problem, hint=f"remove that run first: git ckpt remove {dependent}")
    chains = runs.chains_of_runs(store, [run])
    size = len(chains[run])
    fate = runs.RunFate(run, info.label, size, info.path, is_due=True, expires=True, reason="named")
    (fate,) = runs.remove_runs(store, chains, [fate])
    if fate.failure is not None:
        raise fate.failure
    if not fate.expires:
        hint = "solve that, then run: "
        if fate.path is not None and worktree.HOLDS in fate.reason:
            hint = f"save or move these files: git -C {shell_quoted(fate.path)} ckpt save; "
            hint += "then run: "
        raise WorktreeError(f"run {run} stays: {fate.reason}", hint=f"{hint}git ckpt remove {run}")
    _forget_removed_runs(store)
    return size


def _forget_removed_runs(store: Checkpoints) -> None:
    with contextlib.suppress(BusyError):  # the next removal does it
        keys.delete_orphan_keys(store.refs, store.objects, store.index.list_runs)
        store.labels.delete_orphans(store.index.oids_by_id)
    local_checkpoints.forget_removed_runs(store.repository, store.index.list_runs)


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """The checkpoints and runs that an expiry removed or would remove, newest first."""

    checkpoints: Sequence[tuple[CheckpointInfo, Decision]]  # removed (or to remove)
    runs: Sequence[runs.RunFate]
    squashed: Collection[str]  # ids of removed checkpoints of phases and turns
    total: int  # number of checkpoints before the expiry
    failed: Sequence[tuple[CheckpointInfo, CkptError]] = ()  # could not be deleted


def expire_checkpoints(
    store: Checkpoints, rules: Policy, *, dry_run: bool = False, progress: Notify = lambda _: None
) -> ExpireResult:
    """Remove the checkpoints and runs that expire by a policy.

    If `dry_run`, they stay, and the result tells what would be removed. `progress` is called with
    messages. `failed` of the result lists checkpoints that stay because their refs are locked.
    """
    if not dry_run:
        progress("clearing leftovers of interrupted commands")
        with contextlib.suppress(BusyError):  # the next expiry does it
            # Before the rest: leftover refs can block a ref that expiry must create.
            sweep.delete_orphans(store.repository, store.refs, store.announce)
            store.make_remover().finish_removals()
        sweep.delete_leftover_files(store.repository)
    total_count, _ = store.index.count_checkpoints()
    pairs, failures = expire_outside_runs(store, rules, dry_run=dry_run, progress=progress)
    fates, chains = runs.decide_fates(store, rules)
    if dry_run:
        fates = runs.predict_run_removals(store, fates)
    else:
        fates = runs.remove_runs(store, chains, fates, progress, settled=False)
    expiring_runs = {fate.run for fate in fates if fate.expires}
    squashed = runs.squashable(store, expiring_runs) | thin_sessions(store, rules, expiring_runs)
    if not dry_run:
        if squashed:
            progress(f"removing {len(squashed)} checkpoints of phases and turns")
            failures |= _remove_each(store, squashed)
        progress("releasing commits that no checkpoint needs")
        runs.delete_orphan_leases(store)
        _forget_removed_runs(store)
        with ref_names.write_lock(store.repository) as is_acquired:
            # A checkpoint being written is recorded as local before its refs exist.
            if is_acquired:
                local_checkpoints.forget_removed_checkpoints(
                    store.repository, store.index.oids_by_id
                )
        with contextlib.suppress(BusyError):  # the next expiry does it
            store.make_remover().update_keep_refs()
        submodules.remove_unreferenced_checkpoints(store)
        for sentence in worktree.finish_worktree_removals(store.repository):
            store.announce(sentence)
    for entry, reason in squashed.values():
        pairs.append((entry, Decision(entry.id, expires=True, reason=reason)))
    for fate in fates:
        is_removed = fate.expires or fate.failure is not None
        entries = [e for e in chains[fate.run] if e.id not in fate.keeps] if is_removed else []
        pairs += ((e, Decision(e.id, expires=True, reason=fate.reason)) for e in entries)
        if fate.failure is not None:
            failures |= _only_existing(store, dict.fromkeys((e.id for e in entries), fate.failure))
    pairs.sort(key=lambda item: (item[0].time, item[0].sequence or 0, item[0].id), reverse=True)
    removed_entries = [item for item in pairs if item[0].id not in failures]
    stuck_entries = [(entry, failures[entry.id]) for entry, _ in pairs if entry.id in failures]
    return ExpireResult(removed_entries, fates, frozenset(squashed), total_count, stuck_entries)


def _remove_each(store: Checkpoints, ids: Collection[str], listed: ById | None = None) -> Failures:
    run_filter = None if listed is None else ()
    failures: Failures = {}
    while remaining_ids := set(ids).difference(failures):
        try:
            store.remove(remaining_ids, settled=False, runs=run_filter, listed=listed)
            break
        except CkptError as error:
            if not (stuck_ids := runs.names_in_error(error, remaining_ids)):
                raise
            failures |= dict.fromkeys(stuck_ids, error)
            listed = None  # may be stale
    return _only_existing(store, failures)


def _only_existing(store: Checkpoints, failed: Failures) -> Failures:
    read_ref = store.refs.read_ref
    return {i: e for i, e in failed.items() if read_ref(ref_names.CHECKPOINTS + i) is not None}


def expire_outside_runs(
    store: Checkpoints, rules: Policy, *, dry_run: bool = False, progress: Notify = lambda _: None
) -> tuple[list[tuple[CheckpointInfo, Decision]], Failures]:
    """Remove expired checkpoints that belong to no run; return decisions and errors."""
    if not dry_run:
        with contextlib.suppress(BusyError):  # the links stay pending
            store.write_links()
    instant = store.clock()
    entries, newest = _due(store, rules, instant)
    kept_ids = store.labels.read_kept_ids()
    entries = [entry for entry in entries if entry.id not in kept_ids]
    by_id = {entry.id: entry for entry in entries}
    # `%(*objectname)` is the commit that an annotated tag points to.
    fields = "%(objectname) %(*objectname)"
    tags = store.refs.list_refs("refs/tags", fields=fields) if entries else b""
    tagged_oids = set(tags.decode("ascii").split())
    candidates = [_make_candidate(entry, tagged_oids) for entry in entries]
    decisions = {d.id: d for d in policy.decide_expiry(candidates, rules, newest, now=instant)}
    min_age = min(rules.rewritten_older_than, rules.older_than)
    old = [entry for entry in entries if instant - entry.time >= min_age]
    if amended := _find_amended(store, [entry for entry in old if not decisions[entry.id].expires]):
        candidates = [replace(c, rewritten=c.id in amended) for c in candidates]
        decisions = {d.id: d for d in policy.decide_expiry(candidates, rules, newest, now=instant)}
    kept = [candidate for candidate in candidates if not decisions[candidate.id].expires]
    decisions |= decide_thinned(store, by_id, kept, rules, newest)
    expired_entries = {id_: by_id[id_] for id_, decision in decisions.items() if decision.expires}
    failures: Failures = {}
    if expired_entries and not dry_run:
        progress(f"removing {len(expired_entries)} checkpoints")
        failures = _remove_each(store, expired_entries, expired_entries)
    return [(entry, decisions[id_]) for id_, entry in expired_entries.items()], failures


def _due(store: Checkpoints, rules: Policy, now: int) -> tuple[list[CheckpointInfo], NewestKept]:
    # Local checkpoints count first: fetched ones with future dates must not displace them.
    own_ids = LocalCheckpoints.read(store.repository).list_unreplaced_ids(store.index.oids_by_id())
    hook_query, safety_query = Query(triggers=EXPIRING), Query(triggers=[SAFETY])
    by_agents = Query(triggers=[MANUAL], by_agent=True)
    local = Query(ids=sorted(own_ids))  # only local checkpoints are thinned
    safety_limit = _nth_newest(store, safety_query, local, rules.safeties)
    if rules.everything:
        entries = store.list(Query(in_run=False))
        triggers = {entry.trigger for entry in entries} - {SAFETY, SUBMODULE}
        oldest = _nth_newest(store, Query(triggers=sorted(triggers)), local, rules.keep_last)
        return list(entries), NewestKept(oldest, oldest, safety_limit)
    entries_by_id: dict[str, CheckpointInfo] = {}
    for query, age in (
        (hook_query, min(rules.older_than, rules.rewritten_older_than)),
        (safety_query, rules.safety_older_than),
        (local, min(rules.hourly_after, rules.daily_after)),
    ):
        aged_query = replace(query, in_run=False, until=max(now - age, 0))
        entries_by_id |= {entry.id: entry for entry in store.list(aged_query)}
    limits = [_nth_newest(store, kind, local, rules.keep_last) for kind in (hook_query, by_agents)]
    # The later limit: at least `keep_last` checkpoints of both kinds together are as new.
    shared_limit = max(limit for limit in limits if limit is not None) if rules.keep_last else None
    entries = sorted(entries_by_id.values(), key=_sort_key, reverse=True)
    return entries, NewestKept(limits[0], shared_limit, safety_limit)


def _nth_newest(store: Checkpoints, kind: Query, local: Query, count: int) -> Place | None:
    if count == 0:
        return None
    outside = replace(kind, in_run=False)
    nth_query = replace(outside, skip=count - 1, limit=1)
    if local.ids and (entries := store.list(replace(nth_query, ids=local.ids))):
        return _sort_key(entries[0])
    entries = store.list(nth_query)
    local_entries = store.list(replace(outside, ids=local.ids)) if local.ids and entries else ()
    return min(map(_sort_key, (*entries, *local_entries[-1:]))) if entries else policy.ALL


def _sort_key(entry: CheckpointInfo) -> Place:
    return entry.time, entry.id


def _make_candidate(entry: CheckpointInfo, tagged: set[str]) -> ExpiryCandidate:
    is_tagged = not tagged.isdisjoint((entry.oid, entry.git_sha))
    ends_turn = entry.trigger == TURN and entry.status != "started"
    details = entry.branch, entry.agent is not None, is_tagged, ends_turn
    return ExpiryCandidate(entry.id, entry.time, entry.trigger, entry.run, False, *details)


def _find_amended(store: Checkpoints, entries: Infos) -> set[str]:
    """Return the ids of hook checkpoints whose commit was amended or rebased away."""
    # No branch reaches such a commit, but the new commit's note lists the checkpoint.
    commits = {e.id: e.git_sha for e in entries if e.trigger in HOOK_TRIGGERS and e.git_sha}
    if not commits:
        return set()
    pending_lines, _ = notes.list_pending_links(store.repository)
    noted_lines = GitNotes(store.repository, store.objects, ref_names.NOTES).read_all_notes()
    new_commits: set[str] = set()
    for noted, lines in chain(pending_lines.items(), noted_lines):
        new_commits |= {commits.get(note.leading_id(line), noted) for line in lines or ()} - {noted}
    existing = set(store.repository.cat_file.list_existing_objects(sorted(new_commits)))
    tips = list_ref_tips(store) if existing else set()
    unreached = graph.find_commits_outside(store.repository.git, existing - tips, tips)
    gone = new_commits - existing | unreached
    # All checkpoints of the commit: the note lists only the newest.
    return {id_ for id_, commit in commits.items() if commit in gone}
