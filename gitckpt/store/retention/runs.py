"""Expire whole runs: checkpoints, worktree, input and output files, and lease."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, RefUpdate
from gitckpt.model import codec, ids, policy, runstate, times
from gitckpt.model.checkpoint import IMPORT, PHASE, Checkpoint
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint
from gitckpt.model.policy import Decision, Policy, RunCandidate
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import HeldLease
from gitckpt.store.local_checkpoints import read_local_oids
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo, Query, list_references
from gitckpt.store.records.index import Notify
from gitckpt.store.retention import worktree
from gitckpt.store.runs import run_files, summary

Chains = Mapping[str, Sequence[CheckpointInfo]]  # the checkpoints of runs, by sequence
_REF = re.compile(r"refs/(?:[\w-]+/)+([\w-]+)")

# Runs removed in one batch. Nothing else can drive them until their checkpoints are gone. Each
# batch makes git rewrite packed-refs.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class RunFate:
    run: str
    label: str  # of the last phase that the run reached
    checkpoints: int
    path: str | None  # the top of its worktree
    is_due: bool  # whether the policy lets it expire
    expires: bool  # whether the run is removed; a due run stays if its worktree has unsaved work
    reason: str
    keeps: tuple[str, ...] = ()  # ids of checkpoints that stay although the run is removed
    failure: CkptError | None = None  # why its checkpoints could not be deleted


def decide_fates(
    store: Checkpoints, rules: Policy, among: Collection[str] | None = None
) -> tuple[list[RunFate], dict[str, list[CheckpointInfo]]]:
    """Decide by a policy which runs expire; `among` names the only runs that may.

    Returns the fates of all runs, and the checkpoints of each run that expires.
    """
    infos = summary.list_runs(store)
    _, sizes = store.index.count_checkpoints()
    unfinished_runs = {info.run for info in infos if info.status != runstate.COMPLETE}
    may_expire = len(unfinished_runs) < len(infos) or rules.everything
    may_expire = may_expire or any(info.is_session for info in infos)
    referrers = _map_referring_runs(store, unfinished_runs) if may_expire else {}
    candidates = [
        RunCandidate(i.run, i.time, i.status, referrers.get(i.run, ()), i.is_session) for i in infos
    ]
    decide_all = partial(policy.decide_run_expiry, policy=rules, now=store.clock())
    decisions = {decision.id: decision for decision in decide_all(candidates)}
    # Imported checkpoints have the times of their files, so age counts from the import.
    if import_times := _import_times(store, {run for run in decisions if decisions[run].expires}):
        candidates = [replace(c, time=max(c.time, import_times.get(c.id, 0))) for c in candidates]
        decisions = {decision.id: decision for decision in decide_all(candidates)}
    if not rules.everything:
        reason = "only expire --all removes imported runs"
        decisions |= {run: Decision(run, expires=False, reason=reason) for run in import_times}
    kept_ids = store.labels.read_kept_ids()
    for entry in store.list(Query(ids=sorted(kept_ids), in_run=True)) if kept_ids else ():
        reason = f"its checkpoint {entry.id[: ids.SHORT]} is pinned or tagged"
        decisions[str(entry.run)] = Decision(str(entry.run), expires=False, reason=reason)
    eligible = sizes.keys() if among is None else sizes.keys() & set(among)  # all recorded runs
    due_runs = {run for run in decisions if decisions[run].expires and run in eligible}
    chains = chains_of_runs(store, due_runs)
    unmerged = set() if rules.everything else _unmerged_ids(store, [c[-1] for c in chains.values()])
    fates = []
    for info in infos:
        run, chain = info.run, chains.get(info.run, [])
        # Another process may have removed the checkpoints meanwhile.
        checkpoint_count = len(chain) if run in due_runs else sizes.get(run, (0, "", ""))[0]
        is_due, reason = bool(chain), decisions[run].reason
        fate = RunFate(run, info.label, checkpoint_count, info.path, is_due, is_due, reason)
        fates.append(_keep_last_checkpoints(fate, chain) if run in unmerged else fate)
    return fates, chains


def predict_run_removals(store: Checkpoints, fates: Sequence[RunFate]) -> list[RunFate]:
    predicted_fates = []
    for fate in fates:
        try:
            reason = worktree.reason_not_to_remove(store, fate.run) if fate.expires else None
        except CkptError as error:
            reason = error.message
        predicted_fates.append(replace(fate, expires=False, reason=reason) if reason else fate)
    return predicted_fates


def squashable(store: Checkpoints, but: Collection[str]) -> dict[str, tuple[CheckpointInfo, str]]:
    """Return the progress checkpoints of complete phases, each with the reason, by id."""
    progress_entries = store.list(Query(in_run=True, status="progress", triggers=[PHASE]))
    chains = chains_of_runs(store, {str(entry.run) for entry in progress_entries}.difference(but))
    candidates: dict[str, tuple[CheckpointInfo, str]] = {}
    remaining_oids: dict[str, str] = {}
    for chain in chains.values():
        phases = policy.find_squashed_progress((e.id, e.label, e.trigger) for e in chain)
        for entry in chain if phases else ():
            if entry.id in phases:
                candidates[entry.id] = entry, f"phase {phases[entry.id]} is complete"
            else:
                remaining_oids[entry.id] = entry.oid
    for id_ in store.labels.read_kept_ids() if candidates else ():
        candidates.pop(id_, None)
    if candidates:
        _, by_run = store.index.count_checkpoints()
        first_oids = {id_: oid for run, (_, id_, oid) in by_run.items() if run not in but}
        for checkpoint in _read_documents(store, remaining_oids | first_oids):
            for _, id_ in list_references(checkpoint):
                candidates.pop(id_, None)
    return candidates


def find_referring_run(store: Checkpoints, run: str) -> str | None:
    infos = summary.list_runs(store)
    unfinished_runs = {info.run for info in infos if info.status != runstate.COMPLETE}
    return min(_map_referring_runs(store, unfinished_runs).get(run, ()), default=None)


def referenced_checkpoints(store: Checkpoints) -> set[str]:
    """Return the ids that the first or newest checkpoint of any run refers to."""
    # For example, the checkpoint that a run was forked from.
    end_oids = {id_: oid for _, id_, oid in store.index.count_checkpoints()[1].values()}
    end_oids |= {run_row[2]: run_row[3] for run_row in store.index.list_run_rows()}
    return {id_ for d in _read_documents(store, end_oids) for _, id_ in list_references(d)}


def remove_runs(
    store: Checkpoints,
    chains: Chains,
    fates: Sequence[RunFate],
    progress: Notify = lambda _: None,
    *,
    settled: bool = True,
) -> list[RunFate]:
    """Remove the runs whose fate is to expire; return all fates with the outcomes."""
    due_fates = [fate for fate in fates if fate.expires]
    results: dict[str, RunFate] = {}
    for start in range(0, len(due_fates), _AT_ONCE):
        batch = due_fates[start : start + _AT_ONCE]
        leases, refused = store.leases.acquire_leases([fate.run for fate in batch], worktree.HOLDER)
        try:
            # Worktrees before checkpoints: their contents are compared to the newest checkpoints.
            newest = heads.find_newest_by_run(store.index, store.repository, leases)
            for fate in batch:
                progress(f"removing run {fate.run}, {len(results) + 1} of {len(due_fates)}")
                last_entry = chains[fate.run][-1]
                reason = refused[fate.run].message if fate.run in refused else None
                reason = reason or _remove_files(store, fate.run, last_entry, newest.get(fate.run))
                results[fate.run] = replace(fate, expires=False, reason=reason) if reason else fate
            going = [fate for fate in batch if results[fate.run].expires]
            failures = _delete_checkpoints(store, chains, going, progress, settled=settled)
            for run, error in failures.items():
                fate = replace(results[run], expires=False, reason=error.message)
                results[run] = replace(fate, failure=error)
            done_runs = [fate.run for fate in going if fate.run not in failures and not fate.keeps]
            _delete_leases(store, {run: leases.pop(run) for run in done_runs})
        finally:
            for lease in leases.values():
                with contextlib.suppress(BusyError):  # another process has it by now
                    lease.release_lease()
    return [results.get(fate.run, fate) for fate in fates]


def _delete_checkpoints(
    store: Checkpoints, chains: Chains, going: Sequence[RunFate], progress: Notify, *, settled: bool
) -> dict[str, CkptError]:
    failures: dict[str, CkptError] = {}
    while True:
        going = [fate for fate in going if fate.run not in failures]
        kept_ids = {id_ for fate in going for id_ in fate.keeps}
        # The last phase and checkpoint are deleted last: after a kill, the next call goes on.
        last = {entry.id for fate in going for entry in _last_entries(chains[fate.run])} - kept_ids
        runs = {e.id: fate.run for fate in going for e in chains[fate.run] if e.id not in kept_ids}
        if not runs:
            return failures
        progress(f"removing {len(runs)} checkpoints of runs")
        try:
            run_ids = [fate.run for fate in going]
            store.remove(runs.keys(), settled=settled, runs=run_ids, last=last)
            return failures
        except CkptError as error:
            if not (stuck_names := names_in_error(error, {*runs, *run_ids})):
                raise
            failures |= dict.fromkeys((runs.get(name, name) for name in stuck_names), error)


def names_in_error(error: CkptError, names: Collection[str]) -> set[str]:
    error_text = error.path if isinstance(error, LockHeld) else ""
    error_text = error.stderr if isinstance(error, GitError) else error_text
    return set(_REF.findall(error_text)).intersection(names)


def delete_orphan_leases(store: Checkpoints) -> None:
    refs = store.refs.iterate_refs(ref_names.LEASES)
    runs = [ref.removeprefix(ref_names.LEASES) for ref, _ in refs]
    existing_runs = set(store.index.list_runs()) if runs else set()
    for run in runs:
        if run in existing_runs or store.refs.read_ref(ref_names.RUNS + run) is not None:
            continue
        try:
            if (lease := store.leases.read(run)) is not None and not store.leases.is_held(*lease):
                store.refs.apply_updates([RefUpdate(ref_names.LEASES + run, "", lease[0])])
        except (InvalidCheckpoint, RefMoved, LockHeld):
            continue  # `verify` reports it, or another process changed it


def _import_times(store: Checkpoints, due: Collection[str]) -> dict[str, int]:
    newest = heads.find_newest_by_run(store.index, store.repository, due) if due else {}
    oids = {entry.id: entry.oid for entry in newest.values() if entry.trigger.startswith(IMPORT)}
    origins = {str(document.run): document.imported for document in _read_documents(store, oids)}
    return {run: times.parse_timestamp(origin.at) for run, origin in origins.items() if origin}


def _keep_last_checkpoints(fate: RunFate, chain: Sequence[CheckpointInfo]) -> RunFate:
    kept_ids = tuple(dict.fromkeys(entry.id for entry in reversed(_last_entries(chain))))
    reason = "no branch contains the result"
    if len(kept_ids) == len(chain) and fate.path is None:
        return replace(fate, is_due=False, expires=False, reason=reason)
    reason = f"{fate.reason}; the last checkpoint stays: {reason}"
    return replace(fate, keeps=kept_ids, reason=reason)


def _unmerged_ids(store: Checkpoints, newest: Sequence[CheckpointInfo]) -> set[str]:
    documents = list(_read_documents(store, {entry.id: entry.oid for entry in newest}))
    dirty = {str(d.run) for d in documents if d.worktree is not None and d.worktree.dirty}
    commits = {str(d.run): d.git_sha for d in documents if d.git_sha and str(d.run) not in dirty}
    if not commits:
        return dirty
    existing = store.repository.cat_file.list_existing_objects(sorted(set(commits.values())))
    data = "".join(f"{commit}\n" for commit in existing).encode("ascii")
    arguments = ("rev-list", "--stdin", "--not", "--branches", "--tags", "--remotes")
    unreached = set(store.repository.git.run(*arguments, data=data).out.decode("ascii").split())
    reached_commits = set(existing) - unreached
    return dirty | {run for run, commit in commits.items() if commit not in reached_commits}


def _remove_files(
    store: Checkpoints, run: str, decided: CheckpointInfo, current: CheckpointInfo | None
) -> str | None:
    # `decided` was the newest checkpoint at the time of the decision.
    if current is None or current.id != decided.id:
        return "the run has continued meanwhile"
    try:
        reason = worktree.remove_worktree(store, run, decided)
        files = run_files.files_of_run(store.repository, run).path
        if reason is None and os.path.isdir(files):
            worktree.delete_directory(files)
    except CkptError as error:
        return error.message
    return reason


def _last_entries(chain: Sequence[CheckpointInfo]) -> tuple[CheckpointInfo, ...]:
    driver_entries = [entry for entry in chain if entry.trigger == PHASE]
    return (chain[-1], *driver_entries[-1:])


def _delete_leases(store: Checkpoints, holds: Mapping[str, HeldLease]) -> None:
    updates = [
        RefUpdate(ref_names.LEASES + run, "", hold.make_lease_update().old)
        for run, hold in holds.items()
    ]
    is_deleted = False
    try:
        if updates:
            store.refs.apply_updates(updates)
        is_deleted = True
    except (RefMoved, LockHeld):
        return  # `delete_orphan_leases` tries each lease
    finally:
        for hold in holds.values():
            hold.release_process_lock(is_over=is_deleted)


def chains_of_runs(store: Checkpoints, runs: Collection[str]) -> dict[str, list[CheckpointInfo]]:
    """Map runs to their checkpoints in order of sequence, but fetched ones first."""
    chains = heads.group_by_run(store.index, runs)
    for run, chain in chains.items():
        oids = read_local_oids(store.repository, run)
        chain.sort(key=lambda entry: (entry.oid in oids, entry.sequence or 0, entry.id))
    return chains


def _map_referring_runs(store: Checkpoints, unfinished: Collection[str]) -> dict[str, set[str]]:
    chains = chains_of_runs(store, unfinished).values()
    oids = {entry.id: entry.oid for chain in chains for entry in (chain[0], chain[-1])}
    mentions = [(id_, d.run) for d in _read_documents(store, oids) for _, id_ in list_references(d)]
    entries = store.list(Query(ids=sorted({id_ for id_, _ in mentions}))) if mentions else ()
    run_by_id = {entry.id: entry.run for entry in entries}
    referrers: dict[str, set[str]] = {}
    for id_, referrer in mentions:
        if (run := run_by_id.get(id_)) is not None and run != referrer:
            referrers.setdefault(run, set()).add(str(referrer))
    return referrers


def _read_documents(store: Checkpoints, oids: Mapping[str, str]) -> Iterable[Checkpoint]:
    for id_, content in zip(oids, store.objects.read(list(oids.values())), strict=True):
        try:
            if content is not None:
                yield codec.decode_header(content[1], ref_names.CHECKPOINTS + id_)
        except InvalidCheckpoint:
            continue
