"""`git ckpt init`, `uninit` and `hook`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError
from gitckpt.store.hooks import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def init(
    hooks: Annotated[
        str,
        typer.Option(
            "--hooks",
            metavar="MODE",
            help="How git calls gitckpt: auto, config, files, external (you add the lines) or none.",
        ),
    ] = "auto",
) -> None:
    """Record a checkpoint at every commit from now on: install hooks, settings and gitckpt.toml."""
    with open_store() as store:
        done = store.install(hooks)
        store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    for sentence in done.changed:
        terminal.out(sentence)
    for line in done.advice:
        terminal.remark(line)
    from gitckpt.cli import opening

    advice = opening.advice()
    if advice is not None:
        terminal.remark(advice)
    if not done.changed:
        terminal.out("already initialised; nothing changed")
    if done.mode in ("config", "files"):
        terminal.remark("every commit records a checkpoint now; see them: git ckpt list")


def uninit() -> None:
    """Take out what init put in. Checkpoints, and other people's text in hooks, stay."""
    with open_store(any_git=True) as store:
        done = store.uninstall()
    for sentence in done.changed or ["not initialised; nothing changed"]:
        terminal.out(sentence)
    for line in done.advice:
        terminal.remark(line)


def hook(
    event: Annotated[str, typer.Argument(metavar="NAME", help=f"Its name: {files.ANY}.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARG]…", help="What git passed to the hook.")
    ] = None,
) -> None:
    """What the installed hooks call; also the line to add to another hook manager's file. Never fails."""
    from gitckpt.hook import main

    main([event, *(arguments or [])])


def demo(
    directory: Annotated[
        str | None,
        typer.Option(
            "--dir", metavar="DIR", help="Make the scratch repository in DIR, which must not exist."
        ),
    ] = None,
) -> None:
    """Show all of it in a scratch repository: commit, save, kill, list, resume."""
    from gitckpt.cli.commands.demo import run_demo

    if not run_demo(directory):
        raise CkptError("the demo did not prove what it should", hint="read its last lines")
