"""Map each command's name to a loader that imports the command's function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

# A loader imports a module, and returns the command's function, whose exit code None means 0.
COMMANDS: dict[str, Callable[[], Callable[..., int | None]]] = {
    "init": lambda: import_module("gitckpt.cli.commands.init").install_hooks,
    "save": lambda: import_module("gitckpt.cli.commands.save").save_checkpoint,
    "list": lambda: import_module("gitckpt.cli.commands.list").list_checkpoints,
    "log": lambda: import_module("gitckpt.cli.commands.log").show_log,
    "show": lambda: import_module("gitckpt.cli.commands.show").show_checkpoint,
    "ls": lambda: import_module("gitckpt.cli.commands.files").list_files,
    "grep": lambda: import_module("gitckpt.cli.commands.files").grep_checkpoints,
    "diff": lambda: import_module("gitckpt.cli.commands.diff").diff_checkpoints,
    "resume": lambda: import_module("gitckpt.cli.commands.resume").resume_run,
    "restore": lambda: import_module("gitckpt.cli.commands.restore").restore_files,
    "undo": lambda: import_module("gitckpt.cli.commands.restore").undo_restore,
    "redo": lambda: import_module("gitckpt.cli.commands.restore").redo_restore,
    "run": lambda: import_module("gitckpt.cli.commands.run").run_pipeline,
    "loop": lambda: import_module("gitckpt.cli.commands.run").loop_agent,
    "review": lambda: import_module("gitckpt.cli.commands.run").run_review,
    "runs": lambda: import_module("gitckpt.cli.commands.runs").list_runs,
    "status": lambda: import_module("gitckpt.cli.commands.runs").show_run_status,
    "start": lambda: import_module("gitckpt.cli.commands.runs").start_run,
    "finish": lambda: import_module("gitckpt.cli.commands.runs").finish_run,
    "step": lambda: import_module("gitckpt.cli.commands.step").report_step,
    "agent": lambda: import_module("gitckpt.cli.commands.agent").agent,
    "turns": lambda: import_module("gitckpt.cli.commands.agent").turns,
    "guard": lambda: import_module("gitckpt.cli.commands.guard").guard,
    "watch": lambda: import_module("gitckpt.cli.commands.guard").watch,
    "rescue": lambda: import_module("gitckpt.cli.commands.guard").rescue,
    "report": lambda: import_module("gitckpt.cli.commands.report").write_report,
    "cancel": lambda: import_module("gitckpt.cli.commands.runs").cancel_run,
    "remove": lambda: import_module("gitckpt.cli.commands.remove").remove_checkpoints,
    "expire": lambda: import_module("gitckpt.cli.commands.remove").expire_checkpoints,
    "import": lambda: import_module("gitckpt.cli.commands.exchange").import_files,
    "export": lambda: import_module("gitckpt.cli.commands.exchange").export_files,
    "allow": lambda: import_module("gitckpt.cli.commands.init").allow_settings,
    "notes": lambda: import_module("gitckpt.cli.commands.doctor").write_pending_notes,
    "verify": lambda: import_module("gitckpt.cli.commands.doctor").verify_checkpoints,
    "doctor": lambda: import_module("gitckpt.cli.commands.doctor").print_diagnosis,
    "du": lambda: import_module("gitckpt.cli.commands.du").print_disk_usage,
    "uninit": lambda: import_module("gitckpt.cli.commands.init").uninstall_hooks,
    "hook": lambda: import_module("gitckpt.cli.commands.init").handle_git_hook,
    "completion": lambda: import_module("gitckpt.cli.commands.init").print_completion_script,
    "demo": lambda: import_module("gitckpt.cli.commands.init").show_demo,
}
