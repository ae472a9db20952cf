"""Copy a file within the file system, and list a directory."""

from __future__ import annotations

import os

from gitckpt.git.process import environment, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# Copy a file within the file system, and list a directory.


def copied_within(source: int, target: int, size: int) -> bool:
    """Lets the system copy a file, which may share its blocks: in a new process it takes 4 ms less than 4 MB do by way of our memory.

    Returns:
        False: it cannot; nothing was copied.
    """
    if not hasattr(os, "copy_file_range"):
        return False
    done = 0
    while done < size:
        try:
            copied = os.copy_file_range(source, target, size - done, done, done)
        except OSError:  # not on this file system; what is wrong with the disk is met again
            copied = 0
        if copied == 0:
            os.truncate(target, 0)
            return False
        done += copied
    return True


def names_in(directory: str) -> list[str]:
    """Returns the names in a directory, sorted; none where there is no directory, also if it goes this moment.

    Raises:
        OSError: it may not be read.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):  # also where it comes into being this moment
        return []
    except OSError:
        if os.path.isdir(directory):
            raise
        return []


# This machine, and which of its processes are alive: enough to tell whether somebody who wrote a note still is.


_PROC = "/proc/self/stat"


class Host:
    """Where a process runs.

    Attributes:
        name: what the machine calls itself.
        boot: changes with every start of the machine; "" where it cannot be told.
        namespace: in which process ids mean something, as containers have their own; "" where there are none.
    """

    __slots__ = ("boot", "name", "namespace")

    def __init__(self, name: str, boot: str, namespace: str) -> None:
        self.name = name
        self.boot = boot
        self.namespace = namespace


def here() -> Host:
    """Returns where this process runs."""
    boot = _content("/proc/sys/kernel/random/boot_id") or _said(["sysctl", "-n", "kern.bootsessionuuid"])
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return Host(os.uname().nodename, boot, namespace)


def start_of(pid: int) -> str:
    """Returns when a process of this machine started, in a form that only serves to be compared; "" where there is none.

    One that has ended, and whose end nobody has waited for yet, counts as gone.
    """
    if os.path.exists(_PROC):
        fields = _content(f"/proc/{pid:d}/stat").rpartition(")")[2].split()  # proc(5): the name before it may hold anything
        return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
    status, _, started = _said(["ps", "-o", "stat=,lstart=", "-p", str(pid)]).strip().partition(" ")
    return "" if status.startswith("Z") else " ".join(started.split())


def is_stopped(pid: int) -> bool:
    """Tells whether a process of this machine was stopped, as by Ctrl-Z or SIGSTOP, and does nothing until somebody lets it go on."""
    if os.path.exists(_PROC):
        fields = _content(f"/proc/{pid:d}/stat").rpartition(")")[2].split()
        return fields[:1] in (["T"], ["t"])
    return _said(["ps", "-o", "stat=", "-p", str(pid)]).startswith("T")


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _said(argv: Sequence[str]) -> str:
    done = run(argv, env=environment())
    return done.out.decode("utf-8", "replace").strip() if done.code == 0 else ""
