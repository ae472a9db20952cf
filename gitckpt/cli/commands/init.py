"""`git ckpt init`, `uninit` and `hook`."""

from __future__ import annotations

import os

from gitckpt.cli.screen import terminal
from gitckpt.git.command import require_git
from gitckpt.git.repository import discover
from gitckpt.model.errors import CkptError
from gitckpt.store.hooks import events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from gitckpt.git.repository import Repository


def init(
    hooks: Annotated[
        str,
        typer.Option("--hooks", metavar="MODE", help="How git calls gitckpt: auto, config, files, external (you add the lines) or none."),
    ] = "auto",
) -> None:
    """Record a checkpoint at every commit from now on: install hooks, settings and gitckpt.toml."""
    from gitckpt.store.config import settings
    from gitckpt.store.hooks import installation

    version = require_git()
    repository = discover()
    settings.read(repository)  # what is wrong in them is said before anything changes
    done = installation.install(repository, version=version, mode=hooks)
    for sentence in done.changed:
        terminal.out(terminal.harmless(sentence))
    changed = bool(done.changed)
    path = _settings_file(repository)
    if path is not None and settings.write_template(path):
        changed = True
        terminal.out(f"wrote {terminal.harmless(path)}: settings for everybody, to be committed")
    for line in done.advice:
        terminal.remark(terminal.harmless(line))
    if not changed:
        terminal.out("already initialised; nothing changed")
    if done.mode in ("config", "files"):
        terminal.remark("every commit records a checkpoint now; see them: git ckpt list")


def uninit() -> None:
    """Take out what init put in. Checkpoints, and other people's text in hooks, stay."""
    from gitckpt.store.config import settings
    from gitckpt.store.hooks import installation

    repository = discover()
    removed = installation.uninstall(repository)
    path = _settings_file(repository)
    stays = None
    if path is not None and os.path.exists(path):
        if _is_committed(repository, path):
            stays = "is committed, and stays: others may use it"
        elif not settings.is_template(path):
            stays = "was changed since, and stays"
        else:
            os.unlink(path)
            removed.append(f"removed {path}")
    for sentence in removed or ["not initialised; nothing changed"]:
        terminal.out(terminal.harmless(sentence))
    if path is not None and stays:
        terminal.remark(f"{terminal.harmless(path)} {stays}")


def hook(
    event: Annotated[str, typer.Argument(metavar="NAME", help=f"Its name: {events.ANY}.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARG]…", help="What git passed to the hook.")] = None,
) -> None:
    """What the installed hooks call; also the line to add to another hook manager's file. Never fails."""
    from gitckpt.hook import main

    main([event, *(arguments or [])])


def demo(
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="Make the scratch repository in DIR, which must not exist.")
    ] = None,
) -> None:
    """Show all of it in a scratch repository: commit, save, kill, list, resume."""
    from gitckpt.cli.commands.demo import run_demo

    if not run_demo(directory):
        raise CkptError("the demo did not prove what it should", hint="read its last lines")


def _settings_file(repository: Repository) -> str | None:
    from gitckpt.store.config import settings

    return os.path.join(repository.worktree, settings.FILE) if repository.worktree else None


def _is_committed(repository: Repository, path: str) -> bool:
    return repository.git.run("ls-files", "--error-unmatch", "--", path, ok=(0, 1)).code == 0
