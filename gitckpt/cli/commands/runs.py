"""`git ckpt runs`, `status`, `start`, `finish` and `cancel`."""

from __future__ import annotations

import time

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import runstate, times
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.durable.progress import Gauge
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.store import Store


_BAR_WIDTH = 20
_MAX_INPUT = 100  # characters of an input that are shown
_EVENT = "phase status attempts started ended seconds saves errors exit_code checkpoint"
_TO_START = "start one: git ckpt run PIPELINE, or git ckpt start NAME"
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
    options.require_one_of("status", status, runstate.STATUSES)
    with open_store() as store:
        summaries = [run for run in store.runs() if status in (None, run.status)][:limit]
        current_time = times.now()
    if as_json:
        terminal.out_json({"runs": [_as_json(run) for run in summaries]})
        return
    if not summaries:
        terminal.remark("no run has this status" if status else f"no runs yet; to {_TO_START}")
    rows = []
    for run in summaries:
        path = terminal.shorter_path(run.path) if terminal.is_terminal() else run.path
        age = terminal.age(run.time, current_time)
        rows.append((run.run, run.status, run.label, age, run.branch, path))
    terminal.out_rows(_COLUMNS, rows)


@options.usage("""
[RUN]  The run.  [default: the run of this worktree, or the newest started here]
--json  Print one JSON document.
-w, --watch  Refresh the output until the run is no longer driven.
""")
def status(run: str | None = None, as_json: bool = False, watch: bool = False) -> None:
    """Show the phases of a run, its driver, and the next command."""
    is_piped = as_json or not terminal.is_terminal()
    hint = "leave out --watch: git ckpt status --json"
    options.refuse(watch and is_piped, "--watch needs a terminal", hint)
    with open_store() as store:
        name = _find_run(store, run)
        height = 0
        history = store.history(name)
        advice = _advice(store, history)
        while watch:
            height = terminal.replace_lines(height, _status_lines(history, advice))
            if history.summary.status not in runstate.DRIVEN:
                return
            time.sleep(1.0)
            history = store.history(name)
            advice = _advice(store, history)
    if as_json:
        terminal.out_json(_history_as_json(history, advice))
        return
    for line in _status_lines(history, advice):
        terminal.out(line)
    for line in history.unwritten:
        terminal.warn(line)


def _status_lines(history: History, advice: str | None) -> list[str]:
    lines = [f"{label:8} {value}" for label, value in _summary_fields(history)]
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
    if summary.status == runstate.COMPLETE:
        return None
    if summary.status == runstate.RUNNING:
        return f"git ckpt cancel {name}"
    if summary.status == runstate.STALLED:
        return f"git ckpt resume {name} --take-over"
    target = runstate.rewind_target(history.newest)
    if target is not None:
        return f"git ckpt resume {target} --rewind"
    has_pipeline = history.pipeline.name is not None
    if not has_pipeline and isinstance(history.newest.state.get("loop_state"), dict):
        return _next_step_command(history)
    if has_pipeline and summary.status == runstate.BLOCKED:
        phase = next((event.phase for event in history.events if event.is_current), "")
        return f"git ckpt resume {name} --from {shell_word(phase)}"
    # No driver is alive: the statuses of driven runs were handled above.
    is_open = not has_pipeline and summary.status == runstate.OPEN
    return f"git ckpt {'finish' if is_open else 'resume'} {name}"


def _next_step_command(history: History) -> str:
    name, loop = history.summary.run, history.newest.state["loop_state"]
    if history.summary.status == runstate.BLOCKED:
        step = shell_word(str(loop.get("current_step")))
        return f"git ckpt step reset {step} --run {name} --notes TEXT"
    if loop.get("current_step") == "COMPLETE":
        return f"git ckpt finish {name}"
    return f"git ckpt step next --run {name}"


def _summary_fields(history: History) -> list[tuple[str, str]]:
    from gitckpt.durable import progress

    summary, pipeline = history.summary, history.pipeline
    age = f", {times.age_text(max(times.now() - summary.time, times.MICRO))} ago"
    is_driven = summary.status in runstate.DRIVEN
    completed = f"{len(pipeline.completed)} of {len(pipeline.phases)} phases complete"
    inputs = [f"{name} = {_first_line(value)}" for name, value in pipeline.inputs.items() if value]
    gauges = progress.gauges(history.newest.state, history.newest.progress)
    autonomy = f", {pipeline.autonomy}" if pipeline.autonomy else ""
    branch = f" on {summary.branch}" if summary.branch else ""
    facts = [
        ("run", summary.run),
        ("status", summary.status + ("" if summary.status == runstate.RUNNING else age)),
        ("pipeline", f"{pipeline.name}{autonomy}" if pipeline.name is not None else ""),
        *(("input", line) for line in inputs),
        ("progress", completed if pipeline.phases else ""),
        *((gauge.name, f"{_progress_bar(gauge)}{gauge.text}") for gauge in gauges),
        ("deadline", pipeline.deadline or ""),
        ("worktree", summary.path + branch if summary.path else ""),
        ("driver" if is_driven else "left by", summary.lease.sentence() if summary.lease else ""),
    ]
    return [(label, value) for label, value in facts if value]


def _first_line(value: str) -> str:
    # A task may be a whole page.
    line = value.strip().partition("\n")[0]
    return value if value == line and len(line) <= _MAX_INPUT else f"{line[:_MAX_INPUT]}…"


def _progress_bar(gauge: Gauge) -> str:
    if gauge.share is None or not terminal.is_terminal():
        return ""
    full = round(gauge.share * _BAR_WIDTH)
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] "


def _event_lines(history: History) -> list[str]:
    lines = []
    width = max(len(terminal.harmless(event.phase)) for event in history.events)
    for event in history.events:
        mark = ">" if event.is_current else " "
        seconds = f"{event.seconds:.1f}s" if event.seconds is not None else ""
        attempts = f"{event.attempts} attempts" if event.attempts > 1 else ""
        saves = terminal.count(event.saves, "save") if event.saves else ""
        notes = "  ".join(filter(None, [seconds, attempts, saves]))
        phase = f"{terminal.harmless(event.phase):{width}}"
        lines.append(f"{mark} {phase}  {event.status:8}  {notes}".rstrip())
        if event.status not in ("complete", "skipped"):
            lines += [f"      {error}" for error in event.errors]
    return lines


def _find_run(store: Store, text: str | None) -> str:
    # By default the run of this worktree, else the newest run started in it, else the newest run.
    if text is not None:
        return store.find_run(text)
    if store.run is not None:
        return store.run
    runs = store.runs()
    if not runs:
        raise NotFoundError("there are no runs yet", hint=_TO_START)
    local_runs = [summary.run for summary in runs if store.is_ours(summary.newest)]
    if not local_runs:
        problem = "every run was fetched from another repository"
        raise NotFoundError(problem, hint="name a run: git ckpt runs")
    return next((name for name in local_runs if not store.made_elsewhere([name])), local_runs[0])


def _as_json(summary: RunInfo) -> dict[str, Any]:
    lease, keys = summary.lease, "holder host pid acquired renewed expires token"
    return {
        **terminal.attributes(summary, "run status label"),
        "started": times.to_text(summary.started),
        "newest": {"id": summary.newest, "timestamp": times.to_text(summary.time)},
        "branch": summary.branch,
        "worktree": summary.path,
        "lease": lease and terminal.attributes(lease, keys),
    }


def _history_as_json(history: History, advice: str | None) -> dict[str, Any]:
    from gitckpt.durable import progress

    gauges = progress.gauges(history.newest.state, history.newest.progress)
    names = "name autonomy deadline inputs phases"
    return {
        **_as_json(history.summary),
        "pipeline": terminal.attributes(history.pipeline, names),
        "phases": [terminal.attributes(event, _EVENT) for event in history.events],
        "gauges": [terminal.attributes(gauge, "name text done total") for gauge in gauges],
        "unwritten": history.unwritten,
        "next": advice,
    }


@options.usage("""
[NAME]  The subject of the run; becomes part of its id.
--base REV  The commit that the worktree starts from.  [default: HEAD]
--key TEXT  Your own name for the run; a run with this name is opened.
""")
def start(name: str = "work", base: str = "HEAD", key: str | None = None) -> None:
    """Open a run with its own worktree, and print the path.

    Every commit and save in the worktree extends the run: cd "$(git ckpt start add-login)". When
    the work is done: git ckpt finish.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        newest, has_begun = Run.begin(store, name, key=key, base=base)
        opened = store.resume(newest)
        for remark in opened.remarks:
            terminal.warn(remark)
        terminal.out_path(opened.path)
        terminal.remark(f"run {newest.run} {'has begun' if has_begun else 'existed already'}")


@options.usage("""
[RUN]  The run.  [default: the run of this worktree]
--force  Record a failed or blocked run as complete; such a run can expire.
""")
def finish(run: str | None = None, force: bool = False) -> None:
    """Record a run as complete, with the files of its worktree.

    Prints the id of the checkpoint.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        name = _require_run(store, run)
        summary = store.history(name).summary
        is_undone = summary.status in (runstate.FAILED, runstate.BLOCKED)
        hint = f"see why: git ckpt status {name}; to finish the run anyway: --force"
        problem = f"run {name} is {summary.status}: {summary.label}"
        options.refuse(is_undone and not force, problem, hint)
        finishing = Run.resume(store, name, adapter="plumbing", holder="git ckpt finish")
        try:
            with finishing:
                pass
        except CkptError as error:
            if finishing.unwritten:
                hint = f"remove the obstacle, then: git ckpt finish {name}"
                raise error.but(hint=hint) from None
            raise
        terminal.out(finishing.newest.id)
        terminal.remark(f"run {finishing.id} is complete; its worktree: {finishing.path}")


@options.usage("""
RUN  The run to stop.
""")
def cancel(run: str) -> None:
    """Stop a running run, so that git ckpt resume can continue it later.

    Ends the current phase, and records the phase as failed.
    """
    with open_store() as store:
        name = _require_run(store, run)
        if not store.cancel(name):
            hint = f"see the run's status: git ckpt status {name}"
            raise CkptError(f"run {name} is not running", hint=hint)
        terminal.remark(f"run {name} has stopped; to go on: git ckpt resume {name}")


def _require_run(store: Store, text: str | None) -> str:
    run = store.find_run(text) if text is not None else store.run
    if run is None:
        hint = "name a run; to list runs: git ckpt runs"
        raise UsageError("this worktree belongs to no run", hint=hint)
    return run
