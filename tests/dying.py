"""Kill git at a ref transaction, and gitckpt before it renames a file."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """\
#!{python} -IS
import os, subprocess, sys
whole = {git!r}
if "update-ref" not in sys.argv or not os.path.exists({order!r}):
    os.execvp(whole, [whole, *sys.argv[1:]])
said, is_ready = b"", False
while not said.endswith(b"\\0commit\\0"):
    chunk = os.read(0, 65536)
    if not chunk:
        sys.exit(0)
    said += chunk
    if b"\\0prepare\\0" in said:  # it prepares nothing, and says that it has
        said, is_ready = said.replace(b"\\0prepare\\0", b"\\0"), True
        os.write(1, b"start: ok\\nprepare: ok\\n")
if not os.path.exists({order!r}):  # another one has died meanwhile
    done = subprocess.run([whole, *sys.argv[1:]], input=said, stdout=subprocess.PIPE, check=True)
    os.write(1, done.stdout if not is_ready else done.stdout.removeprefix(b"start: ok\\n"))
    sys.exit(0)
with open({order!r}) as file:
    count, _, last_words = file.read().partition(" ")
    count = int(count)
words, parts = said.removesuffix(b"commit\\0").split(b"\\0")[:-1], []
while words:
    size = {{b"start": 1, b"update": 3}}.get(words[0].split(b" ")[0], 2)
    parts.append(b"".join(word + b"\\0" for word in words[:size]))
    words = words[size:]
if count:
    data = b"".join(parts[: count + 1]) + b"commit\\0"
    subprocess.run([whole, *sys.argv[1:]], input=data, stdout=subprocess.DEVNULL, check=True)
os.unlink({order!r})
if last_words:
    sys.exit(last_words)
os.kill(os.getpid(), 9)
"""


class DyingGit:
    """A git that dies on request at a ref transaction.

    Args:
        directory: for the files that it needs.
        monkeypatch: makes tests call this git.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self._order = directory / "order"
        script = directory / "git"
        git = os.environ.get("GITCKPT_GIT") or "git"
        script.write_text(SCRIPT.format(python=sys.executable, git=git, order=str(self._order)))
        script.chmod(0o755)
        monkeypatch.setenv("GITCKPT_GIT", str(script))

    def die_after(self, updates: int, last_words: str = "") -> None:
        """Let the next ref transaction die after some updates.

        With last words, git prints them as its error and exits; without, SIGKILL ends it.
        """
        self._order.write_text(f"{updates} {last_words}")

    @property
    def has_died(self) -> bool:
        """Whether the requested death has happened."""
        return not self._order.exists()


def die_at_rename(name: str, work: Callable[[], object]) -> None:
    """Fork a process that is killed just before it renames a temporary file.

    Args:
        name: of the file that the rename would replace.
        work: calls the code that writes the file.
    """
    replace = os.replace

    def killed(scratch: str, path: str) -> None:
        if os.path.basename(path) == name:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(scratch, path)

    pid = os.fork()
    if pid == 0:
        try:
            pytest.MonkeyPatch().setattr(os, "replace", killed)
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
