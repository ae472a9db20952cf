"""`git ckpt diff`."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import statediff, toml
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import UsageError

_LONG = 60


def diff(
    context: typer.Context,
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID [ID] [-- PATH…]", help="One: against this worktree. Two: from the first to the second."),
    ],
    stat: Annotated[bool, typer.Option("--stat", help="Only how much changed in which file.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Only the states.")] = False,
) -> None:
    """Show what changed between two checkpoints, or since one: git's own diff of the files, then a diff of the states."""
    from gitckpt.store import comparing

    paths: list[str] = context.obj or []
    if not 1 <= len(ids) <= 2:
        raise UsageError(f"diff takes one or two ids, not {len(ids)}", hint="put paths behind two dashes: git ckpt diff ID -- PATH")
    if state and len(ids) == 1:
        raise UsageError("--state takes two ids: a worktree has no state", hint="see the state of one: git ckpt show ID --state")
    with open_store() as store:
        old = store.read(store.find(ids[0]))
        new = store.read(store.find(ids[1])) if len(ids) == 2 else None
        if not state:
            before = comparing.files_of(store, old)
            after = comparing.files_of(store, new) if new else comparing.files_here(store)
            colour = f"--color={'always' if terminal.has_colour() else 'never'}"
            options = [colour, *(["--stat"] if stat else [])]
            terminal.out_bytes(store.repository.git.run("diff", *options, before, after, "--", *paths).out)
        if new is not None and not paths and not stat:
            _print_states(old, new)


def _print_states(old: Checkpoint, new: Checkpoint) -> None:
    changes = statediff.compare(dict(old.state), dict(new.state))
    if changes:
        terminal.out(terminal.heading(f"state {old.id[:8]}..{new.id[:8]}"))
    for change in changes:
        where = terminal.harmless(change.pointer)
        if change.old is statediff.MISSING:
            terminal.out(f"+ {where} = {_text(change.new)}")
        elif change.new is statediff.MISSING:
            terminal.out(f"- {where} = {_text(change.old)}")
        elif type(change.old) is str and type(change.new) is str and max(len(change.old), len(change.new)) > _LONG:
            terminal.out(f"~ {where}:")
            for line in list(difflib.unified_diff(change.old.splitlines(), change.new.splitlines(), lineterm="", n=2))[2:]:
                terminal.out(f"    {terminal.harmless(line)}")
        else:
            terminal.out(f"~ {where}: {_text(change.old)} -> {_text(change.new)}")


def _text(value: Any) -> str:
    text = toml.dump_state({"v": value}, {}).removeprefix("[state]\n")
    return terminal.harmless(" ".join(text.removeprefix("v = ").split()) if text.startswith("v = ") else repr(value))
