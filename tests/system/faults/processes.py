"""Start an operation, find its processes, and disturb system calls by strace."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.system.faults.operation import Ended, Place

WRITING = (
    *(
        "write",
        "pwrite64",
        "writev",
        "fsync",
        "fdatasync",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "unlink",
        "unlinkat",
    ),
    *(
        "mkdir",
        "mkdirat",
        "rmdir",
        "symlink",
        "symlinkat",
        "ftruncate",
        "truncate",
        "chmod",
        "fchmod",
        "utimensat",
        "copy_file_range",
    ),
)
"""The system calls that change a disk, except `open` and its variants."""

LIMIT = 120
"""Seconds that an operation may take."""

_LINE = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)", re.DOTALL)
_FIRST = re.compile(
    r'^(?:(?:AT_FDCWD|\d+)<(?P<place>[^>]*)>(?:, "(?P<name>[^"]*)")?|"(?P<path>[^"]*)")'
)

WRAPPER = """\
#!/bin/sh
# Counts the calls of git; that of number $FAULT_CALL is made by what $FAULT_BY says, \
and in $FAULT_LOG, where there is one, is noted.
until mkdir "$FAULT_COUNT.lock" 2>/dev/null; do :; done # two of us may run side by side
printf x >>"$FAULT_COUNT"
number=$(wc -c <"$FAULT_COUNT")
rmdir "$FAULT_COUNT.lock"
if [ -n "$FAULT_LOG" ]; then
    printf '%s ' "$@" >"$FAULT_LOG/$number.args"
    exec strace -y -o "$FAULT_LOG/$number" -e "trace=$FAULT_TRACE" "$FAULT_GIT" "$@"
fi
[ "$number" -eq "$FAULT_CALL" ] || exec "$FAULT_GIT" "$@"
: >"$FAULT_COUNT.struck"
[ "$FAULT_BY" != at-once ] || kill -9 $$
exec strace -o /dev/null -e "trace=$FAULT_TRACE" -e "inject=$FAULT_BY" "$FAULT_GIT" "$@"
"""


@dataclass(frozen=True)
class Change:
    """A system call that changes something.

    Attributes:
        call: its name and its number among the calls of that name, from 1: `rename-2`.
        path: of the file; "" for a pipe and the like.
    """

    call: str
    path: str


def can_trace() -> str | None:
    """Return why system calls cannot be disturbed here; None if they can."""
    if shutil.which("strace") is None:
        return "there is no strace"
    done = subprocess.run(
        ["strace", "-o", os.devnull, "-e", "inject=chdir:error=EIO", "true"],
        capture_output=True,
        check=False,
    )
    return None if done.returncode == 0 else "strace may not be used"


def family(place: Place) -> list[int]:
    """Return the live processes of an operation, found by their environment."""
    mark = os.fsencode(f"BESIDE={place.beside}")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
    return found


def kill_family(place: Place) -> None:
    """Kill all processes of an operation."""
    while pids := family(place):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def settle(place: Place) -> bool:
    """Wait until no process of an operation is alive; tell whether that happened."""
    until = time.monotonic() + 20
    while family(place):
        if time.monotonic() > until:
            kill_family(place)
            return False
        time.sleep(0.005)
    return True


def ends_within(acting: subprocess.Popen[bytes], seconds: float) -> bool:
    """Tell whether a process ends in time.

    `Popen.wait` with a time limit polls only twenty times a second.
    """
    fd = os.pidfd_open(acting.pid)
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def run(
    place: Place,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    kill_after: float | None = None,
) -> Ended:
    """Run an operation, and wait until all its processes have ended.

    Args:
        place: where to run it.
        argv: the program.
        env: additional environment variables.
        kill_after: seconds after which all its processes are killed.
    """
    out, err = place.top / "out", place.top / "err"
    with out.open("wb") as said, err.open("wb") as complained:
        acting = subprocess.Popen(
            argv,
            cwd=place.project,
            env=place.env | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complained,
            start_new_session=True,
        )
        killed = False
        if not ends_within(acting, LIMIT if kill_after is None else kill_after):
            killed = True
            kill_family(place)
        acting.wait()
    has_settled = settle(place)
    complaints = err.read_text(errors="replace")
    if killed and kill_after is None:
        return Ended(
            3, out.read_text(errors="replace"), f"it took more than {LIMIT} s: {complaints}"
        )
    if not has_settled:
        return Ended(3, out.read_text(errors="replace"), f"what it started lives on: {complaints}")
    return Ended(None if killed else acting.returncode, out.read_text(errors="replace"), complaints)


def changes(log: Path) -> list[Change]:
    """Return the calls of a process, from a log of strace."""
    counts: dict[str, int] = {}
    found = []
    for line in log.read_text(errors="replace").splitlines():
        matched = _LINE.match(line)
        if matched is None or matched[1] not in WRITING:
            continue
        counts[matched[1]] = counts.get(matched[1], 0) + 1
        first = _FIRST.match(matched[2])
        below = (
            first["name"] if first and first["name"] and "at" in matched[1] else ""
        )  # the text of the other calls is what they write
        path = (first["path"] or os.path.join(first["place"] or "", below)) if first else ""
        found.append(
            Change(
                f"{matched[1]}-{counts[matched[1]]}",
                path.rstrip("/") if path.startswith("/") and path != os.devnull else "",
            )
        )
    return found


def traced(place: Place, argv: Sequence[str]) -> list[Change]:
    """Run an operation, and return the calls of its first process."""
    log = place.top / "trace"
    ended = run(place, ["strace", "-y", "-o", str(log), "-e", f"trace={','.join(WRITING)}", *argv])
    if ended.code:
        raise AssertionError(f"undisturbed, it ended with {ended.code}: {ended.err}")
    return changes(log)


def struck(argv: Sequence[str], call: str, how: str) -> list[str]:
    """Return a program whose first process is disturbed at a system call.

    Args:
        argv: the program.
        call: as `Change.call`.
        how: the action of strace.
    """
    return [
        "strace",
        "-o",
        os.devnull,
        "-e",
        f"trace={','.join(WRITING)}",
        "-e",
        f"inject={_at(call, how)}",
        *argv,
    ]


def _at(call: str, how: str) -> str:
    name, _, number = call.rpartition("-")
    return f"{name}:{how}:when={number}"


class GitCalls:
    """A git that is disturbed at one of its calls.

    Args:
        place: where the operation is done.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._directory = place.top / "calls"
        self._directory.mkdir()
        self._wrapper = self._directory / "git"
        self._wrapper.write_text(WRAPPER)
        self._wrapper.chmod(0o755)
        self._count = self._directory / "count"

    def _env(self, **more: str) -> dict[str, str]:
        known = {
            "FAULT_LOG": "",
            "FAULT_CALL": "0",
            "FAULT_BY": "",
            "FAULT_TRACE": ",".join(WRITING),
        }
        git = self._place.env.get("GITCKPT_GIT", "git")
        return (
            {"GITCKPT_GIT": str(self._wrapper), "FAULT_COUNT": str(self._count), "FAULT_GIT": git}
            | known
            | more
        )

    def traced(self, argv: Sequence[str]) -> list[list[Change]]:
        """Run an operation, and return the system calls of each call of git."""
        log = self._directory / "log"
        log.mkdir()
        ended = run(self._place, argv, env=self._env(FAULT_LOG=str(log)))
        if ended.code:
            raise AssertionError(f"undisturbed, it ended with {ended.code}: {ended.err}")
        count = self._count.stat().st_size
        return [
            changes(log / str(number)) if (log / str(number)).exists() else []
            for number in range(1, count + 1)
        ]

    def run(self, argv: Sequence[str], number: int, call: str, how: str) -> Ended:
        """Run an operation, and disturb one call of git at a system call.

        Args:
            argv: the operation.
            number: of the call of git, from 1.
            call: as `Change.call`; "" to kill git at its start.
            how: the action of strace.
        """
        return run(
            self._place,
            argv,
            env=self._env(FAULT_CALL=str(number), FAULT_BY=_at(call, how) if call else "at-once"),
        )
