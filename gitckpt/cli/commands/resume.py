"""Implement `git ckpt resume`."""

from __future__ import annotations

import contextlib
import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import AmbiguousError, CkptError, NotFoundError, UsageError
from gitckpt.model.runstate import COMPLETE, DRIVEN, interrupted_rewind_target
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.durable.driver.driver import ResumeOptions
    from gitckpt.durable.run.opener import OpenRunOptions
    from gitckpt.durable.run.run import Run
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.store import Store


@options.declare_parameters("""
[ID]  The address of a checkpoint, or a run.  [default: the unfinished run of this worktree]
--no-run  Only open the worktree.
--into DIR  Create the worktree in DIR.
--from PHASE  Repeat this phase and all later ones.
--fork  Continue in a new run; the old run does not change.
--rewind  Return the run to an older checkpoint; first saves the current files.
--accept-changes  Continue although the pipeline or its inputs have changed.
--autonomy MODE  When to pause from now on: checkpoint, batch or fully_autonomous.
--timeout AGE  Time limit of the whole run, from now on.
--trust  Adopt a fetched run and continue it; shows the commands that it will execute.
--take-over  Continue a stalled run; lock out its old driver and end the driver's command.
--force  Continue a review, this once, although HEAD has diverged from its recorded work.
-i, --input NAME=VALUE  Change an input from now on; may be repeated.
""")
def resume_run(
    id_: str | None = None,
    no_run: bool = False,
    into: str | None = None,
    from_: str | None = None,
    fork: bool = False,
    rewind: bool = False,
    accept_changes: bool = False,
    autonomy: str | None = None,
    timeout: str | None = None,
    trust: bool = False,
    take_over: bool = False,
    force: bool = False,
    input_: list[str] | None = None,
) -> int:
    """Continue a run, or open the files of a checkpoint.

    A pipeline continues at its first phase that is not complete. Otherwise prints the path of a
    worktree: cd "$(git ckpt resume --no-run ID)". An existing worktree keeps its unsaved changes.
    """
    directory = os.path.abspath(into) if into else None
    run_options: ResumeOptions = {"directory": directory, "phase": from_, "trust": trust}
    run_options |= {"accept_changes": accept_changes, "take_over": take_over}
    run_options["holder"] = "git ckpt resume"
    if inputs := [*(input_ or []), *(["force=yes"] if force else [])]:
        from gitckpt.cli.driver import parse_inputs

        run_options["inputs"] = parse_inputs(inputs)
    if autonomy is not None:
        from gitckpt.durable.pipeline import definition

        run_options["autonomy"] = definition.parse_autonomy(autonomy)
    if timeout is not None:
        run_options["timeout"] = times.parse_age(timeout)
    with open_store() as store:
        checkpoint = (
            _choose_checkpoint(store, no_run=no_run) if id_ is None else store.read(store.find(id_))
        )
        _require_matching_options(checkpoint, from_, fork=fork, rewind=rewind, no_run=no_run)
        if checkpoint.run is not None and (id_ is None or store.run_named(id_)):
            checkpoint = store.newest(checkpoint.run)  # a killed driver's hook may have added one
        elif not (no_run or fork or rewind):
            _require_newest(store, checkpoint)
        if fork or rewind or (checkpoint.run is not None and not no_run):
            _require_local_or_trusted(store, checkpoint, trust=trust, fork=fork)
        if fork:
            from gitckpt.durable.run.run import Run

            checkpoint = Run.begin_fork(store, checkpoint, trust=trust)
            origin = str(checkpoint.forked_from)[: ids.SHORT]
            terminal.remark(f"new run {checkpoint.run} continues from checkpoint {origin}")
        if no_run or checkpoint.run is None or not _has_pipeline(checkpoint):
            if take_over and checkpoint.run is not None:
                store.take_over(checkpoint.run, holder="git ckpt resume --take-over")
            if rewind or from_ is not None:
                _rewind_or_repeat(store, checkpoint, directory, rewind=rewind, phase=from_)
            else:
                _open_worktree(store, checkpoint, directory, catches_up=not no_run)
            return 0
        from gitckpt.cli import driver
        from gitckpt.durable.driver.pipelines import Pipelines

        run = checkpoint.run
        if rewind:
            run_options["rewind"] = checkpoint
        return driver.drive_pipeline(
            lambda observer: Pipelines(store, observer).resume(run, **run_options)
        )


def _choose_checkpoint(store: Store, *, no_run: bool) -> Checkpoint:
    # An unfinished run of this worktree, preferably of a pipeline; else the newest checkpoint.
    unfinished_runs = [run for run in store.unfinished_runs() if store.is_ours(run.newest)]
    newest = [store.newest(run.run) for run in unfinished_runs]
    candidates = [checkpoint for checkpoint in newest if _has_pipeline(checkpoint)] or newest
    if not candidates:
        newest_of_run = _newest_of_driven_run(store)
        if newest_of_run is None:
            _require_no_run_elsewhere(store)
            newest_of_run = _newest_of_complete_run(store)
        if newest_of_run is None:
            hint = "to put the newest files back here: git ckpt restore latest; to open them in a "
            hint += "worktree of their own: git ckpt resume latest"
            raise NotFoundError("nothing to resume: no run is unfinished", hint=hint)
        return newest_of_run
    if len(candidates) > 1:
        return _ask_for_run(store, candidates)
    (candidate,) = candidates
    line, agents = _describe_resumption(store, candidate)
    if no_run:
        return candidate
    if line:
        terminal.remark(f"resuming {line}")
    if agents and terminal.can_ask_user() and not terminal.user_confirms("Resume it?"):
        hint = f"to resume the run: git ckpt resume {candidate.run}"
        raise CkptError(f"run {candidate.run} was not resumed", hint=hint)
    return candidate


def _has_pipeline(checkpoint: Checkpoint) -> bool:
    return checkpoint.pipeline is not None and checkpoint.pipeline.name is not None


def _describe_resumption(store: Store, newest: Checkpoint) -> tuple[str, list[str]]:
    from gitckpt.durable.driver.pipelines import describe_next_phase

    if not _has_pipeline(newest):
        return f"{newest.run} ({newest.label}): opens its worktree", []
    step, agents = describe_next_phase(store, newest)
    agent_text = f" (calls {', '.join(agents)})" if agents else ""
    return f"{newest.run} at {step}{agent_text}" if step else "", agents


def _ask_for_run(store: Store, candidates: Sequence[Checkpoint]) -> Checkpoint:
    lines = [_describe_resumption(store, newest)[0] or str(newest.run) for newest in candidates]
    hint = "name the run: git ckpt resume RUN"
    if not terminal.can_ask_user():
        raise AmbiguousError(f"{len(candidates)} runs could be meant", lines, hint=hint)
    numbered_lines = [f"  {number}  {line}" for number, line in enumerate(lines, 1)]
    question = f"Which one? [1-{len(candidates)}, or nothing for none] "
    answer = terminal.ask(question, intro=["several runs could be meant:", *numbered_lines]) or ""
    if not answer.isascii() or not answer.isdigit() or not 1 <= int(answer) <= len(candidates):
        raise CkptError("no run was resumed", hint=hint)
    return candidates[int(answer) - 1]


def _newest_of_driven_run(store: Store) -> Checkpoint | None:
    for run in store.runs():
        if (
            run.status in DRIVEN
            and not store.made_elsewhere([run.run])
            and store.is_ours(run.newest)
        ):
            return store.newest(run.run)
    return None


def _require_no_run_elsewhere(store: Store) -> None:
    """Refuse to choose a run if runs of other worktrees are unfinished."""
    from gitckpt.store.runs.summary import RESUMABLE

    candidates = []
    for run in store.runs():
        if run.status not in RESUMABLE:
            continue
        newest = store.newest(run.run)
        if not store.is_ours(newest):
            terminal.remark(f"skipped a fetched run; to adopt: git ckpt resume {run.run} --trust")
        elif _has_pipeline(newest):
            candidates.append(_describe_resumption(store, newest)[0] or run.run)
    if candidates:
        problem = "all unfinished runs were started in other worktrees"
        hint = "name the run: git ckpt resume RUN; or open the newest files: git ckpt resume latest"
        raise AmbiguousError(problem, candidates, hint=hint)


def _newest_of_complete_run(store: Store) -> Checkpoint | None:
    """Return the newest checkpoint of the newest run, if that is complete and ours."""
    newest_run = next(iter(store.runs()), None)
    if newest_run is None or newest_run.status != COMPLETE or not store.is_ours(newest_run.newest):
        return None
    return store.newest(newest_run.run)  # the caller reports that it is complete


def _require_local_or_trusted(store: Store, target: Checkpoint, *, trust: bool, fork: bool) -> None:
    # A fork starts a new run in this repository, so it does not adopt the old run.
    checkpoints = [target]
    if not fork and target.run is not None:
        checkpoints.insert(0, store.newest(target.run))
    if all(map(store.is_ours, checkpoints)):
        return
    from gitckpt.durable.driver.pipelines import Pipelines

    def show_adoption(subject: str, lines: Sequence[str]) -> None:
        terminal.remark(f"adopts {subject}, which was not written in this repository")
        for line in lines:
            terminal.remark(f"  {line}")

    Pipelines(store).require_ours(checkpoints, trust=trust, show=show_adoption, adopt=not fork)


def _require_matching_options(
    checkpoint: Checkpoint, phase: str | None, *, fork: bool, rewind: bool, no_run: bool
) -> None:
    has_phase, has_no_run = phase is not None, checkpoint.run is None
    advice = "give only one of them"
    options.refuse_if(has_phase and no_run, "--no-run and --from exclude each other", advice)
    problem = f"checkpoint {checkpoint.id} belongs to no run"
    hint = f"open the checkpoint: git ckpt resume {checkpoint.id}"
    phase_problem = f"{problem}, and has no phase to repeat"
    options.refuse_if(has_phase and has_no_run and not fork, phase_problem, hint)
    options.refuse_if(fork and rewind, "--fork and --rewind exclude each other", advice)
    options.refuse_if(rewind and has_no_run, problem, hint)


def _require_newest(store: Store, checkpoint: Checkpoint) -> None:
    if checkpoint.run is not None and store.newest(checkpoint.run).id != checkpoint.id:
        short = checkpoint.id[: ids.SHORT]
        problem = f"checkpoint {short} is not the newest of run {checkpoint.run}"
        hint = f"to return the run to it: git ckpt resume {short} --rewind; or --fork starts a new "
        hint += "run; or --no-run only opens the files"
        raise UsageError(problem, hint=hint)


@contextlib.contextmanager
def _open_paused_run(
    store: Store, checkpoint: Checkpoint, holder: str, directory: str | None
) -> Iterator[Run]:
    from gitckpt.durable.run.run import Run

    open_options: OpenRunOptions = {"adapter": "plumbing", "again": True, "holder": holder}
    open_options["directory"] = directory
    with Run.resume(store, str(checkpoint.run), **open_options) as run:
        run.pause()
        yield run


def _open_worktree(
    store: Store, checkpoint: Checkpoint, directory: str | None, *, catches_up: bool
) -> None:
    """Open a checkpoint's worktree, print its path; `catches_up` updates old files."""
    with terminal.show_waiting("opening the worktree"):
        opened = store.resume(checkpoint, directory)
    short_id = checkpoint.id[: ids.SHORT]
    is_updated = opened.behind is not None and catches_up
    if is_updated:
        with _open_paused_run(store, checkpoint, "git ckpt resume", directory) as run:
            pass
        remarks = dict.fromkeys((*opened.remarks, *run.remarks))
        opened = replace(opened, remarks=tuple(remarks), behind=None)
    name = f"the worktree of {short_id} ({checkpoint.label})"
    unchanged_text = "" if is_updated else ", and nothing in it was changed"
    terminal.remark(f"made {name}" if opened.made else f"{name} existed already{unchanged_text}")
    for remark in opened.remarks:
        terminal.warn(remark)
    if opened.behind is not None:
        # A complete run cannot be resumed.
        is_complete = store.history(str(checkpoint.run)).summary.status == COMPLETE
        target = f"{checkpoint.id} --rewind" if is_complete else checkpoint.run
        hint = f"to open its newest files: git ckpt resume {target}"
        terminal.warn(f"the run was continued elsewhere; {hint}")
    target = None if opened.made else _abandoned_rewind_target(store, checkpoint)
    if target is not None:
        finish = f"to finish: git ckpt resume {target} --rewind"
        cancel = f"to cancel: git ckpt resume {checkpoint.id} --rewind"
        terminal.warn(f"a rewind to {target[: ids.SHORT]} was interrupted; {finish}; {cancel}")
    terminal.out_path(opened.path)
    if checkpoint.imported is not None and checkpoint.pipeline is None:
        hint = f"; to see the next step: git ckpt step next --run {checkpoint.run}"
        hint = hint if "loop_state" in checkpoint.state else ""
        terminal.remark(f"no pipeline drives the work of {checkpoint.imported.path}{hint}")
    if checkpoint.state:
        terminal.remark(f"to see the state: git ckpt show {short_id} --state")
    if opened.unfiltered:
        from gitckpt.git.contents.unfiltered import unfiltered_files_error

        raise unfiltered_files_error(opened.unfiltered, f"git ckpt resume {short_id}")


def _abandoned_rewind_target(store: Store, checkpoint: Checkpoint) -> str | None:
    target = interrupted_rewind_target(checkpoint) if checkpoint.run is not None else None
    if target is None:
        return None
    history = store.history(str(checkpoint.run))
    is_abandoned = history.newest.id == checkpoint.id and history.summary.status not in DRIVEN
    return target if is_abandoned else None


def _rewind_or_repeat(
    store: Store, checkpoint: Checkpoint, directory: str | None, *, rewind: bool, phase: str | None
) -> None:
    has_phases = checkpoint.pipeline is not None and bool(checkpoint.pipeline.completed)
    if phase is not None and "loop_state" in checkpoint.state and not has_phases:
        hint = f"repeat a step: git ckpt step reset {shell_quoted(phase)} --run {checkpoint.run}"
        raise UsageError(f"run {checkpoint.run} has steps, and no phase {phase!r}", hint=hint)
    holder = f"git ckpt resume --{'rewind' if rewind else 'from'}"
    with _open_paused_run(store, checkpoint, holder, directory) as run:
        for remark in run.remarks:
            terminal.warn(remark)
        if rewind:
            run.rewind(checkpoint)
        if phase is not None:
            run.redo(phase, record=True)
    if rewind:
        place = f"{checkpoint.id[: ids.SHORT]} ({checkpoint.label})"
        terminal.remark(f"run {run.id} is back at checkpoint {place}")
    if phase is not None:
        phase_names = ", ".join(run.completed) or "none"
        repeated = f"run {run.id} will repeat {phase!r} and later phases"
        terminal.remark(f"{repeated}; complete phases: {phase_names}")
        if checkpoint.attempt is not None:  # otherwise people or scripts repeat the phase
            cause = "when it calls Run.resume(store, RUN)"
            terminal.remark(f"the run's program repeats the phase {cause}")
    terminal.out_path(run.path)
