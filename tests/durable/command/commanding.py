"""Run commands in tests, and find the processes that they leave behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gitckpt.durable.command import supervisor
from gitckpt.durable.command.execution import CommandResult, Timeouts, run_command
from gitckpt.durable.command.watchdog import DriverEnvTag, Watchdog

SYSTEMS = {
    "orphans are adopted": "",
    "orphans are not adopted": "supervisor.adopt_orphans = lambda: False; ",
    "ps tells of processes": (
        "supervisor.adopt_orphans = lambda: False; process_tree._SELF = '/nowhere'; "
    ),
}
"""The supported systems, each with the code that makes a supervisor believe in it."""


def pretend(patch: pytest.MonkeyPatch, system: str) -> None:
    """Make the watchdogs that start from now on believe in one of `SYSTEMS`."""
    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); from gitckpt.durable.command import "
        "process_tree, supervisor"
    )
    patch.setattr(
        supervisor,
        "_BOOTSTRAP",
        f"{start}; {SYSTEMS[system]}supervisor.run_supervisor(sys.argv[2:])",
    )


def tag(directory: Path) -> DriverEnvTag:
    """Return the tag of a run that does not exist; its repository is a directory."""
    return DriverEnvTag("a-run", 1, str(directory))


class Runner:
    """Run commands in one directory, with one watchdog.

    Attributes:
        shown: the output of all commands, chunk by chunk.
    """

    def __init__(self, directory: Path, watchdog: Watchdog) -> None:
        self.directory = directory
        self.watchdog = watchdog
        self.shown: list[bytes] = []

    def __call__(
        self,
        command: str,
        *,
        directory: str | None = None,
        env: Mapping[str, str] | None = None,
        output: Callable[[bytes], None] | None = None,
        tick: Callable[[float], None] | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        silence: float | None = None,
        left: float | None = None,
        grace: float = 5.0,
    ) -> CommandResult:
        """Call `run_command`; `silence` is an idle timeout.

        It begins with the first output, which can take long on a busy machine.
        """
        patience = Timeouts(timeout, idle_timeout, left, grace)
        show = self.shown.append if output is None else output

        def listen(chunk: bytes) -> None:
            if silence is not None:
                object.__setattr__(patience, "idle_timeout", silence)
            show(chunk)

        return run_command(
            command,
            directory=str(self.directory) if directory is None else directory,
            env=os.environ if env is None else env,
            watchdog=self.watchdog,
            patience=patience,
            output=listen,
            tick=tick,
        )

    def pid(self, name: str) -> int:
        """Return the process id that a command wrote into a file."""
        return int((self.directory / name).read_text())


def runs(pid: int) -> bool:
    """Return whether a process runs.

    A zombie does not run, nor does a process that has already released its memory.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        is_over = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
        return not is_over and not Path(f"/proc/{pid}/statm").read_text().startswith("0 ")
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self").exists()


def ends(*pids: int) -> bool:
    """Wait a little for the end of processes, and return whether all have ended."""
    return comes(lambda: not any(runs(pid) for pid in pids))


def comes(condition: Callable[[], bool]) -> bool:
    """Wait a little for a condition, and return whether it became true."""
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def marked(mark: str) -> list[str]:
    """Return the command lines of processes with a text in arguments or environment."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes()
                if mark.encode() in line + (process / "environ").read_bytes():
                    found.append(line.replace(b"\0", b" ").decode())
            except OSError:
                pass  # the process has ended, or belongs to another user
    return found
