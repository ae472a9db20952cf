"""Expire runs as a whole, with worktree, files and lease.

If no branch holds a run's result, its last checkpoint stays. The worktree is removed first,
while the newest checkpoint still has its contents. The checkpoint that records how the run
ended is removed last: after a kill, the next call removes the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved, Update
from gitckpt.model import codec, policy, runstate, times
from gitckpt.model.checkpoint import IMPORT, PHASE, Checkpoint
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint
from gitckpt.model.policy import Decision, Policy, RunCandidate
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.records import heads, layout
from gitckpt.store.records.entry import Query
from gitckpt.store.retention import worktree
from gitckpt.store.roster import known
from gitckpt.store.runs import run_files, summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.config.settings import Settings
    from gitckpt.store.leases.leases import Hold
    from gitckpt.store.records.entry import Entry

_REF = re.compile(r"refs/(?:[\w-]+/)+([\w-]+)")

# Runs removed in one batch. Nothing else can drive them until their checkpoints are gone. Each
# batch makes git rewrite packed-refs.
_AT_ONCE = 1000

# A run with a worktree counts as this many runs: deleting the worktree takes a while.
_WEIGHT = 50


@dataclass(frozen=True, slots=True)
class Fate:
    run: str
    label: str  # of the last phase that it reached
    checkpoints: int
    path: str | None  # the top of its worktree
    is_due: bool  # whether the policy lets it expire
    expires: bool  # whether it goes; a due run stays if its worktree has unsaved work
    reason: str
    keeps: tuple[str, ...] = ()  # ids of checkpoints that stay although the run goes
    failure: CkptError | None = None  # why its checkpoints could not be deleted


def decide(store: Checkpoints, rules: Policy, among: Collection[str] | None = None) -> tuple[list[Fate], dict[str, list[Entry]]]:
    """Decide by policy which runs expire, without looking at their worktrees.

    Args:
        among: the runs that may go; all by default.

    Returns:
        The fate of each run, and the checkpoints of expiring runs, by sequence.
    """
    found_runs = summary.summaries(store)
    _, sizes = store.index.sizes()
    needed: Mapping[str, set[str]] = {}
    if any(each.status == runstate.COMPLETE for each in found_runs) or rules.everything:
        needed = _needed_by(store, {each.run for each in found_runs if each.status != runstate.COMPLETE})
    candidates = [RunCandidate(each.run, each.time, each.status, needed.get(each.run, ())) for each in found_runs]
    now = store.clock()
    decisions = policy.apply_to_runs(candidates, rules, now=now)
    imported = _imported(store, {each.id for each in decisions if each.expires})
    # Imported checkpoints have the times of their files: age counts from the import.
    if imported:
        candidates = [replace(each, time=max(each.time, imported.get(each.id, each.time))) for each in candidates]
        decisions = policy.apply_to_runs(candidates, rules, now=now)
    if not rules.everything:
        stays = "it was imported: only expire --all lets it go"
        decisions = [Decision(each.id, expires=False, reason=stays) if each.id in imported else each for each in decisions]
    fates = []
    for each, decision in zip(found_runs, decisions, strict=True):
        count = sizes[each.run][0] if each.run in sizes else 0
        fate = Fate(each.run, each.label, count, each.path, decision.expires, decision.expires, decision.reason)
        # A run that just began is not.
        is_meant = each.run in sizes and (among is None or each.run in among)
        fates.append(fate if is_meant else replace(fate, is_due=False, expires=False))
    chains = chains_of(store, [fate.run for fate in fates if fate.expires])
    fates = [_with_chain(fate, chains.get(fate.run, ())) if fate.expires else fate for fate in fates]
    if not rules.everything:
        made = _made_something(store, [chain[-1] for chain in chains.values()])
        fates = [_kept_for_what_it_made(fate, chains[fate.run]) if fate.run in made else fate for fate in fates]
    return fates, chains


def foresee(store: Checkpoints, fates: Sequence[Fate]) -> list[Fate]:
    """Return the fates with the worktrees of expiring runs checked; change nothing."""
    rules = settings.read(store.repository)
    return [_kept_by_worktree(store, fate, rules) if fate.expires else fate for fate in fates]


def squashed(store: Checkpoints, but: Collection[str]) -> dict[str, tuple[Entry, str]]:
    """Return progress checkpoints of complete phases by id, each with its phase.

    Leaves out checkpoints that another checkpoint names, and the runs in `but`.
    """
    in_progress = store.list(Query(in_run=True, status="progress", triggers=[PHASE]))
    chains = chains_of(store, {str(entry.run) for entry in in_progress}.difference(but))
    squashable: dict[str, tuple[Entry, str]] = {}
    remaining: dict[str, str] = {}
    for chain in chains.values():
        within = policy.squashed((entry.id, entry.label, entry.trigger) for entry in chain)
        if within:
            squashable |= {entry.id: (entry, within[entry.id]) for entry in chain if entry.id in within}
            remaining |= {entry.id: entry.oid for entry in chain if entry.id not in within}
    if squashable:
        firsts = {id_: oid for run, (_, id_, oid) in store.index.sizes()[1].items() if run not in but}
        for checkpoint in _documents(store, remaining | firsts):
            for name in _names(checkpoint):
                squashable.pop(name, None)
    return squashable


def needed_by(store: Checkpoints, run: str) -> str | None:
    unfinished = {each.run for each in summary.summaries(store) if each.status != runstate.COMPLETE}
    return min(_needed_by(store, unfinished).get(run, ()), default=None)


def named(store: Checkpoints) -> set[str]:
    """Return the ids that a run's first or newest checkpoint names."""
    ends = {id_: oid for _, id_, oid in store.index.sizes()[1].values()} | {row[2]: row[3] for row in store.index.run_rows()}
    return {name for document in _documents(store, ends) for name in _names(document)}


def remove(
    store: Checkpoints,
    chains: Mapping[str, Sequence[Entry]],
    fates: Sequence[Fate],
    progress: Callable[[str], None] = lambda _: None,
    *,
    settled: bool = True,
) -> list[Fate]:
    """Remove the runs that expire; return the fate of each run.

    Args:
        chains: the checkpoints of the expiring runs, by sequence, as of the decision.
        settled: as for `Remover.remove`.

    Raises:
        BusyError, GitError: no single run caused it; each is whole or lost only its worktree.
    """
    due = [fate for fate in fates if fate.expires]
    if not due:
        return list(fates)
    rules = settings.read(store.repository)
    done: dict[str, Fate] = {}
    for batch in _portions(due):
        held, refused = store.leases.acquire_all([fate.run for fate in batch], worktree.HOLDER)
        try:
            newest = heads.newest_of(store.index, store.repository, held)
            for fate in batch:
                progress(f"removing run {fate.run}, {len(done) + 1} of {len(due)}")
                if fate.run in refused:
                    reason: str | None = refused[fate.run].message
                else:
                    reason = _take_apart(store, fate.run, chains[fate.run][-1], newest.get(fate.run), rules)
                done[fate.run] = fate if reason is None else replace(fate, expires=False, reason=reason)
            going = _delete(store, chains, [fate for fate in batch if done[fate.run].expires], done, progress, settled=settled)
            _forget(store, {fate.run: held.pop(fate.run) for fate in going if not fate.keeps})
        finally:
            for hold in held.values():
                _give_back(hold)
    return [done.get(fate.run, fate) for fate in fates]


def _delete(
    store: Checkpoints,
    chains: Mapping[str, Sequence[Entry]],
    going: list[Fate],
    done: dict[str, Fate],
    progress: Callable[[str], None],
    *,
    settled: bool,
) -> list[Fate]:
    """Delete the checkpoints of runs whose worktrees are gone.

    Returns:
        The errors of the runs whose refs cannot be deleted, by run.
    """
    while True:
        kept = {name for fate in going for name in fate.keeps}
        last = {entry.id for fate in going for entry in _ending(chains[fate.run])} - kept
        gone = {entry.id: fate.run for fate in going for entry in chains[fate.run] if entry.id not in kept}
        if not gone:
            return going
        progress(f"removing {len(gone)} checkpoints of runs")
        try:
            store.remove(gone.keys(), settled=settled, runs=[fate.run for fate in going], last=last)
            return going
        except CkptError as error:
            stuck = {gone.get(name, name) for name in blamed(error, gone.keys() | {fate.run for fate in going})}
            if not stuck:
                raise
            for fate in going:
                if fate.run in stuck:
                    done[fate.run] = replace(fate, expires=False, reason=error.message, failure=error)
            going = [fate for fate in going if fate.run not in stuck]


def blamed(error: CkptError, names: Collection[str]) -> set[str]:
    """Return the checkpoints and runs whose refs an error names.

    Without them, the same call can be repeated.
    """
    text = error.path if isinstance(error, LockHeld) else error.stderr if isinstance(error, GitError) else ""
    return set(_REF.findall(text)).intersection(names)


def _portions(due: Sequence[Fate]) -> Iterator[list[Fate]]:
    batch: list[Fate] = []
    weight = 0
    for fate in due:
        batch.append(fate)
        weight += _WEIGHT if fate.path is not None else 1
        if weight >= _AT_ONCE:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def forget_leases(store: Checkpoints) -> None:
    """Delete leases of runs that no longer exist, unless they are held or locked."""
    named = [ref.removeprefix(layout.LEASES) for ref, _ in store.refs.each(layout.LEASES)]
    existing = set(store.index.runs()) if named else set()
    for run in named:
        if run in existing or store.refs.read(layout.RUNS + run) is not None:
            continue
        try:
            lease = store.leases.read(run)
            if lease is not None and not store.leases.is_held(*lease):
                store.refs.update([Update(layout.LEASES + run, "", lease[0])])
        except (InvalidCheckpoint, RefMoved, LockHeld):
            continue  # `verify` reports it, or another process changed it


def _with_chain(fate: Fate, chain: Sequence[Entry]) -> Fate:
    # Another process may have removed the checkpoints meanwhile.
    return replace(fate, checkpoints=len(chain), is_due=bool(chain), expires=bool(chain))


def _imported(store: Checkpoints, due: Collection[str]) -> dict[str, int]:
    """Return the import times of given runs that were not continued here."""
    newest = heads.newest_of(store.index, store.repository, due) if due else {}
    oids = {entry.id: entry.oid for entry in newest.values() if entry.trigger.startswith(IMPORT)}
    return {str(one.run): times.from_text(one.imported.at) for one in _documents(store, oids) if one.imported is not None}


def _kept_for_what_it_made(fate: Fate, chain: Sequence[Entry]) -> Fate:
    keeps = tuple(entry.id for entry in chain if entry in _ending(chain))
    if len(keeps) == len(chain) and fate.path is None:
        return replace(fate, is_due=False, expires=False, reason="no branch holds what it made")
    return replace(fate, keeps=keeps, reason=f"{fate.reason}; its last checkpoint stays, as no branch holds what it made")


def _made_something(store: Checkpoints, newest: Sequence[Entry]) -> set[str]:
    """Return the runs whose last commit or files (`newest`) are in no branch or tag."""
    documents = {str(one.run): one for one in _documents(store, {entry.id: entry.oid for entry in newest})}
    dirty = {run for run, one in documents.items() if one.worktree is not None and one.worktree.dirty}
    commits = {one.git_sha for run, one in documents.items() if one.git_sha and run not in dirty}
    if not commits:
        return dirty
    existing = store.repository.cat_file.known(sorted(commits))
    wanted = "".join(f"{commit}\n" for commit in existing).encode("ascii")
    outside = store.repository.git.run("rev-list", "--stdin", "--not", "--branches", "--tags", "--remotes", data=wanted).out
    alone = {line.decode("ascii") for line in outside.splitlines()} | commits.difference(existing)
    return dirty | {run for run, one in documents.items() if one.git_sha in alone}


def _kept_by_worktree(store: Checkpoints, fate: Fate, rules: Settings) -> Fate:
    try:
        reason = worktree.reason_to_stay(store, fate.run, rules)
    except CkptError as error:
        reason = error.message
    return fate if reason is None else replace(fate, expires=False, reason=reason)


def _take_apart(store: Checkpoints, run: str, newest: Entry, now: Entry | None, rules: Settings) -> str | None:
    """Remove worktree and files of a run whose lease is held; return why it stays."""
    # `newest` was the newest checkpoint at the time of the decision.
    if now is None or now.id != newest.id:
        return "it went on meanwhile"
    try:
        reason = worktree.remove_worktree(store, run, rules, newest)
        beside = run_files.of_run(store.repository, run).path
        if reason is None and os.path.isdir(beside):
            worktree.delete_directory(beside)
    except CkptError as error:
        return error.message
    return reason


def _ending(chain: Sequence[Entry]) -> Iterable[Entry]:
    """Return the newest checkpoint and the newest phase: how a run ended."""
    driven = [entry for entry in chain if entry.trigger == PHASE]
    return (chain[-1], *driven[-1:])


def _forget(store: Checkpoints, held: Mapping[str, Hold]) -> None:
    updates = [Update(layout.LEASES + run, "", hold.update().old) for run, hold in held.items()]
    is_over = False
    try:
        if updates:
            store.refs.update(updates)
        is_over = True
    except (RefMoved, LockHeld):
        return  # `forget_leases` looks at each
    finally:
        for hold in held.values():
            hold.close(is_over=is_over)


def _give_back(hold: Hold) -> None:
    try:
        hold.release()
    except BusyError:
        return  # another process has it by now, or it ends with this process


def chains_of(store: Checkpoints, runs: Collection[str]) -> dict[str, list[Entry]]:
    """Return the checkpoints of some runs, by sequence.

    In a run written here, foreign checkpoints that claim the run come first.
    """
    chains: dict[str, list[Entry]] = {}
    for entry in store.list(Query(runs=sorted(runs))) if runs else ():
        chains.setdefault(str(entry.run), []).append(entry)
    for run, chain in chains.items():
        ours = known(store.repository, run)
        chain.sort(key=lambda entry: (entry.oid in ours, entry.sequence or 0, entry.id))
    return chains


def _needed_by(store: Checkpoints, unfinished: Collection[str]) -> dict[str, set[str]]:
    """Return which unfinished runs refer to each run, by run."""
    ends = (entry for chain in chains_of(store, unfinished).values() for entry in (chain[0], chain[-1]))
    documents = _documents(store, {entry.id: entry.oid for entry in ends})
    named = [(name, document.run) for document in documents for name in _names(document)]
    homes = {entry.id: entry.run for entry in store.list(Query(ids=sorted({name for name, _ in named})))} if named else {}
    needed: dict[str, set[str]] = {}
    for name, run in named:
        home = homes.get(name)
        if home is not None and home != run:
            needed.setdefault(home, set()).add(str(run))
    return needed


def _documents(store: Checkpoints, oids: Mapping[str, str]) -> Iterable[Checkpoint]:
    """Yield the readable documents of checkpoints (id to oid), without their states."""
    for id_, found in zip(oids, store.objects.read(list(oids.values())), strict=True):
        try:
            if found is not None:
                yield codec.decode_header(found[1], layout.CHECKPOINTS + id_)
        except InvalidCheckpoint:
            continue


def _names(checkpoint: Checkpoint) -> list[str]:
    """Return the other checkpoints that a document names, except its parent."""
    named = [checkpoint.forked_from, checkpoint.rewound_to]
    named += [checkpoint.attempt.began] if checkpoint.attempt else []
    named += checkpoint.pipeline.completed.values() if checkpoint.pipeline else []
    return [name for name in named if name is not None]
