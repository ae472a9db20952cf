"""What the quick door understands. Written by `./dev generate` from what the commands declare to Typer: a change here would be lost."""

from __future__ import annotations

from importlib import import_module

from gitckpt.cli import options

# What may stand before any command.
BEFORE = options.Syntax(
    flags={"--quiet": "quiet", "-q": "quiet"},
    values={"-C": "directory"},
)

# Command → what may stand behind it.
AFTER = {
    "init": options.Syntax(
        values={"--hooks": "hooks"},
    ),
    "save": options.Syntax(
        flags={"--no-worktree": "no_worktree"},
        values={
            "--message": "message",
            "-m": "message",
            "--phase": "phase",
            "--state": "state",
            "--agent": "agent",
            "--run": "run",
            "--track": "track",
        },
        lists={"--error": "errors"},
    ),
    "list": options.Syntax(
        flags={"--all": "all_", "--json": "as_json"},
        values={
            "--run": "run",
            "--commit": "commit",
            "--phase": "phase",
            "--status": "status",
            "--since": "since",
            "-n": "number",
        },
        readers={"number": options.count},
    ),
    "show": options.Syntax(
        arguments=["id_"],
        flags={"--json": "as_json", "--raw": "raw", "--state": "state"},
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
        lists={"--input": "inputs", "-i": "inputs"},
    ),
    "restore": options.Syntax(
        required=1,
        words="id_and_paths",
        flags={
            "--index": "index",
            "--trust": "trust",
            "--dry-run": "dry_run",
            "--json": "as_json",
        },
    ),
    "undo": options.Syntax(
        flags={"--list": "list_", "--dry-run": "dry_run", "--json": "as_json"},
    ),
    "redo": options.Syntax(
        flags={"--dry-run": "dry_run", "--json": "as_json"},
    ),
    "run": options.Syntax(
        arguments=["pipeline"],
        required=1,
        flags={"--dry-run": "dry_run", "-n": "dry_run", "--print": "print_"},
        values={
            "--base": "base",
            "--autonomy": "autonomy",
            "--timeout": "timeout",
            "--key": "key",
        },
        lists={"--input": "inputs", "-i": "inputs"},
    ),
    "loop": options.Syntax(
        arguments=["plan"],
        required=1,
        flags={"--until-tests-pass": "until_tests_pass"},
        values={
            "--epic": "epic",
            "--agent": "agent",
            "--done": "done",
            "--tests": "tests",
            "--prompt": "prompt",
            "--conversation": "conversation",
            "--max-budget": "max_budget",
            "--pause": "pause",
            "--agent-timeout": "agent_timeout",
            "--idle-timeout": "idle_timeout",
            "--test-timeout": "test_timeout",
            "--base": "base",
            "--timeout": "timeout",
        },
        lists={"--issue": "issue"},
    ),
    "review": options.Syntax(
        arguments=["task"],
        required=1,
        values={
            "--name": "name",
            "--coder": "coder",
            "--reviewer": "reviewer",
            "--lint": "lint",
            "--epic": "epic",
            "--max-budget": "max_budget",
            "--agent-timeout": "agent_timeout",
            "--refactor": "refactor",
            "--base": "base",
            "--timeout": "timeout",
        },
        lists={"--filter": "filter_"},
    ),
    "runs": options.Syntax(
        flags={"--json": "as_json"},
        values={"--status": "status", "-n": "number"},
        readers={"number": options.count},
    ),
    "status": options.Syntax(
        arguments=["run"],
        flags={"--json": "as_json", "--watch": "watch", "-w": "watch"},
    ),
    "start": options.Syntax(
        arguments=["name"],
        values={"--base": "base", "--key": "key"},
    ),
    "finish": options.Syntax(
        arguments=["run"],
        flags={"--force": "force"},
    ),
    "step": options.Syntax(
        arguments=["action", "name"],
        required=1,
        flags={
            "--files": "files",
            "--force": "force",
            "--history": "history",
            "--json": "as_json",
        },
        values={
            "--run": "run",
            "--track": "track",
            "--graph": "graph",
            "--agent": "agent",
            "--notes": "notes",
            "-m": "notes",
            "--task": "task",
            "--task-status": "task_status",
            "--worker": "worker",
            "--tasks-completed": "tasks_completed",
            "--tasks-total": "tasks_total",
            "--current-phase": "current_phase",
            "--total-phases": "total_phases",
            "--verdict": "verdict",
            "--commit": "commit",
            "--id": "id_",
            "--plan": "plan",
            "--resume-from": "resume_from",
        },
        lists={"--output": "output", "--set": "set_"},
        readers={
            "tasks_completed": options.count,
            "tasks_total": options.count,
            "current_phase": options.count,
            "total_phases": options.count,
        },
    ),
    "cancel": options.Syntax(
        arguments=["run"],
        required=1,
    ),
    "remove": options.Syntax(
        words="ids",
        flags={"--rewritten": "rewritten", "--force": "force"},
    ),
    "expire": options.Syntax(
        flags={"--all": "all_", "--dry-run": "dry_run", "-n": "dry_run"},
        values={"--older-than": "older_than", "--keep-last": "keep_last"},
        readers={"keep_last": options.count},
    ),
    "import": options.Syntax(
        required=1,
        words="paths",
        flags={
            "--history": "history",
            "--fork": "fork",
            "--dry-run": "dry_run",
            "--json": "as_json",
        },
        values={"--format": "format_", "--phases": "phases"},
    ),
    "allow": options.Syntax(
        flags={
            "--dry-run": "dry_run",
            "-n": "dry_run",
            "--forget": "forget",
            "--json": "as_json",
        },
        values={"--secret": "secret"},
    ),
    "notes": options.Syntax(),
    "verify": options.Syntax(
        words="ids",
        flags={"--repair": "repair", "--contents": "contents", "--json": "as_json"},
    ),
    "doctor": options.Syntax(
        flags={"--json": "as_json"},
    ),
    "du": options.Syntax(
        flags={"--runs": "runs", "--json": "as_json"},
    ),
    "uninit": options.Syntax(),
    "completion": options.Syntax(
        arguments=["shell"],
        required=1,
    ),
    "demo": options.Syntax(
        values={"--dir": "directory"},
    ),
}

# Command → what imports its module, and returns the function that does the work.
FUNCTIONS = {
    "init": lambda: import_module("gitckpt.cli.commands.init").init,
    "save": lambda: import_module("gitckpt.cli.commands.save").save,
    "list": lambda: import_module("gitckpt.cli.commands.list").list_,
    "show": lambda: import_module("gitckpt.cli.commands.show").show,
    "resume": lambda: import_module("gitckpt.cli.commands.resume").resume,
    "restore": lambda: import_module("gitckpt.cli.commands.restore").restore,
    "undo": lambda: import_module("gitckpt.cli.commands.restore").undo,
    "redo": lambda: import_module("gitckpt.cli.commands.restore").redo,
    "run": lambda: import_module("gitckpt.cli.commands.run").run,
    "loop": lambda: import_module("gitckpt.cli.commands.loop").loop,
    "review": lambda: import_module("gitckpt.cli.commands.review").review,
    "runs": lambda: import_module("gitckpt.cli.commands.runs").runs,
    "status": lambda: import_module("gitckpt.cli.commands.runs").status,
    "start": lambda: import_module("gitckpt.cli.commands.start").start,
    "finish": lambda: import_module("gitckpt.cli.commands.start").finish,
    "step": lambda: import_module("gitckpt.cli.commands.step").step,
    "cancel": lambda: import_module("gitckpt.cli.commands.start").cancel,
    "remove": lambda: import_module("gitckpt.cli.commands.remove").remove,
    "expire": lambda: import_module("gitckpt.cli.commands.expire").expire,
    "import": lambda: import_module("gitckpt.cli.commands.imports").import_,
    "allow": lambda: import_module("gitckpt.cli.commands.allow").allow,
    "notes": lambda: import_module("gitckpt.cli.commands.notes").notes,
    "verify": lambda: import_module("gitckpt.cli.commands.verify").verify,
    "doctor": lambda: import_module("gitckpt.cli.commands.doctor").doctor,
    "du": lambda: import_module("gitckpt.cli.commands.du").du,
    "uninit": lambda: import_module("gitckpt.cli.commands.init").uninit,
    "completion": lambda: import_module("gitckpt.cli.commands.completion").completion,
    "demo": lambda: import_module("gitckpt.cli.commands.init").demo,
}
