"""Tag the processes of a run by their environment, and end leftovers.

A descendant that cleared its environment is found by its parent. One that also lost its parent is
found only while the supervisor lives, which adopts it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gitckpt.durable.command import process_tree, supervisor
from gitckpt.durable.command.process_tree import Process
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import BusyError
from gitckpt.model.values import dataclass
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE

# Identifies the repository: run ids are not unique across copies.
REPOSITORY_VARIABLE = "CKPT_REPOSITORY"

# Set for supervisors only: the driver's process, from `process_tree.own_name`.
WATCHDOG_VARIABLE = "CKPT_WATCHDOG"
_VARIABLES = (RUN_VARIABLE, FENCE_VARIABLE, REPOSITORY_VARIABLE, WATCHDOG_VARIABLE)
_PAUSE = 0.01
_WATCHDOG_WAIT = supervisor.GRACE + 0.5
_GRACE = 2.0
_DYING = 3.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class EnvTag:
    run: str
    token: int  # fencing token of the lease
    directory: str  # the common directory of the repository

    @property
    def variables(self) -> dict[str, str]:
        lease = {RUN_VARIABLE: self.run, FENCE_VARIABLE: str(self.token)}
        return {**lease, REPOSITORY_VARIABLE: self.repository}

    @property
    def repository(self) -> str:
        """Return device and inode: stable across moves, links and containers."""
        status = os.stat(self.directory)
        return f"{status.st_dev}:{status.st_ino}"


class _Leftovers(NamedTuple):
    tools: list[Process]
    supervisors: list[Process]  # only those whose driver is dead


def end_leftovers(tag: EnvTag, *, older: bool = True) -> list[str]:
    """End the leftover processes of a run and return descriptions of them.

    Sends SIGTERM, and SIGKILL after 2 s. Spares this process, its ancestors and supervisors, which
    end themselves. `tag` has the token of the present lease; `older` means those of earlier leases.
    """
    scanner = _Scanner(tag, older=older)
    leftovers = scanner.scan()
    ended = [process_tree.describe(process) for process in leftovers.tools]
    if leftovers.supervisors:
        # Let supervisors end their tools: many programs stop cleaning up at a second SIGTERM.
        leftovers = scanner.wait(_WATCHDOG_WAIT)
    if any(leftovers):
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGTERM)
        for process in (*leftovers.tools, *leftovers.supervisors):
            process_tree.send_signal(process, signal.SIGCONT)
        leftovers = scanner.wait(_GRACE)
    deadline = time.monotonic() + _DYING
    while any(leftovers):
        if time.monotonic() > deadline:
            raise cannot_end(leftovers.tools or leftovers.supervisors)
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGKILL)
        time.sleep(_PAUSE)
        leftovers = scanner.scan()
    return ended


def cannot_end(processes: Sequence[Process]) -> BusyError:
    names = first_of([process_tree.describe(process) for process in processes], _SHOWN)
    numbers = " ".join(str(process.pid) for process in processes[:_SHOWN])
    message = f"cannot end what an earlier attempt started, and it may still write files: {names}"
    hint = f"end it as its user: sudo kill -9 {numbers}; then: git ckpt resume"
    return BusyError(message, hint=hint)


class _Scanner:
    def __init__(self, tag: EnvTag, *, older: bool) -> None:
        self._tag, self._older = tag, older
        # Pid and start of tools: an untagged process may lose the parent by which it was found.
        self._tool_starts: dict[int, str] = {}

    def wait(self, seconds: float) -> _Leftovers:
        deadline = time.monotonic() + seconds
        while any(leftovers := self.scan()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return leftovers

    def scan(self) -> _Leftovers:
        tagged = process_tree.with_variable(REPOSITORY_VARIABLE)
        if not tagged and not self._tool_starts:
            return _Leftovers([], [])
        processes = process_tree.table()
        repository = self._tag.repository
        known_tools = self._tool_starts.items()
        tools = {
            pid for pid, start in known_tools if pid in processes and processes[pid].start == start
        }
        drivers: dict[int, str] = {}
        for pid in tagged & processes.keys():
            variables = process_tree.variables(processes[pid], _VARIABLES)
            if variables.get(REPOSITORY_VARIABLE) == repository and self._is_meant(variables):
                if WATCHDOG_VARIABLE in variables:
                    drivers[pid] = variables[WATCHDOG_VARIABLE]
                else:
                    tools.add(pid)
        children = process_tree.descendants(tools | drivers.keys(), processes)
        tools |= {process.pid for process in children}
        tools -= drivers.keys() | process_tree.ancestors(os.getpid(), processes)
        self._tool_starts.update((pid, processes[pid].start) for pid in tools)
        is_running = process_tree.is_running
        orphans = {pid for pid, name in drivers.items() if not is_running(name, processes)}
        return _Leftovers(*([processes[pid] for pid in sorted(pids)] for pids in (tools, orphans)))

    def _is_meant(self, variables: Mapping[str, str]) -> bool:
        token = variables.get(FENCE_VARIABLE, "")
        is_number = token.isascii() and token.isdigit()
        if variables.get(RUN_VARIABLE) != self._tag.run or not is_number:
            return False
        return int(token) < self._tag.token if self._older else int(token) == self._tag.token
