"""List processes, find their descendants and send signals, with /proc or ps(1).

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
    processes = (_read_process(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())
    return {process.pid: process for process in processes if process is not None}


def current_process_name() -> str:
    """Return `PID@START`, a unique name made of this process's id and start time."""
    pid = os.getpid()
    process = _read_process(pid) if os.path.exists(_SELF) else _list_with_ps().get(pid)
    return f"{pid}@{process.start.replace(' ', '_') if process else ''}"


def is_process_running(name: str, processes: Mapping[int, Process]) -> bool:
    pid, _, start_time = name.partition("@")
    process = processes.get(int(pid)) if pid.isascii() and pid.isdigit() else None
    return process is not None and process.start.replace(" ", "_") == start_time


def find_pids_with_variable(variable: str) -> set[int]:
    if not os.path.exists(_SELF):
        return {pid for pid, process in _list_with_ps().items() if f" {variable}=" in process.line}
    variable_pattern = os.fsencode(f"\0{variable}=")
    matching_pids = set()
    for pid_text in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid_text}/environ", "rb", buffering=0) as file:
                if variable_pattern in b"\0" + file.readall():
                    matching_pids.add(int(pid_text))
        except OSError:
            continue  # the process has ended, or belongs to another user
    return matching_pids


def find_descendants(roots: Collection[int], processes: Mapping[int, Process]) -> list[Process]:
    children_by_parent: dict[int, list[Process]] = {}
    for process in processes.values():
        children_by_parent.setdefault(process.parent, []).append(process)
    descendants: dict[int, Process] = {}
    parent_pids = list(roots)
    for parent_pid in parent_pids:  # grows in the loop
        for child in children_by_parent.get(parent_pid, ()):
            if child.pid not in descendants and child.pid not in roots:
                descendants[child.pid] = child
                parent_pids.append(child.pid)
    return list(descendants.values())


def find_ancestors(pid: int, processes: Mapping[int, Process]) -> set[int]:
    ancestor_pids: set[int] = set()
    while pid in processes and pid not in ancestor_pids:
        ancestor_pids.add(pid)
        pid = processes[pid].parent
    return ancestor_pids


def find_processes_with_open_file(path: str) -> list[Process]:
    """Return the other processes that have the file open, by their time of start.

    Returns [] on systems without /proc.
    """
    try:
        file_status = os.stat(path)
        processes = list_processes() if os.path.exists(_SELF) else {}
    except OSError:
        return []
    processes.pop(os.getpid(), None)
    processes_with_file = []
    for process in sorted(processes.values(), key=lambda process: int(process.start)):
        fd_dir = f"/proc/{process.pid}/fd"
        try:
            fds = os.listdir(fd_dir)
            is_open = any(os.path.samestat(os.stat(f"{fd_dir}/{fd}"), file_status) for fd in fds)
        except OSError:
            continue  # the process has ended, or belongs to another user
        if is_open:
            processes_with_file.append(process)
    return processes_with_file


def read_env_variables(process: Process, names: Iterable[str]) -> dict[str, str]:
    assignments = process.line.split(" ")
    if not process.line:
        assignments = _read_proc_file(f"/proc/{process.pid}/environ").split("\0")
    name_set = frozenset(names)
    split_assignments = (assignment.partition("=") for assignment in assignments)
    return {name: value for name, equals, value in split_assignments if equals and name in name_set}


def _read_proc_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""  # the process has ended, or belongs to another user


def send_signal(process: Process, number: int) -> bool:
    """Send a signal if the process still runs; return whether the signal was sent."""
    pidfd = -1
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # an old kernel, or a container that forbids pidfds
    try:
        if os.path.exists(_SELF):
            current_process = _read_process(process.pid)
            if current_process is None or current_process.start != process.start:
                return False
        if sys.platform == "linux" and pidfd >= 0:
            signal.pidfd_send_signal(pidfd, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if pidfd >= 0:
            os.close(pidfd)
    return True


def describe_process(process: Process) -> str:
    command = process.line or _read_proc_file(f"/proc/{process.pid}/cmdline")
    clean_line = "".join(character if character.isprintable() else " " for character in command)
    short_line = " ".join(clean_line.split())
    return f"{process.pid} ({short_line[:_SHOWN]})" if short_line else str(process.pid)


def is_program_working_in(program: str, directory: str) -> bool | None:
    """Return whether another process of `program` works below `directory`, or None."""
    if not os.path.exists(_SELF):
        return None  # ps(1) does not show current directories
    top_directory = os.path.realpath(directory)
    for pid_text in filter(str.isdigit, os.listdir("/proc")):
        stat_head, _, stat_fields = _read_proc_file(f"/proc/{pid_text}/stat").rpartition(")")
        program_name = stat_head.partition("(")[2]
        if program_name != program and not program_name.startswith(f"{program}-"):
            continue
        try:
            cwd = os.readlink(f"/proc/{pid_text}/cwd")
        except OSError:
            continue  # the process has ended, or belongs to another user
        is_inside = cwd == top_directory or cwd.startswith(top_directory + os.sep)
        if is_inside and int(stat_fields.split()[1]) != os.getpid():
            return True
    return False


def adopt_orphans() -> bool:
    """Make this process the parent of its orphaned descendants; return the success."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes
    except ImportError:
        return False  # Python was built without ctypes
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ProcessTree:
    """The descendants of this process; `wakeup` is readable when a child has ended."""

    def __init__(self, *, adopts: bool, tag: Mapping[str, str]) -> None:
        self._adopts, self._tag = adopts, dict(tag)
        self._leader, self._has_leader, self._has_children = 0, False, True
        self._known: dict[int, str] = {}  # start times of members by pid
        self.wakeup, wake_fd = os.pipe()  # readable when a child may have ended
        for fd in (self.wakeup, wake_fd):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)

    def track_process_group(self, leader: int) -> None:
        self._leader = leader
        self._has_leader = self._has_children = True
        self._known = {}

    @property
    def is_empty(self) -> bool:
        if self._has_leader:
            return False
        return not self._has_children if self._adopts else not self.list_members()

    def list_members(self) -> list[Process]:
        processes = list_processes()
        pids = {os.getpid()}
        if not self._adopts:
            pids |= {pid for pid, process in processes.items() if self._is_member(process)}
        pids |= {process.pid for process in find_descendants(pids, processes)}
        pids.discard(os.getpid())
        self._known = {pid: processes[pid].start for pid in pids}
        return [processes[pid] for pid in sorted(pids)]

    def send_signal_to_all(self, number: int) -> None:
        if self._has_leader:
            try:
                os.killpg(self._leader, number)  # also reaches processes that are just being forked
            except (ProcessLookupError, PermissionError):
                pass
        for process in self.list_members():
            # Many programs stop cleaning up at a second SIGTERM.
            if not self._has_leader or process.group != self._leader:
                send_signal(process, number)

    def reap_children(self) -> list[tuple[int, int]]:
        try:
            os.read(self.wakeup, _CHUNK)
        except BlockingIOError:
            pass
        ended_children: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return ended_children
            if not pid:
                return ended_children
            ended_children.append((pid, status))
            self._has_leader = self._has_leader and pid != self._leader

    def _is_member(self, process: Process) -> bool:
        if self._known.get(process.pid) == process.start:
            return True  # the parent of the process may have ended since
        if self._leader and process.group == self._leader:
            return True
        return bool(self._tag) and read_env_variables(process, self._tag) == self._tag


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # proc(5): the name in parentheses may contain anything
            stat_fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(stat_fields) < 20 or stat_fields[0].decode() in _ENDED:
        return None
    return Process(pid, int(stat_fields[1]), int(stat_fields[2]), stat_fields[19].decode())


def _list_with_ps() -> dict[int, Process]:
    # ps(1) shows the environments of the user's own processes after their commands.
    from gitckpt.git.process import Child, git_environment

    ps_child = Child([*_PS, *_COLUMNS], git_environment())
    processes = {}
    for line in ps_child.communicate().out.decode("utf-8", "surrogateescape").splitlines():
        columns = line.split(None, 9)
        if len(columns) < 10 or columns[3][0] in _ENDED or int(columns[0]) == ps_child.pid:
            continue
        pid, parent, group_id = map(int, columns[:3])
        processes[pid] = Process(pid, parent, group_id, " ".join(columns[4:9]), columns[9])
    return processes
