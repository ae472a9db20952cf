"""The expiry policy: which checkpoints may go, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gitckpt.model import phase, runstate, times
from gitckpt.model.arguments import require, require_number
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, SAFETY, SUBMODULE
from gitckpt.model.values import dataclass

HOUR = 3600 * times.MICRO
DAY = 24 * HOUR

# Time and id of a checkpoint; the newer one of two has the greater place.
Place = tuple[int, str]

# Before every checkpoint.
ALL: Place = (-(1 << 63), "")


@dataclass(frozen=True, slots=True)
class Candidate:
    id: str
    # In microseconds since the epoch.
    time: int
    trigger: str
    run: str | None
    # Whether an amend or rebase replaced its commit.
    rewritten: bool
    # The branch it was made on; only a later checkpoint of the same line can replace it.
    line: str | None = None
    agent: bool = False
    # Whether a tag points to it or to its commit.
    tagged: bool = False

    def is_among(self, oldest: Place | None) -> bool:
        return oldest is not None and (self.time, self.id) >= oldest

    @property
    def is_automatic(self) -> bool:
        """Whether a hook or an agent made it outside of any run."""
        return self.run is None and (self.trigger in HOOK_TRIGGERS or (self.trigger == MANUAL and self.agent))


@dataclass(frozen=True, slots=True)
class RunCandidate:
    id: str
    # Of its newest checkpoint, in microseconds since the epoch.
    time: int
    # One of `runstate.STATUSES`.
    status: str
    # Unfinished runs that refer to its checkpoints.
    needed_by: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """When checkpoints expire; ages are in microseconds."""

    # Age at which a hook's checkpoint expires.
    older_than: int = 30 * DAY
    # The same for a rewritten commit, even among the newest.
    rewritten_older_than: int = 7 * DAY
    # This many of the newest stay, whatever their age.
    keep_last: int = 100
    # Age of the newest checkpoint at which a complete run expires as a whole.
    runs_older_than: int = 7 * DAY
    # From this age on, one an hour stays of those by hooks and agents.
    hourly_after: int = DAY
    # From this age on, one a day stays if it has what the others have.
    daily_after: int = 7 * DAY
    # Age at which a safety checkpoint expires, except the `safety_keep_last` newest.
    safety_older_than: int = 7 * DAY
    safety_keep_last: int = 20
    # Whether checkpoints by people and unfinished runs are candidates too.
    everything: bool = False

    @property
    def safeties(self) -> int:
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
    id: str
    expires: bool
    # A clause for people, such as "35d old, limit 30d".
    reason: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The oldest checkpoint of each kind that `keep_last` keeps, or None."""

    # By hooks; of all but the safety checkpoints where everything is a candidate.
    hooks: Place | None
    # By hooks and agents together, which are thinned.
    agents: Place | None
    safety: Place | None


def apply(candidates: Iterable[Candidate], policy: Policy, newest: Newest, *, now: int) -> list[Decision]:
    """Return a decision for each checkpoint, in order. Those of runs stay."""
    return [
        _kept_for_what_it_is(candidate, policy)
        or _kept_or_expired_for_its_commit(candidate, policy, now)
        or (_of_safety if candidate.trigger == SAFETY else _by_rank_and_age)(candidate, policy, newest, now)
        for candidate in candidates
    ]


@dataclass(frozen=True, slots=True)
class Span:
    """Checkpoints of one line by hooks and agents within one hour or one day."""

    # "hour" or "day".
    length: str
    newest: Candidate
    # Others that may go if a later one has what they have, newest first.
    due: Sequence[Candidate]


def spans(candidates: Iterable[Candidate], policy: Policy, newest: Newest, *, now: int) -> list[Span]:
    """Return the spans, in UTC, in which to thin candidates (newest first)."""
    groups: dict[tuple[str | None, int, int], list[tuple[Candidate, bool]]] = {}
    first = min(policy.hourly_after, policy.daily_after)
    for each in candidates:
        if each.is_automatic:
            age = now - each.time
            length = DAY if age >= policy.daily_after else HOUR
            is_due = age >= first and not each.is_among(newest.agents) and not each.tagged
            groups.setdefault((each.line, length, each.time // length), []).append((each, is_due))
    return [
        Span("day" if length == DAY else "hour", some[0][0], due)
        for (_, length, _), some in groups.items()
        if (due := [each for each, is_due in some[1:] if is_due])
    ]


def thinned(candidate: Candidate, span: Span, *, now: int) -> Decision:
    reason = f"{_length(now - candidate.time)} old, one {'an' if span.length == 'hour' else 'a'} {span.length} stays"
    return Decision(candidate.id, expires=True, reason=reason)


def apply_to_runs(runs: Sequence[RunCandidate], policy: Policy, *, now: int) -> list[Decision]:
    """Return a decision for each run, newest first.

    A driven run stays, and so does one that a staying unfinished run refers to.
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
    """Return the progress checkpoints of complete phases, each with its phase."""
    squashed_ids: dict[str, str] = {}
    begun: dict[str, list[str]] = {}
    for checkpoint, label, trigger in chain:
        name, status = phase.split(label)
        if status == "started":
            begun.setdefault(name, [])
        elif status == "progress" and trigger == PHASE and name in begun:
            begun[name].append(checkpoint)
        elif status in ("complete", "skipped"):
            squashed_ids |= dict.fromkeys(begun.pop(name, ()), name)
    return squashed_ids


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
