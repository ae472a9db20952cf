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
from gitckpt.model.errors import BusyError
from gitckpt.model.values import dataclass
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE

# Identifies the repository: run ids are not unique across copies.
REPOSITORY_VARIABLE = "CKPT_REPOSITORY"

# Set for supervisors only: the driver's process, from `process_tree.own_name`.
WATCHDOG_VARIABLE = "CKPT_WATCHDOG"

_PAUSE = 0.01
_WATCHDOG_WAIT = supervisor.GRACE + 0.5
_GRACE = 2.0
_DYING = 3.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class EnvTag:
    run: str
    token: int  # fencing token of the lease
    directory: str  # the common directory of the repository

    @property
    def variables(self) -> dict[str, str]:
        return {
            RUN_VARIABLE: self.run,
            FENCE_VARIABLE: str(self.token),
            REPOSITORY_VARIABLE: self.repository,
        }

    @property
    def repository(self) -> str:
        """Return device and inode: stable across moves, links and containers."""
        status = os.stat(self.directory)
        return f"{status.st_dev}:{status.st_ino}"


class _Leftovers(NamedTuple):
    # `supervisors` holds only those whose driver is dead.
    tools: list[Process]
    supervisors: list[Process]


def end_leftovers(tag: EnvTag, *, older: bool = True) -> list[str]:
    """End the leftover processes of a run: SIGTERM, then SIGKILL after 2 s.

    Spares this process, its ancestors and supervisors. A supervisor ends itself after its driver.

    Args:
        tag: with the token of the present lease.
        older: end processes of earlier leases; otherwise those of this one.

    Returns:
        Descriptions of the ended processes.
    """
    known: dict[int, str] = {}
    leftovers = _scan(tag, known, older=older)
    ended = [process_tree.describe(process) for process in leftovers.tools]
    if leftovers.supervisors:
        # Let supervisors end their tools: many programs stop cleaning up at a second SIGTERM.
        leftovers = _wait(tag, known, _WATCHDOG_WAIT, older=older)
    if any(leftovers):
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGTERM)
        for process in (*leftovers.tools, *leftovers.supervisors):
            process_tree.send_signal(process, signal.SIGCONT)
        leftovers = _wait(tag, known, _GRACE, older=older)
    deadline = time.monotonic() + _DYING
    while any(leftovers):
        if time.monotonic() > deadline:
            raise cannot_end(
                leftovers.tools or leftovers.supervisors
            )  # a supervisor ends after its tools
        for process in leftovers.tools:
            process_tree.send_signal(process, signal.SIGKILL)
        time.sleep(_PAUSE)
        leftovers = _scan(tag, known, older=older)
    return ended


def cannot_end(processes: Sequence[Process]) -> BusyError:
    more = " and others" if len(processes) > _NAMED else ""
    names = ", ".join(process_tree.describe(process) for process in processes[:_NAMED]) + more
    numbers = " ".join(str(process.pid) for process in processes[:_NAMED])
    message = f"what a phase started cannot be ended, and would write into the files of the next attempt: process {names}"
    return BusyError(
        message,
        hint=f"end it as the user that it belongs to: sudo kill -9 {numbers}; then: git ckpt resume",
    )


def _wait(tag: EnvTag, known: dict[int, str], seconds: float, *, older: bool) -> _Leftovers:
    deadline = time.monotonic() + seconds
    while any(leftovers := _scan(tag, known, older=older)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return leftovers


def _scan(tag: EnvTag, known: dict[int, str], *, older: bool) -> _Leftovers:
    # `known` holds pid and start of tools found before: an untagged process may have lost the
    # parent by which it was found.
    tagged = process_tree.with_variable(REPOSITORY_VARIABLE)
    if not tagged and not known:
        return _Leftovers([], [])
    processes = process_tree.table()
    repository = tag.repository
    tools = {
        pid for pid, start in known.items() if pid in processes and processes[pid].start == start
    }
    drivers: dict[int, str] = {}
    for process in (processes[pid] for pid in tagged & processes.keys()):
        found = process_tree.variables(
            process, (RUN_VARIABLE, FENCE_VARIABLE, REPOSITORY_VARIABLE, WATCHDOG_VARIABLE)
        )
        if found.get(REPOSITORY_VARIABLE) == repository and _is_meant(found, tag, older=older):
            if WATCHDOG_VARIABLE in found:
                drivers[process.pid] = found[WATCHDOG_VARIABLE]
            else:
                tools.add(process.pid)
    tools |= {
        process.pid for process in process_tree.descendants(tools | drivers.keys(), processes)
    }
    tools -= drivers.keys() | process_tree.ancestors(os.getpid(), processes)
    known.update((pid, processes[pid].start) for pid in tools)
    waiting = [
        pid for pid, driver in drivers.items() if not process_tree.is_running(driver, processes)
    ]
    return _Leftovers(
        [processes[pid] for pid in sorted(tools)], [processes[pid] for pid in sorted(waiting)]
    )


def _is_meant(variables: Mapping[str, str], tag: EnvTag, *, older: bool) -> bool:
    token = variables.get(FENCE_VARIABLE, "")
    if variables.get(RUN_VARIABLE) != tag.run or not (token.isascii() and token.isdigit()):
        return False
    return int(token) < tag.token if older else int(token) == tag.token
