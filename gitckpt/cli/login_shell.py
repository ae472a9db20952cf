"""Whether a login shell finds `git-ckpt`: agents such as Codex run their commands in one, whose profile may set PATH anew."""

from __future__ import annotations

import os
import shlex
import time

from gitckpt.git import process
from gitckpt.model.errors import CkptError

PROGRAM, CODEX = "git-ckpt", "codex"

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PATIENCE = 5.0
"""In seconds, for the person's own profile."""


def advice() -> str | None:
    """Returns the sentence that says what helps where a login shell of this person does not find the program.

    None where it does, where git has an alias for it, where there is no Codex, or where nothing can be said: there is no `SHELL` that is a
    shell, or the program is not on PATH itself. What the shell does takes a few milliseconds, or as long as its profile.
    """
    import shutil

    shell = os.environ.get("SHELL", "")
    found = shutil.which(PROGRAM)
    if found is None or shutil.which(CODEX) is None or os.path.basename(shell) not in _SHELLS or not os.access(shell, os.X_OK):
        return None
    try:
        if not process.run([process.git_executable(), "config", "--get", "alias.ckpt"]).code or _finds(shell):
            return None
    except CkptError:  # a profile that waits for something, or a shell that does not start: then nothing is known
        return None
    alias = shlex.quote(f"!{os.path.abspath(found)}")
    return (
        f"a login shell, in which Codex runs its commands, does not find {PROGRAM}; git finds it by: git config --global alias.ckpt {alias}"
    )


def _finds(shell: str) -> bool:
    child = process.Child([shell, "-lc", f"command -v {PROGRAM}"], process.environment(), own_group=True)
    return child.communicate(deadline=time.monotonic() + _PATIENCE).code == 0
