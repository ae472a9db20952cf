"""Kill scripts that use a store, at a git call, at a write, or at a moment."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gitckpt import Store
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
from tests import forked
from tests.conftest import Checkout
from tests.store.conftest import ROOT

OPEN = """
import os, sys
from gitckpt.git.repository import discover_repository
from gitckpt.store.worktrees import resumption
from gitckpt.store.checkpoints import Checkpoints
path, *args = sys.argv[1:]
replace = os.replace

def counted(*names):
    place = os.environ["KILL_COUNT"]
    with open(os.path.join(place, "newest")) as newest:
        number = int(newest.read() or 0)
    while True:
        number += 1
        try:
            os.close(os.open(os.path.join(place, str(number)), os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            pass
    if number == int(os.environ["KILL_AT"]):
        os.kill(os.getpid(), 9)
    replace(*names)

if "KILL_AT" in os.environ:
    os.replace = counted  # each object that we write ourselves
with Checkpoints(discover_repository(path), adapter="plumbing") as store:
"""

WRAPPER = """\
#!/bin/sh
# Counts positions in $KILL_COUNT, before and after each git call; \
at number $KILL_AT it kills the caller.
set -C # of two that run side by side only one makes a file. \
No process is needed for that, and there are thousands of positions
position() {
    read -r number <"$KILL_COUNT/newest"
    until { number=$((number + 1)) && true >"$KILL_COUNT/$number"; } 2>/dev/null; do :; done
    echo "$number" >|"$KILL_COUNT/newest" # all below are taken, too
    if [ "$number" -eq "$KILL_AT" ]; then kill -9 "$PPID"; exit 137; fi
}
case " $* " in
*" update-ref --stdin "*) exec "$KILL_PYTHON" -IS "$KILL_PROXY" "$@" ;;
*" cat-file --batch-command "*) position; exec git "$@" ;;
esac
position
git "$@"
code=$?
position
exit $code
"""

PROXY = """\
# Passes ref transactions on, and counts a position before, between and after the refs of each: \
a kill leaves the first ones done.
import os, sys

def position(count):
    with open(os.path.join(os.environ["KILL_COUNT"], "newest")) as newest:
        number, mine = int(newest.read() or 0), []
    while len(mine) < count:
        number += 1
        try:
            os.close(os.open(os.path.join(os.environ["KILL_COUNT"], str(number)), \
os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        mine.append(number)
    at = int(os.environ["KILL_AT"])
    return mine.index(at) if at in mine else None

def commands(transaction):
    words, found = transaction.split(b"\\0"), []
    while words[0] not in (b"commit", b""):
        size = {b"start": 1, b"update": 3}.get(words[0].split(b" ")[0], 2)
        found.append(b"".join(word + b"\\0" for word in words[:size]))
        words = words[size:]
    return found

in_read, in_write = os.pipe()
out_read, out_write = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, in_read, 0), (os.POSIX_SPAWN_DUP2, out_write, 1)]
git = os.posix_spawnp("git", ["git", *sys.argv[1:]], os.environ, file_actions=actions)
os.close(in_read), os.close(out_write)

def ask(data):
    said = b""
    os.write(in_write, data)
    while not said.endswith(b"commit: ok\\n"):
        chunk = os.read(out_read, 65536)
        if not chunk:
            break
        said += chunk
    return said

pending, prepared = b"", b""
while chunk := os.read(0, 65536):
    pending += chunk
    if b"\\0prepare\\0" in pending:  # it prepares nothing, and says that it has
        pending, prepared = pending.replace(b"\\0prepare\\0", b"\\0"), b"start: ok\\n"
        os.write(1, prepared + b"prepare: ok\\n")
    if not pending.endswith(b"\\0commit\\0"):
        continue
    parts, whole, pending = commands(pending), pending, b""
    at = position(len(parts))
    if at is None:
        os.write(1, ask(whole).removeprefix(prepared))
        prepared = b""
        continue
    if at:
        ask(b"".join(parts[: at + 1]) + b"commit\\0")
    os.kill(os.getppid(), 9)
    os._exit(137)
os.close(in_write)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(git, 0)[1]))
"""


class Positions:
    """A git that kills its caller at a given position among the calls.

    Args:
        directory: for the wrapper and its counters.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._proxy, self._wrapper, self._counts = (
            directory / "proxy.py",
            directory / "git",
            directory / "counts",
        )
        self._proxy.write_text(PROXY)
        self._wrapper.write_text(WRAPPER)
        self._wrapper.chmod(0o755)
        self._counts.mkdir()
        self._numbers = itertools.count()
        self._count = self._counts

    def env(self, at: int) -> dict[str, str]:
        """Return the environment in which a process dies at a position, or at none for 0.

        The count starts again in a new directory, so that a process of an earlier run does not
        disturb it.
        """
        self._count = self._counts / str(next(self._numbers))
        self._count.mkdir()
        (self._count / "newest").write_text("0\n")
        return {
            "GITCKPT_GIT": str(self._wrapper),
            "KILL_AT": str(at),
            "KILL_COUNT": str(self._count),
            "KILL_PROXY": str(self._proxy),
            "KILL_PYTHON": sys.executable,
        }

    def count(self) -> int:
        """Return the number of positions since the last `env`."""
        return len(os.listdir(self._count)) - 1


class Killer:
    """A runner of scripts that die at a given position.

    Args:
        directory: for the scripts and the wrapper of git.
    """

    def __init__(self, directory: Path) -> None:
        self._positions = Positions(directory)

    def run(self, at: int, script: str, *args: str) -> tuple[bool, list[str]]:
        """Return whether the script survived, and the words that it printed."""
        env = os.environ | self._positions.env(at)
        done = forked.script(OPEN + script, *args, env=env)
        assert done.code in (0, -signal.SIGKILL), done.err
        assert (done.code == 0) == (self._positions.count() < at), (
            "the position was not where the script died"
        )
        return done.code == 0, done.out.split()

    def count(self) -> int:
        """Return the number of positions of the last script."""
        return self._positions.count()


class Worker:
    """A script in its own session, killed together with every git that it started.

    Args:
        script: the Python source.
        args: its arguments.
    """

    def __init__(self, script: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OPEN + script, *args],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill_after(self, lines: int, seconds: float) -> list[list[str]]:
        """Kill the session some seconds after a line; return the words of every line.

        Args:
            lines: how many lines to wait for.
            seconds: how long to wait after the last of them.
        """
        out = self._process.stdout
        assert out is not None
        said = [out.readline() for _ in range(lines)]
        time.sleep(seconds)  # the test varies this moment
        assert self._process.poll() is None, "it ended by itself"
        while pids := self._session():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        said += out.readlines()
        out.close()
        self._process.wait()
        return [line.split() for line in said if line.endswith("\n")]

    def _session(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[3]) == self._process.pid and fields[0] != "Z":
                    found.append(int(name))
        return found


def opened(checkout: Checkout) -> Store:
    return Store(Checkpoints(discover_repository(str(checkout.path)), adapter="plumbing"))
