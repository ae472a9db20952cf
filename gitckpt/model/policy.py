"""Decide which checkpoints and runs expire, and why, without input or output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gitckpt.model import phase, runstate, times
from gitckpt.model.arguments import require_number, require_type
from gitckpt.model.checkpoint import EXPIRING, MANUAL, PHASE, SAFETY, SUBMODULE
from gitckpt.model.values import dataclass

HOUR = 3600 * times.MICRO
DAY = 24 * HOUR
Place = tuple[int, str]  # time and id of a checkpoint, to compare which of two is newer
ALL: Place = (-(1 << 63), "")  # older than every checkpoint


@dataclass(frozen=True, slots=True)
class ExpiryCandidate:
    id: str
    time: int  # in microseconds since the epoch
    trigger: str
    run: str | None
    rewritten: bool  # whether an amend or rebase replaced its commit
    # The branch of the checkpoint; only a later one of the same branch can replace it.
    line: str | None = None
    agent: bool = False
    tagged: bool = False  # whether a tag points to the checkpoint or to its commit
    ends_turn: bool = False  # whether it is the end of a turn of an agent

    def is_not_older_than(self, oldest: Place | None) -> bool:
        return oldest is not None and (self.time, self.id) >= oldest

    @property
    def is_automatic(self) -> bool:
        by_agent = self.trigger == MANUAL and self.agent
        return self.run is None and (by_agent or self.trigger in EXPIRING)


@dataclass(frozen=True, slots=True)
class RunCandidate:
    id: str
    time: int  # time of its newest checkpoint, in microseconds since the epoch
    status: str  # one of `runstate.STATUSES`
    needed_by: Collection[str] = ()  # unfinished runs that refer to its checkpoints
    is_session: bool = False  # whether it is a session of an agent that gitckpt did not start


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings that decide when checkpoints and runs expire; ages in microseconds."""

    older_than: int = 30 * DAY  # age at which a hook's checkpoint expires
    rewritten_older_than: int = 7 * DAY  # the same for a rewritten commit, even among the newest
    keep_last: int = 100  # this many of the newest stay, whatever their age
    # Age of the newest checkpoint at which a complete run expires as a whole.
    runs_older_than: int = 7 * DAY
    hourly_after: int = DAY  # age from which one an hour stays of those by hooks and agents
    daily_after: int = 7 * DAY  # age from which one a day stays of the same checkpoints
    # Sessions of agents: the age from which one end of a turn an hour stays …
    agent_hourly_after: int = DAY
    agent_last_after: int = 7 * DAY  # … from which only the last checkpoint of a session stays …
    agent_older_than: int = 30 * DAY  # … and at which that one expires.
    # Age at which a safety checkpoint expires, except the `safety_keep_last` newest.
    safety_older_than: int = 7 * DAY
    safety_keep_last: int = 20
    everything: bool = False  # whether checkpoints by people and unfinished runs are candidates too

    @property
    def safeties(self) -> int:
        limit = self.safety_keep_last
        return min(limit, self.keep_last) if self.everything else limit

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "everything":
                require_number(name, getattr(self, name))
        require_type("everything", self.everything, bool, "True or False")


_EVER = 1 << 60
NOTHING_EXPIRES = Policy(
    older_than=_EVER,
    rewritten_older_than=_EVER,
    runs_older_than=_EVER,
    hourly_after=_EVER,
    daily_after=_EVER,
    agent_hourly_after=_EVER,
    agent_last_after=_EVER,
    agent_older_than=_EVER,
    safety_older_than=_EVER,
)


@dataclass(frozen=True, slots=True)
class Decision:
    id: str
    expires: bool
    reason: str  # a clause for people, such as "35d old, limit 30d"


@dataclass(frozen=True, slots=True)
class NewestKept:
    """For each kind, the oldest checkpoint that is kept as one of the newest, or None."""

    # Made by hooks; with `Policy.everything`, any but a safety checkpoint.
    hooks: Place | None
    agents: Place | None  # by hooks and agents together, which are thinned
    safety: Place | None


def decide_expiry(
    candidates: Iterable[ExpiryCandidate], policy: Policy, newest: NewestKept, *, now: int
) -> list[Decision]:
    return [_decide_checkpoint(candidate, policy, newest, now) for candidate in candidates]


def _decide_checkpoint(
    candidate: ExpiryCandidate, policy: Policy, newest: NewestKept, now: int
) -> Decision:
    is_by_hook = candidate.trigger in EXPIRING
    if candidate.run is not None:
        return _keep_because(candidate.id, f"belongs to the run {candidate.run}")
    if candidate.trigger == SUBMODULE:
        return _keep_because(candidate.id, "belongs to a checkpoint of the superproject")
    if not is_by_hook and candidate.trigger != SAFETY and not policy.everything:
        return _keep_because(candidate.id, "not made by a hook")
    if candidate.tagged and is_by_hook and not policy.everything:
        return _keep_because(candidate.id, "tagged")
    age = now - candidate.time
    if candidate.rewritten and is_by_hook:
        limit = min(policy.rewritten_older_than, policy.older_than)
        return _decide_by_age(candidate.id, "its commit was rewritten, ", age, limit)
    if candidate.trigger != SAFETY:
        if candidate.is_not_older_than(newest.hooks):
            return _keep_because(candidate.id, f"among the newest {policy.keep_last}")
        return _decide_by_age(candidate.id, "", age, policy.older_than)
    if candidate.is_not_older_than(newest.safety):
        return _keep_because(candidate.id, f"made for safety, among the newest {policy.safeties}")
    limit = policy.safety_older_than
    limit = min(limit, policy.older_than) if policy.everything else limit
    return _decide_by_age(candidate.id, "made for safety, ", age, limit)


def _keep_because(id_: str, reason: str) -> Decision:
    return Decision(id_, expires=False, reason=reason)


def _decide_by_age(id_: str, kind: str, age: int, limit: int) -> Decision:
    reason = f"{kind}{_age_text(age)} old, limit {_age_text(limit)}"
    return Decision(id_, expires=age >= limit, reason=reason)


@dataclass(frozen=True, slots=True)
class ThinningGroup:
    """Checkpoints that hooks and agents made on one branch within an hour or a day."""

    length: str  # "hour" or "day"
    newest: ExpiryCandidate
    due: Sequence[ExpiryCandidate]  # newest first; each expires if a later one has all that it has


def find_groups_to_thin(
    candidates: Iterable[ExpiryCandidate], policy: Policy, newest: NewestKept, *, now: int
) -> list[ThinningGroup]:
    """Group candidates (newest first) by UTC hour or day; return groups to thin out."""
    groups: dict[tuple[str | None, int, int], list[tuple[ExpiryCandidate, bool]]] = {}
    least_age = min(policy.hourly_after, policy.daily_after)
    for item in filter(lambda candidate: candidate.is_automatic, candidates):
        age = now - item.time
        length = DAY if age >= policy.daily_after else HOUR
        is_due = age >= least_age and not item.is_not_older_than(newest.agents) and not item.tagged
        groups.setdefault((item.line, length, item.time // length), []).append((item, is_due))
    return [
        ThinningGroup("day" if length == DAY else "hour", group[0][0], due)
        for (_, length, _), group in groups.items()
        if (due := [candidate for candidate, is_due in group[1:] if is_due])
    ]


def thin_session(
    candidates: Sequence[ExpiryCandidate], policy: Policy, *, now: int
) -> tuple[list[Decision], list[ThinningGroup]]:
    """Decide which checkpoints of a session expire; group the others to thin out.

    `candidates` begins with the newest, which stays. In a group only ends of turns are due: a
    command destroys what the guard before it has, or the begin of the turn if nothing had changed.
    """
    decisions: list[Decision] = []
    groups: dict[tuple[str | None, int], list[ExpiryCandidate]] = {}
    for number, candidate in enumerate(candidates):
        age = now - candidate.time
        if number and age >= policy.agent_last_after:
            reason = f"{_age_text(age)} old, only the last of a session stays"
            decisions.append(Decision(candidate.id, expires=True, reason=reason))
        else:
            groups.setdefault((candidate.line, candidate.time // HOUR), []).append(candidate)

    def is_due(candidate: ExpiryCandidate) -> bool:
        return candidate.ends_turn and now - candidate.time >= policy.agent_hourly_after

    pairs = [(group[0], list(filter(is_due, group[1:]))) for group in groups.values()]
    return decisions, [ThinningGroup("hour", newest, due) for newest, due in pairs if due]


def thinning_decision(candidate: ExpiryCandidate, group: ThinningGroup, *, now: int) -> Decision:
    article = "an" if group.length == "hour" else "a"
    reason = f"{_age_text(now - candidate.time)} old, one {article} {group.length} stays"
    return Decision(candidate.id, expires=True, reason=reason)


def decide_run_expiry(runs: Sequence[RunCandidate], policy: Policy, *, now: int) -> list[Decision]:
    """Decide for each run whether it expires; `runs` begins with the newest."""
    # A driven run stays; so does a run to which an unfinished run that stays refers.
    decisions: dict[str, Decision] = {}
    unfinished_runs = 0
    for run in runs:
        unfinished_runs += run.status != runstate.COMPLETE
        decisions[run.id] = _decide_run(run, policy, now, unfinished_runs)
    expiring_runs = runs
    while True:
        expiring_runs = [run for run in expiring_runs if decisions[run.id].expires]
        needed_runs = [
            (run, name)
            for run in expiring_runs
            for name in sorted(run.needed_by)
            if name in decisions and not decisions[name].expires
        ]
        if not needed_runs:
            return list(decisions.values())
        for run, name in needed_runs:
            reason = f"the unfinished run {name} refers to this run"
            decisions[run.id] = _keep_because(run.id, reason)


def find_squashed_progress(chain: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Map progress checkpoints of completed phases, by id, to the name of the phase."""
    phases_by_id: dict[str, str] = {}
    progress_by_phase: dict[str, list[str]] = {}
    for checkpoint, label, trigger in chain:
        name, status = phase.split_label(label)
        if status == "started":
            progress_by_phase.setdefault(name, [])
        elif status == "progress" and trigger == PHASE and name in progress_by_phase:
            progress_by_phase[name].append(checkpoint)
        elif status in ("complete", "skipped"):
            phases_by_id |= dict.fromkeys(progress_by_phase.pop(name, ()), name)
    return phases_by_id


def _decide_run(run: RunCandidate, policy: Policy, now: int, rank: int) -> Decision:
    if run.status in runstate.DRIVEN:
        return _keep_because(run.id, "a process drives the run")
    age = now - run.time
    if run.is_session or run.status == runstate.COMPLETE:
        limit = policy.agent_older_than if run.is_session else policy.runs_older_than
        limit = min(limit, policy.older_than) if policy.everything else limit
        return _decide_by_age(run.id, "a session, " if run.is_session else "complete, ", age, limit)
    kind = f"unfinished: {run.status}"
    if not policy.everything:
        return _keep_because(run.id, kind)
    if rank <= policy.keep_last:
        return _keep_because(run.id, f"{kind}, among the newest {policy.keep_last}")
    return _decide_by_age(run.id, f"{kind}, ", age, policy.older_than)


def _age_text(length: int) -> str:
    return times.age_text(length) if length >= times.MICRO else "0s"
