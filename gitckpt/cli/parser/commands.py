"""The list of commands: function and summary of each. Importing it loads none."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Command:
    def __init__(self, load: Callable[[], Callable[..., int | None]], summary: str) -> None:
        self.load = load  # imports the module and returns the function; its exit code None is 0
        self.summary = summary  # in the list of commands; "" hides it there


COMMANDS: dict[str, Command] = {
    "init": Command(
        lambda: import_module("gitckpt.cli.commands.init").init,
        "Record a checkpoint at every commit from now on.",
    ),
    "save": Command(
        lambda: import_module("gitckpt.cli.commands.save").save, "Record a checkpoint now."
    ),
    "list": Command(
        lambda: import_module("gitckpt.cli.commands.list").list_, "List checkpoints, newest first."
    ),
    "show": Command(
        lambda: import_module("gitckpt.cli.commands.show").show, "Show one checkpoint."
    ),
    "diff": Command(
        lambda: import_module("gitckpt.cli.commands.diff").diff,
        "Show what changed between two, or since one.",
    ),
    "resume": Command(
        lambda: import_module("gitckpt.cli.commands.resume").resume,
        "Go on with a run, or open the files of one.",
    ),
    "restore": Command(
        lambda: import_module("gitckpt.cli.commands.restore").restore,
        "Put the files of one into this worktree.",
    ),
    "undo": Command(
        lambda: import_module("gitckpt.cli.commands.restore").undo, "Take the newest restore back."
    ),
    "redo": Command(
        lambda: import_module("gitckpt.cli.commands.restore").redo,
        "Bring back what was there before an undo.",
    ),
    "run": Command(
        lambda: import_module("gitckpt.cli.commands.run").run,
        "Run a pipeline in a worktree of its own.",
    ),
    "loop": Command(
        lambda: import_module("gitckpt.cli.commands.loop").loop,
        "Let an agent work at a plan until it is carried out.",
    ),
    "review": Command(
        lambda: import_module("gitckpt.cli.commands.review").review,
        "Let a coder and a reviewer work until it is approved.",
    ),
    "runs": Command(
        lambda: import_module("gitckpt.cli.commands.runs").runs,
        "List runs, and what has become of each.",
    ),
    "status": Command(
        lambda: import_module("gitckpt.cli.commands.runs").status, "Show one run, phase by phase."
    ),
    "start": Command(
        lambda: import_module("gitckpt.cli.commands.start").start, "Open a run to work in by hand."
    ),
    "finish": Command(
        lambda: import_module("gitckpt.cli.commands.start").finish, "Record that a run is complete."
    ),
    "step": Command(
        lambda: import_module("gitckpt.cli.commands.step").step,
        "Report how far a step of an agent is, or ask for the next.",
    ),
    "cancel": Command(
        lambda: import_module("gitckpt.cli.commands.start").cancel,
        "Stop a run that is being driven.",
    ),
    "remove": Command(
        lambda: import_module("gitckpt.cli.commands.remove").remove, "Remove checkpoints by name."
    ),
    "expire": Command(
        lambda: import_module("gitckpt.cli.commands.expire").expire, "Remove checkpoints by policy."
    ),
    "import": Command(
        lambda: import_module("gitckpt.cli.commands.imports").import_,
        "Take over the files of other tools as runs.",
    ),
    "export": Command(
        lambda: import_module("gitckpt.cli.commands.export").export,
        "Write one, or a run, as a file of another tool.",
    ),
    "allow": Command(
        lambda: import_module("gitckpt.cli.commands.allow").allow,
        "Let gitckpt.toml be looser than what is built in.",
    ),
    "notes": Command(
        lambda: import_module("gitckpt.cli.commands.notes").notes,
        "Write pending notes now, so that git log shows them.",
    ),
    "verify": Command(
        lambda: import_module("gitckpt.cli.commands.verify").verify,
        "Look at every checkpoint and all it needs.",
    ),
    "doctor": Command(
        lambda: import_module("gitckpt.cli.commands.doctor").doctor,
        "Look for what is wrong, and name the cure.",
    ),
    "du": Command(
        lambda: import_module("gitckpt.cli.commands.du").du,
        "Show what it takes on the disk, and what lies around.",
    ),
    "uninit": Command(
        lambda: import_module("gitckpt.cli.commands.init").uninit, "Take out what init put in."
    ),
    "hook": Command(
        lambda: import_module("gitckpt.cli.commands.init").hook, "What the installed hooks call."
    ),
    "completion": Command(
        lambda: import_module("gitckpt.cli.commands.completion").completion,
        "Print a script for the shell's completion.",
    ),
    "demo": Command(
        lambda: import_module("gitckpt.cli.commands.init").demo,
        "Show all of it in a scratch repository.",
    ),
    "complete": Command(lambda: import_module("gitckpt.cli.commands.completion").complete, ""),
}

# Commands whose plain calls bypass Typer, which takes 130 ms from 0.29 on, as it imports pydantic.
QUICK = tuple(name for name in COMMANDS if name not in ("diff", "export", "hook", "complete"))
