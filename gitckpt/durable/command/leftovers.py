"""What an attempt left running although its driver is gone: found by the mark in the environment, by whom it descends from, and by group.

The group is a control group (`cgroup`), where there is one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gitckpt.durable.command import cgroup, processes, supervisor
from gitckpt.durable.command.mark import NAMES, REPOSITORY_VARIABLE, WATCHDOG_VARIABLE, Mark
from gitckpt.durable.command.processes import Process
from gitckpt.model.errors import BusyError
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE

_PAUSE = 0.01
_WATCHDOG_IS_AT_IT = supervisor.GRACE + 0.5
_GRACE = 2.0
_DYING = 3.0
_NAMED = 5


class _Left(NamedTuple):
    """Who lives.

    Attributes:
        tools: what the phases started.
        watchdogs: those of drivers that are dead, and what they started for themselves.
        spared: the numbers of those that are not to be touched: watchdogs, those of other drivers as well, this process, and its ancestors.
    """

    tools: list[Process]
    watchdogs: list[Process]
    spared: set[int]


def end(mark: Mark, *, older: bool = True) -> list[str]:
    """Ends what descends from the phases of a run, as far as it lives on this machine: SIGTERM, two seconds later SIGKILL.

    Neither this process nor one that it descends from is touched, nor a watchdog: that of a driver that is dead ends by itself, that of one
    that was stopped goes on.

    Args:
        mark: of the run, with the token of the lease that is held now.
        older: whether all that was started under an earlier lease is meant; otherwise what was started under this one.

    Returns:
        Who was ended, for people.

    Raises:
        BusyError: somebody cannot be ended.
    """
    known: dict[int, str] = {}
    groups = cgroup.find(mark.run, mark.repository, lambda token: _is_meant(token, mark, older=older))

    def look() -> _Left:
        left = _look(mark, known, groups, older=older)
        known.update((process.pid, process.start) for process in left.tools)
        return left

    left = look()
    named = [processes.name(process) for process in left.tools]
    if left.watchdogs:
        left = _outlast(look, _WATCHDOG_IS_AT_IT)  # it has told them to end, and who is told twice often gives up cleaning up
    if left.tools or left.watchdogs:
        for process in left.tools:
            processes.send(process, signal.SIGTERM)
        for process in (*left.tools, *left.watchdogs):
            processes.send(process, signal.SIGCONT)
        left = _outlast(look, _GRACE)
    deadline = time.monotonic() + _DYING
    while left.tools or left.watchdogs:
        if time.monotonic() > deadline:
            raise stuck(left.tools or left.watchdogs)  # a watchdog ends with those it waits for
        for process in left.tools:
            processes.send(process, signal.SIGKILL)
        for group in groups:
            cgroup.kill(group, left.spared)
        time.sleep(_PAUSE)
        left = look()
    for group in groups:
        cgroup.remove(group)
    return named


def stuck(left: Sequence[Process]) -> BusyError:
    """Returns the error that processes, of which there is at least one, cannot be ended."""
    names = ", ".join(processes.name(process) for process in left[:_NAMED]) + (" and others" if len(left) > _NAMED else "")
    numbers = " ".join(str(process.pid) for process in left[:_NAMED])
    message = f"what a phase started cannot be ended, and would write into the files of the next attempt: process {names}"
    return BusyError(message, hint=f"end it as the user that it belongs to: sudo kill -9 {numbers}; then: git ckpt resume")


def silent(watchdog: int) -> BusyError:
    """Returns the error that a watchdog, whose group has the number that is given, ends nobody and says nothing."""
    # `ps -g` means sessions, and a watchdog leads none.
    look = f'ps -o pid,stat,wchan -p "$(pgrep -d, -g {watchdog})"'
    hint = f"see what it waits for: {look}; end it: kill -9 -{watchdog}; then: git ckpt resume"
    return BusyError(f"the watchdog of the command does not answer: process {watchdog}", hint=hint)


def _outlast(look: Callable[[], _Left], seconds: float) -> _Left:
    """Waits until nobody is left, or so long, and returns who is."""
    deadline = time.monotonic() + seconds
    while ((left := look()).tools or left.watchdogs) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return left


def _is_meant(token: int, mark: Mark, *, older: bool) -> bool:
    return token < mark.token if older else token == mark.token


def _look(mark: Mark, known: Mapping[int, str], groups: Sequence[str], *, older: bool) -> _Left:
    """Returns who lives.

    Args:
        mark: as for `end`.
        known: whom an earlier look has found, with their start: who cleared the environment is found by the parent only, which may be gone.
        groups: the control groups in which everybody is meant.
        older: as for `end`.
    """
    carriers = processes.carriers(REPOSITORY_VARIABLE)
    inside = {pid for group in groups for pid in cgroup.members(group)}
    if not carriers and not known and not inside:
        return _Left([], [], set())
    there = processes.table()
    repository = mark.repository
    tools = {pid for pid, start in known.items() if pid in there and there[pid].start == start} | (inside & there.keys())
    watchdogs: dict[int, bool] = {}
    for process in (there[pid] for pid in carriers & there.keys()):
        found = processes.variables(process, NAMES)
        if found.get(RUN_VARIABLE) == mark.run and found.get(REPOSITORY_VARIABLE) == repository:
            token = found.get(FENCE_VARIABLE, "")
            if token.isascii() and token.isdigit() and _is_meant(int(token), mark, older=older):
                if WATCHDOG_VARIABLE in found:
                    watchdogs[process.pid] = processes.is_there(found[WATCHDOG_VARIABLE], there)
                else:
                    tools.add(process.pid)
    tools |= {process.pid for process in processes.descendants(tools | watchdogs.keys(), there)}
    spared = watchdogs.keys() | processes.ancestors(os.getpid(), there)
    waited_for = [there[pid] for pid in sorted(watchdogs) if not watchdogs[pid]]
    return _Left([there[pid] for pid in sorted(tools - spared)], waited_for, spared)
