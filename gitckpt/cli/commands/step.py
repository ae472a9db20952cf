"""Implement `git ckpt step`: record an agent's steps, and print the next."""

from __future__ import annotations

import contextlib

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from gitckpt.durable.steps.graph import Graph
    from gitckpt.durable.steps.journal import Reported, StepEvent
    from gitckpt.durable.steps.machine import StepPosition
    from gitckpt.durable.steps.report import StepReport
    from gitckpt.durable.steps.steps import Steps
    from gitckpt.model.checkpoint import Checkpoint, Progress

_REPORT_ACTIONS = ("start", "progress", "pass", "fail", "block", "skip", "reset")
_SHOW, _NEXT = "show", "next"
_COMMAND = "git ckpt step "
_COLUMNS = ("", "STEP", "STATUS", "AGENT", "PROGRESS", "UPDATED", "NOTES")
_HISTORY_COLUMNS = ("#", "TIME", "STEP", "STATUS", "AGENT", "COMMIT", "PROGRESS", "NOTES")


@options.declare_parameters("""
ACTION  One of start, progress, pass, fail, block, skip, reset, show and next.
[STEP]  The step to report, such as EXECUTE.
--run RUN  The run.  [default: $CKPT_RUN, or the run of the worktree]
--track NAME  The open run about NAME; start one if no such run exists.
--graph NAME  The steps of a new run: [steps.NAME] in gitckpt.toml.
--agent WHO  The agent that does the step.
-m, --notes TEXT  What happened; required by fail and block.
--task ID  The current task, such as 2.3.
--task-status S  The status of the current task: PASSED, FAILED, BLOCKED or SKIPPED.
--worker WHO  The worker that does the task, if there are several.
--tasks-completed N  The number of completed tasks.
--tasks-total N  The number of all tasks.
--current-phase N  The number of the current phase, which is a part of the step.
--total-phases N  The number of all phases of the step.
--output FILE  A file that the step wrote; may be repeated.
--verdict PASS|FAIL  The verdict of a step that evaluates the work.
--commit REV  A commit that the step made.
--set KEY=JSON  Set another key of the step's record; may be repeated.
--files  Capture the files as well.
--id UUID  The id of the new checkpoint; a second call with this id records nothing.
--force  Report although the run is at another step, or blocked.
--plan FILE  With next: the plan with the tasks.
--resume-from ID  With next: the task to continue with.
--history  With show: list every report.
--json  Print one JSON document.
""")
def report_step(
    action: str,
    name: str | None = None,
    run: str | None = None,
    track: str | None = None,
    graph: str | None = None,
    files: bool = False,
    id_: str | None = None,
    plan: str | None = None,
    resume_from: str | None = None,
    history: bool = False,
    as_json: bool = False,
    **report: Any,
) -> None:
    """Report a step of work that an agent or script does without a pipeline.

    Prints the id of the new checkpoint. git ckpt step show prints all steps. git ckpt step next
    prints the next step and, after a tab, the first open task of the plan.
    """
    _require_step(action, name)
    wrong_options: dict[str, object] = {"history": history} if action != _SHOW else {}
    if action not in _REPORT_ACTIONS:
        wrong_options |= {"graph": graph, "files": files, "id": id_, **report}
    wrong_options |= {"plan": plan, "resume-from": resume_from} if action != _NEXT else {}
    for key, value in wrong_options.items():
        option = key.strip("_").replace("_", "-")
        is_given = value is not None and value is not False
        options.refuse_if(is_given, f"{action} takes no --{option}", "see: git ckpt step --help")
    options.refuse_run_and_track(run, track)
    run_option = f"--run {shell_quoted(run)} " if run is not None else ""
    if track is not None:
        run_option = f"--track {shell_quoted(track)} "
    with _adding_run_to_hints(run_option), open_store(to_capture=files) as store:
        from gitckpt.durable.steps.steps import Steps

        steps = Steps(store, run=run, track=track)
        if action == _SHOW:
            _print_steps(steps, history=history, as_json=as_json)
        elif action == _NEXT:
            _print_next_step(steps, run_option, plan, resume_from, as_json=as_json)
        else:
            from gitckpt.durable.steps.report import StepReport

            outputs, set_values = report.pop("output", ()), _parse_values(report.pop("set_", ()))
            report |= {"outputs": tuple(outputs), "values": set_values}
            step_report = StepReport(action=action, step=str(name), **report)
            result = steps.report(step_report, graph=graph, files=files, checkpoint_id=id_)
            _print_report(result, step_report, run_option, as_json=as_json)


def _add_run(run_option: str, text: str) -> str:
    # Commands in hints name the run, because outside of its worktree they are refused otherwise.
    return text if run_option.strip() in text else text.replace(_COMMAND, _COMMAND + run_option)


@contextlib.contextmanager
def _adding_run_to_hints(run_option: str) -> Iterator[None]:
    try:
        yield
    except CkptError as error:
        raise error.but(hint=error.hint and _add_run(run_option, error.hint)) from None


def _require_step(action: str, name: str | None) -> None:
    options.require_one_of("action", action, (*_REPORT_ACTIONS, _SHOW, _NEXT))
    if action in _REPORT_ACTIONS and not (name or "").strip():
        hint = f"name the step: git ckpt step {action} EXECUTE; or see: git ckpt step next"
        raise UsageError("STEP is missing", hint=hint)
    has_step = action not in _REPORT_ACTIONS and name is not None
    options.refuse_if(has_step, f"{action} takes no step", f"run: git ckpt step {action}")


def _print_report(
    result: Reported, step_report: StepReport, run_option: str, *, as_json: bool
) -> None:
    from gitckpt.durable.steps import machine, report

    checkpoint, graph = result.checkpoint, result.graph
    position = machine.find_position(graph, checkpoint.state)
    name = graph.step(step_report.step).name
    record = machine.find_record(graph, checkpoint.state, name)
    status = str(record.get("status") or position.status)
    if as_json:
        blockers = list(position.reasons)
        next_step = {"step": position.step, "status": position.status, "blockers": blockers}
        document = {"checkpoint": checkpoint.id, "run": checkpoint.run}
        _print_json(document | {"step": name, "status": status, "next": next_step})
    else:
        terminal.out(checkpoint.id)
    if result.is_new:
        terminal.remark(f"run {checkpoint.run} has begun")
    _warn_of_missing_files(checkpoint)
    progress = checkpoint.progress
    if status == report.PASSED and progress is not None:
        completed_tasks = progress.tasks_completed or 0
        if completed_tasks < (progress.tasks_total or 0):
            terminal.warn(f"{name} passed with {completed_tasks} of {progress.tasks_total} tasks")
    if position.status == report.BLOCKED:
        error = machine.make_blocked_error(position)
        terminal.warn(f"{error.message}; {_add_run(run_option, str(error.hint))}")
    else:
        hint = _add_run(run_option, _next_step_hint(name, position))
        terminal.remark(f"{name} is {status}{hint}")


# The end of a sentence: what to do after a report.
def _next_step_hint(name: str, position: StepPosition) -> str:
    from gitckpt.durable.steps import report
    from gitckpt.durable.steps.graph import COMPLETE

    if position.step == COMPLETE:
        return "; all steps are complete" if name != COMPLETE else ""
    if position.step == name and position.status == report.IN_PROGRESS:
        return ""
    if position.status == report.IN_PROGRESS:
        return f"; the run is at {position.step}"
    return f"; next: git ckpt step start {shell_quoted(position.step)}"


def _warn_of_missing_files(checkpoint: Checkpoint) -> None:
    from gitckpt.store.snapshot.limits import MORE_TIME

    terminal.warn_of_captured_files(checkpoint)
    if (worktree := checkpoint.worktree) and worktree.degraded:
        cure = f"record them now: git ckpt save; {MORE_TIME}"
        terminal.warn(f"no files were captured: {worktree.degraded}; {cure}")


def _print_next_step(
    steps: Steps, run_option: str, plan: str | None, resume_from: str | None, *, as_json: bool
) -> None:
    from gitckpt.durable.steps.graph import COMPLETE

    next_step = steps.next(plan=plan, resume_from=resume_from)
    if as_json:
        document = terminal.pick_fields(next_step, "step status task title plan")
        _print_json({"run": steps.run, **document, "remarks": list(next_step.remarks)})
    else:
        terminal.out_row(filter(None, (next_step.step, next_step.task)))
    for remark in next_step.remarks:
        terminal.warn(_add_run(run_option, remark))
    if next_step.step != COMPLETE:
        title = f", at {next_step.title}" if next_step.title else ""
        terminal.remark(f"{next_step.step} is {next_step.status}{title}")


def _print_steps(steps: Steps, *, history: bool, as_json: bool) -> None:
    if as_json:
        _print_json(steps.show(with_history=history))
        return
    if history:
        _print_history(steps.history())
        return
    from gitckpt.durable.steps import machine
    from gitckpt.durable.steps import steps as view
    from gitckpt.durable.steps.graph import COMPLETE

    newest, graph = steps.newest(), steps.graph()
    position = machine.find_position(graph, newest.state)
    loop_state = machine.get_loop_table(newest.state)
    max_fix_cycles = loop_state.get("max_fix_cycles", graph.max_fix_cycles)
    status = "" if position.step == COMPLETE else f" ({position.status})"
    fields = [
        ("run", newest.run),
        ("steps", graph.name),
        ("at", position.step + status),
        ("fix cycles", f"{loop_state.get('fix_cycle_count', 0)} of {max_fix_cycles}"),
        ("iterations", f"{loop_state.get('iterations', 0)} of {graph.max_iterations}"),
    ]
    for label, value in fields:
        terminal.out(f"{label:10} {value}")
    for blocker in machine.find_active_blockers(newest.state):
        text = f"{blocker.get('blocked_step')}: {blocker.get('description')}"
        terminal.out(f"{'blocker':10} {text}")
    terminal.out()
    names = view.visible_steps(graph, newest.state)
    terminal.out_table(_COLUMNS, [_step_row(graph, position, newest.state, name) for name in names])


def _step_row(
    graph: Graph, position: StepPosition, state: Mapping[str, Any], name: str
) -> list[str]:
    from gitckpt.durable.steps import machine
    from gitckpt.durable.steps import steps as view
    from gitckpt.durable.steps.report import read_progress

    record = machine.find_record(graph, state, name)
    mark, status = ">" if name == position.step else " ", view.get_status(position, name, record)
    keys = ("agent", "last_updated", "notes")
    agent, last_updated, notes = (str(record.get(key) or "") for key in keys)
    progress = _progress_text(read_progress(record))
    return [mark, name, status, agent, progress, _drop_second_fraction(last_updated), notes]


def _drop_second_fraction(timestamp: str) -> str:
    has_fraction = len(timestamp) == 27 and timestamp.endswith("Z")
    return f"{timestamp[:19]}Z" if has_fraction else timestamp


def _progress_text(progress: Progress | None) -> str:
    if progress is None:
        return ""
    phase = _count_text("phase", progress.current_phase, progress.total_phases)
    tasks = _count_text("tasks", progress.tasks_completed, progress.tasks_total)
    return ", ".join(filter(None, (phase, tasks, progress.current_task)))


def _count_text(noun: str, number: int | None, total: int | None) -> str:
    if number is None and total is None:
        return ""
    return f"{noun} {number or 0}" + (f"/{total}" if total is not None else "")


def _print_history(events: Sequence[StepEvent]) -> None:
    rows: list[list[str | None]] = []
    for event in events:
        time, commit_id, progress = event.timestamp, event.git_sha, _progress_text(event.progress)
        if terminal.is_terminal():
            time = _drop_second_fraction(time)
            last_cells = [event.agent, commit_id[:10], progress, event.message]
        else:
            notes = event.errors[0] if event.errors else event.message
            last_cells = [event.checkpoint, commit_id, event.agent, progress, notes]
        rows.append([str(event.sequence), time, event.step, event.status, *last_cells])
    terminal.out_rows(_HISTORY_COLUMNS, rows)


def _print_json(document: dict[str, Any]) -> None:
    from gitckpt.model import jsonable

    terminal.out_json(jsonable.to_json(document))


def _parse_values(words: Sequence[str]) -> dict[str, Any]:
    import json

    values = {}
    for argument in words:
        key, separator, value = argument.partition("=")
        try:
            if not separator or not key:
                raise ValueError("there is no key and no =")
            values[key] = json.loads(value)
        except (ValueError, RecursionError) as error:
            hint = "write --set fixed=3, or a text: --set 'goal=\"login\"'"
            raise UsageError(f"{argument!r} is not KEY=JSON: {error}", hint=hint) from None
    return values
