"""The expiry policy: which checkpoints may go, and why. Pure; what it needs to know is handed to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gitckpt.model import times
from gitckpt.model.checkpoint import HOOK_TRIGGERS

DAY = 86400 * times.MICRO


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the policy knows of a checkpoint."""

    id: str
    time: int
    """Its timestamp, in microseconds since the epoch."""

    trigger: str
    run: str | None
    rewritten: bool
    """Whether an amend or rebase replaced its commit."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When checkpoints expire. Lengths of time are in microseconds."""

    older_than: int = 30 * DAY
    """A checkpoint made by a hook expires at this age."""

    rewritten_older_than: int = 7 * DAY
    """… and at this age if its commit was rewritten, however new it is among the others."""

    keep_last: int = 100
    """So many of the newest stay, whatever their age."""

    everything: bool = False
    """Whether checkpoints saved by people and by runs, finished or not, are candidates too."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one checkpoint."""

    id: str
    expires: bool
    reason: str
    """One clause for a person, such as "35d old, limit 30d"."""


def apply(candidates: Sequence[Candidate], policy: Policy, *, now: int, unfinished: Collection[str]) -> list[Decision]:
    """Returns a decision for each candidate, in the order given.

    Args:
        candidates: checkpoints, newest first.
        policy: the rules.
        now: the current instant, in microseconds since the epoch.
        unfinished: ids of the runs that are not complete.
    """
    decisions = []
    seen = 0
    for candidate in candidates:
        decision = _kept_for_what_it_is(candidate, policy, unfinished) or _kept_or_expired_for_its_commit(candidate, policy, now)
        if decision is None:
            seen += 1
            decision = _by_rank_and_age(candidate, policy, now, seen)
        decisions.append(decision)
    return decisions


def _kept_for_what_it_is(candidate: Candidate, policy: Policy, unfinished: Collection[str]) -> Decision | None:
    if policy.everything:
        return None
    if candidate.run in unfinished:
        return Decision(candidate.id, expires=False, reason=f"belongs to the unfinished run {candidate.run}")
    if candidate.trigger not in HOOK_TRIGGERS:
        return Decision(candidate.id, expires=False, reason="not made by a hook")
    return None


def _kept_or_expired_for_its_commit(candidate: Candidate, policy: Policy, now: int) -> Decision | None:
    if not candidate.rewritten or candidate.trigger not in HOOK_TRIGGERS:
        return None
    age = now - candidate.time
    limit = min(policy.rewritten_older_than, policy.older_than)
    expires = age >= limit
    reason = f"its commit was rewritten, {_length(age)} old, limit {_length(limit)}"
    return Decision(candidate.id, expires=expires, reason=reason)


def _by_rank_and_age(candidate: Candidate, policy: Policy, now: int, rank: int) -> Decision:
    age = now - candidate.time
    if rank <= policy.keep_last:
        return Decision(candidate.id, expires=False, reason=f"among the newest {policy.keep_last}")
    reason = f"{_length(age)} old, limit {_length(policy.older_than)}"
    return Decision(candidate.id, expires=age >= policy.older_than, reason=reason)


def _length(length: int) -> str:
    return times.age_text(length) if length >= times.MICRO else "0s"
