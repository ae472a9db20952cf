"""Expiry: what the policy lets go is removed; the objects are git's to collect."""

from __future__ import annotations

from gitckpt.git.notes import Notes
from gitckpt.model import policy
from gitckpt.model.policy import Candidate, Decision, Policy
from gitckpt.store import layout
from gitckpt.store.index import Entry, Index, Query
from gitckpt.store.remover import Remover


def expire(index: Index, notes: Notes, remover: Remover, rules: Policy, *, now: int, dry_run: bool = False) -> list[tuple[Entry, Decision]]:
    """Removes the checkpoints that a policy lets go.

    Args:
        index: knows the checkpoints.
        notes: their links; a checkpoint that the note of another commit lists belongs to a commit that was rewritten.
        remover: removes them.
        rules: the policy.
        now: the current instant, in microseconds since the epoch.
        dry_run: whether to decide only.

    Returns:
        Every checkpoint with what became of it and why, newest first.

    Raises:
        BusyError, GitError: as `Remover.remove`.
    """
    entries = index.select(Query())
    noted = notes.everything()
    rewritten = _rewritten(entries, noted)
    candidates = [Candidate(entry.id, entry.time, entry.trigger, entry.run, entry.id in rewritten) for entry in entries]
    decisions = policy.apply(candidates, rules, now=now, unfinished=_unfinished(entries))
    gone = [decision.id for decision in decisions if decision.expires]
    if gone and not dry_run:
        runs = {entry.run for entry, decision in zip(entries, decisions, strict=True) if decision.expires and entry.run}
        remover.remove(gone, now, noted=noted, runs=runs)
    return list(zip(entries, decisions, strict=True))


def _rewritten(entries: list[Entry], noted: dict[str, list[str]]) -> set[str]:
    commits = {entry.id: entry.git_sha for entry in entries}
    listed = ((layout.link_id(line), commit) for commit, lines in noted.items() for line in lines)
    return {checkpoint for checkpoint, commit in listed if commits.get(checkpoint, commit) != commit}


def _unfinished(entries: list[Entry]) -> set[str]:
    newest: dict[str, str] = {}
    for entry in entries:
        if entry.run:
            newest.setdefault(entry.run, entry.phase)
    return {run for run, phase in newest.items() if phase != layout.RUN_COMPLETE}
