"""What the quick door understands. Written by `./dev generate` from what the commands declare to Typer: a change here would be lost."""

from __future__ import annotations

from importlib import import_module

from gitckpt.cli import options

BEFORE = options.Syntax(
    flags={
        "--quiet": "quiet",
        "-q": "quiet",
    },
    values={
        "-C": "directory",
    },
)
"""What may stand before any command."""

AFTER = {
    "save": options.Syntax(
        flags={
            "--no-worktree": "no_worktree",
        },
        values={
            "--message": "message",
            "-m": "message",
            "--phase": "phase",
            "--state": "state",
            "--agent": "agent",
            "--run": "run",
            "--track": "track",
        },
    ),
    "list": options.Syntax(
        flags={
            "--all": "all_",
            "--json": "as_json",
        },
        values={
            "--run": "run",
            "--commit": "commit",
            "--phase": "phase",
            "--status": "status",
            "--since": "since",
            "-n": "number",
        },
        readers={
            "number": options.count,
        },
    ),
    "show": options.Syntax(
        arguments=["id_"],
        flags={
            "--json": "as_json",
            "--raw": "raw",
            "--state": "state",
        },
    ),
    "resume": options.Syntax(
        arguments=["id_"],
        flags={
            "--no-run": "no_run",
            "--fork": "fork",
            "--rewind": "rewind",
            "--accept-changes": "accept_changes",
            "--trust": "trust",
            "--take-over": "take_over",
            "--force": "force",
        },
        values={
            "--into": "into",
            "--from": "from_",
            "--autonomy": "autonomy",
            "--timeout": "timeout",
        },
    ),
    "runs": options.Syntax(
        flags={
            "--json": "as_json",
        },
        values={
            "--status": "status",
            "-n": "number",
        },
        readers={
            "number": options.count,
        },
    ),
    "status": options.Syntax(
        arguments=["run"],
        flags={
            "--json": "as_json",
            "--watch": "watch",
            "-w": "watch",
        },
    ),
    "restore": options.Syntax(
        words="id_and_paths",
        flags={
            "--index": "index",
            "--trust": "trust",
            "--dry-run": "dry_run",
            "--json": "as_json",
        },
    ),
    "undo": options.Syntax(
        flags={
            "--list": "list_",
            "--dry-run": "dry_run",
            "--json": "as_json",
        },
    ),
    "redo": options.Syntax(
        flags={
            "--dry-run": "dry_run",
            "--json": "as_json",
        },
    ),
    "verify": options.Syntax(
        flags={
            "--repair": "repair",
            "--contents": "contents",
            "--json": "as_json",
        },
    ),
}
"""Command → what may stand behind it."""

FUNCTIONS = {
    "save": lambda: import_module("gitckpt.cli.commands.checkpoints.save").save,
    "list": lambda: import_module("gitckpt.cli.commands.checkpoints.list").list_,
    "show": lambda: import_module("gitckpt.cli.commands.checkpoints.show").show,
    "resume": lambda: import_module("gitckpt.cli.commands.runs.resume").resume,
    "runs": lambda: import_module("gitckpt.cli.commands.runs.runs").runs,
    "status": lambda: import_module("gitckpt.cli.commands.runs.runs").status,
    "restore": lambda: import_module("gitckpt.cli.commands.checkpoints.restore").restore,
    "undo": lambda: import_module("gitckpt.cli.commands.checkpoints.restore").undo,
    "redo": lambda: import_module("gitckpt.cli.commands.checkpoints.restore").redo,
    "verify": lambda: import_module("gitckpt.cli.commands.upkeep.verify").verify,
}
"""Command → what imports its module, and returns the function that does the work."""
