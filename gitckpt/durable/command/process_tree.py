"""List processes, find what descends from them, and send them signals.

Linux is asked by /proc, other systems by ps(1). A process is known by number and start, since numbers are used again. Where the system has
pidfds, a signal goes through one that is opened before the start is compared.

The supervisor imports this module, so it has to load fast: `signal` and the modules that start processes are not imported at the top.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Iterable, Mapping
else:
    import _signal as signal  # `signal` makes enumerations of its names, a third of the supervisor's start

_SELF = "/proc/self/stat"
_SHOWN = 60
_CHUNK = 65536
_ENDED = "ZX"
_PS = ("ps", "-axEww") if sys.platform == "darwin" else ("ps", "axeww")
_COLUMNS = ("-o", "pid=,ppid=,pgid=,stat=,lstart=,command=")
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """A process that had not ended when the system was asked.

    Attributes:
        pid: its number.
        parent: number of its parent.
        group: number of its process group.
        start: when it started, in a form that only serves to be compared.
        line: command and environment, where ps(1) was asked; "" elsewhere.
    """

    __slots__ = ("group", "line", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, group: int, start: str, line: str = "") -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.start = start
        self.line = line


def table() -> dict[int, Process]:
    """Return all visible processes that have not ended, by number."""
    if not os.path.exists(_SELF):
        return _from_ps()
    processes = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in processes if process is not None}


def own_name() -> str:
    """Return a word that names this process and no later one: its number and start."""
    pid = os.getpid()
    process = _read(pid) if os.path.exists(_SELF) else _from_ps().get(pid)
    return f"{pid}@{process.start.replace(' ', '_') if process else ''}"


def is_running(name: str, processes: Mapping[int, Process]) -> bool:
    """Return whether the process that `own_name` named is in a table."""
    pid, _, start = name.partition("@")
    process = processes.get(int(pid)) if pid.isascii() and pid.isdigit() else None
    return process is not None and process.start.replace(" ", "_") == start


def with_variable(variable: str) -> set[int]:
    """Return the numbers of the processes that have a variable in their environment.

    It reads nothing else of them: most of the time there is none.
    """
    if not os.path.exists(_SELF):
        return {pid for pid, process in _from_ps().items() if f" {variable}=" in process.line}
    word = os.fsencode(f"\0{variable}=")
    pids = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                if word in b"\0" + file.readall():
                    pids.add(int(name))
        except OSError:
            continue  # it has ended, or belongs to another user
    return pids


def descendants(roots: Collection[int], processes: Mapping[int, Process]) -> list[Process]:
    """Return the descendants of some processes, parents before their children.

    Args:
        roots: numbers of the processes, which are not returned themselves.
        processes: what `table` returned.
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
    """Return the numbers of a process, its parent, its parent's parent and so on."""
    pids: set[int] = set()
    while pid in processes and pid not in pids:
        pids.add(pid)
        pid = processes[pid].parent
    return pids


def holders(path: str) -> list[Process]:
    """Return the other processes that have a file open; none without /proc."""
    try:
        wanted = os.stat(path)
        processes = table() if os.path.exists(_SELF) else {}
    except OSError:
        return []
    found = []
    for pid, process in sorted(processes.items()):
        try:
            is_open = any(os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), wanted) for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue  # it has ended, or belongs to another user
        if is_open and pid != os.getpid():
            found.append(process)
    return found


def variables(process: Process, names: Iterable[str]) -> dict[str, str]:
    """Return variables that a process began with; none where they cannot be read.

    Args:
        process: one that `table` returned.
        names: of the wanted variables.
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


def send_signal(process: Process, number: int) -> bool:
    """Send a signal to a process, but not to a later one that has its number.

    Returns:
        Whether it was sent.
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


def describe(process: Process) -> str:
    """Return the number of a process and the beginning of its command, for people."""
    line = process.line
    if not line:
        try:
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                line = os.fsdecode(file.read())
        except OSError:
            pass  # it has ended
    words = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    return f"{process.pid} ({words[:_SHOWN]})" if words else str(process.pid)


def works_in(program: str, directory: str) -> bool | None:
    """Return whether another process of a program works in or below a directory.

    Children of this process do not count. It returns None where the system does not tell.

    Args:
        program: its name, such as "git"; names that begin with it and a hyphen count as well.
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
            path = os.readlink(f"/proc/{number}/cwd") if is_meant else ""
        except OSError:
            continue  # it has ended, or belongs to another user
        if path == top or path.startswith(top + os.sep):
            return True
    return False


def adopt_orphans() -> bool:
    """Make this process the subreaper of its descendants; return whether it is one.

    Only Linux has that; a child of a subreaper is none.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes
    except ImportError:
        return False  # Python was built without it
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ProcessTree:
    """The descendants of this process, which starts one command after the other.

    It learns of the end of children by SIGCHLD, so there can be only one in a process.

    Args:
        adopts: whether orphans become children of this process (`adopt_orphans`). Where they do not, a process belongs to the tree that has
            a parent in it, or is in the process group of the command, or has the tag.
        tag: variables that the descendants have in their environment.

    Attributes:
        wakeup: a file descriptor that is readable when a child may have ended.
    """

    def __init__(self, *, adopts: bool, tag: Mapping[str, str]) -> None:
        self._adopts = adopts
        self._tag = dict(tag)
        self._leader = 0
        self._has_leader = False
        self._has_children = True
        self._known: dict[int, str] = {}
        self.wakeup, wake = os.pipe()
        for fd in (self.wakeup, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def begin(self, leader: int) -> None:
        """Take in that a command has begun: `leader` is a child that leads a process group."""
        self._leader = leader
        self._has_leader = self._has_children = True
        self._known = {}

    @property
    def is_empty(self) -> bool:
        """Whether no descendant is left, and `reap` has returned each child's end."""
        if self._has_leader:
            return False
        return not self._has_children if self._adopts else not self.members()

    def members(self) -> list[Process]:
        """Return the descendants that have not ended."""
        processes = table()
        pids = {os.getpid()}
        if not self._adopts:
            pids |= {pid for pid, process in processes.items() if self._is_member(process)}
        pids |= {process.pid for process in descendants(pids, processes)}
        pids.discard(os.getpid())
        self._known = {pid: processes[pid].start for pid in pids}
        return [processes[pid] for pid in sorted(pids)]

    def send_signal(self, number: int) -> None:
        """Send a signal to each descendant."""
        if self._has_leader:
            try:
                os.killpg(self._leader, number)  # it reaches processes that are being forked at this moment
            except (ProcessLookupError, PermissionError):
                pass
        for process in self.members():
            if not self._has_leader or process.group != self._leader:  # many programs stop cleaning up at a second SIGTERM
                send_signal(process, number)

    def reap(self) -> list[tuple[int, int]]:
        """Return number and status of each child that has ended since the last call."""
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
        if self._known.get(process.pid) == process.start or (self._leader and process.group == self._leader):
            return True  # a known one may have lost the parent by which it was known
        return bool(self._tag) and variables(process, self._tag) == self._tag


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # proc(5): the name before it may hold anything
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20 or fields[0].decode() in _ENDED:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), fields[19].decode())


def _from_ps() -> dict[int, Process]:
    """Ask ps(1), which shows the environments of the user's own processes behind their commands."""
    from gitckpt.git.process import Child, environment

    child = Child([*_PS, *_COLUMNS], environment())
    processes = {}
    for line in child.communicate().out.decode("utf-8", "surrogateescape").splitlines():
        words = line.split(None, 9)
        if len(words) == 10 and words[3][0] not in _ENDED and int(words[0]) != child.pid:
            pid = int(words[0])
            processes[pid] = Process(pid, int(words[1]), int(words[2]), " ".join(words[4:9]), words[9])
    return processes
