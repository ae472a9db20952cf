"""Implement `git ckpt runs`, `status`, `start`, `finish` and `cancel`."""

from __future__ import annotations

import contextlib
import time

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, runstate, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError, UsageError
from gitckpt.model.times import duration_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from gitckpt.cli.terminal import Cell, EscapedText
    from gitckpt.durable.progress import Gauge
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.store import Store

    Line: TypeAlias = str | EscapedText

_HOLDER_LABELS = _DRIVER, _LEFT_BY = "driver", "left by"
_LAST_LINES = 10  # of the output of a phase that failed
_BAR_WIDTH = 20
_MAX_INPUT = 100  # characters of an input that are shown
_PHASE_KEYS = "phase status attempts started ended seconds saves errors exit_code checkpoint"
_TO_START = "start one: git ckpt run PIPELINE, or git ckpt start NAME"
_COLUMNS = ("RUN", "STATUS", "PHASE", "AGE", "BRANCH", "WORKTREE")
_SPARE = ("WORKTREE", "BRANCH", "PHASE")


@options.declare_parameters("""
--status S  Only runs with this status: running, stalled, crashed, failed, blocked, paused,
  complete or open.
-n, --limit N  Show at most N runs.
--date FORMAT  Show dates in local time: relative, local, iso, short, unix or format:%H:%M.
--json  Print one JSON document.
""")
def list_runs(
    status: str | None = None,
    limit: int | None = None,
    date: str | None = None,
    as_json: bool = False,
) -> None:
    """List runs, the one with the newest checkpoint first.

    At a terminal, @ marks the run of this worktree, and names are short: any unique part of a name
    names a run. In a pipe, each line has tab-separated columns.
    """
    options.require_one_of("status", status, runstate.STATUSES)
    date_format = times.parse_date_format(date) if date is not None else None
    with open_store() as store:
        with terminal.show_waiting("reading runs"):
            all_summaries = store.runs()
        names = ids.short_run_names(run.run for run in all_summaries)
        summaries = [run for run in all_summaries if status in (None, run.status)][:limit]
        current_time, own_run = times.now(), store.run
    if as_json:
        terminal.out_json({"runs": [_summary_as_json(run) for run in summaries]})
        return
    if not summaries:
        terminal.remark(f"no run is {status}" if status else f"no runs yet; to {_TO_START}")
    with terminal.page():
        is_table = terminal.is_terminal()
        rows: list[Sequence[Cell]] = []
        for run in summaries:
            age = terminal.age_or_timestamp(run.time, current_time, date_format=date_format)
            path = terminal.shorter_path(run.path) if is_table else run.path
            name = names[run.run] if is_table else run.run
            mark = [terminal.style("@" if run.run == own_run else "", "bold", "green")]
            status_cell, label = terminal.status_text(run.status), terminal.label_text(run.label)
            row = (name, status_cell, label, age, run.branch, path)
            rows.append((*mark, *row) if is_table else row)
        headings = ("", *_COLUMNS[:3], "AGE" if date is None else "DATE", *_COLUMNS[4:])
        terminal.out_rows(headings, rows, spare=_SPARE)


@options.declare_parameters("""
[RUN]  The run.  [default: the run of this worktree, or the newest started here]
-v, --verbose  Show the inputs of the run, too; in a pipe, they are always shown.
--json  Print one JSON document.
-w, --watch  Refresh the screen until the run is no longer driven; needs a terminal.
""")
def show_run_status(
    run: str | None = None, verbose: bool = False, as_json: bool = False, watch: bool = False
) -> None:
    """Show a run's phases, the process that drives it, and the next command.

    At a terminal, a phase that failed comes first, with the last lines of its output.
    """
    is_piped = as_json or not terminal.is_terminal()
    hint = "leave out --watch: git ckpt status --json"
    options.refuse_if(watch and is_piped, "--watch needs a terminal", hint)
    with open_store() as store:
        run_id = _find_run_or_default(store, run)
        if watch:
            _watch_run(store, run_id, verbose=verbose)
        history = store.history(run_id)
        advice = _advised_command(store, history)
        if as_json:
            terminal.out_json(_history_as_json(history, advice))
            return
        with terminal.page():
            if terminal.is_terminal():
                lines = _screen_lines(store, history, advice, verbose=verbose)
            else:
                lines = _status_lines(history, advice)
            for line in lines:
                terminal.out(line)
    for unwritten in history.unwritten:
        terminal.warn(unwritten)


def _watch_run(store: Store, run_id: str, *, verbose: bool) -> None:
    with terminal.live_screen() as show_lines:
        while True:
            history = store.history(run_id)
            if history.summary.status not in runstate.DRIVEN:
                return
            advice = _advised_command(store, history)
            show_lines(_screen_lines(store, history, advice, verbose=verbose))
            time.sleep(1.0)


def _status_lines(history: History, advice: str | None) -> list[Line]:
    lines: list[Line] = [f"{label:8} {value}" for label, value in _summary_fields(history)]
    if history.events:
        lines += ["", *_phase_lines(history)]
    return [*lines, "", f"next     {advice}"] if advice else lines


def _screen_lines(
    store: Store, history: History, advice: str | None, *, verbose: bool
) -> list[Line]:
    hidden = ("cost",) if verbose else ("cost", "input")  # the cost is in `used`
    fields = [field for field in _summary_fields(history) if field[0] not in hidden]
    lines = [_field_line(history, label, value) for label, value in fields]
    next_lines = [terminal.joined(_label("next"), terminal.style(advice, "bold"))] if advice else []
    failure_lines = _failure_lines(store, history)
    if failure_lines:  # first what failed, and what to do
        next_lines, lines = [], [*failure_lines, *next_lines, "", *lines]
    if used := _usage_text(history):
        lines.append(terminal.joined(_label("used"), used))
    if history.events:
        lines += ["", *_phase_lines_in_color(history)]
    if history.last_line:
        lines += ["", terminal.joined(_label("output"), terminal.style(history.last_line, "dim"))]
    return [*lines, "", *next_lines] if next_lines else lines


def _label(text: str) -> EscapedText:
    return terminal.joined(terminal.style(text, "bold"), " " * (9 - len(text)))


def _field_line(history: History, label: str, value: str) -> Line:
    status = history.summary.status
    if label == "status":
        rest = value.removeprefix(status)
        if status in runstate.DRIVEN:
            started = max(times.now() - history.summary.started, 0) / times.MICRO
            rest = f" for {duration_text(started)}"
        return terminal.joined(_label(label), terminal.status_text(status), rest)
    lease = history.summary.lease
    if lease is not None and label in _HOLDER_LABELS:
        age = max(times.now() - times.parse_timestamp(lease.renewed), times.MICRO)
        value = lease.sentence(renewed=f"{times.age_text(age)} ago")
    return terminal.joined(_label(label), value)


def _failure_lines(store: Store, history: History) -> list[Line]:
    statuses = ("failed", "blocked")
    event = next((event for event in history.events if event.is_current), None)
    if event is None or event.status not in statuses or history.summary.status in runstate.DRIVEN:
        return []
    words = f"{event.phase} {event.status}"
    if event.seconds is not None:
        words += f" after {duration_text(event.seconds)}"
    lines: list[Line] = [terminal.style(words, "bold", "red")]
    lines += [f"  {line}" for error in event.errors for line in error.splitlines()]
    attempt = None
    if event.checkpoint is not None:
        with contextlib.suppress(CkptError):  # damaged, which `verify` reports
            attempt = store.read(event.checkpoint).attempt
    output = (attempt.output or "").rstrip() if attempt is not None else ""
    return [*lines, *(f"  | {line}" for line in output.splitlines()[-_LAST_LINES:])]


def _usage_text(history: History) -> str:
    import json

    from gitckpt.durable import progress

    results = []
    for event in history.events:
        with contextlib.suppress(ValueError):
            results.append(json.loads(event.result or "null"))
    cost, tokens = progress.usage(history.newest.state, results)
    texts = [f"{cost:.2f} USD"] if cost else []
    return ", ".join([*texts, *([f"{tokens:,} tokens"] if tokens else [])])


def _advised_command(store: Store, history: History) -> str | None:
    advice = _next_command(history)
    try:
        is_ours = store.is_ours(history.newest)
    except InvalidCheckpoint:  # the head of the run is damaged
        return "git ckpt verify --repair"
    is_trusted = is_ours or advice is None or not advice.startswith("git ckpt resume ")
    return advice if is_trusted else f"{advice} --trust"


def _next_command(history: History) -> str | None:
    summary, run_id = history.summary, history.summary.run
    if summary.status == runstate.COMPLETE:
        return None
    if summary.is_session:
        return f"git ckpt turns {run_id}"
    if summary.status == runstate.RUNNING:
        return f"git ckpt cancel {run_id}"
    if summary.status == runstate.STALLED:
        return f"git ckpt resume {run_id} --take-over"
    target = runstate.interrupted_rewind_target(history.newest)
    if target is not None:
        return f"git ckpt resume {target} --rewind"
    has_pipeline = history.pipeline.name is not None
    if not has_pipeline and isinstance(history.newest.state.get("loop_state"), dict):
        return _next_step_command(history)
    if has_pipeline and summary.status == runstate.BLOCKED:
        phase = next((event.phase for event in history.events if event.is_current), "")
        return f"git ckpt resume {run_id} --from {shell_quoted(phase)}"
    # No driver is alive: the statuses of driven runs were handled above.
    is_open = not has_pipeline and summary.status == runstate.OPEN
    return f"git ckpt {'finish' if is_open else 'resume'} {run_id}"


def _next_step_command(history: History) -> str:
    run_id, loop_state = history.summary.run, history.newest.state["loop_state"]
    if history.summary.status == runstate.BLOCKED:
        step = shell_quoted(str(loop_state.get("current_step")))
        return f"git ckpt step reset {step} --run {run_id} --notes TEXT"
    if loop_state.get("current_step") == "COMPLETE":
        return f"git ckpt finish {run_id}"
    return f"git ckpt step next --run {run_id}"


def _summary_fields(history: History) -> list[tuple[str, str]]:
    from gitckpt.durable import progress

    summary, pipeline = history.summary, history.pipeline
    age = f", {times.age_text(max(times.now() - summary.time, times.MICRO))} ago"
    is_driven = summary.status in runstate.DRIVEN
    completed_text = f"{len(pipeline.completed)} of {len(pipeline.phases)} phases complete"
    inputs = [f"{name} = {_first_line(value)}" for name, value in pipeline.inputs.items() if value]
    gauges = progress.gauges(history.newest.state, history.newest.progress)
    autonomy = f", {pipeline.autonomy}" if pipeline.autonomy else ""
    branch = f" on {summary.branch}" if summary.branch else ""
    fields = [
        ("run", summary.run),
        ("status", summary.status + ("" if summary.status == runstate.RUNNING else age)),
        ("pipeline", f"{pipeline.name}{autonomy}" if pipeline.name is not None else ""),
        *(("input", line) for line in inputs),
        ("progress", completed_text if pipeline.phases else ""),
        *((gauge.name, f"{_progress_bar(gauge)}{gauge.text}") for gauge in gauges),
        ("deadline", pipeline.deadline or ""),
        ("worktree", summary.path + branch if summary.path else ""),
        (_DRIVER if is_driven else _LEFT_BY, summary.lease.sentence() if summary.lease else ""),
    ]
    return [(label, value) for label, value in fields if value]


def _first_line(value: str) -> str:
    # A task may be a whole page.
    line = value.strip().partition("\n")[0]
    return value if value == line and len(line) <= _MAX_INPUT else f"{line[:_MAX_INPUT]}…"


def _progress_bar(gauge: Gauge) -> str:
    if gauge.share is None or not terminal.is_terminal():
        return ""
    filled = round(gauge.share * _BAR_WIDTH)
    return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] "


def _phase_lines(history: History) -> list[str]:
    lines = []
    width = max(len(terminal.escape_text(event.phase)) for event in history.events)
    for event in history.events:
        current_mark = ">" if event.is_current else " "
        seconds_text = f"{event.seconds:.1f}s" if event.seconds is not None else ""
        attempts_text = f"{event.attempts} attempts" if event.attempts > 1 else ""
        saves_text = terminal.plural(event.saves, "save") if event.saves else ""
        details = "  ".join(filter(None, [seconds_text, attempts_text, saves_text]))
        phase_text = f"{terminal.escape_text(event.phase):{width}}"
        lines.append(f"{current_mark} {phase_text}  {event.status:8}  {details}".rstrip())
        if event.status not in ("complete", "skipped"):
            lines += [f"      {error}" for error in event.errors]
    return lines


def _phase_lines_in_color(history: History) -> list[Line]:
    lines: list[Line] = []
    width = max(len(terminal.escape_text(event.phase)) for event in history.events)
    for event in history.events:
        mark = terminal.style(">", "bold", "green") if event.is_current else " "
        seconds = event.seconds
        is_running = event.status == "started" and history.summary.status in runstate.DRIVEN
        if is_running and event.started is not None:
            seconds = max(times.now() - times.parse_timestamp(event.started), 0) / times.MICRO
        details = [
            duration_text(seconds) if seconds is not None else "",
            f"{event.attempts} attempts" if event.attempts > 1 else "",
            terminal.plural(event.saves, "save") if event.saves else "",
        ]
        rest = "  ".join(filter(None, details))
        status = f"{event.status:8}" if rest else event.status
        phase = f" {terminal.escape_text(event.phase):{width}}  "
        status_cell = terminal.status_text(status, event.status)
        lines.append(terminal.joined(mark, phase, status_cell, f"  {rest}" if rest else ""))
    return lines


def _find_run_or_default(store: Store, text: str | None) -> str:
    # By default the run of this worktree, else the newest run started in it, else the newest run.
    if text is not None:
        return store.find_run(text)
    if store.run is not None:
        return store.run
    summaries = store.runs()
    if not summaries:
        raise NotFoundError("there are no runs yet", hint=_TO_START)
    local_runs = [summary.run for summary in summaries if store.is_ours(summary.newest)]
    if not local_runs:
        problem = "every run was fetched from another repository"
        raise NotFoundError(problem, hint="to list runs: git ckpt runs; then name one")
    return next((name for name in local_runs if not store.made_elsewhere([name])), local_runs[0])


def _summary_as_json(summary: RunInfo) -> dict[str, Any]:
    lease, lease_keys = summary.lease, "holder host pid acquired renewed expires token"
    return {
        **terminal.pick_fields(summary, "run status label"),
        "started": times.to_text(summary.started),
        "newest": {"id": summary.newest, "timestamp": times.to_text(summary.time)},
        "branch": summary.branch,
        "worktree": summary.path,
        "lease": lease and terminal.pick_fields(lease, lease_keys),
    }


def _history_as_json(history: History, advice: str | None) -> dict[str, Any]:
    from gitckpt.durable import progress

    gauges = progress.gauges(history.newest.state, history.newest.progress)
    pipeline_names = "name autonomy deadline inputs phases"
    return {
        **_summary_as_json(history.summary),
        "pipeline": terminal.pick_fields(history.pipeline, pipeline_names),
        "phases": [terminal.pick_fields(event, _PHASE_KEYS) for event in history.events],
        "gauges": [terminal.pick_fields(gauge, "name text done total") for gauge in gauges],
        "unwritten": history.unwritten,
        "next": advice,
    }


@options.declare_parameters("""
[NAME]  The subject of the run; becomes part of its id.
--base REV  The commit that the worktree starts from.  [default: HEAD]
--key TEXT  Your own name for the run; a run with this name is opened.
""")
def start_run(name: str = "work", base: str = "HEAD", key: str | None = None) -> None:
    """Start a run in its own worktree, and print the path of the worktree.

    Every commit or git ckpt save in the worktree extends the run: cd "$(git ckpt start add-login)".
    When the work is done: git ckpt finish.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        newest, has_begun = Run.begin(store, name, key=key, base=base)
        with terminal.show_waiting("opening the worktree"):
            opened = store.resume(newest)
        for remark in opened.remarks:
            terminal.warn(remark)
        terminal.out_path(opened.path)
        terminal.remark(f"run {newest.run} {'has begun' if has_begun else 'existed already'}")


@options.declare_parameters("""
[RUN]  The run.  [default: the run of this worktree]
--force  Record a failed or blocked run as complete; such a run can expire.
""")
def finish_run(run: str | None = None, force: bool = False) -> None:
    """Record a run as complete, with the files of its worktree.

    Prints the id of the new checkpoint.
    """
    from gitckpt.durable.run.run import Run

    with open_store() as store:
        run_id = _require_run(store, run)
        summary = store.history(run_id).summary
        has_failed = summary.status in (runstate.FAILED, runstate.BLOCKED)
        hint = f"see git ckpt status {run_id}; to finish anyway: git ckpt finish {run_id} --force"
        problem = f"run {run_id} is {summary.status}: {summary.label}"
        options.refuse_if(has_failed and not force, problem, hint)
        resumed_run = Run.resume(store, run_id, adapter="plumbing", holder="git ckpt finish")
        try:
            with resumed_run:
                pass
        except CkptError as error:
            if resumed_run.unwritten:
                hint = f"solve the problem, then: git ckpt finish {run_id}"
                raise error.but(hint=hint) from None
            raise
        terminal.out(resumed_run.newest.id)
        terminal.remark(f"run {resumed_run.id} is complete; its worktree: {resumed_run.path}")


@options.declare_parameters("""
RUN  The run to stop.
""")
def cancel_run(run: str) -> None:
    """Stop a running run, so that git ckpt resume can continue it later.

    Ends the current phase, and records the phase as failed.
    """
    with open_store() as store:
        run_id = _require_run(store, run)
        if not store.cancel(run_id):
            hint = f"see the run's status: git ckpt status {run_id}"
            raise CkptError(f"run {run_id} is not running", hint=hint)
        terminal.remark(f"run {run_id} has stopped; to go on: git ckpt resume {run_id}")


def _require_run(store: Store, text: str | None) -> str:
    run = store.find_run(text) if text is not None else store.run
    if run is None:
        hint = "name a run; to list runs: git ckpt runs"
        raise UsageError("this worktree belongs to no run", hint=hint)
    return run
