"""`git ckpt init`, `uninit` and `hook`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import login_shell_advice, open_store
from gitckpt.model.errors import CkptError


@options.usage("""
--hooks MODE  How git calls gitckpt: auto, config, files, external (you add the lines) or none.
  [default: auto]
""")
def init(hooks: str = "auto") -> None:
    """Record a checkpoint at every commit from now on.

    Installs hooks, settings and gitckpt.toml.
    """
    with open_store() as store:
        done = store.install(hooks)
        store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    for sentence in done.changed:
        terminal.out(sentence)
    for line in (*done.advice, login_shell_advice()):
        if line is not None:
            terminal.remark(line)
    if not done.changed:
        terminal.out("already initialised; nothing changed")
    if done.mode in ("config", "files"):
        terminal.remark("every commit records a checkpoint now; see them: git ckpt list")


def uninit() -> None:
    """Remove what init has installed; checkpoints stay.

    Lines of others in hooks stay, too.
    """
    with open_store(any_git=True) as store:
        done = store.uninstall()
    for sentence in done.changed or ["not initialised; nothing changed"]:
        terminal.out(sentence)
    for line in done.advice:
        terminal.remark(line)


@options.usage("""
NAME  The hook: post-commit, post-merge, post-applypatch, post-rewrite or pre-auto-gc.
[ARG]…  What git passed to the hook.
""")
def hook(event: str, arguments: list[str] | None = None) -> None:
    """Run a hook, as the installed hooks do.

    Also the line to add to another hook manager's file. Never fails.
    """
    from gitckpt.hook import main

    main([event, *(arguments or [])])


@options.usage("""
--dir DIR  Create the scratch repository in DIR, which must not exist.
""")
def demo(dir_: str | None = None) -> None:
    """Demonstrate save, kill and resume in a scratch repository."""
    from gitckpt.cli.commands.demo import run_demo

    if not run_demo(dir_):
        raise CkptError("the demo did not prove what it should", hint="read its last lines")
