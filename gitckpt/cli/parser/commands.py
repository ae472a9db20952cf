"""Map each command's name to a loader that imports the command's function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

# A loader imports a module, and returns the command's function, whose exit code None means 0.
COMMANDS: dict[str, Callable[[], Callable[..., int | None]]] = {
    "init": lambda: import_module("gitckpt.cli.commands.init").init,
    "save": lambda: import_module("gitckpt.cli.commands.save").save,
    "list": lambda: import_module("gitckpt.cli.commands.list").list_,
    "show": lambda: import_module("gitckpt.cli.commands.show").show,
    "diff": lambda: import_module("gitckpt.cli.commands.diff").diff,
    "resume": lambda: import_module("gitckpt.cli.commands.resume").resume,
    "restore": lambda: import_module("gitckpt.cli.commands.restore").restore,
    "undo": lambda: import_module("gitckpt.cli.commands.restore").undo,
    "redo": lambda: import_module("gitckpt.cli.commands.restore").redo,
    "run": lambda: import_module("gitckpt.cli.commands.run").run,
    "loop": lambda: import_module("gitckpt.cli.commands.run").loop,
    "review": lambda: import_module("gitckpt.cli.commands.run").review,
    "runs": lambda: import_module("gitckpt.cli.commands.runs").runs,
    "status": lambda: import_module("gitckpt.cli.commands.runs").status,
    "start": lambda: import_module("gitckpt.cli.commands.runs").start,
    "finish": lambda: import_module("gitckpt.cli.commands.runs").finish,
    "agent": lambda: import_module("gitckpt.cli.commands.agent").agent,
    "turns": lambda: import_module("gitckpt.cli.commands.agent").turns,
    "guard": lambda: import_module("gitckpt.cli.commands.guard").guard,
    "rescue": lambda: import_module("gitckpt.cli.commands.guard").rescue,
    "watch": lambda: import_module("gitckpt.cli.commands.guard").watch,
    "step": lambda: import_module("gitckpt.cli.commands.step").step,
    "cancel": lambda: import_module("gitckpt.cli.commands.runs").cancel,
    "remove": lambda: import_module("gitckpt.cli.commands.remove").remove,
    "expire": lambda: import_module("gitckpt.cli.commands.remove").expire,
    "import": lambda: import_module("gitckpt.cli.commands.exchange").import_,
    "export": lambda: import_module("gitckpt.cli.commands.exchange").export,
    "allow": lambda: import_module("gitckpt.cli.commands.init").allow,
    "notes": lambda: import_module("gitckpt.cli.commands.doctor").notes,
    "verify": lambda: import_module("gitckpt.cli.commands.doctor").verify,
    "doctor": lambda: import_module("gitckpt.cli.commands.doctor").doctor,
    "du": lambda: import_module("gitckpt.cli.commands.du").du,
    "uninit": lambda: import_module("gitckpt.cli.commands.init").uninit,
    "hook": lambda: import_module("gitckpt.cli.commands.init").hook,
    "completion": lambda: import_module("gitckpt.cli.commands.init").completion,
    "demo": lambda: import_module("gitckpt.cli.commands.init").demo,
}
