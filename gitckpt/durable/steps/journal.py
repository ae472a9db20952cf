"""Record step reports: each report is one checkpoint of its run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.steps import graph_file, machine
from gitckpt.durable.steps import report as record
from gitckpt.durable.steps.graph import COMPLETE, Graph
from gitckpt.durable.steps.report import FAIL, RESET, START, StepReport
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import codec, ids, phase, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import STEP, Checkpoint, Progress
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.leases import leases
from gitckpt.store.records import heads, ref_names
from gitckpt.store.worktrees import ownership

TRACK = "track_id"  # key of the state: the track of the run
_LOCK, _MIRROR_LOCK, _PATIENCE = "track.lock", "mirror.lock", 10.0
# Maximum length of a checkpoint message, in characters; the state keeps the full notes.
_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class ReportTarget:
    run: str | None  # None if the report starts a run for the track
    track: str | None = None  # None if the caller named no track
    by_track: bool = False  # the track determined the run


@dataclass(frozen=True, slots=True)
class Reported:
    """The checkpoint that a report recorded, and the step graph of its run."""

    checkpoint: Checkpoint  # the new one, with the current state of the run
    graph: Graph
    is_new: bool  # the report started the run


def find_report_target(
    store: Checkpoints,
    *,
    run: str | None = None,
    track: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ReportTarget:
    """Find the run of a report by `run`, $CKPT_RUN, the current worktree or the track."""
    name = run or environ.get(leases.RUN_VARIABLE)
    if name:
        exists = ids.is_run_id(name) and store.refs.read_ref(ref_names.RUNS + name) is not None
        return ReportTarget(name if exists else store.addresses.find_run(name), track)
    owner = ownership.owner_of(store.repository)
    if owner is not None and owner.run is not None:
        return ReportTarget(owner.run, track)
    if track is not None:
        return ReportTarget(find_run_of_track(store, track), track, by_track=True)
    hint = "name a run: --run RUN, or start one: --track NAME; list all: git ckpt runs"
    raise UsageError("no run is named", hint=hint)


def read_newest_checkpoint(store: Checkpoints, target: ReportTarget) -> Checkpoint:
    if target.run is not None:
        return store.heads.move_head_up_and_read(target.run)
    hint = f"start one: git ckpt step start STEP --track {shell_quoted(str(target.track))}"
    raise NotFoundError(f"no run has the track {target.track}", hint=hint)


def find_graph(store: Checkpoints, state: Mapping[str, Any], requested: str | None = None) -> Graph:
    """Return a run's step graph from `gitckpt.toml`, or from HEAD if that is invalid."""
    recorded_name = _read_graph_name(state)
    if recorded_name is not None and requested not in (None, recorded_name):
        problem = f"the run uses the graph {recorded_name}, not {requested}"
        raise UsageError(problem, hint="leave out --graph, or start another run")
    name = recorded_name or requested or graph_file.SUPERPOWERS
    top = store.repository.worktree or administration.main_worktree(store.repository) or ""
    try:
        return graph_file.read_graph(os.path.join(top, settings.FILE), name)
    except UsageError as error:
        if not store.settings_reader.read_settings().problem:  # the mistake is in the graph itself
            raise
        try:
            return graph_file.read_graph_at_head(store.repository, name)
        except CkptError:
            raise error from None


def find_worktree(store: Checkpoints, run: str) -> str | None:
    return ownership.worktrees_of_runs(store.repository).get(run, store.repository.worktree)


def _open_run_worktree(store: Checkpoints, run: str) -> Repository | None:
    path = ownership.worktrees_of_runs(store.repository).get(run)
    return administration.open_linked_worktree(store.repository, path) if path is not None else None


def record_report(
    store: Checkpoints,
    target: ReportTarget,
    step_report: StepReport,
    *,
    graph: str | None = None,
    files: bool = False,
    checkpoint_id: str | None = None,
) -> Reported:
    """Record a report as a checkpoint; repeating it with the same id records nothing."""
    if checkpoint_id is not None:
        earlier_report = _find_repeated_report(store, target, step_report, checkpoint_id)
        if earlier_report is not None:
            return earlier_report
        step_report = replace(step_report, checkpoint_id=checkpoint_id)
    if target.run is not None and not _starts_run(store, target, step_report):
        return _record_report_in_run(store, target, step_report, graph, files=files)
    assert target.track is not None
    with FileLock(os.path.join(store.repository.make_private_dir(), _LOCK), _PATIENCE):
        # Another process may have started the run.
        target = replace(target, run=find_run_of_track(store, target.track))
        if target.run is not None and not _starts_run(store, target, step_report):
            return _record_report_in_run(store, target, step_report, graph, files=files)
        step_graph = find_graph(store, {}, graph)
        target = replace(target, run=None)
        checkpoint = _save_report(store, target, step_graph, step_report, files=files)
    return Reported(checkpoint, step_graph, is_new=True)


def _find_repeated_report(
    store: Checkpoints, target: ReportTarget, step_report: StepReport, checkpoint_id: str
) -> Reported | None:
    if not ids.is_checkpoint_id(checkpoint_id):
        raise UsageError(f"{checkpoint_id!r:.60} is not a UUIDv4", hint="run: uuidgen --random")
    if store.refs.read_ref(ref_names.CHECKPOINTS + checkpoint_id) is None:
        return None
    checkpoint = store.read_own(checkpoint_id)
    step_graph = find_graph(store, checkpoint.state)
    label = f"{step_graph.step(step_report.step).name}-{record.LABELS[step_report.action]}"
    is_same_report = checkpoint.trigger == STEP and checkpoint.label == label
    is_same_report = is_same_report and (checkpoint.run == target.run or target.by_track)
    if checkpoint.run is None or not is_same_report:
        problem = f"checkpoint {checkpoint_id} belongs to another report: {checkpoint.label}"
        raise UsageError(problem, hint="give each report a different id")
    # The first call may have been killed before it moved the run's head or wrote the mirror.
    store.heads.move_head_up(checkpoint.run)
    worktree_repository = _open_run_worktree(store, checkpoint.run) or store.repository
    _write_state_mirror(store, worktree_repository, step_graph, checkpoint.run)
    return Reported(checkpoint, step_graph, is_new=False)


def _write_state_mirror(store: Checkpoints, repository: Repository, graph: Graph, run: str) -> None:
    if graph.mirror is None or repository.worktree is None:
        return  # the graph has no mirror file
    try:
        # Read the state under the lock: the last of two reporters then writes the newest state.
        with FileLock(os.path.join(repository.make_private_dir(), _MIRROR_LOCK), _PATIENCE):
            graph_file.write_state_mirror(repository, graph.mirror, store.heads.read(run).state)
    except CkptError as error:
        store.announce(error.message)


def _record_report_in_run(
    store: Checkpoints,
    target: ReportTarget,
    step_report: StepReport,
    graph: str | None,
    *,
    files: bool,
) -> Reported:
    run = str(target.run)
    newest = store.heads.read(run)
    step_graph = find_graph(store, newest.state, graph)
    worktree = _open_run_worktree(store, run)
    if worktree is None and newest.pipeline is not None:
        # The run's worktree is gone, and resume recreates it from the newest checkpoint: record the
        # run's commit, not the one that is checked out here.
        if files:
            hint = f"recreate the worktree: git ckpt resume {run} --no-run"
            raise UsageError(f"the worktree of run {run} is gone", hint=hint)
        checkpoint = _save_report(store, target, step_graph, step_report, base=newest.git_sha)
    elif worktree is None or os.path.samefile(worktree.git_dir, store.repository.git_dir):
        checkpoint = _save_report(store, target, step_graph, step_report, files=files)
    else:
        with store.open_store_for(worktree, "plumbing") as run_store:
            checkpoint = _save_report(run_store, target, step_graph, step_report, files=files)
    return Reported(checkpoint, step_graph, is_new=False)


def _save_report(
    store: Checkpoints, target: ReportTarget, graph: Graph, step_report: StepReport, **options: Any
) -> Checkpoint:
    run, track = target.run, target.track
    step = graph.step(step_report.step).name
    timestamp = times.to_text(store.clock())

    def change(state: dict[str, Any]) -> dict[str, Any]:
        if track is not None and TRACK not in state:
            state = {**state, TRACK: track}
        name = _read_graph_name(state) or graph.name
        if name != graph.name:
            raise UsageError(f"the run now uses the graph {name}", hint="run the command again")
        new_state = machine.apply_report(graph, state, step_report, timestamp)
        if graph.name != graph_file.SUPERPOWERS:
            # First: in TOML a key cannot follow the tables of its table.
            new_state[machine.LOOP] = {"graph": graph.name} | new_state[machine.LOOP]
        return new_state

    notes_line = " ".join((step_report.notes or "").split())
    message = ": ".join(filter(None, ["reset" if step_report.action == RESET else "", notes_line]))
    message = message if len(message) <= _MESSAGE else f"{message[:_MESSAGE]}…"
    guard = store.leases.bind_writes_to_token(run) if run is not None else None
    new_track = track if run is None else None
    kwargs: dict[str, Any] = {"run": run, "start": new_track, "guard": guard, "change": change}
    kwargs |= {"trigger": STEP, "agent": step_report.agent, "message": message or None}
    kwargs["progress_of"] = lambda new: record.read_progress(machine.find_record(graph, new, step))
    kwargs["errors"] = [str(step_report.notes)] if step_report.action == FAIL else []
    if step_report.checkpoint_id is not None:
        kwargs["id"] = step_report.checkpoint_id
    label = f"{step}-{record.LABELS[step_report.action]}"
    if options.pop("files", False):
        # An agent waits for this call: omit a capture that takes too long.
        limits = store.settings_reader.read_limits().automatic()
        checkpoint = store.save(label, limits=limits, **kwargs)
    else:
        checkpoint = store.record(label, **options, **kwargs)
    _write_state_mirror(store, store.repository, graph, str(checkpoint.run))
    return checkpoint


def _starts_run(store: Checkpoints, target: ReportTarget, step_report: StepReport) -> bool:
    if target.run is None:
        return True
    return target.by_track and step_report.action == START and _is_run_complete(store, target.run)


def _read_graph_name(state: Mapping[str, Any]) -> str | None:
    loop_table = state.get(machine.LOOP)
    name = loop_table.get("graph") if isinstance(loop_table, Mapping) else None
    return name if isinstance(name, str) else graph_file.SUPERPOWERS if loop_table else None


def _is_run_complete(store: Checkpoints, run: str) -> bool:
    newest = store.heads.read(run)
    if newest.label == ref_names.RUN_COMPLETE:
        return True
    return machine.find_position(find_graph(store, newest.state), newest.state).step == COMPLETE


def find_run_of_track(store: Checkpoints, track: str) -> str | None:
    if not track.strip() or not track.isprintable():
        raise UsageError(f"{track!r} is not a track name", hint="such as --track add-login")
    slug = ids.make_slug(track)
    newest_run = None
    for run in sorted(store.index.list_runs(), reverse=True):
        run_slug, suffix = run[16:], run[16:].removeprefix(f"{slug}-")  # behind the timestamp
        if run_slug != slug and not suffix.isdigit():
            continue
        if store.heads.is_head_local(run) and store.heads.read(run).state.get(TRACK) == track:
            newest_run = newest_run or run
            if not _is_run_complete(store, run):
                return run
    return newest_run


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A report on a step, read from the history of a run."""

    checkpoint: str  # id
    sequence: int  # position of the checkpoint in the run
    timestamp: str
    step: str
    status: str  # started, progress, complete, failed, blocked or skipped
    agent: str | None  # None if the report named none
    message: str | None  # the notes, on one line
    errors: tuple[str, ...]  # the notes of a failure, unchanged
    git_sha: str  # the commit that was checked out
    has_files: bool  # the files were captured
    progress: Progress | None


def read_history(store: Checkpoints, run: str) -> list[StepEvent]:
    run_chain = reversed(heads.list_run_checkpoints(store.index, store.repository, run))
    step_entries = [entry for entry in run_chain if entry.trigger == STEP]
    objects = store.objects.read([entry.oid for entry in step_entries])
    shared_fields = ("timestamp", "agent", "message", "errors", "git_sha", "progress")
    events = []
    for entry, object_data in zip(step_entries, objects, strict=True):
        if object_data is None:
            continue
        checkpoint = codec.decode_header(object_data[1], ref_names.CHECKPOINTS + entry.id)
        step, status = phase.split_label(checkpoint.label)
        fields: dict[str, Any] = {name: getattr(checkpoint, name) for name in shared_fields}
        fields |= {"checkpoint": checkpoint.id, "sequence": checkpoint.sequence or 0}
        has_files = checkpoint.worktree is not None
        events.append(StepEvent(step=step, status=status, has_files=has_files, **fields))
    return events
