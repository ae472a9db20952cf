"""What other processes are, and what they do, as far as the system tells: Linux by /proc, others by ps(1).

A number alone does not name a process: it may have been given anew. So each is known by its start as well, and where the system has
descriptors of processes, a signal is sent through one, which is opened before the start is compared.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterable, Mapping

from gitckpt.git import host
from gitckpt.git.process import Child, environment

_SELF = "/proc/self/stat"
_SHOWN = 60
_CHUNK = 65536
_ENDED = "ZX"
_PS = ("ps", "-axEww") if sys.platform == "darwin" else ("ps", "axeww")
_COLUMNS = ("-o", "pid=,ppid=,pgid=,stat=,lstart=,command=")


class Process:
    """A process that had not ended when it was looked at.

    Attributes:
        pid: its number.
        parent: that of its parent.
        group: that of its process group.
        start: when it started, in a form that only serves to be compared.
        line: its command with its environment, where ps(1) tells of it; "" elsewhere.
    """

    __slots__ = ("group", "line", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, group: int, start: str, line: str = "") -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.start = start
        self.line = line


def table() -> dict[int, Process]:
    """Returns all processes that the system shows and that have not ended, by number."""
    if not os.path.exists(_SELF):
        return _asked()
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def own_name() -> str:
    """Returns what names this process and no other one, in a word: its number and its start."""
    return "@".join((str(os.getpid()), host.start_of(os.getpid()).replace(" ", "_")))


def is_there(word: str, processes: Mapping[int, Process]) -> bool:
    """Tells whether the process with a name that `own_name` has returned is among some."""
    pid, _, start = word.partition("@")
    found = processes.get(int(pid)) if pid.isascii() and pid.isdigit() else None
    return found is not None and found.start.replace(" ", "_") == start


def carriers(variable: str) -> set[int]:
    """Returns the numbers of the processes that have a variable in their environment: a look at nothing else, for there is seldom one."""
    if not os.path.exists(_SELF):
        return {pid for pid, process in _asked().items() if f" {variable}=" in process.line}
    word = os.fsencode(f"\0{variable}=")
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fd = os.open(f"/proc/{name}/environ", os.O_RDONLY)
        except OSError:
            continue  # it has ended, or is somebody else's
        try:
            data = b"\0"
            while chunk := os.read(fd, _CHUNK):
                data += chunk
            if word in data:
                found.add(int(name))
        except OSError:
            pass  # it has ended meanwhile
        finally:
            os.close(fd)
    return found


def descendants(roots: Collection[int], processes: Mapping[int, Process]) -> list[Process]:
    """Returns those that descend from some processes, without these, parents before their children.

    Args:
        roots: their numbers.
        processes: as `table` returns them.
    """
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    parents = list(roots)
    for parent in parents:  # which grows
        for child in children.get(parent, ()):
            if child.pid not in found and child.pid not in roots:
                found[child.pid] = child
                parents.append(child.pid)
    return list(found.values())


def ancestors(pid: int, processes: Mapping[int, Process]) -> set[int]:
    """Returns the numbers of a process and of those that it descends from."""
    found: set[int] = set()
    while pid in processes and pid not in found:
        found.add(pid)
        pid = processes[pid].parent
    return found


def holders(path: str) -> list[Process]:
    """Returns the processes that have a file open, by number; none where the system does not tell."""
    try:
        meant = os.stat(path)
        there = table() if os.path.exists(_SELF) else {}
    except OSError:
        return []
    found = []
    for pid, process in sorted(there.items()):
        try:
            held = any(os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), meant) for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue  # it has ended, or is somebody else's
        if held and pid != os.getpid():
            found.append(process)
    return found


def variables(process: Process, names: Iterable[str]) -> dict[str, str]:
    """Returns what a process had in its environment when it began; nothing where that cannot be read, as somebody else's.

    Args:
        process: as `table` returns it.
        names: of the variables that matter.
    """
    if process.line:
        words = process.line.split(" ")
    else:
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
        except OSError:
            return {}
    wanted = frozenset(names)
    pairs = (word.partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals and name in wanted}


def send(process: Process, number: int) -> bool:
    """Sends a signal to a process, and to no other one that got its number since; returns whether it was sent.

    Args:
        process: as `table` returns it.
        number: of the signal.
    """
    fd = -1
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # an old kernel, or a container that forbids it
    try:
        if os.path.exists(_SELF):
            now = _read(process.pid)
            if now is None or now.start != process.start:
                return False
        if sys.platform == "linux" and fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def name(process: Process) -> str:
    """Names a process for people: its number, and the beginning of its command."""
    said = process.line
    if not said:
        try:
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                said = os.fsdecode(file.read())
        except OSError:
            pass  # it has ended
    words = " ".join("".join(character if character.isprintable() else " " for character in said).split())
    return f"{process.pid} ({words[:_SHOWN]})" if words else str(process.pid)


def works_in(program: str, directory: str) -> bool | None:
    """Tells whether a process of a program works in a directory, or below it, that is none of ours; None where the system does not tell.

    Args:
        program: its name, such as "git"; others that begin with it and a hyphen count as well.
        directory: absolute path.
    """
    if not os.path.exists(_SELF):
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


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # proc(5): the name before it may hold anything
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20 or fields[0].decode() in _ENDED:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), fields[19].decode())


def _asked() -> dict[int, Process]:
    """Returns what ps(1) says, which shows the environments of our own processes behind their commands."""
    child = Child([*_PS, *_COLUMNS], environment())
    found = {}
    for line in child.communicate().out.decode("utf-8", "surrogateescape").splitlines():
        words = line.split(None, 9)
        if len(words) == 10 and words[3][0] not in _ENDED and int(words[0]) != child.pid:
            pid = int(words[0])
            found[pid] = Process(pid, int(words[1]), int(words[2]), " ".join(words[4:9]), words[9])
    return found
