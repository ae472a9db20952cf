"""Copy files, list directories, and identify this machine and its processes."""

from __future__ import annotations

import os

from gitckpt.git.process import git_environment, run_program
from gitckpt.model.values import dataclass


def copy_in_kernel(source: int, target: int, size: int) -> bool:
    if not hasattr(os, "copy_file_range"):
        return False
    offset = 0
    while offset < size:
        try:
            count = os.copy_file_range(source, target, size - offset, offset, offset)
        except OSError:  # not supported here; a disk error shows up again in the fallback
            count = 0
        if count == 0:
            os.truncate(target, 0)
            return False
        offset += count
    return True


def names_in(directory: str) -> list[str]:
    """Return the sorted names in a directory; an empty list if it is missing."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):  # also if it is just being created
        return []
    except OSError:
        if os.path.isdir(directory):
            raise
        return []


# Machine and processes: enough to tell whether the author of a note is alive

_PROC = "/proc/self/stat"


@dataclass(slots=True)
class Host:
    """The machine and the PID namespace of a process; "" for what is unknown."""

    name: str
    boot: str  # changes with every boot
    namespace: str


def this_host() -> Host:
    boot_id = _read_text("/proc/sys/kernel/random/boot_id")
    boot_id = boot_id or _output_of("sysctl", "-n", "kern.bootsessionuuid")
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return Host(os.uname().nodename, boot_id, namespace)


def read_process_start(pid: int) -> str:
    """Return the start time of a process as text; "" if the process has ended."""
    if os.path.exists(_PROC):
        fields = _read_process_stat(pid)
        return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
    status, *start_fields = _output_of("ps", "-o", "stat=,lstart=", "-p", str(pid)).split() or [""]
    return "" if status.startswith("Z") else " ".join(start_fields)


def is_process_stopped(pid: int) -> bool:
    if os.path.exists(_PROC):
        return _read_process_stat(pid)[:1] in (["T"], ["t"])
    return _output_of("ps", "-o", "stat=", "-p", str(pid)).startswith("T")


def _read_process_stat(pid: int) -> list[str]:
    # proc(5): the name, which ends in a parenthesis, may hold any byte.
    return _read_text(f"/proc/{pid:d}/stat").rpartition(")")[2].split()


def read_or_empty(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _read_text(path: str) -> str:
    return read_or_empty(path).decode("utf-8", "replace").strip()


def _output_of(*argv: str) -> str:
    result = run_program(argv, env=git_environment())
    return result.text if result.code == 0 else ""
