"""Expiry of runs: each goes as a whole, with worktree, files and lease, or stays as it is.

Only where no branch holds what a run made, its last checkpoint stays: it is then the only one that does.

The worktree goes first: what it held is in the newest checkpoint until that goes, too. The checkpoint that says how the run ended goes
last, so that a kill leaves a run that the next call removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.refs import RefMoved, Update
from gitckpt.model import policy, runstate
from gitckpt.model.checkpoint import PHASE, Checkpoint
from gitckpt.model.errors import BusyError, CkptError, InvalidCheckpoint
from gitckpt.model.policy import Policy, RunCandidate
from gitckpt.model.readers import codec
from gitckpt.model.values import dataclass, replace
from gitckpt.store.chains import known
from gitckpt.store.records import heads, layout
from gitckpt.store.retention import worktree
from gitckpt.store.runs import run_files, summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.leases.leases import Hold
    from gitckpt.store.records.entry import Entry


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a run.

    Attributes:
        run: its id.
        label: the phase label that says how far it came.
        checkpoints: how many it has.
        path: the top of its worktree; None where there is none.
        is_due: whether the policy lets it go.
        expires: whether it goes; one that is due stays where its worktree holds what no checkpoint does.
        reason: one clause for a person.
        keeps: the ids of its checkpoints that stay all the same.
    """

    run: str
    label: str
    checkpoints: int
    path: str | None
    is_due: bool
    expires: bool
    reason: str
    keeps: tuple[str, ...] = ()


def decide(store: Checkpoints, entries: Sequence[Entry], rules: Policy, among: Collection[str] | None = None) -> list[Fate]:
    """Returns what becomes of each run by the policy; worktrees are not looked at.

    Args:
        store: of the repository.
        entries: all checkpoints.
        rules: the policy.
        among: the runs that may go; all by default.
    """
    found = summary.summaries(store)
    chains = _chains(store, entries)
    needed: Mapping[str, set[str]] = {}
    if any(each.status == runstate.COMPLETE for each in found) or rules.everything:
        needed = _needed_by(store, chains, {each.id for each in found if each.status != runstate.COMPLETE})
    candidates = [RunCandidate(each.id, each.time, each.status, needed.get(each.id, ())) for each in found]
    decisions = policy.apply_to_runs(candidates, rules, now=store.clock())
    fates = []
    for each, decision in zip(found, decisions, strict=True):
        fate = Fate(each.id, each.label, len(chains.get(each.id, ())), each.path, decision.expires, decision.expires, decision.reason)
        if fate.expires and not rules.everything:
            fate = _kept_for_what_it_made(store, fate, chains.get(each.id, ()))
        is_meant = each.id in chains and (among is None or each.id in among)  # what began just now is not
        fates.append(fate if is_meant else replace(fate, is_due=False, expires=False))
    return fates


def foresee(store: Checkpoints, fates: Sequence[Fate]) -> list[Fate]:
    """Returns what would become of each run, with a look at the worktrees of those that expire; changes nothing.

    Args:
        store: of the repository.
        fates: what was decided.
    """
    return [_kept_by_worktree(store, fate) if fate.expires else fate for fate in fates]


def squashed(store: Checkpoints, entries: Sequence[Entry], but: Collection[str]) -> dict[str, str]:
    """Returns the checkpoints that only tell of progress within phases that are complete by now, each with its phase.

    One that another checkpoint names is not among them.

    Args:
        store: of the repository.
        entries: all checkpoints.
        but: runs to leave out.
    """
    chains = _chains(store, (entry for entry in entries if entry.run not in but))
    found: dict[str, str] = {}
    touched: list[Entry] = []
    for chain in chains.values():
        within = policy.squashed((entry.id, entry.phase, entry.trigger) for entry in chain)
        if within:
            found |= within
            touched += [entry for entry in chain if entry.id not in within]
    if found:
        firsts = [chain[0] for chain in chains.values()]
        for checkpoint in _documents(store, {entry.id: entry for entry in [*touched, *firsts]}.values()):
            for name in _names(checkpoint):
                found.pop(name, None)
    return found


def remove(
    store: Checkpoints,
    entries: Sequence[Entry],
    fates: Sequence[Fate],
    progress: Callable[[str], None] = lambda _: None,
    *,
    settled: bool = True,
) -> list[Fate]:
    """Removes the runs that expire; returns what became of each run.

    Args:
        store: of the repository.
        entries: all checkpoints, as they were when it was decided.
        fates: what was decided.
        progress: is told what is being done, a few words at a time.
        settled: as for `Remover.remove`.

    Raises:
        BusyError, GitError: as `Checkpoints.remove`; each run is then as it was, or its checkpoints, but not its worktree.
    """
    chains = _chains(store, entries)
    held: dict[str, Hold] = {}
    done = []
    try:
        due = sum(fate.expires for fate in fates)
        for fate in fates:
            if fate.expires:
                progress(f"removing run {fate.run}, {len(held) + 1} of {due}")
            reason = _take_apart(store, fate.run, chains[fate.run][-1].id, held) if fate.expires else None
            done.append(fate if reason is None else replace(fate, expires=False, reason=reason))
        gone = [chains[fate.run] for fate in done if fate.expires]
        kept = {name for fate in done if fate.expires for name in fate.keeps}
        last = {entry.id for chain in gone for entry in _ending(chain)} - kept
        first = [entry.id for chain in gone for entry in chain if entry.id not in last | kept]
        for some in (first, last):
            if some:
                progress(f"removing {len(some)} checkpoints of runs")
                store.remove(some, settled=settled)
        _forget(store, {fate.run: held.pop(fate.run) for fate in done if fate.expires and not fate.keeps})
    finally:
        for hold in held.values():
            _give_back(hold)
    return done


def forget_leases(store: Checkpoints) -> None:
    """Deletes the leases of runs that do not exist any more, unless somebody who is alive holds them.

    Raises:
        LockHeld, GitError: one could not be deleted.
    """
    listing = store.refs.list(layout.LEASES.rstrip("/"), fields="%(refname)").decode("utf-8", "surrogateescape").split("\n")[:-1]
    named = [ref.removeprefix(layout.LEASES) for ref in listing]
    there = set(store.index.runs()) if named else set()
    for run in named:
        if run in there or store.refs.read(layout.RUNS + run) is not None:
            continue
        try:
            found = store.leases.read(run)
            if found is not None and not found[1].is_held(store.clock()):
                store.refs.update([Update(layout.LEASES + run, "", found[0])])
        except (InvalidCheckpoint, RefMoved):
            continue  # it is for `verify`, or somebody else's


def _kept_for_what_it_made(store: Checkpoints, fate: Fate, chain: Sequence[Entry]) -> Fate:
    """Lets the last checkpoint of a run stay where its commit or files are in no branch, tag or remote-tracking branch."""
    newest = next(iter(_documents(store, chain[-1:])), None)
    if newest is None or _is_in_history(store, newest):
        return fate
    keeps = tuple(entry.id for entry in chain if entry in _ending(chain))
    if len(keeps) == len(chain) and fate.path is None:
        return replace(fate, is_due=False, expires=False, reason="no branch holds what it made")
    return replace(fate, keeps=keeps, reason=f"{fate.reason}; its last checkpoint stays, as no branch holds what it made")


def _is_in_history(store: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Tells whether commit and files of a checkpoint are in a branch, a tag or a remote-tracking branch."""
    files = checkpoint.worktree
    if files is not None and files.dirty:
        return False
    if not checkpoint.git_sha:
        return True
    spaces = ("refs/heads", "refs/tags", "refs/remotes")
    words = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={checkpoint.git_sha}", *spaces)
    done = store.repository.git.run(*words, ok=(0, 129))  # its commit may be missing
    return done.out != b""


def _kept_by_worktree(store: Checkpoints, fate: Fate) -> Fate:
    try:
        reason = worktree.reason_to_stay(store, fate.run)
    except CkptError as error:
        reason = error.message
    return fate if reason is None else replace(fate, expires=False, reason=reason)


def _take_apart(store: Checkpoints, run: str, newest: str, held: dict[str, Hold]) -> str | None:
    """Removes worktree and files of a run, whose lease then is ours; returns why it stays."""
    try:
        held[run] = store.leases.acquire(run, worktree.HOLDER)
        found = heads.newest(store.index, store.repository, run)
        if found is None or found.id != newest:
            return "it went on meanwhile"
        reason = worktree.remove_worktree(store, run)
        beside = run_files.of_run(store.repository, run).path
        if reason is None and os.path.isdir(beside):
            worktree.delete_directory(beside)
    except CkptError as error:
        return error.message
    return reason


def _ending(chain: Sequence[Entry]) -> Iterable[Entry]:
    """Returns the checkpoints that say what has become of a run: its newest one, and the newest of whoever drove it."""
    driven = [entry for entry in chain if entry.trigger == PHASE]
    return (chain[-1], *driven[-1:])


def _forget(store: Checkpoints, held: Mapping[str, Hold]) -> None:
    """Deletes leases that are ours."""
    updates = [Update(layout.LEASES + run, "", hold.update().old) for run, hold in held.items()]
    try:
        if updates:
            store.refs.update(updates)
    except RefMoved:
        return  # `forget_leases` looks at each


def _give_back(hold: Hold) -> None:
    try:
        hold.release()
    except BusyError:
        return  # somebody else's by now; if not, it ends with this process


def _chains(store: Checkpoints, entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Returns the checkpoints of each run, by sequence; before those of a run of ours, what was not written here and says it is of it."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.run is not None:
            found.setdefault(entry.run, []).append(entry)
    for run, chain in found.items():
        ours = known(store.repository, run)
        chain.sort(key=lambda entry: (entry.oid in ours, entry.sequence or 0, entry.id))
    return found


def _needed_by(store: Checkpoints, chains: Mapping[str, Sequence[Entry]], unfinished: Collection[str]) -> dict[str, set[str]]:
    """Returns, for each run that others of the unfinished ones refer to, which these are."""
    homes = {entry.id: run for run, chain in chains.items() for entry in chain}
    wanted = {entry.id: entry for run in unfinished if run in chains for entry in (chains[run][0], chains[run][-1])}
    found: dict[str, set[str]] = {}
    for checkpoint in _documents(store, wanted.values()):
        for name in _names(checkpoint):
            home = homes.get(name)
            if home is not None and home != checkpoint.run:
                found.setdefault(home, set()).add(str(checkpoint.run))
    return found


def _documents(store: Checkpoints, entries: Iterable[Entry]) -> Iterable[Checkpoint]:
    """Yields the documents of some checkpoints, without their states; those that cannot be read are left out."""
    some = list(entries)
    for entry, found in zip(some, store.objects.read([entry.oid for entry in some]), strict=True):
        try:
            if found is not None:
                yield codec.decode_header(found[1], layout.CHECKPOINTS + entry.id)
        except InvalidCheckpoint:
            continue


def _names(checkpoint: Checkpoint) -> list[str]:
    """Returns the other checkpoints that a document names, less its parent."""
    named = [checkpoint.forked_from, checkpoint.rewound_to]
    named += [checkpoint.attempt.began] if checkpoint.attempt else []
    named += checkpoint.pipeline.completed.values() if checkpoint.pipeline else []
    return [name for name in named if name is not None]
