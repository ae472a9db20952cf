"""Implement `git ckpt save`."""

from __future__ import annotations

import sys

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.store.snapshot.limits import require_ordinary_worktree
from gitckpt.store.store import checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.store import Store


@options.declare_parameters("""
[TEXT]  One line about the checkpoint, at most 1,000 characters.
-m, --message TEXT  The same.
--phase NAME[-STATUS]  The label.  [default: manual, status: complete]
--state FILE  A state to save: JSON, or TOML from *.toml; - reads JSON from standard input.
--agent NAME  The agent that saves; git ckpt expire keeps fewer of its old checkpoints.
--error TEXT  An error to record; may be repeated.
--run RUN  The run that the checkpoint extends.  [default: the run of the worktree]
--track NAME  Extend the open run about NAME; start one if no such run exists.
--if-changed  Record nothing if files, index and HEAD are as in the newest checkpoint.
--yes  Save the files even if the worktree is the home directory or all files.
--no-worktree  Record only the commit and the state, not the files.
""")
def save_checkpoint(
    text: str | None = None,
    message: str | None = None,
    phase: str = "manual",
    state: str | None = None,
    agent: str | None = None,
    error: list[str] | None = None,
    run: str | None = None,
    track: str | None = None,
    if_changed: bool = False,
    yes: bool = False,
    no_worktree: bool = False,
) -> None:
    """Record a checkpoint of files, state and commit; print the checkpoint's id."""
    from gitckpt.model import phase as phases

    label = phases.to_phase_label(phase)
    data = _read_state(state) if state is not None else None
    has_both = text is not None and message is not None
    options.refuse_if(has_both, "TEXT and --message exclude each other", "give only one of them")
    message = text if message is None else message
    line = message.strip() if message is not None else None
    if line and len(line.splitlines()) == 1:  # several lines are refused later
        line = " ".join(line.split())
    agent = " ".join(agent.split()) if agent is not None else None
    options.refuse_if(agent == "", "--agent is empty", "name the agent: git ckpt save --agent NAME")
    options.refuse_run_and_track(run, track)
    if if_changed:
        is_more = state is not None or error or track is not None or no_worktree
        problem = "--if-changed compares the files: it excludes --state, --error, --track"
        hint = "leave out --if-changed: git ckpt save"
        options.refuse_if(is_more, f"{problem} and --no-worktree", hint)
    # With `if_changed`, git is asked first whether there is anything to capture.
    with open_store(to_capture=not no_worktree and not if_changed) as store:
        unchanged = checkpoints_of_store(store).unchanged() if if_changed else None
        if unchanged is not None:
            _print_unchanged(unchanged)
            return
        if not yes and not no_worktree:
            require_ordinary_worktree(checkpoints_of_store(store).repository)
        from gitckpt import hook  # while git scans the files

        record: Any = store.record if no_worktree else store.save
        new_id = ids.make_checkpoint_id()
        arguments = {"id": new_id, **_choose_run(store, run, track)}
        if if_changed:
            arguments["if_changed"] = True
        if track is not None and data is not None:
            data = {"track_id": track, **data}
        with terminal.show_waiting("capturing the files"):
            checkpoint = record(label, data, message=line, agent=agent, errors=error, **arguments)
        if checkpoint.id != new_id:
            _print_unchanged(checkpoint)
            return
        terminal.out(checkpoint.id)
        if data == {}:
            terminal.warn("the saved state is empty")
        terminal.remark(f"saved {label} with {_describe_contents(checkpoint)}")
        # Last, when the output is complete.
        hook.maintain_if_due(
            checkpoints_of_store(store).repository,
            lambda: _keep_removed_commits(checkpoints_of_store(store)),
        )


def _print_unchanged(checkpoint: Checkpoint) -> None:
    terminal.out(checkpoint.id)
    age = times.age_text(max(times.now() - checkpoint.time, times.MICRO))
    terminal.remark(f"nothing has changed since the checkpoint of {age} ago")


def _describe_contents(checkpoint: Checkpoint) -> str:
    """Return a text on the captured files; warn of files that were not captured."""
    worktree = checkpoint.worktree
    contents = "no files"
    if worktree is not None:
        omitted_count = terminal.warn_of_captured_files(checkpoint)
        clean_text = "the files as committed" if omitted_count else "a clean worktree"
        contents = "uncommitted changes" if worktree.dirty else clean_text
        changed = sum(submodule.dirty for submodule in worktree.submodules)
        contents += f" and {terminal.plural(changed, 'changed submodule')}" if changed else ""
        contents += f" ({omitted_count} not captured)" if omitted_count else ""
    commit_text = f"commit {checkpoint.git_sha[:10]}" if checkpoint.git_sha else "an unborn branch"
    return f"{contents} on {commit_text}"


def _keep_removed_commits(store: Checkpoints) -> None:
    # Maintenance does the same later, and records the outcome.
    try:
        store.make_remover().update_keep_refs()
    except CkptError as error:
        store.announce(f"commits below a shallow boundary may not be kept yet: {error.message}")


def _choose_run(store: Store, run: str | None, track: str | None) -> dict[str, Any]:
    if run is not None or track is None:
        return {"run": store.find_run(run) if run is not None else store.run}
    from gitckpt.durable.steps.steps import Steps

    existing_run = store.run or Steps.run_about(store, track)
    return {"run": existing_run} if existing_run is not None else {"start": track}


def _read_state(source: str) -> dict[str, Any]:
    import json

    from gitckpt.model import toml

    is_toml = source.endswith(".toml")
    try:
        if source == "-":
            source, data = "standard input", sys.stdin.buffer.read()
        else:
            with open(source, "rb") as file:
                data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read the state {source}: {error.strerror}") from None
    try:
        value = toml.loads(data.decode("utf-8")) if is_toml else json.loads(data)
        problem = "" if isinstance(value, dict) else f"holds {type(value).__name__}, not a map"
    except (ValueError, RecursionError) as error:
        problem = f"is not {'TOML' if is_toml else 'JSON'}: {error}"
    if problem:
        raise UsageError(f"{source} {problem}", hint='a state is a map, such as {"step": 3}')
    return value
