"""List runs with their status, phases and attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gitckpt.git.worktree import administration
from gitckpt.model import codec, ids, phase, runstate, times
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, RESCUE, SAFETY, STEP, Attempt, Checkpoint, Pipeline
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, REWOUND, split
from gitckpt.model.values import dataclass, replace
from gitckpt.store import roster, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import Lease, parse
from gitckpt.store.records import heads, layout
from gitckpt.store.records.entry import OF_TRACKS, WITHIN, Query, is_driven, is_told
from gitckpt.store.roster import Roster
from gitckpt.store.runs import run_files, trust
from gitckpt.store.snapshot import manifest
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt

    from gitckpt.store.records.entry import Entry

# Attempts at phases, from the checkpoints written here.

# Triggers of run checkpoints made by work in the worktree, also while nothing drives the run.
_OF_OTHERS = (*HOOK_TRIGGERS, MANUAL, STEP)


class Attempts:
    """The attempts at phases of a run so far, seen from its worktree."""

    def __init__(self, store: Checkpoints, run: str, *, is_new: bool = False) -> None:
        self._store = store
        self._run = run
        self._attempts: Counter[str] | None = Counter() if is_new else None

    def phases(self, completed: Iterable[str]) -> list[str]:
        """Return the known phases of the run, `completed` first, then by first appearance."""
        entries = trust.written_here(self._store, Query(run=self._run))
        labels = [split(entry.label)[0] for entry in entries if entry.trigger not in (*WITHIN, STEP)]
        return list(dict.fromkeys([*completed, *(name for name in reversed(labels) if name not in NOT_PHASES)]))

    def attempts_at(self, phase: str) -> int:
        if self._attempts is None:
            entries = trust.written_here(self._store, Query(run=self._run, status="started"))
            self._attempts = Counter(split(entry.label)[0] for entry in entries if entry.trigger == PHASE)
        return self._attempts[phase]

    def count_attempt(self, attempt: Attempt) -> None:
        if self._attempts is not None:
            self._attempts[attempt.phase] = attempt.number

    def began(self, phase: str) -> str | None:
        entries = trust.written_here(self._store, Query(run=self._run, label=f"{phase}-started"))
        return next((entry.id for entry in entries), None)

    def began_first(self, phase: str) -> Checkpoint | None:
        """Return where the latest series of attempts at a phase began."""
        newest = self.began(phase)
        if newest is None:
            return None
        checkpoint = trust.read(self._store, self._run, newest)
        first = checkpoint.attempt.began if checkpoint.attempt is not None else None
        return trust.read(self._store, self._run, first) if first is not None else checkpoint

    def differs_from(self, checkpoint_id: str) -> bool:
        """Return whether commit or files of the worktree differ from a checkpoint."""
        checkpoint = trust.read(self._store, self._run, checkpoint_id)
        commit = self._store.objects.head()[0]
        if commit != checkpoint.git_sha:
            return True
        captured = self._store.capture()
        tree = checkpoint.tree
        before, after = (manifest.read(self._store.repository, self._store.objects, oid, commit) for oid in (tree, captured.tree))
        return (before.files, before.raw) != (after.files, after.raw) or submodules.differ(self._store, checkpoint.worktree, captured)

    def was_worked_on(self, phase: str, newest: str) -> bool:
        """Return whether the worktree differs from the driver's last record of a phase.

        If the driver recorded nothing, it is compared with the checkpoint `newest`.
        """
        # Not the newest checkpoint: commits and saves by users extend the run, too. A rewind to
        # one of these, or a repeated phase, is meant to keep them.
        target = None
        for entry in trust.written_here(self._store, Query(run=self._run)):
            if target not in (None, entry.id):
                continue
            target = None
            if entry.label == REWOUND:
                target = trust.read(self._store, self._run, entry.id).rewound_to
            elif entry.trigger not in _OF_OTHERS and split(entry.label)[0] == phase:
                return self.differs_from(entry.id)
        return self.differs_from(newest)


# All runs and their status.

# The statuses of started runs that can continue.
RESUMABLE = (runstate.CRASHED, runstate.FAILED, runstate.PAUSED, runstate.BLOCKED)

_RELEASED = b"\nreleased = "


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run at a glance."""

    run: str
    status: str  # one of `runstate.STATUSES`
    label: str  # the phase label behind the status
    time: int  # of its newest checkpoint, in microseconds since the epoch
    started: int  # time of its first checkpoint
    newest: str  # the id of its newest checkpoint
    branch: str | None  # of its newest checkpoint; None if HEAD was detached
    path: str | None  # the top of its worktree; None if it has none
    lease: Lease | None  # of its driver, also after a crash; None if it was released

    @property
    def datetime(self) -> dt.datetime:
        """When its newest checkpoint was made, as an aware `datetime` in UTC."""
        return times.as_datetime(self.time)


def summaries(store: Checkpoints) -> list[RunInfo]:
    rows = store.index.run_rows()
    held = _leases(store)
    paths = _places(store, [row[0] for row in rows])
    infos = []
    for run, time, newest, oid, branch, label, driven_label, driven_oid, started, *told in rows:
        if not all(roster.knows(store.repository, run, each) for each in (oid, driven_oid, told[1]) if each):
            time, newest, branch, label, driven_label, started, told = _as_written(store, run)  # noqa: PLW2901
        oid_of_lease, lease = held.get(run, ("", None))
        driven = store.leases.is_held(oid_of_lease, lease) if lease is not None else None
        reported = _told(store, told) if told[0] is not None and driven_label != layout.RUN_COMPLETE else None
        status = runstate.status(
            reported or driven_label,
            label,
            driven=driven,
            stalled=lease is not None and (store.leases.is_stalled(oid_of_lease, lease) or lease.is_endless(store.clock())),
            by_driver=reported is None,
        )
        shown = (reported or driven_label) if (reported or driven_label) and status != runstate.OPEN else label
        infos.append(RunInfo(run, status, shown, time, started, newest, branch, paths.get(run), lease))
    return infos


def _places(store: Checkpoints, runs: Sequence[str]) -> dict[str, str]:
    found = ownership.of_runs(store.repository)
    missing = [run for run in runs if run not in found]
    if not missing:
        return found
    from gitckpt.store.worktrees import resumption  # only if git does not know one

    return {**found, **resumption.places(store.repository, missing)}


def _told(store: Checkpoints, told: Sequence[str]) -> str:
    """Return the label that a program, user or agent left a run with.

    For steps the next one may have begun, so their state decides. `told` is label, oid and
    trigger of the newest checkpoint of a phase or step.
    """
    label, oid, trigger = told
    name, how = phase.split(label)
    if trigger not in (STEP, OF_TRACKS) or how == "complete":
        return label
    found = next(store.objects.read([oid]))
    try:
        loop = codec.decode(found[1], layout.RUNS).state.get("loop_state") if found is not None else None
    except InvalidCheckpoint:
        return label  # `verify` reports it
    said = str(loop.get("step_status")).lower() if isinstance(loop, Mapping) else how
    return f"{loop.get('current_step')}-{said}" if isinstance(loop, Mapping) and said in ("blocked", "failed") else f"{name}-progress"


def _as_written(store: Checkpoints, run: str) -> tuple[int, str, str | None, str, str | None, int, list[str | None]]:
    """Return the row fields, without ids, from only the checkpoints written here."""
    entries = heads.chain(store.index, store.repository, run)
    newest, times = entries[0], [entry.time for entry in entries]
    driven = next((entry.label for entry in entries if is_driven(entry)), None)
    left = None
    if driven is None or phase.split(driven)[0] == "run":
        left = next((entry for entry in entries if is_told(entry)), None)
    told: list[str | None] = [None, None, None] if left is None else [left.label, left.oid, left.trigger]
    return max(times), newest.id, newest.branch, newest.label, driven, times[-1], told


def summary_of(store: Checkpoints, run: str) -> RunInfo:
    for each in summaries(store):
        if each.run == run:
            return each
    raise NotFoundError(f"no run {run}", hint="see which there are: git ckpt runs")


def _leases(store: Checkpoints) -> dict[str, tuple[str, Lease]]:
    named = list(store.refs.each(layout.LEASES))
    leases = {}
    for (ref, oid), content in zip(named, store.objects.read([oid for _, oid in named]), strict=True):
        if content is None or _RELEASED in content[1]:
            continue
        try:
            lease = parse(content[1], ref)
        except InvalidCheckpoint:
            continue
        leases[lease.run] = oid, lease
    return leases


# The checkpoint to continue from.

# How many checkpoints are tried before all: hooks record at each commit in most repositories.
_FIRST = 100


def latest_resumable(store: Checkpoints) -> Checkpoint | None:
    """Return the checkpoint to continue from, or None; see `Store.latest_resumable`.

    A script records `--phase run-complete` when nothing is left to do. Within a run the sequence
    decides, otherwise the time. Unreadable and fetched checkpoints are skipped.
    """
    candidates = [each for each in (_of_runs(store), _outside(store)) if each is not None]
    return max(candidates, key=lambda each: each.time, default=None)


def unfinished(store: Checkpoints) -> list[RunInfo]:
    over = (runstate.COMPLETE, *runstate.DRIVEN)
    left = (run for run in summaries(store) if run.status not in over)
    return [run for run in left if is_from_here(store, run.run)]


def is_from_here(store: Checkpoints, run: str) -> bool:
    """Return whether a run belongs to this worktree: started, imported or adopted."""
    owner = ownership.owner(store.repository)
    if owner is not None and owner.run is not None:
        return owner.run == run
    names = [entry.id for entry in store.list(Query(run=run))]
    known, here = Roster.read(store.repository, names), roster.place_of(store.repository)
    return any(known.place(name) == here for name in names)


def made_elsewhere(store: Checkpoints, names: Iterable[str]) -> dict[str, str]:
    """Return which checkpoints and runs other worktrees made: the worktree by id."""
    repository, here = store.repository, roster.place_of(store.repository)
    linked = administration.registered(repository)
    tops = {roster.place_in(git_dir): path for git_dir, path in linked}
    tops[roster.MAIN] = administration.main_worktree(repository) or repository.common_dir
    found = {}
    for name in names:
        is_run = ids.is_run_id(name)
        entries = store.list(Query(run=name) if is_run else Query(ids=[name]))
        known = Roster.read(repository, [entry.id for entry in entries])
        as_written = [entry for entry in entries if known.has(entry.id, entry.oid)]
        places = [str(known.place(entry.id)) for entry in as_written]
        runs = {entry.run for entry in entries if entry.run is not None}
        if not places or here in places or any(is_from_here(store, run) for run in runs):
            continue
        place = places[-1]  # for a run, where it began
        if is_run and place not in tops and place.partition(":")[0] == name:
            continue  # its own worktree, taken by an interrupted removal
        gone = f"a worktree {place.partition(':')[0]} that is gone"
        found[name] = f"the worktree {tops[place]}" if place in tops else gone
    return found


def _of_runs(store: Checkpoints) -> Checkpoint | None:
    for run in unfinished(store):
        found = _first_whole(store, trust.written_here(store, Query(run=run.run)))
        if found is not None:
            return found
    return None


def _outside(store: Checkpoints) -> Checkpoint | None:
    here = roster.place_of(store.repository)
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        known = Roster.read(store.repository, [entry.id for entry in entries])
        ours = (entry for entry in entries if known.is_ours(entry))
        own = (entry for entry in ours if known.was_captured_in(entry.id, here))
        silent = (*HOOK_TRIGGERS, SAFETY, RESCUE, STEP)
        told = [entry for entry in own if entry.trigger not in silent]
        done = next((at for at, entry in enumerate(told) if entry.label == layout.RUN_COMPLETE), None)
        phases = [entry for entry in told[:done] if split(entry.label)[0] not in NOT_PHASES]
        found = _first_whole(store, phases)
        if found is not None or done is not None or len(entries) < _FIRST:
            return found
    return None


def _first_whole(store: Checkpoints, entries: Iterable[Entry]) -> Checkpoint | None:
    for entry in entries:
        try:
            return store.read(entry.id)
        except (InvalidCheckpoint, NotFoundError):
            continue
    return None


# The history of one run by phase.

# The status of a phase that has not begun.
PENDING = "pending"

# Triggers that do not change the status of a phase; all others do, a program's own included.
_WITHIN = (*WITHIN, STEP, OF_TRACKS)


@dataclass(frozen=True, slots=True)
class Event:
    """The state of a phase."""

    phase: str
    status: str  # of its newest checkpoint, or `PENDING`; "started" while in progress
    attempts: int = 0
    started: str | None = None  # timestamps of its last attempt
    ended: str | None = None
    seconds: float | None = None  # how long that attempt took
    saves: int = 0  # how often its files were saved in between
    errors: tuple[str, ...] = ()  # of the last attempt
    exit_code: int | None = None
    checkpoint: str | None = None  # its newest; None if it has not begun
    is_current: bool = False  # the run is at it


@dataclass(frozen=True, slots=True)
class History:
    """A run with all its phases."""

    summary: RunInfo
    pipeline: Pipeline
    events: list[Event]  # in the order of the pipeline or of their start
    unwritten: list[str]  # checkpoints that could not be written, a sentence each
    newest: Checkpoint  # with the state


def read(store: Checkpoints, run: str) -> History:
    summary = summary_of(store, run)
    entries = list(reversed(heads.chain(store.index, store.repository, run)))
    found = store.objects.read([entry.oid for entry in entries])
    chain = [
        codec.decode_header(content[1], layout.CHECKPOINTS + entry.id)
        for entry, content in zip(entries, found, strict=True)
        if content is not None
    ]
    pipeline = next((each.pipeline for each in reversed(chain) if each.pipeline is not None), Pipeline())
    # Phases completed before the first checkpoint: in another run, or with another tool.
    before = chain[0].pipeline.completed if chain and chain[0].pipeline is not None else ()
    events: dict[str, Event] = {name: Event(name, PENDING) for name in (*pipeline.phases, *before)}
    current = ""
    for checkpoint in chain:
        name, status = phase.split(checkpoint.label)
        if name in phase.NOT_PHASES or checkpoint.trigger in _WITHIN:
            continue
        events[name] = _after(events.get(name, Event(name, PENDING)), checkpoint, status)
        current = name
    for name, id_ in pipeline.completed.items():
        if name in events and events[name].status == PENDING:
            events[name] = replace(events[name], status="complete", checkpoint=id_)
    says_all = bool(pipeline.completed) or any(each.label == phase.REWOUND for each in chain)
    for name, event in events.items():
        if event.status in ("complete", "skipped") and says_all and name not in pipeline.completed:
            events[name] = replace(event, status=PENDING)  # the run was rewound: to be done again
    if current and summary.status not in (runstate.COMPLETE, runstate.PAUSED, runstate.OPEN):
        events[current] = replace(events[current], is_current=True)
    return History(summary, pipeline, list(events.values()), run_files.read(store.repository, run), store.read(entries[-1].id))


def _after(event: Event, checkpoint: Checkpoint, status: str) -> Event:
    attempt = checkpoint.attempt
    if status == "started":
        number = attempt.number if attempt is not None else event.attempts + 1
        return Event(event.phase, status, number, checkpoint.timestamp, checkpoint=checkpoint.id)
    if status == "progress":
        return replace(event, saves=event.saves + 1, checkpoint=checkpoint.id)
    return replace(
        event,
        status=status,
        ended=checkpoint.timestamp,
        seconds=attempt.seconds if attempt is not None else None,
        errors=checkpoint.errors,
        exit_code=attempt.exit_code if attempt is not None else None,
        checkpoint=checkpoint.id,
    )
