"""`git ckpt save`."""

from __future__ import annotations

import sys

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated, Any

    import typer

    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.store import Store


def save(
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="One line about it, of at most 1,000 characters.",
        ),
    ] = None,
    phase: Annotated[
        str,
        typer.Option(
            "--phase", metavar="NAME[-STATUS]", help="Its label; complete unless a status is given."
        ),
    ] = "manual",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="A state to keep with it: JSON, or TOML in a file named *.toml; - reads JSON from standard input.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="Who saves, if no person does: such checkpoints are thinned as they age.",
        ),
    ] = None,
    errors: Annotated[
        list[str] | None,
        typer.Option("--error", metavar="TEXT", help="What went wrong; may be given again."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="The run that it extends; by default that of the worktree."
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            "--track",
            metavar="NAME",
            help="The open run about NAME, which is started where there is none.",
        ),
    ] = None,
    no_worktree: Annotated[
        bool, typer.Option("--no-worktree", help="Leave the files out: the commit stands for them.")
    ] = False,
) -> None:
    """Record a checkpoint now: files, state and commit. Prints its id."""
    from gitckpt.model import phase as phases

    label = phases.label(phase)
    data = _state(state) if state is not None else None
    line = message.strip() if message is not None else None
    if line and len(line.splitlines()) == 1:  # several lines are refused later
        line = " ".join(line.split())
    who = " ".join(agent.split()) if agent is not None else None
    if who == "":
        raise UsageError(
            "--agent is given without a name", hint="name who saves: git ckpt save --agent NAME"
        )
    if run is not None and track is not None:
        raise UsageError("--run and --track both say which run", hint="give one of them")
    with open_store(to_capture=not no_worktree) as store:
        from gitckpt import hook  # while git scans the files
        from gitckpt.store.store import inside

        record = store.record if no_worktree else store.save
        place = {"run": store.run} if run is None and track is None else _place(store, run, track)
        if track is not None and data is not None:
            data = {"track_id": track, **data}
        with terminal.Waiting("capturing the files"):
            checkpoint = record(label, data, message=line, agent=who, errors=errors, **place)
        files = checkpoint.worktree
        terminal.out(checkpoint.id)
        if data == {}:
            terminal.warn("the state is empty")
        omitted = 0
        if files is not None and (files.omitted or files.converted or files.suspects):
            omitted = terminal.warn_captured(checkpoint)
        clean = "the files as committed" if omitted else "a clean worktree"
        what = "no files" if files is None else "uncommitted changes" if files.dirty else clean
        changed = sum(submodule.dirty for submodule in files.submodules) if files is not None else 0
        what += f" and {changed} changed submodule{'s' if changed > 1 else ''}" if changed else ""
        what += f" ({omitted} not captured)" if omitted else ""
        where = f"commit {checkpoint.git_sha[:10]}" if checkpoint.git_sha else "an unborn branch"
        terminal.remark(f"saved {label} with {what} on {where}")
        # Last, when the output is complete.
        hook.keep_up(inside(store).repository, lambda: _settle(inside(store)))


def _settle(store: Checkpoints) -> None:
    # Maintenance does the same later, and records the outcome.
    try:
        store.remover().settle()
    except CkptError as error:
        store.announce(
            f"what is below where history was cut off may not be kept yet: {error.message}"
        )


def _place(store: Store, run: str | None, track: str | None) -> dict[str, Any]:
    if run is not None:
        return {"run": store.find_run(run)}
    from gitckpt.durable.steps.steps import Steps

    existing = store.run or Steps.run_about(store, str(track))
    return {"run": existing} if existing is not None else {"start": track}


def _state(source: str) -> dict[str, Any]:
    if source == "-":
        return _parsed(sys.stdin.buffer.read(), "standard input", as_toml=False)
    try:
        with open(source, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from None
    return _parsed(data, source, as_toml=source.endswith(".toml"))


def _parsed(data: bytes, source: str, *, as_toml: bool) -> dict[str, Any]:
    import json

    from gitckpt.model import toml

    try:
        value = toml.loads(data.decode("utf-8")) if as_toml else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{source} is not {'TOML' if as_toml else 'JSON'}: {error}",
            hint='a state is a map, such as {"step": 3}',
        ) from None
    if not isinstance(value, dict):
        raise UsageError(
            f"{source} holds {type(value).__name__}, not a map",
            hint='a state is a map, such as {"step": 3}',
        )
    return value
