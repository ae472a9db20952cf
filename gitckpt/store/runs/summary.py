"""List runs with their status, and report the phases and attempts of a run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from gitckpt.git.worktree import administration
from gitckpt.model import codec, ids, phase, runstate, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import HOOK_TRIGGERS, MANUAL, PHASE, RESCUE, SAFETY, STEP, WITHIN
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.phase import NOT_PHASES, REWOUND, split_label
from gitckpt.model.values import dataclass, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import Lease, parse_lease
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


class PhaseAttempts:
    """Counts and finds the earlier attempts at the phases of a run."""

    def __init__(self, store: Checkpoints, run: str, *, is_new: bool = False) -> None:
        self._store, self._run = store, run
        self._attempts: Counter[str] | None = Counter() if is_new else None

    def list_phases(self, completed: Iterable[str]) -> list[str]:
        """Return the run's phases: `completed` first, the rest in order of their start."""
        entries = trust.list_local(self._store, Query(run=self._run))
        names = [split_label(e.label)[0] for e in entries if e.trigger not in (*WITHIN, STEP)]
        phases = [name for name in reversed(names) if name not in NOT_PHASES]
        return list(dict.fromkeys([*completed, *phases]))

    def attempts_at(self, phase: str) -> int:
        if self._attempts is None:
            entries = trust.list_local(self._store, Query(run=self._run, status="started"))
            self._attempts = Counter(split_label(e.label)[0] for e in entries if e.trigger == PHASE)
        return self._attempts[phase]

    def count_attempt(self, attempt: Attempt) -> None:
        if self._attempts is not None:
            self._attempts[attempt.phase] = attempt.number

    def find_newest_start(self, phase: str) -> str | None:
        entries = trust.list_local(self._store, Query(run=self._run, label=f"{phase}-started"))
        return next((entry.id for entry in entries), None)

    def find_first_start(self, phase: str) -> Checkpoint | None:
        """Return the checkpoint at which the latest series of attempts began, or None."""
        if (newest := self.find_newest_start(phase)) is None:
            return None
        checkpoint = trust.read(self._store, self._run, newest)
        first_id = checkpoint.attempt.began if checkpoint.attempt is not None else None
        return trust.read(self._store, self._run, first_id) if first_id is not None else checkpoint

    def have_files_changed_since(self, checkpoint_id: str) -> bool:
        checkpoint = trust.read(self._store, self._run, checkpoint_id)
        commit = self._store.objects.read_head()[0]
        if commit != checkpoint.git_sha:
            return True
        captured = self._store.capture_worktree()
        read = partial(manifest.read, self._store.repository, self._store.objects)
        old_contents, new_contents = read(checkpoint.tree, commit), read(captured.tree, commit)
        if (old_contents.files, old_contents.raw) != (new_contents.files, new_contents.raw):
            return True
        return submodules.have_submodules_changed(self._store, checkpoint.worktree, captured)

    def has_work_since(self, phase: str, newest: str) -> bool:
        """Return whether files changed since the driver's last checkpoint of a phase."""
        # Not `newest` (used only if there is no such checkpoint): commits and saves by users extend
        # the run, too. A rewind to one of these, or a repeated phase, must keep their changes.
        rewind_target = None
        for entry in trust.list_local(self._store, Query(run=self._run)):
            if rewind_target not in (None, entry.id):
                continue
            rewind_target = None
            if entry.label == REWOUND:
                rewind_target = trust.read(self._store, self._run, entry.id).rewound_to
            elif entry.trigger not in _NOT_BY_DRIVER and split_label(entry.label)[0] == phase:
                return self.have_files_changed_since(entry.id)
        return self.have_files_changed_since(newest)


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
    def is_session(self) -> bool:
        """Whether the run is a session of an agent that gitckpt did not start."""
        return self.status == runstate.OPEN and phase.turn_number(self.label) is not None

    @property
    def datetime(self) -> dt.datetime:
        """Return the time of the newest checkpoint, as an aware `datetime` in UTC."""
        return times.as_datetime(self.time)


def list_runs(store: Checkpoints) -> list[RunInfo]:
    rows = store.index.list_run_rows()
    leases = _read_leases(store)
    paths = _worktree_paths(store, [row[0] for row in rows])
    infos = []
    for run, time, newest, oid, branch, label, driven_label, driven_oid, started, *report in rows:
        oids = [id_ for id_ in (oid, driven_oid, report[1]) if id_]
        if not all(local_checkpoints.is_document_local(store.repository, run, id_) for id_ in oids):
            time, newest, branch, label, driven_label, started, report = _read_local_row(store, run)  # noqa: PLW2901
        lease_oid, lease = leases.get(run, ("", None))
        is_held, is_slow = None, False
        if lease is not None:
            is_held = store.leases.is_held(lease_oid, lease)
            is_slow = store.leases.is_stalled(lease_oid, lease) or lease.is_endless(store.clock())
        has_report = report[0] is not None and driven_label != ref_names.RUN_COMPLETE
        shown = _reported_label(store, *report) if has_report else driven_label
        status = runstate.status_of_run(
            shown, label, driven=is_held, stalled=is_slow, by_driver=not has_report
        )
        shown, path = shown if shown and status != runstate.OPEN else label, paths.get(run)
        infos.append(RunInfo(run, status, shown, time, started, newest, branch, path, lease))
    return infos


def _worktree_paths(store: Checkpoints, runs: Sequence[str]) -> dict[str, str]:
    paths = ownership.worktrees_of_runs(store.repository)
    if missing_runs := [run for run in runs if run not in paths]:
        from gitckpt.store.worktrees import resumption  # only if git does not know one

        paths |= resumption.find_moved_worktrees(store.repository, missing_runs)
    return paths


def _reported_label(store: Checkpoints, label: str, oid: str, trigger: str) -> str:
    name, status = phase.split_label(label)
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
    return f"{phase.split_label(label)[0]}-progress"


def _read_local_row(store: Checkpoints, run: str) -> RowFields:
    entries = heads.list_run_checkpoints(store.index, store.repository, run)
    newest, entry_times = entries[0], [entry.time for entry in entries]
    driven = next((entry.label for entry in entries if is_made_by_driver(entry)), None)
    report: list[str | None] = [None, None, None]
    if driven is None or phase.split_label(driven)[0] == "run":
        last = next((entry for entry in entries if reports_status(entry)), None)
        report = [last.label, last.oid, last.trigger] if last is not None else report
    return max(entry_times), newest.id, newest.branch, newest.label, driven, entry_times[-1], report


def summarize_run(store: Checkpoints, run: str) -> RunInfo:
    for info in list_runs(store):
        if info.run == run:
            return info
    raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")


def _read_leases(store: Checkpoints) -> dict[str, tuple[str, Lease]]:
    refs = list(store.refs.iterate_refs(ref_names.LEASES))
    leases = {}
    contents = store.objects.read([oid for _, oid in refs])
    for (ref, oid), content in zip(refs, contents, strict=True):
        if content is not None and _RELEASED_KEY not in content[1]:
            with contextlib.suppress(InvalidCheckpoint):
                lease = parse_lease(content[1], ref)
                leases[lease.run] = oid, lease
    return leases


_FIRST = 100  # checkpoints to read before reading all: hooks record at each commit


def find_resumable(store: Checkpoints) -> Checkpoint | None:
    """Return the newest checkpoint to continue from, or None."""
    chains = (trust.list_local(store, Query(run=info.run)) for info in list_unfinished_runs(store))
    run_checkpoints = filter(None, (_first_readable(store, chain) for chain in chains))
    candidates = filter(None, (next(run_checkpoints, None), _latest_outside_runs(store)))
    return max(candidates, key=lambda checkpoint: checkpoint.time, default=None)


def list_unfinished_runs(store: Checkpoints) -> list[RunInfo]:
    excluded_statuses = (runstate.COMPLETE, *runstate.DRIVEN)
    infos = [info for info in list_runs(store) if info.status not in excluded_statuses]
    return [info for info in infos if not info.is_session and is_run_of_worktree(store, info.run)]


def is_run_of_worktree(store: Checkpoints, run: str) -> bool:
    """Return whether a run was started, imported or adopted in this worktree."""
    if (owner := ownership.owner_of(store.repository)) is not None and owner.run is not None:
        return owner.run == run
    checkpoint_ids = [entry.id for entry in store.list(Query(run=run))]
    local = LocalCheckpoints.read(store.repository, checkpoint_ids)
    this_worktree = local_checkpoints.worktree_key(store.repository)
    return any(local.find_worktree_key(name) == this_worktree for name in checkpoint_ids)


def find_made_in_others(store: Checkpoints, names: Iterable[str]) -> dict[str, str]:
    repository, this_place = store.repository, local_checkpoints.worktree_key(store.repository)
    linked_worktrees = administration.list_worktrees(repository)
    tops = {local_checkpoints.worktree_key_in(git_dir): path for git_dir, path in linked_worktrees}
    tops[local_checkpoints.MAIN] = administration.main_worktree(repository) or repository.common_dir
    worktrees = {}
    for name in names:
        is_run = ids.is_run_id(name)
        entries = store.list(Query(run=name) if is_run else Query(ids=[name]))
        local = LocalCheckpoints.read(repository, [entry.id for entry in entries])
        unchanged = [entry for entry in entries if local.has_document(entry.id, entry.oid)]
        keys = [str(local.find_worktree_key(entry.id)) for entry in unchanged]
        runs = {entry.run for entry in entries if entry.run is not None}
        if not keys or this_place in keys or any(is_run_of_worktree(store, run) for run in runs):
            continue
        worktree_key = keys[-1]  # for a run, where it began
        if is_run and worktree_key not in tops and worktree_key.partition(":")[0] == name:
            continue  # its own worktree, taken by an interrupted removal
        missing = f"a worktree {worktree_key.partition(':')[0]} that is gone"
        worktrees[name] = f"the worktree {tops[worktree_key]}" if worktree_key in tops else missing
    return worktrees


def _latest_outside_runs(store: Checkpoints) -> Checkpoint | None:
    key = local_checkpoints.worktree_key(store.repository)
    ignored_triggers = (*HOOK_TRIGGERS, SAFETY, RESCUE, STEP)
    for limit in (_FIRST, None):
        entries = store.list(Query(in_run=False, limit=limit))
        local = LocalCheckpoints.read(store.repository, [entry.id for entry in entries])
        own = [e for e in entries if local.is_written_here(e) and local.was_captured_in(e.id, key)]
        reports = [entry for entry in own if entry.trigger not in ignored_triggers]
        labels = [entry.label for entry in reports]
        has_completed = ref_names.RUN_COMPLETE in labels
        latest = reports[: labels.index(ref_names.RUN_COMPLETE)] if has_completed else reports
        phases = [entry for entry in latest if split_label(entry.label)[0] not in NOT_PHASES]
        checkpoint = _first_readable(store, phases)
        if checkpoint is not None or has_completed or len(entries) < _FIRST:
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
class PhaseProgress:
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
    result: str | None = None  # what the last attempt returned, as JSON


@dataclass(frozen=True, slots=True)
class History:
    """A run with its pipeline and the progress of each phase."""

    summary: RunInfo
    pipeline: Pipeline
    events: list[PhaseProgress]  # in the order of the pipeline or of their start
    unwritten: list[str]  # one sentence for each checkpoint that could not be written
    newest: Checkpoint  # with the state
    last_line: str = ""  # of the output of the phase that is in progress


def merge_command(store: Checkpoints, run: str) -> str | None:
    """Return the command that brings a run's work into another worktree, if any."""
    newest = store.heads.read(run)
    first = heads.list_run_checkpoints(store.index, store.repository, run)[-1]
    if newest.worktree is not None and newest.worktree.dirty:
        # A restore would delete files that only the other worktree has.
        return f"git ckpt diff --binary {first.id[: ids.SHORT]} {run} | git apply"
    if newest.git_sha == first.git_sha:
        return None
    return f"git merge {shell_quoted(newest.branch or newest.git_sha[: ids.SHORT])}"


def read_history(store: Checkpoints, run: str) -> History:
    summary = summarize_run(store, run)
    entries = list(reversed(heads.list_run_checkpoints(store.index, store.repository, run)))
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
    events: dict[str, PhaseProgress] = {name: PhaseProgress(name, PENDING) for name in names}
    current_phase = ""
    for checkpoint in chain:
        name, status = phase.split_label(checkpoint.label)
        if name in phase.NOT_PHASES or checkpoint.trigger in _WITHIN:
            continue
        previous = events.get(name, PhaseProgress(name, PENDING))
        events[name] = _advance_phase(previous, checkpoint, status)
        current_phase = name
    for name, id_ in pipeline.completed.items():
        if name in events and events[name].status == PENDING:
            events[name] = replace(events[name], status="complete", checkpoint=id_)
    was_rewound = any(document.label == phase.REWOUND for document in chain)
    lists_all = bool(pipeline.completed) or was_rewound
    for name, event in events.items():
        if event.status in ("complete", "skipped") and lists_all and name not in pipeline.completed:
            events[name] = replace(event, status=PENDING)  # the run was rewound: to be done again
    if current_phase and summary.status not in (runstate.COMPLETE, runstate.PAUSED, runstate.OPEN):
        events[current_phase] = replace(events[current_phase], is_current=True)
    unwritten = run_files.read_unwritten_notes(store.repository, run)
    newest, last_line = store.read(entries[-1].id), ""
    if summary.status in runstate.DRIVEN:
        last_line = run_files.files_of_run(store.repository, run).read_last_line()
    return History(summary, pipeline, list(events.values()), unwritten, newest, last_line)


def _advance_phase(event: PhaseProgress, checkpoint: Checkpoint, status: str) -> PhaseProgress:
    attempt, event = checkpoint.attempt, replace(event, checkpoint=checkpoint.id)
    if status == "started":
        number = attempt.number if attempt is not None else event.attempts + 1
        time, id_ = checkpoint.timestamp, checkpoint.id
        return PhaseProgress(event.phase, status, number, time, checkpoint=id_)
    if status == "progress":
        return replace(event, saves=event.saves + 1)
    end_time, errors = checkpoint.timestamp, checkpoint.errors
    duration, code = (attempt.seconds, attempt.exit_code) if attempt is not None else (None, None)
    event = replace(event, status=status, ended=end_time, errors=errors)
    result = attempt.result if attempt is not None else None
    return replace(event, seconds=duration, exit_code=code, result=result)
