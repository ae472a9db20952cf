"""All that descends from a process, seen from that process: who there is, who has ended, and how to reach everybody at once."""

from __future__ import annotations

import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

    from gitckpt.durable.command.processes import Process
else:
    import _signal as signal  # `signal` makes enumerations of its names, which takes a third of the start

_PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 4096


def adopt() -> bool:
    """Makes this process the parent of all orphans that descend from it (Linux); a child of it is none. Returns whether that succeeded."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes
    except ImportError:
        return False  # Python was built without it
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class Family:
    """What descends from this process.

    It is told of the end of its children by SIGCHLD: there can be only one in a process.

    Args:
        adopts: whether orphans become its children, as `adopt` says. Where they do not, those belong to it who have a parent in it, or
            are in the process group of the command, or have the marks.
        marks: environment of whoever belongs to it, unless they cleared it; where orphans are adopted, it does not matter.

    Attributes:
        woken: a file descriptor that is readable when a child may have ended.
        spared: a child that does not belong to it, with all that descends from that one; 0 for none.
    """

    def __init__(self, *, adopts: bool, marks: Mapping[str, str]) -> None:
        self.spared = 0
        self._adopts = adopts
        self._marks = dict(marks)
        self._leader = 0
        self._has_leader = False
        self._has_children = True
        self._known: dict[int, str] = {}
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        os.write(wake, b"\0")  # a child may have ended before

    def begin(self, leader: int) -> None:
        """Notes that a command has begun.

        Args:
            leader: a child that leads a process group.
        """
        self._leader = leader
        self._has_leader = self._has_children = True
        self._known = {}

    @property
    def is_gone(self) -> bool:
        """Whether nobody is left of it, and everybody's end was returned by `reap`."""
        if self._has_leader:
            return False
        return not self._has_children if self._adopts and not self.spared else not self.members()

    def members(self) -> list[Process]:
        """Returns who has not ended."""
        from gitckpt.durable.command import processes  # which few commands need at their end

        there = processes.table()
        found = {os.getpid()}
        if not self._adopts:
            found |= {pid for pid, process in there.items() if self._is_alike(process)}
        found |= {process.pid for process in processes.descendants(found, there)}
        found -= {self.spared, os.getpid(), *(process.pid for process in processes.descendants({self.spared} - {0}, there))}
        self._known = {pid: there[pid].start for pid in found}
        return [there[pid] for pid in sorted(found)]

    def send(self, number: int) -> None:
        """Sends a signal to each of them."""
        from gitckpt.durable.command import processes

        if self._has_leader:
            try:
                os.killpg(self._leader, number)  # nobody escapes it by being forked at this moment
            except (ProcessLookupError, PermissionError):
                pass
        for process in self.members():
            if not self._has_leader or process.group != self._leader:  # who is told to end twice often gives up cleaning up
                processes.send(process, number)

    def reap(self) -> list[tuple[int, int]]:
        """Returns the children that have ended since the last time, each with what `os.waitpid` says of it."""
        try:
            os.read(self.woken, _CHUNK)
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

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Does as `reap`, once a child may have ended, or so much time has passed."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)
        return self.reap()

    def _is_alike(self, process: Process) -> bool:
        from gitckpt.durable.command import processes

        if self._known.get(process.pid) == process.start or (self._leader and process.group == self._leader):
            return True  # somebody known already may have lost the parent by whom it was known
        return bool(self._marks) and processes.variables(process, self._marks) == self._marks
