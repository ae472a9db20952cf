"""The expiry policy: which checkpoints may go, and why. Pure; what it needs to know is handed to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gitckpt.model import phase, runstate, times
from gitckpt.model.arguments import require, require_number
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, SAFETY, SUBMODULE
from gitckpt.model.values import dataclass

HOUR = 3600 * times.MICRO
DAY = 24 * HOUR


Place = tuple[int, str]
"""The time and the id of a checkpoint: of two, the one with the greater place is the newer one."""

ALL: Place = (-(1 << 63), "")
"""Before every checkpoint."""


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

    line: str | None = None
    """The branch it was made on. Only a later one of the same line can stand for it."""

    agent: bool = False
    """Whether an agent had it made."""

    tagged: bool = False
    """Whether a tag points to it, or to its commit."""

    def is_among(self, oldest: Place | None) -> bool:
        """Tells whether it is as new as the oldest one that stays among the newest."""
        return oldest is not None and (self.time, self.id) >= oldest

    @property
    def is_automatic(self) -> bool:
        """Whether nobody asked for it by hand, and no run needs it: a hook made it, or an agent."""
        return self.run is None and (self.trigger in HOOK_TRIGGERS or (self.trigger == MANUAL and self.agent))


@dataclass(frozen=True, slots=True)
class RunCandidate:
    """What the policy knows of a run."""

    id: str
    time: int
    """Of its newest checkpoint, in microseconds since the epoch."""

    status: str
    """What has become of it, one of `runstate.STATUSES`."""

    needed_by: Collection[str] = ()
    """The unfinished runs that refer to its checkpoints."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When checkpoints expire. Lengths of time are in microseconds; a UsageError says which is no whole number from 0 on."""

    older_than: int = 30 * DAY
    """A checkpoint made by a hook expires at this age."""

    rewritten_older_than: int = 7 * DAY
    """… and at this age if its commit was rewritten, however new it is among the others."""

    keep_last: int = 100
    """So many of the newest stay, whatever their age."""

    runs_older_than: int = 7 * DAY
    """A run that is complete expires as a whole when its newest checkpoint has this age."""

    hourly_after: int = DAY
    """Of those made by hooks and agents, one an hour stays from this age on …"""

    daily_after: int = 7 * DAY
    """… and one a day from this one, if it has what the others have."""

    safety_older_than: int = 7 * DAY
    """A safety checkpoint, made unasked before files were replaced, expires at this age …"""

    safety_keep_last: int = 20
    """… but so many of the newest of those stay."""

    everything: bool = False
    """Whether checkpoints saved by people, and runs that are not complete, are candidates too."""

    @property
    def safeties(self) -> int:
        """How many of the newest safety checkpoints stay."""
        return min(self.safety_keep_last, self.keep_last) if self.everything else self.safety_keep_last

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "everything":
                require_number(name, getattr(self, name))
        require("everything", self.everything, bool, "True or False")


_EVER = 1 << 60
NOTHING_EXPIRES = Policy(
    older_than=_EVER,
    rewritten_older_than=_EVER,
    runs_older_than=_EVER,
    hourly_after=_EVER,
    daily_after=_EVER,
    safety_older_than=_EVER,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a checkpoint, or of a run."""

    id: str
    expires: bool
    reason: str
    """One clause for a person, such as "35d old, limit 30d"."""


@dataclass(frozen=True, slots=True)
class Newest:
    """Which checkpoints stay as they are among the newest: the place of the oldest of them, of each kind; None where none stays."""

    hooks: Place | None
    """Of those by hooks; where everything is a candidate, of all but those for safety."""

    agents: Place | None
    """Of those by hooks and agents together, which are thinned."""

    safety: Place | None


def apply(candidates: Iterable[Candidate], policy: Policy, newest: Newest, *, now: int) -> list[Decision]:
    """Returns a decision for each candidate, in the order given; those of runs stay, as a run goes as a whole.

    Args:
        candidates: checkpoints.
        policy: the rules.
        newest: which stay as the policy lets so many of the newest stay.
        now: the current instant, in microseconds since the epoch.
    """
    return [
        _kept_for_what_it_is(candidate, policy)
        or _kept_or_expired_for_its_commit(candidate, policy, now)
        or (_of_safety if candidate.trigger == SAFETY else _by_rank_and_age)(candidate, policy, newest, now)
        for candidate in candidates
    ]


@dataclass(frozen=True, slots=True)
class Span:
    """The checkpoints of one line that were made by hooks and agents within one hour, or one day."""

    length: str
    """"hour" or "day"."""

    newest: Candidate
    due: Sequence[Candidate]
    """Those of the others that may go if a later one has what they have, newest first."""


def spans(candidates: Iterable[Candidate], policy: Policy, newest: Newest, *, now: int) -> list[Span]:
    """Returns where checkpoints are thinned as they age. Hours and days begin when those of UTC do, so that each stays the same.

    Args:
        candidates: checkpoints that do not expire, newest first.
        policy: the rules.
        newest: which stay as the policy lets so many of the newest stay.
        now: the current instant, in microseconds since the epoch.
    """
    found: dict[tuple[str | None, int, int], list[tuple[Candidate, bool]]] = {}
    first = min(policy.hourly_after, policy.daily_after)
    for each in candidates:
        if each.is_automatic:
            age = now - each.time
            length = DAY if age >= policy.daily_after else HOUR
            is_due = age >= first and not each.is_among(newest.agents) and not each.tagged
            found.setdefault((each.line, length, each.time // length), []).append((each, is_due))
    return [
        Span("day" if length == DAY else "hour", some[0][0], due)
        for (_, length, _), some in found.items()
        if (due := [each for each, is_due in some[1:] if is_due])
    ]


def thinned(candidate: Candidate, span: Span, *, now: int) -> Decision:
    """Returns the decision on one that is due, where a later one has what it has."""
    reason = f"{_length(now - candidate.time)} old, one {'an' if span.length == 'hour' else 'a'} {span.length} stays"
    return Decision(candidate.id, expires=True, reason=reason)


def apply_to_runs(runs: Sequence[RunCandidate], policy: Policy, *, now: int) -> list[Decision]:
    """Returns a decision for each run, in the order given.

    A run that somebody drives stays, whatever the policy; and so does one that an unfinished run refers to which stays.

    Args:
        runs: the one with the newest checkpoint first.
        policy: the rules.
        now: the current instant, in microseconds since the epoch.
    """
    decided: dict[str, Decision] = {}
    unfinished = 0
    for run in runs:
        unfinished += run.status != runstate.COMPLETE
        decided[run.id] = _of_run(run, policy, now, unfinished)
    going = [run for run in runs if decided[run.id].expires]
    while True:
        needed = [(run, name) for run in going for name in sorted(run.needed_by) if name in decided and not decided[name].expires]
        if not needed:
            return list(decided.values())
        for run, name in needed:
            decided[run.id] = Decision(run.id, expires=False, reason=f"the unfinished run {name} refers to it")
        going = [run for run in going if decided[run.id].expires]


def squashed(chain: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Returns the checkpoints of a run that only tell of progress within phases that are complete by now, each with its phase.

    Args:
        chain: id, phase label and trigger of each checkpoint of the run, by sequence.
    """
    found: dict[str, str] = {}
    begun: dict[str, list[str]] = {}
    for checkpoint, label, trigger in chain:
        name, status = phase.split(label)
        if status == "started":
            begun.setdefault(name, [])
        elif status == "progress" and trigger == PHASE and name in begun:
            begun[name].append(checkpoint)
        elif status in ("complete", "skipped"):
            found |= dict.fromkeys(begun.pop(name, ()), name)
    return found


def _of_run(run: RunCandidate, policy: Policy, now: int, rank: int) -> Decision:
    if run.status in runstate.DRIVEN:
        return Decision(run.id, expires=False, reason="somebody drives it")
    if run.status == runstate.COMPLETE:
        limit = min(policy.runs_older_than, policy.older_than) if policy.everything else policy.runs_older_than
    elif not policy.everything:
        return Decision(run.id, expires=False, reason=f"unfinished: {run.status}")
    elif rank <= policy.keep_last:
        return Decision(run.id, expires=False, reason=f"unfinished: {run.status}, among the newest {policy.keep_last}")
    else:
        limit = policy.older_than
    age = now - run.time
    how = "complete" if run.status == runstate.COMPLETE else f"unfinished: {run.status}"
    return Decision(run.id, expires=age >= limit, reason=f"{how}, {_length(age)} old, limit {_length(limit)}")


def _kept_for_what_it_is(candidate: Candidate, policy: Policy) -> Decision | None:
    if candidate.run is not None:
        return Decision(candidate.id, expires=False, reason=f"belongs to the run {candidate.run}")
    if candidate.trigger == SUBMODULE:
        return Decision(candidate.id, expires=False, reason="belongs to a checkpoint of the repository around this one")
    if candidate.trigger not in (*HOOK_TRIGGERS, SAFETY) and not policy.everything:
        return Decision(candidate.id, expires=False, reason="not made by a hook")
    if candidate.tagged and candidate.trigger in HOOK_TRIGGERS and not policy.everything:
        return Decision(candidate.id, expires=False, reason="tagged")
    return None


def _kept_or_expired_for_its_commit(candidate: Candidate, policy: Policy, now: int) -> Decision | None:
    if not candidate.rewritten or candidate.trigger not in HOOK_TRIGGERS:
        return None
    age = now - candidate.time
    limit = min(policy.rewritten_older_than, policy.older_than)
    expires = age >= limit
    reason = f"its commit was rewritten, {_length(age)} old, limit {_length(limit)}"
    return Decision(candidate.id, expires=expires, reason=reason)


def _of_safety(candidate: Candidate, policy: Policy, newest: Newest, now: int) -> Decision:
    keep, limit = policy.safeties, policy.safety_older_than
    if policy.everything:
        limit = min(limit, policy.older_than)
    if candidate.is_among(newest.safety):
        return Decision(candidate.id, expires=False, reason=f"made for safety, among the newest {keep}")
    age = now - candidate.time
    return Decision(candidate.id, expires=age >= limit, reason=f"made for safety, {_length(age)} old, limit {_length(limit)}")


def _by_rank_and_age(candidate: Candidate, policy: Policy, newest: Newest, now: int) -> Decision:
    age = now - candidate.time
    if candidate.is_among(newest.hooks):
        return Decision(candidate.id, expires=False, reason=f"among the newest {policy.keep_last}")
    reason = f"{_length(age)} old, limit {_length(policy.older_than)}"
    return Decision(candidate.id, expires=age >= policy.older_than, reason=reason)


def _length(length: int) -> str:
    return times.age_text(length) if length >= times.MICRO else "0s"
