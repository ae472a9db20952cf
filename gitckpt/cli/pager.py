"""Read git's settings of colors and the pager, and start the pager as git does."""

from __future__ import annotations

import os

from gitckpt.git import process
from gitckpt.git.config import is_true
from gitckpt.model.errors import CkptError

_PATTERN = r"^(color\.(ui|ckpt|pager)|pager\.ckpt)$"
# Characters that make git run a pager through a shell (`prepare_shell_cmd`).
_FOR_SHELL = frozenset("|&;<>()$`\\\"' \t\n*?[#~=%")
# As git sets them (`setup_pager_env`): quit if one screen suffices, and pass colors through.
_VARIABLES = {"LESS": "FRX", "LV": "-c"}


def read_settings() -> dict[str, str]:
    """Return git's settings of colors and the pager for the current directory."""
    argv = [process.git_executable(), "config", "--null", "--get-regexp", _PATTERN]
    try:
        result = process.run_program(argv, env=process.git_environment(keep_local=True))
    except CkptError:  # without git, no setting
        return {}
    entries = result.out.decode("utf-8", "surrogateescape").split("\0")[:-1]
    pairs = (entry.partition("\n") for entry in entries)
    # A name without a value means true.
    return {name: value if newline else "true" for name, newline, value in pairs}


def wants_color(settings: dict[str, str], *, in_pager: bool) -> bool:
    setting = settings.get("color.ckpt", settings.get("color.ui", "auto"))
    allows_pager = not in_pager or is_true(settings.get("color.pager", "true"))
    return setting.lower() != "never" and is_true(setting) and allows_pager


def find_pager(settings: dict[str, str]) -> str | None:
    """Return the command of the pager for `git ckpt`; None for no pager."""
    own_pager = settings.get("pager.ckpt", "true")
    if not is_true(own_pager):
        return None
    command = own_pager
    if own_pager.lower() in ("true", "yes", "on", "1") or "GIT_PAGER" in os.environ:
        argv = [process.git_executable(), "var", "GIT_PAGER"]
        result = process.run_program(argv, env=process.git_environment(keep_local=True))
        command = result.text
    return None if command in ("", "cat") else command


def start_pager(command: str) -> tuple[int, int]:
    """Start a pager; return its process id and a pipe to its input."""
    argv = ["sh", "-c", command] if _FOR_SHELL.intersection(command) else [command]
    return process.start_reader(argv, _VARIABLES | dict(os.environ))
