"""The runs of a repository, and what has become of each."""

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


# What the checkpoints of a run that were written here say of its phases: who attempted them, when, and what has changed since.


_OF_OTHERS = (*HOOK_TRIGGERS, MANUAL, STEP)
"""Triggers of checkpoints of a run that whoever works in its worktree makes, also while nobody drives it."""


class Attempts:
    """The attempts at phases of a run until now.

    Args:
        store: as seen from the run's worktree.
        run: its id.
        is_new: whether nobody can have attempted any.
    """

    def __init__(self, store: Checkpoints, run: str, *, is_new: bool = False) -> None:
        self._store = store
        self._run = run
        self._attempts: Counter[str] | None = Counter() if is_new else None

    def phases(self, completed: Iterable[str]) -> list[str]:
        """Returns the names of the phases that the run is known to have, `completed` first, then in the order they came up."""
        entries = trust.written_here(self._store, Query(run=self._run))
        labels = [split(entry.label)[0] for entry in entries if entry.trigger not in (*WITHIN, STEP)]
        return list(dict.fromkeys([*completed, *(name for name in reversed(labels) if name not in NOT_PHASES)]))

    def attempts_at(self, phase: str) -> int:
        """Returns how many attempts at a phase there were."""
        if self._attempts is None:
            entries = trust.written_here(self._store, Query(run=self._run, status="started"))
            self._attempts = Counter(split(entry.label)[0] for entry in entries if entry.trigger == PHASE)
        return self._attempts[phase]

    def count_attempt(self, attempt: Attempt) -> None:
        """Notes that an attempt begins."""
        if self._attempts is not None:
            self._attempts[attempt.phase] = attempt.number

    def began(self, phase: str) -> str | None:
        """Returns the newest checkpoint at which a phase began, None where there is none."""
        found = trust.written_here(self._store, Query(run=self._run, label=f"{phase}-started"))
        return next((entry.id for entry in found), None)

    def began_first(self, phase: str) -> Checkpoint | None:
        """Returns the checkpoint at which the last attempts at a phase began, None where there were none."""
        newest = self.began(phase)
        if newest is None:
            return None
        checkpoint = trust.read(self._store, self._run, newest)
        first = checkpoint.attempt.began if checkpoint.attempt is not None else None
        return trust.read(self._store, self._run, first) if first is not None else checkpoint

    def differs_from(self, checkpoint_id: str) -> bool:
        """Tells whether commit or files of the worktree differ from those of a checkpoint."""
        then = trust.read(self._store, self._run, checkpoint_id)
        commit = self._store.objects.head()[0]
        if commit != then.git_sha:
            return True
        found = self._store.capture()
        tree = then.tree
        before, after = (manifest.read(self._store.repository, self._store.objects, oid, commit) for oid in (tree, found.tree))
        return (before.files, before.raw) != (after.files, after.raw) or submodules.differ(self._store, then.worktree, found)

    def was_worked_on(self, phase: str, newest: str) -> bool:
        """Tells whether commit or files of the worktree differ from what the driver recorded last of a phase.

        Args:
            newest: id of the newest checkpoint, which counts where the driver has recorded nothing.
        """
        # Not from the newest checkpoint: a commit or a save of whoever has worked there since extends the run as well, and whoever takes
        # the run back to that, or has the phase done again, means it to stay.
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


# The runs of a repository, and what has become of each.


RESUMABLE = (runstate.CRASHED, runstate.FAILED, runstate.PAUSED, runstate.BLOCKED)
"""The statuses of runs that somebody began to drive, and that can go on."""

_RELEASED = b"\nreleased = "


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run at a glance.

    Attributes:
        run: its id.
        status: what has become of it, one of `runstate.STATUSES`.
        label: the phase label that says so.
        time: of its newest checkpoint, in microseconds since the epoch.
        started: of its first one.
        newest: the id of its newest checkpoint.
        branch: of its newest checkpoint; None where HEAD was detached.
        path: the top of its worktree; None where there is none.
        lease: who drives it, or drove it until a crash; None where it was given back.
    """

    run: str
    status: str
    label: str
    time: int
    started: int
    newest: str
    branch: str | None
    path: str | None
    lease: Lease | None

    @property
    def datetime(self) -> dt.datetime:
        """When its newest checkpoint was made, as an aware `datetime` in UTC."""
        return times.as_datetime(self.time)


def summaries(store: Checkpoints) -> list[RunInfo]:
    """Returns all runs, the one with the newest checkpoint first."""
    rows = store.index.run_rows()
    held = _leases(store)
    paths = _places(store, [row[0] for row in rows])
    found = []
    for run, time, newest, oid, branch, label, driven_label, driven_oid, started, *told in rows:
        if not all(roster.knows(store.repository, run, each) for each in (oid, driven_oid, told[1]) if each):
            time, newest, branch, label, driven_label, started, told = _as_written(store, run)  # noqa: PLW2901
        oid_of_lease, lease = held.get(run, ("", None))
        driven = store.leases.is_held(oid_of_lease, lease) if lease is not None else None
        said = _told(store, told) if told[0] is not None and driven_label != layout.RUN_COMPLETE else None
        status = runstate.status(
            said or driven_label,
            label,
            driven=driven,
            stalled=lease is not None and (store.leases.is_stalled(oid_of_lease, lease) or lease.is_endless(store.clock())),
            by_driver=said is None,
        )
        shown = (said or driven_label) if (said or driven_label) and status != runstate.OPEN else label
        found.append(RunInfo(run, status, shown, time, started, newest, branch, paths.get(run), lease))
    return found


def _places(store: Checkpoints, runs: Sequence[str]) -> dict[str, str]:
    """Return where the worktrees of runs are."""
    found = ownership.of_runs(store.repository)
    missing = [run for run in runs if run not in found]
    if not missing:
        return found
    from gitckpt.store.worktrees import resumption  # not where each is known to git

    return {**found, **resumption.places(store.repository, missing)}


def _told(store: Checkpoints, told: Sequence[str]) -> str:
    """Returns the label that a program, a person or an agent left a run with; of steps, where the next one may have begun, by their state.

    Args:
        told: label, oid and trigger of the newest checkpoint of a phase or a step.
    """
    label, oid, trigger = told
    name, how = phase.split(label)
    if trigger not in (STEP, OF_TRACKS) or how == "complete":
        return label
    found = next(store.objects.read([oid]))
    try:
        loop = codec.decode(found[1], layout.RUNS).state.get("loop_state") if found is not None else None
    except InvalidCheckpoint:
        return label  # it is for `verify`
    said = str(loop.get("step_status")).lower() if isinstance(loop, Mapping) else how
    return f"{loop.get('current_step')}-{said}" if isinstance(loop, Mapping) and said in ("blocked", "failed") else f"{name}-progress"


def _as_written(store: Checkpoints, run: str) -> tuple[int, str, str | None, str, str | None, int, list[str | None]]:
    """Returns what a row has, less ids, of the checkpoints of a run that were written here.

    Where others say that they are of a run of ours, they do not count.
    """
    entries = heads.chain(store.index, store.repository, run)
    newest, times = entries[0], [entry.time for entry in entries]
    driven = next((entry.label for entry in entries if is_driven(entry)), None)
    left = None
    if driven is None or phase.split(driven)[0] == "run":
        left = next((entry for entry in entries if is_told(entry)), None)
    told: list[str | None] = [None, None, None] if left is None else [left.label, left.oid, left.trigger]
    return max(times), newest.id, newest.branch, newest.label, driven, times[-1], told


def summary_of(store: Checkpoints, run: str) -> RunInfo:
    """Returns one run.

    Raises:
        NotFoundError: there is no such run.
    """
    for each in summaries(store):
        if each.run == run:
            return each
    raise NotFoundError(f"no run {run}", hint="see which there are: git ckpt runs")


def _leases(store: Checkpoints) -> dict[str, tuple[str, Lease]]:
    """Returns the leases that were not given back, with their oids, by run; one that cannot be read is for `verify`."""
    named = list(store.refs.each(layout.LEASES))
    found = {}
    for (ref, oid), content in zip(named, store.objects.read([oid for _, oid in named]), strict=True):
        if content is None or _RELEASED in content[1]:
            continue
        try:
            lease = parse(content[1], ref)
        except InvalidCheckpoint:
            continue
        found[lease.run] = oid, lease
    return found


# Which checkpoint somebody could go on with.


_FIRST = 100
"""So many are looked at before all are: most repositories have hooks that record at each commit."""


def latest_resumable(store: Checkpoints) -> Checkpoint | None:
    """Returns the checkpoint to go on with; None where there is none.

    It is the newest one of the newest run that `unfinished` returns; or, where that is newer, the newest of a phase that was recorded in
    this worktree outside of runs, as a script does with `git ckpt save --phase research-failed`: its `run` is None, and there is its state
    to go on with. A script says with `--phase run-complete` that there is nothing left to do.

    Within a run the sequence decides, otherwise the time. What cannot be read is passed over, and so is what others wrote, and was
    fetched.
    The `errors` of the checkpoint say why it stopped.
    """
    found = [each for each in (_of_runs(store), _outside(store)) if each is not None]
    return max(found, key=lambda each: each.time, default=None)


def unfinished(store: Checkpoints) -> list[RunInfo]:
    """Return the unfinished runs of this worktree, the newest checkpoint first.

    Each was started in this worktree, or has it, and is neither complete nor driven by anybody.
    """
    over = (runstate.COMPLETE, *runstate.DRIVEN)
    left = (run for run in summaries(store) if run.status not in over)
    return [run for run in left if is_from_here(store, run.run)]


def is_from_here(store: Checkpoints, run: str) -> bool:
    """Tell whether a run was started, imported or adopted in this worktree, or has it."""
    owner = ownership.owner(store.repository)
    if owner is not None and owner.run is not None:
        return owner.run == run
    names = [entry.id for entry in store.list(Query(run=run))]
    known, here = Roster.read(store.repository, names), roster.place_of(store.repository)
    return any(known.place(name) == here for name in names)


def made_elsewhere(store: Checkpoints, names: Iterable[str]) -> dict[str, str]:
    """Return which checkpoints and runs other worktrees made: the worktree by id.

    Args:
        names: ids of checkpoints and of runs.
    """
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
        place = places[-1]  # of a run where it began
        if is_run and place not in tops and place.partition(":")[0] == name:
            continue  # its own worktree, which a removal that was cut off has taken away
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
    """Returns the first of some checkpoints that can be read."""
    for entry in entries:
        try:
            return store.read(entry.id)
        except (InvalidCheckpoint, NotFoundError):
            continue
    return None


# The life of one run, phase by phase, read from its checkpoints.


PENDING = "pending"
"""The status of a phase that has not begun."""


_WITHIN = (*WITHIN, STEP, OF_TRACKS)
"""Triggers of what happens within a phase, and is no news of it; all others say what has become of one, a program's own included."""


@dataclass(frozen=True, slots=True)
class Event:
    """What has become of a phase.

    Attributes:
        phase: its name.
        status: the status of its newest checkpoint, or `PENDING`; a phase that is under way is started.
        attempts: how many there were.
        started: the timestamp at which its last attempt began; None where it did not.
        ended: … and ended.
        seconds: how long that took.
        saves: how many times its files were saved in between.
        errors: what went wrong in the last attempt.
        exit_code: of its command.
        checkpoint: the newest checkpoint of it; None where it did not begin.
        is_current: whether the run is at it.
    """

    phase: str
    status: str
    attempts: int = 0
    started: str | None = None
    ended: str | None = None
    seconds: float | None = None
    saves: int = 0
    errors: tuple[str, ...] = ()
    exit_code: int | None = None
    checkpoint: str | None = None
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A run with all its phases.

    Attributes:
        summary: the run at a glance.
        pipeline: what drives it.
        events: its phases, in the order of the pipeline or of their beginning.
        unwritten: checkpoints that could not be written, a sentence each.
        newest: its newest checkpoint, with the state.
    """

    summary: RunInfo
    pipeline: Pipeline
    events: list[Event]
    unwritten: list[str]
    newest: Checkpoint


def read(store: Checkpoints, run: str) -> History:
    """Returns the life of a run.

    Raises:
        NotFoundError: there is no such run.
        InvalidCheckpoint: one of its checkpoints is damaged.
    """
    summary = summary_of(store, run)
    entries = list(reversed(heads.chain(store.index, store.repository, run)))
    found = store.objects.read([entry.oid for entry in entries])
    chain = [
        codec.decode_header(content[1], layout.CHECKPOINTS + entry.id)
        for entry, content in zip(entries, found, strict=True)
        if content is not None
    ]
    pipeline = next((each.pipeline for each in reversed(chain) if each.pipeline is not None), Pipeline())
    before = chain[0].pipeline.completed if chain and chain[0].pipeline is not None else ()  # in another run, or with another tool
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
            events[name] = replace(event, status=PENDING)  # to be done again, after the run was taken back
    if current and summary.status not in (runstate.COMPLETE, runstate.PAUSED, runstate.OPEN):
        events[current] = replace(events[current], is_current=True)
    return History(summary, pipeline, list(events.values()), run_files.read(store.repository, run), store.read(entries[-1].id))


def _after(event: Event, checkpoint: Checkpoint, status: str) -> Event:
    """Returns what has become of a phase after one more checkpoint of it."""
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
