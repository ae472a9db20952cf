"""List processes, find descendants and send signals, with /proc or ps(1).

Process ids are reused, so a process is identified by its id and start time. The supervisor imports
this module, so it must load fast: no `signal` or `subprocess` at the top.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Iterable, Mapping
else:
    import _signal as signal  # importing `signal` takes a third of the supervisor's start time

_SELF = "/proc/self/stat"
_SHOWN, _CHUNK = 60, 65536
_ENDED = "ZX"  # states of processes that have ended
_PS = ("ps", "-axEww") if sys.platform == "darwin" else ("ps", "axeww")
_COLUMNS = ("-o", "pid=,ppid=,pgid=,stat=,lstart=,command=")
_PR_SET_CHILD_SUBREAPER = 36


# A process that was running when the list of processes was read.
class Process:
    __slots__ = ("group", "line", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, group: int, start: str, line: str = "") -> None:
        self.pid, self.parent, self.group = pid, parent, group
        self.start = start  # only for comparison
        self.line = line  # command and environment from ps(1); "" with /proc


def list_processes() -> dict[int, Process]:
    if not os.path.exists(_SELF):
        return _list_with_ps()
    processes = (_read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in processes if process is not None}


def own_name() -> str:
    """Return a unique name of this process: `PID@START`, with its start time."""
    pid = os.getpid()
    process = _read_process(pid) if os.path.exists(_SELF) else _list_with_ps().get(pid)
    return f"{pid}@{process.start.replace(' ', '_') if process else ''}"


def is_running(name: str, processes: Mapping[int, Process]) -> bool:
    pid, _, start = name.partition("@")
    process = processes.get(int(pid)) if pid.isascii() and pid.isdigit() else None
    return process is not None and process.start.replace(" ", "_") == start


def pids_with_variable(variable: str) -> set[int]:
    if not os.path.exists(_SELF):
        return {pid for pid, process in _list_with_ps().items() if f" {variable}=" in process.line}
    pattern = os.fsencode(f"\0{variable}=")
    pids = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                if pattern in b"\0" + file.readall():
                    pids.add(int(name))
        except OSError:
            continue  # the process has ended, or belongs to another user
    return pids


def descendants(roots: Collection[int], processes: Mapping[int, Process]) -> list[Process]:
    """Return the descendants of the processes `roots`, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    members: dict[int, Process] = {}
    parents = list(roots)
    for parent in parents:  # grows in the loop
        for child in children.get(parent, ()):
            if child.pid not in members and child.pid not in roots:
                members[child.pid] = child
                parents.append(child.pid)
    return list(members.values())


def ancestors(pid: int, processes: Mapping[int, Process]) -> set[int]:
    pids: set[int] = set()
    while pid in processes and pid not in pids:
        pids.add(pid)
        pid = processes[pid].parent
    return pids


def processes_with_open(path: str) -> list[Process]:
    """Return the processes except this one that have a file open; [] without /proc."""
    try:
        target = os.stat(path)
        processes = list_processes() if os.path.exists(_SELF) else {}
    except OSError:
        return []
    processes.pop(os.getpid(), None)
    holding = []
    for pid, process in sorted(processes.items()):
        fds = f"/proc/{pid}/fd"
        try:
            files = os.listdir(fds)
            is_open = any(os.path.samestat(os.stat(f"{fds}/{fd}"), target) for fd in files)
        except OSError:
            continue  # the process has ended, or belongs to another user
        if is_open:
            holding.append(process)
    return holding


def variables(process: Process, names: Iterable[str]) -> dict[str, str]:
    """Read some environment variables of a process; return {} if they are unreadable."""
    words = process.line.split(" ")
    if not process.line:
        words = _read_text(f"/proc/{process.pid}/environ").split("\0")
    name_set = frozenset(names)
    pairs = (entry.partition("=") for entry in words)
    return {name: value for name, equals, value in pairs if equals and name in name_set}


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""  # the process has ended, or belongs to another user


def send_signal(process: Process, number: int) -> bool:
    """Send a signal unless the pid was reused; return whether the signal was sent."""
    fd = -1
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # an old kernel, or a container that forbids pidfds
    try:
        if os.path.exists(_SELF):
            current = _read_process(process.pid)
            if current is None or current.start != process.start:
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


def describe(process: Process) -> str:
    line = process.line or _read_text(f"/proc/{process.pid}/cmdline")
    text = "".join(character if character.isprintable() else " " for character in line)
    words = " ".join(text.split())
    return f"{process.pid} ({words[:_SHOWN]})" if words else str(process.pid)


def is_working_in(program: str, directory: str) -> bool | None:
    """Return whether a program runs with its current directory below `directory`."""
    if not os.path.exists(_SELF):
        return None  # ps(1) does not show current directories
    top = os.path.realpath(directory)
    for number in filter(str.isdigit, os.listdir("/proc")):
        head, _, fields = _read_text(f"/proc/{number}/stat").rpartition(")")
        name = head.partition("(")[2]
        if name != program and not name.startswith(f"{program}-"):
            continue
        try:
            path = os.readlink(f"/proc/{number}/cwd")
        except OSError:
            continue  # the process has ended, or belongs to another user
        is_inside = path == top or path.startswith(top + os.sep)
        if is_inside and int(fields.split()[1]) != os.getpid():
            return True
    return False


def adopt_orphans() -> bool:
    """Make this process the parent of orphaned descendants; return whether it worked."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes
    except ImportError:
        return False  # Python was built without ctypes
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ProcessTree:
    """The descendants of this process; a handler of SIGCHLD notices when children end."""

    def __init__(self, *, adopts: bool, tag: Mapping[str, str]) -> None:
        self._adopts, self._tag = adopts, dict(tag)
        self._leader, self._has_leader, self._has_children = 0, False, True
        self._known: dict[int, str] = {}  # start times of members by pid
        self.wakeup, wake = os.pipe()  # readable when a child may have ended
        for fd in (self.wakeup, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def begin(self, leader: int) -> None:
        self._leader = leader
        self._has_leader = self._has_children = True
        self._known = {}

    @property
    def is_empty(self) -> bool:
        if self._has_leader:
            return False
        return not self._has_children if self._adopts else not self.members()

    def members(self) -> list[Process]:
        processes = list_processes()
        pids = {os.getpid()}
        if not self._adopts:
            pids |= {pid for pid, process in processes.items() if self._is_member(process)}
        pids |= {process.pid for process in descendants(pids, processes)}
        pids.discard(os.getpid())
        self._known = {pid: processes[pid].start for pid in pids}
        return [processes[pid] for pid in sorted(pids)]

    def send_signal(self, number: int) -> None:
        if self._has_leader:
            try:
                os.killpg(self._leader, number)  # also reaches processes that are just being forked
            except (ProcessLookupError, PermissionError):
                pass
        for process in self.members():
            # Many programs stop cleaning up at a second SIGTERM.
            if not self._has_leader or process.group != self._leader:
                send_signal(process, number)

    def reap(self) -> list[tuple[int, int]]:
        try:
            os.read(self.wakeup, _CHUNK)
        except BlockingIOError:
            pass
        ended: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return ended
            if not pid:
                return ended
            ended.append((pid, status))
            self._has_leader = self._has_leader and pid != self._leader

    def _is_member(self, process: Process) -> bool:
        if self._known.get(process.pid) == process.start:
            return True  # the parent of the process may have ended since
        if self._leader and process.group == self._leader:
            return True
        return bool(self._tag) and variables(process, self._tag) == self._tag


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # proc(5): the name in parentheses may contain anything
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20 or fields[0].decode() in _ENDED:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), fields[19].decode())


def _list_with_ps() -> dict[int, Process]:
    # ps(1) shows the environments of the user's own processes after their commands.
    from gitckpt.git.process import Child, environment

    child = Child([*_PS, *_COLUMNS], environment())
    processes = {}
    for line in child.communicate().out.decode("utf-8", "surrogateescape").splitlines():
        words = line.split(None, 9)
        if len(words) < 10 or words[3][0] in _ENDED or int(words[0]) == child.pid:
            continue
        pid, parent, group = map(int, words[:3])
        processes[pid] = Process(pid, parent, group, " ".join(words[4:9]), words[9])
    return processes
