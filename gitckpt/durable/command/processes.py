"""What other processes do, as far as the system tells (Linux, by /proc)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

_PROC = "/proc/self/environ"
_PAUSE = 0.01


def outlast(env: Mapping[str, str], patience: float) -> bool:
    """Waits for the end of the processes that have something in their environment; tells whether it came, or cannot be told here.

    Args:
        env: all of it.
        patience: how long to wait, in seconds.
    """
    words = {os.fsencode(f"{name}={value}") for name, value in env.items()}
    deadline = time.monotonic() + patience
    while any(_has(words, entry) for entry in (os.listdir("/proc") if os.path.exists(_PROC) else ()) if entry.isdigit()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _has(words: set[bytes], number: str) -> bool:
    try:
        with open(f"/proc/{number}/environ", "rb") as file:
            return words <= set(file.read().split(b"\0")) and int(number) != os.getpid()
    except OSError:
        return False  # it has ended, or is somebody else's


def works_in(program: str, directory: str) -> bool | None:
    """Tells whether a process of a program works in a directory, or below it, that is none of ours; None where the system does not tell.

    Args:
        program: its name, such as "git"; others that begin with it and a hyphen count as well.
        directory: absolute path.
    """
    if not os.path.exists(_PROC):
        return None
    top = os.path.realpath(directory)
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
                head, _, rest = file.read().rpartition(")")
            name = head.partition("(")[2]
            is_meant = (name == program or name.startswith(f"{program}-")) and int(rest.split()[1]) != os.getpid()
            here = os.readlink(f"/proc/{number}/cwd") if is_meant else ""
        except OSError:
            continue  # it has ended, or is somebody else's
        if here == top or here.startswith(top + os.sep):
            return True
    return False


def somebody_lives(group: int) -> bool:
    """Returns whether anybody in a process group has not ended yet; True where the system does not tell.

    Orphans that have ended stay in the group until the first process has waited for them, which that of a container may never do.
    """
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return True
    return not numbers or any(_lives_in(group, name) for name in numbers)


def _lives_in(group: int, number: str) -> bool:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            state, _, found = file.read().rpartition(b") ")[2].split(b" ", 3)[:3]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(found) == group and state not in (b"Z", b"X")
