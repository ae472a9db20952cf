"""`git ckpt runs` and `git ckpt status`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import runstate, times
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.durable.progress import Gauge
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.store import Store

_INTERVAL = 1.0
_BAR = 20
_BRIEF = 100
_EVENT = "phase status attempts started ended seconds saves errors exit_code checkpoint"
_COLUMNS = ("RUN", "STATUS", "PHASE", "AGE", "BRANCH", "WORKTREE")


@options.usage("""
--status S  Only runs with this status: running, stalled, crashed, failed, blocked, paused,
  complete or open.
-n, --limit N  Show at most N runs.
--json  Print one JSON document.
""")
def runs(status: str | None = None, limit: int | None = None, as_json: bool = False) -> None:
    """List runs, the one with the newest checkpoint first.

    Piped, each line has tab-separated columns.
    """
    if status is not None and status not in runstate.STATUSES:
        raise UsageError(
            f"there is no status {status!r}", hint=f"it is one of {', '.join(runstate.STATUSES)}"
        )
    with open_store() as store:
        shown = [run for run in store.runs() if status in (None, run.status)][:limit]
        now = times.now()
    if as_json:
        terminal.out_json({"runs": [_as_json(run) for run in shown]})
        return
    if not shown:
        terminal.remark(
            "no runs yet; to start one: git ckpt run PIPELINE, or git ckpt start NAME"
            if status is None
            else "no run has this status"
        )
        return
    for_person = terminal.is_terminal()
    rows = [
        (
            run.run,
            run.status,
            run.label,
            times.age_text(max(now - run.time, 0)) if for_person else times.to_text(run.time),
            run.branch,
            terminal.near(run.path) if for_person else run.path,
        )
        for run in shown
    ]
    if for_person:
        terminal.table(_COLUMNS, [[cell or "" for cell in row] for row in rows])
    else:
        for row in rows:
            terminal.out_row(row)


@options.usage("""
[RUN]  The run.  [default: the run of this worktree, or the newest started here]
--json  Print one JSON document.
-w, --watch  Refresh the output until the run is no longer driven.
""")
def status(run: str | None = None, as_json: bool = False, watch: bool = False) -> None:
    """Show the phases of a run, its driver, and the next command."""
    if watch and (as_json or not terminal.is_terminal()):
        raise UsageError("--watch needs a terminal", hint="leave it out: git ckpt status --json")
    with open_store() as store:
        name = _find_run(store, run)
        if watch:
            _watch(store, name)
            return
        history = store.history(name)
        advice = _advice(store, history)
        now = times.now()
    if as_json:
        terminal.out_json(_history_as_json(history, advice))
        return
    for line in _lines(history, advice, now):
        terminal.out(line)
    for line in history.unwritten:
        terminal.warn(line)


def _watch(store: Store, run: str) -> None:
    import time

    shown = 0
    while True:
        history = store.history(run)
        shown = terminal.replace_lines(shown, _lines(history, _advice(store, history), times.now()))
        if history.summary.status not in runstate.DRIVEN:
            return
        time.sleep(_INTERVAL)


def _lines(history: History, advice: str | None, now: int) -> list[str]:
    lines = [f"{label:8} {value}" for label, value in _facts(history, now)]
    if history.events:
        lines += ["", *_event_lines(history)]
    return [*lines, "", f"next     {advice}"] if advice else lines


def _advice(store: Store, history: History) -> str | None:
    advice = _next_command(history)
    try:
        is_ours = store.is_ours(history.newest)
    except InvalidCheckpoint:  # the head of the run is damaged
        return "git ckpt verify --repair"
    is_trusted = is_ours or advice is None or not advice.startswith("git ckpt resume ")
    return advice if is_trusted else f"{advice} --trust"


def _next_command(history: History) -> str | None:
    summary, name = history.summary, history.summary.run
    phase = next((event.phase for event in history.events if event.is_current), "")
    if summary.status == runstate.COMPLETE:
        return None
    if summary.status == runstate.RUNNING:
        return f"git ckpt cancel {name}"
    if summary.status == runstate.STALLED:
        return f"git ckpt resume {name} --take-over"
    target = runstate.rewinding_to(history.newest)
    if target is not None:
        return f"git ckpt resume {target} --rewind"
    if history.pipeline.name is None and isinstance(history.newest.state.get("loop_state"), dict):
        return _next_of_steps(history)
    if summary.status == runstate.BLOCKED and history.pipeline.name is not None:
        return f"git ckpt resume {name} --from {shell_word(phase)}"
    if history.pipeline.name is None and summary.status not in (
        runstate.FAILED,
        runstate.BLOCKED,
        runstate.CRASHED,
        runstate.PAUSED,
    ):
        return f"git ckpt finish {name}"
    return f"git ckpt resume {name}"


def _next_of_steps(history: History) -> str:
    name, loop = history.summary.run, history.newest.state["loop_state"]
    if history.summary.status == runstate.BLOCKED:
        step = shell_word(str(loop.get("current_step")))
        return f"git ckpt step reset {step} --run {name} --notes TEXT"
    if loop.get("current_step") == "COMPLETE":
        return f"git ckpt finish {name}"
    return f"git ckpt step next --run {name}"


def _facts(history: History, now: int) -> list[tuple[str, str]]:
    from gitckpt.durable import progress

    summary, pipeline = history.summary, history.pipeline
    age = (
        ""
        if summary.status == runstate.RUNNING
        else f", {times.age_text(max(now - summary.time, times.MICRO))} ago"
    )
    autonomy = f", {pipeline.autonomy}" if pipeline.autonomy else ""
    branch = f" on {summary.branch}" if summary.branch else ""
    facts = [
        ("run", summary.run),
        ("status", summary.status + age),
        ("pipeline", f"{pipeline.name}{autonomy}" if pipeline.name is not None else ""),
        *(
            ("input", f"{name} = {_brief(value)}")
            for name, value in pipeline.inputs.items()
            if value
        ),
        (
            "progress",
            f"{len(pipeline.completed)} of {len(pipeline.phases)} phases complete"
            if pipeline.phases
            else "",
        ),
        *(
            (gauge.name, f"{_bar(gauge)}{gauge.text}")
            for gauge in progress.gauges(history.newest.state, history.newest.progress)
        ),
        ("deadline", pipeline.deadline or ""),
        ("worktree", summary.path + branch if summary.path else ""),
        (
            "driver" if summary.status in runstate.DRIVEN else "left by",
            summary.lease.sentence() if summary.lease is not None else "",
        ),
    ]
    return [(label, value) for label, value in facts if value]


def _brief(value: str) -> str:
    # A task may be a whole page.
    line = value.strip().partition("\n")[0]
    return value if value == line and len(line) <= _BRIEF else f"{line[:_BRIEF]}…"


def _bar(gauge: Gauge) -> str:
    if gauge.share is None or not terminal.is_terminal():
        return ""
    full = round(gauge.share * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] "


def _event_lines(history: History) -> list[str]:
    lines = []
    width = max(len(terminal.harmless(event.phase)) for event in history.events)
    for event in history.events:
        mark = ">" if event.is_current else " "
        took = f"{event.seconds:.1f}s" if event.seconds is not None else ""
        tries = f"{event.attempts} attempts" if event.attempts > 1 else ""
        saves = f"{event.saves} {'save' if event.saves == 1 else 'saves'}" if event.saves else ""
        notes = "  ".join(filter(None, [took, tries, saves]))
        lines.append(
            f"{mark} {terminal.harmless(event.phase):{width}}  {event.status:8}  {notes}".rstrip()
        )
        if event.status not in ("complete", "skipped"):
            lines += [f"      {error}" for error in event.errors]
    return lines


def _find_run(store: Store, text: str | None) -> str:
    # By default the run that has this worktree, else the newest started in it, else the newest.
    if text is not None:
        return store.find_run(text)
    if store.run is not None:
        return store.run
    runs = store.runs()
    ours = [run_ for run_ in runs if store.is_ours(run_.newest)]
    started_here = (run_ for run_ in ours if not store.made_elsewhere([run_.run]))
    newest = next(started_here, ours[0] if ours else None)
    if newest is None and runs:
        raise NotFoundError(
            "every run was fetched from another repository", hint="name a run: git ckpt runs"
        )
    if newest is None:
        raise NotFoundError(
            "there are no runs yet", hint="start one: git ckpt run PIPELINE, or git ckpt start NAME"
        )
    return newest.run


def _as_json(summary: RunInfo) -> dict[str, Any]:
    lease = summary.lease
    return {
        "run": summary.run,
        "status": summary.status,
        "label": summary.label,
        "started": times.to_text(summary.started),
        "newest": {"id": summary.newest, "timestamp": times.to_text(summary.time)},
        "branch": summary.branch,
        "worktree": summary.path,
        "lease": lease
        and terminal.attributes(lease, "holder host pid acquired renewed expires token"),
    }


def _history_as_json(history: History, advice: str | None) -> dict[str, Any]:
    from gitckpt.durable import progress

    pipeline = history.pipeline
    return {
        **_as_json(history.summary),
        "pipeline": {
            **terminal.attributes(pipeline, "name autonomy deadline"),
            "inputs": dict(pipeline.inputs),
            "phases": list(pipeline.phases),
        },
        "phases": [
            {**terminal.attributes(event, _EVENT), "errors": list(event.errors)}
            for event in history.events
        ],
        "gauges": [
            terminal.attributes(gauge, "name text done total")
            for gauge in progress.gauges(history.newest.state, history.newest.progress)
        ],
        "unwritten": history.unwritten,
        "next": advice,
    }
