"""Record step reports: each report is one checkpoint of its run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.steps import graph_file, machine
from gitckpt.durable.steps import report as record
from gitckpt.durable.steps.graph import COMPLETE, Graph
from gitckpt.durable.steps.report import FAIL, RESET, START, StepReport
from gitckpt.git.lock import Lock
from gitckpt.git.worktree import administration
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import codec, ids, phase, times
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import STEP
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import settings
from gitckpt.store.leases import leases
from gitckpt.store.records import finder, heads, ref_names
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint, Progress
    from gitckpt.store.checkpoints import Checkpoints

TRACK = "track_id"  # key of the state: the track of the run

_LOCK, _MIRROR_LOCK, _PATIENCE = "track.lock", "mirror.lock", 10.0
# Maximum length of a checkpoint message, in characters; the state keeps the full notes.
_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class ReportPlace:
    run: str | None  # None if the report starts a run for the track
    track: str | None = None  # None if the caller named none
    by_track: bool = False  # the track determined the run


@dataclass(frozen=True, slots=True)
class Reported:
    """The result of a report."""

    checkpoint: Checkpoint  # the new one, with the current state of the run
    graph: Graph
    is_new: bool  # the report started the run


def place(
    store: Checkpoints,
    *,
    run: str | None = None,
    track: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ReportPlace:
    """Return the run of `run` (or a prefix), CKPT_RUN, this worktree or the track."""
    name = run or environ.get(leases.RUN_VARIABLE)
    if name:
        exists = ids.is_run_id(name) and store.refs.read(ref_names.RUNS + name) is not None
        return ReportPlace(name if exists else finder.find_run(name, store.index), track)
    owner = ownership.owner(store.repository)
    if owner is not None and owner.run is not None:
        return ReportPlace(owner.run, track)
    if track is not None:
        return ReportPlace(run_about(store, track), track, by_track=True)
    raise UsageError(
        "it is not said which run",
        hint="name it: --run RUN, or --track NAME, which starts one; or go to its worktree; git ckpt runs lists them",
    )


def read(store: Checkpoints, where: ReportPlace) -> Checkpoint:
    if where.run is None:
        raise NotFoundError(
            f"no run is about the track {where.track}",
            hint=f"begin: git ckpt step start STEP --track {shell_word(str(where.track))}",
        )
    return store.heads.catch_up(where.run)


def graph_of(store: Checkpoints, state: Mapping[str, Any], wanted: str | None = None) -> Graph:
    """Return the steps of a run; those in HEAD if `gitckpt.toml` cannot be read.

    `wanted` is the graph that the caller names; it must agree with that of the state.
    """
    own = _graph_name(state)
    if own is not None and wanted is not None and own != wanted:
        raise UsageError(
            f"the run has the steps of {own}, not those of {wanted}",
            hint="leave out --graph, or start another run",
        )
    top = store.repository.worktree or main_worktree(store.repository) or ""
    name = own or wanted or graph_file.SUPERPOWERS
    try:
        return graph_file.read(os.path.join(top, settings.FILE), name)
    except UsageError as error:
        if not store.rules.read().problem:  # the mistake is in the graph itself
            raise
        try:
            return graph_file.read_head(store.repository, name)
        except CkptError:
            raise error from None


def home(store: Checkpoints, run: str) -> str | None:
    """Return the worktree of a run, or else the current one; None without one."""
    return ownership.of_runs(store.repository).get(run, store.repository.worktree)


def report(
    store: Checkpoints,
    where: ReportPlace,
    said: StepReport,
    *,
    graph: str | None = None,
    files: bool = False,
    checkpoint_id: str | None = None,
) -> Reported:
    """Record a report durably.

    Concurrent reports are applied one after the other; none is lost. A run with its own worktree is
    opened from there.

    Args:
        graph: the name of the steps of a run that has none yet.
        checkpoint_id: a fresh UUIDv4. A repeated call with the same id, as after a crash, records
            nothing.
    """
    if checkpoint_id is not None:
        before = _recorded(store, where, said, checkpoint_id)
        if before is not None:
            return before
        said = replace(said, checkpoint_id=checkpoint_id)
    if where.run is not None and not _begins_anew(store, where, said):
        return _extend(store, where.run, where.track, said, graph, files=files)
    assert where.track is not None
    with Lock(os.path.join(store.repository.make_private_dir(), _LOCK), _PATIENCE):
        again = replace(
            where, run=run_about(store, where.track)
        )  # another process may have started the run
        if again.run is not None and not _begins_anew(store, again, said):
            return _extend(store, again.run, where.track, said, graph, files=files)
        steps = graph_of(store, {}, graph)
        made = _Writer(store, steps, said, where.track).write(files=files, start=where.track)
    return Reported(made, steps, is_new=True)


def _recorded(
    store: Checkpoints, where: ReportPlace, said: StepReport, checkpoint_id: str
) -> Reported | None:
    """Return the earlier result for a checkpoint id; None if the id is new."""
    if not ids.is_id(checkpoint_id):
        raise UsageError(
            f"{checkpoint_id!r:.60} is no UUID of version 4", hint="make one: uuidgen --random"
        )
    if store.refs.read(ref_names.CHECKPOINTS + checkpoint_id) is None:
        return None
    found = store.read_own(checkpoint_id)
    steps = graph_of(store, found.state)
    label = f"{steps.step(said.step).name}-{record.LABELS[said.action]}"
    if (
        found.run is None
        or found.trigger != STEP
        or found.label != label
        or (found.run != where.run and not where.by_track)
    ):
        raise UsageError(
            f"checkpoint {checkpoint_id} is about something else: {found.label}",
            hint="give each report an id of its own",
        )
    # The first call may have been killed before it moved the run's head or wrote the mirror.
    store.heads.move_up(found.run)
    path = ownership.of_runs(store.repository).get(found.run)
    home_repository = administration.seen_from(store.repository, path) if path is not None else None
    _write_mirror(store, home_repository or store.repository, steps, found.run)
    return Reported(found, steps, is_new=False)


def _write_mirror(store: Checkpoints, repository: Repository, graph: Graph, run: str) -> None:
    """Write the mirror file, if the graph has one.

    The report is recorded by then, so a failure is announced and not raised.
    """
    if graph.mirror is None or repository.worktree is None:
        return
    try:
        # Read the state under the lock: the last of two reporters then writes the newest state.
        with Lock(os.path.join(repository.make_private_dir(), _MIRROR_LOCK), _PATIENCE):
            graph_file.write(repository, graph.mirror, store.heads.read(run).state)
    except CkptError as error:
        store.announce(error.message)


def _extend(
    store: Checkpoints,
    run: str,
    track: str | None,
    said: StepReport,
    graph: str | None,
    *,
    files: bool,
) -> Reported:
    newest = store.heads.read(run)
    steps = graph_of(store, newest.state, graph)
    path = ownership.of_runs(store.repository).get(run)
    worktree = administration.seen_from(store.repository, path) if path is not None else None
    if worktree is None and newest.pipeline is not None:
        # The run's worktree is gone, and resume recreates it from the newest checkpoint: record the
        # run's commit, not the one that is checked out here.
        if files:
            raise UsageError(
                f"the worktree of run {run} is gone",
                hint=f"make it again: git ckpt resume {run} --no-run",
            )
        return Reported(
            _Writer(store, steps, said, track).write(run=run, base=newest.git_sha),
            steps,
            is_new=False,
        )
    if worktree is None or os.path.realpath(worktree.git_dir) == os.path.realpath(
        store.repository.git_dir
    ):
        return Reported(
            _Writer(store, steps, said, track).write(run=run, files=files), steps, is_new=False
        )
    with store.seen_from(worktree, "plumbing") as inside:
        return Reported(
            _Writer(inside, steps, said, track).write(run=run, files=files), steps, is_new=False
        )


class _Writer:
    def __init__(
        self, store: Checkpoints, graph: Graph, said: StepReport, track: str | None
    ) -> None:
        self._store = store
        self._graph = graph
        self._said = said
        self._track = track
        self._step = graph.step(said.step).name

    def write(
        self,
        *,
        files: bool = False,
        run: str | None = None,
        start: str | None = None,
        base: str | None = None,
    ) -> Checkpoint:
        """Write to a run or as the first checkpoint of one; arguments as `Store.record`."""
        self._at = times.to_text(self._store.clock())
        notes = " ".join((self._said.notes or "").split())
        message = ": ".join(filter(None, ["reset" if self._said.action == RESET else "", notes]))
        label = f"{self._step}-{record.LABELS[self._said.action]}"
        how: dict[str, Any] = {
            "run": run,
            "start": start,
            "guard": self._store.leases.bound(run) if run is not None else None,
            "change": self._change,
            "progress_of": self._progress,
            "trigger": STEP,
            "agent": self._said.agent,
            "message": (message if len(message) <= _MESSAGE else f"{message[:_MESSAGE]}…") or None,
            "errors": [str(self._said.notes)] if self._said.action == FAIL else [],
            **({"id": self._said.checkpoint_id} if self._said.checkpoint_id is not None else {}),
        }
        # An agent waits for this call: a capture that takes too long is left out.
        limits = self._store.rules.limits
        made = (
            self._store.save(label, limits=limits().automatic(), **how)
            if files
            else self._store.record(label, base=base, **how)
        )
        _write_mirror(self._store, self._store.repository, self._graph, str(made.run))
        return made

    def _change(self, before: dict[str, Any]) -> dict[str, Any]:
        known = (
            {**before, TRACK: self._track}
            if self._track is not None and TRACK not in before
            else before
        )
        own = _graph_name(known) or self._graph.name
        if own != self._graph.name:
            raise UsageError(f"the run has the steps of {own} by now", hint="run the command again")
        after = machine.applied(self._graph, known, self._said, self._at)
        if self._graph.name != graph_file.SUPERPOWERS:
            # First: in TOML a key cannot follow the tables of its table.
            after[machine.LOOP] = {"graph": self._graph.name} | after[machine.LOOP]
        return after

    def _progress(self, state: Mapping[str, Any]) -> Progress | None:
        return record.progress_of(machine.record_of(self._graph, state, self._step))


def _begins_anew(store: Checkpoints, where: ReportPlace, said: StepReport) -> bool:
    return where.run is None or (
        where.by_track and said.action == START and _is_over(store, where.run)
    )


def _graph_name(state: Mapping[str, Any]) -> str | None:
    loop = state.get(machine.LOOP)
    said = loop.get("graph") if isinstance(loop, Mapping) else None
    return said if isinstance(said, str) else graph_file.SUPERPOWERS if loop else None


def _is_over(store: Checkpoints, run: str) -> bool:
    newest = store.heads.read(run)
    return (
        newest.label == ref_names.RUN_COMPLETE
        or machine.position(graph_of(store, newest.state), newest.state).step == COMPLETE
    )


def run_about(store: Checkpoints, track: str) -> str | None:
    """Return the newest open run of a track, or else the newest one; or None."""
    if not track.strip() or not track.isprintable():
        raise UsageError(
            f"{track!r} is no name of a track", hint="write it on one line: --track add-login"
        )
    slug = ids.slug(track)
    found: list[str] = []
    for run in sorted(store.index.runs(), reverse=True):
        name = run[16:]  # behind the timestamp
        if name != slug and not (name.startswith(f"{slug}-") and name[len(slug) + 1 :].isdigit()):
            continue
        if store.heads.is_ours(run) and store.heads.read(run).state.get(TRACK) == track:
            found.append(run)
    return next((run for run in found if not _is_over(store, run)), found[0] if found else None)


# History: all reports of a run, read from its checkpoints.


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One report in the history of a run."""

    checkpoint: str  # id
    sequence: int  # position in the run
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
    entries = [
        entry
        for entry in reversed(heads.chain(store.index, store.repository, run))
        if entry.trigger == STEP
    ]
    found = []
    for entry, content in zip(
        entries, store.objects.read([entry.oid for entry in entries]), strict=True
    ):
        if content is None:
            continue
        checkpoint = codec.decode_header(content[1], ref_names.CHECKPOINTS + entry.id)
        step, status = phase.split(checkpoint.label)
        found.append(
            StepEvent(
                checkpoint=checkpoint.id,
                sequence=checkpoint.sequence or 0,
                timestamp=checkpoint.timestamp,
                step=step,
                status=status,
                agent=checkpoint.agent,
                message=checkpoint.message,
                errors=checkpoint.errors,
                git_sha=checkpoint.git_sha,
                has_files=checkpoint.worktree is not None,
                progress=checkpoint.progress,
            )
        )
    return found
