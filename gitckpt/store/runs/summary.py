"""List runs with their status, and report the phases and attempts of a run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from gitckpt.git.worktree import administration
from gitckpt.model import codec, ids, phase, runstate, times
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, RESCUE, SAFETY, STEP, WITHIN
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, REWOUND, split
from gitckpt.model.values import dataclass, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import Lease, parse
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import OF_TRACKS, Query, is_made_by_driver, reports_status
from gitckpt.store.runs import run_files, trust
from gitckpt.store.snapshot import manifest
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt

    from gitckpt.model.checkpoint import Attempt, Checkpoint, Pipeline
    from gitckpt.store.records.entry import CheckpointInfo

# Triggers of run checkpoints by users, agents and hooks, not by the driver of the run.
_NOT_BY_DRIVER = (*HOOK_TRIGGERS, MANUAL, STEP)


class Attempts:
    """Earlier attempts at the phases of a run; `store` is opened in its worktree."""

    def __init__(self, store: Checkpoints, run: str, *, is_new: bool = False) -> None:
        self._store, self._run = store, run
        self._attempts: Counter[str] | None = Counter() if is_new else None

    def phases(self, completed: Iterable[str]) -> list[str]:
        """Return the run's phases: `completed` first, the rest in order of their start."""
        entries = trust.written_here(self._store, Query(run=self._run))
        names = [split(e.label)[0] for e in entries if e.trigger not in (*WITHIN, STEP)]
        phases = [name for name in reversed(names) if name not in NOT_PHASES]
        return list(dict.fromkeys([*completed, *phases]))

    def attempts_at(self, phase: str) -> int:
        if self._attempts is None:
            entries = trust.written_here(self._store, Query(run=self._run, status="started"))
            self._attempts = Counter(split(e.label)[0] for e in entries if e.trigger == PHASE)
        return self._attempts[phase]

    def count_attempt(self, attempt: Attempt) -> None:
        if self._attempts is not None:
            self._attempts[attempt.phase] = attempt.number

    def began(self, phase: str) -> str | None:
        entries = trust.written_here(self._store, Query(run=self._run, label=f"{phase}-started"))
        return next((entry.id for entry in entries), None)

    def began_first(self, phase: str) -> Checkpoint | None:
        """Return the checkpoint at the first of the latest attempts at a phase, or None."""
        if (newest := self.began(phase)) is None:
            return None
        checkpoint = trust.read(self._store, self._run, newest)
        first = checkpoint.attempt.began if checkpoint.attempt is not None else None
        return trust.read(self._store, self._run, first) if first is not None else checkpoint

    def differs_from(self, checkpoint_id: str) -> bool:
        checkpoint = trust.read(self._store, self._run, checkpoint_id)
        commit = self._store.objects.head()[0]
        if commit != checkpoint.git_sha:
            return True
        captured = self._store.capture()
        read = partial(manifest.read, self._store.repository, self._store.objects)
        old, new = read(checkpoint.tree, commit), read(captured.tree, commit)
        if (old.files, old.raw) != (new.files, new.raw):
            return True
        return submodules.have_changed(self._store, checkpoint.worktree, captured)

    def was_worked_on(self, phase: str, newest: str) -> bool:
        """Return whether the worktree differs from the phase's last driver checkpoint."""
        # Not `newest` (used only if there is no such checkpoint): commits and saves by users extend
        # the run, too. A rewind to one of these, or a repeated phase, must keep their changes.
        target = None
        for entry in trust.written_here(self._store, Query(run=self._run)):
            if target not in (None, entry.id):
                continue
            target = None
            if entry.label == REWOUND:
                target = trust.read(self._store, self._run, entry.id).rewound_to
            elif entry.trigger not in _NOT_BY_DRIVER and split(entry.label)[0] == phase:
                return self.differs_from(entry.id)
        return self.differs_from(newest)


# The statuses of started runs that can continue.
RESUMABLE = (runstate.CRASHED, runstate.FAILED, runstate.PAUSED, runstate.BLOCKED)
_RELEASED_KEY = b"\nreleased = "

RowFields = tuple[int, str, str | None, str, str | None, int, list[str | None]]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The status of a run, with its newest checkpoint, worktree and lease."""

    run: str
    status: str  # one of `runstate.STATUSES`
    label: str  # the phase label that the status is derived from
    time: int  # of its newest checkpoint, in microseconds since the epoch
    started: int  # time of its first checkpoint
    newest: str  # the id of its newest checkpoint
    branch: str | None  # of its newest checkpoint; None if HEAD was detached
    path: str | None  # the top of its worktree; None if it has none
    lease: Lease | None  # of its driver, also after a crash; None if it was released

    @property
    def datetime(self) -> dt.datetime:
        """The time of the newest checkpoint, as an aware `datetime` in UTC."""
        return times.as_datetime(self.time)


def summaries(store: Checkpoints) -> list[RunInfo]:
    rows = store.index.run_rows()
    leases = _leases(store)
    paths = _worktree_paths(store, [row[0] for row in rows])
    infos = []
    for run, time, newest, oid, branch, label, driven_label, driven_oid, started, *step in rows:
        oids = [id_ for id_ in (oid, driven_oid, step[1]) if id_]
        if not all(local_checkpoints.is_local(store.repository, run, id_) for id_ in oids):
            time, newest, branch, label, driven_label, started, step = _local_fields(store, run)  # noqa: PLW2901
        lease_oid, lease = leases.get(run, ("", None))
        driven, stalled = None, False
        if lease is not None:
            driven = store.leases.is_held(lease_oid, lease)
            stalled = store.leases.is_stalled(lease_oid, lease) or lease.is_endless(store.clock())
        is_reported = step[0] is not None and driven_label != ref_names.RUN_COMPLETE
        last = _reported_label(store, *step) if is_reported else driven_label
        by_driver = not is_reported
        status = runstate.status(last, label, driven=driven, stalled=stalled, by_driver=by_driver)
        last, path = last if last and status != runstate.OPEN else label, paths.get(run)
        infos.append(RunInfo(run, status, last, time, started, newest, branch, path, lease))
    return infos


def _worktree_paths(store: Checkpoints, runs: Sequence[str]) -> dict[str, str]:
    paths = ownership.of_runs(store.repository)
    if missing := [run for run in runs if run not in paths]:
        from gitckpt.store.worktrees import resumption  # only if git does not know one

        paths |= resumption.find_moved_worktrees(store.repository, missing)
    return paths


def _reported_label(store: Checkpoints, label: str, oid: str, trigger: str) -> str:
    """Return the label of a run as last reported by a program, user or agent."""
    name, status = phase.split(label)
    if trigger not in (STEP, OF_TRACKS) or status == "complete":
        return label
    # The next step may have begun, so the state decides.
    content = next(store.objects.read([oid]))
    try:
        state = codec.decode(content[1], ref_names.RUNS).state if content is not None else {}
    except InvalidCheckpoint:
        return label  # `verify` reports it
    loop = state.get("loop_state")
    if isinstance(loop, Mapping):
        name, status = str(loop.get("current_step")), str(loop.get("step_status")).lower()
        if status in ("blocked", "failed"):
            return f"{name}-{status}"
    return f"{phase.split(label)[0]}-progress"


def _local_fields(store: Checkpoints, run: str) -> RowFields:
    entries = heads.list_checkpoints(store.index, store.repository, run)
    newest, instants = entries[0], [entry.time for entry in entries]
    driven = next((entry.label for entry in entries if is_made_by_driver(entry)), None)
    step: list[str | None] = [None, None, None]
    if driven is None or phase.split(driven)[0] == "run":
        last = next((entry for entry in entries if reports_status(entry)), None)
        step = [last.label, last.oid, last.trigger] if last is not None else step
    return max(instants), newest.id, newest.branch, newest.label, driven, instants[-1], step


def summary_of(store: Checkpoints, run: str) -> RunInfo:
    for info in summaries(store):
        if info.run == run:
            return info
    raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")


def _leases(store: Checkpoints) -> dict[str, tuple[str, Lease]]:
    refs = list(store.refs.iterate(ref_names.LEASES))
    leases = {}
    contents = store.objects.read([oid for _, oid in refs])
    for (ref, oid), content in zip(refs, contents, strict=True):
        if content is not None and _RELEASED_KEY not in content[1]:
            with contextlib.suppress(InvalidCheckpoint):
                lease = parse(content[1], ref)
                leases[lease.run] = oid, lease
    return leases


_FIRST = 100  # checkpoints to read before reading all: hooks record at each commit


def latest_resumable(store: Checkpoints) -> Checkpoint | None:
    """Return the newest checkpoint to continue from, or None."""
    chains = (trust.written_here(store, Query(run=info.run)) for info in unfinished(store))
    of_runs = filter(None, (_first_readable(store, chain) for chain in chains))
    candidates = filter(None, (next(of_runs, None), _latest_outside_runs(store)))
    return max(candidates, key=lambda checkpoint: checkpoint.time, default=None)


def unfinished(store: Checkpoints) -> list[RunInfo]:
    excluded = (runstate.COMPLETE, *runstate.DRIVEN)
    infos = [info for info in summaries(store) if info.status not in excluded]
    return [info for info in infos if is_from_here(store, info.run)]


def is_from_here(store: Checkpoints, run: str) -> bool:
    """Return whether a run was started, imported or adopted in this worktree."""
    if (owner := ownership.owner(store.repository)) is not None and owner.run is not None:
        return owner.run == run
    names = [entry.id for entry in store.list(Query(run=run))]
    local = LocalCheckpoints.read(store.repository, names)
    place = local_checkpoints.worktree_key(store.repository)
    return any(local.worktree_key(name) == place for name in names)


def made_elsewhere(store: Checkpoints, names: Iterable[str]) -> dict[str, str]:
    repository, this_place = store.repository, local_checkpoints.worktree_key(store.repository)
    linked = administration.registered(repository)
    tops = {local_checkpoints.worktree_key_in(git_dir): path for git_dir, path in linked}
    tops[local_checkpoints.MAIN] = administration.main_worktree(repository) or repository.common_dir
    worktrees = {}
    for name in names:
        is_run = ids.is_run_id(name)
        entries = store.list(Query(run=name) if is_run else Query(ids=[name]))
        local = LocalCheckpoints.read(repository, [entry.id for entry in entries])
        as_written = [entry for entry in entries if local.has(entry.id, entry.oid)]
        places = [str(local.worktree_key(entry.id)) for entry in as_written]
        runs = {entry.run for entry in entries if entry.run is not None}
        if not places or this_place in places or any(is_from_here(store, run) for run in runs):
            continue
        place = places[-1]  # for a run, where it began
        if is_run and place not in tops and place.partition(":")[0] == name:
            continue  # its own worktree, taken by an interrupted removal
        missing = f"a worktree {place.partition(':')[0]} that is gone"
        worktrees[name] = f"the worktree {tops[place]}" if place in tops else missing
    return worktrees


def _latest_outside_runs(store: Checkpoints) -> Checkpoint | None:
    place = local_checkpoints.worktree_key(store.repository)
    ignored = (*HOOK_TRIGGERS, SAFETY, RESCUE, STEP)
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        local = LocalCheckpoints.read(store.repository, [entry.id for entry in entries])
        infos = [e for e in entries if local.is_ours(e) and local.was_captured_in(e.id, place)]
        reported = [entry for entry in infos if entry.trigger not in ignored]
        labels = [entry.label for entry in reported]
        is_done = ref_names.RUN_COMPLETE in labels
        since = reported[: labels.index(ref_names.RUN_COMPLETE)] if is_done else reported
        phases = [entry for entry in since if split(entry.label)[0] not in NOT_PHASES]
        checkpoint = _first_readable(store, phases)
        if checkpoint is not None or is_done or len(entries) < _FIRST:
            return checkpoint
    return None


def _first_readable(store: Checkpoints, entries: Iterable[CheckpointInfo]) -> Checkpoint | None:
    for entry in entries:
        try:
            return store.read(entry.id)
        except (InvalidCheckpoint, NotFoundError):
            continue
    return None


# The status of a phase that has not begun.
PENDING = "pending"

# Triggers that do not change the status of a phase; all others do, a program's own included.
_WITHIN = (*WITHIN, STEP, OF_TRACKS)


@dataclass(frozen=True, slots=True)
class Event:
    """The progress of a phase: its status, its last attempt and the errors."""

    phase: str
    status: str  # of its newest checkpoint, or `PENDING`; "started" while in progress
    attempts: int = 0
    started: str | None = None  # timestamp of the start of the last attempt
    ended: str | None = None
    seconds: float | None = None  # how long the last attempt took
    saves: int = 0  # number of progress checkpoints in the last attempt
    errors: tuple[str, ...] = ()  # of the last attempt
    exit_code: int | None = None
    checkpoint: str | None = None  # id of its newest checkpoint; None if it has not begun
    is_current: bool = False  # whether the run is at this phase


@dataclass(frozen=True, slots=True)
class History:
    """A run with its pipeline and the progress of each phase."""

    summary: RunInfo
    pipeline: Pipeline
    events: list[Event]  # in the order of the pipeline or of their start
    unwritten: list[str]  # one sentence for each checkpoint that could not be written
    newest: Checkpoint  # with the state


def read(store: Checkpoints, run: str) -> History:
    summary = summary_of(store, run)
    entries = list(reversed(heads.list_checkpoints(store.index, store.repository, run)))
    contents = store.objects.read([entry.oid for entry in entries])
    refs = (ref_names.CHECKPOINTS + entry.id for entry in entries)
    documents = [(content[1], ref) for content, ref in zip(contents, refs, strict=True) if content]
    chain = [codec.decode_header(data, ref) for data, ref in documents]
    from gitckpt.model.checkpoint import Pipeline

    pipelines = [document.pipeline for document in chain if document.pipeline is not None]
    pipeline = pipelines[-1] if pipelines else Pipeline()
    # Phases completed before the first checkpoint: in another run, or with another tool.
    early_phases = chain[0].pipeline.completed if chain and chain[0].pipeline is not None else ()
    names = (*pipeline.phases, *early_phases)
    events: dict[str, Event] = {name: Event(name, PENDING) for name in names}
    current = ""
    for checkpoint in chain:
        name, status = phase.split(checkpoint.label)
        if name in phase.NOT_PHASES or checkpoint.trigger in _WITHIN:
            continue
        events[name] = _advance(events.get(name, Event(name, PENDING)), checkpoint, status)
        current = name
    for name, id_ in pipeline.completed.items():
        if name in events and events[name].status == PENDING:
            events[name] = replace(events[name], status="complete", checkpoint=id_)
    was_rewound = any(document.label == phase.REWOUND for document in chain)
    says_all = bool(pipeline.completed) or was_rewound
    for name, event in events.items():
        if event.status in ("complete", "skipped") and says_all and name not in pipeline.completed:
            events[name] = replace(event, status=PENDING)  # the run was rewound: to be done again
    if current and summary.status not in (runstate.COMPLETE, runstate.PAUSED, runstate.OPEN):
        events[current] = replace(events[current], is_current=True)
    unwritten = run_files.read_unwritten(store.repository, run)
    newest = store.read(entries[-1].id)
    return History(summary, pipeline, list(events.values()), unwritten, newest)


def _advance(event: Event, checkpoint: Checkpoint, status: str) -> Event:
    attempt, event = checkpoint.attempt, replace(event, checkpoint=checkpoint.id)
    if status == "started":
        number = attempt.number if attempt is not None else event.attempts + 1
        return Event(event.phase, status, number, checkpoint.timestamp, checkpoint=checkpoint.id)
    if status == "progress":
        return replace(event, saves=event.saves + 1)
    ended, errors = checkpoint.timestamp, checkpoint.errors
    seconds, code = (attempt.seconds, attempt.exit_code) if attempt is not None else (None, None)
    event = replace(event, status=status, ended=ended, errors=errors)
    return replace(event, seconds=seconds, exit_code=code)
