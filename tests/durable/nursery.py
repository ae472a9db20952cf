"""Start `git ckpt` many times for tests that kill it.

Each call is a process of its own, forked from one that has Python loaded.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.conftest import Checkout
from tests.store.conftest import ROOT

_PATIENCE = 60.0

SERVER = """
import ctypes, json, os, select, signal, sys, time
import gitckpt.__main__
import gitckpt.cli.parser.app, gitckpt.cli.main
import gitckpt.cli.commands.resume, gitckpt.cli.commands.run, \
gitckpt.cli.commands.runs, gitckpt.cli.commands.doctor
import gitckpt.cli.driver, gitckpt.durable.driver.driver, gitckpt.store.audit.verification
import tomllib, typer

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
say = os.dup(1)

def tell(**said):
    os.write(say, (json.dumps(said) + "\\n").encode())

def start(argv, directory, env, out, err):
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.chdir(directory)
    os.environ.update(env)
    for fd, path in ((0, os.devnull), (1, out), (2, err)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, fd)
        os.close(file)
    sys.argv = ["git-ckpt", *argv]
    try:
        gitckpt.__main__.main()
    finally:
        os._exit(99)

def children():
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/cmdline") as line:
                if stat.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                    found[int(name)] = line.read().replace("\\0", " ")
        except OSError:
            pass
    return found

child, deadline = 0, None
while True:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
        alone = False
    except ChildProcessError:
        pid, alone = 0, True
    if pid:
        if pid == child:
            child = 0
            tell(code=os.waitstatus_to_exitcode(status))
        continue
    if deadline is not None and (alone or time.monotonic() > deadline):
        left = {} if alone else children()
        for number in left:
            os.kill(number, signal.SIGKILL)
        tell(left=list(left.values()))
        deadline = None
    if not select.select([0], [], [], None if alone else 0.001)[0]:
        continue
    line = sys.stdin.readline()
    if not line:
        break
    order = json.loads(line)
    if order == "kill":
        if child:
            os.kill(child, signal.SIGKILL)
    elif order:
        child = start(**order)
        tell(pid=child)
    else:
        deadline = time.monotonic() + 2
"""
"""Orphans become children of the server, which can tell whether any is left."""


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code, negative for a signal, and the output of a finished `git ckpt`."""

    code: int
    out: str
    err: str


class Nursery:
    """Start `git ckpt`, one call at a time.

    Args:
        directory: for its files.
        env: variables that each call gets beside those of the test.
    """

    def __init__(self, directory: Path, env: dict[str, str]) -> None:
        self._out, self._err = directory / "out", directory / "err"
        self._env = env
        self._said = b""
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.kill()
        self._server.wait()
        self._server.stdout.close()

    def start(self, checkout: Checkout, *argv: str, env: dict[str, str] | None = None) -> int:
        """Start a call in a worktree, and return its process."""
        paths = {"out": str(self._out), "err": str(self._err)}
        self._order(
            {
                "argv": argv,
                "directory": str(checkout.path),
                "env": {**self._env, **(env or {})},
                **paths,
            }
        )
        return int(self._answer("pid"))

    def wait(self) -> Done:
        """Wait for the end of the call."""
        code = int(self._answer("code"))
        return Done(code, self._out.read_text(), self._err.read_text())

    def has_ended(self) -> bool:
        """Return whether the call has ended."""
        assert self._server.stdout is not None
        return b"\n" in self._said or bool(select.select([self._server.stdout], [], [], 0)[0])

    def call(self, checkout: Checkout, *argv: str, env: dict[str, str] | None = None) -> Done:
        """Start a call, and wait for its end."""
        self.start(checkout, *argv, env=env)
        return self.wait()

    def kill_after(self, seconds: float) -> Done:
        """Kill the call after a time, unless it ends before.

        Only the process itself is killed, as the kernel does when memory runs out.
        """
        assert self._server.stdout is not None
        if b"\n" not in self._said and not select.select([self._server.stdout], [], [], seconds)[0]:
            self._order("kill")
        return self.wait()

    def orphans(self) -> list[str]:
        """Wait at most two seconds for the processes that the calls started.

        Returns the command lines of the processes that still run.
        """
        self._order(None)
        return list(self._answer("left"))

    def _order(self, order: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order).encode() + b"\n")

    def _answer(self, key: str) -> Any:
        assert self._server.stdout is not None
        while b"\n" not in self._said:
            assert select.select([self._server.stdout], [], [], _PATIENCE)[0], (
                f"no {key} in {_PATIENCE:.0f} seconds"
            )
            chunk = os.read(self._server.stdout.fileno(), 65536)
            assert chunk, "the nursery has ended"
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return json.loads(line)[key]
