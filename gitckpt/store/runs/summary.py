"""The runs of a repository, and what has become of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitckpt.model import phase, runstate, times
from gitckpt.model.checkpoint import STEP
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.readers import codec
from gitckpt.model.values import dataclass
from gitckpt.store import chains
from gitckpt.store.leases.lease import Lease, parse
from gitckpt.store.records import heads, layout
from gitckpt.store.records.entry import OF_TRACKS, is_driven, is_told
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt

    from gitckpt.store.checkpoints import Checkpoints

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
        if not all(chains.knows(store.repository, run, each) for each in (oid, driven_oid, told[1]) if each):
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


def summary(store: Checkpoints, run: str) -> RunInfo:
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
