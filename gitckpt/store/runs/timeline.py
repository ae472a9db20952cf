"""The life of one run, phase by phase, read from its checkpoints."""

from __future__ import annotations

from gitckpt.model import phase, runstate
from gitckpt.model.checkpoint import STEP, Checkpoint, Pipeline
from gitckpt.model.readers import codec
from gitckpt.model.values import dataclass, replace
from gitckpt.store.records import heads, layout
from gitckpt.store.records.entry import OF_TRACKS, WITHIN
from gitckpt.store.runs import summary as runs
from gitckpt.store.runs import unwritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.runs.summary import RunInfo

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
    summary = runs.summary(store, run)
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
    return History(summary, pipeline, list(events.values()), unwritten.read(store.repository, run), store.read(entries[-1].id))


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
